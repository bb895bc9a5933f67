// PassedDescriptors: what the service manager gave this process at its start, each under a name: listening sockets of
// socket units, and what an earlier process left in the descriptor store. The one place that reads them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class PassedDescriptors {
  public:
    struct Passed {
        std::string name;
        UniqueFd fd;
    };

    PassedDescriptors() = default;  // none
    // For tests: as if they had been passed, in this order.
    explicit PassedDescriptors(std::vector<Passed> passed) : passed_(std::move(passed)) {}
    // Once per process: its environment does not name them any more. Errors: io.
    static Result<PassedDescriptors> receive();

    // All of this name, which then belong to the caller. What nobody takes is closed with this.
    std::vector<UniqueFd> take(std::string_view name);

  private:
    std::vector<Passed> passed_;
};

}  // namespace tarn
