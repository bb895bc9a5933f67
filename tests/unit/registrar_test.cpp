// The registrar, and what goes on although a host of the cluster does not. The test plays the other host.
#include "daemon/catalog/registrar.hpp"

#include <optional>

#include "frontends/volumes/attribute_page.hpp"
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class RegistrarTest : public HomeOnDevice {
  protected:
    ~RegistrarTest() override {
        cache_->abandon();
        loop_->run_until_done(tasks_.close());
        loop_->run_until_done(registrar_.end_removals());
        catalog_.reset();
    }
    Result<std::string> change(HostId from, std::string request) {
        return loop_->run_until_done(registrar_.change(from, std::move(request)));
    }
    HoldNumber number(HostId host, uint32_t count) const {
        return {.epoch = cache_->membership().process_of(host).epoch, .count = count};
    }
    Result<std::string> hold(HostId host, uint32_t count) {
        return change(host, hold_request("disk", number(host, count)));
    }
    Result<std::string> release(HostId host, VolumeId id, uint32_t count) {
        return change(host, release_request(id, number(host, count)));
    }
    // From now on volumes can be made; the attributes of the first one are homed here.
    void begin_catalog() {
        VolumeId next = 1;
        while (cache_->home_of(attribute_page_of(next)) != 0) ++next;
        ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = next, .slot_count = 0})));
    }
    static std::string creation(const std::string& name, bool shared = true, uint64_t size_bytes = page_size) {
        return create_request(name, shared, {.size_bytes = size_bytes});
    }
    Errc refusal(std::string request) {
        const Result<std::string> answer = change(0, std::move(request));
        EXPECT_FALSE(answer);
        return answer ? Errc::io : answer.error().code;
    }
    std::vector<CatalogRecord> all_records() { return *loop_->run_until_done(table_.list_all()); }
    bool is_named(const std::string& name) { return loop_->run_until_done(table_.find(name))->has_value(); }
    static Task<> keep(Registrar& registrar, std::string request, std::optional<Result<std::string>>& answer,
                       HostId from = 0) {
        answer = co_await registrar.change(from, std::move(request));
    }
    static Task<bool> resume(Registrar& registrar) {
        co_await registrar.resume_removals();
        co_return true;
    }
    void let_run() { loop_->run_until_done(turns(*loop_)); }
    static Task<> remove(Removals& removals, bool& ended, bool& is_gone) {
        is_gone = co_await removals.perform(volume_id);
        ended = true;
    }

    std::unique_ptr<CachedVolume> catalog_ = std::make_unique<CachedVolume>(*volumes_, catalog_volume, OnLoss::revert);
    CatalogTable table_{*catalog_};
    Removals removals_{*cache_, {loop_.get()}, {"here", "there"}};
    Registrar registrar_{*volumes_, table_, removals_};
    Gate tasks_;
};

TEST_F(RegistrarTest, a_hold_ends_with_the_process_of_its_host) {
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = 2, .slot_count = 1})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "disk", .id = 1, .slot = 0})));
    ASSERT_TRUE(hold(peer, 1));
    const Result<std::string> refused = hold(0, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::busy);
    cut();
    EXPECT_FALSE(hold(0, 1)) << "it may only be unreachable";
    link();
    EXPECT_FALSE(hold(0, 1)) << "it is the same process";
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};  // with the memory of the one before
    link();
    EXPECT_TRUE(hold(0, 1));
}

TEST_F(RegistrarTest, a_deletion_waits_for_a_host_that_is_away_until_that_is_forgotten) {
    cut();
    bool ended = false;
    bool is_gone = false;
    tasks_.spawn(remove(removals_, ended, is_gone));
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(ended);
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(peer, peer_process_.incarnation)));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(ended && is_gone);
}

TEST_F(RegistrarTest, makes_a_volume) {
    begin_catalog();
    const VolumeId id = loop_->run_until_done(table_.header())->next_id;
    const Result<std::string> answer = change(peer, creation("disk"));
    ASSERT_TRUE(answer);
    const Result<CatalogRecord> record = parse_record(*answer);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->name, "disk");
    EXPECT_EQ(record->id, id);
    EXPECT_TRUE(record->shared);
    EXPECT_EQ(loop_->run_until_done(table_.header())->next_id, id + 1) << "ids are not used twice";
    CachedVolume volume(*volumes_, id);
    EXPECT_EQ(loop_->run_until_done(volume.attributes())->size_bytes, page_size);
}

TEST_F(RegistrarTest, a_volume_that_is_made_in_a_free_slot_leaves_those_behind_it) {
    begin_catalog();
    const VolumeId id = loop_->run_until_done(table_.header())->next_id;
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = id, .slot_count = 3})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "b", .id = 1, .slot = 1})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "c", .id = 2, .slot = 2})));
    ASSERT_TRUE(change(0, creation("a")));
    EXPECT_TRUE(is_named("a") && is_named("b") && is_named("c"));
}

TEST_F(RegistrarTest, refuses_names_and_sizes_that_cannot_be) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("dir/file")));
    EXPECT_EQ(refusal(creation("dir/file")), Errc::exists);
    EXPECT_EQ(refusal(creation("dir")), Errc::exists);
    EXPECT_EQ(refusal(creation("dir/file/part")), Errc::exists);
    EXPECT_EQ(refusal(creation("")), Errc::invalid);
    EXPECT_EQ(refusal(creation("a\nb")), Errc::invalid);
    EXPECT_EQ(refusal(creation("disk", false, 0)), Errc::invalid);
    EXPECT_EQ(refusal(creation("disk", true, volume_size_max + 1)), Errc::invalid);
    EXPECT_EQ(all_records().size(), 1u);
}

TEST_F(RegistrarTest, refuses_what_is_no_request) {
    begin_catalog();
    for (const char* const request :
         {"", "no JSON", "[]", "{}", R"({"change": "make", "name": "disk"})", R"({"change": "create", "name": "disk"})",
          R"({"change": "create", "size": 4096})", R"({"change": "create", "name": 1, "size": 4096})",
          R"({"change": "create", "name": "disk", "size": -1})", R"({"change": "remove"})", R"({"change": "hold"})",
          R"({"change": "hold", "name": "disk", "count": 1})", R"({"change": "release", "epoch": 1, "count": 1})",
          R"({"change": "release"})", R"({"change": "release", "id": 4294967296, "epoch": 1, "count": 1})"})
        EXPECT_EQ(refusal(request), Errc::protocol) << request;
    EXPECT_TRUE(all_records().empty());
}

TEST_F(RegistrarTest, makes_no_volume_without_an_id_or_a_sound_table) {
    cut();  // nobody is waited for
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = volume_id_max + 1, .slot_count = 0})));
    EXPECT_EQ(refusal(creation("disk")), Errc::no_space);
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = 2, .slot_count = CatalogTable::slots_max + 1})));
    EXPECT_EQ(refusal(creation("disk")), Errc::corrupt);
    EXPECT_EQ(refusal(remove_request("disk", true)), Errc::corrupt);
}

TEST_F(RegistrarTest, the_attributes_of_a_new_volume_lie_on_a_host_that_answers) {
    VolumeId next = 1;
    while (cache_->home_of(attribute_page_of(next)) != peer) ++next;
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = next, .slot_count = 0})));
    cut();
    ASSERT_TRUE(change(0, creation("disk")));
    const std::vector<CatalogRecord> records = all_records();
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(cache_->home_of(attribute_page_of(records.front().id)), 0);
    EXPECT_EQ(loop_->run_until_done(table_.header())->next_id, records.front().id + 1);
}

TEST_F(RegistrarTest, a_volume_that_cannot_be_made_durable_has_no_name) {
    begin_catalog();
    std::optional<Result<std::string>> answer;
    device_->hold_next_write();
    tasks_.spawn(keep(registrar_, creation("disk"), answer));
    for (int held = 0; !answer && held < 100; ++held) {
        while (!answer && !device_->holds_a_write())
            loop_->run_until_done([](Loop& loop) -> Task<bool> {
                co_await Yield(loop);
                co_return true;
            }(*loop_));
        if (is_named("disk"))
            device_->fail_writes(true);  // its attributes are durable, the record is not
        else
            device_->hold_next_write();
        device_->let_write_go();
    }
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error().code, Errc::io);
    EXPECT_FALSE(is_named("disk"));
}

TEST_F(RegistrarTest, a_removal_that_cannot_be_made_durable_leaves_the_name) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk")));
    device_->fail_writes(true);
    EXPECT_EQ(refusal(remove_request("disk", true)), Errc::io);
    EXPECT_TRUE(is_named("disk"));
}

TEST_F(RegistrarTest, a_removal_that_stopped_half_way_goes_on_in_the_next_process) {
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = 9, .slot_count = 2})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "gone", .id = volume_id, .slot = 0, .removed = true})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "kept", .id = 8, .slot = 1})));
    std::vector<std::string> asked;
    fabric_.on_call = [&asked](HostId, CallKind, std::string request) {
        asked.push_back(std::move(request));
        return []() -> Task<Result<std::string>> { co_return std::string(); }();
    };
    loop_->run_until_done(resume(registrar_));
    loop_->run_until_done([](Registrar& registrar) -> Task<bool> {
        co_await registrar.end_removals();
        co_return true;
    }(registrar_));
    EXPECT_EQ(asked, (std::vector<std::string>{"close 7", "discard 7", "erase 7"}));
    const std::vector<CatalogRecord> left = all_records();
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left.front().name, "kept");
}

TEST_F(RegistrarTest, users_keep_a_volume_unless_it_is_forced) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk")));
    fabric_.answer = R"(["192.0.2.9:1"])";
    const Result<std::string> kept = change(0, remove_request("disk", false));
    ASSERT_TRUE(kept);
    EXPECT_EQ(parse_users(*kept), std::vector<std::string>{"192.0.2.9:1 (host there)"});
    EXPECT_TRUE(is_named("disk"));
    const Result<std::string> removed = change(0, remove_request("disk", true));
    ASSERT_TRUE(removed);
    EXPECT_TRUE(parse_users(*removed).empty());
    EXPECT_FALSE(is_named("disk"));
}

TEST_F(RegistrarTest, a_host_that_is_away_and_holds_a_volume_keeps_it) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    ASSERT_TRUE(hold(peer, 1));
    cut();
    const Result<std::string> kept = change(0, remove_request("disk", false));
    ASSERT_TRUE(kept);
    EXPECT_EQ(parse_users(*kept).size(), 1u);
    EXPECT_TRUE(is_named("disk"));
}

TEST_F(RegistrarTest, only_the_holder_releases_a_hold) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const Result<CatalogRecord> held = parse_record(*hold(peer, 1));
    ASSERT_TRUE(held);
    EXPECT_EQ(held->holder, peer);
    ASSERT_TRUE(change(0, release_request(held->id, number(peer, 1))));
    EXPECT_EQ(refusal(hold_request("disk", number(0, 1))), Errc::busy);
    ASSERT_TRUE(release(peer, held->id, 1));
    EXPECT_TRUE(hold(0, 1));
    EXPECT_TRUE(release(0, 4711, 1)) << "it was removed meanwhile";
}

TEST_F(RegistrarTest, a_release_ends_no_hold_that_was_asked_for_after_it) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const VolumeId id = parse_record(*hold(peer, 2))->id;
    ASSERT_TRUE(hold(peer, 1));
    ASSERT_TRUE(release(peer, id, 1));
    EXPECT_EQ(refusal(hold_request("disk", number(0, 1))), Errc::busy);
    ASSERT_TRUE(release(peer, id, 2));
    ASSERT_TRUE(hold(0, 1));
    ASSERT_TRUE(release(0, id, 1)) << "each host counts for itself";
    ASSERT_TRUE(hold(peer, 3));
    ASSERT_TRUE(release(peer, id, 4)) << "the last one that it asked for, though it failed";
    EXPECT_TRUE(hold(0, 2));
}

// Else it would be held again, by nobody, once the registrar has lost its memory.
TEST_F(RegistrarTest, a_release_is_durable_before_it_is_answered) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const VolumeId id = parse_record(*hold(0, 1))->id;
    std::optional<Result<std::string>> answer;
    device_->hold_next_write();
    tasks_.spawn(keep(registrar_, release_request(id, number(0, 1)), answer));
    let_run();
    EXPECT_FALSE(answer);
    ASSERT_TRUE(device_->holds_a_write());
    device_->let_write_go();
    let_run();
    EXPECT_TRUE(answer && *answer);
}

TEST_F(RegistrarTest, what_a_process_asked_for_that_has_ended_changes_nothing) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const HoldNumber before = number(peer, 9);
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};
    link();
    EXPECT_FALSE(change(peer, hold_request("disk", before))) << "nobody would release it";
    ASSERT_TRUE(hold(0, 1));
    ASSERT_TRUE(release(0, parse_record(*hold(0, 1))->id, 1));
    const VolumeId id = parse_record(*hold(peer, 1))->id;
    ASSERT_TRUE(change(peer, release_request(id, before)));
    EXPECT_EQ(refusal(hold_request("disk", number(0, 2))), Errc::busy);
}

// The next one has looked already at what is to be released.
TEST_F(RegistrarTest, a_process_that_ends_while_it_is_given_a_hold_does_not_have_it) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    std::optional<Result<std::string>> answer;
    device_->hold_next_write();
    tasks_.spawn(keep(registrar_, hold_request("disk", number(peer, 1), HoldKind::of_device), answer, peer));
    let_run();
    ASSERT_TRUE(device_->holds_a_write());
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};
    link();
    device_->let_write_go();
    let_run();
    ASSERT_TRUE(answer);
    EXPECT_FALSE(*answer);
    EXPECT_TRUE(hold(0, 1));
}

// Its device goes on with the third process.
TEST_F(RegistrarTest, a_process_that_ends_while_it_resumes_a_hold_leaves_it_to_the_next_one) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    ASSERT_TRUE(change(peer, hold_request("disk", number(peer, 1), HoldKind::of_device)));
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};
    link();
    std::optional<Result<std::string>> answer;
    device_->hold_next_write();
    tasks_.spawn(keep(registrar_, hold_request("disk", number(peer, 1), HoldKind::resumed), answer, peer));
    let_run();
    ASSERT_TRUE(device_->holds_a_write());
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 3};
    link();
    device_->let_write_go();
    let_run();
    EXPECT_EQ(refusal(hold_request("disk", number(0, 1))), Errc::busy);
    EXPECT_TRUE(change(peer, hold_request("disk", number(peer, 1), HoldKind::resumed)));
}

TEST_F(RegistrarTest, a_device_s_hold_outlives_its_process_until_the_next_one_releases_it) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const auto held = parse_record(*change(peer, hold_request("disk", number(peer, 9), HoldKind::of_device)));
    ASSERT_TRUE(held && held->kept);
    EXPECT_TRUE(parse_record(*hold(peer, 10))->kept) << "who opens it beside the device changes nothing";
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};
    link();
    EXPECT_EQ(refusal(hold_request("disk", number(0, 1))), Errc::busy);
    const auto kept = change(0, remove_request("disk", false));
    ASSERT_TRUE(kept);
    EXPECT_EQ(parse_users(*kept).size(), 1u);
    EXPECT_TRUE(change(peer, hold_request("disk", number(peer, 1), HoldKind::resumed)));
    ASSERT_TRUE(release(peer, held->id, 1));
    EXPECT_FALSE(parse_record(*hold(peer, 2))->kept) << "the device is gone";
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 3};
    link();
    EXPECT_TRUE(hold(0, 1));
}

TEST_F(RegistrarTest, the_next_process_releases_what_is_left_of_the_one_before) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const auto held = parse_record(*change(peer, hold_request("disk", number(peer, 9), HoldKind::of_device)));
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};
    link();
    ASSERT_TRUE(release(peer, held->id, 0));
    EXPECT_TRUE(hold(0, 1));
}

TEST_F(RegistrarTest, a_device_does_not_go_on_after_another_host_has_held_its_volume) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const auto held = parse_record(*change(peer, hold_request("disk", number(peer, 1), HoldKind::of_device)));
    ASSERT_TRUE(release(peer, held->id, 1));
    ASSERT_TRUE(hold(0, 1));
    ASSERT_TRUE(release(0, held->id, 1));
    const auto resumed = change(peer, hold_request("disk", number(peer, 2), HoldKind::resumed));
    ASSERT_FALSE(resumed);
    EXPECT_EQ(resumed.error().code, Errc::busy);
    EXPECT_TRUE(hold(peer, 3)) << "who begins anew may";
}

TEST_F(RegistrarTest, a_device_of_a_host_that_was_forgotten_does_not_go_on_after_another_host_has_held_its_volume) {
    begin_catalog();
    ASSERT_TRUE(change(0, creation("disk", false)));
    const auto held = parse_record(*change(peer, hold_request("disk", number(peer, 1), HoldKind::of_device)));
    ASSERT_TRUE(held && held->kept);
    cut();
    EXPECT_EQ(refusal(hold_request("disk", number(0, 1))), Errc::busy) << "the device may be in use";
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(peer, peer_process_.incarnation)));
    const auto granted = parse_record(hold(0, 1).value_or(""));
    ASSERT_TRUE(granted);
    EXPECT_EQ(granted->holder, 0);
    EXPECT_FALSE(granted->kept) << "it is no device's any more";
    const auto error_of_resumed = [&](uint32_t count) {
        const auto resumed = change(peer, hold_request("disk", number(peer, count), HoldKind::resumed));
        return resumed ? Errc::io : resumed.error().code;
    };
    EXPECT_EQ(error_of_resumed(2), Errc::busy);
    ASSERT_TRUE(release(0, held->id, 1));
    EXPECT_EQ(error_of_resumed(3), Errc::busy) << "somebody may have written to it meanwhile";
}

}  // namespace
}  // namespace tarn::home_on_device
