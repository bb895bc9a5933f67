// The control socket: HTTP as hostile clients speak it, the routes, and the server on a real socket.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/control/control_api.hpp"
#include "daemon/control/control_server.hpp"
#include "tests/support/fake_daemon.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

using namespace std::string_literals;

int refusal_of(const std::string& bytes) {
    const auto head = parse_http_head(bytes);
    if (!head) return 0;
    return *head ? 200 : head->error().status;
}

TEST(HttpRequest, a_head_is_parsed) {
    const auto head = parse_http_head(
        "PATCH /v1/volumes/a%2Fb%20c?x=1 HTTP/1.1\r\nHost: x\r\ncontent-length:  12 \r\n\r\n{\"size_byte");
    ASSERT_TRUE(head && *head);
    EXPECT_EQ((*head)->request.method, "PATCH");
    EXPECT_EQ((*head)->request.path, (std::vector<std::string>{"v1", "volumes", "a/b c"}));
    EXPECT_EQ((*head)->body_size_bytes, 12u);
    EXPECT_TRUE((*head)->request.keep_alive);
    EXPECT_FALSE((*parse_http_head("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"))->request.keep_alive);
    EXPECT_FALSE((*parse_http_head("GET / HTTP/1.0\r\n\r\n"))->request.keep_alive);
}

TEST(HttpRequest, bad_heads_are_refused) {
    EXPECT_EQ(refusal_of(""), 0);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\n"), 0);
    EXPECT_EQ(refusal_of("GET /\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET x HTTP/1.1\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET /%4 HTTP/1.1\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET /%zz HTTP/1.1\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET /\0 HTTP/1.1\r\n\r\n"s), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/2\r\n\r\n"), 505);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\n folded: x\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n"), 413);
    EXPECT_EQ(refusal_of("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
    EXPECT_EQ(refusal_of("GET /" + std::string(http_head_size_max, 'x')), 431);
}

TEST(HttpRequest, percent_encoding_round_trips) {
    const std::string all = "a/b c%\xc3\xa9\x01?#~";
    EXPECT_EQ(percent_encode(all), "a%2Fb%20c%25%C3%A9%01%3F%23~");
    EXPECT_EQ(percent_decode(percent_encode(all)), all);
}

// The routes, without a socket. Tasks of the fake never wait, so a task can be run without a loop.
class ControlApiTest : public testing::Test {
  protected:
    struct Answer {
        int status = 0;
        Json json;
    };
    Answer ask(const std::string& method, const std::string& target, const std::string& body = "") {
        HttpRequest request = (*parse_http_head(method + " " + target + " HTTP/1.1\r\n\r\n"))->request;
        request.body = body;
        Answer answer;
        const auto run = [](ControlApi& api, HttpRequest asked, Answer& into) -> detail::Detached {
            const HttpReply reply = co_await api.handle(std::move(asked), {.user = 4711, .group = 1, .groups = {}});
            into = {.status = reply.status, .json = Json::parse(reply.body)};
        };
        run(api_, std::move(request), answer);
        return answer;
    }
    int status_of(const std::string& method, const std::string& target, const std::string& body = "") {
        return ask(method, target, body).status;
    }

    FakeDaemon daemon_;
    ControlApi api_{daemon_, daemon_, false};
};

TEST_F(ControlApiTest, a_volume_lives_and_dies) {
    const Answer created = ask("POST", "/v1/volumes", R"({"name": "db/main", "size_bytes": 8192, "shared": true})");
    EXPECT_EQ(created.status, 201);
    EXPECT_EQ(created.json["name"], "db/main");
    EXPECT_EQ(created.json["shared"], true);
    EXPECT_EQ(ask("GET", "/v1/volumes").json["volumes"].size(), 1u);
    const Answer shown = ask("GET", "/v1/volumes/db%2Fmain");
    EXPECT_EQ(shown.json["size_bytes"], 8192);
    EXPECT_EQ(shown.json["uris"][0], "nbd://127.0.0.1:10809/db%2Fmain");
    daemon_.untold_hosts = {"b"};
    const Answer resized = ask("PATCH", "/v1/volumes/db%2Fmain", R"({"size_bytes": 16384})");
    EXPECT_EQ(resized.json["size_bytes"], 16384);
    EXPECT_EQ(daemon_.told_size_of, created.json["id"]);
    EXPECT_EQ(resized.json["not_told"], Json({"b"}));
    EXPECT_EQ(status_of("POST", "/v1/volumes/db%2Fmain/flush"), 200);
    EXPECT_EQ(ask("GET", "/v1/exports").json["exports"][0]["volume"], "db/main");
    EXPECT_EQ(status_of("DELETE", "/v1/volumes/db%2Fmain"), 200);
    EXPECT_EQ(status_of("GET", "/v1/volumes/db%2Fmain"), 404);
}

// What lay past the new end is made zeros later; who asked must know where the end is.
TEST_F(ControlApiTest, a_cut_that_a_host_s_silence_interrupts_is_reported_as_it_was_made_or_not) {
    ask("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 8192})");
    const char* const cut = R"({"size_bytes": 4096, "shrink": true})";
    daemon_.change_result = fail(Errc::unavailable, 0, "host b does not answer");
    EXPECT_EQ(status_of("PATCH", "/v1/volumes/v", cut), 503);
    EXPECT_EQ(daemon_.entries["v"].attributes.size_bytes, 8192u);
    daemon_.changes_all_the_same = true;
    const Answer made = ask("PATCH", "/v1/volumes/v", cut);
    EXPECT_EQ(made.status, 200);
    EXPECT_EQ(made.json["size_bytes"], 4096);
    EXPECT_EQ(made.json["was_bytes"], 8192);
}

TEST_F(ControlApiTest, a_size_is_not_changed_while_the_host_that_has_it_is_silent) {
    ask("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 8192})");
    daemon_.entries["v"].silent_host = "b";
    const Answer refused = ask("PATCH", "/v1/volumes/v", R"({"size_bytes": 16384})");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.json["error"]["message"], "host b does not answer");
    EXPECT_EQ(daemon_.entries["v"].attributes.size_bytes, 8192u);
}

TEST_F(ControlApiTest, shrinking_must_be_meant) {
    ask("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 8192})");
    const Answer refused = ask("PATCH", "/v1/volumes/v", R"({"size_bytes": 4096})");
    EXPECT_EQ(refused.status, 409);
    EXPECT_EQ(refused.json["error"]["code"], "would_shrink");
    EXPECT_EQ(daemon_.entries["v"].attributes.size_bytes, 8192u);
    EXPECT_EQ(status_of("PATCH", "/v1/volumes/v", R"({"size_bytes": 4096, "shrink": true})"), 200);
    EXPECT_EQ(daemon_.entries["v"].attributes.size_bytes, 4096u);
    EXPECT_EQ(status_of("PATCH", "/v1/volumes/v", R"({"size_bytes": 0, "shrink": true})"), 400);
}

TEST_F(ControlApiTest, bad_bodies_change_nothing) {
    for (const char* const body : {"",
                                   "null",
                                   "[]",
                                   "{",
                                   "{}",
                                   R"({"name": "v"})",
                                   R"({"size_bytes": 4096})",
                                   R"({"name": 5, "size_bytes": 4096})",
                                   R"({"name": "v", "size_bytes": -1})",
                                   R"({"name": "v", "size_bytes": 1.5})",
                                   R"({"name": "v", "size_bytes": "4096"})",
                                   R"({"name": "v", "size_bytes": 99999999999999999999999})",
                                   R"({"name": "v", "size_bytes": 4096, "size_bytes": 8192})",
                                   R"({"name": "v", "size_bytes": 4096, "x": 1})",
                                   R"({"name": "v", "size_bytes": 4096, "shared": "yes"})",
                                   R"({"name": "v", "size_bytes": 4096, "shared": null})",
                                   R"({"name": "v", "size_bytes": 4096, "mode": 65535})",
                                   R"({"name": "v", "size_bytes": 4096} x)",
                                   R"({"name": "..", "size_bytes": 4096})",
                                   R"({"name": "a\u0000b", "size_bytes": 4096})",
                                   R"({"name": "/a", "size_bytes": 4096})",
                                   R"({"name": "v", "size_bytes": 0})",
                                   R"({"name": "v", "size_bytes": 2251799813685249})",
                                   "{\"name\": \"\xff\", \"size_bytes\": 4096}"})
        EXPECT_EQ(status_of("POST", "/v1/volumes", body), 400) << body;
    EXPECT_EQ(status_of("POST", "/v1/volumes", std::string(60000, '[')), 400);
    EXPECT_TRUE(daemon_.entries.empty());
    EXPECT_EQ(status_of("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 0, "shared": true})"), 201);
}

TEST_F(ControlApiTest, errors_have_their_status_and_code) {
    ask("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 4096})");
    EXPECT_EQ(status_of("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 4096})"), 409);
    EXPECT_EQ(status_of("POST", "/v1/volumes", R"({"name": "w", "size_bytes": 1125899906842624})"), 507);
    daemon_.held_elsewhere = "v";
    EXPECT_EQ(ask("DELETE", "/v1/volumes/v").json["error"]["code"], "busy");
    EXPECT_EQ(ask("PATCH", "/v1/volumes/v", R"({"size_bytes": 8192})").json["error"]["code"], "busy");
    daemon_.flush_result = fail(Errc::io, EIO, "nvme.flush");
    EXPECT_EQ(status_of("POST", "/v1/volumes/v/flush"), 500);
    EXPECT_EQ(status_of("GET", "/v1/volumes/none"), 404);
    EXPECT_EQ(status_of("GET", "/v1/volumes/.."), 400);
    EXPECT_EQ(status_of("GET", "/v1/volumes/a%00b"), 400);
    EXPECT_EQ(status_of("GET", "/v1/volumes/"), 400);
    EXPECT_EQ(status_of("GET", "/v1/volumes/a/b/c"), 404);
    EXPECT_EQ(status_of("GET", "/"), 404);
    EXPECT_EQ(status_of("GET", "/v2/status"), 404);
    EXPECT_EQ(status_of("GET", "/v1/status/x"), 404);
    EXPECT_EQ(status_of("POST", "/v1/status"), 405);
    EXPECT_EQ(status_of("PUT", "/v1/volumes"), 405);
    EXPECT_EQ(status_of("TRACE", "/v1/volumes/v"), 405);
}

TEST_F(ControlApiTest, mounts_come_and_go) {
    EXPECT_EQ(status_of("POST", "/v1/mounts", R"({"path": "/mnt/a", "read_only": true})"), 201);
    EXPECT_EQ(status_of("POST", "/v1/mounts", R"({"path": "/mnt/a"})"), 409);
    EXPECT_EQ(status_of("POST", "/v1/mounts", R"({"path": "relative"})"), 400);
    EXPECT_EQ(ask("GET", "/v1/mounts").json["mounts"][0]["read_only"], true);
    EXPECT_EQ(status_of("DELETE", "/v1/mounts", R"({"path": "/mnt/b"})"), 404);
    EXPECT_EQ(status_of("DELETE", "/v1/mounts", R"({"path": "/mnt/a", "force": true})"), 200);
    EXPECT_TRUE(daemon_.mounted.empty());
}

TEST_F(ControlApiTest, devices_come_and_go) {
    ask("POST", "/v1/volumes", R"({"name": "v", "size_bytes": 4096})");
    EXPECT_EQ(status_of("POST", "/v1/attachments", R"({"volume": "none"})"), 404);
    const auto made = ask("POST", "/v1/attachments",
                          R"({"volume": "v", "read_only": true, "block_size_bytes": 512, "connections": 3})");
    EXPECT_EQ(made.json["device"], "/dev/nbd0");
    EXPECT_TRUE(daemon_.attached_with.read_only);
    EXPECT_EQ(daemon_.attached_with.block_size_bytes, 512u);
    EXPECT_EQ(daemon_.attached_with.connections, 3u);
    EXPECT_EQ(ask("GET", "/v1/attachments").json["attachments"][0]["volume"], "v");
    EXPECT_EQ(status_of("POST", "/v1/attachments", R"({"volume": "v"})"), 409);
    for (const char* const bad : {R"({})", R"({"volume": ".."})", R"({"volume": "v", "block_size_bytes": 1024})",
                                  R"({"volume": "v", "connections": 9})", R"({"volume": "v", "device": 1})"})
        EXPECT_EQ(status_of("POST", "/v1/attachments", bad), 400) << bad;
    daemon_.devices_are_mounted = true;
    EXPECT_EQ(status_of("DELETE", "/v1/attachments", R"({"volume": "v"})"), 409);
    EXPECT_EQ(status_of("DELETE", "/v1/attachments", R"({"volume": "v", "force": true})"), 200);
    EXPECT_EQ(status_of("DELETE", "/v1/attachments", R"({"volume": "v", "force": true})"), 404);
}

TEST_F(ControlApiTest, a_pass_is_of_a_volume_or_of_all) {
    EXPECT_EQ(status_of("POST", "/v1/verify", R"({"volume": "nosuch"})"), 404);
    EXPECT_EQ(status_of("POST", "/v1/verify", R"({"volume": "a/../b"})"), 400);
    EXPECT_EQ(status_of("POST", "/v1/verify", R"({"rate_bytes": -1})"), 400);
    EXPECT_EQ(status_of("PUT", "/v1/verify"), 405);
    EXPECT_EQ(status_of("POST", "/v1/volumes", R"({"name": "a", "size_bytes": 8192})"), 201);
    EXPECT_EQ(ask("POST", "/v1/verify", R"({"volume": "a", "rate_bytes": 4096})").json["volume_id"], 1);
    EXPECT_EQ(daemon_.verify_rate_bytes, 4096u);
    EXPECT_TRUE(ask("POST", "/v1/verify", "{}").json["volume_id"].is_null());
    daemon_.verified = {.running = true, .bad_page_count = 1, .bad_pages = {PageId::of(1, 7)}};
    EXPECT_EQ(status_of("POST", "/v1/verify", "{}"), 409);
    EXPECT_EQ(ask("GET", "/v1/verify").json["bad_pages"][0], (Json{{"volume", "#1"}, {"volume_id", 1}, {"page", 7}}));
    EXPECT_EQ(ask("DELETE", "/v1/verify").json["cancelled"], true);
}

TEST_F(ControlApiTest, a_volume_on_a_failed_store_is_degraded) {
    EXPECT_EQ(status_of("POST", "/v1/volumes", R"({"name": "a", "size_bytes": 8192})"), 201);
    EXPECT_EQ(ask("GET", "/v1/volumes/a").json["degraded"], "");
    daemon_.node.facts["host"] = "a";
    daemon_.node.facts["store_failure"] = "no space";
    EXPECT_EQ(ask("GET", "/v1/volumes/a").json["degraded"], "the store of host a failed: no space");
}

TEST_F(ControlApiTest, status_says_that_there_is_no_failover) {
    daemon_.node.facts["host"] = "a";
    daemon_.node.peers = {{.name = "a", .address = "x:1", .self = true, .connected = false},
                          {.name = "b", .address = "y:1", .self = false, .connected = false, .trouble = "wrong key"}};
    daemon_.untold_hosts = {"b"};
    const Answer status = ask("GET", "/v1/status");
    EXPECT_EQ(status.json["peers"][1]["reason"], "wrong key");
    EXPECT_EQ(status.json["space"]["untold_hosts"][0], "b");
    EXPECT_EQ(status.json["failover"], false);
    EXPECT_EQ(status.json["peers"][0]["registrar"], true);
    EXPECT_EQ(status.json["peers"][0]["connected"], true);
    EXPECT_EQ(status.json["peers"][1]["registrar"], false);
    EXPECT_EQ(status.json["peers"][1]["connected"], false);
    EXPECT_EQ(status.json["space"]["total_bytes"], daemon_.space_bytes);
}

TEST_F(ControlApiTest, a_host_is_forgotten_only_by_who_says_that_it_is_dead) {
    daemon_.node.peers = {{.name = "a", .address = "x:1", .self = true}, {.name = "c", .address = "z:1"}};
    EXPECT_EQ(status_of("POST", "/v1/hosts/c/forget", "{}"), 400);
    EXPECT_EQ(status_of("POST", "/v1/hosts/c/forget", R"({"it_is_dead": false})"), 400);
    EXPECT_EQ(status_of("GET", "/v1/hosts/c/forget"), 405);
    EXPECT_EQ(status_of("POST", "/v1/hosts/x/forget", R"({"it_is_dead": true})"), 404);
    EXPECT_FALSE(daemon_.node.peers[1].forgotten);
    const Answer forgotten = ask("POST", "/v1/hosts/c/forget", R"({"it_is_dead": true})");
    EXPECT_EQ(forgotten.status, 200);
    EXPECT_EQ(forgotten.json["told"][0], "b");
    EXPECT_EQ(ask("GET", "/v1/status").json["peers"][1]["forgotten"], true);
}

// A server on its own thread.
class ControlServerTest : public testing::Test {
  protected:
    ControlServerTest() { path_ = directory_ / "control.sock"; }
    ~ControlServerTest() override { stop(); }
    void start() {
        loop_ = std::move(*Loop::create());
        Result<std::unique_ptr<ControlServer>> server = ControlServer::create(*loop_, path_, api_);
        ASSERT_TRUE(server) << server.error().where;
        server_ = std::move(*server);
        loop_->spawn(serve(*loop_, *server_));
        thread_ = std::thread([this] { loop_->run(); });
    }
    void stop() {
        if (!thread_.joinable()) return;
        struct Stop final : Loop::Posted {
            explicit Stop(ControlServer& stopped) : server(stopped) {}
            void run() override { server.stop(); }
            ControlServer& server;
        } stop(*server_);
        loop_->post(stop);
        thread_.join();
        server_.reset();
    }
    UniqueFd connect() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const timeval timeout{.tv_sec = 20, .tv_usec = 0};
        ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return fd;
    }
    static void send(const UniqueFd& fd, const std::string& text) {
        EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    // Until the text ends with what is awaited, or the other side hangs up.
    static std::string receive(const UniqueFd& fd, const std::string& awaited = "\n") {
        std::string text;
        for (std::array<char, 65536> buffer;;) {
            const ssize_t size = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
            if (size < 0 && errno == EINTR) continue;
            if (size < 0) ADD_FAILURE() << std::strerror(errno);
            if (size <= 0) return text;
            text.append(buffer.data(), static_cast<size_t>(size));
            if (text.ends_with(awaited)) return text;
        }
    }
    static bool hung_up(const UniqueFd& fd) {
        char byte = 0;
        ssize_t size = 0;
        do {
            size = ::recv(fd.get(), &byte, 1, 0);
        } while (size < 0 && errno == EINTR);
        return size == 0 || (size < 0 && errno == ECONNRESET);
    }

    static Task<> serve(Loop& loop, ControlServer& server) {
        const Result<> served = co_await server.serve();
        EXPECT_TRUE(served);
        loop.stop();
    }

    ScratchDirectory directory_;
    std::string path_;
    FakeDaemon daemon_;
    ControlApi api_{daemon_, daemon_, false};
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<ControlServer> server_;
    std::thread thread_;
};

constexpr const char* get_volumes = "GET /v1/volumes HTTP/1.1\r\n\r\n";

TEST_F(ControlServerTest, answers_many_requests_on_one_connection) {
    start();
    const UniqueFd client = connect();
    send(client, "POST /v1/volumes HTTP/1.1\r\nContent-Length: 34\r\n\r\n{\"name\": \"v\", \"size_bytes\": 40960}\n");
    EXPECT_TRUE(receive(client, "}\n").starts_with("HTTP/1.1 201 Created\r\n"));
    send(client, std::string("\n").substr(1) + get_volumes + get_volumes);  // pipelined
    EXPECT_FALSE(receive(client, "}\n").empty());
}

TEST_F(ControlServerTest, the_socket_is_for_its_group_only) {
    start();
    struct stat status{};
    ASSERT_EQ(::stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0660u);
    stop();
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ControlServerTest, bad_requests_end_their_connection_only) {
    start();
    const UniqueFd good = connect();
    for (const std::string& bad :
         {"\r\n\r\n"s, "GET / HTTP/9\r\n\r\n"s, std::string(9000, 'x'),
          "POST /v1/volumes HTTP/1.1\r\nContent-Length: 67108864\r\n\r\n"s, "\x16\x03\x01\x02\r\n\r\n"s}) {
        const UniqueFd client = connect();
        send(client, bad);
        EXPECT_TRUE(receive(client).starts_with("HTTP/1.1 ")) << bad.substr(0, 40);
    }
    {
        const UniqueFd leaves_early = connect();
        send(leaves_early, "GET /v1/vol");
    }
    {
        const UniqueFd leaves_before_the_reply = connect();
        send(leaves_before_the_reply, get_volumes);
    }
    send(good, get_volumes);
    EXPECT_TRUE(receive(good).starts_with("HTTP/1.1 200 OK"));
}

TEST_F(ControlServerTest, idle_clients_make_room) {
    start();
    std::vector<UniqueFd> idle;
    for (size_t i = 0; i < ControlServer::connections_max * 3; ++i) {
        idle.push_back(connect());
        send(idle.back(), "GET /v1/");
    }
    const UniqueFd client = connect();
    send(client, get_volumes);
    EXPECT_TRUE(receive(client).starts_with("HTTP/1.1 200 OK"));
    EXPECT_TRUE(hung_up(idle.front()));
}

TEST_F(ControlServerTest, a_long_list_arrives_whole) {
    for (int i = 0; i < 20000; ++i) {
        const std::string name = "volume-with-a-rather-long-name-" + std::to_string(i);
        daemon_.entries[name] = {.name = name, .id = 1, .shared = false, .attributes = {}};
    }
    start();
    const UniqueFd client = connect();
    send(client, "GET /v1/volumes HTTP/1.1\r\nConnection: close\r\n\r\n");
    const std::string reply = receive(client, "]}\n");
    const Json json = Json::parse(reply.substr(reply.find("\r\n\r\n")));
    EXPECT_EQ(json["volumes"].size(), 20000u);
    EXPECT_TRUE(hung_up(client));
}

TEST_F(ControlServerTest, a_living_daemon_keeps_its_socket_and_a_dead_one_does_not) {
    start();
    EXPECT_EQ(ControlServer::create(*loop_, path_, api_).error().code, Errc::busy);
    stop();
    {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    }
    start();
    stop();
    std::ofstream(path_) << "precious";
    const auto loop = std::move(*Loop::create());
    EXPECT_EQ(ControlServer::create(*loop, path_, api_).error().code, Errc::exists);
    EXPECT_TRUE(std::filesystem::exists(path_));
    EXPECT_EQ(ControlServer::create(*loop, "/" + std::string(120, 'x'), api_).error().code, Errc::invalid);
}

}  // namespace
}  // namespace tarn
