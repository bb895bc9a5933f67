#include <gtest/gtest.h>

#include "frontends/nbd/handshake.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {
namespace {

constexpr uint64_t disk_size = 12345;

const ExportEntry disk{.name = "disk", .description = "a disk", .size_bytes = disk_size};

// Answers as a cluster with the one volume "disk" would.
void answer(Handshake& handshake) {
    while (handshake.state() == Handshake::State::asking) {
        if (handshake.question() == Handshake::Question::list)
            handshake.answer_list(std::span(&disk, 1));
        else if (handshake.name() == disk.name)
            handshake.answer_found(disk);
        else
            handshake.answer_refused(Errc::not_found, "there is no such export");
    }
}

void feed(Handshake& handshake, std::span<const std::byte> bytes) {
    handshake.receive(bytes);
    answer(handshake);
}

struct Reply {
    uint32_t option;
    uint32_t type;
    std::vector<std::byte> payload;
};

// What follows the greeting.
std::vector<Reply> replies(Handshake& handshake) {
    std::vector<Reply> list;
    std::span<const std::byte> rest = std::span<const std::byte>(handshake.output()).subspan(18);
    while (!rest.empty()) {
        EXPECT_EQ(load_big<uint64_t>(rest.data()), option_reply_magic);
        const auto size = load_big<uint32_t>(rest.data() + 16);
        const auto payload = rest.subspan(20, size);
        list.push_back({load_big<uint32_t>(rest.data() + 8),
                        load_big<uint32_t>(rest.data() + 12),
                        {payload.begin(), payload.end()}});
        rest = rest.subspan(20 + size);
    }
    return list;
}

uint32_t only_reply(const Bytes& bytes) {
    Handshake handshake;
    feed(handshake, bytes.bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::negotiating);
    const std::vector<Reply> list = replies(handshake);
    EXPECT_EQ(list.size(), 1u);
    return list.empty() ? 0 : list.front().type;
}

Bytes whole_conversation() {
    const Bytes contexts = Bytes().number(4u).text("disk").number(1u).number(15u).text("base:allocation");
    return Bytes()
        .client_flags()
        .option(99, Bytes().fill(300))
        .option(Option::list)
        .option(Option::structured_reply)
        .option(Option::set_meta_context, contexts)
        .option(Option::info, info_payload("disk"))
        .option(Option::go, info_payload("disk"))
        .request(Command::read, 1, 0, 512);
}

TEST(NbdHandshake, greets_first) {
    Handshake handshake;
    ASSERT_EQ(handshake.output().size(), 18u);
    EXPECT_EQ(load_big<uint64_t>(handshake.output().data()), greeting_magic);
    EXPECT_EQ(load_big<uint16_t>(handshake.output().data() + 16), 3);
}

TEST(NbdHandshake, goes_with_everything_a_client_asks_for) {
    Handshake handshake;
    feed(handshake, whole_conversation().bytes());
    ASSERT_EQ(handshake.state(), Handshake::State::transmission);
    EXPECT_EQ(handshake.exported().size_bytes, disk_size);
    EXPECT_TRUE(handshake.exported().structured);
    EXPECT_TRUE(handshake.exported().base_allocation);
    EXPECT_EQ(handshake.take_rest().size(), request_size);
    EXPECT_EQ(replies(handshake).front().type, number_of(OptionReply::error_unsupported));
}

TEST(NbdHandshake, does_not_care_how_its_bytes_are_cut) {
    Handshake whole;
    feed(whole, whole_conversation().bytes());
    Handshake cut;
    for (const std::byte byte : whole_conversation().bytes()) {
        if (cut.state() == Handshake::State::transmission) break;
        feed(cut, std::span(&byte, 1));
    }
    EXPECT_EQ(cut.state(), Handshake::State::transmission);
    EXPECT_EQ(cut.output(), whole.output());
}

TEST(NbdHandshake, export_name_ends_the_negotiation) {
    Handshake handshake;
    feed(handshake, Bytes().number(client_fixed_newstyle).option(Option::export_name, Bytes().text("disk")).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::transmission);
    EXPECT_EQ(handshake.output().size(), 18u + 8 + 2 + 124);
    feed(handshake = Handshake(), Bytes().client_flags().option(Option::export_name, Bytes().text("disk")).bytes());
    EXPECT_EQ(handshake.output().size(), 18u + 8 + 2) << "without the zeroes that it does not want";
}

TEST(NbdHandshake, lists_names_with_descriptions) {
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::list).bytes());
    const std::vector<Reply> list = replies(handshake);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0].type, number_of(OptionReply::server));
    EXPECT_EQ(list[0].payload, Bytes().number(4u).text("diska disk").bytes());
}

TEST(NbdHandshake, tells_name_and_description_to_who_asks_for_them) {
    const Bytes asks = Bytes().number(4u).text("disk").number(uint16_t{2}).number(uint16_t{1}).number(uint16_t{2});
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::info, asks).bytes());
    const std::vector<Reply> list = replies(handshake);
    ASSERT_EQ(list.size(), 5u);
    EXPECT_EQ(list[1].payload, Bytes().number(uint16_t{1}).text("disk").bytes());
    EXPECT_EQ(list[2].payload, Bytes().number(uint16_t{2}).text("a disk").bytes());
    feed(handshake = Handshake(), Bytes().client_flags().option(Option::info, info_payload("disk")).bytes());
    EXPECT_EQ(replies(handshake).size(), 3u);
}

TEST(NbdHandshake, a_read_only_export_says_so_whichever_way_it_is_opened) {
    ExportEntry read_only = disk;
    read_only.read_only = true;
    for (const bool old : {true, false}) {
        Handshake handshake;
        const Bytes open = old ? Bytes().option(Option::export_name, Bytes().text("disk"))
                               : Bytes().option(Option::go, info_payload("disk"));
        handshake.receive(Bytes().client_flags().add(open).bytes());
        handshake.answer_found(read_only);
        EXPECT_TRUE(handshake.exported().read_only);
        const size_t flags_at = 18 + (old ? 8 : 20 + 10);
        ASSERT_GE(handshake.output().size(), flags_at + 2);
        EXPECT_TRUE(load_big<uint16_t>(handshake.output().data() + flags_at) & transmission_read_only);
    }
}

TEST(NbdHandshake, opens_nothing_before_go) {
    Handshake handshake;
    handshake.receive(Bytes().client_flags().option(Option::info, info_payload("disk")).bytes());
    EXPECT_EQ(handshake.question(), Handshake::Question::find);
}

TEST(NbdHandshake, an_unknown_export_is_refused_and_the_client_may_go_on) {
    Handshake handshake;
    feed(handshake, Bytes()
                        .client_flags()
                        .option(Option::go, info_payload("nothing"))
                        .option(Option::go, info_payload("disk"))
                        .bytes());
    EXPECT_EQ(replies(handshake).front().type, number_of(OptionReply::error_unknown));
    EXPECT_EQ(handshake.state(), Handshake::State::transmission);
    feed(handshake = Handshake(), Bytes().client_flags().option(Option::export_name, Bytes().text("nothing")).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::closed);
}

TEST(NbdHandshake, an_oversized_option_is_refused_unread) {
    Handshake handshake;
    Bytes bytes = Bytes().client_flags().number(option_magic).number(6u).number(option_size_max + 1);
    feed(handshake, bytes.bytes());
    EXPECT_EQ(replies(handshake).front().type, number_of(OptionReply::error_too_big));
    feed(handshake, Bytes().fill(option_size_max + 1).option(Option::list).bytes());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::acknowledge));
    feed(handshake, Bytes().number(option_magic).number(6u).number(0xffffffffu).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::closed);
}

TEST(NbdHandshake, lengths_that_lie_are_refused) {
    const auto refused = number_of(OptionReply::error_invalid);
    const auto asks = [](Option option, const Bytes& payload) {
        return Bytes().client_flags().option(option, payload);
    };
    EXPECT_EQ(only_reply(asks(Option::info, Bytes().number(0xffffffffu).text("disk").number(uint16_t{0}))), refused);
    EXPECT_EQ(only_reply(asks(Option::info, Bytes().number(4u).text("disk").number(uint16_t{9}))), refused);
    EXPECT_EQ(only_reply(asks(Option::info, Bytes().number(4u).text("disk"))), refused);
    EXPECT_EQ(only_reply(asks(Option::info, Bytes())), refused);
    EXPECT_EQ(only_reply(asks(Option::info, info_payload("disk").fill(1))), refused);
    EXPECT_EQ(only_reply(asks(Option::info, Bytes().number(5000u).fill(5000).number(uint16_t{0}))), refused);
    EXPECT_EQ(only_reply(asks(Option::list, Bytes().fill(1))), refused);
    EXPECT_EQ(only_reply(asks(Option::structured_reply, Bytes().fill(1))), refused);
    EXPECT_EQ(only_reply(asks(Option::list_meta_context, Bytes().number(0u).number(0xffffffffu))), refused);
    // Contexts without structured replies.
    EXPECT_EQ(only_reply(asks(Option::set_meta_context, Bytes().number(0u).number(0u))), refused);
}

TEST(NbdHandshake, a_name_has_as_many_bytes_as_the_protocol_allows_and_no_more) {
    const std::string longest(string_size_max, 'n');
    const std::string longer = longest + "n";
    static_assert(string_size_max == 4096);
    const auto asks = [](const std::string& name) {
        return Bytes().client_flags().option(Option::info, info_payload(name));
    };
    EXPECT_EQ(only_reply(asks(longest)), number_of(OptionReply::error_unknown));
    EXPECT_EQ(only_reply(asks(longer)), number_of(OptionReply::error_invalid));
    const auto open = [](Handshake& handshake, const std::string& name) {
        handshake.receive(Bytes().client_flags().option(Option::export_name, Bytes().text(name)).bytes());
    };
    Handshake handshake;
    open(handshake, longest);
    ASSERT_EQ(handshake.state(), Handshake::State::asking);
    EXPECT_EQ(handshake.name(), longest);
    open(handshake = Handshake(), longer);
    EXPECT_EQ(handshake.state(), Handshake::State::closed);
    EXPECT_FALSE(handshake.reason().empty());
}

// The names of the metadata contexts that are answered to these queries.
std::vector<std::string> contexts_of(Option option, const std::vector<std::string>& queries, Handshake& handshake) {
    Bytes payload = Bytes().number(4u).text("disk").number(static_cast<uint32_t>(queries.size()));
    for (const std::string& query : queries) payload.number(static_cast<uint32_t>(query.size())).text(query);
    const size_t before = replies(handshake).size();
    feed(handshake, Bytes().option(option, payload).bytes());
    std::vector<std::string> names;
    for (const Reply& reply : std::span<const Reply>(replies(handshake)).subspan(before))
        if (reply.type == number_of(OptionReply::meta_context))
            names.emplace_back(reinterpret_cast<const char*>(reply.payload.data()) + 4, reply.payload.size() - 4);
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::acknowledge));
    return names;
}

TEST(NbdHandshake, contexts_are_listed_by_name_and_by_namespace) {
    using Names = std::vector<std::string>;
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::structured_reply).bytes());
    const auto listed = [&](const Names& queries) {
        return contexts_of(Option::list_meta_context, queries, handshake);
    };
    EXPECT_EQ(listed({}), (Names{"base:allocation", "tarn:tier"}));
    EXPECT_EQ(listed({"tarn:"}), Names{"tarn:tier"});
    EXPECT_EQ(listed({"base:", "tarn:tier", "tarn:"}), (Names{"base:allocation", "tarn:tier"}));
    EXPECT_EQ(listed({"tarn:tie", "tarn", "", "qemu:", "tarn:tier:"}), Names{});
}

TEST(NbdHandshake, contexts_are_chosen_by_name_and_the_last_choice_counts) {
    using Names = std::vector<std::string>;
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::structured_reply).bytes());
    const auto chosen = [&](const Names& queries) { return contexts_of(Option::set_meta_context, queries, handshake); };
    EXPECT_EQ(chosen({"tarn:tier", "base:allocation", "tarn:tier"}), (Names{"base:allocation", "tarn:tier"}));
    EXPECT_EQ(chosen({}), Names{});
    EXPECT_EQ(chosen({"tarn:", "base:"}), Names{});
    EXPECT_EQ(chosen({"tarn:tier"}), Names{"tarn:tier"});
    feed(handshake, Bytes().option(Option::go, info_payload("disk")).bytes());
    EXPECT_TRUE(handshake.exported().tier);
    EXPECT_FALSE(handshake.exported().base_allocation);
}

TEST(NbdHandshake, extended_headers_stand_for_structured_replies_too) {
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::extended_headers).bytes());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::acknowledge));
    EXPECT_EQ(contexts_of(Option::set_meta_context, {"base:allocation"}, handshake).size(), 1u);
    feed(handshake, Bytes().option(Option::structured_reply).bytes());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::error_extended_headers_required));
    feed(handshake, Bytes().option(Option::go, info_payload("disk")).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::transmission);
    EXPECT_TRUE(handshake.exported().extended && handshake.exported().structured);
    EXPECT_TRUE(handshake.exported().base_allocation);
}

TEST(NbdHandshake, extended_headers_may_follow_structured_replies_but_not_precede_export_name) {
    Handshake handshake;
    feed(handshake, Bytes()
                        .client_flags()
                        .option(Option::structured_reply)
                        .option(Option::extended_headers, Bytes().fill(1))
                        .bytes());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::error_invalid));
    feed(handshake, Bytes().option(Option::extended_headers).bytes());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::acknowledge));
    feed(handshake, Bytes().option(Option::export_name, Bytes().text("disk")).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::closed);
}

TEST(NbdHandshake, a_context_counts_only_for_its_export) {
    const Bytes contexts = Bytes().number(0u).number(1u).number(15u).text("base:allocation");
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::structured_reply).bytes());
    handshake.receive(Bytes().option(Option::set_meta_context, contexts).bytes());
    handshake.answer_found(disk);  // the default export
    feed(handshake, Bytes().option(Option::go, info_payload("disk")).bytes());
    EXPECT_FALSE(handshake.exported().base_allocation);
}

TEST(NbdHandshake, abort_is_acknowledged) {
    Handshake handshake;
    feed(handshake, Bytes().client_flags().option(Option::abort).bytes());
    EXPECT_EQ(handshake.state(), Handshake::State::closed);
    EXPECT_TRUE(handshake.reason().empty());
    EXPECT_EQ(replies(handshake).back().type, number_of(OptionReply::acknowledge));
}

TEST(NbdHandshake, garbage_closes) {
    for (const Bytes& bytes : {Bytes().number(0xffffffffu), Bytes().client_flags().fill(16, std::byte{0x47})}) {
        Handshake handshake;
        feed(handshake, bytes.bytes());
        EXPECT_EQ(handshake.state(), Handshake::State::closed);
        EXPECT_FALSE(handshake.reason().empty());
    }
}

}  // namespace
}  // namespace tarn::nbd
