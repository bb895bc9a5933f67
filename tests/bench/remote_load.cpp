// remote_load: a host of a cluster that reads another host's pages, one after the other, and a redis client that gets
// values of the same size by the same loop. Prints a line per measurement, as report.py wants them.
//
//   remote_load --store PATH --cluster UUID --key-file PATH --listen ADDRESS --peer ADDRESS --peer-pid PID
//               --volume ID --bytes FILE --redis-port PORT --redis-pid PID [--memory BYTES] [--rounds 5] --case TEXT
//
// This host is host 1 of two. The volume and redis have the bytes of FILE. Each round is about other pages, in random
// order, and the contestants take turns at them; no page comes twice. Latencies go to stderr.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coherence/fabric/link/linked_fabric.hpp"
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"
#include "daemon/configuration/configuration.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "tests/bench/cpu_time.hpp"
#include "utils/clock.hpp"
#include "utils/mapping.hpp"

namespace tarn {
namespace {

constexpr HostId self = 1;
constexpr HostId peer = 0;

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "remote_load: {}\n", text);
    std::exit(1);
}

template <class T>
T check(Result<T> result, const char* what) {
    if (!result) give_up(fmt::format("{}: {} at {}", what, to_string(result.error().code), result.error().where));
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class Settings {
  public:
    Settings(int count, char** arguments) {
        for (int i = 1; i + 1 < count; i += 2) values_[arguments[i]] = arguments[i + 1];
    }
    const std::string& text(const std::string& key) const {
        const auto found = values_.find(key);
        if (found == values_.end()) give_up(key + " is needed");
        return found->second;
    }
    uint64_t number(const std::string& key) const { return std::stoull(text(key)); }
    std::string text_or(const std::string& key, const char* otherwise) const {
        return values_.contains(key) ? text(key) : otherwise;
    }

  private:
    std::map<std::string, std::string> values_;
};

double server_cpu_us(uint64_t pid) {
    const std::optional<double> used_us = bench::cpu_us_of(pid);
    if (!used_us) give_up("no such process");
    return *used_us;
}

// A connection to redis, on the loop's ring or by blocking calls.
class Redis {
  public:
    Redis(Loop& loop, uint16_t port) : loop_(loop), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            give_up("cannot connect to redis");
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    void set(uint64_t page, std::span<const std::byte> bytes) {
        std::string request =
            fmt::format("*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n", key(page).size(), key(page), bytes.size());
        request.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        request += "\r\n";
        if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
            give_up("redis: short send");
        char answer[5];
        if (::recv(socket_.get(), answer, sizeof answer, MSG_WAITALL) != sizeof answer || answer[0] != '+')
            give_up("redis: SET failed");
    }

    Task<Result<>> get(uint64_t page, std::span<std::byte> into, bool blocking) {
        const std::string request = fmt::format("*2\r\n$3\r\nGET\r\n${}\r\n{}\r\n", key(page).size(), key(page));
        const std::span<const std::byte> bytes = std::as_bytes(std::span(request));
        const size_t size = header.size() + into.size() + 2;
        if (blocking) {
            if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) co_return fail(Errc::io);
            if (::recv(socket_.get(), answer_.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size))
                co_return fail(Errc::io);
        } else {
            CO_TRY_VOID(co_await loop_.send(socket_.get(), bytes));
            for (size_t filled = 0; filled < size;) {
                CO_TRY(const size_t received,
                       co_await loop_.receive(socket_.get(), std::span(answer_).subspan(filled, size - filled)));
                if (received == 0) co_return fail(Errc::closed);
                filled += received;
            }
        }
        if (std::memcmp(answer_.data(), header.data(), header.size()) != 0) co_return fail(Errc::protocol);
        std::memcpy(into.data(), answer_.data() + header.size(), into.size());
        co_return Result<>{};
    }

  private:
    static std::string key(uint64_t page) { return fmt::format("page:{}", page); }
    static constexpr std::string_view header = "$4096\r\n";

    Loop& loop_;
    UniqueFd socket_;
    std::array<std::byte, header.size() + page_size + 2> answer_;
};

class Host {
  public:
    Host(const Settings& settings, Loop& loop) : settings_(settings), loop_(loop) {}

    Task<> start() {
        const std::optional<Uuid> cluster = parse_uuid(settings_.text("--cluster"));
        if (!cluster) give_up("--cluster: not a UUID");
        store_ =
            check(co_await Store::open(loop_, settings_.text("--store"), {.cluster = *cluster, .host = self}), "store");
        const uint64_t memory = std::stoull(settings_.text_or("--memory", "33554432"));
        cache_ = check(
            Cache::create({.self = self, .hosts = {peer, self}, .frame_count = memory / page_size, .shards = {&loop_}},
                          *store_),
            "memory");
        const std::vector<std::byte> key = check(load_key(settings_.text("--key-file")), "key");
        const LinkedFabricConfiguration links{.self = self,
                                              .process = cache_->membership().process_of(self),
                                              .cluster = *cluster,
                                              .key = {reinterpret_cast<const char*>(key.data()), key.size()},
                                              .peers = {{.host = peer, .address = settings_.text("--peer")}},
                                              .shards = {&loop_}};
        std::unique_ptr<Transport> transport = check(TcpTransport::listen(settings_.text("--listen")), "fabric");
        fabric_ = std::make_unique<LinkedFabric>(links, std::move(transport), cache_->inbox());
        cache_->set_fabric(*fabric_);
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volumes_->answer_calls(fabric_->calls());
        fabric_->start();
        for (uint64_t seen = cache_->membership().changed().count();
             cache_->membership().recovering() || !fabric_->linked(peer); seen = cache_->membership().changed().count())
            co_await cache_->membership().changed().next(seen);
        volume_ = std::make_unique<CachedVolume>(*volumes_, static_cast<VolumeId>(settings_.number("--volume")));
    }
    void stop() {
        volume_.reset();
        fabric_->stop();
        cache_->abandon();
    }

    // Those of the first page_count pages that are the other host's.
    std::vector<uint64_t> remote_pages(uint64_t page_count) const {
        std::vector<uint64_t> pages;
        for (uint64_t page = 0; page < page_count; ++page)
            if (cache_->home_of(PageId::of(volume_->id(), page)) == peer) pages.push_back(page);
        return pages;
    }
    Volume& volume() { return *volume_; }

  private:
    const Settings& settings_;
    Loop& loop_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<LinkedFabric> fabric_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
};

class Contest {
  public:
    Contest(const Settings& settings, Loop& loop)
        : settings_(settings),
          host_(settings, loop),
          redis_(loop, static_cast<uint16_t>(settings.number("--redis-port"))),
          file_(settings.text("--bytes"), std::ios::binary) {}

    Task<> run() {
        co_await host_.start();
        file_.seekg(0, std::ios::end);
        pages_ = host_.remote_pages(static_cast<uint64_t>(file_.tellg()) / page_size);
        const uint64_t rounds = std::stoull(settings_.text_or("--rounds", "5"));
        if (pages_.size() < rounds) give_up("too few pages of the volume have their home on the other host");
        // A fixed shuffle.
        for (size_t i = pages_.size() - 1; i > 0; --i) std::swap(pages_[i], pages_[mix64(i) % (i + 1)]);
        std::vector<std::byte> bytes(page_size);
        for (const uint64_t page : pages_) {
            file_.seekg(static_cast<std::streamoff>(page * page_size));
            file_.read(reinterpret_cast<char*>(bytes.data()), page_size);
            redis_.set(page, bytes);
        }
        const uint64_t tarn_pid = settings_.number("--peer-pid");
        const uint64_t redis_pid = settings_.number("--redis-pid");
        const size_t share = pages_.size() / rounds;
        for (uint64_t round = 0; round < rounds; ++round) {
            const std::span pages = std::span(pages_).subspan(round * share, share);
            co_await measure("tarn", pages, tarn_pid, [this](uint64_t page) { return read(page); });
            co_await measure("redis GET, blocking", pages, redis_pid,
                             [this](uint64_t page) { return redis_.get(page, bytes_, true); });
            co_await measure("redis GET, io_uring", pages, redis_pid,
                             [this](uint64_t page) { return redis_.get(page, bytes_, false); });
        }
        co_await check_bytes();
        host_.stop();
    }

  private:
    Task<Result<>> read(uint64_t page) { return host_.volume().read(page * page_size, bytes_); }

    // Both give what the file has.
    Task<> check_bytes() {
        std::vector<std::byte> expected(page_size);
        for (size_t i = 0; i < pages_.size(); i += pages_.size() / 64 + 1) {
            file_.seekg(static_cast<std::streamoff>(pages_[i] * page_size));
            file_.read(reinterpret_cast<char*>(expected.data()), page_size);
            check(co_await read(pages_[i]), "read");
            if (!std::ranges::equal(bytes_, expected)) give_up("tarn has other bytes");
            check(co_await redis_.get(pages_[i], bytes_, true), "get");
            if (!std::ranges::equal(bytes_, expected)) give_up("redis has other bytes");
        }
    }

    template <class Operation>
    Task<> measure(const char* name, std::span<const uint64_t> pages, uint64_t server_pid, Operation operation) {
        std::vector<uint32_t> latencies_ns;
        latencies_ns.reserve(pages.size());
        const double cpu_before = server_cpu_us(server_pid);
        const double own_before = bench::own_cpu_us();
        const uint64_t start_ns = monotonic_ns();
        uint64_t now_ns = start_ns;
        for (const uint64_t page : pages) {
            const uint64_t began_ns = now_ns;
            check(co_await operation(page), name);
            now_ns = monotonic_ns();
            latencies_ns.push_back(static_cast<uint32_t>(now_ns - began_ns));
        }
        const auto count = static_cast<double>(latencies_ns.size());
        std::ranges::sort(latencies_ns);
        fmt::print("Synchronous, in one process\t{}\t{}\t{:.0f}\t{:.2f}\n", settings_.text("--case"), name,
                   count / (static_cast<double>(now_ns - start_ns) * 1e-9),
                   (server_cpu_us(server_pid) - cpu_before) / count);
        std::fflush(stdout);
        fmt::print(stderr, "   {:<22} p50 {:.1f} us, p99 {:.1f} us; own CPU {:.1f} us\n", name,
                   latencies_ns[latencies_ns.size() / 2] / 1e3, latencies_ns[latencies_ns.size() * 99 / 100] / 1e3,
                   (bench::own_cpu_us() - own_before) / count);
    }

    const Settings& settings_;
    Host host_;
    Redis redis_;
    std::ifstream file_;
    std::vector<uint64_t> pages_;
    std::array<std::byte, page_size> bytes_{};
};

int run(int count, char** arguments) {
    const Settings settings(count, arguments);
    const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
    {
        Contest contest(settings, *loop);
        loop->run_until_done(contest.run());
        loop->stop();
        loop->run();
    }
    return 0;
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
    return tarn::run(count, arguments);
}
