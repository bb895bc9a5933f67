// Model: up to three threads of a scenario, of which one runs at a time, through every order of their steps.
//
// Each operation on an Atomic, each fence and each wait is a step; before it another thread may go on instead. A search
// with replay tries all of that with at most so many preemptions, and at most so many loads that return something older
// than the newest value (memory.hpp); fewer are tried first, so what fails first is short. Nothing depends on time or
// chance: a run is named by its choices.
//
// A scenario is a function. It makes what it looks at, calls run() once, and then checks what has become of it. What it
// keeps in ordinary variables is seen by all threads at once and takes no step.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/threads/memory.hpp"

namespace tarn::threads {

struct Scenario {
    const char* name;
    const char* claim;
    void (*run)();
    unsigned preemptions;
    unsigned stale_loads;
};

struct Run {
    unsigned preemptions = 0;
    unsigned stale_loads = 0;
    std::vector<unsigned> choices;
};
std::string text_of(const Run& run);
// False: it is none.
bool parse(const std::string& text, Run& run);

// What happened, and how to see it again.
struct Failure {
    const Scenario& scenario;
    const std::string& what;
    const Run& run;
};
// Does not return.
using OnFailure = void (*)(const Failure& failure);

// Every run within the scenario's bounds: those without a preemption, then those with at most one, and so on. Returns
// how many there were.
uint64_t explore(const Scenario& scenario, OnFailure on_failure);
// Every run with at most so many preemptions, and no more stale loads than that.
uint64_t explore(const Scenario& scenario, unsigned preemptions, OnFailure on_failure);
// This one run, with what it did.
void replay(const Scenario& scenario, const Run& run, OnFailure on_failure);
// What the present run did, one line for a step.
std::string trace();

// For scenarios.

// The threads, to their ends; then all that they did happened before what follows.
void run(std::vector<std::function<void()>> bodies);
// From 1 on; 0: the scenario, outside of run().
unsigned current_thread();
// For the trace.
void name_memory(const void* address, size_t size, const char* name);
template <class T>
void name_memory(const T& object, const char* name) {
    name_memory(&object, sizeof(T), name);
}
[[noreturn]] void fail(const std::string& what);
inline void require(bool holds, const char* what) {
    if (!holds) fail(what);
}
// Asked before every step from now on.
void require_always(std::function<bool()> holds, const char* what);

// For what stands in for the system (stand_in/).

uint64_t load(const void* at, uint64_t now, std::memory_order order);
// Returns nothing: the caller changes the memory itself, once the step is taken.
void store(const void* at, uint64_t now, uint64_t value, std::memory_order order);
// First the step, then what is there; then commit_update with what it becomes, if it does.
uint64_t begin_update(const void* at, uint64_t now, std::memory_order order);
void commit_update(const void* at, uint64_t value, std::memory_order order);
void forget(const void* at);
void fence(std::memory_order order);
// The thread looks again when another one has changed something.
void pause();
// A step that is not taken before `may_go_on`. what: for the trace.
void wait_until(const char* what, const std::function<bool()>& may_go_on);
Memory& memory();

// Memory that only one thread at a time may use: two accesses of which one writes, and which nothing orders, are a
// failure.
template <class T>
class Plain {
  public:
    explicit Plain(const char* name, T value = {}) : name_(name), value_(value) {}
    T get() const {
        if (!memory().read_plain(current_thread(), access_)) fail(std::string("two threads use at once: ") + name_);
        return value_;
    }
    void set(T value) {
        if (!memory().write_plain(current_thread(), access_)) fail(std::string("two threads use at once: ") + name_);
        value_ = value;
    }

  private:
    const char* name_;
    T value_;
    mutable PlainAccess access_;
};

// A thread that sleeps until it is woken; once for all wakes since it last slept.
class Wakeup {
  public:
    void wake();
    void sleep();

  private:
    bool woken_ = false;
    Clock released_;
};

}  // namespace tarn::threads
