// SessionBook: the sessions of clients as the next process finds them, in memory that it adopts (Arena::clients).
//
// A client that connects to that one goes on with its session, and hears of what was lost meanwhile and of a flush that
// failed before (D4). For Sessions, whose lock guards all but the end of a record.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coherence/flush/session_record.hpp"
#include "frontends/nbd/client.hpp"
#include "tiers/page.hpp"

namespace tarn::nbd {

class SessionBook {
  public:
    static constexpr size_t name_size_max = 512;

    // One session: whose it is, of which volume, and its record.
    struct Page {
        std::atomic<bool> is_used;   // set last
        std::atomic<bool> is_ended;  // though somebody still has its record: the next process finds it no more
        bool is_proved;              // the name is an identity, else an address (Client)
        uint16_t name_size;
        uid_t user;
        pid_t process;
        uint64_t started;
        VolumeId volume;
        std::array<char, name_size_max> name;
        SessionRecord record;
    };
    static constexpr size_t page_count = 1024;
    static constexpr size_t size_bytes = page_count * sizeof(Page);

    // Of an earlier process, or zeros. Where there is less than size_bytes nothing outlives the process.
    explicit SessionBook(std::span<std::byte> memory = {});

    // A page is used as long as anybody has its record.
    struct Left {
        Client client;
        VolumeId volume;
        std::shared_ptr<SessionRecord> record;
    };
    // What an earlier process has left, and that had not ended. Once, before all else.
    std::vector<Left> take_left();
    // Of a session that begins: its record is empty. Null: all pages are used, or the client's name is too long.
    std::shared_ptr<SessionRecord> begin(const Client& client, VolumeId volume);
    // Whether the session of this record has ended, or goes on after all. Null, or none of this book: nothing happens.
    void set_ended(const SessionRecord* record, bool has_ended);
    // This process ends: the next one finds what is here now, whoever lets go of a record meanwhile.
    void keep_all() { keeps_all_->store(true, std::memory_order_relaxed); }

  private:
    std::shared_ptr<SessionRecord> record_of(Page& page) const;

    std::span<Page> pages_;
    std::shared_ptr<std::atomic<bool>> keeps_all_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace tarn::nbd
