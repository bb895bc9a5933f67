// tarn_sim_performance: how fast the protocol is under a cost model of other hardware, beside other systems. Prints
// Markdown; the same seed prints the same on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/sim/performance/experiments.hpp"

namespace {

using tarn::sim_performance::Experiment;
using tarn::sim_performance::experiments;

constexpr std::string_view usage =
    R"(./dev sim --performance [TABLE...] [OPTION...]: the protocol's classes under a virtual clock

  --seed S          of the clients' choices (1)
  --document FILE   puts the tables between their marks in FILE
  --check FILE      fails unless the tables are the same twice, and as they stand in FILE

Tables, all of them unless some are named:
)";

struct Options {
    std::vector<const Experiment*> tables;
    uint64_t seed = 1;
    std::string document;
    std::string check;
};

[[noreturn]] void stop(const std::string& why) {
    fmt::print(stderr, "tarn_sim_performance: {}\n", why);
    std::exit(2);
}

void help() {
    fmt::print("{}", usage);
    for (const Experiment& each : experiments()) fmt::print("  {:<16}  {}\n", each.name, each.title);
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto value = [&]() -> std::string_view {
            if (++i == argc) stop(fmt::format("{} needs a value", argument));
            return argv[i];
        };
        if (argument == "--help" || argument == "-h") {
            help();
            std::exit(0);
        }
        if (argument == "--seed") {
            const std::string_view text = value();
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.seed);
            if (error != std::errc{} || end != text.data() + text.size())
                stop(fmt::format("--seed {}: not a number", text));
        } else if (argument == "--document") {
            options.document = value();
        } else if (argument == "--check") {
            options.check = value();
        } else {
            const auto table = std::ranges::find(experiments(), argument, &Experiment::name);
            if (table == experiments().end()) stop(fmt::format("unknown table or option {}; try --help", argument));
            options.tables.push_back(&*table);
        }
    }
    if (options.tables.empty())
        for (const Experiment& each : experiments()) options.tables.push_back(&each);
    return options;
}

// Wraps lines at 120 characters, like the documents.
std::string wrapped(std::string_view text) {
    constexpr size_t line_length_max = 120;
    std::string lines;
    size_t length = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        // What continues a character in UTF-8 takes no room.
        const auto width = static_cast<size_t>(std::ranges::count_if(word, [](char c) { return (c & 0xc0) != 0x80; }));
        const bool fits = length + 1 + width <= line_length_max;
        if (length != 0) lines += fits ? ' ' : '\n';
        length = length != 0 && fits ? length + 1 + width : width;
        lines += word;
    }
    return lines;
}

std::string section_of(const Experiment& table, uint64_t seed) {
    return fmt::format("{}\n\n{}", wrapped(fmt::format("**{}.** {}", table.title, table.setting)), table.table(seed));
}

std::string begin_mark(const Experiment& table) {
    return fmt::format("<!-- ./dev sim --performance {} -->\n", table.name);
}
constexpr std::string_view end_mark = "<!-- end -->\n";

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) stop(fmt::format("{}: cannot be read", path));
    return {std::istreambuf_iterator<char>(file), {}};
}

// The place of a table in a document, without its marks.
std::pair<size_t, size_t> find_section(const std::string& document, const Experiment& table) {
    const std::string mark = begin_mark(table);
    const size_t found = document.find(mark);
    if (found == std::string::npos) stop(fmt::format("no mark {}", mark));
    const size_t begin = found + mark.size();
    const size_t end = document.find(end_mark, begin);
    if (end == std::string::npos) stop(fmt::format("no end of {}", mark));
    return {begin, end - begin};
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    std::string document = options.document.empty() ? std::string{} : read_file(options.document);
    const std::string checked = options.check.empty() ? std::string{} : read_file(options.check);
    unsigned different = 0;
    for (const Experiment* table : options.tables) {
        const std::string section = section_of(*table, options.seed);
        if (!checked.empty()) {
            const auto [begin, size] = find_section(checked, *table);
            const bool same_twice = section == section_of(*table, options.seed);
            const bool same_there = section == checked.substr(begin, size);
            fmt::print("{}: {}\n", table->name,
                       !same_twice   ? "not the same twice"
                       : !same_there ? "not what stands in " + options.check
                                     : "as it should be");
            different += same_twice && same_there ? 0 : 1;
            continue;
        }
        fmt::print("{}\n", section);
        std::fflush(stdout);
        if (document.empty()) continue;
        const auto [begin, size] = find_section(document, *table);
        document.replace(begin, size, section);
    }
    if (!document.empty()) std::ofstream(options.document) << document;
    return different == 0 ? 0 : 1;
}
