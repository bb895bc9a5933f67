#include "tests/support/in_process_transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "utils/broadcast.hpp"

namespace tarn {

namespace {

// Bytes sent and not taken yet. Never more than the reserved room, so that bytes that are read in place do not move.
struct Pipe {
    Pipe() { bytes.reserve(room); }
    void widen() { bytes.reserve(room *= 2); }
    std::span<const std::byte> arrived() const { return std::span(bytes).first(arrived_count); }
    std::vector<std::byte> bytes;
    size_t arrived_count = 0;
    size_t room = InProcessNetwork::room_bytes;
};

}  // namespace

struct InProcessNetwork::Wire {
    explicit Wire(Courier* courier_or_null) : courier(courier_or_null) {}
    void shut_down() {
        is_shut = {true, true};
        changed.announce();
    }
    Courier* const courier;
    std::array<Pipe, 2> pipes;                                       // by the end that receives
    std::array<std::map<uint64_t, std::span<std::byte>>, 2> opened;  // by the end that owns the memory, and key
    uint64_t last_key = 0;
    std::array<bool, 2> is_shut{};
    Broadcast changed;
};

// One end of a wire, which breaks with it.
class InProcessNetwork::End {
  public:
    End(std::shared_ptr<Wire> wire, size_t side) : wire_(std::move(wire)), side_(side) {}
    End(End&&) = default;
    ~End() {
        if (wire_) shut_down();
    }

    Pipe& incoming() { return wire_->pipes[side_]; }
    void drop(size_t count) {
        incoming().arrived_count -= count;
        incoming().bytes.erase(incoming().bytes.begin(), incoming().bytes.begin() + static_cast<ptrdiff_t>(count));
        wire_->changed.announce();
    }
    void widen() {
        incoming().widen();
        wire_->changed.announce();
    }
    size_t try_send(std::span<const std::byte> bytes) {
        if (is_broken()) return 0;
        Pipe& pipe = wire_->pipes[1 - side_];
        const size_t count = std::min(bytes.size(), pipe.room - pipe.bytes.size());
        pipe.bytes.insert(pipe.bytes.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
        if (count == 0) return 0;
        const auto arrive = [wire = wire_, side = 1 - side_](size_t arrived) {
            wire->pipes[side].arrived_count += arrived;
            wire->changed.announce();
        };
        if (wire_->courier)
            wire_->courier->carry(count, arrive);
        else
            arrive(count);
        return count;
    }
    Task<Result<size_t>> send(std::span<const std::byte> bytes) {
        size_t count = 0;
        while (!is_broken() && (count = try_send(bytes)) == 0) co_await wire_->changed.next(wire_->changed.count());
        if (count == 0) co_return fail(Errc::closed);
        co_return count;
    }
    // Waits until more than `count` bytes have come. Bytes sent before the other end was shut down still come.
    Task<Result<>> more_than(size_t count) {
        while (!wire_->is_shut[side_] && incoming().arrived_count <= count) {
            const bool all_has_come = incoming().arrived_count == incoming().bytes.size();
            if (wire_->is_shut[1 - side_] && all_has_come) co_return fail(Errc::closed);
            co_await wire_->changed.next(wire_->changed.count());
        }
        if (wire_->is_shut[side_]) co_return fail(Errc::closed);
        co_return Result<>{};
    }
    void shut_down() {
        wire_->is_shut[side_] = true;
        wire_->changed.announce();
    }

    RemoteRegion open(std::span<std::byte> memory) {
        const uint64_t key = ++wire_->last_key;
        wire_->opened[side_].emplace(key, memory);
        return {.size_bytes = memory.size(), .key = key};
    }
    void close(uint64_t key) { wire_->opened[side_].erase(key); }
    // The place in memory that the other end has opened.
    Result<std::span<std::byte>> at(RemoteRegion region, uint64_t offset_bytes, size_t size_bytes) {
        if (is_broken()) return fail(Errc::closed);
        const auto found = wire_->opened[1 - side_].find(region.key);
        if (found == wire_->opened[1 - side_].end()) return fail(Errc::refused, 0, "remote_memory: not open");
        const std::span<std::byte> memory = found->second;
        if (offset_bytes > memory.size() || size_bytes > memory.size() - offset_bytes)
            return fail(Errc::refused, 0, "remote_memory: beyond the region");
        return memory.subspan(offset_bytes, size_bytes);
    }
    Result<std::atomic_ref<uint64_t>> word_at(RemoteRegion region, uint64_t offset_bytes) {
        if (offset_bytes % sizeof(uint64_t) != 0) return fail(Errc::invalid, 0, "remote_memory: no aligned word");
        TRY(const std::span<std::byte> bytes, at(region, offset_bytes, sizeof(uint64_t)));
        return std::atomic_ref(*reinterpret_cast<uint64_t*>(bytes.data()));
    }

  private:
    bool is_broken() const { return wire_->is_shut[0] || wire_->is_shut[1]; }

    std::shared_ptr<Wire> wire_;
    size_t side_;
};

// Every operation takes effect as it begins.
class InProcessNetwork::Memory final : public RemoteMemory {
  public:
    explicit Memory(End& end) : end_(end) {}

    Result<RemoteRegion> open(std::span<std::byte> memory) override { return end_.open(memory); }
    Task<> close(RemoteRegion region) override {
        end_.close(region.key);
        co_return;
    }
    Task<Result<>> read(RemoteRegion region, uint64_t offset_bytes, std::span<std::byte> into) override {
        CO_TRY(const std::span<std::byte> bytes, end_.at(region, offset_bytes, into.size()));
        std::ranges::copy(bytes, into.begin());
        co_return Result<>{};
    }
    Task<Result<>> write(RemoteRegion region, uint64_t offset_bytes, std::span<const std::byte> from) override {
        CO_TRY(const std::span<std::byte> bytes, end_.at(region, offset_bytes, from.size()));
        std::ranges::copy(from, bytes.begin());
        co_return Result<>{};
    }
    Task<Result<uint64_t>> compare_swap(RemoteRegion region, uint64_t offset_bytes, uint64_t expected,
                                        uint64_t desired) override {
        CO_TRY(const std::atomic_ref<uint64_t> word, end_.word_at(region, offset_bytes));
        word.compare_exchange_strong(expected, desired);
        co_return expected;
    }
    Task<Result<uint64_t>> fetch_add(RemoteRegion region, uint64_t offset_bytes, uint64_t summand) override {
        CO_TRY(const std::atomic_ref<uint64_t> word, end_.word_at(region, offset_bytes));
        co_return word.fetch_add(summand);
    }

  private:
    End& end_;
};

class InProcessNetwork::Channel final : public tarn::Channel {
  public:
    explicit Channel(End end) : end_(std::move(end)) {}

    size_t try_send(std::span<const std::byte> bytes) override { return end_.try_send(bytes); }
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override { return end_.send(bytes); }
    Task<Result<Received>> receive(std::span<std::byte> page, size_t taken) override {
        end_.drop(taken);
        const Pipe& pipe = end_.incoming();
        if (given_ - taken == pipe.room) end_.widen();
        given_ -= taken;
        CO_TRY_VOID(co_await end_.more_than(given_));
        const size_t page_bytes = std::min(page.size(), pipe.arrived_count);
        std::copy_n(pipe.bytes.begin(), page_bytes, page.begin());
        end_.drop(page_bytes);
        given_ = pipe.arrived_count;
        co_return Received{.page_bytes = page_bytes, .bytes = pipe.arrived()};
    }
    RemoteMemory* remote_memory() override { return &memory_; }
    void shut_down() override { end_.shut_down(); }
    Task<> close() override { co_return; }

  private:
    End end_;
    Memory memory_{end_};
    size_t given_ = 0;  // bytes in the last result
};

class InProcessNetwork::Host final : public Transport {
  public:
    Host(InProcessNetwork& network, std::string name) : network_(network), name_(std::move(name)) {
        network_.hosts_[name_] = this;
    }
    ~Host() override { network_.hosts_.erase(name_); }

    Task<Result<std::unique_ptr<Connection>>> accept() override {
        while (!stopped_ && waiting_.empty()) co_await changed_.next(changed_.count());
        if (stopped_) co_return fail(Errc::cancelled);
        std::unique_ptr<Connection> connection = std::move(waiting_.front());
        waiting_.pop_front();
        co_return connection;
    }
    std::unique_ptr<Connection> open(const std::string& name) override {
        return std::make_unique<Opened>(network_, name_, name);
    }
    void stop() override {
        stopped_ = true;
        changed_.announce();
    }
    TransportKind kind() const override { return TransportKind::in_process; }

  private:
    class Opened final : public Connection {
      public:
        Opened(InProcessNetwork& network, std::string from, std::string to)
            : network_(network), from_(std::move(from)), to_(std::move(to)) {}
        explicit Opened(InProcessNetwork& network, std::string from, End end)
            : network_(network), to_(std::move(from)), end_(std::move(end)) {}

        Task<Result<>> connect() override {
            const auto found = network_.hosts_.find(to_);
            if (is_shut_ || found == network_.hosts_.end() || found->second->stopped_)
                co_return fail(Errc::io, ECONNREFUSED, "fabric.connect");
            const auto wire = std::make_shared<Wire>(network_.courier_);
            network_.wires_.emplace(std::set{from_, to_}, wire);
            end_.emplace(wire, 0);
            found->second->waiting_.push_back(std::make_unique<Opened>(network_, from_, End(wire, 1)));
            found->second->changed_.announce();
            co_return Result<>{};
        }
        Task<Result<size_t>> send(std::span<const std::byte> bytes) override { return end_->send(bytes); }
        Task<Result<size_t>> receive(std::span<std::byte> bytes) override {
            if (!co_await end_->more_than(0)) co_return size_t{0};
            const size_t count = std::min(bytes.size(), end_->incoming().arrived_count);
            std::copy_n(end_->incoming().bytes.begin(), count, bytes.begin());
            end_->drop(count);
            co_return count;
        }
        void shut_down() override {
            is_shut_ = true;
            if (end_) end_->shut_down();
        }
        void cancel() override {}  // nothing waits after shut_down()
        TransportKind kind() const override { return TransportKind::in_process; }
        std::string peer_name() const override { return to_; }
        Origin origin() const override {
            Origin origin{};
            std::copy_n(to_.begin(), std::min(to_.size(), origin.size()), origin.begin());
            return origin;
        }
        // As with a network card of several queues: it differs from one connection to the next.
        std::optional<unsigned> incoming_cpu() const override {
            return static_cast<unsigned>(network_.wires_.size() % incoming_cpu_count);
        }
        std::unique_ptr<tarn::Channel> become_channel(Loop& /*loop*/) override {
            return std::make_unique<Channel>(*std::exchange(end_, std::nullopt));
        }

      private:
        InProcessNetwork& network_;
        const std::string from_;
        const std::string to_;
        std::optional<End> end_;
        bool is_shut_ = false;
    };

    InProcessNetwork& network_;
    const std::string name_;
    std::deque<std::unique_ptr<Connection>> waiting_;
    Broadcast changed_;
    bool stopped_ = false;
};

std::unique_ptr<Transport> InProcessNetwork::join(const std::string& name) {
    return std::make_unique<Host>(*this, name);
}

void InProcessNetwork::cut(const std::string& one, const std::string& other) {
    const auto [first, end] = wires_.equal_range({one, other});
    for (auto each = first; each != end; ++each)
        if (const std::shared_ptr<Wire> wire = each->second.lock()) wire->shut_down();
    wires_.erase(first, end);
}

}  // namespace tarn
