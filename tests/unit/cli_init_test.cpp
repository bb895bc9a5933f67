// tarn init: what it makes, and what it refuses before it has made anything.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/configuration/configuration.hpp"
#include "tests/unit/cli_host.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

// Of a machine where no daemon has the new host's control socket; another one runs.
class CliInit : public CliHost {
  protected:
    Exit run(const std::vector<std::string>& words) { return run_at(directory_ / "own.sock", words); }
};

TEST_F(CliInit, a_control_socket_that_it_cannot_have_is_refused) {
    const std::vector<std::string> words = {"init", "--store",  directory_ / "store",    "--size", "16MiB", "--host",
                                            "a",    "--config", directory_ / "tarn.toml"};
    EXPECT_EQ(run_at(path_, words), Exit::busy);
    EXPECT_NE(err_.find("a tarnd runs whose control socket is " + path_), std::string::npos) << err_;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "store"));
    EXPECT_EQ(run_at(directory_ / "gone/a/control.sock", words), Exit::not_found);
    EXPECT_NE(err_.find("there is no directory " + (directory_ / "gone")), std::string::npos) << err_;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "store"));
    EXPECT_EQ(run_at(directory_ / "run/control.sock", words), Exit::ok) << "tarnd makes one directory: " << err_;
}

TEST_F(CliInit, init_makes_a_host_that_starts) {
    const std::string configuration_path = directory_ / "etc/tarn.toml";
    const std::vector<std::string> words = {"init",
                                            "--store",
                                            directory_ / "store",
                                            "--size",
                                            "16MiB",
                                            "--host",
                                            "a",
                                            "--config",
                                            configuration_path,
                                            "--nbd-unix",
                                            directory_ / "nbd.sock"};
    EXPECT_EQ(run(words), Exit::ok) << err_;
    const auto configuration = load_configuration(configuration_path);
    ASSERT_TRUE(configuration) << configuration.error().front().describe();
    EXPECT_EQ(configuration->nbd_unix, directory_ / "nbd.sock");
    const auto loop = std::move(*Loop::create());
    const StoreIdentity identity{.cluster = configuration->cluster, .host = configuration->host_id()};
    EXPECT_TRUE(loop->run_until_done(Store::open(*loop, configuration->store, identity)));
    EXPECT_EQ(run(words), Exit::busy) << "a second time";
    std::filesystem::remove(configuration_path);
    EXPECT_EQ(run(words), Exit::busy) << "the store is still there";
    EXPECT_FALSE(std::filesystem::exists(configuration_path));
}

TEST_F(CliInit, init_of_a_cluster_shares_key_and_id) {
    const std::vector<std::string> cluster = {"--peer", "a=127.0.0.1:7001", "--peer", "b=127.0.0.1:7002"};
    const auto init = [&](const std::string& host, std::vector<std::string> more) {
        more.insert(more.begin(), {"init", "--json", "--store", directory_ / "store-" + host, "--size", "16MiB",
                                   "--host", host, "--config", directory_ / host + "/tarn.toml"});
        more.insert(more.end(), cluster.begin(), cluster.end());
        return run(more);
    };
    EXPECT_EQ(init("c", {}), Exit::usage) << "not among the peers";
    EXPECT_EQ(init("b", {}), Exit::usage);
    EXPECT_NE(out_.find("made on a, the first of the peers; b joins it with a's UUID"), std::string::npos) << out_;
    EXPECT_NE(out_.find("--cluster UUID"), std::string::npos) << out_;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "b"));
    ASSERT_EQ(init("a", {}), Exit::ok) << err_;
    const auto made = nlohmann::json::parse(out_);
    const auto key = made["key_file"].get<std::string>();
    const auto cluster_id = made["cluster"].get<std::string>();
    struct stat status{};
    ASSERT_EQ(::stat(key.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(init("b", {"--cluster", cluster_id}), Exit::not_found) << "the key was not copied";
    EXPECT_FALSE(std::filesystem::exists(directory_ / "store-b"));
    ASSERT_EQ(init("b", {"--cluster", cluster_id, "--key-file", key}), Exit::ok) << err_;
    const auto configuration = load_configuration(directory_ / "b/tarn.toml");
    ASSERT_TRUE(configuration);
    EXPECT_EQ(configuration->host_id(), 1);
    EXPECT_EQ(format_uuid(configuration->cluster), made["cluster"].get<std::string>());
}

TEST_F(CliInit, init_refuses_before_it_writes) {
    const auto init = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"init", "--config", directory_ / "new/tarn.toml", "--host", "a"});
        return run(more);
    };
    const std::string store = directory_ / "new-store";
    EXPECT_EQ(init({"--store", store}), Exit::usage) << "no size";
    EXPECT_EQ(init({"--store", "/dev/no-such-device", "--size", "64MiB"}), Exit::usage);
    EXPECT_FALSE(std::filesystem::exists("/dev/no-such-device")) << "it would lie in memory";
    EXPECT_EQ(init({"--store", "/dev/null", "--size", "64MiB"}), Exit::usage);
    EXPECT_EQ(init({"--store", directory_ / ".", "--size", "64MiB"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "1XB"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "1MiB"}), Exit::usage) << "too small";
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--memory", "1MiB"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "1TiB", "--memory", "256MiB"}), Exit::usage) << "for its books";
    EXPECT_NE(err_.find("try: --memory "), std::string::npos) << err_;
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--peer", "a"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--cluster", "x"}), Exit::usage);
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--nbd-tcp", "x"}), Exit::usage);
    EXPECT_EQ(init({"--store", directory_ / "a/b/c", "--size", "16MiB"}), Exit::not_found);
    EXPECT_NE(err_.find(": there is no directory " + directory_ / "a/b; try: mkdir -p"), std::string::npos) << err_;
    EXPECT_EQ(init({"--store", store, "--size", "16MiB", "--memory", "15TiB"}), Exit::usage);
    EXPECT_NE(err_.find("--memory 15 TiB is too much: "), std::string::npos) << err_;
    EXPECT_FALSE(std::filesystem::exists(store));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "new")) << "nor is anything else left";
}

TEST_F(CliInit, init_that_fails_late_leaves_nothing_and_may_be_repeated) {
    const auto init = [&](const std::string& size) {
        return run({"init", "--config", directory_ / "new/etc/tarn.toml", "--store", directory_ / "lib/store", "--size",
                    size, "--host", "a", "--peer", "a=127.0.0.1:7001", "--peer", "b=127.0.0.1:7002"});
    };
    EXPECT_EQ(init("1MiB"), Exit::usage) << "which only the store finds too small";
    EXPECT_FALSE(std::filesystem::exists(directory_ / "new")) << "the key";
    EXPECT_FALSE(std::filesystem::exists(directory_ / "lib"));
    EXPECT_EQ(init("16MiB"), Exit::ok) << err_;
    EXPECT_TRUE(std::filesystem::exists(directory_ / "new/etc/key"));
}

TEST_F(CliInit, a_certificate_is_for_a_host_with_a_name) {
    for (const char* const names : {"", ",", "a,", ",a"}) {
        EXPECT_EQ(run({"tls", "init", directory_ / "tls", "--host", "b", "--host", names}), Exit::usage) << names;
        EXPECT_NE(err_.find("--host: a name in it is empty"), std::string::npos) << err_;
    }
    EXPECT_FALSE(std::filesystem::exists(directory_ / "tls"));
}

}  // namespace
}  // namespace tarn
