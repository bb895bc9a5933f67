#include "tests/checker/register_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tarn::checker {

namespace {

// One possible past: the register's value, and which of the operations under way have taken effect.
struct Past {
    Value value;
    uint64_t done;  // by slot
    auto operator<=>(const Past&) const = default;
};
using Pasts = std::set<Past>;

struct UnderWay {
    bool used = false;
    bool is_loss = false;
    bool is_write = false;
    Value value = 0;
    std::vector<Value> loss_to;
};

// Follows the history in time, and keeps every past that explains it so far (Wing and Gong's search, done operation by
// operation as each ends).
class Search {
  public:
    explicit Search(Value initial) : pasts_{{.value = initial, .done = 0}} {}

    std::optional<unsigned> begin(UnderWay what) {
        for (unsigned slot = 0; slot < slots_.size(); ++slot) {
            if (slots_[slot].used) continue;
            slots_[slot] = std::move(what);
            slots_[slot].used = true;
            return slot;
        }
        return std::nullopt;
    }

    // Keeps the pasts in which the slot's operation took effect by now. False: there are none.
    bool end(unsigned slot) {
        const uint64_t bit = uint64_t{1} << slot;
        Pasts kept;
        Pasts seen = pasts_;
        std::vector<Past> open(pasts_.begin(), pasts_.end());
        while (!open.empty()) {
            const Past past = open.back();
            open.pop_back();
            if ((past.done & bit) != 0) {
                kept.insert({past.value, past.done & ~bit});
                continue;
            }
            follow(past, [&](const Past& next) {
                if (seen.insert(next).second) open.push_back(next);
            });
        }
        pasts_ = std::move(kept);
        slots_[slot].used = false;
        return !pasts_.empty();
    }

    // A loss that ends did happen or did not.
    void end_loss(unsigned slot) {
        const uint64_t bit = uint64_t{1} << slot;
        Pasts without = pasts_;
        (void)end(slot);
        for (Past past : without) pasts_.insert({past.value, past.done & ~bit});
    }

    std::string values() const {
        std::string text;
        for (const Past& past : pasts_) text += fmt::format(" {:x}", past.value);
        return text;
    }

  private:
    template <class Function>
    void follow(const Past& past, Function&& found) const {
        for (unsigned slot = 0; slot < slots_.size(); ++slot) {
            const UnderWay& what = slots_[slot];
            const uint64_t bit = uint64_t{1} << slot;
            if (!what.used || (past.done & bit) != 0) continue;
            if (what.is_loss) {
                for (const Value value : what.loss_to) found(Past{value, past.done | bit});
            } else if (what.is_write) {
                found(Past{what.value, past.done | bit});
            } else if (what.value == past.value) {
                found(Past{past.value, past.done | bit});
            }
        }
    }

    std::vector<UnderWay> slots_ = std::vector<UnderWay>(64);
    Pasts pasts_;
};

struct Moment {
    Nanoseconds when;
    bool ends;
    size_t index;  // operations first, then losses
    // At one moment beginnings come first: operations that touch overlap.
    auto operator<=>(const Moment&) const = default;
};

std::string describe(const Operation& operation) {
    return fmt::format("client {} {} {:x} from {} to {}", operation.client, operation.is_write ? "wrote" : "read",
                       operation.value, operation.invoked,
                       operation.ended == never ? "(no answer)" : std::to_string(operation.ended));
}

}  // namespace

std::vector<Value> survivors(Value initial, const std::vector<Operation>& operations, const std::vector<Flush>& flushes,
                             const Loss& loss) {
    // A write counts as covered if it ended before this: the latest invocation of a flush that ended before the loss.
    Nanoseconds covered_until = 0;
    for (const Flush& flush : flushes)
        if (flush.ended < loss.begun) covered_until = std::max(covered_until, flush.invoked);
    // Everything that ended before the latest covered write began is overwritten for good.
    Nanoseconds overwritten_until = 0;
    for (const Operation& operation : operations)
        if (operation.is_write && operation.ended < (operation.is_durable ? loss.begun : covered_until))
            overwritten_until = std::max(overwritten_until, operation.invoked);
    std::vector<Value> values;
    if (overwritten_until == 0) values.push_back(initial);
    for (const Operation& operation : operations)
        if (operation.is_write && operation.ended >= overwritten_until && operation.invoked < loss.ended)
            values.push_back(operation.value);
    return values;
}

std::optional<std::string> explain_violation(Value initial, std::vector<Operation> operations,
                                             const std::vector<Flush>& flushes, const std::vector<Loss>& losses) {
    std::vector<Moment> moments;
    for (size_t i = 0; i < operations.size(); ++i) {
        moments.push_back({.when = operations[i].invoked, .ends = false, .index = i});
        if (operations[i].ended != never) moments.push_back({.when = operations[i].ended, .ends = true, .index = i});
    }
    for (size_t i = 0; i < losses.size(); ++i) {
        moments.push_back({.when = losses[i].begun, .ends = false, .index = operations.size() + i});
        moments.push_back({.when = losses[i].ended, .ends = true, .index = operations.size() + i});
    }
    std::sort(moments.begin(), moments.end());

    Search search(initial);
    std::vector<unsigned> slots(operations.size() + losses.size());
    for (const Moment& moment : moments) {
        const bool is_loss = moment.index >= operations.size();
        if (!moment.ends) {
            UnderWay what;
            what.is_loss = is_loss;
            if (is_loss) {
                what.loss_to = survivors(initial, operations, flushes, losses[moment.index - operations.size()]);
            } else {
                what.is_write = operations[moment.index].is_write;
                what.value = operations[moment.index].value;
            }
            const std::optional<unsigned> slot = search.begin(std::move(what));
            if (!slot) return "too many operations without an end to follow";
            slots[moment.index] = *slot;
        } else if (is_loss) {
            search.end_loss(slots[moment.index]);
        } else {
            const std::string before = search.values();
            if (search.end(slots[moment.index])) continue;
            std::string text = fmt::format("{}, but the register can only have held{}; around it:\n",
                                           describe(operations[moment.index]), before);
            std::sort(operations.begin(), operations.end(),
                      [](const Operation& a, const Operation& b) { return a.invoked < b.invoked; });
            size_t lines = 0;
            for (auto each = operations.rbegin(); each != operations.rend() && lines < 20; ++each) {
                if (each->invoked > moment.when) continue;
                text += "    " + describe(*each) + "\n";
                ++lines;
            }
            return text;
        }
    }
    return std::nullopt;
}

}  // namespace tarn::checker
