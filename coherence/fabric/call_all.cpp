#include "coherence/fabric/call_all.hpp"

#include <memory>
#include <utility>

#include "utils/interrupt.hpp"
#include "utils/loop.hpp"

namespace tarn {

namespace {

// Shared by the asking task and the calls: the last to end frees it.
struct Asking {
    Asking(Loop& loop, const std::vector<HostId>& hosts) : missing(hosts.size()), timeout(loop) {
        for (const HostId host : hosts) answers.push_back({.host = host, .said = fail(Errc::unavailable)});
    }
    std::vector<HostAnswer> answers;
    size_t missing;
    Timer timeout;
};

Task<> ask(Fabric& fabric, CallKind kind, std::string request, std::shared_ptr<Asking> asking, size_t index) {
    Result<std::string> said = co_await fabric.call(asking->answers[index].host, kind, std::move(request));
    asking->answers[index].said = std::move(said);
    if (--asking->missing == 0) asking->timeout.cancel();
}

}  // namespace

Task<std::vector<HostAnswer>> call_all(Fabric& fabric, std::vector<HostId> hosts, CallKind kind, std::string request,
                                       std::chrono::milliseconds timeout) {
    Interrupt* const interrupt = co_await this_interrupt;
    Loop& loop = *Loop::current();
    const auto asking = std::make_shared<Asking>(loop, hosts);
    for (size_t i = 0; i < hosts.size(); ++i) loop.spawn(ask(fabric, kind, request, asking, i));
    if (asking->missing > 0 && !(interrupt && interrupt->raised())) {
        const Interrupt::Listener listener(interrupt, [&] { asking->timeout.cancel(); });
        (void)co_await asking->timeout.sleep(timeout);
    }
    co_return asking->answers;  // a copy: nobody sees later answers
}

}  // namespace tarn
