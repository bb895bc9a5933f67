#include "coherence/flush/flusher.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "utils/alarm.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

using protocol::Action;
using protocol::FlushAction;
using protocol::FlushActions;
using protocol::Message;
using protocol::MessageKind;

namespace {
constexpr auto hear_within = std::chrono::milliseconds(500);
constexpr auto settle_within = std::chrono::milliseconds(1500);  // broken links are retried within a second
constexpr auto hear_again_after = std::chrono::milliseconds(10);
constexpr const char* not_all_durable =
    "flush: not everything could be made durable, or what was written since the last flush may be lost";
}  // namespace

// A flush that waits for its end, on the shard that asked.
struct Flusher::Wait final : Loop::Posted {
    explicit Wait(Loop& loop) : shard(loop) {}
    void run() override {
        ended = true;
        if (waiter) waiter.resume();
    }
    bool await_ready() const noexcept { return ended; }
    void await_suspend(std::coroutine_handle<> handle) { waiter = handle; }
    void await_resume() const noexcept {}

    Loop& shard;
    std::coroutine_handle<> waiter;
    bool ended = false;
    size_t pages_missing = 0;  // of flush_pages(), not at home yet
    bool awaited = false;      // and whether it waits for them
    Errc code = Errc::io;
    bool failed = false;
};

// Changes the books under the lock, and does what follows outside it.
template <class Change>
void Flusher::act(Change&& change) {
    FlushActions actions;
    {
        const std::lock_guard guard(lock_);
        change(actions);
    }
    run(std::move(actions));
}

Flusher::Flusher(const Parts& parts)
    : parts_(parts),
      home_(parts.membership.self()),
      holder_(parts.membership.self()),
      requester_(parts.membership.self()) {}

Task<Result<>> Flusher::flush(Session& session, HostSet homes, std::chrono::milliseconds limit) {
    TARN_ASSERT(homes != 0);  // who awaits no answer would wait for ever
    // A flush counts from the verifiers known when it came: none may be unknown.
    auto learning = learn_verifiers(homes);
    Interrupt* const interrupt = co_await this_interrupt;
    if (limit.count() != 0 || interrupt) learning = with_timeout(limit, std::move(learning));
    CO_TRY_VOID(co_await std::move(learning));
    Wait wait(*Loop::current());
    FlushActions actions;
    {
        const std::lock_guard guard(lock_);
        if (parts_.stripes.abandoned()) co_return fail(Errc::cancelled, 0, "flush");
        tell_verifiers(session.volume);
        session.noted.store(0, std::memory_order_relaxed);  // later writes are noted again
        waits_.push_back(&wait);
        requester_.start(session.id, homes, reinterpret_cast<protocol::WaiterToken>(&wait), actions);
        // Nobody can vouch for the writes of a dead home.
        for (HostId home = 0; home < hosts_max; ++home)
            if (contains(homes, home) && parts_.membership.is_dead(home)) requester_.give_up_on(home, actions);
    }
    run(std::move(actions));
    // Giving up loses nothing: a later flush may succeed.
    const Interrupt::Listener listener(interrupt, [&] { give_up(wait, Errc::cancelled); });
    std::optional<Alarm> alarm;
    if (limit.count() != 0) alarm.emplace(*Loop::current(), limit, [&] { give_up(wait, Errc::unavailable); });
    co_await wait;
    if (alarm) co_await alarm->end();
    if (wait.failed) co_return fail(wait.code, wait.code == Errc::cancelled ? 0 : EIO, not_all_durable);
    if (session.record) {
        const std::lock_guard guard(lock_);
        save(session, homes);
    }
    co_return Result<>{};
}

Task<Result<>> Flusher::flush_pages(Session& session, std::vector<PageId> pages, Atomicity atomicity) {
    Loop& loop = *Loop::current();
    Wait wait(loop);
    wait.pages_missing = pages.size();
    uint64_t writes = 0;
    {
        const std::lock_guard guard(lock_);
        writes = requester_.write_count(session.id, parts_.membership.self());
        if (parts_.stripes.abandoned()) co_return fail(Errc::cancelled, 0, "flush");
        waits_.push_back(&wait);
    }
    // Home is here: the answers usually come at once.
    for (const PageId page : pages) write_back(page, reinterpret_cast<protocol::WaiterToken>(&wait));
    {
        const std::lock_guard guard(lock_);
        wait.awaited = wait.pages_missing != 0 || std::erase(waits_, &wait) == 0;
    }
    if (wait.awaited) co_await wait;
    if (wait.failed) co_return fail(wait.code, 0, not_all_durable);
    Result<> result =
        co_await (atomicity == Atomicity::group ? parts_.writer.store_group(pages) : parts_.writer.store_pages(pages));
    if (result) result = co_await parts_.store.flush(loop);
    if (!result) {
        log::error("flush of pages of volume {} failed: {}", session.volume, log::describe(result.error()));
        co_return fail(Errc::io, EIO, not_all_durable);
    }
    const std::lock_guard guard(lock_);
    tell_verifiers(session.volume);
    if (requester_.lost_a_write(session.id, parts_.membership.self())) co_return fail(Errc::io, EIO, not_all_durable);
    std::ranges::sort(pages);
    requester_.flushed_pages(session.id, parts_.membership.self(), pages, writes);
    save(session, set_of(parts_.membership.self()));
    co_return Result<>{};
}

void Flusher::give_up(Wait& wait, Errc code) {
    act([&](FlushActions& actions) {
        if (std::ranges::find(waits_, &wait) == waits_.end()) return;  // it has ended already
        wait.code = code;
        requester_.give_up(reinterpret_cast<protocol::WaiterToken>(&wait), actions);
    });
}

void Flusher::note_write(Session& session, HostId home, PageId first, PageId last, protocol::Verifier began) {
    const std::lock_guard guard(lock_);
    tell_verifiers(session.volume);
    requester_.wrote(session.id, home, first, last, began);
    save(session, set_of(home));
    // If home is here, flush_pages() may flush single pages, and it counts which ones are left.
    if (home != parts_.membership.self() || !requester_.knows_pages(session.id, home))
        session.noted.fetch_or(set_of(home), std::memory_order_relaxed);
}

void Flusher::tell_verifiers(VolumeId volume) {
    for (HostId home = 0; home < hosts_max; ++home)
        if (const protocol::Verifier heard = parts_.verifiers.present(home); heard != 0)
            requester_.heard(volume, home, heard);
}

Task<Result<>> Flusher::learn_verifiers(HostSet homes) {
    for (HostId home = 0; home < hosts_max; ++home) {
        while (contains(homes, home) && parts_.verifiers.present(home) == 0) {
            const uint64_t seen = parts_.membership.changed().count();
            if (parts_.stripes.abandoned()) co_return fail(Errc::cancelled, 0, "flush");
            if (parts_.membership.is_dead(home))
                co_return fail(Errc::io, EIO, "flush: a home of the volume was declared dead");
            // The home is unreachable; it answers once it has recovered.
            if (!co_await ask_verifier(home, CallKind::verifier)) co_await parts_.membership.changed().next(seen);
        }
    }
    co_return Result<>{};
}

Task<bool> Flusher::ask_verifier(HostId home, CallKind kind) {
    const Result<std::string> answer = co_await parts_.peers.fabric()->call(home, kind);
    const auto verifier = answer ? unpack<protocol::Verifier>(*answer) : std::nullopt;
    if (verifier) heard(home, *verifier);
    co_return verifier.has_value();
}

// Shared by the calls to homes and the task that waits for them; the last to end frees it.
struct Flusher::Hearing {
    explicit Hearing(Loop& loop) : timeout(loop) {}
    unsigned missing = 0;
    Timer timeout;
};

Task<> Flusher::hear_from(Flusher& self, HostId home, std::shared_ptr<Hearing> hearing) {
    const Process asked = self.parts_.membership.process_of(home);
    const bool is_settled = co_await self.ask_verifier(home, CallKind::settled_verifier);
    {
        const std::lock_guard guard(self.lock_);
        if (is_settled && self.parts_.membership.process_of(home) == asked) self.settled_ |= set_of(home);
    }
    if (--hearing->missing == 0) hearing->timeout.cancel();
}

// One home after the other meets a host that is back without its memory, and has to find out what that host had. This
// takes only a moment, so while hosts come and go, homes are asked until all have done so.
Task<> Flusher::hear_from_homes() {
    const uint64_t until_ns = monotonic_ns() + std::chrono::nanoseconds(settle_within).count();
    while (parts_.peers.fabric() && !parts_.stripes.abandoned()) {
        co_await ask_homes();
        if (all_are_heard() || !parts_.membership.has_just_changed() || monotonic_ns() >= until_ns) co_return;
        co_await Loop::current()->sleep(hear_again_after);
    }
}

bool Flusher::all_are_heard() const {
    return std::ranges::all_of(parts_.membership.hosts(),
                               [&](HostId home) { return parts_.membership.is_dead(home) || is_heard(home); });
}

Task<> Flusher::ask_homes() {
    Loop& loop = *Loop::current();
    const auto hearing = std::make_shared<Hearing>(loop);
    for (HostId home = 0; home < hosts_max; ++home) {
        settled_ &= ~set_of(home);
        if (home == parts_.membership.self() || !parts_.peers.fabric()->linked(home)) continue;
        ++hearing->missing;
        loop.spawn(hear_from(*this, home, hearing));
    }
    if (hearing->missing > 0) (void)co_await hearing->timeout.sleep(hear_within);
}

void Flusher::on_host_forgotten(HostId host) {
    act([&](FlushActions& actions) {
        holder_.on_peer_up(host);
        home_.on_peer_up(host, {}, {.incarnation = 1, .epoch = 1}, actions);  // no process any more
        requester_.give_up_on(host, actions);
    });
}

void Flusher::write_back(PageId page, protocol::WaiterToken waiter) {
    parts_.stripes.step(protocol::Event::about(protocol::Event::Kind::write_back, page, waiter));
}

void Flusher::check_store_failure() {
    if (parts_.store.failed() && !store_failure_told_.exchange(true)) on_store_failed();
}

void Flusher::on_store_failed() {
    act([&](FlushActions& actions) { home_.on_store_failed(parts_.verifiers.own(), actions); });
}

void Flusher::on_recovered() {
    act([&](FlushActions& actions) { home_.on_recovered(actions); });
}

// Whether the last answer of this home is from its present process, and it could not be about to discover a loss.
// Otherwise losses of that home count for a new session only from its first use of one of its pages.
bool Flusher::is_heard(HostId home) const {
    const protocol::Verifier heard = parts_.verifiers.present(home);
    if (home == parts_.membership.self()) return parts_.membership.is_settled();
    if (heard == 0 || !contains(settled_.load(std::memory_order_relaxed), home)) return false;
    return parts_.peers.fabric() && parts_.peers.fabric()->linked(home) &&
           heard >> 32 == parts_.membership.process_of(home).first_intact();
}

void Flusher::open_session(Session& session) {
    const std::lock_guard guard(lock_);
    begin(session);
    if (session.on_loss == OnLoss::fail) {
        tell_verifiers(session.volume);
        session.losses.await(parts_.membership.host_set());
        if (session.record) go_on(session);
        for (HostId home = 0; home < hosts_max; ++home)
            if (is_heard(home)) count_from_now(session.losses, home);
    }
    sessions_.push_back(&session);
}

void Flusher::go_on(Session& session) {
    SessionRecord& record = *session.record;
    for (HostId home = 0; home < hosts_max; ++home) {
        if (const protocol::Verifier noted = record.noted[home].load(std::memory_order_relaxed); noted != 0)
            requester_.restore(session.id, home, noted);
        if (const uint32_t before = record.losses_before[home].load(std::memory_order_relaxed); before != 0)
            session.losses.began_after(home, before - 1);
    }
    session.losses.record_in(record.losses_before);
}

void Flusher::save(const Session& session, HostSet homes) const {
    if (!session.record) return;
    for_each_host(homes, [&](HostId home) {
        session.record->noted[home].store(requester_.noted(session.id, home), std::memory_order_relaxed);
    });
}

void Flusher::count_from_now(LossView& losses, HostId home) const {
    losses.began_after(home, protocol::loss_generation_of(parts_.verifiers.present(home)));
}

void Flusher::begin(Session& session) {
    session.id = ++last_session_;
    requester_.open(session.id, session.volume);
}

void Flusher::renew_session(Session& session) {
    const std::lock_guard guard(lock_);
    TARN_ASSERT(session.on_loss == OnLoss::revert);
    requester_.close(session.id);
    begin(session);
    session.noted.store(0, std::memory_order_relaxed);
}

void Flusher::close_session(Session& session) {
    const std::lock_guard guard(lock_);
    requester_.close(session.id);
    std::erase(sessions_, &session);
}

void Flusher::heard(HostId home, protocol::Verifier verifier) {
    if (parts_.verifiers.present(home) == verifier) return;
    const std::lock_guard guard(lock_);
    // Answers and messages may overtake each other.
    if (protocol::is_older(verifier, parts_.verifiers.present(home))) return;
    parts_.verifiers.hear(home, verifier);
    for (Session* const session : sessions_) {
        requester_.heard(session->volume, home, verifier);
        session->noted.fetch_and(~set_of(home), std::memory_order_relaxed);
    }
}

void Flusher::book(const Action& action, FlushActions& actions) {
    const std::lock_guard guard(lock_);
    tarn::book(home_, action, actions);
}

void Flusher::on_written(protocol::WaiterToken waiter, FlushActions& actions) {
    const std::lock_guard guard(lock_);
    Wait* const wait = reinterpret_cast<Wait*>(waiter);
    if (const auto own = std::ranges::find(waits_, wait); own == waits_.end()) {
        holder_.on_written(waiter, actions);
    } else if (--wait->pages_missing == 0 && wait->awaited) {
        waits_.erase(own);
        wait->shard.post(*wait);
    }
}

void Flusher::run(FlushActions actions) {
    for (const FlushAction& action : actions) {
        switch (action.kind) {
            case FlushAction::Kind::send:
                if (action.to == parts_.membership.self())
                    on_message(action.message);
                else
                    parts_.peers.send_bytes(action.to, action.message, {});
                break;
            case FlushAction::Kind::store_flush:
                Loop::current()->spawn(store_flush(action.volume, action.ticket));
                break;
            case FlushAction::Kind::complete: {
                Wait* const wait = reinterpret_cast<Wait*>(action.waiter);
                {
                    const std::lock_guard guard(lock_);
                    if (std::erase(waits_, wait) == 0) break;  // given up at shutdown
                }
                wait->failed = action.lost;
                wait->shard.post(*wait);
                break;
            }
        }
    }
}

bool Flusher::accepts(const Message& message) {
    const std::lock_guard guard(lock_);
    return message.kind == MessageKind::flush_ask ? holder_.accepts(message) : home_.accepts(message);
}

void Flusher::on_message(const Message& message) {
    protocol::WaiterToken asked = 0;
    act([&](FlushActions& actions) {
        if (message.kind == MessageKind::flush_ask)
            asked = holder_.on_ask(message);
        else if (message.kind == MessageKind::flushed)
            requester_.on_message(message, actions);
        else if (message.kind == MessageKind::flush && parts_.store.failed())
            home_.refuse(message, parts_.verifiers.own(), actions);
        else
            home_.on_message(message, actions);
    });
    if (message.kind == MessageKind::flush_ask) Loop::current()->spawn(answer_ask(message, asked));
}

// Writes every page of the volume that we changed and the asking home lacks to that home, as fast as it takes them.
Task<> Flusher::answer_ask(Message ask, protocol::WaiterToken waiter) {
    const VolumeId volume = ask.page.volume();
    std::vector<PageId> pages;
    parts_.pages.dirty_frames().for_each([&](FrameId id) {
        const PageId page = parts_.pool.frame(id).page_id();
        if (page.volume() == volume && parts_.membership.home_of(page) == ask.from) pages.push_back(page);
    });
    Fabric* const fabric = ask.from == parts_.membership.self() ? nullptr : parts_.peers.fabric();
    for (const PageId page : pages) {
        if (fabric)
            for (uint64_t seen = fabric->drained().count(); fabric->congested(ask.from) && !parts_.stripes.abandoned();
                 seen = fabric->drained().count())
                co_await fabric->drained().next(seen);
        if (parts_.stripes.abandoned()) co_return;
        write_back(page, waiter);
    }
    act([&](FlushActions& actions) { holder_.begun(waiter, static_cast<uint32_t>(pages.size()), actions); });
}

Task<> Flusher::store_flush(VolumeId volume, uint64_t ticket) {
    Result<> result = co_await parts_.writer.store_volume(volume);
    if (result) result = co_await parts_.store.flush(*Loop::current());
    if (!result) log::error("flush of volume {} failed: {}", volume, log::describe(result.error()));
    act([&](FlushActions& actions) { home_.on_store_flushed(ticket, !result, parts_.verifiers.own(), actions); });
}

void Flusher::on_peer_up(HostId host, Process process, Process previous) {
    act([&](FlushActions& actions) {
        settled_ &= ~set_of(host);
        holder_.on_peer_up(host);
        home_.on_peer_up(host, process, previous, actions);
        requester_.on_peer_up(host, actions);
    });
}

void Flusher::abandon() {
    const std::lock_guard guard(lock_);
    for (Wait* const wait : waits_) {
        wait->failed = true;
        wait->code = Errc::cancelled;
        wait->shard.post(*wait);
    }
    waits_.clear();
}

}  // namespace tarn
