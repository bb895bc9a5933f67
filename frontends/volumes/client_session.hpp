// ClientSession: what this host remembers of one client of a volume, over all its handles and connections.
//
// Which homes have a verifier of its writes noted, which losses lie before it, and whether a flush of it failed for
// good (VolumeSession). All handles of a client share one, so that a flush over one of its connections vouches for
// what it wrote over the others. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "coherence/cache/cache.hpp"
#include "coherence/flush/flusher.hpp"
#include "frontends/volumes/volume.hpp"

namespace tarn {

struct ClientSession final : VolumeSession {
    ClientSession(Cache& of, VolumeId volume, OnLoss on_loss)
        : cache(of), session{.volume = volume, .on_loss = on_loss} {
        cache.flusher().open_session(session);
    }
    // One that goes on, or begins, and outlives the process in this record.
    ClientSession(Cache& of, VolumeId volume, std::shared_ptr<SessionRecord> in)
        : VolumeSession(std::move(in)),
          cache(of),
          session{.volume = volume, .record = record.get()},
          pages_end(record->pages_end) {
        cache.flusher().open_session(session);
    }
    ClientSession(const ClientSession&) = delete;
    ~ClientSession() override { cache.flusher().close_session(session); }

    Cache& cache;
    Session session;
    std::atomic<std::chrono::milliseconds> fail_after{std::chrono::milliseconds(0)};  // 0: no limit
    std::atomic<uint64_t> own_pages_end{0};
    std::atomic<uint64_t>& pages_end = own_pages_end;  // above every page that the client has written here
};

}  // namespace tarn
