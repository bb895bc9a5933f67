// Action: what a stripe wants done. Stripe::on() appends them; the executor performs them.
//
// In the order of the list and still under the stripe's latch: everything about frames, home's bytes and the flush
// books. After the latch is released, in any order: send, send_home_bytes, wake, written, record_loss, mark; but a
// frame that one of them names is pinned (or its bytes copied) in list order, since a later action may release it.
#pragma once

#include <cstdint>
#include <vector>

#include "coherence/protocol/event.hpp"
#include "coherence/protocol/message.hpp"
#include "tiers/page.hpp"

namespace tarn::protocol {

// How long a host with an Exclusive page may serve its own operations before a waiting host gets the page (SELCC's
// lease): while they follow each other without a gap, up to this many writes and this much time: the bound of C3.
struct WriteLease {
    uint32_t writes = 256;
    uint32_t time_us = 200;
};

struct Action {
    enum class Kind : uint8_t {
        nothing,

        // Messages.
        send,  // to, message; frame: its payload as it is now, or no_frame. Writers stay out until it is sent (I9)
        send_home_bytes,  // to, message: add home's bytes of the page (home frame, else store; flag_zero if never
                          // written), set flag_payload and send, over the link of this moment or not at all. To this
                          // host itself: deliver the message as an event, with a frame of its own or, copied under the
                          // latch, in message.frame

        // Local operations.
        wake,     // waiter, page, frame, ownership, lost: do the access, then deliver `served`
        fail,     // waiter, page: no space; no `served` follows
        written,  // waiter, page: answers the event write_back

        // Frames of the Holder.
        quiesce,  // page, frame, recalled: refuse new latches; when the last is gone deliver `quiesced` (at once, if
                  // none). If recalled, another host waits for the page, and local operations may go before it within
                  // the WriteLease
        set_access,     // page, frame, ownership, lost: bind the frame to the page and open it so far; none: unbind it,
                        // but it stays taken. Ends a quiesce
        begin_writing,  // frame: writing |= dirty, dirty = 0 (the frame is quiet)
        clear_writing,  // frame: writing = 0
        clear_dirty,    // frame: dirty = writing = 0 (the frame is quiet, or Shared)
        mark_dirty,     // frame: dirty = all sectors. Performed before all other actions of its step
        release_frame,  // frame: back to the pool once no send pins it

        // Home's bytes.
        apply_copy,  // page, tenure, sequence, mask, frame, borrowed: these are home's bytes now. A frame that is not
                     // borrowed is the executor's to keep; a borrowed one is copied
        keep_copy,   // page, frame, borrowed: the same bytes as home's, from the last host that had them in memory.
                     // Answers Event::wants_copy; clean, so they may also be dropped at any time

        // The books of FlushHome, which spans stripes.
        holder_added,    // page, to: for one more page of this volume, this host has the bytes and home does not
        holder_removed,  // the same, one less
        copy_expected,   // page, tenure: bytes on their way home
        copy_arrived,    // page, tenure

        // The link.
        refuse_peer,  // to, reason: this host sent what no correct host sends: end the link to it with this reason

        // The store.
        record_loss,  // page: raise home's loss generation durably, then deliver `loss_recorded`
        mark,         // page: mark it durably (marks.hpp), then deliver `marked`
    };

    Kind kind = Kind::nothing;
    HostId to = no_host;
    Ownership ownership = Ownership::none;
    DirtyMask mask = 0;
    bool borrowed = false;
    bool recalled = false;
    FrameId frame = no_frame;
    uint32_t sequence = 0;
    PageId page{};
    Tenure tenure = 0;
    WaiterToken waiter = 0;
    uint32_t lost = 0;  // the loss generation in which the page last lost writes: a session that began before it gets
                        // an error for its reads until it has written the whole page; 0: never
    StaticText reason = "";
    Message message{};
};

// Reused from step to step: cleared by the caller, so that its memory is allocated once.
class Actions {
  public:
    Actions() { list_.reserve(64); }

    void clear() { list_.clear(); }
    size_t size() const { return list_.size(); }
    Action& operator[](size_t index) { return list_[index]; }
    auto begin() const { return list_.begin(); }
    auto end() const { return list_.end(); }

    Action& add(Action::Kind kind, PageId page) {
        Action& action = list_.emplace_back();
        action.kind = kind;
        action.page = page;
        return action;
    }
    void send(HostId to, const Message& message, FrameId payload = no_frame) {
        Action& action = add(Action::Kind::send, message.page);
        action.to = to;
        action.message = message;
        action.frame = payload;
    }
    void about_frame(Action::Kind kind, PageId page, FrameId frame) { add(kind, page).frame = frame; }
    void set_access(PageId page, FrameId frame, Ownership ownership, uint32_t lost = 0) {
        Action& action = add(Action::Kind::set_access, page);
        action.lost = lost;
        action.frame = frame;
        action.ownership = ownership;
    }
    void refuse_peer(PageId page, HostId peer, StaticText reason) {
        Action& action = add(Action::Kind::refuse_peer, page);
        action.to = peer;
        action.reason = reason;
    }
    void about_waiter(Action::Kind kind, PageId page, WaiterToken waiter) { add(kind, page).waiter = waiter; }
    void about_holder(Action::Kind kind, PageId page, HostId host) { add(kind, page).to = host; }
    void about_copy(Action::Kind kind, PageId page, Tenure tenure) { add(kind, page).tenure = tenure; }

  private:
    std::vector<Action> list_;
};

}  // namespace tarn::protocol
