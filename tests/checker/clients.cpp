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
constexpr unsigned run_percent = 15;
constexpr unsigned flush_percent = 3;
constexpr unsigned zero_percent = 8;
constexpr unsigned write_through_percent = 5;
constexpr uint64_t range_pages = (64 << 20) / page_size;

using RequestBytes = std::array<std::byte, Registers::run_max * page_size>;

uint64_t size_of(const Registers::Choice& choice) {
    return choice.size() * choice.front().size_bytes;
}

}  // namespace

Registers::Registers(uint64_t volume_size_bytes)
    : page_count_(volume_size_bytes / page_size), whole_count_(hot_page_count - 3) {
    for (size_t i = 0; i < hot_page_count; ++i)
        hot_pages_.push_back((hot_page_distance / page_size * i + i) % page_count_);
    // Within a range, and across its end: of two homes.
    hot_runs_ = {hot_pages_.front(), range_pages - 2};
    for (const uint64_t first : hot_runs_)
        for (uint64_t page = first; page < first + run_max; ++page)
            if (std::ranges::find(hot_pages_, page) == hot_pages_.end())
                hot_pages_.insert(hot_pages_.begin() + static_cast<ptrdiff_t>(whole_count_++), page);
}

Registers::Choice Registers::pick_run(std::mt19937_64& random) const {
    const uint64_t first = hot_runs_[random() % hot_runs_.size()] + random() % (run_max - 1);
    const uint64_t end =
        hot_runs_[0] <= first && first < hot_runs_[0] + run_max ? hot_runs_[0] + run_max : hot_runs_[1] + run_max;
    Choice run;
    for (uint64_t page = first; page < end; ++page)
        run.push_back({.offset_bytes = page * page_size, .size_bytes = page_size});
    return run;
}

bool Registers::is_hot(const Register& where) const {
    return std::ranges::find(hot_pages_, where.offset_bytes / page_size) != hot_pages_.end();
}

Registers::Choice Registers::pick(std::mt19937_64& random, bool for_reading) const {
    if (random() % 100 < run_percent) return pick_run(random);
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

bool Clients::stop(std::chrono::seconds timeout) {
    std::unique_lock guard(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(guard, timeout, [&] { return running_ == 0; })) return false;
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
    if (open(client)) return true;
    guard.lock();
    changed_.wait_for(guard, 50ms);  // it is only just starting
    return false;
}

bool Clients::open(Client& client) {
    if (client.session) return true;
    client.doing = "opens the volume";
    client.session = open_session(client.endpoint);
    client.doing = nullptr;
    if (client.session) client.session_number = recorder_.add_session();
    return client.session != nullptr;
}

void Clients::close_sessions() {
    for (const auto& client : clients_) client->session.reset();
}

void Clients::say_wrong(std::string what) {
    const std::lock_guard guard(mutex_);
    torn_ = std::move(what);
}

void Clients::run(Client& client) {
    for (;;) {
        {
            const std::lock_guard guard(mutex_);
            if (stopping_ || !torn_.empty()) return;
        }
        if (!has_session(client)) continue;
        const uint64_t what = client.random() % 100;
        if (what < flush_percent)
            flush(client);
        else if (what < flush_percent + zero_percent)
            zero(client);
        else if (client.random() % 2 == 0)
            write(client);
        else
            (void)read(client, registers_.pick(client.random, true));
    }
}

// A request of several pages is one operation for each of them.
void Clients::record_writes(Client& client, const Registers::Choice& choice, Operation operation, bool done) {
    operation.is_write = true;
    operation.client = client.id;
    if (done) operation.ended = Recorder::now();
    for (size_t i = 0; i < choice.size(); ++i) {
        recorder_.add(choice[i], operation);
        if (operation.value != 0) ++operation.value;
    }
    if (!done) client.session.reset();
}

void Clients::write(Client& client) {
    const Registers::Choice choice = registers_.pick(client.random, false);
    const Value value = uint64_t{client.id} << 40 | (client.written + 1);
    client.written += choice.size();
    alignas(page_size) RequestBytes bytes;
    const std::span whole = std::span(bytes).first(size_of(choice));
    for (size_t i = 0; i < whole.size(); i += sizeof value) {
        const Value here = value + i / choice.front().size_bytes;
        std::memcpy(&bytes[i], &here, sizeof here);
    }
    const bool is_through = client.random() % 100 < write_through_percent;
    Operation operation{.value = value, .invoked = Recorder::now(), .is_durable = is_through};
    // A file's are another session's.
    if (!is_through || client.session->connection_count() > 1) operation.session = client.session_number;
    client.doing = "writes";
    const bool done = is_through ? client.session->write_through(choice.front().offset_bytes, whole)
                                 : client.session->write(choice.front().offset_bytes, whole);
    client.doing = nullptr;
    record_writes(client, choice, operation, done);
}

void Clients::zero(Client& client) {
    const Registers::Choice choice = registers_.pick(client.random, false);
    // A part of a page need not be trimmed.
    const bool is_whole = choice.front().size_bytes == page_size;
    const Zeroing how = is_whole && client.random() % 2 == 0 ? Zeroing::trim : Zeroing::zero;
    const Operation operation{.value = 0, .invoked = Recorder::now(), .session = client.session_number};
    client.doing = how == Zeroing::trim ? "trims" : "zeroes";
    const bool done = client.session->zero(choice.front().offset_bytes, size_of(choice), how);
    client.doing = nullptr;
    record_writes(client, choice, operation, done);
}

bool Clients::read(Client& client, const Registers::Choice& choice) {
    alignas(page_size) RequestBytes bytes;
    const std::span whole = std::span(bytes).first(size_of(choice));
    const Nanoseconds invoked = Recorder::now();
    client.doing = "reads";
    const bool done = client.session->read(choice.front().offset_bytes, whole);
    client.doing = nullptr;
    if (!done) {
        // The session may go on with what was not lost; but not for ever, or it would do little else.
        const bool was_refused = client.session->was_refused();
        if (was_refused) recorder_.add_refused_read();
        if (!was_refused || client.random() % 8 == 0) client.session.reset();
        return false;
    }
    const Nanoseconds ended = Recorder::now();
    for (size_t i = 0; i < choice.size(); ++i) {
        const std::span held = whole.subspan(i * choice[i].size_bytes, choice[i].size_bytes);
        Value value = 0;
        std::memcpy(&value, held.data(), sizeof value);
        for (size_t at = 0; at < held.size(); at += sizeof value) {
            if (std::memcmp(&held[at], &value, sizeof value) == 0) continue;
            say_wrong(fmt::format("client {} read half of one write at byte {} of the volume: first {:x}", client.id,
                                  choice[i].offset_bytes + at, value));
            return false;
        }
        recorder_.add(choice[i], {.is_write = false,
                                  .value = value,
                                  .invoked = invoked,
                                  .ended = ended,
                                  .client = client.id,
                                  .session = client.session_number});
    }
    return true;
}

void Clients::flush(Client& client) {
    const Nanoseconds invoked = Recorder::now();
    client.doing = "flushes";
    const bool done = client.session->flush();
    if (done) {
        recorder_.add_flush({.invoked = invoked, .ended = Recorder::now(), .session = client.session_number});
    } else {
        // Over each of its connections.
        for (size_t i = 0; i < client.session->connection_count() && client.session->was_refused(); ++i) {
            recorder_.add_refused_flush();
            if (client.session->flush())
                say_wrong(fmt::format("a flush of client {} succeeded after one that had failed", client.id));
        }
        client.session.reset();
    }
    client.doing = nullptr;
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
                if (open(client) && read(client, {touched[i]})) continue;
                // A session from before a loss may be refused what it lost; a new one is not.
                client.session.reset();
                if (!open(client) || !read(client, {touched[i]})) all = false;
            }
        });
    }
    for (std::thread& reader : readers) reader.join();
    return all;
}

void Clients::flush_and_close() {
    for (const auto& client : clients_)
        if (client->session) flush(*client);
    close_sessions();
}

// A flush covers the whole volume: one is enough.
bool Clients::flush_once() {
    for (const auto& client : clients_)
        if (open(*client) && client->session->flush()) return true;
    return false;
}

}  // namespace tarn::checker
