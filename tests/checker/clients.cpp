#include "tests/checker/clients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tiers/page.hpp"

namespace tarn::checker {

using namespace std::chrono_literals;

namespace {

constexpr size_t hot_page_count = 16;
constexpr uint64_t hot_page_distance = 37 << 20;  // in different ranges, so with different homes
constexpr unsigned hot_percent = 70;
constexpr unsigned flush_percent = 3;

using PageBytes = std::array<std::byte, page_size>;

}  // namespace

Registers::Registers(uint64_t volume_size_bytes)
    : page_count_(volume_size_bytes / page_size), whole_count_(hot_page_count - 3) {
    for (size_t i = 0; i < hot_page_count; ++i)
        hot_pages_.push_back((hot_page_distance / page_size * i + i) % page_count_);
}

bool Registers::is_hot(const Register& where) const {
    return std::ranges::find(hot_pages_, where.offset_bytes / page_size) != hot_pages_.end();
}

Registers::Choice Registers::pick(std::mt19937_64& random, bool for_reading) const {
    const bool hot = random() % 100 < hot_percent;
    const size_t index = random() % hot_pages_.size();
    const uint64_t page = hot ? hot_pages_[index] : random() % page_count_;
    const auto found = std::ranges::find(hot_pages_, page);
    const bool in_sectors =
        found != hot_pages_.end() && static_cast<size_t>(found - hot_pages_.begin()) >= whole_count_;
    if (!in_sectors) return {{.offset_bytes = page * page_size, .size_bytes = page_size}};
    Choice sectors;
    for (uint64_t offset = 0; offset < page_size; offset += sector_size)
        sectors.push_back({.offset_bytes = page * page_size + offset, .size_bytes = sector_size});
    if (for_reading && random() % 2 == 0) return sectors;
    return {sectors[random() % sectors.size()]};
}

Clients::Clients(std::vector<HostUnderTest> hosts, uint64_t volume_size_bytes, uint64_t seed)
    : hosts_(std::move(hosts)), registers_(volume_size_bytes) {
    for (size_t host = 0; host < hosts_.size(); ++host) {
        for (const std::string& endpoint : hosts_[host].endpoints) {
            auto client = std::make_unique<Client>();
            client->id = static_cast<unsigned>(clients_.size()) + 1;
            client->host = host;
            client->endpoint = endpoint;
            client->random.seed(seed * 1000 + client->id);
            clients_.push_back(std::move(client));
        }
    }
}

Clients::~Clients() {
    for (std::thread& thread : threads_) thread.join();
}

void Clients::start() {
    stopping_ = false;
    running_ = static_cast<unsigned>(clients_.size());
    for (const auto& client : clients_) {
        threads_.emplace_back([this, &each = *client] {
            run(each);
            const std::lock_guard guard(mutex_);
            --running_;
            changed_.notify_all();
        });
    }
}

bool Clients::stop(std::chrono::seconds patience) {
    std::unique_lock guard(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(guard, patience, [&] { return running_ == 0; })) return false;
    guard.unlock();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return true;
}

void Clients::set_up(size_t host, bool up) {
    const std::lock_guard guard(mutex_);
    hosts_[host].up = up;
    changed_.notify_all();
}

std::string Clients::say() {
    std::string text;
    for (const auto& client : clients_)
        if (const char* const doing = client->doing.load())
            text += fmt::format("client {} on host {} ({}) still {}\n", client->id, hosts_[client->host].name,
                                client->endpoint, doing);
    return text;
}

std::string Clients::torn() {
    const std::lock_guard guard(mutex_);
    return torn_;
}

bool Clients::has_session(Client& client) {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return stopping_ || hosts_[client.host].up; });
    if (stopping_) return false;
    guard.unlock();
    if (!client.session) {
        client.doing = "opens the volume";
        client.session = open_session(client.endpoint);
        client.doing = nullptr;
    }
    if (client.session) return true;
    guard.lock();
    changed_.wait_for(guard, 50ms);  // it is only just starting
    return false;
}

void Clients::run(Client& client) {
    for (;;) {
        {
            const std::lock_guard guard(mutex_);
            if (stopping_ || !torn_.empty()) return;
        }
        if (!has_session(client)) continue;
        if (client.random() % 100 < flush_percent)
            flush(client);
        else if (client.random() % 2 == 0)
            write(client);
        else
            (void)read(client, registers_.pick(client.random, true));
    }
}

void Clients::write(Client& client) {
    const Register where = registers_.pick(client.random, false).front();
    const Value value = uint64_t{client.id} << 40 | ++client.written;
    alignas(page_size) PageBytes bytes;
    for (size_t i = 0; i < where.size_bytes; i += sizeof value) std::memcpy(&bytes[i], &value, sizeof value);
    Operation operation{.is_write = true, .value = value, .invoked = Recorder::now(), .client = client.id};
    client.doing = "writes";
    const bool done = client.session->write(where.offset_bytes, std::span(bytes).first(where.size_bytes));
    client.doing = nullptr;
    if (done)
        operation.ended = Recorder::now();
    else
        client.session.reset();
    recorder_.add(where, operation);
}

bool Clients::read(Client& client, const Registers::Choice& choice) {
    alignas(page_size) PageBytes bytes;
    const std::span whole = std::span(bytes).first(choice.size() * choice.front().size_bytes);
    const Nanoseconds invoked = Recorder::now();
    client.doing = "reads";
    const bool done = client.session->read(choice.front().offset_bytes, whole);
    client.doing = nullptr;
    if (!done) {
        client.session.reset();
        return false;
    }
    const Nanoseconds ended = Recorder::now();
    for (size_t i = 0; i < choice.size(); ++i) {
        const std::span held = whole.subspan(i * choice[i].size_bytes, choice[i].size_bytes);
        Value value = 0;
        std::memcpy(&value, held.data(), sizeof value);
        for (size_t at = 0; at < held.size(); at += sizeof value) {
            if (std::memcmp(&held[at], &value, sizeof value) == 0) continue;
            const std::lock_guard guard(mutex_);
            torn_ = fmt::format("client {} read half of one write at byte {} of the volume: first {:x}", client.id,
                                choice[i].offset_bytes + at, value);
            return false;
        }
        recorder_.add(choice[i],
                      {.is_write = false, .value = value, .invoked = invoked, .ended = ended, .client = client.id});
    }
    return true;
}

void Clients::flush(Client& client) {
    const Nanoseconds invoked = Recorder::now();
    client.doing = "flushes";
    const bool done = client.session->flush();
    client.doing = nullptr;
    if (done)
        recorder_.add_flush({.invoked = invoked, .ended = Recorder::now()});
    else
        client.session.reset();
}

// One client a host; each has a share of the cold registers.
bool Clients::read_all() {
    std::vector<Register> touched;
    for (const auto& [where, history] : recorder_.histories()) touched.push_back(where);
    std::atomic<bool> all = true;
    std::vector<std::thread> readers;
    for (size_t host = 0; host < hosts_.size(); ++host) {
        readers.emplace_back([&, host] {
            Client& client = **std::ranges::find_if(clients_, [&](const auto& each) { return each->host == host; });
            for (size_t i = 0; i < touched.size() && all; ++i) {
                if (!registers_.is_hot(touched[i]) && i % hosts_.size() != host) continue;
                if (!client.session) client.session = open_session(client.endpoint);
                if (!client.session || !read(client, {touched[i]})) {
                    // A session from before a loss may be refused what it lost; a new one is not.
                    client.session = open_session(client.endpoint);
                    if (!client.session || !read(client, {touched[i]})) all = false;
                }
            }
        });
    }
    for (std::thread& reader : readers) reader.join();
    return all;
}

// A flush covers the whole volume: one is enough. A session from before a loss is refused for ever.
bool Clients::flush_once() {
    for (const auto& client : clients_) {
        if (client->session && client->session->flush()) return true;
        client->session = open_session(client->endpoint);
        if (client->session && client->session->flush()) return true;
    }
    return false;
}

}  // namespace tarn::checker
