#include "daemon/cli/verbs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "daemon/attachments/block_device.hpp"
#include "daemon/cli/progress.hpp"
#include "daemon/configuration/text.hpp"
#include "daemon/control/http_request.hpp"
#include "daemon/doctor/doctor.hpp"
#include "frontends/volumes/volumes.hpp"
#include "tiers/page.hpp"
#include "utils/file_text.hpp"
#include "utils/printable.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

// Once it has not answered something else.
constexpr std::chrono::seconds status_patience{3};

std::string volume_path(const std::string& name) {
    return "/v1/volumes/" + percent_encode(name);
}

std::vector<Failure> check_names(const std::vector<std::string>& names) {
    std::vector<Failure> failures;
    for (const std::string& name : names) {
        if (valid_volume_name(name)) continue;
        failures.push_back({.exit = Exit::usage,
                            .cause = is_utf8(name) ? "not a volume's name: 1 to 255 bytes without control characters, "
                                                     "and no part between slashes that is empty, \".\" or \"..\""
                                                   : "not a volume's name: not valid UTF-8",
                            .object = name});
    }
    return failures;
}

// Nothing is asked before all of them can be names.
Answer ask_each(const std::vector<std::string>& names, const std::function<Outcome<Json>(const std::string&)>& ask) {
    Answer answer;
    answer.failures = check_names(names);
    if (!answer.failures.empty()) return answer;
    Json& volumes = answer.json["volumes"] = Json::array();
    for (const std::string& name : names) {
        auto asked = ask(name);
        if (asked) {
            volumes.push_back(*std::move(asked));
        } else {
            asked.error().object = name;
            answer.failures.push_back(std::move(asked).error());
        }
    }
    return answer;
}

// Sizes are whole pages; who asked for something else is told.
Outcome<uint64_t> rounded_size(const std::string& text) {
    const Result<uint64_t> size = parse_size(text);
    if (!size) return refuse(Exit::usage, fmt::format("{}: {}", text, size.error().where), "10GiB");
    if (*size > volume_size_max) return refuse(Exit::usage, "a volume has at most 2 PiB");
    return round_up(*size, page_size);
}

// What this host's memory has that is not durable yet, for who waits that it is.
std::string not_durable_yet(const Client& client) {
    const auto status = client.ask("GET", "/v1/status");
    if (!status) return "";
    return fmt::format(", {} not yet durable on this host",
                       format_size_roughly(status->value("dirty_bytes", uint64_t{0})));
}

// Whom the daemon waits for, most likely: the hosts that it says do not answer it. Empty: there are none.
std::string silent_hosts(const Client& client) {
    const auto status = client.ask("GET", "/v1/status");
    if (!status) return "";
    std::vector<std::string> names;
    for (const Json& peer : status->value("peers", Json::array()))
        if (!peer.value("forgotten", false) && !(peer.value("connected", true) && peer.value("answers", true)))
            names.push_back(printable(peer.value("name", "")));
    return fmt::format("{}", fmt::join(names, ", "));
}

// Follows a pass to its end.
Outcome<Json> follow_verification(const Client& client, const Json& body, std::ostream* progress) {
    constexpr auto pause = std::chrono::milliseconds(200);
    auto status = client.ask("POST", "/v1/verify", body);
    while (status && status->value("running", false)) {
        if (progress)
            *progress << fmt::format("\r\033[Kverifying {}: {} of {} pages, {} bad",
                                     printable(body.value("volume", std::string("this host"))),
                                     status->value("pages_checked", uint64_t{0}),
                                     status->value("pages_total", uint64_t{0}),
                                     status->value("bad_page_count", uint64_t{0}))
                      << std::flush;
        std::this_thread::sleep_for(pause);
        status = client.ask("GET", "/v1/verify");
    }
    if (progress) *progress << "\r\033[K" << std::flush;
    return status;
}

// The passes of several volumes as one.
void add_verification(Json& sum, const Json& pass) {
    if (sum.empty()) {
        sum = pass;
        return;
    }
    sum["volume_id"] = Json();
    for (const char* const key : {"pages_total", "pages_checked", "bad_page_count"})
        sum[key] = sum.value(key, uint64_t{0}) + pass.value(key, uint64_t{0});
    for (const char* const key : {"running", "cancelled"}) sum[key] = sum.value(key, false) || pass.value(key, false);
    for (const Json& page : pass.value("bad_pages", Json::array())) sum["bad_pages"].push_back(page);
    sum["passes"] = pass.value("passes", uint64_t{0});
}

std::string absolute_path(const std::string& path) {
    std::string normal = std::filesystem::absolute(path).lexically_normal().string();
    if (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
    return normal;
}

// Whether this process sees a mount of tarn there.
bool is_seen_here(const std::string& path) {
    std::error_code ignored;
    const std::string resolved = std::filesystem::weakly_canonical(path, ignored).string();
    return std::ranges::any_of(mounts_seen(), [&](const MountSeen& mount) {
        return mount.type == "fuse.tarn" && (mount.point == path || mount.point == resolved);
    });
}

// A daemon in a container, say, mounts what only it sees.
bool is_elsewhere(const Json& mounts, const std::string& path) {
    struct stat own{};
    const uint64_t theirs = mounts.value("namespace", uint64_t{0});
    if (theirs == 0 || ::stat("/proc/self/ns/mnt", &own) != 0 || own.st_ino == theirs) return false;
    return !is_seen_here(path);
}

// The kernel offers io_uring to mounts that are made while this says so.
constexpr const char* io_uring_switch = "/sys/module/fuse/parameters/enable_uring";

bool set_io_uring_switch(char to) {
    const UniqueFd file(::open(io_uring_switch, O_WRONLY | O_CLOEXEC));
    return file && ::write(file.get(), &to, 1) == 1;
}

// Returns whether it was off.
Outcome<bool> switch_io_uring_on() {
    const std::string before = text_of(io_uring_switch);
    if (before.empty())
        return refuse(Exit::failed, "this kernel has no FUSE over io_uring", "Linux 6.14 or newer, and modprobe fuse");
    if (before.starts_with('Y')) return false;
    if (set_io_uring_switch('Y')) return true;
    return refuse(errno == EACCES || errno == EROFS ? Exit::permission : Exit::failed,
                  fmt::format("FUSE over io_uring cannot be switched on: {}", std::strerror(errno)),
                  fmt::format("echo Y > {} as root", io_uring_switch));
}

// One shape, whether it succeeded or not.
Answer of_mounts(Answer answer) {
    answer.json.emplace("mounts", Json::array());
    return answer;
}

Outcome<Json> mount(const Client& client, const std::string& path, bool read_only) {
    auto mounted = client.ask("POST", "/v1/mounts", {{"path", path}, {"read_only", read_only}});
    if (!mounted) return mounted;
    if (is_elsewhere(*mounted, path)) {
        const auto undone = client.ask("DELETE", "/v1/mounts", {{"path", path}, {"force", true}});
        return refuse(Exit::failed,
                      fmt::format("tarnd is in another mount namespace, and what it mounts there is not seen here{}",
                                  undone ? "" : "; it is mounted there now"),
                      "nsenter --mount --target PID-OF-TARND tarn mount " + path);
    }
    return Json{{"mounts", Json::array({{{"path", path}, {"read_only", read_only}, {"seen_here", true}}})},
                {"namespace", mounted->value("namespace", uint64_t{0})}};
}

Answer mount_or_list(const Client& client, const Options& options) {
    if (options.path.empty()) {
        auto mounts = client.ask("GET", "/v1/mounts");
        if (!mounts) return mounts;
        for (Json& mount : mounts->at("mounts")) mount["seen_here"] = !is_elsewhere(*mounts, mount.value("path", ""));
        return mounts;
    }
    const Outcome<bool> switched_on = options.io_uring ? switch_io_uring_on() : false;
    if (!switched_on) return switched_on.error();
    auto mounted = mount(client, absolute_path(options.path), options.read_only);
    if (mounted)
        (*mounted)["io_uring_switched_on"] = *switched_on;
    else if (*switched_on)
        set_io_uring_switch('N');
    return mounted;
}

}  // namespace

std::string rounding_note(const std::string& size, const Json& volumes) {
    const Result<uint64_t> asked = parse_size(size);
    const uint64_t given = volumes.at("volumes").at(0).value("size_bytes", uint64_t{0});
    if (!asked || *asked == given) return "";
    return fmt::format(" (rounded up from {} bytes to whole pages of 4 KiB)", *asked);
}

Answer create_volume(const Client& client, const Options& options) {
    const auto size_bytes = rounded_size(options.size);
    if (!size_bytes) return size_bytes.error();
    Json body{{"size_bytes", *size_bytes}, {"mode", std::stoul(options.mode, nullptr, 8)}};
    if (options.fail_after != "wait") {
        const Result<uint64_t> fail_after_ms = parse_duration(options.fail_after);
        if (!fail_after_ms)
            return Failure{Exit::usage, fmt::format("{}: {}", options.fail_after, fail_after_ms.error().where), "30s"};
        body["fail_after_ms"] = *fail_after_ms;
    }
    if (options.shared || options.exclusive) body["shared"] = options.shared;
    return ask_each({options.name}, [&](const std::string& name) {
        body["name"] = name;
        return client.ask("POST", "/v1/volumes", body);
    });
}

Answer show_volumes(const Client& client, const Options& options) {
    return ask_each(options.names, [&](const std::string& name) { return client.ask("GET", volume_path(name)); });
}

Answer resize_volume(const Client& client, const Options& options) {
    const auto size_bytes = rounded_size(options.size);
    if (!size_bytes) return size_bytes.error();
    return ask_each({options.name}, [&](const std::string& name) {
        return client.ask("PATCH", volume_path(name), {{"size_bytes", *size_bytes}, {"shrink", options.force}});
    });
}

Answer examine_machine(const Client&, const Options&) {
    Answer answer;
    Json& findings = answer.json["findings"] = Json::array();
    for (const Finding& each : examine(this_machine(true)))
        findings.push_back({{"about", each.about},
                            {"verdict", name_of(each.verdict)},
                            {"seen", each.seen},
                            {"mend", each.mend},
                            {"effect", each.effect}});
    return answer;
}

Answer delete_volumes(const Client& client, const Options& options) {
    const BlockDevices devices;
    const auto of_kernel = devices.all_of_tarn();
    Answer answer = ask_each(options.names, [&](const std::string& name) {
        const Progress shown(options.progress, "deleting " + name, nullptr);
        return client.ask("DELETE", volume_path(name), {{"force", options.force}});
    });
    for (const auto& [device, volume] : of_kernel) {
        if (std::ranges::find(options.names, volume) == options.names.end()) continue;
        // What was a device of the volume, and is mounted, stays one until that ends.
        const std::string point = devices.is_device_of(device, volume) ? devices.mount_point_of(device) : "";
        if (!point.empty())
            answer.warnings.push_back(
                fmt::format("/dev/{} is still mounted on {}: umount that", device, printable(point)));
    }
    return answer;
}

Answer flush_volumes(const Client& client, const Options& options) {
    return ask_each(options.names, [&](const std::string& name) {
        const Progress shown(options.progress, "flushing " + name, [&client] { return not_durable_yet(client); });
        auto flushed = client.ask("POST", volume_path(name) + "/flush");
        if (!flushed && flushed.error().exit == Exit::timed_out) {
            const Client brief(options.control, std::min(options.timeout(), status_patience));
            if (const std::string hosts = silent_hosts(brief); !hosts.empty()) {
                flushed.error().cause += "; hosts that do not answer it: " + hosts;
                flushed.error().hint = "tarn status, or --timeout SECONDS";
            }
        }
        return flushed;
    });
}

// Of all, or of those that were named, in that order.
Answer export_volumes(const Client& client, const Options& options) {
    Answer answer;
    answer.failures = check_names(options.names);
    if (!answer.failures.empty()) return answer;
    auto exports = client.ask("GET", "/v1/exports");
    if (!exports) return exports;
    if (!exports->value("nbd", true))
        return Failure{Exit::failed, "tarnd serves no NBD: its configuration has neither nbd.unix nor nbd.tcp",
                       "man tarn.toml, then systemctl restart tarnd"};
    const Json all = exports->value("exports", Json::array());
    Json& chosen = answer.json["exports"] = options.names.empty() ? all : Json::array();
    for (const std::string& name : options.names) {
        const auto named =
            std::ranges::find_if(all, [&](const Json& each) { return each.value("volume", "") == name; });
        if (named != all.end())
            chosen.push_back(*named);
        else
            answer.failures.push_back({.exit = Exit::not_found, .cause = {}, .code = "not_found", .object = name});
    }
    return answer;
}

// One pass after the other: the daemon makes one at a time.
Answer verify_volumes(const Client& client, const Options& options) {
    if (options.stop) return client.ask("DELETE", "/v1/verify");
    if (options.names.empty() && !options.whole_host)
        return Failure{Exit::usage, "neither a volume nor --host", "tarn verify --host"};
    Json body = Json::object();
    if (!options.size.empty()) {
        const Result<uint64_t> rate = parse_size(options.size);
        if (!rate || *rate == 0)
            return Failure{Exit::usage, fmt::format("{}: not a rate", options.size), "--rate 100MiB"};
        body["rate_bytes"] = *rate;
    }
    if (options.whole_host) return follow_verification(client, body, options.progress);
    Json sum = Json::object();
    Answer answer = ask_each(options.names, [&](const std::string& name) {
        body["volume"] = name;
        auto pass = follow_verification(client, body, options.progress);
        if (pass) add_verification(sum, *pass);
        return pass;
    });
    answer.json = std::move(sum);
    return answer;
}

Answer mount_volumes(const Client& client, const Options& options) {
    return of_mounts(mount_or_list(client, options));
}

Answer unmount_volumes(const Client& client, const Options& options) {
    auto unmounted =
        client.ask("DELETE", "/v1/mounts", {{"path", absolute_path(options.path)}, {"force", options.force}});
    if (!unmounted) return of_mounts(unmounted);
    return Json{{"mounts", Json::array({*unmounted})}};
}

Answer forget_host(const Client& client, const Options& options) {
    if (!options.it_is_dead)
        return Failure{Exit::usage,
                       "only if it is dead for certain: one that is only cut off still serves what it has, and clients "
                       "would see two truths",
                       "tarn host forget " + printable(options.host) + " --it-is-dead"};
    return client.ask("POST", "/v1/hosts/" + percent_encode(options.host) + "/forget", {{"it_is_dead", true}});
}

}  // namespace tarn
