// What the negotiation says about TLS: the modes NOTLS, SELECTIVETLS and FORCEDTLS of the protocol's text.
#include <gtest/gtest.h>

#include "frontends/nbd/handshake.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {
namespace {

using State = Handshake::State;
using Tls = Handshake::Tls;

class NbdHandshakeTls : public testing::Test {
  protected:
    // Of a client that has said its flags.
    static Handshake greeted(Tls tls) {
        Handshake handshake(tls);
        handshake.receive(Bytes().client_flags().bytes());
        handshake.output().clear();
        return handshake;
    }
    static Handshake secured() {
        Handshake handshake = greeted(Tls::required);
        handshake.receive(Bytes().option(Option::start_tls).bytes());
        handshake.output().clear();
        handshake.secured();
        return handshake;
    }
    // What it answers to one option; there is no export. 0: nothing.
    static uint32_t reply_to(Handshake& handshake, const Bytes& option) {
        handshake.output().clear();
        handshake.receive(option.bytes());
        while (handshake.state() == State::asking) handshake.answer_refused(Errc::not_found, "there is no such export");
        if (handshake.output().size() < 20) return 0;
        return load_big<uint32_t>(handshake.output().data() + 12);
    }
    static Bytes contexts_for(std::string_view name) {
        return Bytes()
            .number(static_cast<uint32_t>(name.size()))
            .text(name)
            .number(1u)
            .number(15u)
            .text("base:allocation");
    }
};

constexpr uint32_t acknowledged = number_of(OptionReply::acknowledge);
constexpr uint32_t tls_required = number_of(OptionReply::error_tls_required);
constexpr uint32_t invalid = number_of(OptionReply::error_invalid);
constexpr uint32_t unknown = number_of(OptionReply::error_unknown);

TEST_F(NbdHandshakeTls, is_begun_where_it_is_offered) {
    for (const Tls tls : {Tls::offered, Tls::for_some, Tls::required}) {
        Handshake handshake = greeted(tls);
        EXPECT_EQ(reply_to(handshake, Bytes().option(Option::start_tls)), acknowledged);
        EXPECT_EQ(handshake.state(), State::securing);
    }
    Handshake handshake = greeted(Tls::none);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::start_tls)), number_of(OptionReply::error_policy));
    EXPECT_EQ(handshake.state(), State::negotiating);
}

TEST_F(NbdHandshakeTls, is_not_begun_by_an_option_with_a_payload) {
    Handshake handshake = greeted(Tls::required);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::start_tls, Bytes().fill(1))), invalid);
    EXPECT_EQ(handshake.state(), State::negotiating);
}

TEST_F(NbdHandshakeTls, is_not_begun_twice) {
    Handshake handshake = secured();
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::start_tls)), invalid);
    EXPECT_EQ(handshake.state(), State::negotiating);
}

TEST_F(NbdHandshakeTls, bytes_in_plain_behind_it_are_the_end) {
    const Bytes start = Bytes().option(Option::start_tls);
    for (const Bytes& behind : {Bytes().fill(1), Bytes().option(Option::go, info_payload("disk"))}) {
        Handshake handshake = greeted(Tls::offered);
        handshake.receive(Bytes(start).add(behind).bytes());
        EXPECT_EQ(handshake.state(), State::closed);
        EXPECT_FALSE(handshake.reason().empty());
    }
}

TEST_F(NbdHandshakeTls, required_refuses_all_that_comes_without) {
    Handshake handshake = greeted(Tls::required);
    EXPECT_FALSE(handshake.lacks_tls()) << "it may still begin it";
    for (const auto& [option, payload] : {std::pair(Option::list, Bytes()),
                                          {Option::info, info_payload("disk")},
                                          {Option::go, info_payload("disk")},
                                          {Option::structured_reply, Bytes()},
                                          {Option::set_meta_context, contexts_for("disk")},
                                          {static_cast<Option>(99), Bytes().fill(300)},
                                          {Option::list, Bytes().fill(option_size_max + 1)}}) {
        EXPECT_EQ(reply_to(handshake, Bytes().option(option, payload)), tls_required);
        EXPECT_EQ(handshake.state(), State::negotiating);
    }
    EXPECT_TRUE(handshake.lacks_tls());
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::start_tls)), acknowledged);
    handshake.secured();
    EXPECT_FALSE(handshake.lacks_tls());
}

TEST_F(NbdHandshakeTls, required_lets_a_client_leave) {
    Handshake handshake = greeted(Tls::required);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::abort)), acknowledged);
    EXPECT_EQ(handshake.state(), State::closed);
    EXPECT_TRUE(handshake.reason().empty());
}

TEST_F(NbdHandshakeTls, required_disconnects_who_asks_for_an_export_by_the_old_option) {
    Handshake handshake = greeted(Tls::required);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::export_name, Bytes().text("disk"))), 0u);
    EXPECT_EQ(handshake.state(), State::closed);
}

TEST_F(NbdHandshakeTls, required_ends_with_an_option_beyond_all_limits) {
    Handshake handshake = greeted(Tls::required);
    handshake.receive(Bytes().number(option_magic).number(99u).number(option_skip_max + 1).bytes());
    EXPECT_EQ(handshake.state(), State::closed);
}

TEST_F(NbdHandshakeTls, within_it_nothing_is_refused_for_the_lack_of_it) {
    Handshake handshake = secured();
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::structured_reply)), acknowledged);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::go, info_payload("disk"))), unknown);
    EXPECT_EQ(reply_to(handshake, Bytes().option(99)), number_of(OptionReply::error_unsupported));
}

TEST_F(NbdHandshakeTls, an_export_that_is_not_found_may_need_it) {
    Handshake handshake = greeted(Tls::for_some);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::info, info_payload("disk"))), tls_required);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::go, info_payload("disk"))), tls_required);
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::list_meta_context, contexts_for("disk"))), unknown)
        << "the text allows that answer to no other option";
    Handshake offered = greeted(Tls::offered);
    EXPECT_EQ(reply_to(offered, Bytes().option(Option::go, info_payload("disk"))), unknown);
}

TEST_F(NbdHandshakeTls, what_was_negotiated_in_plain_is_forgotten) {
    Handshake handshake = greeted(Tls::offered);
    handshake.receive(
        Bytes().option(Option::structured_reply).option(Option::set_meta_context, contexts_for("disk")).bytes());
    handshake.answer_found({.name = "disk", .size_bytes = 4096});
    handshake.receive(Bytes().option(Option::start_tls).bytes());
    ASSERT_EQ(handshake.state(), State::securing);
    handshake.secured();
    EXPECT_EQ(reply_to(handshake, Bytes().option(Option::set_meta_context, contexts_for("disk"))), invalid)
        << "it needs structured replies";
    handshake.receive(Bytes().option(Option::go, info_payload("disk")).bytes());
    handshake.answer_found({.name = "disk", .size_bytes = 4096});
    ASSERT_EQ(handshake.state(), State::transmission);
    EXPECT_FALSE(handshake.exported().structured);
    EXPECT_FALSE(handshake.exported().base_allocation);
}

TEST_F(NbdHandshakeTls, a_context_chosen_in_plain_does_not_come_back) {
    Handshake handshake = greeted(Tls::offered);
    handshake.receive(
        Bytes().option(Option::structured_reply).option(Option::set_meta_context, contexts_for("disk")).bytes());
    handshake.answer_found({.name = "disk", .size_bytes = 4096});
    handshake.receive(Bytes().option(Option::start_tls).bytes());
    handshake.secured();
    handshake.receive(Bytes().option(Option::structured_reply).option(Option::go, info_payload("disk")).bytes());
    handshake.answer_found({.name = "disk", .size_bytes = 4096});
    EXPECT_TRUE(handshake.exported().structured);
    EXPECT_FALSE(handshake.exported().base_allocation);
}

}  // namespace
}  // namespace tarn::nbd
