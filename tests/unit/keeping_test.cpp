// A tarn-keeper on a thread, and who asks it: what it gives to whom, and what it does to what it no longer keeps.
#include "daemon/keeper/keeping.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/keeper/keeper.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/other_user.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {
namespace {

struct Sockets {
    UniqueFd ours;
    UniqueFd kept;
};

class Keeping : public testing::Test {
  protected:
    Keeping() : thread_([this] { keeper::keep_for(listening_.get()); }) {
        // With the memory of a tarnd it does not end with the last device.
        EXPECT_TRUE(keeper_.keep(Keeper::memory_name, null_.get()));
    }
    ~Keeping() override {
        for (const std::string& name : kept_names()) keeper_.drop(name);
        thread_.join();
    }
    std::vector<std::string> kept_names() const {
        PassedDescriptors none;
        std::vector<std::string> names;
        Result<std::vector<Keeper::Kept>> kept = Keeper(path_).take(none);
        EXPECT_TRUE(kept);
        if (!kept) return names;
        for (const Keeper::Kept& each : *kept) names.push_back(each.name);
        return names;
    }
    // One of a device's, of which the keeper has the other end.
    Sockets keep_socket(const std::string& name) const {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        Sockets sockets{.ours = UniqueFd(ends[0]), .kept = UniqueFd(ends[1])};
        EXPECT_TRUE(keeper_.keep(name, sockets.kept.get()));
        return sockets;
    }
    static bool is_shut_down(const Sockets& sockets) {
        std::byte byte;
        const ssize_t size = ::recv(sockets.ours.get(), &byte, 1, MSG_DONTWAIT);
        EXPECT_TRUE(size == 0 || errno == EAGAIN);
        return size == 0;
    }
    static UniqueFd connected_to(const std::string& path) {
        const sockaddr_un address = *unix_address(path);
        UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return client;
    }

    ScratchDirectory directory_;
    const std::string path_ = directory_ / "keeper";
    const UniqueFd listening_ = std::move(*listen_unix(path_, 0600));
    const UniqueFd null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    const Keeper keeper_{path_};
    std::thread thread_;
};

// The keeper did not answer in time, and the name may mean a newer device when it does.
TEST_F(Keeping, a_cut_of_who_has_given_up_is_not_made) {
    const Sockets sockets = keep_socket("nbd1.0");
    const UniqueFd watch = *keeper_.watch();
    EXPECT_EQ(keeper::hear(watch.get())->word, keeper::Word::done);
    {
        const UniqueFd silent = connected_to(path_);  // whom it waits for, and not for the next one
        const UniqueFd client = connected_to(path_);
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::cut, "nbd1"));
    }
    EXPECT_TRUE(keeper_.has("nbd1.0").value_or(false));
    EXPECT_FALSE(is_shut_down(sockets));
    char byte = 0;
    EXPECT_EQ(::recv(watch.get(), &byte, 1, MSG_DONTWAIT), -1);
}

// A kernel that has the other end must hear of it, although others have the socket, too.
TEST_F(Keeping, the_sockets_of_what_is_cut_are_shut_down_and_those_of_others_are_not) {
    const Sockets first = keep_socket("nbd1.0");
    const Sockets second = keep_socket("nbd1.1");
    const Sockets other = keep_socket("nbd10.0");
    EXPECT_TRUE(keeper_.keep("nbd1", null_.get()));
    EXPECT_TRUE(keeper_.cut("nbd1"));
    EXPECT_TRUE(is_shut_down(first));
    EXPECT_TRUE(is_shut_down(second));
    EXPECT_FALSE(is_shut_down(other));
    EXPECT_EQ(kept_names(), (std::vector<std::string>{Keeper::memory_name, "nbd10.0"}));
}

// Who drops it serves it on.
TEST_F(Keeping, the_sockets_of_what_is_dropped_are_not_shut_down) {
    const Sockets sockets = keep_socket("nbd1.0");
    EXPECT_TRUE(keeper_.keep("nbd1", null_.get()));
    keeper_.drop("nbd1");
    EXPECT_FALSE(is_shut_down(sockets));
    EXPECT_EQ(kept_names(), std::vector<std::string>{Keeper::memory_name});
}

TEST_F(Keeping, a_successor_hears_of_no_device_where_there_is_none) {
    EXPECT_EQ(kept_names(), std::vector<std::string>{Keeper::memory_name});
    EXPECT_FALSE(keeper_.has("nbd0").value_or(true));
    EXPECT_TRUE(keeper_.has(Keeper::memory_name).value_or(false));
}

TEST_F(Keeping, who_says_nothing_keeps_nobody_else_waiting) {
    const UniqueFd silent = connected_to(path_);
    const UniqueFd half = connected_to(path_);
    EXPECT_EQ(::send(half.get(), "h", 1, MSG_NOSIGNAL), 1);
    EXPECT_TRUE(keeper_.has(Keeper::memory_name).value_or(false));
}

// It would take what it has heard of for all that there is, and leave the other devices to nobody.
TEST_F(Keeping, who_did_not_hear_of_all_is_not_told_that_it_has) {
    constexpr int device_count = 350;  // more than a socket usually holds
    for (int i = 0; i < device_count; ++i) ASSERT_TRUE(keeper_.keep("nbd" + std::to_string(i), null_.get()));
    const UniqueFd client = connected_to(path_);
    ASSERT_TRUE(keeper::say(client.get(), keeper::Word::take));
    pollfd hung_up{.fd = client.get(), .events = POLLRDHUP, .revents = 0};
    EXPECT_EQ(::poll(&hung_up, 1, 10'000), 1) << "it goes on after one that was not heard of";
    int heard = 0;
    Result<keeper::Said> said = keeper::hear(client.get());
    for (; said && said->word == keeper::Word::done; said = keeper::hear(client.get())) ++heard;
    EXPECT_EQ(said.has_value(), heard == device_count + 1) << heard;
}

TEST_F(Keeping, another_user_is_given_nothing) {
    if (!can_be_another_user()) GTEST_SKIP() << "only root can be another user";
    ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
    // The directory is not for others.
    const UniqueFd place(::open(path_.c_str(), O_PATH | O_CLOEXEC));
    as_another_user([&] {
        const UniqueFd client = connected_to("/proc/self/fd/" + std::to_string(place.get()));
        (void)keeper::say(client.get(), keeper::Word::take);  // it may have hung up already
        const Result<keeper::Said> said = keeper::hear(client.get());
        EXPECT_FALSE(said);
    });
}

TEST_F(Keeping, a_drop_is_no_cut_for_who_watches) {
    const UniqueFd watch = *keeper_.watch();
    EXPECT_EQ(keeper::hear(watch.get())->word, keeper::Word::done);
    const Sockets sockets = keep_socket("nbd1.0");
    keeper_.drop("nbd1");
    char byte = 0;
    EXPECT_EQ(::recv(watch.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_TRUE(keeper_.cut("nbd1"));
    EXPECT_EQ(keeper::hear(watch.get())->word, keeper::Word::cut);
}

TEST_F(Keeping, what_comes_without_a_descriptor_replaces_nothing) {
    const Sockets sockets = keep_socket("nbd1.0");
    const UniqueFd client = connected_to(path_);
    EXPECT_TRUE(keeper::say(client.get(), keeper::Word::keep, "nbd1.0"));
    EXPECT_FALSE(keeper::hear(client.get()));
    PassedDescriptors none;
    const auto kept = Keeper(path_).take(none);
    EXPECT_TRUE(kept) << "a name without a descriptor";
}

}  // namespace
}  // namespace tarn
