// Block devices from their attach to their end, over processes: the kernel's driver is played, the keeper and the NBD
// server are the real ones.
#include <semaphore>

#include "tests/support/turns.hpp"
#include "tests/unit/attachments_fixture.hpp"
#include "utils/on_thread.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;
using nbd::Bytes;
using nbd::Command;
using nbd::Errno;

TEST_F(AttachmentsTest, a_volume_becomes_a_device_and_is_let_go_of_with_it) {
    run([this](Host& host) -> Task<> {
        auto attached = co_await host.attachments.attach(options(2), root);
        EXPECT_TRUE(attached);
        if (!attached) co_return;
        EXPECT_EQ(attached->device, "nbd0");
        EXPECT_EQ(attached->size_bytes, size_bytes);
        EXPECT_EQ(kernel_.told().size_bytes, size_bytes);
        EXPECT_EQ(kernel_.told().backend, "tarn/by-name/db");
        EXPECT_EQ(kernel_.told().request_timeout, 24h);
        EXPECT_EQ(kernel_.told().reconnect_timeout, 10min);
        EXPECT_TRUE(host.keeper.has("nbd0").value_or(false));
        EXPECT_TRUE(host.keeper.has("nbd0.1").value_or(false));
        EXPECT_EQ(volumes_.held[volume_->id()], 1);
        for (const size_t connection : {0, 1}) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, connection)));
        EXPECT_EQ((co_await host.attachments.attach(options(), root)).error().code, Errc::busy);
        EXPECT_EQ((co_await host.attachments.attach(options(), {.user = 12345})).error().code, Errc::refused);
        EXPECT_EQ((co_await host.attachments.detach("nbd1", false, root)).error().code, Errc::not_found);
        EXPECT_TRUE(co_await host.attachments.detach("nbd0", false, root));
        EXPECT_TRUE(host.attachments.list().empty());
        EXPECT_FALSE(kernel_.has(0));
        EXPECT_FALSE(host.keeper.has("nbd0").value_or(true));
        EXPECT_FALSE(host.keeper.has("nbd0.1").value_or(true));
        EXPECT_EQ(volumes_.held[volume_->id()], 0);
    });
}

TEST_F(AttachmentsTest, a_device_in_use_is_detached_by_force_alone) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        kernel_.set("sys/block/nbd0/dev", "43:0");
        kernel_.set("proc/self/mountinfo", "80 20 43:0 / /srv rw - ext4 /dev/tarn/by-name/db rw");
        EXPECT_EQ((co_await host.attachments.detach("db", false, root)).error().code, Errc::busy);
        kernel_.set("proc/self/mountinfo", "80 20 0:55 / /srv rw - btrfs /dev/nbd0 rw");
        EXPECT_EQ((co_await host.attachments.detach("db", false, root)).error().code, Errc::busy);
        kernel_.set("proc/self/mountinfo", "");
        kernel_.set("proc/swaps", "/dev/nbd0 partition 1 0 -2");
        EXPECT_EQ((co_await host.attachments.detach("db", false, root)).error().code, Errc::busy);
        kernel_.set("proc/swaps", "");
        kernel_.set("sys/block/nbd0/nbd0p1/holders/dm-0", "");
        EXPECT_EQ((co_await host.attachments.detach("db", false, root)).error().code, Errc::busy);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

TEST_F(AttachmentsTest, the_next_process_goes_on_with_what_was_under_way) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(2), root)); });
    const int kernel = kernel_.socket(0, 1);
    const Bytes request = Bytes().request(Command::write, 5, 0, page_size).fill(page_size, std::byte{9});
    ASSERT_EQ(::send(kernel, request.bytes().data(), request.bytes().size(), 0),
              static_cast<ssize_t>(request.bytes().size()));
    run([&](Host& host) -> Task<> {
        EXPECT_EQ(co_await answer(host, kernel, 5), Errno::none);
        std::vector<std::byte> page(page_size);
        co_await ask(host, kernel, Bytes().request(Command::read, 6, 0, page_size));
        EXPECT_EQ(co_await answer(host, kernel, 6, page), Errno::none);
        EXPECT_EQ(page[17], std::byte{9});
        EXPECT_EQ(host.attachments.list().size(), 1u);
        EXPECT_FALSE(has_left_one(host));
        EXPECT_TRUE(co_await host.attachments.detach("db", false, root));
    });
}

// Whether the first write of the first connection is said to have written its first page, by what the keeper has.
bool has_receipt(const std::string& keeper, bool add) {
    PassedDescriptors none;
    auto kept = Keeper(keeper).take(none);
    for (Keeper::Kept& each : *kept) {
        if (each.name != "nbd0") continue;
        const auto memory = nbd::DeviceMemory::adopt(std::move(each.fd));
        nbd::DeviceLog::Slot& slot = memory->log(0).slots[0];
        if (add) slot.receipts.begin(memory->first_receipt(0));
        if (add) slot.receipts.add(0);
        return slot.receipts.has(0);
    }
    return false;
}

TEST_F(AttachmentsTest, what_was_written_into_memory_that_is_lost_is_written_again) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    const auto nothing = [](Host&) -> Task<> { co_return; };
    ASSERT_TRUE(has_receipt(path_, true));
    run(nothing);
    EXPECT_TRUE(has_receipt(path_, false));
    run(nothing, std::nullopt);
    EXPECT_FALSE(has_receipt(path_, false));
}

TEST_F(AttachmentsTest, a_device_that_is_another_one_by_now_is_let_go_of) {
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    kernel_.set("sys/block/nbd0/pid", "7");  // the same name and number, connected by another thread
    run([](Host& host) -> Task<> {
        EXPECT_TRUE(host.attachments.list().empty());
        while (co_await on_thread([&] { return host.keeper.has("nbd0").value_or(false); })) continue;
    });
    EXPECT_TRUE(kernel_.has(0));
}

TEST_F(AttachmentsTest, a_device_whose_volume_is_gone_or_at_another_host_is_ended) {
    for (const bool is_deleted : {true, false}) {
        run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
        run(
            [&](Host& host) -> Task<> {
                co_await all_are_forgotten(host);
                EXPECT_FALSE(kernel_.has(0));
            },
            [&]() -> std::optional<std::span<const uint64_t>> {
                if (!is_deleted) {
                    volumes_.hold_elsewhere("db");
                    return std::span<const uint64_t>();
                }
                const auto remove = [this]() -> Task<> {
                    EXPECT_TRUE(co_await volumes_.remove("db", true));
                    volume_ = volumes_.add("db", size_bytes, false);
                };
                std::move(*Loop::create())->run_until_done(remove());
                return std::nullopt;
            }());
    }
}

TEST_F(AttachmentsTest, a_connection_that_the_kernel_gave_up_is_replaced) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        co_await ask(host, kernel_.socket(0, 1), Bytes().fill(28, std::byte{7}));  // no request
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
    });
    // The keeper has it, too.
    run([this](Host& host) -> Task<> { EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1))); });
}

TEST_F(AttachmentsTest, a_device_that_somebody_disconnects_in_the_kernel_is_forgotten) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        EXPECT_TRUE(kernel_.disconnect(0));
        co_await all_are_forgotten(host);
        EXPECT_EQ(volumes_.held[volume_->id()], 0);
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
    });
    EXPECT_TRUE(kernel_.disconnect(0));
    run([this](Host& host) -> Task<> { co_await all_are_forgotten(host); });
}

// Its page is at a host that is away.
TEST_F(AttachmentsTest, a_forced_detach_ends_while_requests_wait) {
    bool waits = true;
    volumes_.faults.miss_every = 1;
    volumes_.faults.copies_wait = [&] { return waits; };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await ask(host, kernel_.socket(0, 0), Bytes().request(Command::write, 1, 0, page_size).fill(page_size));
        for (int i = 0; i < 10; ++i) co_await Yield(*host.loop);
        co_await detach_by_force(host, [&] { waits = false; });
    });
}

TEST_F(AttachmentsTest, a_volume_of_another_size_makes_a_device_of_that_size) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 2 * size_bytes + 100}));
        EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id()));
        EXPECT_EQ(kernel_.told().size_bytes, 2 * size_bytes);
        EXPECT_EQ(host.attachments.list()[0].size_bytes, 2 * size_bytes);
        // Nobody tells; the next request meets it.
        EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 3 * size_bytes}));
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        co_await on_thread([&] { return kernel_.wait_for_size(3 * size_bytes); });
        kernel_.takes_sizes = false;
        EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 4 * size_bytes}));
        EXPECT_FALSE(co_await host.attachments.follow_size_of(volume_->id()));
        EXPECT_EQ(host.attachments.list()[0].size_bytes, 3 * size_bytes);
        // It is told again without anybody's doing.
        kernel_.takes_sizes = true;
        co_await until([&] { return host.attachments.list()[0].size_bytes == 4 * size_bytes; });
    });
}

// The kernel would wait for the request, and this process for the kernel.
TEST_F(AttachmentsTest, a_size_is_not_told_while_a_request_waits) {
    bool is_asked = false;
    std::atomic<bool> waits = false;
    volumes_.faults.miss_every = 1;
    volumes_.faults.copies_wait = [&] {
        is_asked = true;
        return waits.load();
    };
    kernel_.before = [&](const std::string& call) -> Result<> {
        EXPECT_FALSE(call == "reconfigure" && waits);
        return {};
    };
    // until: the request has been waiting, and the size to be told, for many turns.
    const auto run_until = [&](const std::function<Task<>(Host&)>& until) {
        run([&](Host& host) -> Task<> {
            EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
            waits = true;
            is_asked = false;
            co_await ask(host, kernel_.socket(0, 1), Bytes().request(Command::write, 1, 0, page_size).fill(page_size));
            while (!is_asked) co_await Yield(*host.loop);
            EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = kernel_.told().size_bytes + size_bytes}));
            const auto follow = [&]() -> Task<> {
                EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id()));
            };
            Gate gate;
            gate.spawn(follow());
            for (int i = 0; i < 100; ++i) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
            co_await until(host);
            waits = false;
            co_await gate.close();
        });
    };
    run_until([&](Host&) -> Task<> {
        EXPECT_EQ(kernel_.told().size_bytes, size_bytes);
        co_return;
    });
    EXPECT_EQ(kernel_.told().size_bytes, 2 * size_bytes);
    run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.detach("db", false, root)); });
    // Who ends the device does not wait for it.
    run_until([&](Host& host) -> Task<> { co_await detach_by_force(host, [&] { waits = false; }); });
}

// What the kernel had sent on it waits in the kernel, and nobody here knows of it.
TEST_F(AttachmentsTest, a_size_is_not_told_while_a_request_of_a_connection_that_broke_waits) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        ::shutdown(kernel_.socket(0, 0), SHUT_RDWR);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
    });
    // The next process, which was told of none, waits for them, too.
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        const auto follow = [&]() -> Task<> { EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id())); };
        for (const bool stops : {false, true}) {
            if (stops) {  // without any, there is nothing to wait for any more
                ::shutdown(kernel_.socket(0, 0), SHUT_RDWR);
                co_await on_thread([&] { return kernel_.wait_for_replaced(2); });
                EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
            }
            kernel_.set("sys/block/nbd0/inflight", "       0        1");
            const uint64_t told_bytes = kernel_.told().size_bytes;
            EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 2 * told_bytes}));
            Gate gate;
            gate.spawn(follow());
            for (int i = 0; i < 100; ++i) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
            EXPECT_EQ(kernel_.told().size_bytes, told_bytes);
            if (stops)
                co_await host.attachments.stop();
            else
                kernel_.set("sys/block/nbd0/inflight", "       0        0");
            co_await gate.close();
            EXPECT_EQ(kernel_.told().size_bytes, stops ? told_bytes : 2 * told_bytes);
            if (stops) continue;
            kernel_.set("sys/block/nbd0/inflight", "       0        1");  // one that is in a log
            EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 4 * told_bytes}));
            co_await follow();
            EXPECT_EQ(kernel_.told().size_bytes, 4 * told_bytes);
        }
    });
}

TEST_F(AttachmentsTest, a_kernel_that_does_not_do_what_it_says_gets_no_device_to_serve) {
    const auto attach_fails = [this](Errc expected) {
        run([&](Host& host) -> Task<> {
            const Result<Attachment> attached = co_await host.attachments.attach(options(), root);
            EXPECT_FALSE(attached);
            EXPECT_EQ(attached ? Errc::io : attached.error().code, expected);
            EXPECT_TRUE(host.attachments.list().empty());
            EXPECT_FALSE(host.keeper.has("nbd0").value_or(false));
        });
        EXPECT_FALSE(kernel_.has(0));
        EXPECT_EQ(volumes_.held[volume_->id()], 0);
    };
    kernel_.shows_backend = false;
    attach_fails(Errc::unsupported);
    kernel_.shows_backend = true;
    kernel_.takes_sizes = false;
    attach_fails(Errc::io);
    kernel_.takes_sizes = true;
    // It has made the device, and its answer is an error.
    kernel_.after = [](const std::string& call) -> Result<> {
        if (call == "connect") return fail(Errc::io, EIO, "played");
        return {};
    };
    attach_fails(Errc::io);
    kernel_.after = [](const std::string&) { return Result<>{}; };
    for (const char* const failing : {"is_there", "connect", "reconfigure"}) {
        kernel_.before = [failing](const std::string& call) -> Result<> {
            if (call == failing) return fail(Errc::refused, EPERM, "played");
            return {};
        };
        attach_fails(Errc::refused);
    }
}

TEST_F(AttachmentsTest, a_device_that_the_kernel_does_not_end_is_served_on) {
    bool ends = false;
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call == "disconnect" && !ends) return fail(Errc::io, EIO, "played");
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        EXPECT_FALSE(co_await host.attachments.detach("db", true, root));
        EXPECT_EQ(host.attachments.list().size(), 1u);
        co_await on_thread([&] { return kernel_.wait_for_replaced(2); });
        for (const size_t connection : {0, 1}) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, connection)));
        ends = true;
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

TEST_F(AttachmentsTest, a_device_that_the_kernel_has_ended_without_a_good_answer_is_forgotten) {
    kernel_.after = [](const std::string& call) -> Result<> {
        if (call == "disconnect") return fail(Errc::io, EIO, "played");
        return {};
    };
    for (const bool force : {false, true})
        run([this, force](Host& host) -> Task<> {
            EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
            EXPECT_TRUE(co_await host.attachments.detach("db", force, root));
            EXPECT_TRUE(host.attachments.list().empty());
            EXPECT_EQ(volumes_.held[volume_->id()], 0);
        });
}

TEST_F(AttachmentsTest, a_device_that_is_ending_is_not_listed) {
    std::atomic<bool> is_asked{false};
    std::atomic<bool> may_end{false};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "disconnect") return {};
        is_asked = true;
        is_asked.notify_one();
        may_end.wait(false);
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        Gate detaching;
        const auto detach = [](Host& of) -> Task<> { EXPECT_TRUE(co_await of.attachments.detach("db", false, root)); };
        detaching.spawn(detach(host));
        co_await on_thread([&] {
            is_asked.wait(false);
            return true;
        });
        EXPECT_TRUE(host.attachments.list().empty());
        may_end = true;
        may_end.notify_one();
        co_await detaching.close();
    });
}

// Of descriptors, say, for longer than tarnd says nothing about it.
TEST_F(AttachmentsTest, a_connection_is_replaced_once_a_long_shortage_is_over) {
    std::atomic<int> failures{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call == "reconfigure" && failures-- > 0) return fail(Errc::io, EMFILE, "played");
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        failures = 22;
        co_await ask(host, kernel_.socket(0, 1), Bytes().fill(28, std::byte{7}));  // no request
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
    });
}

TEST_F(AttachmentsTest, numbers_that_are_taken_are_passed_over) {
    kernel_.set("sys/block/nbd0/pid", "1");
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(kernel_.connect(1, {.backend = "somebody"}, {}));
        kernel_.remove("sys/block/nbd1");  // taken this very moment: not to be seen yet
        auto attached = co_await host.attachments.attach(options(), root);
        EXPECT_EQ(attached ? attached->device : "", "nbd2");
        EXPECT_FALSE(host.keeper.has("nbd1").value_or(true));
    });
}

// Its name is that of the one which was to be made here.
TEST_F(AttachmentsTest, a_device_that_another_daemon_makes_of_the_volume_this_moment_is_left_alone) {
    std::atomic<bool> is_first{true};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call == "connect" && is_first.exchange(false))
            EXPECT_TRUE(kernel_.connect(0, {.backend = backend_of("db")}, {}));
        return {};
    };
    run([this](Host& host) -> Task<> {
        auto attached = co_await host.attachments.attach(options(), root);
        EXPECT_EQ(attached ? attached->device : "", "nbd1");
        EXPECT_TRUE(kernel_.has(0));
    });
}

TEST_F(AttachmentsTest, who_takes_over_or_deletes_ends_the_devices_of_the_volume) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach({.volume = "db", .read_only = true, .connections = 1}, root));
        EXPECT_EQ(volumes_.held[volume_->id()], 1);
        EXPECT_EQ((co_await host.attachments.clients_of(volume_->id())).size(), 1u);
        EXPECT_TRUE(co_await host.attachments.end_devices_of(volume_->id() + 1));
        co_await host.server.end_clients_of(volume_->id() + 1);
        EXPECT_EQ(host.attachments.list().size(), 1u);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        co_await host.attachments.end_clients_of(volume_->id());
        EXPECT_TRUE(host.attachments.list().empty());
        EXPECT_FALSE(kernel_.has(0));
    });
}

TEST_F(AttachmentsTest, who_cuts_a_device_through_the_keeper_ends_it) {
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        EXPECT_TRUE(host.keeper.cut("nbd0"));
        co_await all_are_forgotten(host);
        EXPECT_FALSE(kernel_.has(0));
    });
}

TEST_F(AttachmentsTest, a_connection_that_breaks_while_a_detach_fails_is_replaced) {
    std::binary_semaphore broke{0};
    bool refuses = true;
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "disconnect" || !refuses) return {};
        broke.acquire();
        return fail(Errc::io, EMFILE, "played");
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        Gate detaching;
        const auto detach = [](Host& of) -> Task<> { EXPECT_FALSE(co_await of.attachments.detach("db", false, root)); };
        detaching.spawn(detach(host));
        while (!host.attachments.list().empty()) co_await Yield(*host.loop);
        ::shutdown(kernel_.socket(0, 0), SHUT_RDWR);
        (void)co_await turns(*host.loop);
        broke.release();
        co_await detaching.close();
        EXPECT_EQ(host.attachments.list().size(), 1u);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        refuses = false;
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

TEST_F(AttachmentsTest, who_is_not_root_detaches_nothing) {
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        EXPECT_EQ((co_await host.attachments.detach("db", true, {.user = 12345})).error().code, Errc::refused);
        EXPECT_TRUE(kernel_.has(0));
        (void)co_await host.attachments.detach("db", true, root);
    });
}

TEST_F(AttachmentsTest, another_device_of_the_number_is_not_ended) {
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        kernel_.set("sys/block/nbd0/pid", "9999");
        EXPECT_TRUE(co_await host.attachments.detach("db", false, root));
        EXPECT_TRUE(kernel_.has(0));
    });
}

TEST_F(AttachmentsTest, who_takes_over_hears_of_a_device_that_does_not_end) {
    bool refuses = true;
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call == "disconnect" && refuses) return fail(Errc::io, EIO, "played");
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        EXPECT_FALSE(co_await host.attachments.end_devices_of(volume_->id()));
        refuses = false;
        EXPECT_TRUE(co_await host.attachments.end_devices_of(volume_->id()));
    });
}

}  // namespace
}  // namespace tarn
