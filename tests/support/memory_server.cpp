// memory_server: the front ends over volumes in memory, to test real clients without a cluster.
//
//   memory_server [--shards N] [--unix PATH] [--tcp PORT] [--volume NAME=SIZE_MIB] [--shared NAME=SIZE_MIB]
//                 [--held NAME=SIZE_MIB] [--read-only NAME] [--handshakes-max N] [--mount DIRECTORY] [--miss-every N]
//                 [--cold-delay-us N]
//
// Prints "ready" when clients may connect; ends cleanly on SIGTERM or SIGINT.
#include <fmt/format.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "frontends/fuse/mount.hpp"
#include "frontends/nbd/server.hpp"
#include "tests/support/memory_volumes.hpp"
#include "utils/loop.hpp"

namespace tarn {
namespace {

constexpr size_t held_bytes_max = size_t{256} << 20;

struct Settings {
    unsigned shards = 1;
    std::vector<std::string> unix_paths;
    std::vector<uint16_t> tcp_ports;
    std::vector<std::string> mount_paths;
    nbd::Settings nbd;
};

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "memory_server: {}\n", text);
    std::exit(1);
}

template <class T>
T check(Result<T> result, const char* what) {
    if (!result) give_up(fmt::format("{}: {} {}", what, to_string(result.error().code), result.error().where));
    return std::move(*result);
}

void add_volume(MemoryVolumes& volumes, const std::string& text, bool shared, bool held) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos) give_up("a volume is NAME=SIZE_MIB");
    const std::string name = text.substr(0, equals);
    volumes.add(name, std::stoull(text.substr(equals + 1)) << 20, shared);
    if (held) volumes.hold_elsewhere(name);
}

Settings parse(int count, char** arguments, MemoryVolumes& volumes) {
    Settings settings;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string key = arguments[i];
        const std::string value = arguments[i + 1];
        if (key == "--shards")
            settings.shards = static_cast<unsigned>(std::stoul(value));
        else if (key == "--unix")
            settings.unix_paths.push_back(value);
        else if (key == "--tcp")
            settings.tcp_ports.push_back(static_cast<uint16_t>(std::stoul(value)));
        else if (key == "--mount")
            settings.mount_paths.push_back(value);
        else if (key == "--volume")
            add_volume(volumes, value, false, false);
        else if (key == "--shared")
            add_volume(volumes, value, true, false);
        else if (key == "--held")
            add_volume(volumes, value, false, true);
        else if (key == "--read-only")
            settings.nbd.read_only.insert(value);
        else if (key == "--handshakes-max")
            settings.nbd.handshakes_max = std::stoul(value);
        else if (key == "--miss-every")
            volumes.faults.miss_every = static_cast<unsigned>(std::stoul(value));
        else if (key == "--cold-delay-us")
            volumes.faults.cold_delay_us = static_cast<unsigned>(std::stoul(value));
        else
            give_up("unknown option " + key);
    }
    return settings;
}

// Runs on the first shard from start to stop.
Task<> run_front_ends(std::vector<Loop*> loops, MemoryVolumes& volumes, const Settings& settings, int signals) {
    Loop& loop = *loops.front();
    nbd::Server server(loops, volumes, held_bytes_max, settings.nbd);
    for (const std::string& path : settings.unix_paths)
        if (const Result<> listening = server.listen_unix(path); !listening) give_up(listening.error().where);
    for (const uint16_t port : settings.tcp_ports) check(server.listen_tcp("127.0.0.1", port), "tcp");
    Gate gate;
    gate.spawn(server.serve());
    std::vector<std::unique_ptr<fuse::Mount>> mounts;
    for (const std::string& path : settings.mount_paths) {
        mounts.push_back(check(fuse::Mount::create(loops, volumes, {.path = path}), "mount"));
        gate.spawn(mounts.back()->serve());
    }
    fmt::print("ready\n");
    std::fflush(stdout);
    signalfd_siginfo signal{};
    const Result<size_t> signalled = co_await loop.read(signals, std::as_writable_bytes(std::span(&signal, 1)), 0);
    if (!signalled) give_up("signalfd");
    for (const std::unique_ptr<fuse::Mount>& mount : mounts) co_await mount->stop();
    co_await server.stop();
    co_await gate.close();
    for (Loop* const other : loops) other->stop();
}

int run(int count, char** arguments) {
    MemoryVolumes volumes;
    const Settings settings = parse(count, arguments, volumes);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    const UniqueFd signals(::signalfd(-1, &mask, SFD_CLOEXEC));

    std::vector<std::unique_ptr<Loop>> owned;
    std::vector<Loop*> loops;
    for (unsigned i = 0; i < settings.shards; ++i) {
        owned.push_back(check(Loop::create(), "loop"));
        loops.push_back(owned.back().get());
    }
    std::vector<std::thread> threads;
    for (size_t i = 1; i < loops.size(); ++i) threads.emplace_back([loop = loops[i]] { loop->run(); });
    loops.front()->spawn(run_front_ends(loops, volumes, settings, signals.get()));
    loops.front()->run();
    for (std::thread& thread : threads) thread.join();
    return 0;
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
    return tarn::run(count, arguments);
}
