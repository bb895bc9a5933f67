# What NBD clients do that have much to do.
import os

import nbd


# 32 MiB at once at an odd offset, and 300 small writes under way together.
def exchange_much(h):
    big = os.urandom(32 << 20)
    h.pwrite(big, 12345)
    assert h.pread(32 << 20, 12345) == big
    for i in range(300):
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i % 256]) * 5000), i * 5000)
    while h.aio_in_flight() > 0:
        h.poll(-1)
        while h.aio_in_flight() > 0 and (cookie := h.aio_peek_command_completed()) > 0:
            assert h.aio_command_completed(cookie)
    for i in range(300):
        assert h.pread(5000, i * 5000) == bytes([i % 256]) * 5000
