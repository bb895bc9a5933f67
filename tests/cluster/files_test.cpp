// Files of three hosts: the size and the bytes change together, however many write, cut and append at once.
#include <algorithm>
#include <cstring>

#include "coherence/pages/page_access.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "tests/cluster/cluster.hpp"
#include "utils/with_timeout.hpp"

namespace tarn::three_hosts {
namespace {

std::vector<std::byte> filled(size_t size, unsigned value) {
    return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

Task<Result<>> write_at(Host& host, uint64_t offset, std::span<const std::byte> from) {
    CachedVolume volume(*host.volumes, volume_id);
    co_return co_await volume.write_growing(offset, from);
}
Task<Result<>> change(Host& host, AttributeChange attributes) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY_VOID(co_await volume.change_attributes(attributes));
    co_return Result<>{};
}
Task<Result<>> resize(Host& host, uint64_t size) {
    return change(host, {.size_bytes = size});
}
Task<Result<uint64_t>> size_of(Host& host) {
    CachedVolume volume(*host.volumes, volume_id, OnLoss::revert);
    CO_TRY(const Attributes now, co_await volume.attributes());
    co_return now.size_bytes;
}

// The state left by a process that ended after it had cut the volume to `from`, before it had zeroed the bytes past it.
Task<Result<AttributePage>> attribute_page(Host& host) {
    CachedVolume volume(*host.volumes, volume_id);
    std::array<std::byte, sizeof(AttributePage)> bytes;
    CO_TRY_VOID(co_await volume.read(attribute_page_of(volume_id).number() * page_size, bytes));
    co_return AttributePage::load(bytes.data());
}
Task<Result<>> leave_mark(Host& host, uint64_t from, uint64_t end, HostId by, uint32_t epoch) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY_VOID(co_await volume.change_attributes({.size_bytes = from}));
    CO_TRY(AttributePage page, co_await attribute_page(host));
    page.cut(from);
    page.zeroing_from = from;
    page.zeroing_end = end;
    page.zeroing_host = by;
    page.zeroing_epoch = epoch;
    std::array<std::byte, sizeof page> bytes;
    page.store(bytes.data());
    CO_TRY_VOID(co_await volume.write(attribute_page_of(volume_id).number() * page_size, bytes));
    // As if it had been written before the cut.
    co_return co_await volume.write(from, filled(end - from, 9));
}

TEST(AttributePage, one_of_before_there_were_truncations_has_none) {
    std::array<std::byte, sizeof(AttributePage)> bytes{};
    AttributePage page;
    page.version = 1;
    page.size_bytes = 77;
    page.zeroing_from = 0;
    page.store(bytes.data());
    page = AttributePage::load(bytes.data());
    EXPECT_EQ(page.size_bytes, 77U);
    EXPECT_FALSE(page.zeroes_before(UINT64_MAX));
    page = AttributePage::load(std::array<std::byte, sizeof page>{}.data());
    EXPECT_EQ(page.mode, Attributes{}.mode);
    EXPECT_FALSE(page.zeroes_before(UINT64_MAX));
}

TEST(AttributePage, knows_the_least_of_its_last_cuts) {
    AttributePage page;
    for (const uint64_t size : {50, 9, 70, 60}) page.cut(size);
    EXPECT_EQ(page.least_cut_since(4), UINT64_MAX);
    EXPECT_EQ(page.least_cut_since(2), 60U);
    EXPECT_EQ(page.least_cut_since(0), 9U);
    for (unsigned i = 0; i < AttributePage::cuts_kept; ++i) page.cut(100 + i);
    EXPECT_EQ(page.least_cut_since(4), 100U);
    EXPECT_EQ(page.least_cut_since(3), std::nullopt);
}

using ClusterFiles = Cluster;

// A writer that has seen the new size writes past it at once, while the cut bytes are still being zeroed.
Task<Result<>> write_once_cut(Host& host, uint64_t cut, std::span<const std::byte> from) {
    for (;;) {
        CO_TRY(const uint64_t size, co_await size_of(host));
        if (size == cut) break;
        co_await Yield(*Loop::current());
    }
    co_return co_await write_at(host, cut + 12345, from);
}
Task<> cut_and_write(std::vector<std::unique_ptr<Host>>& hosts, uint64_t cut, std::span<const std::byte> from,
                     Result<>& cutting, Result<>& writing) {
    struct Part {
        static Task<> run(Loop& loop, Task<Result<>> task, Result<>& result) {
            result = co_await run_on(loop, std::move(task));
        }
    };
    Gate gate;
    gate.spawn(Part::run(*hosts[0]->loop, resize(*hosts[0], cut), cutting));
    gate.spawn(Part::run(*hosts[1]->loop, write_once_cut(*hosts[1], cut, from), writing));
    co_await gate.close();
}

TEST_F(ClusterFiles, a_truncation_takes_nothing_that_was_written_after_it) {
    constexpr uint64_t size = uint64_t{2} << 20;
    constexpr uint64_t cut = 5000;
    std::vector<std::byte> seen(cut + 12345 + 30000);
    for (unsigned round = 1; round <= 12; ++round) {
        ASSERT_TRUE(on(2, write_at(*hosts_[2], 0, filled(size, 0xff))));
        const std::vector<std::byte> late = filled(30000, round);
        Result<> cutting;
        Result<> writing;
        driver_->run_until_done(cut_and_write(hosts_, cut, late, cutting, writing));
        ASSERT_TRUE(cutting) << cutting.error().where;
        ASSERT_TRUE(writing) << writing.error().where;
        ASSERT_EQ(*on(2, size_of(*hosts_[2])), seen.size());
        ASSERT_TRUE(on(2, read(*hosts_[2], 0, seen)));
        ASSERT_TRUE(std::ranges::equal(std::span(seen).last(late.size()), late)) << "round " << round;
        ASSERT_EQ(std::ranges::count(seen, std::byte{0}), 12345) << "round " << round;
        ASSERT_TRUE(on(0, resize(*hosts_[0], 0)));
    }
}

// Each record says how long it is, who wrote it and in what order; records end with a byte that is never zero.
constexpr size_t appenders = 6;
constexpr unsigned records_each = 120;

Task<Result<>> append_records(Host& host, unsigned who) {
    CachedVolume volume(*host.volumes, volume_id);
    std::vector<std::byte> record;
    for (unsigned number = 1; number <= records_each; ++number) {
        record.assign(4 + (number * 37 + who * 101) % 700, static_cast<std::byte>(who + 1));
        const auto size = static_cast<uint16_t>(record.size());
        std::memcpy(record.data(), &size, sizeof size);
        record[2] = static_cast<std::byte>(who + 1);
        record[3] = static_cast<std::byte>(number);
        CO_TRY_VOID(co_await volume.append(record));
    }
    co_return Result<>{};
}

// Every byte below the size belongs to a complete record. Returns the records of each appender.
Result<std::array<unsigned, appenders>> check_records(std::span<const std::byte> bytes) {
    std::array<unsigned, appenders> last{};
    while (!bytes.empty()) {
        if (bytes.size() < 4) return fail(Errc::corrupt, 0, "test: half a record");
        uint16_t size = 0;
        std::memcpy(&size, bytes.data(), sizeof size);
        const auto who = static_cast<unsigned>(bytes[2]) - 1;
        const auto number = static_cast<unsigned>(bytes[3]);
        if (size < 4 || size > bytes.size()) return fail(Errc::corrupt, 0, "test: no record begins here");
        if (who >= appenders || number != last[who] + 1) return fail(Errc::corrupt, 0, "test: out of order");
        for (const std::byte byte : bytes.first(size).subspan(4))
            if (byte != static_cast<std::byte>(who + 1)) return fail(Errc::corrupt, 0, "test: not its bytes");
        last[who] = number;
        bytes = bytes.subspan(size);
    }
    return last;
}

Task<Result<>> follow_records(Host& host, const std::atomic<size_t>& left, unsigned& rounds) {
    std::vector<std::byte> bytes;
    while (left.load() > 0) {
        CO_TRY(const uint64_t size, co_await size_of(host));
        bytes.resize(size);
        CO_TRY_VOID(co_await read(host, 0, bytes));
        if (const auto records = check_records(bytes); !records) co_return fail(records.error());
        ++rounds;
        co_await Yield(*Loop::current());
    }
    co_return Result<>{};
}

Task<> append_and_follow(std::vector<std::unique_ptr<Host>>& hosts, std::vector<Result<>>& results,
                         std::array<unsigned, host_count>& rounds) {
    struct Part {
        static Task<> append(Loop& loop, Host& host, unsigned who, std::atomic<size_t>& left, Result<>& result) {
            result = co_await run_on(loop, append_records(host, who));
            --left;
        }
        static Task<> follow(Loop& loop, Host& host, std::atomic<size_t>& left, unsigned& rounds, Result<>& result) {
            result = co_await run_on(loop, follow_records(host, left, rounds));
        }
    };
    std::atomic<size_t> left = appenders;
    results.resize(appenders + host_count);
    Gate gate;
    for (unsigned who = 0; who < appenders; ++who) {
        Host& host = *hosts[who % host_count];
        gate.spawn(Part::append(who < host_count ? *host.loop : *host.other, host, who, left, results[who]));
    }
    for (unsigned i = 0; i < host_count; ++i)
        gate.spawn(Part::follow(*hosts[i]->other, *hosts[i], left, rounds[i], results[appenders + i]));
    co_await gate.close();
}

TEST_F(ClusterFiles, who_reads_where_others_append_sees_whole_records_and_nothing_else) {
    std::vector<Result<>> results;
    std::array<unsigned, host_count> rounds{};
    driver_->run_until_done(append_and_follow(hosts_, results, rounds));
    for (const Result<>& result : results) ASSERT_TRUE(result) << result.error().where;
    for (const unsigned each : rounds) EXPECT_GT(each, 0U);
    std::vector<std::byte> all(*on(0, size_of(*hosts_[0])));
    ASSERT_TRUE(on(0, read(*hosts_[0], 0, all)));
    const auto records = check_records(all);
    ASSERT_TRUE(records) << records.error().where;
    for (const unsigned each : *records) EXPECT_EQ(each, records_each);
}

// A thread that is inside the attribute page most of the time, as long as this lives.
class BusyThread {
  public:
    explicit BusyThread(Cache& cache) : thread_([this, &cache] { work(cache); }) {}
    ~BusyThread() {
        ends_ = true;
        thread_.join();
    }

  private:
    struct Linger final : PageUpdate {
        bool apply(std::byte*) override {
            const uint64_t until = monotonic_ns() + 20'000;
            while (monotonic_ns() < until) {
            }
            return false;
        }
    };
    void work(Cache& cache) const {
        LossView view;
        Linger linger;
        while (!ends_) {
            // Several times, so that a busy machine takes the CPU away from it while it is inside.
            for (int i = 0; i < 8; ++i) (void)cache.pages().try_update(attribute_page_of(volume_id), linger, view);
            std::this_thread::yield();
        }
    }

    std::atomic<bool> ends_{false};
    std::thread thread_;
};

Task<Result<>> append_in_time(Host& host, unsigned who) {
    using namespace std::chrono_literals;
    return with_timeout(20s, append_records(host, who));
}
Task<> append_everywhere(std::vector<std::unique_ptr<Host>>& hosts, std::array<Result<>, host_count>& results) {
    struct Part {
        static Task<> append(Host& host, unsigned who, Result<>& result) {
            result = co_await run_on(*host.loop, append_in_time(host, who));
        }
    };
    Gate gate;
    for (unsigned who = 0; who < host_count; ++who) gate.spawn(Part::append(*hosts[who], who, results[who]));
    co_await gate.close();
}

// A write that holds the attribute page while others wait for it must not wait for it itself.
TEST_F(ClusterFiles, appends_go_on_though_others_of_their_host_are_inside_the_size_all_the_time) {
    std::vector<std::unique_ptr<BusyThread>> busy;
    for (const auto& host : hosts_) busy.push_back(std::make_unique<BusyThread>(*host->cache));
    // A write waits for itself only if a thread is inside just as others wait: each round is one more try.
    for (unsigned round = 0; round < 100; ++round) {
        std::array<Result<>, host_count> results;
        driver_->run_until_done(append_everywhere(hosts_, results));
        for (const Result<>& result : results) ASSERT_TRUE(result) << result.error().where;
    }
}

TEST_F(ClusterFiles, a_write_that_would_grow_goes_on_with_what_a_process_that_is_gone_did_not_zero) {
    const uint64_t cut = page_size + 100;
    const uint64_t end = 10 * page_size;
    const uint32_t gone = hosts_[2]->cache->membership().process_of(2).epoch;
    ASSERT_TRUE(on(2, leave_mark(*hosts_[2], cut, end, 2, gone)));
    ASSERT_TRUE(on(2, flush(*hosts_[2])));
    hosts_[2]->stop();
    hosts_[2]->start();
    ASSERT_TRUE(on(2, hosts_[2]->cache->home_start().ended()));
    ASSERT_TRUE(on(1, write_at(*hosts_[1], end, filled(1, 7))));
    std::vector<std::byte> seen(end - cut);
    ASSERT_TRUE(on(0, read(*hosts_[0], cut, seen)));
    EXPECT_EQ(static_cast<size_t>(std::ranges::count(seen, std::byte{0})), seen.size());
    EXPECT_EQ(*on(0, size_of(*hosts_[0])), end + 1);
}

// Runs while another host's write waits.
struct Waiting {
    Waiting(Host& host, Task<Result<>> task) {
        struct Begin final : Loop::Posted {
            Begin(Waiting& of, Host& on, Task<Result<>> what) : waiting(of), host(on), task(std::move(what)) {}
            void run() override {
                const std::unique_ptr<Begin> self(this);
                host.loop->spawn(perform(waiting, std::move(task)));
            }
            static Task<> perform(Waiting& self, Task<Result<>> what) {
                self.result = co_await std::move(what);
                self.done = true;
                self.done.notify_all();
            }
            Waiting& waiting;
            Host& host;
            Task<Result<>> task;
        };
        host.loop->post(*new Begin(*this, host, std::move(task)));
    }
    ~Waiting() { done.wait(false); }
    Result<> result;
    std::atomic<bool> done{false};
};

TEST_F(ClusterFiles, nothing_is_written_where_a_host_is_zeroing_before_it_says_that_it_has_ended) {
    const uint64_t cut = 100;
    const uint64_t end = 5 * page_size;
    Host& zeroing = *hosts_[0];
    ASSERT_TRUE(on(0, leave_mark(zeroing, cut, end, 0, zeroing.cache->membership().process_of(0).epoch)));
    {
        VolumeTurns::Turn turn = *on(0, zeroing.volumes->cutting_turns.take(volume_id));
        const std::vector<std::byte> bytes = filled(page_size, 3);
        Waiting growing(*hosts_[1], write_at(*hosts_[1], 3 * page_size, bytes));
        Waiting cutting(*hosts_[2], resize(*hosts_[2], 0));
        // Within the size nobody waits.
        ASSERT_TRUE(on(1, write_at(*hosts_[1], 0, filled(cut, 1))));
        EXPECT_FALSE(growing.done || cutting.done);
        std::vector<std::byte> seen(page_size);
        ASSERT_TRUE(on(2, read(*hosts_[2], 3 * page_size, seen)));
        EXPECT_EQ(seen, filled(page_size, 9)) << "it was zeroed, or written";
        turn.end();
        growing.done.wait(false);
        cutting.done.wait(false);
        EXPECT_TRUE(growing.result && cutting.result);
    }
    // Either may have been first.
    const uint64_t size = *on(1, size_of(*hosts_[1]));
    EXPECT_TRUE(size == 0 || size == 4 * page_size) << size;
    std::vector<std::byte> seen(2 * page_size);
    ASSERT_TRUE(on(0, read(*hosts_[0], page_size, seen)));
    EXPECT_EQ(seen, filled(2 * page_size, 0));
}

// Like fallocate.
TEST_F(ClusterFiles, a_size_that_grows_without_bytes_waits_for_the_zeroing_and_then_grows) {
    Host& zeroing = *hosts_[0];
    ASSERT_TRUE(on(0, leave_mark(zeroing, 100, 5 * page_size, 0, zeroing.cache->membership().process_of(0).epoch)));
    VolumeTurns::Turn turn = *on(0, zeroing.volumes->cutting_turns.take(volume_id));
    Waiting extending(*hosts_[1], write_at(*hosts_[1], 4 * page_size, {}));
    EXPECT_EQ(*on(1, size_of(*hosts_[1])), 100U);
    turn.end();
    extending.done.wait(false);
    EXPECT_TRUE(extending.result);
    EXPECT_EQ(*on(2, size_of(*hosts_[2])), 4 * page_size);
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(2, read(*hosts_[2], 3 * page_size, seen)));
    EXPECT_EQ(seen, filled(page_size, 0));
}

Task<Result<std::pair<uint64_t, uint64_t>>> append_twice(Host& host, std::span<const std::byte> bytes) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY(const uint64_t first, co_await volume.append(bytes));
    CO_TRY(const uint64_t second, co_await volume.append(bytes));
    co_return std::pair(first, second);
}

TEST_F(ClusterFiles, a_long_append_tells_where_it_begins) {
    const std::vector<std::byte> bytes = filled(2 * append_at_once + 5, 1);
    const auto places = on(0, append_twice(*hosts_[0], bytes));
    ASSERT_TRUE(places);
    EXPECT_EQ(*places, std::pair(uint64_t{0}, uint64_t{bytes.size()}));
}

// What an append leaves there whose size is lost.
TEST_F(ClusterFiles, who_moves_the_end_over_bytes_leaves_zeros_of_them) {
    ASSERT_TRUE(on(0, write_at(*hosts_[0], 0, filled(5000, 1))));
    const std::vector<std::byte> remains = filled(9 * page_size, 9);
    ASSERT_TRUE(on(0, write(*hosts_[0], 5000, remains)));  // no size covers them
    const auto expect_zeros = [&](uint64_t from, uint64_t end) {
        std::vector<std::byte> seen(end - from, std::byte{1});
        ASSERT_TRUE(on(2, read(*hosts_[2], from, seen)));
        EXPECT_EQ(seen, filled(end - from, 0)) << from << " to " << end;
    };
    ASSERT_TRUE(on(1, resize(*hosts_[1], 4 * page_size)));
    expect_zeros(5000, 4 * page_size);
    ASSERT_TRUE(on(1, write_at(*hosts_[1], 6 * page_size + 7, filled(10, 2))));
    expect_zeros(4 * page_size, 6 * page_size + 7);
    ASSERT_TRUE(on(2, write_at(*hosts_[2], 6 * page_size + 30, filled(10, 2))));
    expect_zeros(6 * page_size + 17, 6 * page_size + 30);
    EXPECT_EQ(*on(0, size_of(*hosts_[0])), 6 * page_size + 40);
    ASSERT_TRUE(on(0, write(*hosts_[0], 20 * page_size, remains)));
    ASSERT_TRUE(on(1, resize(*hosts_[1], 12 * page_size)));
    ASSERT_TRUE(on(1, resize(*hosts_[1], 21 * page_size)));
    expect_zeros(6 * page_size + 40, 21 * page_size);
}

// Who waits for the end of one must not take the next one for it.
TEST_F(ClusterFiles, each_zeroing_has_a_mark_of_its_own) {
    ASSERT_TRUE(on(0, write_at(*hosts_[0], 0, filled(100, 1))));
    uint64_t before = 0;
    for (const HostId host : {HostId{0}, HostId{1}, HostId{0}}) {
        const uint64_t size = *on(0, size_of(*hosts_[0]));
        ASSERT_TRUE(on(0, write(*hosts_[0], size, filled(10, 9))));  // no size covers it
        ASSERT_TRUE(on(host, resize(*hosts_[host], size + 10)));
        const AttributePage page = *on(2, attribute_page(*hosts_[2]));
        EXPECT_EQ(page.zeroing_from, AttributePage::no_zeroing);
        EXPECT_GT(page.zeroing_attempt, before);
        before = page.zeroing_attempt;
    }
}

Task<bool> know_the_homes(Host& host) {
    co_await host.cache->flusher().hear_from_homes();
    co_return true;
}
Task<Result<>> flush_in_a_session(Host& host) {
    CachedVolume volume(*host.volumes, volume_id);
    co_return co_await volume.flush();
}

TEST_F(ClusterFiles, a_size_that_was_lost_is_told_to_who_grew_the_file_though_its_bytes_are_there) {
    const HostId sized = hosts_[0]->cache->home_of(attribute_page_of(volume_id));
    const HostId writer = (sized + 1) % host_count;
    const auto session = on(writer, TestSession::open(*hosts_[writer]));
    const std::vector<std::byte> bytes = filled(100, 5);
    ASSERT_TRUE(on(writer, session->write_growing(homed_at(writer), bytes)));
    ASSERT_TRUE(on(sized, change(*hosts_[sized], {.mode = 0640})));  // only it knows the size now
    hosts_[sized]->stop();
    hosts_[sized]->start();
    ASSERT_TRUE(on(sized, hosts_[sized]->cache->home_start().ended()));
    ASSERT_TRUE(on(writer, change(*hosts_[writer], {.mode = 0600})));  // a later client has the attributes here
    EXPECT_FALSE(on(writer, session->append(bytes))) << "nobody knows where the end is";
    EXPECT_FALSE(on(writer, session->flush()));
}

TEST_F(ClusterFiles, what_was_cut_off_stays_so_though_the_zeros_are_lost_with_their_home) {
    const auto home_of = [&](PageId page) { return hosts_[0]->cache->home_of(page); };
    HostId cutter = 0;
    while (cutter == home_of(attribute_page_of(volume_id)) || cutter == home_of(PageId::of(volume_id, 0))) ++cutter;
    const HostId other = (cutter + 1) % host_count;
    const uint64_t at = homed_at(cutter);
    ASSERT_TRUE(on(cutter, write_at(*hosts_[cutter], at, filled(page_size, 9))));
    ASSERT_TRUE(on(cutter, flush_in_a_session(*hosts_[cutter])));
    ASSERT_TRUE(on(cutter, resize(*hosts_[cutter], 100)));
    ASSERT_TRUE(on(other, flush_in_a_session(*hosts_[other])));
    hosts_[cutter]->stop();
    hosts_[cutter]->start();
    ASSERT_EQ(*on(other, size_of(*hosts_[other])), 100U);
    ASSERT_TRUE(on(other, know_the_homes(*hosts_[other])));
    ASSERT_TRUE(on(other, resize(*hosts_[other], at + page_size)));
    std::vector<std::byte> seen(page_size, std::byte{1});
    ASSERT_TRUE(on(other, read(*hosts_[other], at, seen)));
    EXPECT_EQ(seen, filled(page_size, 0));
}

}  // namespace
}  // namespace tarn::three_hosts
