#include "daemon/process/store_refusal.hpp"

#include <fmt/format.h>

#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/printable.hpp"

namespace tarn {

std::string advice_on_refused_store(const Configuration& configuration, const Error& error) {
    if (error.code == Errc::not_found)
        return fmt::format(
            "is its file system mounted? A new, empty one: tarn init --store {} --size SIZE --replace-config",
            printable(configuration.store));
    if (error.code == Errc::busy)
        return fmt::format("another tarnd, or a tool, has {} open: fuser -v {} names it",
                           printable(configuration.store), printable(configuration.store));
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
            "configuration. Only if nothing is needed that it stores: tarn init --force --replace-config makes it anew",
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
        "--force --replace-config makes it anew",
        found.host + 1, text, configuration.host);
}

}  // namespace tarn
