// Mutant: which rule of the protocol is broken, in the simulator's own build of it (mutants.py).
#pragma once

#include <vector>

namespace tarn::sim {

extern unsigned mutant;  // 0: none; else the place of its name, from 1
extern const std::vector<const char*> mutant_names;

}  // namespace tarn::sim
