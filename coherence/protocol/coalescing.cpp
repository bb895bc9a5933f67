#include "coherence/protocol/coalescing.hpp"

#include <cstring>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::protocol {

namespace {

constexpr uint8_t bytes_flags = flag_payload | flag_zero | flag_lost;

bool are_equal(const Message& a, const Message& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// Whether `next` is about the page after those of `run`, and says the same. `frame` is ignored: an answer to a run is
// not placed at the requester.
bool follows(const Message& run, const Message& next) {
    if ((run.page.number() + run.run + 1) % run_pages_max == 0) return false;
    Message expected = part_of(run, run.run + 1u);
    expected.frame = next.frame;
    return are_equal(expected, next);
}

// The fields that all runs of a batch share.
Message common_of(Message message) {
    message.page = {};
    message.tenure = message.hosts = 0;
    message.request_id = message.sequence = 0;
    message.frame = no_frame;
    message.run = message.parts = 0;
    return message;
}

}  // namespace

void Batch::begin(const Message& message) {
    open_ = may_be_joined(message.kind) && !message.has_bytes() && message.run == 0 && message.parts == 0;
    message_ = last_run_ = message;
    page_count_ = 1;
}

Batch::Joined Batch::join(const Message& next) {
    if (!open_ || page_count_ >= joined_pages_max || next.run != 0 || next.parts != 0) return Joined::no;
    if (follows(last_run_, next)) {
        ++page_count_;
        ++last_run_.run;
        message_.frame = no_frame;
        if (message_.parts == 0)
            message_.run = last_run_.run;
        else
            last_part_.run = last_run_.run;
        return Joined::run;
    }
    if (!are_equal(common_of(message_), common_of(next)) || next.hosts > ~uint32_t{0}) return Joined::no;
    ++page_count_;
    ++message_.parts;
    message_.frame = no_frame;
    last_run_ = next;
    last_part_ = {.page = next.page,
                  .tenure = next.tenure,
                  .request_id = next.request_id,
                  .sequence = next.sequence,
                  .age = static_cast<uint32_t>(next.hosts)};
    return Joined::part;
}

Message run_of(const Message& message, std::span<const Part> parts, size_t index) noexcept {
    Message run = message;
    run.parts = 0;
    if (index == 0) return run;
    const Part& part = parts[index - 1];
    run.page = part.page;
    run.tenure = part.tenure;
    run.request_id = part.request_id;
    run.sequence = part.sequence;
    run.hosts = part.age;
    run.run = static_cast<uint16_t>(part.run);
    return run;
}

Message part_of(const Message& run, uint32_t index) noexcept {
    Message part = run;
    part.run = 0;
    part.page.value += index;
    if (part.request_id != 0) part.request_id += index;
    return part;
}

Result<> validate(const Message& message, std::span<const Part> parts) {
    if (message.parts != parts.size()) return fail(Errc::protocol, 0, "message.parts: another number of parts");
    TRY_VOID(validate(message));
    uint32_t page_count = 1u + message.run;
    for (size_t index = 1; index <= parts.size(); ++index) {
        if (parts[index - 1].run >= run_pages_max)
            return fail(Errc::protocol, 0, "message.run: beyond its block of pages");
        page_count += 1 + parts[index - 1].run;
        TRY_VOID(validate(run_of(message, parts, index)));
    }
    if (page_count > joined_pages_max)
        return fail(Errc::protocol, 0, "message.parts: more pages than one message may name");
    return {};
}

Message grant_of_joined(const Message& message) noexcept {
    Message grant = message;
    grant.flags &= static_cast<uint8_t>(~bytes_flags);
    return grant;
}

Message data_of_joined(const Message& message) noexcept {
    Message data = message;
    data.kind = MessageKind::data;
    data.flags &= bytes_flags;
    data.host = no_host;
    data.hosts = 0;
    data.sequence = 0;
    return data;
}

void PendingGrant::hold(HostId to, const Message& grant) {
    TARN_ASSERT(!holds());
    to_ = to;
    grant_ = grant;
}

bool PendingGrant::join(HostId to, Message& data) {
    const bool fits = to_ == to && data.kind == MessageKind::data && data.page == grant_.page &&
                      data.request_id == grant_.request_id && data.tenure == grant_.tenure;
    if (!holds() || !fits) return false;
    grant_.flags |= data.flags & bytes_flags;
    data = grant_;
    to_ = no_host;
    return true;
}

std::pair<HostId, Message> PendingGrant::release() {
    TARN_ASSERT(holds());
    return {std::exchange(to_, no_host), grant_};
}

}  // namespace tarn::protocol
