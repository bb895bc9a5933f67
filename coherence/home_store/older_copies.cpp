#include "coherence/home_store/older_copies.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "coherence/executor/stripes.hpp"
#include "coherence/fabric/call_all.hpp"
#include "coherence/fabric/peers.hpp"
#include "coherence/pages/pages.hpp"
#include "utils/clock.hpp"
#include "utils/interrupt.hpp"

namespace tarn {

using protocol::Message;
using protocol::MessageKind;

namespace {

constexpr std::chrono::seconds answered_within{1};
constexpr std::chrono::seconds ask_again_after{5};

static_assert(std::has_unique_object_representations_v<OlderCopies::Page>);

std::string packed(std::span<const OlderCopies::Page> pages) {
    return {reinterpret_cast<const char*>(pages.data()), pages.size_bytes()};
}

}  // namespace

void OlderCopies::register_calls(CallHandlers& calls) {
    calls.set(CallKind::end_older_copies,
              [this](HostId home, std::string request) { return hear(home, std::move(request)); });
}

Task<Result<std::string>> OlderCopies::hear(HostId home, std::string request) {
    if (request.empty() || request.size() % sizeof(Page) != 0)
        co_return fail(Errc::protocol, 0, "end_older_copies: no list of pages");
    std::vector<Page> pages(request.size() / sizeof(Page));
    std::memcpy(pages.data(), request.data(), request.size());
    const bool are_its_own =
        std::ranges::all_of(pages, [&](const Page& each) { return parts_.membership.home_of(each.page) == home; });
    if (!are_its_own) co_return fail(Errc::protocol, 0, "end_older_copies: of pages of another home");
    if (!free_here(home, pages)) co_return fail(Errc::cancelled, 0, "end_older_copies: this host stops");
    co_return std::string();
}

// What was kept for an order up to this tenure is older than any bytes of it. False: nothing is stepped any more, and
// it is kept.
bool OlderCopies::free_here(HostId home, std::span<const Page> pages) {
    for (const Page& each : pages) {
        Stripes::Turn turn(parts_.stripes, each.page);
        if (!turn.step(protocol::Event::message_of(
                {.kind = MessageKind::free, .from = home, .page = each.page, .tenure = each.tenure})))
            return false;
        const protocol::Holding* const holding = turn.holder().find(each.page);
        if (holding && holding->ownership == protocol::Ownership::exclusive && holding->frame != no_frame &&
            Pages::unwritten(parts_.pool.frame(holding->frame)) == 0)
            turn.step(protocol::Event::evict_at_once(each.page));
    }
    return true;
}

Task<bool> OlderCopies::end(std::vector<Page> pages) {
    if (!free_here(parts_.membership.self(), pages)) co_return false;
    Fabric* const fabric = parts_.peers.fabric();
    if (!fabric) co_return std::popcount(parts_.membership.host_set()) == 1;
    std::vector<HostId> others;
    for (const HostId host : parts_.membership.hosts())
        if (host != parts_.membership.self() && !parts_.membership.is_dead(host)) others.push_back(host);
    const bool all_are_linked = std::ranges::all_of(others, [&](HostId host) { return fabric->linked(host); });
    if (!all_are_linked || parts_.stripes.abandoned() || monotonic_ns() < asks_from_ns_.load(std::memory_order_relaxed))
        co_return false;
    const std::vector<HostAnswer> answers =
        co_await call_all(*fabric, std::move(others), CallKind::end_older_copies, packed(pages), answered_within);
    const bool all_said = std::ranges::all_of(answers, [](const HostAnswer& each) { return each.said.has_value(); });
    const Interrupt* const interrupt = co_await this_interrupt;
    if (!all_said && !(interrupt && interrupt->raised()))
        asks_from_ns_.store(monotonic_ns() + std::chrono::nanoseconds(ask_again_after).count(),
                            std::memory_order_relaxed);
    co_return all_said;
}

}  // namespace tarn
