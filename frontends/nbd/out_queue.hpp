// OutQueue: bytes of replies that wait for the socket, owned, in the order they go out.
//
// Two kinds get here: replies of requests that had to wait for something, whose data is in a buffer of its own, and
// what a socket did not take of a gathered send, copied so that no frame stays pinned. Who fills it bounds it.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <span>
#include <vector>

#include "frontends/nbd/buffer.hpp"
#include "frontends/nbd/reply.hpp"

namespace tarn::nbd {

class OutQueue {
  public:
    bool empty() const { return segments_.empty(); }

    // The payload follows the header.
    void push(const ReplyHeader& header, Buffer payload) { segments_.push_back({header, std::move(payload)}); }
    // Copies vectors, less their first skip_bytes.
    void push_copy(Budget& budget, std::span<const iovec> vectors, size_t skip_bytes);
    // Appends what is queued, up to vectors_max in all.
    void gather(std::vector<iovec>& vectors, size_t vectors_max) const;
    // Drops sent_bytes off the front.
    void consume(size_t sent_bytes);
    void clear() { segments_.clear(); }

  private:
    struct Segment {
        ReplyHeader header;
        Buffer payload;
        size_t sent_bytes = 0;

        size_t size_bytes() const { return header.size_bytes + payload.size(); }
    };
    std::deque<Segment> segments_;
};

}  // namespace tarn::nbd
