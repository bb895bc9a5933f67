#include "tests/sim/protocol/known_runs.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tarn::sim {

bool parse_set(const std::string& text, Case& run) {
    std::stringstream list(text);
    for (std::string item; std::getline(list, item, ',');) {
        const size_t equals = item.find('=');
        if (equals == std::string::npos) return false;
        const std::string name = item.substr(0, equals);
        const auto value = static_cast<unsigned>(std::strtoul(item.c_str() + equals + 1, nullptr, 10));
        if (Scenario scenario; !scenario.set(name, value)) return false;
        run.set.emplace_back(name, value);
    }
    return true;
}

bool read_known_runs(const std::string& file_name, std::vector<Case>& cases) {
    std::ifstream file(file_name);
    if (!file) return false;
    for (std::string line; std::getline(file, line);) {
        std::stringstream words(line.substr(0, line.find('#')));
        Case run;
        for (std::string word; words >> word;) {
            std::string value;
            if (!(words >> value)) return false;
            if (word == "--seed") run.seed = std::stoull(value);
            if (word == "--faults") run.with_faults = value != "none";
            if (word == "--set" && !parse_set(value, run)) return false;
        }
        if (run.seed != 0) cases.push_back(run);
    }
    return true;
}

}  // namespace tarn::sim
