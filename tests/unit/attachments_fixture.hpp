// What the tests of block devices share: a host from its start to its stop, and what outlives it. The kernel's driver
// is played, the keeper and the NBD server are the real ones.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/attachments/attachments.hpp"
#include "daemon/keeper/keeping.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"
#include "tests/unit/played_kernel.hpp"
#include "utils/alarm.hpp"
#include "utils/on_thread.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

class HeldVolumes final : public MemoryVolumes {
  public:
    void keep_held(VolumeId volume) override { ++held[volume]; }
    void let_go(VolumeId volume) override {
        --held[volume];
        changed.notify_all();
    }
    using MemoryVolumes::open;
    Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access, std::shared_ptr<VolumeSession> session,
                                               std::shared_ptr<SessionRecord> record) override {
        ++opens;
        while (opens_wait) co_await changed.wait();
        if (is_away) {
            ++refused_opens;
            co_return fail(Errc::unavailable, 0, "played");
        }
        co_return co_await MemoryVolumes::open(std::move(name), access, std::move(session), std::move(record));
    }
    Task<Result<>> take_over(std::string /*name*/) override {
        ++taken_over;
        co_return Result<>{};
    }
    size_t taken_over = 0;
    std::map<VolumeId, int> held;
    Event changed;
    bool is_away = false;  // the host that has to be asked before one is opened
    size_t refused_opens = 0;
    size_t opens = 0;
    bool opens_wait = false;
};

// A tarn-keeper on a thread. It has a tarnd's memory, too, and so does not end with the last device.
class RunningKeeper {
  public:
    explicit RunningKeeper(const std::string& path)
        : path_(path), thread_([listening = *listen_unix(path, 0600)] { keeper::keep_for(listening.get()); }) {
        const UniqueFd memory(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        EXPECT_TRUE(Keeper(path_).keep(Keeper::memory_name, memory.get()));
    }
    ~RunningKeeper() {
        PassedDescriptors none;
        if (const auto kept = Keeper(path_).take(none))
            for (const Keeper::Kept& each : *kept) Keeper(path_).drop(each.name);
        thread_.join();
    }

  private:
    const std::string path_;
    std::thread thread_;
};

class AttachmentsTest : public testing::Test {
  protected:
    static constexpr uint64_t size_bytes = 1 << 20;
    static constexpr Caller root{.user = 0};

    void SetUp() override { volume_ = volumes_.add("db", size_bytes, false); }

    // One process: what the keeper has is its to go on with.
    struct Host {
        explicit Host(AttachmentsTest& test)
            : loop(std::move(*Loop::create())),
              server({loop.get()}, test.volumes_, size_t{1} << 20),
              keeper(test.keeper_path_),
              attachments(test.volumes_, server, test.kernel_.kernel(), keeper, *loop, test.shard_count_, [&test] {
                  ++test.keepers_lost_;
                  test.while_memory_is_told_();
                  return Result<>{};
              }) {}
        std::unique_ptr<Loop> loop;
        nbd::Server server;
        Keeper keeper;
        Attachments attachments;
    };
    using Talk = std::function<Task<>(Host&)>;

    // A process from its start to its stop.
    void run(const Talk& talk, std::optional<std::span<const uint64_t>> receipts = std::span<const uint64_t>()) {
        volumes_.held.clear();
        Host host(*this);
        PassedDescriptors none;
        auto kept = host.keeper.take(none);
        const auto all = [&]() -> Task<> {
            Alarm alarm(*host.loop, std::chrono::seconds(20), [] {
                std::fputs("it does not end\n", stderr);
                std::abort();
            });
            host.attachments.adopt(kept ? std::move(*kept) : std::vector<Keeper::Kept>(), receipts);
            co_await talk(host);
            co_await host.attachments.stop();
            co_await host.server.stop();
            co_await alarm.end();
        };
        host.loop->run_until_done(all());
    }

    static Task<> until(const std::function<bool()>& is_so) {
        while (!is_so()) co_await on_thread([] { return true; });
    }
    static AttachOptions options(unsigned connections = 1) { return {.volume = "db", .connections = connections}; }
    static Task<> ask(Host& host, int kernel, const nbd::Bytes& request) {
        EXPECT_EQ((co_await host.loop->send(kernel, request.bytes())).value_or(0), request.bytes().size());
    }
    // The next answer: its error, and as many bytes of data.
    static Task<nbd::Errno> answer(Host& host, int kernel, uint64_t cookie, std::span<std::byte> data = {}) {
        std::vector<std::byte> header(16);
        EXPECT_EQ((co_await host.loop->receive(kernel, header, MSG_WAITALL)).value_or(0), header.size());
        EXPECT_EQ(nbd::load_big<uint64_t>(header.data() + 8), cookie);
        if (!data.empty()) EXPECT_EQ((co_await host.loop->receive(kernel, data, MSG_WAITALL)).value_or(0), data.size());
        co_return static_cast<nbd::Errno>(nbd::load_big<uint32_t>(header.data() + 4));
    }
    // then: what comes once the kernel has ended nbd0; until then requests may wait.
    Task<> detach_by_force(Host& host, std::function<void()> then) {
        const auto follow = [&]() -> Task<> {
            co_await on_thread([&] { return kernel_.wait_for_end_of(0); });
            then();
        };
        Gate gate;
        gate.spawn(follow());
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
        co_await gate.close();
    }
    // Nobody is told later.
    static bool has_left_one(Host& host) {
        bool has = true;
        host.attachments.when_none_is_left([&] { has = false; });
        host.attachments.when_none_is_left([] {});
        return has;
    }
    static Task<bool> is_served(Host& host, int kernel) {
        co_await ask(host, kernel, nbd::Bytes().request(nbd::Command::flush, 77, 0, 0));
        co_return co_await answer(host, kernel, 77) == nbd::Errno::none;
    }
    // A volume is let go of as the last device of it is forgotten.
    Task<> all_are_forgotten(Host& host) {
        while (std::ranges::any_of(volumes_.held, [](const auto& each) { return each.second != 0; }))
            co_await volumes_.changed.wait();
        co_await Yield(*host.loop);
        EXPECT_TRUE(host.attachments.list().empty());
    }

    size_t shard_count_ = 2;
    std::atomic<int> keepers_lost_{0};
    std::function<void()> while_memory_is_told_ = [] {};  // on a thread
    ScratchDirectory directory_;
    const std::string path_ = directory_ / "keeper";
    std::string keeper_path_ = path_;  // where a process looks for it
    HeldVolumes volumes_;
    std::shared_ptr<MemoryVolume> volume_;
    PlayedKernel kernel_;
    RunningKeeper keeper_{path_};
};

}  // namespace tarn
