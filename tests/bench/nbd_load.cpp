// nbd_load: loads an NBD server over one connection at the least cost to itself, and prints what it saw as JSON.
//
//   nbd_load (--unix PATH | --tcp HOST:PORT) [--export NAME] [--depth 32] [--block 4096] [--read-percent 100]
//            [--sequential 0|1] [--once 0|1] [--size BYTES] [--seconds 5] [--server-pid PID]
//
// once: in sequence from the first block to the last, however long it takes.
//
// Requests go out in one send and replies come in by large receives, so that the server and not the client is
// measured (fio's engine costs 3 us per request). Simple replies only. client_cpu_us_per_op is this process's user and
// system time; server_cpu_us_per_op, with --server-pid, that of all the server's threads, in clock ticks of 10 ms.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "frontends/nbd/wire.hpp"
#include "tests/bench/cpu_time.hpp"
#include "utils/clock.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {
namespace {

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "nbd_load: {}\n", text);
    std::exit(1);
}

struct Settings {
    std::string unix_path;
    std::string tcp_address;
    std::string export_name;
    unsigned depth = 32;
    uint32_t block_bytes = 4096;
    unsigned read_percent = 100;
    bool sequential = false;
    bool once = false;
    uint64_t size_bytes = 0;  // 0: all of the export
    double seconds = 5;
    uint64_t server_pid = 0;
};

Settings parse(int count, char** arguments) {
    Settings settings;
    std::map<std::string, std::string> values;
    for (int i = 1; i + 1 < count; i += 2) values[arguments[i]] = arguments[i + 1];
    for (const auto& [key, value] : values) {
        if (key == "--unix")
            settings.unix_path = value;
        else if (key == "--tcp")
            settings.tcp_address = value;
        else if (key == "--export")
            settings.export_name = value;
        else if (key == "--depth")
            settings.depth = static_cast<unsigned>(std::stoul(value));
        else if (key == "--block")
            settings.block_bytes = static_cast<uint32_t>(std::stoul(value));
        else if (key == "--read-percent")
            settings.read_percent = static_cast<unsigned>(std::stoul(value));
        else if (key == "--sequential")
            settings.sequential = value == "1";
        else if (key == "--once")
            settings.sequential = settings.once = value == "1";
        else if (key == "--size")
            settings.size_bytes = std::stoull(value);
        else if (key == "--seconds")
            settings.seconds = std::stod(value);
        else if (key == "--server-pid")
            settings.server_pid = std::stoull(value);
        else
            give_up("unknown option " + key);
    }
    if (settings.depth == 0 || settings.block_bytes == 0) give_up("depth and block must not be 0");
    return settings;
}

UniqueFd connect_to(const Settings& settings) {
    if (!settings.unix_path.empty()) {
        UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        settings.unix_path.copy(address.sun_path, sizeof address.sun_path - 1);
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            give_up("cannot connect to " + settings.unix_path);
        return socket;
    }
    const size_t colon = settings.tcp_address.rfind(':');
    if (colon == std::string::npos) give_up("--unix PATH or --tcp HOST:PORT is needed");
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const std::string port = settings.tcp_address.substr(colon + 1);
    if (::getaddrinfo(settings.tcp_address.substr(0, colon).c_str(), port.c_str(), &hints, &list) != 0)
        give_up("no such address");
    UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) give_up("cannot connect");
    ::freeaddrinfo(list);
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
}

void send_all(int socket, const std::vector<std::byte>& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
        const ssize_t count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR) give_up("the server closed the connection");
        if (count > 0) sent += static_cast<size_t>(count);
    }
}

void receive_all(int socket, std::byte* into, size_t size) {
    while (size > 0) {
        const ssize_t count = ::recv(socket, into, size, 0);
        if (count <= 0) give_up("the server closed the connection");
        into += count;
        size -= static_cast<size_t>(count);
    }
}

template <std::unsigned_integral T>
void append(std::vector<std::byte>& to, T value) {
    to.resize(to.size() + sizeof value);
    store_big(to.data() + to.size() - sizeof value, value);
}

// Asks for the export by EXPORT_NAME, which every server knows. Returns its size.
uint64_t negotiate(int socket, const std::string& name) {
    std::byte bytes[18];
    receive_all(socket, bytes, sizeof bytes);
    if (load_big<uint64_t>(bytes) != greeting_magic) give_up("this is no NBD server");
    std::vector<std::byte> hello;
    append(hello, client_fixed_newstyle | client_no_zeroes);
    append(hello, option_magic);
    append(hello, static_cast<uint32_t>(Option::export_name));
    append(hello, static_cast<uint32_t>(name.size()));
    for (const char byte : name) hello.push_back(static_cast<std::byte>(byte));
    send_all(socket, hello);
    receive_all(socket, bytes, 10);
    return load_big<uint64_t>(bytes);
}

double server_cpu_us(const Settings& settings) {
    if (settings.server_pid == 0) return 0;
    const std::optional<double> used_us = bench::cpu_us_of(settings.server_pid);
    if (!used_us) give_up("no such server process");
    return *used_us;
}

class Load {
  public:
    Load(const Settings& settings, int socket, uint64_t export_bytes)
        : settings_(settings), socket_(socket), slots_(settings.depth) {
        uint64_t size_bytes = settings.size_bytes ? std::min(settings.size_bytes, export_bytes) : export_bytes;
        blocks_ = size_bytes / settings.block_bytes;
        if (blocks_ == 0) give_up("the export is smaller than a block");
        received_.resize(std::max<size_t>(512 * 1024, 2 * (settings.block_bytes + simple_reply_size)));
        latencies_ns_.reserve(1 << 24);
    }

    void run() {
        const uint64_t start_ns = monotonic_ns();
        const uint64_t end_ns = start_ns + static_cast<uint64_t>(settings_.seconds * 1e9);
        uint64_t now_ns = start_ns;
        for (uint32_t slot = 0; slot < settings_.depth && goes_on(); ++slot) ask(slot, now_ns);
        while (in_flight_ > 0) {
            flush();
            receive();
            now_ns = monotonic_ns();
            take_replies(now_ns, settings_.once || now_ns < end_ns);
        }
        seconds_ = static_cast<double>(now_ns - start_ns) / 1e9;
    }

    void print(double client_us, double server_us) {
        const auto count = static_cast<double>(latencies_ns_.size());
        fmt::print(
            "{{\"ops\": {}, \"seconds\": {:.3f}, \"iops\": {:.0f}, \"p50_us\": {:.1f}, \"p99_us\": {:.1f}, "
            "\"client_cpu_us_per_op\": {:.2f}",
            latencies_ns_.size(), seconds_, count / seconds_, percentile_us(0.50), percentile_us(0.99),
            client_us / count);
        if (settings_.server_pid) fmt::print(", \"server_cpu_us_per_op\": {:.2f}", server_us / count);
        fmt::print("}}\n");
    }

  private:
    struct Slot {
        uint64_t start_ns;
        bool read;
    };

    uint64_t random() {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        return random_ ^= random_ << 17;
    }

    bool goes_on() const { return !settings_.once || asked_ < blocks_; }
    uint64_t next_block() { return (settings_.sequential ? asked_++ : random()) % blocks_; }

    void ask(uint32_t slot, uint64_t now_ns) {
        const bool read = random() % 100 < settings_.read_percent;
        slots_[slot] = {now_ns, read};
        append(to_send_, request_magic);
        append(to_send_, uint16_t{0});
        append(to_send_, static_cast<uint16_t>(read ? Command::read : Command::write));
        append(to_send_, uint64_t{slot});
        append(to_send_, next_block() * settings_.block_bytes);
        append(to_send_, settings_.block_bytes);
        if (!read) to_send_.resize(to_send_.size() + settings_.block_bytes, static_cast<std::byte>(slot));
        ++in_flight_;
    }

    void flush() {
        send_all(socket_, to_send_);
        to_send_.clear();
    }

    void receive() {
        const ssize_t count = ::recv(socket_, received_.data() + filled_, received_.size() - filled_, 0);
        if (count <= 0) give_up("the server closed the connection");
        filled_ += static_cast<size_t>(count);
    }

    void take_replies(uint64_t now_ns, bool go_on) {
        size_t at = 0;
        while (filled_ - at >= simple_reply_size) {
            const std::byte* const reply = received_.data() + at;
            if (load_big<uint32_t>(reply) != simple_reply_magic) give_up("bytes that are no reply");
            if (const auto error = load_big<uint32_t>(reply + 4)) give_up(fmt::format("error {}", error));
            const auto slot = static_cast<uint32_t>(load_big<uint64_t>(reply + 8));
            const size_t size = simple_reply_size + (slots_.at(slot).read ? settings_.block_bytes : 0);
            if (filled_ - at < size) break;
            at += size;
            --in_flight_;
            latencies_ns_.push_back(
                static_cast<uint32_t>(std::min<uint64_t>(now_ns - slots_[slot].start_ns, UINT32_MAX)));
            if (go_on && goes_on()) ask(slot, now_ns);
        }
        std::copy(received_.begin() + static_cast<ptrdiff_t>(at), received_.begin() + static_cast<ptrdiff_t>(filled_),
                  received_.begin());
        filled_ -= at;
    }

    double percentile_us(double part) {
        const auto at = static_cast<ptrdiff_t>(part * static_cast<double>(latencies_ns_.size() - 1));
        std::nth_element(latencies_ns_.begin(), latencies_ns_.begin() + at, latencies_ns_.end());
        return static_cast<double>(latencies_ns_[static_cast<size_t>(at)]) / 1e3;
    }

    const Settings& settings_;
    int socket_;
    uint64_t blocks_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::byte> to_send_;
    std::vector<std::byte> received_;
    size_t filled_ = 0;
    unsigned in_flight_ = 0;
    uint64_t asked_ = 0;
    uint64_t random_ = 0x9e3779b97f4a7c15;
    std::vector<uint32_t> latencies_ns_;
    double seconds_ = 0;
};

int run(int count, char** arguments) {
    const Settings settings = parse(count, arguments);
    const UniqueFd socket = connect_to(settings);
    const uint64_t export_bytes = negotiate(socket.get(), settings.export_name);
    Load load(settings, socket.get(), export_bytes);
    const double client_us = bench::own_cpu_us();
    const double server_us = server_cpu_us(settings);
    load.run();
    load.print(bench::own_cpu_us() - client_us, server_cpu_us(settings) - server_us);
    return 0;
}

}  // namespace
}  // namespace tarn::nbd

int main(int count, char** arguments) {
    return tarn::nbd::run(count, arguments);
}
