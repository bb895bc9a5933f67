// RecordReader: the incoming side of one link: the bytes of a channel become messages and control records, in order.
//
// Bytes that have arrived are taken in bulk. The rest of a page that has not arrived in full goes from the channel
// straight into memory lent by the receiver. While the receiver has none to lend, the channel is not read. Made by Link
// for each channel.
#pragma once

#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/control_record.hpp"
#include "coherence/fabric/transport/transport.hpp"
#include "coherence/protocol/coalescing.hpp"
#include "utils/loop.hpp"

namespace tarn {

class Link;

class RecordReader {
  public:
    // link: handles control records, and counts the messages.
    RecordReader(Loop& loop, Channel& channel, HostId peer, Incarnation incarnation, Fabric::Receiver& receiver,
                 Link& link)
        : loop_(loop), channel_(channel), peer_(peer), incarnation_(incarnation), receiver_(receiver), link_(link) {}
    RecordReader(const RecordReader&) = delete;
    ~RecordReader();

    // Reads until the channel ends. Errors: closed, io, or protocol: the peer sent what no correct host sends.
    Task<Result<>> read_all();
    // A page may be available again; or the connection ends, and the reader must not wait any more.
    void resume() { room_.notify_all(); }
    void end() {
        ended_ = true;
        room_.notify_all();
    }
    // How often bytes arrived.
    uint64_t receive_count() const { return receive_count_; }
    bool waits_for_room() const { return waits_for_room_; }

  private:
    // Takes every whole record off the front, and the part of the last one that is there; returns how many bytes.
    Task<Result<size_t>> take(std::span<const std::byte> bytes);
    // What the next message needs before it can be taken: more bytes, a page to lend, or only the next turn.
    enum class Next : uint8_t { bytes, page, turn };
    Result<Next> take_batch(std::span<const std::byte>& rest);
    struct Front final : Fabric::Receiver::Batch {
        Front(RecordReader& of, std::span<const std::byte> bytes) : reader(of), rest(bytes) {}
        void deliver() override { taken = reader.take_batch(rest); }
        RecordReader& reader;
        std::span<const std::byte> rest;
        Result<Next> taken = Next::bytes;
    };
    size_t look_ahead(std::span<const std::byte> bytes, std::span<PageId> pages) const;
    // True: a whole control record was there, and was taken off the front.
    Result<bool> take_control(const protocol::Message& header, std::span<const std::byte>& bytes);
    Result<protocol::Message> checked(std::span<const std::byte> bytes) const;
    Result<> deliver();
    // True: all parts of the message were there, and were taken off the front with it.
    Result<bool> take_parts(std::span<const std::byte>& rest);
    // Delivers the next run of the message; returns its size in pages.
    Result<unsigned> deliver_run();

    Loop& loop_;
    Channel& channel_;
    HostId peer_;
    Incarnation incarnation_;
    Fabric::Receiver& receiver_;
    Link& link_;
    uint64_t receive_count_ = 0;
    Event room_;
    bool waits_for_room_ = false;
    bool ended_ = false;

    // The message whose page is still arriving, and how much of the page is there.
    protocol::Message message_;
    std::byte* page_ = nullptr;
    size_t page_filled_ = 0;
    // The message's parts, and how many of its runs are still to be delivered.
    std::vector<protocol::Part> parts_;
    size_t runs_left_ = 0;

    static constexpr unsigned messages_at_once_max = 32;
};

}  // namespace tarn
