// Sessions that outlive the process: what the next one finds in the memory that it adopts.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "frontends/nbd/sessions.hpp"
#include "utils/mapping.hpp"

namespace tarn::nbd {
namespace {

class NbdSessionBook : public testing::Test {
  protected:
    static constexpr VolumeId volume = 3;
    static constexpr int no_socket = -1;

    void SetUp() override { sessions_.emplace(SessionBook(memory_.bytes())); }

    // Of its session, or of the one that is to be made.
    std::shared_ptr<SessionRecord> record_of(const Client& client) {
        const auto now = Sessions::Clock::now();
        const std::shared_ptr<VolumeSession> session = sessions_->find(client, volume, now);
        return session ? session->record : sessions_->record_of(client, volume, now);
    }
    std::shared_ptr<VolumeSession> join(const Client& client, std::shared_ptr<SessionRecord> record) {
        struct Recorded final : VolumeSession {
            explicit Recorded(std::shared_ptr<SessionRecord> in) : VolumeSession(std::move(in)) {}
        };
        std::shared_ptr<VolumeSession> session;
        session = record ? std::make_shared<Recorded>(std::move(record)) : std::make_shared<VolumeSession>();
        return sessions_->joined(client, volume, session, no_socket);
    }
    // As the one that an open volume of the client has.
    std::shared_ptr<VolumeSession> join(const Client& client) {
        const auto session = sessions_->find(client, volume, Sessions::Clock::now());
        if (session) return sessions_->joined(client, volume, session, no_socket);
        return join(client, record_of(client));
    }
    // Pages that nobody uses.
    size_t free_count() {
        SessionBook::Page* const pages = reinterpret_cast<SessionBook::Page*>(memory_.bytes().data());
        return static_cast<size_t>(std::ranges::count_if(std::span(pages, SessionBook::page_count),
                                                         [](const auto& each) { return !each.is_used.load(); }));
    }
    void leave(const Client& client, bool said) {
        sessions_->left(client, volume, no_socket, said, Sessions::Clock::now());
    }
    // SIGKILL, and the next process.
    void restart() {
        Mapping left = std::move(*Mapping::create(SessionBook::size_bytes));
        std::ranges::copy(memory_.bytes(), left.bytes().begin());
        sessions_.reset();
        before_.push_back(std::exchange(memory_, std::move(left)));
        SetUp();
    }
    void stop_and_start() {
        sessions_->keep_all();
        sessions_.reset();
        SetUp();
    }
    // Whether the client's session is one from before.
    bool goes_on(const Client& client) { return record_of(client)->flush_failed.load(); }

    std::vector<Mapping> before_;
    Mapping memory_ = std::move(*Mapping::create(SessionBook::size_bytes));
    std::optional<Sessions> sessions_;
    const Client client_{.address = "192.0.2.1"};
};

TEST_F(NbdSessionBook, a_client_finds_its_session_in_the_next_process) {
    const std::array clients{client_, Client{.address = "192.0.2.1", .identity = "psk:alice"},
                             Client{.address = {}, .identity = "192.0.2.1"}, Client{.process = 12, .user = 4},
                             Client{.process = 12, .user = 5}};
    for (size_t known = 0; known < clients.size(); ++known) {
        const auto session = join(clients[known]);
        record_of(clients[known])->flush_failed = true;
        record_of(clients[known])->losses_before[5] = 7;
        for (const bool is_killed : {true, false}) {
            is_killed ? restart() : stop_and_start();
            EXPECT_EQ(sessions_->find(clients[known], volume, Sessions::Clock::now()), nullptr) << "it is to be made";
            EXPECT_EQ(record_of(clients[known])->losses_before[5].load(), 7u);
            for (size_t each = 0; each < clients.size(); ++each) EXPECT_EQ(goes_on(clients[each]), each <= known);
            EXPECT_FALSE(sessions_->record_of(clients[known], volume + 1, Sessions::Clock::now())->flush_failed);
        }
    }
}

// Its id alone may be another process's by then.
TEST_F(NbdSessionBook, a_process_is_known_by_when_it_began) {
    Client process{.process = 12, .started = 77};
    sessions_->record_of(process, volume, Sessions::Clock::now())->flush_failed = true;
    restart();
    process.started = 78;
    EXPECT_FALSE(sessions_->record_of(process, volume, Sessions::Clock::now())->flush_failed);
    process.started = 77;
    EXPECT_TRUE(sessions_->record_of(process, volume, Sessions::Clock::now())->flush_failed);
}

// Its client says so while the process stops, or is killed, and something that it had under way goes on.
TEST_F(NbdSessionBook, one_that_has_ended_is_not_found_though_somebody_has_its_record) {
    for (const bool is_killed : {true, false}) {
        auto session = join(client_);
        session->record->flush_failed = true;
        if (!is_killed) sessions_->keep_all();
        leave(client_, true);
        is_killed ? restart() : stop_and_start();
        EXPECT_FALSE(goes_on(client_));
        sessions_->give_up(client_, volume);
        session.reset();
    }
}

TEST_F(NbdSessionBook, the_next_session_of_a_client_is_not_the_last_one) {
    auto last = join(client_);
    last->record->flush_failed = true;
    leave(client_, true);
    const auto next = join(client_);
    next->record->losses_before[5] = 7;
    restart();
    EXPECT_FALSE(goes_on(client_));
    EXPECT_EQ(record_of(client_)->losses_before[5].load(), 7u);
}

TEST_F(NbdSessionBook, of_two_that_are_made_at_once_the_one_that_joins_is_found) {
    const auto record = record_of(client_);
    join(client_, record);
    leave(client_, true);
    const auto other = record_of(client_);  // of a third
    EXPECT_NE(other, record);
    const auto session = join(client_, record);
    EXPECT_EQ(sessions_->find(client_, volume, Sessions::Clock::now()), session);
    record->flush_failed = true;
    restart();
    EXPECT_TRUE(goes_on(client_));
}

TEST_F(NbdSessionBook, one_that_is_not_made_after_all_takes_no_page) {
    EXPECT_NE(sessions_->record_of(client_, volume, Sessions::Clock::now()), nullptr);
    EXPECT_EQ(free_count(), SessionBook::page_count - 1);
    sessions_->give_up(client_, volume);
    EXPECT_EQ(free_count(), SessionBook::page_count);
    EXPECT_EQ(sessions_->size(), 0u);
    record_of(client_)->flush_failed = true;
    restart();
    sessions_->give_up(client_, volume);
    EXPECT_TRUE(goes_on(client_)) << "it began before";
    const Client other{.address = "192.0.2.2"};
    const auto session = join(other);
    sessions_->give_up(other, volume);
    EXPECT_EQ(sessions_->find(other, volume, Sessions::Clock::now()), session) << "another connection has made it";
}

TEST_F(NbdSessionBook, one_of_before_that_nobody_comes_back_for_takes_no_page) {
    (void)record_of(client_);
    restart();
    EXPECT_EQ(free_count(), SessionBook::page_count - 1);
    (void)sessions_->find(client_, volume, Sessions::Clock::now() + Sessions::remembered_for);
    EXPECT_EQ(free_count(), SessionBook::page_count);
}

TEST_F(NbdSessionBook, one_that_has_ended_is_not_found) {
    {
        const auto session = join(client_);
        record_of(client_)->flush_failed = true;
    }
    leave(client_, true);
    restart();
    EXPECT_FALSE(goes_on(client_));
    {
        const auto session = join(client_);
        record_of(client_)->flush_failed = true;
    }
    leave(client_, false);
    (void)sessions_->find(client_, volume, Sessions::Clock::now() + Sessions::remembered_for);
    restart();
    EXPECT_FALSE(goes_on(client_));
    // Nor is one of which nobody has come back for as long.
    record_of(client_)->flush_failed = true;
    restart();
    (void)sessions_->find(client_, volume, Sessions::Clock::now() + Sessions::remembered_for);
    EXPECT_FALSE(goes_on(client_));
}

// What it had under way goes on for a moment, and notes what it has to fear.
TEST_F(NbdSessionBook, nobody_else_gets_its_record_as_long_as_somebody_has_it) {
    auto session = join(client_);
    const SessionRecord* const record = record_of(client_).get();
    leave(client_, true);
    const auto other = record_of({.address = "192.0.2.2"});
    EXPECT_NE(other.get(), record);
    session.reset();
    EXPECT_EQ(record_of({.address = "192.0.2.3"}).get(), record);
}

TEST_F(NbdSessionBook, who_comes_when_it_is_full_has_a_session_that_ends_with_the_process) {
    for (size_t i = 0; i < SessionBook::page_count; ++i) ASSERT_NE(record_of({.address = std::to_string(i)}), nullptr);
    EXPECT_EQ(record_of(client_), nullptr);
    const auto session = join(client_);
    EXPECT_EQ(join(client_), session);
    sessions_->give_up({.address = "0"}, volume);
    EXPECT_EQ(free_count(), 1u);
    EXPECT_EQ(sessions_->record_of(client_, volume, Sessions::Clock::now()), nullptr) << "its session is made";
    (void)record_of({.address = "0"});
    restart();
    record_of({.address = "17"})->flush_failed = true;
    EXPECT_TRUE(goes_on({.address = "17"}));
    EXPECT_EQ(record_of(client_), nullptr);
}

TEST_F(NbdSessionBook, a_name_that_is_too_long_is_not_cut_off) {
    const std::string longest(SessionBook::name_size_max, 'n');
    EXPECT_EQ(record_of({.identity = longest + "m"}), nullptr);
    record_of({.identity = longest})->flush_failed = true;
    restart();
    EXPECT_TRUE(goes_on({.identity = longest}));
}

TEST_F(NbdSessionBook, without_memory_for_it_sessions_end_with_the_process) {
    Sessions sessions(SessionBook(memory_.bytes().first(SessionBook::size_bytes - 1)));
    EXPECT_EQ(sessions.record_of(client_, volume, Sessions::Clock::now()), nullptr);
}

}  // namespace
}  // namespace tarn::nbd
