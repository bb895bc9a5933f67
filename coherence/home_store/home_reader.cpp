#include "coherence/home_store/home_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coherence/protocol/lent_frame.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Message;

namespace {
constexpr size_t read_pages_max = 64;  // read at once
}  // namespace

void HomeReader::read(std::vector<HomeRead> reads) {
    std::ranges::sort(reads, {}, [](const HomeRead& read) { return read.message.page; });
    for (auto first = reads.begin(); first != reads.end();) {
        auto end = first + 1;
        while (end != reads.end() && end - first < static_cast<ptrdiff_t>(read_pages_max) &&
               end->message.page.value == (end - 1)->message.page.value + 1)
            ++end;
        Loop::current()->spawn(end - first == 1 ? read_page(*first) : read_run_of({first, end}));
        first = end;
    }
}

Task<> HomeReader::read_run_of(std::vector<HomeRead> reads) {
    const auto bounced = static_cast<size_t>(std::ranges::count(reads, no_frame, &HomeRead::frame));
    const PageBuffer bounce = bounced ? make_page_buffer(bounced) : nullptr;
    std::vector<std::byte*> into;
    into.reserve(reads.size());
    std::byte* next = bounce.get();
    for (const HomeRead& read : reads) {
        into.push_back(read.frame != no_frame ? parts_.pool.bytes(read.frame) : std::exchange(next, next + page_size));
    }
    reads_.fetch_add(1, std::memory_order_relaxed);
    const Result<> done = co_await parts_.store.read_run(*Loop::current(), reads.front().message.page, into);
    // One bad page must not take its neighbours with it.
    for (size_t i = 0; i < reads.size(); ++i)
        if (done)
            deliver(reads[i], into[i], false);
        else
            co_await read_page(reads[i]);
}

Task<> HomeReader::read_page(HomeRead read) {
    const PageBuffer bounce = read.frame == no_frame ? make_page_buffer(1) : nullptr;
    std::byte* const into = bounce ? bounce.get() : parts_.pool.bytes(read.frame);
    reads_.fetch_add(1, std::memory_order_relaxed);
    const Result<> done = co_await parts_.store.read_run(*Loop::current(), read.message.page, std::span(&into, 1));
    deliver(read, into, !done);
}

void HomeReader::deliver(const HomeRead& read, const std::byte* bytes, bool failed) {
    Message message = read.message;
    if (failed)
        log::error("store: volume {} page {} cannot be read; accesses to it fail", message.page.volume(),
                   message.page.number());
    Stripes::Turn turn(parts_.stripes, message.page);
    if (parts_.stripes.abandoned()) return;
    if (read.to != parts_.membership.self()) {
        // A host that waits for an unreadable page is told so.
        message.flags |= failed ? protocol::flag_zero | protocol::flag_lost : protocol::flag_payload;
        const StripeLinks& links = turn.links();
        if (contains(links.up, read.to) && read.link == links.counts[read.to])
            parts_.peers.send_bytes(read.to, message, {bytes, failed ? 0 : page_size});
        return;
    }
    message.flags |= protocol::flag_payload;
    FrameId frame = read.frame;
    if (frame == no_frame) {
        // No frame was free: use the Holder's, if it still waits for these very bytes.
        frame = protocol::lent_frame(turn.stripe().holder().find(message.page), message);
        if (frame == no_frame) return;
        std::memcpy(parts_.pool.bytes(frame), bytes, page_size);
    }
    parts_.pool.frame(frame).zeroed.store(false, std::memory_order_relaxed);
    parts_.pool.frame(frame).broken.store(failed, std::memory_order_relaxed);
    turn.step(protocol::Event::message_of(message, frame));
}

}  // namespace tarn
