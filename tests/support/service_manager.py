#!/usr/bin/env python3
"""As much of a service manager as tarnd needs: NOTIFY_SOCKET with a descriptor store, and restarts.

usage: service_manager.py DIRECTORY COMMAND...

Restarts COMMAND when a signal ended it, with the descriptors it had stored, and ends when it ends by itself. Keeps its
process id in DIRECTORY/pid, and says on stdout what it is told.
"""
import os
import signal
import socket
import sys


def spawn(command, stored, address):
    pid = os.fork()
    if pid != 0:
        return pid
    for place, (_, fd) in enumerate(stored, 3):
        os.dup2(fd, place)
    os.environ["NOTIFY_SOCKET"] = address
    if stored:
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(stored))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in stored)
    os.execvp(command[0], command)


def heed(notifications, stored):
    """Everything that was said by now."""
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(notifications, 4096, 8)
        except BlockingIOError:
            return
        fields = dict(line.split("=", 1) for line in message.decode().splitlines() if "=" in line)
        print(message.decode().replace("\n", " "), flush=True)
        name = fields.get("FDNAME", "stored")
        if "FDSTORE" in fields:
            # Beyond the places where they are passed on.
            stored += [(name, os.dup2(fd, 100 + len(stored), inheritable=True)) for fd in fds]
            for fd in fds:
                os.close(fd)
        if "FDSTOREREMOVE" in fields:
            for _, fd in [each for each in stored if each[0] == name]:
                os.close(fd)
            stored[:] = [each for each in stored if each[0] != name]


def main():
    directory, command = sys.argv[1], sys.argv[2:]
    address = os.path.join(directory, "notify")
    notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    notifications.bind(address)
    stored = []
    while True:
        pid = spawn(command, stored, address)
        with open(os.path.join(directory, "pid"), "w") as file:
            file.write(f"{pid}\n")
        # Messages wait in the socket; what matters is said before the process ends.
        _, status = os.waitpid(pid, 0)
        heed(notifications, stored)
        if not os.WIFSIGNALED(status):
            sys.exit(os.WEXITSTATUS(status))
        print("ended by", signal.Signals(os.WTERMSIG(status)).name, flush=True)


main()
