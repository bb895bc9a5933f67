// A device's connection whose process is killed at any moment, and goes on in the next one: the kernel gets each answer
// once and whole, and no write takes effect twice.
#include <poll.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>

#include "tests/unit/nbd_device_fixture.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

// What a kernel that has it as a device sends and gets, and checks.
class Kernel {
  public:
    explicit Kernel(int socket) : socket_(socket), writes_(block_count), current_(block_count), gone_(block_count) {}

    // Sends some requests, if few are under way, and takes answers, for so long or until there were so many.
    void run_for(std::chrono::microseconds time, std::mt19937& random, bool asks = true,
                 uint64_t answers = UINT64_MAX) {
        const auto until = std::chrono::steady_clock::now() + time;
        const uint64_t answered_before = answered_;
        for (;;) {
            while (asks && pending_.size() < under_way_max && out_.size() < 64 * 1024) ask(random);
            const auto left = until - std::chrono::steady_clock::now();
            if (left <= 0us || testing::Test::HasFatalFailure() || (!asks && pending_.empty()) ||
                answered_ - answered_before >= answers)
                return;
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
    static constexpr uint64_t block_count = SharedVolume::block_count;
    static constexpr uint64_t word_count = page_size / sizeof(uint64_t);
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

class NbdDeviceConnection : public NbdDevice {
  protected:
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
};

TEST_F(NbdDeviceConnection, a_kernel_does_not_notice_that_the_process_is_killed) {
    std::mt19937 random(1);
    Kernel kernel(kernel_.get());
    for (unsigned kills = 0; kills < 400 && !HasFatalFailure(); ++kills) {
        const pid_t process = start();
        // On a busy machine few get as far as to answer within milliseconds: every other one is waited for.
        if (kills % 2 != 0) kernel.run_for(20s, random, true, 1);
        kernel.run_for(std::chrono::microseconds(random() % 8000), random);
        EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), 0) << "it ended by itself";
        kill(process);
    }
    EXPECT_GE(kernel.answered(), 200u);
    const pid_t process = start();
    kernel.run_for(20s, random, false);
    EXPECT_EQ(kernel.under_way(), 0u);
    kernel_.reset();
    int status = 0;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(DeviceConnection::End::lost));
    EXPECT_TRUE(DeviceLog(memory_->log(0), memory_->first_receipt(0)).used().empty());
}

}  // namespace
}  // namespace tarn::nbd
