// FlushHome: whom a flush asks, which copies it waits for, and when the store is told.
//
// Volumes and flushes are few, and so are the copies on their way at one moment: plain vectors, searched.
#include <algorithm>

#include "coherence/protocol/flush.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

FlushHome::Volume& FlushHome::volume_of(VolumeId volume) {
    const auto found = std::ranges::find(volumes_, volume, &Volume::volume);
    return found != volumes_.end() ? *found : volumes_.emplace_back(Volume{.volume = volume, .copies = {}});
}

const FlushHome::Volume* FlushHome::find_volume(VolumeId volume) const {
    const auto found = std::ranges::find(volumes_, volume, &Volume::volume);
    return found == volumes_.end() ? nullptr : &*found;
}

size_t FlushHome::outstanding_copy_count() const {
    size_t count = 0;
    for (const Volume& volume : volumes_) count += volume.copies.size();
    return count;
}

bool FlushHome::waits_for_copies() const {
    return std::ranges::any_of(flushes_, [](const Flush& flush) { return flush.unanswered == 0 && !flush.in_store; });
}

void FlushHome::holder_removed(PageId page, HostId host) {
    uint32_t& count = volume_of(page.volume()).holder_counts[host];
    TARN_ASSERT(count > 0);
    --count;
}

void FlushHome::copy_expected(PageId page, Tenure tenure) {
    volume_of(page.volume()).copies.push_back({.page = page, .tenure = tenure, .ticket = ++last_ticket_});
}

void FlushHome::copy_arrived(PageId page, Tenure tenure, FlushActions& actions) {
    std::vector<OutstandingCopy>& copies = volume_of(page.volume()).copies;
    const auto arrived =
        std::ranges::find_if(copies, [&](const auto& copy) { return copy.page == page && copy.tenure == tenure; });
    TARN_ASSERT(arrived != copies.end());
    copies.erase(arrived);
    for (Flush& flush : flushes_)
        if (flush.volume == page.volume()) start_store_flush_if_ready(flush, actions);
}

bool FlushHome::accepts(const Message& message) const {
    return message.kind != MessageKind::flush ||
           static_cast<size_t>(std::ranges::count(flushes_, message.from, &Flush::requester)) < flushes_of_a_host_max;
}

void FlushHome::on_message(const Message& message, FlushActions& actions) {
    if (message.kind == MessageKind::flush) on_flush(message, actions);
    if (message.kind == MessageKind::flush_answer) on_answer(message.from, message.request_id, actions);
}

void FlushHome::on_flush(const Message& message, FlushActions& actions) {
    const bool is_repeated = std::ranges::any_of(flushes_, [&](const Flush& known) {
        return known.requester == message.from && known.request_id == message.request_id;
    });
    if (is_repeated) return;
    flushes_.push_back({.ticket = ++last_ticket_,
                        .volume = message.page.volume(),
                        .requester = message.from,
                        .request_id = message.request_id,
                        .noted = message.hosts,
                        .known = message.tenure});
    if (!recovering_) start(flushes_.back(), actions);
}

void FlushHome::on_recovered(FlushActions& actions) {
    recovering_ = false;
    for (Flush& flush : flushes_) start(flush, actions);
}

void FlushHome::start(Flush& flush, FlushActions& actions) {
    flush.ask_id = ++last_ask_id_;
    flush.copies_until = last_ticket_;
    if (const Volume* found = find_volume(flush.volume))
        for (HostId host = 0; host < hosts_max; ++host)
            if (found->holder_counts[host] > 0) flush.unanswered |= set_of(host);
    for_each_host(flush.unanswered, [&](HostId host) { ask(flush, host, actions); });
    start_store_flush_if_ready(flush, actions);
}

void FlushHome::ask(const Flush& flush, HostId host, FlushActions& actions) const {
    send_of_flush(actions, host, MessageKind::flush_ask, self_, flush.volume, flush.ask_id);
}

void FlushHome::on_answer(HostId host, RequestId ask_id, FlushActions& actions) {
    const auto flush = std::ranges::find(flushes_, ask_id, &Flush::ask_id);
    if (flush == flushes_.end() || !contains(flush->unanswered, host)) return;
    flush->unanswered &= ~set_of(host);
    // Copies that the host sent before it answered are on their way home by now, and must arrive.
    flush->copies_until = last_ticket_;
    start_store_flush_if_ready(*flush, actions);
}

void FlushHome::start_store_flush_if_ready(Flush& flush, FlushActions& actions) {
    if (flush.in_store || flush.ask_id == 0 || flush.unanswered != 0) return;
    if (const Volume* found = find_volume(flush.volume))
        for (const OutstandingCopy& copy : found->copies)
            if (copy.ticket <= flush.copies_until) return;
    flush.in_store = true;
    actions.push_back({.kind = FlushAction::Kind::store_flush, .volume = flush.volume, .ticket = flush.ticket});
}

void FlushHome::on_store_flushed(uint64_t ticket, bool failed, Verifier verifier, FlushActions& actions) {
    const auto flush = std::ranges::find(flushes_, ticket, &Flush::ticket);
    if (flush == flushes_.end()) return;
    // Compared only now: a loss while the flush ran counts, too.
    const bool lost = flush->known != verifier || (flush->noted != 0 && flush->noted != verifier);
    answer(*flush, failed || lost, verifier, actions);
    flushes_.erase(flush);
}

void FlushHome::answer(const Flush& flush, bool lost, Verifier verifier, FlushActions& actions) const {
    Message& message =
        send_of_flush(actions, flush.requester, MessageKind::flushed, self_, flush.volume, flush.request_id);
    message.hosts = verifier;
    if (lost) message.flags |= flag_lost;
}

void FlushHome::on_store_failed(Verifier verifier, FlushActions& actions) {
    for (const Flush& flush : flushes_) answer(flush, true, verifier, actions);
    flushes_.clear();
}

void FlushHome::refuse(const Message& flush, Verifier verifier, FlushActions& actions) const {
    answer({.volume = flush.page.volume(), .requester = flush.from, .request_id = flush.request_id}, true, verifier,
           actions);
}

void FlushHome::on_peer_up(HostId host, Process process, Process previous, FlushActions& actions) {
    if (process != previous) std::erase_if(flushes_, [&](const Flush& flush) { return flush.requester == host; });
    if (process.incarnation != previous.incarnation) {
        // Its pages are being resolved: that counts as an outstanding copy.
        for (size_t index = 0; index < flushes_.size(); ++index) on_answer(host, flushes_[index].ask_id, actions);
        return;
    }
    for (const Flush& flush : flushes_)
        if (contains(flush.unanswered, host)) ask(flush, host, actions);
}

}  // namespace tarn::protocol
