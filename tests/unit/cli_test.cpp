// tarn as a user and a script meet it: output, errors and exit codes.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "daemon/cli/progress.hpp"
#include "tests/unit/cli_host.hpp"

namespace tarn {
namespace {

using CliTest = CliHost;

TEST_F(CliTest, a_volume_lives_and_dies) {
    EXPECT_EQ(run({"create", "vol1", "10GiB"}), Exit::ok);
    EXPECT_EQ(out_, "created vol1, 10 GiB, exclusive\n");
    EXPECT_EQ(run({"create", "odd", "5000", "--shared", "--mode", "0644"}), Exit::ok);
    EXPECT_EQ(out_, "created odd, 8 KiB, shared (rounded up from 5000 bytes to whole pages of 4 KiB)\n");
    EXPECT_EQ(run({"list"}), Exit::ok);
    EXPECT_EQ(out_,
              "NAME        SIZE        USED  ACCESS\n"
              "odd        8 KiB         0 B  shared\n"
              "vol1      10 GiB         0 B  exclusive\n");
    EXPECT_EQ(run({"show", "odd"}), Exit::ok);
    EXPECT_NE(out_.find("mode    0644\n"), std::string::npos);
    EXPECT_EQ(run({"resize", "vol1", "20GiB"}), Exit::ok);
    EXPECT_EQ(out_, "resized vol1, 20 GiB, exclusive\n");
    EXPECT_EQ(run({"resize", "vol1", "20GiB"}), Exit::ok);
    EXPECT_EQ(out_, "unchanged vol1, 20 GiB, exclusive\n");
    daemon_.with([](FakeDaemon& daemon) { daemon.untold_hosts = {"b"}; });
    EXPECT_EQ(run({"resize", "vol1", "30GiB"}), Exit::ok);
    EXPECT_NE(out_.find("\nb: a device of vol1 there gets its new size later: "), std::string::npos) << out_;
    EXPECT_EQ(run({"export", "vol1"}), Exit::ok);
    EXPECT_EQ(out_, "nbd://127.0.0.1:10809/vol1\n");
    EXPECT_EQ(run({"export"}), Exit::ok);
    EXPECT_EQ(out_, "nbd://127.0.0.1:10809/odd\nnbd://127.0.0.1:10809/vol1\n");
    EXPECT_EQ(run({"flush", "vol1"}), Exit::ok);
    EXPECT_EQ(run({"delete", "vol1"}), Exit::ok);
    EXPECT_EQ(out_, "deleted vol1\n");
    EXPECT_EQ(err_, "");
}

TEST_F(CliTest, who_may_use_a_volume_over_nbd_is_shown) {
    run({"create", "secret", "1GiB"});
    run({"create", "open", "1GiB"});
    EXPECT_EQ(run({"show", "secret"}), Exit::ok);
    EXPECT_NE(out_.find("nbd     read-only\nnbd     over TCP here for psk:alice, cert:bob\nuri "), std::string::npos)
        << out_;
    EXPECT_EQ(run({"show", "open"}), Exit::ok);
    EXPECT_NE(out_.find("nbd     over TCP here for everybody who is let in\n"), std::string::npos) << out_;
    run({"create", "near", "1GiB"});
    daemon_.with([](FakeDaemon& daemon) { daemon.used.silent_hosts = {"b", "c"}; });
    EXPECT_EQ(run({"show", "near"}), Exit::ok);
    EXPECT_EQ(out_.find("\nnbd "), std::string::npos) << out_;
    EXPECT_NE(out_.find("used    0 B, without what is stored by b, c\n"), std::string::npos) << out_;
    EXPECT_EQ(run({"show", "secret", "open", "--json"}), Exit::ok);
    const Json shown = Json::parse(out_)["volumes"];
    EXPECT_EQ(shown[0]["nbd_read_only"], true);
    EXPECT_EQ(shown[0]["nbd_access"], (Json{"psk:alice", "cert:bob"}));
    EXPECT_EQ(shown[1]["nbd_read_only"], false);
    EXPECT_TRUE(shown[1]["nbd_access"].is_null());
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
        EXPECT_EQ(json["schema"], 2);
        EXPECT_EQ(json["errors"], nlohmann::json::array());
    }
    EXPECT_EQ(run({"--json", "show", "vol1"}), Exit::ok);
    EXPECT_EQ(nlohmann::json::parse(out_)["volumes"][0]["size_bytes"], uint64_t{1} << 30);
}

TEST_F(CliTest, exit_codes_say_what_went_wrong) {
    run({"create", "vol1", "1GiB"});
    EXPECT_EQ(run({"show", "none"}), Exit::not_found);
    EXPECT_EQ(err_, "tarn: show none: no such volume; try: tarn list\n");
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
                                               {"create", "v", "1XB"},
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

TEST_F(CliTest, json_has_one_shape_for_each_verb_and_tells_errors) {
    const auto json_of = [this](std::vector<std::string> words, Exit expected) {
        words.emplace_back("--json");
        EXPECT_EQ(run(words), expected) << words[0];
        EXPECT_EQ(err_, "");
        return nlohmann::json::parse(out_);
    };
    json_of({"create", "a", "1GiB"}, Exit::ok);
    EXPECT_EQ(json_of({"create", "b", "1GiB"}, Exit::ok)["volumes"][0]["name"], "b");
    const auto part = json_of({"show", "a", "none", "b"}, Exit::not_found);
    EXPECT_EQ(part["volumes"].size(), 2u);
    EXPECT_EQ(part["errors"][0]["object"], "none");
    EXPECT_EQ(part["errors"][0]["code"], "not_found");
    EXPECT_EQ(part["errors"][0]["exit"], 3);
    EXPECT_EQ(part["errors"][0]["hint"], "tarn list");
    EXPECT_EQ(json_of({"frobnicate"}, Exit::usage)["errors"][0]["code"], "usage");
    EXPECT_EQ(json_of({"create", "a", "1GiB"}, Exit::busy)["errors"][0]["code"], "exists");
    EXPECT_EQ(json_of({"flush", "a", "b"}, Exit::ok)["volumes"].size(), 2u);
    EXPECT_EQ(json_of({"export"}, Exit::ok)["exports"].size(), 2u);
    EXPECT_EQ(json_of({"export", "b"}, Exit::ok)["exports"][0]["volume"], "b");
    EXPECT_EQ(json_of({"mount", "/mnt/x"}, Exit::ok)["mounts"][0]["path"], "/mnt/x");
    EXPECT_EQ(json_of({"mount"}, Exit::ok)["mounts"][0]["path"], "/mnt/x");
    EXPECT_EQ(json_of({"mount", "/mnt/x"}, Exit::busy)["mounts"], nlohmann::json::array()) << "when it fails, too";
    EXPECT_EQ(json_of({"umount", "/mnt/x"}, Exit::ok)["mounts"][0]["path"], "/mnt/x");
    EXPECT_EQ(json_of({"umount", "/mnt/x"}, Exit::not_found)["mounts"], nlohmann::json::array());
    EXPECT_EQ(json_of({"attach", "none"}, Exit::not_found)["attachments"], nlohmann::json::array());
    const auto attached = json_of({"attach", "a"}, Exit::ok)["attachments"][0];
    EXPECT_EQ(attached["device"], "/dev/nbd0");
    EXPECT_EQ(attached["link"], "");
    EXPECT_EQ(run_at(directory_ / "none", {"status", "--json"}), Exit::unreachable);
    EXPECT_EQ(nlohmann::json::parse(out_)["errors"][0]["code"], "unreachable");
}

TEST_F(CliTest, verbs_take_several_names) {
    for (const char* const name : {"a", "b", "c"}) run({"create", name, "1GiB"});
    EXPECT_EQ(run({"show", "a", "b"}), Exit::ok);
    EXPECT_NE(out_.find("\n\nname    b\n"), std::string::npos) << out_;
    EXPECT_EQ(run({"export", "c", "a"}), Exit::ok);
    EXPECT_EQ(out_, "nbd://127.0.0.1:10809/c\nnbd://127.0.0.1:10809/a\n");
    EXPECT_EQ(run({"verify", "a", "b"}), Exit::ok);
    EXPECT_EQ(run({"verify", "--stop"}), Exit::ok);
    EXPECT_EQ(out_, "no pass is under way\n");
    EXPECT_EQ(run({"flush", "a", "none", "b"}), Exit::not_found);
    EXPECT_EQ(out_, "flushed a\nflushed b\n");
    EXPECT_EQ(err_, "tarn: flush none: no such volume; try: tarn list\n");
    EXPECT_EQ(run({"delete", "a", "..", "b"}), Exit::usage) << "none of them";
    EXPECT_EQ(run({"delete", "a", "b", "--timeout", "5"}), Exit::ok);
    EXPECT_EQ(out_, "deleted a\ndeleted b\n");
    EXPECT_EQ(run({"list", "--quiet"}), Exit::ok);
    EXPECT_EQ(out_, "c\n");
}

TEST_F(CliTest, what_is_not_utf8_is_refused_and_not_renamed) {
    EXPECT_EQ(run({"create", "a\xff", "1GiB"}), Exit::usage);
    EXPECT_NE(err_.find("create a\\xff: not a volume's name: not valid UTF-8"), std::string::npos) << err_;
    daemon_.with([](const FakeDaemon& daemon) { EXPECT_TRUE(daemon.entries.empty()); });
    for (const char* const verb : {"show", "delete", "flush", "export", "verify"})
        EXPECT_EQ(run({verb, "a\xff"}), Exit::usage) << verb;
    EXPECT_EQ(run({"mount", "/mnt/\xff"}), Exit::usage);
    EXPECT_EQ(run({"umount", "/mnt/\xff"}), Exit::usage);
    EXPECT_TRUE(daemon_.mounted.empty());
    EXPECT_EQ(run({"init", "--store", directory_ / "\xff", "--size", "16MiB", "--host", "a", "--config",
                   directory_ / "x.toml"}),
              Exit::usage);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "x.toml"));
}

TEST_F(CliTest, what_others_chose_does_nothing_to_a_terminal) {
    const std::string evil = "a\u202egpj\u200b.x";
    ASSERT_EQ(run({"create", evil, "1MiB", "--shared"}), Exit::ok);
    EXPECT_EQ(out_, "created a\\u{202e}gpj\\u{200b}.x, 1 MiB, shared\n");
    daemon_.with([&](FakeDaemon& daemon) {
        daemon.entries[evil].holder = "\x1b[2J";
        daemon.node.facts["host"] = "\x1b]0;x\x07";
        daemon.node.facts["store_failure"] = "\xc2\x9b";
        daemon.mounted = {{.path = "/mnt/\x1b[0m"}};
    });
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"list"},
                                                                                       {"show", evil},
                                                                                       {"export"},
                                                                                       {"status"},
                                                                                       {"mount"},
                                                                                       {"flush", evil},
                                                                                       {"delete", evil, evil + "x"},
                                                                                       {"create", evil, "1x"},
                                                                                       {"frobnicate\u202e"},
                                                                                       {"list", "--quiet"}})
        for (const char* const json : {"", "--json"}) {
            std::vector<std::string> all = words;
            if (*json) all.emplace_back(json);
            run_at(path_, all, {.out = true, .err = true});
            for (const char* const bad : {"\x1b", "\u202e", "\u200b", "\xc2\x9b", "\x07"})
                EXPECT_EQ((out_ + err_).find(bad), std::string::npos) << words[0] << json;
        }
    ASSERT_EQ(run({"create", evil, "1MiB", "--shared"}), Exit::ok);
    EXPECT_EQ(run({"list", "--quiet"}), Exit::ok);
    EXPECT_EQ(out_, evil + "\n") << "a program reads it";
}

TEST_F(CliTest, words_that_were_not_meant_are_named_with_the_nearest) {
    const auto error_of = [this](const std::vector<std::string>& words) {
        EXPECT_EQ(run(words), Exit::usage);
        return err_;
    };
    EXPECT_EQ(error_of({"crate", "v", "1GiB"}), "tarn: unknown verb crate; did you mean create?; try: tarn --help\n");
    EXPECT_EQ(error_of({"frobnicate"}), "tarn: unknown verb frobnicate; try: tarn --help\n");
    EXPECT_EQ(error_of({"store", "inspekt", "x"}),
              "tarn: unknown verb inspekt; did you mean inspect?; try: tarn store --help\n");
    EXPECT_EQ(error_of({"create", "v", "1GiB", "--share"}),
              "tarn: unknown option --share; did you mean --shared?; try: tarn create --help\n");
    EXPECT_EQ(error_of({"create", "v", "1GiB", "--share=yes"}),
              "tarn: unknown option --share=yes; did you mean --shared?; try: tarn create --help\n");
    EXPECT_EQ(error_of({"store", "check", "x", "--foo"}), "tarn: unknown option --foo; try: tarn store check --help\n");
    EXPECT_EQ(error_of({"create", "v", "--size", "1GiB"}),
              "tarn: unknown option --size; SIZE is a word without an option before it; try: tarn create --help\n");
    EXPECT_EQ(error_of({"list", "--jsn"}), "tarn: unknown option --jsn; did you mean --json?; try: tarn list --help\n");
    EXPECT_NE(error_of({"create", "v"}).find("try: tarn create --help\n"), std::string::npos) << err_;
    EXPECT_EQ(error_of({"create", "v", "1", "GiB"}),
              "tarn: a size is one word: GiB belongs to its number, as in 1GiB; try: tarn create --help\n");
    EXPECT_EQ(error_of({"resize", "v", "10", "GiB"}),
              "tarn: a size is one word: GiB belongs to its number, as in 1GiB; try: tarn resize --help\n");
    EXPECT_EQ(error_of({"resize", "v", "10", "more"}).find("a size is one word"), std::string::npos) << err_;
    EXPECT_EQ(error_of({"resize", "v", "10", "GiB", "more"}).find("a size is one word"), std::string::npos) << err_;
}

TEST_F(CliTest, the_help_of_each_verb_has_its_own_example) {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"init"}, {"create"}, {"verify"}, {"host"}, {"host", "forget"}, {"store"}, {"store", "check"}}) {
        std::vector<std::string> asked = words;
        asked.emplace_back("--help");
        EXPECT_EQ(run(asked), Exit::ok);
        std::string verb = "Example:\n  tarn";
        for (const std::string& word : words) verb += " " + word;
        EXPECT_NE(out_.find(verb), std::string::npos) << out_;
        EXPECT_NE(out_.find("Options of every verb: --control, --timeout, --json; tarn --help"), std::string::npos);
    }
    run({"verify", "--help"});
    EXPECT_NE(out_.find("Usage: tarn verify [OPTIONS] [NAME...]\n"), std::string::npos) << out_;
}

TEST_F(CliTest, hints_fit_the_error) {
    run({"create", "a", "1GiB"});
    run({"create", "x/y", "1GiB"});
    const auto error_of = [this](const std::vector<std::string>& words) {
        EXPECT_NE(run(words), Exit::ok);
        return err_;
    };
    EXPECT_NE(error_of({"umount", "/nowhere"}).find("; try: tarn mount, which"), std::string::npos) << err_;
    EXPECT_NE(error_of({"create", "a", "1GiB"}).find("; try: tarn list"), std::string::npos) << err_;
    EXPECT_EQ(run({"create", "x/y/z", "1GiB"}), Exit::busy);
    EXPECT_EQ(run({"create", "x", "1GiB"}), Exit::busy);
    daemon_.with([](FakeDaemon& daemon) {
        daemon.held_elsewhere = "a";
        daemon.verified.running = true;
    });
    EXPECT_NE(error_of({"delete", "a"}).find("--force disconnects them"), std::string::npos) << err_;
    EXPECT_EQ(err_.find("; try:"), std::string::npos) << err_;
    daemon_.with([](FakeDaemon& daemon) {
        daemon.held_elsewhere = "";
        daemon.nbd = false;
    });
    EXPECT_NE(error_of({"export"}).find("serves no NBD"), std::string::npos) << err_;
    EXPECT_NE(error_of({"export", "a"}).find("serves no NBD"), std::string::npos) << err_;
}

TEST_F(CliTest, a_list_survives_long_names_and_shows_what_is_used) {
    const std::string name(200, 'x');
    run({"create", name, "1GiB"});
    run({"create", "資料", "2GiB"});
    daemon_.with([&](FakeDaemon& daemon) {
        daemon.used.bytes[daemon.entries.at(name).id] = 3 << 20;
        daemon.used.silent_hosts = {"c"};
    });
    EXPECT_EQ(run({"list"}), Exit::ok);
    EXPECT_EQ(out_, "NAME        SIZE        USED  ACCESS\n" + name + "\n" +
                        "           1 GiB       3 MiB  exclusive\n"
                        "資料       2 GiB         0 B  exclusive\n"
                        "USED is without what c stores, which does not answer\n");
    EXPECT_EQ(run({"show", name}), Exit::ok);
    EXPECT_NE(out_.find("used    3 MiB, without what is stored by c\n"), std::string::npos) << out_;
}

TEST(Progress, is_shown_while_it_lasts_and_is_gone_after) {
    std::ostringstream out;
    std::atomic<int> asked = 0;
    {
        const Progress progress(
            &out, "flushing v\x1b", [&] { return ++asked == 1 ? ", 1 MiB to go" : ""; }, std::chrono::milliseconds(1));
        while (asked < 2) std::this_thread::yield();
    }
    EXPECT_TRUE(out.str().starts_with("\r\033[Kflushing v\\x1b, 0 s, 1 MiB to go")) << out.str();
    EXPECT_TRUE(out.str().ends_with("\r\033[K"));
    const Progress none(nullptr, "x", nullptr);
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

TEST_F(CliTest, a_flush_that_takes_too_long_names_the_hosts_that_do_not_answer) {
    const PeerStatus self{.name = "a", .self = true};
    daemon_.with(
        [&](FakeDaemon& daemon) { daemon.node.peers = {self, {.name = "b", .connected = true, .answers = true}}; });
    ASSERT_EQ(run({"create", "vol1", "1MiB"}), Exit::ok);
    daemon_.flush_waits = true;
    EXPECT_EQ(run({"--timeout", "1", "flush", "vol1"}), Exit::timed_out);
    EXPECT_EQ(
        err_,
        "tarn: flush vol1: the daemon did not answer within 1 s; the outcome is unknown; try: --timeout SECONDS\n");
    daemon_.with([&](FakeDaemon& daemon) {
        daemon.node.peers = {self,
                             {.name = "b", .connected = true},
                             {.name = "c"},
                             {.name = "d", .forgotten = true},
                             {.name = "e", .connected = true, .answers = true}};
    });
    EXPECT_EQ(run({"--timeout", "1", "flush", "vol1"}), Exit::timed_out);
    EXPECT_EQ(err_,
              "tarn: flush vol1: the daemon did not answer within 1 s; the outcome is unknown; hosts that do not "
              "answer it: b, c; try: tarn status, or --timeout SECONDS\n");
    daemon_.flush_waits = false;
}

TEST_F(CliTest, a_missing_daemon_is_5_and_a_silent_one_6) {
    EXPECT_EQ(run_at(directory_ / "none", {"list"}), Exit::unreachable);
    EXPECT_NE(err_.find("; try: tarnd --config FILE --control " + directory_ / "none; or --control PATH\n"),
              std::string::npos)
        << err_;
    EXPECT_TRUE(err_.starts_with("tarn: list: no daemon at ")) << err_;
    const std::string silent_path = directory_ / "silent";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, silent_path.data(), silent_path.size());
    const UniqueFd silent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(silent.get(), 4), 0);
    EXPECT_EQ(run_at(silent_path, {"--timeout", "1", "list"}), Exit::timed_out);
    // One that says a little from time to time, and never ends, is no better.
    std::thread slow([&] {
        UniqueFd of_before(::accept(silent.get(), nullptr, nullptr));
        const UniqueFd client(::accept(silent.get(), nullptr, nullptr));
        pollfd hung_up{.fd = client.get(), .events = POLLRDHUP, .revents = 0};
        while (::send(client.get(), "H", 1, MSG_NOSIGNAL) == 1 && ::poll(&hung_up, 1, 100) == 0) continue;
    });
    EXPECT_EQ(run_at(silent_path, {"--timeout", "1", "list"}), Exit::timed_out);
    slow.join();
    EXPECT_EQ(run_at("/" + std::string(200, 'x'), {"list"}), Exit::usage);
    EXPECT_EQ(run_at(directory_ / "none", {"create", "v", "1XB"}), Exit::usage) << "whether or not there is a daemon";
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
    daemon_.with([](FakeDaemon& daemon) { daemon.node.facts["host"] = "a"; });
    EXPECT_EQ(run({"status"}), Exit::ok);
    EXPECT_NE(out_.find("this host alone"), std::string::npos);
    daemon_.with([](FakeDaemon& daemon) {
        daemon.node.peers = {{.name = "a", .address = "x:1", .self = true, .connected = true},
                             {.name = "b", .address = "y:1", .self = false, .connected = false}};
        daemon.node.facts["store_failure"] = "input/output error";
    });
    EXPECT_EQ(run({"status"}), Exit::ok);
    EXPECT_NE(out_.find("no failover"), std::string::npos);
    EXPECT_NE(out_.find("unreachable"), std::string::npos);
    EXPECT_NE(out_.find("FAILED"), std::string::npos);
    daemon_.with([](FakeDaemon& daemon) { daemon.node.facts["losses"] = Json::array({1}); });
    EXPECT_EQ(run({"status"}), Exit::failed);
    EXPECT_NE(err_.find("the daemon's answer is not understood"), std::string::npos) << err_;
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

}  // namespace
}  // namespace tarn
