// Is what clients saw of one register linearizable?
//
// A register is a page, or a sector of one; each write has a value of its own, but for zeros. An operation took effect
// at one moment between its invocation and its end; one whose end nobody saw took effect at any later moment, or never.
// A loss (the crash of a host that held unflushed bytes) may take the register back once, to one of the values that no
// flush forbids.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tarn::checker {

using Value = uint64_t;
using Nanoseconds = uint64_t;
inline constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

struct Operation {
    bool is_write = false;
    Value value = 0;  // written, or read
    Nanoseconds invoked = 0;
    Nanoseconds ended = never;
    unsigned client = 0;
    unsigned session = 0;     // of the client; 0: another one, of which nothing else is known
    bool is_durable = false;  // once it was answered, as a write with FUA
};

// One that succeeded.
struct Flush {
    Nanoseconds invoked = 0;
    Nanoseconds ended = 0;
    unsigned session = 0;
};

struct Loss {
    Nanoseconds begun = 0;
    Nanoseconds ended = 0;
};

// The values a loss may take the register back to: all but those that were overwritten by a write which was durable
// before the loss, by itself or by a flush that succeeded.
std::vector<Value> survivors(Value initial, const std::vector<Operation>& operations, const std::vector<Flush>& flushes,
                             const Loss& loss);

// Nothing if the operations can be put into one order; else what cannot be. Reads that failed are left out.
std::optional<std::string> explain_violation(Value initial, std::vector<Operation> operations,
                                             const std::vector<Flush>& flushes, const std::vector<Loss>& losses);

}  // namespace tarn::checker
