// ScratchDirectory: a directory for the files of one test, gone with it.
//
// It lies in $TMPDIR, or in /var/tmp, which is on a disk: a store there is opened as a user's is. Who kills tests, as
// MutantRunner does, sets TMPDIR and removes what they leave.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace tarn {

class ScratchDirectory {
  public:
    ScratchDirectory() {
        const char* const parent = std::getenv("TMPDIR");
        std::string pattern = std::string(parent ? parent : "/var/tmp") + "/tarn-test-XXXXXX";
        if (!::mkdtemp(pattern.data())) std::abort();
        path_ = pattern;
    }
    ~ScratchDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::string operator/(std::string_view name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

}  // namespace tarn
