// Segment: the memory that two processes of one machine share for one connection: a ring for each direction.
//
// The connecting side makes it, so that it counts as that side's, and seals its size: nobody can cut it off under the
// other, whose access would end the process (SIGBUS). The accepting side checks that before it maps it. For
// ShmTransport.
#pragma once

#include <array>
#include <memory>

#include "coherence/fabric/transport/shm/ring.hpp"
#include "utils/mapping.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class Segment {
  public:
    // Of one direction. Several times what is sent at once, so that both sides can work at the same time.
    static constexpr size_t ring_bytes = size_t{1} << 20;

    // Errors: io.
    static Result<std::unique_ptr<Segment>> create();
    // What the other side has made. Errors: refused (it is no such memory, or its size can change), io.
    static Result<std::unique_ptr<Segment>> adopt(UniqueFd memory);

    // To pass on.
    int fd() const { return memory_.get(); }
    RingMemory outgoing() const { return is_maker_ ? ring(0) : ring(1); }
    RingMemory incoming() const { return is_maker_ ? ring(1) : ring(0); }

  private:
    Result<> map();
    RingMemory ring(size_t direction) const;

    UniqueFd memory_;
    bool is_maker_ = false;
    Mapping words_;
    std::array<Mapping, 2> twice_;
};

}  // namespace tarn
