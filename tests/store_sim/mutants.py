#!/usr/bin/env python3
"""Does the simulated disk notice? Breaks one rule of the store at a time and counts the crash points until it fails.

usage: mutants.py BUILD_DIRECTORY [--points COUNT] [NAME...]

Each mutant replaces one passage of tiers/nvme in a copy of the tree. A passage that is no longer found is an error: the
list is kept in step with the code.
"""
import pathlib
import re
import shutil
import subprocess
import sys

MUTANTS = {
    # name: (file, passage, replacement)
    "a flush round does not flush the device": (
        "store_flush.cpp",
        "        CO_TRY_VOID(co_await flush_device(loop));\n        const std::lock_guard lock(mutex_);\n"
        "        journal_.round_is_durable",
        "        const std::lock_guard lock(mutex_);\n        journal_.round_is_durable",
    ),
    "a flush does not wait for the round under way": (
        "store_flush.cpp",
        "if (journal_.durable() == journal_.head() && superblock_written_ == superblock_wanted_)",
        "if (!journal_.has_unwritten() && superblock_written_ == superblock_wanted_)",
    ),
    "a failed flush is forgotten": (
        "store_flush.cpp",
        "    if (!failure_) failure_ = result.error();\n",
        "",
    ),
    "a flush that failed is answered as if it had not": (
        "store_flush.cpp",
        "        result = note_failure(co_await run_flush_round(loop));",
        "        static_cast<void>(note_failure(co_await run_flush_round(loop)));",
    ),
    "both superblocks are written at once": (
        "store_flush.cpp",
        "        CO_TRY_VOID(co_await transfer.run(loop, *device_));\n        CO_TRY_VOID(co_await flush_device(loop));\n    }",
        "        CO_TRY_VOID(co_await transfer.run(loop, *device_));\n    }\n    CO_TRY_VOID(co_await flush_device(loop));",
    ),
    "a checkpoint frees the ring before the superblock says so": (
        "store_checkpoint.cpp",
        "    CO_TRY_VOID(co_await flush(loop));\n    const std::lock_guard lock(mutex_);\n    for (const InPlace& page",
        "    const std::lock_guard lock(mutex_);\n    for (const InPlace& page",
    ),
    "a record is freed before its entry is durable": (
        "store_checkpoint.cpp",
        "        CO_TRY_VOID(co_await write_table(loop, some));\n",
        "",
    ),
    "a record is freed before its page is durable": (
        "store_checkpoint.cpp",
        "    if (!written.empty()) CO_TRY_VOID(co_await flush_device(loop));\n",
        "",
    ),
    "pages go into place before the journal has them": (
        "store_checkpoint.cpp",
        "    if (newest != 0) result = co_await flush(loop);\n",
        "",
    ),
    "the table tells what the journal may lose": (
        "store_checkpoint.cpp",
        "    if (said_until != 0) CO_TRY_VOID(co_await flush(loop));\n",
        "    (void)said_until;\n",
    ),
    "both places of the table are torn": (
        "store_checkpoint.cpp",
        "        CO_TRY_VOID(co_await transfer.run(loop, *device_));\n        CO_TRY_VOID(co_await flush_device(loop));\n    }\n    co_return",
        "        CO_TRY_VOID(co_await transfer.run(loop, *device_));\n    }\n    CO_TRY_VOID(co_await flush_device(loop));\n    co_return",
    ),
    "a slab is reused before its release is durable": (
        "slab_table.cpp",
        "    if (!slab.recorded) {",
        "    if (slab.recorded || !slab.recorded) {",
    ),
    "a pinned slab is given away": (
        "slab_table.cpp",
        "        slab.state = State::released;\n        if (slab.pins == 0) make_free(release.slab);\n",
        "        slab.state = State::released;\n        make_free(release.slab);\n",
    ),
    "the base is ignored": (
        "store_state.cpp",
        "    if (over_zeros || record.dirty == all_sectors) page.over_zeros = true;\n",
        "    if (record.dirty == all_sectors) page.over_zeros = true;\n",
    ),
    "the tenure is not stored": (
        "slab_table_media.cpp",
        "        entries.tenures[page] = slab.entries->tenures[page];\n",
        "",
    ),
    "fresh pages are written over what a cut may bring back": (
        "store_write.cpp",
        " || state_.table.cleared_at(slab) > journal_.durable()) return 0;",
        ") return 0;",
    ),
    "fresh pages are written while a checkpoint writes old ones": (
        "store_write.cpp",
        "    if (state_.table.in_checkpoint(slab) || state_",
        "    if (state_",
    ),
    "writes into place that were lost are believed": (
        "store_open.cpp",
        "        if (!loader.matches(0)) {",
        "        if (false) {",
    ),
    "lost writes are dropped without a record": (
        "store_open.cpp",
        "            CO_TRY_VOID(co_await clear(loop, *slab, page, 1, false));",
        "            state_.table.clear(*slab, SlabTable::page_in_slab(page), 1, false, 0);",
    ),
    "an atomic group is split over batches": (
        "store_write.cpp",
        "        journal_.keep_together(size);\n",
        "",
    ),
    "the ring overtakes its own tail": (
        "journal.cpp",
        "    return end_after(size_bytes) <= tail_ + size_;",
        "    return end_after(size_bytes) <= tail_ + size_ + 4 * page_size;",
    ),
    "a torn batch is believed": (
        "journal_scan.cpp",
        " || batch_checksum(superblock.store, bytes) != header.checksum)",
        ")",
    ),
    "what an earlier crash left in the ring is believed": (
        "journal_scan.cpp",
        "        if (!batch || batch->header.previous_checksum != previous || batch->header.home_epoch < home_epoch) break;",
        "        if (!batch) break;",
    ),
    "reads are not verified": (
        "store.cpp",
        "found != loader.source(i).entry.checksum)",
        "false && found != 0)",
    ),
    "a newer write is forgotten when the older one is in place": (
        "store_state.cpp",
        "        if (page.sectors[sector] == written.sectors[sector])\n",
        "",
    ),
    "recovery believes what a failed flush left in the cache": (
        "store_open.cpp",
        "    TRY_VOID(rewrite_journal(scan.closed, scan.end));\n",
        "",
    ),
    "recovery does not flush what it read": (
        "store_open.cpp",
        "    CO_TRY_VOID(store->device_->flush_now());\n    CO_TRY_VOID(store->write",
        "    CO_TRY_VOID(store->write",
    ),
}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def main():
    arguments = sys.argv[1:]
    points = "30000"
    if "--points" in arguments:
        at = arguments.index("--points")
        points = arguments[at + 1]
        del arguments[at : at + 2]
    if not arguments:
        sys.exit(__doc__)
    build, names = pathlib.Path(arguments[0]).resolve(), arguments[1:] or list(MUTANTS)
    source = pathlib.Path(__file__).resolve().parents[2]
    tree = build / "store_mutants"
    shutil.rmtree(tree / "source", ignore_errors=True)
    for folder in ("tests/sim", "tests/store_sim", "tiers", "utils"):
        shutil.copytree(source / folder, tree / "source" / folder)
    sources = [*(tree / "source").glob("tiers/nvme/*.cpp"), *(tree / "source").glob("tests/store_sim/*.cpp"),
               *(tree / "source").glob("utils/*.cpp")]
    compiler = ["clang++-19", "-std=c++23", "-D_GNU_SOURCE", "-O1", "-w", "-mcx16", "-I", str(tree / "source")]
    libraries = ["-fuse-ld=lld-19", "-luring", "-lisal", "-lfmt", "-lsystemd", "-lblkid", "-lpthread"]

    def compile_one(file):
        out = tree / (file.parent.name + "-" + file.stem + ".o")
        result = run([*compiler, "-c", str(file), "-o", str(out)])
        if result.returncode != 0:
            sys.exit(f"{file}: {result.stderr}")
        return str(out)

    objects = {file: compile_one(file) for file in sources}
    survivors = 0
    for name in names:
        file_name, passage, replacement = MUTANTS[name]
        file = (tree / "source/tiers/nvme" / file_name).resolve()
        text = file.read_text()
        if text.count(passage) != 1:
            sys.exit(f"mutant '{name}': its passage occurs {text.count(passage)} times in {file_name}")
        file.write_text(text.replace(passage, replacement))
        compile_one(file)
        linked = run(["clang++-19", *objects.values(), *libraries, "-o", str(tree / "tarn_store_sim")])
        if linked.returncode != 0:
            sys.exit(linked.stderr)
        try:
            result = run([str(tree / "tarn_store_sim"), "--points", points], timeout=600)
            caught = re.search(r"seed (\d+) failed: (.*)", result.stdout)
        except subprocess.TimeoutExpired:
            caught = None
        file.write_text(text)
        compile_one(file)
        if caught:
            print(f"{int(caught[1]):>6}  {name}: {caught[2].split(';')[0]}")
        else:
            survivors += 1
            print(f"  MISS  {name}")
        sys.stdout.flush()
    print(f"{len(names) - survivors} of {len(names)} caught within {points} crash points")
    sys.exit(1 if survivors else 0)


main()
