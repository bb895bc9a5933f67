#include "daemon/attachtab/attach_units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachtab/unit_name.hpp"

namespace tarn {

namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view drop_in = "50-tarn-attach.conf";

// The device of the volume, or a partition of it; unless that is the name of another volume, whose device it then is.
bool is_on(const MountLine& mount, std::string_view volume, const std::set<std::string>& volumes) {
    const std::string link = link_of(volume);
    std::string_view rest = mount.device;
    if (!rest.starts_with(link)) return false;
    rest.remove_prefix(link.size());
    constexpr std::string_view part = "-part";
    if (rest.empty()) return true;
    if (std::ranges::any_of(volumes, [&](const std::string& each) { return link_of(each) == mount.device; }))
        return false;
    return rest.starts_with(part) && rest.size() > part.size() &&
           rest.find_first_not_of(digits, part.size()) == std::string_view::npos;
}

}  // namespace

AttachUnits attach_units(const AttachTable& table, std::span<const MountLine> mounts) {
    AttachUnits units;
    std::set<std::string> at_boot;
    std::set<std::string> volumes;
    for (const AttachTable::Line& line : table.lines) {
        volumes.insert(line.options.volume);
        if (line.at_boot) at_boot.insert(line.options.volume);
    }
    for (const AttachTable::Mistake& mistake : table.mistakes) {
        units.warnings.push_back(fmt::format("{}:{}: {}", attach_table_path, mistake.number, mistake.reason));
        if (!mistake.volume.empty() && volumes.insert(mistake.volume).second) at_boot.insert(mistake.volume);
    }
    std::string wanted;
    for (const std::string& volume : volumes) {
        const std::string unit = attach_unit_of(volume);
        if (unit.size() > unit_name_size_max) {
            units.warnings.push_back(fmt::format(
                "{}: the name {} is too long for a unit of systemd; it is not attached", attach_table_path, volume));
            continue;
        }
        if (at_boot.contains(volume)) wanted += fmt::format("Wants={}\n", unit);
        for (const MountLine& mount : mounts) {
            if (!is_on(mount, volume, volumes)) continue;
            if (!mount.is_netdev) {
                units.warnings.push_back(
                    fmt::format("/etc/fstab: {} lacks the option _netdev; without it systemd mounts "
                                "it before tarnd is started, and cannot",
                                mount.directory));
                continue;
            }
            units.files.push_back(
                {.path = fmt::format("{}.d/{}", mount_unit_of(mount.directory), drop_in),
                 .text = fmt::format("[Unit]\nWants={0}\nAfter={0}\nStopPropagatedFrom={0}\n", unit)});
        }
    }
    if (!wanted.empty())
        units.files.push_back({.path = fmt::format("remote-fs.target.d/{}", drop_in), .text = "[Unit]\n" + wanted});
    return units;
}

}  // namespace tarn
