"""The rules of what joins the protocol to sockets, frames and the store that tests/support/mutate.py breaks: the
simulator of whole hosts must notice each."""

MUTANTS = [
    # A step: its actions, all of them, and who waits.
    ("coherence/executor/executor.cpp", "if («result.frames_freed») effects_.frames.freed();", {
        "frames that come free are announced to nobody": "false",
    }),
    ("coherence/executor/executor.cpp", "frame = «protocol::lent_frame_for_present_bytes(step.stripe.holder().find("
     "message.page), message)»;", {
        "home's bytes land in the frame of the request, whose it is by then or not": "message.frame",
    }),
    ("coherence/executor/stripes.cpp", "    leave(waiter);\n"
     "    «turn.step(protocol::Event::about(protocol::Event::Kind::cancel, page, token));»", {
        "the protocol does not hear that nobody waits any more": "",
    }),

    # Frames that are held.
    ("coherence/pages/held_frames.cpp", "    «frame.writing.fetch_or(frame.dirty.load(std::memory_order_relaxed), "
     "std::memory_order_release);»", {
        "sectors leave the mask before they are on their way": "",
    }),
    ("coherence/pages/held_frames.cpp", "release);\n    «frame.dirty.store(0, std::memory_order_release);»", {
        "sectors that are on their way stay dirty": "",
    }),
    ("coherence/pages/held_frames.cpp", "«frame.writing.store(0, std::memory_order_relaxed);»\n"
     "    parts_.pages.forget_dirty_if_clean(frame);\n}\n\nvoid HeldFrames::clear_dirty", {
        "what was written during a write-back is cleared with it":
            "frame.writing.store(0, std::memory_order_relaxed); frame.dirty.store(0, std::memory_order_relaxed);",
    }),
    ("coherence/pages/held_frames.cpp", "«parts_.pages.mark_dirty(frame_of(id), all_sectors);»", {
        "bytes that came dirty count as clean": "",
    }),
    ("coherence/pages/held_frames.cpp", "«frame.lost.store(lost, std::memory_order_relaxed);»", {
        "a page that lost writes is opened as if it had not": "frame.lost.store(0, std::memory_order_relaxed);",
    }),
    ("coherence/pages/held_frames.cpp", "    return «parts_.pool.release(id, use_holder)»;", {
        "a frame is released twice":
            "(parts_.pool.release(id, use_holder), parts_.pool.release(id, use_holder))",
    }),

    # Operations that wait.
    ("coherence/pages/page_access.cpp", "    «if (std::exchange(has_room_, false))\n"
     "        request_->parts().writable_share.leave(request_->parts().membership.home_of(page_));»", {
        "an access does not leave its share": "",
    }),
    ("coherence/pages/page_access.cpp", "request_->view().wrote_whole(page_, lost_);\n"
     "    if («!request_->host().served(page_, receipt)») return end(", {
        "an operation that was served does not say so": "false",
    }),
    ("coherence/pages/page_access.cpp", "    end(«broken» ? Result<>", {
        "a page that could not be read is answered": "false",
    }),
    ("coherence/pages/frame_supply.cpp", "        waiter.frame = take_at_once();\n"
     "        «if (waiter.frame == no_frame) return false;»", {
        "who waits for a frame goes on without one": "",
    }),
    ("coherence/pages/frame_queue.cpp", "*waiter.link_ = «waiter.next_»;", {
        "the line of those that wait is cut off when one leaves": "nullptr",
    }),

    # Home's bytes between memory and store.
    ("coherence/home_store/home_frames.cpp", "frame.home_mask | «action.mask»", {
        "new bytes of home are stored without their sectors": "DirtyMask{0}",
    }),
    ("coherence/home_store/home_frames.cpp", "«if (!action.borrowed) freed |= parts_.held_frames.release(action.frame);»\n"
     "    } else if", {
        "the frame of a copy for home is not given back": "",
    }),
    ("coherence/home_store/home_frames.cpp", "if («home && home != &given && (home->storing != Storing::no || "
     "home->home_dirty)») {", {
        "newer bytes of home leave those that are being stored": "false",
    }),
    ("coherence/home_store/home_frames.cpp", "return {.where = «parts_.store.present(page)» ?", {
        "home takes a page of its store for zeros": "false",
    }),
    ("coherence/home_store/home_reader.cpp", "«(end - 1)->message.page.value + 1»)", {
        "pages that are no neighbours are read as a run": "(end - 1)->message.page.value + 2",
    }),
    ("coherence/home_store/home_reader.cpp", "span(&into, 1));\n    deliver(read, into, «!done»);", {
        "a page that could not be read is delivered": "false",
    }),
    ("coherence/home_store/home_writer.cpp", "    if (result) «result = co_await parts_.store.flush(*Loop::current());»\n"
     "    bool freed", {
        "home's bytes leave the memory before the store has flushed them": "",
        "a flush is answered before the store has flushed": "",
    }),
    ("coherence/home_store/home_writer.cpp", "if («result && frame.home_version == version») {", {
        "home's bytes that could not be stored count as stored": "frame.home_version == version",
        "home's bytes that changed while they were stored count as stored": "result.has_value()",
    }),
    ("coherence/home_store/home_writer.cpp", "if («frame->storing == Storing::begun») {", {
        "a flush does not wait for what another one stores": "false",
    }),
    ("coherence/home_store/eviction.cpp", "        if («frame.home_dirty») {", {
        "home's bytes are given up before they are stored": "false",
    }),
    ("coherence/home_store/eviction.cpp", "frame.page_id() == page && «frame.storing == Storing::no») {", {
        "home's bytes are given up while they are stored": "true",
    }),
    ("coherence/home_store/volume_turns.hpp", "        «ended_.announce();»", {
        "who waits for the turn of a volume is forgotten": "",
    }),
    ("coherence/home_store/piece_marker.cpp", "protocol::Event::marked_of(page, «!marked»)", {
        "a mark that could not be written counts as written": "false",
    }),

    # Links.
    ("coherence/fabric/link/record_reader.cpp", "if («page_filled_ < page_size») continue;", {
        "a page counts as whole before its end has come": "false",
    }),
    ("coherence/fabric/link/record_reader.cpp", "    «if (page_) receiver_.return_page(page_);»", {
        "the frame of a page that was cut off is not given back": "",
    }),
    ("coherence/fabric/link/record_reader.cpp", "protocol::run_of(message_, parts_, «parts_.size() + 1 - runs_left_»);\n"
     "    --runs_left_", {
        "a message of several runs is split wrongly": "size_t{0}",
    }),
    ("coherence/fabric/link/link.cpp", "            rest = rest.subspan(«*sent»);", {
        "what the channel did not take is left out": "rest.size()",
    }),
    ("coherence/fabric/link/link.cpp", "    receiver_.on_link_down(peer_);\n    «fail_calls();»", {
        "a call waits on when its link has broken": "",
    }),
    ("coherence/fabric/link/link.cpp", "    «batch_.end();»\n    // The first page", {
        "a message joins one that others have followed": "",
    }),
    ("coherence/fabric/peers.cpp", "labelled.flags |= «lost ? protocol::flag_zero | protocol::flag_lost : "
     "protocol::flag_zero»;", {
        "who asks for a page that cannot be read gets zeros": "protocol::flag_zero",
    }),

    # What comes from other hosts.
    ("coherence/cache/inbox.cpp", "«if (zeros) std::memset(page, 0, page_size);»", {
        "a page of zeros has what was in its frame": "",
    }),
    ("coherence/cache/inbox.cpp", "    «parts_.flusher.on_peer_up(host, process, meeting.previous);»", {
        "flushes do not hear of a new link": "",
    }),

    # FLUSH.
    ("coherence/flush/flusher.cpp", "    «if (result) result = co_await parts_.store.flush(*Loop::current());»\n"
     "    if (!result) log::error(\"flush of volume", {
        "a flush is answered before the store has flushed": "",
    }),
    ("coherence/flush/flusher.cpp", "parts_.membership.home_of(page) == ask.from) «pages.push_back(page);»", {
        "who is asked by a flush writes nothing back": "",
    }),
    ("coherence/flush/flusher.cpp", "    «if (result) result = co_await parts_.store.flush(loop);»", {
        "a flush is answered before the store has flushed": "",
    }),
    ("coherence/flush/flusher.cpp", "    «parts_.verifiers.hear(home, verifier);»", {
        "a home's new verifier is not heard": "",
    }),

    # What is taken over.
    ("coherence/adoption/adoption.cpp", "        «parts_.home.dirty().add(id);»", {
        "home's bytes that are taken over count as stored": "",
    }),
    ("coherence/adoption/adoption.cpp", "        if (dirty != 0) «parts_.pages.dirty_frames().add(held);»", {
        "dirty pages that are taken over count as clean": "",
    }),

    # Files.
    ("frontends/volumes/growth.cpp", "at = offset_bytes.value_or(«seen.size_bytes»);", {
        "an append goes where the end was": "at != 0 ? at : seen.size_bytes",
    }),
]
