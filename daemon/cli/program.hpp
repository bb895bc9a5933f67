// Runs a program of the system to its end, for at most so long, and keeps what it says. For verbs that need one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tarn {

struct ProgramEnd {
    int error = 0;           // errno: it could not be started; ENOENT: it is not installed
    bool timed_out = false;  // it was killed
    int exit_status = 0;     // of one that ended by itself; 128 and the signal, as shells say it, if a signal ended it
    std::string said;        // on either stream

    bool succeeded() const { return error == 0 && !timed_out && exit_status == 0; }
    std::string last_line() const;
};

// words: the program, found as a shell finds it, and its arguments. It reads nothing.
ProgramEnd run_program(std::vector<std::string> words, std::optional<std::chrono::milliseconds> limit = std::nullopt);

}  // namespace tarn
