#include "utils/cpu_set.hpp"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>

namespace tarn {

namespace {

// The kernel refuses a mask with fewer bits than it has CPUs, and does not say how many those are.
constexpr unsigned mask_bits_min = 1024;
constexpr unsigned mask_bits_max = 1024 * 64;

struct Mask {
    explicit Mask(unsigned bits) : set(CPU_ALLOC(bits)), size_bytes(CPU_ALLOC_SIZE(bits)) {
        CPU_ZERO_S(size_bytes, set.get());
    }
    struct Free {
        void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
    };
    std::unique_ptr<cpu_set_t, Free> set;
    size_t size_bytes;
};

}  // namespace

CpuSet::CpuSet(std::vector<unsigned> cpus) : cpus_(std::move(cpus)) {
    std::ranges::sort(cpus_);
    cpus_.erase(std::ranges::unique(cpus_).begin(), cpus_.end());
}

Result<CpuSet> CpuSet::of_thread(pid_t thread) {
    for (unsigned bits = mask_bits_min; bits <= mask_bits_max; bits *= 2) {
        const Mask mask(bits);
        if (::sched_getaffinity(thread, mask.size_bytes, mask.set.get()) != 0) {
            if (errno == EINVAL) continue;
            break;
        }
        std::vector<unsigned> cpus;
        for (unsigned cpu = 0; cpu < bits; ++cpu)
            if (CPU_ISSET_S(cpu, mask.size_bytes, mask.set.get())) cpus.push_back(cpu);
        return CpuSet(std::move(cpus));
    }
    return fail(Errc::io, errno, "cpu_set.of_thread");
}

Result<> CpuSet::bind(pid_t thread) const {
    const Mask mask(std::max(mask_bits_min, empty() ? 0 : cpus_.back() + 1));
    for (const unsigned cpu : cpus_) CPU_SET_S(cpu, mask.size_bytes, mask.set.get());
    if (::sched_setaffinity(thread, mask.size_bytes, mask.set.get()) == 0) return {};
    return fail(errno == EINVAL ? Errc::invalid : Errc::io, errno, "cpu_set.bind");
}

bool CpuSet::contains(unsigned cpu) const {
    return std::ranges::binary_search(cpus_, cpu);
}

std::string CpuSet::text() const {
    std::string text;
    for (size_t i = 0; i < cpus_.size();) {
        size_t last = i;
        while (last + 1 < cpus_.size() && cpus_[last + 1] == cpus_[last] + 1) ++last;
        if (!text.empty()) text += ',';
        text += std::to_string(cpus_[i]);
        if (last > i) text += '-' + std::to_string(cpus_[last]);
        i = last + 1;
    }
    return text;
}

CpuSet operator&(const CpuSet& left, const CpuSet& right) {
    std::vector<unsigned> both;
    std::ranges::set_intersection(left.cpus_, right.cpus_, std::back_inserter(both));
    return CpuSet(std::move(both));
}

CpuSet operator-(const CpuSet& left, const CpuSet& right) {
    std::vector<unsigned> rest;
    std::ranges::set_difference(left.cpus_, right.cpus_, std::back_inserter(rest));
    return CpuSet(std::move(rest));
}

std::optional<unsigned> incoming_cpu_of(int socket) {
    int cpu = -1;
    socklen_t size = sizeof cpu;
    if (::getsockopt(socket, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &size) != 0 || cpu < 0) return std::nullopt;
    return static_cast<unsigned>(cpu);
}

}  // namespace tarn
