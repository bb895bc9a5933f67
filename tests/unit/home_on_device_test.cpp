// A home on a device that answers late, or takes nothing any more; the test plays the other host of the cluster.
#include "tests/unit/home_on_device.hpp"

#include "frontends/volumes/extents.hpp"
#include "tiers/nvme/journal/scan.hpp"

namespace tarn::home_on_device {
namespace {

TEST_F(HomeOnDevice, a_late_read_of_an_undone_order_overwrites_nothing) {
    device_->hold_next_read();
    Gate reads;
    std::optional<std::byte> seen;
    reads.spawn(read_into(seen));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_read());

    // Another host's order stands open when its link breaks: the page is resolved, and ours is ordered again.
    ASSERT_TRUE(hear(MessageKind::get_shared, 5));
    loop_->run_until_done(turns(*loop_));
    cut();
    link();
    const Message* const recall = fabric_.last(MessageKind::recall);
    ASSERT_NE(recall, nullptr);
    ASSERT_TRUE(hear(MessageKind::report, 0, recall->tenure));
    loop_->run_until_done(reads.close());
    EXPECT_EQ(seen, std::byte{1});

    ASSERT_TRUE(write(std::byte{2}));
    EXPECT_EQ(value_in_frame(), std::byte{2});
    device_->let_go();
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(device_->holds_a_read());
    EXPECT_EQ(value_in_frame(), std::byte{2});
}

TEST_F(HomeOnDevice, what_changes_while_it_is_stored_is_stored_again_before_a_flush_succeeds) {
    // So many fresh pages that they go straight into place.
    constexpr size_t count = 16;
    const uint64_t first = page_ + 32;
    const uint64_t changed = first + 5;
    size_t written = 0;
    Gate writes;
    writes.spawn(write_pages(*volume_, first, count, written));
    loop_->run_until_done(writes.close());
    Gate flushes;
    std::array<Result<>, 2> flushed{fail(Errc::invalid), fail(Errc::invalid)};
    const auto flush = [](CachedVolume& volume, uint64_t from, Result<>& result) -> Task<> {
        result = co_await volume.flush_range(from * page_size, count * page_size, false);
    };
    device_->hold_next_write();
    flushes.spawn(flush(*volume_, first, flushed[0]));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_write());

    const std::vector<std::byte> newer(sector_size, std::byte{4});
    ASSERT_TRUE(volume_->try_write(changed * page_size, newer));
    cache_->stripes().step(
        protocol::Event::about(protocol::Event::Kind::write_back, PageId::of(volume_id, changed), 0));
    // The pages have landed, the record of that has not: the second flush comes in between.
    device_->hold_next_write();
    device_->let_write_go();
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_write());
    flushes.spawn(flush(*volume_, first, flushed[1]));
    loop_->run_until_done(turns(*loop_));
    device_->let_write_go();
    loop_->run_until_done(flushes.close());
    EXPECT_TRUE(flushed[0]);
    EXPECT_TRUE(flushed[1]);
    const PageBuffer stored = make_page_buffer(1);
    ASSERT_TRUE(loop_->run_until_done(store_->read(*loop_, PageId::of(volume_id, changed),
                                                   std::span<std::byte, page_size>(stored.get(), page_size))));
    EXPECT_EQ(stored.get()[0], std::byte{4});
    EXPECT_EQ(stored.get()[sector_size], std::byte{3});
}

TEST_F(HomeOnDevice, a_loss_that_could_not_be_recorded_is_recorded_by_the_next_process) {
    ASSERT_NE(own_page(), 0u);
    auto device = std::make_unique<MemoryDevice>(*device_);
    const uint64_t generation = store_->loss_generation();

    // The owner comes back without its memory, and that cannot be written down.
    device_->fail_writes(true);
    cut();
    peer_process_ = {.incarnation = 2, .epoch = 2};
    link();
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(store_->failure());
    EXPECT_EQ(store_->loss_generation(), generation);
    EXPECT_TRUE(cache_->pool().arena().header().losses_unrecorded);
    EXPECT_EQ(cache_->pool().arena().header().last_loss, store_->home_epoch()) << "what the next process must know";
    Session& session = std::static_pointer_cast<ClientSession>(volume_->session())->session;
    EXPECT_FALSE(loop_->run_until_done(cache_->flusher().flush(session, set_of(0), {}))) << "and nobody waits for it";

    UniqueFd memory = end();
    loop_ = std::move(*Loop::create());
    fabric_.up = 0;
    begin(std::move(device), std::move(memory));
    EXPECT_GT(store_->loss_generation(), generation) << "flushes of who wrote before fail";
    EXPECT_FALSE(store_->losses().empty());
    EXPECT_FALSE(cache_->pool().arena().header().losses_unrecorded);
}

TEST_F(HomeOnDevice, a_flush_that_waits_for_bytes_which_a_failed_store_refuses_fails) {
    const Tenure tenure = own_page();
    ASSERT_NE(tenure, 0u);
    ASSERT_TRUE(hear(MessageKind::flush, 6));
    loop_->run_until_done(turns(*loop_));
    ASSERT_NE(fabric_.last(MessageKind::flush_ask), nullptr) << "it waits for what the owner has";
    ASSERT_EQ(fabric_.last(MessageKind::flushed), nullptr);

    // Somebody else finds that out, whom no flush waits for.
    device_->fail_writes(true);
    EXPECT_FALSE(loop_->run_until_done(store_->record_losses(*loop_, {})));
    ASSERT_TRUE(store_->failed());

    std::byte* const bytes = cache_->inbox().lend_page(peer);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 2, page_size);
    Message write_back = message_of(MessageKind::write_back, 0, tenure);
    write_back.sequence = 1;
    write_back.dirty = all_sectors;
    write_back.flags = protocol::flag_payload;
    ASSERT_TRUE(cache_->inbox().on_message(write_back, bytes));
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(fabric_.last(MessageKind::written_back), nullptr);
    const Message* const flushed = fabric_.last(MessageKind::flushed);
    ASSERT_NE(flushed, nullptr);
    EXPECT_TRUE(flushed->has(protocol::flag_lost));
}

TEST_F(HomeOnDevice, the_flush_that_finds_out_that_the_device_fails_fails_itself) {
    ASSERT_TRUE(write(std::byte{1}));
    device_->fail_writes(true);
    ASSERT_FALSE(store_->failed()) << "nobody knows";
    Session& session = std::static_pointer_cast<ClientSession>(volume_->session())->session;
    EXPECT_FALSE(loop_->run_until_done(cache_->flusher().flush(session, set_of(0), {})));
}

// D6: not as if it were full.
TEST_F(HomeOnDevice, a_write_that_a_failed_store_refuses_fails_as_an_error_of_the_device) {
    device_->fail_writes(true);
    EXPECT_FALSE(loop_->run_until_done(store_->record_losses(*loop_, {})));
    ASSERT_TRUE(store_->failed());
    const Result<> written = write(std::byte{1});
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::io);
}

TEST_F(HomeOnDevice, a_flush_does_not_wait_for_a_host_that_was_declared_dead) {
    ASSERT_NE(own_page(), 0u);
    bool over = false;
    Gate flushes;
    flushes.spawn([](CachedVolume& volume, bool& ended) -> Task<> {
        (void)co_await volume.flush_homes(set_of(0));
        ended = true;
    }(*volume_, over));
    loop_->run_until_done(turns(*loop_));
    ASSERT_NE(fabric_.last(MessageKind::flush_ask), nullptr) << "it waits for what the owner has";
    EXPECT_FALSE(over);
    cut();
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(peer, peer_process_.incarnation)));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over);
    if (!over) cache_->abandon();
    loop_->run_until_done(flushes.close());
}

TEST_F(HomeOnDevice, a_flush_of_another_host_is_told_that_the_store_failed) {
    ASSERT_TRUE(write(std::byte{2}));
    device_->fail_writes(true);
    for (const protocol::RequestId request : {6, 7}) {  // the first one finds it out
        fabric_.sent.clear();
        ASSERT_TRUE(hear(MessageKind::flush, request));
        loop_->run_until_done(turns(*loop_));
        const Message* const flushed = fabric_.last(MessageKind::flushed);
        ASSERT_NE(flushed, nullptr) << request;
        EXPECT_TRUE(flushed->has(protocol::flag_lost)) << request;
    }
}

TEST_F(HomeOnDevice, what_its_owner_could_not_read_overwrites_nothing) {
    const Tenure tenure = own_page();
    ASSERT_NE(tenure, 0u);

    std::byte* const bytes = cache_->inbox().lend_page(peer);
    ASSERT_NE(bytes, nullptr);
    Message write_back = message_of(MessageKind::write_back, 0, tenure);
    write_back.sequence = 1;
    write_back.dirty = all_sectors;
    write_back.flags = protocol::flag_zero | protocol::flag_lost;
    ASSERT_TRUE(cache_->inbox().on_message(write_back, bytes));
    loop_->run_until_done(turns(*loop_));
    ASSERT_NE(fabric_.last(MessageKind::written_back), nullptr);
    ASSERT_TRUE(loop_->run_until_done(cache_->home_store().writer().store_volume(volume_id)));
    const PageBuffer stored = make_page_buffer(1);
    ASSERT_TRUE(loop_->run_until_done(
        store_->read(*loop_, PageId::of(volume_id, page_), std::span<std::byte, page_size>(stored.get(), page_size))));
    EXPECT_EQ(stored.get()[0], std::byte{1});
}

TEST_F(HomeOnDevice, pages_that_another_home_lacks_wait_for_room_in_its_link) {
    const uint64_t theirs = page_ + cache_->membership().ranges().pages_per_range();
    constexpr size_t count = 10;
    size_t answered = fabric_.sent.size();
    Tenure tenure = protocol::first_tenure_of(1);
    Gate writes;
    size_t written = 0;
    writes.spawn(write_pages(*volume_, theirs, count, written));
    while (written < count) {
        grant_all(fabric_, *cache_, answered, tenure);
        loop_->run_until_done(turns(*loop_));
    }
    const auto sent = [&](MessageKind kind) {
        return std::ranges::count_if(fabric_.sent, [&](const auto& each) { return each.message.kind == kind; });
    };
    const auto evict_all = [&] {
        std::vector<FrameId> none;
        for (FrameId id = 0; id < cache_->pool().frame_count(); ++id) (void)cache_->eviction().try_evict(id, none);
    };

    fabric_.full = set_of(peer);
    ASSERT_TRUE(hear(MessageKind::flush_ask, 9));
    evict_all();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(sent(MessageKind::write_back), 0);
    EXPECT_EQ(sent(MessageKind::evict), 0);
    EXPECT_EQ(sent(MessageKind::flush_answer), 0);

    fabric_.full = 0;
    fabric_.drained().announce();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(sent(MessageKind::write_back), static_cast<ptrdiff_t>(count));
    loop_->run_until_done(writes.close());
}

TEST_F(HomeOnDevice, clean_pages_of_a_home_that_does_not_answer_make_room) {
    uint64_t theirs = page_ + cache_->membership().ranges().pages_per_range();
    ASSERT_EQ(cache_->home_of(PageId::of(volume_id, theirs)), peer);
    size_t answered = fabric_.sent.size();
    Tenure tenure = protocol::first_tenure_of(1);
    // As many as there is room for, and the last one stays in use.
    for (; cache_->pool().free_count() > cache_->provider().reserve_count(); ++theirs) {
        Gate reads;
        std::optional<std::byte> seen;
        reads.spawn([](CachedVolume& volume, uint64_t page, std::optional<std::byte>& into) -> Task<> {
            std::vector<std::byte> bytes(page_size);
            if (co_await volume.read(page * page_size, bytes)) into = bytes[0];
        }(*volume_, theirs, seen));
        grant_all(fabric_, *cache_, answered, tenure);
        loop_->run_until_done(reads.close());
        ASSERT_EQ(seen, std::byte{1});
    }
    const PageId in_use = PageId::of(volume_id, theirs - 1);
    const FrameId pinned = cache_->pages().try_pin(in_use, view_);
    ASSERT_NE(pinned, no_frame);

    // From here on it says nothing.
    Gate writes;
    size_t written = 0;
    constexpr size_t count = 400;
    writes.spawn(write_pages(*volume_, page_, count, written));
    const auto timeout = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (written < count && std::chrono::steady_clock::now() < timeout) loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(written, count);
    EXPECT_EQ(cache_->pages().bytes(pinned)[0], std::byte{1}) << "it is in use";
    cache_->pages().unpin(pinned);
    if (written < count) cache_->abandon();
    loop_->run_until_done(writes.close());
}

// What a stop stores of pages that were written last, the protocol being over.
class LastWrites : public HomeOnDevice {
  protected:
    struct Record {
        DirtyMask dirty;
        Tenure tenure;
        uint32_t sequence;
    };
    LastWrites() {
        EXPECT_TRUE(write(std::byte{2}));
        EXPECT_TRUE(loop_->run_until_done(volume_->flush_range(page_ * page_size, page_size, false)));
        EXPECT_EQ(journal().size(), 1u);
    }
    void write_to_sector(unsigned sector) {
        const std::vector<std::byte> bytes(8, std::byte{3});
        ASSERT_TRUE(volume_->try_write(page_ * page_size + sector * sector_size, bytes));
    }
    void store_rest() {
        cache_->abandon();
        ASSERT_TRUE(loop_->run_until_done(cache_->home_store().writer().store_rest()));
    }
    // Of the page, the oldest first.
    std::vector<Record> journal() {
        MemoryDevice now(*device_);
        std::vector<Record> records;
        const auto visit = [&](const FoundRecord& found) -> Result<> {
            if (found.record.page == page())
                records.push_back({found.record.dirty, found.record.tenure, found.record.sequence});
            return {};
        };
        EXPECT_TRUE(scan_journal(now, *read_superblock(now), visit));
        return records;
    }
};

TEST_F(LastWrites, of_a_sector_take_that_sector_of_the_journal) {
    write_to_sector(3);
    store_rest();
    ASSERT_EQ(journal().size(), 2u);
    EXPECT_EQ(journal()[1].dirty, 1u << 3);
}

TEST_F(LastWrites, come_to_what_home_had_and_did_not_store) {
    write_to_sector(1);
    cache_->stripes().step(protocol::Event::about(protocol::Event::Kind::write_back, page(), 0));
    write_to_sector(6);
    store_rest();
    ASSERT_EQ(journal().size(), 2u);
    EXPECT_EQ(journal()[1].dirty, 1u << 1 | 1u << 6);
}

TEST_F(LastWrites, have_a_position_after_all_that_was_stored_before) {
    write_to_sector(3);
    store_rest();
    const std::vector<Record> records = journal();
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[1].tenure, records[0].tenure);
    EXPECT_GT(records[1].sequence, records[0].sequence);
}

TEST_F(LastWrites, of_pages_that_are_homed_elsewhere_are_not_stored_here) {
    const uint64_t theirs = page_ + cache_->membership().ranges().pages_per_range();
    size_t answered = fabric_.sent.size();
    size_t written = 0;
    Tenure tenure = protocol::first_tenure_of(1);
    Gate writes;
    writes.spawn(write_pages(*volume_, theirs, 1, written));
    grant_all(fabric_, *cache_, answered, tenure);
    loop_->run_until_done(writes.close());
    ASSERT_EQ(written, 1u);
    write_to_sector(3);
    store_rest();
    EXPECT_EQ(journal().size(), 2u);
    EXPECT_FALSE(store_->present(PageId::of(volume_id, theirs)));
}

// The call of a peer, as extents.cpp writes it.
TEST_F(HomeOnDevice, a_question_for_extents_that_no_correct_host_asks_is_refused) {
    struct {
        VolumeId volume = volume_id;
        uint32_t reserved = 0;
        uint64_t first_page = 0;
        uint64_t page_count = 10;
    } question;
    const auto answer = [&] { return answer_stored_runs(*cache_, pack(question)); };
    EXPECT_TRUE(answer());
    question.reserved = 1;
    EXPECT_FALSE(answer()) << "it may mean something one day";
    question.reserved = 0;
    question.page_count = 0;
    EXPECT_FALSE(answer());
    question.page_count = page_number_mask;
    EXPECT_TRUE(answer());
    question.first_page = 1;
    EXPECT_FALSE(answer());
    question.first_page = 0;
    question.volume = volume_id_max + 1;
    EXPECT_FALSE(answer());
    EXPECT_FALSE(answer_stored_runs(*cache_, std::string()));
}

TEST_F(HomeOnDevice, an_answer_about_pages_that_nobody_asked_for_is_refused) {
    const uint64_t theirs = page_ + cache_->membership().ranges().pages_per_range();
    const auto ask = [&](uint64_t first, uint64_t count) {
        const std::array<uint64_t, 3> answer{theirs + 10, first, count};
        fabric_.answer = pack(answer);
        return loop_->run_until_done(stored_runs(*cache_, volume_id, theirs, 10));
    };
    const auto all = ask(theirs, 10);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->runs.size(), 1u);
    EXPECT_FALSE(ask(theirs - 1, 2));
    EXPECT_FALSE(ask(theirs + 10, 1));
    EXPECT_FALSE(ask(theirs + 9, 2));
    EXPECT_FALSE(ask(theirs + 1, UINT64_MAX));
}

}  // namespace
}  // namespace tarn::home_on_device
