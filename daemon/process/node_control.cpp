// What an administrator asks of the node (daemon/control/control.hpp).
#include <algorithm>
#include <optional>
#include <set>

#include "daemon/configuration/text.hpp"
#include "daemon/process/loss_statuses.hpp"
#include "daemon/process/nbd_exports.hpp"
#include "daemon/process/node.hpp"
#include "utils/clock.hpp"
#include "utils/host_name.hpp"
#include "utils/log.hpp"

namespace tarn {

Task<Result<NodeStatus>> Node::status() {
    const StoreSpace space = store_->space();
    const FramePool& pool = cache_->pool();
    Json losses = Json::array();
    const auto name_of_host = [&](HostId host) {
        if (host == configuration_.host_id()) return configuration_.host;
        return host < configuration_.peers.size() ? configuration_.peers[host].name : std::string();
    };
    if (const std::vector<Loss> lost = store_->losses(); !lost.empty()) {
        const std::optional<std::set<VolumeId>> volumes = co_await catalog_->volumes_there();
        const auto name_of_volume = [&](VolumeId volume) -> std::optional<std::string> {
            if (volumes && volume != catalog_volume && !volumes->contains(volume)) return std::nullopt;
            return catalog_->name_of(volume);
        };
        for (const LossStatus& loss : loss_statuses(lost, name_of_volume, name_of_host))
            losses.push_back({{"volume", loss.volume},
                              {"host", loss.host},
                              {"generation", loss.generation},
                              {"pages", loss.page_count},
                              {"first_page", loss.first_page},
                              {"last_page", loss.last_page},
                              {"attributes", loss.attributes},
                              {"at_ns", loss.at_ns}});
    }
    NodeStatus status;
    status.facts = {{"host", configuration_.host},
                    {"cluster", format_uuid(configuration_.cluster)},
                    {"uptime_s", (monotonic_ns() - started_ns_) / 1'000'000'000},
                    {"memory_bytes", pool.frame_count() * page_size},  // of the frame pool
                    {"cached_bytes", (pool.frame_count() - pool.free_count()) * page_size},
                    {"dirty_bytes", cache_->dirty_frame_count() * page_size},  // not yet durable
                    {"store", {{"total_bytes", space.total_bytes}, {"free_bytes", space.free_bytes}}},
                    {"store_allocated_bytes", space.allocated_bytes},  // slabs that volumes have
                    {"store_stored_bytes", space.stored_bytes},        // pages that were written
                    // Of pieces of which memory may have newer bytes than the store.
                    {"store_marked_bytes", configuration_.peers.size() > 1 ? store_->marked_bytes() : 0},
                    {"store_bad_pages", store_->bad_page_count()},  // reads that met a wrong checksum, since the start
                    {"store_polls_reads", store_->polls_reads()},
                    {"store_failure", store_->failure() ? log::describe(*store_->failure()) : ""},
                    {"lost_pages", cache_->home_store().losses().page_count()},
                    {"losses", losses},
                    {"serves", !cache_->membership().recovering()},  // the pages whose home it is
                    {"fabric", fabric_ ? (fabric_->can_move() ? "shm, tcp" : "tcp") : "none"},
                    {"shards", shard_statuses()}};
    for (size_t i = 0; i < configuration_.peers.size(); ++i) {
        const Peer& peer = configuration_.peers[i];
        const bool self = i == configuration_.host_id();
        status.peers.push_back({.name = peer.name,
                                .address = format_address(peer.address),
                                .self = self,
                                .connected = fabric_ && fabric_->linked(static_cast<HostId>(i)),
                                .answers = fabric_ && fabric_->answers(static_cast<HostId>(i)),
                                .trouble = fabric_ && !self ? fabric_->why_not_linked(static_cast<HostId>(i)) : "",
                                .forgotten = cache_->membership().is_dead(static_cast<HostId>(i)),
                                .link = fabric_ && !self ? link_status(static_cast<HostId>(i)) : Json()});
    }
    co_return status;
}

Json Node::link_status(HostId host) const {
    const LinkStatus status = fabric_->link_status(host);
    return {{"transport", fabric_->linked(host) ? name_of(status.transport) : "none"},
            {"round_trip_ns", status.round_trip.count()},
            {"messages_sent", status.messages_sent},
            {"messages_received", status.messages_received},
            {"bytes_sent", status.bytes_sent},
            {"bytes_received", status.bytes_received},
            {"links", status.links}};
}

// Counts are since the start of this process.
Json Node::shard_statuses() const {
    const auto name_of = [](const ShardThread& shard) {
        if (shard.loop().cpus().empty()) return "free";
        switch (shard.mode()) {
            case Scheduling::Mode::joined: return shard.loop().looks_before_sleep() ? "polling" : "joined";
            case Scheduling::Mode::courteous: return "courteous";
            case Scheduling::Mode::released: break;
        }
        return "released";
    };
    const std::vector<size_t> connections = nbd_->connections_by_shard();
    Json shards = Json::array();
    for (const std::unique_ptr<ShardThread>& shard : shards_->threads()) {
        const Loop& loop = shard->loop();
        const ShardThread::Times times = shard->times();
        shards.push_back({{"cpus", loop.cpus().text()},
                          {"mode", name_of(*shard)},
                          {"nbd_connections", connections[shards.size()]},
                          {"mounts", mounts_->list().size()},  // each is read by all
                          {"links", fabric_ ? fabric_->links_on(loop) : 0},
                          {"requests", loop.requests()},
                          {"hops", loop.calls_from_others()},
                          {"run_ns", times.run.count()},
                          {"run_delay_ns", times.delay.count()}});
    }
    return shards;
}

Export Node::export_of(const std::string& volume) {
    return nbd_export_of(configuration_, machine_name(), volume);
}

Task<Result<Forgotten>> Node::forget_host(std::string name) {
    if (name == configuration_.host) co_return fail(Errc::invalid, 0, "that is this host, and it is alive");
    const auto named = std::ranges::find(configuration_.peers, name, &Peer::name);
    if (named == configuration_.peers.end())
        co_return fail(Errc::not_found, 0, "no host of this cluster has that name");
    const auto host = static_cast<HostId>(named - configuration_.peers.begin());
    CO_TRY(const DeadHosts::Outcome outcome, co_await dead_hosts_->forget(host));
    co_return Forgotten{.told = names_of(outcome.told), .not_told = names_of(outcome.not_told)};
}

Task<std::vector<std::string>> Node::tell_size(VolumeId volume) {
    co_return names_of(co_await size_notices_->tell(volume));
}

std::vector<std::string> Node::names_of(const std::vector<HostId>& hosts) const {
    std::vector<std::string> names;
    for (const HostId host : hosts)
        names.push_back(configuration_.peers.empty() ? configuration_.host : configuration_.peers[host].name);
    return names;
}

Result<> Node::start_verify(std::optional<VolumeId> volume, uint64_t rate_bytes) {
    return scrubber_->start(volume, rate_bytes ? rate_bytes : configuration_.scrub_rate_bytes);
}

}  // namespace tarn
