// Nodes: the machine's NUMA nodes, each with CPUs and memory of its own, and the parts of the frames that lie on them.
//
// Memory of another node works, and is slower: so a thread takes frames of its own node first. On most machines there
// is one node, and all of this is nothing.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tarn {

class Nodes {
  public:
    // A single node, with all CPUs and all memory.
    Nodes() : Nodes({0}) {}
    // Those that have CPUs and memory.
    static Nodes of_machine();
    // By the kernel's numbers, at least one. here: the number of the node on whose CPU the calling thread runs.
    explicit Nodes(std::vector<unsigned> numbers, unsigned (*here)() = node_of_this_cpu);

    size_t count() const { return numbers_.size(); }
    // The place in the list of the node on which the calling thread runs; the first, if that has no memory.
    size_t here() const;
    // The part, by its node's place in the list, in which element i of `size` lies. Parts follow each other.
    size_t part_of(size_t i, size_t size) const { return i * count() / size; }
    // The first element of a part.
    size_t begin_of(size_t part, size_t size) const { return (part * size + count() - 1) / count(); }

    // Memory that is not touched yet comes from this node as long as it has some. Whole pages. It may be refused.
    void place(std::span<std::byte> bytes, size_t part) const;

    // As the kernel writes lists: "0-1,4". Nothing if it is none.
    static std::vector<unsigned> parse(std::string_view list);

  private:
    static unsigned node_of_this_cpu();

    std::vector<unsigned> numbers_;
    unsigned (*here_)();
};

}  // namespace tarn
