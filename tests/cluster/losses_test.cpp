// Pages that were lost or cannot be read: which clients of three hosts get errors, and until when.
#include "frontends/volumes/attribute_page.hpp"
#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

using ClusterLosses = Cluster;

TEST_F(ClusterLosses, a_page_that_its_home_cannot_read_fails_everywhere_until_it_is_written_anew) {
    const std::vector<std::byte> bytes(page_size, std::byte{42});
    const auto start_of = [](HostId range) { return (uint64_t{64} << 20) * range; };
    for (HostId range = 0; range < host_count; ++range) ASSERT_TRUE(on(0, write(*hosts_[0], start_of(range), bytes)));
    ASSERT_TRUE(on(0, flush(*hosts_[0])));
    hosts_[0]->stop();
    hosts_[0]->start();
    hosts_[0]->lose_store();
    unsigned failed = 0;
    for (HostId range = 0; range < host_count; ++range) {
        std::vector<std::byte> seen(page_size);
        const Result<> first = on(1, read(*hosts_[1], start_of(range), seen));
        const Result<> second = on(2, read(*hosts_[2], start_of(range), seen));
        EXPECT_EQ(first.has_value(), second.has_value());
        if (first) continue;
        ++failed;
        EXPECT_EQ(first.error().code, Errc::io);
        EXPECT_FALSE(on(1, write(*hosts_[1], start_of(range) + 512, std::span(bytes).first(512))));
        ASSERT_TRUE(on(1, write(*hosts_[1], start_of(range), bytes)));
        ASSERT_TRUE(on(2, read(*hosts_[2], start_of(range), seen)));
        EXPECT_EQ(seen, bytes);
    }
    EXPECT_EQ(failed, 1);
}

TEST_F(ClusterLosses, neighbours_that_their_home_cannot_read_together_fail_too) {
    const std::vector<std::byte> bytes(8 * page_size, std::byte{42});
    ASSERT_TRUE(on(0, write(*hosts_[0], homed_at(0), bytes)));
    ASSERT_TRUE(on(0, flush(*hosts_[0])));
    hosts_[0]->stop();
    hosts_[0]->start();
    hosts_[0]->lose_store();
    std::vector<std::byte> seen(bytes.size());
    const Result<> result = on(1, read(*hosts_[1], homed_at(0), seen));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::io);
}

// Host 1's part of the next test. Returns null if all is well.
Task<const char*> old_and_new_session(Host& home, Host& host) {
    const std::vector<std::byte> bytes(page_size, std::byte{7});
    const uint64_t size = volume_bytes;
    CachedVolume old(*host.volumes, volume_id);
    for (HostId range = 0; range < host_count; ++range)
        if (!co_await old.write((uint64_t{64} << 20) * range, bytes)) co_return "a write of the old session";
    if (!co_await old.flush_up_to(size)) co_return "the old session's flush before the loss";
    for (HostId range = 0; range < host_count; ++range)
        if (!co_await old.write((uint64_t{64} << 20) * range, bytes)) co_return "a write of the old session";
    if (!co_await run_on(*home.loop, home.store->record_losses(*home.loop, {}))) co_return "the loss";
    co_await host.cache->flusher().hear_from_homes();
    CachedVolume young(*host.volumes, volume_id);
    if (!co_await young.write(page_size, bytes)) co_return "a write of the new session";
    if (!co_await young.flush_up_to(size)) co_return "the new session's flush, which has lost nothing";
    if (co_await old.flush_up_to(size)) co_return "the old session's flush succeeded over a loss";
    co_return nullptr;
}

TEST_F(ClusterLosses, a_loss_is_not_held_against_a_session_that_opens_after_it) {
    const char* const wrong = on(1, old_and_new_session(*hosts_[0], *hosts_[1]));
    EXPECT_EQ(wrong, nullptr) << wrong;
}

TEST_F(ClusterLosses, who_may_have_seen_lost_writes_is_not_shown_what_was_before) {
    const uint64_t lost = homed_at(0);
    const uint64_t other = lost + page_size;
    const std::vector<std::byte> before(page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    std::vector<std::byte> attributes(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1], lost, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    auto writer = on(2, TestSession::open(*hosts_[2]));
    auto reader = on(0, TestSession::open(*hosts_[0]));
    ASSERT_TRUE(on(2, TestSession::read(*writer, lost, seen)));
    ASSERT_TRUE(on(2, TestSession::write(*writer, other, before)));
    ASSERT_TRUE(on(1, write(*hosts_[1], lost, after)));
    hosts_[1]->stop();
    hosts_[1]->start();
    ASSERT_TRUE(on(0, read(*hosts_[0], lost, seen)));
    EXPECT_EQ(seen, before);
    EXPECT_EQ(hosts_[0]->cache->home_store().losses().page_count(), 1);

    // Host 1 also had the attributes; when they are read, that loss is on record, too.
    ASSERT_TRUE(on(0, read(*hosts_[0], attribute_page_of(volume_id).number() * page_size, attributes)));
    auto young = on(2, TestSession::open(*hosts_[2]));
    ASSERT_TRUE(on(1, hosts_[1]->cache->home_start().ended())) << "until it does it cannot be heard";
    (void)on(0,
             TestSession::open(*hosts_[0]));  // it hears from the homes, so that its flushes are about the present
    for (int attempt = 0; attempt < 2; ++attempt) {
        EXPECT_FALSE(on(2, TestSession::read(*writer, lost, seen)));
        EXPECT_FALSE(on(0, TestSession::read(*reader, lost, seen)));
        EXPECT_FALSE(on(2, writer->flush_up_to(volume_bytes))) << "its write may be lost";
        EXPECT_TRUE(on(0, reader->flush_up_to(volume_bytes))) << "it wrote nothing";
    }
    ASSERT_TRUE(on(2, TestSession::read(*writer, other, seen))) << "other pages are read as ever";
    ASSERT_TRUE(on(2, TestSession::read(*young, lost, seen)));
    EXPECT_EQ(seen, before);

    ASSERT_TRUE(on(2, TestSession::write(*writer, lost + 512, std::span(after).first(512))));
    EXPECT_FALSE(on(2, TestSession::read(*writer, lost, seen))) << "a part of it was written";
    ASSERT_TRUE(on(2, TestSession::write(*writer, lost, after)));
    ASSERT_TRUE(on(2, TestSession::read(*writer, lost, seen)));
    EXPECT_EQ(seen, after);
    EXPECT_FALSE(on(0, TestSession::read(*reader, lost, seen))) << "written by another session";
    ASSERT_TRUE(on(2, TestSession::read(*young, lost, seen)));
    EXPECT_EQ(seen, after);
    ASSERT_TRUE(on(2, young->flush_up_to(volume_bytes)));
}

TEST_F(ClusterLosses, what_only_its_home_had_in_memory_is_not_shown_as_it_was_before) {
    const uint64_t lost = homed_at(0);
    const uint64_t held = lost + page_size;
    const std::vector<std::byte> before(2 * page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1], lost, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    auto old = on(2, TestSession::open(*hosts_[2]));
    ASSERT_TRUE(on(2, TestSession::write(*old, lost, after)));
    ASSERT_TRUE(on(0, read(*hosts_[0], lost, seen))) << "its bytes come home";
    EXPECT_EQ(seen, after);
    ASSERT_TRUE(on(2, evict_all(*hosts_[2])));
    ASSERT_TRUE(on(2, TestSession::write(*old, held, after)));
    hosts_[0]->stop();
    auto meanwhile = on(2, TestSession::open(*hosts_[2]));
    auto reader = on(2, TestSession::open(*hosts_[2]));
    ASSERT_TRUE(on(2, TestSession::read(*reader, held, seen))) << "its host has it";
    hosts_[0]->start();

    ASSERT_TRUE(on(1, read(*hosts_[1], lost, seen)));
    EXPECT_TRUE(std::ranges::equal(seen, std::span(before).first(page_size))) << "what was flushed";
    auto young = on(1, TestSession::open(*hosts_[1]));
    for (int start = 0; start < 2; ++start) {
        EXPECT_FALSE(hosts_[0]->store->losses().empty());
        EXPECT_FALSE(on(2, TestSession::read(*old, lost, seen)));
        ASSERT_TRUE(on(2, TestSession::read(*old, held, seen))) << "its host has it";
        EXPECT_EQ(seen, after);
        if (start == 1) break;
        ASSERT_TRUE(on(1, TestSession::read(*young, lost, seen))) << "it began later";
        ASSERT_TRUE(on(2, TestSession::read(*meanwhile, lost, seen))) << "it began when the memory was gone";
        EXPECT_FALSE(on(2, TestSession::read(*reader, lost, seen))) << "it used what its host had from before";
        hosts_[0]->stop();
        hosts_[0]->start();
    }
    ASSERT_TRUE(on(2, TestSession::write(*old, lost, after)));
    ASSERT_TRUE(on(2, TestSession::read(*old, lost, seen)));
    EXPECT_EQ(seen, after);
    EXPECT_FALSE(on(2, old->flush_up_to(volume_bytes))) << "its first write was lost";
}

Task<Result<>> sweep(Host& host) {
    // The first sweep notes the state, the second finds that it has not changed.
    for (int look = 0; look < 2; ++look) co_await host.cache->home_store().marker().sweep(std::chrono::milliseconds(0));
    co_return Result<>{};
}

TEST_F(ClusterLosses, only_what_was_changed_since_it_was_stored_is_lost_with_its_homes_memory) {
    const uint64_t stored = homed_at(0);
    const uint64_t changed = stored + slab_size * 2;
    const uint64_t own = stored + slab_size * 4;  // by its home's own clients
    const std::vector<std::byte> before(page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    for (const uint64_t at : {stored, changed}) ASSERT_TRUE(on(1, write(*hosts_[1], at, before)));
    ASSERT_TRUE(on(0, write(*hosts_[0], own, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    auto old = on(2, TestSession::open(*hosts_[2]));
    for (const uint64_t at : {stored, changed, own}) ASSERT_TRUE(on(2, TestSession::read(*old, at, seen)));
    for (HostId host = 1; host < host_count; ++host) ASSERT_TRUE(on(host, evict_all(*hosts_[host])));
    ASSERT_TRUE(hosts_[0]->store->is_marked(PageId::of(volume_id, stored / page_size)));
    ASSERT_TRUE(on(0, sweep(*hosts_[0])));
    for (const uint64_t at : {stored, changed, own})
        EXPECT_FALSE(hosts_[0]->store->is_marked(PageId::of(volume_id, at / page_size))) << at;

    ASSERT_TRUE(on(1, write(*hosts_[1], changed, after)));
    ASSERT_TRUE(on(1, evict_all(*hosts_[1])));
    ASSERT_TRUE(on(0, sweep(*hosts_[0])));
    EXPECT_TRUE(hosts_[0]->store->is_marked(PageId::of(volume_id, changed / page_size))) << "it is in memory alone";
    hosts_[0]->stop();
    hosts_[0]->start();
    EXPECT_TRUE(on(2, TestSession::read(*old, stored, seen)));
    EXPECT_EQ(seen, before);
    EXPECT_TRUE(on(2, TestSession::read(*old, own, seen)));
    EXPECT_FALSE(on(2, TestSession::read(*old, changed, seen)));
    ASSERT_EQ(hosts_[0]->store->losses().size(), 1u);
    EXPECT_EQ(hosts_[0]->store->losses().front().page_count, piece_pages);
}

// A host that may write a page without asking keeps its piece marked.
TEST_F(ClusterLosses, what_two_hosts_lose_at_once_is_on_record) {
    const uint64_t at = homed_at(0);
    const std::vector<std::byte> before(page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1], at, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    auto old = on(2, TestSession::open(*hosts_[2]));
    ASSERT_TRUE(on(2, TestSession::read(*old, at, seen)));
    ASSERT_TRUE(on(1, write(*hosts_[1], at, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    ASSERT_TRUE(on(0, sweep(*hosts_[0])));
    ASSERT_TRUE(on(1, write(*hosts_[1], at, after))) << "it need not ask";
    ASSERT_TRUE(on(2, TestSession::read(*old, at, seen)));
    EXPECT_EQ(seen, after);
    ASSERT_TRUE(on(2, evict_all(*hosts_[2])));
    hosts_[0]->stop();
    hosts_[1]->stop();
    hosts_[0]->start();
    hosts_[1]->start();
    EXPECT_FALSE(on(2, TestSession::read(*old, at, seen)));
}

TEST_F(ClusterLosses, a_session_that_opens_once_a_host_is_back_is_told_of_nothing_that_the_host_had_lost) {
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    std::vector<std::byte> seen(page_size);
    for (int round = 0; round < 15; ++round) {
        const uint64_t at = homed_at(0) + static_cast<uint64_t>(round) * page_size;
        ASSERT_TRUE(on(1, write(*hosts_[1], at, bytes)));
        hosts_[1]->stop();
        hosts_[1]->start();
        for (const HostId reader : {HostId{1}, HostId{2}}) {
            auto fresh = on(reader, TestSession::open(*hosts_[reader]));
            ASSERT_TRUE(on(reader, TestSession::read(*fresh, at, seen))) << "round " << round << ", host " << reader;
        }
    }
}

TEST_F(ClusterLosses, a_session_whose_writes_were_all_durable_has_lost_none) {
    Host& home = *hosts_[0];
    uint64_t at = 0;
    while (home.cache->home_of(PageId::of(volume_id, at / page_size)) != 0) at += uint64_t{64} << 20;
    const std::vector<std::byte> bytes(3 * page_size, std::byte{1});
    auto session = on(0, TestSession::open(home));
    for (int loss = 0; loss < 3; ++loss) {
        ASSERT_TRUE(on(0, TestSession::write(*session, at + 512, bytes)));
        ASSERT_TRUE(on(0, session->flush_range(at + 512, bytes.size(), false)));
        ASSERT_TRUE(on(0, home.store->record_losses(*home.loop, {})));
    }
    ASSERT_TRUE(on(0, TestSession::write(*session, at + page_size * 8, bytes)));
    ASSERT_TRUE(on(0, TestSession::write(*session, at, bytes)));
    ASSERT_TRUE(on(0, session->flush_range(at, bytes.size(), false)));
    ASSERT_TRUE(on(0, home.store->record_losses(*home.loop, {})));
    ASSERT_TRUE(on(0, TestSession::write(*session, at, bytes)));
    EXPECT_FALSE(on(0, session->flush_range(at, bytes.size(), false))) << "another page may be lost";
}

}  // namespace
}  // namespace tarn::three_hosts
