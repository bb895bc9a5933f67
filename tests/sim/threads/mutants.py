"""The rules of what threads share that tests/support/mutate.py breaks, orders of memory among them: a scenario of the
model of threads must notice each."""

RELAXED = "std::memory_order_relaxed"
ACQUIRE = "std::memory_order_acquire"
RELEASE = "std::memory_order_release"

MUTANTS = [
    # The spin lock.
    ("utils/spinlock.hpp", "locked_.exchange(true, «std::memory_order_acquire»);) {", {
        "who locks does not see what was done before": RELAXED,
    }),
    ("utils/spinlock.hpp", "«!locked_.exchange(true, std::memory_order_acquire)»; }", {
        "who tries to lock looks first, and locks then":
            "!locked_.load(std::memory_order_acquire) && (locked_.store(true, std::memory_order_release), true)",
    }),
    ("utils/spinlock.hpp", "locked_.store(false, «std::memory_order_release»)", {
        "who unlocks does not show what was done": RELAXED,
    }),

    # The word of a frame: who gets in.
    ("tiers/dram/frame_word.hpp", "word_.load(«std::memory_order_acquire»); }", {
        "who sees that a frame is open does not see its page": RELAXED,
    }),
    ("tiers/dram/frame_word.hpp", "&& (word & («busy | exclusive»)) == 0; }", {
        "a reader gets into a busy frame": "exclusive",
        "a reader gets in with a writer": "busy",
    }),
    ("tiers/dram/frame_word.hpp", "if ((seen & (ownership_mask | busy | exclusive | «pins_mask»)) != writable)", {
        "a writer gets in with readers": "0",
    }),
    ("tiers/dram/frame_word.hpp", "if ((seen & (ownership_mask | «busy | exclusive» | pins_mask)) != writable)", {
        "a writer gets into a busy frame": "exclusive",
        "a writer gets in with another one": "busy",
    }),
    ("tiers/dram/frame_word.hpp", "latched -= «writes_left_one»;", {
        "writers of a recalled frame are not counted": "0",
    }),
    ("tiers/dram/frame_word.hpp", "compare_exchange_strong(seen, latched, «std::memory_order_acquire»);", {
        "a writer does not wait for what readers read": RELAXED,
    }),

    # Who hears that a frame is quiet.
    ("tiers/dram/frame_word.hpp", "word_.fetch_sub(pin_one, «std::memory_order_acq_rel»);", {
        "the last reader does not wait for what the others read": RELEASE,
        "a reader does not end before it lets go": ACQUIRE,
    }),
    ("tiers/dram/frame_word.hpp", "return (before & busy) != 0 && «(before & pins_mask) == pin_one»;", {
        "every reader reports a busy frame": "true",
        "no reader reports a busy frame": "false",
    }),
    ("tiers/dram/frame_word.hpp", "TARN_ASSERT((before & exclusive) != 0);\n        return «(before & busy) != 0»;", {
        "no writer reports a busy frame": "false",
    }),
    ("tiers/dram/frame_word.hpp", "word_.fetch_add(version_one - exclusive, «std::memory_order_release»);", {
        "a writer does not show what it wrote": RELAXED,
    }),
    ("tiers/dram/frame_word.hpp", "return «!latched(word_.fetch_or(busy, std::memory_order_acq_rel))»; }", {
        "who makes a frame busy looks first, and marks then":
            "[&] { const bool quiet = !latched(load()); word_.fetch_or(busy, std::memory_order_acq_rel); "
            "return quiet; }()",
    }),
    ("tiers/dram/frame_word.hpp", "word_.fetch_or(busy, «std::memory_order_acq_rel»)", {
        "who makes a frame busy does not see what was done there": RELEASE,
    }),

    # What an optimistic reader may trust.
    ("tiers/dram/frame_word.hpp", "| ownership) + «version_one»", {
        "a change of the ownership leaves the version as it was": "0",
    }),
    ("tiers/dram/frame_word.hpp", "+ version_one,\n            «std::memory_order_acq_rel»)) {", {
        "a frame is open before its bytes are seen": RELAXED,
    }),
    ("tiers/dram/frame_word.hpp", "word_.fetch_add(«version_one» - exclusive", {
        "a writer leaves the version as it was": "0",
    }),
    ("tiers/dram/frame_word.hpp", "«thread_fence(std::memory_order_acquire);»", {
        "a reader may look at the word before it has read the bytes": "",
    }),
    ("tiers/dram/frame_word.hpp", "& ~«irrelevant») == 0;", {
        "a reader does not notice a writer at work": "(irrelevant | exclusive)",
    }),

    # The table of frames.
    ("tiers/dram/frame_index.hpp",
     "«(frame.*link_).store(bucket.load(std::memory_order_relaxed), std::memory_order_relaxed);»", {
        "a frame is in the table before it has its link":
            "const FrameId first = bucket.load(std::memory_order_relaxed);"
            "bucket.store(pool_.id_of(frame), std::memory_order_release);"
            "(frame.*link_).store(first, std::memory_order_relaxed);",
    }),
    ("tiers/dram/frame_index.hpp", "bucket.store(pool_.id_of(frame), «std::memory_order_release»);", {
        "a frame is in the table before its page is seen": RELAXED,
    }),
    ("tiers/dram/frame_index.hpp", "FrameId id = bucket_of(page).load(«std::memory_order_acquire»);", {
        "who finds a frame does not see its link": RELAXED,
    }),
    ("tiers/dram/frame_index.hpp",
     "«link->store((frame.*link_).load(std::memory_order_relaxed), std::memory_order_release);»", {
        "a frame that leaves the table loses its link":
            "link->store((frame.*link_).load(std::memory_order_relaxed), std::memory_order_release);"
            "(frame.*link_).store(no_frame, std::memory_order_release);",
    }),

    # Sets of frames.
    ("tiers/dram/frame_set.hpp", "if ((word.load(«std::memory_order_seq_cst») & bit) == 0)", {
        "who adds a frame may see it where it no longer is": RELAXED,
    }),
    ("tiers/dram/frame_set.hpp",
     "«if ((word.load(std::memory_order_seq_cst) & bit) == 0) word.fetch_or(bit, std::memory_order_seq_cst);»", {
        "a word is announced before it has a member":
            "summary.fetch_or(summary_bit, std::memory_order_seq_cst); word.fetch_or(bit, std::memory_order_seq_cst);",
    }),
    ("tiers/dram/frame_set.hpp", "if («(summary.load(std::memory_order_seq_cst) & summary_bit) == 0»)", {
        "a word is announced before it has a member": "false",
    }),
    ("tiers/dram/frame_set.hpp", "if («words_[w].load(std::memory_order_seq_cst) != 0»)\n                summary_", {
        "who clears an empty word does not look again": "false",
    }),
    ("tiers/dram/frame_set.hpp", "if (!found_empty || «!walkers_.try_lock()») return;", {
        "an empty word is cleared under a walk": "false",
    }),

    # Free frames.
    ("tiers/dram/frame_pool.cpp", "guard(«free_lock_»);\n    const size_t free", {
        "frames are taken under another lock": "[]() -> SpinLock& { static SpinLock other; return other; }()",
    }),
    ("tiers/dram/frame_pool.cpp", "fetch_and(static_cast<uint8_t>(~use), «std::memory_order_acq_rel»);", {
        "the last use does not wait for what the others did": RELEASE,
        "a use does not end before it is given up": ACQUIRE,
    }),
    ("tiers/dram/frame_pool.cpp", "if («before != use») return false;", {
        "a frame comes free with its first use": "false",
    }),

    # A loop that goes to sleep.
    ("utils/posted_calls.hpp", "«sleeping_.store(true, std::memory_order_seq_cst);»", {
        "a loop looks before it announces its sleep": "",
    }),
    ("utils/posted_calls.hpp", "return «!first_.load(std::memory_order_seq_cst)»;", {
        "a loop looks before it announces its sleep":
            "[&] { const bool empty = !first_.load(); sleeping_.store(true); return empty; }()",
        "a loop does not look again before it sleeps": "true",
    }),
    ("utils/posted_calls.hpp", "sleeping_.store(true, «std::memory_order_seq_cst»);", {
        "a loop may look before its sleep is seen": RELEASE,
    }),
    ("utils/posted_calls.hpp", "!first_.load(«std::memory_order_seq_cst»);", {
        "a loop may see what was there before it announced its sleep": ACQUIRE,
    }),
    ("utils/posted_calls.hpp", "compare_exchange_weak(head, &call, «std::memory_order_seq_cst»)", {
        "a call is seen after its thread has looked who sleeps": RELEASE,
        "a call is seen before what it brings along": RELAXED,
    }),
    ("utils/posted_calls.hpp", "return sleeping_.load(«std::memory_order_seq_cst»);", {
        "who posts may see a loop awake that is not": ACQUIRE,
    }),
    ("utils/posted_calls.hpp", "first_.exchange(nullptr, «std::memory_order_acquire»);", {
        "a call runs before what it brings along is seen": RELAXED,
    }),

    # Broadcasts.
    ("utils/broadcast.hpp", "if («broadcast_.count() != seen_») return false;", {
        "who waits for an announcement does not look again": "false",
    }),
    ("utils/broadcast.hpp", "return count_.load(«std::memory_order_acquire»);", {
        "who hears an announcement does not see what it is about": RELAXED,
    }),
    ("utils/broadcast.hpp", "count_.fetch_add(1, «std::memory_order_release»);", {
        "an announcement is seen before what it is about": RELAXED,
    }),

    # Accesses that wait.
    ("coherence/pages/frame_queue.hpp", "return count_.load(«std::memory_order_seq_cst») == 0;", {
        "who has something to give may overlook who waits": RELAXED,
    }),
    ("coherence/pages/frame_queue.cpp", "if («closed_») return give_up(waiter);", {
        "who comes after the end waits for ever": "false",
    }),
    ("coherence/pages/frame_queue.cpp", "«(waiter.next_ ? waiter.next_->link_ : end_) = waiter.link_;»", {
        "the last one stays the last when it is gone": "if (waiter.next_) waiter.next_->link_ = waiter.link_;",
    }),
    ("coherence/pages/frame_supply.cpp", "«waiting_.append(waiter);»", {
        "who waits for a frame looks before it is in the queue": "freed(); waiting_.append(waiter);",
    }),
    ("coherence/pages/frame_supply.cpp", "«freed();»  // one may have come free before we were in the queue", {
        "who waits for a frame looks before it is in the queue": "",
        "who waits for a frame does not look again": "",
    }),
    ("coherence/pages/frame_supply.cpp", "pool_.release(id, use_holder);\n    «freed();»", {
        "who gives a frame looks for nobody": "",
    }),
    ("coherence/pages/frame_supply.cpp", "«if (waiter.frame == no_frame) return false;»", {
        "who waits is woken though no frame is left": "",
    }),
    ("coherence/pages/frame_supply.cpp", "«frame = pool_.try_take(use_holder, leave);»  // one may have come free", {
        "a link that has no frame does not look again": "",
    }),
    ("coherence/pages/writable_share.cpp", "«serve();»  // there may be room again since it was looked for", {
        "who waits for room does not look again": "",
    }),
    ("coherence/pages/writable_share.cpp", "«total_.fetch_sub(1, std::memory_order_seq_cst);»\n    if (anyone_waits())", {
        "room is offered before it is there":
            "if (anyone_waits()) serve(); total_.fetch_sub(1, std::memory_order_seq_cst);",
    }),
    ("coherence/pages/writable_share.cpp", "if («anyone_waits()») serve();", {
        "room is offered before it is there": "false",
        "room is offered to nobody": "false",
    }),
    ("coherence/pages/writable_share.cpp",
     "while («!counts_[home].compare_exchange_weak(count, count + 1, std::memory_order_seq_cst)»);", {
        "two that get room count as one": "(counts_[home].store(count + 1, std::memory_order_seq_cst), false)",
    }),

    # Pages.
    ("coherence/pages/pages.cpp", "if («!frame->word.unchanged_since(seen)») return false;", {
        "an optimistic reader does not look again": "false",
    }),
    ("coherence/pages/pages.cpp", "!may_use(*frame, page, view) || !frame->word.try_pin(«seen»))", {
        "a pin is of another word than the one that was looked at": "frame->word.load()",
    }),
    ("coherence/pages/pages.cpp", "if («frame.word.unpin()») listener_.on_quiet(frame, page);", {
        "the last pin of a busy frame ends and nobody hears of it": "(static_cast<void>(frame.word.unpin()), false)",
    }),
    ("coherence/pages/pages.cpp", "if («frame->word.unlatch_exclusive()») listener_", {
        "a writer leaves a busy frame and nobody hears of it":
            "(static_cast<void>(frame->word.unlatch_exclusive()), false)",
    }),
    ("coherence/pages/pages.cpp", "«frame.dirty.fetch_or(mask, std::memory_order_seq_cst);»", {
        "a frame is among the dirty ones before it is dirty":
            "dirty_frames_.add(pool_.id_of(frame)); frame.dirty.fetch_or(mask, std::memory_order_seq_cst);",
    }),
    ("coherence/pages/pages.cpp", "«dirty_frames_.add(pool_.id_of(frame));»", {
        "a frame is among the dirty ones before it is dirty": "",
    }),
    ("coherence/pages/pages.cpp", "«dirty_frames_.remove(id);»", {
        "who forgets a dirty frame looks first": "",
    }),
    ("coherence/pages/pages.cpp", "if («(frame.dirty.load(std::memory_order_seq_cst) | "
     "frame.writing.load(std::memory_order_seq_cst)) != 0»)", {
        "who forgets a dirty frame looks first":
            "[&] { const bool dirty = unwritten(frame) != 0; dirty_frames_.remove(id); return dirty; }()",
        "who forgets a dirty frame does not look again": "false",
    }),
    ("coherence/pages/pages.cpp", "if ((frame.dirty.load(«std::memory_order_seq_cst») |", {
        "who forgets a dirty frame may see it as it was": RELAXED,
    }),
    ("coherence/pages/held_frames.cpp",
     "return «frame.word.make_busy() ? Quiet::now : Quiet::later»;", {
        "a frame counts as quiet though somebody is inside":
            "(static_cast<void>(frame.word.make_busy()), Quiet::now)",
    }),
    ("coherence/pages/held_frames.cpp", "else if («frame.word.make_busy()»)", {
        "a lease ends and nobody hears that the frame is quiet":
            "(static_cast<void>(frame.word.make_busy()), false)",
    }),
    ("coherence/pages/held_frames.cpp", "goes_on = «std::exchange(recalled.version, version) != version» &&", {
        "a lease goes on though nobody writes": "true",
    }),

    # What a session was told.
    ("coherence/pages/loss_view.hpp", "return unheard_.load(«std::memory_order_acquire»); }", {
        "who need not ask does not see what was told": RELAXED,
    }),
    ("coherence/pages/loss_view.hpp", "unheard_.fetch_and(~set_of(home), «std::memory_order_release»);", {
        "nobody need ask before what was told is seen": RELAXED,
    }),
]
