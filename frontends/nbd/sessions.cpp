#include "frontends/nbd/sessions.hpp"

#include <poll.h>

#include <algorithm>

#include "utils/alarm.hpp"

namespace tarn::nbd {

Sessions::Sessions(SessionBook book) : book_(std::move(book)) {
    const Clock::time_point now = Clock::now();
    for (SessionBook::Left& each : book_.take_left())
        known_.try_emplace({std::move(each.client), each.volume},
                           Known{.record = std::move(each.record), .is_left = true, .left_at = now});
}

void Sessions::forget(Place known) {
    book_.set_ended(known->second.record.get(), true);
    known_.erase(known);
}

std::shared_ptr<SessionRecord> Sessions::record_of(const Client& client, VolumeId volume, Clock::time_point now) {
    const std::lock_guard guard(mutex_);
    Known& known = known_[{client, volume}];
    if (known.session) return nullptr;
    known.left_at = now;
    if (!known.record) known.record = book_.begin(client, volume);
    return known.record;
}

void Sessions::give_up(const Client& client, VolumeId volume) {
    const std::lock_guard guard(mutex_);
    const auto found = known_.find({client, volume});
    if (found != known_.end() && !found->second.session && !found->second.is_left) forget(found);
}

std::shared_ptr<VolumeSession> Sessions::find(const Client& client, VolumeId volume, Clock::time_point now) {
    const std::lock_guard guard(mutex_);
    forget_old(now);
    const auto found = known_.find({client, volume});
    return found == known_.end() ? nullptr : found->second.session;
}

std::shared_ptr<VolumeSession> Sessions::joined(const Client& client, VolumeId volume,
                                                const std::shared_ptr<VolumeSession>& session, int socket) {
    const std::lock_guard guard(mutex_);
    Known& known = known_[{client, volume}];
    if (!known.session) {
        known.session = session;
        known.record = session->record;
        book_.set_ended(known.record.get(), false);
    }
    if (known.session == session) known.sockets.push_back(socket);
    return known.session;
}

void Sessions::left(const Client& client, VolumeId volume, int socket, bool said, Clock::time_point now) {
    {
        const std::lock_guard guard(mutex_);
        const auto found = known_.find({client, volume});
        if (found == known_.end()) return;
        Known& known = found->second;
        known.left_at = now;
        known.sockets.erase(std::ranges::find(known.sockets, socket));
        if (known.sockets.empty() && said) forget(found);
        forget_old(now);
    }
    left_.announce();
}

bool Sessions::follows_broken_one(const Client& client, VolumeId volume, int socket) const {
    const std::lock_guard guard(mutex_);
    const std::vector<int>& sockets = known_.at({client, volume}).sockets;
    return std::any_of(sockets.begin(), std::ranges::find(sockets, socket), [](int earlier) {
        pollfd hang_up{.fd = earlier, .events = POLLRDHUP, .revents = 0};
        return ::poll(&hang_up, 1, 0) > 0;
    });
}

Task<bool> Sessions::wait_for_broken_ones(const Client& client, VolumeId volume, int socket) {
    if (!follows_broken_one(client, volume, socket)) co_return true;
    bool is_over = false;
    Alarm alarm(*Loop::current(), broken_wait_max, [&] {
        is_over = true;
        left_.announce();
    });
    for (uint64_t seen = left_.count(); !is_over && follows_broken_one(client, volume, socket); seen = left_.count())
        co_await left_.next(seen);
    co_await alarm.end();
    co_return !is_over;
}

void Sessions::forget_old(Clock::time_point now) {
    for (auto each = known_.begin(); each != known_.end();) {
        const auto known = each++;
        if (known->second.sockets.empty() &&
            (now - known->second.left_at >= remembered_for || !known->first.first.lives()))
            forget(known);
    }
    const auto is_idle = [](const auto& each) { return each.second.sockets.empty(); };
    auto idle = static_cast<size_t>(std::ranges::count_if(known_, is_idle));
    for (; idle > remembered_max; --idle) {
        auto first = known_.end();
        for (auto each = known_.begin(); each != known_.end(); ++each)
            if (is_idle(*each) && (first == known_.end() || each->second.left_at < first->second.left_at)) first = each;
        forget(first);
    }
}

size_t Sessions::size() const {
    const std::lock_guard guard(mutex_);
    return known_.size();
}

}  // namespace tarn::nbd
