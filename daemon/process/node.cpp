#include "daemon/process/node.hpp"

#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "coherence/fabric/transport/shm/shm_transport.hpp"
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"
#include "coherence/pages/page_provider.hpp"
#include "daemon/attachments/unserved_devices.hpp"
#include "daemon/configuration/memory_budget.hpp"
#include "daemon/configuration/memory_limit.hpp"
#include "daemon/configuration/text.hpp"
#include "daemon/doctor/doctor.hpp"
#include "daemon/keeper/left_memory.hpp"
#include "daemon/process/explained.hpp"
#include "daemon/process/store_refusal.hpp"
#include "utils/alarm.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

constexpr auto shutdown_flush_max = 10s;
constexpr std::chrono::seconds scrub_start_max = 1h;

size_t count_dirty(const Arena& arena) {
    size_t count = 0;
    for (const Frame& frame : std::span(arena.frames(), arena.frame_count())) count += Pages::is_dirty(frame);
    return count;
}

}  // namespace

Node::Node(Configuration configuration, const StartOptions& options)
    : configuration_(std::move(configuration)),
      options_(options),
      keeper_(Keeper::socket_of(configuration_.control)),
      started_ns_(monotonic_ns()) {}

Node::~Node() = default;

int Node::run(Signals& signals) {
    Result<std::unique_ptr<Shards>> shards =
        explained("event loop", Shards::create(configuration_.shards, configuration_.pin));
    if (!shards) return 1;
    shards_ = std::move(*shards);
    Loop& first = shards_->first();
    if (!explained("threads", shards_->start())) return 1;
    const Result<> started = first.run_until_done(start());
    if (started) {
        first.spawn(serve(signals));
    } else {
        first.run_until_done(stop());
        first.stop();
    }
    first.run();
    shards_->stop();
    if (store_is_older_) return 3;
    return started ? (stopped_clean_ ? 0 : 1)
           : started.error().code == Errc::corrupt || started.error().code == Errc::refused ||
                   started.error().code == Errc::unsupported
               ? 3
           : started.error().code == Errc::busy    ? 4
           : started.error().code == Errc::invalid ? 2
                                                   : 1;
}

Task<Result<>> Node::start() {
    Loop& loop = shards_->first();
    std::error_code ignored;  // listening there says what is wrong, if anything is
    std::filesystem::create_directory(std::filesystem::path(configuration_.control).parent_path(), ignored);
    CO_TRY(passed_, explained("descriptors of the service manager", PassedDescriptors::receive()));
    CO_TRY_VOID(check_places());
    Result<std::unique_ptr<Store>> store = explained(
        "store " + configuration_.store, co_await Store::open(loop, configuration_.store,
                                                              {.cluster = configuration_.cluster,
                                                               .host = configuration_.host_id(),
                                                               .host_name = host_name_of(configuration_.host)},
                                                              {.upgrade = options_.upgrade,
                                                               .accept_older = options_.accept_older_store,
                                                               .use_later = true,
                                                               .poll_reads = configuration_.poll_store}));
    if (!store) {
        const std::string advice = advice_on_refused_store(configuration_, store.error());
        if (!advice.empty()) log::error("{}", advice);
        co_return fail(store.error());
    }
    store_ = std::move(*store);
    log::info("store {}: {} MiB, of which {} MiB are in use; its books take at most {} KiB of memory",
              configuration_.store, store_->space().total_bytes >> 20, store_->space().allocated_bytes >> 20,
              store_->books_bytes_max() >> 10);
    if (!store_->direct())
        log::warning("store {}: the file system refuses O_DIRECT; writes pass its cache", configuration_.store);

    if (store_->home_epoch() == 1)  // the first start
        for (const Finding& each : examine(this_machine(false)))
            if (each.verdict != Finding::Verdict::good)
                log::info("doctor: {}: {}; {} ({})", each.about, each.seen, each.mend, each.effect);
    if (store_->polls_reads())
        log::info("store {}: reads are polled, as its device has queues for that; poll_store = \"off\" ends it",
                  configuration_.store);

    const uint64_t books = store_->books_bytes_max();
    if (const uint64_t least = memory_min(shards_->loops().size(), books); configuration_.memory_bytes < least) {
        log::error("memory = {}: too small for this store, whose books alone may take {} MiB; give it {} MiB or more",
                   format_size(configuration_.memory_bytes), books >> 20, (least >> 20) + 1);
        co_return fail(Errc::invalid, 0, "memory");
    }
    CacheConfiguration cache{
        .self = configuration_.host_id(),
        .frame_count = frame_count_for(configuration_.memory_bytes, shards_->loops().size(), books),
        .nodes = Nodes::of_machine(),
        .landing_bytes = shards_->loops().size() * nbd::LandingBuffers::size_bytes,
        .clients_bytes = nbd::SessionBook::size_bytes,
        .shards = shards_->loops(),
        .lease = configuration_.write_lease};
    std::vector<std::string> names;
    for (size_t i = 0; i < std::max<size_t>(1, configuration_.peers.size()); ++i) {
        cache.hosts.push_back(static_cast<HostId>(i));
        names.push_back(configuration_.peers.empty() ? configuration_.host : configuration_.peers[i].name);
    }
    CO_TRY_VOID(explained("control " + configuration_.control, co_await await_control_socket()));
    CO_TRY(std::unique_ptr<Arena> left_behind, memory_left_behind());
    // Not before that is known: until then a process that is killed leaves everything as it found it.
    CO_TRY_VOID(explained("store " + configuration_.store, co_await store_->begin_use(loop)));
    const bool adopts = left_behind != nullptr;
    if (adopts && left_behind->frame_count() != cache.frame_count)
        log::info(
            "memory: the frames of the process before are used as they are; memory = {} counts from the next "
            "start after a clean stop on",
            format_size(configuration_.memory_bytes));
    if (const uint64_t free_bytes = available_memory(); !adopts && free_bytes < configuration_.memory_bytes)
        log::warning(
            "memory = {}: only {} of this host's memory are available just now; the kernel may end this process",
            format_size(configuration_.memory_bytes), format_size_roughly(free_bytes));
    memory_was_lost_ = !adopts && !store_->was_complete();
    const uint64_t began_ns = monotonic_ns();
    CO_TRY(cache_, explained("memory", Cache::create(cache, *store_, std::move(left_behind))));
    if (adopts)
        log::warning(
            "memory: adopted {} pages of a process that ended without stopping, in {} ms; {} frames hold what is not "
            "durable yet, and nothing that it had taken is lost",
            cache_->adopted_page_count(), (monotonic_ns() - began_ns) / 1'000'000, cache_->dirty_frame_count());
    if (configuration_.keep_memory) {
        const Result<> kept = keeper_.keep_memory(cache_->pool().arena().fd());
        memory_is_kept_ = kept.has_value();
        if (!kept)
            log::warning("memory: nobody keeps it should this process crash ({}); what is not flushed is lost then",
                         log::describe(kept.error()));
    }
    co_await register_arena();
    volumes_ = std::make_unique<VolumeContext>(*cache_);
    catalog_ = std::make_unique<Catalog>(*volumes_, shards_->loops(), std::move(names));
    scrubber_ = std::make_unique<Scrubber>(*store_, loop);
    idle_checkpointer_ = std::make_unique<IdleCheckpointer>(*store_, loop);
    mark_sweeper_ = std::make_unique<MarkSweeper>(cache_->home_store().marker(), loop);
    cache_->inbox().set_older_handler([this] {
        store_is_older_ = true;
        ::kill(::getpid(), SIGTERM);  // as if somebody had asked: serve() ends everything in its order
    });
    cache_->inbox().set_next_volume_id([this] { return catalog_->next_volume_id(); });
    CO_TRY_VOID(start_fabric());
    CO_TRY_VOID(start_front_ends());
    scrub_schedule_ = std::make_unique<Timer>(loop);
    loop.spawn(catalog_->clean_up());
    telling_.spawn(warn_of_missing_volumes());
    if (configuration_.scrub_every_s != 0) loop.spawn(scrub_on_schedule());
    if (configuration_.peers.size() > 1)
        log::info(
            "static cluster of {} hosts, no failover: pages whose home is away wait for it; a home that starts "
            "anew serves once it has met all other hosts",
            configuration_.peers.size());
    log::info("tarnd serves as host {} with {} MiB of frames on {} shards", configuration_.host,
              cache_->pool().frame_count() * page_size >> 20, shards_->loops().size());
    sd_notify(0, "READY=1\nSTATUS=serving");
    co_return Result<>{};
}

// Where others could put a socket of their own in place of ours, they could be taken for us, or for our keeper.
Result<> Node::check_places() const {
    for (const auto& [key, path] :
         {std::pair("control", &configuration_.control), {"nbd.unix", &configuration_.nbd_unix}}) {
        if (path->empty()) continue;
        const std::string reason = unsafe_place(*path);
        if (reason.empty()) continue;
        log::error("{} = {}: {}; whoever can put a socket there would be taken for this daemon", key,
                   log::printable(*path), reason);
        return fail(Errc::invalid, 0, "a socket's directory");
    }
    return {};
}

// Once the store is ours. Who still listens then is another daemon, whose keeper is not ours to touch, or the process
// before: after a kill its sockets accept connections for some moments more. Errors: busy.
Task<Result<>> Node::await_control_socket() {
    constexpr std::chrono::milliseconds pause(10);
    constexpr std::chrono::seconds timeout(5);
    const uint64_t until_ns = monotonic_ns() + std::chrono::nanoseconds(timeout).count();
    while (is_listened_to(configuration_.control)) {
        if (monotonic_ns() >= until_ns) co_return fail(Errc::busy, 0, "listen: another daemon listens there");
        co_await shards_->first().sleep(pause);
    }
    co_return Result<>{};
}

// Of a process that crashed: not before the store is ours, since until then its I/O may still arrive there. Errors:
// refused (it is of another store).
Result<std::unique_ptr<Arena>> Node::memory_left_behind() {
    Result<std::vector<Keeper::Kept>> taken = explained("memory of the process before", keeper_.take(passed_));
    if (!taken && taken.error().code != Errc::refused && !options_.discard_memory) {
        log::error(
            "memory: the tarn-keeper of the process before does not hand over what it has; start tarnd again, "
            "or with --discard-memory, and what was not durable is lost");
        return fail(taken.error());
    }
    if (!taken) {
        keeper_.drop_memory();  // else it would be handed to a later process in place of this one's
        return nullptr;
    }
    kept_ = std::move(*taken);
    Result<std::unique_ptr<Arena>> arena = take_last_memory(kept_, store_->uuid());
    if (arena && !*arena) return nullptr;
    if (arena && options_.accept_older_store) options_.discard_memory = true;  // it may be of the store as it was
    if (arena && (*arena)->header().store != store_->uuid() && !options_.discard_memory) {
        log::error(
            "memory: what a process that crashed has left is of another store than {}; start tarnd for that one first, "
            "or with --discard-memory, and what was not durable there is lost",
            configuration_.store);
        return fail(Errc::refused, 0, "memory of another store");
    }
    const Result<> claimed = arena ? Adoption::claim(**arena, *store_) : Result<>(fail(arena.error()));
    if (claimed && configuration_.keep_memory && !options_.discard_memory) return std::move(*arena);
    if (!claimed)
        log::warning("memory of a process before is not used: {}", log::describe(claimed.error()));
    else
        log::warning("memory of the process before is discarded, and with it what {} pages had that was not durable",
                     count_dirty(**arena));
    keeper_.drop_memory();
    return nullptr;
}

// With every shard's ring. A gain, not a need.
Task<> Node::register_arena() {
    const auto register_with = [](Loop& shard, std::span<std::byte> frames) -> Task<Result<>> {
        co_return shard.register_memory(frames);
    };
    for (Loop* const shard : shards_->loops()) {
        const Result<> registered =
            co_await run_on(shards_->first(), *shard, register_with(*shard, cache_->pool().bytes()));
        if (registered) continue;
        log::info("the kernel did not register the frames for I/O ({}); a larger limit on locked memory lets it",
                  log::describe(registered.error()));
        co_return;
    }
}

Result<> Node::start_fabric() {
    if (configuration_.peers.size() < 2) return {};
    LinkedFabricConfiguration fabric{.self = configuration_.host_id(),
                                     .process = cache_->membership().process_of(configuration_.host_id()),
                                     .cluster = configuration_.cluster,
                                     .shards = shards_->loops()};
    TRY(const std::vector<std::byte> key,
        explained("key_file " + configuration_.key_file, load_key(configuration_.key_file)));
    std::string listen;
    std::vector<std::string> names;
    for (const Peer& peer : configuration_.peers) names.push_back(peer.name);
    fabric.peers_digest = digest_of(names);
    fabric.names = std::move(names);
    fabric.key.assign(reinterpret_cast<const char*>(key.data()), key.size());
    for (size_t i = 0; i < configuration_.peers.size(); ++i) {
        const Peer& peer = configuration_.peers[i];
        const std::string address = format_address(peer.address);
        if (i == fabric.self)
            listen = configuration_.listen ? format_address(*configuration_.listen) : address;
        else
            fabric.peers.push_back({.host = static_cast<HostId>(i), .address = address});
    }
    TRY(std::unique_ptr<Transport> transport, explained("listen " + listen, TcpTransport::listen(listen)));
    fabric_ = std::make_unique<LinkedFabric>(fabric, std::move(transport), cache_->inbox());
    if (configuration_.fabric_shm) {
        // Beside the control socket, whose place each daemon of a machine has for itself.
        Result<std::unique_ptr<Transport>> shm = ShmTransport::listen(configuration_.control + ".fabric");
        if (shm)
            fabric_->add_upgrade(std::move(*shm));
        else
            log::warning("fabric: no link will move to shared memory, for lack of a socket {}.fabric: {}",
                         configuration_.control, log::describe(shm.error()));
    }
    cache_->set_fabric(*fabric_);
    volumes_->answer_calls(fabric_->calls());
    catalog_->answer_calls(fabric_->calls());
    std::vector<HostId> others;
    for (const LinkedFabricConfiguration::Peer& peer : fabric.peers) others.push_back(peer.host);
    dead_hosts_ = std::make_unique<DeadHosts>(*cache_, others);
    standings_ = std::make_unique<Standings>(*cache_, shards_->first(), others);
    size_notices_ = std::make_unique<SizeNotices>(shards_->first(), *fabric_, fabric.self, others);
    shutdown_barrier_ = std::make_unique<ShutdownBarrier>(*cache_, std::move(others));
    fabric_->start();
    telling_.spawn(dead_hosts_->keep_told());
    telling_.spawn(standings_->keep_told());
    return {};
}

Result<> Node::start_front_ends() {
    Loop& loop = shards_->first();
    TRY_VOID(start_nbd());
    loop.spawn(nbd_->serve());

    attachments_ = std::make_unique<Attachments>(
        *catalog_, *nbd_, NbdKernel{.driver = nbd_driver_, .devices = BlockDevices()}, keeper_, loop,
        shards_->loops().size(), [this] {
            const bool is_there = memory_is_kept_ && Keeper::keeps_memory_itself();
            return is_there ? keeper_.keep_memory(cache_->pool().arena().fd()) : Result<>{};
        });
    catalog_->set_clients(attachments_.get());
    if (!size_notices_) size_notices_ = std::make_unique<SizeNotices>(configuration_.host_id());
    size_notices_->set_follow([this](VolumeId volume) { return attachments_->follow_size_of(volume); });
    attachments_->adopt(std::exchange(kept_, {}),
                        memory_was_lost_ ? std::nullopt : std::optional(cache_->adopted_receipts()));
    warn_of_unserved_devices(BlockDevices(), attachments_->list());
    catalog_->set_end_clients([this](VolumeId volume) -> Task<Result<>> {
        CO_TRY_VOID(co_await attachments_->end_devices_of(volume));
        co_await nbd_->end_clients_of(volume);
        co_return Result<>{};
    });
    attachments_->when_none_is_left([this, &loop] { loop.spawn(catalog_->release_left_holds()); });
    mounts_ = std::make_unique<Mounts>(shards_->loops(), *catalog_, configuration_.mount_points);
    api_ = std::make_unique<ControlApi>(*catalog_, *this, configuration_.volumes_shared);
    TRY(control_,
        explained("control " + configuration_.control, ControlServer::create(loop, configuration_.control, *api_)));
    const auto serve = [](ControlServer& server) -> Task<> {
        static_cast<void>(explained("control socket", co_await server.serve()));
    };
    loop.spawn(serve(*control_));
    return {};
}

// The first pass soon after the start: who restarts often would never come to one.
Task<> Node::scrub_on_schedule() {
    auto wait = std::min(std::chrono::seconds(configuration_.scrub_every_s), scrub_start_max);
    while (co_await scrub_schedule_->sleep(wait)) {
        // One that an administrator started is as good.
        static_cast<void>(scrubber_->start(std::nullopt, configuration_.scrub_rate_bytes));
        wait = std::chrono::seconds(configuration_.scrub_every_s);
    }
}

Task<> Node::serve(Signals& signals) {
    Result<int> signal = co_await signals.next(shards_->first());
    while (signal && *signal == SIGHUP) {
        co_await read_anew();
        signal = co_await signals.next(shards_->first());
    }
    if (store_is_older_) cache_->abandon();  // nothing of it may become durable, or be waited for
    co_await stop();
    shards_->first().stop();
}

Task<> Node::stop() {
    Loop& loop = shards_->first();
    sd_notify(0, "STOPPING=1");
    log::info("stopping");
    if (memory_is_kept_) keeper_.keep_memory_beyond_stop(cache_->pool().arena().fd());
    // Whoever waits for a host that is away must not keep us: after a while all that waits is given up.
    Alarm alarm(loop, shutdown_flush_max, [cache = cache_.get()] {
        if (!cache) return;
        log::warning("some requests still wait for hosts that are away; they are given up");
        cache->abandon();
    });
    if (scrub_schedule_) scrub_schedule_->cancel();
    if (scrubber_) co_await scrubber_->close();
    if (mark_sweeper_) co_await mark_sweeper_->close();
    if (idle_checkpointer_) co_await idle_checkpointer_->close();
    if (control_) control_->stop();
    if (attachments_) co_await attachments_->stop();
    if (nbd_) co_await nbd_->stop();
    if (mounts_) co_await mounts_->stop();
    if (catalog_) co_await catalog_->settle();
    if (shutdown_barrier_) shutdown_barrier_->say_stopping();
    bool all_is_durable = catalog_ != nullptr;
    if (catalog_ && !store_is_older_) {
        if (const Result<> flushed = co_await catalog_->flush_all(shutdown_barrier_ ? shutdown_barrier_->gone() : 0);
            !flushed) {
            log::error("not everything is durable{}: {}", memory_is_kept_ ? ", and is kept in memory" : "",
                       log::describe(flushed.error()));
            all_is_durable = false;
        }
    }
    if (standings_) standings_->tell();
    if (shutdown_barrier_ && all_is_durable) co_await cache_->provider().give_up_all();
    if (shutdown_barrier_) co_await shutdown_barrier_->say_flushed_and_wait();
    co_await alarm.end();
    if (fabric_) fabric_->stop();
    if (cache_) cache_->abandon();
    if (catalog_) co_await catalog_->end_removals();
    if (standings_) standings_->stop();
    co_await telling_.close();
    // A home that did not come to serve leaves the store as it found it; others may have been sent bytes since.
    const bool has_served = cache_ && !cache_->membership().recovering();
    bool is_complete = has_served ? all_is_durable : store_ && store_->was_complete();
    if (has_served && is_complete) {
        if (const Result<> stored = co_await cache_->home_store().writer().store_rest(); !stored) {
            log::error("not everything is durable: {}", log::describe(stored.error()));
            all_is_durable = is_complete = false;
        }
    }
    // The next start finds an empty journal. What is durable stays so if this fails.
    if (store_) {
        if (const Result<> closed = co_await store_->close(loop, is_complete); !closed) {
            log::warning("store {}: not closed: {}", configuration_.store, log::describe(closed.error()));
            all_is_durable = false;
        }
    }
    if (memory_is_kept_ && all_is_durable) keeper_.drop_memory();
    stopped_clean_ = all_is_durable;
    co_await shards_->end_others();
}

}  // namespace tarn
