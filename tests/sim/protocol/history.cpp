#include "tests/sim/protocol/history.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace tarn::sim {

namespace {

// Of all operations about one value: when the first was answered, and when the last was invoked.
struct Zone {
    uint64_t first_answered = std::numeric_limits<uint64_t>::max();
    uint64_t last_invoked = 0;
    uint64_t write_invoked = std::numeric_limits<uint64_t>::max();  // as long as no write of this value is known
    bool spans() const { return first_answered < last_invoked; }

    void add(const History::Operation& operation) {
        first_answered = std::min(first_answered, operation.answered);
        last_invoked = std::max(last_invoked, operation.invoked);
    }
};

}  // namespace

void History::add(PageId page, const Operation& operation) {
    pages_[page].operations.push_back(operation);
}

void History::forget(PageId page) {
    pages_[page].forgotten = true;
}

std::string History::check_register(const Page& page, unsigned sector) {
    std::unordered_map<uint64_t, Zone> zones;
    Zone& initial = zones[0];  // written before everything else
    initial.first_answered = initial.write_invoked = 0;
    for (const Operation& operation : page.operations) {
        if (operation.written != 0 && (operation.written >> sector & 1) == 0) continue;
        Zone& zone = zones[operation.written != 0 ? operation.value : operation.found[sector]];
        zone.add(operation);
        if (operation.written != 0) zone.write_invoked = operation.invoked;
    }
    std::vector<Zone> spans;
    for (const auto& [value, zone] : zones) {
        if (zone.write_invoked == std::numeric_limits<uint64_t>::max()) return "a value was read that nobody wrote";
        if (zone.first_answered < zone.write_invoked) return "a value was read before it was written";
        if (zone.spans()) spans.push_back(zone);
    }
    std::ranges::sort(spans, {}, &Zone::first_answered);
    for (size_t index = 1; index < spans.size(); ++index)
        if (spans[index].first_answered < spans[index - 1].last_invoked) return "two values were there at once";
    for (const auto& [value, zone] : zones) {
        if (zone.spans()) continue;
        // Spans do not overlap: the only one that can enclose this moment is the last that begins before it.
        const auto after = std::ranges::lower_bound(spans, zone.last_invoked, {}, &Zone::first_answered);
        if (after != spans.begin() && zone.first_answered < std::prev(after)->last_invoked)
            return "a value came and went while another one was there";
    }
    return {};
}

std::string History::check() const {
    for (const auto& [page_id, page] : pages_) {
        if (page.forgotten) continue;
        for (unsigned sector = 0; sector < sectors_per_page; ++sector)
            if (std::string wrong = check_register(page, sector); !wrong.empty())
                return wrong + "; page " + std::to_string(page_id.volume()) + "." + std::to_string(page_id.number()) +
                       " sector " + std::to_string(sector);
    }
    return {};
}

}  // namespace tarn::sim
