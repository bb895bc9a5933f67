// Configuration, tarnd's arguments, and text as people type it.
#include "daemon/configuration/configuration.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "daemon/configuration/arguments.hpp"
#include "daemon/process/store_refusal.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

constexpr const char* good = R"(host = "a"
cluster = "11112222-3333-4444-8555-666677778888"
store = "/var/lib/tarn/store"
memory = "2GiB"
keep_memory = false
scrub_every = "never"
scrub_rate = "1MiB"
shards = 2
pin = "off"
poll_store = "off"
listen = "0.0.0.0:7420"
key_file = "/etc/tarn/key"

[[peer]]
name = "a"
address = "10.0.0.1:7420"
[[peer]]
name = "b"
address = "[fd00::2]:7420"

[nbd]
unix = "/run/tarn/nbd.sock"
tcp = "127.0.0.1:10809"
read_only = ["golden", "images/base"]
connections_max = 5000
handshakes_max = 50
handshake_seconds = 5
tls = "require"
tls_certificates = "/etc/tarn/lab"
tls_psk_file = "/etc/tarn/keys.psk"
tls_verify_peer = true
networks = ["127.0.0.0/8", "fd00::/8"]

[nbd.access]
secret = ["psk:alice", "cert:host-b"]
"team/db" = []

[log]
level = "debug"

[write_lease]
writes = 64
time_us = 100

[volumes]
shared = true
)";

constexpr const char* minimal = "host = \"a\"\ncluster = \"11112222-3333-4444-8555-666677778888\"\nstore = \"/s\"\n";

TEST(Configuration, every_key_is_taken) {
    const auto configuration = parse_configuration(good, "tarn.toml");
    ASSERT_TRUE(configuration) << configuration.error().front().describe();
    EXPECT_EQ(configuration->host, "a");
    EXPECT_EQ(format_uuid(configuration->cluster), "11112222-3333-4444-8555-666677778888");
    EXPECT_EQ(configuration->store, "/var/lib/tarn/store");
    EXPECT_EQ(configuration->memory_bytes, uint64_t{2} << 30);
    EXPECT_EQ(configuration->shards, 2u);
    EXPECT_FALSE(configuration->pin);
    EXPECT_FALSE(configuration->keep_memory);
    EXPECT_EQ(configuration->listen, (Address{"0.0.0.0", 7420}));
    ASSERT_EQ(configuration->peers.size(), 2u);
    EXPECT_EQ(configuration->peers[1].name, "b");
    EXPECT_EQ(configuration->peers[1].address, (Address{"fd00::2", 7420}));
    EXPECT_EQ(configuration->nbd_unix, "/run/tarn/nbd.sock");
    EXPECT_EQ(configuration->nbd_tcp, (Address{"127.0.0.1", 10809}));
    EXPECT_EQ(configuration->nbd_connections_max, 5000u);
    EXPECT_EQ(configuration->nbd_handshakes_max, 50u);
    EXPECT_EQ(configuration->nbd_handshake_seconds, 5u);
    EXPECT_EQ(configuration->nbd_read_only, (std::vector<std::string>{"golden", "images/base"}));
    EXPECT_EQ(configuration->nbd_tls, nbd::TlsMode::require);
    EXPECT_EQ(configuration->nbd_tls_files.directory, "/etc/tarn/lab");
    EXPECT_EQ(configuration->nbd_tls_files.psk_file, "/etc/tarn/keys.psk");
    EXPECT_TRUE(configuration->nbd_tls_files.verify_peer);
    EXPECT_EQ(configuration->nbd_networks.size(), 2u);
    EXPECT_EQ(configuration->nbd_access, (std::map<std::string, std::vector<std::string>>{
                                             {"secret", {"psk:alice", "cert:host-b"}}, {"team/db", {}}}));
    EXPECT_EQ(configuration->log_level, log::Level::debug);
    EXPECT_TRUE(configuration->volumes_shared);
    EXPECT_EQ(configuration->write_lease.writes, 64u);
    EXPECT_EQ(configuration->write_lease.time_us, 100u);
    EXPECT_EQ(configuration->scrub_every_s, 0u);
    EXPECT_EQ(configuration->scrub_rate_bytes, uint64_t{1} << 20);
    EXPECT_FALSE(configuration->poll_store);
    EXPECT_EQ(configuration->host_id(), 0);
}

TEST(Configuration, a_host_alone_needs_three_keys) {
    const auto configuration = parse_configuration(minimal, "tarn.toml");
    ASSERT_TRUE(configuration) << configuration.error().front().describe();
    EXPECT_EQ(configuration->memory_bytes, uint64_t{1} << 30);
    EXPECT_TRUE(configuration->keep_memory);
    EXPECT_TRUE(configuration->pin);
    EXPECT_EQ(configuration->control, control_path_default);
    EXPECT_EQ(configuration->nbd_tls, nbd::TlsMode::off);
    EXPECT_EQ(configuration->nbd_tls_files.directory, "/etc/tarn/tls");
    EXPECT_TRUE(configuration->nbd_networks.empty());
    EXPECT_EQ(configuration->host_id(), 0);
    EXPECT_TRUE(parse_configuration("\xef\xbb\xbf" + std::string(minimal), "with a byte order mark"));
    std::string crlf;
    for (const char* c = minimal; *c; ++c) crlf += *c == '\n' ? "\r\n" : std::string(1, *c);
    EXPECT_TRUE(parse_configuration(crlf, "with CRLF"));
}

// The first error that the text makes, as the user sees it.
std::string error_of(const std::string& text) {
    const auto configuration = parse_configuration(text, "t");
    return configuration ? "no error" : configuration.error().front().describe();
}
std::string error_after_minimal(const std::string& text) {
    return error_of(minimal + text);
}

TEST(Configuration, mistakes_name_place_key_and_reason) {
    EXPECT_EQ(error_after_minimal("memroy = \"2GiB\"\n"), "t:4:1: memroy: unknown key; did you mean memory?");
    EXPECT_EQ(error_after_minimal("[nbd]\n  unlx = \"/x\"\n"), "t:5:3: nbd.unlx: unknown key; did you mean nbd.unix?");
    EXPECT_EQ(error_after_minimal("completely_different = 1\n"), "t:4:1: completely_different: unknown key");
    EXPECT_EQ(error_after_minimal("memory = \"2XB\"\n"),
              "t:4:10: memory: unknown unit; use KiB, MiB, GiB, TiB or PiB (1024), or kB, MB, GB, TB or PB (1000)");
    EXPECT_EQ(error_after_minimal("memory = 5\n"), "t:4:10: memory: not a size such as \"64GiB\"");
    EXPECT_EQ(error_after_minimal("memory = \"1MiB\"\n"),
              "t:4:10: memory: 1MiB is less than 64MiB; a size such as \"4GiB\"");
    EXPECT_EQ(error_after_minimal("memory = \"256\"\n"),
              "t:4:10: memory: 256B is less than 64MiB; a size such as \"4GiB\"");
    EXPECT_EQ(error_after_minimal("memory = \"900TiB\"\n"), "t:4:10: memory: more than 16TiB");
    EXPECT_EQ(error_after_minimal("[nbd]\nconnections_max = 0\n"),
              "t:5:19: nbd.connections_max: not a number from 1 to 1000000");
    EXPECT_EQ(error_after_minimal("[nbd]\nhandshakes_max = -1\n"),
              "t:5:18: nbd.handshakes_max: not a number from 1 to 1000000");
    EXPECT_EQ(error_after_minimal("[nbd]\nhandshake_seconds = \"1m\"\n"),
              "t:5:21: nbd.handshake_seconds: not a number from 1 to 3600");
    EXPECT_EQ(error_after_minimal("[nbd]\nread_only = \"disk\"\n"), "t:5:13: nbd.read_only: not a list of strings");
    EXPECT_EQ(error_after_minimal("[nbd]\nread_only = [\"disk\", \"a//b\"]\n"),
              "t:5:13: nbd.read_only: \"a//b\" cannot be a volume's name");
    EXPECT_EQ(error_after_minimal("[fuse]\nmount_points = \"/mnt\"\n"),
              "t:5:16: fuse.mount_points: not a list of strings");
    EXPECT_EQ(error_after_minimal("[fuse]\nmount_points = [\"mnt\"]\n"),
              "t:5:16: fuse.mount_points: not an absolute path");
    EXPECT_EQ(error_after_minimal("[fuse]\nmount_points = [\"/mnt/../etc\"]\n"),
              "t:5:16: fuse.mount_points: write paths without \"//\", \".\", \"..\" and a slash at the end");
    EXPECT_EQ(error_after_minimal("shards = 0\n"), "t:4:10: shards: not a number from 1 to 256");
    EXPECT_EQ(error_after_minimal("shards = 257\n"), "t:4:10: shards: not a number from 1 to 256");
    EXPECT_EQ(error_after_minimal("shards = \"2\"\n"), "t:4:10: shards: not a number from 1 to 256");
    EXPECT_EQ(error_after_minimal("control = \"relative\"\n"), "t:4:11: control: not an absolute path");
    EXPECT_EQ(error_after_minimal("control = \"/" + std::string(120, 'x') + "\"\n"),
              "t:4:11: control: longer than 107 bytes");
    EXPECT_EQ(error_after_minimal("control = \"\"\n"), "t:4:11: control: empty");
    EXPECT_EQ(error_after_minimal("scrub_every = \"1w\"\n"),
              "t:4:15: scrub_every: not a time of a second or more such as \"12h\" or \"7d\", nor \"never\"");
    EXPECT_EQ(error_after_minimal("[write_lease]\nwrites = 2048\n"),
              "t:5:10: write_lease.writes: not a number from 0 to 2047");
    EXPECT_EQ(error_after_minimal("[write_lease]\ntime_us = 0\n"),
              "t:5:11: write_lease.time_us: not a number from 1 to 100000");
    EXPECT_EQ(error_after_minimal("listen = \"10.0.0.1\"\n"), "t:4:10: listen: no port; write HOST:PORT");
    EXPECT_EQ(error_after_minimal("listen = \"::1:7420\"\n"),
              "t:4:10: listen: an IPv6 address needs brackets: [ADDRESS]:PORT");
    EXPECT_EQ(error_after_minimal("listen = \"a:65536\"\n"),
              "t:4:10: listen: the port is not a number from 1 to 65535");
    EXPECT_EQ(error_after_minimal("nbd = 1\n"), "t:4:7: nbd: not a table; write [nbd]");
    EXPECT_EQ(error_after_minimal("[nbd]\ntls = \"maybe\"\n"), "t:5:7: nbd.tls: not \"off\", \"on\" or \"require\"");
    EXPECT_EQ(error_after_minimal("[nbd]\ntls_psk_file = \"keys.psk\"\n"),
              "t:5:16: nbd.tls_psk_file: not an absolute path");
    EXPECT_EQ(
        error_after_minimal("[nbd]\nnetworks = [\"::1\", \"10.0.0.1/8\"]\n"),
        "t:5:12: nbd.networks: \"10.0.0.1/8\": the address has bits beyond the prefix; which of the two is meant?");
    EXPECT_EQ(error_after_minimal("[nbd]\nnetworks = []\n"),
              "t:5:12: nbd.networks: an empty list; without this key clients may come from everywhere");
    EXPECT_EQ(error_after_minimal("[nbd]\naccess = 1\n"), "t:5:10: nbd.access: not a table; write [nbd.access]");
    EXPECT_EQ(error_after_minimal("[nbd.access]\nvol = \"psk:a\"\n"), "t:5:7: nbd.access.vol: not a list of strings");
    EXPECT_EQ(error_after_minimal("[nbd.access]\nvol = [\"psk:a\", \"bob\"]\n"),
              "t:5:7: nbd.access.vol: \"bob\": write \"psk:USER\" or \"cert:NAME\" for each client that may use the "
              "volume");
    EXPECT_EQ(error_after_minimal("[nbd.access]\nvol = [\"psk:a\"]\n"),
              "t:4:1: nbd.access: names clients by what they prove within TLS, which is off; set tls in [nbd]");
    EXPECT_EQ(error_after_minimal("[nbd.access]\nvol = []\n"), "no error") << "nobody sees it over TCP";
    EXPECT_EQ(error_after_minimal("[log]\nlevel = \"loud\"\n"), "t:5:9: log.level: not error, warning, info or debug");
    EXPECT_EQ(error_after_minimal("[volumes]\nshared = \"yes\"\n"), "t:5:10: volumes.shared: not true or false");
    EXPECT_EQ(error_after_minimal("[peer]\nname = \"a\"\n"), "t:4:1: peer: not a list; write [[peer]]");
    EXPECT_EQ(error_after_minimal("[[peer]]\nname = \"a\"\n"),
              "t:4:1: peer.address: missing; a line such as address = \"192.0.2.1:7420\"");
    EXPECT_EQ(error_of("store = \"/s\"\ncluster = \"3d0c8f5e-6a0b-4b7e-9d0c-1f2a3b4c5d6e\"\n"),
              "t: host: missing; a line such as host = \"a\"");
    EXPECT_EQ(error_of("host = \"a\"\nstore = \"/s\"\n"), "t: cluster: missing; tarn init draws one");
    EXPECT_EQ(error_of("cluster = \"123\"\n"), "t:1:11: cluster: not a UUID");
    EXPECT_NE(error_after_minimal("store = \"/t\"\n").find("t:4:"), std::string::npos) << "a duplicate key";
    EXPECT_NE(error_of("host = \"a\nstore").find("t:1:"), std::string::npos) << "not TOML";
}

// The library would nest them on the stack.
TEST(Configuration, a_key_of_very_many_parts_is_refused) {
    std::string parts;
    for (int i = 0; i < 50000; ++i) parts += "a.";
    EXPECT_EQ(error_after_minimal("\n" + parts + "a = 1\n"), "t:5:1: a key of too many parts");
    EXPECT_EQ(error_after_minimal("[" + parts + "a]\n"), "t:4:1: a key of too many parts");
    EXPECT_EQ(error_after_minimal("x = { " + parts + "a = 1 }\n"), "t:4:1: a key of too many parts");
    EXPECT_EQ(error_after_minimal("[\"\\\"\"." + parts + "a]\n"), "t:4:1: a key of too many parts");
    // Behind a text of several lines, however it ends.
    const char* const texts[] = {"\"\"\"\n'\"\"\"", "'''\n\"'''",         "\"\"\"\n\"\"\"\"\"",
                                 "'''\n''''",       "\"\"\"\n\\\"\"\"\"", "\"\""};
    for (const std::string text : texts)
        EXPECT_TRUE(error_after_minimal("x = { s = " + text + ", " + parts + "a = 1 }\n").ends_with("too many parts"))
            << text;
    // A backslash means something between double quotes alone, and a comment begins no text.
    EXPECT_EQ(error_after_minimal("x = { s = '\\', " + parts + "a = 1 }\n"), "t:4:1: a key of too many parts");
    EXPECT_EQ(error_after_minimal("# '''\n" + parts + "a = 1\n"), "t:5:1: a key of too many parts");
    EXPECT_EQ(error_after_minimal("x = \"\"\"\\\n\"\"\"\n" + parts + "a = 1\n"), "t:6:1: a key of too many parts");
    EXPECT_FALSE(error_after_minimal("x = '''\n" + parts + "'''\n").contains("too many parts"));
    EXPECT_EQ(error_after_minimal("# " + parts + "\n[nbd]\nread_only = ['" + parts + "', \"\\\"" + parts + "\"]\n")
                  .find("too many parts"),
              std::string::npos)
        << "dots in comments and strings are no parts";
}

TEST(Configuration, peers_must_fit_together) {
    const std::string peers = "[[peer]]\nname = \"a\"\naddress = \"x:1\"\n[[peer]]\nname = \"b\"\naddress = \"y:1\"\n";
    EXPECT_EQ(error_after_minimal(peers), "t: key_file: missing; the hosts of a cluster need a key in common");
    const std::string with_key = "key_file = \"/k\"\n";
    EXPECT_EQ(error_after_minimal(with_key + peers), "no error");
    EXPECT_EQ(error_after_minimal(with_key + peers + "[[peer]]\nname = \"a\"\naddress = \"z:1\"\n"),
              "t:12:8: peer.name: two peers are named \"a\"");
    EXPECT_EQ(error_after_minimal(with_key + peers + "[[peer]]\nname = \"c\"\naddress = \"y:1\"\n"),
              "t:13:11: peer.address: two peers have y:1");
    std::string other = minimal;
    other.replace(other.find("\"a\""), 3, "\"c\"");
    EXPECT_EQ(error_of(other + with_key + peers), "t:1:8: host: c is not the name of one of the peers");
    std::string many = minimal + with_key;
    for (int i = 0; i < 64; ++i)
        many += "[[peer]]\nname = \"" + std::string(i == 0 ? "a" : "p" + std::to_string(i)) + "\"\naddress = \"h" +
                std::to_string(i) + ":1\"\n";
    EXPECT_EQ(error_of(many), "t:5:1: peer: more than 63 hosts");
}

TEST(Configuration, all_mistakes_are_told_at_once) {
    const auto configuration =
        parse_configuration(std::string(minimal) + "memroy = 1\nshards = -1\n[log]\nlevl = 1\n", "t");
    ASSERT_FALSE(configuration);
    EXPECT_EQ(configuration.error().size(), 3u);
}

TEST(Configuration, control_characters_do_not_reach_the_terminal) {
    const std::string error = error_after_minimal("\"a\\u001b[2J\" = 1\n");
    EXPECT_EQ(error.find('\x1b'), std::string::npos);
    EXPECT_NE(error.find("a\\x1b[2J: unknown key"), std::string::npos) << error;
}

class ConfigurationFile : public testing::Test {
  protected:
    ConfigurationFile() { path_ = directory_ / "tarn.toml"; }

    static void write(const std::string& path, const std::string& text, mode_t mode = 0600) {
        std::ofstream(path) << text;
        ::chmod(path.c_str(), mode);
    }
    std::string load_error() const {
        const auto configuration = load_configuration(path_);
        return configuration ? "no error" : configuration.error().front().describe();
    }
    std::expected<Arguments, Leave> parse(std::vector<const char*> words) const {
        words.insert(words.begin(), {"tarnd", "--config", path_.c_str()});
        return parse_arguments(words);
    }

    ScratchDirectory directory_;
    std::string path_;
};

TEST_F(ConfigurationFile, files_that_are_none_are_refused) {
    EXPECT_EQ(load_error(), path_ + ": no such file; tarn init makes it and the store");
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_EQ(load_error(), path_ + ": not a regular file");
    std::filesystem::remove(path_);
    std::filesystem::create_directory(path_);
    EXPECT_EQ(load_error(), path_ + ": not a regular file");
    std::filesystem::remove(path_);
    write(path_, std::string(size_t{10} << 20, '#'));
    EXPECT_EQ(load_error(), path_ + ": too large");
    write(path_, "");
    EXPECT_NE(load_error(), "no error");
}

TEST_F(ConfigurationFile, a_key_that_others_may_read_is_refused) {
    const std::string key = directory_ / "key";
    write(path_, std::string(minimal) + "key_file = \"" + key + "\"\n");
    EXPECT_EQ(load_error(), path_ + ": key_file: " + key + ": no such file");
    write(key, std::string(64, 'a') + "\n", 0644);
    EXPECT_EQ(load_error(), path_ + ": key_file: " + key + ": others may read it; chmod 0600");
    write(key, std::string(64, 'a') + "\n", 0640);
    EXPECT_EQ(load_error(), "no error");
    ASSERT_TRUE(load_key(key));
    EXPECT_EQ((*load_key(key))[31], std::byte{0xaa});
    for (const std::string& bad : {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'), std::string()}) {
        write(key, bad, 0600);
        EXPECT_EQ(load_error(), path_ + ": key_file: " + key + ": not 64 hexadecimal digits");
    }
}

TEST_F(ConfigurationFile, tls_without_its_files_is_refused) {
    write(path_, std::string(minimal) + "[nbd]\ntls = \"on\"\ntls_certificates = \"" + (directory_ / "none") + "\"\n");
    const auto arguments = parse({"--check-config"});
    ASSERT_FALSE(arguments);
    EXPECT_EQ(arguments.error().exit_code, 2);
    EXPECT_EQ(arguments.error().text, "tarnd: " + path_ + ": nbd.tls: " + (directory_ / "none") +
                                          "/server-cert.pem: no such file, and no tls_psk_file is given; tarn tls init "
                                          "makes certificates, in hosts/NAME of its directory those of a host\n");
}

TEST_F(ConfigurationFile, flags_win_over_keys) {
    write(path_, minimal);
    const auto arguments = parse({"--memory", "3GiB", "--shards", "4", "--control", "/tmp/c", "--nbd-unix", "n.sock",
                                  "--log-level", "warning", "--host", "zz", "--check-config"});
    ASSERT_TRUE(arguments) << arguments.error().text;
    EXPECT_TRUE(arguments->check_only);
    EXPECT_EQ(arguments->configuration.memory_bytes, uint64_t{3} << 30);
    EXPECT_EQ(arguments->configuration.shards, 4u);
    EXPECT_EQ(arguments->configuration.control, "/tmp/c");
    EXPECT_EQ(arguments->configuration.nbd_unix, std::filesystem::current_path().string() + "/n.sock");
    EXPECT_EQ(arguments->configuration.log_level, log::Level::warning);
    EXPECT_EQ(arguments->configuration.host, "zz");
}

TEST_F(ConfigurationFile, wrong_flags_leave_with_2) {
    write(path_, minimal);
    for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{{"--memory", "3XB"},
                                                                                       {"--memory", "1MiB"},
                                                                                       {"--shards", "0"},
                                                                                       {"--nope"},
                                                                                       {"surplus"},
                                                                                       {"--listen", "x"}}) {
        const auto arguments = parse(words);
        ASSERT_FALSE(arguments) << words.front();
        EXPECT_EQ(arguments.error().exit_code, 2);
        EXPECT_TRUE(arguments.error().text.starts_with("tarnd: ")) << arguments.error().text;
    }
    EXPECT_EQ(
        parse({"--memory", "3XB"}).error().text,
        "tarnd: --memory 3XB: unknown unit; use KiB, MiB, GiB, TiB or PiB (1024), or kB, MB, GB, TB or PB (1000)\n");
    EXPECT_EQ(parse({"--log-level", "loud"}).error().text,
              "tarnd: --log-level loud: not error, warning, info or debug\n");
    EXPECT_EQ(parse({"--memory", "1MiB"}).error().text,
              "tarnd: memory: 1MiB is less than 64MiB; a size such as \"4GiB\"\n");
    EXPECT_EQ(parse({"--help"}).error().exit_code, 0);
    EXPECT_EQ(parse({"--version"}).error().text, "tarnd 0.1.0\n");
    std::filesystem::remove(path_);
    EXPECT_EQ(parse({}).error().exit_code, 2);
}

TEST(Text, sizes) {
    EXPECT_EQ(parse_size("4096"), 4096u);
    EXPECT_EQ(parse_size("64KiB"), 65536u);
    EXPECT_EQ(parse_size("2 GiB"), uint64_t{2} << 30);
    EXPECT_EQ(parse_size("1PiB"), uint64_t{1} << 50);
    EXPECT_EQ(parse_size("0"), 0u);
    EXPECT_EQ(parse_size("1G"), uint64_t{1} << 30);
    EXPECT_EQ(parse_size("1.5GiB"), uint64_t{3} << 29);
    EXPECT_EQ(parse_size("10GB"), 10'000'000'000u);
    EXPECT_EQ(parse_size("500M"), uint64_t{500} << 20);
    EXPECT_EQ(parse_size("500MB"), 500'000'000u);
    EXPECT_EQ(parse_size("1gib"), uint64_t{1} << 30);
    EXPECT_EQ(parse_size("5Gi"), uint64_t{5} << 30);
    EXPECT_EQ(parse_size("5ki"), 5120u);
    EXPECT_EQ(parse_size("0.1k"), 103u) << "rounded up to a byte";
    EXPECT_EQ(parse_size("16383.999999999PiB"), 18446744073708425717u);
    EXPECT_EQ(parse_size("18446744073709551615"), UINT64_MAX);
    EXPECT_EQ(parse_size("1.0123456789GiB"), 1086997896u);
    EXPECT_EQ(parse_size("0.000000000000001P"), 2u);
    EXPECT_EQ(parse_size("1Gb"), 1'000'000'000u);
    EXPECT_FALSE(parse_size("16383.999999999999999999PiB")) << "rounded up it is 2^64";
    EXPECT_STREQ(parse_size("1.0123456789012345678G").error().where,
                 "a size has at most 18 decimals, such as \"1.5G\"");
    for (const char* const bad : {"",
                                  "GiB",
                                  "-1",
                                  "+1",
                                  "1 ",
                                  "1GiBx",
                                  "1Gx",
                                  "1GiX",
                                  "1GII",
                                  "1XB",
                                  "1.GiB",
                                  ".5GiB",
                                  "1.5.5GiB",
                                  "1e3",
                                  "1,5GiB",
                                  "1 .5G",
                                  "1.0123456789012345678GiB",
                                  "16384PiB",
                                  "18446744073709551616",
                                  "18447PB",
                                  "0x10",
                                  " 1"})
        EXPECT_FALSE(parse_size(bad)) << bad;
    EXPECT_EQ(format_size(uint64_t{3} << 29), "1536MiB");
    EXPECT_EQ(format_size(4097), "4097B");
    EXPECT_EQ(format_size(0), "0B");
    EXPECT_EQ(format_size_roughly(uint64_t{3} << 29), "1.5 GiB");
    EXPECT_EQ(format_size_roughly(uint64_t{2} << 30), "2 GiB");
    EXPECT_EQ(format_size_roughly(100), "100 B");
}

TEST(Text, durations) {
    EXPECT_EQ(parse_duration("500ms").value_or(0), 500u);
    EXPECT_EQ(parse_duration("90s").value_or(0), 90'000u);
    EXPECT_EQ(parse_duration("15m").value_or(0), 900'000u);
    EXPECT_EQ(parse_duration("2min").value_or(0), 120'000u);
    EXPECT_EQ(parse_duration("12h").value_or(0), 43'200'000u);
    EXPECT_EQ(parse_duration("7d").value_or(0), 604'800'000u);
    for (const char* const bad : {"", "d", "7", "7w", "7 d", "-1d", "0d", "1.5h", "36501d", "99999999999999999999d"})
        EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Text, nearest_names) {
    constexpr std::string_view names[] = {"memory", "shards", "store"};
    EXPECT_EQ(nearest_name("memmory", names), "memory");
    EXPECT_EQ(nearest_name("shard", names), "shards");
    EXPECT_EQ(nearest_name("sotre", names), "store");
    EXPECT_FALSE(nearest_name("replicas", names));
    EXPECT_FALSE(nearest_name("x", names));
    EXPECT_FALSE(nearest_name("", names));
}

TEST(Text, uuids) {
    EXPECT_FALSE(parse_uuid("11112222-3333-4444-8555-66667777888"));
    EXPECT_FALSE(parse_uuid("11112222+3333-4444-8555-666677778888"));
    EXPECT_FALSE(parse_uuid("1111222g-3333-4444-8555-666677778888"));
    EXPECT_FALSE(parse_uuid("11112222-33334-444-8555-666677778888"));
}

TEST(StoreRefusal, both_orders_and_the_next_step_are_told) {
    Configuration configuration;
    configuration.cluster = {1};
    configuration.host = "c";
    for (const char* const name : {"a", "b", "c"}) configuration.peers.push_back({.name = name, .address = {}});
    StoreIdentity found{.cluster = {1}, .host = 0, .host_name = host_name_of("c")};
    const std::string advice = advice_on_other_store(configuration, found);
    EXPECT_TRUE(advice.contains("for host 1 of another list of peers; here c is host 3 of a, b, c")) << advice;
    EXPECT_TRUE(advice.contains("put the peers back")) << advice;
    found.host_name = {};
    EXPECT_EQ(advice_on_other_store(configuration, found), advice) << "it is older than names in stores";
    found.host_name = host_name_of("a");
    EXPECT_TRUE(advice_on_other_store(configuration, found).contains("made for a, host 1"));
    found.host = 2;
    EXPECT_EQ(advice_on_other_store(configuration, found), "");
    configuration.cluster = {2};
    const std::string of_other_cluster = advice_on_other_store(configuration, found);
    EXPECT_TRUE(of_other_cluster.contains("of cluster 01000000-0000-0000-0000-000000000000, and here"))
        << of_other_cluster;
    EXPECT_TRUE(of_other_cluster.contains("the cluster is 02000000-0000-0000-0000-000000000000")) << of_other_cluster;
    EXPECT_TRUE(of_other_cluster.contains("--force and --replace-config")) << of_other_cluster;
    const std::string of_none = advice_on_refused_store(configuration, Error(Errc::not_found));
    EXPECT_TRUE(of_none.contains("--host c --cluster 02000000-0000-0000-0000-000000000000 --peer a=")) << of_none;
    EXPECT_TRUE(of_none.contains(" --config NEW_FILE")) << of_none;
}

}  // namespace
}  // namespace tarn
