// Who changes a volume's size tells all hosts.
#include "daemon/attachments/size_notices.hpp"

#include <atomic>
#include <optional>

#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

struct Notices final : Host::OnTop {
    explicit Notices(Host& host) : notices(*host.loop, *host.fabric, host.cache->self(), others(host.cache->self())) {}
    static std::vector<HostId> others(HostId self) {
        std::vector<HostId> hosts;
        for (HostId host = 0; host < host_count; ++host)
            if (host != self) hosts.push_back(host);
        return hosts;
    }
    Task<> end() override { co_return; }
    void follow_with(Result<> result) {
        notices.set_follow([this, result](VolumeId volume) -> Task<Result<>> {
            TARN_ASSERT(Loop::current());
            followed = volume;
            co_return result;
        });
    }
    SizeNotices notices;
    std::atomic<VolumeId> followed = 0;
};

class SizeNoticesTest : public Cluster {
  protected:
    void SetUp() override {
        Cluster::SetUp();
        for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    }
    void prepare(Host& host) override {
        host.make_on_top = [](Host& made) { return std::make_unique<Notices>(made); };
    }
    Notices& top(HostId host) { return static_cast<Notices&>(*hosts_[host]->on_top); }
    void follow(HostId host, Result<> result) {
        on(host, [](Notices& notices, Result<> with) -> Task<bool> {
            notices.follow_with(with);
            co_return true;
        }(top(host), result));
    }
    Errc said_to(const std::string& request) {
        const Result<std::string> said = on(0, hosts_[0]->fabric->call(1, CallKind::resized, request));
        return said ? Errc{} : said.error().code;
    }
};

TEST_F(SizeNoticesTest, all_hosts_follow_before_it_is_over) {
    for (HostId host = 0; host < host_count; ++host) follow(host, {});
    EXPECT_EQ(on(1, top(1).notices.tell(volume_id)), std::vector<HostId>{});
    for (HostId host = 0; host < host_count; ++host) EXPECT_EQ(top(host).followed, volume_id);
}

TEST_F(SizeNoticesTest, who_cannot_follow_is_named) {
    follow(1, fail(Errc::io));
    follow(2, fail(Errc::io));
    EXPECT_EQ(on(1, top(1).notices.tell(volume_id)), (std::vector<HostId>{2, 1}));
    EXPECT_EQ(on(0, top(0).notices.tell(volume_id)), (std::vector<HostId>{1, 2}));
}

TEST_F(SizeNoticesTest, what_names_no_volume_is_refused) {
    follow(1, {});
    EXPECT_EQ(said_to(""), Errc::protocol);
    EXPECT_EQ(said_to(pack(VolumeId{0})), Errc::protocol);
    EXPECT_EQ(said_to(pack(VolumeId{volume_id_max + 1})), Errc::protocol);
    EXPECT_EQ(top(1).followed, 0u);
}

}  // namespace
}  // namespace tarn::three_hosts
