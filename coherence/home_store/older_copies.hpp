// OlderCopies: bytes of a page that hosts keep although its home has newer ones.
//
// A host keeps what it gave away until home says `free`, and tells a home that starts of it; that one compares
// versions, and takes the newer bytes. But the store remembers no version of a page of zeros. So before one is zeroed
// in the store home makes sure that nobody keeps anything older: else a flushed trim could be undone (D1). Who may
// write the page, and has not since, gives that up: its space goes, and the next write must ask for some.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/fabric/calls.hpp"
#include "tiers/page.hpp"

namespace tarn {

class OlderCopies {
  public:
    struct Page {
        PageId page;
        Tenure tenure = 0;
    };
    explicit OlderCopies(const HostParts& parts) : parts_(parts) {}
    void register_calls(CallHandlers& calls);

    // For HomeWriter, of pages homed here. True: no host that is not declared dead keeps bytes of a page that are older
    // than its tenure's. False: nobody can say: a host is away, did not answer within a second or did not a few seconds
    // ago, or this host stops.
    Task<bool> end(std::vector<Page> pages);

  private:
    Task<Result<std::string>> hear(HostId home, std::string request);
    bool free_here(HostId home, std::span<const Page> pages);

    const HostParts parts_;
    std::atomic<uint64_t> asks_from_ns_{0};  // while a host hangs, not every flush waits for it
};

}  // namespace tarn
