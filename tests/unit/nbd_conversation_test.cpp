// What a client of one NBD connection is told of an export that it does not get or that ends, and of a stop.
#include "tests/unit/nbd_conversation.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

class NbdConversation : public NbdConnection {
  protected:
    // Of the option's reply that begins there.
    uint32_t type_at(size_t offset) const { return load_big<uint32_t>(said_.data() + offset + 12); }
    std::string text_at(size_t offset) const {
        const size_t size = load_big<uint32_t>(said_.data() + offset + 16);
        const size_t begin = offset + option_reply_header_size;
        if (begin + size > said_.size()) return "cut off";
        return {reinterpret_cast<const char*>(said_.data()) + begin, size};
    }
    static std::pair<Bytes, Bytes> halves(const Bytes& whole, size_t first_size) {
        std::pair<Bytes, Bytes> halves;
        for (const std::byte byte : whole.bytes())
            (halves.first.bytes().size() < first_size ? halves.first : halves.second).fill(1, byte);
        return halves;
    }
    static constexpr size_t option_reply_header_size = 20;
};

TEST_F(NbdConversation, the_longest_name_there_may_be_is_looked_for_and_the_client_may_go_on) {
    const std::string name(string_size_max, 'n');
    const Bytes asks = Bytes()
                           .client_flags()
                           .option(Option::info, info_payload(name))
                           .option(Option::go, info_payload("disk"))
                           .request(Command::disconnect, 1, 0, 0);
    for (const size_t piece_size : {size_t{1000}, SIZE_MAX}) {
        SetUp();
        loop_->run_until_done(talk(asks, {}, piece_size));
        ASSERT_GE(said_.size(), greeting_size + option_reply_header_size);
        EXPECT_EQ(type_at(greeting_size), number_of(OptionReply::error_unknown));
        EXPECT_EQ(said_.size(),
                  greeting_size + option_reply_header_size + text_at(greeting_size).size() + go_replies_size);
        EXPECT_TRUE(volumes_.sought().contains(name));
    }
}

TEST_F(NbdConversation, who_asks_about_a_volume_does_not_open_it_and_who_goes_does) {
    volumes_.hold_elsewhere("disk");
    const Bytes asks = Bytes()
                           .client_flags()
                           .option(Option::info, info_payload("disk"))
                           .option(Option::go, info_payload("disk"))
                           .option(Option::abort);
    loop_->run_until_done(talk(asks, {}, SIZE_MAX));
    constexpr size_t refusal = greeting_size + go_replies_size;
    ASSERT_GE(said_.size(), refusal + option_reply_header_size);
    EXPECT_EQ(type_at(greeting_size), number_of(OptionReply::info));
    EXPECT_EQ(type_at(refusal - option_reply_header_size), number_of(OptionReply::acknowledge));
    EXPECT_EQ(type_at(refusal), number_of(OptionReply::error_policy));
    const std::string text = text_at(refusal);
    EXPECT_TRUE(text.contains("held by host elsewhere")) << text;
    const size_t end = refusal + option_reply_header_size + text.size();
    ASSERT_EQ(said_.size(), end + option_reply_header_size);
    EXPECT_EQ(type_at(end), number_of(OptionReply::acknowledge)) << "it was no end of the negotiation";
}

// The host that has its page is away, and the stop ends the wait for it.
TEST_F(NbdConversation, a_write_that_waits_at_a_stop_is_answered_with_a_shutdown_and_then_there_is_an_end) {
    bool waits = true;
    bool is_asked = false;
    Event asked;
    volumes_.faults.miss_every = 1;
    volumes_.faults.copies_wait = [&] {
        is_asked = true;
        asked.notify_all();
        return waits;
    };
    const auto converse = [&]() -> Task<> {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Bytes says = Bytes()
                               .client_flags()
                               .option(Option::go, info_payload("disk"))
                               .request(Command::write, 1, 0, page_size)
                               .fill(page_size, std::byte{7});
        const Result<size_t> sent = co_await loop_->send(client_.get(), says.bytes());
        EXPECT_TRUE(sent);
        co_await hear(greeting_size + go_replies_size);
        while (!is_asked) co_await asked.wait();
        co_await Yield(*loop_);  // the volume has its turn until then
        EXPECT_EQ(said_.size(), greeting_size + go_replies_size);
        connection_->stop();
        volumes_.faults.copies_cancelled = true;
        waits = false;
        co_await gate.close();
    };
    loop_->run_until_done(converse());
    ASSERT_EQ(answers().size(), simple_reply_size);
    EXPECT_EQ(error_at(0), 108u);
    EXPECT_EQ(load_big<uint64_t>(answers().data() + 8), 1u);
    EXPECT_TRUE(ended_) << "it is told of an error of the socket";
    volumes_.faults.miss_every = 0;
    std::byte first;
    ASSERT_TRUE(disk_->try_read(0, std::span(&first, 1)));
    EXPECT_EQ(first, std::byte{0});
}

// The host that has its size is away. A volume that is held is not to wait for that host.
TEST_F(NbdConversation, a_client_that_hangs_up_while_the_size_is_not_known_is_not_waited_for) {
    bool waits = false;
    bool is_asked = false;
    volumes_.faults.size_waits = [&] {
        is_asked = is_asked || waits;
        return waits;
    };
    const auto converse = [&]() -> Task<> {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        EXPECT_TRUE(co_await loop_->send(client_.get(),
                                         Bytes().client_flags().option(Option::go, info_payload("disk")).bytes()));
        co_await hear(greeting_size + go_replies_size);
        waits = true;
        EXPECT_TRUE(co_await loop_->send(client_.get(), Bytes().request(Command::flush, 1, 0, 0).bytes()));
        while (!is_asked) co_await Yield(*loop_);
        ::shutdown(client_.get(), SHUT_RDWR);
        Alarm alarm(*loop_, 4 * Connection::farewell_time_max, [&] {
            ADD_FAILURE() << "it waits for the size";
            waits = false;
        });
        co_await gate.close();
        co_await alarm.end();
    };
    loop_->run_until_done(converse());
}

TEST_F(NbdConversation, no_name_stands_for_the_only_volume_and_for_none_of_several) {
    const Bytes asks = Bytes().client_flags().option(Option::go, info_payload(""));
    loop_->run_until_done(talk(asks, Bytes().request(Command::disconnect, 1, 0, 0), SIZE_MAX));
    EXPECT_EQ(said_.size(), greeting_size + go_replies_size);
    volumes_.add("other", 1 << 20, false);
    SetUp();
    loop_->run_until_done(talk(asks, {}, SIZE_MAX));
    ASSERT_GE(said_.size(), greeting_size + option_reply_header_size);
    EXPECT_EQ(type_at(greeting_size), number_of(OptionReply::error_unknown));
    EXPECT_EQ(said_.size(), greeting_size + option_reply_header_size + text_at(greeting_size).size());
}

TEST_F(NbdConversation, a_read_whose_request_comes_in_two_halves_waits_for_the_second) {
    std::byte seven[page_size];
    std::ranges::fill(seven, std::byte{7});
    ASSERT_TRUE(disk_->try_write(page_size, seven));
    const Bytes request = Bytes().request(Command::read, 9, page_size, page_size);
    for (const bool is_near : {false, true})
        for (const size_t first_size : {size_t{1}, request_size / 2, request_size - 1}) {
            SetUp();
            if (is_near) come_near();
            auto [first, rest] = halves(request, first_size);
            rest.request(Command::disconnect, 10, 0, 0);
            const Bytes begins = Bytes().client_flags().option(Option::go, info_payload("disk")).add(first);
            loop_->run_until_done(says_only(begins, greeting_size + go_replies_size, rest));
            ASSERT_EQ(answers().size(), simple_reply_size + page_size) << first_size;
            EXPECT_EQ(error_at(0), 0u);
            EXPECT_EQ(load_big<uint64_t>(answers().data() + 8), 9u);
            EXPECT_EQ(answers().back(), std::byte{7});
        }
}

TEST_F(NbdConversation, who_has_a_volume_that_was_deleted_is_served_nothing_more) {
    const Bytes first = Bytes().client_flags().option(Option::go, info_payload("disk")).request(Command::read, 1, 0, 1);
    const Bytes rest = Bytes().request(Command::write, 2, 0, 1).fill(1, std::byte{7}).request(Command::read, 3, 0, 1);
    const auto talk = [&]() -> Task<> {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        EXPECT_TRUE(co_await loop_->send(client_.get(), first.bytes()));
        co_await hear(greeting_size + go_replies_size + simple_reply_size + 1);
        // In one turn: what has come by then is answered.
        EXPECT_EQ(::send(client_.get(), rest.bytes().data(), rest.bytes().size(), 0),
                  static_cast<ssize_t>(rest.bytes().size()));
        connection_->end_export();
        co_await gate.close();
    };
    loop_->run_until_done(talk());
    ASSERT_EQ(answers().size(), 3 * simple_reply_size + 1);
    for (const size_t at : {simple_reply_size + 1, 2 * simple_reply_size + 1})
        EXPECT_EQ(error_at(at), static_cast<uint32_t>(Errno::shutdown));
    std::byte there{};
    ASSERT_TRUE(disk_->try_read(0, {&there, 1}));
    EXPECT_EQ(there, std::byte{0});
}

}  // namespace
}  // namespace tarn::nbd
