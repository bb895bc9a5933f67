// Registers: what clients did to the sectors of one volume and saw of them, and whether one order explains it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/checker/session_history.hpp"
#include "tiers/page.hpp"

namespace tarn::hosts_sim {

class Registers {
  public:
    // Of each page, these sectors; others are only written.
    static constexpr std::array<unsigned, 3> sectors{0, 1, 7};

    // Pages by their numbers, in their order.
    Registers(VolumeId volume, std::vector<uint64_t> pages)
        : volume_(volume), pages_(std::move(pages)), histories_(pages_.size() * sectors.size()) {}

    VolumeId volume() const { return volume_; }
    size_t page_count() const { return pages_.size(); }
    uint64_t number_of(size_t page) const { return pages_[page]; }
    // From this page on, as far as they are neighbours.
    size_t run_of(size_t page, size_t count_max) const;

    struct Who {
        unsigned client;
        unsigned session;
    };
    struct Write {
        std::vector<checker::Operation*> operations;
    };
    // These bytes become the value at some moment from now on.
    Write begin_write(uint64_t first_byte, uint64_t end_byte, uint64_t value, uint64_t now, const Who& who);
    void end_write(const Write& write, uint64_t now, bool is_durable);
    // False: a sector is torn.
    bool note_read(size_t page, std::span<const uint64_t> words, uint64_t invoked, uint64_t now, const Who& who);
    // of_all: also of what other sessions wrote.
    void note_flush(const checker::Flush& flush, bool of_all) {
        own_flushes_.push_back(flush);
        if (of_all) flushes_.push_back(flush);
    }
    void note_session(unsigned session, uint64_t now) { opened_[session] = now; }

    // Empty, or what no order explains.
    std::string check(const std::vector<checker::Loss>& losses) const;

  private:
    struct Register {
        std::vector<std::unique_ptr<checker::Operation>> operations;
    };

    VolumeId volume_;
    std::vector<uint64_t> pages_;
    std::vector<Register> histories_;          // by page and sector
    std::vector<checker::Flush> flushes_;      // of the whole volume
    std::vector<checker::Flush> own_flushes_;  // all, each of what its session wrote
    std::map<unsigned, checker::Nanoseconds> opened_;
};

}  // namespace tarn::hosts_sim
