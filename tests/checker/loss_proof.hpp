// LossProof: makes a host lose acknowledged writes of sessions on other hosts, and looks whether all of them are told.
//
// Who writes a page of the victim, and then a session there writes a part of the same page: all that is left of the
// first write is in the victim's memory. That goes with a kill. What is lost is looked up by a session that begins
// later, so that the proof cannot be an empty one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/checker/clients.hpp"

namespace tarn::checker {

class LossProof {
  public:
    // hook(verb, host): kills a host, and starts it again. No other session of this process is open.
    using Hook = std::function<bool(const char* verb, size_t host)>;
    LossProof(const std::vector<HostUnderTest>& hosts, Hook hook) : hosts_(hosts), hook_(std::move(hook)) {}

    // Nothing if everybody was told; else what was not. round: another one for each proof, and so other pages.
    std::optional<std::string> prove(size_t victim, uint64_t round);
    size_t lost_count() const { return lost_count_; }

  private:
    struct Writer;
    static std::unique_ptr<Session> open_after_loss(const std::string& where, const std::vector<Writer>& writers);
    std::optional<std::string> check_writer(Writer& writer, Session& reader, Session& young);
    uint64_t offset_of(size_t range, size_t writer, uint64_t round) const;

    const std::vector<HostUnderTest>& hosts_;
    Hook hook_;
    size_t lost_count_ = 0;
};

}  // namespace tarn::checker
