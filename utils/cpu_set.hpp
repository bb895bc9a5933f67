// CpuSet: some of the machine's CPUs, by the kernel's numbers.
//
// The kernel's word for the CPUs of a thread is its affinity: the scheduler runs it on no other. Used by whoever joins
// threads to CPUs, and by front ends that look for the shard of a CPU.
#pragma once

#include <sys/types.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "utils/result.hpp"

namespace tarn {

class CpuSet {
  public:
    CpuSet() = default;
    CpuSet(std::initializer_list<unsigned> cpus) : CpuSet(std::vector<unsigned>(cpus)) {}
    explicit CpuSet(std::vector<unsigned> cpus);

    // Those that a thread may run on: its affinity and its cpuset allow them, and they are online. thread: 0 is the
    // calling one. Errors: io.
    static Result<CpuSet> of_thread(pid_t thread = 0);
    // Makes them the affinity of a thread. Errors: invalid (it may use none of them), io.
    Result<> bind(pid_t thread = 0) const;

    bool empty() const { return cpus_.empty(); }
    size_t size() const { return cpus_.size(); }
    bool contains(unsigned cpu) const;
    // In order.
    std::span<const unsigned> list() const { return cpus_; }

    // As the kernel writes them: "0-3,8".
    std::string text() const;

    friend CpuSet operator&(const CpuSet& left, const CpuSet& right);
    friend CpuSet operator-(const CpuSet& left, const CpuSet& right);
    bool operator==(const CpuSet&) const = default;

  private:
    std::vector<unsigned> cpus_;  // in order, each once
};

// The CPU on which the kernel took in the last packet of a connected socket, as far as it says.
std::optional<unsigned> incoming_cpu_of(int socket);

}  // namespace tarn
