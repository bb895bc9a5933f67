#include "tests/checker/loss_proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "tiers/page.hpp"

namespace tarn::checker {

namespace {

using namespace std::chrono_literals;

constexpr uint64_t range_size = 64 << 20;  // as many ranges in a row as hosts are homed at each of them
constexpr uint64_t first_byte = 24 << 20;  // in its range, of the pages that are used here
constexpr auto opens_within = 20s;

constexpr std::byte before{1};  // what was flushed
constexpr std::byte lost{2};    // what was acknowledged
constexpr std::byte part{3};    // what the victim's own session wrote, in another sector
constexpr std::byte anew{4};

bool fill(Session& session, uint64_t offset, size_t size, std::byte value) {
    const std::vector<std::byte> bytes(size, value);
    return session.write(offset, bytes);
}

// The first byte there; nothing if it is refused.
std::optional<std::byte> look(Session& session, uint64_t offset) {
    std::array<std::byte, sector_size> bytes;
    if (!session.read(offset, bytes)) return std::nullopt;
    return bytes.front();
}

std::unique_ptr<Session> open_soon(const std::string& where) {
    const auto until = std::chrono::steady_clock::now() + opens_within;
    for (;;) {
        if (std::unique_ptr<Session> session = open_session(where)) return session;
        if (std::chrono::steady_clock::now() > until) return nullptr;
        std::this_thread::yield();
    }
}

}  // namespace

struct LossProof::Writer {
    std::string where;
    std::unique_ptr<Session> session;
    std::vector<uint64_t> pages;  // one of each home
};

uint64_t LossProof::offset_of(size_t range, size_t writer, uint64_t round) const {
    return range * range_size + first_byte + (round * 8 + writer) * 64 * page_size;
}

// While the losses are still being written down, one that begins may count as older than the last of them.
std::unique_ptr<Session> LossProof::open_after_loss(const std::string& where, const std::vector<Writer>& writers) {
    const auto until = std::chrono::steady_clock::now() + opens_within;
    while (std::chrono::steady_clock::now() < until) {
        std::unique_ptr<Session> session = open_soon(where);
        if (!session) return nullptr;
        bool reads_all = true;
        for (const Writer& writer : writers)
            for (const uint64_t page : writer.pages) reads_all = reads_all && look(*session, page).has_value();
        if (reads_all) return session;
        std::this_thread::yield();
    }
    return nullptr;
}

std::optional<std::string> LossProof::prove(size_t victim, uint64_t round) {
    const HostUnderTest& writing = hosts_[(victim + 1) % hosts_.size()];
    const HostUnderTest& reading = hosts_[(victim + 2) % hosts_.size()];
    std::vector<Writer> writers;
    for (const std::string& where : writing.endpoints) {
        Writer writer{.where = where, .session = open_soon(where), .pages = {}};
        for (size_t range = 0; range < hosts_.size(); ++range)
            writer.pages.push_back(offset_of(range, writers.size(), round));
        writers.push_back(std::move(writer));
    }
    std::unique_ptr<Session> reader = open_soon(reading.endpoints.front());
    std::unique_ptr<Session> at_victim = open_soon(hosts_[victim].endpoints.front());
    if (!reader || !at_victim) return "a session cannot be opened before the loss";
    bool done = true;
    for (Writer& writer : writers) {
        if (!writer.session) return "a session cannot be opened before the loss: " + writer.where;
        for (const uint64_t page : writer.pages) done = done && fill(*writer.session, page, page_size, before);
    }
    // Each of its own, so that all may be told later; and then no more, since one flush covers what all have written.
    for (Writer& writer : writers) done = done && writer.session->flush();
    for (Writer& writer : writers) {
        for (const uint64_t page : writer.pages) {
            done = done && fill(*writer.session, page, sector_size, lost);
            done = done && look(*reader, page) == lost;
            done = done && fill(*at_victim, page + sector_size, sector_size, part);
        }
    }
    if (!done) return "what is to be lost cannot be written";
    if (!hook_("kill", victim) || !hook_("start", victim)) return "the hook failed";
    const std::unique_ptr<Session> young = open_after_loss(reading.endpoints.back(), writers);
    if (!young) return "no session that begins after the loss can read";
    for (Writer& writer : writers)
        if (auto wrong = check_writer(writer, *reader, *young))
            return fmt::format("host {} lost its memory; {}: {}", hosts_[victim].name, writer.where, *wrong);
    if (!young->flush()) return "a session that began after the loss cannot flush";
    return std::nullopt;
}

std::optional<std::string> LossProof::check_writer(Writer& writer, Session& reader, Session& young) {
    std::vector<uint64_t> gone;
    for (const uint64_t page : writer.pages) {
        const std::optional<std::byte> now = look(young, page);
        if (!now) return "a session that began after the loss cannot read";
        if (*now != before && *now != lost) return fmt::format("nobody wrote {:x}", static_cast<unsigned>(*now));
        if (*now == before) gone.push_back(page);
    }
    if (gone.empty()) return "nothing of it was lost: the proof proves nothing";
    lost_count_ += gone.size();
    // More than once over each of its connections.
    for (size_t i = 0; i < 2 * writer.session->connection_count(); ++i) {
        if (writer.session->flush()) return fmt::format("flush {} of who wrote what is lost succeeded", i + 1);
        if (!writer.session->was_refused()) return "its session ended, instead of an error";
    }
    for (const uint64_t page : gone) {
        for (Session* const old : {&reader, writer.session.get()}) {
            for (size_t i = 0; i < 2 * old->connection_count(); ++i)
                if (look(*old, page) == before)
                    return fmt::format("a session that was there before read back in time at {}", page);
            if (fill(*old, page + 2 * sector_size, sector_size, anew) && look(*old, page) == before)
                return fmt::format("a session read back in time at {} once it had written a part", page);
        }
        if (!fill(reader, page, page_size, anew) || look(reader, page) != anew)
            return fmt::format("the page at {} cannot be used by who has written all of it", page);
        if (look(young, page) != anew) return fmt::format("what was written to {} after the loss is not seen", page);
    }
    return std::nullopt;
}

}  // namespace tarn::checker
