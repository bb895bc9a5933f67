// FlushHolder: the side of a flush that has bytes which home lacks.
#include <algorithm>

#include "coherence/protocol/flush.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

bool FlushHolder::accepts(const Message& ask) const {
    return static_cast<size_t>(std::ranges::count(asks_, ask.from, &Ask::home)) < flushes_of_a_host_max;
}

WaiterToken FlushHolder::on_ask(const Message& ask) {
    asks_.push_back(
        {.waiter = ++last_waiter_, .home = ask.from, .volume = ask.page.volume(), .ask_id = ask.request_id});
    return last_waiter_;
}

void FlushHolder::begun(WaiterToken waiter, uint32_t write_back_count, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (ask == asks_.end()) return;
    ask->missing += write_back_count;
    ask->has_begun = true;
    answer_if_complete(waiter, actions);
}

void FlushHolder::on_written(WaiterToken waiter, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (ask == asks_.end()) return;
    --ask->missing;
    answer_if_complete(waiter, actions);
}

void FlushHolder::answer_if_complete(WaiterToken waiter, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (!ask->has_begun || ask->missing != 0) return;
    send_of_flush(actions, ask->home, MessageKind::flush_answer, self_, ask->volume, ask->ask_id);
    asks_.erase(ask);
}

}  // namespace tarn::protocol
