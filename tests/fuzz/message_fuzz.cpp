// Fuzzing the door: whatever the 64 bytes are, decode() refuses them or gives a message that says what it said; and
// whatever the parts are that follow it, they are refused, or each of its runs is valid, and they are not too many.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "coherence/protocol/admission.hpp"
#include "coherence/protocol/coalescing.hpp"
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
        if (message->parts * sizeof(Part) > size - sizeof(Message)) continue;
        std::vector<Part> parts(message->parts);
        if (!parts.empty()) std::memcpy(parts.data(), data + sizeof(Message), parts.size() * sizeof(Part));
        if (!validate(*message, parts)) continue;
        uint32_t page_count = 0;
        for (size_t index = 0; index <= parts.size(); ++index) {
            const Message run = run_of(*message, parts, index);
            TARN_ASSERT(run.parts == 0 && validate(run));
            page_count += 1u + run.run;
            for (uint32_t page = 0; page <= run.run; ++page) TARN_ASSERT(validate(part_of(run, page)));
        }
        TARN_ASSERT(page_count <= joined_pages_max);
    }
    return 0;
}
