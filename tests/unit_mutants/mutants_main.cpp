// tarn_unit_mutants: do the unit tests notice? Breaks one rule of the cache, the fabric or the catalog at a time and
// runs the tests of its file (CHECKS in mutants.py) until the first that fails; without a mutant, all of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/support/mutant.hpp"
#include "tests/sim/support/mutant_runner.hpp"

namespace tarn {
namespace {

constexpr unsigned test_seconds_max = 20;  // of CPU; all together take as much

// Called with gtest's own lock held: asks it nothing.
class NoticeFirst final : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& test) override {
        sim::begin_check(fmt::format("{}.{}", test.test_suite_name(), test.name()), test_seconds_max);
    }
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        const char* const slash = std::strrchr(result.file_name() ? result.file_name() : "", '/');
        sim::notice(fmt::format("{}:{}", slash ? slash + 1 : "", result.line_number()));
    }
};

void run_tests(uint64_t) {
    if (sim::mutant != 0) GTEST_FLAG_SET(filter, sim::mutants[sim::mutant - 1].checks);
    testing::UnitTest::GetInstance()->listeners().Append(new NoticeFirst);
    if (RUN_ALL_TESTS() != 0) sim::notice("it failed");
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    return tarn::sim::MutantRunner{.check = tarn::run_tests}.run(argc, argv);
}
