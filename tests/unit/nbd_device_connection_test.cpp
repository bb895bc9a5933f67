// A device's connection whose process is killed at any moment, and goes on in the next one: the kernel gets each answer
// once and whole, and no write takes effect twice.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "frontends/nbd/device_connection.hpp"
#include "frontends/nbd/device_memory.hpp"
#include "tests/support/fake_volume.hpp"
#include "tests/support/nbd_bytes.hpp"
#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t block_count = 64;
constexpr uint64_t word_count = page_size / sizeof(uint64_t);

// A volume whose bytes outlive the process. Many accesses miss, and take a while page by page.
class SharedVolume : public FakeVolume {
  public:
    // What was being written when the process was killed, as the arena has it.
    struct Stage {
        std::atomic<bool> is_pending;
        uint64_t offset_bytes;
        uint64_t receipt;
        std::byte bytes[page_size];
    };

    SharedVolume(std::span<std::byte> memory, unsigned seed)
        : bytes_(memory.first(size_bytes)),
          stage_(reinterpret_cast<Stage*>(memory.data() + size_bytes)),
          random_(seed) {}
    void adopt(const DeviceMemory& memory) {
        if (!stage_->is_pending.load()) return;
        std::memcpy(bytes_.data() + stage_->offset_bytes, stage_->bytes, page_size);
        memory.add_receipts(std::array{stage_->receipt});
        stage_->is_pending.store(false);
    }

    std::optional<uint64_t> try_size() override {
        return random_() % 16 == 0 ? std::nullopt : std::optional(size_bytes);
    }
    Task<Result<uint64_t>> size() override {
        co_await Yield(*Loop::current());
        co_return size_bytes;
    }
    bool try_pin(uint64_t offset_bytes, uint32_t size, std::vector<Pin>& pins) override {
        if (random_() % miss_every == 0) return false;
        for (uint32_t done = 0; done < size;) {
            const uint64_t at = offset_bytes + done;
            const auto part = static_cast<uint32_t>(std::min<uint64_t>(page_size - at % page_size, size - done));
            pins.push_back({.bytes = bytes_.data() + at, .size_bytes = part, .frame = 0});
            done += part;
            ++pins_;
        }
        return true;
    }
    void unpin(std::span<const Pin> pins) override { pins_ -= pins.size(); }
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        TARN_ASSERT(pins_ == 0);  // a pinned page must not change
        if (random_() % miss_every == 0) return false;
        for (uint64_t page = 0; page * page_size < from.size(); ++page) write_page(page, offset_bytes, from, receipts);
        return true;
    }
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        std::vector<uint64_t> pages(from.size() / page_size);
        for (uint64_t page = 0; page < pages.size(); ++page) pages[page] = page;
        std::ranges::shuffle(pages, random_);
        for (const uint64_t page : pages) {
            if (receipts->has(page)) continue;
            co_await take_a_while();
            write_page(page, offset_bytes, from, receipts);
        }
        co_await take_a_while();
        co_return Result<>{};
    }
    Task<Result<>> fetch(uint64_t, uint64_t) override {
        co_await take_a_while();
        co_return Result<>{};
    }
    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override {
        co_await take_a_while();
        std::memcpy(into.data(), bytes_.data() + offset_bytes, into.size());
        co_return Result<>{};
    }
    Task<Result<>> flush() override {
        co_await take_a_while();
        co_return Result<>{};
    }

    static constexpr uint64_t size_bytes = block_count * page_size;
    static constexpr uint64_t memory_size_bytes = size_bytes + 2 * page_size;
    unsigned miss_every = 3;

  private:
    void write_page(uint64_t page, uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) {
        TARN_ASSERT(pins_ == 0);
        Stage& stage = *stage_;
        std::memcpy(stage.bytes, from.data() + page * page_size, page_size);
        stage.offset_bytes = offset_bytes + page * page_size;
        stage.receipt = PageReceipt(receipts, page).name();
        stage.is_pending.store(true, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(bytes_.data() + stage.offset_bytes, stage.bytes, page_size);
        receipts->add(page);
        stage.is_pending.store(false, std::memory_order_release);
    }
    Task<> take_a_while() {
        if (random_() % 2 == 0) co_return;
        co_await Loop::current()->sleep(std::chrono::microseconds(random_() % 500));
    }

    const std::span<std::byte> bytes_;
    Stage* const stage_;
    std::minstd_rand random_;
    size_t pins_ = 0;
};

// What a kernel that has it as a device sends and gets, and checks.
class Kernel {
  public:
    explicit Kernel(int socket) : socket_(socket), writes_(block_count), current_(block_count), gone_(block_count) {}

    // Sends some requests, if few are under way, and takes answers, for so long.
    void run_for(std::chrono::microseconds time, std::mt19937& random, bool asks = true) {
        const auto until = std::chrono::steady_clock::now() + time;
        for (;;) {
            while (asks && pending_.size() < under_way_max && out_.size() < 64 * 1024) ask(random);
            const auto left = until - std::chrono::steady_clock::now();
            if (left <= 0us || testing::Test::HasFatalFailure() || (!asks && pending_.empty())) return;
            pollfd events{
                .fd = socket_, .events = static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), .revents = 0};
            const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
            const timespec timeout{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
            ::ppoll(&events, 1, &timeout, nullptr);
            if (events.revents & POLLOUT) flush_out();
            if (events.revents & POLLIN) take_in();
        }
    }
    size_t under_way() const { return pending_.size(); }
    uint64_t answered() const { return answered_; }

    void ask(std::mt19937& random) {
        const uint64_t cookie = ++last_cookie_;
        const uint64_t first = random() % block_count;
        const uint64_t count = std::min<uint64_t>(block_count - first, 1 + random() % (random() % 8 == 0 ? 64 : 4));
        const auto size = static_cast<uint32_t>(count * page_size);
        Bytes bytes;
        if (random() % 16 == 0) {
            pending_[cookie] = {.command = Command::flush};
            bytes.request(Command::flush, cookie, 0, 0);
        } else if (random() % 2 == 0) {
            pending_[cookie] = {.command = Command::write, .first = first, .count = count};
            for (uint64_t i = first; i < first + count; ++i) writes_[i][cookie] = {.sent = ++now_};
            bytes.request(Command::write, cookie, first * page_size, size, random() % 4 == 0 ? request_fua : 0);
            for (uint64_t i = 0; i < count * word_count; ++i) bytes.number(cookie);
        } else if (!reads(first, count)) {
            pending_[cookie] = {.command = Command::read, .first = first, .count = count, .sent = ++now_};
            bytes.request(Command::read, cookie, first * page_size, size);
        }
        out_.insert(out_.end(), bytes.bytes().begin(), bytes.bytes().end());
    }

  private:
    static constexpr size_t under_way_max = 100;
    struct Pending {
        Command command;
        uint64_t first = 0;
        uint64_t count = 0;
        uint64_t sent = 0;
    };
    struct Write {
        uint64_t sent = 0;
        uint64_t answered = UINT64_MAX;
    };

    // Whether a read of one of these blocks is under way.
    bool reads(uint64_t first, uint64_t count) const {
        return std::ranges::any_of(pending_, [&](const auto& each) {
            const Pending& pending = each.second;
            return pending.command == Command::read && pending.first < first + count &&
                   first < pending.first + pending.count;
        });
    }
    void flush_out() {
        const ssize_t count = ::send(socket_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) out_.erase(out_.begin(), out_.begin() + count);
    }
    void take_in() {
        std::array<std::byte, 64 * 1024> buffer;
        const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (count > 0) in_.insert(in_.end(), buffer.begin(), buffer.begin() + count);
        size_t taken = 0;
        while (const size_t size = take_answer(std::span(in_).subspan(taken))) taken += size;
        in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(taken));
    }
    // Returns its size; 0: it is not whole, or wrong.
    size_t take_answer(std::span<const std::byte> bytes) {
        size_t size = 16;
        if (bytes.size() >= size) check_answer(bytes, size);
        return bytes.size() < size || testing::Test::HasFatalFailure() ? 0 : size;
    }
    void check_answer(std::span<const std::byte> bytes, size_t& size) {
        ASSERT_EQ(load_big<uint32_t>(bytes.data()), simple_reply_magic);
        ASSERT_EQ(load_big<uint32_t>(bytes.data() + 4), 0u);
        const auto cookie = load_big<uint64_t>(bytes.data() + 8);
        const auto found = pending_.find(cookie);
        ASSERT_NE(found, pending_.end()) << "an answer to what was not asked, or was answered: " << cookie;
        const Pending pending = found->second;
        if (pending.command == Command::read) size += pending.count * page_size;
        if (bytes.size() < size) return;
        pending_.erase(found);
        ++answered_;
        for (uint64_t i = 0; i < pending.count; ++i) {
            const uint64_t block = pending.first + i;
            if (pending.command == Command::write) writes_[block].at(cookie).answered = ++now_;
            if (pending.command == Command::read) check_page(block, bytes.subspan(16 + i * page_size), pending.sent);
        }
    }
    void check_page(uint64_t block, std::span<const std::byte> bytes, uint64_t sent) {
        const auto value = load_big<uint64_t>(bytes.data());
        for (uint64_t i = 1; i < word_count; ++i)
            ASSERT_EQ(load_big<uint64_t>(bytes.data() + i * sizeof value), value) << "a torn page";
        const std::map<uint64_t, Write>& writes = writes_[block];
        ASSERT_TRUE(value == 0 || writes.contains(value));
        const uint64_t answered = value == 0 ? 0 : writes.at(value).answered;
        for (const auto& [other, write] : writes)
            ASSERT_FALSE(answered < write.sent && write.answered < sent)
                << "block " << block << " reads " << value << ", after the write " << other << " was answered";
        ASSERT_FALSE(gone_[block].contains(value)) << "block " << block << ": the write " << value << " came twice";
        if (value == current_[block]) return;
        gone_[block].insert(std::exchange(current_[block], value));
    }

    const int socket_;
    std::vector<std::byte> out_;
    std::vector<std::byte> in_;
    uint64_t last_cookie_ = 0;
    uint64_t now_ = 0;
    uint64_t answered_ = 0;
    std::map<uint64_t, Pending> pending_;
    std::vector<std::map<uint64_t, Write>> writes_;  // by block and cookie
    std::vector<uint64_t> current_;                  // what was read last
    std::vector<std::set<uint64_t>> gone_;           // what was read before that
};

class NbdDeviceConnection : public testing::Test {
  protected:
    void SetUp() override {
        const UniqueFd file(::memfd_create("volume", MFD_CLOEXEC));
        ASSERT_EQ(::ftruncate(file.get(), SharedVolume::memory_size_bytes), 0);
        bytes_ = std::move(*Mapping::create(SharedVolume::memory_size_bytes, file.get()));
        memory_.emplace(std::move(*DeviceMemory::create({.connections = 1, .index = 3}, "disk")));
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        kernel_ = UniqueFd(pair[0]);
        daemon_ = UniqueFd(pair[1]);
    }

    // A process that serves until it is killed, told to stop, or the kernel has hung up.
    pid_t start() {
        const pid_t process = ::fork();
        if (process != 0) return process;
        kernel_.reset();
        ::_exit(static_cast<int>(serve()));
    }
    DeviceConnection::End serve() {
        const auto loop = std::move(*Loop::create());
        Share share(size_t{16} << 20);
        const Settings settings;
        Newcomers newcomers(1);
        Workspace workspace(*loop, share, settings, newcomers);
        auto volume = std::make_shared<SharedVolume>(bytes_.bytes(), static_cast<unsigned>(::getpid()));
        volume->adopt(*memory_);
        DeviceConnection connection(workspace, std::move(volume), {}, UniqueFd(::dup(daemon_.get())), memory_->log(0),
                                    memory_->first_receipt(0), {.address = {}, .text = "a device"});
        return loop->run_until_done(connection.serve());
    }
    void kill(pid_t process) {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, 0);
    }

    Mapping bytes_;
    std::optional<DeviceMemory> memory_;
    UniqueFd kernel_;
    UniqueFd daemon_;
};

TEST_F(NbdDeviceConnection, a_kernel_does_not_notice_that_the_process_is_killed) {
    std::mt19937 random(1);
    Kernel kernel(kernel_.get());
    for (unsigned kills = 0; kills < 400 && !HasFatalFailure(); ++kills) {
        const pid_t process = start();
        kernel.run_for(std::chrono::microseconds(random() % 8000), random);
        EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), 0) << "it ended by itself";
        kill(process);
    }
    EXPECT_GT(kernel.answered(), 100u) << "as few as a sanitizer on a busy machine leaves time for";
    const pid_t process = start();
    kernel.run_for(20s, random, false);
    EXPECT_EQ(kernel.under_way(), 0u);
    kernel_.reset();
    int status = 0;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(DeviceConnection::End::lost));
    EXPECT_TRUE(DeviceLog(memory_->log(0), memory_->first_receipt(0)).used().empty());
}

// Its writes never come to pass: the host that has the pages is away, until the daemon stops.
class AwayVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_write(uint64_t, std::span<const std::byte>, WriteReceipts*) override { return false; }
    Task<Result<>> write(uint64_t, std::span<const std::byte>, WriteReceipts*) override {
        is_asked = true;
        asked.notify_all();
        while (!is_stopping) co_await stops.wait();
        co_return fail(Errc::cancelled, 0, "away");
    }
    bool is_asked = false;
    bool is_stopping = false;
    Event asked;
    Event stops;
};

// One process, and a kernel that is a task of the same loop.
class NbdDeviceTalk : public NbdDeviceConnection {
  protected:
    using Talk = std::function<Task<>(DeviceConnection&)>;

    // Serves until the talk is over and the connection has ended.
    DeviceConnection::End serve(std::shared_ptr<SharedVolume> volume, const Talk& talk) {
        const Settings settings;
        Newcomers newcomers(1);
        Share share(size_t{16} << 20);
        Workspace workspace(*loop_, share, settings, newcomers);
        DeviceConnection connection(workspace, std::move(volume), exported_, UniqueFd(::dup(daemon_.get())),
                                    memory_->log(0), memory_->first_receipt(0), {.address = {}, .text = "a device"},
                                    [this] { ++resized_; });
        auto how = DeviceConnection::End::stopped;
        const auto run = [&]() -> Task<> {
            Gate talking;
            talking.spawn(talk(connection));
            how = co_await connection.serve();
            co_await talking.close();
        };
        loop_->run_until_done(run());
        return how;
    }
    DeviceConnection::End serve(const Talk& talk) {
        return serve(std::make_shared<SharedVolume>(bytes_.bytes(), 1), talk);
    }
    Task<> send(const Bytes& bytes) {
        std::span<const std::byte> rest = bytes.bytes();
        while (!rest.empty()) {
            const Result<size_t> count = co_await loop_->send(kernel_.get(), rest);
            if (!count) co_return ADD_FAILURE();
            rest = rest.subspan(*count);
        }
    }
    // The error of the next answer, which is to this request and has so many bytes.
    Task<Errno> answer_to(uint64_t cookie, size_t data_bytes = 0) {
        std::vector<std::byte> bytes(16 + data_bytes);
        const Result<size_t> count = co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL);
        EXPECT_EQ(count.value_or(0), bytes.size());
        EXPECT_EQ(load_big<uint64_t>(bytes.data() + 8), cookie);
        co_return static_cast<Errno>(load_big<uint32_t>(bytes.data() + 4));
    }

    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    Export exported_;
    unsigned resized_ = 0;  // how often it has said so
};

TEST_F(NbdDeviceTalk, what_cannot_be_done_is_refused_and_the_connection_goes_on) {
    constexpr uint32_t too_large = DeviceLog::payload_size_max + 1;
    const auto how = serve([this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, SharedVolume::size_bytes, page_size).fill(page_size));
        EXPECT_EQ(co_await answer_to(1), Errno::no_space);
        co_await send(Bytes().request(Command::read, 2, SharedVolume::size_bytes, page_size));
        EXPECT_EQ(co_await answer_to(2), Errno::invalid);
        co_await send(Bytes().request(Command::write, 3, 0, too_large).fill(too_large));
        EXPECT_EQ(co_await answer_to(3), Errno::invalid);
        co_await send(Bytes().request(static_cast<Command>(99), 4, 0, 0));
        EXPECT_EQ(co_await answer_to(4), Errno::invalid);
        co_await send(Bytes().request(Command::read, 5, 0, page_size));
        EXPECT_EQ(co_await answer_to(5, page_size), Errno::none);
        co_await send(Bytes().request(Command::disconnect, 6, 0, 0));
    });
    EXPECT_EQ(how, DeviceConnection::End::disconnected);
}

TEST_F(NbdDeviceTalk, an_export_that_is_gone_refuses_everything) {
    serve([this](DeviceConnection& connection) -> Task<> {
        connection.end_export();
        co_await send(Bytes().request(Command::flush, 1, 0, 0));
        EXPECT_EQ(co_await answer_to(1), Errno::shutdown);
        kernel_.reset();
    });
}

class ResizedVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    std::optional<uint64_t> try_size() override { return is_at_hand ? std::optional(now_bytes) : std::nullopt; }
    Task<Result<uint64_t>> size() override { co_return now_bytes; }
    uint64_t now_bytes = size_bytes;
    bool is_at_hand = true;
};

TEST_F(NbdDeviceTalk, a_size_that_is_not_the_one_before_is_told_once) {
    exported_.size_bytes = SharedVolume::size_bytes;
    const auto volume = std::make_shared<ResizedVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        const auto told_after_a_request = [&](uint64_t cookie) -> Task<unsigned> {
            co_await send(Bytes().request(Command::flush, cookie, 0, 0));
            EXPECT_EQ(co_await answer_to(cookie), Errno::none);
            co_return resized_;
        };
        EXPECT_EQ(co_await told_after_a_request(1), 0u);
        volume->now_bytes -= page_size;
        EXPECT_EQ(co_await told_after_a_request(2), 1u);
        EXPECT_EQ(co_await told_after_a_request(3), 1u);
        volume->is_at_hand = false;
        volume->now_bytes += page_size;
        EXPECT_EQ(co_await told_after_a_request(4), 2u);
        EXPECT_EQ(co_await told_after_a_request(5), 2u);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, a_size_that_was_changed_while_no_process_ran_is_told) {
    exported_.size_bytes = SharedVolume::size_bytes - page_size;
    serve([this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::flush, 1, 0, 0));
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        EXPECT_EQ(resized_, 1u);
        kernel_.reset();
    });
}

// Each of its writes waits until it may end.
class SlowVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_write(uint64_t, std::span<const std::byte>, WriteReceipts*) override { return false; }
    Task<Result<>> write(uint64_t, std::span<const std::byte>, WriteReceipts*) override {
        const size_t number = asked++;
        changed.notify_all();
        while (number >= may_end) co_await changed.wait();
        co_return Result<>{};
    }
    size_t asked = 0;
    size_t may_end = 0;
    Event changed;
};

TEST_F(NbdDeviceTalk, what_the_kernel_has_sent_is_read_once_there_is_room_however_little) {
    constexpr uint32_t size = 16 * page_size;
    constexpr size_t fit = DeviceLog::ring_size_bytes / (request_size + size);
    constexpr size_t count = fit + 16;
    const auto volume = std::make_shared<SlowVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, 20s, [&] {
            ADD_FAILURE() << "only " << volume->asked << " of " << count << " were read";
            ::shutdown(kernel_.get(), SHUT_RDWR);
            volume->may_end = count;
            volume->changed.notify_all();
        });
        Gate sending;
        Bytes requests;
        for (size_t i = 0; i < count; ++i) requests.request(Command::write, i, 0, size).fill(size);
        sending.spawn(send(requests));
        while (volume->asked < fit) co_await volume->changed.wait();
        for (size_t i = 0; i < count && !HasFailure(); ++i) {
            ++volume->may_end;
            volume->changed.notify_all();
            EXPECT_EQ(co_await answer_to(i), Errno::none);
        }
        co_await alarm.end();
        co_await sending.close();
        kernel_.reset();
    });
    EXPECT_EQ(volume->asked, count);
}

// Its pages are in frames once, and never again: the rest of a read has to be copied.
class OncePinnedVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_pin(uint64_t offset_bytes, uint32_t size, std::vector<Pin>& pins) override {
        miss_every = UINT_MAX;
        return !std::exchange(was_pinned_, true) && SharedVolume::try_pin(offset_bytes, size, pins);
    }
    Task<Result<>> flush() override { co_return Result<>{}; }

  private:
    bool was_pinned_ = false;
};

TEST_F(NbdDeviceTalk, an_answer_that_was_begun_ends_before_the_next_one) {
    constexpr uint32_t size = 48 * page_size;
    const int room = 4096;
    ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    serve(std::make_shared<OncePinnedVolume>(bytes_.bytes(), 1), [this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::read, 1, 0, size).request(Command::flush, 2, 0, 0));
        EXPECT_EQ(co_await answer_to(1, size), Errno::none);
        EXPECT_EQ(co_await answer_to(2), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, what_is_no_request_ends_the_connection) {
    const auto how = serve([this](DeviceConnection&) -> Task<> { co_await send(Bytes().fill(28, std::byte{7})); });
    EXPECT_EQ(how, DeviceConnection::End::lost);
}

TEST_F(NbdDeviceTalk, what_waits_at_a_stop_is_left_to_the_next_process) {
    const auto away = std::make_shared<AwayVolume>(bytes_.bytes(), 1);
    const auto how = serve(away, [&](DeviceConnection& connection) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, 0, page_size).fill(page_size, std::byte{9}));
        while (!away->is_asked) co_await away->asked.wait();
        connection.stop();
        away->is_stopping = true;
        away->stops.notify_all();
    });
    EXPECT_EQ(how, DeviceConnection::End::stopped);
    std::byte byte;
    ASSERT_EQ(::recv(kernel_.get(), &byte, 1, MSG_DONTWAIT), -1) << "no answer";
    serve([this](DeviceConnection&) -> Task<> {
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(bytes_.bytes()[100], std::byte{9});
}

// Somebody else may have written it meanwhile.
TEST_F(NbdDeviceTalk, what_goes_on_leaves_a_page_that_it_has_written_as_it_is) {
    const auto away = std::make_shared<AwayVolume>(bytes_.bytes(), 1);
    serve(away, [&](DeviceConnection& connection) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, 0, 2 * page_size).fill(2 * page_size, std::byte{9}));
        while (!away->is_asked) co_await away->asked.wait();
        connection.stop();
        away->is_stopping = true;
        away->stops.notify_all();
    });
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    ASSERT_EQ(log.used().size(), 1u);
    log.receipts(log.used().front()).add(0);
    std::ranges::fill(bytes_.bytes().first(page_size), std::byte{5});
    const auto volume = std::make_shared<SharedVolume>(bytes_.bytes(), 1);
    volume->miss_every = UINT_MAX;
    serve(volume, [this](DeviceConnection&) -> Task<> {
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(bytes_.bytes()[100], std::byte{5});
    EXPECT_EQ(bytes_.bytes()[page_size + 100], std::byte{9});
}

TEST_F(NbdDeviceConnection, receipts_that_the_arena_names_are_written_where_they_belong) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{
        .command = Command::write, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 8 * page_size};
    const uint16_t slot = *log.add(request, 0);
    WriteReceipts& receipts = log.receipts(slot);
    const uint64_t name = PageReceipt(&receipts, 5).name();
    memory_->add_receipts(std::array<uint64_t, 4>{name, name + 100'000, uint64_t{1} << 32 | 3, 0});
    EXPECT_TRUE(receipts.has(5));
    EXPECT_FALSE(receipts.has(3));
}

TEST_F(NbdDeviceConnection, what_was_written_and_lost_is_written_again) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{
        .command = Command::write, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 8 * page_size};
    WriteReceipts& receipts = log.receipts(*log.add(request, 0));
    const uint32_t number = receipts.number();
    receipts.add(2);
    memory_->forget_receipts();
    EXPECT_FALSE(receipts.has(2));
    EXPECT_EQ(receipts.number(), number);
}

TEST_F(NbdDeviceConnection, memory_of_another_layout_is_not_taken_over) {
    const auto taken = [&] { return DeviceMemory::adopt(UniqueFd(::dup(memory_->fd()))).has_value(); };
    EXPECT_TRUE(taken());
    ++memory_->header().layout;
    EXPECT_FALSE(taken());
    --memory_->header().layout;
    memory_->header().connections = 2;
    EXPECT_FALSE(taken());
    EXPECT_FALSE(DeviceMemory::adopt(UniqueFd(::memfd_create("empty", MFD_CLOEXEC))));
}

}  // namespace
}  // namespace tarn::nbd
