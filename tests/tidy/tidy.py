#!/usr/bin/env python3
"""The shape of the tree, checked so that review need not: who includes whom, line length, dead files, headers.

Prints one line per finding, as path:line: what, and ends with 1 if there was any.
"""

import re
import subprocess
import sys
from pathlib import Path

LAYERS = ["utils", "tiers", "coherence", "frontends", "daemon"]  # each may include itself and those before it
# The same within a layer: a room may include itself and those before it. "" is what lies beside the rooms.
ROOMS = {
    "coherence": ["membership", "protocol", "executor", "fabric", "pages", "home_store", "flush", "adoption", "cache"],
    "coherence/fabric": ["transport", "", "link"],
    "tiers/nvme": ["device", "table", "journal", ""],
    "frontends": ["volumes", "fuse", "nbd"],
    "daemon": ["configuration", "doctor", "control", "keeper", "attachments", "attachtab", "mounts", "catalog", "process", "cli"],
}
LINE_LENGTH_MAX = 120
FILE_LENGTH_MAX = 500
SOURCE_SUFFIXES = {".cpp", ".hpp"}

# Nothing in coherence/protocol knows a socket, file, clock or thread: that is what makes it testable.
IMPURE_HEADERS = re.compile(
    r"^(sys/|netinet/|arpa/|linux/|unistd\.h|fcntl\.h|poll\.h|time\.h|pthread\.h|liburing\.h|ctime|chrono|thread|mutex"
    r"|shared_mutex|condition_variable|future|atomic|fstream|filesystem|iostream|cstdio|random"
    r"|utils/(atomic|posted_calls|spinlock|loop|clock|unique_fd|mapping|log|sync|task)\.hpp)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    return [Path(name) for name in listing.stdout.splitlines() if Path(name).is_file()]


def layer_of(path):
    return LAYERS.index(path.parts[0]) if path.parts[0] in LAYERS else None


def rooms_of(path):
    """For each house around the path, outermost first, which of its rooms that is; None: none of them."""
    for house, rooms in ROOMS.items():
        if path.is_relative_to(house):
            parts = path.relative_to(house).parts
            name = parts[0] if len(parts) > 1 else ""
            yield house, rooms.index(name) if name in rooms else None


def check_rooms(path, included):
    there = dict(rooms_of(included))
    for house, room in rooms_of(path):
        if house not in there:
            continue
        if room is None:
            yield f"{path.parent} is no room of {house}; the rooms are in tests/tidy/tidy.py"
        elif there[house] is None or there[house] > room:
            order = ", ".join(filter(None, ROOMS[house]))
            yield f"{path.parent} must not include {included}: rooms are {order}, in order"


def check_includes(path, lines):
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        included = match.group(1)
        target = layer_of(Path(included))
        if layer is not None and target is not None and target > layer:
            yield number, f"{path.parts[0]} must not include {included}: an include never points left"
        for finding in check_rooms(path, Path(included)):
            yield number, finding
        if layer is not None and included.startswith("tests/"):
            yield number, f"{included}: nothing but tests includes tests"
        if path.is_relative_to("coherence/protocol") and IMPURE_HEADERS.match(included):
            yield number, f"{included}: coherence/protocol is pure; no socket, file, clock or thread"


def check_lines(path, lines):
    if path.suffix not in SOURCE_SUFFIXES | {".build", ".toml"} and path.name != "dev":
        return
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH_MAX and "http" not in line:
            yield number, f"{len(line)} characters, at most {LINE_LENGTH_MAX}"
        if line != line.rstrip():
            yield number, "white space at the end of the line"


def check_source(path, lines):
    if path.suffix == ".hpp":
        if not lines or not lines[0].startswith("// "):
            yield 1, "a header begins with what it is, what it does not do and what always holds"
        if "#pragma once" not in lines:
            yield 1, "no #pragma once"
    if len(lines) > FILE_LENGTH_MAX and layer_of(path) is not None:
        yield 1, f"{len(lines)} lines: which idea wants its own file?"


def listed_in_meson(path, meson_texts):
    """A source is listed in the meson.build of its folder or of one above, by its path from there."""
    for folder in path.parents:
        text = meson_texts.get(folder / "meson.build")
        if text is not None and f"'{path.relative_to(folder)}'" in text:
            return True
    return False


def check_dead(path, meson_texts, all_includes):
    if path.suffix == ".cpp" and not listed_in_meson(path, meson_texts):
        yield 1, "in no meson.build: nothing builds it"
    if path.suffix == ".hpp" and str(path) not in all_includes and not listed_in_meson(path, meson_texts):
        yield 1, "nothing includes it"


def main():
    files = tracked_files()
    meson_texts = {path: path.read_text() for path in files if path.name == "meson.build"}
    texts = {}
    findings = []
    for path in files:
        try:
            texts[path] = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
    sources = {path: lines for path, lines in texts.items() if path.suffix in SOURCE_SUFFIXES}
    all_includes = {
        match.group(1) for lines in sources.values() for line in lines if (match := INCLUDE.match(line)) is not None
    }
    for path, lines in sorted(texts.items()):
        found = list(check_lines(path, lines))
        if path in sources:
            found += check_includes(path, lines)
            found += check_source(path, lines)
            found += check_dead(path, meson_texts, all_includes)
        findings += [f"{path}:{number}: {what}" for number, what in found]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
