# What the lines of nbd_protocol.bats start with: h, a connected libnbd handle, and clients that know no manners.
import os
import socket
import struct
import sys
import time

import nbd

from nbd_load import exchange_much

uri, path, name = sys.argv[1:]


def connect():
    handle = nbd.NBD()
    handle.add_meta_context("base:allocation")
    handle.connect_uri(uri)
    return handle


def greet():
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(path)
    assert len(client.recv(18, socket.MSG_WAITALL)) == 18
    return client


# The first one comes after the client's flags.
def option(number, size, first=True):
    return (struct.pack(">I", 3) if first else b"") + struct.pack(">QII", 0x49484156454F5054, number, size)


def negotiate():
    client = greet()
    export = name.encode()
    client.sendall(option(1, len(export)) + export)
    assert len(client.recv(10, socket.MSG_WAITALL)) == 10
    return client


def request(command, cookie, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length)


# With extended headers and the one metadata context: what libnbd has from version 1.18 on.
class Extended:
    def __init__(self, export, context="base:allocation"):
        self.socket = greet()
        export, context = export.encode(), context.encode()
        name = struct.pack(">I", len(export)) + export
        contexts = name + struct.pack(">II", 1, len(context)) + context
        self.socket.sendall(option(11, 0) + option(10, len(contexts), first=False) + contexts)
        assert self.option_reply() == (1, b"") and self.option_reply()[1][4:] == context
        assert self.option_reply() == (1, b"")
        self.socket.sendall(option(7, len(name) + 2, first=False) + name + bytes(2))
        while (reply := self.option_reply())[0] != 1:
            assert reply[0] == 3

    def receive(self, size):
        data = b""
        while len(data) < size:
            data += (more := self.socket.recv(size - len(data)))
            assert more, "the server closed"
        return data

    def option_reply(self):
        magic, number, kind, size = struct.unpack(">QIII", self.receive(20))
        assert magic == 0x0003E889045565A9
        return kind, self.receive(size)

    # Returns the type of the only chunk of the answer, and its payload.
    def ask(self, command, offset, length, flags=0, payload=b""):
        header = struct.pack(">IHHQQQ", 0x21E41C71, flags, command, 77, offset, length)
        self.socket.sendall(header + payload)
        magic, done, kind, cookie, repeated, size = struct.unpack(">IHHQQQ", self.receive(32))
        assert (magic, done, cookie, repeated) == (0x6E8A278C, 1, 77, offset)
        return kind, self.receive(size)


def fails(call):
    try:
        call()
    except nbd.Error as e:
        return e.errno
    raise AssertionError("it worked")


h = connect()
h.set_strict_mode(0)
size = h.get_size()
