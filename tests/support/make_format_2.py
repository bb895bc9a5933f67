#!/usr/bin/env python3
"""Makes the store of a stopped tarnd what a tarn before store format 3 would have left.

usage: make_format_2.py STORE

What is new in format 3 becomes garbage: the lists of losses, and a flag of the superblocks. docs/store-format.md has the
places.
"""
import struct
import sys

SUPERBLOCKS = (0, 512 << 10)
LOSSES = (64 << 10, 576 << 10)
BLOCK = 4096


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


with open(sys.argv[1], "r+b") as store:
    for offset in SUPERBLOCKS:
        store.seek(offset)
        block = bytearray(store.read(BLOCK))
        assert block[:8] == b"tarnstor" and struct.unpack_from("<I", block, 8) == (3,)
        struct.pack_into("<I", block, 8, 2)
        struct.pack_into("<II", block, 96, 0, 0)
        struct.pack_into("<I", block, 100, crc32c(block))
        store.seek(offset)
        store.write(block)
    for offset in LOSSES:
        store.seek(offset)
        store.write(b"\xee" * BLOCK)
