#include "tests/sim/store/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tarn::store_sim {

namespace {

uint64_t word_of(PageId page, unsigned sector, uint64_t value) {
    return value == 0 ? 0
                      : value << 20 ^ (mix64(page.value * sectors_per_page + sector) & 0xfffff) ^ uint64_t { 1 } << 63;
}

std::string describe(const Contents& contents, Tenure tenure) {
    return fmt::format("tenure {} {}", tenure, fmt::join(contents, ","));
}

}  // namespace

void encode(PageId page, const Contents& contents, std::byte* into) {
    for (unsigned sector = 0; sector < sectors_per_page; ++sector) {
        std::array<uint64_t, sector_size / 8> words;
        words.fill(word_of(page, sector, contents[sector]));
        std::memcpy(into + sector * sector_size, words.data(), sector_size);
    }
}

bool decode(PageId page, const std::byte* bytes, Contents& contents) {
    for (unsigned sector = 0; sector < sectors_per_page; ++sector) {
        std::array<uint64_t, sector_size / 8> words;
        std::memcpy(words.data(), bytes + sector * sector_size, sector_size);
        if (std::ranges::any_of(words, [&](uint64_t word) { return word != words[0]; })) return false;
        contents[sector] = words[0] == 0 ? 0 : (words[0] & ~(uint64_t{1} << 63)) >> 20;
        if (word_of(page, sector, contents[sector]) != words[0]) return false;
    }
    return true;
}

size_t Model::begin(PageId page, const Contents& contents, Tenure tenure) {
    std::vector<Version>& versions = pages_.try_emplace(page.value, 1, Version{.completed_at = 0}).first->second;
    versions.push_back({.contents = contents, .tenure = tenure});
    return versions.size() - 1;
}

void Model::complete(PageId page, size_t version) {
    pages_[page.value][version].completed_at = clock_++;
}

void Model::durable(uint64_t moment) {
    for (auto& [page, versions] : pages_) {
        size_t& from = durable_from_[page];
        for (size_t i = from + 1; i < versions.size(); ++i)
            if (versions[i].completed_at < moment) from = i;
    }
}

const Version& Model::newest(PageId page) const {
    static const Version never;
    const auto found = pages_.find(page.value);
    return found == pages_.end() ? never : found->second.back();
}

// The newest possible version.
int64_t Model::version_of(const std::vector<Version>& versions, size_t from, const Found& found) const {
    for (size_t i = versions.size(); i-- > from;)
        if (versions[i].contents == found.contents && versions[i].tenure == found.tenure)
            return static_cast<int64_t>(i);
    return -1;
}

std::string Model::check(const std::map<uint64_t, Found>& found) const {
    std::map<uint64_t, int64_t> version_found;
    for (const auto& [page, versions] : pages_) {
        const auto durable = durable_from_.find(page);
        const size_t from = durable == durable_from_.end() ? 0 : durable->second;
        const Found& now = found.at(page);
        const int64_t version = version_of(versions, from, now);
        if (version < 0) {
            const PageId id{page};
            const int64_t older = version_of(versions, 0, now);
            return fmt::format("volume {} page {} has {}, {}; its last durable contents are version {}, {}, of {}",
                               id.volume(), id.number(),
                               older < 0 ? "contents it was never given" : fmt::format("version {}", older),
                               describe(now.contents, now.tenure), from,
                               describe(versions[from].contents, versions[from].tenure), versions.size());
        }
        version_found[page] = version;
    }
    for (const Group& group : groups_) {
        size_t there = 0;
        size_t known = 0;
        for (const auto& [page, version] : group.members) {
            if (found.at(page).tenure == 0) continue;  // zeros from before or after
            ++known;
            there += version_found.at(page) >= static_cast<int64_t>(version) ? 1 : 0;
        }
        if (there != 0 && there != known)
            return fmt::format("of an atomic group of {} pages only {} are there; one is volume {} page {}", known,
                               there, PageId{group.members[0].first}.volume(), PageId{group.members[0].first}.number());
    }
    return {};
}

void Model::restart(const std::map<uint64_t, Found>& found) {
    groups_.clear();
    for (auto& [page, versions] : pages_) {
        const Found& now = found.at(page);
        versions.assign(1, {.contents = now.contents, .tenure = now.tenure, .completed_at = 0});
        durable_from_[page] = 0;
    }
}

}  // namespace tarn::store_sim
