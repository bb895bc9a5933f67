#include "daemon/process/nbd_exports.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

using Texts = std::vector<std::string>;

Configuration served_on(const std::string& host) {
    Configuration configuration;
    configuration.nbd_unix = "/run/tarn/nbd.sock";
    configuration.nbd_tcp = Address{.host = host, .port = 10809};
    return configuration;
}

Texts uris_of(const Configuration& configuration, const std::string& volume = "db") {
    return nbd_export_of(configuration, "machine", volume).uris;
}

constexpr const char* on_unix = "nbd+unix:///db?socket=%2Frun%2Ftarn%2Fnbd.sock";

TEST(NbdExports, are_where_they_are_served) {
    EXPECT_EQ(uris_of({}), Texts{});
    Configuration configuration = served_on("10.0.0.1");
    EXPECT_EQ(uris_of(configuration), (Texts{on_unix, "nbd://10.0.0.1:10809/db"}));
    EXPECT_EQ(uris_of(configuration, "a/b c")[1], "nbd://10.0.0.1:10809/a%2Fb%20c");
    configuration.nbd_unix = "";
    EXPECT_EQ(uris_of(configuration), (Texts{"nbd://10.0.0.1:10809/db"}));
}

TEST(NbdExports, of_all_addresses_have_a_name_that_clients_can_use) {
    for (const char* const everywhere : {"0.0.0.0", "::"}) {
        Configuration configuration = served_on(everywhere);
        EXPECT_EQ(uris_of(configuration)[1], "nbd://machine:10809/db");
        configuration.host = "b";
        configuration.peers = {{.name = "a", .address = {.host = "10.0.0.1", .port = 1}},
                               {.name = "b", .address = {.host = "fd00::2", .port = 1}}};
        EXPECT_EQ(uris_of(configuration)[1], "nbd://[fd00::2]:10809/db");
    }
}

TEST(NbdExports, have_the_uris_that_tls_allows) {
    Configuration configuration = served_on("10.0.0.1");
    configuration.nbd_tls = nbd::TlsMode::on;
    EXPECT_EQ(uris_of(configuration), (Texts{on_unix, "nbds://10.0.0.1:10809/db", "nbd://10.0.0.1:10809/db"}));
    configuration.nbd_tls = nbd::TlsMode::require;
    EXPECT_EQ(uris_of(configuration), (Texts{on_unix, "nbds://10.0.0.1:10809/db"}));
}

TEST(NbdExports, for_some_clients_have_no_uri_that_the_others_would_use) {
    Configuration configuration = served_on("10.0.0.1");
    configuration.nbd_tls = nbd::TlsMode::on;
    configuration.nbd_access = {{"db", {"psk:alice"}}, {"hidden", {}}};
    EXPECT_EQ(uris_of(configuration), (Texts{on_unix, "nbds://10.0.0.1:10809/db"}));
    EXPECT_EQ(uris_of(configuration, "hidden"), (Texts{"nbd+unix:///hidden?socket=%2Frun%2Ftarn%2Fnbd.sock"}));
    EXPECT_EQ(uris_of(configuration, "open").size(), 3u);
    EXPECT_EQ(nbd_export_of(configuration, "", "db").clients, (Texts{"psk:alice"}));
    EXPECT_EQ(nbd_export_of(configuration, "", "hidden").clients, Texts{});
    EXPECT_EQ(nbd_export_of(configuration, "", "open").clients, std::nullopt);
}

TEST(NbdExports, say_whether_tcp_leads_to_them) {
    Configuration configuration = served_on("10.0.0.1");
    EXPECT_TRUE(nbd_export_of(configuration, "", "db").over_tcp);
    configuration.nbd_tcp.reset();
    EXPECT_FALSE(nbd_export_of(configuration, "", "db").over_tcp);
}

TEST(NbdExports, are_read_only_where_the_configuration_says_so) {
    Configuration configuration = served_on("10.0.0.1");
    configuration.nbd_read_only = {"db"};
    EXPECT_TRUE(nbd_export_of(configuration, "", "db").read_only);
    EXPECT_FALSE(nbd_export_of(configuration, "", "db2").read_only);
}

TEST(NbdExports, names_that_no_volume_has_are_told) {
    Configuration configuration;
    configuration.nbd_read_only = {"db", "bd"};
    configuration.nbd_access = {{"db", {}}, {"other", {"psk:alice"}}, {"odd\x1b", {}}};
    EXPECT_EQ(nbd_names_of_no_volume(configuration, Texts{"db"}),
              (Texts{"nbd.read_only: bd", "nbd.access: odd\\x1b", "nbd.access: other"}));
    EXPECT_EQ(nbd_names_of_no_volume(configuration, Texts{"db", "bd", "other", "odd\x1b"}), Texts{});
}

TEST(NbdExports, identities_that_no_client_can_prove_are_told) {
    const ScratchDirectory directory;
    const std::string keys = (directory.path() / "keys").string();
    std::ofstream(keys) << "alice:000102030405060708090a0b0c0d0e0f\n";
    std::filesystem::permissions(keys, std::filesystem::perms(0600));
    const auto credentials = nbd::TlsCredentials::load({.directory = directory.path().string(), .psk_file = keys});
    ASSERT_TRUE(credentials) << credentials.error();
    Configuration configuration;
    configuration.nbd_access = {{"db", {"psk:alice", "psk:alcie"}}, {"other", {"cert:alice"}}, {"hidden", {}}};
    EXPECT_EQ(nbd_identities_of_nobody(configuration, **credentials),
              (Texts{"nbd.access: psk:alcie of db: tls_psk_file has no key of that user",
                     "nbd.access: cert:alice of other: without a server-cert.pem no client can prove that name"}));
}

}  // namespace
}  // namespace tarn
