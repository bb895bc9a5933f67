#include "tests/sim/hosts/kernel.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <deque>
#include <optional>

namespace tarn::hosts_sim {

namespace {

constexpr uint64_t begin_ns = uint64_t{1'000'000} * 1'000'000'000;
constexpr uint64_t turns_max = 3'000'000;  // of one wait: beyond that somebody goes round in circles
constexpr size_t stack_bytes = 4 << 20;    // as far as it is touched
const Kernel* present = nullptr;           // whose time it is

}  // namespace

// What a loop submits, and what becomes of it: time that passes, and eight bytes from the descriptor by which other
// threads wake it. Nothing else below a simulated host asks the kernel.
class Kernel::Ring final : public OperationRing {
  public:
    explicit Ring(Kernel& kernel) : kernel_(kernel) {}

    Result<> register_buffers(std::span<const iovec>) override { return {}; }
    void attach() override {
        kernel_.rings_.push_back(this);
        kernel_.hand_over(*this);
    }
    void detach() override { std::erase(kernel_.rings_, this); }

    io_uring_sqe& next_submission() override {
        take_over();
        io_uring_sqe& sqe = submitted_.emplace().front();
        sqe = {};
        return sqe;
    }
    void submit(bool wait) override {
        take_over();
        waits_ = wait;
        kernel_.hand_over(*this);
        complete_ready();
    }
    size_t reap(std::span<Completed> into) override {
        const size_t count = std::min(into.size(), completed_.size());
        std::copy_n(completed_.begin(), count, into.begin());
        completed_.erase(completed_.begin(), completed_.begin() + static_cast<ptrdiff_t>(count));
        return count;
    }

    bool is_paused() const { return paused_until_ns > kernel_.now_ns(); }
    // But for what it reads.
    bool can_go_on() const { return !waits_ || !completed_.empty() || next_timer() <= kernel_.now_ns(); }
    std::optional<int> awaited_fd() const { return reads_.empty() ? std::nullopt : std::optional(reads_.front().fd); }
    uint64_t next_moment() const { return is_paused() ? paused_until_ns : next_timer(); }

    Shard* shard = nullptr;
    uint64_t paused_until_ns = 0;

  private:
    struct Timer {
        uint64_t at_ns;
        uint64_t user_data;
    };

    uint64_t next_timer() const {
        uint64_t next = UINT64_MAX;
        for (const Timer& timer : timers_) next = std::min(next, timer.at_ns);
        return next;
    }
    static bool is_readable(int fd) {
        pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
        return ::poll(&asked, 1, 0) == 1;
    }
    void complete(uint64_t user_data, int32_t result) {
        completed_.push_back(
            {.user_data = reinterpret_cast<void*>(user_data), .result = result, .more = false});  // NOLINT
    }
    // What was submitted before, now that it is filled in.
    void take_over() {
        if (!submitted_) return;
        const io_uring_sqe sqe = submitted_->front();
        submitted_.reset();
        switch (sqe.opcode) {
            case IORING_OP_TIMEOUT: {
                const auto& duration = *reinterpret_cast<const __kernel_timespec*>(sqe.addr);  // NOLINT
                const auto duration_ns = static_cast<uint64_t>(duration.tv_sec * 1'000'000'000 + duration.tv_nsec);
                timers_.push_back({.at_ns = kernel_.now_ns() + duration_ns, .user_data = sqe.user_data});
                break;
            }
            case IORING_OP_READ:
                TARN_ASSERT(reads_.empty());  // the one by which others wake it
                reads_.push_back(sqe);
                break;
            case IORING_OP_ASYNC_CANCEL:
                if (const auto timer = std::ranges::find(timers_, sqe.addr, &Timer::user_data);
                    timer != timers_.end()) {
                    complete(timer->user_data, -ECANCELED);
                    timers_.erase(timer);
                }
                break;
            default: TARN_ASSERT(false);  // no simulated host asks for it
        }
    }
    void complete_ready() {
        std::erase_if(timers_, [&](const Timer& timer) {
            if (timer.at_ns > kernel_.now_ns()) return false;
            complete(timer.user_data, -ETIME);
            return true;
        });
        std::erase_if(reads_, [&](const io_uring_sqe& read) {
            if (!is_readable(read.fd)) return false;
            const ssize_t size = ::read(read.fd, reinterpret_cast<void*>(read.addr), read.len);  // NOLINT
            complete(read.user_data, static_cast<int32_t>(size));
            return true;
        });
    }

    Kernel& kernel_;
    // An entry is 128 bytes long, and filled in after it was given.
    std::optional<std::array<io_uring_sqe, 2>> submitted_;
    std::vector<Timer> timers_;
    std::vector<io_uring_sqe> reads_;
    std::deque<Completed> completed_;
    bool waits_ = false;
};

// A loop on its own stack.
class Kernel::Shard {
  public:
    Shard(Loop& loop, Ring& ring) : loop_(loop), ring_(ring) {
        stack_ =
            ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        TARN_ASSERT(stack_ != MAP_FAILED && ::getcontext(&own_) == 0);
        own_.uc_stack = {.ss_sp = stack_, .ss_flags = 0, .ss_size = stack_bytes};
        own_.uc_link = nullptr;
        const auto address = reinterpret_cast<uint64_t>(this);
        ::makecontext(&own_, reinterpret_cast<void (*)()>(run), 2, static_cast<unsigned>(address),  // NOLINT
                      static_cast<unsigned>(address >> 32));
    }
    Shard(const Shard&) = delete;
    ~Shard() { ::munmap(stack_, stack_bytes); }

    // From outside: until it hands over.
    void go_on() {
        Loop::set_current(&loop_);
        begin_switch(stack_, stack_bytes, &fake_stack_outside_);
        ::swapcontext(&outside_, &own_);
        end_switch(fake_stack_outside_);
        Loop::set_current(nullptr);
    }
    // From within.
    void hand_over() {
        begin_switch(outside_stack_, outside_size_, ended_ ? nullptr : &fake_stack_);
        ::swapcontext(&own_, &outside_);
        arrive();
    }
    bool ended() const { return ended_; }
    Ring& ring() { return ring_; }

  private:
    static void run(unsigned low, unsigned high) {
        Shard& self = *reinterpret_cast<Shard*>(uint64_t{high} << 32 | low);  // NOLINT
        self.arrive();
        self.loop_.run();
        self.ended_ = true;
        self.hand_over();
    }
#if __has_feature(address_sanitizer)
    void arrive() { __sanitizer_finish_switch_fiber(fake_stack_, &outside_stack_, &outside_size_); }
    static void begin_switch(const void* stack, size_t size, void** fake) {
        __sanitizer_start_switch_fiber(fake, stack, size);
    }
    static void end_switch(void* fake) { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
#else
    void arrive() {}
    static void begin_switch(const void*, size_t, void**) {}
    static void end_switch(void*) {}
#endif

    Loop& loop_;
    Ring& ring_;
    void* stack_ = nullptr;
    ucontext_t own_{};
    ucontext_t outside_{};
    void* fake_stack_ = nullptr;
    void* fake_stack_outside_ = nullptr;
    const void* outside_stack_ = nullptr;
    size_t outside_size_ = 0;
    bool ended_ = false;
};

Kernel::Kernel(uint64_t seed) : random_(seed), now_ns_(begin_ns) {
    TARN_ASSERT(!present);
    present = this;
}

Kernel::~Kernel() {
    TARN_ASSERT(shards_.empty());
    present = nullptr;
}

std::unique_ptr<Loop> Kernel::make_loop() {
    auto ring = std::make_unique<Ring>(*this);
    Ring& of_loop = *ring;
    std::unique_ptr<Loop> loop = std::move(*Loop::create(std::move(ring)));
    auto& shard = shards_[loop.get()] = std::make_unique<Shard>(*loop, of_loop);
    of_loop.shard = shard.get();
    shard->go_on();  // until it is attached, and waits for its turn
    return loop;
}

void Kernel::join(Loop& loop) {
    const auto shard = shards_.find(&loop);
    TARN_ASSERT(run_until([&] { return shard->second->ended(); }));
    shards_.erase(shard);
}

void Kernel::pause(const Loop& loop, uint64_t until_ns) {
    if (const auto shard = shards_.find(&loop); shard != shards_.end())
        shard->second->ring().paused_until_ns = until_ns;
}

void Kernel::after(uint64_t delay_ns, std::function<void()> fn) {
    calls_.emplace(now_ns_ + delay_ns, std::move(fn));
}

void Kernel::hand_over(Ring& ring) {
    ring.shard->hand_over();
}

void Kernel::give_turn(Ring& ring) {
    ++turn_count_;
    now_ns_ += 200;  // who only ever yields must not keep time from going on
    const auto index = static_cast<uint64_t>(std::ranges::find(rings_, &ring) - rings_.begin());
    for (const uint64_t value : {index, now_ns_}) hash_ = (hash_ ^ value) * 1099511628211u;
    ring.shard->go_on();
}

bool Kernel::advance() {
    uint64_t next = calls_.empty() ? UINT64_MAX : calls_.begin()->first;
    for (const Ring* const ring : rings_) next = std::min(next, ring->next_moment());
    if (next == UINT64_MAX) return false;
    now_ns_ = std::max(now_ns_, next);
    return true;
}

std::vector<Kernel::Ring*> Kernel::able_rings() const {
    std::vector<Ring*> able;
    std::vector<pollfd> asked;
    std::vector<Ring*> asking;
    for (Ring* const ring : rings_) {
        if (ring->is_paused()) continue;
        const std::optional<int> fd = ring->awaited_fd();
        if (ring->can_go_on()) {
            able.push_back(ring);
        } else if (fd) {
            asked.push_back({.fd = *fd, .events = POLLIN, .revents = 0});
            asking.push_back(ring);
        }
    }
    if (!asked.empty() && ::poll(asked.data(), asked.size(), 0) > 0)
        for (size_t i = 0; i < asked.size(); ++i)
            if (asked[i].revents != 0) able.push_back(asking[i]);
    return able;
}

bool Kernel::run_until(const std::function<bool()>& done, uint64_t duration_ns) {
    const uint64_t end_ns = now_ns_ + duration_ns;
    const uint64_t last_turn = turn_count_ + turns_max;
    while (!done()) {
        if (turn_count_ >= last_turn || now_ns_ >= end_ns) return false;
        while (!calls_.empty() && calls_.begin()->first <= now_ns_) {
            const std::function<void()> fn = std::move(calls_.begin()->second);
            calls_.erase(calls_.begin());
            fn();
        }
        const std::vector<Ring*> able = able_rings();
        if (!able.empty())
            give_turn(*able[random_.below(able.size())]);
        else if (!advance())
            return false;
    }
    return true;
}

void Kernel::run_for(uint64_t duration_ns) {
    (void)run_until([] { return false; }, duration_ns);
}

}  // namespace tarn::hosts_sim

// The time of everything in this program, while a Kernel lives.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
    using tarn::hosts_sim::present;
    if (!present) return static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
    const uint64_t now_ns = present->now_ns();
    *now = {.tv_sec = static_cast<time_t>(now_ns / 1'000'000'000),
            .tv_nsec = static_cast<long>(now_ns % 1'000'000'000)};
    return 0;
}
