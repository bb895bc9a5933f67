// Block devices that come at once, and those that cannot come, or go on, as they should: a kernel that has no number
// left or reads one connection only, a memory of another layout, a volume that cannot be opened yet.
#include <atomic>
#include <latch>
#include <semaphore>

#include "daemon/attachments/waiting_requests.hpp"
#include "tests/support/turns.hpp"
#include "tests/unit/attachments_fixture.hpp"
#include "utils/on_thread.hpp"

namespace tarn {
namespace {

class AttachmentsAtOnce : public AttachmentsTest {
  protected:
    std::vector<Keeper::Kept> kept() const {
        PassedDescriptors none;
        return std::move(*Keeper(path_).take(none));
    }
    std::vector<std::string> kept_names() const {
        std::vector<std::string> names;
        for (const Keeper::Kept& each : kept()) names.push_back(each.name);
        return names;
    }
    void expect_that_nothing_is_left(const Host& host) {
        EXPECT_TRUE(host.attachments.list().empty());
        EXPECT_EQ(kept_names(), std::vector<std::string>{Keeper::memory_name});
        EXPECT_EQ(kernel_.device_count(), 0u);
        EXPECT_EQ(volumes_.held[volume_->id()], 0);
    }
    static Task<> attach(Host& host, std::string volume, std::vector<Result<Attachment>>& ends) {
        ends.push_back(co_await host.attachments.attach({.volume = std::move(volume), .connections = 1}, root));
    }
};

TEST_F(AttachmentsAtOnce, of_two_who_attach_a_volume_at_once_one_gets_it) {
    run([this](Host& host) -> Task<> {
        std::vector<Result<Attachment>> ends;
        Gate attaching;
        for (int i = 0; i < 2; ++i) attaching.spawn(attach(host, "db", ends));
        co_await attaching.close();
        EXPECT_EQ(ends.size(), 2u);
        EXPECT_EQ(std::ranges::count_if(ends, [](const auto& end) { return end.has_value(); }), 1);
        for (const Result<Attachment>& end : ends)
            if (!end) EXPECT_EQ(end.error().code, Errc::busy);
        EXPECT_EQ(host.attachments.list().size(), 1u);
        EXPECT_EQ(kernel_.device_count(), 1u);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
    });
}

// Each looks for a number before it takes one.
TEST_F(AttachmentsAtOnce, two_volumes_that_are_attached_at_once_get_a_number_each) {
    volumes_.add("other", size_bytes, false);
    std::latch both_are_under_way(1);
    std::atomic<int> connects{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "connect") return {};
        ++connects;
        both_are_under_way.wait();
        return {};
    };
    run([&](Host& host) -> Task<> {
        std::vector<Result<Attachment>> ends;
        Gate attaching;
        for (const char* const volume : {"db", "other"}) attaching.spawn(attach(host, volume, ends));
        // A thread has come and gone that began after theirs: who need not wait has looked by now.
        co_await on_thread([] { return true; });
        both_are_under_way.count_down();
        co_await attaching.close();
        EXPECT_EQ(ends.size(), 2u);
        for (const Result<Attachment>& end : ends) {
            if (!end) co_return ADD_FAILURE();
            EXPECT_EQ(end->device, end->volume == "db" ? "nbd0" : "nbd1");
        }
        EXPECT_EQ(connects, 2) << "both have tried the same number";
        for (const char* const name : {"nbd0", "nbd0.0", "nbd1", "nbd1.0"})
            EXPECT_TRUE(host.keeper.has(name).value_or(false)) << name;
        for (const unsigned index : {0, 1}) EXPECT_TRUE(co_await is_served(host, kernel_.socket(index, 0)));
    });
}

TEST_F(AttachmentsAtOnce, a_device_has_a_connection_for_each_shard_up_to_eight) {
    for (const auto [shards, connections] : {std::pair(20u, 8u), std::pair(3u, 3u)}) {
        shard_count_ = shards;
        run([&](Host& host) -> Task<> {
            const Result<Attachment> attached = co_await host.attachments.attach(options(0), root);
            EXPECT_EQ(attached ? attached->connections : 0, connections);
            if (!attached) co_return;
            EXPECT_EQ(kernel_.socket_count(0), connections);
            for (size_t i = 0; i < connections; ++i) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, i)));
            EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
        });
    }
}

TEST_F(AttachmentsAtOnce, where_all_numbers_are_taken_there_is_no_device) {
    size_t connects = 0;
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "connect") return {};
        ++connects;
        return fail(Errc::busy, EBUSY, "played");
    };
    run([&](Host& host) -> Task<> {
        const Result<Attachment> attached = co_await host.attachments.attach(options(), root);
        EXPECT_EQ(attached ? Errc::io : attached.error().code, Errc::no_space);
        EXPECT_GT(connects, 1u);
        expect_that_nothing_is_left(host);
    });
}

TEST_F(AttachmentsAtOnce, a_kernel_that_reads_one_connection_only_gets_no_device_with_more) {
    kernel_.set("proc/9/comm", "nbd0-recv");
    kernel_.set("proc/9/stat", "9 (nbd0-recv) S 2 0 0");
    run([this](Host& host) -> Task<> {
        const Result<Attachment> attached = co_await host.attachments.attach(options(2), root);
        EXPECT_EQ(attached ? Errc::io : attached.error().code, Errc::busy);
        expect_that_nothing_is_left(host);
        EXPECT_TRUE(co_await host.attachments.attach(options(1), root)) << "it reads the first one";
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
        kernel_.set("proc/9/stat", "9 (nbd0-recv) I 2 0 0");
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
    });
}

TEST_F(AttachmentsAtOnce, a_device_with_a_memory_of_another_layout_is_left_as_it_is) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    std::vector<Keeper::Kept> all = kept();
    const auto found = std::ranges::find(all, "nbd0", &Keeper::Kept::name);
    ASSERT_NE(found, all.end());
    const nbd::DeviceMemory memory = std::move(*nbd::DeviceMemory::adopt(std::move(found->fd)));
    ++memory.header().layout;
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(has_left_one(host));
        EXPECT_TRUE(host.attachments.list().empty());
        EXPECT_TRUE(host.keeper.has("nbd0").value_or(false));
        EXPECT_TRUE(host.keeper.has("nbd0.0").value_or(false));
        EXPECT_TRUE(kernel_.has(0));
        const Result<Attachment> attached = co_await host.attachments.attach(options(), root);
        EXPECT_EQ(attached ? Errc::io : attached.error().code, Errc::busy);
        EXPECT_EQ(kernel_.device_count(), 1u);
    });
    // A program of that layout goes on with it.
    --memory.header().layout;
    run([this](Host& host) -> Task<> {
        EXPECT_FALSE(has_left_one(host));
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
    });
    // Or somebody ends it by force.
    ++memory.header().layout;
    run([](Host& host) -> Task<> {
        Event ended;
        bool has_ended = false;
        host.attachments.when_none_is_left([&] {
            has_ended = true;
            ended.notify_all();
        });
        EXPECT_FALSE(has_ended);
        EXPECT_TRUE(host.keeper.cut("nbd0"));
        while (!has_ended) co_await ended.wait();
        EXPECT_FALSE(has_left_one(host));
    });
}

TEST_F(AttachmentsAtOnce, a_device_that_the_kernel_ends_as_it_is_ended_by_force_is_forgotten_once) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        bool is_over = false;
        const auto turn = [&]() -> Task<> {
            while (!is_over) co_await Yield(*host.loop);
        };
        Gate gate;
        gate.spawn(turn());
        kernel_.before = [&](const std::string& call) -> Result<> {
            if (call != "is_there") return {};
            const nbd::Bytes says_so = nbd::Bytes().request(nbd::Command::disconnect, 1, 0, 0);
            for (const size_t connection : {0, 1})
                EXPECT_GT(::send(kernel_.socket(0, connection), says_so.bytes().data(), says_so.bytes().size(), 0), 0);
            EXPECT_TRUE(kernel_.disconnect(0));
            // The connections end meanwhile.
            for (const uint64_t until = host.loop->turns() + 100; host.loop->turns() < until;)
                std::this_thread::yield();
            return {};
        };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
        EXPECT_TRUE(host.attachments.list().empty());
        EXPECT_EQ(volumes_.held[volume_->id()], 0);
        is_over = true;
        co_await gate.close();
    });
}

TEST_F(AttachmentsAtOnce, requests_that_came_while_another_one_waited_for_long_are_waited_for_too) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const NbdKernel kernel = kernel_.kernel();
    const AttachedDevice device(kernel, {.volume = "db", .device = "nbd0", .connections = 1},
                                std::move(*nbd::DeviceMemory::create({.connections = 1}, "db")));
    nbd::DeviceLog log(device.memory.log(0), device.memory.first_receipt(0));
    const nbd::Request request{
        .command = nbd::Command::flush, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 0};
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd ours(ends[0]);
    const UniqueFd kernels(ends[1]);
    const auto answer = [&](uint16_t slot) {
        log.finish(slot, nbd::Errno::none);
        const std::array<std::byte, nbd::DeviceLog::reply_header_size> reply{};
        const nbd::DeviceLog::Part part{.slot = slot, .begin = 0, .bytes = reply};
        EXPECT_EQ(log.send(ours.get(), {&part, 1}), nbd::DeviceLog::Sent::yes);
    };
    const uint16_t first = *log.add(request, 0);
    uint16_t later = first;
    int looks = 0;
    loop->run_until_done(none_waits(device, *loop, [&] {
        if (++looks == 60) {  // more than a moment
            later = *log.add(request, 0);
            answer(first);
        }
        if (looks == 80) answer(later);
        return true;
    }));
    EXPECT_GE(looks, 80);
}

TEST_F(AttachmentsAtOnce, nothing_is_cut_off_from_a_device_that_cannot_be_ended) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        kernel_.before = [](const std::string& call) -> Result<> {
            if (call == "is_there") return fail(Errc::io, EMFILE, "played");
            return {};
        };
        EXPECT_EQ((co_await host.attachments.detach("db", true, root)).error().code, Errc::io);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        kernel_.before = [](const std::string&) { return Result<>{}; };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

TEST_F(AttachmentsAtOnce, a_device_whose_volume_cannot_be_opened_yet_is_detached_by_force) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    volumes_.is_away = true;
    run([this](Host& host) -> Task<> {
        EXPECT_GT(volumes_.refused_opens, 0u);
        EXPECT_EQ(host.attachments.list().size(), 1u);
        EXPECT_TRUE(kernel_.has(0));
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
        expect_that_nothing_is_left(host);
        volumes_.is_away = false;
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
    });
}

// Who waits for its volume stops when a detach begins, and goes on when that has failed.
TEST_F(AttachmentsAtOnce, a_device_whose_volume_comes_after_a_detach_that_failed_is_served) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    std::binary_semaphore may_fail{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "disconnect") return {};
        may_fail.acquire();
        return fail(Errc::io, EMFILE, "played");
    };
    volumes_.opens_wait = true;
    run([&](Host& host) -> Task<> {
        Gate detaching;
        const auto detach = [](Host& of) -> Task<> { EXPECT_FALSE(co_await of.attachments.detach("db", false, root)); };
        detaching.spawn(detach(host));
        while (!host.attachments.list().empty()) co_await Yield(*host.loop);
        volumes_.opens_wait = false;
        volumes_.changed.notify_all();
        may_fail.release();
        co_await detaching.close();
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        kernel_.before = [](const std::string&) { return Result<>{}; };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

// Each has found the device before the other one ends it.
TEST_F(AttachmentsAtOnce, of_two_who_detach_a_device_at_once_one_ends_it) {
    std::atomic<int> disconnects{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        disconnects += call == "disconnect";
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        std::vector<Result<>> ends;
        const auto detach = [&]() -> Task<> { ends.push_back(co_await host.attachments.detach("db", false, root)); };
        Gate detaching;
        for (int i = 0; i < 2; ++i) detaching.spawn(detach());
        co_await detaching.close();
        EXPECT_EQ(ends.size(), 2u);
        EXPECT_EQ(std::ranges::count_if(ends, [](const Result<>& end) { return end.has_value(); }), 1);
        for (const Result<>& end : ends)
            if (!end) EXPECT_EQ(end.error().code, Errc::busy);
        EXPECT_EQ(disconnects, 1);
        expect_that_nothing_is_left(host);
    });
}

TEST_F(AttachmentsAtOnce, a_device_whose_size_cannot_be_read_is_as_large_as_the_kernel_was_told) {
    kernel_.after = [this](const std::string& call) -> Result<> {
        if (call == "reconfigure") kernel_.remove("sys/block/nbd0/size");
        return {};
    };
    run([](Host& host) -> Task<> {
        const Result<Attachment> attached = co_await host.attachments.attach(options(), root);
        EXPECT_EQ(attached ? attached->size_bytes : 0, size_bytes);
    });
}

// Nobody else says so: the kernel has the device, and its requests wait.
TEST_F(AttachmentsAtOnce, the_log_names_the_devices_that_a_stop_leaves_and_the_next_start_takes_up) {
    const auto log_of = [this](const Talk& talk) {
        testing::internal::CaptureStderr();
        run(talk);
        return testing::internal::GetCapturedStderr();
    };
    const std::string first =
        log_of([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    EXPECT_TRUE(first.contains(" attached volume db as nbd0\n")) << first;
    EXPECT_TRUE(first.contains(" nbd0 stays attached: its requests wait for the next start\n")) << first;
    const std::string second = log_of([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        EXPECT_TRUE(co_await host.attachments.detach("db", false, root));
    });
    EXPECT_TRUE(second.contains(" nbd0 is volume db, as before\n")) << second;
    EXPECT_TRUE(second.contains(" detached volume db from nbd0\n")) << second;
    EXPECT_FALSE(second.contains("stays attached")) << second;
}

// A device that the kernel has ended, which the process does not know yet: the answer is lost, and late. Meanwhile
// another volume gets its number.
class AttachmentsReplaced : public AttachmentsAtOnce {
  protected:
    void run_replaced(const std::function<Task<>(Host&)>& meanwhile, const std::function<Task<>(Host&)>& after) {
        volumes_.add("other", size_bytes, false);
        std::binary_semaphore answers{0};
        std::atomic<bool> is_ended{false};
        kernel_.before = [&](const std::string& call) -> Result<> {
            if (call != "disconnect" || is_ended.exchange(true)) return {};
            EXPECT_TRUE(kernel_.disconnect(0));
            answers.acquire();
            return fail(Errc::io, EIO, "played");
        };
        run([&](Host& host) -> Task<> {
            EXPECT_TRUE(co_await host.attachments.attach(options(), root));
            Gate detaching;
            const auto detach = [&]() -> Task<> { EXPECT_TRUE(co_await host.attachments.detach("db", false, root)); };
            detaching.spawn(detach());
            while (!is_ended || kernel_.has(0)) co_await Yield(*host.loop);
            const AttachOptions of_other{.volume = "other", .connections = 1};
            const Result<Attachment> other = co_await host.attachments.attach(of_other, root);
            EXPECT_EQ(other ? other->device : "", "nbd0");
            if (other) co_await meanwhile(host);
            answers.release();
            co_await detaching.close();
            if (other) co_await after(host);
        });
    }
};

TEST_F(AttachmentsReplaced, the_keeper_keeps_the_newer_device_when_the_older_one_is_forgotten) {
    run_replaced([](Host&) -> Task<> { co_return; },
                 [this](Host& host) -> Task<> {
                     for (const char* const name : {"nbd0", "nbd0.0"})
                         EXPECT_TRUE(host.keeper.has(name).value_or(false)) << name;
                     EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
                 });
}

TEST_F(AttachmentsReplaced, who_detaches_by_the_device_means_the_newer_one) {
    run_replaced(
        [](Host& host) -> Task<> {
            EXPECT_TRUE(co_await host.attachments.detach("nbd0", false, root));
            EXPECT_EQ((co_await host.attachments.detach("db", false, root)).error().code, Errc::not_found);
        },
        [this](Host& host) -> Task<> {
            expect_that_nothing_is_left(host);
            co_return;
        });
}

TEST_F(AttachmentsAtOnce, a_device_stays_while_its_volume_is_being_opened) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    volumes_.opens_wait = true;
    run([this](Host& host) -> Task<> {
        Gate detaching;
        const auto detach = [&]() -> Task<> { EXPECT_TRUE(co_await host.attachments.detach("db", true, root)); };
        detaching.spawn(detach());
        while (kernel_.has(0)) co_await Yield(*host.loop);
        // Who need not wait has heard of it by now.
        co_await on_thread([] { return true; });
        (void)co_await turns(*host.loop);
        EXPECT_EQ(volumes_.held[volume_->id()], 1);
        volumes_.opens_wait = false;
        volumes_.changed.notify_all();
        co_await detaching.close();
        expect_that_nothing_is_left(host);
    });
}

// Else an older size could be the last one that the kernel hears.
TEST_F(AttachmentsAtOnce, sizes_are_told_one_after_the_other) {
    std::binary_semaphore first_may_end{0};
    std::atomic<int> at_once{0};
    std::atomic<int> told{0};
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        kernel_.before = [&](const std::string& call) -> Result<> {
            if (call != "reconfigure") return {};
            EXPECT_EQ(++at_once, 1);
            if (++told == 1) first_may_end.acquire();
            --at_once;
            return {};
        };
        Gate following;
        const auto resize = [&](uint64_t to_bytes) -> Task<> {
            EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = to_bytes}));
            EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id()));
        };
        following.spawn(resize(2 * size_bytes));
        while (told == 0) co_await Yield(*host.loop);
        following.spawn(resize(3 * size_bytes));
        // Who need not wait has told it by now.
        (void)co_await turns(*host.loop);
        co_await on_thread([] { return true; });
        first_may_end.release();
        co_await following.close();
        EXPECT_EQ(told, 2);
        EXPECT_EQ(kernel_.told().size_bytes, 3 * size_bytes);
        kernel_.before = [](const std::string&) { return Result<>{}; };
    });
}

// The process was killed as it told that size, and since then the volume has the one that it had before.
TEST_F(AttachmentsAtOnce, a_size_that_only_the_kernel_knows_of_is_replaced_by_that_of_the_volume) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    kernel_.set("sys/block/nbd0/size", std::to_string(2 * size_bytes / 512));
    std::atomic<int> told{0};
    kernel_.after = [&](const std::string& call) -> Result<> {
        told += call == "reconfigure";
        return {};
    };
    run([&](Host& host) -> Task<> {
        while (told == 0) co_await on_thread([] { return true; });
        EXPECT_EQ(kernel_.devices().size_bytes_of("nbd0"), size_bytes);
        EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id()));
        EXPECT_EQ(told, 1);
    });
}

}  // namespace
}  // namespace tarn
