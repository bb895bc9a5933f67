// The catalogs of three hosts in one process: volumes made, opened and removed by the registrar and by the others.
#include "daemon/catalog/catalog.hpp"

#include "tests/cluster/catalog_on_hosts.hpp"

namespace tarn::three_hosts {
namespace {

TEST_F(CatalogTest, every_host_makes_and_removes_volumes_for_all) {
    for (HostId maker = 0; maker < host_count; ++maker) {
        const std::string name = "of-" + std::to_string(maker);
        ASSERT_TRUE(create(maker, name));
        for (HostId host = 0; host < host_count; ++host) {
            const auto found = on(host, catalog(host).find(name));
            ASSERT_TRUE(found);
            EXPECT_EQ(found->attributes.size_bytes, page_size);
            EXPECT_TRUE(found->shared);
            EXPECT_EQ(names(host), std::vector<std::string>{name});
            EXPECT_EQ(on(host, catalog(host).list())->size(), 1u);
        }
        const HostId remover = (maker + 1) % host_count;
        ASSERT_TRUE(on(remover, catalog(remover).remove(name, false)));
        for (HostId host = 0; host < host_count; ++host) {
            EXPECT_TRUE(names(host).empty());
            EXPECT_EQ(on(host, catalog(host).find(name)).error().code, Errc::not_found);
            EXPECT_EQ(open(host, name).error().code, Errc::not_found);
            EXPECT_EQ(on(host, catalog(host).remove(name, false)).error().code, Errc::not_found);
        }
    }
}

TEST_F(CatalogTest, a_name_is_given_once) {
    ASSERT_TRUE(create(1, "dir/file"));
    for (HostId host = 0; host < host_count; ++host) {
        for (const char* const name : {"dir/file", "dir", "dir/file/part"})
            EXPECT_EQ(create(host, name).error().code, Errc::exists) << name;
        EXPECT_EQ(create(host, "dir//file").error().code, Errc::invalid);
    }
    EXPECT_TRUE(create(2, "dir/other"));
    EXPECT_EQ(names(1), (std::vector<std::string>{"dir/file", "dir/other"}));
}

TEST_F(CatalogTest, of_hosts_that_make_a_name_at_once_one_does) {
    for (int round = 0; round < 5; ++round) {
        std::vector<Result<VolumeEntry>> results(host_count);
        driver_->run_until_done(all_create("round-" + std::to_string(round), results));
        EXPECT_EQ(std::ranges::count_if(results, [](const auto& result) { return result.has_value(); }), 1);
        for (const Result<VolumeEntry>& result : results)
            if (!result) EXPECT_EQ(result.error().code, Errc::exists);
        EXPECT_EQ(names(1).size(), static_cast<size_t>(round) + 1);
    }
}

TEST_F(CatalogTest, a_handle_waits_no_longer_than_its_volume_says_from_its_first_request_on) {
    constexpr HostId away = 2;
    constexpr uint64_t per_range = uint64_t{1} << 26;
    const auto made = on(1, catalog(1).create("file", true, {.size_bytes = 64 * per_range, .fail_after_ms = 100}));
    ASSERT_TRUE(made);
    uint64_t at = per_range;
    while (hosts_[0]->cache->home_of(PageId::of(made->id, at / page_size)) != away) at += per_range;
    if (hosts_[0]->cache->home_of(attribute_page_of(made->id)) == away) GTEST_SKIP() << "the size is homed there";
    ASSERT_TRUE(on(1, catalog(1).find("file")));
    const Stopped stopped(*hosts_[away]);
    auto volume = open(1, "file");
    ASSERT_TRUE(volume);
    const auto has_time = [asked = 0]() mutable { return ++asked < 100; };
    const auto cut = on(1, as_long_as(has_time, (*volume)->change_attributes({.size_bytes = at})));
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, Errc::unavailable) << "nobody waits any more";
    on(1, drop(take(volume)));
}

TEST_F(CatalogTest, volumes_are_made_while_a_host_is_away_that_left_in_order) {
    ASSERT_TRUE(on(2, evict_all(*hosts_[2])));
    stop(2);
    std::vector<std::string> made;
    for (HostId i = 0; i < host_count; ++i) {
        made.push_back(fmt::format("made {}", i));
        const auto volume = create(1, made.back());
        ASSERT_TRUE(volume) << made.back();
        EXPECT_NE(hosts_[0]->cache->home_of(attribute_page_of(volume->id)), 2);
    }
    EXPECT_EQ(names(1), made);
}

TEST_F(CatalogTest, without_the_registrar_nothing_changes) {
    ASSERT_TRUE(create(1, "disk"));
    EXPECT_EQ(names(1), std::vector<std::string>{"disk"});
    stop(registrar);
    const auto made = create(1, "another");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Errc::unavailable);
    EXPECT_STREQ(made.error().where, "host a, the registrar, is away");
    EXPECT_EQ(on(1, catalog(1).remove("disk", true)).error().code, Errc::unavailable);
    EXPECT_EQ(names(1), std::vector<std::string>{"disk"}) << "what was read is known";
    hosts_[registrar]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    EXPECT_TRUE(create(1, "another"));
    EXPECT_EQ(names(2), (std::vector<std::string>{"another", "disk"}));
}

TEST_F(CatalogTest, who_changes_something_does_not_wait_for_a_registrar_that_hangs) {
    {
        const Stopped stopped(*hosts_[registrar]);
        const auto made = create(1, "disk");
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, Errc::unavailable);
        EXPECT_TRUE(std::string_view(made.error().where).starts_with("host a, the registrar, ")) << made.error().where;
    }
    on(2, heard_of(*hosts_[2], registrar));
    ASSERT_TRUE(create(2, "another"));
    EXPECT_LE(names(2).size(), 2u) << "it may have been made after all, once";
}

TEST_F(CatalogTest, a_volume_that_is_open_elsewhere_goes_when_it_is_closed) {
    ASSERT_TRUE(create(0, "disk"));
    auto volume = open(2, "disk");
    ASSERT_TRUE(volume && on(2, fill(*volume)));
    const VolumeId id = (*volume)->id();
    EXPECT_TRUE(stores(id));
    const auto removal = on(1, catalog(1).remove("disk", false));
    ASSERT_TRUE(removal);
    EXPECT_TRUE(removal->users.empty());
    EXPECT_TRUE(names(0).empty());
    const Deletion deletion = on(registrar, waiting_for(catalog(registrar), {"c"}));
    EXPECT_EQ(deletion.name, "disk");
    EXPECT_TRUE(deletion.silent_hosts.empty());
    EXPECT_TRUE(create(1, "disk")) << "its name is free at once";
    EXPECT_TRUE(on(2, fill(*volume))) << "who has it goes on";
    close(2, take(volume));
    on(registrar, removals_ended(catalog(registrar)));
    EXPECT_TRUE(on(registrar, catalog(registrar).deletions()).empty());
    EXPECT_FALSE(stores(id));
    EXPECT_EQ(names(2), std::vector<std::string>{"disk"});
}

TEST_F(CatalogTest, a_removal_goes_on_after_a_restart_of_the_registrar) {
    ASSERT_TRUE(create(1, "disk"));
    auto volume = open(2, "disk");
    ASSERT_TRUE(volume && on(2, fill(*volume)));
    const VolumeId id = (*volume)->id();
    ASSERT_TRUE(on(registrar, catalog(registrar).remove("disk", false)));
    (void)on(registrar, waiting_for(catalog(registrar), {"c"}));
    stop(registrar);
    hosts_[registrar]->start();
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    EXPECT_TRUE(names(registrar).empty());
    on(registrar, cleaned_up(catalog(registrar)));
    (void)on(registrar, waiting_for(catalog(registrar), {"c"}));
    close(2, take(volume));
    on(registrar, removals_ended(catalog(registrar)));
    EXPECT_TRUE(on(registrar, catalog(registrar).deletions()).empty());
    EXPECT_FALSE(stores(id));
}

// Requests of another host, one after the other, until the registrar is gone.
Task<> ask_on(Host& from, std::atomic<unsigned>& answered) {
    for (;;) {
        const auto answer =
            co_await from.fabric->call(registrar, CallKind::change, hold_request("disk", {.epoch = 1, .count = 1}));
        if (!answer && (answer.error().code == Errc::unavailable || answer.error().code == Errc::cancelled)) break;
        ++answered;
        answered.notify_all();
    }
}
Task<> ask_many(Loop& here, Host& from, std::atomic<unsigned>& answered) {
    Gate gate;
    for (int i = 0; i < 8; ++i) gate.spawn(run_on(here, *from.loop, ask_on(from, answered)));
    co_await gate.close();
}

TEST_F(CatalogTest, the_registrar_stops_while_others_ask_it) {
    ASSERT_TRUE(create(1, "disk"));
    for (unsigned round = 0; round < 10; ++round) {
        std::atomic<unsigned> answered{0};
        std::thread stopping([&] {
            for (unsigned seen = answered; seen < 100; seen = answered) answered.wait(seen);
            hosts_[registrar]->stop();
        });
        driver_->run_until_done(ask_many(*driver_, *hosts_[1], answered));
        stopping.join();
        hosts_[registrar]->start();
        for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    }
    EXPECT_EQ(names(2), std::vector<std::string>{"disk"});
}

TEST_F(CatalogTest, what_a_host_stores_of_a_volume_that_is_being_made_stays) {
    constexpr VolumeId next = 1000;
    ASSERT_TRUE(on(2, fill(std::make_shared<CachedVolume>(*hosts_[2]->volumes, next))));
    ASSERT_TRUE(stores(next));
    for (HostId host = 0; host < host_count; ++host) on(host, cleaned_up(catalog(host)));
    EXPECT_TRUE(stores(next));
}

TEST_F(CatalogTest, what_has_a_name_or_is_open_stays_when_a_host_cleans_up) {
    ASSERT_TRUE(create(1, "disk"));
    auto volume = open(2, "disk");
    ASSERT_TRUE(volume && on(2, fill(*volume)));
    const VolumeId id = (*volume)->id();
    ASSERT_TRUE(stores(id));
    for (HostId host = 0; host < host_count; ++host) on(host, cleaned_up(catalog(host)));
    EXPECT_TRUE(stores(id)) << "it has a name";
    ASSERT_TRUE(on(registrar, catalog(registrar).remove("disk", false)));
    (void)on(registrar, waiting_for(catalog(registrar), {"c"}));
    for (HostId host = 1; host < host_count; ++host) on(host, cleaned_up(catalog(host)));
    EXPECT_TRUE(stores(id)) << "it is open";
    close(2, take(volume));
    on(registrar, removals_ended(catalog(registrar)));
}

TEST_F(CatalogTest, clients_of_any_host_keep_a_volume_unless_it_is_forced) {
    ASSERT_TRUE(create(1, "disk"));
    top(0).clients.set_users({"192.0.2.9:1"});
    top(2).clients.set_users({"192.0.2.9:2"});
    const auto kept = on(1, catalog(1).remove("disk", false));
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->users, (std::vector<std::string>{"192.0.2.9:1 (host a)", "192.0.2.9:2 (host c)"}));
    EXPECT_EQ(names(0), std::vector<std::string>{"disk"});
    const auto removed = on(1, catalog(1).remove("disk", true));
    ASSERT_TRUE(removed);
    EXPECT_TRUE(removed->users.empty());
    on(registrar, removals_ended(catalog(registrar)));
    EXPECT_TRUE(top(0).clients.users().empty() && top(2).clients.users().empty());
    EXPECT_TRUE(names(0).empty());
}

TEST_F(CatalogTest, what_a_host_that_has_gone_was_to_store_is_not_durable) {
    const auto made = on(1, catalog(1).create("file", true, {.size_bytes = uint64_t{1} << 32}));
    ASSERT_TRUE(made);
    uint64_t page = 0;
    while (hosts_[0]->cache->home_of(PageId::of(made->id, page)) != 2)
        page += hosts_[0]->cache->membership().ranges().pages_per_range();
    auto volume = open(1, "file");
    ASSERT_TRUE(volume);
    ASSERT_TRUE(on(1, (*volume)->write(page * page_size, std::vector<std::byte>(page_size, std::byte{7}))));
    const Result<> flushed = on(1, catalog(1).flush_all(set_of(2)));
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Errc::unavailable);
    EXPECT_TRUE(on(1, catalog(1).flush_all(0)));
    EXPECT_TRUE(on(1, catalog(1).flush_all(set_of(2)))) << "it has all bytes";
    close(1, take(volume));
}

TEST_F(CatalogTest, the_last_flush_goes_to_the_hosts_that_have_not_gone) {
    const auto made = on(1, catalog(1).create("file", true, {.size_bytes = uint64_t{1} << 32}));
    ASSERT_TRUE(made);
    auto volume = open(1, "file");
    ASSERT_TRUE(volume);
    ASSERT_TRUE(on(1, (*volume)->write(homed_at(0, made->id), std::vector<std::byte>(page_size, std::byte{7}))));
    EXPECT_TRUE(on(1, catalog(1).flush_all(set_of(2))));
    EXPECT_EQ(hosts_[1]->cache->dirty_frame_count(), 0u);
    close(1, take(volume));
}

TEST_F(CatalogTest, a_host_that_has_not_served_yet_owes_nothing_when_it_stops) {
    for (const auto& host : hosts_) host->stop();
    for (HostId host = 0; host < 2; ++host) hosts_[host]->start();
    for (HostId host = 0; host < 2; ++host) ASSERT_TRUE(on(host, knows_links(*hosts_[host], 1)));
    for (HostId host = 0; host < 2; ++host) {
        ASSERT_TRUE(hosts_[host]->cache->membership().recovering()) << "it has not met host 2";
        EXPECT_TRUE(on(host, catalog(host).flush_all(0)));
    }
}

TEST_F(CatalogTest, a_host_that_wrote_before_it_serves_owes_that_when_it_stops) {
    const VolumeEntry made = described_at(0);
    stop(2);
    hosts_[1]->stop();
    hosts_[1]->start();
    ASSERT_TRUE(on(1, knows_links(*hosts_[1], 1)));
    auto volume = open(1, made.name);
    ASSERT_TRUE(volume);
    ASSERT_TRUE(on(1, (*volume)->write(homed_at(0, made.id), std::vector<std::byte>(page_size, std::byte{7}))));
    ASSERT_TRUE(hosts_[1]->cache->membership().recovering()) << "it has not met host 2";
    EXPECT_FALSE(on(1, with_timeout(std::chrono::milliseconds(50), catalog(1).flush_all(0)))) << "it waits for host 2";
    ASSERT_TRUE(on(1, evict_all(*hosts_[1], made.id)));
    ASSERT_EQ(hosts_[1]->cache->dirty_frame_count(), 0u) << "host 0 has the bytes";
    EXPECT_FALSE(on(1, with_timeout(std::chrono::milliseconds(50), catalog(1).flush_all(0)))) << "not in its store yet";
    hosts_[2]->start();
    EXPECT_TRUE(on(1, catalog(1).flush_all(0)));
    EXPECT_EQ(hosts_[1]->cache->dirty_frame_count(), 0u);
    close(1, take(volume));
}

TEST_F(CatalogTest, a_home_that_knows_no_volume_makes_durable_what_it_has) {
    const auto made = on(1, catalog(1).create("file", true, {.size_bytes = uint64_t{1} << 32}));
    ASSERT_TRUE(made);
    const uint64_t at = homed_at(2, made->id);
    auto volume = open(1, "file");
    ASSERT_TRUE(volume);
    ASSERT_TRUE(on(1, (*volume)->write(at, std::vector<std::byte>(page_size, std::byte{7}))));
    CachedVolume at_home(*hosts_[2]->volumes, made->id);
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(2, at_home.read(at, seen)));
    EXPECT_EQ(seen.front(), std::byte{7});
    // The reader may have the bytes before home has them: the writer sends each its own message.
    while (hosts_[2]->cache->dirty_frame_count() == 0) std::this_thread::yield();
    EXPECT_TRUE(on(2, catalog(2).flush_all(0)));
    EXPECT_EQ(hosts_[2]->cache->dirty_frame_count(), 0u);
    close(1, take(volume));
}

TEST_F(CatalogTest, the_usage_of_a_volume_is_that_of_all_hosts) {
    const auto made = on(1, catalog(1).create("file", true, {.size_bytes = uint64_t{1} << 32}));
    ASSERT_TRUE(made);
    auto volume = open(1, "file");
    ASSERT_TRUE(volume);
    const uint64_t range = hosts_[0]->cache->membership().ranges().pages_per_range() * page_size;
    for (uint64_t i = 0; i < 2 * host_count; ++i)
        ASSERT_TRUE(on(1, (*volume)->write(i * range, std::vector<std::byte>(page_size, std::byte{7}))));
    ASSERT_TRUE(on(1, (*volume)->flush()));
    uint64_t bytes = 0;
    for (const auto& host : hosts_) {
        const uint64_t there = host->store->allocated_bytes(made->id);
        EXPECT_GT(there, 0u);
        bytes += there;
    }
    EXPECT_EQ(on(2, catalog(2).usage()).of(made->id), bytes);
    close(1, take(volume));
}

TEST_F(CatalogTest, space_and_usage_name_the_hosts_that_are_away) {
    const auto made = create(1, "disk");
    ASSERT_TRUE(made);
    auto volume = open(1, "disk");
    ASSERT_TRUE(volume && on(1, fill(*volume)));
    close(1, take(volume));
    const auto before = on(1, catalog(1).space());
    ASSERT_TRUE(before);
    uint64_t total_bytes = 0;
    for (const auto& host : hosts_) total_bytes += host->store->space().total_bytes;
    EXPECT_EQ(before->total_bytes, total_bytes);
    EXPECT_TRUE(before->silent_hosts.empty() && before->untold_hosts.empty());
    EXPECT_GT(on(2, catalog(2).usage()).of(made->id), 0u);
    stop(2);
    EXPECT_EQ(on(1, catalog(1).usage()).silent_hosts, std::vector<std::string>{"c"});
    const auto after = on(1, catalog(1).space());
    ASSERT_TRUE(after);
    EXPECT_EQ(after->silent_hosts, std::vector<std::string>{"c"});
    EXPECT_EQ(after->total_bytes, before->total_bytes) << "as it was last told";
    const auto elsewhere = on(0, catalog(0).space());
    ASSERT_TRUE(elsewhere);
    EXPECT_EQ(elsewhere->untold_hosts, std::vector<std::string>{"c"}) << "it never was told there";
    EXPECT_LT(elsewhere->total_bytes, before->total_bytes);
}
// Of an attribute page: its home, or, where that answers, whoever has the page.
TEST_F(CatalogTest, the_host_that_is_waited_for_is_named) {
    const VolumeEntry made = described_at(2);
    auto volume = open(1, made.name);
    ASSERT_TRUE(volume);
    ASSERT_TRUE(on(1, (*volume)->change_attributes({.size_bytes = uint64_t{2} << 32})));
    close(1, take(volume));
    const auto named = [&] {
        std::vector<std::string> names;
        const auto all = on(0, catalog(0).list());
        EXPECT_TRUE(all);
        for (const VolumeEntry& each : all.value_or(std::vector<VolumeEntry>()))
            if (each.id == made.id) names.push_back(each.silent_host);
        const auto entry = on(0, catalog(0).glance(made.name));
        EXPECT_TRUE(entry);
        if (entry) names.push_back(entry->silent_host);
        return names;
    };
    hosts_[1]->stop();
    on(0, knows_links(*hosts_[0], 1));
    EXPECT_EQ(named(), (std::vector<std::string>{"b", "b"}));
    hosts_[2]->stop();
    on(0, knows_links(*hosts_[0], 0));
    EXPECT_EQ(named(), (std::vector<std::string>{"c", "c"}));
}

}  // namespace
}  // namespace tarn::three_hosts
