#include "frontends/nbd/session_book.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "utils/assert.hpp"

namespace tarn::nbd {

SessionBook::SessionBook(std::span<std::byte> memory) {
    TARN_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % alignof(Page) == 0);
    if (memory.size() >= size_bytes) pages_ = {reinterpret_cast<Page*>(memory.data()), page_count};
}

std::shared_ptr<SessionRecord> SessionBook::record_of(Page& page) const {
    return {&page.record, [&page, keeps_all = keeps_all_](SessionRecord*) {
                if (!keeps_all->load(std::memory_order_relaxed)) page.is_used.store(false, std::memory_order_release);
            }};
}

void SessionBook::set_ended(const SessionRecord* record, bool has_ended) {
    const auto page = std::ranges::find_if(pages_, [&](const Page& each) { return &each.record == record; });
    if (page != pages_.end()) page->is_ended.store(has_ended, std::memory_order_relaxed);
}

std::vector<SessionBook::Left> SessionBook::take_left() {
    std::vector<Left> left;
    for (Page& page : pages_) {
        if (page.is_ended.load(std::memory_order_relaxed)) page.is_used.store(false, std::memory_order_relaxed);
        if (!page.is_used.load(std::memory_order_relaxed)) continue;
        Client client{.process = page.process, .started = page.started, .user = page.user};
        const size_t name_size = std::min<size_t>(page.name_size, name_size_max);
        (page.is_proved ? client.identity : client.address).assign(page.name.data(), name_size);
        left.push_back({.client = std::move(client), .volume = page.volume, .record = record_of(page)});
    }
    return left;
}

// In this order: the process may be killed between any two of these.
std::shared_ptr<SessionRecord> SessionBook::begin(const Client& client, VolumeId volume) {
    const std::string& name = client.name();
    if (name.size() > name_size_max) return nullptr;
    const auto is_free = [](const Page& each) { return !each.is_used.load(std::memory_order_acquire); };
    const auto page = std::ranges::find_if(pages_, is_free);
    if (page == pages_.end()) return nullptr;
    std::memset(static_cast<void*>(&*page), 0, sizeof(Page));
    page->is_proved = !client.identity.empty();
    page->name_size = static_cast<uint16_t>(name.size());
    std::ranges::copy(name, page->name.begin());
    page->process = client.process;
    page->started = client.started;
    page->user = client.user;
    page->volume = volume;
    page->is_used.store(true, std::memory_order_release);
    return record_of(*page);
}

}  // namespace tarn::nbd
