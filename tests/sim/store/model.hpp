// Model: the contents that each page may have by the contract: the last durable ones, or any written since.
//
// A page's contents are eight numbers, one per sector; each sector's bytes identify it, so that a sector of another
// page, volume or time is recognised.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tiers/page.hpp"

namespace tarn::store_sim {

using Contents = std::array<uint64_t, sectors_per_page>;  // 0: zeros

void encode(PageId page, const Contents& contents, std::byte* into);
// False when the bytes are no contents of that page.
bool decode(PageId page, const std::byte* bytes, Contents& contents);

struct Version {
    Contents contents{};
    Tenure tenure = 0;  // 0: not present
    uint64_t completed_at = UINT64_MAX;
};

class Model {
  public:
    struct Group {
        std::vector<std::pair<uint64_t, size_t>> members;  // page, version
    };

    // A change was requested; returns its version, to be completed. It may already be on its way to the device.
    size_t begin(PageId page, const Contents& contents, Tenure tenure);
    void complete(PageId page, size_t version);
    void add_group(Group group) { groups_.push_back(std::move(group)); }
    // The change failed: its outcome is unknown, and later changes of its pages could be mistaken for it.
    void forget_group(const Group& group) {
        std::erase_if(groups_, [&](const Group& other) { return other.members == group.members; });
    }
    // Everything completed before `moment` is durable.
    uint64_t moment() const { return clock_; }
    void durable(uint64_t moment);

    const Version& newest(PageId page) const;
    // What an undisturbed reader must see.
    const std::map<uint64_t, std::vector<Version>>& pages() const { return pages_; }

    // After a restart: determines the version of each page, and checks that it is allowed. Empty, or the violation.
    struct Found {
        Contents contents{};
        Tenure tenure = 0;
    };
    std::string check(const std::map<uint64_t, Found>& found) const;
    // From now on the contents found are the durable ones.
    void restart(const std::map<uint64_t, Found>& found);

  private:
    struct Page;
    int64_t version_of(const std::vector<Version>& versions, size_t from, const Found& found) const;

    std::map<uint64_t, std::vector<Version>> pages_;
    std::map<uint64_t, size_t> durable_from_;  // the oldest version that is still allowed
    std::vector<Group> groups_;
    uint64_t clock_ = 1;
};

}  // namespace tarn::store_sim
