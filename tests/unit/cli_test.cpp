// tarn as a user and a script meet it: output, errors and exit codes, against a daemon on a real socket.
#include "daemon/cli/cli.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "daemon/configuration.hpp"
#include "daemon/control_server.hpp"
#include "tests/support/fake_daemon.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

class CliTest : public testing::Test {
  protected:
    CliTest() {
        std::string pattern = testing::TempDir() + "tarn-cli-XXXXXX";
        directory_ = ::mkdtemp(pattern.data());
        path_ = directory_ + "/control.sock";
        loop_ = std::move(*Loop::create());
        Result<std::unique_ptr<ControlServer>> server = ControlServer::create(*loop_, path_, api_);
        EXPECT_TRUE(server);
        server_ = std::move(*server);
        loop_->spawn(serve(*loop_, *server_));
        thread_ = std::thread([this] { loop_->run(); });
    }
    ~CliTest() override {
        struct Stop final : Loop::Posted {
            explicit Stop(ControlServer& stopped) : server(stopped) {}
            void run() override { server.stop(); }
            ControlServer& server;
        } stop(*server_);
        loop_->post(stop);
        thread_.join();
        server_.reset();
        std::filesystem::remove_all(directory_);
    }

    Exit run(const std::vector<std::string>& words) { return run_at(path_, words); }
    Exit run_at(const std::string& socket, const std::vector<std::string>& words) {
        std::vector<const char*> all = {"tarn"};
        for (const std::string& word : words) all.push_back(word.c_str());
        all.push_back("--control");
        all.push_back(socket.c_str());
        std::ostringstream out;
        std::ostringstream err;
        const Exit exit = run_cli(all, out, err);
        out_ = out.str();
        err_ = err.str();
        return exit;
    }

    static Task<> serve(Loop& loop, ControlServer& server) {
        const Result<> served = co_await server.serve();
        EXPECT_TRUE(served);
        loop.stop();
    }

    std::string directory_;
    std::string path_;
    FakeDaemon daemon_;
    ControlApi api_{daemon_, daemon_, false};
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<ControlServer> server_;
    std::thread thread_;
    std::string out_;
    std::string err_;
};

TEST_F(CliTest, a_volume_lives_and_dies) {
    EXPECT_EQ(run({"create", "vol1", "10GiB"}), Exit::ok);
    EXPECT_EQ(out_, "created vol1, 10 GiB, exclusive\n");
    EXPECT_EQ(run({"create", "odd", "5000", "--shared", "--mode", "0644"}), Exit::ok);
    EXPECT_EQ(out_, "created odd, 8 KiB, shared (rounded up from 5000 bytes to whole pages of 4 KiB)\n");
    EXPECT_EQ(run({"list"}), Exit::ok);
    EXPECT_EQ(out_, "NAME        SIZE  ACCESS\nodd        8 KiB  shared\nvol1      10 GiB  exclusive\n");
    EXPECT_EQ(run({"show", "odd"}), Exit::ok);
    EXPECT_NE(out_.find("mode    0644\n"), std::string::npos);
    EXPECT_EQ(run({"resize", "vol1", "20GiB"}), Exit::ok);
    EXPECT_EQ(out_, "resized vol1, 20 GiB, exclusive\n");
    EXPECT_EQ(run({"export", "vol1"}), Exit::ok);
    EXPECT_EQ(out_, "nbd://127.0.0.1:10809/vol1\n");
    EXPECT_EQ(run({"export"}), Exit::ok);
    EXPECT_EQ(out_, "nbd://127.0.0.1:10809/odd\nnbd://127.0.0.1:10809/vol1\n");
    EXPECT_EQ(run({"flush", "vol1"}), Exit::ok);
    EXPECT_EQ(run({"delete", "vol1"}), Exit::ok);
    EXPECT_EQ(out_, "deleted vol1\n");
    EXPECT_EQ(err_, "");
}

TEST_F(CliTest, json_has_a_schema_number) {
    run({"create", "vol1", "1GiB"});
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"list"}, {"show", "vol1"}, {"export", "vol1"}, {"export"}, {"status"}, {"mount"}, {"flush", "vol1"}}) {
        std::vector<std::string> with_json = words;
        with_json.emplace_back("--json");
        EXPECT_EQ(run(with_json), Exit::ok) << words[0];
        const auto json = nlohmann::json::parse(out_, nullptr, false);
        ASSERT_TRUE(json.is_object()) << words[0] << out_;
        EXPECT_EQ(json["schema"], 1);
    }
    EXPECT_EQ(run({"--json", "show", "vol1"}), Exit::ok);
    EXPECT_EQ(nlohmann::json::parse(out_)["size_bytes"], uint64_t{1} << 30);
}

TEST_F(CliTest, exit_codes_say_what_went_wrong) {
    run({"create", "vol1", "1GiB"});
    EXPECT_EQ(run({"show", "none"}), Exit::not_found);
    EXPECT_EQ(err_, "tarn: show none: not found at catalog.find; try: tarn list\n");
    EXPECT_EQ(run({"create", "vol1", "1GiB"}), Exit::busy);
    daemon_.with([](FakeDaemon& daemon) { daemon.held_elsewhere = "vol1"; });
    EXPECT_EQ(run({"delete", "vol1"}), Exit::busy);
    daemon_.with([](FakeDaemon& daemon) { daemon.held_elsewhere = ""; });
    EXPECT_EQ(run({"resize", "vol1", "4KiB"}), Exit::failed);
    EXPECT_NE(err_.find("try: --force"), std::string::npos) << err_;
    EXPECT_EQ(run({"resize", "vol1", "4KiB", "--force"}), Exit::ok);
    EXPECT_EQ(run({"create", "huge", "1PiB"}), Exit::failed);
    EXPECT_EQ(run({"umount", "/nowhere"}), Exit::not_found);
    daemon_.with([](FakeDaemon& daemon) { daemon.flush_result = fail(Errc::io, EIO, "nvme.flush"); });
    EXPECT_EQ(run({"flush", "vol1"}), Exit::failed);
}

TEST_F(CliTest, usage_errors_are_2_and_change_nothing) {
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{},
                                               {"frobnicate"},
                                               {"create"},
                                               {"create", "v"},
                                               {"create", "v", "1GB"},
                                               {"create", "v", "3PiB"},
                                               {"create", "v", "1GiB", "x"},
                                               {"create", "..", "1GiB"},
                                               {"create", "a\nb", "1GiB"},
                                               {"create", "v", "1GiB", "--mode", "9"},
                                               {"create", "v", "1GiB", "--shared", "--exclusive"},
                                               {"show"},
                                               {"create", std::string(300, 'x'), "1GiB"},
                                               {"list", "--timeout", "0"},
                                               {"create", "v", "0"}}) {
        EXPECT_EQ(run(words), Exit::usage) << (words.empty() ? "nothing" : words[0]);
        EXPECT_TRUE(err_.starts_with("tarn: ")) << err_;
        EXPECT_EQ(err_.find('\n'), err_.size() - 1) << "one line, whatever the name holds";
    }
    daemon_.with([](const FakeDaemon& daemon) { EXPECT_TRUE(daemon.entries.empty()); });
}

TEST_F(CliTest, help_has_examples) {
    for (const char* const verb :
         {"init", "create", "list", "show", "resize", "delete", "export", "mount", "umount", "flush", "status"}) {
        EXPECT_EQ(run({verb, "--help"}), Exit::ok);
        EXPECT_NE(out_.find("Example:\n  "), std::string::npos) << verb;
        EXPECT_NE(out_.find("tarn " + std::string(verb)), std::string::npos) << verb;
    }
    EXPECT_EQ(run({"--version"}), Exit::ok);
    EXPECT_EQ(out_, "tarn 0.1.0\n");
}

TEST_F(CliTest, a_missing_daemon_is_5_and_a_silent_one_6) {
    EXPECT_EQ(run_at(directory_ + "/none", {"list"}), Exit::unreachable);
    EXPECT_TRUE(err_.starts_with("tarn: list: no daemon at ")) << err_;
    const std::string silent_path = directory_ + "/silent";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, silent_path.data(), silent_path.size());
    const UniqueFd silent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(silent.get(), 4), 0);
    EXPECT_EQ(run_at(silent_path, {"--timeout", "1", "list"}), Exit::timed_out);
    EXPECT_EQ(run_at("/" + std::string(200, 'x'), {"list"}), Exit::usage);
}

TEST_F(CliTest, mounts_and_status_are_told) {
    EXPECT_EQ(run({"mount", "/mnt/x/../tarn", "--read-only"}), Exit::ok);
    EXPECT_EQ(out_, "mounted /mnt/tarn (read-only)\n");
    EXPECT_EQ(run({"mount"}), Exit::ok);
    EXPECT_EQ(out_, "/mnt/tarn (read-only)\n");
    daemon_.with([](FakeDaemon& daemon) { daemon.mount_users = {"cat (process 7)", "bash (process 9)"}; });
    EXPECT_EQ(run({"umount", "/mnt/tarn"}), Exit::busy);
    EXPECT_NE(err_.find("in use by cat (process 7), bash (process 9); --force"), std::string::npos) << err_;
    EXPECT_EQ(run({"umount", "/mnt/tarn", "--force"}), Exit::ok);
    daemon_.with([](FakeDaemon& daemon) { daemon.node.host = "a"; });
    EXPECT_EQ(run({"status"}), Exit::ok);
    EXPECT_NE(out_.find("this host alone"), std::string::npos);
    daemon_.with([](FakeDaemon& daemon) {
        daemon.node.peers = {{.name = "a", .address = "x:1", .self = true, .connected = true},
                             {.name = "b", .address = "y:1", .self = false, .connected = false}};
        daemon.node.store_failure = "input/output error";
    });
    EXPECT_EQ(run({"status"}), Exit::ok);
    EXPECT_NE(out_.find("no failover"), std::string::npos);
    EXPECT_NE(out_.find("unreachable"), std::string::npos);
    EXPECT_NE(out_.find("FAILED"), std::string::npos);
}

TEST_F(CliTest, a_volume_may_fail_accesses_instead_of_waiting) {
    EXPECT_EQ(run({"create", "hasty", "1MiB", "--fail-after", "30s"}), Exit::ok);
    daemon_.with([](FakeDaemon& daemon) { EXPECT_EQ(daemon.entries.at("hasty").attributes.fail_after_ms, 30'000); });
    EXPECT_EQ(run({"show", "hasty"}), Exit::ok);
    EXPECT_NE(out_.find("after 30000 ms"), std::string::npos) << out_;
    EXPECT_EQ(run({"create", "patient", "1MiB", "--fail-after", "wait"}), Exit::ok);
    daemon_.with([](FakeDaemon& daemon) { EXPECT_EQ(daemon.entries.at("patient").attributes.fail_after_ms, 0); });
    for (const char* const wrong : {"30", "0s", "-1s", "25000min", "1 s", "s", ""})
        EXPECT_EQ(run({"create", "wrong", "1MiB", "--fail-after", wrong}), Exit::usage) << wrong;
}

TEST_F(CliTest, only_who_vouches_for_it_makes_a_host_forgotten) {
    daemon_.with([](FakeDaemon& daemon) {
        daemon.node.peers = {{.name = "a", .address = "x:1", .self = true, .connected = true},
                             {.name = "b", .address = "y:1", .connected = true},
                             {.name = "c", .address = "z:1"}};
    });
    EXPECT_EQ(run({"host", "forget", "c"}), Exit::usage);
    EXPECT_NE(err_.find("--it-is-dead"), std::string::npos) << err_;
    EXPECT_EQ(run({"host", "forget", "nobody", "--it-is-dead"}), Exit::not_found);
    EXPECT_NE(err_.find("tarn status"), std::string::npos) << err_;
    EXPECT_EQ(run({"host", "forget", "a", "--it-is-dead"}), Exit::usage);
    EXPECT_EQ(run({"host", "forget", "b", "--it-is-dead"}), Exit::busy);
    EXPECT_EQ(run({"host", "forget", "c", "--it-is-dead"}), Exit::ok);
    EXPECT_EQ(out_, "forgot c\nd is away, and is told when it is back\n");
    EXPECT_EQ(run({"status"}), Exit::ok);
    EXPECT_NE(out_.find("declared dead"), std::string::npos) << out_;
    EXPECT_EQ(run({"host", "forget", "--help"}), Exit::ok);
    EXPECT_NE(out_.find("Example:\n  tarn host forget c --it-is-dead"), std::string::npos) << out_;
}

TEST_F(CliTest, init_makes_a_host_that_starts) {
    const std::string configuration_path = directory_ + "/etc/tarn.toml";
    const std::vector<std::string> words = {"init",
                                            "--store",
                                            directory_ + "/store",
                                            "--size",
                                            "16MiB",
                                            "--host",
                                            "a",
                                            "--config",
                                            configuration_path,
                                            "--nbd-unix",
                                            directory_ + "/nbd.sock"};
    EXPECT_EQ(run(words), Exit::ok) << err_;
    const auto configuration = load_configuration(configuration_path);
    ASSERT_TRUE(configuration) << configuration.error().front().describe();
    EXPECT_EQ(configuration->nbd_unix, directory_ + "/nbd.sock");
    const auto loop = std::move(*Loop::create());
    const StoreIdentity identity{.cluster = configuration->cluster, .host = configuration->host_id()};
    EXPECT_TRUE(loop->run_until_done(Store::open(*loop, configuration->store, identity)));
    EXPECT_EQ(run(words), Exit::busy) << "a second time";
    std::filesystem::remove(configuration_path);
    EXPECT_EQ(run(words), Exit::busy) << "the store is still there";
    EXPECT_FALSE(std::filesystem::exists(configuration_path));
}

TEST_F(CliTest, init_of_a_cluster_shares_key_and_id) {
    const std::vector<std::string> cluster = {"--peer", "a=127.0.0.1:7001", "--peer", "b=127.0.0.1:7002"};
    const auto init = [&](const std::string& host, std::vector<std::string> more) {
        more.insert(more.begin(), {"init", "--json", "--store", directory_ + "/store-" + host, "--size", "16MiB",
                                   "--host", host, "--config", directory_ + "/" + host + "/tarn.toml"});
        more.insert(more.end(), cluster.begin(), cluster.end());
        return run(more);
    };
    EXPECT_EQ(init("c", {}), Exit::usage) << "not among the peers";
    ASSERT_EQ(init("a", {}), Exit::ok) << err_;
    const auto made = nlohmann::json::parse(out_);
    const auto key = made["key_file"].get<std::string>();
    const auto cluster_id = made["cluster"].get<std::string>();
    struct stat status{};
    ASSERT_EQ(::stat(key.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(init("b", {"--cluster", cluster_id}), Exit::not_found) << "the key was not copied";
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/store-b"));
    ASSERT_EQ(init("b", {"--cluster", cluster_id, "--key-file", key}), Exit::ok) << err_;
    const auto configuration = load_configuration(directory_ + "/b/tarn.toml");
    ASSERT_TRUE(configuration);
    EXPECT_EQ(configuration->host_id(), 1);
    EXPECT_EQ(format_uuid(configuration->cluster), made["cluster"].get<std::string>());
}

TEST_F(CliTest, init_refuses_before_it_writes) {
    const auto init = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"init", "--config", directory_ + "/new/tarn.toml", "--host", "a"});
        return run(more);
    };
    const std::string store = directory_ + "/new-store";
    EXPECT_EQ(init({"--store", store}), Exit::usage) << "no size";
    EXPECT_EQ(init({"--store", store, "--size", "1GB"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "1MiB"}), Exit::usage) << "too small";
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--memory", "1MiB"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "1TiB", "--memory", "256MiB"}), Exit::usage) << "for its books";
    EXPECT_NE(err_.find("try: --memory "), std::string::npos) << err_;
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--peer", "a"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--cluster", "x"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--nbd-tcp", "x"}), Exit::usage);
    EXPECT_EQ(init({"--store", directory_ + "/a/b/c", "--size", "16MiB"}), Exit::not_found);
    EXPECT_FALSE(std::filesystem::exists(store));
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/new/tarn.toml"));
}

}  // namespace
}  // namespace tarn
