#include "tests/sim/hosts/registers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tarn::hosts_sim {

namespace {

// A write without an end whose value nobody read explains nothing, whether it took effect or not; with many of them the
// search would take for ever.
void leave_out_unseen(std::vector<checker::Operation>& operations) {
    std::set<checker::Value> seen;
    for (const checker::Operation& operation : operations)
        if (!operation.is_write) seen.insert(operation.value);
    std::erase_if(operations, [&](const checker::Operation& operation) {
        return operation.is_write && operation.ended == checker::never && !seen.contains(operation.value);
    });
}

// A flush makes sure of a write unless power was lost in between: then the write may have been gone by the time of the
// flush, which says nothing about it to others than its own session.
void note_durable(std::vector<checker::Operation>& operations, const std::vector<checker::Flush>& flushes,
                  const std::vector<checker::Loss>& losses) {
    for (checker::Operation& write : operations) {
        if (!write.is_write || write.ended == checker::never) continue;
        write.is_durable |= std::ranges::any_of(flushes, [&](const checker::Flush& flush) {
            return flush.invoked > write.ended && std::ranges::none_of(losses, [&](const checker::Loss& loss) {
                       return loss.begun < flush.ended && loss.ended > write.invoked;
                   });
        });
    }
}

}  // namespace

size_t Registers::run_of(size_t page, size_t count_max) const {
    size_t count = 1;
    while (count < count_max && page + count < pages_.size() && pages_[page + count] == pages_[page] + count) ++count;
    return count;
}

Registers::Write Registers::begin_write(uint64_t first_byte, uint64_t end_byte, uint64_t value, uint64_t now,
                                        const Who& who) {
    Write write;
    for (uint64_t number = first_byte / page_size; number * page_size < end_byte; ++number) {
        const auto page = std::ranges::lower_bound(pages_, number);
        if (page == pages_.end() || *page != number) continue;
        for (size_t i = 0; i < sectors.size(); ++i) {
            const uint64_t at = number * page_size + sectors[i] * sector_size;
            if (at < first_byte || at + sector_size > end_byte) continue;
            auto& operations = histories_[static_cast<size_t>(page - pages_.begin()) * sectors.size() + i].operations;
            operations.push_back(std::make_unique<checker::Operation>(checker::Operation{
                .is_write = true, .value = value, .invoked = now, .client = who.client, .session = who.session}));
            write.operations.push_back(operations.back().get());
        }
    }
    return write;
}

void Registers::end_write(const Write& write, uint64_t now, bool is_durable) {
    for (checker::Operation* const operation : write.operations) {
        operation->ended = now;
        operation->is_durable = is_durable;
    }
}

bool Registers::note_read(size_t page, std::span<const uint64_t> words, uint64_t invoked, uint64_t now,
                          const Who& who) {
    constexpr size_t sector_words = sector_size / sizeof(uint64_t);
    for (size_t i = 0; i < sectors.size(); ++i) {
        const auto found = words.subspan(sectors[i] * sector_words, sector_words);
        if (std::ranges::any_of(found, [&](uint64_t word) { return word != found.front(); })) return false;
        histories_[page * sectors.size() + i].operations.push_back(
            std::make_unique<checker::Operation>(checker::Operation{.value = found.front(),
                                                                    .invoked = invoked,
                                                                    .ended = now,
                                                                    .client = who.client,
                                                                    .session = who.session}));
    }
    return true;
}

std::string Registers::check(const std::vector<checker::Loss>& losses) const {
    for (size_t i = 0; i < histories_.size(); ++i) {
        std::vector<checker::Operation> operations;
        for (const auto& each : histories_[i].operations) operations.push_back(*each);
        leave_out_unseen(operations);
        note_durable(operations, flushes_, losses);
        if (operations.empty()) continue;
        std::optional<std::string> wrong = checker::explain_violation(0, operations, {}, losses);
        if (!wrong && !losses.empty()) wrong = checker::explain_silence(0, operations, own_flushes_, opened_);
        if (wrong)
            return fmt::format("volume {} page {} sector {}: {}", volume_, pages_[i / sectors.size()],
                               sectors[i % sectors.size()], *wrong);
    }
    return {};
}

}  // namespace tarn::hosts_sim
