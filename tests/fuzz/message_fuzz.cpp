// Fuzzing the door: whatever the 64 bytes are, decode() refuses them or gives a message that says what it said.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "coherence/protocol/admission.hpp"
#include "coherence/protocol/message.hpp"
#include "utils/assert.hpp"

using namespace tarn;
using namespace tarn::protocol;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    for (; size >= sizeof(Message); data += sizeof(Message), size -= sizeof(Message)) {
        std::byte bytes[sizeof(Message)];
        std::memcpy(bytes, data, sizeof bytes);
        const Result<Message> message = decode(bytes);
        if (!message) continue;
        TARN_ASSERT(std::memcmp(&*message, bytes, sizeof bytes) == 0);
        TARN_ASSERT(to_string(message->kind) != nullptr && validate(*message));
        const Link link{.self = 0, .peer = 1, .process = {1, 1}, .hosts = 7, .view_epoch = 1, .map_epoch = 1};
        for (HostId home = 0; home < 3; ++home)
            if (const Result<> admitted = admit(*message, link, home, 100))
                TARN_ASSERT(message->from == 1 && message->page.number() < 100);
    }
    return 0;
}
