// Exclusive volumes on three hosts: which one holds them, how they are given back, and taken over.
#include "tests/cluster/catalog_on_hosts.hpp"

namespace tarn::three_hosts {
namespace {

class CatalogHolds : public CatalogTest {
  protected:
    void set_end_clients(HostId host, Catalog::EndClients end_clients) {
        on(host, [](Catalog& catalog, Catalog::EndClients set) -> Task<bool> {
            catalog.set_end_clients(std::move(set));
            co_return true;
        }(catalog(host), std::move(end_clients)));
    }
    static Task<bool> called(Catalog& catalog, void (Catalog::*function)(VolumeId), VolumeId volume) {
        (catalog.*function)(volume);
        co_return true;
    }
    // Once this host knows that the other one does not answer.
    static Task<Result<>> silent_take_over(Host& host, Catalog& catalog, HostId silent) {
        while (host.fabric->answers(silent)) co_await Yield(*Loop::current());
        co_return co_await catalog.take_over("disk");
    }
};

TEST_F(CatalogHolds, an_exclusive_volume_is_held_by_one_host) {
    ASSERT_TRUE(create(1, "disk", false));
    auto first = open(1, "disk");
    auto second = open(1, "disk");
    ASSERT_TRUE(first && second);
    for (const HostId host : {registrar, HostId{2}}) {
        const auto refused = open(host, "disk");
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Errc::busy);
        EXPECT_STREQ(refused.error().where, "host b has the volume open for writing");
        EXPECT_TRUE(open(host, "disk", Access::read)) << "who reads holds nothing";
    }
    close(1, take(first));
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy) << "the other handle holds it still";
    close(1, take(second));
    auto third = open(2, "disk");
    ASSERT_TRUE(third);
    close(2, take(third));
}

TEST_F(CatalogHolds, who_gives_up_waiting_for_a_hold_does_not_keep_it) {
    ASSERT_TRUE(create(1, "disk", false));
    ASSERT_TRUE(on(1, catalog(1).find("disk")));
    {
        const Stopped stopped(*hosts_[registrar]);
        const auto asks_once = [asked = false]() mutable { return !std::exchange(asked, true); };
        EXPECT_FALSE(on(1, as_long_as(asks_once, catalog(1).open("disk", Access::write))));
    }
    on(1, settled(catalog(1)));
    auto volume = open(2, "disk");
    ASSERT_TRUE(volume) << volume.error().where;
    close(2, take(volume));
}

TEST_F(CatalogHolds, a_registrar_that_was_away_hears_of_what_was_closed_meanwhile) {
    ASSERT_TRUE(create(1, "disk", false));
    auto volume = open(1, "disk");
    ASSERT_TRUE(volume);
    stop(registrar);
    on(1, drop(take(volume)));
    hosts_[registrar]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    on(1, heard_of(*hosts_[1], registrar));
    on(1, settled(catalog(1)));
    auto next = open(2, "disk");
    ASSERT_TRUE(next) << next.error().where;
    close(2, take(next));
}

TEST_F(CatalogHolds, who_stops_tells_a_registrar_that_is_away_once_more) {
    ASSERT_TRUE(create(1, "disk", false));
    auto volume = open(1, "disk");
    ASSERT_TRUE(volume);
    stop(registrar);
    close(1, take(volume));  // it does not wait for ever
    hosts_[registrar]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    on(2, heard_of(*hosts_[2], registrar));
    EXPECT_FALSE(open(2, "disk")) << "until the process of its holder ends";
    EXPECT_EQ(on(2, catalog(2).find("disk"))->holder, "b");
    stop(1);
    hosts_[1]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    EXPECT_EQ(on(2, catalog(2).find("disk"))->holder, "");
    auto next = open(2, "disk");
    ASSERT_TRUE(next) << next.error().where;
    close(2, take(next));
}

TEST_F(CatalogHolds, an_exclusive_volume_is_taken_over_once_its_holder_has_let_go_of_it) {
    const auto made = create(1, "disk", false);
    ASSERT_TRUE(made);
    auto held = open(1, "disk");
    ASSERT_TRUE(held);
    const auto asked = std::make_shared<std::atomic<VolumeId>>(0);
    set_end_clients(1, [asked](VolumeId) -> Task<Result<>> { co_return fail(Errc::io); });
    EXPECT_EQ(on(2, catalog(2).take_over("disk")).error().code, Errc::io);
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy);
    std::shared_ptr<Volume> volume = take(held);
    set_end_clients(1, [asked, &volume](VolumeId id) -> Task<Result<>> {
        *asked = id;
        volume.reset();
        co_return Result<>{};
    });
    ASSERT_TRUE(on(2, catalog(2).take_over("disk")));
    EXPECT_EQ(*asked, made->id);
    auto taken = open(2, "disk");
    ASSERT_TRUE(taken);
    *asked = 0;
    EXPECT_TRUE(on(2, catalog(2).take_over("disk"))) << "it is its own";
    close(2, take(taken));
    EXPECT_TRUE(on(2, catalog(2).take_over("disk"))) << "nobody has it";
    EXPECT_EQ(on(2, catalog(2).take_over("none")).error().code, Errc::not_found);
    EXPECT_EQ(*asked, 0u);
}

TEST_F(CatalogHolds, a_volume_that_stays_open_at_its_holder_is_not_taken_over) {
    ASSERT_TRUE(create(1, "disk", false));
    auto held = open(1, "disk");
    ASSERT_TRUE(held);
    EXPECT_EQ(on(2, catalog(2).take_over("disk")).error().code, Errc::unavailable)
        << "its front ends are not there yet";
    set_end_clients(1, [](VolumeId) -> Task<Result<>> { co_return Result<>{}; });
    const auto refused = on(2, catalog(2).take_over("disk"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::busy);
    EXPECT_NE(std::string_view(refused.error().where).find("host b"), std::string_view::npos);
    close(1, take(held));
    auto taken = open(2, "disk");
    ASSERT_TRUE(taken);
    close(2, take(taken));
}

TEST_F(CatalogHolds, nothing_is_taken_over_from_a_host_that_may_be_alive) {
    ASSERT_TRUE(create(1, "disk", false));
    auto held = open(1, "disk");
    ASSERT_TRUE(held);
    {
        const Stopped stopped(*hosts_[1]);
        const auto refused = on(2, silent_take_over(*hosts_[2], catalog(2), 1));
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Errc::unavailable);
        EXPECT_NE(
            std::string_view(refused.error().where).find("host b has the volume open for writing and does not answer"),
            std::string_view::npos);
    }
    EXPECT_EQ(on(2, hosts_[2]->fabric->call(1, CallKind::give_up, "")).error().code, Errc::protocol);
    close(1, take(held));
}

TEST_F(CatalogHolds, what_a_device_has_stays_held_while_its_host_is_away_and_goes_on_or_is_given_back) {
    const auto made = create(1, "disk", false);
    ASSERT_TRUE(made);
    auto opened = open(1, "disk");
    SessionRecord record{};
    auto device = on(1, catalog(1).open_recorded("disk", Access::write, record, false));
    ASSERT_TRUE(opened && device);
    on(1, called(catalog(1), &Catalog::keep_held, made->id));
    close(1, take(opened));
    close(1, take(device));
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy) << "the next process goes on";
    const auto restart = [&] {
        stop(1);
        hosts_[1]->start();
        for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
        on(2, heard_of(*hosts_[2], 1));
    };
    restart();
    EXPECT_EQ(on(2, catalog(2).find("disk"))->holder, "b");
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy);
    on(1, called(catalog(1), &Catalog::keep_held, made->id));
    on(1, catalog(1).release_left_holds());
    on(1, settled(catalog(1)));
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy) << "its device is there";
    device = on(1, catalog(1).open_recorded("disk", Access::write, record, true));
    ASSERT_TRUE(device);
    on(1, catalog(1).release_left_holds());
    on(1, called(catalog(1), &Catalog::let_go, made->id));
    on(1, settled(catalog(1)));
    EXPECT_EQ(open(2, "disk").error().code, Errc::busy) << "it is open";
    on(1, called(catalog(1), &Catalog::keep_held, made->id));
    close(1, take(device));
    restart();
    on(1, catalog(1).release_left_holds());
    on(1, settled(catalog(1)));
    auto other = open(2, "disk");
    ASSERT_TRUE(other) << "its device is gone: " << other.error().where;
    close(2, take(other));
    EXPECT_EQ(on(1, catalog(1).open_recorded("disk", Access::write, record, true)).error().code, Errc::busy);
}

TEST_F(CatalogHolds, what_was_held_for_a_device_that_is_gone_is_taken_over) {
    const auto made = create(1, "disk", false);
    ASSERT_TRUE(made);
    SessionRecord record{};
    auto device = on(1, catalog(1).open_recorded("disk", Access::write, record, false));
    ASSERT_TRUE(device);
    on(1, called(catalog(1), &Catalog::keep_held, made->id));
    close(1, take(device));
    stop(1);
    hosts_[1]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    on(2, heard_of(*hosts_[2], 1));
    set_end_clients(1, [](VolumeId) -> Task<Result<>> { co_return Result<>{}; });
    ASSERT_TRUE(on(2, catalog(2).take_over("disk")));
    auto taken = open(2, "disk");
    ASSERT_TRUE(taken) << taken.error().where;
    close(2, take(taken));
}

}  // namespace
}  // namespace tarn::three_hosts
