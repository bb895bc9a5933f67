// tarn-attach-generator: run by systemd at the boot and at each reload of its units, before anything else runs; see
// systemd.generator(7). Writes what attach_units says of attachtab and fstab into the directory that it is given.
#include <fcntl.h>
#include <fmt/format.h>
#include <mntent.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachtab/attach_units.hpp"
#include "utils/file_text.hpp"
#include "utils/printable.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {
namespace {

// Nobody else listens so early. A line is a record of the kernel's log.
void say(const std::string& text) {
    const UniqueFd log(::open("/dev/kmsg", O_WRONLY | O_CLOEXEC | O_NOCTTY));
    const std::string line = fmt::format("<4>tarn-attach-generator: {}\n", printable(text));
    if (log) [[maybe_unused]]
        const ssize_t written = ::write(log.get(), line.data(), line.size());
}

// Those over devices of volumes, and their directories as systemd names their units: with no symbolic link on the way.
std::vector<MountLine> mounts_of(const char* fstab) {
    std::vector<MountLine> mounts;
    const std::unique_ptr<FILE, int (*)(FILE*)> file(::setmntent(fstab, "re"), ::endmntent);
    if (!file) return mounts;
    while (const mntent* const line = ::getmntent(file.get())) {
        if (!std::string_view(line->mnt_fsname).starts_with(link_of(""))) continue;
        std::error_code problem;
        std::filesystem::path directory = std::filesystem::weakly_canonical(line->mnt_dir, problem);
        if (!directory.has_filename()) directory = directory.parent_path();  // of "/srv/db/", which is not there yet
        if (problem || !directory.is_absolute()) continue;
        mounts.push_back({.device = line->mnt_fsname,
                          .directory = directory.string(),
                          .is_netdev = ::hasmntopt(line, "_netdev") != nullptr});
    }
    return mounts;
}

bool write_file(const std::filesystem::path& path, const std::string& text) {
    std::error_code problem;
    std::filesystem::create_directories(path.parent_path(), problem);
    std::ofstream file(path);
    file << text;
    file.close();
    return file.good();
}

int generate(const std::filesystem::path& directory) {
    const AttachUnits units = attach_units(AttachTable::parse(text_of(attach_table_path)), mounts_of("/etc/fstab"));
    for (const std::string& warning : units.warnings) say(warning);
    int status = 0;
    for (const UnitFile& file : units.files) {
        if (write_file(directory / file.path, file.text)) continue;
        say(fmt::format("{} cannot be written", (directory / file.path).string()));
        status = 1;
    }
    return status;
}

}  // namespace
}  // namespace tarn

int main(int count, char** words) {
    if (count != 4) {
        fmt::print(stderr,
                   "usage: tarn-attach-generator NORMAL-DIRECTORY EARLY-DIRECTORY LATE-DIRECTORY\n"
                   "systemd runs it: systemctl daemon-reload\n");
        return 2;
    }
    return tarn::generate(words[1]);
}
