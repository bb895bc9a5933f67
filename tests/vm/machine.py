#!/usr/bin/env python3
"""A throw-away virtual machine with a real kernel, for what the kernel of this machine lacks: NBD devices, for example.

machine.py start DIR [--cpus N] [--memory SIZE] [--disk SIZE|URI] [--root URI] [--nvme] [--volatile] [--cable DIR]
                     [--forward HOST:PORT] [--server SOCKET] [--changes DIRECTORY] [--qemu]
                           boots it and waits until it takes commands; its state is in DIR
machine.py exec DIR LINE   runs a line of bash there, prints what it prints, and ends with its status
machine.py kill DIR        cuts its power; the disk keeps what it had
machine.py wait DIR        waits until it has ended by itself, as by a reboot, which it does not survive
machine.py boot DIR        boots it again
machine.py stop DIR        ends it for good

There, /tarn is the build directory ($TARN_BUILD or build/release), /vm is this directory, and /dev/vdb is the disk,
or /dev/nvme0n1 with --nvme. Everything else is in its memory; with --changes it is on another disk, which begins with
the files of that directory, and systemd runs instead of an agent alone: the directory needs a unit for agent.py. The
disk, and a copy of image.bash's root.ext4 that it has its root from, may be NBD exports, named by URIs; it waits a
minute for one that is gone. Needs root, for image.bash.

It is either one that QEMU emulates, with two CPUs and Debian's kernel, or user-mode Linux, with one CPU, which boots
several times faster: that where it works on this CPU and has what is asked for. More than one CPU, --qemu, or an option
behind --disk above asks for QEMU, and so does TARN_VM_KERNEL (see image.bash). TARN_VM=qemu: always QEMU; TARN_VM=uml:
user-mode Linux wherever it has what is asked for, without a look whether it works. Both are good for correctness, and
an emulated one for counting; neither is for measuring time.

The disk is a file of this machine: a power cut loses nothing that was written to it, but with --volatile what was not
flushed. A cable joins it to the machine in another DIR, which names this one. --forward: HOST:PORT of this machine is
the NBD port of that one. --server: the NBD port of 10.0.2.100, as that machine sees it, is this machine's Unix socket.
"""

import argparse
import base64
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
import zlib

import user_mode

HERE = pathlib.Path(__file__).resolve().parent
BOOT_TIMEOUT_S = 180
# What runs a machine, by its kind: part of its command line.
PROGRAMS = {"qemu": b"qemu-system", "uml": b"user-mode"}


def file(path):
    return f"file={path}" + (",file.reconnect-delay=60" if "://" in path else "")


# The network knows machines by it: no two may be alike.
def mac(directory):
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in zlib.crc32(bytes(directory)).to_bytes(4, "big")[:3])


class Machine:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory).resolve()
        self.conf = self.directory / "machine.json"

    def start(self, conf):
        self.directory.mkdir(parents=True, exist_ok=True)
        made = subprocess.run([HERE / "image.bash"], check=True, stdout=subprocess.PIPE, text=True)
        conf["image"] = made.stdout.strip()
        conf["kind"] = kind_of(conf)
        conf["build"] = os.environ.get("TARN_BUILD") or str(HERE.parents[1] / "build/release")
        if "://" not in conf["disk"]:
            subprocess.run(["truncate", "-s", conf["disk"], self.directory / "disk"], check=True)
            conf["disk"] = "disk"
        if conf["volatile"]:
            conf["disk"] = "nbd+unix:///?socket=volatile.sock"
        if conf["changes"]:
            subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", conf["changes"], self.directory / "changes", "512M"],
                           check=True)
        self.conf.write_text(json.dumps(conf))
        self.boot()

    def boot(self):
        conf = json.loads(self.conf.read_text())
        # The names are relative: those of sockets must be short.
        for name in ("agent.sock", "cable.sock", "volatile.sock"):
            (self.directory / name).unlink(missing_ok=True)
        if conf["volatile"]:
            subprocess.run(["nbdkit", "--unix", "volatile.sock", "--pidfile", "volatile.pid", "python",
                            HERE / "volatile_disk.py", f"file={self.directory}/disk"],
                           cwd=self.directory, check=True)
        if conf["kind"] == "qemu":
            program = self.qemu(conf)
        else:
            program = [HERE / "machine.py", "user-mode"]
            user_mode.end_processes_with_the_next()
        with open(self.directory / f"{conf['kind']}.log", "ab") as log:
            process = subprocess.Popen(program, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        (self.directory / "pid").write_text(str(process.pid))
        until = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the machine ({conf['kind']}) did not boot: see console.log and {conf['kind']}.log in {self.directory}")
            try:
                if self.execute("true", timeout=1, quiet=True) == 0:
                    return
            except TimeoutError:
                continue
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                time.sleep(0.05)  # nobody tells when the agent's socket is there, and QEMU takes one at a time

    def qemu(self, conf):
        image = conf["image"]
        kernel_arguments = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable nowatchdog audit=0"
        qemu = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-machine", "q35,hpet=off",
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-smp", str(conf["cpus"] or 2), "-m", conf["memory"],
            "-kernel", f"{image}/vmlinux", "-initrd", f"{image}/initrd", "-append", kernel_arguments,
            "-serial", "file:console.log",
            "-drive", f"if=none,id=root,format=raw,readonly=on,{file(conf['root'] or f'{image}/root.ext4')}",
            "-drive", f"if=none,id=disk,format=raw,cache=writeback,{file(conf['disk'])}",
            "-device", "virtio-blk-pci,drive=root",
            "-device", "nvme,drive=disk,serial=disk" if conf["nvme"] else "virtio-blk-pci,drive=disk",
            *(["-drive", "if=none,id=changes,format=raw,cache=writeback,file=changes",
               "-device", "virtio-blk-pci,drive=changes"] if conf["changes"] else []),
            "-device", "virtio-serial-pci", "-chardev", "socket,id=agent,path=agent.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=agent",
            "-virtfs", f"local,path={HERE},mount_tag=vm,security_model=none,readonly=on",
            "-virtfs", f"local,path={conf['build']},mount_tag=tarn,security_model=none,readonly=on",
        ]
        if conf["cable"]:
            peer = os.path.relpath(conf["cable"], self.directory)
            qemu += ["-netdev", "dgram,id=cable,local.type=unix,local.path=cable.sock,"
                     f"remote.type=unix,remote.path={peer}/cable.sock",
                     "-device", f"virtio-net-pci,netdev=cable,mac={mac(self.directory)}"]
        if conf["forward"] or conf["server"]:
            outside = "user,id=outside,restrict=on"
            if conf["forward"]:
                outside += f",hostfwd=tcp:{conf['forward']}-:10809"
            if conf["server"]:
                outside += f",guestfwd=tcp:10.0.2.100:10809-cmd:{HERE}/machine.py relay {conf['server']}"
            qemu += ["-netdev", outside, "-device", "virtio-net-pci,netdev=outside"]
        return qemu

    def execute(self, command, timeout=None, quiet=False):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout)
            here = os.getcwd()
            os.chdir(self.directory)
            try:
                line.connect("agent.sock")
            finally:
                os.chdir(here)
            number = time.monotonic_ns()
            line.sendall(json.dumps({"number": number, "command": command}).encode() + b"\n")
            for answer in line.makefile("rb"):
                said = json.loads(answer)
                if said["number"] != number:
                    continue  # to somebody who did not wait for it
                if "status" in said:
                    return said["status"]
                if quiet:
                    continue
                to = sys.stdout if "out" in said else sys.stderr
                to.buffer.write(base64.b64decode(said.get("out") or said["err"]))
                to.flush()
        print("the machine ended", file=sys.stderr)
        return 125

    def end(self, kill):
        if kill:
            self.end_process("volatile.pid", b"nbdkit", kill)
        self.end_process("pid", PROGRAMS[json.loads(self.conf.read_text())["kind"]], kill)

    def end_process(self, pid_file, program, kill):
        """Of one that was started here, and of no other."""
        try:
            pid = int((self.directory / pid_file).read_text())
            process = os.pidfd_open(pid)
            if program not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return
            if kill:
                signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [])  # until it has ended
        except (FileNotFoundError, ProcessLookupError):
            return


def kind_of(conf):
    """What the machine is to be: "qemu" or "uml"."""
    wanted = os.environ.get("TARN_VM", "")
    if wanted not in ("", "qemu", "uml"):
        sys.exit(f"TARN_VM is {wanted}, and can be qemu or uml")
    if wanted == "qemu" or not user_mode.can_be(conf):
        return "qemu"
    return "uml" if wanted == "uml" or user_mode.works_here(conf) else "qemu"


def relay(path):
    """Between the socket and those of standard input and output, until one of them ends."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(fileno=os.dup(0)) as client:
        server.connect(path)
        other = {server: client, client: server}
        while True:
            for ready in select.select(list(other), [], [])[0]:
                data = ready.recv(1 << 20)
                if not data:
                    return
                other[ready].sendall(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("start", "exec", "kill", "wait", "boot", "stop"):
        options = verbs.add_parser(verb)
        options.add_argument("directory")
        if verb == "start":
            options.add_argument("--cpus", type=int)
            options.add_argument("--memory", default="1G")
            options.add_argument("--disk", default="1G")
            options.add_argument("--root")
            options.add_argument("--nvme", action="store_true")
            options.add_argument("--volatile", action="store_true")
            options.add_argument("--cable")
            options.add_argument("--forward")
            options.add_argument("--server")
            options.add_argument("--changes")
            options.add_argument("--qemu", action="store_true")
        if verb == "exec":
            options.add_argument("command")
    verbs.add_parser("relay").add_argument("socket")  # for QEMU, see --server
    verbs.add_parser("user-mode")  # for boot
    arguments = parser.parse_args()
    if arguments.verb == "relay":
        return relay(arguments.socket)
    if arguments.verb == "user-mode":
        return user_mode.run(json.loads(pathlib.Path("machine.json").read_text()))
    machine = Machine(arguments.directory)
    if arguments.verb == "start":
        machine.start({name: value for name, value in vars(arguments).items() if name not in ("verb", "directory")})
    elif arguments.verb == "exec":
        sys.exit(machine.execute(arguments.command))
    elif arguments.verb == "boot":
        machine.boot()
    else:
        machine.end(kill=arguments.verb != "wait")


main()
