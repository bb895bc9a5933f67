"""The rules of the cache, the fabric and the catalog that tests/support/mutate.py breaks: a unit test must notice
each. CHECKS names the tests of each file."""

CHECKS = {
    "coherence/adoption/adoption.cpp": "AdoptedHost.*:CacheLinks.the_next_process*",
    "coherence/adoption/arena_recorder.cpp": "AdoptedHost.*:CacheLinks.the_next_process*:CacheLinks.a_page_that*",
    "coherence/adoption/home_start.cpp": "RecoveringHome.*:WalksOverStripes.*",
    "coherence/cache/cache.cpp": "StoppingHome.*:CacheLinks.*",
    "coherence/cache/inbox.cpp": "CacheLinks.*:RecoveringHome.*:WalksOverStripes.*",
    "coherence/executor/executor.cpp": "CacheLinks.*",
    "coherence/fabric/link/authentication.cpp": "Authentication.*:LinkTest.*",
    "coherence/fabric/link/handshake.cpp": "PlayedPeerTest.*:PlayedAcceptor.*:LinkTest.*:LinkUpgrade.*",
    "coherence/fabric/link/link.cpp": "LinkTest.*:PlayedPeerListens.*:LinkUpgrade.what*",
    "coherence/fabric/link/linked_fabric.cpp": "LinkUpgrade.*",
    "coherence/fabric/link/offers.cpp": "Offers.*",
    "coherence/fabric/link/record_reader.cpp": "PlayedPeerTest.*",
    "coherence/fabric/transport/shm/ring.hpp": "Shm*",
    "coherence/fabric/transport/shm/segment.cpp": "Shm*",
    "coherence/fabric/transport/shm/shm_channel.cpp": "Shm*",
    "coherence/fabric/transport/shm/shm_transport.cpp": "Shm*:LinkUpgrade.*",
    "coherence/flush/flusher.cpp": "CacheLinks.*:HomeOnDevice.*:Cached.*:AdoptedHost.a_session*",
    "coherence/home_store/eviction.cpp": "CacheLinks.*",
    "coherence/home_store/older_copies.cpp": "PagesOfZeros.*:OlderCopiesHere.*",
    "coherence/home_store/home_frames.cpp": "HomeLabel.*:HomeOnDevice.*:LastWrites.*:Cached.*:RecoveringHome.bytes*",
    "coherence/home_store/home_reader.cpp": "CacheLinks.*",
    "coherence/home_store/home_writer.cpp": "PagesOfZeros.*:Cached.*trimmed*:StoppingHome.*:CacheLinks.*:HomeOnDevice.*:LastWrites.*",
    "coherence/home_store/piece_marker.cpp": "PieceMarkerTest.*:CacheLinks.*",
    "coherence/membership/membership.cpp": "RecoveringHome.*:CacheLinks.*:HomeOnDevice.a_loss*",
    "coherence/membership/recovery.cpp": "RecoveryTest.*:RecoveringHome.*",
    "coherence/pages/frame_queue.cpp": "CacheWaiters.*",
    "coherence/pages/frame_supply.cpp": "CacheWaiters.*",
    "coherence/pages/held_frames.cpp": "CacheLinks.*",
    "coherence/pages/page_access.cpp": "CacheLinks.*:Orphans.*:AdoptedHost.a_request*",
    "coherence/pages/page_accesses.cpp": "HomeOnDevice.*",
    "coherence/pages/page_provider.cpp": "Relief.*:HomeOnDevice.*",
    "coherence/pages/pages.cpp": "CacheLinks.*:CacheWaiters.*:FrameRaces.*:ClusterFiles.a_size_that_was_lost*",
    "coherence/pages/staged_write.cpp": "AdoptedHost.*:FrameRaces.a_write_of_many*",
    "coherence/pages/verifiers.hpp": "AdoptedHost.*",
    "coherence/pages/writable_share.cpp": "WritableShareTest.*",
    "coherence/protocol/holder_recovery.cpp": "RecoveringHome.*",
    "coherence/protocol/home_recovery.cpp": "HomeRecovery.*:HomeRestart.*",
    "daemon/attachments/attached_device.cpp": "Attachments*",
    "daemon/attachments/attachments.cpp": "Attachments*",
    "daemon/attachments/attachments_end.cpp": "Attachments*",
    "daemon/attachments/attachments_keeping.cpp": "Attachments*",
    "daemon/attachments/waiting_requests.cpp": "Attachments*",
    "daemon/attachments/block_device.cpp": "Attachments*:BlockDeviceTest.*:MountedDevice.*:OpenedBy.*",
    "daemon/attachments/size_notices.cpp": "SizeNotices*",
    "daemon/attachments/unserved_devices.cpp": "MountedDevice.*",
    "daemon/attachtab/attach_table.cpp": "AttachTableTest.*",
    "daemon/attachtab/unit_name.cpp": "UnitNameTest.*",
    "daemon/catalog/catalog.cpp": "StoppingHome.*:CatalogTest.*:CatalogHolds.*",
    "daemon/catalog/catalog_open.cpp": "CatalogTest.*:CatalogHolds.*",
    "daemon/catalog/catalog_table.cpp": "CatalogTableTest.*",
    "daemon/catalog/catalog_take_over.cpp": "CatalogHolds.*take*over*",
    "daemon/catalog/catalog_usage.cpp": "CatalogTest.*",
    "daemon/catalog/registrar.cpp": "RegistrarTest.*",
    "daemon/catalog/removals.cpp": "RemovalsTest.*:RegistrarTest.*",
    "daemon/keeper/keeper.cpp": "KeeperTest.*:KeeperOfAnotherUser.*:Attachments*",
    "daemon/keeper/keeper_protocol.cpp": "KeeperMessages.*",
    "daemon/keeper/keeper_watch.cpp": "KeeperWatchTest.*:Attachments*:KeeperTest.one_that*",
    "daemon/keeper/left_memory.cpp": "LeftMemory.*",
    "daemon/keeper/keeping.cpp": "Keeping.*:Attachments*:KeeperTest.*",
    "daemon/process/dead_hosts.cpp": "DeadHostsTest.*",
    "daemon/process/shutdown_barrier.cpp": "ShutdownBarrierTest.*",
    "daemon/process/idle_cpus.cpp": "IdleCpus*",
    "daemon/process/polling.hpp": "PollingTest.*",
    "daemon/process/scheduling.hpp": "SchedulingTest.*:CrowdedTest.*",
    "frontends/fuse/runs.cpp": "FuseRuns.*",
    "frontends/nbd/admission.cpp": "NbdNetwork.*:NbdAccessLists.*:NbdAdmission.*",
    "frontends/nbd/client_cpu.cpp": "ClientCpuTest.*",
    "frontends/nbd/connection.cpp": "NbdConnection.*:NbdConversation.*:NbdReconnect.*:NbdBounds.*:NbdMoving.a_connection_follows*:NbdTlsConnection.*",
    "frontends/nbd/device_connection.cpp": "NbdDevice*",
    "frontends/nbd/session_book.cpp": "NbdSession*",
    "frontends/nbd/device_log.cpp": "NbdDevice*",
    "frontends/nbd/device_log.hpp": "NbdDevice*",
    "frontends/nbd/device_memory.cpp": "NbdDevice*",
    "frontends/nbd/following.hpp": "FollowingTest.*",
    "frontends/nbd/handshake.cpp": "NbdHandshake.*:NbdHandshakeTls.*",
    "frontends/nbd/negotiate.cpp": "NbdConnection.*:NbdConversation.*:NbdTlsConnection.*",
    "frontends/nbd/landing.hpp": "LandingBuffersTest.*:NbdLanding.*",
    "frontends/nbd/newcomers.hpp": "NbdConnection.*",
    "frontends/nbd/request.cpp": "Nbd*",
    "frontends/nbd/reply.cpp": "Nbd*",
    "frontends/nbd/server.cpp": "NbdServer.*:AttachmentsTest.who_takes_over*",
    "frontends/nbd/sessions.cpp": "NbdSession*",
    "frontends/nbd/socket_reader.hpp": "SocketReaderTest.*",
    "frontends/nbd/stream.cpp": "NbdTls*",
    "frontends/nbd/tasks.cpp": "NbdConnection.*:NbdBounds.*",
    "frontends/nbd/tls_credentials.cpp": "TlsKeys.*:NbdTlsCertificates.*",
    "frontends/nbd/tls_session.cpp": "NbdTls*",
    "frontends/nbd/writes.cpp": "NbdConnection.*:NbdBounds.*:NbdLanding.*:NbdMoving.*half*",
    "frontends/volumes/cached_volume.cpp": "Cached.a_prefetch*:AdoptedHost.a_trim_goes*:AdoptedHost.a_request*:FileCuts.*:CacheWaiters.*:ClusterSessions.*",
    "frontends/volumes/extents.cpp": "HomeOnDevice.*:CachedLarge.*",
    "frontends/volumes/tiers.cpp": "Cluster.each_host_tells*",
    "frontends/volumes/growth.cpp": "FileCuts.*:FileZeroing.*:WriteThatHolds.*:ClusterFiles.*",
    "frontends/volumes/truncation.cpp": "FileZeroing.*:ClusterFiles.*",
    "tiers/dram/frame_pool.cpp": "FramesOfNodes.*:FramesOfBefore.*",
    "tiers/dram/frame_word.hpp": "FrameWord.*",
    "tiers/nvme/device/store_file.cpp": "PolledReads.*",
    "tiers/nvme/store_standing.cpp": "StoreStandingTest.*:AdoptedHost.*",
    "utils/descriptor_passing.cpp": "KeeperMessages.*",
    "utils/loop.cpp": "PolledRing.*",
    "utils/worker_threads.hpp": "WorkerThreadsTest.*",
}

MUTANTS = [
    # Whose a frame is: it may have become another page's since the table named it.
    ("coherence/pages/pages.cpp", "if (!FrameWord::readable(seen) || «frame->page_id() != page» || !may_use", {
        "a reader believes the table of pages": "false",
    }),
    ("coherence/pages/pages.cpp", "if («frame->page_id() != page» || !may_use(*frame, page, view) || "
     "!frame->word.try_pin(seen))", {
        "who pins believes the table of pages": "false",
    }),
    ("coherence/pages/pages.cpp", "!may_use(*frame, page, view) || !frame->word.try_pin(«seen»))", {
        "a pin is of another word than the one that was looked at": "frame->word.load()",
    }),
    ("coherence/pages/pages.cpp", "if («frame->page_id() != page» || !may_use(*frame, page, view) || "
     "!frame->word.try_latch_exclusive(seen))\n        return false;", {
        "a writer believes the table of pages": "false",
    }),
    ("coherence/pages/pages.cpp", "!frame->word.try_latch_exclusive(«seen»))\n        return false;", {
        "a writer latches another word than the one that was looked at": "frame->word.load()",
    }),
    ("coherence/pages/pages.cpp", "if («frame->page_id() != page» || !may_change(*frame, page, view) || "
     "!frame->word.try_latch_exclusive(seen))\n            break;", {
        "a writer of several pages believes the table of pages": "false",
    }),
    ("tiers/dram/frame_word.hpp", "| ownership) + «version_one»", {
        "a change of the ownership leaves the version as it was": "0",
    }),

    # The second look of an optimistic reader.
    ("coherence/pages/pages.cpp", "if («!frame->word.unchanged_since(seen)») return false;", {
        "an optimistic reader does not look again": "false",
    }),
    ("tiers/dram/frame_word.hpp", "word_.fetch_add(«version_one» - exclusive", {
        "a writer leaves the version as it was": "0",
    }),
    ("tiers/dram/frame_word.hpp", "& ~«irrelevant») == 0;", {
        "an optimistic reader does not notice a writer at work": "(irrelevant | exclusive)",
        "an optimistic reader does not notice that the frame is asked for": "(irrelevant | busy)",
    }),

    # Who waits is woken.
    ("coherence/pages/pages.cpp", "if («frame.word.unpin()») listener_.on_quiet(frame, page);", {
        "the last pin of a busy frame ends and nobody hears of it": "(static_cast<void>(frame.word.unpin()), false)",
    }),
    ("coherence/pages/pages.cpp", "if («frame->word.unlatch_exclusive()») listener_.on_quiet(*frame, page);", {
        "a writer leaves a busy frame and nobody hears of it": "(static_cast<void>(frame->word.unlatch_exclusive()), false)",
    }),
    ("coherence/pages/pages.cpp", "if («quiet[i]») report(", {
        "a writer of several pages leaves a busy frame and nobody hears of it": "false",
    }),
    ("coherence/pages/pages.cpp", "«quiet[i] = frames[i]->word.unlatch_exclusive();»", {
        "a writer of several pages says that one is quiet while it holds the others":
            "if (frames[i]->word.unlatch_exclusive()) report(*frames[i], PageId::of(volume, first + i));",
    }),
    ("tiers/dram/frame_word.hpp", "return (before & busy) != 0 && «(before & pins_mask) == pin_one»;", {
        "a busy frame counts as quiet when the first of two pins ends": "true",
    }),
    ("coherence/pages/frame_supply.cpp", "«freed();»  // one may have come free before we were in the queue", {
        "who begins to wait for a frame does not look for one that came free meanwhile": "",
    }),
    ("coherence/pages/frame_queue.cpp", "«(waiter.next_ ? waiter.next_->link_ : end_) = waiter.link_;»", {
        "who comes after a waiter that gave up is not in the line": "if (waiter.next_) waiter.next_->link_ = waiter.link_;",
    }),
    ("coherence/pages/writable_share.cpp", "«serve();»  // there may be room again", {
        "who waits does not look whether there is room meanwhile": "",
    }),
    ("coherence/pages/writable_share.cpp", "if («anyone_waits()») serve();", {
        "who leaves the share lets nobody in": "false",
    }),
    ("coherence/pages/writable_share.cpp", "of_home <= share_of_rest * («frame_count_ - of_all»);", {
        "a home's share does not depend on the others": "frame_count_ - of_home",
    }),
    ("coherence/pages/writable_share.cpp", "if (!fits(count + 1, «total_.load(std::memory_order_seq_cst) + 1»)) return false;", {
        "the frames of all homes together are no limit": "count + 1",
    }),
    ("coherence/pages/frame_supply.cpp", "    pool_.release(id, use_holder);\n    «freed();»", {
        "a frame that is given back wakes nobody": "",
    }),
    ("coherence/pages/frame_supply.cpp", "«frame = pool_.try_take(use_holder, leave);»  // one may have come free", {
        "a link that begins to wait for a frame does not look for one that came free meanwhile": "",
    }),
    ("coherence/pages/frame_supply.cpp", "[&](HostId host) { «peers_.fabric()->resume(host);» }", {
        "a link that waits for a frame is not told of one": "",
    }),

    # What is dirty is in the set of dirty frames.
    ("coherence/pages/pages.cpp", "«dirty_frames_.remove(id);\n    if ((frame.dirty.load(std::memory_order_seq_cst) | "
     "frame.writing.load(std::memory_order_seq_cst)) != 0)\n        dirty_frames_.add(id);»", {
        "what was written during a write-back leaves the set of dirty frames": "dirty_frames_.remove(id);",
        "a frame leaves the set of dirty frames after the look at its sectors":
            "if ((frame.dirty.load() | frame.writing.load()) == 0) dirty_frames_.remove(id);",
    }),
    ("coherence/pages/pages.cpp", "    «frame.dirty.fetch_or(mask, std::memory_order_seq_cst);\n"
     "    dirty_frames_.add(pool_.id_of(frame));»", {
        "a writer enters the set of dirty frames before it marks its sectors":
            "dirty_frames_.add(pool_.id_of(frame)); frame.dirty.fetch_or(mask);",
        "a writer does not enter the set of dirty frames": "frame.dirty.fetch_or(mask);",
    }),
    ("coherence/pages/held_frames.cpp", "    frame.writing.store(0, std::memory_order_relaxed);\n"
     "    «parts_.pages.dirty_frames().remove(id);»", {
        "a frame that is given up stays in the set of dirty frames": "",
    }),
    ("coherence/home_store/home_writer.cpp", "if (result && «frame.home_version == version») {", {
        "home's bytes that changed while they were stored count as stored": "true",
    }),
    ("coherence/home_store/home_writer.cpp", "if («frame.home_version == version») frame.storing = Storing::taken;", {
        "home's bytes that changed while they were stored count as taken": "true",
    }),
    ("coherence/home_store/home_writer.cpp", "            «parts_.home.dirty().remove(id);»\n            if (free_after", {
        "home's bytes that were stored stay in the set of those that were not": "",
    }),
    ("coherence/home_store/home_frames.cpp", "    «++home->home_version;»", {
        "new bytes of home leave the version as it was": "",
    }),
    ("coherence/home_store/home_frames.cpp", "«if (home->storing == Storing::taken) home->storing = Storing::begun;»", {
        "new bytes of home count as taken by the store": "",
    }),
    ("coherence/home_store/home_frames.cpp", "    «dirty_.add(parts_.pool.id_of(*home));»", {
        "new bytes of home are not in the set of those to be stored": "",
    }),

    # Home's bytes that were read for a link go over no other.
    ("coherence/home_store/home_reader.cpp", "«read.link == links.counts[read.to]»)", {
        "home's bytes go over a later link than the one they were asked for over": "true",
    }),
    ("coherence/cache/inbox.cpp", "        «const auto alone = parts_.home_start.hold_off();»\n        parts_.stripes.for_each", {
        "a link comes up while the home tells its stripes that it serves": "",
    }),
    ("coherence/adoption/home_start.cpp", "            «const auto alone = hold_off();»", {
        "the home tells its stripes that it serves while others tell them of hosts": "",
    }),
    ("coherence/cache/inbox.cpp", "        «++turn.links().counts[host];»", {
        "a new link has the number of the old one": "",
    }),

    # A frame that bytes land in is nobody else's by then.
    ("coherence/executor/executor.cpp", ".frame = to_us ? «effects_.home_store.take_free_frame()» : no_frame,", {
        "the store reads into the frame that the Holder has lent": "message.frame",
    }),
    ("coherence/home_store/home_reader.cpp", "frame = «protocol::lent_frame(turn.stripe().holder().find(message.page), message)»;", {
        "what the store read late lands in the Holder's frame, whatever that is by then": "message.frame",
    }),
    ("coherence/cache/inbox.cpp", "    if (!admitted) {\n        «if (page) return_page(page);»", {
        "the frame of a message that is refused is not given back": "",
    }),
    ("coherence/cache/inbox.cpp", "if («!stepped» && frame != no_frame) turn.result().frames_freed", {
        "the frame of a message is given back once more when the cache stops meanwhile": "parts_.stripes.abandoned()",
    }),
    ("coherence/fabric/link/record_reader.cpp", "    «if (page_) receiver_.return_page(page_);»", {
        "the frame of a page that was cut off is not given back": "",
    }),
    ("coherence/fabric/link/record_reader.cpp", "receiver_.on_message(message_, «std::exchange(page_, nullptr)»);", {
        "a page that was delivered goes on being received into": "page_",
    }),

    # Who is linked, and who has said what it holds.
    ("coherence/cache/inbox.cpp", "{ «turn.links().up &= ~set_of(host);» }", {
        "a broken link still counts": "",
    }),
    ("coherence/membership/recovery.cpp", "    if (recovering_) «reported_ &= ~set_of(host);»", {
        "what a host reported over a broken link counts for the next one": "",
    }),
    ("coherence/membership/recovery.cpp", "reported_ |= set_of(host);\n    «++moment_;»", {
        "what a host reports after the marks were looked at is not looked at": "",
    }),
    ("coherence/membership/recovery.cpp", "«if (moment != moment_) return Next::look_again;»", {
        "a home serves by what it knew before it heard more": "",
    }),
    ("coherence/membership/recovery.cpp", "(hosts_ & ~(«reported_ | dead_»)) != 0", {
        "a home serves without a host that has not reported": "hosts_",
        "a home waits for a host that was declared dead": "reported_",
    }),
    ("coherence/membership/recovery.cpp", "if («lacks_losses()» || !all_marked) return", {
        "a home serves before what may be lost is on record": "false",
    }),
    ("coherence/membership/recovery.cpp", "|| «!all_marked») return", {
        "a home serves before what may be written is marked": "false",
    }),
    ("coherence/membership/recovery.cpp", "«if (moment != moment_) return false;»\n    recording_", {
        "what was recorded counts for what was heard since": "",
    }),
    ("coherence/membership/recovery.cpp", "|| «(has_recorded_losses_ && losses_recorded_at_ != moment_)»", {
        "losses that were found after the recording are not recorded": "false",
    }),
    ("coherence/membership/recovery.cpp", "if («begun > losses_recorded_at_») --unrecorded", {
        "what was recorded long ago ends what is not on record yet": "unrecorded_losses_ > 0",
    }),
    ("coherence/membership/recovery.cpp", "return «std::exchange(recording_, true)» ? Next::wait", {
        "two record at once": "false",
    }),
    ("coherence/membership/membership.cpp", "«if (met != 0) header.losses_unrecorded.store(true, std::memory_order_relaxed);»", {
        "the process that declared a host dead is thought to have told its stripes": "",
    }),
    ("coherence/flush/flusher.cpp", "        «home_.on_peer_up(host, {}, {.incarnation = 1, .epoch = 1}, actions);»", {
        "a flush waits for a host that was declared dead": "",
    }),
    ("coherence/flush/flusher.cpp", "        «settled_ &= ~set_of(host);»\n        holder_", {
        "what a process said of its losses counts for the next one": "",
    }),
    ("coherence/cache/inbox.cpp", "if (parts_.membership.recovering() && message.has(protocol::flag_exclusive))\n"
     "                «(void)parts_.store.reserve(message.page);»", {
        "what a host may write has no room at a home that begins anew": "",
    }),
    ("coherence/flush/flusher.cpp", "if (is_settled && «self.parts_.membership.process_of(home) == asked») "
     "self.settled_", {
        "an answer of the process before settles the next one": "true",
    }),
    ("frontends/volumes/truncation.cpp", "«page.zeroing_host = cache_.self();»", {
        "who goes on with a zeroing leaves the mark in the name of who began": "",
    }),
    ("frontends/volumes/truncation.cpp", "«page.zeroing_epoch = cache_.membership().process_of(cache_.self()).epoch;»", {
        "who goes on with a zeroing leaves the process of who began": "",
    }),
    ("frontends/volumes/truncation.cpp", "is_marked = «page.zeroing_from == AttributePage::no_zeroing» &&", {
        "who zeroes a gap forgets what another one is zeroing": "true",
    }),
    ("daemon/catalog/catalog_usage.cpp", "«id >= header.next_id» ||", {
        "what is stored of a volume that is being made is dropped": "false",
    }),
    ("coherence/cache/inbox.cpp", "«if (!parts_.membership.recovering()) parts_.membership.end_unrecorded_losses(*lost);»", {
        "a home that recovers forgets what a host lost that is declared dead":
            "parts_.membership.end_unrecorded_losses(*lost);",
    }),
    ("frontends/volumes/growth.cpp", "«note_written(attribute_page_of(id()).number() * page_size, sizeof(AttributePage), "
     "began);»", {
        "a flush does not count the size of a file that grew": "",
    }),
    ("coherence/pages/pages.cpp", "if (frame->page_id() != page || «!may_use(*frame, page, view)» || "
     "!frame->word.try_latch_exclusive(seen))\n        return false;", {
        "a size that was lost is appended to": "false",
    }),
    ("daemon/catalog/catalog.cpp", "if («owes_bytes && result») co_return", {
        "who goes last counts the bytes of hosts that have gone as durable": "false",
    }),
    ("coherence/membership/membership.cpp", "«header_.losses_unrecorded.store(true, std::memory_order_release);»", {
        "the next process does not hear that losses are unrecorded": "",
    }),
    ("coherence/membership/membership.cpp", "«header_.last_in_doubt.store(process_.epoch, std::memory_order_release);»", {
        "the next process does not know that this one was in doubt": "",
        "who missed a process in doubt is told of the first process with its memory":
            "header_.last_in_doubt.store(process_.incarnation, std::memory_order_release);",
    }),
    ("coherence/membership/membership.cpp", "«header_.last_loss.store(process_.epoch, std::memory_order_release);»", {
        "the next process does not know that this one recorded losses of pages": "",
    }),
    ("coherence/adoption/adoption.cpp", "const bool is_known = «header.past_known_to == last» &&", {
        "a process of an older program was never in doubt": "true",
        "each process leaves a doubt to the next": "false",
    }),
    ("coherence/membership/membership.cpp", "«remember_met(host, process);»", {
        "the next process meets everybody for the first time": "",
    }),
    ("coherence/adoption/home_start.cpp", "«if (parts_.stripes.abandoned()) return;»  // the loop takes no new tasks any more\n    for (;;)", {
        "a home that stops begins to record losses": "",
    }),
    ("coherence/membership/membership.cpp", "«failed_stores_ &= ~set_of(host);»  // another process", {
        "another process of a host counts as having the failed store": "",
    }),
    ("coherence/fabric/link/link.cpp", "    receiver_.on_link_down(peer_);\n    «fail_calls();»", {
        "a call waits on when its link has broken": "",
    }),
    ("coherence/fabric/link/link.cpp", "        «up_.store(false, std::memory_order_relaxed);\n        outgoing_ = {};»", {
        "a broken link counts as up": "",
    }),

    # Nothing goes before what a host says first over a new link.
    ("coherence/executor/executor.cpp", "if («!contains(step.links.up, to)») return;", {
        "a stripe that has not heard of a new link sends over it": "false",
    }),
    ("coherence/fabric/link/link.cpp", "= «greeting_ && Loop::current() != &loop()» ? later_ : outgoing_;", {
        "what other shards send goes before what a host says first": "false",
    }),
    ("coherence/fabric/link/link.cpp", "        «outgoing_.insert(outgoing_.end(), later_.begin(), later_.end());»", {
        "what other shards send while a host says what it says first is lost": "",
    }),
    ("coherence/fabric/link/link.cpp", "    «receiver_.on_link_up(peer_, process);\n"
     "    send_control(ControlRecord::Kind::greeted);»", {
        "a host has greeted before it has said what it holds":
            "send_control(ControlRecord::Kind::greeted); receiver_.on_link_up(peer_, process);",
    }),
    ("coherence/fabric/link/link.cpp", "    if («greeting_» || !payload.empty()) return;", {
        "what is sent while a host says what it says first is joined to what was sent before": "false",
    }),

    # A file that is cut while it is written.
    ("frontends/volumes/growth.cpp", "return «page.truncations == truncations»;", {
        "a write does not notice that its file was cut": "true",
        "each write takes its file for cut": "false",
    }),
    ("frontends/volumes/growth.cpp", "if («standing.empty() && std::ranges::none_of(request.refused(), stays)») co_return", {
        "a page that came whole after the cut does not make its write the last": "std::ranges::none_of(request.refused(), stays)",
        "a part that stays and was not written before the cut is left out": "standing.empty()",
        "a write that was cut always comes first": "true",
        "a write that was cut always comes last": "false",
    }),
    ("frontends/volumes/growth.cpp", "if («std::ranges::equal(bytes, part(run))») standing", {
        "a page that came whole and was zeroed counts as written": "true",
    }),
    ("frontends/volumes/growth.cpp", "while («now.zeroes_before(end)») {", {
        "a page in doubt is looked at while it is being zeroed": "false",
    }),
    ("frontends/volumes/growth.cpp", "«if (!known) co_return co_await write_file(offset_bytes, from);»", {
        "cuts that nobody remembers are taken for none": "if (!known) co_return Result<>{};",
    }),
    ("frontends/volumes/growth.cpp", "if (!«cache_.pages().may_use(attribute_page_of(id()), session_.losses)»)", {
        "who holds the size waits for it once more": "(co_await attribute_page()).has_value()",
    }),
    ("frontends/volumes/growth.cpp", "if («seen.zeroes_before(end)») return false;", {
        "a file grows over what is being zeroed": "false",
    }),
    ("frontends/volumes/growth.cpp", "if (!bytes.empty() && «!cache_.pages().try_write_within(session_.volume, at, bytes, "
     "session_.losses, quiet)»)", {
        "a file grows before its bytes are there":
            "(static_cast<void>(cache_.pages().try_write_within(session_.volume, at, bytes, session_.losses, quiet)), false)",
    }),
    ("frontends/volumes/growth.cpp", "context_.holding_turns.take(«id() % holders_max»)", {
        "any number of writes hold pages": "id()",
    }),
    ("frontends/volumes/growth.cpp", "if («seen.size_bytes < std::min(at, zeros_from)») return false;", {
        "a write leaves what lies between the end and itself": "false",
    }),
    ("frontends/volumes/truncation.cpp", "must_zero = «page.size_bytes < zeros_from && !page.is_new()»;", {
        "a file that is extended shows what lies there": "false",
    }),
    ("frontends/volumes/truncation.cpp", "runs[0].hole && «runs[0].size_bytes == until - now.size_bytes»", {
        "what begins with a hole is taken for one": "true",
    }),
    ("frontends/volumes/truncation.cpp", "«++page.zeroing_attempt;»  // no two", {
        "one zeroing is taken for another": "",
    }),
    ("frontends/volumes/truncation.cpp", "«++page.zeroing_attempt;»\n        page.zeroing_host", {
        "who goes on with a zeroing does not count it": "",
    }),
    ("frontends/volumes/truncation.cpp", "«page.zeroing_attempt == seen.zeroing_attempt»;", {
        "a zeroing that another host has gone on with is gone on with": "true",
    }),
    ("frontends/volumes/truncation.cpp", "«page.truncations == seen.truncations» &&", {
        "the zeroing of a later truncation is taken for that of an earlier one": "true",
    }),
    ("frontends/volumes/truncation.cpp", "&& («cut || page.zeroes_before(size)»);", {
        "a file is cut while another truncation zeroes": "page.zeroes_before(size)",
    }),
    ("frontends/volumes/cached_volume.cpp", "«client_->pages_end.load(std::memory_order_relaxed)»);", {
        "a flush ends where the file does": "uint64_t{0}",
        "a flush ends before the last page that was written": "client_->pages_end.load() - 1",
    }),

    # Since when a home has lost nothing.
    ("coherence/pages/verifiers.hpp", "verifier_of(«membership_.process().first_intact()»", {
        "a clean stop counts as a loss": "membership_.process().incarnation",
    }),
    ("coherence/cache/inbox.cpp", "verifier_of(«link.process.first_intact()»", {
        "a home is heard under another verifier than its own": "link.process.incarnation",
    }),
    ("coherence/flush/flusher.cpp", "if («protocol::is_older(verifier, parts_.verifiers.present(home))») return;", {
        "an older verifier of a home replaces a newer one": "false",
    }),
    ("tiers/nvme/store_standing.cpp", "goes_on = «was_complete_» &&", {
        "a home that crashed has lost nothing": "true",
    }),
    ("tiers/nvme/store_standing.cpp", "«superblock_.accepted_epoch != home_epoch()» &&", {
        "an older store that was accepted has lost nothing": "true",
    }),

    ("frontends/nbd/tls_credentials.cpp", "if (credentials && «before.has_revoked_ && !(*credentials)->has_revoked_»)", {
        "a list of revoked certificates that is gone revokes nothing": "false",
    }),
    # Reads are polled where the device has queues for that.
    ("tiers/nvme/device/store_file.cpp", "direct_ && «queue_attribute(root, \"io_poll\").starts_with('1')» &&", {
        "reads are polled whatever the device says": "true",
        "reads are polled where the device says no": "!queue_attribute(root, \"io_poll\").empty()",
    }),
    ("tiers/nvme/device/store_file.cpp", "return «own.empty()» ? text_of(", {
        "a part of a disk has a queue of its own": "false",
        "a device is taken for a part of a disk": "true",
    }),
    ("tiers/nvme/device/store_file.cpp", "if («refused != EOPNOTSUPP && refused != EAGAIN») co_return", {
        "a read that cannot be polled fails": "true",
    }),
    ("tiers/nvme/device/store_file.cpp", "refused == EOPNOTSUPP && «polls_reads_->exchange(false)»)", {
        "reads are tried with polling for ever": "false",
    }),

    # Marks of pieces go when the store has all of them.
    ("coherence/home_store/piece_marker.cpp", "«rest.is_stored &= !frame->home_dirty;»", {
        "a piece of which only home's memory has bytes counts as stored": "",
    }),
    ("coherence/home_store/piece_marker.cpp", "«rest.is_stored &= !left || !left->home_dirty;»", {
        "what came home as its owner gave it up counts as stored": "",
    }),
    ("coherence/home_store/piece_marker.cpp", "«rest.is_free &= home.has_everything(page);»", {
        "a page that somebody is inside counts as free": "",
    }),
    ("coherence/home_store/piece_marker.cpp", "«rest.changes += frame->home_version;»", {
        "what home has got anew does not count as a change of its piece": "",
    }),
    ("coherence/home_store/piece_marker.cpp", "if (!now.is_stored || «seen.changes != now.changes») seen", {
        "a piece that was changed and stored has rested all the time": "false",
    }),

    # What is stored at the end.
    ("coherence/home_store/home_writer.cpp", "copy.mask = «Pages::unwritten(frame)»;", {
        "what a stop brings home is stored with all its sectors": "0",
        "what a stop brings home is stored with its first sector": "1",
    }),
    ("coherence/home_store/home_writer.cpp", "copy.sequence = «holding->sequence + 1»;", {
        "what a stop brings home has the position of what home has": "holding->sequence",
    }),
    ("coherence/home_store/home_writer.cpp", "if («parts_.membership.home_of(parts_.pool.frame(id).page_id()) == parts_.membership.self()»)", {
        "a stop stores pages that are homed elsewhere": "true",
    }),

    # Who makes room, and for whom.
    ("coherence/pages/page_provider.cpp", "return «frame.writable.load(std::memory_order_relaxed)» &&", {
        "pages that may only be read leave to relieve their home": "true",
    }),
    ("coherence/pages/page_provider.cpp", "«parts_.writable_share.is_crowded(parts_.membership.home_of(frame.page_id()))» &&", {
        "pages of any home leave to relieve one": "true",
    }),
    ("coherence/pages/page_provider.cpp", "«if (pause == pause_max && parts_.supply.anyone_waits()) "
     "drop_clean(shard, batch_max);»", {
        "clean pages of a silent home wait for it": "",
    }),

    # What goes on without its request.
    ("coherence/pages/page_access.cpp", "«if (missing_ == 0) return;»  // they have ended meanwhile", {
        "a request for nothing is left behind": "",
    }),
    ("coherence/pages/page_access.cpp", "«own->use_of_orphans_ = VolumeUses::Use(host_.parts().uses, "
     "accesses_.front().page().volume());»", {
        "what goes on alone does not use the volume": "",
    }),
    ("coherence/pages/page_access.cpp", "if (view_of_orphans_)\n        «delete this;»", {
        "what went on alone stays for ever": "",
    }),

    # What peers ask, and what goes on without them.
    ("frontends/volumes/extents.cpp", "if («asked->reserved != 0») return", {
        "what a question has no meaning for yet is let through": "false",
    }),
    ("frontends/volumes/extents.cpp", "return «skipped < page_count» && run.page_count <=", {
        "an answer may begin anywhere": "true",
    }),
    ("frontends/volumes/extents.cpp", "skipped < page_count && «run.page_count <= page_count - skipped»;", {
        "an answer may go on past what was asked for": "true",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («(theirs.own.flags & ~Account::has_offers) != 0 || theirs.of_you.flags != 0»)", {
        "what an account has no meaning for yet is let through": "false",
    }),
    ("daemon/catalog/registrar.cpp", "|| «record.holder_epoch == cache_.membership().process_of(record.holder).epoch»;", {
        "a hold outlives its process": "true",
    }),
    ("coherence/pages/page_access.cpp", "noted = «receipts_ ? receipts_->began(home) : 0»; noted != 0", {
        "a request that goes on forgets the homes of the pages that it had changed": "0",
    }),
    ("frontends/volumes/cached_volume.cpp", "    «if (receipts) {\n        if (first_began != 0) "
     "receipts->note_began(first_home, first_began);\n        if (last_began != 0) "
     "receipts->note_began(last_home, last_began);\n    }»\n", {
        "a write at once changes pages before their home is noted": "",
    }),
    ("daemon/catalog/registrar.cpp", "return «record.kept» || record.holder_epoch", {
        "a device's hold ends with its process": "false",
    }),
    ("daemon/catalog/registrar.cpp", "no_host || «cache_.membership().is_dead(record.holder)») return false;", {
        "a host that was forgotten keeps what its device held": "false",
    }),
    ("daemon/catalog/registrar.cpp", "if («kind == HoldKind::resumed && record->holder != host»)", {
        "a device goes on after another host has held its volume": "false",
    }),
    ("daemon/catalog/registrar.cpp", "|| (is_held && «record->kept»);", {
        "who opens a device's volume beside it ends its hold with the process": "false",
    }),
    ("daemon/catalog/catalog.cpp", "has_ended = «!record.kept» && cache_.membership()", {
        "nobody is told who holds a volume for a device": "true",
    }),
    ("daemon/catalog/catalog_open.cpp", "if («record.kept && record.holder == cache_.self()» && !holds", {
        "what a device that is gone had stays held": "false",
    }),
    ("daemon/catalog/catalog_open.cpp", "== cache_.self() && «!holds(record.id)») begin_release", {
        "what a device has is released at the start": "true",
    }),
    ("daemon/catalog/catalog_open.cpp", "(kind == HoldKind::of_process || «found->second.is_of_device»)", {
        "the hold of a device that others had open before ends with the process": "true",
    }),
    ("daemon/catalog/catalog_take_over.cpp", "        «CO_TRY_VOID(co_await ask_registrar(release_request(*volume, "
     "hold_number(0))));»", {
        "a host that holds a volume for nobody keeps it": "",
    }),
    ("daemon/catalog/removals.cpp", "«if (cache_.membership().is_dead(host)) break;»", {
        "a deletion waits for a host that was declared dead": "",
    }),

    # The catalog's pages.
    ("daemon/catalog/catalog_table.cpp", "«std::erase_if(records, [](const CatalogRecord& record) { return record.removed; "
     "});»", {
        "a volume that is being removed keeps its name": "",
    }),
    ("daemon/catalog/catalog_table.cpp", "if («slot >= slot_limit_») co_return", {
        "a full table has one slot more": "false",
    }),
    ("daemon/catalog/catalog_table.cpp", "if («stored.magic != header_magic» ||", {
        "a damaged header of the catalog is believed": "false",
    }),
    ("daemon/catalog/catalog_table.cpp", "|| «stored.slot_count > slot_limit_»)", {
        "a header of more slots than there are is believed": "false",
    }),
    ("daemon/catalog/catalog_table.cpp", "if («!valid_volume_name(record.name)») return", {
        "a damaged name of a volume is believed": "false",
    }),
    ("daemon/catalog/catalog_table.cpp", "|| «stored.id > volume_id_max»)", {
        "a volume id beyond all ids is believed": "false",
    }),

    # Who has which name.
    ("daemon/catalog/registrar.cpp", "if («record.name == name») co_return", {
        "a name is given twice": "false",
    }),
    ("daemon/catalog/registrar.cpp", "if («names_collide(record.name, name)»)", {
        "a volume is a directory of others as well": "false",
    }),
    ("daemon/catalog/registrar.cpp", "if («header.next_id > volume_id_max») co_return", {
        "ids go on beyond their end": "false",
    }),
    ("daemon/catalog/registrar.cpp", "    «header.next_id++;»", {
        "an id is given twice": "",
    }),
    ("daemon/catalog/registrar.cpp", "        «(void)co_await table_.clear(slot);»", {
        "a volume that could not be made durable has a name": "",
    }),
    ("daemon/catalog/registrar.cpp", "        «(void)co_await table_.put(before);»", {
        "a removal that could not be made durable takes the name": "",
    }),
    ("daemon/catalog/registrar.cpp", "if («!users.empty()») co_return", {
        "users do not keep a volume from being removed": "false",
    }),
    ("daemon/catalog/registrar.cpp", "if («record.removed») begin_to_see_off(record);", {
        "a restart does not go on with a removal": "false",
        "a restart removes every volume": "true",
    }),
    ("daemon/catalog/registrar.cpp", "«record.holder == host» && held <= number;", {
        "anybody releases a hold": "true",
    }),
    ("daemon/catalog/registrar.cpp", "record.holder == host && «held <= number»;", {
        "a release ends a hold that was asked for after it": "held.epoch <= number.epoch",
        "a release does not end the hold of a request that failed before": "held == number",
        "a release of the process before ends a hold": "held.count <= number.count",
    }),
    ("daemon/catalog/registrar.cpp", "«is_of_process ? std::max(record->hold, number.count) : number.count»;", {
        "a hold that comes late counts as the last one": "number.count",
    }),
    ("coherence/fabric/link/link.cpp", "if («link == link_count_») append_control(ControlRecord::Kind::answer", {
        "an answer goes over a later link": "true",
    }),
    ("daemon/catalog/registrar.cpp", "if (is_meant || record.holder == no_host) co_return «co_await put_hold(record)»;", {
        "a release is lost with the memory of the registrar":
            "(co_await table_.put(record)) ? Result<CatalogRecord>(record) : fail(Errc::io)",
    }),
    ("daemon/catalog/catalog.cpp", "if («!has_ended») entry.holder", {
        "who has it open is told of a process that has ended": "true",
    }),
    ("daemon/catalog/registrar.cpp", "if («number.epoch != cache_.membership().process_of(host).epoch») co_return fail", {
        "a process that has ended is given a hold": "false",
    }),
    ("daemon/catalog/registrar.cpp", "if («number.epoch == cache_.membership().process_of(host).epoch») co_return held", {
        "a process that has ended is given a hold": "true",
        "a process that ends while it is given a hold keeps it": "true",
    }),
    ("daemon/catalog/registrar.cpp", "const CatalogRecord before = «*record»;\n    const bool is_of_process", {
        "a process that ends while it resumes a hold takes it from its device":
            "[&] { CatalogRecord free = *record; free.holder = no_host; return free; }()",
    }),
    ("daemon/catalog/catalog_open.cpp", "    «if (!is_held) begin_release(record.id, number);»  //", {
        "who gives up waiting for a hold keeps it": "",
    }),
    ("daemon/catalog/catalog_open.cpp", "    «volume->wait_at_most(std::chrono::milliseconds(entry.attributes.fail_after_ms));»", {
        "the first request of a handle waits for ever": "",
    }),
    ("daemon/catalog/catalog_open.cpp", "if («answer || cache_.abandoned()») break;", {
        "a registrar that is away does not hear of a release": "true",
    }),
    ("daemon/catalog/catalog_open.cpp", "|| «found->second.handles > 0» ||", {
        "the first handle that is closed ends the hold": "false",
    }),
    ("daemon/catalog/catalog_open.cpp", "|| «found->second.devices > 0») return;", {
        "the last handle that is closed ends the hold of a device": "false",
    }),
    ("daemon/catalog/catalog_open.cpp", "if (holds_) «catalog_.release_hold(id());»", {
        "a hold outlives the last handle": "",
    }),
    ("daemon/catalog/catalog_take_over.cpp", "while («holds(*volume) || releases_.load(std::memory_order_seq_cst) > 0»)", {
        "a holder says that it gave up what it still has": "releases_.load() > 0",
    }),
    ("daemon/catalog/catalog_take_over.cpp", "«CO_TRY_VOID(co_await end_clients_(*volume));»", {
        "a holder's clients keep the volume": "",
        "a device that did not end is given up": "(void)co_await end_clients_(*volume);",
    }),
    ("daemon/catalog/catalog_take_over.cpp", "if («is_silent(holder)»)", {
        "a silent holder is asked as if it were there": "false",
    }),
    ("daemon/catalog/catalog_take_over.cpp", "if («answer.has_value()») co_return Result<>{};", {
        "what the holder does not give up is taken over": "true",
    }),
    ("daemon/catalog/catalog_usage.cpp", "(«told.total_bytes == 0» ?", {
        "space that was never told counts as told": "false",
    }),

    # How a volume goes.
    ("daemon/catalog/removals.cpp", "if («!of_registrar && !request.starts_with(users_request)»)\n        co_return", {
        "any host may ask for a step of a removal": "false",
    }),
    ("daemon/catalog/removals.cpp", "«co_await cache_.uses().none_of(volume);»", {
        "a volume that is open is discarded": "",
    }),
    ("daemon/catalog/removals.cpp", "«if (failed) co_return false;»", {
        "a removal goes on after a step that failed": "",
    }),
    ("daemon/catalog/removals.cpp", "if («code != Errc::unavailable && code != Errc::closed && code != Errc::cancelled») {", {
        "a host that is away makes a removal fail": "true",
    }),
    ("daemon/catalog/removals.cpp", "&& «cache_.fabric()->answers(host)») others", {
        "a host that is away is asked for users": "true",
    }),

    # What a flush vouches for.
    ("coherence/pages/page_access.cpp", "request_->note_began(page_, began);\n        «request_->changed(page_, began);»", {
        "a write that waited takes no verifier": "",
    }),

    # Hosts that are declared dead.
    ("daemon/process/dead_hosts.cpp", "if («cache_.membership().incarnation_of(notice->host) <= notice->incarnation» &&", {
        "a younger process is declared dead with an older one": "true",
    }),
    ("daemon/process/dead_hosts.cpp", "if («theirs->linked != 0») co_return", {
        "a host that another one is linked with is declared dead": "false",
    }),
    ("daemon/process/dead_hosts.cpp", "std::max(newest, «theirs->incarnation»)", {
        "a process that only another host met is not declared dead": "notice.incarnation",
    }),
    ("daemon/process/dead_hosts.cpp", "return «host != from» &&", {
        "a host declares itself dead": "true",
    }),
    ("daemon/process/dead_hosts.cpp", "known = «linked ? known | set_of(peer) : known & ~set_of(peer)»;", {
        "a host hears of a death again and again": "known",
        "a host that comes back a second time hears of no death": "linked ? known | set_of(peer) : known",
    }),

    # Hosts that stop together.
    ("daemon/process/shutdown_barrier.cpp", "    «cache_.membership().changed().announce();»", {
        "a flush elsewhere wakes nobody": "",
    }),
    ("daemon/process/shutdown_barrier.cpp", "contains(stopping, peer) && «linked(peer)»; });", {
        "a stop waits for a host that died": "true",
    }),
    ("daemon/process/shutdown_barrier.cpp", "«stopping_.fetch_and(~set_of(from), std::memory_order_relaxed);»", {
        "one host's last flush counts for all": "stopping_.store(0);",
    }),
    ("daemon/process/shutdown_barrier.cpp", "if («!linked(peer)» && flushed != 0", {
        "a host that is still there counts as gone": "true",
    }),
    ("daemon/process/shutdown_barrier.cpp", "&& «flushed == cache_.membership().incarnation_of(peer)») gone", {
        "another process of a host counts as flushed": "true",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («decision != LinkDecision::accept»)", {
        "a dead process is linked with": "false",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («!equal(theirs, prove(configuration_.key, "
     "Direction::connecting, peer, own))»)", {
        "who connects needs no key": "false",
    }),
    ("coherence/fabric/link/authentication.cpp", "text[0] = «static_cast<char>(who)»;", {
        "a proof can be sent back to who made it": "'x'",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («!equal(theirs, prove(configuration_.key, "
     "Direction::accepting, own, peer))»)", {
        "who accepts needs no key": "false",
    }),
    ("coherence/fabric/link/handshake.cpp", "if (!is_of_cluster(peer) || «peer.host != host»)", {
        "another host at the address is linked with": "false",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («!is_of_cluster(peer)» || peer.host != host)", {
        "who connects goes on with a host of another cluster": "false",
    }),
    ("coherence/fabric/link/authentication.cpp", "std::memcpy(&text[1 + sizeof connecting], «&accepting», "
     "sizeof accepting);", {
        "a proof is good for any who accepts": "&connecting",
    }),
    ("coherence/fabric/link/authentication.cpp", "std::memcpy(&text[1], «&connecting», sizeof connecting);", {
        "a proof is good for any who connects": "&accepting",
    }),
    ("coherence/fabric/link/authentication.cpp", "    «TARN_ASSERT(gnutls_rnd(GNUTLS_RND_NONCE, "
     "introduction.nonce.data(), introduction.nonce.size()) == 0);»", {
        "all nonces are the same": "",
    }),
    ("coherence/fabric/link/authentication.cpp", "text += «name + '\\n'»;", {
        "a list of peers with names that end elsewhere is the same": "name",
    }),
    ("coherence/fabric/link/link.cpp", "if («silent_times > 2») set_answers(false);", {
        "a peer that is idle is taken for silent": "silent_times > 0",
    }),
    ("coherence/fabric/link/link.cpp", "        «answers_.store(true, std::memory_order_relaxed);»\n        transport_", {
        "a new link begins as silent": "",
    }),
    ("coherence/fabric/link/link.cpp", "        if («!up()») co_return fail(Errc::unavailable, 0, "
     "\"fabric.call: no link\");", {
        "a call without a link waits for one": "false",
    }),
    ("coherence/home_store/eviction.cpp", "if («!any && describes_volumes(page)») return false;", {
        "pages that describe volumes leave as any others": "false",
    }),
    ("coherence/pages/page_accesses.cpp", ""
     "access.post_failed(«parts_.membership.refuses_writes_of(action.page) ? Errc::io : Errc::no_space»);", {
        "a store that failed is told as a full one": "Errc::no_space",
    }),
    ("coherence/flush/flusher.cpp", "if («contains(homes, home) && parts_.membership.is_dead(home)») requester_", {
        "a flush waits for a home that is dead": "false",
    }),
    ("coherence/flush/flusher.cpp", "            if («parts_.membership.is_dead(home)»)\n                "
     "co_return fail(Errc::io, EIO, \"flush: a home", {
        "a flush asks a home that is dead for its verifier": "false",
    }),
    ("coherence/flush/flusher.cpp", "requester_.flushed_pages(session.id, parts_.membership.self(), pages, «writes»);", {
        "what is written while its range is flushed counts as flushed":
            "requester_.write_count(session.id, parts_.membership.self())",
    }),
    ("frontends/volumes/cached_volume.cpp", "    «unpin(std::span(pins).subspan(before));»\n    pins.resize", {
        "who finds not all pages keeps those pinned that it found": "",
    }),
    ("frontends/volumes/cached_volume.cpp", "if («!std::ranges::all_of(pages, is_ours)») co_return co_await "
     "flush_volume();", {
        "a range of another home is not flushed": "false",
    }),
    ("frontends/volumes/cached_volume.cpp", "    «note_written(offset_bytes, size_bytes, [&](HostId home) { "
     "return request.began(home); });»", {
        "a write that failed in part is not noted":
            "if (written) note_written(offset_bytes, size_bytes, [&](HostId home) { return request.began(home); });",
    }),
    ("daemon/catalog/catalog_usage.cpp", "id >= header.next_id || «named») continue;", {
        "named volumes are dropped at a start": "false",
    }),
    ("daemon/catalog/catalog_usage.cpp", "co_await «table_.list_all()»);", {
        "volumes that are open and removed are dropped at a start": "table_.list()",
    }),
    ("coherence/fabric/link/handshake.cpp", "           «introduction.peers != configuration_.peers_digest»;", {
        "another list of peers counts as ours": "false",
    }),
    ("coherence/fabric/link/handshake.cpp", "if («!is_of_cluster(peer)») co_return fail(Errc::refused, 0, "
     "\"fabric.handshake: not a host of this cluster\");", {
        "a host of another cluster is proved our key": "!configuration_.has_peer(peer.host)",
        "a host of no list is proved our key": "peer.magic != Introduction::magic_expected",
    }),
    ("daemon/catalog/catalog.cpp", "gone != 0 && «(gone | set_of(cache_.self())) == "
     "cache_.membership().host_set()»;", {
        "no last flush once any host has gone": "true",
    }),
    ("daemon/catalog/catalog_usage.cpp", "usage.bytes[static_cast<VolumeId>(used.volume)] += «used.bytes»;", {
        "the usage of a volume is that of one host": "usage.bytes.contains(static_cast<VolumeId>(used.volume)) ? 0 : "
                                                     "used.bytes",
    }),
    ("daemon/catalog/catalog.cpp", "if («cache_.membership().recovering() && !knows_a_volume() && !has_adopted») co_return", {
        "who has not served yet flushes all the same": "false",
        "who knows no volume flushes nothing": "!knows_a_volume()",
        "who does not serve yet flushes nothing": "cache_.membership().recovering() && !has_adopted",
    }),
    ("frontends/volumes/cached_volume.cpp",
     "    const std::optional<AttributePage> page = try_attribute_page(«all_are_past_»);", {
        "a size at hand is withheld from who may have seen lost attributes": "session_.losses",
    }),
    ("frontends/volumes/cached_volume.cpp", "    CO_TRY(const AttributePage page, co_await attribute_page(«all_are_past_»));", {
        "a size is withheld from who may have seen lost attributes": "session_.losses",
    }),
    ("daemon/catalog/registrar.cpp", "    header.slot_count = «std::max(header.slot_count, slot + 1)»;", {
        "a volume in a free slot hides those behind it": "slot + 1",
    }),
    ("frontends/nbd/negotiate.cpp", "    const Result<uint64_t> size_bytes = co_await «(*opened)->size()»;", {
        "who may have seen lost attributes is refused":
            "[](Task<Result<Attributes>> all) -> Task<Result<uint64_t>> {\n"
            "    CO_TRY(const Attributes now, co_await std::move(all));\n"
            "    co_return now.size_bytes;\n}((*opened)->attributes())",
    }),
    ("frontends/nbd/writes.cpp", "    const Errno error = «judge(complete.request)»;\n    if (error != Errno::none) "
     "return refuse_write(complete", {
        "a write ends in a volume that shrank meanwhile": "Errno::none",
    }),
    ("frontends/nbd/tasks.cpp", "    if («written && request.has(request_fua)») written = co_await flush_range(request);", {
        "a write with FUA that waited is not flushed": "false",
    }),
    ("frontends/nbd/tasks.cpp", "    if («zeroed && request.has(request_fua)») zeroed = co_await volume_->flush();", {
        "zeros with FUA are not flushed": "false",
    }),
    ("frontends/nbd/tasks.cpp", "    if («written && rest_bytes == 0 && request.has(request_fua)») error =", {
        "a write with FUA in pieces is not flushed": "false",
    }),
    ("frontends/nbd/sessions.cpp", "if (known.sockets.empty() && «said») forget(", {
        "a client whose connection broke is a new one": "true",
    }),
    ("frontends/nbd/connection.cpp", "        if («negotiated_» && !co_await sessions_.wait_for_broken_ones(", {
        "what a client sent before it came again lands later": "false",
    }),
    ("frontends/nbd/sessions.cpp", "std::any_of(sockets.begin(), «std::ranges::find(sockets, socket)», ", {
        "connections that broke wait for each other": "sockets.end()",
    }),
    ("frontends/nbd/sessions.cpp", "now - known->second.left_at >= remembered_for || «!known->first.first.lives()»))", {
        "the session of a process that has ended stays": "false",
    }),
    # TLS: what came in plain counts for nothing, and who may not see an export does not.
    ("frontends/nbd/handshake.cpp", "    if («state_ == State::securing && !input_.empty()») close(", {
        "bytes in plain behind STARTTLS are taken": "false",
    }),
    ("frontends/nbd/handshake.cpp", "    «exported_ = {};»\n    context_name_.reset();", {
        "structured replies asked for in plain are sent within TLS": "",
    }),
    ("frontends/nbd/handshake.cpp", "    if («tls_ == Tls::required && !secured_ && option_ != Option::start_tls && "
     "option_ != Option::abort»)", {
        "where TLS is required options are answered without": "false",
        "where TLS is required options are refused within": "tls_ == Tls::required && option_ != Option::start_tls && "
            "option_ != Option::abort",
    }),
    ("frontends/nbd/handshake.cpp", "    if («secured_») return refuse(OptionReply::error_invalid, \"TLS is in use", {
        "TLS is begun within TLS": "false",
    }),
    ("frontends/nbd/negotiate.cpp", "    if («handshake.question() == Handshake::Question::find»)\n", {
        "who asks about an export opens it": "false",
    }),
    ("frontends/nbd/negotiate.cpp", "co_await volumes_.find(«sees ? name : std::string()»);", {
        "an export is looked for that the client may not see": "name",
    }),
    ("frontends/nbd/handshake.cpp", "        «told_of_tls_ = true;»", {
        "nobody hears that a client has left because it knows no TLS": "",
    }),
    ("frontends/nbd/negotiate.cpp", "        const bool sees = «may_see(name)»;", {
        "an export is found by who may not see it": "true",
    }),
    ("frontends/nbd/negotiate.cpp",
     "    for (;;) {\n        // Also before the next question: a client that asks much and reads nothing gets no further than its socket.\n"
     "        «CO_TRY_VOID(co_await stream_.send_all(workspace_->loop, handshake.output(), workspace_->tls));\n"
     "        handshake.output().clear();»", {
        "answers pile up for a client that reads none":
            "if (handshake.state() != Handshake::State::asking) {\n"
            "            CO_TRY_VOID(co_await stream_.send_all(workspace_->loop, handshake.output(), workspace_->tls));\n"
            "            handshake.output().clear();\n        }",
    }),
    ("frontends/nbd/connection.cpp", "    «if (!negotiated_) return break_off();»", {
        "a stop waits for who is in the handshake": "",
    }),
    ("frontends/nbd/stream.cpp", "        if («!is_given_up()») done = co_await", {
        "who was given up is shaken hands with": "true",
    }),
    ("frontends/nbd/tls_session.cpp", "        bytes = bytes.subspan(«static_cast<size_t>(count)»);\n    }\n    return {};", {
        "what a small record has no room for is lost": "bytes.size()",
    }),
    ("frontends/nbd/negotiate.cpp", "    «std::erase_if(entries, [this](const VolumeEntry& entry) { return "
     "!may_see(entry.name); });»", {
        "exports are listed for who may not see them": "",
    }),
    ("frontends/nbd/stream.cpp", "    «if (!flush()) return -1;»\n    size_t taken", {
        "what is sealed overtakes what the socket did not take": "flush();",
    }),
    ("frontends/nbd/stream.cpp", "    «tls_->keep(incoming.sealed);»\n    may_have_more_", {
        "what was received and not opened is lost": "",
    }),
    ("frontends/nbd/connection.cpp", "    if («!stream_.flush()») {", {
        "a connection does not wait until what is sealed was sent": "false",
    }),
    ("frontends/nbd/connection.cpp", "    return sent_bytes == size_bytes && «stream_.is_flushed()»;", {
        "what is sealed and not sent is forgotten": "true",
    }),
    ("frontends/nbd/stream.cpp", "        «incoming.rest_bytes -= static_cast<size_t>(count);»", {
        "a receive within TLS lasts as long as something comes": "",
    }),
    ("frontends/nbd/stream.cpp", "        «co_await Yield(loop);»  // what is here already", {
        "a client that negotiates within TLS keeps the shard": "",
    }),
    ("frontends/nbd/connection.cpp", "stream_.has_ended() || «stream_.may_have_more()» ||", {
        "what a receive within TLS left on the socket waits for the next byte": "false",
    }),
    ("frontends/nbd/connection.cpp", "if (stream_.is_tls()) co_await say_end(«said_disconnect_ || !negotiated_»);", {
        "a client within TLS is closed before it has read its last replies": "false",
    }),
    ("frontends/nbd/stream.cpp", "    } else if («is_flushed()») {\n        tls_->end();", {
        "a session within TLS ends without a word": "false",
    }),
    ("frontends/nbd/stream.cpp", "    «::shutdown(socket(), SHUT_WR);»\n    std::vector<std::byte> rest", {
        "a client that waits for the server's end waits for the patience of it": "",
    }),
    ("frontends/nbd/connection.cpp", "    Alarm alarm(workspace_->loop, «end_time_max», [this] { break_off(); });\n"
     "    co_await stream_.say_end", {
        "a client within TLS that does not close is waited for for ever": "std::chrono::hours(1)",
    }),
    ("frontends/nbd/negotiate.cpp", "    Alarm alarm(workspace_->loop, «workspace_->settings.handshake_time_max», ", {
        "a handshake may take for ever": "std::chrono::seconds(std::chrono::hours(1))",
    }),
    ("frontends/nbd/negotiate.cpp", "    return «admission_->access.empty() ? Handshake::Tls::offered : "
     "Handshake::Tls::for_some»;", {
        "a client in plain is not told that an export may be there within TLS": "Handshake::Tls::offered",
        "TLS is named for exports that nobody has": "Handshake::Tls::for_some",
    }),
    ("frontends/nbd/tls_session.cpp", "        if («count == GNUTLS_E_WARNING_ALERT_RECEIVED») continue;", {
        "a warning ends a session within TLS": "false",
    }),
    ("frontends/nbd/tls_session.cpp", "    if (!found) return «unknown_user»;", {
        "a user who is not known has an empty key": "0",
    }),
    ("frontends/nbd/tls_session.cpp", "    const int result = gnutls_certificate_verify_peers(gnutls, &purpose, «1», &status);", {
        "a server's certificate is good for a client": "0",
    }),
    ("frontends/nbd/tls_session.cpp", "kind == GNUTLS_SAN_DNSNAME) «counts_common_name = false;»", {
        "the common name counts beside DNS names": "",
    }),
    ("frontends/nbd/tls_session.cpp", "        if («kind == GNUTLS_E_SHORT_MEMORY_BUFFER || kind == GNUTLS_SAN_DNSNAME») ", {
        "the common name counts beside a DNS name that is too long": "kind == GNUTLS_SAN_DNSNAME",
    }),
    ("frontends/nbd/tls_session.cpp", "    return «text.contains('\\0')» ? std::string() : text;", {
        "a name with a NUL in it is one": "false",
    }),
    ("frontends/nbd/tls_credentials.cpp", "user.size() > user_size_max || «user.contains('\\0')») return wrong", {
        "a user with a NUL in the name has a key": "false",
    }),
    ("frontends/nbd/tls_credentials.cpp", "        if («!is_signed_by(ca_text, crl_text)»)", {
        "anybody's list of revoked certificates is taken": "false",
    }),
    ("frontends/nbd/tls_credentials.cpp", "(wrong & («GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_SIGNATURE_FAILURE»)) == 0;", {
        "a list of revoked certificates is taken from who has the authority's name": "GNUTLS_CERT_SIGNER_NOT_FOUND",
        "a list of revoked certificates is taken that revokes nothing": "GNUTLS_CERT_SIGNATURE_FAILURE",
    }),
    ("frontends/nbd/tls_credentials.cpp", "    if («credentials && before.certificates_ && !(*credentials)->certificates_»)", {
        "a reload without certificates loses them": "false",
    }),
    ("frontends/nbd/server.cpp", "listeners_.push_back({.socket = std::move(socket), .path = {}, "
     ".is_tcp = «place.path.empty()»});", {
        "who comes over TCP on a socket that was passed is let in from anywhere": "false",
        "who comes over a Unix socket that was passed needs a network": "true",
    }),
    ("frontends/nbd/server.cpp", "newcomers_(«std::clamp<size_t>(connections_max_ / 2, 1, settings_.handshakes_max)»)", {
        "handshakes may take the room of all connections": "settings_.handshakes_max",
        "handshakes may take half of the room whatever the setting": "std::max<size_t>(connections_max_ / 2, 1)",
        "of one connection none may be in its handshake": "std::min(connections_max_ / 2, settings_.handshakes_max)",
    }),
    ("frontends/nbd/server.cpp", "    «set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);»", {
        "a client whose machine is gone is served for ever": "",
    }),
    ("frontends/nbd/tls_session.cpp", "    «why_.clear();»\n    identify();", {
        "a client within TLS is nobody": "identities_.clear(); return true;",
    }),
    ("frontends/nbd/admission.cpp", "    if (list == lists_.end()) return «true»;", {
        "a volume without a list is closed": "false",
    }),
    ("frontends/nbd/admission.cpp", "    if (!numbers || «numbers->is_ipv4 != numbers_.is_ipv4») return false;", {
        "a network is of both families": "false",
    }),
    ("frontends/nbd/request.cpp", "            «if (request.size_bytes > payload_size_max) return Errno::invalid;»\n"
     "            break;\n        case Command::write_zeroes:", {
        "a write of any size is taken": "",
    }),
    ("frontends/nbd/request.cpp", "            if («error.sys_errno == ENOSPC || error.sys_errno == EDQUOT || "
     "error.sys_errno == EFBIG»)\n", {
        "a full file system is told as a broken device": "false",
    }),
    ("frontends/nbd/reply.cpp", "request.has(request_one_extent) ? «1» : extents_max;", {
        "who asks for one extent is told of all": "extents_max",
    }),
    ("frontends/nbd/reply.cpp", "            «request.extended || request.command == Command::read || request.command == "
     "Command::block_status»;", {
        "a request with an extended header gets a simple reply":
            "request.command == Command::read || request.command == Command::block_status",
    }),
    ("frontends/nbd/tasks.cpp", "const bool is_last = «&chunk == &chunks.back()»;", {
        "each metadata context is the last": "true",
    }),
    ("frontends/nbd/connection.cpp", "if (error != Errno::none && «request->payload_bytes() > 0») {", {
        "the payload of what takes none is taken for requests": "request->command == Command::write",
    }),
    ("frontends/nbd/negotiate.cpp", "    const bool read_only = «settings.read_only.contains(entry.name)»;", {
        "what may only be read is written": "false",
    }),
    ("frontends/nbd/newcomers.hpp", "if («newcomers_.visits_.size() >= newcomers_.count_max_») newcomers_.make_room();", {
        "any number of clients may be in their handshake": "false",
    }),
    ("frontends/volumes/tiers.cpp", "if («is_with_another(latched(page).home(), page, cache_.self())») return", {
        "what another host has is in the store": "false",
    }),
    ("frontends/volumes/tiers.cpp", "if («cache_.home_store().frames().index().find_exactly(page)») return", {
        "what home has in memory is in its store": "static_cast<Frame*>(nullptr)",
    }),
    ("frontends/nbd/connection.cpp", "return «!busy() && !send_posted_ && gate_.count() == 0»;", {
        "a connection leaves its shard in the middle of a request": "true",
    }),
    ("frontends/nbd/connection.cpp", "    «co_await timer.sleep(take_after);»\n    stream_.take(workspace_->landing.current());", {
        "what was looked at stays on the socket": "co_await timer.sleep(std::chrono::hours(1));",
    }),
    ("frontends/nbd/connection.cpp", "    const bool waits_here = «shard_of_ && following_.is_here()»;", {
        "requests of a client on this CPU are taken at once": "false",
    }),
    ("frontends/nbd/connection.cpp", "!carry_.empty() || «came_together_ > looked_at_together_max»)\n        stream_", {
        "of many requests at a time the first stay on the socket": "false",
    }),
    ("frontends/nbd/connection.cpp", "    «co_await CarryInterrupt(client_left_);»\n    const Result<uint64_t> size_bytes", {
        "a client that hangs up waits for the size all the same": "",
    }),
    ("daemon/attachments/attachments.cpp", "        if («!device->is_ending») all.push_back(device->about);", {
        "a device that is ending is listed": "true",
    }),
    ("daemon/attachments/attachments_end.cpp", "return «!disconnected && !device.is_there()» ?", {
        "a device stays that the kernel has ended without a good answer": "false",
    }),
    ("daemon/attachments/attachments.cpp", "for (int tries = 0; «!replaced» && !device.is_ending", {
        "a connection is given up after 5 s": "tries < tries_in_silence && !replaced",
    }),
    ("frontends/nbd/tasks.cpp", "if (rest_bytes == 0) co_return finish(request, «error»);", {
        "a write in pieces succeeds if its last piece fails": "Errno::none",
    }),
    ("frontends/nbd/tasks.cpp", "    if («error != Errno::none») {\n        refused_", {
        "a write in pieces goes on after a piece that failed": "false",
    }),
    ("daemon/attachments/attached_device.cpp", ".block_size_bytes = «memory.header().block_size_bytes»,", {
        "blocks are of 4096, whatever was asked for": "4096",
    }),
    ("daemon/attachments/attached_device.cpp", ".read_only = «header.read_only»,", {
        "a read-only device may be written after a restart": "false",
    }),
    ("daemon/attachments/attachments.cpp", "if («whole_bytes == 0» || whole_bytes > size_max)\n        co_return fail", {
        "what is smaller than a block becomes a device": "false",
    }),
    ("daemon/attachments/attachments.cpp", "on_thread([&] { return «kernel_.driver.is_there()»; }));\n        CO_TRY_VOID(co_await volumes_.take_over", {
        "a volume is taken from its holder where no device can be made": "Result<>()",
    }),
    ("daemon/attachments/attachments.cpp", "    if («options.take_over») {", {
        "an attach that takes over takes nothing": "false",
    }),
    ("daemon/attachments/attachments.cpp", "    if («has(options.volume)» || std::ranges::find(under_way_", {
        "who attaches again is told of another tarnd": "false",
    }),
    ("frontends/nbd/landing.hpp", "if (owner_) «owner_->free_.push_back(buffer_)»;", {
        "the buffer of a write does not come back": "static_cast<void>(0)",
    }),
    ("frontends/nbd/landing.hpp", "«current_ = take_free()»;\n        return landed;", {
        "others receive into the buffer of a write": "take_free()",
    }),
    ("frontends/nbd/landing.hpp", "«payload_size > current_.size() - at») return", {
        "a payload is kept that has no room in its buffer": "false",
    }),
    ("frontends/nbd/landing.hpp", "«at + begun.size() > current_.size()» ||", {
        "a payload is kept that begins behind the buffer": "false",
    }),
    ("frontends/nbd/writes.cpp", "auto landed = «workspace_->landing.keep(bytes, request.size_bytes)»)", {
        "a write that comes in parts is always copied": "LandingBuffers::Landed{}",
    }),
    ("frontends/nbd/writes.cpp", "std::ranges::copy(landed.payload().first(«received_bytes»), copied", {
        "half a write loses its beginning on the way to another shard": "0",
    }),
    ("frontends/nbd/socket_reader.hpp", "if (!looks || looks_ >= looks_max || «looked_at_bytes_ >= looked_at_bytes_max») take", {
        "any number of bytes stays on the socket": "false",
    }),
    ("frontends/nbd/socket_reader.hpp", "            «take(scratch);»\n            count = ::recvmsg(socket_, &message, MSG_DONTWAIT);", {
        "a large request after small ones is read from where these begin": "",
    }),
    ("frontends/nbd/socket_reader.hpp", "== 0 && «domain == AF_UNIX»;", {
        "bytes of TCP are looked at without an offset": "true",
    }),
    ("frontends/nbd/following.hpp", "if (sightings_ >= «sightings_min» && may_move(now))", {
        "a client that is seen once elsewhere is followed": "1",
    }),
    ("frontends/nbd/following.hpp", "if (sightings_ >= sightings_min && «may_move(now)»)", {
        "a client is followed as often as it moves": "true",
    }),
    ("frontends/nbd/following.hpp", "        sightings_ = cpu == seen_ ? «sightings_ + 1» : 1;", {
        "a client is never seen twice": "1",
    }),
    ("frontends/nbd/client_cpu.cpp", "if (!tasks || «started_ticks(process) != client_.started») return false;", {
        "a process that got the id of a client is taken for it": "false",
    }),
    ("frontends/nbd/client_cpu.cpp", "busy[«place_ % busy.size()»];", {
        "all connections of a client follow one thread": "0",
    }),
    ("daemon/process/scheduling.hpp", "            «courtesy_.failed(now);»\n", {
        "who starved is courteous at once": "",
    }),
    ("daemon/process/scheduling.hpp", "        if («is_foreign(window)» && another_cpu_idles(window)) {", {
        "a shard stays where others keep the CPU busy": "false",
    }),
    ("daemon/process/scheduling.hpp", "        if (is_foreign(window) && «another_cpu_idles(window)») {", {
        "a shard leaves its CPU for no other": "true",
    }),
    ("daemon/process/scheduling.hpp", "            if («rate(window) < rate_before_ * gain_min») {", {
        "a shard stays beside its clients though it serves less": "false",
    }),
    ("daemon/process/scheduling.hpp", "return «goes_on» && now < compare_at_ ?", {
        "a shard stays beside clients that wait for each answer": "true",
    }),
    ("daemon/process/scheduling.hpp", "        return (is_long || «is_long_by_requests») &&", {
        "who uses the CPU with pauses is not seen": "false",
    }),
    ("daemon/process/scheduling.hpp", "has_near(window, part) && «may_lure(window)» && now", {
        "a shard is courteous where nothing draws clients away": "true",
    }),
    ("daemon/process/scheduling.hpp", "if («window.delay * 100 > window.time * beside_delay_percent_max») {", {
        "a shard stays on a CPU that others want by now": "false",
    }),
    ("daemon/process/scheduling.hpp", "is_deep(window) || «rate(window) * 2 >= rate_beside_»;", {
        "a shard that is faster than its clients comes back to them": "false",
    }),
    ("daemon/process/scheduling.hpp", "        return «window.requests > 0» && window.requests >=", {
        "a shard that serves only links has crowded clients": "true",
    }),
    ("daemon/process/idle_cpus.cpp", "        ticks[cpu] = «idle + waiting»;", {
        "a CPU on which a loop waits does not idle": "idle",
    }),
    ("daemon/process/idle_cpus.cpp", "    if («before.empty() || passed > span_max») return;", {
        "idle times are compared with those of long ago": "before.empty()",
    }),
    ("daemon/process/polling.hpp", "        if («window.is_contended» ||", {
        "a shard polls while another thread wants the CPU": "false",
    }),
    ("daemon/process/polling.hpp", "«rate(window) < rate_before_ * gain_min»", {
        "a shard polls in vain": "false",
    }),
    ("daemon/process/polling.hpp", " || «now < retry_.next()») return false;", {
        "what did not pay is tried again at once": "false",
    }),
    ("daemon/process/polling.hpp", "is_wanted(window) && «now < compare_at_»;", {
        "a shard that polls never compares again": "true",
    }),
    ("tiers/dram/frame_pool.cpp", "first_free_[«nodes_.part_of(id, frame_count_)»];", {
        "a frame goes back to another node's list": "0",
    }),
    ("tiers/dram/frame_pool.cpp", "    size_t node = «nodes_.here()»;", {
        "frames are taken from the first node": "0",
    }),
    ("coherence/home_store/piece_marker.cpp", "    «marker_.more_is_marked().announce();»\n", {
        "the sweeper is not woken for its end": "",
    }),
    ("daemon/catalog/registrar.cpp", "while (header.next_id <= volume_id_max && "
     "«!answers(cache_.home_of(attribute_page_of(header.next_id)))»)", {
        "a volume is made whose attributes a host would keep that is away": "false",
    }),
    # Writes of many pages, and where they landed.
    ("coherence/pages/staged_write.cpp", "        «mark_written(*frames[i], part.offset, part.bytes.size());»", {
        "pages that are written together are not stored": "",
    }),
    ("coherence/pages/staged_write.cpp", "        «receipt.add();»\n        staged.end();", {
        "pages that are written together have no receipt": "",
    }),
    ("coherence/pages/staged_write.cpp", "has_landed = «!needs_copy» && bytes.data() >= landing_.data()", {
        "a stage that lasts names bytes that do not": "true",
    }),
    ("coherence/pages/staged_write.cpp", "begin(«has_landed ? WriteStage::Pending::landed : "
     "WriteStage::Pending::bytes», frame,", {
        "a write that landed is finished from a stage that lacks it": "WriteStage::Pending::bytes",
        "a write that was staged is finished from where others land": "WriteStage::Pending::landed",
    }),
    ("coherence/pages/staged_write.cpp", "        stage_->pending.store(«what», std::memory_order_release);", {
        "a write that was cut short stays so": "WriteStage::Pending::nothing",
    }),
    ("coherence/adoption/adoption.cpp", "«stage.landed_at <= landing.size() && stage.size <= landing.size() - "
     "stage.landed_at»", {
        "a stage may name bytes behind the landing memory": "true",
    }),
    ("frontends/nbd/connection.cpp", "while («expected.size() < at_once_max» && at + header_size()", {
        "requests are announced without a bound": "true",
    }),
    ("frontends/nbd/connection.cpp", "        if («taken >= announced») announced = taken", {
        "only the first requests are announced": "announced == 0",
    }),
    ("frontends/nbd/connection.cpp", "at += std::min<uint64_t>(«request->payload_bytes()», bytes", {
        "a write's payload is taken for requests to announce": "uint64_t{0}",
    }),
    ("frontends/nbd/reply.cpp", "last.iov_len == pin.bytes)\n            «last.iov_len += pin.size_bytes;»", {
        "of pins side by side, only the first is sent": ";",
    }),
    ("coherence/adoption/adoption.cpp", "if (stage.receipt != 0) «receipts_.push_back(stage.receipt);»", {
        "a write that was finished is made again": "",
    }),
    ("coherence/adoption/arena_recorder.cpp", "if (event.receipt) «event.receipt->settle();»", {
        "a page that was blank has no receipt": "event.receipt->end_stage();",
    }),
    ("coherence/pages/page_access.cpp", "        if («!is_done»)\n", {
        "a page that has a receipt is written again": "true",
    }),
    ("coherence/flush/flusher.cpp", "        if (session.record) «go_on(session);»\n", {
        "a session that goes on begins anew": "",
    }),
    ("coherence/flush/flusher.cpp", "    requester_.wrote(session.id, home, first, last, began);\n    «save(session, set_of(home));»\n", {
        "a write is not on record for the next process": "",
    }),
    ("frontends/volumes/cached_volume.cpp", "if (receipts && batch > first_page + receipts->window()) "
     "«receipts->move_window(batch - first_page);»", {
        "a trim that goes on begins where the receipts do not reach": "receipts->move_window(batch - first_page + 1);",
    }),
    ("frontends/nbd/device_log.cpp", "    «end_receive();»\n    end_send();\n    free_.clear();", {
        "what was received at the kill is not counted": "",
    }),
    ("frontends/nbd/device_log.cpp", "    «end_send();»\n    free_.clear();", {
        "what was sent at the kill is sent again": "",
    }),
    ("frontends/nbd/device_log.cpp", "if («part.begin + sent < slot.reply_size()») continue;", {
        "a reply that went out in part is over": "false",
    }),
    ("frontends/nbd/device_log.cpp", "            if («keeps_payload(slot(i))» && !is_parked(i))\n", {
        "bytes of a write that waits are overwritten": "false",
    }),
    ("frontends/nbd/device_log.cpp", "            if (keeps_payload(slot(i)) && «!is_parked(i)»)\n", {
        "what is parked makes no room": "true",
    }),
    ("frontends/nbd/device_log.cpp", "        if («!keeps_payload(slot)») memory_.parked[i].store(0);", {
        "the next process forgets what is parked": "true",
    }),
    ("frontends/nbd/device_log.cpp", "        if (is_parked(i))\n            «mark_parked(i, true);»", {
        "the next process gives away where something is parked": "",
    }),
    ("frontends/nbd/device_log.cpp", "        if (parking_used_[page]) begin = «page + 1»;", {
        "what is parked lies over what was parked before": "begin",
    }),
    ("frontends/nbd/device_log.cpp", "    if («begin + count > parking_pages») return;", {
        "what has no place is parked behind the end": "false",
    }),
    ("frontends/nbd/device_log.cpp", "    if («was_parked») unpark(number);", {
        "what was parked keeps its place": "false",
    }),
    ("frontends/nbd/device_log.cpp", "    if («parked_count_ > 0» || parking_end_", {
        "the place of what is parked is given back": "false",
    }),
    ("frontends/nbd/device_log.hpp", "room() == 0 || «free_.empty()»", {
        "what has no slot is received again and again": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "            if («kernel_left_.raised()»)\n                leave", {
        "a kernel that hangs up while the log is full is not noticed": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    «co_await CarryInterrupt(kernel_left_);»\n    const Result<uint64_t>", {
        "a kernel that hangs up while the size is not known is not noticed": "",
    }),
    ("frontends/nbd/device_connection.cpp", "    if (!goes_on && kernel_left_.raised()) «leave(End::lost);»", {
        "a kernel that hangs up while the size is not known counts as a stop": "",
    }),
    ("frontends/nbd/device_connection.cpp", "        unserved_ = «!slot»;", {
        "requests that wait for a slot wait for the next ones, too": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    «log_.park(slot);»", {
        "a write that waits stops those behind it": "",
    }),
    ("frontends/nbd/device_connection.cpp", "        if (sent == DeviceLog::Sent::full) «keep_rest();»\n", {
        "the rest of an answer is read once more": "",
    }),
    ("frontends/nbd/device_connection.cpp", "        if («is_large(each.request)») return Added::missing;", {
        "a large read is begun before all of it is at hand": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "            if (copied_ == *each) «copied_.reset();»", {
        "of many large reads one is answered": "",
    }),
    ("frontends/nbd/device_connection.cpp", "    for (bool has_said = false; «!ended_»; co_await", {
        "the rest of an answer is tried at a stop without an end": "true",
    }),
    ("frontends/nbd/device_connection.cpp", "        if («read.error().code == Errc::cancelled») co_return;", {
        "the rest of an answer is tried at a stop without an end": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "const bool is_simple = «!again» && ", {
        "a write that goes on writes all of its pages": "true",
    }),
    ("frontends/nbd/device_connection.cpp", "!again && «!request.has(request_fua)»;", {
        "a device's write with FUA that finds its pages is not flushed": "true",
    }),
    ("frontends/nbd/device_connection.cpp", "    if («written && request.has(request_fua)»)\n        written = co_await", {
        "a device's write with FUA is not flushed": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    if («zeroed && request.has(request_fua)») zeroed = co_await volume_->flush();", {
        "a device's zeros with FUA are not flushed": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "        if («added != Added::whole») return;", {
        "a reply comes in the middle of another one": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    if («!result && result.error().code == Errc::cancelled») return;", {
        "what waits at a stop is answered with an error": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    if («export_ended_») return Errc::shutdown;".replace("Errc", "Errno"), {
        "who has a device of a deleted volume goes on": "false",
    }),
    ("frontends/nbd/device_memory.cpp", "«header.layout != DeviceHeader::layout_expected» ||", {
        "memory of another layout is taken over": "false",
    }),

    # Block devices, and who keeps them.
    ("daemon/attachments/attachments.cpp", "    «volumes_.keep_held(made.memory.header().volume_id);»", {
        "the volume of a device is not held": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «volumes_.let_go(device.memory.header().volume_id);»", {
        "the volume of a device that is gone stays held": "",
    }),
    ("daemon/attachments/attachments.cpp", "            «device.memory.forget_receipts();»", {
        "pages that are lost count as written": "",
    }),
    ("daemon/attachments/attachments.cpp", "    «co_await none_waits(device, loop_, goes_on);»", {
        "the kernel is told a size while a request waits": "",
    }),
    ("daemon/attachments/waiting_requests.cpp", "if («looks <= looks_of_a_moment») break;", {
        "requests that came while others waited for long are not waited for": "true",
    }),
    ("daemon/attachments/waiting_requests.cpp", "if («has_lost_requests != 0» && device", {
        "a size is told while a request of a broken connection waits": "false",
    }),
    ("daemon/attachments/attachments.cpp", "return «!device.is_ending» && !stopping_; };", {
        "a device that ends still waits to get its size": "true",
    }),
    ("daemon/attachments/attachments.cpp", "return !device.is_ending && «!stopping_»; };", {
        "who stops waits until a device gets its size": "true",
    }),
    ("frontends/nbd/device_log.cpp", "return «slot.state.load(std::memory_order_acquire) != State::free» &&", {
        "what was answered counts as waiting": "true",
    }),
    ("frontends/nbd/device_log.cpp", "               «slot.begin.load(std::memory_order_relaxed) < parsed»;", {
        "later requests count as the ones before": "true",
    }),
    ("daemon/attachments/attachments_end.cpp", "    if («std::erase(left_, name) > 0» && left_.empty()", {
        "nobody hears that the last device that was left is ended": "false",
    }),
    ("daemon/attachments/attachments_end.cpp", "ended = co_await on_thread([&] { return «kernel_.driver.is_there()»; });", {
        "a device that cannot be ended is cut off": "Result<>()",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «device.is_ending = true;»  // nobody else forgets it", {
        "a device that is ended by force is forgotten by another one": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «device.is_ending = false;»\n    if (stopping_)", {
        "a device that could not be ended is never ended": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    else\n        «go_on_with(device);»", {
        "a connection that broke while its device was not ended is not replaced": "device.is_ending = false;",
    }),
    ("daemon/attachments/attachments.cpp", "    «device.memory.clear_log(connection);»", {
        "a new connection goes on with the log of the old one": "",
    }),
    ("daemon/attachments/attachments.cpp", "        device.is_lost = «was_deleted» ||", {
        "a device of a deleted volume lives on": "false",
    }),
    ("daemon/attachments/attachments.cpp", "(!volume && «volume.error().code == Errc::busy»)", {
        "a device of a volume at another host lives on": "false",
    }),
    ("daemon/attachments/attachments_end.cpp", "        if (co_await on_thread([&] { return «kernel_.devices.is_used(device.about.device)»; }))", {
        "a device in use is detached": "false",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «static_cast<void>(co_await end_devices_of(volume));»", {
        "a deleted volume keeps its devices": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "        if («device->memory.header().volume_id != volume» || device->is_ending) continue;", {
        "who takes over a volume ends the devices of others": "false",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "            «keeper_.drop(name);»", {
        "the keeper keeps a device that is gone": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "        if (const Result<> ended = «co_await self.end_by_force(cut)»; !ended && says)", {
        "a device that was cut lives on": "Result<>()",
    }),
    ("daemon/attachments/attached_device.cpp", '        if («kernel.devices.is_connected(fmt::format("nbd{}", index))») continue;', {
        "a number that is taken is tried": "false",
    }),
    ("daemon/attachments/attached_device.cpp", "        if («connected || connected.error().code != Errc::busy») return connected;", {
        "a number that is taken meanwhile ends the attach": "true",
    }),
    ("daemon/attachments/attached_device.cpp", "    if (!connected || «!is_ours») {", {
        "a kernel that says not whose device it is gets served": "false",
    }),
    ("daemon/attachments/attached_device.cpp", "        «keeper.drop(memory_name());»  // also what", {
        "the keeper keeps what the kernel did not make": "",
    }),
    ("daemon/attachments/attached_device.cpp", "            «static_cast<void>(undo(keeper));»\n        else", {
        "a device whose answer was lost stays": "",
    }),
    ("daemon/attachments/attached_device.cpp", "undone = «kernel.driver.disconnect(about.index)»;", {
        "a device without a size stays": "Result<>()",
    }),
    ("daemon/attachments/attached_device.cpp", "    if («kernel.devices.size_bytes_of(about.device).value_or(size_bytes) != size_bytes»)", {
        "a kernel that takes no size is believed": "false",
    }),
    ("daemon/attachments/attached_device.cpp", "= «kernel.devices.connected_by(about.device).value_or(0)»;", {
        "another device of the same number is taken for ours": "0",
    }),
    ("daemon/attachments/attached_device.cpp", "    if (has_keeper) «TRY_VOID(keeper.keep(socket_name(connection), pair.ours.get()));»", {
        "the keeper keeps the socket that was replaced": "",
    }),
    ("daemon/attachments/block_device.cpp", '        return «mounts.find(fmt::format(" {} ", number)) != std::string::npos» ||', {
        "a mounted device is not in use": "false",
    }),
    ("daemon/attachments/block_device.cpp", '               «mounts.find(" " + path) != std::string::npos» ||', {
        "a device with btrfs on it is not in use": "false",
    }),
    ("daemon/attachments/block_device.cpp", " || «swaps.find(path) != std::string::npos» ||", {
        "a device that is swapped to is not in use": "false",
    }),
    ("daemon/attachments/block_device.cpp", "        if («entry.path().filename().string().starts_with(device)») parts", {
        "partitions do not count": "false",
    }),
    ("daemon/attachments/block_device.cpp", "    return «mount.source == \"/dev/\" + part.filename().string()» ||", {
        "a device is not known by its name where it is mounted": "false",
    }),
    ("daemon/attachments/block_device.cpp", "        if («backend.starts_with(prefix)») all", {
        "any connected device counts as a volume": "backend.size() >= prefix.size()",
    }),
    ("daemon/attachments/block_device.cpp", "        if («name == device» || is_part) return", {
        "a device is not found by its path": "false",
        "a path is that of any device": "true",
    }),
    ("daemon/attachments/block_device.cpp", "        if (name == device || «is_part») return", {
        "a device is not found by the path of its partition": "false",
    }),
    ("daemon/keeper/keeper_watch.cpp", "if (connection || «connection.error().code == Errc::not_found») co_return", {
        "a tarn-keeper that does not answer at once is not watched": "true",
    }),
    ("daemon/keeper/keeping.cpp", '        if (each.first != name && «!each.first.starts_with(name + ".")») return false;', {
        "the sockets of a device that is gone are kept": "true",
    }),

    # What a file has where, for who seeks in it.
    ("frontends/fuse/runs.cpp", "        at = «extents.back().offset_bytes + extents.back().size_bytes»;", {
        "what was not answered is not asked for anew": "at + window_bytes",
    }),
    ("frontends/fuse/runs.cpp", "std::min(seek_window_bytes, «end - at»);", {
        "extents beyond the end of the file are asked for": "uint64_t(seek_window_bytes)",
    }),
    ("frontends/fuse/runs.cpp", "    if («offset_bytes >= end») co_return", {
        "there is a hole behind the end": "offset_bytes > end",
    }),
    ("frontends/fuse/runs.cpp", "    if («hole») co_return end;", {
        "the end of a file is no hole": "false",
        "there is data at the end of a file": "true",
    }),

    # The ring that asks a device.
    ("utils/loop.cpp", "    if (polled_ring_) «polled_ring_->detach();»", {
        "the second ring belongs to the thread of a loop that has ended": "",
    }),
    ("utils/loop.cpp", "    «polled_ring_refused_ = !ring;»", {
        "a ring that was refused is asked for each time": "",
    }),
    ("utils/loop.cpp", "    if («polled_ring_ || polled_ring_refused_») return", {
        "the second ring is made each time": "polled_ring_refused_",
    }),
    ("utils/loop.cpp", "    «polled_ring_->attach();»", {
        "the second ring is used before it is enabled": "",
    }),

    ("daemon/attachments/unserved_devices.cpp", "if («std::ranges::find(served, device, &Attachment::device) == "
     "served.end()»)", {
        "devices that nobody serves are not named": "false",
        "devices that are served are named as if they were not": "true",
    }),
    ("daemon/attachments/block_device.cpp", "        if («!is_gone && seen.insert(space.string()).second») mounts +=", {
        "what a container has mounted is not in use": "false",
    }),
    ("daemon/attachments/block_device.cpp", "    return index_of(device) && «is_of_tarn(device)» ?", {
        "a device of another program is taken for ours": "true",
    }),

    # What one question of a client may cost.
    ("frontends/volumes/extents.cpp", "runs_max * 2, «looked_at_max»)) {", {
        "one question for extents looks at any number of pages": "UINT64_MAX",
    }),
    ("frontends/volumes/cached_volume.cpp", "    const uint64_t end = offset_bytes + «std::min(size_bytes, "
     "fetched_at_once_max())»;", {
        "a prefetch brings in more than the pool has room for": "size_bytes",
    }),
    ("frontends/volumes/cached_volume.cpp", "        const uint64_t size = «std::min(piece_size - at % piece_size, "
     "end - at)»;", {
        "a prefetch brings in more than it was asked for": "piece_size - at % piece_size",
    }),
    ("frontends/nbd/server.cpp", "        if («connection_count() >= connections_max_») {", {
        "connections have no limit": "false",
        "a connection more than the limit is let in": "connection_count() > connections_max_",
    }),
    ("frontends/nbd/negotiate.cpp", "    if («entries.size() != 1») co_return", {
        "no name stands for any of several volumes": "entries.empty()",
    }),
    ("frontends/nbd/connection.cpp", "    «carry_.assign(bytes.begin() + static_cast<ptrdiff_t>(taken), bytes.end());»", {
        "the first half of a request is forgotten": "carry_.clear();",
    }),

    # The negotiation.
    ("frontends/nbd/handshake.cpp", "        if (question_ == Question::open && «context_name_ != name_»)", {
        "a context counts for another export": "false",
    }),
    ("frontends/nbd/handshake.cpp", "    if («option_ == Option::export_name») return close(\"an export that", {
        "an export name that cannot be opened is answered": "false",
    }),
    ("frontends/nbd/handshake.cpp", "    if («!no_zeroes_») output_.resize", {
        "a client that wants no zeroes gets them": "true",
        "a client that wants zeroes gets none": "false",
    }),
    ("frontends/nbd/handshake.cpp", "        if («size > string_size_max» || size > rest_.size()) failed_", {
        "a name may be longer than the protocol allows": "false",
    }),
    ("frontends/nbd/handshake.cpp", "    bool complete() const { return !failed_ && «rest_.empty()»; }", {
        "what follows the fields of an option is ignored": "true",
    }),
    ("frontends/nbd/handshake.cpp", "    if («exported_.extended») return close(\"EXPORT_NAME", {
        "a client with extended headers may open an export the old way": "false",
    }),
    ("frontends/nbd/handshake.cpp", "            if («exported_.extended»)\n                return refuse", {
        "structured replies are agreed after extended headers": "false",
    }),
    ("frontends/nbd/handshake.cpp", "        for (const Context& context : contexts) «exported_.*context.chosen = "
     "false;»\n        if (!exported_.structured)", {
        "contexts of an earlier choice stay chosen": "",
    }),
    ("frontends/nbd/handshake.cpp", "return query == context.name || («list» && query == context.name_space());", {
        "contexts are chosen by their namespace": "true",
    }),
    ("frontends/nbd/handshake.cpp", "        exported_.read_only = «entry.read_only»;", {
        "an export does not say that it may only be read": "false",
    }),

    # Who hears of a size, and what is said of who did not.
    ("daemon/attachments/size_notices.cpp", "if («!answer.said») silent", {
        "hosts that said so count as silent": "answer.said.has_value()",
    }),
    ("daemon/attachments/size_notices.cpp", "    «CO_TRY_VOID(co_await tell_here(*volume));»", {
        "a host says that its devices have a size of which they did not hear": "",
    }),
    ("daemon/attachments/size_notices.cpp", "«if (!co_await with_timeout(told_within, tell_here(volume))) silent.push_back(self_);»", {
        "the devices of who resizes are not told": "",
    }),
    ("daemon/attachments/size_notices.cpp", "if («!volume || *volume == 0 || *volume > volume_id_max») co_return", {
        "what names no volume is followed": "!volume",
    }),
    ("frontends/nbd/sessions.cpp", "if («is_idle(*each)» && (first", {
        "a client with connections is forgotten to make room": "true",
    }),
    ("frontends/nbd/negotiate.cpp", "    if («!identities.empty()») client_.identity", {
        "who has proved who it is is known by its address all the same": "false",
    }),
    ("frontends/nbd/connection.cpp", "    if («export_ended_» && request.command != Command::disconnect)", {
        "a client of a deleted volume is served on": "false",
    }),
    ("frontends/nbd/tasks.cpp", "if (!read && «done == 0») {", {
        "an error in the middle of an answer is told as an answer": "true",
    }),
    ("frontends/nbd/server.cpp", "if («device->volume().id() == volume») device->end_export();", {
        "the end of one volume is that of every device": "true",
    }),
    # Who keeps what outlives the process.
    ("daemon/keeper/keeper.cpp", "        if («peer.uid != ::geteuid()»)", {
        "the keeper of another user is believed": "false",
    }),
    ("daemon/keeper/left_memory.cpp", "arena ? !has_last || «rank(**arena) > rank(**last)» : !has_last", {
        "of several memories the first is taken": "false",
        "of several memories the last is taken": "true",
    }),
    ("daemon/keeper/left_memory.cpp", "rank(**last) : «!has_last») last =", {
        "what is no memory hides one": "true",
    }),
    ("daemon/keeper/left_memory.cpp", "return std::pair(«arena.header().store == store», arena", {
        "the memory of another store goes before that of this one": "true",
    }),
    ("daemon/keeper/keeping.cpp", "    return peer && «peer->uid == ::geteuid()»;", {
        "another user is given what is kept": "true",
    }),
    ("daemon/keeper/keeping.cpp", "        if («cut») ::shutdown(each.second.get(), SHUT_RDWR);", {
        "the sockets of a device that was cut stay open": "false",
        "the sockets of a device that was dropped are shut down": "true",
    }),
    ("daemon/keeper/keeping.cpp", "        «limit_waits(client.get(), std::chrono::seconds(1));»", {
        "a client that says nothing keeps others waiting": "",
    }),
    ("daemon/keeper/keeping.cpp", "say(client.get(), «kept.contains(said->name)» ? Word::done : Word::none); break;", {
        "the keeper says that it has what it has not": "true",
    }),

    ("daemon/attachments/attachments_end.cpp", "        if («device.is_ending») co_return fail(Errc::busy, EBUSY, \"detach: it is", {
        "a device is detached twice": "false",
    }),
    ("daemon/attachments/attached_device.cpp", "    if («kernel.devices.size_bytes_of(about.device).value_or(size_bytes)» != size_bytes)", {
        "a device whose size cannot be read is not made": "kernel.devices.size_bytes_of(about.device).value_or(0)",
    }),

    # What the next process adopts.
    ("coherence/adoption/adoption.cpp", "        «frame.home_mask = 0;»  // the store may lack", {
        "what was on its way into the store counts as stored": "",
    }),
    ("coherence/adoption/adoption.cpp", "        «(void)parts_.store.reserve(page);»", {
        "adopted bytes of home have no room in the store": "",
    }),
    ("coherence/adoption/adoption.cpp", "        «stage.pending.store(WriteStage::Pending::nothing, "
     "std::memory_order_release);»\n    }\n}", {
        "a write that was finished is finished again by the next process": "",
    }),
    ("coherence/adoption/adoption.cpp", "        «stage.taken.store(false, std::memory_order_relaxed);»", {
        "a stage stays taken": "",
    }),
    ("coherence/adoption/adoption.cpp", "if («state.role == FrameRecord::Role::exclusive» && state.page", {
        "a write is finished in a page that may only be read": "true",
    }),
    ("coherence/adoption/adoption.cpp", "(other && «position_of(*other) >= position_of(frame)»)", {
        "of two frames of home bytes the first counts": "true",
        "of two frames of home bytes the second counts": "false",
    }),
    ("coherence/adoption/adoption.cpp", "if («state_of(held).tenure < state_of(kept).order»)", {
        "kept bytes are newer than a frame of their tenure": "state_of(held).tenure <= state_of(kept).order",
    }),
    ("coherence/adoption/adoption.cpp", "kept == no_frame || «state_of(id).order > state_of(kept).order»)", {
        "of two frames of kept bytes the older counts": "state_of(id).order < state_of(kept).order",
        "of two frames of kept bytes the second counts": "true",
    }),
    ("coherence/adoption/adoption.cpp", "            .lost = «state.lost»,", {
        "an adopted page has lost nothing": "0",
    }),
    ("coherence/adoption/adoption.cpp", "            .evict_id = «state.evict_id»,", {
        "the eviction of an adopted page is forgotten": "0",
    }),
    ("coherence/adoption/adoption.cpp", "            .anchor_since = «state.anchor_since»,", {
        "an adopted reader does not know that its home lacks the bytes": "0",
    }),
    ("coherence/adoption/adoption.cpp", "last < store.used_before() || «last >= epoch»)", {
        "the memory of a later process is adopted": "false",
    }),
    ("coherence/adoption/arena_recorder.cpp", "    «record_frame(kept, FrameRecord::Role::kept);»", {
        "kept bytes are not on record": "",
    }),
    ("coherence/adoption/arena_recorder.cpp", "is_about_page = «event.kind != protocol::Event::Kind::peer_up» &&", {
        "what a new link changes is not on record": "true",
    }),

    # What a home that starts takes from others, and from the process before.
    ("coherence/adoption/home_start.cpp", "    «parts_.home_store.frames().dirty().for_each([&](FrameId id) { "
     "pages.push_back(parts_.pool.frame(id).page_id()); });»", {
        "pages that only home's memory has are not marked": "",
    }),
    ("coherence/adoption/home_start.cpp", "possibly_lost(), «held_pages()»)) {", {
        "what somebody holds counts as lost": "std::vector<PageId>()",
    }),
    ("coherence/membership/membership.cpp", "        «recovery_.on_dead(host);»\n        // The host was declared", {
        "a home waits for a host that was dead before its start": "",
    }),
    ("coherence/membership/membership.cpp", "    «met_now_ &= ~set_of(host);»\n    changed_at", {
        "a home is settled while a host is away": "",
    }),
    ("coherence/membership/membership.cpp", "        «header_.memory_was_lost.store(false, "
     "std::memory_order_release);»", {
        "a loss on record is recorded by the next process again": "",
    }),
    ("coherence/membership/membership.cpp", "process_.epoch && «!recovery_.has_recorded_losses()»;", {
        "a home that recorded losses says that it has its memory": "true",
    }),
    ("coherence/protocol/home_recovery.cpp", "open.requester == host && «open.kind != MessageKind::get_shared»;", {
        "who wanted to read loses writes, and who wanted to write does not": "open.kind == MessageKind::get_shared",
    }),
    ("coherence/protocol/home_recovery.cpp", "            «if (claim.owner != no_host) claim.keepers |= "
     "set_of(claim.owner);»", {
        "of two hosts that say they own a page one is forgotten": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "missed =\n                «claim.oldest_held < told_in_doubt_» ||", {
        "who holds the last tenure before a doubt has heard of it": "claim.oldest_held + 1 < told_in_doubt_",
    }),
    ("coherence/protocol/home_recovery.cpp", "if (claim.keepers != 0 || «contradicts» ||", {
        "an owner is confirmed beside readers": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "claim.owner == host || «claim.anchor == host» || requests_exclusive", {
        "what an anchor had is not lost": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "in_copies, host) && «claim.home_has_bytes()») {", {
        "an anchor that lost its memory is one reader less": "true",
    }),
    ("coherence/protocol/home_recovery.cpp", "        «if (claim.anchor == host) claim.anchor = no_host;»", {
        "an anchor that lost its memory before home serves stays it": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "        } else {\n            «claim.applied = "
     "last_before(claim.tenure);»", {
        "a home that starts lacks the bytes of a page that nobody holds": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "is_ordered_away && «message.tenure < first_») {", {
        "who is ordered away and says that it holds the page is recalled": "true",
    }),
    ("coherence/protocol/home_recovery.cpp", "        «!contains(claim->missing, message.from)»)\n        return", {
        "a report of a host that was not asked counts": "false",
    }),

    # What a device's connection answers.
    ("frontends/nbd/device_connection.cpp", "if («each.sent_bytes.load(std::memory_order_relaxed) > 0»)\n"
     "            partial_", {
        "an answer whose header is out in part is begun anew":
            "each.sent_bytes.load(std::memory_order_relaxed) >= header_size",
    }),
    ("frontends/nbd/device_connection.cpp", "    «size_error_ = Errno::none;»", {
        "a size that could not be read once is an error for good": "",
    }),
    ("frontends/nbd/device_connection.cpp", "return «error == Errno::none && request.command != "
     "Command::flush» ? size", {
        "a flush fails while the size cannot be read": "error == Errno::none",
    }),
    ("frontends/nbd/device_connection.cpp", "while (!send_blocked_ && «!has_left()») {", {
        "who has disconnected is answered": "true",
    }),

    # Devices at once.
    ("daemon/attachments/attachments_keeping.cpp",
     "    if («std::ranges::none_of(devices_, [&](const auto& each) { return each->about.device == name; })»)", {
        "the keeper drops the newer device of a number": "true",
    }),
    ("daemon/attachments/attachments.cpp", "    «while (device.is_resizing) co_await changed_.wait();»", {
        "two sizes are told at once": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "               «device.is_opening»;\n    };", {
        "a device is forgotten while its volume is being opened": "false",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «device.shut_down_sockets();»\n    const auto is_in_use", {
        "the connections of a device that is forgotten are not ended": "",
    }),
    ("daemon/attachments/attachments.cpp", "            if («!device->is_ending» && device->about.*name", {
        "a detach finds the device that is ending": "true",
    }),
    ("daemon/attachments/attachments.cpp", "            «on_resized(device);»  // the process before", {
        "a size that the process before told as it was killed stays": "",
    }),
    ("daemon/attachments/attached_device.cpp",
     "«kernel.devices.size_bytes_of(about.device).value_or(size_bytes) == size_bytes»;", {
        "a size that only the kernel knows of stays": "true",
    }),

    # What a home that does not serve yet owes when it stops.
    ("daemon/catalog/catalog.cpp", "cache_.adopted_page_count() > 0 || «cache_.dirty_frame_count() > 0»;", {
        "a home that does not serve yet owes nothing of what only home had": "false",
    }),
    ("daemon/catalog/catalog.cpp", "has_adopted = «cache_.adopted_page_count() > 0» ||", {
        "a home that does not serve yet owes nothing of what was held": "false",
    }),
    ("coherence/cache/cache.cpp", "    «home_store_.frames().dirty().for_each([&](FrameId) { ++count; });»", {
        "what only home has does not count as dirty": "",
    }),
    ("coherence/home_store/home_writer.cpp", "    «parts_.home.dirty().for_each(add);»", {
        "a volume of which only home has bytes is not flushed": "",
    }),

    # Who is waited for is named.
    ("daemon/catalog/catalog.cpp", "    if («is_silent(home)») return home;", {
        "the first host that is silent is named instead of the home": "false",
    }),
    ("daemon/catalog/catalog.cpp", "        if («is_silent(host)») return host;", {
        "a home that answers is named as silent": "false",
    }),

    # Of several who say something to a home that recovers, all count.
    ("coherence/protocol/home_recovery.cpp", "claim.oldest_held = «std::min(claim.oldest_held, message.tenure)»;", {
        "the last holder hides one of older bytes": "message.tenure",
    }),
    ("coherence/protocol/home_recovery.cpp", "claim.newest_held = «std::max(claim.newest_held, message.tenure)»;", {
        "the last holder hides one of newer bytes": "message.tenure",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "is_outdated = «claim.oldest_held < std::max(claim.newest_held, claim.applied.tenure)»;", {
        "who holds older bytes than home is confirmed": "claim.oldest_held < claim.newest_held",
        "who holds older bytes than another host is confirmed": "claim.oldest_held < claim.applied.tenure",
        "who holds bytes as new as home's is not confirmed":
            "claim.oldest_held <= std::max(claim.newest_held, claim.applied.tenure)",
    }),
    ("coherence/protocol/home_recovery.cpp", "contradicts || «is_outdated») {", {
        "who holds older bytes is confirmed": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "if (message.has(flag_shared)) «claim.readers |= set_of(message.from);»", {
        "of the readers of a page the last one counts": "claim.readers = set_of(message.from);",
    }),
    ("coherence/protocol/home_recovery.cpp", "«claim.keepers |= set_of(message.from);»\n        return;", {
        "of those who have kept bytes the last one counts": "claim.keepers = set_of(message.from);",
    }),
    ("coherence/protocol/home_recovery.cpp", "if (claim.owner != no_host) «claim.keepers |= set_of(claim.owner);»", {
        "of three hosts that say they own a page one is forgotten": "claim.keepers = set_of(claim.owner);",
    }),
    ("coherence/executor/executor.cpp", "        «for (const Action& action : scratch.actions)\n"
     "            if (action.kind == Action::Kind::mark_dirty) effects_.frames.mark_dirty(action.frame);»", {
        "of the pages that home lacks the first one becomes dirty": """for (const Action& action : scratch.actions)
            if (action.kind == Action::Kind::mark_dirty) {
                effects_.frames.mark_dirty(action.frame);
                break;
            }""",
        "all but the first of the pages that home lacks become dirty late": """
            for (const Action& action : scratch.actions)
            if (action.kind == Action::Kind::mark_dirty) {
                effects_.frames.mark_dirty(action.frame);
                break;
            }""",
    }),
    ("coherence/executor/executor.cpp", "case Action::Kind::mark_dirty: «break;»  // was", {
        "all but the first of the pages that home lacks become dirty late":
            "effects_.frames.mark_dirty(action.frame); break;",
    }),
    ("coherence/cache/inbox.cpp", "    «parts_.stripes.step_all(protocol::Event::peer_greeted_of(host));»", {
        "a greeting is not passed on": "",
    }),
    ("coherence/protocol/holder_recovery.cpp", "        «actions.send(home_of(page), resolve);»", {
        "nobody asks for a page again once another host has greeted": "",
    }),
    ("coherence/protocol/holder_recovery.cpp", "        «resolve.request_id = holding.awaited.request_id;»", {
        "who asks for a page again does not say which request it is": "",
    }),
    ("coherence/adoption/adoption.cpp", "header.past_known_to == last && «header.last_in_doubt != 0» &&", {
        "a past without any process in doubt is believed": "true",
    }),
    ("coherence/adoption/adoption.cpp", "&& «header.last_in_doubt <= last» &&", {
        "a past in which a later process was in doubt is believed": "true",
    }),
    ("coherence/adoption/adoption.cpp", "                          «header.last_loss <= last»;", {
        "a past with a loss of a later process is believed": "true",
    }),

    # The label of home's bytes.
    ("coherence/home_store/home_frames.cpp",
     "        «std::atomic_ref(frame.home_sequence).store(0, std::memory_order_release);»", {
        "home's label has a new tenure and an old sequence for a moment": "",
    }),
    ("coherence/home_store/home_frames.cpp", "        «label(*home);»  // before it counts as home's", {
        "home's bytes have the label of others for a moment": "",
    }),
    ("coherence/home_store/home_frames.cpp",
     "        «std::memcpy(parts_.pool.bytes(parts_.pool.id_of(*home)), parts_.pool.bytes(action.frame), page_size);»", {
        "home's bytes have a label before they have come": "label(*home); "
            "std::memcpy(parts_.pool.bytes(parts_.pool.id_of(*home)), parts_.pool.bytes(action.frame), page_size);",
    }),

    # The connections of devices, and who keeps them.
    ("daemon/attachments/attachments_end.cpp", "        if («!device.is_served[i]») gate_.spawn(look_after(", {
        "a detach that fails replaces connections that are served": "true",
    }),
    ("daemon/attachments/attachments.cpp", "has_keeper = «device.about.is_kept»;", {
        "a connection of a device that nobody keeps is not replaced": "true",
    }),
    ("daemon/attachments/attachments.cpp",
     "        if («is_kept || device.is_being_kept || lost_keepers_ != lost_before»)", {
        "a device of which a new keeper was told this moment is ended": "false",
    }),
    ("daemon/attachments/attachments.cpp", "the keeper has just begun\");\n        «end_cut(device);»", {
        "a device that the keeper has no more stays": "",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "!device.is_cut && «std::pair(device.replaced_count, lost_keepers_) == before»;", {
        "a connection that was replaced meanwhile counts as kept": "true",
    }),
    ("daemon/attachments/attachments.cpp", "    if (may_have_other) «see_to_keeping(device);»", {
        "a replacement that the keeper was not told of stays so": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "is_first = «!std::exchange(device.is_cut, true)»;", {
        "the log says with each try that a device was cut": "true",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "!device.about.is_kept && «!device.is_ending» && !device.is_cut", {
        "the keeper is told of a device without end, though that is detached": "true",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "!device.is_cut && «!stopping_»;) {", {
        "the keeper is told of a device without end, though tarnd stops": "true",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "    «keeper_watch_.begin();»  // it may have begun with this", {
        "a keeper that begins late is not watched": "",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "    «++lost_keepers_;»", {
        "what a keeper was told that has ended meanwhile counts": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    if (!device.about.is_kept) «see_to_keeping(device);»", {
        "a device whose detach failed is not kept": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    if (device.volume) «on_resized(device);»", {
        "a size that came while a detach failed is not told": "",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "device : devices_) «see_to_keeping(*device);»", {
        "the successor of a keeper is not told of the devices": "",
    }),
    ("daemon/attachments/attached_device.cpp", "    «device.about.is_kept = true;»", {
        "what a process replaces of a device that it adopted is not kept": "",
    }),
    ("daemon/attachments/attached_device.cpp", "    if («!device.is_there()») return std::optional", {
        "a device that is another one by now is adopted": "false",
    }),
    ("daemon/attachments/attached_device.cpp",
     "socket = «std::ranges::find(kept, device.socket_name(i), &Keeper::Kept::name)»;", {
        "the sockets of a device are what the keeper names behind its memory":
            "kept.begin() + static_cast<std::ptrdiff_t>(std::min(memory + 1 + i, kept.size()))",
    }),
    ("daemon/keeper/keeper_watch.cpp", "if (said && «said->word == keeper::Word::cut») notices_", {
        "whatever a keeper says cuts a device": "true",
    }),
    ("daemon/keeper/keeper_watch.cpp", "        if (kept) «co_return begin();»", {
        "the successor of a keeper is not watched": "co_return;",
    }),
    ("daemon/keeper/keeper_watch.cpp", "        if («kept») co_return begin();", {
        "what nobody keeps is told once": "Result<>()",
    }),
    ("daemon/keeper/keeper_watch.cpp", "    if («!is_there») co_return;", {
        "where there is no keeper one is lost": "false",
    }),
    ("daemon/keeper/keeper_watch.cpp", "    «watches_ = false;»", {
        "a keeper is watched once": "",
    }),
    ("daemon/keeper/keeper.cpp", "if (!kept && «kept.error().code == Errc::refused») {", {
        "a keeper that hangs up is taken for one that has nothing": "true",
    }),
    ("daemon/attachments/block_device.cpp", "    return «attribute_of(device, \"ro\") == \"1\"»;", {
        "a device that may only be read is shown as any other": "false",
        "a device of which the kernel says nothing may only be read": "attribute_of(device, \"ro\") != \"0\"",
    }),

    # As many threads as there may be.
    ("utils/worker_threads.hpp", "        if («threads_.size() < count_»)", {
        "one thread does all the work": "threads_.empty()",
    }),

    # A keeper that is gone before it could be watched, and one that asks for who has left.
    ("daemon/keeper/keeper_watch.cpp", "co_return «connection || has_said»;", {
        "a keeper that could not be watched is not missed": "connection.has_value()",
    }),
    ("daemon/keeper/keeping.cpp", "if («said->word == Word::cut && has_left(client.get())») break;", {
        "a device is cut for who has given up": "false",
    }),
    ("frontends/nbd/tls_session.cpp", "if (result == 0 && status == 0 && «knows_revoked») return 0;", {
        "a list of revoked certificates that has expired stays in use": "true",
    }),

    # A device of which the kernel does not let go, and a certificate that clients will refuse.
    ("daemon/attachments/attachments_end.cpp", "    if («!device.volume && !device.is_opening && !device.is_lost») {", {
        "a device whose volume came while a detach failed is not served": "false",
        "a volume is opened twice when a detach fails": "!device.volume && !device.is_lost",
        "a device that cannot be ended is ended again and again": "!device.volume && !device.is_opening",
    }),
    ("daemon/attachments/attachments_end.cpp", "name && «each->is_there()»;", {
        "a cut ends the device that had the name before": "true",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "            if («!device.is_there()») return fail", {
        "the keeper is told of a device that the kernel has no more": "false",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "    if («!is_kept») see_to_keeping", {
        "what a keeper lacks that has just begun is not told to it": "false",
    }),
    ("daemon/keeper/keeper_watch.cpp", "        if («connection && !has_said») connection_", {
        "a keeper that could not be watched for a while is taken for the one before": "connection.has_value()",
    }),
    ("daemon/attachments/attached_device.cpp", "is_ours && «connected.error().code != Errc::busy»))", {
        "the device of another daemon is ended in place of one that could not be made": "true",
    }),
    ("daemon/attachments/waiting_requests.cpp", "    «has_lost_requests = 0;»", {
        "who has lost requests once is waited for each time": "",
    }),
    ("daemon/attachments/attached_device.cpp", "    if («adopted && adopted->header().index != *index_of(name)»)", {
        "the memory of a device of another number is taken over": "false",
    }),
    ("frontends/nbd/device_memory.cpp", "        («header.block_size_bytes != 512 && header.block_size_bytes != 4096») ||", {
        "memory with blocks of no size is taken over": "false",
    }),
    ("daemon/attachments/attachments.cpp", ".export_ended = «device.is_deleted»,", {
        "a connection that comes later serves a deleted volume": "false",
    }),
    ("daemon/attachments/attachments.cpp", "    if («device.is_cut») {", {
        "a device that was cut is served again": "false",
    }),
    ("daemon/attachments/attachments.cpp", "    «device.memory.header().has_lost_requests = 1;»", {
        "the next process does not know of requests that are in no log": "",
    }),
    ("daemon/attachments/attachments_keeping.cpp", "!device.is_ending && «!device.is_cut» && !stopping_;) {", {
        "a device that was cut is told to the next keeper": "true",
    }),
    ("daemon/attachments/attached_device.cpp", "    if («::poll(&ours, 1, 0) > 0») return fail", {
        "a socket that the kernel has not taken counts as taken": "false",
    }),
    ("frontends/nbd/connection.cpp", "    while (!leaving_ && «!broken_») {", {
        "what a client asked for that is gone is served": "true",
    }),
    ("frontends/nbd/connection.cpp", "!congested() && «served_bytes < turn_size_max») {", {
        "a client that asks for much leaves others no turn": "true",
    }),
    ("daemon/attachments/attachments_end.cpp", "        «device.is_opening = true;»", {
        "a device that is opened again is forgotten meanwhile": "",
    }),
    ("daemon/attachments/attachments_end.cpp", "    if (!ended) {\n        «go_on_with(device);»", {
        "a device that cannot be ended by force is not served again": "device.is_ending = false;",
    }),
    ("daemon/attachments/attachments_end.cpp", "!= volume || «device->is_ending») continue;", {
        "who deletes a volume ends a device that is being ended": "false",
    }),
    ("coherence/home_store/home_frames.cpp", "if («!holder_has(*home, {action.tenure, action.sequence})») {", {
        "bytes that come home undo what a local owner has written since": "true",
    }),
    ("coherence/home_store/home_frames.cpp", "case FrameRecord::Role::none: return «false»;", {
        "a frame without a record counts as newer than what comes": "true",
    }),
    ("coherence/home_store/home_frames.cpp", "case FrameRecord::Role::kept: return «coming <= kept»;", {
        "older bytes take the place of kept ones": "false",
        "kept bytes count as newer than any": "true",
    }),
    ("coherence/home_store/home_frames.cpp", "return «coming <= protocol::last_before(held.tenure)»;", {
        "bytes of the holder's own tenure are not taken": "coming.tenure <= held.tenure",
        "what is held counts as newer than any": "true",
        "what came last before a tenure counts as newer than it": "coming < protocol::last_before(held.tenure)",
    }),
    ("coherence/home_store/home_frames.cpp", "        «frame.home_tenure = 0;»", {
        "clean bytes that are kept have the label of what was in their frame": "",
    }),
    ("frontends/nbd/tls_credentials.cpp", "return own && «gnutls_x509_crt_check_hostname(own.get(), name.c_str()) != 0»;", {
        "a certificate is for every name": "(void(name), true)",
    }),
    ("daemon/attachtab/attach_table.cpp", "        if («digits.size() != 3» || error", {
        "an escape in attachtab has as many digits as there are": "false",
    }),
    ("daemon/attachtab/unit_name.cpp", "plain.contains(c) && («c != '.' || !name.empty()»))", {
        "a dot at the beginning of a unit's name is one": "true",
    }),
    ("daemon/keeper/keeper_protocol.cpp", "    if («size != sizeof text» || text.name", {
        "half of what is said to a keeper is heard": "false",
    }),
    ("daemon/keeper/keeper_protocol.cpp", "size != sizeof text || «text.name.back() != 0») return", {
        "a name that is said to a keeper has no end": "false",
    }),
    ("utils/descriptor_passing.cpp", "::recvmsg(socket, &message, «flags | MSG_CMSG_CLOEXEC»); });", {
        "programs that are started have what a keeper gave": "flags",
    }),
    ("daemon/keeper/keeping.cpp", "                        "
     "«return say(client.get(), Word::done, each.first, each.second.get()).has_value();»", {
        "who did not hear of all that is kept is told that it has":
            "(void)say(client.get(), Word::done, each.first, each.second.get()); return true;",
    }),
    ("frontends/nbd/device_memory.cpp", " || «size != offset_of(header.connections)» ||", {
        "a device's memory that is larger than it says is taken over": "size < offset_of(header.connections)",
    }),
    ("frontends/nbd/device_memory.cpp", "«std::ranges::find(header.volume, '\\0') == header.volume.end()»)", {
        "a device's memory has a name without an end": "false",
    }),
    ("frontends/nbd/tls_credentials.cpp", "        if («key->size() < key_size_min» || key", {
        "a key may be a little too short": "key->size() < key_size_min - 1",
    }),
    ("frontends/nbd/tls_credentials.cpp", "key_size_min || «key->size() > key_size_max»)", {
        "a key may be a little too long": "key->size() > key_size_max + 1",
    }),
    ("frontends/nbd/stream.cpp", "is_flushed() && «taken < send_size_max») {", {
        "one send within TLS lasts as long as the socket has room": "true",
    }),
    ("frontends/nbd/stream.cpp", "    if («!is_flushed()») send_sealed();  // new keys", {
        "what a receive within TLS has to say waits for the next send": "false",
    }),
    ("frontends/nbd/tls_session.cpp", "    while («result == GNUTLS_E_WARNING_ALERT_RECEIVED») result", {
        "a warning ends a handshake": "false",
    }),
    ("frontends/nbd/device_connection.cpp", "    const bool has_turn = «!copied_»;", {
        "large reads are copied all at once": "true",
    }),
    ("frontends/nbd/device_connection.cpp", "    if (has_left()) «kernel_left_.raise();»", {
        "a kernel that disconnects waits for what waits": "",
    }),
    ("frontends/nbd/device_connection.cpp", "begun == parts.end() || «copies_.contains(begun->slot)») return;", {
        "a copy of a read is replaced by the part of it that was to be sent": "false",
    }),
    ("frontends/nbd/device_log.cpp", " || «memory_.messages[message_count - 1].msg_len < size_bytes»;", {
        "a socket that takes a part of the last message has room": "false",
    }),
    ("daemon/attachments/block_device.cpp", "string> process = «attribute_of(device, \"pid\")»;", {
        "a device whose process cannot be read is gone": "attribute_of(device, \"pid\").value_or(\"\")",
    }),
    ("daemon/attachments/block_device.cpp", "string> backend = «attribute_of(device, \"backend\")»;", {
        "a device whose backend cannot be read is gone": "backend_at(device)",
    }),

    # What nobody would try again, and what would be taken for another.
    ("daemon/attachments/attachments.cpp", "follows_later, true)) «gate_.spawn(follow_size_later(device));»", {
        "a size that the kernel has not taken is told again by the next who changes it": "",
    }),
    ("daemon/attachtab/attach_table.cpp", "std::ranges::find(table.lines, «link_of(volume)»,", {
        "two volumes may have one link": "volume",
    }),
    ("coherence/adoption/arena_recorder.cpp",
     "        «if (action.kind == protocol::Action::Kind::release_frame) pool_.record(action.frame).clear();»", {
        "a page that is given away is on record until its frame is free": "",
    }),

    # What a process takes over, and what comes home.
    ("coherence/adoption/adoption.cpp", "pending == WriteStage::Pending::zeros && «stage.size == page_size»,", {
        "zeros of a part that are finished make a page of zeros": "true",
    }),
    ("coherence/adoption/adoption.cpp", "if (id != held && id != kept) «parts_.held_frames.release(id);»", {
        "frames that do not count are not given back": "",
    }),
    ("coherence/adoption/adoption.cpp", "const DirtyMask dirty = «Pages::unwritten(frame)»;", {
        "what was being written back is clean at the next process": "frame.dirty.load(std::memory_order_relaxed)",
    }),
    ("coherence/adoption/adoption.cpp", "else if («state_of(held).role == FrameRecord::Role::exclusive»)", {
        "an adopted owner keeps older bytes, too": "false",
    }),
    ("coherence/adoption/adoption.cpp", ".order = state.order, .tenure = state.tenure, .sequence = «state.sequence»};", {
        "adopted kept bytes forget their sequence": "0",
    }),
    ("tiers/dram/frame_pool.cpp", "if (use == use_holder) «records_[id].clear();»", {
        "the record of a frame that is given up stays": "",
    }),
    ("tiers/dram/frame_pool.cpp", "    «adopted.storing = Storing::no;»", {
        "a frame is being stored for ever after a kill": "",
    }),
    ("tiers/dram/frame_pool.cpp", "    «new (&adopted.word) FrameWord;»", {
        "the latches of a dead process stay": "",
    }),
    ("tiers/dram/frame_pool.cpp", "    «freed.broken.store(false, std::memory_order_relaxed);»", {
        "a frame that the store could not fill stays broken": "",
    }),
    ("coherence/home_store/home_frames.cpp",
     "            «home->zeroed.store(given.zeroed.load(std::memory_order_relaxed), std::memory_order_relaxed);»", {
        "what comes home over zeros counts as zeros": "",
    }),
    ("coherence/home_store/home_frames.cpp", "    } else if (home != &given) {\n        «if (home) freed |= forget(*home);»", {
        "home has two frames of a page": "",
    }),
    ("coherence/home_store/home_frames.cpp", "if (home && «home->home_tenure != 0») {", {
        "clean bytes that were kept are of no tenure": "true",
    }),
    ("coherence/adoption/home_start.cpp", "if («claim.holders() != 0») held.push_back(page);", {
        "bytes that somebody only keeps count as held": "claim.holders() != 0 || claim.keepers != 0",
    }),
    ("daemon/attachments/attachments_end.cpp", "    «device.about.is_kept = false;»", {
        "a device that was cut counts as kept": "",
    }),

    # What of the sessions of clients the next process finds.
    ("frontends/nbd/session_book.cpp", "        «if (!page.is_used.load(std::memory_order_relaxed)) continue;»", {
        "pages that nobody has used are sessions of a client without a name": "",
    }),
    ("frontends/nbd/session_book.cpp", "(«page.is_proved» ? client.identity : client.address).assign", {
        "who has proved its name is a client at that address in the next process": "false",
    }),
    ("frontends/nbd/session_book.cpp", "    «page->is_proved = !client.identity.empty();»", {
        "that a name was proved is not written down": "",
    }),
    ("frontends/nbd/session_book.cpp", "    «std::memset(static_cast<void*>(&*page), 0, sizeof(Page));»", {
        "a session begins with what another one had to fear": "",
    }),
    ("frontends/nbd/session_book.cpp", "    if («name.size() > name_size_max») return nullptr;", {
        "a name that is too long is written beyond its page": "name.size() > 2 * name_size_max",
    }),
    ("frontends/nbd/session_book.cpp", "    «page->user = client.user;»", {
        "the user of a process is not written down": "",
    }),
    ("frontends/nbd/session_book.cpp", "    «page->volume = volume;»", {
        "a session is one of no volume in the next process": "",
    }),
    ("frontends/nbd/session_book.cpp", "if («!keeps_all->load(std::memory_order_relaxed)») page.is_used.store", {
        "what a process knows goes with it when it stops": "true",
        "a page is used for ever": "false",
    }),
    ("frontends/nbd/session_book.cpp", "if («memory.size() >= size_bytes») pages_", {
        "memory that is too small is written beyond its end": "true",
    }),
    ("frontends/nbd/sessions.cpp", "    if («known.session») return nullptr;", {
        "a session that was made without a record gets one": "known.record ? known.session : nullptr",
    }),
    ("frontends/nbd/sessions.cpp", "    if («!known.record») known.record", {
        "a record is begun anew each time": "true",
    }),
    ("frontends/nbd/sessions.cpp", "        «known.record = session->record;»", {
        "the next process finds the record of a session that was not made": "",
    }),
    ("frontends/nbd/sessions.cpp", "    «book_.set_ended(known->second.record.get(), true);»", {
        "a session that has ended is found by the next process": "",
    }),
    ("frontends/nbd/sessions.cpp", "        «book_.set_ended(known.record.get(), false);»", {
        "one of two that were made at once is forgotten with the other": "",
    }),
    ("frontends/nbd/sessions.cpp", "if (found != known_.end() && «!found->second.session» && ", {
        "a session that somebody has made is given up": "true",
    }),
    ("frontends/nbd/sessions.cpp", "&& !found->second.session && «!found->second.is_left») forget", {
        "what an earlier process had begun is given up": "true",
    }),
    ("frontends/nbd/session_book.cpp", "        «if (page.is_ended.load(std::memory_order_relaxed)) page.is_used.store("
     "false, std::memory_order_relaxed);»", {
        "a session that had ended goes on": "",
    }),
    ("frontends/nbd/session_book.cpp", "    «page->started = client.started;»", {
        "when a process began is not written down": "",
    }),
    ("frontends/nbd/session_book.cpp", "Client client{.process = page.process, .started = «page.started», ", {
        "a process is known by its id alone": "0",
    }),
    ("frontends/nbd/session_book.cpp", ".volume = page.volume, .record = «record_of(page)»});", {
        "a page of an earlier process is used for ever":
            "std::shared_ptr<SessionRecord>(std::shared_ptr<void>(), &page.record)",
    }),
    ("frontends/nbd/server.cpp", "    «sessions_.keep_all();»", {
        "sessions end with a server that stops": "",
    }),

    # Before a page is zeroed in the store.
    ("coherence/home_store/home_writer.cpp", "return «frame.zeroed.load(std::memory_order_relaxed)» && frame.home", {
        "bytes that came while hosts were asked are zeroed": "true",
    }),
    ("coherence/home_store/home_writer.cpp", "        if («!frame.zeroed.load(std::memory_order_relaxed)») continue;", {
        "hosts are asked about all pages": "false",
    }),
    ("coherence/home_store/home_writer.cpp", "zeros[i]) || «!turn.home().has_everything(zeros[i].page)») continue;", {
        "a page is zeroed that somebody may write": "false",
    }),
    ("coherence/home_store/home_writer.cpp", "        «parts_.store.unreserve(zeros[i].page);»", {
        "a page of zeros that was never stored keeps its space": "",
    }),
    ("coherence/home_store/older_copies.cpp", "    if («!free_here(home, pages)») co_return fail", {
        "a host that stops says that it keeps nothing": "(static_cast<void>(free_here(home, pages)), false)",
        "a host says that it keeps nothing, and keeps it": "false",
    }),
    ("coherence/home_store/older_copies.cpp", "            «turn.step(protocol::Event::evict_at_once(each.page));»", {
        "who may write a page of zeros goes on without space": "",
    }),
    ("coherence/home_store/older_copies.cpp", "«Pages::unwritten(parts_.pool.frame(holding->frame)) == 0»)", {
        "a page that was written since is given up": "true",
    }),
    ("coherence/home_store/older_copies.cpp", "const bool all_said = «std::ranges::all_of(answers, "
     "[](const HostAnswer& each) { return each.said.has_value(); })»;", {
        "one host that has answered is enough":
            "std::ranges::any_of(answers, [](const HostAnswer& each) { return each.said.has_value(); })",
    }),
    ("coherence/home_store/older_copies.cpp", "        «std::ranges::all_of(pages, [&](const Page& each) { "
     "return parts_.membership.home_of(each.page) == home; })»;", {
        "a host ends what is kept of some pages of another home":
            "parts_.membership.home_of(pages.front().page) == home",
    }),
    ("coherence/home_store/older_copies.cpp", "    if («!all_said» && ", {
        "nobody is asked again right after it went well": "true",
    }),
    ("coherence/home_store/home_writer.cpp", "        if («is_zeroable(frame)») {", {
        "a page of zeros is zeroed although a host may keep older bytes":
            "frame.zeroed.load(std::memory_order_relaxed)",
        "no page of zeros is zeroed": "false",
    }),
    ("coherence/home_store/older_copies.cpp", "if («!are_its_own») co_return", {
        "a host ends what is kept of another home's page": "false",
    }),
    ("coherence/home_store/older_copies.cpp", "if («request.empty() || request.size() % sizeof(Page) != 0»)", {
        "half a page of a request is left out": "request.empty()",
        "a request that asks for nothing is answered": "request.size() % sizeof(Page) != 0",
    }),
    ("coherence/home_store/older_copies.cpp", "interrupt->raised()))\n        «asks_from_ns_.store(monotonic_ns() + "
     "std::chrono::nanoseconds(ask_again_after).count(),\n                            std::memory_order_relaxed);»", {
        "each flush waits for a host that hangs": "",
    }),
    ("coherence/home_store/older_copies.cpp", "    co_return «all_said»;", {
        "who did not answer counts as if it kept nothing": "true",
    }),

    # Shared memory: what the process at the other end may write, and who wakes whom.
    ("coherence/fabric/transport/shm/ring.hpp", "is_broken_ = is_broken_ || «taken - taken_ > written_ - taken_»;", {
        "a reader may take what was not written": "false",
        "a reader takes back what it had taken": "taken > written_",
    }),
    ("coherence/fabric/transport/shm/ring.hpp", "|| «written - taken_ > memory_.size()» || written", {
        "a writer may write more than there is room for": "false",
    }),
    ("coherence/fabric/transport/shm/ring.hpp", "|| «written - taken_ < seen_»;", {
        "a writer takes back what it had written": "false",
    }),
    ("coherence/fabric/transport/shm/ring.hpp", "        if («seems >= wanted») return seems;", {
        "a full ring is believed to be full for ever": "true",
    }),
    ("coherence/fabric/transport/shm/ring.hpp", "return «room(1) == 0» && !is_broken_;", {
        "a writer that is about to sleep does not look once more": "true",
    }),
    ("coherence/fabric/transport/shm/ring.hpp", "return «bytes().size() == known» && !is_broken_;", {
        "a reader that is about to sleep does not look once more": "true",
        "a reader sleeps only while it has nothing": "bytes().empty()",
    }),
    ("coherence/fabric/transport/shm/segment.cpp", "    if («seals < 0 || (seals & size_seals) != size_seals»)", {
        "memory whose size can change is mapped": "false",
        "memory that can be cut off is mapped": "seals < 0 || (seals & F_SEAL_GROW) == 0",
    }),
    ("coherence/fabric/transport/shm/segment.cpp", "if («status.st_size != static_cast<off_t>(size_bytes)»)", {
        "memory that is too small is mapped": "false",
    }),
    ("coherence/fabric/transport/shm/segment.cpp", "if («(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0»)", {
        "memory that cannot be written is tried": "false",
    }),
    ("coherence/fabric/transport/shm/shm_channel.cpp", "    «if (known_ == reader_.size()) spill();»", {
        "a record longer than the ring waits for ever": "",
    }),
    ("coherence/fabric/transport/shm/shm_channel.cpp", "    «if (count > 0 && reader_.must_wake_writer()) wake_peer();»", {
        "who waits for room is not woken": "",
    }),
    ("coherence/fabric/transport/shm/shm_channel.cpp", "    «if (count > 0 && writer_.must_wake_reader()) wake_peer();»", {
        "who waits for bytes is not woken": "",
    }),
    ("coherence/fabric/transport/shm/shm_channel.cpp", "if (!events || «received == 0» || (received < 0", {
        "the end of the socket is not the end": "false",
    }),
    ("coherence/fabric/transport/shm/shm_channel.cpp", "const size_t count = «is_over_ ? 0 : writer_.write(bytes)»;", {
        "bytes go into a ring that nobody reads any more": "writer_.write(bytes)",
    }),
    ("coherence/fabric/transport/shm/shm_transport.cpp", "if (byte != memory_follows || «passed.size() != 1»)", {
        "a connection may begin without memory, or with several": "passed.empty()",
    }),
    ("coherence/fabric/transport/shm/shm_transport.cpp", "if («byte != memory_follows» || passed", {
        "a connection may begin with any byte": "false",
    }),
    ("coherence/fabric/transport/shm/shm_transport.cpp", "if («machine.empty() || !offer.starts_with(machine)») return", {
        "a host of another machine is looked for here": "machine.empty()",
    }),
    ("coherence/fabric/link/offers.cpp", "if («bytes.size() < 2 + size») return fail", {
        "an offer may be cut off": "bytes.size() < 2",
    }),
    ("coherence/fabric/link/offers.cpp", "        if («kind == TransportKind::shm») offers", {
        "offers of unknown kinds are kept": "true",
    }),
    ("coherence/fabric/link/linked_fabric.cpp", "if (!stopping_ && «!met->has_moved») hand_over", {
        "a link comes up over both": "true",
    }),
    ("coherence/fabric/link/linked_fabric.cpp", "    «if (moved) co_return std::move(*moved);»", {
        "a link that has moved comes up where it was": "",
    }),
    ("coherence/fabric/link/linked_fabric.cpp", "const Decision decision = «moved ? Decision::has_moved : Decision::stays»;", {
        "who stays says that it has moved": "Decision::has_moved",
    }),
    ("coherence/fabric/link/linked_fabric.cpp",
     "if («std::chrono::nanoseconds(monotonic_ns() - began_ns) > retry_max») {", {
        "a link that breaks at once is made again at once": "true",
    }),
    ("coherence/fabric/link/handshake.cpp", "    «if (met.offers.empty()) CO_TRY_VOID(co_await decide(connection, Decision::stays));»", {
        "who has nothing to decide on is silent": "",
    }),
    ("coherence/fabric/link/handshake.cpp", "    if («size > offers_size_max») co_return", {
        "offers may be of any size": "false",
    }),
    ("coherence/fabric/link/handshake.cpp", "const bool we_offer = «!offers_.empty() && connection.kind() == TransportKind::tcp»;", {
        "offers are made over what was offered": "!offers_.empty()",
    }),
]
