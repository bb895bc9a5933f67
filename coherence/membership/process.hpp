// Process: a run of tarnd, and its memory.
#pragma once

#include <cstdint>

namespace tarn {

using Incarnation = uint32_t;  // number of a host's memory: new at each start without the arena

// A run that adopted the arena of the previous one has that run's memory, and nothing else of it: as a home it knows no
// claims, and starts again above all tenures of earlier runs.
struct Process {
    Incarnation incarnation = 0;
    uint32_t epoch = 0;  // new at each start, and its home epoch; 0: never met
    // As a home it has every write that it accepted since that incarnation, but those in its list of losses: the
    // processes between stopped with everything durable. 0: since its own.
    Incarnation intact_since = 0;
    constexpr Incarnation first_intact() const { return intact_since != 0 ? intact_since : incarnation; }
    bool operator==(const Process&) const = default;
};

// Whether a host that was met as `previous`, and now as `present`, has lost its memory in between.
constexpr bool has_lost_memory(const Process& previous, const Process& present) {
    return previous.incarnation != 0 && previous.incarnation != present.incarnation;
}

}  // namespace tarn
