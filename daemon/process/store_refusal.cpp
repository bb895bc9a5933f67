#include "daemon/process/store_refusal.hpp"

#include <fmt/format.h>

#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {

// Init writes a whole configuration: not over the one that is there, which says more.
std::string advice_on_missing_store(const Configuration& configuration) {
    const bool is_device = configuration.store.starts_with("/dev/");
    std::string host = fmt::format("--host {} --cluster {}", configuration.host, format_uuid(configuration.cluster));
    for (const Peer& peer : configuration.peers)
        host += fmt::format(" --peer {}={}", peer.name, format_address(peer.address));
    if (!configuration.key_file.empty()) host += " --key-file " + printable(configuration.key_file);
    return fmt::format(
        "{} Only if it is lost for good, an empty one is made by: tarn init --store {} {}{} --config NEW_FILE; the "
        "present configuration then goes for it, too",
        is_device ? "Is the device there? lsblk lists them." : "Is its file system mounted?",
        printable(configuration.store), is_device ? "" : "--size SIZE ", host);
}

}  // namespace

std::string advice_on_refused_store(const Configuration& configuration, const Error& error) {
    if (error.code == Errc::not_found) return advice_on_missing_store(configuration);
    if (error.code == Errc::busy)
        return fmt::format("another tarnd, or a tool, has {} open: fuser -v {} names it",
                           printable(configuration.store), printable(configuration.store));
    if (error.code == Errc::cancelled)
        return "unless tarnd was told to stop, the kernel had no thread for a request: raise the limit of processes "
               "(ulimit -u, or TasksMax= of the unit)";
    if (error.code != Errc::refused) return "";
    Result<StoreFile> file = StoreFile::open_read_only(configuration.store);
    if (!file) return "";
    const Result<Superblock> superblock = read_superblock(*file);
    return superblock ? advice_on_other_store(configuration, superblock->identity) : "";
}

std::string advice_on_other_store(const Configuration& configuration, const StoreIdentity& found) {
    if (found.cluster != configuration.cluster)
        return fmt::format(
            "it is of cluster {}, and here the cluster is {}. If it is the store of {}, put its cluster into the "
            "configuration. Only if nothing is needed that it stores: tarn init with the options of "
            "before, --force and --replace-config makes it anew",
            format_uuid(found.cluster), format_uuid(configuration.cluster), configuration.host);
    if (found.host == configuration.host_id()) return "";
    std::string now;
    for (const Peer& peer : configuration.peers) now += (now.empty() ? "" : ", ") + peer.name;
    const std::string text = fmt::format("here {} is host {} of {}", configuration.host, configuration.host_id() + 1,
                                         now.empty() ? "a list without peers" : now);
    const std::string_view name = text_of(found.host_name);
    if (!name.empty() && name != configuration.host)
        return fmt::format("it was made for {}, host {} of its list of peers; {}. Give {} the store that is its own",
                           printable(name), found.host + 1, text, configuration.host);
    return fmt::format(
        "it was made and used for host {0} of another list of peers; {1}. If it is the store of {2}, put the peers "
        "back "
        "into the order in which {2} was host {0}, on every host. Only if nothing is needed that it stores: tarn init "
        "with the options of before, --force and --replace-config makes it anew",
        found.host + 1, text, configuration.host);
}

}  // namespace tarn
