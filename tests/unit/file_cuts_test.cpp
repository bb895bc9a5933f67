// Writes of a file that is cut meanwhile, and what is left to zero past its end. The file's first pages are homed at
// the other host, which the test plays; the attributes are homed here.
#include <pthread.h>
#include <sched.h>

#include <ctime>
#include <thread>

#include "frontends/volumes/attribute_page.hpp"
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

constexpr uint64_t page_1 = page_size;
constexpr uint64_t page_2 = 2 * page_size;
constexpr uint64_t page_3 = 3 * page_size;

class FileCuts : public HomeOnDevice {
  protected:
    FileCuts() {
        EXPECT_EQ(cache_->home_of(PageId::of(volume_id, 0)), peer);
        EXPECT_EQ(cache_->home_of(attribute_page_of(volume_id)), 0);
        EXPECT_TRUE(loop_->run_until_done(volume_->change_attributes({.size_bytes = page_3})));
        fabric_.sent.clear();
    }
    ~FileCuts() override {
        if (!over_) cache_->abandon();
        loop_->run_until_done(tasks_.close());
    }

    static std::vector<std::byte> twos(size_t size) { return std::vector<std::byte>(size, std::byte{2}); }
    static Task<> perform(Task<Result<>> task, Result<>& result, bool& over) {
        result = co_await std::move(task);
        over = true;
    }
    void begin_write(uint64_t offset, uint64_t end) {
        bytes_ = twos(end - offset);
        over_ = false;
        tasks_.spawn(perform(volume_->write_growing(offset, bytes_), result_, over_));
        loop_->run_until_done(turns(*loop_));
    }
    // What was asked of this page, once.
    void give(uint64_t offset) {
        const PageId page = PageId::of(volume_id, offset / page_size);
        const auto found = std::ranges::find_if(fabric_.sent, [&](const RecordingFabric::Sent& each) {
            return each.message.page == page && asks_for_page(each.message);
        });
        ASSERT_NE(found, fabric_.sent.end());
        const RecordingFabric::Sent asked = *found;
        fabric_.sent.erase(found);
        grant(*cache_, asked, ++tenure_);
        loop_->run_until_done(turns(*loop_));
    }
    AttributePage attributes() {
        std::array<std::byte, sizeof(AttributePage)> bytes{};
        EXPECT_TRUE(cache_->pages().try_read(attribute_page_of(volume_id), 0, bytes, view_));
        return AttributePage::load(bytes.data());
    }
    void set(const AttributePage& page) {
        std::array<std::byte, sizeof(AttributePage)> bytes{};
        page.store(bytes.data());
        ASSERT_TRUE(cache_->pages().try_write(attribute_page_of(volume_id), 0, bytes, view_));
    }
    // Of the other host: no answer of the old one is waited for.
    void new_process() {
        cut();
        peer_process_ = {.incarnation = 2, .epoch = 2};
        link();
        loop_->run_until_done(turns(*loop_));
    }
    void set_size(uint64_t size) {
        AttributePage page = attributes();
        page.size_bytes = size;
        set(page);
    }
    // As another host does that had the pages that are not here, and has zeroed what it cut off.
    void cut_to(uint64_t size) {
        AttributePage page = attributes();
        page.cut(size);
        set(page);
    }
    bool holds_twos(uint64_t offset, uint64_t end) {
        std::vector<std::byte> seen(end - offset);
        EXPECT_TRUE(volume_->try_read(offset, seen));
        return seen == twos(end - offset);
    }

    Tenure tenure_ = protocol::first_tenure_of(1);
    Gate tasks_;
    std::vector<std::byte> bytes_;
    Result<> result_;
    bool over_ = true;
};

TEST_F(FileCuts, a_write_that_was_cut_off_before_it_had_its_page_is_left_out) {
    begin_write(page_1 + 10, page_1 + 110);
    cut_to(page_1);
    give(page_1);
    EXPECT_TRUE(over_ && result_);
    EXPECT_FALSE(holds_twos(page_1 + 10, page_1 + 110)) << "past the end nothing is written";
    EXPECT_EQ(attributes().size_bytes, page_1);
}

TEST_F(FileCuts, a_write_within_the_size_takes_the_attributes_away_from_nobody) {
    ASSERT_TRUE(loop_->run_until_done(volume_->change_attributes({.modified_ns = INT64_MAX})));
    Message asked = message_of(MessageKind::get_shared, 5);
    asked.page = attribute_page_of(volume_id);
    ASSERT_TRUE(cache_->inbox().on_message(asked, nullptr));
    const Message* const granted = fabric_.last(MessageKind::grant);
    ASSERT_NE(granted, nullptr);
    asked.kind = MessageKind::done;
    asked.tenure = granted->tenure;
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(cache_->inbox().on_message(asked, nullptr));
    fabric_.sent.clear();
    begin_write(page_1 + 10, page_1 + 110);
    give(page_1);
    EXPECT_TRUE(over_ && result_);
    EXPECT_TRUE(holds_twos(page_1 + 10, page_1 + 110));
    for (const auto& [to, message] : fabric_.sent)
        EXPECT_NE(message.page, attribute_page_of(volume_id)) << protocol::to_string(message.kind);
}

TEST_F(FileCuts, a_write_that_was_cut_before_all_that_stays_of_it_was_written_comes_last) {
    begin_write(10, page_2 + 100);
    give(page_1);
    cut_to(page_1 + 50);
    give(page_2);
    give(0);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_2 + 100);
    EXPECT_TRUE(holds_twos(10, page_2 + 100));
}

TEST_F(FileCuts, a_write_that_was_cut_after_all_that_stays_of_it_was_written_comes_first) {
    begin_write(10, page_2 + 100);
    give(0);
    give(page_1);
    cut_to(page_1 + 50);
    give(page_2);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_1 + 50);
    EXPECT_FALSE(holds_twos(page_2, page_2 + 100));
}

TEST_F(FileCuts, a_write_one_page_of_which_came_whole_after_the_cut_comes_last) {
    begin_write(0, page_2);
    give(0);
    cut_to(page_1);
    give(page_1);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_2);
    EXPECT_TRUE(holds_twos(0, page_2));
}

TEST_F(FileCuts, a_page_that_came_whole_and_was_zeroed_by_the_cut_stays_zeroed) {
    begin_write(0, page_2 + 100);
    give(0);
    cut_to(page_1);
    give(page_1);
    ASSERT_TRUE(volume_->try_write(page_1, std::vector<std::byte>(page_size)));
    give(page_2);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_1);
    EXPECT_FALSE(holds_twos(page_1, page_2));
}

TEST_F(FileCuts, a_page_in_doubt_is_looked_at_once_the_zeroing_is_over) {
    begin_write(0, page_2);
    give(0);
    AttributePage page = attributes();
    page.cut(page_1);
    page.zeroing_from = page_1;
    page.zeroing_host = peer;
    page.zeroing_epoch = peer_process_.epoch;
    set(page);
    give(page_1);
    EXPECT_FALSE(over_);
    ASSERT_TRUE(volume_->try_write(page_1, std::vector<std::byte>(page_size)));
    page.zeroing_from = AttributePage::no_zeroing;
    set(page);
    new_process();
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_1);
}

TEST_F(FileCuts, a_write_that_was_cut_more_often_than_is_remembered_comes_last) {
    begin_write(10, 110);
    for (size_t i = 0; i <= AttributePage::cuts_kept; ++i) cut_to(10);
    give(0);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, 110u);
    EXPECT_TRUE(holds_twos(10, 110));
}

// A write of two pages, the first of which goes again before the other one is there: it holds them until it has both.
class WriteThatHolds : public FileCuts {
  protected:
    void begin() {
        set_size(page_3 - 50);
        begin_write(page_3 - 100, page_3 + 100);
        give(page_2);
        std::vector<FrameId> none;
        const FrameId frame = cache_->pages().try_pin(PageId::of(volume_id, 2), view_);
        ASSERT_NE(frame, no_frame);
        cache_->pages().unpin(frame);
        (void)cache_->eviction().try_evict(frame, none);
        const Message* const evict = fabric_.last(MessageKind::evict);
        ASSERT_NE(evict, nullptr);
        Message evicted = message_of(MessageKind::evicted, evict->request_id);
        evicted.page = evict->page;
        ASSERT_TRUE(cache_->inbox().on_message(evicted, nullptr));
        give(page_3);
    }
    void hear_of_size(MessageKind kind, protocol::RequestId request, Tenure tenure = 0) {
        Message message = message_of(kind, request, tenure);
        message.page = attribute_page_of(volume_id);
        ASSERT_TRUE(cache_->inbox().on_message(message, nullptr));
    }
};

// Another thread that writes a page, until the one that made this has worked for a while, or this ends.
class ThreadInside {
  public:
    explicit ThreadInside(Frame& frame) : frame_(frame) {
        EXPECT_TRUE(frame.word.try_latch_exclusive(frame.word.load()));
        clockid_t clock{};
        EXPECT_EQ(::pthread_getcpuclockid(::pthread_self(), &clock), 0);
        thread_ = std::jthread([this, clock](const std::stop_token& stop) {
            const uint64_t until_ns = now_ns(clock) + 50'000'000;
            while (!stop.stop_requested() && now_ns(clock) < until_ns) ::sched_yield();
            EXPECT_FALSE(frame_.word.unlatch_exclusive());
        });
    }

  private:
    static uint64_t now_ns(clockid_t clock) {
        timespec now{};
        ::clock_gettime(clock, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    }

    Frame& frame_;
    std::jthread thread_;
};

TEST_F(WriteThatHolds, few_do_at_once) {
    constexpr VolumeId few = 4;
    std::vector<VolumeTurns::Turn> turns_of_others;
    for (VolumeId i = 0; i < few; ++i)
        turns_of_others.push_back(*loop_->run_until_done(volumes_->holding_turns.take(i)));
    begin();
    EXPECT_EQ(std::ranges::count_if(fabric_.sent, [](const auto& each) { return asks_for_page(each.message); }), 0)
        << "it holds pages, as others do";
    turns_of_others.clear();
    loop_->run_until_done(turns(*loop_));
    give(page_2);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_3 + 100);
}

TEST_F(WriteThatHolds, the_size_is_not_waited_for_behind_who_asks_for_it) {
    begin();
    std::array<std::byte, sizeof(AttributePage)> size;
    attributes().store(size.data());
    hear_of_size(MessageKind::get_exclusive, 5);
    loop_->run_until_done(turns(*loop_));
    const Message* const grant = fabric_.last(MessageKind::grant);
    ASSERT_NE(grant, nullptr);
    hear_of_size(MessageKind::done, 5, grant->tenure);
    give(page_2);  // it holds both pages, and wants the size
    const Message* const move = fabric_.last(MessageKind::move);
    ASSERT_NE(move, nullptr);
    Message data = from_peer(MessageKind::data, move->page);
    data.tenure = move->tenure;
    data.request_id = move->request_id;
    data.frame = move->frame;
    data.flags = protocol::flag_payload;
    std::byte* const bytes = cache_->inbox().lend_page(peer);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 0, page_size);
    std::ranges::copy(size, bytes);
    ASSERT_TRUE(cache_->inbox().on_message(data, bytes));
    hear_of_size(MessageKind::get_exclusive, 6);
    EXPECT_FALSE(over_);
    ThreadInside inside(*cache_->pages().index().find(move->page));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over_ && result_);
    const Message* const next = fabric_.last(MessageKind::grant);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->request_id, 6u);
}

// What lies past the cut is homed here.
class FileZeroing : public FileCuts {
  protected:
    uint64_t new_end() const { return page_ * page_size + 100; }
    // Of a process of the other host that is gone.
    void leave_mark() {
        ASSERT_TRUE(write(std::byte{9}));
        AttributePage page = attributes();
        page.cut(new_end());
        page.zeroing_from = new_end();
        page.zeroing_end = new_end() + page_size;
        page.zeroing_host = peer;
        page.zeroing_epoch = peer_process_.epoch + 1;
        set(page);
    }
    static Task<> append(CachedVolume& volume, std::span<const std::byte> bytes, bool& over) {
        over = (co_await volume.append(bytes)).has_value();
    }
    // It waits for the other host's process, which is there.
    void begin_while_zeroing(Task<> task) {
        AttributePage page = attributes();
        page.zeroing_epoch = peer_process_.epoch;
        set(page);
        over_ = false;
        tasks_.spawn(std::move(task));
        loop_->run_until_done(turns(*loop_));
        EXPECT_FALSE(over_);
    }
    void end_zeroing() {
        AttributePage page = attributes();
        page.zeroing_from = AttributePage::no_zeroing;
        set(page);
        new_process();
    }
    static Task<> resize(CachedVolume& volume, uint64_t size, bool& over) {
        over = (co_await volume.change_attributes({.size_bytes = size})).has_value();
    }
    std::byte past_end() {
        std::byte value{};
        EXPECT_TRUE(volume_->try_read(new_end(), std::span(&value, 1)));
        return value;
    }
};

TEST_F(FileZeroing, who_goes_on_with_it_counts_that) {
    leave_mark();
    begin_write(new_end() + page_size, new_end() + page_size + 10);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(past_end(), std::byte{0});
    EXPECT_FALSE(attributes().zeroes_before(UINT64_MAX));
    EXPECT_EQ(attributes().zeroing_attempt, 2u)  // and the zeroing of what the write leaves out
        << "others that saw the mark would zero once more, maybe much later";
}

TEST_F(FileZeroing, who_goes_on_with_it_says_who_it_is) {
    leave_mark();
    AttributePage page = attributes();
    page.zeroing_epoch = peer_process_.epoch + 7;  // not of the process here
    set(page);
    bytes_ = twos(100);
    tasks_.spawn(append(*volume_, bytes_, over_));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over_);
    EXPECT_EQ(attributes().zeroing_host, 0u) << "whom others ask";
    EXPECT_EQ(attributes().zeroing_epoch, cache_->membership().process().epoch);
}

TEST_F(FileZeroing, a_gap_before_it_waits_until_it_is_over) {
    leave_mark();
    AttributePage page = attributes();
    page.zeroing_from = new_end() + 2 * page_size;
    page.zeroing_end = new_end() + 3 * page_size;
    page.zeroing_epoch = peer_process_.epoch;
    set(page);
    begin_write(new_end() + 10, new_end() + 20);
    EXPECT_FALSE(over_);
    EXPECT_EQ(attributes().zeroing_from, new_end() + 2 * page_size) << "nobody would know what is left to zero";
    end_zeroing();
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(past_end(), std::byte{0});
}

TEST_F(FileZeroing, one_that_another_host_has_gone_on_with_is_that_one_s) {
    leave_mark();
    VolumeTurns::Turn turn = *loop_->run_until_done(volumes_->cutting_turns.take(volume_id));
    begin_write(new_end() + page_size, new_end() + page_size + 10);
    AttributePage page = attributes();
    ++page.zeroing_attempt;
    page.zeroing_epoch = peer_process_.epoch;
    set(page);
    turn.end();
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(over_);
    EXPECT_EQ(past_end(), std::byte{9});
    EXPECT_TRUE(attributes().zeroes_before(UINT64_MAX));
}

TEST_F(FileZeroing, one_of_a_later_truncation_is_another) {
    leave_mark();
    VolumeTurns::Turn turn = *loop_->run_until_done(volumes_->cutting_turns.take(volume_id));
    begin_write(new_end() + page_size, new_end() + page_size + 10);
    AttributePage page = attributes();
    page.cut(new_end());
    page.zeroing_epoch = peer_process_.epoch;
    set(page);
    turn.end();
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(over_);
    EXPECT_EQ(past_end(), std::byte{9});
}

TEST_F(FileZeroing, an_append_waits_until_it_is_over) {
    leave_mark();
    bytes_ = twos(100);
    begin_while_zeroing(append(*volume_, bytes_, over_));
    EXPECT_EQ(attributes().size_bytes, new_end());
    EXPECT_EQ(past_end(), std::byte{9});
    end_zeroing();
    EXPECT_TRUE(over_);
    EXPECT_EQ(attributes().size_bytes, new_end() + bytes_.size());
    EXPECT_EQ(past_end(), std::byte{2});
}

TEST_F(FileZeroing, a_size_that_covers_what_is_being_zeroed_waits_until_that_is_over) {
    leave_mark();
    begin_while_zeroing(resize(*volume_, new_end() + 1, over_));
    EXPECT_EQ(attributes().size_bytes, new_end()) << "somebody would read what was cut off";
    end_zeroing();
    EXPECT_TRUE(over_);
    EXPECT_EQ(attributes().size_bytes, new_end() + 1);
}

TEST_F(FileZeroing, a_truncation_waits_until_the_last_one_is_over) {
    leave_mark();
    begin_while_zeroing(resize(*volume_, new_end() - 1, over_));
    EXPECT_EQ(attributes().zeroing_from, new_end()) << "nobody would know what is left to zero";
    end_zeroing();
    EXPECT_TRUE(over_);
    EXPECT_EQ(attributes().size_bytes, new_end() - 1);
}

TEST_F(FileCuts, the_size_grows_once_the_bytes_are_there) {
    begin_write(page_3 - 100, page_3 + 100);
    give(page_2);
    EXPECT_EQ(attributes().size_bytes, page_3);
    give(page_3);
    EXPECT_TRUE(over_ && result_);
    EXPECT_EQ(attributes().size_bytes, page_3 + 100);
    EXPECT_TRUE(holds_twos(page_3 - 100, page_3 + 100));
}

// Nobody has set its size.
TEST_F(FileCuts, a_flush_asks_the_home_of_each_page_that_was_written_past_the_end_too) {
    set_size(0);
    bytes_ = twos(page_size);
    over_ = false;
    tasks_.spawn(perform(volume_->write(0, bytes_), result_, over_));
    give(0);
    ASSERT_TRUE(over_ && result_);
    over_ = false;
    tasks_.spawn(perform(volume_->flush(), result_, over_));
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(fabric_.count(MessageKind::flush), 1u);
}

}  // namespace
}  // namespace tarn::home_on_device
