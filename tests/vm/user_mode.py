"""User-mode Linux for machine.py: a kernel that is a process of this machine, and whose processes are, too.

It boots several times faster than an emulated machine and runs programs at their full speed; but it has one CPU, and
panics at once on some CPUs of this machine: so it is asked once whether it works (works_here).
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import platform
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What it keeps a machine's memory in: a file of another file system would be written to a disk now and then.
MEMORY = "/dev/shm"
ONLY_EMULATED = ("qemu", "root", "nvme", "volatile", "cable", "forward", "server", "changes")
PROBE_TIMEOUT_S = 60
CLONE_NEWPID = 0x20000000


def can_be(conf):
    """Whether it has what a machine is to have."""
    return (not any(conf[option] for option in ONLY_EMULATED) and conf["cpus"] in (None, 1) and
            "://" not in conf["disk"] and not os.environ.get("TARN_VM_KERNEL"))


def works_here(conf):
    """Whether there is room for the machine, and another one has booted on this CPU since this machine was booted."""
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize < int(conf["memory"][:-1]) << {"M": 20, "G": 30}[conf["memory"][-1]]:
        print(f"machine.py: {MEMORY} has no room for user-mode Linux, so it is QEMU", file=sys.stderr)
        return False
    with open(f"{conf['image']}/uml-{this_cpu()}", "a+", encoding="ascii") as known:
        fcntl.flock(known, fcntl.LOCK_EX)
        known.seek(0)
        verdict = known.read()
        if not verdict:
            verdict = "works" if boots() else "fails"
            known.write(verdict)
    if verdict != "works":
        print("machine.py: user-mode Linux does not work on this CPU, so it is QEMU", file=sys.stderr)
    return verdict == "works"


def this_cpu():
    """A virtual machine may wake up on another one."""
    kind = re.findall(r"^(?:vendor_id|cpu family|model|stepping|flags)\s*:.*$",
                      pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0], re.MULTILINE)
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256("\n".join([*kind, boot, platform.release()]).encode()).hexdigest()[:16]


def boots():
    with tempfile.TemporaryDirectory() as directory:
        def machine(verb, *options):
            return subprocess.run([HERE / "machine.py", verb, directory, *options], timeout=PROBE_TIMEOUT_S,
                                  env={**os.environ, "TARN_VM": "uml"}, capture_output=True).returncode == 0
        try:
            return machine("start", "--memory", "128M", "--disk", "1M")
        except subprocess.TimeoutExpired:
            return False
        finally:
            machine("stop")


def end_processes_with_the_next():
    """The next process of this one, and all that it starts, end together. When the kernel of a machine is killed alone,
    the machine's processes go on, and as ones of this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def run(conf):
    """Until the machine ends; its directory is the current one."""
    line, end = socket.socketpair()
    # Each of its system calls is a way to its kernel and back, which takes five times as long from one CPU to another.
    os.sched_setaffinity(0, {random.choice(list(os.sched_getaffinity(0)))})
    shutil.rmtree("uml", ignore_errors=True)
    image = conf["image"]
    # Its lock of a file that it only reads (without a "c") would keep QEMU from reading that, too.
    with open("console.log", "ab") as console:
        kernel = subprocess.Popen(
            ["linux.uml", f"mem={conf['memory']}", f"initrd={image}/initrd", f"ubd0rc={image}/root.ext4",
             f"ubd1={conf['disk']}", "con=null", "con0=null,fd:1", f"ssl0=fd:{end.fileno()},fd:{end.fileno()}",
             "uml_dir=.", "umid=uml", "quiet", "panic=-1", "noreboot", f"vm={HERE}", f"tarn={conf['build']}"],
            executable=f"{image}/linux.uml", stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            pass_fds=[end.fileno()], env={"HOME": "/", "TMPDIR": MEMORY})
    end.close()
    with contextlib.suppress(ConnectionError):  # its end of the line
        relay(line, os.pidfd_open(kernel.pid))
    kernel.wait()


def relay(line, ended):
    """Between the agent's line and who connects to agent.sock, one at a time, until the kernel has ended."""
    # The agent says something once it listens.
    if line not in select.select([line, ended], [], [])[0]:
        return
    agent = Agent(line)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("agent.sock")
    listener.listen()
    client, asked = None, b""
    while True:
        ready = select.select([line, ended, client or listener], [], [])[0]
        if line in ready:
            data = received(line)
            if not data:
                return
            answers = agent.answers(data)
            if client:
                with contextlib.suppress(ConnectionError):  # it is gone, which is noticed below
                    client.sendall(answers)
        if ended in ready:
            return
        if listener in ready:
            client, asked = listener.accept()[0], b""
        elif client in ready:
            data = received(client)
            if data:
                whole, asked = whole_lines(asked + data)
                agent.ask(whole)
            else:
                client.close()
                client = None


def received(end):
    """Nothing: the other end is gone."""
    try:
        return end.recv(65536)
    except ConnectionResetError:
        return b""


class Agent:
    """Which tells how many bytes it has read, in lines of their own, since a terminal of user-mode Linux that was given
    more than it has room for (4096) is deaf from then on."""

    WINDOW = 2048

    def __init__(self, line):
        self.line = line
        self.unsent = b""
        self.unread = 0
        self.answered = b""

    def ask(self, requests):
        self.unsent += requests
        piece, self.unsent = self.unsent[:self.WINDOW - self.unread], self.unsent[self.WINDOW - self.unread:]
        self.unread += len(piece)
        self.line.sendall(piece)

    def answers(self, data):
        """Those that are whole now."""
        whole, self.answered = whole_lines(self.answered + data)
        lines = whole.splitlines(keepends=True)
        self.unread -= sum(int(line) for line in lines if not line.startswith(b"{"))
        self.ask(b"")
        return b"".join(line for line in lines if line.startswith(b"{"))


def whole_lines(data):
    """Those, and the rest. A client that comes and goes leaves no half one."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]
