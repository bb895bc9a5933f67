#include "tests/sim/protocol/truth.hpp"

#include <algorithm>
#include <span>

#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

bool Truth::may_be_lost(const Version& version) const {
    if (version.content.version == 0) return false;
    const WriteOrigin& origin = version.origin;
    return world_.incarnation_of(origin.writer) != origin.writer_incarnation ||
           world_.incarnation_of(origin.home) != origin.home_incarnation;
}

std::string Truth::describe(PageId page_id, const Content& found) const {
    std::string text = "; page " + std::to_string(page_id.volume()) + "." + std::to_string(page_id.number()) +
                       " found version " + std::to_string(found.version) + ", flushed " +
                       std::to_string(pages_.at(page_id).flushed) + "; versions";
    const std::vector<Version>& log = pages_.at(page_id).log;
    for (const Version& version : std::span(log).last(std::min<size_t>(log.size(), 5)))
        text += " " + std::to_string(version.content.version) + " (host " + std::to_string(version.origin.writer) +
                "." + std::to_string(version.origin.writer_incarnation) + " home " +
                std::to_string(version.origin.home) + "." + std::to_string(version.origin.home_incarnation) + ")";
    return text;
}

void Truth::check_read(PageId page_id, const Content& content) {
    Page& page = pages_[page_id];
    const auto require_here = [&](bool holds, const char* what) {
        if (!holds) throw Failure(what + describe(page_id, content));
    };
    if (page.log.back().content.version != content.version) {
        require_here(content.version != ~uint64_t{0}, "C5: a frame without bytes was read");
        while (page.log.back().content.version > content.version) {
            const Version& lost = page.log.back();
            require_here(lost.content.version > page.flushed, "D1: a flushed write is lost");
            require_here(may_be_lost(lost), "I2, D3: not the latest write, and the host and home of the latest live");
            require_here(lost.origin.noted != world_.verifier_of(page_id),
                         "D4: a write is lost and the verifier did not change");
            coverage_.reached(Sometimes::write_lost);
            world_.lost(page_id);
            if (lost.replied) lost_[lost.origin.session].emplace_back(page_id, lost.content.version);
            page.log.pop_back();
        }
        require_here(page.log.back().content.version == content.version, "I2: a lost write came back");
    }
    require_here(page.log.back().content == content, "I2: the sectors of a page are of different versions");
}

void Truth::write(PageId page_id, Content& content, DirtyMask mask, bool zero, const WriteOrigin& origin) {
    // A whole-page write replaces any bytes; every other write builds on the latest version.
    if (mask != all_sectors) check_read(page_id, content);
    Page& page = pages_[page_id];
    content.version = ++last_version_;
    content.zero = zero;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector)
        if (mask >> sector & 1) content.sectors[sector] = content.version;
    page.log.push_back({content, origin});
}

void Truth::replied(PageId page_id, uint64_t version, protocol::SessionId session) {
    Page& page = pages_[page_id];
    const auto written = std::ranges::find(page.log, version, [](const Version& each) { return each.content.version; });
    if (written == page.log.end()) {
        lost_[session].emplace_back(page_id, version);
        return;
    }
    written->replied = true;
    written->origin.session = session;
}

void Truth::secure(PageId page_id, const WriteOrigin& holder) {
    Version& latest = pages_[page_id].log.back();
    if (!may_be_lost(latest)) return;
    const protocol::SessionId session = latest.origin.session;
    latest.origin = holder;
    latest.origin.session = session;
}

Truth::Cover Truth::cover_of(VolumeId volume, protocol::SessionId session) const {
    const auto lost = lost_.find(session);
    Cover cover = lost == lost_.end() ? Cover{} : lost->second;
    for (const auto& [page_id, page] : pages_) {
        if (page_id.volume() != volume) continue;
        // The flush need not save writes that an earlier crash took, or may still take; but their writer must know.
        uint64_t replied = 0;
        for (const Version& version : page.log) {
            if (!version.replied) continue;
            if (version.origin.session == session || !may_be_lost(version)) replied = version.content.version;
        }
        if (replied != 0) cover.emplace_back(page_id, replied);
    }
    return cover;
}

void Truth::flushed(const Cover& cover) {
    for (const auto& [page_id, version] : cover) {
        Page& page = pages_[page_id];
        const bool survives =
            std::ranges::any_of(page.log, [&](const Version& each) { return each.content.version == version; });
        require(survives, "D1: a flush succeeded over a lost write");
        require(world_.stored_version_of(page_id) >= version, "I8: a flush succeeded before its bytes were durable");
        page.flushed = std::max(page.flushed, version);
    }
}

}  // namespace tarn::sim
