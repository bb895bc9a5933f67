#include "tiers/dram/nodes.hpp"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>

#include "utils/assert.hpp"
#include "utils/file_text.hpp"

namespace tarn {

namespace {
constexpr unsigned numbers_max = 1024;  // of a kernel
}

Nodes::Nodes(std::vector<unsigned> numbers, unsigned (*here)()) : numbers_(std::move(numbers)), here_(here) {
    TARN_ASSERT(!numbers_.empty());
}

Nodes Nodes::of_machine() {
    std::vector<unsigned> numbers = parse(text_of("/sys/devices/system/node/has_memory"));
    const std::vector<unsigned> with_cpus = parse(text_of("/sys/devices/system/node/has_cpu"));
    std::erase_if(numbers, [&](unsigned number) { return std::ranges::find(with_cpus, number) == with_cpus.end(); });
    if (numbers.empty()) numbers = {0};
    return Nodes(std::move(numbers));
}

size_t Nodes::here() const {
    if (count() == 1) return 0;
    const auto found = std::ranges::find(numbers_, here_());
    return found == numbers_.end() ? 0 : static_cast<size_t>(found - numbers_.begin());
}

unsigned Nodes::node_of_this_cpu() {
    unsigned cpu = 0;
    unsigned node = 0;
    ::getcpu(&cpu, &node);
    return node;
}

void Nodes::place(std::span<std::byte> bytes, size_t part) const {
    constexpr size_t bits_per_word = sizeof(unsigned long) * CHAR_BIT;
    unsigned long mask[numbers_max / bits_per_word]{};
    const unsigned number = numbers_[part];
    mask[number / bits_per_word] = 1UL << number % bits_per_word;
    ::syscall(SYS_mbind, bytes.data(), bytes.size(), MPOL_PREFERRED, mask, numbers_max, 0);
}

std::vector<unsigned> Nodes::parse(std::string_view list) {
    std::vector<unsigned> numbers;
    const auto take_number = [&](unsigned& into) {
        const auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), into);
        if (error != std::errc() || into >= numbers_max) return false;
        list.remove_prefix(static_cast<size_t>(end - list.data()));
        return true;
    };
    const auto take = [&](char byte) {
        if (!list.starts_with(byte)) return false;
        list.remove_prefix(1);
        return true;
    };
    do {
        unsigned first = 0;
        if (!take_number(first)) return {};
        unsigned last = first;
        if (take('-') && !take_number(last)) return {};
        for (unsigned number = first; number <= last; ++number) numbers.push_back(number);
    } while (take(','));
    return numbers;
}

}  // namespace tarn
