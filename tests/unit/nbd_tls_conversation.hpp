// What the tests of NBD within TLS share: a server's end on this thread, and a client of GnuTLS's on another one.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontends/nbd/connection.hpp"
#include "frontends/nbd/stream.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/tls_client.hpp"

namespace tarn::nbd {

class NbdTls : public testing::Test {
  protected:
    NbdTls() : loop_(std::move(*Loop::create())), workspace_(*loop_, share_, settings_, newcomers_) {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        client_ = UniqueFd(pair[0]);
        server_ = UniqueFd(pair[1]);
        const auto loaded = TlsCredentials::load(files_);
        EXPECT_TRUE(loaded) << loaded.error();
        if (loaded) credentials_ = *loaded;
    }

    // serve runs here, use on another thread, which the client's socket must keep from waiting for ever.
    void together(Task<> serve, const std::function<void()>& use) {
        std::thread client(use);
        loop_->run_until_done(std::move(serve));
        client.join();
    }
    // Result of the handshake of the server's end.
    Result<> begun(Stream& stream, const std::function<void()>& use) {
        Result<> result;
        const auto begin = [](NbdTls& test, Stream& stream, Result<>& result) -> Task<> {
            result = co_await stream.begin_tls(*test.loop_, test.credentials_, test.buffers());
            if (!result) stream.close();
        };
        together(begin(*this, stream, result), use);
        return result;
    }
    TlsBuffers& buffers() { return workspace_.tls; }

    std::unique_ptr<Loop> loop_;
    Share share_{16 << 20};
    Settings settings_;
    Newcomers newcomers_{2};
    Workspace workspace_;
    ScratchDirectory directory_;
    TlsFiles files_ = tls_files(directory_);
    std::shared_ptr<const TlsCredentials> credentials_;
    UniqueFd client_;
    UniqueFd server_;
};

// A connection from its greeting on, of a client that comes over TCP as far as the server knows.
class NbdTlsConnection : public NbdTls {
  protected:
    NbdTlsConnection() {
        volumes_.add("open", 1 << 20, false);
        secret_ = volumes_.add("secret", 1 << 20, false)->id();
    }

    std::shared_ptr<const Admission> admission(TlsMode mode, const std::vector<std::string>& may_use_secret) {
        auto admission = std::make_shared<Admission>();
        admission->tls = mode;
        admission->credentials = credentials_;
        admission->access.set("secret", may_use_secret);
        return admission;
    }
    void talk(std::shared_ptr<const Admission> admission, const std::function<void()>& use) {
        Connection connection(workspace_, volumes_, sessions_, std::move(server_), Client{.address = "192.0.2.1"}, {},
                              0, std::move(admission));
        const auto serve = [](Connection& connection) -> Task<> { EXPECT_EQ(co_await connection.serve(), nullptr); };
        together(serve(connection), use);
    }
    void send(const Bytes& bytes) {
        EXPECT_EQ(::send(client_.get(), bytes.bytes().data(), bytes.bytes().size(), 0),
                  static_cast<ssize_t>(bytes.bytes().size()));
    }
    std::vector<std::byte> receive(size_t size) {
        std::vector<std::byte> bytes(size);
        EXPECT_EQ(::recv(client_.get(), bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
        return bytes;
    }
    // Up to STARTTLS's answer.
    void ask_for_tls(const Bytes& before, size_t before_size) {
        receive(18);
        send(Bytes().client_flags().add(before).option(Option::start_tls));
        receive(before_size);
        EXPECT_EQ(type_of(receive(20)), static_cast<uint32_t>(OptionReply::acknowledge));
    }
    static uint32_t type_of(const std::vector<std::byte>& reply) { return load_big<uint32_t>(reply.data() + 12); }
    static std::string names_in(TlsClient& client) {
        std::string names;
        EXPECT_TRUE(client.send(Bytes().option(Option::list).bytes()));
        for (;;) {
            const std::vector<std::byte> reply = client.receive(20);
            if (reply.size() < 20 || type_of(reply) != static_cast<uint32_t>(OptionReply::server)) return names;
            // The name's length, the name, and a description.
            const std::vector<std::byte> entry = client.receive(load_big<uint32_t>(reply.data() + 16));
            names +=
                std::string(reinterpret_cast<const char*>(entry.data()) + 4, load_big<uint32_t>(entry.data())) + " ";
        }
    }
    static uint32_t reply_to_info(TlsClient& client, const char* name) {
        EXPECT_TRUE(client.send(Bytes().option(Option::info, info_payload(name)).bytes()));
        uint32_t first = 0;
        for (;;) {
            const std::vector<std::byte> reply = client.receive(20);
            if (reply.size() < 20) return 0;
            client.receive(load_big<uint32_t>(reply.data() + 16));
            if (first == 0) first = type_of(reply);
            if (type_of(reply) != static_cast<uint32_t>(OptionReply::info)) return first;
        }
    }

    MemoryVolumes volumes_;
    VolumeId secret_ = 0;
    Sessions sessions_;
};

}  // namespace tarn::nbd
