// fabric_load: two processes that ask and answer over one transport, as links do, or over what it is measured against.
// Prints {"ops", "iops", "server_cpu_us_per_op"} of the process that answers.
//
//   fabric_load --over rings|shm|tcp|unix|memory --seconds S [--cpus A,B] [--reply BYTES] [--bulk 1]
//
// rings: the rings of shared memory alone, and both processes look at them without an end. shm, tcp: channels on event
// loops, as a link uses them. unix: blocking reads and writes of a socket pair. memory: memcpy within one process, from
// memory that is in no cache, of what would be in a reply. A request has 64 bytes, and a reply as many unless told
// otherwise. bulk: nobody answers but at the end; an operation is --reply bytes, a divisor of 1 GiB, which are in no
// cache either. --cpus: of who asks, and who answers.
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coherence/fabric/transport/shm/segment.hpp"
#include "coherence/fabric/transport/shm/shm_transport.hpp"
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"
#include "tests/bench/cpu_time.hpp"
#include "tiers/page.hpp"
#include "utils/clock.hpp"

namespace tarn {
namespace {

constexpr size_t request_bytes = 64;
constexpr size_t region_bytes = size_t{1} << 30;  // more than any cache holds

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "fabric_load: {}\n", text);
    std::exit(1);
}

template <class T>
T check(Result<T> result, const char* what) {
    if (!result) give_up(fmt::format("{}: {} at {}", what, to_string(result.error().code), result.error().where));
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

struct Settings {
    Settings(int count, char** arguments) {
        std::map<std::string, std::string> values{{"--reply", "64"}, {"--bulk", "0"}, {"--cpus", ""}};
        for (int i = 1; i + 1 < count; i += 2) values[arguments[i]] = arguments[i + 1];
        over = values["--over"];
        reply_bytes = std::stoull(values["--reply"]);
        is_bulk = values["--bulk"] != "0";
        duration_ns = static_cast<uint64_t>(std::stod(values["--seconds"]) * 1e9);
        if (const std::string& cpus = values["--cpus"]; !cpus.empty()) {
            asks = std::stoi(cpus);
            answers = std::stoi(cpus.substr(cpus.find(',') + 1));
        }
    }
    std::string over;
    size_t reply_bytes = 0;
    bool is_bulk = false;
    uint64_t duration_ns = 0;
    int asks = -1;  // CPUs; -1: any
    int answers = -1;
};

void run_on(int cpu) {
    if (cpu < 0) return;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) give_up("sched_setaffinity");
}

// One end of what is measured. Bytes go whole, one after the other.
class End {
  public:
    virtual ~End() = default;
    virtual Task<bool> send(std::span<const std::byte> bytes) = 0;
    virtual Task<bool> receive(std::span<std::byte> into) = 0;
};

class SocketEnd final : public End {
  public:
    explicit SocketEnd(int fd) : fd_(fd) {}
    Task<bool> send(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) co_return false;
            bytes = bytes.subspan(static_cast<size_t>(sent));
        }
        co_return true;
    }
    Task<bool> receive(std::span<std::byte> into) override {
        co_return ::recv(fd_, into.data(), into.size(), MSG_WAITALL) == static_cast<ssize_t>(into.size());
    }

  private:
    const int fd_;
};

class RingEnd final : public End {
  public:
    explicit RingEnd(std::unique_ptr<Segment> segment)
        : segment_(std::move(segment)), writer_(segment_->outgoing()), reader_(segment_->incoming()) {}
    Task<bool> send(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) bytes = bytes.subspan(writer_.write(bytes));
        co_return true;
    }
    Task<bool> receive(std::span<std::byte> into) override {
        while (!into.empty()) {
            const std::span<const std::byte> bytes = reader_.bytes();
            const size_t count = std::min(bytes.size(), into.size());
            if (count == 0) continue;
            std::memcpy(into.data(), bytes.data(), count);
            reader_.take(count);
            into = into.subspan(count);
        }
        co_return true;
    }

  private:
    const std::unique_ptr<Segment> segment_;
    RingWriter writer_;
    RingReader reader_;
};

class ChannelEnd final : public End {
  public:
    explicit ChannelEnd(Channel& channel) : channel_(channel) {}
    Task<bool> send(std::span<const std::byte> bytes) override {
        bytes = bytes.subspan(channel_.try_send(bytes));
        while (!bytes.empty()) {
            const Result<size_t> sent = co_await channel_.send(bytes);
            if (!sent || *sent == 0) co_return false;
            bytes = bytes.subspan(*sent);
        }
        co_return true;
    }
    // What is longer goes where it belongs at once, as pages do.
    Task<bool> receive(std::span<std::byte> into) override {
        while (!into.empty()) {
            if (!rest_.empty()) {
                const size_t count = std::min(rest_.size(), into.size());
                std::memcpy(into.data(), rest_.data(), count);
                rest_ = rest_.subspan(count);
                into = into.subspan(count);
                taken_ += count;
                continue;
            }
            const auto page = into.size() > request_bytes ? into : std::span<std::byte>();
            const auto received = co_await channel_.receive(page, std::exchange(taken_, 0));
            if (!received) co_return false;
            into = into.subspan(received->page_bytes);
            rest_ = received->bytes;
        }
        co_return true;
    }

  private:
    Channel& channel_;
    std::span<const std::byte> rest_;
    size_t taken_ = 0;
};

Task<> answer(End& end, const Settings& settings) {
    std::vector<std::byte> request(settings.is_bulk ? settings.reply_bytes : request_bytes);
    const std::vector<std::byte> reply(settings.is_bulk ? 1 : settings.reply_bytes, std::byte{7});
    while (co_await end.receive(request)) {
        const bool is_last = request.front() == std::byte{1};
        if ((!settings.is_bulk || is_last) && !co_await end.send(reply)) co_return;
    }
}

// Before anything is measured.
std::vector<std::byte> requests_of(const Settings& settings) {
    return std::vector<std::byte>(settings.is_bulk ? region_bytes : request_bytes);
}

Task<uint64_t> ask(End& end, const Settings& settings, std::span<std::byte> requests) {
    const size_t bytes = settings.is_bulk ? settings.reply_bytes : request_bytes;
    std::vector<std::byte> reply(settings.is_bulk ? 1 : settings.reply_bytes);
    uint64_t operations = 0;
    const uint64_t end_ns = monotonic_ns() + settings.duration_ns;
    for (bool is_over = false; !is_over; ++operations) {
        is_over = operations % 16 == 0 && monotonic_ns() >= end_ns;
        const std::span request = requests.subspan(operations * bytes % requests.size(), bytes);
        request.front() = std::byte{is_over};
        if (!co_await end.send(request)) give_up("send");
        if ((!settings.is_bulk || is_over) && !co_await end.receive(reply)) give_up("receive");
    }
    co_return operations;
}

// Connected, and greeted by a byte, so that the other side has what goes with the connection.
Task<> join(Loop& loop, Connection& connection, std::unique_ptr<Channel>& channel, bool connects) {
    std::byte byte{};
    if (connects) {
        check(co_await connection.connect(), "connect");
        check(co_await connection.send(std::span(&byte, 1)), "send");
    } else if (check(co_await connection.receive(std::span(&byte, 1)), "receive") != 1) {
        give_up("no greeting");
    }
    channel = connection.become_channel(loop);
}

struct Outcome {
    uint64_t operations = 0;
    double seconds = 0;
    double server_cpu_us = 0;
};

template <class Ask>
Outcome measure(pid_t server, Ask asks) {
    const double cpu_before = bench::cpu_us_of(static_cast<uint64_t>(server)).value_or(0);
    const uint64_t began_ns = monotonic_ns();
    Outcome outcome{.operations = asks()};
    outcome.seconds = static_cast<double>(monotonic_ns() - began_ns) * 1e-9;
    outcome.server_cpu_us = bench::cpu_us_of(static_cast<uint64_t>(server)).value_or(0) - cpu_before;
    return outcome;
}

// Runs the work in a process of its own, which ends with this one.
template <class Work>
pid_t start(int cpu, Work work) {
    const pid_t child = ::fork();
    if (child < 0) give_up("fork");
    if (child > 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_on(cpu);
    work();
    std::_Exit(0);
}

// Neither of these ends waits: the task is done when it returns.
Outcome contest_without_loops(const Settings& settings, End& asks, End& answers, int close_here, int close_there) {
    const auto run_through = [](auto task) {
        const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
        return loop->run_until_done(std::move(task));
    };
    const pid_t server = start(settings.answers, [&] {
        if (close_there >= 0) ::close(close_there);
        run_through(answer(answers, settings));
    });
    if (close_here >= 0) ::close(close_here);
    run_on(settings.asks);
    std::vector<std::byte> requests = requests_of(settings);
    return measure(server, [&] { return run_through(ask(asks, settings, requests)); });
}

Outcome contest_of_sockets(const Settings& settings) {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) != 0) give_up("socketpair");
    SocketEnd asks(fds[0]);
    SocketEnd answers(fds[1]);
    return contest_without_loops(settings, asks, answers, fds[1], fds[0]);
}

Outcome contest_of_rings(const Settings& settings) {
    std::unique_ptr<Segment> ours = check(Segment::create(), "memory");
    RingEnd answers(check(Segment::adopt(UniqueFd(::dup(ours->fd()))), "memory"));
    RingEnd asks(std::move(ours));
    return contest_without_loops(settings, asks, answers, -1, -1);
}

Outcome contest_of_channels(const Settings& settings) {
    const bool is_shm = settings.over == "shm";
    const std::string place = is_shm ? fmt::format("/tmp/tarn-fabric-load-{}", ::getpid()) : "127.0.0.1:17499";
    std::unique_ptr<Transport> listens =
        check(is_shm ? ShmTransport::listen(place) : TcpTransport::listen(place), "listen");
    const pid_t server = start(settings.answers, [&] {
        const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
        const auto serve = [&]() -> Task<> {
            const auto connection = check(co_await listens->accept(), "accept");
            std::unique_ptr<Channel> channel;
            co_await join(*loop, *connection, channel, false);
            ChannelEnd end(*channel);
            co_await answer(end, settings);
            co_await channel->close();
        };
        loop->run_until_done(serve());
    });
    run_on(settings.asks);
    const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
    std::unique_ptr<Channel> channel;
    const std::unique_ptr<Connection> connection = listens->open(place);
    loop->run_until_done(join(*loop, *connection, channel, true));
    ChannelEnd end(*channel);
    std::vector<std::byte> requests = requests_of(settings);
    const Outcome outcome = measure(server, [&] { return loop->run_until_done(ask(end, settings, requests)); });
    channel->shut_down();
    loop->run_until_done(channel->close());
    return outcome;
}

Outcome copy_in_memory(const Settings& settings) {
    run_on(settings.asks);
    std::vector<std::byte> region(region_bytes, std::byte{7});
    std::vector<std::byte> into(settings.reply_bytes);
    return measure(::getpid(), [&] {
        uint64_t operations = 0;
        const uint64_t end_ns = monotonic_ns() + settings.duration_ns;
        while (operations % 64 != 0 || monotonic_ns() < end_ns) {
            // Bulk goes on in order; pages lie anywhere.
            const uint64_t number = settings.is_bulk ? operations : mix64(operations);
            const size_t at = number * settings.reply_bytes % (region_bytes - settings.reply_bytes);
            std::memcpy(into.data(), region.data() + at, into.size());
            asm volatile("" : : "r"(into.data()) : "memory");
            ++operations;
        }
        return operations;
    });
}

int run(int count, char** arguments) {
    const Settings settings(count, arguments);
    Outcome outcome;
    if (settings.over == "unix")
        outcome = contest_of_sockets(settings);
    else if (settings.over == "rings")
        outcome = contest_of_rings(settings);
    else if (settings.over == "shm" || settings.over == "tcp")
        outcome = contest_of_channels(settings);
    else if (settings.over == "memory")
        outcome = copy_in_memory(settings);
    else
        give_up("--over: rings, shm, tcp, unix or memory");
    const auto operations = static_cast<double>(outcome.operations);
    fmt::print("{{\"ops\": {}, \"iops\": {:.1f}, \"server_cpu_us_per_op\": {:.3f}}}\n", outcome.operations,
               operations / outcome.seconds, outcome.server_cpu_us / operations);
    return 0;
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
    return tarn::run(count, arguments);
}
