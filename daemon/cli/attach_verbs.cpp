// attach, detach and attached: the block devices of this host.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachtab/attach_table.hpp"
#include "daemon/cli/device_hints.hpp"
#include "daemon/cli/lone_detach.hpp"
#include "daemon/cli/udev.hpp"
#include "daemon/cli/verbs.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {

// How long a daemon has to start, and then to answer.
constexpr std::chrono::seconds detach_patience{3};
// Programs that udev starts open each device for a moment, as after each that has written to it.
constexpr std::chrono::seconds opener_patience{2};

// One shape, whether it succeeded or not.
Answer of_attachments(Outcome<Json> attachment) {
    Answer answer(attachment);
    answer.json = {{"attachments", attachment ? Json::array({*attachment}) : Json::array()}};
    return answer;
}

// The daemon does not know who makes links, nor whether its /dev is that of who asks.
void add_link(Json& attachment) {
    const std::string link = link_of(attachment.value("volume", ""));
    std::error_code problem;
    const bool is_there = std::filesystem::canonical(link, problem) == attachment.value("device", "");
    attachment["link"] = is_there ? link : "";
}

std::string option_text(const AttachOptions& options) {
    return fmt::format("{}block-size={}{}", options.read_only ? "read-only," : "", options.block_size_bytes,
                       options.connections != 0 ? fmt::format(",connections={}", options.connections) : "");
}

// What the volume's line in the table says.
Outcome<AttachOptions> options_of_line(const std::string& path, const std::string& volume) {
    std::ifstream file(path);
    if (!file)
        return refuse(errno == EACCES ? Exit::permission : Exit::not_found,
                      fmt::format("{}: {}", path, std::strerror(errno)), "man attachtab");
    std::ostringstream text;
    text << file.rdbuf();
    const AttachTable table = AttachTable::parse(text.view());
    // A line that contradicts another one is a mistake, too: neither is followed.
    const auto mistake = std::ranges::find(table.mistakes, volume, &AttachTable::Mistake::volume);
    if (mistake != table.mistakes.end())
        return refuse(Exit::usage, fmt::format("{}:{}: {}", path, mistake->number, mistake->reason), "man attachtab");
    const auto line = std::ranges::find(table.lines, volume, [](const auto& each) { return each.options.volume; });
    if (line == table.lines.end())
        return refuse(Exit::not_found, fmt::format("{} has no line for it", path), "man attachtab");
    return line->options;
}

AttachOptions options_of_words(const Options& options) {
    return {.volume = options.name,
            .read_only = options.read_only,
            .take_over = options.take_over,
            .block_size_bytes = options.block_size_bytes,
            .connections = options.connections};
}

Outcome<Json> attach(const Client& client, const AttachOptions& wanted) {
    Json wish{
        {"volume", wanted.volume}, {"read_only", wanted.read_only}, {"block_size_bytes", wanted.block_size_bytes}};
    if (wanted.take_over) wish["take_over"] = true;
    if (wanted.connections != 0) wish["connections"] = wanted.connections;
    return client.ask("POST", "/v1/attachments", wish);
}

// The device that the volume is on this host already.
std::optional<Json> attachment_of(const Client& client, const std::string& volume) {
    auto all = client.ask("GET", "/v1/attachments");
    if (!all) return std::nullopt;
    for (Json& each : all->at("attachments"))
        if (each.value("volume", "") == volume) return std::move(each);
    return std::nullopt;
}

// A device that is there as it is wanted is as good as a new one. Only the kernel knows its block size.
Outcome<Json> attach_unless_attached(const Client& client, const AttachOptions& wanted) {
    auto attached = attach(client, wanted);
    if (attached || attached.error().exit != Exit::busy) return attached;
    std::optional<Json> there = attachment_of(client, wanted.volume);
    if (!there) return attached;
    const std::string device = there->value("device", "");
    AttachOptions is = wanted;
    is.read_only = there->value("read_only", false);
    if (const auto block_size_bytes = BlockDevices().logical_block_size_of(device.substr(device.rfind('/') + 1)))
        is.block_size_bytes = *block_size_bytes;
    if (wanted.connections != 0) is.connections = there->value("connections", 0u);
    if (option_text(is) == option_text(wanted)) return *std::move(there);
    // As a mistake: a unit that tried again would never succeed.
    return refuse(Exit::usage,
                  fmt::format("it is attached already as {} with {}, and not with {}", device, option_text(is),
                              option_text(wanted)),
                  "tarn detach " + printable(wanted.volume));
}

// What is to be done about the device that is in the way of a new one.
void advise(Failure& failure, const Client& client, const std::string& volume) {
    if (attachment_of(client, volume))
        failure.hint = "tarn attached, which names its device";
    else if (std::string hint = hint_about_device_of(BlockDevices(), volume); !hint.empty())
        failure.hint = std::move(hint);
}

// The daemon knows it not.
bool is_unserved(const Client& client, const std::string& device) {
    const auto attached = client.ask("GET", "/v1/attachments");
    return attached && std::ranges::none_of(attached->value("attachments", Json::array()), [&](const Json& each) {
               return each.value("device", "") == "/dev/" + device;
           });
}

}  // namespace

Answer attach_volume(const Client& client, const Options& options) {
    const bool is_kept = !options.attach_table.empty();
    const Outcome<AttachOptions> wanted =
        is_kept ? options_of_line(options.attach_table, options.name) : options_of_words(options);
    if (!wanted) return of_attachments(std::unexpected(wanted.error()));
    auto attached = is_kept ? attach_unless_attached(client, *wanted) : attach(client, *wanted);
    if (!attached) {
        if (attached.error().exit == Exit::busy) advise(attached.error(), client, wanted->volume);
        return of_attachments(std::move(attached));
    }
    const std::optional<std::string> warning = wait_for_udev(attached->value("device", ""));
    add_link(*attached);
    const bool can_be_gone_on_with = attached->value("kept", true);
    Answer answer = of_attachments(std::move(attached));
    if (warning) answer.warnings.push_back(*warning);
    if (!can_be_gone_on_with)
        answer.warnings.emplace_back(
            "tarn-keeper does not have the device yet: should tarnd be killed now, its requests wait for tarn detach "
            "--force; tarn attached says when it has");
    return answer;
}

Answer detach_volume(const Client&, const Options& options) {
    NetlinkDriver driver;
    return detach_from(driver, BlockDevices(), options);
}

Answer detach_from(NbdDriver& driver, const BlockDevices& devices, const Options& options) {
    std::string name = options.name;
    if (name.starts_with('/')) {  // as attach prints it; no volume is called so
        std::optional<std::string> volume = devices.volume_at(name);
        if (!volume && options.if_attached) return Json{{"attachments", Json::array()}};
        if (!volume)
            return of_attachments(refuse(Exit::not_found, "no block device of a volume is there", "tarn attached"));
        name = *std::move(volume);
    }
    const std::optional<std::string> device = devices.device_of(name);
    const Client brief(options.control, std::min(options.timeout(), detach_patience));
    if (!options.force && device)
        if (std::optional<Failure> use = use_of(devices, *device, opener_patience)) {
            if (!devices.mount_point_of(*device).empty() && is_unserved(brief, *device))
                use->hint = fmt::format(
                    "tarn detach --force {}, if no other tarnd of this machine serves it, and then umount: its "
                    "requests wait, unless it was ended already",
                    *device);
            return of_attachments(std::unexpected(*std::move(use)));
        }
    auto done = brief.ask("DELETE", "/v1/attachments", {{"volume", name}, {"force", options.force}});
    // One that does not answer is not waited for. It does not know a device whose keeper is gone; but another tarnd of
    // this machine may.
    const bool may_know = done || (done.error().exit != Exit::unreachable && done.error().exit != Exit::timed_out &&
                                   (done.error().exit != Exit::not_found || !options.force || !device));
    if (!may_know) done = detach_alone(driver, devices, options.control, name, options.force);
    // The daemon has ended it meanwhile, and its answer is late.
    if (!done && done.error().exit == Exit::not_found && device && !devices.device_of(name))
        done = Json{{"name", name}};
    if (!done && done.error().exit == Exit::not_found && options.if_attached)
        return Json{{"attachments", Json::array()}};
    // Nobody that it asked serves the device.
    if (!done && done.error().exit == Exit::not_found && device)
        done.error().hint = fmt::format("tarn detach --force {}, if no other tarnd of this machine serves it", *device);
    Answer answer = of_attachments(std::move(done));
    if (answer.failures.empty() && device)
        if (const std::string point = devices.mount_point_of(*device); !point.empty())
            answer.warnings.push_back(
                fmt::format("/dev/{} is still mounted on {}: umount that before the volume is "
                            "attached again",
                            *device, printable(point)));
    return answer;
}

// The kernel's devices, too, that are volumes, and of which this daemon knows nothing.
Answer list_attached(const Client& client, const Options&) {
    const BlockDevices devices;
    const auto of_kernel = devices.all_of_tarn();  // first: one that is attached meanwhile is not among them
    auto attached = client.ask("GET", "/v1/attachments");
    if (!attached) return attached;
    Json& all = attached->at("attachments");
    for (Json& each : all) each["served"] = true;
    std::vector<std::string> warnings;
    for (const auto& [device, volume] : of_kernel) {
        const std::string path = "/dev/" + device;
        const bool is_listed =
            std::ranges::any_of(all, [&](const Json& each) { return each.value("device", "") == path; });
        if (is_listed || !devices.is_device_of(device, volume)) continue;
        all.push_back({{"volume", volume},
                       {"device", path},
                       {"size_bytes", devices.size_bytes_of(device).value_or(0)},
                       {"read_only", devices.is_read_only(device)},
                       {"served", false}});
        warnings.push_back(
            fmt::format("this tarnd does not serve {0}: if no other one does, its requests wait, and so would umount, "
                        "unless it was ended already; tarn detach --force {1} ends them, and {0} once nobody has it "
                        "mounted",
                        path, device));
    }
    std::ranges::for_each(all, add_link);
    Answer answer(std::move(attached));
    answer.warnings = std::move(warnings);
    return answer;
}

}  // namespace tarn
