// Catalog: how an exclusive volume comes to another host than the one that holds it. The holder lets go of it; nobody
// takes it from a host that does not answer, because that one may still write.
#include <fmt/format.h>

#include "daemon/catalog/catalog.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {
// What the holder has, and how long who asks waits: longer, so that it hears why not.
constexpr std::chrono::seconds given_up_within{5};
constexpr std::chrono::seconds answer_within{10};
constexpr std::chrono::milliseconds look_for_its_end_every{50};
}  // namespace

Task<Result<>> Catalog::take_over(std::string name) {
    CO_TRY(const std::optional<CatalogRecord> record, co_await look_up(std::move(name)));
    if (!record) co_return fail(no_such_volume);
    const HostId holder = record->holder;
    if (entry_without_attributes(*record).holder.empty() || holder == cache_.self() ||
        cache_.membership().is_dead(holder))
        co_return Result<>{};
    if (is_silent(holder))
        co_return fail(Errc::unavailable, EIO,
                       about(holder,
                             " has the volume open for writing and does not answer; while it may be alive, "
                             "nobody takes the volume over"));
    const Result<std::string> answer =
        co_await with_timeout(answer_within, cache_.fabric()->call(holder, CallKind::give_up, pack(record->id)));
    if (answer.has_value()) co_return Result<>{};
    if (answer.error().code == Errc::busy)
        co_return fail(Errc::busy, EBUSY,
                       about(holder, " has the volume open still: as a file of a mount, or a client does not end"));
    co_return fail(answer.error().code, answer.error().sys_errno, about(holder, " does not give the volume up"));
}

// On this host, for another one.
Task<Result<std::string>> Catalog::give_up(HostId to, std::string request) {
    const std::optional<VolumeId> volume = unpack<VolumeId>(request);
    if (!volume || *volume == 0 || *volume > volume_id_max || to >= host_names_.size())
        co_return fail(Errc::protocol, 0, "give up: volume");
    if (!end_clients_) co_return fail(Errc::unavailable, EAGAIN, "give up: the host starts or stops");
    if (!holds(*volume)) {
        // Not by this process; but by the one before, if its device is gone and nobody was told yet.
        CO_TRY_VOID(co_await ask_registrar(release_request(*volume, hold_number(0))));
        co_return std::string();
    }
    log::warning("host {} takes over volume {}: block devices and NBD clients of this host lose it", host_names_[to],
                 log::printable(name_of(*volume)));
    CO_TRY_VOID(co_await end_clients_(*volume));
    const auto until = std::chrono::steady_clock::now() + given_up_within;
    while (holds(*volume) || releases_.load(std::memory_order_seq_cst) > 0) {
        if (cache_.abandoned() || std::chrono::steady_clock::now() > until)
            co_return fail(Errc::busy, EBUSY, "give up: it is open here");
        co_await Loop::current()->sleep(look_for_its_end_every);
    }
    co_return std::string();
}

bool Catalog::holds(VolumeId volume) {
    const std::lock_guard guard(holds_mutex_);
    return holds_.contains(volume);
}

}  // namespace tarn
