#include "tests/sim/threads/model.hpp"

#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "utils/assert.hpp"

namespace tarn::threads {

namespace {

constexpr size_t stack_size = 128 << 10;
constexpr size_t steps_max = 2000;  // a run has a few hundred

struct Fiber {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(stack_size);
    std::function<void()> body;
    std::function<bool()> may_go_on;  // empty: it may
    bool ended = true;
    bool has_read = false;  // since it last paused
    bool has_read_stale = false;
};

struct Step {
    unsigned thread;
    const char* what;
    const void* address;
    uint64_t value;
    bool stale;
};

struct Name {
    const void* address;
    size_t size;
    const char* name;
};

struct Choice {
    unsigned chosen;
    unsigned count;
};

// All there is of one run, and the choices that lead to the next.
struct Explorer {
    Memory memory;
    std::array<Fiber, threads_max> fibers;
    ucontext_t main{};
    unsigned current = 0;
    unsigned count = 0;  // of fibers, with 0

    const Scenario* scenario = nullptr;
    OnFailure on_failure = nullptr;
    unsigned preemptions_max = 0;
    unsigned stale_loads_max = 0;
    unsigned preemptions = 0;
    unsigned stale_loads = 0;
    std::vector<Choice> path;
    size_t depth = 0;

    std::vector<Step> steps;
    std::vector<Name> names;
    std::vector<std::pair<std::function<bool()>, const char*>> invariants;

    unsigned choose(unsigned options) {
        if (options == 1) return 0;
        if (depth == path.size()) path.push_back({.chosen = 0, .count = options});
        if (path[depth].count == 0) path[depth].count = options;  // it is replayed
        if (path[depth].count != options || path[depth].chosen >= options) fail("a run differs from its replay");
        return path[depth++].chosen;
    }
    bool next_path() {
        while (!path.empty() && path.back().chosen + 1 == path.back().count) path.pop_back();
        if (path.empty()) return false;
        ++path.back().chosen;
        return true;
    }
    void begin_run() {
        memory.reset();
        depth = 0;
        preemptions = stale_loads = 0;
        steps.clear();
        names.clear();
        invariants.clear();
    }
};

Explorer& explorer() {
    static Explorer only;
    return only;
}

void switch_to(unsigned next) {
    Explorer& all = explorer();
    ucontext_t& from = all.current == 0 ? all.main : all.fibers[all.current].context;
    all.current = next;
    ::swapcontext(&from, next == 0 ? &all.main : &all.fibers[next].context);
}

// Who goes on: the present thread, or, at the price of a preemption if it could, another one.
void schedule() {
    Explorer& all = explorer();
    const auto enabled = [&](unsigned thread) {
        const Fiber& fiber = all.fibers[thread];
        return !fiber.ended && (!fiber.may_go_on || fiber.may_go_on());
    };
    std::array<unsigned, threads_max> options{};
    unsigned count = 0;
    const bool may_stay = all.current != 0 && enabled(all.current);
    if (may_stay) options[count++] = all.current;
    if (!may_stay || all.preemptions < all.preemptions_max) {
        for (unsigned thread = 1; thread < all.count; ++thread)
            if (thread != all.current && enabled(thread)) options[count++] = thread;
    }
    if (count == 0) fail("every thread waits for another");
    const unsigned next = options[all.choose(count)];
    if (may_stay && next != all.current) ++all.preemptions;
    if (next != all.current) switch_to(next);
}

void before_step() {
    Explorer& all = explorer();
    if (all.current == 0) return;
    for (const auto& [holds, what] : all.invariants)
        if (!holds()) fail(what);
    if (all.steps.size() > steps_max) fail("it does not end");
    schedule();
}

void note(const char* what, const void* address = nullptr, uint64_t value = 0, bool stale = false) {
    if (explorer().current != 0) explorer().steps.push_back({explorer().current, what, address, value, stale});
}

void run_fiber() {
    Explorer& all = explorer();
    Fiber& fiber = all.fibers[all.current];
    fiber.body();
    fiber.ended = true;
    unsigned left = 0;
    for (unsigned thread = 1; thread < all.count; ++thread) left += all.fibers[thread].ended ? 0 : 1;
    if (left == 0) switch_to(0);
    schedule();
    std::abort();  // it was given the turn again
}

std::string name_of(const void* address) {
    for (const Name& each : explorer().names) {
        const auto at = static_cast<const std::byte*>(address) - static_cast<const std::byte*>(each.address);
        if (at >= 0 && static_cast<size_t>(at) < each.size)
            return at == 0 ? std::string(each.name) : fmt::format("{}+{}", each.name, at);
    }
    return fmt::format("{}", address);
}

Run present_run() {
    const Explorer& all = explorer();
    Run run{.preemptions = all.preemptions_max, .stale_loads = all.stale_loads_max, .choices = {}};
    for (size_t i = 0; i < all.depth; ++i) run.choices.push_back(all.path[i].chosen);
    while (!run.choices.empty() && run.choices.back() == 0) run.choices.pop_back();
    return run;
}

}  // namespace

std::string text_of(const Run& run) {
    return fmt::format("{}.{}.{}", run.preemptions, run.stale_loads, fmt::join(run.choices, "."));
}

bool parse(const std::string& text, Run& run) {
    std::vector<unsigned> numbers;
    for (const char* at = text.data(); at < text.data() + text.size(); ++at) {
        unsigned number = 0;
        const auto [end, error] = std::from_chars(at, text.data() + text.size(), number);
        if (error != std::errc() || (end != text.data() + text.size() && *end != '.')) return false;
        numbers.push_back(number);
        at = end;
    }
    if (numbers.size() < 2) return false;
    run = {.preemptions = numbers[0], .stale_loads = numbers[1], .choices = {numbers.begin() + 2, numbers.end()}};
    return true;
}

uint64_t explore(const Scenario& scenario, unsigned preemptions, OnFailure on_failure) {
    Explorer& all = explorer();
    all.scenario = &scenario;
    all.on_failure = on_failure;
    all.preemptions_max = preemptions;
    all.stale_loads_max = std::min(preemptions, scenario.stale_loads);
    all.path.clear();
    uint64_t runs = 0;
    do {
        all.begin_run();
        scenario.run();
        ++runs;
    } while (all.next_path());
    return runs;
}

uint64_t explore(const Scenario& scenario, OnFailure on_failure) {
    uint64_t runs = 0;
    for (unsigned bound = 0; bound <= scenario.preemptions; ++bound) runs += explore(scenario, bound, on_failure);
    return runs;
}

void replay(const Scenario& scenario, const Run& run, OnFailure on_failure) {
    Explorer& all = explorer();
    all.scenario = &scenario;
    all.on_failure = on_failure;
    all.preemptions_max = run.preemptions;
    all.stale_loads_max = run.stale_loads;
    all.path.clear();
    for (const unsigned choice : run.choices) all.path.push_back({.chosen = choice, .count = 0});
    all.begin_run();
    scenario.run();
}

std::string trace() {
    std::string text;
    for (const Step& step : explorer().steps)
        text += fmt::format("{:{}}thread {}: {}{}{}\n", "", step.thread * 4, step.thread, step.what,
                            step.address ? fmt::format(" {}: {:#x}", name_of(step.address), step.value) : "",
                            step.stale ? ", which is not the newest" : "");
    return text;
}

void run(std::vector<std::function<void()>> bodies) {
    Explorer& all = explorer();
    all.count = static_cast<unsigned>(bodies.size()) + 1;
    TARN_ASSERT(all.count <= threads_max);
    for (unsigned thread = 1; thread < all.count; ++thread) {
        Fiber& fiber = all.fibers[thread];
        fiber.body = std::move(bodies[thread - 1]);
        fiber.may_go_on = nullptr;
        fiber.ended = fiber.has_read = fiber.has_read_stale = false;
        ::getcontext(&fiber.context);
        fiber.context.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = stack_size};
        fiber.context.uc_link = nullptr;
        ::makecontext(&fiber.context, run_fiber, 0);
        all.memory.start_thread(thread);
    }
    schedule();
    for (unsigned thread = 1; thread < all.count; ++thread) all.memory.join_thread(thread);
    for (const auto& [holds, what] : all.invariants)
        if (!holds()) fail(what);
}

unsigned current_thread() {
    return explorer().current;
}

void name_memory(const void* address, size_t size, const char* name) {
    explorer().names.push_back({address, size, name});
}

void fail(const std::string& what) {
    const Run run = present_run();
    explorer().on_failure({*explorer().scenario, what, run});
    std::abort();
}

void require_always(std::function<bool()> holds, const char* what) {
    explorer().invariants.emplace_back(std::move(holds), what);
}

uint64_t load(const void* at, uint64_t now, std::memory_order order) {
    before_step();
    Explorer& all = explorer();
    Memory::Location& location = all.memory.location(at, now);
    const size_t newest = location.stores.size() - 1;
    size_t back = 0;
    if (all.current != 0 && all.stale_loads < all.stale_loads_max)
        back = all.choose(static_cast<unsigned>(newest - all.memory.oldest_readable(all.current, location, order)) + 1);
    all.fibers[all.current].has_read = true;
    if (back != 0) {
        ++all.stale_loads;
        all.fibers[all.current].has_read_stale = true;
    }
    const uint64_t value = all.memory.read(all.current, location, newest - back, order);
    note("reads", at, value, back != 0);
    return value;
}

void store(const void* at, uint64_t now, uint64_t value, std::memory_order order) {
    before_step();
    Explorer& all = explorer();
    all.memory.write(all.current, all.memory.location(at, now), value, order, false);
    note("writes", at, value);
}

uint64_t begin_update(const void* at, uint64_t now, std::memory_order order) {
    before_step();
    Explorer& all = explorer();
    Memory::Location& location = all.memory.location(at, now);
    const uint64_t value = all.memory.read(all.current, location, location.stores.size() - 1, order);
    all.fibers[all.current].has_read = true;
    note("updates", at, value);
    return value;
}

void commit_update(const void* at, uint64_t value, std::memory_order order) {
    Explorer& all = explorer();
    all.memory.write(all.current, all.memory.location(at, value), value, order, true);
    note("     to", at, value);
}

void forget(const void* at) {
    explorer().memory.forget(at);
}

void fence(std::memory_order order) {
    before_step();
    explorer().memory.fence(explorer().current, order);
}

void pause() {
    Explorer& all = explorer();
    if (all.current == 0) fail("the scenario itself would wait");
    Fiber& fiber = all.fibers[all.current];
    // What is stored is seen in the end: who has read something old may look again at once.
    if (std::exchange(fiber.has_read, false) && !std::exchange(fiber.has_read_stale, false)) {
        const uint64_t seen = all.memory.change_count();
        wait_until("has looked again", [&all, seen] { return all.memory.change_count() != seen; });
    }
    all.memory.catch_up(all.current);
}

void wait_until(const char* what, const std::function<bool()>& may_go_on) {
    Explorer& all = explorer();
    Fiber& fiber = all.fibers[all.current];
    fiber.may_go_on = may_go_on;
    before_step();
    fiber.may_go_on = nullptr;
    note(what);
}

Memory& memory() {
    return explorer().memory;
}

void Wakeup::wake() {
    before_step();
    memory().release(current_thread(), released_);
    woken_ = true;
    note("wakes");
}

void Wakeup::sleep() {
    wait_until("has slept", [this] { return woken_; });
    woken_ = false;
    memory().acquire(current_thread(), released_);
}

}  // namespace tarn::threads

namespace tarn {

// A failed assertion of the code under test is a failure of the run.
void assertion_failed(const char* expression, const char* file, int line) noexcept {
    threads::fail(fmt::format("{}:{}: {}", file, line, expression));
}

}  // namespace tarn
