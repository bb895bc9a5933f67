// TLS from the file of keys to the client of an export, with a client of GnuTLS's at the other end.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>

#include "tests/unit/nbd_tls_conversation.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

const std::string key = tls_key;
constexpr const char* other_key = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

std::vector<std::byte> pattern(size_t size) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    return bytes;
}

TEST(TlsKeys, are_read_as_psktool_writes_them) {
    const auto keys =
        TlsCredentials::parse_keys("# of the lab\n\nalice:00112233445566778899AABBccddeeff\r\nbob:" + key);
    ASSERT_TRUE(keys) << keys.error();
    ASSERT_EQ(keys->size(), 2u);
    EXPECT_EQ(keys->at("alice").size(), 16u);
    EXPECT_EQ(keys->at("alice").back(), 0xff);
    EXPECT_EQ(keys->at("bob").size(), 32u);
}

TEST(TlsKeys, that_are_none_are_refused_with_their_line) {
    const std::string good = "alice:" + key + "\n";
    const std::string long_name(129, 'u');
    const auto with_key_of = [](size_t bytes) { return "bob:" + std::string(2 * bytes, '0'); };
    for (const std::string& bad : {std::string("alice"), ":" + key, std::string("bob:0011"), with_key_of(15),
                                   with_key_of(513), "bob:" + std::string(31, '0'), "bob:" + std::string(31, '0') + "g",
                                   "bob: " + key, long_name + ":" + key, good, std::string("bob\0", 4) + ":" + key}) {
        const auto keys = TlsCredentials::parse_keys(good + bad + "\n");
        ASSERT_FALSE(keys) << bad;
        EXPECT_TRUE(keys.error().starts_with("line 2: ")) << keys.error();
        EXPECT_FALSE(keys.error().contains("0011")) << "a key is shown to nobody";
    }
    for (const size_t bytes : {16u, 512u}) EXPECT_TRUE(TlsCredentials::parse_keys(with_key_of(bytes))) << bytes;
    EXPECT_FALSE(TlsCredentials::parse_keys(""));
    EXPECT_FALSE(TlsCredentials::parse_keys("# alice\n"));
}

TEST_F(NbdTls, keys_that_others_may_read_are_refused) {
    std::filesystem::permissions(files_.psk_file, std::filesystem::perms(0644));
    const auto loaded = TlsCredentials::load(files_);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), files_.psk_file + ": others may read it; chmod 0600");
}

TEST_F(NbdTls, needs_keys_or_certificates) {
    files_.psk_file.clear();
    const auto loaded = TlsCredentials::load(files_);
    ASSERT_FALSE(loaded);
    EXPECT_TRUE(loaded.error().contains("/none/server-cert.pem: no such file")) << loaded.error();
}

TEST_F(NbdTls, half_of_a_certificate_is_a_mistake) {
    const std::string certificates = directory_ / "half";
    std::filesystem::create_directory(certificates);
    files_.directory = certificates;
    std::ofstream(certificates + "/server-cert.pem") << "no certificate";
    auto loaded = TlsCredentials::load(files_);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), certificates + "/server-key.pem: no such file");
    std::ofstream(certificates + "/server-key.pem") << "no key";
    std::filesystem::permissions(certificates + "/server-key.pem", std::filesystem::perms(0604));
    loaded = TlsCredentials::load(files_);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), certificates + "/server-key.pem: others may read it; chmod 0600");
}

TEST_F(NbdTls, a_client_with_the_key_is_known_by_its_user) {
    Stream stream(std::move(server_));
    ASSERT_TRUE(begun(stream, [this] { EXPECT_TRUE(TlsClient(client_.get()).shake_hands()); }));
    ASSERT_TRUE(stream.is_tls());
    EXPECT_EQ(stream.tls().identities(), std::vector<std::string>{"psk:alice"});
}

// GnuTLS's own choice for a pre-shared key is ChaCha20.
TEST_F(NbdTls, a_cipher_is_taken_that_cpus_have_instructions_for) {
    Stream stream(std::move(server_));
    ASSERT_TRUE(begun(stream, [this] {
        TlsClient client(client_.get());
        EXPECT_TRUE(client.shake_hands());
        EXPECT_EQ(client.cipher(), GNUTLS_CIPHER_AES_128_GCM);
    }));
}

TEST_F(NbdTls, version_1_2_is_spoken) {
    Stream stream(std::move(server_));
    const char* const priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK";
    ASSERT_TRUE(begun(stream, [&] { EXPECT_TRUE(TlsClient(client_.get(), "alice", key, priority).shake_hands()); }));
    EXPECT_EQ(stream.tls().identities(), std::vector<std::string>{"psk:alice"});
}

TEST_F(NbdTls, older_versions_and_exchanges_without_forward_secrecy_are_not) {
    for (const char* priority : {"NORMAL:-VERS-ALL:+VERS-TLS1.1:-KX-ALL:+ECDHE-PSK",
                                 "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+PSK", "NORMAL:-VERS-ALL:+VERS-TLS1.2"}) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        client_ = UniqueFd(pair[0]);
        Stream stream{UniqueFd(pair[1])};
        const Result<> result = begun(
            stream, [&] { EXPECT_FALSE(TlsClient(client_.get(), "alice", key, priority).shake_hands()) << priority; });
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, Errc::refused);
    }
}

TEST_F(NbdTls, a_wrong_key_and_an_unknown_user_fail_alike_and_the_log_knows_which) {
    std::vector<std::string> whys;
    for (const auto& [user, with] : {std::pair("alice", other_key), {"mallory", other_key}}) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        client_ = UniqueFd(pair[0]);
        Stream stream{UniqueFd(pair[1])};
        const Result<> result = begun(stream, [&] { TlsClient(client_.get(), user, with).shake_hands(); });
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, Errc::refused);
        whys.emplace_back(stream.trouble());
    }
    EXPECT_TRUE(whys[0].starts_with("PSK user \"alice\": its key is another one")) << whys[0];
    EXPECT_TRUE(whys[1].starts_with("PSK user \"mallory\": unknown")) << whys[1];
}

// In version 1.2: in 1.3 GnuTLS's client sends nothing sensible without a key.
TEST_F(NbdTls, an_unknown_user_with_an_empty_key_is_refused) {
    Stream stream(std::move(server_));
    const char* const priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK";
    const Result<> result = begun(stream, [&] { TlsClient(client_.get(), "mallory", "", priority).shake_hands(); });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::refused);
    EXPECT_TRUE(stream.trouble().starts_with("PSK user \"mallory\": unknown")) << stream.trouble();
}

// Version 1.3 knows no such alert.
TEST_F(NbdTls, a_warning_within_the_handshake_does_not_end_it) {
    Stream stream(std::move(server_));
    const char* const priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK";
    ASSERT_TRUE(begun(stream, [&] {
        TlsClient client(client_.get(), "alice", key, priority);
        client.warn_within_handshake();
        EXPECT_TRUE(client.shake_hands());
    })) << stream.trouble();
}

TEST_F(NbdTls, bytes_in_plain_are_no_handshake) {
    Stream stream(std::move(server_));
    const Bytes option = Bytes().option(Option::go, info_payload("disk"));
    const Result<> result = begun(stream, [&] {
        EXPECT_GT(::send(client_.get(), option.bytes().data(), option.bytes().size(), 0), 0);
        ::shutdown(client_.get(), SHUT_WR);
    });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::refused);
}

TEST_F(NbdTls, a_client_that_leaves_within_the_handshake_is_not_refused) {
    Stream stream(std::move(server_));
    const Result<> result = begun(stream, [&] { ::shutdown(client_.get(), SHUT_WR); });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::closed);
}

TEST_F(NbdTls, a_handshake_that_was_given_up_while_it_waited_is_not_made) {
    Stream stream(std::move(server_));
    const auto begin = [&]() -> Task<> {
        const Result<> result = co_await stream.begin_tls(*loop_, credentials_, buffers(), [] { return true; });
        EXPECT_EQ(result ? Errc{} : result.error().code, Errc::closed);
        stream.close();
    };
    together(begin(), [this] {
        EXPECT_FALSE(TlsClient(client_.get()).shake_hands());
        char byte = 0;
        EXPECT_LE(::recv(client_.get(), &byte, 1, 0), 0) << "not a word";
    });
}

TEST_F(NbdTls, a_handshake_may_come_in_any_pieces) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd relay(pair[0]);
    Stream stream{UniqueFd(pair[1])};
    ASSERT_TRUE(begun(stream, [&] {
        std::thread relaying([&] {
            // The client's bytes one by one, the server's as they come.
            std::array<pollfd, 2> ends{{{.fd = server_.get(), .events = POLLIN, .revents = 0},
                                        {.fd = relay.get(), .events = POLLIN, .revents = 0}}};
            std::array<char, 4096> bytes;
            while (::poll(ends.data(), ends.size(), 5000) > 0) {
                if (ends[0].revents) {
                    if (::recv(server_.get(), bytes.data(), 1, 0) <= 0) break;
                    EXPECT_EQ(::send(relay.get(), bytes.data(), 1, MSG_NOSIGNAL), 1);
                }
                if (ends[1].revents == 0) continue;
                const ssize_t count = ::recv(relay.get(), bytes.data(), bytes.size(), 0);
                if (count <= 0) break;
                EXPECT_EQ(::send(server_.get(), bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL), count);
            }
        });
        EXPECT_TRUE(TlsClient(client_.get()).shake_hands());
        client_.reset();
        relaying.join();
    }));
    EXPECT_EQ(stream.tls().identities(), std::vector<std::string>{"psk:alice"});
}

class NbdTlsBytes : public NbdTls {
  protected:
    // Echoes through rooms of many sizes, in one and in two vectors.
    Task<> serve_echo(Stream& stream, size_t size) {
        const Result<> begun = co_await stream.begin_tls(*loop_, credentials_, buffers());
        EXPECT_TRUE(begun);
        std::vector<std::byte> bytes(size);
        size_t received = 0;
        for (unsigned step = 0; received < size; ++step) {
            const size_t room = std::min<size_t>(size - received, 1 + step * 7919 % 100'000);
            std::vector<iovec> vectors = {{bytes.data() + received, room / 3},
                                          {bytes.data() + received + room / 3, room - room / 3}};
            msghdr message{};
            message.msg_iov = vectors.data();
            message.msg_iovlen = vectors.size();
            const ssize_t count = stream.receive(message, false, {}, buffers());
            if (count > 0) received += static_cast<size_t>(count);
            if (count == 0 || (count < 0 && errno != EAGAIN)) break;
            if (count == static_cast<ssize_t>(room)) continue;
            const Result<size_t> more = co_await loop_->poll(stream.socket(), POLLIN);
            if (!more) break;
        }
        EXPECT_EQ(received, size);
        for (size_t sent = 0; sent < size || !stream.flush();) {
            std::vector<iovec> vectors;
            for (size_t from = sent; from < size && vectors.size() < 500; from += vectors.back().iov_len)
                vectors.push_back({bytes.data() + from, std::min(4096 + vectors.size(), size - from)});
            const ssize_t count = stream.send(vectors, buffers());
            if (count > 0) sent += static_cast<size_t>(count);
            if (count < 0 && errno != EAGAIN) break;
            const Result<> writable = co_await loop_->writable(stream.socket());
            if (!writable) break;
        }
        EXPECT_TRUE(stream.is_flushed());
        co_await stream.say_end(*loop_, true);
        stream.close();
    }
    Task<> fill_and_send(Stream& stream, std::span<const std::byte> bytes, std::atomic<bool>& is_full) {
        const Result<> begun = co_await stream.begin_tls(*loop_, credentials_, buffers());
        EXPECT_TRUE(begun);
        const iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
        const ssize_t taken = stream.send(std::span(&vector, 1), buffers());
        EXPECT_GT(taken, 0);
        EXPECT_LT(taken, static_cast<ssize_t>(bytes.size()));
        EXPECT_FALSE(stream.is_flushed());
        EXPECT_EQ(stream.send(std::span(&vector, 1), buffers()), -1);
        EXPECT_EQ(errno, EAGAIN);
        is_full = true;
        const std::span<const std::byte> rest = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(taken, 0)));
        const Result<> sent = co_await stream.send_all(*loop_, rest, buffers());
        EXPECT_TRUE(sent);
        stream.close();
    }
};

TEST_F(NbdTlsBytes, carries_bytes_both_ways_whatever_the_pieces) {
    constexpr size_t size = 6'000'001;
    Stream stream(std::move(server_));
    const std::vector<std::byte> sent = pattern(size);
    together(serve_echo(stream, size), [&] {
        TlsClient client(client_.get());
        client.limit_records(4096);
        ASSERT_TRUE(client.shake_hands());
        for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 % 50'021) {
            if (at > size / 2 && at < size / 2 + step) client.change_keys();
            EXPECT_TRUE(client.send(std::span(sent).subspan(at, std::min(step, size - at))));
        }
        EXPECT_EQ(client.receive(size), sent);
        EXPECT_TRUE(client.saw_end());
        client.end();
        client_.reset();
    });
}

TEST_F(NbdTlsBytes, keeps_what_the_socket_does_not_take_and_takes_no_more) {
    Stream stream(std::move(server_));
    const std::vector<std::byte> bytes = pattern(4 << 20);
    std::atomic<bool> is_full{false};
    together(fill_and_send(stream, bytes, is_full), [&] {
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        while (!is_full) std::this_thread::yield();
        EXPECT_EQ(client.receive(bytes.size()), bytes);
    });
}

TEST_F(NbdTls, the_clients_end_is_told_from_bytes_that_break_the_rules) {
    for (const bool in_order : {true, false}) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        client_ = UniqueFd(pair[0]);
        Stream stream{UniqueFd(pair[1])};
        ASSERT_TRUE(begun(stream, [&] {
            TlsClient client(client_.get());
            EXPECT_TRUE(client.shake_hands());
            if (in_order)
                client.end();
            else
                EXPECT_GT(::send(client_.get(), "\x17\x03\x03\x00\x20not what was sealed by the client", 38, 0), 0);
        }));
        std::vector<std::byte> into(100);
        iovec vector{into.data(), into.size()};
        msghdr message{};
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        EXPECT_EQ(stream.receive(message, false, {}, buffers()), in_order ? 0 : -1);
        EXPECT_EQ(stream.has_ended(), in_order);
        if (in_order) continue;
        EXPECT_EQ(errno, EPROTO);
        EXPECT_FALSE(stream.trouble().empty());
    }
}

TEST_F(NbdTlsConnection, serves_within_what_was_asked_for_within) {
    talk(admission(TlsMode::on, {"psk:alice"}), [this] {
        ask_for_tls(Bytes().option(Option::structured_reply), 20);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        // Pipelined with the last option, as a client may.
        ASSERT_TRUE(client.send(Bytes()
                                    .option(Option::go, info_payload("secret"))
                                    .request(Command::write, 1, 4096, 5)
                                    .text("hello")
                                    .request(Command::read, 2, 4094, 9)
                                    .bytes()));
        client.receive(20 + 12 + 20 + 14 + 20);
        const std::vector<std::byte> written = client.receive(simple_reply_size);
        ASSERT_EQ(written.size(), simple_reply_size);
        EXPECT_EQ(load_big<uint32_t>(written.data()), simple_reply_magic)
            << "structured replies were asked for in plain";
        const std::vector<std::byte> read = client.receive(simple_reply_size + 9);
        ASSERT_EQ(read.size(), simple_reply_size + 9);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.data()) + simple_reply_size + 2, 5), "hello");
        EXPECT_EQ(sessions_.size(), 1u);
        const Client elsewhere{.address = "192.0.2.2", .identity = "psk:alice"};
        EXPECT_TRUE(sessions_.find(elsewhere, secret_, Sessions::Clock::now())) << "it is who it proved to be";
        ASSERT_TRUE(client.send(Bytes().request(Command::disconnect, 3, 0, 0).bytes()));
        EXPECT_TRUE(client.saw_end());
        EXPECT_EQ(sessions_.size(), 0u) << "who sees the end has left";
        client.end();
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, a_client_that_is_slow_to_take_its_replies_gets_them_all) {
    constexpr size_t count = 60;
    constexpr uint32_t size = 1 << 20;
    talk(admission(TlsMode::require, {}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        const std::vector<std::byte> written = pattern(size);
        Bytes write = Bytes().option(Option::go, info_payload("open")).request(Command::write, 0, 0, size);
        for (const std::byte byte : written) write.fill(1, byte);
        ASSERT_TRUE(client.send(write.bytes()));
        client.receive(20 + 12 + 20 + 14 + 20 + simple_reply_size);
        // More than the server may hold.
        Bytes reads;
        for (uint64_t i = 1; i <= count; ++i) reads.request(Command::read, i, 0, size);
        ASSERT_TRUE(client.send(reads.request(Command::disconnect, 0, 0, 0).bytes()));
        for (size_t i = 0; i < count; ++i) {
            EXPECT_LE(share_.held_bytes(), share_.size_bytes());
            ASSERT_EQ(client.receive(simple_reply_size).size(), simple_reply_size);
            ASSERT_EQ(client.receive(size), written) << "reply " << i;
        }
        EXPECT_TRUE(client.saw_end());
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, the_end_of_a_reply_does_not_wait_for_the_next_one) {
    constexpr int room = 4096;  // much less than what is sealed at once
    ASSERT_EQ(::setsockopt(server_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    talk(admission(TlsMode::require, {}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        ASSERT_TRUE(client.send(Bytes().option(Option::go, info_payload("open")).bytes()));
        client.receive(20 + 12 + 20 + 14 + 20);
        for (const uint32_t size : {50'000u, 1'000'000u}) {
            ASSERT_TRUE(client.send(Bytes().request(Command::read, 1, 0, size).bytes()));
            ASSERT_EQ(client.receive(simple_reply_size + size).size(), simple_reply_size + size);
        }
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, who_does_not_close_is_not_waited_for_for_long) {
    talk(admission(TlsMode::require, {}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        ASSERT_TRUE(client.send(
            Bytes().option(Option::go, info_payload("open")).request(Command::disconnect, 1, 0, 0).bytes()));
    });
    // talk() has returned, though the client's socket is open.
}

TEST_F(NbdTlsConnection, an_export_is_hidden_from_who_is_not_listed) {
    talk(admission(TlsMode::on, {"psk:bob"}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        EXPECT_EQ(names_in(client), "open ");
        EXPECT_EQ(reply_to_info(client, "open"), static_cast<uint32_t>(OptionReply::info));
        EXPECT_EQ(reply_to_info(client, "secret"), static_cast<uint32_t>(OptionReply::error_unknown));
        EXPECT_EQ(reply_to_info(client, "none"), static_cast<uint32_t>(OptionReply::error_unknown));
        EXPECT_EQ(reply_to_info(client, ""), static_cast<uint32_t>(OptionReply::info)) << "the one that it may see";
        EXPECT_TRUE(client.send(Bytes().option(Option::export_name, Bytes().text("secret")).bytes()));
        EXPECT_TRUE(client.saw_end());
        client_.reset();
    });
    EXPECT_FALSE(volumes_.sought().contains("secret")) << "how long that takes would tell that it is there";
}

TEST_F(NbdTlsConnection, an_export_is_there_for_who_is_listed) {
    talk(admission(TlsMode::on, {"psk:alice"}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        ASSERT_TRUE(client.shake_hands());
        EXPECT_EQ(names_in(client), "open secret ");
        EXPECT_EQ(reply_to_info(client, "secret"), static_cast<uint32_t>(OptionReply::info));
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, an_export_with_a_list_needs_tls) {
    talk(admission(TlsMode::on, {"psk:alice"}), [this] {
        receive(18);
        send(Bytes().client_flags().option(Option::info, info_payload("secret")));
        EXPECT_EQ(type_of(receive(20)), static_cast<uint32_t>(OptionReply::error_tls_required));
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, where_no_export_has_a_list_one_that_is_not_found_needs_no_tls) {
    auto without_lists = std::make_shared<Admission>();
    without_lists->tls = TlsMode::on;
    without_lists->credentials = credentials_;
    talk(without_lists, [this] {
        receive(18);
        send(Bytes().client_flags().option(Option::info, info_payload("none")));
        EXPECT_EQ(type_of(receive(20)), static_cast<uint32_t>(OptionReply::error_unknown));
        client_.reset();
    });
}

TEST_F(NbdTlsConnection, without_an_admission_all_is_open_and_there_is_no_tls) {
    talk(nullptr, [this] {
        receive(18);
        send(Bytes().client_flags().option(Option::start_tls));
        EXPECT_EQ(type_of(receive(20)), static_cast<uint32_t>(OptionReply::error_policy));
        client_.reset();
    });
}

}  // namespace
}  // namespace tarn::nbd
