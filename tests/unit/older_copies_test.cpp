// A page of zeros leaves no version in the store: what hosts keep of it, and is older, must be gone by then.
#include "tests/unit/cache_links.hpp"
#include "tests/unit/recovering_home.hpp"

namespace tarn::home_on_device {
namespace {

// Home is this host; the test plays the others.
class PagesOfZeros : public RecoveringHome {
  protected:
    PagesOfZeros() {
        link_all();
        serve();
    }
    void hear(Message message, std::optional<std::byte> value = {}) {
        std::byte* const bytes = value ? cache_->inbox().lend_page(message.from) : nullptr;
        if (bytes) std::memset(bytes, static_cast<int>(*value), page_size);
        if (bytes) message.flags |= *value == std::byte{0} ? protocol::flag_zero : protocol::flag_payload;
        ASSERT_TRUE(cache_->inbox().on_message(message, bytes));
        loop_->run_until_done(turns(*loop_));
    }
    Tenure own(HostId host, protocol::RequestId request) {
        Message get = message_from(host, MessageKind::get_exclusive, page_);
        get.request_id = request;
        hear(get);
        const Message* const grant = fabric_.last(MessageKind::grant);
        return grant ? grant->tenure : 0;
    }
    void done(HostId host, protocol::RequestId request, Tenure tenure) {
        Message done = message_from(host, MessageKind::done, page_);
        done.request_id = request;
        done.tenure = tenure;
        hear(done);
    }
    // Host 1 writes ones and gives the page to host 2, which writes zeros, has them flushed and gives the page up.
    // Returns the tenure in which host 2 had it.
    Tenure write_zeros_over_ones(bool gives_up = true) {
        done(1, 5, own(1, 5));
        const Tenure tenure = own(2, 6);
        Message copy = message_from(1, MessageKind::home_copy, page_);
        copy.tenure = tenure;
        copy.dirty = all_sectors;
        hear(copy, std::byte{1});
        done(2, 6, tenure);
        Message zeros = message_from(2, MessageKind::write_back, page_);
        zeros.tenure = tenure;
        zeros.sequence = 1;
        zeros.dirty = all_sectors;
        hear(zeros, std::byte{0});
        Message evict = message_from(2, MessageKind::evict, page_);
        evict.tenure = tenure;
        evict.sequence = 2;
        evict.request_id = 7;
        if (gives_up) hear(evict);
        VolumeContext volumes(*cache_);
        CachedVolume volume(volumes, volume_id);
        Gate flushes;
        bool is_flushed = false;
        flushes.spawn(flush(volume, is_flushed));
        loop_->run_until_done(turns(*loop_));
        if (!gives_up) {
            const Message* const ask = fabric_.last(MessageKind::flush_ask);
            EXPECT_NE(ask, nullptr);
            Message answer = message_from(2, MessageKind::flush_answer, ask->page);
            answer.request_id = ask->request_id;
            hear(answer);
        }
        loop_->run_until_done(flushes.close());
        EXPECT_TRUE(is_flushed);
        if (Frame* const home = cache_->home_store().frames().index().find_exactly(page_)) {
            EXPECT_FALSE(home->home_dirty);
            Stripes::Turn turn(cache_->stripes(), page_);
            cache_->home_store().frames().forget(*home);
        }
        return tenure;
    }

    static Task<> flush(CachedVolume& volume, bool& is_flushed) {
        is_flushed = (co_await volume.flush_homes(set_of(0))).has_value();
    }

    const PageId page_ = page_at_home(0);
};

TEST_F(PagesOfZeros, take_no_space_once_nobody_keeps_anything_older) {
    std::vector<OlderCopies::Page> asked;
    std::vector<HostId> hosts;
    fabric_.on_call = [&](HostId to, CallKind kind, std::string request) -> Task<Result<std::string>> {
        if (kind != CallKind::end_older_copies) co_return fail(Errc::unavailable);
        hosts.push_back(to);
        EXPECT_EQ(request.size(), sizeof(OlderCopies::Page));
        asked.resize(1);
        request.copy(reinterpret_cast<char*>(asked.data()), sizeof(OlderCopies::Page));
        co_return std::string();
    };
    const Tenure tenure = write_zeros_over_ones();
    EXPECT_EQ(hosts, (std::vector<HostId>{1, 2}));
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].page, page_);
    EXPECT_EQ(asked[0].tenure, tenure);
    EXPECT_FALSE(store_->present(page_));
    fabric_.on_call = {};
    end();
}

// Host 1 has not heard that what it keeps is of no use, and says so to a home that starts.
TEST_F(PagesOfZeros, are_not_undone_by_who_could_not_be_asked) {
    const Tenure tenure = write_zeros_over_ones();  // nobody answers calls
    EXPECT_EQ(store_->tenure_of(page_), tenure);
    restart();
    fabric_.sent.clear();
    link_all();
    Message hello = message_from(1, MessageKind::hello, page_);
    hello.tenure = tenure - 1;
    hello.flags = protocol::flag_bytes;
    hello.hosts = tenure;
    hear(hello);
    serve();
    const Message* const recall = fabric_.last(MessageKind::recall);
    ASSERT_NE(recall, nullptr);
    EXPECT_GT((protocol::PageVersion{recall->hosts, recall->sequence}), protocol::last_before(tenure));
    Message report = message_from(1, MessageKind::report, page_);
    report.tenure = recall->tenure;
    hear(report);
    VolumeContext volumes(*cache_);
    CachedVolume volume(volumes, volume_id);
    std::vector<std::byte> bytes(sector_size, std::byte{9});
    ASSERT_TRUE(loop_->run_until_done(volume.read(page_.number() * page_size, bytes)));
    EXPECT_EQ(bytes.front(), std::byte{0}) << "D1: it was flushed";
    end();
}

// Who may write it counts on its space, and may have written it since.
TEST_F(PagesOfZeros, take_their_space_while_somebody_may_write_them) {
    fabric_.on_call = [&](HostId, CallKind, std::string) -> Task<Result<std::string>> { co_return std::string(); };
    (void)write_zeros_over_ones(false);
    EXPECT_TRUE(store_->present(page_));
    fabric_.on_call = {};
    end();
}

TEST_F(PagesOfZeros, are_not_zeroed_if_one_host_has_not_answered) {
    fabric_.on_call = [](HostId to, CallKind, std::string) -> Task<Result<std::string>> {
        if (to == 2) co_return fail(Errc::unavailable);
        co_return std::string();
    };
    (void)write_zeros_over_ones();
    EXPECT_TRUE(store_->present(page_));
    fabric_.on_call = {};
    end();
}

// Who had it gives it up while hosts are asked, and has written it meanwhile.
TEST_F(PagesOfZeros, are_not_zeroed_if_they_are_none_any_more) {
    bool is_written = false;
    fabric_.on_call = [&](HostId to, CallKind kind, std::string request) -> Task<Result<std::string>> {
        if (kind != CallKind::end_older_copies) co_return fail(Errc::unavailable);
        if (to == 2 && !std::exchange(is_written, true)) {
            OlderCopies::Page asked;
            request.copy(reinterpret_cast<char*>(&asked), sizeof asked);
            Message ones = message_from(2, MessageKind::evict, page_);
            ones.tenure = asked.tenure;
            ones.sequence = 2;
            ones.request_id = 7;
            ones.dirty = all_sectors;
            std::byte* const bytes = cache_->inbox().lend_page(2);
            std::memset(bytes, 1, page_size);
            ones.flags |= protocol::flag_payload;
            EXPECT_TRUE(cache_->inbox().on_message(ones, bytes));
        }
        co_return std::string();
    };
    (void)write_zeros_over_ones(false);
    EXPECT_TRUE(is_written);
    VolumeContext volumes(*cache_);
    CachedVolume volume(volumes, volume_id);
    ASSERT_TRUE(loop_->run_until_done(volume.flush_homes(set_of(0))));
    EXPECT_TRUE(store_->present(page_)) << "ones are there";
    fabric_.on_call = {};
    end();
}

TEST_F(PagesOfZeros, are_all_that_others_are_asked_about) {
    unsigned asked = 0;
    fabric_.on_call = [&](HostId, CallKind kind, std::string) -> Task<Result<std::string>> {
        asked += kind == CallKind::end_older_copies;
        co_return std::string();
    };
    VolumeContext volumes(*cache_);
    CachedVolume volume(volumes, volume_id);
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    ASSERT_TRUE(loop_->run_until_done(volume.write(page_.number() * page_size, bytes)));
    ASSERT_TRUE(loop_->run_until_done(volume.flush_homes(set_of(0))));
    EXPECT_EQ(asked, 0u);
    for (unsigned time = 1; time <= 2; ++time) {
        ASSERT_TRUE(loop_->run_until_done(volume.zero(page_.number() * page_size, page_size, false)));
        ASSERT_TRUE(loop_->run_until_done(volume.flush_homes(set_of(0))));
        EXPECT_EQ(asked, 2 * time) << "also after it was not in vain";
        EXPECT_FALSE(store_->present(page_));
        ASSERT_TRUE(loop_->run_until_done(volume.write(page_.number() * page_size, bytes)));
    }
    fabric_.on_call = {};
    end();
}

// A host that hangs must not hold up each flush.
TEST_F(PagesOfZeros, nobody_is_asked_again_right_after_it_was_in_vain) {
    unsigned asked = 0;
    fabric_.on_call = [&](HostId, CallKind kind, std::string) -> Task<Result<std::string>> {
        asked += kind == CallKind::end_older_copies;
        co_return fail(Errc::unavailable);
    };
    (void)write_zeros_over_ones();
    EXPECT_EQ(asked, 2u);
    OlderCopies& older = cache_->home_store().older_copies();
    EXPECT_FALSE(loop_->run_until_done(older.end({{.page = page_, .tenure = 1}})));
    EXPECT_EQ(asked, 2u);
    fabric_.on_call = {};
    end();
}

class OlderCopiesHere : public CacheLinks {
  protected:
    // This host has written a page of the other one, and gave it away.
    Tenure give_away() {
        (void)own(their_page());
        Message move = from_peer(MessageKind::move, their_page());
        move.flags = protocol::flag_bytes;
        move.tenure = tenure_ + 1;
        move.host = peer;
        move.request_id = 8;
        EXPECT_TRUE(cache_->inbox().on_message(move, nullptr));
        // Who has just written it keeps it for a moment.
        while (!fabric_.last(MessageKind::home_copy)) loop_->run_until_done(turns(*loop_));
        return move.tenure;
    }
    bool keeps() {
        const Stripes::Turn turn(cache_->stripes(), their_page());
        const protocol::Holding* const holding = turn.holder().find(their_page());
        return holding != nullptr && holding->kept_frame != no_frame;
    }
    static std::string packed(PageId page, Tenure tenure) {
        const OlderCopies::Page asked{.page = page, .tenure = tenure};
        return {reinterpret_cast<const char*>(&asked), sizeof asked};
    }
    Result<std::string> ask(PageId page, Tenure tenure, const std::string& more = {}) {
        return loop_->run_until_done(
            fabric_.calls().answer(CallKind::end_older_copies, peer, packed(page, tenure) + more));
    }
};

TEST_F(OlderCopiesHere, what_is_kept_ends_if_it_is_older_than_what_home_has) {
    const Tenure order = give_away();
    ASSERT_TRUE(keeps());
    EXPECT_TRUE(ask(their_page(), order - 1));
    EXPECT_TRUE(keeps()) << "it is what home has, or newer";
    EXPECT_TRUE(ask(their_page(), order));
    EXPECT_FALSE(keeps());
}

TEST_F(OlderCopiesHere, each_page_that_is_asked_about_ends) {
    const Tenure order = give_away();
    const PageId other{their_page().value + 1};
    EXPECT_TRUE(ask(other, order, packed(their_page(), order)));
    EXPECT_FALSE(keeps());
}

TEST_F(OlderCopiesHere, a_host_that_stops_does_not_say_that_it_keeps_nothing) {
    const Tenure order = give_away();
    cache_->abandon();
    EXPECT_EQ(ask(their_page(), order).error().code, Errc::cancelled);
    EXPECT_TRUE(keeps());
}

TEST_F(OlderCopiesHere, who_may_write_a_page_and_has_not_gives_that_up) {
    (void)own(their_page());
    EXPECT_TRUE(ask(their_page(), tenure_ + 1));
    EXPECT_EQ(fabric_.count(MessageKind::evict), 0u) << "it has written the page, and home has not";
    ask_for_dirty();
    ASSERT_TRUE(take_write_back());
    EXPECT_TRUE(ask(their_page(), tenure_ + 1));
    EXPECT_EQ(fabric_.count(MessageKind::evict), 1u) << "before the answer";
    EXPECT_FALSE(cache_->pages().holds(their_page()));
}

TEST_F(OlderCopiesHere, what_is_no_list_of_pages_of_the_home_is_refused) {
    EXPECT_EQ(ask(page(), 1).error().code, Errc::protocol);
    EXPECT_EQ(ask(their_page(), 1, packed(page(), 1)).error().code, Errc::protocol);
    EXPECT_EQ(ask(their_page(), 1, "x").error().code, Errc::protocol);
    auto nothing = fabric_.calls().answer(CallKind::end_older_copies, peer, std::string());
    EXPECT_EQ(loop_->run_until_done(std::move(nothing)).error().code, Errc::protocol);
}

}  // namespace
}  // namespace tarn::home_on_device
