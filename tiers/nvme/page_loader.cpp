#include "tiers/nvme/page_loader.hpp"

#include <cstring>

#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/device/transfer.hpp"

namespace tarn {

bool PageLoader::Source::operator==(const Source& other) const {
    return page == other.page && place == other.place && entry == other.entry && in_journal == other.in_journal &&
           (!in_journal ||
            (journaled.newest == other.journaled.newest && journaled.in_journal == other.journaled.in_journal));
}

void PageLoader::add_piece(const Journal& journal, uint64_t position, size_t page, size_t offset, size_t size) {
    Piece piece{.page = page, .offset = offset, .size = size, .from = 0, .in_memory = journal.in_memory(position)};
    if (piece.in_memory) {
        piece.from = copies_.size();
        copies_.resize(copies_.size() + size);
        journal.copy_out(position, std::span(copies_).subspan(piece.from));
    } else {
        uint64_t first = position / page_size * page_size;
        const uint64_t end = round_up(position + size, page_size);
        // It may begin in the block in which the one before ended.
        if (blocks_size_ != 0 && first + page_size == blocks_end_) {
            piece.from = blocks_size_ - page_size + (position - first);
            first = blocks_end_;
        } else {
            piece.from = blocks_size_ + (position - first);
        }
        blocks_end_ = end;
        for (uint64_t at = first; at < end;) {
            const size_t length = std::min(end - at, journal.until_wrap(at));
            reads_.push_back({.device_offset = journal.device_offset(at), .size = length, .into = blocks_size_});
            blocks_size_ += length;
            at += length;
        }
    }
    pieces_.push_back(piece);
}

void PageLoader::add(const Source& source, const Journal& journal, std::byte* into) {
    pages_.push_back({.source = source, .into = into});
    if (!source.in_journal) return;
    const JournaledPage& page = source.journaled;
    for (unsigned sector = 0; sector < sectors_per_page;) {
        if ((page.in_journal >> sector & 1) == 0) {
            ++sector;
            continue;
        }
        // Sectors that follow each other in the journal, too, are one piece.
        unsigned count = 1;
        while (sector + count < sectors_per_page && (page.in_journal >> (sector + count) & 1) != 0 &&
               page.sectors[sector + count] ==
                   static_cast<uint32_t>(page.sectors[sector] + count * (sector_size / journal_unit)))
            ++count;
        add_piece(journal, StoreState::full_position(page.sectors[sector], journal.tail()), pages_.size() - 1,
                  sector * sector_size, count * sector_size);
        sector += count;
    }
}

Task<Result<>> PageLoader::run(Loop& loop, BlockDevice& device) {
    Transfer transfer(Transfer::Direction::read);
    for (const Page& page : pages_) {
        if (!page.source.in_journal || page.source.journaled.needs_place())
            transfer.add(page.source.place, page.into, page_size);
        else if (page.source.journaled.in_journal != all_sectors)
            std::memset(page.into, 0, page_size);
    }
    const PageBuffer blocks = reads_.empty() ? nullptr : make_page_buffer(blocks_size_ / page_size);
    for (const BlockRead& read : reads_) transfer.add(read.device_offset, blocks.get() + read.into, read.size);
    CO_TRY_VOID(co_await transfer.run(loop, device));
    for (const Piece& piece : pieces_)
        std::memcpy(pages_[piece.page].into + piece.offset,
                    (piece.in_memory ? copies_.data() : blocks.get()) + piece.from, piece.size);
    co_return Result<>{};
}

uint32_t PageLoader::checksum(size_t i) const {
    const Page& page = pages_[i];
    return page_checksum(page.source.page, page.source.entry.tenure,
                         std::span<const std::byte, page_size>(page.into, page_size));
}

}  // namespace tarn
