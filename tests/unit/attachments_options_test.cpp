// What is asked for a block device is what it gets, and keeps over processes.
#include "tests/unit/attachments_fixture.hpp"

namespace tarn {
namespace {

using nbd::Bytes;
using nbd::Command;
using nbd::Errno;

TEST_F(AttachmentsTest, blocks_are_as_large_as_was_asked_for) {
    run([this](Host& host) -> Task<> {
        AttachOptions small = options();
        small.block_size_bytes = 512;
        EXPECT_TRUE(co_await host.attachments.attach(small, root));
        EXPECT_EQ(kernel_.told().block_size_bytes, 512u);
    });
}

TEST_F(AttachmentsTest, a_read_only_device_stays_one_over_a_restart) {
    const auto refuses_writes = [this](Host& host) -> Task<> {
        EXPECT_EQ(host.attachments.list().size(), 1u);
        for (const Attachment& each : host.attachments.list()) EXPECT_TRUE(each.read_only);
        co_await ask(host, kernel_.socket(0, 0), Bytes().request(Command::write, 5, 0, 4096).fill(4096, std::byte{9}));
        EXPECT_EQ(co_await answer(host, kernel_.socket(0, 0), 5), Errno::not_permitted);
    };
    run([&](Host& host) -> Task<> {
        AttachOptions asked = options();
        asked.read_only = true;
        EXPECT_TRUE(co_await host.attachments.attach(asked, root));
        EXPECT_NE(kernel_.told().flags & nbd::transmission_read_only, 0);
        co_await refuses_writes(host);
    });
    run(refuses_writes);
}

TEST_F(AttachmentsTest, a_volume_that_is_smaller_than_a_block_becomes_no_device) {
    volumes_.add("tiny", 512, false);
    run([this](Host& host) -> Task<> {
        const auto attached = co_await host.attachments.attach({.volume = "tiny", .connections = 1}, root);
        EXPECT_FALSE(attached);
        EXPECT_EQ(attached.error().code, Errc::invalid);
        EXPECT_EQ(kernel_.device_count(), 0u);
        EXPECT_TRUE(host.attachments.list().empty());
        const AttachOptions in_small_blocks{.volume = "tiny", .block_size_bytes = 512, .connections = 1};
        EXPECT_TRUE(co_await host.attachments.attach(in_small_blocks, root));
    });
}

TEST_F(AttachmentsTest, who_attaches_again_is_told_that_it_is_attached_here) {
    run([](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        const auto again = co_await host.attachments.attach(options(), root);
        EXPECT_FALSE(again);
        EXPECT_TRUE(std::string_view(again.error().where).contains("attached here already")) << again.error().where;
    });
}

TEST_F(AttachmentsTest, a_volume_is_taken_from_its_holder_if_so_asked_and_if_a_device_can_be_made) {
    run([this](Host& host) -> Task<> {
        AttachOptions asked = options();
        EXPECT_TRUE(co_await host.attachments.attach(asked, root));
        EXPECT_EQ(volumes_.taken_over, 0u);
        EXPECT_TRUE(co_await host.attachments.detach("db", false, root));
        asked.take_over = true;
        EXPECT_TRUE(co_await host.attachments.attach(asked, root));
        EXPECT_EQ(volumes_.taken_over, 1u);
        EXPECT_TRUE(co_await host.attachments.detach("db", false, root));
        kernel_.before = [](const std::string& call) -> Result<> {
            if (call == "is_there") return fail(Errc::unsupported, ENOENT, "played: no driver");
            return {};
        };
        EXPECT_FALSE(co_await host.attachments.attach(asked, root));
        EXPECT_EQ(volumes_.taken_over, 1u);
    });
}

}  // namespace
}  // namespace tarn
