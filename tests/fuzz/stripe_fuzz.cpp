// Fuzzing what lies behind the door: hosts 1 and 2 say whatever they like, as long as it is admitted, and this host's
// stripe and flush parts must neither fail an assertion nor misuse a frame, nor grow without bound. Host 0 is the home
// of one page; another one has host 1 as its home.
//
// An input is a list of records of 8 bytes: a step of this host, or a message whose numbers are small or are those of a
// message that this host sent, so that they often fit.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "coherence/executor/executor.hpp"
#include "coherence/protocol/admission.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {
namespace {

constexpr std::array<PageId, 2> pages{PageId::of(3, 0), PageId::of(3, 16)};  // homed at 0 and 1
constexpr std::array<HostId, 3> hosts{0, 1, 2};
const RangeMap ranges(1, hosts, 16);

struct Record {
    uint8_t step, kind, host, flags, tenure, request, sequence, set;
};

constexpr std::array kinds{
    MessageKind::get_shared,  MessageKind::get_exclusive, MessageKind::get_exclusive_no_read,
    MessageKind::done,        MessageKind::evict,         MessageKind::home_copy,
    MessageKind::write_back,  MessageKind::report,        MessageKind::resolve,
    MessageKind::hello,       MessageKind::flush,         MessageKind::flush_answer,
    MessageKind::grant,       MessageKind::move,          MessageKind::move_shared,
    MessageKind::copy,        MessageKind::drop,          MessageKind::evicted,
    MessageKind::refused,     MessageKind::free,          MessageKind::recall,
    MessageKind::confirm,     MessageKind::written_back,  MessageKind::no_space,
    MessageKind::flush_ask,   MessageKind::flushed,       MessageKind::data,
    MessageKind::acknowledge,
};

// Also what stands behind the executor.
class FuzzHost final : Frames, HomeStore, Outbox, FlushBooks, Accesses, StepObserver {
  public:
    FuzzHost() {
        flush_requester_.open(1, 3);
        step(Event::about(Event::Kind::recovered, PageId{}));
    }

    void take(const Record& record) {
        const PageId page = pages[record.kind & 1];
        const HostId peer = 1 + (record.host & 1);
        switch (record.step % 16) {
            case 0: {
                if (waiting_ >= 4) break;
                ++waiting_;
                step(Event::acquire_of(page, static_cast<Want>(record.flags % 3), ++last_waiter_, allocate()));
                break;
            }
            case 1: serve(record.request); break;
            case 2: step(Event::about(Event::Kind::evict, page)); break;
            case 3: step(Event::about(Event::Kind::write_back, page, 0)); break;
            case 4: quiesced(record.request); break;
            case 5: lost(); break;
            case 6:
                for (const PageId lost_page : std::exchange(losses_, {}))
                    step(Event::about(Event::Kind::loss_recorded, lost_page));
                break;
            case 7: step(Event::host_forgotten_of(peer)); break;
            case 8: peer_up(peer, record.flags & 1); break;
            case 9: mark_dirty(record.request); break;
            default: receive(record, page, peer); break;
        }
    }
    // Everything local comes to its end, whatever the peers did.
    void end() {
        while (!quiescing_.empty()) quiesced(0);
        while (!woken_.empty() || !quiescing_.empty()) {
            serve(0);
            quiesced(0);
        }
    }

  private:
    struct Frame {
        bool used = false;
        Ownership access = Ownership::none;
        bool dirty = false;
    };
    static constexpr FrameId frames_max = 512;  // more is a leak

    FrameId allocate() {
        for (FrameId id = 0; id < frames_max; ++id)
            if (!frames_[id].used) {
                frames_[id] = {.used = true};
                return id;
            }
        TARN_ASSERT(false);
    }

    void serve(uint8_t which) {
        if (woken_.empty()) return;
        const size_t index = which % woken_.size();
        const PageId page = woken_[index];
        woken_.erase(woken_.begin() + static_cast<long>(index));
        step(Event::about(Event::Kind::served, page));
    }
    void quiesced(uint8_t which) {
        if (quiescing_.empty()) return;
        const size_t index = which % quiescing_.size();
        const auto [page, frame] = quiescing_[index];
        quiescing_.erase(quiescing_.begin() + static_cast<long>(index));
        step(Event::quiesced_of(page, frames_[frame].dirty ? 1 : 0));
    }
    void mark_dirty(uint8_t which) {
        Frame& frame = frames_[which % 8];
        if (frame.used && frame.access == Ownership::exclusive) frame.dirty = true;
    }
    void lost() {
        FlushActions actions;
        flush_requester_.wrote(1, 0, pages[0], pages[0], flush_requester_.known(pages[0].volume(), 0));
        flush_requester_.start(1, 3, 7, actions);
        flush(actions);
    }
    void peer_up(HostId peer, bool is_new) {
        const Process previous = processes_[peer];
        // Every other one has the memory of the one before.
        if (is_new && ++processes_[peer].epoch % 2 != 0) processes_[peer].incarnation = processes_[peer].epoch;
        step(Event::peer_up_of(peer, processes_[peer], previous));
        FlushActions actions;
        flush_holder_.on_peer_up(peer);
        flush_home_.on_peer_up(peer, processes_[peer], previous, actions);
        flush_requester_.on_peer_up(peer, actions);
        flush(actions);
    }

    void receive(const Record& record, PageId page, HostId peer) {
        Message message;
        message.kind = kinds[record.kind / 2 % kinds.size()];
        message.from = peer;
        message.page = page;
        message.host = (record.host >> 1 & 3) == 3 ? no_host : record.host >> 1 & 3;
        message.flags = record.flags;
        message.dirty = record.flags & 1 ? record.set : 0;
        message.view_epoch = message.map_epoch = 1;
        message.incarnation = processes_[peer].incarnation;
        message.sequence = record.sequence;
        message.tenure = first_tenure_of(1) + record.tenure;
        message.hosts = record.set & 7;
        message.request_id = record.request;
        if (record.step % 16 >= 12 && !sent_.empty()) {
            // An answer to something that was said.
            const Message& sent = sent_[(sent_.size() - 1 - record.request % std::min<size_t>(sent_.size(), 8))];
            message.request_id = sent.request_id;
            message.tenure = sent.tenure + (record.tenure & 1);
            message.sequence = sent.sequence;
        }
        if (message.kind == MessageKind::report || message.kind == MessageKind::recall)
            message.hosts = first_tenure_of(1) + record.set;
        if (!validate(message)) return;
        const Link link{
            .self = 0, .peer = peer, .process = processes_[peer], .hosts = 7, .view_epoch = 1, .map_epoch = 1};
        if (!admit(message, link, ranges.home_of(page))) return;
        if (is_about_flush(message.kind)) return receive_flush(message);
        Event event = Event::message_of(message);
        if (message.has_bytes()) event.frame = allocate();
        event.no_space = record.step >> 7;
        event.wants_copy = record.step >> 6 & 1;
        step(event);
    }
    void receive_flush(const Message& message) {
        FlushActions actions;
        if (!flush_home_.accepts(message)) return;
        if (message.kind == MessageKind::flush_ask) {
            if (!flush_holder_.accepts(message)) return;
            const WaiterToken waiter = flush_holder_.on_ask(message);
            flush_holder_.begun(waiter, 1, actions);
            for (const PageId page : pages) step(Event::about(Event::Kind::write_back, page, waiter));
        } else if (message.kind == MessageKind::flushed) {
            flush_requester_.on_message(message, actions);
        } else {
            flush_home_.on_message(message, actions);
        }
        flush(actions);
    }
    void flush(const FlushActions& actions) {
        for (const FlushAction& action : actions) {
            if (action.kind == FlushAction::Kind::store_flush) {
                FlushActions more;
                flush_home_.on_store_flushed(action.ticket, false, verifier_of(1, 0), more);
                flush(more);
            } else if (action.kind == FlushAction::Kind::send && action.to == 0) {
                receive_flush(action.message);
            }
        }
    }

    void step(const Event& event) {
        static constexpr StripeLinks every_link{.up = 7};
        StepResult result;
        executor_.step(stripe_, every_link, scratch_, event, result, *this);
        TARN_ASSERT(result.refused.empty() || event.kind == Event::Kind::message);
        executor_.finish(result);
    }

    // Frames
    Quiet quiesce(PageId page, FrameId id, bool) override {
        (void)frame_of(id);
        quiescing_.emplace_back(page, id);
        return Quiet::later;
    }
    DirtyMask unwritten_of(FrameId id) override { return frame_of(id).dirty ? 1 : 0; }
    void set_access(PageId, FrameId id, Ownership ownership, uint32_t) override { frame_of(id).access = ownership; }
    void begin_writing(FrameId id) override { (void)frame_of(id); }
    void clear_writing(FrameId id) override { (void)frame_of(id); }
    void clear_dirty(FrameId id) override { frame_of(id).dirty = false; }
    void mark_dirty(FrameId id) override { frame_of(id).dirty = true; }
    bool release(FrameId id) override {
        frame_of(id).used = false;
        return true;
    }
    uint32_t age_of(FrameId) override { return 0; }
    void keep_lease(PageId, FrameId) override { TARN_ASSERT(false); }
    void freed() override {}

    // HomeStore: nothing is in memory.
    bool apply_copy(const Action& action) override { return action.borrowed || release(action.frame); }
    bool keep_copy(const Action& action) override { return apply_copy(action); }
    Found find(PageId) override { return {.where = Found::Where::store}; }
    bool share(FrameId) override { return false; }
    void copy(Found, FrameId) override {}
    FrameId take_free_frame() override { return no_frame; }
    void read(std::vector<HomeRead> reads) override {
        for (HomeRead& each : reads) {
            if (each.to != 0) {
                sent_.push_back(each.message);
                continue;
            }
            each.message.flags |= flag_payload;
            step(Event::message_of(each.message, allocate()));
        }
    }
    void record_losses(std::vector<PageId> lost_pages, HostId) override {
        losses_.insert(losses_.end(), lost_pages.begin(), lost_pages.end());
    }
    void mark(std::vector<PageId>) override { TARN_ASSERT(false); }  // every page counts as marked

    // Outbox
    void send(HostId to, const Message& message, FrameId id) override {
        TARN_ASSERT(to != 0 && to < 3);
        if (id != no_frame) (void)frame_of(id);
        if (sent_.size() > 64) sent_.erase(sent_.begin());
        sent_.push_back(message);
    }

    // FlushBooks
    void book(const Action& action, FlushActions& actions) override { tarn::book(flush_home_, action, actions); }
    void on_written(WaiterToken waiter, FlushActions& actions) override { flush_holder_.on_written(waiter, actions); }
    void run(FlushActions actions) override { flush(actions); }

    // Accesses
    bool wake(const Action& action, bool) override {
        TARN_ASSERT(waiting_ > 0);
        --waiting_;
        woken_.push_back(action.page);
        return false;
    }
    void refuse(const Action&) override {
        TARN_ASSERT(waiting_ > 0);
        --waiting_;
    }
    void resume(WaiterToken) override { TARN_ASSERT(false); }

    Frame& frame_of(FrameId id) {
        TARN_ASSERT(frames_.at(id).used);
        return frames_[id];
    }

    Stripe stripe_{0, 1, {.last_in_doubt = 1}, ranges};
    FlushHome flush_home_{0};
    FlushHolder flush_holder_{0};
    FlushRequester flush_requester_{0};
    std::array<Frame, frames_max> frames_{};
    std::array<Process, 3> processes_{{{1, 1}, {1, 1}, {1, 1}}};
    std::vector<Message> sent_;
    std::vector<PageId> woken_;
    std::vector<std::pair<PageId, FrameId>> quiescing_;
    std::vector<PageId> losses_;
    unsigned waiting_ = 0;
    WaiterToken last_waiter_ = 0;
    StepScratch scratch_;
    Executor executor_{0, {*this, *this, *this, *this, *this}};
};

}  // namespace
}  // namespace tarn::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tarn::protocol::FuzzHost host;
    for (; size >= sizeof(tarn::protocol::Record); data += 8, size -= 8) {
        tarn::protocol::Record record;
        std::memcpy(&record, data, sizeof record);
        host.take(record);
    }
    host.end();
    return 0;
}
