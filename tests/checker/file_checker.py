#!/usr/bin/python3
"""Whether one file, used through several mounts at once, behaves as if its operations came one after another.

usage: file_checker.py [--rounds N] [--seed N] FILE...

The same file, as each mount shows it. In each round one operation per thread begins at once: writes, appends,
truncations, reads and looks at the size; then each mount reads it all. Some order of the operations that keeps those
apart which did not overlap must explain every result. Half of the rounds work with bytes of one page, half with whole
pages; what is written at once is no more than is promised to appear at once.
"""
import argparse
import os
import random
import sys
import threading
import time

PAGE = 4096


# As runs: a letter, and how many of it.
def runs(data):
    if not isinstance(data, bytes):
        return data
    parts = []
    for byte in data:
        if parts and parts[-1][0] == byte:
            parts[-1][1] += 1
        else:
            parts.append([byte, 1])
    return " ".join(f"{byte:02x}*{count}" for byte, count in parts) or "nothing"


class Operation:
    def __init__(self, kind, at=0, count=0, letter=b""):
        self.kind, self.at, self.count, self.letter = kind, at, count, letter
        self.began = self.ended = 0.0
        self.result = None

    def __repr__(self):
        what = f"{self.kind}({self.at}, {runs(self.letter * self.count)}) = {runs(self.result)}"
        return f"{self.began:.6f} to {self.ended:.6f}: {what}"

    # What it makes of the file, and what it returns; both in units.
    def apply(self, state):
        if self.kind == "write":
            state = state.ljust(self.at, b"\0")
            return state[: self.at] + self.letter * self.count + state[self.at + self.count :], None
        if self.kind == "append":
            return state + self.letter * self.count, None
        if self.kind == "truncate":
            return state[: self.at].ljust(self.at, b"\0"), None
        if self.kind == "read":
            return state, state[self.at : self.at + self.count]
        return state, len(state)


# One letter per unit; a unit that is not the same all over was torn.
def units(data, unit):
    parts = [data[at : at + unit] for at in range(0, len(data), unit)]
    if unit > 1 and any(part != part[:1] * unit for part in parts):
        raise SystemExit("file_checker: a page is torn, or half of one is there")
    return b"".join(part[:1] for part in parts)


def perform(operation, mount, unit):
    file, appender = mount
    kind, at, count, letter = operation.kind, operation.at, operation.count, operation.letter
    operation.began = time.monotonic()
    if kind == "write":
        os.pwrite(file, letter * (count * unit), at * unit)
    elif kind == "append":
        os.write(appender, letter * (count * unit))
    elif kind == "truncate":
        os.ftruncate(file, at * unit)
    elif kind == "read":
        operation.result = os.pread(file, count * unit, at * unit)
    else:
        operation.result = os.fstat(file).st_size
    operation.ended = time.monotonic()
    if kind == "read":
        operation.result = units(operation.result, unit)
    elif kind == "size":
        if operation.result % unit != 0:
            raise SystemExit("file_checker: the file has a size that nobody gave it")
        operation.result //= unit


# Every state that the file can be in after these operations.
def explain(state, operations):
    seen, ends = set(), set()

    def search(left, state):
        if (left, state) in seen:
            return
        seen.add((left, state))
        if not left:
            ends.add(state)
            return
        first_end = min(operations[i].ended for i in left)
        for i in left:
            if operations[i].began > first_end:
                continue
            after, result = operations[i].apply(state)
            if result is None or result == operations[i].result:
                search(left - {i}, after)

    search(frozenset(range(len(operations))), state)
    return ends


def random_operation(random_, unit, size, letter):
    kind = random_.choices(["write", "append", "truncate", "read", "size"], [3, 3, 3, 2, 1])[0]
    if unit == 1:
        if kind == "read":
            return Operation(kind, 0, PAGE)
        # All of it stays within one page.
        return Operation(kind, random_.randrange(0, 1500), random_.randrange(1, 400), letter)
    if kind == "append":
        return Operation(kind, 0, random_.randrange(1, 9), letter)
    # Each page is one operation of its own.
    return Operation(kind, random_.randrange(0, size + 4), 1, letter)


def run_round(random_, mounts, letters):
    unit = random_.choice([1, PAGE])
    start = random_.randrange(0, 1000 if unit == 1 else 40)
    state = b"=" * start
    os.ftruncate(mounts[0][0], 0)
    os.pwrite(mounts[0][0], state * unit, 0)
    operations = [random_operation(random_, unit, start, next(letters)) for _ in mounts]
    barrier = threading.Barrier(len(mounts))
    failures = []

    def work(operation, mount):
        barrier.wait()
        try:
            perform(operation, mount, unit)
        except (OSError, SystemExit) as error:
            failures.append(f"{operation}: {error}")

    threads = [threading.Thread(target=work, args=pair) for pair in zip(operations, mounts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit("\n".join(failures))
    last = [units(os.pread(file, 1 << 20, 0), unit) for file, _ in mounts]
    if any(each != last[0] for each in last):
        raise SystemExit(f"file_checker: the mounts show different files: {[runs(each) for each in last]}")
    if last[0] not in explain(state, operations):
        text = "\n".join(f"  {operation}" for operation in sorted(operations, key=lambda each: each.began))
        raise SystemExit(f"file_checker: no order explains this (unit {unit}):\n  {runs(state)}\n{text}\n  {runs(last[0])}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2, help="of each mount")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"file_checker: seed {seed}", file=sys.stderr)
    random_ = random.Random(seed)
    mounts = []
    for name in options.files:
        for _ in range(options.threads):
            file = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
            mounts.append((file, os.open(name, os.O_WRONLY | os.O_APPEND)))
    letters = (bytes([1 + number % 255]) for number in range(1 << 30))
    for _ in range(options.rounds):
        run_round(random_, mounts, letters)
    print(f"{options.rounds} rounds of {len(mounts)} operations, each explained by some order")


if __name__ == "__main__":
    main()
