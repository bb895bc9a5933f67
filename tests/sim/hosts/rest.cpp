#include "tests/sim/hosts/rest.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>

namespace tarn::hosts_sim {

namespace {

using protocol::Holding;
using protocol::Ownership;

// Who holds a page, on all hosts.
struct Held {
    HostId host;
    Ownership ownership;
    const std::byte* bytes;  // null: what the store could not read
};
using HeldPages = std::map<PageId, std::vector<Held>>;

class Rest {
  public:
    Rest(SimHost& host, HeldPages& held, bool flushed)
        : host_(host), cache_(*host.cache), pool_(cache_.pool()), held_pages_(held), is_flushed_(flushed) {}

    // The first thing that is wrong.
    std::string explain() {
        look_at_waiters();
        look_at_holdings();
        for (FrameId id = 0; id < pool_.frame_count(); ++id) look_at_frame(id);
        require(used_ + pool_.free_count() == pool_.frame_count(), "frames are neither free nor used");
        for (HostId home = 0; home < host_count; ++home)
            require(cache_.writable_share().count(home) == writable_[home], "the writable share counts wrongly");
        for (const WriteStage& stage : pool_.arena().stages())
            require(!stage.taken.load() && stage.pending.load() == WriteStage::Pending::nothing, "a write is staged");
        return wrong_.empty() ? wrong_ : fmt::format("host {} at rest: {}", host_.id(), wrong_);
    }

  private:
    void require(bool holds, const char* what, PageId page = {}) {
        if (!holds && wrong_.empty())
            wrong_ = fmt::format("{} (volume {} page {})", what, page.volume(), page.number());
    }

    void look_at_waiters() {
        require(!cache_.supply().anyone_waits(), "somebody waits for a frame");
        require(!cache_.writable_share().anyone_waits(), "somebody waits for its share");
        for (VolumeId volume = volume_id_first; volume < volume_id_first + volume_count_max; ++volume)
            require(!cache_.uses().any_of(volume), "somebody uses a volume");
        require(!cache_.membership().recovering(), "home does not serve");
        for (HostId peer = 0; peer < host_count; ++peer) {
            if (peer == host_.id()) continue;
            require(host_.fabric->linked(peer), "a host is not linked");
            require(!host_.fabric->congested(peer), "a link is congested");
        }
    }

    void look_at_holdings() {
        cache_.stripes().for_each([&](const Stripes::Turn& turn) {
            require(turn.holder().waiters().used() == 0, "an operation waits for a page");
            require(turn.holder().successors().used() == 0, "an order waits for a page");
            turn.holder().for_each([&](PageId page, const Holding& holding) { look_at(page, holding); });
            turn.home().for_each([&](PageId page, const protocol::Claim& claim) { look_at(page, claim); });
        });
    }

    void look_at(PageId page, const Holding& holding) {
        require(holding.awaited.request_id == 0, "a request waits for its answer", page);
        require(holding.awaited.landing == no_frame, "a frame is lent for an answer", page);
        require(holding.unserved_count == 0 && !holding.done_due, "an order is not done", page);
        using protocol::Custody;
        require(holding.custody == Custody::none || holding.custody == Custody::open, "a page is leaving", page);
        require(!holding.writing_back(), "a page is being written back", page);
        require(holding.trust == protocol::Trust::confirmed && !holding.report_due, "home has not confirmed it", page);
        for (const FrameId frame : {holding.frame, holding.spare, holding.kept_frame})
            if (frame != no_frame) require(held_.insert(frame).second, "a frame is held twice", page);
        if (holding.frame == no_frame) return;
        const bool is_broken = pool_.frame(holding.frame).broken.load();
        held_pages_[page].push_back({.host = host_.id(),
                                     .ownership = holding.ownership,
                                     .bytes = is_broken ? nullptr : pool_.bytes(holding.frame)});
        const protocol::FrameHeld recorded = holding.recorded().held;
        const FrameRecord::State& state = pool_.record(holding.frame).state();
        require(state.page == page.value && state.tenure == recorded.tenure && state.sequence == recorded.sequence &&
                    (state.role == FrameRecord::Role::exclusive) == (recorded.ownership == Ownership::exclusive),
                "the record of a frame says something else", page);
        const FrameWord::Value word = pool_.frame(holding.frame).word.load();
        require((word & FrameWord::ownership_mask) ==
                    (holding.ownership == Ownership::exclusive ? FrameWord::writable : FrameWord::shared),
                "a frame is opened otherwise than it is held", page);
    }

    void look_at(PageId page, const protocol::Claim& claim) {
        require(claim.queue.empty() && claim.orders.empty() && claim.copies.empty(), "an order is open", page);
        require(!claim.resolving && !claim.marking && !claim.loss_pending, "a page is being resolved", page);
    }

    void look_at_frame(FrameId id) {
        Frame& frame = pool_.frame(id);
        const PageId page = frame.page_id();
        const uint8_t uses = frame.uses.load();
        require(!FrameWord::latched(frame.word.load()), "a frame is latched", page);
        if (uses == 0) return require(!held_.contains(id), "a free frame is held", page);
        ++used_;
        require(((uses & use_holder) != 0) == held_.contains(id), "a frame is used by nobody", page);
        if ((uses & use_home) != 0) {
            require(cache_.home_store().frames().index().find_exactly(page) == &frame, "home does not find it", page);
            require(cache_.home_store().frames().dirty().has(id) == frame.home_dirty, "home's dirty set", page);
            require(frame.storing == Storing::no, "home's bytes are being stored", page);
        }
        const bool is_unwritten = Pages::unwritten(frame) != 0;
        require(!is_unwritten || frame.cached.load(), "dirty sectors of nobody", page);
        require(cache_.pages().dirty_frames().has(id) == is_unwritten, "the set of dirty frames", page);
        require(!is_flushed_ || !is_unwritten, "a flush has left sectors dirty", page);
        require(frame.writing.load() == 0, "sectors on their way home", page);
        if (frame.writable.load()) ++writable_[cache_.home_of(page)];
    }

    SimHost& host_;
    Cache& cache_;
    FramePool& pool_;
    HeldPages& held_pages_;
    const bool is_flushed_;
    std::set<FrameId> held_;
    size_t used_ = 0;
    std::array<size_t, host_count> writable_{};
    std::string wrong_;
};

// C1, and that home knows of each; readers have the same bytes, which are home's.
std::string explain_disagreement(const std::vector<std::unique_ptr<SimHost>>& hosts, const HeldPages& held) {
    for (const auto& [page, holders] : held) {
        Cache& home = *hosts[hosts.front()->cache->home_of(page)]->cache;
        const Stripes::Turn turn(home.stripes(), page);
        const protocol::Claim* const claim = turn.home().find(page);
        const Frame* const home_frame = home.home_store().frames().index().find_exactly(page);
        const auto say = [&](const char* what) {
            return fmt::format("{}: volume {} page {}", what, page.volume(), page.number());
        };
        const std::byte* bytes = home_frame && claim && claim->home_has_bytes() && !home_frame->broken.load()
                                     ? home.pool().bytes(home.pool().id_of(*home_frame))
                                     : nullptr;
        for (const Held& each : holders) {
            if (!claim) return say("a page is held that home knows nothing of");
            if (each.ownership == Ownership::exclusive && holders.size() > 1) return say("C1: an owner beside others");
            if (each.ownership == Ownership::exclusive && claim->owner != each.host) return say("home knows no owner");
            if (each.ownership == Ownership::exclusive) continue;
            if (!contains(claim->readers | set_of(claim->anchor), each.host)) return say("home knows no such reader");
            if (!each.bytes) continue;
            if (bytes && std::memcmp(each.bytes, bytes, page_size) != 0) return say("readers differ");
            bytes = each.bytes;
        }
    }
    return {};
}

}  // namespace

std::string explain_unrest(const std::vector<std::unique_ptr<SimHost>>& hosts, bool flushed) {
    HeldPages held;
    for (const auto& host : hosts)
        if (std::string wrong = Rest(*host, held, flushed).explain(); !wrong.empty()) return wrong;
    return explain_disagreement(hosts, held);
}

}  // namespace tarn::hosts_sim
