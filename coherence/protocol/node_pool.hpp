// NodePool and NodeList: the short queues of many records, in one shared pool.
//
// A record holds a NodeList (eight bytes); the nodes lie in the pool and are linked by index, so that the whole state
// stays a plain copyable value. add() never allocates: reserve() does, before the step that may need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "utils/assert.hpp"

namespace tarn::protocol {

inline constexpr uint32_t no_node = 0xffffffff;

struct NodeList {
    uint32_t first = no_node;
    uint32_t last = no_node;
    bool empty() const { return first == no_node; }
};

template <class T>
class NodePool {
  public:
    // At least this many nodes are free afterwards.
    void reserve(size_t free_count) {
        while (free_count_ < free_count) {
            nodes_.push_back({T{}, free_});
            free_ = static_cast<uint32_t>(nodes_.size() - 1);
            ++free_count_;
        }
    }
    size_t used() const { return nodes_.size() - free_count_; }

    T& at(uint32_t node) { return nodes_[node].value; }
    const T& at(uint32_t node) const { return nodes_[node].value; }
    uint32_t next(uint32_t node) const { return nodes_[node].next; }

    T& add(NodeList& list, const T& value) {
        TARN_ASSERT(free_ != no_node);
        const uint32_t node = std::exchange(free_, nodes_[free_].next);
        --free_count_;
        nodes_[node] = {value, no_node};
        append(list, node);
        return nodes_[node].value;
    }
    T take_first(NodeList& list) {
        TARN_ASSERT(!list.empty());
        const uint32_t node = list.first;
        list.first = nodes_[node].next;
        if (list.first == no_node) list.last = no_node;
        give_back(node);
        return nodes_[node].value;
    }
    // Moves all of `from` behind `to`.
    void splice(NodeList& to, NodeList& from) {
        if (from.empty()) return;
        (to.empty() ? to.first : nodes_[to.last].next) = from.first;
        to.last = from.last;
        from = {};
    }
    template <class Predicate>
    T* find(const NodeList& list, Predicate&& matches) {
        for (uint32_t node = list.first; node != no_node; node = nodes_[node].next)
            if (matches(nodes_[node].value)) return &nodes_[node].value;
        return nullptr;
    }
    template <class Visitor>
    void for_each(const NodeList& list, Visitor&& visit) const {
        for (uint32_t node = list.first; node != no_node; node = nodes_[node].next) visit(nodes_[node].value);
    }
    // Keeps the order of the rest. Returns how many were removed.
    template <class Predicate>
    size_t remove_if(NodeList& list, Predicate&& matches) {
        size_t removed = 0;
        NodeList rest;
        for (uint32_t node = list.first; node != no_node;) {
            const uint32_t next = nodes_[node].next;
            if (matches(nodes_[node].value)) {
                give_back(node);
                ++removed;
            } else {
                append(rest, node);
            }
            node = next;
        }
        list = rest;
        return removed;
    }

  private:
    struct Node {
        T value;
        uint32_t next;
    };

    void append(NodeList& list, uint32_t node) {
        nodes_[node].next = no_node;
        (list.empty() ? list.first : nodes_[list.last].next) = node;
        list.last = node;
    }
    void give_back(uint32_t node) {
        nodes_[node].next = std::exchange(free_, node);
        ++free_count_;
    }

    std::vector<Node> nodes_;
    uint32_t free_ = no_node;
    size_t free_count_ = 0;
};

}  // namespace tarn::protocol
