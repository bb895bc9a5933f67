// SearchState: a state of the exhaustive search: three hosts, one page, and the messages under way.
//
// The hosts run the same Stripe and flush objects as tarnd. The network is a set: any message may come next, except
// those that a new link's hello messages must precede. A world is a plain value: copied as far as it differs, changed
// by one step, and identified by its digest.
//
//   search_state_steps.cpp     what may happen, and what must hold after it
//   search_state_effects.cpp  the actions of stripes and flush parts
//   search_state_spent.cpp     messages that have nothing to say any more
//   search_state_digest.cpp    what makes two worlds differ
//
// One client per host has one operation at a time. Work within a host takes no time: accesses that find the page, reads
// of home's bytes, quiet frames. The accesses of woken operations, the store's flushes and the records of losses are
// steps of their own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "coherence/executor/executor.hpp"
#include "coherence/membership/range_map.hpp"
#include "coherence/membership/recovery.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tests/sim/explore/digest.hpp"

namespace tarn::sim {

class Canonical;

inline constexpr HostId world_hosts = 3;

struct Bounds {
    unsigned operations = 6;
    unsigned crashes = 1;
    unsigned under_way = 99;     // an operation begins only while at most this many messages are
    bool hello_at_once = false;  // messages over a new link arrive in one step, when the host restarts
    bool reads = true;
    bool flushes = true;
    bool evictions = true;
    bool whole_writes = true;
};

class SearchState {
  public:
    explicit SearchState(const Bounds& bounds);

    enum class What : uint8_t {
        read,
        write,
        write_whole,
        evict,
        flush,
        deliver,
        serve,
        store_flushed,
        lost,
        crash,
        restart
    };
    struct Step {
        What what{};
        HostId host = 0;
        uint8_t index = 0;     // of the message, woken operation or store flush
        uint32_t message = 0;  // the number of the delivered message
        bool is_idle = false;  // the message is spent: nothing may change
    };
    void steps(const Bounds& bounds, std::vector<Step>& into) const;
    void take(const Bounds& bounds, const Step& step);
    std::string describe(const Step& step) const;
    // Whether the order of the two does not matter, now and later: a message to a host, and a step of another host.
    bool commutes(const Bounds& bounds, const Step& delivery, const Step& other) const;

    // The checks of states in which nothing moves any more; the others are made in take(). Both throw Failure.
    void check_end() const;
    bool is_quiet() const;
    // Equal for worlds that behave alike, apart from how many operations have begun.
    uint64_t digest() const;
    unsigned started() const { return started_; }

  private:
    class Effects;
    static constexpr PageId page = PageId::of(3, 0);  // homed at host 0

    using Version = uint8_t;
    static constexpr Version garbage = 0xff;

    struct Frame {
        bool used = false;
        Version version = garbage;
        bool dirty = false;
        bool writing = false;
        uint32_t lost = 0;
        protocol::Ownership access = protocol::Ownership::none;
    };
    static constexpr FrameId frames_max = 8;
    struct Bytes {
        Version version = 0;
        protocol::PageVersion page_version;
    };
    struct Woken {
        FrameId frame;
        What operation;
    };
    struct StoreFlush {
        uint64_t ticket;
        Bytes bytes;
    };
    struct Host {
        protocol::Stripe stripe;
        protocol::FlushHome flush_home;
        protocol::FlushHolder flush_holder;
        protocol::FlushRequester flush_requester;
        std::array<Frame, frames_max> frames{};
        FrameId bound = no_frame;
        bool is_up = true;
        bool loss_due = false;
        bool is_busy = false;  // the client has an operation under way
        What operation{};
        protocol::SessionId session = 1;
        Version cover = 0;  // of the flush under way
        Incarnation incarnation = 1;
        std::array<Incarnation, world_hosts> met{1, 1, 1};
        Recovery recovery;
        std::vector<Woken> woken;
        std::vector<StoreFlush> store_flushes;
        // Home's.
        Bytes home_bytes;
        Bytes stored;
        uint32_t loss_generation = 0;
        uint32_t lost = 0;  // the generation in which the page last lost writes

        explicit Host(HostId id);
    };
    // The hosts of a world, copied only as far as they differ: a change gives a host a stamp that no other one has.
    class Hosts {
      public:
        Hosts();
        const Host& operator[](HostId id) const { return slots_[id].host; }
        Host& change(HostId id) {
            slots_[id].stamp = ++last_stamp_;
            return slots_[id].host;
        }
        // What is said of it in the digest.
        const protocol::Digest& digest(HostId id) const;

      private:
        struct Slot {
            Host host;
            uint64_t stamp = 0;
            mutable protocol::Digest digest{};
            mutable uint64_t digest_stamp = 0;

            explicit Slot(HostId id) : host(id), stamp(++last_stamp_) {}
            Slot(const Slot&) = default;
            Slot& operator=(const Slot& other);
        };
        std::vector<Slot> slots_;
        static inline uint64_t last_stamp_ = 0;
    };
    struct InFlight {
        protocol::Message message;
        HostId from;
        HostId to;
        Version version = garbage;
        bool of_hello = false;
        bool ends_hello = false;
        uint32_t number = 0;
    };
    struct Write {
        Version version = 0;
        HostId writer = no_host;
        Incarnation writer_incarnation = 0;
        Incarnation home_incarnation = 0;
        protocol::Verifier noted = 0;
    };

    // search_state_steps.cpp
    void start(HostId id, What operation);
    void access(HostId id, What operation, FrameId frame);
    void end_operation(HostId id) { hosts_.change(id).is_busy = false; }
    void deliver(size_t index);
    void crash(HostId id, bool writes_behind);
    void restart(HostId id);
    void say_hello();
    bool may_come(const InFlight& each) const;
    bool is_idle_end(const InFlight& each) const;
    void end_idle_hellos();
    void hello(HostId id, HostId peer);
    void hello_ended(HostId from, HostId to);
    void hear_own_home(HostId id);
    bool may_be_lost(const Write& write) const;
    bool write_home_lives(const Write& write) const;
    void check_read(Version found, uint32_t mark);
    void check_state() const;

    // search_state_spent.cpp
    bool is_spent(const InFlight& each) const;
    bool is_old_news(HostId to) const;
    bool is_over(HostId requester, protocol::RequestId id) const;
    bool is_spent_free(const InFlight& each) const;
    size_t under_way() const;

    // search_state_effects.cpp
    void step(HostId id, const protocol::Event& first);
    void perform_flush(HostId id, const protocol::FlushActions& actions);
    void answer_flush_ask(HostId id, const protocol::Message& ask);
    void deliver_flush(HostId to, const protocol::Message& message);
    void send(HostId from, HostId to, protocol::Message message, Version version = garbage);
    FrameId allocate(HostId id);

    // search_state_digest.cpp
    static void record_host(HostId id, const Host& host, protocol::Digest& digest);
    static void record_message(const InFlight& each, protocol::Digest& digest);
    void record_log(const Canonical& known, protocol::Digest& digest) const;

    protocol::Verifier verifier() const;

    Hosts hosts_;
    std::vector<InFlight> network_;
    std::vector<Write> log_{Write{}};
    Version last_version_ = 0;
    Version flushed_ = 0;
    uint32_t last_message_ = 0;
    uint8_t started_ = 0;
    uint8_t crashed_ = 0;
    uint8_t crashes_left_;
    HostId saying_hello_to_ = no_host;
};

}  // namespace tarn::sim
