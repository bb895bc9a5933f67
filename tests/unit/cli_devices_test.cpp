// tarn attach, attached and detach, and the table of devices that are kept attached.
#include <fstream>

#include "daemon/cli/verbs.hpp"
#include "tests/unit/cli_host.hpp"
#include "tests/unit/played_kernel.hpp"

namespace tarn {
namespace {

using CliDevices = CliHost;

TEST_F(CliDevices, devices_are_told) {
    EXPECT_EQ(run({"attach", "vol1"}), Exit::not_found);
    EXPECT_EQ(err_, "tarn: attach vol1: no such volume; try: tarn list\n");
    EXPECT_EQ(run({"create", "vol1", "1GiB"}), Exit::ok);
    EXPECT_EQ(run({"attach", "vol1", "--read-only", "--take-over"}), Exit::ok);
    daemon_.with([](FakeDaemon& daemon) { EXPECT_TRUE(daemon.attached_with.take_over); });
    EXPECT_EQ(out_, "/dev/nbd0\n") << "a link that is not there is not told";
    EXPECT_EQ(run({"attach", "vol1"}), Exit::busy);
    EXPECT_TRUE(err_.ends_with("; try: tarn attached, which names its device\n")) << err_;
    EXPECT_EQ(run({"attach", "vol1", "vol2"}), Exit::usage);
    EXPECT_EQ(err_.find("a size is one word"), std::string::npos) << err_;
    EXPECT_EQ(run({"attached"}), Exit::ok);
    EXPECT_EQ(out_, "DEVICE              SIZE  ACCESS      VOLUME\n/dev/nbd0          1 GiB  read-only   vol1\n");
    EXPECT_EQ(run({"attached", "--quiet"}), Exit::ok);
    EXPECT_EQ(out_, "vol1\n");
    daemon_.with([](FakeDaemon& daemon) { daemon.devices_are_mounted = true; });
    EXPECT_EQ(run({"detach", "vol1"}), Exit::busy);
    EXPECT_NE(err_.find("; try: umount it, end what has it open; --force"), std::string::npos) << err_;
    EXPECT_EQ(run({"detach", "vol1", "--force"}), Exit::ok);
    EXPECT_EQ(out_, "detached vol1\n");
    daemon_.with([](FakeDaemon& daemon) { daemon.keeper_answers = false; });
    EXPECT_EQ(run({"attach", "vol1"}), Exit::ok);
    EXPECT_NE(err_.find("tarn-keeper does not have the device yet: should tarnd be killed"), std::string::npos) << err_;
    EXPECT_EQ(run({"attached"}), Exit::ok);
    EXPECT_TRUE(out_.ends_with("  vol1  (tarn-keeper does not have it yet)\n")) << out_;
    EXPECT_EQ(run({"attach", "vol1", "--block-size", "1024"}), Exit::usage);
    EXPECT_EQ(run({"attach", "vol1", "--connections", "9"}), Exit::usage);
    EXPECT_EQ(run({"attach", "vol1", "--from", "/etc/tarn/attachtab", "--take-over"}), Exit::usage);
}

TEST_F(CliDevices, a_volume_is_attached_as_its_line_says_and_again_is_no_failure) {
    const std::string table = directory_ / "attachtab";
    std::ofstream(table) << "db read-only,block-size=512,connections=2\nodd what\ntwice\ntwice read-only\n";
    for (const char* const name : {"db", "odd", "other"}) run({"create", name, "1GiB"});
    EXPECT_EQ(run({"attach", "--from", table, "db"}), Exit::ok);
    EXPECT_EQ(out_, "/dev/nbd0\n");
    daemon_.with([](FakeDaemon& daemon) {
        EXPECT_TRUE(daemon.attached_with.read_only);
        EXPECT_EQ(daemon.attached_with.block_size_bytes, 512u);
        EXPECT_EQ(daemon.attached_with.connections, 2u);
        daemon.attached[0].device = "none";  // the kernel says nothing of its block size
    });
    EXPECT_EQ(run({"attach", "--from", table, "db"}), Exit::ok);
    EXPECT_EQ(out_, "/dev/none\n");
    daemon_.with([](FakeDaemon& daemon) { daemon.attached[0].read_only = false; });
    EXPECT_EQ(run({"attach", "--from", table, "db"}), Exit::usage);
    EXPECT_EQ(err_,
              "tarn: attach db: it is attached already as /dev/none with block-size=512,connections=2, and not with "
              "read-only,block-size=512,connections=2; try: tarn detach db\n");
    EXPECT_EQ(run({"attach", "--from", table, "odd"}), Exit::usage);
    EXPECT_EQ(err_, "tarn: attach odd: " + table + ":2: unknown option \"what\"; try: man attachtab\n");
    EXPECT_EQ(run({"attach", "--from", table, "twice"}), Exit::usage);
    EXPECT_EQ(err_, "tarn: attach twice: " + table + ":4: line 3 is about the same volume; try: man attachtab\n");
    EXPECT_EQ(run({"attach", "--from", table, "other"}), Exit::not_found);
    EXPECT_EQ(err_, "tarn: attach other: " + table + " has no line for it; try: man attachtab\n");
    EXPECT_EQ(run({"attach", "--from", directory_ / "none", "db"}), Exit::not_found);
    EXPECT_EQ(run({"attach", "--from", table, "db", "--read-only"}), Exit::usage);
}

TEST_F(CliDevices, a_device_that_is_not_there_is_detached_already_for_who_says_so) {
    EXPECT_EQ(run({"detach", "db"}), Exit::not_found);
    EXPECT_EQ(run({"detach", "--if-attached", "db"}), Exit::ok);
    EXPECT_EQ(out_, "");
    run({"create", "db", "1GiB"});
    run({"attach", "db"});
    daemon_.with([](FakeDaemon& daemon) { daemon.devices_are_mounted = true; });
    EXPECT_EQ(run({"detach", "--if-attached", "db"}), Exit::busy);
    daemon_.with([](FakeDaemon& daemon) { daemon.devices_are_mounted = false; });
    EXPECT_EQ(run({"detach", "--if-attached", "db"}), Exit::ok);
    EXPECT_EQ(out_, "detached db\n");
}

// To unmount it would write back, and wait.
TEST_F(CliDevices, who_would_detach_a_mounted_device_that_nobody_serves_is_not_told_to_unmount_it) {
    PlayedKernel kernel;
    EXPECT_TRUE(kernel.connect(0, {.backend = backend_of("db")}, {}));
    kernel.set("sys/block/nbd0/dev", "43:0");
    kernel.set("proc/self/mountinfo", "80 20 43:0 / /srv rw - ext4 /dev/tarn/by-name/db rw");
    Options options;
    options.control = path_;
    options.name = "db";
    const auto hint = [&] { return detach_from(kernel, kernel.devices(), options).failures.at(0).hint; };
    EXPECT_TRUE(hint().starts_with("tarn detach --force nbd0, if no other tarnd")) << hint();
    run({"create", "db", "1GiB"});
    run({"attach", "db"});
    EXPECT_TRUE(hint().starts_with("umount /srv")) << hint();
}

}  // namespace
}  // namespace tarn
