// Mutant: which rule of the protocol is broken, in the simulator's own build of it (mutants.py).
#pragma once

#include <vector>

namespace tarn::sim {

struct Mutant {
    const char* name;
    const char* checks;  // those that must notice it; empty: any
};

extern unsigned mutant;  // 0: none; else its place among these, from 1
extern const std::vector<Mutant> mutants;

}  // namespace tarn::sim
