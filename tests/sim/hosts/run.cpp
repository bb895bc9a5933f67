#include "tests/sim/hosts/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tarn::hosts_sim {

namespace {

constexpr size_t frame_count = 512;
constexpr uint64_t flushed_bytes = uint64_t{256} << 20;
constexpr unsigned steps_per_round = 60;

}  // namespace

Run::Run(uint64_t seed, Counts& counts)
    : counts_(counts),
      kernel_(seed),
      network_(this),
      cut_percent_(kernel_.random().chance(70) ? 30 : 0),
      delay_max_ns_(kernel_.random().chance(50) ? 200'000 : 5'000'000) {
    // Few pages are fought for; many do not fit into memory.
    const uint64_t count = kernel_.random().chance(50) ? 6 : 1800;
    for (uint64_t i = 0; i < count; ++i) pages_.push_back((i % host_count) * pages_per_range_default + i / host_count);
    histories_.resize(pages_.size() * sectors);
    for (HostId host = 0; host < host_count; ++host) {
        hosts_.push_back(std::make_unique<SimHost>(kernel_, network_, host, frame_count));
        for (unsigned i = 0; i < 2; ++i)
            clients_.push_back(
                std::make_unique<Client>(Client{.host = host, .number = static_cast<unsigned>(clients_.size())}));
    }
}

Run::~Run() {
    for (const auto& host : hosts_)
        if (host->is_up()) host->crash();
}

void Run::carry(size_t count, std::function<void(size_t)> arrive) {
    while (count > 0) {
        const size_t piece = kernel_.random().chance(50) ? count : kernel_.random().between(1, count);
        kernel_.after(kernel_.random().below(delay_max_ns_), [arrive, piece] { arrive(piece); });
        count -= piece;
    }
}

uint64_t Run::draw_page() {
    return kernel_.random().below(pages_.size());
}

std::vector<checker::Operation>& Run::history_of(uint64_t page, unsigned sector) {
    return histories_[page * sectors + sector];
}

Task<bool> Run::write(Client& client, CachedVolume& volume, uint64_t page) {
    const auto first = static_cast<unsigned>(kernel_.random().below(sectors));
    const auto count = static_cast<unsigned>(kernel_.random().between(1, sectors - first));
    const uint64_t value = ++next_value_;
    const std::vector<uint64_t> words(count * sector_size / sizeof value, value);
    const uint64_t invoked = clock();
    for (unsigned sector = first; sector < first + count; ++sector)
        history_of(page, sector)
            .push_back({.is_write = true,
                        .value = value,
                        .invoked = invoked,
                        .client = client.number,
                        .session = client.session});
    const uint64_t offset = pages_[page] * page_size + first * sector_size;
    const auto bytes = std::as_bytes(std::span(words));
    Result<> written;
    if (!volume.try_write(offset, bytes)) written = co_await volume.write(offset, bytes);
    if (!written) co_return false;  // it may yet take effect
    const uint64_t ended = clock();
    for (unsigned sector = first; sector < first + count; ++sector)
        for (checker::Operation& operation : history_of(page, sector))
            if (operation.value == value && operation.is_write) operation.ended = ended;
    co_return true;
}

Task<bool> Run::read(Client& client, CachedVolume& volume, uint64_t page) {
    std::vector<uint64_t> words(sectors * sector_size / sizeof(uint64_t));
    const uint64_t invoked = clock();
    const uint64_t offset = pages_[page] * page_size;
    const auto bytes = std::as_writable_bytes(std::span(words));
    Result<> done;
    if (!volume.try_read(offset, bytes)) done = co_await volume.read(offset, bytes);
    if (!done) co_return false;
    const uint64_t ended = clock();
    for (unsigned sector = 0; sector < sectors; ++sector) {
        const auto found = std::span(words).subspan(sector * (words.size() / sectors), words.size() / sectors);
        if (std::ranges::any_of(found, [&](uint64_t word) { return word != found.front(); }))
            fail(fmt::format("a sector of page {} is torn", pages_[page]));
        history_of(page, sector)
            .push_back({.value = found.front(),
                        .invoked = invoked,
                        .ended = ended,
                        .client = client.number,
                        .session = client.session});
    }
    co_return true;
}

Task<bool> Run::flush(Client& client, CachedVolume& volume) {
    const uint64_t invoked = clock();
    if (!co_await volume.flush_up_to(flushed_bytes)) co_return false;
    flushes_.push_back({.invoked = invoked, .ended = clock(), .session = client.session});
    ++counts_.flushes;
    co_return true;
}

Task<bool> Run::step(Client& client, CachedVolume& volume) {
    ++counts_.operations;
    const uint64_t what = kernel_.random().below(100);
    if (what < 5) co_return co_await flush(client, volume);
    if (what < 45) co_return co_await write(client, volume, draw_page());
    co_return co_await read(client, volume, draw_page());
}

Task<> Run::work(Client& client) {
    SimHost& host = *hosts_[client.host];
    while (client.left > 0 && !host.cache->abandoned()) {
        co_await host.cache->flusher().hear_from_homes();
        CachedVolume volume(*host.volumes, volume_id);
        bool good = true;
        while (good && client.left > 0 && !host.cache->abandoned()) {
            --client.left;
            good = co_await step(client, volume);
            if (kernel_.random().chance(20)) co_await Yield(*Loop::current());
        }
        if (good) continue;
        ++counts_.failed_operations;
        ++client.session;
    }
    client.busy = false;
}

void Run::go_on(Client& client, unsigned count) {
    client.left = count;
    client.busy = true;
    hosts_[client.host]->spawn(work(client));
}

bool Run::all_idle() const {
    return std::ranges::none_of(clients_, [](const auto& client) { return client->busy; });
}

void Run::disturb() {
    if (all_idle()) return;
    if (kernel_.random().chance(cut_percent_)) {
        const uint64_t one = kernel_.random().below(host_count);
        network_.cut(SimHost::name_of(static_cast<HostId>(one)),
                     SimHost::name_of(static_cast<HostId>((one + 1) % host_count)));
        ++counts_.cuts;
    }
    kernel_.after(kernel_.random().below(50'000'000), [this] { disturb(); });
}

void Run::crash(SimHost& host) {
    const uint64_t begun = clock();
    ++counts_.crashes;
    host.crash();
    host.start();
    losses_.push_back({.begun = begun, .ended = 0});
}

std::string Run::run() {
    for (const auto& host : hosts_) host->start();
    const uint64_t rounds = kernel_.random().between(1, 3);
    for (uint64_t round = 0; round < rounds && failure_.empty(); ++round) {
        for (const auto& client : clients_) go_on(*client, steps_per_round);
        disturb();
        if (round > 0) {
            const uint64_t turns = kernel_.turn_count() + kernel_.random().below(3000);
            (void)kernel_.run_until([&] { return kernel_.turn_count() >= turns; });
            crash(*hosts_[kernel_.random().below(host_count)]);
        }
        if (!kernel_.run_until([&] { return all_idle() || !failure_.empty(); })) fail("somebody waits forever");
        if (!losses_.empty()) losses_.back().ended = clock();
    }
    if (failure_.empty()) failure_ = check();
    ++counts_.seeds;
    counts_.turns += kernel_.turn_count();
    return failure_;
}

std::string Run::check() const {
    for (size_t i = 0; i < histories_.size(); ++i)
        if (const auto wrong = checker::explain_violation(0, histories_[i], flushes_, losses_))
            return fmt::format("page {} sector {}: {}", pages_[i / sectors], i % sectors, *wrong);
    return {};
}

}  // namespace tarn::hosts_sim
