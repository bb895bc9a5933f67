// SmallMap: a sorted map of a handful of entries in one piece of memory. Insertion and removal invalidate iterators and
// references.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tarn::sim {

template <class Key, class Value>
class SmallMap {
  public:
    using Entry = std::pair<Key, Value>;

    auto begin() { return entries_.begin(); }
    auto end() { return entries_.end(); }
    auto begin() const { return entries_.begin(); }
    auto end() const { return entries_.end(); }
    size_t size() const { return entries_.size(); }
    bool empty() const { return entries_.empty(); }
    void clear() { entries_.clear(); }

    auto find(const Key& key) { return find_in(entries_, key); }
    auto find(const Key& key) const { return find_in(entries_, key); }
    bool contains(const Key& key) const { return find(key) != end(); }
    Value& at(const Key& key) { return find(key)->second; }
    const Value& at(const Key& key) const { return find(key)->second; }
    Value& operator[](const Key& key) { return try_emplace(key, Value{}).first->second; }
    auto try_emplace(const Key& key, Value value) {
        auto entry = entries_.begin();
        while (entry != entries_.end() && entry->first < key) ++entry;
        if (entry != entries_.end() && entry->first == key) return std::pair(entry, false);
        return std::pair(entries_.insert(entry, {key, std::move(value)}), true);
    }
    void erase(const Key& key) {
        if (const auto entry = find(key); entry != end()) entries_.erase(entry);
    }

  private:
    static auto find_in(auto& entries, const Key& key) {
        auto entry = entries.begin();
        while (entry != entries.end() && !(entry->first == key)) ++entry;
        return entry;
    }

    std::vector<Entry> entries_;
};

}  // namespace tarn::sim
