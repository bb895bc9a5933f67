"""The rules of the store that tests/support/mutate.py breaks: the simulated disk must notice each."""

MUTANTS = [
    # Flush rounds.
    ("tiers/nvme/store_flush.cpp", "«in_place ? Transfer::Direction::write : Transfer::Direction::write_through»", {
        "a flush round does not make its records durable": "Transfer::Direction::write",
    }),
    ("tiers/nvme/store_flush.cpp", "in_place = «std::exchange(in_place_unflushed_, false)»;", {
        "pages in place are not flushed with their record": "false",
    }),
    ("tiers/nvme/journal/group_commit.cpp", "«commit_.gathering_».push_back(this);", {
        "a flush counts as served by the round under way": "commit_.served_",
    }),
    ("tiers/nvme/store_flush.cpp", "«if (!failure_) failure_ = result.error();»", {
        "a failed flush is forgotten": "",
    }),
    ("tiers/nvme/store_flush.cpp", "«result = note_failure(co_await (this->*round)(loop));»", {
        "a flush that failed is answered as if it had not":
            "static_cast<void>(note_failure(co_await (this->*round)(loop)));",
    }),
    # Checkpoints.
    ("tiers/nvme/store_checkpoint.cpp",
     "«CO_TRY_VOID(co_await flush(loop));»\n    const std::lock_guard lock(mutex_);\n"
     "    for (const InPlace& page", {
        "a checkpoint frees the ring before the superblock says so": "",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "«CO_TRY_VOID(co_await write_table(loop, some));»", {
        "a record is freed before its entry is durable": "",
    }),
    ("tiers/nvme/store_move.cpp", "«if (result) result = co_await transfer.run(loop, *device_);»", {
        "a record is freed before its page is in place": "",
    }),
    ("tiers/nvme/store_move.cpp", "«if (flush_comes_first) result = co_await flush(loop);»", {
        "pages go into place before the journal has them": "",
    }),
    ("tiers/nvme/store_move.cpp", "«CO_TRY_VOID(co_await flush_device(loop));»", {
        "a page is called moved before the device was flushed": "",
    }),
    ("tiers/nvme/store_move.cpp", "|| «now->newest != page.journaled.newest»", {
        "a page that was written to meanwhile is called moved": "false",
    }),
    ("tiers/nvme/store_state.cpp", "«due_pages_.push_front({.end = page.oldest, .page = id});»", {
        "a page that was written to while it was moved is forgotten": "",
    }),
    ("tiers/nvme/store_state.cpp", "«due_pages_.push_back({.end = end, .page = record.page});»", {
        "a page in the journal is never due": "due_pages_.push_back({.end = end + 1, .page = record.page});",
    }),
    # That a later batch proves it, too, and that what was moved is not taken for never written, are unit tests: few
    # seeds spoil just the last batch.
    ("tiers/nvme/store_move.cpp", "if («journal_.proven() >= moved_until_») co_return Result<>{};", {
        "the ring is freed before it says what was moved": "true",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "«for (const InPlace& page : unrecorded) due.push_back(page.slab);»", {
        "a page that has no record of its move is not in the table": "",
    }),
    ("tiers/nvme/store_state.cpp", "if («unsaid_since_[due_slabs_.front().slab] == due_slabs_.front().end»)", {
        "a block of the table is not written when its records go": "false",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "«if (said_until != 0) CO_TRY_VOID(co_await flush(loop));»", {
        "the table tells what the journal may lose": "",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "const size_t places_at_once = «device_->atomic_write_max() > 0 ? 2 : 1»;", {
        "both places of the table are torn": "2",
    }),
    ("tiers/nvme/store_state.cpp",
     "return «(tail_units + static_cast<uint32_t>(low - static_cast<uint32_t>(tail_units))) * "
     "journal_unit»;", {
        "sector positions lose their high bits": "(tail_units * 0 + low) * journal_unit",
    }),
    # Losses, and the upgrade to format 3. That both copies are written is a unit test: few seeds spoil a copy.
    ("tiers/nvme/store_flush.cpp", "losses_are_old = «losses_written_ != losses_.sequence»;", {
        "a loss is answered before it is on record": "false",
    }),
    ("tiers/nvme/store_flush.cpp", "        transfer.add(offset, bytes.data(), bytes.size());\n"
     "        CO_TRY_VOID(co_await transfer.run(loop, *device_));\n"
     "        «CO_TRY_VOID(co_await flush_device(loop));»", {
        "the copies of a long loss list are torn together":
            "if (offsets != loss_list_offsets || offset == offsets.back()) CO_TRY_VOID(co_await flush_device(loop));",
    }),
    ("tiers/nvme/store_upgrade.cpp",
     "device.write_now(«encode_losses(superblock.store, {}, scratch.bytes())», offset)", {
        "an upgrade writes no list of losses": "scratch.bytes()",
    }),
    ("tiers/nvme/store_upgrade.cpp", "write_copies_now(device, «StoreLayout::superblock_offsets», block)", {
        "an upgrade leaves a superblock of the old format":
            "(std::array<uint64_t, 2>{StoreLayout::superblock_offsets[0], StoreLayout::superblock_offsets[0]})",
    }),
    # Marks.
    ("tiers/nvme/store_marks.cpp", "Transfer transfer(«Transfer::Direction::write_through»);", {
        "marks are answered while they are in a cache only": "Transfer::Direction::write",
    }),
    ("tiers/nvme/table/piece_marks.cpp", "const size_t place = «block.sequence % marks_offsets.size()»;", {
        "marks are written over those that count": "block.sequence % 1",
    }),
    ("tiers/nvme/table/piece_marks.cpp", "|| «first->sequence > second->sequence»", {
        "older marks count for newer ones": "first->sequence < second->sequence",
    }),
    ("tiers/nvme/table/piece_marks.cpp", "block.changed |= «(wanted & ~group.set) != 0»;", {
        "only the first mark of 64 neighbours is written": "group.set == 0",
    }),
    # Space.
    ("tiers/nvme/table/slab_table.cpp", "if («!slab.recorded») {", {
        "a slab is reused before its release is durable": "true",
    }),
    ("tiers/nvme/table/slab_table.cpp",
     "        slab.state = State::released;\n        if («slab.pins == 0») make_free(release.slab);", {
        "a pinned slab is given away": "true",
    }),
    ("tiers/nvme/store_write.cpp", ": releases            ? «JournalRecord::releases»", {
        "a clear that releases its slab does not say so": "uint8_t{0}",
    }),
    # What records and entries say.
    ("tiers/nvme/store_state.cpp", "if («over_zeros» || record.dirty == all_sectors) page.over_zeros = true;", {
        "the base is ignored": "false",
    }),
    ("tiers/nvme/table/slab_table_media.cpp", "«entries.tenures[page] = slab.entries->tenures[page];»", {
        "the tenure is not stored": "",
    }),
    ("tiers/nvme/store_state.cpp", "if («page.sectors[sector] == written.sectors[sector]»)", {
        "a newer write is forgotten when the older one is in place": "true",
    }),
    ("tiers/nvme/journal/journal.cpp", "return end_after(size_bytes) + page_size <= «tail_ + size_»;", {
        "the ring overtakes its own tail": "tail_ + size_ + 4 * page_size",
    }),
    # Pages that go straight into place.
    ("tiers/nvme/store_write.cpp", "«state_.table.in_checkpoint(slab)» || state_.table.cleared_at(slab)", {
        "fresh pages are written while a checkpoint writes old ones": "false",
    }),
    ("tiers/nvme/store_write.cpp", "|| «state_.table.cleared_at(slab) > journal_.durable()») return 0;", {
        "fresh pages are written over what a cut may bring back": "false",
    }),
    # Reading.
    ("tiers/nvme/store.cpp", "«found != loader.source(i).entry.checksum»)\n            result", {
        "reads are not verified": "(false && found != 0)",
    }),
    ("tiers/nvme/store.cpp", "if («found != source.entry.checksum») result = co_await read_again", {
        "reads are not verified": "(false && found != 0)",
    }),
    # Recovery.
    ("tiers/nvme/store_open.cpp", "if («!loader.matches(0)») {", {
        "writes into place that were lost are believed": "false",
    }),
    ("tiers/nvme/store_open.cpp", "«CO_TRY_VOID(co_await clear(loop, *slab, page, 1, Cleared::free));»", {
        "lost writes are dropped without a record":
            "state_.table.clear(*slab, SlabTable::page_in_slab(page), 1, Cleared::free, 0);",
    }),
    ("tiers/nvme/store_open.cpp", "«journal_.append_nothing();»", {
        "what recovery found is not proven": "",
    }),
    ("tiers/nvme/journal/scan.cpp", "|| «batch_checksum(superblock.store, bytes) != header.checksum»)", {
        "a torn batch is believed": "false",
    }),
    ("tiers/nvme/store_open.cpp", "«table_sequence_ = std::max(table_sequence_, loaded.sequence);»", {
        "the sequence of the table begins anew": "",
    }),
    ("tiers/nvme/journal/scan.cpp", "while («scan.end < limit») {", {
        "a full ring's last page is not read": "scan.end + page_size < limit",
    }),
    ("tiers/nvme/store_open.cpp", "«TRY_VOID(rewrite_journal(scan.closed, scan.end));»", {
        "recovery believes what a failed flush left in the cache": "",
    }),
    ("tiers/nvme/device/superblock.cpp", "«TRY_VOID(device.flush_now());»", {
        "recovery does not flush what it read": "",
    }),
    ("tiers/nvme/store_flush.cpp",
     "journal_.durable() == journal_.head() && «superblock_written_ == superblock_wanted_») co_return", {
        "a flush leaves out the superblock": "true",
    }),
    ("tiers/nvme/store_flush.cpp", "        bound_losses(losses_.losses);\n        ++losses_.sequence;\n        "
     "++superblock_wanted_;\n    }\n    «CO_TRY_VOID(co_await flush(loop));»", {
        "a loss counts as recorded before it is": "",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "co_return «co_await flush_device(loop)»;", {
        "a checkpoint does not flush the blocks of the table": "Result<>{}",
    }),
    ("tiers/nvme/store_checkpoint.cpp", "            «state_.is_said(slabs[i]);»", {
        "slabs that a checkpoint wrote stay due": "",
    }),
]
