// tarn init where a store is already: it is named, kept, and taken up when asked for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/cli/cli.hpp"
#include "daemon/configuration/configuration.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

class TakeUpTest : public testing::Test {
  protected:
    TakeUpTest() {
        configuration_path_ = directory_ / "tarn.toml";
        store_path_ = directory_ / "store";
    }

    Exit init(const std::string& host, const std::string& peers, const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = {"tarn",   "init", "--json",   "--store",           store_path_,
                                          "--size", size_,  "--config", configuration_path_, "--host",
                                          host};
        for (const char peer : peers) {
            words.emplace_back("--peer");
            words.push_back(std::string(1, peer) + "=127.0.0.1:700" + std::to_string(peer - 'a'));
        }
        words.insert(words.end(), more.begin(), more.end());
        std::vector<const char*> all;
        for (const std::string& word : words) all.push_back(word.c_str());
        std::ostringstream out;
        std::ostringstream err;
        const Exit exit = run_cli(all, out, err);
        answer_ = nlohmann::json::parse(out.str());
        return exit;
    }
    std::string error(const char* key) const { return answer_["errors"][0].value(key, ""); }
    std::string stored() const {
        std::ifstream file(store_path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    ScratchDirectory directory_;
    std::string configuration_path_;
    std::string store_path_;
    std::string size_ = "16MiB";
    nlohmann::json answer_;
};

TEST_F(TakeUpTest, a_store_is_named_and_taken_up_with_its_cluster) {
    ASSERT_EQ(init("a", ""), Exit::ok) << answer_;
    const std::string cluster = answer_["cluster"];
    const std::string before = stored();
    EXPECT_EQ(init("a", ""), Exit::busy);
    EXPECT_EQ(error("code"), "exists");
    EXPECT_EQ(error("message"), configuration_path_ + " exists");
    std::filesystem::remove(configuration_path_);
    EXPECT_EQ(init("a", ""), Exit::busy);
    EXPECT_EQ(error("code"), "exists");
    EXPECT_EQ(error("message"), "the store of host a, cluster " + cluster + ", is there already");
    EXPECT_TRUE(error("hint").starts_with("--replace-config takes it up as it is; --force destroys")) << answer_;
    EXPECT_FALSE(std::filesystem::exists(configuration_path_));
    ASSERT_EQ(init("a", "", {"--replace-config"}), Exit::ok) << answer_;
    EXPECT_EQ(answer_["cluster"], cluster);
    EXPECT_TRUE(stored() == before);
    const auto configuration = load_configuration(configuration_path_);
    ASSERT_TRUE(configuration);
    EXPECT_EQ(format_uuid(configuration->cluster), cluster);
    EXPECT_EQ(init("a", "", {"--replace-config", "--cluster", "00000000-0000-4000-8000-000000000000"}), Exit::busy);
    EXPECT_EQ(error("hint"), "--cluster " + cluster);
}

TEST_F(TakeUpTest, a_store_keeps_its_size) {
    ASSERT_EQ(init("a", ""), Exit::ok) << answer_;
    const std::string before = stored();
    size_ = "32MiB";
    EXPECT_EQ(init("a", "", {"--replace-config"}), Exit::busy);
    EXPECT_NE(error("message").find("the store that is there has 1"), std::string::npos) << answer_;
    EXPECT_EQ(error("hint"), "no --size");
    EXPECT_TRUE(stored() == before);
}

TEST_F(TakeUpTest, an_order_of_peers_that_cannot_be_right_is_refused) {
    ASSERT_EQ(init("a", "abc"), Exit::ok) << answer_;
    const std::string before = stored();
    EXPECT_EQ(init("b", "bac", {"--replace-config"}), Exit::busy) << "the store of a";
    EXPECT_NE(error("message").find("host a, which is one of the peers"), std::string::npos) << answer_;
    EXPECT_EQ(error("hint"), "");
    EXPECT_EQ(init("d", "bd", {"--replace-config"}), Exit::busy) << "of the first host, and d is the second";
    EXPECT_NE(error("message").find("it was made for a, host 1 of its list"), std::string::npos) << answer_;
    EXPECT_EQ(load_configuration(configuration_path_)->host, "a") << "untouched";
    ASSERT_EQ(init("a", "bac", {"--replace-config"}), Exit::ok) << answer_ << "it has met nobody";
    EXPECT_EQ(load_configuration(configuration_path_)->host_id(), 1);
    EXPECT_TRUE(stored() == before);
}

TEST_F(TakeUpTest, the_store_of_a_host_alone_is_taken_up_into_a_cluster_with_a_new_key) {
    ASSERT_EQ(init("a", ""), Exit::ok) << answer_;
    ASSERT_EQ(init("a", "ab", {"--replace-config"}), Exit::ok) << answer_;
    EXPECT_TRUE(std::filesystem::exists(directory_ / "key"));
    EXPECT_NE(answer_["next"][0].get<std::string>().find("on the other hosts"), std::string::npos);
}

}  // namespace
}  // namespace tarn
