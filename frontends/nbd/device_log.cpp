#include "frontends/nbd/device_log.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn::nbd {

namespace {

// What the kernel overwrites with a length.
constexpr unsigned not_done = UINT32_MAX;

constexpr size_t parking_pages = DeviceLog::parking_size_bytes / page_size;
// As much of the parking stays in memory while nothing is parked.
constexpr size_t parking_pages_kept = 64;

constexpr size_t pages_of(uint64_t size_bytes) {
    return (size_bytes + page_size - 1) / page_size;
}

}  // namespace

DeviceLog::DeviceLog(Memory& memory, uint32_t number) : memory_(memory), number_(number), parking_used_(parking_pages) {
    free_.reserve(slot_count);
    vectors_.reserve(parts_max);
    end_receive();
    end_send();
    free_.clear();
    for (auto i = static_cast<uint16_t>(slot_count); i-- > 0;) {
        Slot& slot = memory_.slots[i];
        // One that was filled in, but does not count as parsed, is parsed again.
        if (slot.begin >= memory_.parsed.load()) slot.state.store(State::free);
        if (slot.state.load() == State::received) slot.error = Errno::none;  // it was about to be finished
        if (is_free(i)) free_.push_back(i);
        if (!keeps_payload(slot)) memory_.parked[i].store(0);
        if (is_parked(i))
            mark_parked(i, true);
        else if (keeps_payload(slot))
            ++waiting_writes_;
    }
    parking_end_ = parking_pages;  // who knows
}

bool DeviceLog::keeps_payload(const Slot& slot) const {
    return slot.state.load(std::memory_order_relaxed) == State::received && slot.request.command == Command::write &&
           slot.request.size_bytes <= payload_size_max;
}

std::vector<uint16_t> DeviceLog::used() const {
    std::vector<uint16_t> numbers;
    for (uint16_t i = 0; i < slot_count; ++i)
        if (!is_free(i)) numbers.push_back(i);
    std::ranges::sort(numbers, {}, [&](uint16_t i) { return slot(i).begin.load(std::memory_order_relaxed); });
    return numbers;
}

bool DeviceLog::has_answered(const Memory& memory, uint64_t parsed) {
    return std::ranges::none_of(memory.slots, [&](const Slot& slot) {
        return slot.state.load(std::memory_order_acquire) != State::free &&
               slot.begin.load(std::memory_order_relaxed) < parsed;
    });
}

// What lies before it in the ring is of no use any more.
uint64_t DeviceLog::live_begin() const {
    uint64_t begin =
        std::min(memory_.parsed.load(std::memory_order_relaxed), memory_.filled.load(std::memory_order_relaxed));
    if (waiting_writes_ > 0)
        for (uint16_t i = 0; i < slot_count; ++i)
            if (keeps_payload(slot(i)) && !is_parked(i))
                begin = std::min(begin, slot(i).begin.load(std::memory_order_relaxed));
    return begin;
}

size_t DeviceLog::room() const {
    return ring_size_bytes - (memory_.filled.load(std::memory_order_relaxed) - live_begin());
}

std::span<const std::byte> DeviceLog::unparsed() const {
    const uint64_t parsed = memory_.parsed.load(std::memory_order_relaxed);
    const uint64_t filled = memory_.filled.load(std::memory_order_relaxed);
    return parsed < filled ? std::span(at(parsed), filled - parsed) : std::span<const std::byte>();
}

ssize_t DeviceLog::receive(int socket) {
    const uint64_t filled = memory_.filled.load(std::memory_order_relaxed);
    const size_t size_max = receivable_bytes();
    TARN_ASSERT(size_max > 0);
    // While little is in flight, the same memory is used again and again.
    if (live_begin() == filled) memory_.ring_begin.store(filled, std::memory_order_release);
    iovec vector{const_cast<std::byte*>(at(filled)), size_max};
    memory_.receiving = {};
    memory_.receiving.msg_hdr.msg_iov = &vector;
    memory_.receiving.msg_hdr.msg_iovlen = 1;
    memory_.receiving.msg_len = not_done;
    memory_.receiving_from = filled;
    memory_.is_receiving.store(1, std::memory_order_release);
    const int count = ::recvmmsg(socket, &memory_.receiving, 1, MSG_DONTWAIT, nullptr);
    const int error = errno;
    const ssize_t size = count < 0 ? -1 : static_cast<ssize_t>(memory_.receiving.msg_len);
    end_receive();
    errno = error;
    return size;
}

// Each store says what is so, and may be made twice.
void DeviceLog::end_receive() {
    if (memory_.is_receiving.load(std::memory_order_acquire) == 0) return;
    if (memory_.receiving.msg_len != not_done)
        memory_.filled.store(memory_.receiving_from + memory_.receiving.msg_len, std::memory_order_release);
    memory_.is_receiving.store(0, std::memory_order_release);
}

std::optional<uint16_t> DeviceLog::add(const Request& request, size_t payload_bytes) {
    if (free_.empty()) return std::nullopt;
    const uint16_t number = free_.back();
    free_.pop_back();
    Slot& slot = memory_.slots[number];
    const uint64_t begin = memory_.parsed.load(std::memory_order_relaxed);
    slot.begin.store(begin, std::memory_order_relaxed);
    slot.request = request;
    slot.error = Errno::none;
    slot.sent_bytes.store(0, std::memory_order_relaxed);
    if (is_write(request.command)) slot.receipts.begin(number_ + number);
    slot.state.store(State::received, std::memory_order_release);
    memory_.parsed.store(begin + request_size + payload_bytes, std::memory_order_release);
    if (keeps_payload(slot)) ++waiting_writes_;
    return number;
}

bool DeviceLog::has_come(uint16_t number) const {
    const Request& request = slot(number).request;
    const uint64_t payload_bytes = request.command == Command::write ? request.size_bytes : 0;
    return memory_.filled.load(std::memory_order_relaxed) >= slot(number).begin + request_size + payload_bytes;
}

std::span<const std::byte> DeviceLog::payload(uint16_t number) const {
    TARN_ASSERT(keeps_payload(slot(number)));
    if (const uint32_t parked = memory_.parked[number].load(std::memory_order_relaxed); parked != 0)
        return {memory_.parking.data() + (parked - 1) * page_size, slot(number).request.size_bytes};
    return {at(slot(number).begin + request_size), slot(number).request.size_bytes};
}

void DeviceLog::finish(uint16_t number, Errno error) {
    Slot& slot = memory_.slots[number];
    const bool was_parked = is_parked(number);
    if (keeps_payload(slot) && !was_parked) --waiting_writes_;
    slot.error = error;
    slot.state.store(State::done, std::memory_order_release);
    if (was_parked) unpark(number);
}

// First fit: what is parked is little, and rare.
void DeviceLog::park(uint16_t number) {
    if (is_parked(number)) return;
    const std::span<const std::byte> bytes = payload(number);
    const size_t count = pages_of(bytes.size());
    size_t begin = 0;
    for (size_t page = 0; page < parking_pages && page - begin < count; ++page)
        if (parking_used_[page]) begin = page + 1;
    if (begin + count > parking_pages) return;
    std::memcpy(memory_.parking.data() + begin * page_size, bytes.data(), bytes.size());
    memory_.parked[number].store(static_cast<uint32_t>(begin) + 1, std::memory_order_release);
    mark_parked(number, true);
    --waiting_writes_;
}

void DeviceLog::mark_parked(uint16_t number, bool is_used) {
    const size_t begin = memory_.parked[number].load(std::memory_order_relaxed) - 1;
    const size_t end = begin + pages_of(slot(number).request.size_bytes);
    std::fill(parking_used_.begin() + static_cast<ptrdiff_t>(begin),
              parking_used_.begin() + static_cast<ptrdiff_t>(end), is_used);
    parking_end_ = std::max(parking_end_, end);
    parked_count_ += is_used ? 1 : -1;
}

void DeviceLog::unpark(uint16_t number) {
    mark_parked(number, false);
    memory_.parked[number].store(0, std::memory_order_release);
    if (parked_count_ > 0 || parking_end_ <= parking_pages_kept) return;
    parking_end_ = 0;
    ::madvise(memory_.parking.data(), parking_size_bytes, MADV_REMOVE);
}

DeviceLog::Sent DeviceLog::send(int socket, std::span<const Part> parts) {
    TARN_ASSERT(!parts.empty() && parts.size() <= parts_max);
    vectors_.clear();
    unsigned message_count = 0;
    size_t size_bytes = 0;
    uint32_t part_count = 0;
    for (const Part& part : parts) {
        if (part_count == 0 || size_bytes + part.bytes.size() > message_size_max) {
            if (message_count == messages_max) break;  // the rest is for the next send
            mmsghdr& message = memory_.messages[message_count++] = {};
            message.msg_len = not_done;
            message.msg_hdr.msg_iov = vectors_.data() + vectors_.size();
            size_bytes = 0;
        }
        size_bytes += part.bytes.size();
        vectors_.push_back({const_cast<std::byte*>(part.bytes.data()), part.bytes.size()});
        ++memory_.messages[message_count - 1].msg_hdr.msg_iovlen;
        memory_.parts[part_count++] = {.slot = part.slot,
                                       .message = static_cast<uint16_t>(message_count - 1),
                                       .begin = part.begin,
                                       .size = static_cast<uint32_t>(part.bytes.size())};
    }
    memory_.part_count.store(part_count, std::memory_order_release);
    const int count = ::sendmmsg(socket, memory_.messages.data(), message_count, MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error = errno;
    const bool is_short =
        count < static_cast<int>(message_count) || memory_.messages[message_count - 1].msg_len < size_bytes;
    end_send();
    if (count < 0 && error != EAGAIN && error != EINTR) return Sent::broken;
    return is_short ? Sent::full : Sent::yes;
}

void DeviceLog::end_send() {
    const uint32_t count = memory_.part_count.load(std::memory_order_acquire);
    uint64_t left = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const Memory::Sending& part = memory_.parts[i];
        if (i == 0 || memory_.parts[i - 1].message != part.message) {
            const unsigned sent = memory_.messages[part.message].msg_len;
            left = sent == not_done ? 0 : sent;
        }
        const auto sent = static_cast<uint32_t>(std::min<uint64_t>(left, part.size));
        if (sent == 0) continue;
        left -= sent;
        Slot& slot = memory_.slots[part.slot];
        slot.sent_bytes.store(part.begin + sent, std::memory_order_relaxed);
        if (part.begin + sent < slot.reply_size()) continue;
        slot.state.store(State::free, std::memory_order_release);
        free_.push_back(part.slot);
    }
    memory_.part_count.store(0, std::memory_order_release);
}

}  // namespace tarn::nbd
