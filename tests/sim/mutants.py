#!/usr/bin/env python3
"""Does the simulator notice? Breaks one rule of the protocol at a time and counts the schedules until a check fails.

usage: mutants.py BUILD_DIRECTORY [--seeds COUNT] [NAME...]

Each mutant replaces one passage of coherence/protocol in a copy of the tree. A passage that is no longer found is an
error: the list is kept in step with the code.
"""
import pathlib
import re
import shutil
import subprocess
import sys

MUTANTS = {
    # name: (file, passage, replacement)
    "a new owner does not wait for the readers": (
        "home.cpp",
        "request.ackers = (claim.readers | set_of(claim.owner)) & ~set_of(request.requester);",
        "request.ackers = set_of(claim.owner) & ~set_of(request.requester);\n"
        "    const HostSet holders = (claim.readers | set_of(claim.owner)) & ~set_of(request.requester);",
    ),
    "no-read: the acknowledgements are not counted": (
        "home.cpp",
        "    grant.hosts = request.ackers;\n    if (wants_bytes",
        "    grant.hosts = request.kind == MessageKind::get_exclusive_no_read ? 0 : request.ackers;\n    if (wants_bytes",
    ),
    "a drop is acknowledged blindly while waiting": (
        "holder_orders.cpp",
        "return holding.awaited.request_id == 0 || holding.awaited.granted >= order.tenure;",
        "return true;",
    ),
    "a drop is answered before the waiting reads are served": (
        "holder.cpp",
        "if (holding.unserved_count == 0 && wants_quiet(holding)) {",
        "if (wants_quiet(holding)) {",
    ),
    "an eviction without the only bytes is accepted": (
        "home.cpp",
        "    return !only_it_has || message.has_bytes();",
        "    (void)only_it_has;\n    return true;",
    ),
    "acknowledgements of an undone order count for the next": (
        "holder.cpp",
        "        awaited.heard = 0;\n        awaited.has_bytes = false;\n",
        "        awaited.has_bytes = false;\n",
    ),
    "an upgrade is granted to a host that was dropped": (
        "home.cpp",
        "const bool has_current_copy = contains(claim.readers, request.requester);",
        "const bool has_current_copy = contains(claim.readers, request.requester) || claim.owner == no_host;",
    ),
    "the grant names the previous owner": (
        "home.cpp",
        "    request.keeper = claim.owner != no_host ? claim.owner : anchor;\n",
        "    request.keeper = claim.owner != no_host ? claim.owner : anchor;\n"
        "    if (claim.owner != no_host) requests_.for_each(claim.orders, [&](const Request& open) { if (open.requester == claim.owner && open.keeper != no_host && open.keeper != request.requester) request.keeper = open.keeper; });\n",
    ),
    "an eviction of an old tenure is accepted": (
        "home.cpp",
        "claim.resolving || claim.tenure != message.tenure || !contains",
        "claim.resolving || !contains",
    ),
    "an eviction is accepted while an order names the host": (
        "home.cpp",
        "    if (named) return false;\n",
        "",
    ),
    "the page is served while its eviction is unanswered": (
        "holder_orders.cpp",
        "    actions.set_access(page, holding.frame, Ownership::none);\n    Message message = to_home(MessageKind::evict",
        "    Message message = to_home(MessageKind::evict",
    ),
    "a dirty page moves without a home copy": (
        "holder_orders.cpp",
        "    if (dirty != 0) message.flags |= flag_payload;\n"
        "    actions.send(holding.home, message, dirty != 0 ? holding.frame : no_frame);\n}\n\nvoid Holder::serve_move",
        "    actions.send(holding.home, message, no_frame);\n}\n\nvoid Holder::serve_move",
    ),
    "a write-back in flight does not travel with a move": (
        "../../tests/sim/executor.cpp",
        "memory.pending.push_front(Event::quiesced_of(action.page, frame->dirty | frame->writing));",
        "memory.pending.push_front(Event::quiesced_of(action.page, frame->dirty));",
    ),
    "the answer of an older write-back clears the newer one": (
        "holder_orders.cpp",
        "if (!holding.writing_back || !is_latest) return;",
        "(void)is_latest;\n    if (!holding.writing_back) return;",
    ),
    "a write-back clears the sectors written since": (
        "holder_orders.cpp",
        "actions.about_frame(Action::Kind::clear_writing, event.page, holding.frame);",
        "actions.about_frame(Action::Kind::clear_dirty, event.page, holding.frame);",
    ),
    "home applies copies as they come": (
        "home_copies.cpp",
        "if (position <= claim.applied) {",
        "if (position.tenure == 0) {",
    ),
    "a copy that a drop overtook is forgotten": (
        "home.cpp",
        "claim.anchor != no_host ? claim.anchor : copy_source(claim)",
        "claim.anchor",
    ),
    "done closes by tenure, not by request": (
        "home.cpp",
        "open.requester == message.from && open.request_id == message.request_id;",
        "open.requester == message.from && open.tenure <= message.tenure;",
    ),
    "kept bytes are freed when the order is done": (
        "home_copies.cpp",
        "    if (copies_.find(claim.copies, [&](HomeCopy& copy) { return copy.tenure == tenure; })) return;\n",
        "",
    ),
    "kept bytes are freed when their copy is applied": (
        "home_copies.cpp",
        "    if (requests_.find(claim.orders, [&](Request& open) { return open.tenure == tenure && open.keeper == keeper; }))\n"
        "        return;\n",
        "",
    ),
    "messages below the floor are obeyed": (
        "holder_recovery.cpp",
        "    holding.floor = std::max(holding.floor, floor);\n",
        "    holding.floor = std::max(holding.floor, floor);\n    holding.floor = 0;\n",
    ),
    "a resolve does not recall the plain readers": (
        "home_recovery.cpp",
        "        start_resolve(page, claim, named & ~set_of(host), actions);",
        "        start_resolve(page, claim, (named & ~claim.readers) & ~set_of(host), actions);",
    ),
    "requests that nobody waits for are ordered again": (
        "home_recovery.cpp",
        "    requests_.remove_if(claim->orders, is_over);\n",
        "    (void)is_over;\n",
    ),
    "a resolve ends before all have reported": (
        "home_recovery.cpp",
        "if (!claim.resolving || claim.missing != 0 || claim.loss_pending) return;",
        "if (!claim.resolving || (claim.missing & (claim.missing - 1)) != 0 || claim.loss_pending) return;",
    ),
    "a page is served before its loss is recorded": (
        "home_recovery.cpp",
        "if (!claim.resolving || claim.missing != 0 || claim.loss_pending) return;",
        "if (!claim.resolving || claim.missing != 0) return;",
    ),
    "the loss of an owner is not recorded": (
        "home_recovery.cpp",
        "if (claim.owner == host || claim.anchor == host || requests_exclusive",
        "if (claim.anchor == host || requests_exclusive",
    ),
    "a restarted home believes that it has the bytes": (
        "home_recovery.cpp",
        "            confirm_holders(page, claim, actions);\n",
        "            confirm_holders(page, claim, actions);\n"
        "            if (claim.owner == no_host) claim.anchor = no_host, claim.applied = last_before(claim.tenure);\n",
    ),
    "frames are not marked dirty when home restarts": (
        "holder_recovery.cpp",
        "if (holding.frame != no_frame) actions.about_frame(Action::Kind::mark_dirty, page, holding.frame);",
        "",
    ),
    "a flush asks no anchors": (
        "home.cpp",
        "claim.resolving ? no_host : claim.owner != no_host ? claim.owner : claim.anchor;",
        "claim.resolving ? no_host : claim.owner;",
    ),
    "a flush counts copies only at its start": (
        "flush_home.cpp",
        "    // What this host handed on before it answered is on its way home by now, and must arrive.\n"
        "    flush->copies_until = last_ticket_;\n",
        "",
    ),
    "an asked host answers at once": (
        "flush_holder.cpp",
        "if (!ask->has_begun || ask->missing != 0) return;",
        "if (!ask->has_begun) return;",
    ),
    "a flush does not compare the verifier": (
        "flush_home.cpp",
        "flush->known != verifier || (flush->noted != 0 && flush->noted != verifier);",
        "false && verifier == 0;",
    ),
    "a resolving page is no outstanding copy": (
        "home_recovery.cpp",
        "    actions.about_copy(Action::Kind::copy_expected, page, claim.tenure);\n    for_each_host(recalled",
        "    actions.about_copy(Action::Kind::copy_expected, page, claim.tenure);\n"
        "    actions.about_copy(Action::Kind::copy_arrived, page, claim.tenure);\n    for_each_host(recalled",
    ),
    "everyone is woken on a blank page": (
        "holder.cpp",
        "        if (holding.blank && (waiter.want != Want::exclusive_no_read || holding.unserved_count > 0)) return false;\n",
        "",
    ),
}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def main():
    arguments = sys.argv[1:]
    seeds = "20000"
    if "--seeds" in arguments:
        at = arguments.index("--seeds")
        seeds = arguments[at + 1]
        del arguments[at : at + 2]
    if not arguments:
        sys.exit(__doc__)
    build, names = pathlib.Path(arguments[0]).resolve(), arguments[1:] or list(MUTANTS)
    source = pathlib.Path(__file__).resolve().parents[2]
    tree = build / "mutants"
    shutil.rmtree(tree / "source", ignore_errors=True)
    for folder in ("coherence", "tests/sim", "tiers", "utils"):
        shutil.copytree(source / folder, tree / "source" / folder)
    sources = [*(tree / "source").glob("coherence/p*/*.cpp"), *(tree / "source").glob("tests/sim/*.cpp"),
               tree / "source/utils/assert.cpp"]
    compiler = ["clang++-19", "-std=c++23", "-O2", "-w", "-I", str(tree / "source")]

    def compile_one(file):
        out = tree / (file.stem + ".o")
        result = run([*compiler, "-c", str(file), "-o", str(out)])
        if result.returncode != 0:
            sys.exit(f"{file}: {result.stderr}")
        return str(out)

    objects = {file: compile_one(file) for file in sources}
    survivors = 0
    for name in names:
        file_name, passage, replacement = MUTANTS[name]
        file = (tree / "source/coherence/protocol" / file_name).resolve()
        text = file.read_text()
        if text.count(passage) != 1:
            sys.exit(f"mutant '{name}': its passage occurs {text.count(passage)} times in {file_name}")
        file.write_text(text.replace(passage, replacement))
        compile_one(file)
        run(["clang++-19", *objects.values(), "-o", str(tree / "tarn_sim")])
        result = run([str(tree / "tarn_sim"), "--seeds", seeds, "--stop-at-first"])
        file.write_text(text)
        compile_one(file)
        caught = re.search(r"seed (\d+) failed: (.*)", result.stdout)
        crashed = re.search(r"assertion failed: (.*) at", result.stderr)
        if caught:
            print(f"{int(caught[1]):>6}  {name}: {caught[2].split(';')[0]}")
        elif result.returncode != 0:
            print(f" abort  {name}: {crashed[1] if crashed else result.stderr[-100:]}")
        else:
            survivors += 1
            print(f"  MISS  {name}", flush=True)
        sys.stdout.flush()
    print(f"{len(names) - survivors} of {len(names)} caught within {seeds} schedules")
    sys.exit(1 if survivors else 0)


main()
