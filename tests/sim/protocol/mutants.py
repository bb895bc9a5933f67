"""The rules of the protocol and of its executor that tests/support/mutate.py breaks: the simulator must notice each."""

MUTANTS = [
    # Requests and orders.
    ("coherence/protocol/home.cpp", "grant.hosts = «request.ackers»;", {
        "exclusive without read: the acknowledgements are not counted":
            "(request.kind == MessageKind::get_exclusive_no_read ? 0 : request.ackers)",
        "a grant forgets one acknowledgement": "(request.ackers & (request.ackers - 1))",
        "a new owner waits for no reader": "(request.kind == MessageKind::get_shared ? request.ackers : 0)",
    }),
    ("coherence/protocol/home.cpp", "request.source = «claim.anchor»;", {
        "any reader is a source":
            "(claim.readers == 0 ? no_host : static_cast<HostId>(std::countr_zero(claim.readers)))",
    }),
    ("coherence/protocol/home.cpp", "«++claim.tenure;»\n        claim.anchor = claim.owner;", {
        "a downgrade keeps the tenure": "",
    }),
    ("coherence/protocol/home.cpp", "«expect_copy(page, claim, claim.tenure, claim.anchor, actions);»", {
        "the home copy of a downgrade is not counted": "",
    }),
    ("coherence/protocol/home.cpp",
     "«if (request.keeper != no_host) expect_copy(page, claim, claim.tenure, request.keeper, actions);»", {
        "the home copy of a move is not counted": "",
    }),
    ("coherence/protocol/home.cpp", "has_current_copy = «contains(claim.readers, request.requester)»;", {
        "an upgrade is granted to a host that was dropped": "true",
    }),
    ("coherence/protocol/home.cpp", "request.keeper = «claim.owner != no_host ? claim.owner : anchor»;", {
        "an order names the owner before the last": """[&] {
            HostId keeper = claim.owner != no_host ? claim.owner : anchor;
            requests_.for_each(claim.orders, [&](const Request& open) {
                if (open.requester == claim.owner && open.keeper != no_host && open.keeper != request.requester)
                    keeper = open.keeper;
            });
            return keeper;
        }()""",
    }),
    ("coherence/protocol/home.cpp", "claim.anchor != no_host ? claim.anchor : «copy_source(claim)»;", {
        "a copy that a drop overtook is forgotten": "no_host",
    }),
    ("coherence/protocol/home.cpp", "while (!claim.queue.empty() && «!claim.resolving») {", {
        "a request is ordered while the page is resolved": "true",
    }),
    ("coherence/protocol/home.cpp",
     "open.requester == message.from && «open.request_id == message.request_id»;\n    });\n    settle(event", {
        "a late done closes a newer order": "true",
    }),
    # Marks.
    ("coherence/protocol/home.cpp", "if («lacks_mark(page, requests_.at(claim.queue.first))») {", {
        "a page gets an owner before it is marked": "false",
    }),
    ("coherence/protocol/home.cpp", "return «claim->home_has_bytes()» && is_at_rest", {
        "the mark of a page with an owner is cleared": "true",
    }),
    # Evictions.
    ("coherence/protocol/home.cpp", "claim.resolving || «claim.tenure != message.tenure» || !contains", {
        "an eviction of an old tenure is accepted": "false",
    }),
    ("coherence/protocol/home.cpp", "if («!claim.copies.empty()») return false;", {
        "the anchor leaves early": "(!claim.copies.empty() && claim.anchor != message.from)",
    }),
    ("coherence/protocol/home.cpp", "wants_bytes = «only_has(*claim, message.from)» ||", {
        "the anchor leaves early": "(claim->anchor != message.from && only_has(*claim, message.from))",
        "a dirty page is evicted silently": "false",
    }),
    ("coherence/protocol/home.cpp", "return «!named»;", {
        "an eviction is accepted while an order names the host": "true",
    }),
    ("coherence/protocol/home.cpp",
     "is_last_copy = «claim->holders() == set_of(message.from) && claim->queue.empty()»;", {
        "an anchor's bytes are kept as if the store had them": "true",
    }),
    ("coherence/protocol/home.cpp",
     "message.has_bytes() && («message.dirty != 0 || claim.applied < last_before(claim.tenure)»);", {
        "an anchor's bytes are kept as if the store had them": "false",
    }),
    ("coherence/protocol/home.cpp", "    «claim->readers &= ~set_of(message.from);»\n    answer.kind", {
        "who has evicted the page stays in the books": "",
    }),
    ("coherence/protocol/holder.cpp", "holding.frame != no_frame && «holding.successors.empty()») wake_waiters", {
        "local operations go before an order that waits": "true",
    }),
    ("coherence/protocol/holder.cpp",
     "if («holding.frame == no_frame || holding.custody == Custody::evicting») {\n                serve_quiet", {
        "a page is written back while it is being written":
            "(holding.frame == no_frame || holding.custody == Custody::evicting || "
            "(holding.ownership == Ownership::exclusive && holding.wish == EvictionWish::none && "
            "!holding.report_due && !has_applicable_order(holding)))",
    }),
    ("coherence/protocol/holder.cpp", "serve_quiet(page, holding, «holding.eviction.dirty», actions);", {
        "a page is written back while it is being written":
            "(holding.custody == Custody::evicting ? holding.eviction.dirty : all_sectors)",
    }),
    ("coherence/protocol/holder.cpp", "is_open = («holding.custody == Custody::none» ||", {
        "a page that has left bare is asked for before its eviction is answered":
            "holding.custody == Custody::none || holding.custody == Custody::bare",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "at_once = wish == EvictionWish::at_once && !with_bytes && «holding.anchor_since == 0»;", {
        "an anchor leaves bare": "true",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "«if (holding->custody == Custody::bare && (message.kind != MessageKind::drop || message.has(flag_anchor))) return;»", {
        "who has left bare answers orders for bytes": "",
    }),
    ("coherence/protocol/holder_orders.cpp", "is_refused && «!holding.eviction.says_bare»)", {
        "who has left bare does not say so when its eviction is refused": "false",
    }),
    ("coherence/protocol/holder_recovery.cpp",
     "«if (holding.custody == Custody::bare) send_eviction(page, holding, 0, no_frame, actions);»", {
        "a bare eviction is lost with its link": "",
    }),
    ("coherence/protocol/home.cpp", "message.has(flag_evicting) && «counts_on(*claim, message.from)»)\n", {
        "home goes on counting on who has left bare": "false",
    }),
    ("coherence/protocol/home.cpp", "if (message.has(flag_evicting) && «claim->owner == message.from»)\n", {
        "a reader's bare eviction makes home's bytes current": "true",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "«actions.set_access(page, holding.frame, Ownership::none);»\n    holding.custody = at_once", {
        "the page is served while its eviction is unanswered": "",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "const bool with_bytes = «wish == EvictionWish::with_bytes || dirty != 0»;", {
        "a dirty page is evicted silently": "false",
    }),
    ("coherence/protocol/holder_orders.cpp", "if («holding.eviction.id != event.message.request_id») return;", {
        "the answer to an eviction counts for a later one": "false",
    }),
    # What holders owe.
    ("coherence/protocol/holder_orders.cpp",
     "return «holding.awaited.request_id == 0 || holding.awaited.granted >= order.tenure»;", {
        "a drop is acknowledged blindly": "true",
        "a drop waits for a grant that comes after it": "(holding.awaited.request_id == 0)",
    }),
    ("coherence/protocol/holder.cpp", "if («holding.unserved_count == 0» && wants_quiet(holding)) {", {
        "a drop is answered before the waiting reads are served": "true",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "custody == Custody::blank || «holding.tenure + 1 != order.tenure»)\n        return false;", {
        "an order is obeyed in another's place": "(holding.tenure >= order.tenure)",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "if («holding.kept_frame != no_frame && holding.kept_order == order.tenure + 1») {", {
        "a copy is not sent once its drop came": "false",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "«answer_home(page, holding, order, dirty, actions);»\n    if (order.kind == MessageKind::move)", {
        "exclusive without read: the home copy is skipped":
            "answer_home(page, holding, order, wants_bytes ? dirty : 0, actions);",
        "a downgrade sends no home copy":
            "answer_home(page, holding, order, order.kind == MessageKind::move ? dirty : 0, actions);",
        "a dirty page moves without a home copy": "answer_home(page, holding, order, 0, actions);",
    }),
    ("coherence/protocol/holder_orders.cpp", "    if («is_anchor») {\n        answer_home", {
        "a dropped anchor does not answer home": "false",
    }),
    ("coherence/protocol/holder.cpp", "        «awaited.heard = 0;»\n        awaited.has_bytes = false;", {
        "acknowledgements of an undone order count for the next": "",
    }),
    ("coherence/protocol/holder.cpp",
     "if («waiter.want == Want::shared») return false;\n        actions.about_waiter(Action::Kind::fail", {
        "no space fails the readers, too": "false",
    }),
    ("coherence/protocol/holder.cpp",
     "if («is_blank && (waiter.want != Want::exclusive_no_read || holding.unserved_count > 0)») return", {
        "everyone is woken on a blank page": "false",
    }),
    ("coherence/protocol/holder.cpp", "«if (awaited.grants_exclusive) forget_kept(page, holding, actions);»", {
        "a reader forgets what it kept": "forget_kept(page, holding, actions);",
    }),
    ("coherence/protocol/home.cpp", "grant.sequence = «lost_in(page)»;", {
        "a grant does not say that writes were lost": "0",
    }),
    ("coherence/protocol/home.cpp", "return «losses_before_ == nullptr ? 0 : losses_before_->generation_of(page)»;", {
        "a restarted home forgets which pages lost writes": "0",
    }),
    ("coherence/protocol/home.cpp", "if (const uint32_t* const loss = losses_.find(page)) return «*loss»;", {
        "a page that was lost again counts as of the first time": "std::max(1u, *loss - 1)",
    }),
    ("coherence/protocol/loss_ranges.cpp", "generation = «std::max(generation, range.generation)»;", {
        "of several losses of a page the oldest counts":
            "(generation == 0 ? range.generation : std::min(generation, range.generation))",
    }),
    ("coherence/protocol/loss_ranges.cpp",
     "«if (next <= range.last.value) left.push_back({.first = {next}, .last = range.last});»", {
        "a home that lost its memory takes only pages before held ones for lost": "",
    }),
    ("coherence/protocol/loss_ranges.cpp", "if («page->value > next») left", {
        "a home that lost its memory takes only pages behind held ones for lost": "false",
    }),
    # Bytes on their way home.
    ("coherence/protocol/home_copies.cpp", "if («version <= claim.applied») {", {
        "home applies copies as they come": "version.tenure == 0",
    }),
    ("coherence/protocol/home_copies.cpp", "action.mask = «overtakes ? all_sectors : event.message.dirty»;", {
        "a copy that overtakes another names its own sectors only": "event.message.dirty",
    }),
    ("coherence/protocol/home_copies.cpp", "if («!first.clean») break;", {
        "a copy counts before it came": "false",
    }),
    ("coherence/protocol/home_copies.cpp", "«apply(message.page, *claim, version, event, actions);»", {
        "a write-back is answered, but not applied": "discard_payload(event, actions);",
    }),
    ("coherence/protocol/home_copies.cpp",
     "if («copies_.find(claim.copies, [&](HomeCopy& copy) { return copy.tenure == tenure; })») return;", {
        "kept bytes are freed when the order is done": "(HomeCopy*)nullptr",
    }),
    ("coherence/protocol/home_copies.cpp",
     "if («requests_.find(claim.orders, [&](Request& open) { return open.tenure == tenure "
     "&& open.keeper == keeper; })»)", {
        "kept bytes are freed when their copy is applied": "(Request*)nullptr",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "is_latest = «message.tenure == holding.tenure && message.sequence == holding.sequence»;", {
        "the answer to an older write-back counts for the newer": "true",
        "the answer to a write-back of another tenure counts": "(message.sequence == holding.sequence)",
    }),
    ("coherence/protocol/holder_orders.cpp",
     "actions.about_frame(«Action::Kind::clear_writing», event.page, holding.frame);", {
        "a write-back cleans what was written since": "Action::Kind::clear_dirty",
    }),
    # Recovery.
    ("coherence/protocol/home_recovery.cpp", "«++claim.tenure;»\n    claim.recalled", {
        "a resolve keeps the tenure": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "start_resolve(page, claim, «named & ~set_of(host)», actions);", {
        "a resolve does not recall the readers": "((named & ~claim.readers) & ~set_of(host))",
    }),
    ("coherence/protocol/home_recovery.cpp", "«requests_.remove_if(claim->orders, is_over);»", {
        "requests that nobody waits for are ordered again": "(void)is_over;",
    }),
    ("coherence/protocol/home_recovery.cpp", "if (!claim.resolving || «claim.missing != 0» ||", {
        "a resolve ends before all have reported": "((claim.missing & (claim.missing - 1)) != 0)",
    }),
    ("coherence/protocol/home_recovery.cpp", "claim.missing != 0 || «claim.loss_pending») return;", {
        "a page is served before its loss is recorded": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "if («claim.owner == host» || claim.anchor == host ||", {
        "the loss of an owner is not recorded": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "requests_exclusive || «contains(in_copies | claim.missing, host)»)", {
        "the loss of a copy on its way is not recorded": "false",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "} else if («contains(hosts_of_orders(claim) | hosts_of_copies(claim), host)») {", {
        "copies lost with a link are not looked for": "contains(hosts_of_orders(claim), host)",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "if («claim.owner == no_host && claim.anchor == no_host && has_memory»)\n", {
        "a restarted home believes that it has the bytes": "(claim.owner == no_host && claim.anchor == no_host)",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "if («host == claim.anchor || (host == claim.owner && !has_memory)») confirm", {
        "an owner is not told to mark dirty by a home in doubt": "host == claim.anchor",
    }),
    ("coherence/protocol/home_recovery.cpp", "if («contains(claim.dismissed, host)») known", {
        "kept bytes that home decided against are taken if they are reported again": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "if («claim.keepers != 0» || contradicts ||", {
        "a restarted home takes no kept bytes": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "if («claim.stored_unknown») {", {
        "kept bytes win over stored ones of an unknown tenure": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "if («is_named || is_ordered_away») answer.kind", {
        "an eviction is confirmed though an order is under way": "is_named",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«holding.floor = std::max(holding.floor, floor);»", {
        "messages below the floor are obeyed": "",
    }),
    ("coherence/protocol/holder_recovery.cpp", "may_have_written ? «holding.sequence + 1» : holding.sequence", {
        "an owner's report is no newer than its write-back": "holding.sequence",
    }),
    ("coherence/protocol/holder_recovery.cpp", "                «repeat_write_back(holding);»", {
        "a write-back lost with a link is waited for": "",
    }),
    ("coherence/protocol/holder_recovery.cpp", "if («holding.awaited.request_id == 0 || home_of(page) == host») return;", {
        "what was sent before its side of the link was up is waited for": "true",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«if (!has_memory) holding.anchor_since = holding.tenure;»", {
        "frames are not marked dirty when home restarts": "",
    }),
    ("coherence/protocol/holder_recovery.cpp",
     "actions.about_frame(«is_anchor ? Action::Kind::mark_dirty : Action::Kind::clear_dirty», event.page", {
        "of confirmed readers none is dirty": "Action::Kind::clear_dirty",
    }),
    # A process that adopts its memory.
    ("coherence/protocol/holder_recovery.cpp", "if (frame != no_frame && «custody != Custody::blank»)", {
        "a blank frame is adopted": "true",
    }),
    ("coherence/protocol/holder_recovery.cpp", "if («kept_frame != no_frame»)\n        recorded", {
        "kept bytes are not adopted": "false",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«held.evict_id != 0 ? Custody::evicting : Custody::open»;", {
        "an eviction under way is adopted as if it were not": "Custody::open",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«holding.trust = Trust::adopted;»", {
        "an adopted frame may be served at once": "holding.trust = Trust::unconfirmed;",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«holding.sequence = held.sequence;»", {
        "an adopted owner numbers its write-backs anew": "holding.sequence = 0;",
    }),
    ("coherence/protocol/holder_recovery.cpp", "        «holding.anchor_since = held.anchor_since;»", {
        "an adopted anchor does not know that it is one": "",
    }),
    ("coherence/protocol/holder_recovery.cpp", "if («holding.anchor_since != 0») hello.flags |= flag_anchor;", {
        "a reader does not say that home may lack its bytes": "false",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«send_hello(event.page, holding, actions);»\n    }\n    advance", {
        "a host that adopts does not report to itself": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "«if (has_adopted) forget_requests(claim, host);»", {
        "requests of a process that ended are ordered": "",
    }),
    ("coherence/protocol/home_recovery.cpp", "is_new = «event.process.incarnation != event.previous.incarnation»;", {
        "an adopted memory is taken for lost": "(event.process != event.previous)",
        "the boot id is ignored": "false",
    }),
    ("coherence/protocol/home_recovery.cpp", "PageVersion{event.stored_tenure, «event.stored_sequence»}", {
        "a home that adopts forgets how new its bytes are": "0",
    }),
    ("coherence/protocol/flush_home.cpp", "if («process != previous») std::erase_if", {
        "flushes of a process that ended are answered": "(process.incarnation != previous.incarnation)",
    }),
    ("coherence/protocol/holder_recovery.cpp", "«last_request_id_ = last;»", {
        "requests are numbered anew": "(void)last;",
    }),
    # Flush.
    ("coherence/protocol/home.cpp",
     "claim.resolving ? no_host : «claim.owner != no_host ? claim.owner : claim.anchor»;", {
        "a flush asks owners only": "claim.owner",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "«actions.about_copy(Action::Kind::copy_expected, page, claim.tenure);»\n    for_each_host", {
        "a resolving page is no outstanding copy": "",
    }),
    ("coherence/protocol/home_recovery.cpp",
     "«actions.about_copy(Action::Kind::copy_arrived, page, claim.tenure);»\n    while", {
        "a resolving page is no outstanding copy": "",
    }),
    ("coherence/protocol/flush_home.cpp", "«flush->copies_until = last_ticket_;»", {
        "a flush counts copies only at its start": "",
    }),
    ("coherence/protocol/flush_home.cpp", "if («copy.ticket <= flush.copies_until») return;", {
        "a flush waits for no copies": "false",
    }),
    ("coherence/protocol/flush_home.cpp",
     "lost = «flush->known != verifier || (flush->noted != 0 && flush->noted != verifier)»;", {
        "a flush does not compare the verifier": "false",
        "the loss generation is ignored":
            "(flush->known >> 32 != verifier >> 32 || (flush->noted != 0 && flush->noted >> 32 != verifier >> 32))",
    }),
    ("coherence/protocol/flush_home.cpp", "answer(*flush, «failed || lost», verifier, actions);", {
        "a flush succeeds though the store failed": "lost",
    }),
    ("coherence/protocol/flush_home.cpp",
     "{\n    «for (const Flush& flush : flushes_) answer(flush, true, verifier, actions);»\n    flushes_.clear", {
        "a store that failed forgets the flushes under way": "",
    }),
    ("coherence/protocol/flush_home.cpp", "if («contains(flush.unanswered, host)») ask(flush, host, actions);", {
        "an ask lost with a link is not repeated": "false",
    }),
    ("coherence/protocol/flush_holder.cpp", "if (!ask->has_begun || «ask->missing != 0») return;", {
        "an asked host answers at once": "false",
    }),
    ("coherence/protocol/flush_requester.cpp", "if («note.writes == part->writes» && !note.mixed) {", {
        "a flush clears the notes of later writes": "true",
    }),
    ("coherence/protocol/holder.cpp", "«if (awaited.needs_bytes || is_blank) holding.anchor_since = 0;»", {
        "an upgrade clears anchor_since": "holding.anchor_since = 0;",
    }),
    ("coherence/protocol/holder.cpp", "«repeat_write_back(holding);»\n    holding.ownership", {
        "a completed request forgets a write-back under way": "",
    }),
    ("coherence/protocol/flush_requester.cpp", "note.mixed |= «note.noted != began»;", {
        "writes under two verifiers count as under the first": "false",
    }),
    ("coherence/protocol/flush_requester.cpp", "«if (note.noted == 0) note.noted = began;»", {
        "writes are noted under the newest verifier": "note.noted = began;",
    }),
    # What travels as one.
    ("coherence/protocol/coalescing.cpp", "Message expected = «part_of(run, run.run + 1u)»;", {
        "neighbours of other request ids make a run": """[&] {
            Message as_if = part_of(run, run.run + 1u);
            as_if.request_id = next.request_id;
            return as_if;
        }()""",
        "neighbours of other tenures make a run": """[&] {
            Message as_if = part_of(run, run.run + 1u);
            as_if.tenure = next.tenure;
            return as_if;
        }()""",
    }),
    ("coherence/protocol/coalescing.cpp",
     "if («(run.page.number() + run.run + 1) % run_pages_max == 0») return false;", {
        "a run goes beyond its block": "false",
    }),
    ("coherence/protocol/coalescing.cpp", "if («!are_equal(common_of(message_), common_of(next))» || next.hosts", {
        "messages of other kinds make a batch": "(next.has_bytes() || !may_be_joined(next.kind))",
    }),
    ("coherence/protocol/coalescing.cpp",
     "last_part_ = {.page = next.page,\n                  .tenure = «next.tenure»,", {
        "a part has the tenure of the first": "message_.tenure",
    }),
    ("coherence/protocol/coalescing.cpp", ".request_id = «next.request_id»,", {
        "a part has the request id of the first": "message_.request_id",
    }),
    ("coherence/protocol/coalescing.cpp", "    «last_run_ = next;»\n", {
        "a run goes on where another ended": "",
    }),
    ("coherence/protocol/coalescing.cpp", "        else\n            «last_part_.run = last_run_.run;»", {
        "a part forgets its neighbours": "",
    }),
    ("coherence/protocol/coalescing.cpp", "message_.run = «last_run_.run»;", {
        "a run forgets its last page": "static_cast<uint16_t>(last_run_.run - 1)",
    }),
    ("coherence/protocol/coalescing.cpp", "const Part& part = «parts[index - 1]»;", {
        "of the parts the first is taken each time": "parts[0]",
    }),
    ("coherence/protocol/coalescing.cpp", "«run.tenure = part.tenure;»", {
        "a part is of the first one's tenure": "",
    }),
    ("coherence/protocol/coalescing.cpp", "«run.request_id = part.request_id;»", {
        "a part is of the first one's request id": "",
    }),
    ("coherence/protocol/coalescing.cpp", "    «run.run = static_cast<uint16_t>(part.run);»", {
        "a part is as long as the first run": "",
    }),
    ("coherence/protocol/coalescing.cpp", "    «grant_.flags |= data.flags & bytes_flags;»", {
        "a joined grant does not say that it has bytes": "",
    }),
    ("coherence/protocol/coalescing.cpp", "    «data = grant_;»\n", {
        "the bytes go without their grant": "",
    }),
    ("coherence/protocol/stripe.cpp", "«dispatch(Event::message_of(grant_of_joined(event.message)), actions);»", {
        "of a joined grant only the bytes are taken": "",
    }),
    ("coherence/protocol/stripe.cpp", "        «reserve();»  // a home that has recovered", {
        "room is made for one message of a host to itself": "",
    }),
    ("coherence/protocol/stripe.cpp", "        «dispatch(data, actions);»", {
        "of a joined grant the bytes are left": "",
    }),

    # The executor.
    ("coherence/executor/executor.cpp",
     "frame = «protocol::lent_frame_for_present_bytes(step.stripe.holder().find(message.page), message)»;", {
        "home's bytes go where their request was to land when it was made": "message.frame",
        "home's bytes go to a frame that is lent for the first of them only": 
            "protocol::lent_frame(step.stripe.holder().find(message.page), message)",
    }),
    ("coherence/executor/executor.cpp",
     "if («found.where == HomeStore::Found::Where::frame && effects_.home_store.share(found.frame)») {", {
        "home's frame becomes the Holder's though it has another use": "found.where == HomeStore::Found::Where::frame",
    }),
    ("coherence/executor/executor.cpp", "        «effects_.home_store.copy(found, frame);»", {
        "home's bytes are not copied": "",
    }),
    ("coherence/executor/executor.cpp", "        «send_pending_grant(step);»\n        pending.hold", {
        "a second grant pushes the first out": "if (pending.holds()) (void)pending.release();",
    }),
    ("coherence/executor/executor.cpp", "    events.clear();\n    «send_pending_grant(step);»", {
        "a grant without bytes is never sent": "if (scratch.pending_grant.holds()) (void)scratch.pending_grant.release();",
    }),
    ("coherence/executor/executor.cpp",
     "            «step.scratch.events.push_back(\n                protocol::Event::quiesced_of(action.page, "
     "effects_.frames.unwritten_of(action.frame)));»", {
        "a frame that is quiet at once is not said to be": "",
        "a frame that is quiet at once counts as clean":
            "step.scratch.events.push_back(protocol::Event::quiesced_of(action.page, 0));",
    }),
    ("coherence/executor/executor.cpp",
     "«for (const Action& action : scratch.actions)\n"
     "            if (action.kind == Action::Kind::mark_dirty) effects_.frames.mark_dirty(action.frame);»", {
        "bytes that home lacks are not dirty": "",
    }),
    ("coherence/executor/executor.cpp",
     "    «if (!result.flush_actions.empty()) effects_.books.run(std::move(result.flush_actions));»", {
        "what a flush asks for in a step is forgotten": "",
    }),
    ("coherence/executor/executor.cpp",
     "    «if (!result.losses.empty()) effects_.home_store.record_losses(std::move(result.losses), result.lost_host);»", {
        "a loss is not recorded": "",
    }),
    ("coherence/executor/executor.cpp",
     "    «if (!result.marks.empty()) effects_.home_store.mark(std::move(result.marks));»", {
        "a page is not marked": "",
    }),
    ("coherence/executor/executor.cpp",
     "case Action::Kind::keep_copy: «result.frames_freed |= effects_.home_store.keep_copy(action);»", {
        "the last copy is dropped, and its frame leaks": "",
    }),
    ("coherence/executor/executor.cpp",
     "case Action::Kind::begin_writing: «effects_.frames.begin_writing(action.frame);»", {
        "a write-back leaves the page dirty": "",
    }),
    ("coherence/executor/executor.cpp",
     "case Action::Kind::clear_writing: «effects_.frames.clear_writing(action.frame);»", {
        "a page is being written home for ever": "",
        "a page that was written home is clean, whatever was written since": "effects_.frames.clear_dirty(action.frame);",
    }),
    ("coherence/executor/executor.cpp",
     "case Action::Kind::clear_dirty: «effects_.frames.clear_dirty(action.frame);»", {
        "a page that has gone is still dirty": "",
    }),
    ("coherence/executor/executor.cpp",
     "case Frames::Quiet::leased: «step.result.leased.push_back({.page = action.page, .frame = "
     "action.frame});»", {
        "nobody ends a lease": "",
    }),
]
