// FlushRequester: the side of a flush that asks. A request that a broken link has lost is repeated on the next one.
#include <algorithm>

#include "coherence/protocol/flush.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

void FlushRequester::open(SessionId session, VolumeId volume) {
    TARN_ASSERT(find_session(session) == nullptr);
    sessions_.push_back({.id = session, .volume = volume, .notes = {}});
}

void FlushRequester::close(SessionId session) {
    std::erase_if(sessions_, [&](const Session& each) { return each.id == session; });
}

FlushRequester::Session* FlushRequester::find_session(SessionId session) {
    const auto found = std::ranges::find(sessions_, session, &Session::id);
    return found == sessions_.end() ? nullptr : &*found;
}

FlushRequester::Note& FlushRequester::note_of(Session& session, HostId home) {
    const auto found = std::ranges::find(session.notes, home, &Note::home);
    return found != session.notes.end() ? *found : session.notes.emplace_back(Note{.home = home});
}

Verifier FlushRequester::known(VolumeId volume, HostId home) const {
    const auto found =
        std::ranges::find_if(known_, [&](const Known& each) { return each.volume == volume && each.home == home; });
    return found == known_.end() ? 0 : found->verifier;
}

void FlushRequester::heard(VolumeId volume, HostId home, Verifier verifier) {
    const auto found =
        std::ranges::find_if(known_, [&](const Known& each) { return each.volume == volume && each.home == home; });
    if (found != known_.end())
        found->verifier = verifier;
    else
        known_.push_back({.volume = volume, .home = home, .verifier = verifier});
}

const FlushRequester::Note* FlushRequester::find_note(SessionId id, HostId home) const {
    const auto session = std::ranges::find(sessions_, id, &Session::id);
    if (session == sessions_.end()) return nullptr;
    const auto note = std::ranges::find(session->notes, home, &Note::home);
    return note == session->notes.end() ? nullptr : &*note;
}

void FlushRequester::wrote(SessionId id, HostId home, PageId first, PageId last, Verifier began) {
    Session* const session = find_session(id);
    TARN_ASSERT(session != nullptr);
    Note& note = note_of(*session, home);
    ++note.writes;
    if (note.noted == 0) note.noted = began;
    note.mixed |= note.noted != began;
    note.many |= note.written.size() == written_max;
    if (note.many)
        note.written.clear();
    else
        note.written.push_back({.first = first, .last = last, .write = note.writes});
}

Verifier FlushRequester::noted(SessionId id, HostId home) const {
    const Note* const note = find_note(id, home);
    return note == nullptr ? 0 : note->noted;
}

void FlushRequester::restore(SessionId id, HostId home, Verifier noted) {
    Session* const session = find_session(id);
    TARN_ASSERT(session != nullptr);
    Note& note = note_of(*session, home);
    note = {.home = home, .noted = noted, .writes = 1, .many = true};
}

bool FlushRequester::knows_pages(SessionId id, HostId home) const {
    const Note* const note = find_note(id, home);
    return note == nullptr || !note->many;
}

uint64_t FlushRequester::write_count(SessionId id, HostId home) const {
    const Note* const note = find_note(id, home);
    return note == nullptr ? 0 : note->writes;
}

bool FlushRequester::flushed_pages(SessionId id, HostId home, std::span<const PageId> pages, uint64_t writes) {
    Session* const session = find_session(id);
    if (session == nullptr) return false;
    Note& note = note_of(*session, home);
    std::erase_if(note.written, [&](const Written& each) {
        const auto first = std::ranges::lower_bound(pages, each.first);
        const auto end = std::ranges::upper_bound(pages, each.last);
        return each.write <= writes && static_cast<uint64_t>(end - first) == each.last.value - each.first.value + 1;
    });
    if (note.many || note.mixed || !note.written.empty()) return false;
    note.noted = 0;
    return true;
}

bool FlushRequester::lost_a_write(SessionId id, HostId home) const {
    const auto session = std::ranges::find(sessions_, id, &Session::id);
    const Note* const note = find_note(id, home);
    if (note == nullptr) return false;
    return note->mixed || (note->noted != 0 && note->noted != known(session->volume, home));
}

void FlushRequester::start(SessionId id, HostSet homes, WaiterToken waiter, FlushActions& actions) {
    Session* const session = find_session(id);
    TARN_ASSERT(session != nullptr);
    Flush flush{.request_id = ++last_request_id_,
                .session = id,
                .volume = session->volume,
                .waiter = waiter,
                .unanswered = homes,
                .parts = {}};
    for_each_host(homes, [&](HostId home) {
        const Note& note = note_of(*session, home);
        // Writes under two verifiers: at least one of them is not the present one.
        flush.lost |= note.mixed;
        flush.parts.push_back(
            {.home = home, .noted = note.noted, .known = known(session->volume, home), .writes = note.writes});
        send(flush, flush.parts.back(), actions);
    });
    flushes_.push_back(std::move(flush));
}

void FlushRequester::send(const Flush& flush, const Part& part, FlushActions& actions) const {
    Message& message = send_of_flush(actions, part.home, MessageKind::flush, self_, flush.volume, flush.request_id);
    message.hosts = part.noted;
    message.tenure = part.known;
}

void FlushRequester::on_message(const Message& message, FlushActions& actions) {
    const auto flush = std::ranges::find(flushes_, message.request_id, &Flush::request_id);
    if (flush == flushes_.end() || !contains(flush->unanswered, message.from)) return;
    flush->unanswered &= ~set_of(message.from);
    flush->lost |= message.has(flag_lost);
    Session* const session = find_session(flush->session);
    if (!message.has(flag_lost) && session != nullptr) {
        const auto part = std::ranges::find(flush->parts, message.from, &Part::home);
        Note& note = note_of(*session, message.from);
        // Later writes are noted for the next flush; they were made under the verifier that has just been confirmed,
        // or under one that wrote() will find to be mixed.
        std::erase_if(note.written, [&](const Written& each) { return each.write <= part->writes; });
        if (note.writes == part->writes && !note.mixed) {
            note.noted = 0;
            note.many = false;
        }
    }
    if (flush->unanswered != 0) return;
    end(*flush, flush->lost, actions);
    flushes_.erase(flush);
}

void FlushRequester::on_peer_up(HostId host, FlushActions& actions) {
    for (const Flush& flush : flushes_) {
        if (!contains(flush.unanswered, host)) continue;
        send(flush, *std::ranges::find(flush.parts, host, &Part::home), actions);
    }
}

template <class Predicate>
void FlushRequester::fail_if(Predicate&& is_meant, FlushActions& actions) {
    std::erase_if(flushes_, [&](const Flush& flush) {
        if (!is_meant(flush)) return false;
        end(flush, true, actions);
        return true;
    });
}

void FlushRequester::give_up_on(HostId host, FlushActions& actions) {
    fail_if([&](const Flush& flush) { return contains(flush.unanswered, host); }, actions);
}

void FlushRequester::give_up(WaiterToken waiter, FlushActions& actions) {
    fail_if([&](const Flush& flush) { return flush.waiter == waiter; }, actions);
}

void FlushRequester::end(const Flush& flush, bool lost, FlushActions& actions) {
    actions.push_back(
        {.kind = FlushAction::Kind::complete, .lost = lost, .volume = flush.volume, .waiter = flush.waiter});
}

}  // namespace tarn::protocol
