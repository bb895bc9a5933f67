// What systemd is told of the volumes that are kept attached, as drop-ins of units that exist: a pure function of
// attachtab and fstab. For the generator.
//
// Each volume is attached at the boot, unless its line says noauto. A file system of fstab on such a device pulls it
// in, waits for the attempt to attach it, and is unmounted before it is detached. It does not require the attempt to
// succeed: one that fails is repeated, and meanwhile the mount waits for the device, as long as fstab lets it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/attachtab/attach_table.hpp"

namespace tarn {

// A line of fstab.
struct MountLine {
    std::string device;
    std::string directory;  // absolute and normal
    bool is_netdev = false;
};

struct UnitFile {
    std::string path;  // below the generator's directory
    std::string text;
    bool operator==(const UnitFile&) const = default;
};

struct AttachUnits {
    std::vector<UnitFile> files;
    std::vector<std::string> warnings;  // of what was left out, and why
};

// A line with a mistake is attached at the boot as well, where its volume is known: so the unit fails with what is
// wrong.
AttachUnits attach_units(const AttachTable& table, std::span<const MountLine> mounts);

}  // namespace tarn
