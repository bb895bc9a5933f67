"""A disk with a write cache that its power cut empties: a plugin of nbdkit's python, for machine.py.

What was not flushed is either on the disk already or in this process alone, as chance will have it, sector by sector;
SIGKILL is the power cut. config: file=PATH.
"""

import os
import random

API_VERSION = 2
SECTOR = 512

path = None
waiting = {}  # by offset: the sectors that are not on the disk


def config(_, value):
    global path
    path = value


def open(_):
    return os.open(path, os.O_RDWR)


def get_size(disk):
    return os.fstat(disk).st_size


def pread(disk, into, at, _):
    into[:] = os.pread(disk, len(into), at)
    for sector in waiting.keys() & range(at, at + len(into), SECTOR):
        into[sector - at:sector - at + SECTOR] = waiting[sector]


def pwrite(disk, data, at, _):
    written_at_once = random.choice((0, 0.5, 1))
    for begin in range(0, len(data), SECTOR):
        waiting[at + begin] = bytes(data[begin:begin + SECTOR])
        if random.random() < written_at_once:
            write_out(disk, at + begin)


def flush(disk, _):
    for sector in list(waiting):
        write_out(disk, sector)


def write_out(disk, sector):
    os.pwrite(disk, waiting.pop(sector), sector)
