#include "daemon/doctor/doctor.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "utils/file_text.hpp"

namespace tarn {

namespace {

namespace fs = std::filesystem;

// As many as NBD connections, links and files of the daemon itself may take.
constexpr uint64_t open_files_wanted = 65536;
constexpr uint64_t nice_wanted = 20;
constexpr unsigned halt_poll_ns = 200'000;

std::string read(const Machine& machine, const char* path) {
    std::string text = text_of(machine.root + path);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

bool exists(const Machine& machine, const std::string& path) {
    std::error_code error;
    return fs::exists(machine.root + path, error);
}

// Whether modprobe would find it.
bool has_module(const Machine& machine, const std::string& name) {
    const std::string directory = machine.root + "/lib/modules/" + machine.kernel;
    const std::string file = "/" + name + ".ko";
    return text_of(directory + "/modules.dep").find(file) != std::string::npos ||
           text_of(directory + "/modules.builtin").find(file) != std::string::npos;
}

Finding good(const char* about, std::string seen) {
    return {.about = about, .verdict = Finding::Verdict::good, .seen = std::move(seen), .mend = {}, .effect = {}};
}

Finding rings(const Machine& machine) {
    constexpr const char* about = "io_uring";
    const std::string disabled = read(machine, "/proc/sys/kernel/io_uring_disabled");  // not there before Linux 6.6
    if (disabled.empty() || disabled == "0") return good(about, "it may be used");
    if (disabled == "1" && machine.user == 0) return good(about, "root may use it");
    return {.about = about,
            .verdict = Finding::Verdict::missing,
            .seen = "kernel.io_uring_disabled = " + disabled,
            .mend = "sysctl kernel.io_uring_disabled=0",
            .effect = "tarnd starts: all its input and output goes this way"};
}

Finding block_devices(const Machine& machine) {
    constexpr const char* about = "block devices";
    if (exists(machine, "/sys/module/nbd")) return good(about, "the nbd driver is loaded");
    if (has_module(machine, "nbd"))
        return {.about = about,
                .verdict = Finding::Verdict::better,
                .seen = "the nbd driver is not loaded",
                .mend = "modprobe nbd; echo nbd > /etc/modules-load.d/nbd.conf",
                .effect = "tarn attach makes volumes block devices"};
    return {.about = about,
            .verdict = Finding::Verdict::missing,
            .seen = fmt::format("this kernel ({}) has no nbd driver", machine.kernel),
            .mend = "a kernel with CONFIG_BLK_DEV_NBD, as linux-image-amd64 of Debian",
            .effect = "tarn attach makes volumes block devices; NBD clients and mounts need none"};
}

Finding device_links(const Machine& machine) {
    constexpr const char* about = "links of block devices";
    for (const char* const path :
         {"/etc/udev/rules.d/60-tarn.rules", "/usr/lib/udev/rules.d/60-tarn.rules", "/lib/udev/rules.d/60-tarn.rules"})
        if (exists(machine, path)) return good(about, path);
    return {
        .about = about,
        .verdict = Finding::Verdict::better,
        .seen = "tarn's udev rules are not installed",
        .mend = "install the package, or copy packaging/60-tarn.rules to /etc/udev/rules.d; udevadm control --reload",
        .effect = "a device has the link /dev/tarn/by-name/VOLUME, and the settings that suit it"};
}

Finding mounts(const Machine& machine) {
    constexpr const char* about = "mounts";
    if (!exists(machine, "/dev/fuse"))
        return {.about = about,
                .verdict = has_module(machine, "fuse") ? Finding::Verdict::better : Finding::Verdict::missing,
                .seen = "/dev/fuse is not there",
                .mend = "modprobe fuse",
                .effect = "tarn mount shows volumes as files"};
    if (machine.user != 0 && !exists(machine, "/usr/bin/fusermount3") && !exists(machine, "/bin/fusermount3"))
        return {.about = about,
                .verdict = Finding::Verdict::missing,
                .seen = "who is not root needs fusermount3",
                .mend = "apt install fuse3",
                .effect = "tarn mount shows volumes as files"};
    return good(about, "/dev/fuse is there");
}

Finding mounts_over_rings(const Machine& machine) {
    constexpr const char* about = "mounts over io_uring";
    const std::string enabled = read(machine, "/sys/module/fuse/parameters/enable_uring");
    if (enabled == "Y") return good(about, "the kernel's switch is on");
    return {
        .about = about,
        .verdict = Finding::Verdict::better,
        .seen = enabled.empty() ? "this kernel cannot, or its fuse driver is not loaded" : "the kernel's switch is off",
        .mend = enabled.empty() ? "Linux 6.14 or newer" : "echo Y > /sys/module/fuse/parameters/enable_uring",
        .effect = "tarn mount --io-uring answers who waits for each answer in a fraction of the time"};
}

Finding large_pages(const Machine& machine) {
    constexpr const char* about = "large pages";
    const std::string shared = read(machine, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    const bool is_off =
        shared.empty() || shared.find("[never]") != std::string::npos || shared.find("[deny]") != std::string::npos;
    if (!is_off) return good(about, "the kernel gives them to memory that is shared");
    return {.about = about,
            .verdict = Finding::Verdict::better,
            .seen = shared.empty() ? "this kernel has none" : "the kernel gives none to memory that is shared",
            .mend = shared.empty() ? "a kernel with CONFIG_TRANSPARENT_HUGEPAGE"
                                   : "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
            .effect = "fewer misses of the address translation in a large memory"};
}

// Nothing where it is no matter.
std::optional<Finding> halting(const Machine& machine) {
    constexpr const char* about = "idle CPUs";
    if (text_of(machine.root + "/proc/cpuinfo").find(" hypervisor") == std::string::npos) return std::nullopt;
    const std::string poll_ns = read(machine, "/sys/module/haltpoll/parameters/guest_halt_poll_ns");
    if (poll_ns.empty()) return std::nullopt;
    if (poll_ns != "0") return good(about, fmt::format("they poll for {} ns before they halt", poll_ns));
    return Finding{.about = about,
                   .verdict = Finding::Verdict::better,
                   .seen = "they halt at once, and this is a virtual machine",
                   .mend = fmt::format("echo {} > /sys/module/haltpoll/parameters/guest_halt_poll_ns", halt_poll_ns),
                   .effect = "wake-ups across CPUs are some times cheaper; idle CPUs take more of the host's time"};
}

std::optional<Finding> store_polling(const Machine& machine) {
    constexpr const char* about = "NVMe";
    const std::string queues = read(machine, "/sys/module/nvme/parameters/poll_queues");
    if (queues.empty()) return std::nullopt;
    if (queues != "0") return good(about, fmt::format("{} of its queues are for polling", queues));
    return Finding{.about = about,
                   .verdict = Finding::Verdict::better,
                   .seen = "it has no queues for polling",
                   .mend = "echo options nvme poll_queues=2 > /etc/modprobe.d/nvme.conf, and boot anew",
                   .effect = "reads of the store need no interrupt; for hosts with CPUs to spare"};
}

Finding open_files(const Machine& machine) {
    constexpr const char* about = "open files";
    std::string seen = fmt::format("a process that is started here may have {}", machine.open_files_max);
    if (machine.open_files_max >= open_files_wanted) return good(about, std::move(seen));
    return {.about = about,
            .verdict = Finding::Verdict::better,
            .seen = std::move(seen),
            .mend = fmt::format("ulimit -Hn {}, or LimitNOFILE= of the unit", open_files_wanted),
            .effect = "as many connections as clients may make"};
}

std::optional<Finding> courtesy(const Machine& machine) {
    constexpr const char* about = "scheduling";
    if (machine.user == 0) return std::nullopt;
    if (machine.nice_max >= nice_wanted) return good(about, "RLIMIT_NICE suffices");
    return Finding{.about = about,
                   .verdict = Finding::Verdict::better,
                   .seen = fmt::format("RLIMIT_NICE is {} here", machine.nice_max),
                   .mend = "ulimit -e 20 as root, or LimitNICE=+0 of the unit",
                   .effect = "threads of tarnd let clients on their CPU go first"};
}

Finding clock_of(const Machine& machine) {
    constexpr const char* about = "clock";
    if (machine.has_clock_set) return good(about, "it is kept right");
    return {.about = about,
            .verdict = Finding::Verdict::better,
            .seen = "nobody keeps it right",
            .mend = "apt install systemd-timesyncd; timedatectl set-ntp true",
            .effect = "times of files agree between hosts; nothing else of tarn needs that"};
}

}  // namespace

const char* name_of(Finding::Verdict verdict) {
    switch (verdict) {
        case Finding::Verdict::good: return "good";
        case Finding::Verdict::better: return "better";
        case Finding::Verdict::missing: break;
    }
    return "missing";
}

Machine this_machine(bool asks_clock) {
    Machine machine;
    if (utsname names{}; ::uname(&names) == 0) machine.kernel = names.release;
    machine.user = ::geteuid();
    if (rlimit limit{}; ::getrlimit(RLIMIT_NOFILE, &limit) == 0) machine.open_files_max = limit.rlim_max;
    if (rlimit limit{}; ::getrlimit(RLIMIT_NICE, &limit) == 0) machine.nice_max = limit.rlim_max;
    timex clock{};
    if (asks_clock) machine.has_clock_set = ::adjtimex(&clock) != TIME_ERROR;
    return machine;
}

std::vector<Finding> examine(const Machine& machine) {
    std::vector<Finding> findings{rings(machine),  block_devices(machine),     device_links(machine),
                                  mounts(machine), mounts_over_rings(machine), large_pages(machine)};
    for (std::optional<Finding>& each : std::array{halting(machine), store_polling(machine), courtesy(machine)})
        if (each) findings.push_back(*std::move(each));
    findings.push_back(open_files(machine));
    findings.push_back(clock_of(machine));
    return findings;
}

}  // namespace tarn
