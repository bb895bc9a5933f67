// Fabric: what carries messages between hosts. Nothing above knows which backend it has.
//
// Two kinds of traffic share a link between two hosts:
//   messages   the 64 bytes of the coherence protocol, with or without a page; no answer is promised
//   calls      a request with an answer, for the control plane (calls.hpp)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "coherence/fabric/calls.hpp"
#include "coherence/protocol/message.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "utils/broadcast.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

class Fabric {
  public:
    // What the fabric calls, on the shard that owns the link, one call at a time per link.
    class Receiver {
      public:
        virtual ~Receiver() = default;
        // Whether this process of the host may be linked. Called for each new connection, before anything else from it.
        enum class LinkDecision : uint8_t { accept, retry, refuse };
        virtual LinkDecision decide_on_link(HostId host, Incarnation incarnation) = 0;
        // Before a link comes up, each host tells the state of its own store, and what it remembers of the other's. A
        // store that lacks what another host remembers must not serve: its host ends, and no link comes up.
        virtual StoreStanding own_standing() { return {}; }
        virtual StoreStanding remembered_of(HostId /*host*/) { return {}; }
        virtual Result<> accepts_memory(HostId /*of*/, const StoreStanding& /*of_us*/) { return {}; }
        virtual void on_standing(HostId /*host*/, const StoreStanding& /*standing*/) {}
        // A new link; what is sent during the call goes first on it.
        virtual void on_link_up(HostId host, Process process) = 0;
        virtual void on_link_down(HostId host) = 0;
        // The peer's greeting is complete: what follows is new.
        virtual void on_greeted(HostId host) = 0;
        // Messages that arrived together. Must call batch.deliver() once, which hands over each of them without a wait
        // in between. pages: their pages, as far as known by then, and unchecked.
        struct Batch {
            virtual void deliver() = 0;

          protected:
            ~Batch() = default;
        };
        virtual void on_batch(std::span<const PageId> pages, Batch& batch) = 0;
        // The message was checked by decode(), and is from the host that it names. page: lent by lend_page() and given
        // back with this call; filled if the message has a payload, null if it has no bytes. An error ends the link, as
        // the peer's fault.
        virtual Result<> on_message(const protocol::Message& message, std::byte* page) = 0;
        // Lends a page of memory to receive into. Null: none is free now; Fabric::resume() says when to ask again.
        virtual std::byte* lend_page(HostId from) = 0;
        // The link broke before the page was whole.
        virtual void return_page(std::byte* page) = 0;
    };

    virtual ~Fabric() = default;

    // Copies message and payload and returns; discards them when there is no link. Any thread. A message that may wait
    // (protocol::may_wait) goes with the next one to that host, at the latest after a millisecond.
    virtual void send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) = 0;
    // Between the two calls, messages of this shard to one host are held back, so that they are joined to few. No wait
    // may lie in between. The calls nest; see Cork. Without effect on a thread that is no shard.
    virtual void cork() = 0;
    virtual void uncork() = 0;
    // How many messages of this kind were received over all links; one that stands for many counts once.
    virtual uint64_t received_count(protocol::MessageKind kind) const = 0;
    virtual bool linked(HostId to) const = 0;
    // More bytes wait to be sent to this host than its link has room for. A task whose pages need not leave now waits
    // until drained() announces; send() still takes everything.
    virtual bool congested(HostId to) const = 0;
    Broadcast& drained() { return drained_; }
    // The host is linked and was heard lately: its process runs. A guess that may be wrong for a moment either way:
    // good for status and for requests that may fail, never for correctness.
    virtual bool answers(HostId to) const { return linked(to); }
    // Why the last attempt to link with the host failed, in words; empty while it is linked, or before any attempt. On
    // the first shard.
    virtual std::string why_not_linked(HostId /*host*/) const { return {}; }
    // The host's name, for the log.
    virtual std::string name_of(HostId host) const { return std::to_string(host); }
    static std::string name_of(const Fabric* fabric, HostId host) {
        return fabric ? fabric->name_of(host) : std::to_string(host);
    }
    // Ends the present link; the next one is another. Any thread.
    virtual void disconnect(HostId from) = 0;
    // The receiver, which had no page to lend to this host's link, may have one now. Any thread.
    virtual void resume(HostId from) = 0;
    // Errors: unavailable without a link or when it breaks before the answer; else the other host's, of which only the
    // code travels: then `where` is answer_of_host.
    static constexpr char answer_of_host[] = "fabric.answer";
    virtual Task<Result<std::string>> call(HostId to, CallKind kind, std::string request = {}) = 0;
    // The handlers for the calls of other hosts. An error travels as its code.
    CallHandlers& calls() { return calls_; }

  protected:
    Broadcast drained_;
    CallHandlers calls_;

  public:
    // While it lives, messages of this shard to one host travel together. fabric: null on a host alone.
    class Cork {
      public:
        explicit Cork(Fabric* fabric) : fabric_(fabric) {
            if (fabric_) fabric_->cork();
        }
        Cork(const Cork&) = delete;
        ~Cork() {
            if (fabric_) fabric_->uncork();
        }

      private:
        Fabric* fabric_;
    };
};

}  // namespace tarn
