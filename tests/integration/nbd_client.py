# What the lines of nbd_protocol.bats start with: h, a connected libnbd handle, and clients that know no manners.
import os
import socket
import struct
import sys
import time

import nbd

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


def option(number, size):
    return struct.pack(">IQII", 3, 0x49484156454F5054, number, size)


def negotiate():
    client = greet()
    export = name.encode()
    client.sendall(option(1, len(export)) + export)
    assert len(client.recv(10, socket.MSG_WAITALL)) == 10
    return client


def request(command, cookie, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length)


def fails(call):
    try:
        call()
    except nbd.Error as e:
        return e.errno
    raise AssertionError("it worked")


h = connect()
h.set_strict_mode(0)
size = h.get_size()
