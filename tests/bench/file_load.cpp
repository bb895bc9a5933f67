// file_load: reads blocks of a file at random, past the page cache and at the least cost to itself, and prints what it
// saw as JSON, as nbd_load does.
//
//   file_load FILE DEPTH SECONDS SERVER-PID
//
// Blocks of 4 KiB. Depth 1 is one pread after the other; more go through a ring, a submission for all that came back.
#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "tests/bench/cpu_time.hpp"
#include "utils/clock.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::bench {
namespace {

constexpr size_t block_bytes = 4096;

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "file_load: {}\n", text);
    std::exit(1);
}

class FileLoad {
  public:
    FileLoad(const char* path, unsigned depth)
        : file_(::open(path, O_RDONLY | O_DIRECT | O_CLOEXEC)),
          depth_(depth),
          bytes_(static_cast<std::byte*>(std::aligned_alloc(block_bytes, block_bytes * depth)), &std::free) {
        struct stat of_file{};
        if (!file_ || ::fstat(file_.get(), &of_file) != 0) give_up(fmt::format("cannot open {}", path));
        blocks_ = static_cast<uint64_t>(of_file.st_size) / block_bytes;
        if (blocks_ == 0 || depth == 0) give_up("an empty file, or depth 0");
    }

    // Both return how many blocks were read.
    uint64_t read_one_by_one(uint64_t end_ns) {
        uint64_t count = 0;
        for (; monotonic_ns() < end_ns; ++count)
            if (::pread(file_.get(), bytes_.get(), block_bytes, next_offset()) != block_bytes) give_up("a read failed");
        return count;
    }
    uint64_t read_deep(uint64_t end_ns) {
        io_uring ring{};
        if (io_uring_queue_init(depth_, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN) != 0)
            give_up("io_uring is not available");
        uint64_t count = 0;
        unsigned in_flight = 0;
        for (; in_flight < depth_; ++in_flight) ask(ring, in_flight);
        while (in_flight > 0) {
            io_uring_submit_and_wait(&ring, 1);
            const bool goes_on = monotonic_ns() < end_ns;
            for (io_uring_cqe* done = nullptr; io_uring_peek_cqe(&ring, &done) == 0; io_uring_cqe_seen(&ring, done)) {
                if (done->res != block_bytes) give_up("a read failed");
                ++count;
                --in_flight;
                if (!goes_on) continue;
                ask(ring, done->user_data);
                ++in_flight;
            }
        }
        io_uring_queue_exit(&ring);
        return count;
    }

  private:
    off_t next_offset() { return static_cast<off_t>(random_() % blocks_ * block_bytes); }
    void ask(io_uring& ring, uint64_t slot) {
        io_uring_sqe* const sqe = io_uring_get_sqe(&ring);
        io_uring_prep_read(sqe, file_.get(), bytes_.get() + slot * block_bytes, block_bytes,
                           static_cast<uint64_t>(next_offset()));
        io_uring_sqe_set_data64(sqe, slot);
    }

    const UniqueFd file_;
    const unsigned depth_;
    const std::unique_ptr<std::byte, decltype(&std::free)> bytes_;
    uint64_t blocks_ = 0;
    std::minstd_rand random_;
};

}  // namespace
}  // namespace tarn::bench

int main(int count, char** arguments) {
    using namespace tarn;
    if (count != 5) bench::give_up("FILE DEPTH SECONDS SERVER-PID");
    const auto depth = static_cast<unsigned>(std::stoul(arguments[2]));
    const uint64_t server = std::stoull(arguments[4]);
    bench::FileLoad load(arguments[1], depth);
    const double server_us = bench::cpu_us_of(server).value_or(0);
    const double own_us = bench::own_cpu_us();
    const uint64_t began_ns = monotonic_ns();
    const uint64_t end_ns = began_ns + static_cast<uint64_t>(std::stod(arguments[3]) * 1e9);
    const auto ops = static_cast<double>(depth == 1 ? load.read_one_by_one(end_ns) : load.read_deep(end_ns));
    const double seconds = static_cast<double>(monotonic_ns() - began_ns) / 1e9;
    fmt::print(
        "{{\"ops\": {}, \"iops\": {:.0f}, \"client_cpu_us_per_op\": {:.2f}, \"server_cpu_us_per_op\": {:.2f}}}\n", ops,
        ops / seconds, (bench::own_cpu_us() - own_us) / ops, (bench::cpu_us_of(server).value_or(0) - server_us) / ops);
    return 0;
}
