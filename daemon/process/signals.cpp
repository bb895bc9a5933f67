#include "daemon/process/signals.hpp"

#include <poll.h>

#include <cerrno>
#include <csignal>

namespace tarn {

Result<Signals> Signals::create() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
    if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr)) return fail(Errc::io, error, "signals.create");
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
    Signals signals;
    signals.fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC));
    if (!signals.fd_) return fail(Errc::io, errno, "signals.create: signalfd");
    return signals;
}

Task<Result<int>> Signals::next(Loop& loop) {
    // A signalfd that blocks would hold a kernel worker: wait for it first.
    CO_TRY_VOID(co_await loop.poll(fd_.get(), POLLIN));
    CO_TRY(const size_t size, co_await loop.read(fd_.get(), std::as_writable_bytes(std::span(&received_, 1)), 0));
    if (size != sizeof received_) co_return fail(Errc::io, 0, "signals.next: short read");
    co_return static_cast<int>(received_.ssi_signo);
}

}  // namespace tarn
