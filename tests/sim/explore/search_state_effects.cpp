// SearchState: the executor's effects, as a model small enough to be explored.
#include <algorithm>
#include <utility>

#include "tests/sim/explore/search_state.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

using protocol::Action;
using protocol::Event;
using protocol::FlushAction;
using protocol::FlushActions;
using protocol::Message;
using protocol::MessageKind;
using protocol::Ownership;

FrameId SearchState::allocate(HostId id) {
    auto& frames = hosts_.change(id).frames;
    const auto free = std::ranges::find(frames, false, &Frame::used);
    require(free != frames.end(), "frames leak");
    *free = {.used = true};
    return static_cast<FrameId>(free - frames.begin());
}

void SearchState::send(HostId from, HostId to, Message message, Version version) {
    if (!hosts_[to].is_up) return;
    message.from = from;
    message.incarnation = hosts_[from].incarnation;
    message.loss_generation = hosts_[from].loss_generation;
    network_.push_back({.message = message,
                        .from = from,
                        .to = to,
                        .version = version,
                        .of_hello = saying_hello_to_ == to,
                        .number = ++last_message_});
}

// The effects of the executor in a host of the world.
class SearchState::Effects final : public Frames,
                                   public HomeStore,
                                   public Outbox,
                                   public FlushBooks,
                                   public Accesses,
                                   public StepObserver {
  public:
    Effects(SearchState& world, HostId id) : world_(world), id_(id), host_(world.hosts_.change(id)) {}

    // Frames
    Quiet quiesce(PageId, FrameId, bool) override { return Quiet::now; }
    DirtyMask unwritten_of(FrameId id) override { return frame_of(id).dirty || frame_of(id).writing ? 1 : 0; }
    void set_access(PageId, FrameId id, Ownership ownership, uint32_t lost) override {
        frame_of(id).access = ownership;
        frame_of(id).lost = lost;
        if (ownership != Ownership::none)
            host_.bound = id;
        else if (host_.bound == id)
            host_.bound = no_frame;
    }
    void begin_writing(FrameId id) override {
        frame_of(id).writing |= frame_of(id).dirty;
        frame_of(id).dirty = false;
    }
    void clear_writing(FrameId id) override { frame_of(id).writing = false; }
    void clear_dirty(FrameId id) override { frame_of(id).dirty = frame_of(id).writing = false; }
    void mark_dirty(FrameId id) override { frame_of(id).dirty = true; }
    bool release(FrameId id) override {
        frame_of(id).used = false;
        return true;
    }
    uint32_t age_of(FrameId) override { return 0; }
    void keep_lease(PageId, FrameId) override { require(false, "nobody is inside"); }
    void freed() override {}

    // HomeStore
    bool apply_copy(const Action& action) override {
        const protocol::PageVersion page_version{action.tenure, action.sequence};
        require(host_.home_bytes.page_version < page_version, "home's bytes go back");
        host_.home_bytes = {frame_of(action.frame).version, page_version};
        if (!action.borrowed) (void)release(action.frame);
        return true;
    }
    bool keep_copy(const Action&) override {
        require(false, "home wanted no copy");
        return false;
    }
    HomeStore::Found find(PageId) override {
        home_frame_ = world_.allocate(id_);
        host_.frames[home_frame_].version = host_.home_bytes.version;
        return {.where = HomeStore::Found::Where::frame, .frame = home_frame_};
    }
    bool share(FrameId) override {
        home_frame_ = no_frame;
        return true;
    }
    void copy(HomeStore::Found, FrameId) override { require(false, "nobody else uses the frame"); }
    FrameId take_free_frame() override { return no_frame; }
    void read(std::vector<HomeRead>) override { require(false, "home's bytes are in memory"); }
    void record_losses(std::vector<PageId>, HostId) override { host_.loss_due = true; }
    void mark(std::vector<PageId>) override { require(false, "every page counts as marked"); }

    // Outbox
    void send(HostId to, const Message& message, FrameId id) override {
        world_.send(id_, to, message, id == no_frame ? garbage : frame_of(id).version);
        if (id != no_frame && id == home_frame_) (void)release(std::exchange(home_frame_, no_frame));
    }

    // FlushBooks
    void book(const Action& action, FlushActions& actions) override { tarn::book(host_.flush_home, action, actions); }
    void on_written(protocol::WaiterToken waiter, FlushActions& actions) override {
        host_.flush_holder.on_written(waiter, actions);
    }
    void run(FlushActions actions) override { world_.perform_flush(id_, actions); }

    // Accesses
    bool wake(const Action& action, bool) override {
        frame_of(action.frame).lost = action.lost;
        host_.woken.push_back({action.frame, host_.operation});
        return false;
    }
    void refuse(const Action&) override { require(false, "no space was never said"); }
    void resume(protocol::WaiterToken) override { require(false, "nothing goes on within a step"); }

  private:
    Frame& frame_of(FrameId id) {
        require(host_.frames[id].used, "an action names a free frame");
        return host_.frames[id];
    }

    SearchState& world_;
    HostId id_;
    Host& host_;
    FrameId home_frame_ = no_frame;  // with home's bytes, between find() and their use
};

void SearchState::step(HostId id, const Event& event) {
    static constexpr StripeLinks every_link{.up = ~HostSet{0}};  // send() knows who is down
    static StepScratch scratch;
    Effects effects(*this, id);
    const Executor executor(id, {effects, effects, effects, effects, effects});
    StepResult result;
    executor.step(hosts_.change(id).stripe, every_link, scratch, event, result, effects);
    require(result.refused.empty(), result.refused);
    executor.finish(result);
}

void SearchState::perform_flush(HostId id, const FlushActions& actions) {
    for (const FlushAction& action : actions) {
        switch (action.kind) {
            case FlushAction::Kind::send:
                if (action.to != id) {
                    send(id, action.to, action.message);
                    break;
                }
                deliver_flush(id, action.message);
                break;
            case FlushAction::Kind::store_flush:
                hosts_.change(id).store_flushes.push_back({action.ticket, hosts_[id].home_bytes});
                break;
            case FlushAction::Kind::complete: {
                Host& host = hosts_.change(id);
                if (action.lost) {
                    // The client gives up, and starts again with the bytes that it finds.
                    host.flush_requester.close(host.session);
                    host.flush_requester.open(++host.session, action.volume);
                } else {
                    require(hosts_[0].stored.version >= host.cover,
                            "I8: a flush succeeded before its bytes were durable");
                    require(std::ranges::find(log_, host.cover, &Write::version) != log_.end(),
                            "D1: a flush succeeded over a lost write");
                    flushed_ = std::max(flushed_, host.cover);
                }
                host.cover = 0;
                end_operation(id);
                break;
            }
        }
    }
}

void SearchState::deliver_flush(HostId to, const Message& message) {
    Host& host = hosts_.change(to);
    FlushActions actions;
    if (message.kind == MessageKind::flush_ask) return answer_flush_ask(to, message);
    if (message.kind == MessageKind::flushed)
        host.flush_requester.on_message(message, actions);
    else
        host.flush_home.on_message(message, actions);
    perform_flush(to, actions);
}

void SearchState::answer_flush_ask(HostId id, const Message& ask) {
    Host& host = hosts_.change(id);
    const protocol::WaiterToken waiter = host.flush_holder.on_ask(ask);
    const bool is_dirty = std::ranges::any_of(
        host.frames, [](const Frame& frame) { return frame.used && (frame.dirty || frame.writing); });
    if (is_dirty) step(id, Event::about(Event::Kind::write_back, ask.page, waiter));
    FlushActions actions;
    host.flush_holder.begun(waiter, is_dirty ? 1 : 0, actions);
    perform_flush(id, actions);
}

}  // namespace tarn::sim
