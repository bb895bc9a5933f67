#!/usr/bin/env python3
"""A throw-away virtual machine with a real kernel, for what the kernel of this machine lacks: NBD devices, for example.

machine.py start DIR [--cpus N] [--memory SIZE] [--disk SIZE]
                           boots it and waits until it takes commands; its state is in DIR
machine.py exec DIR LINE   runs a line of bash there, prints what it prints, and ends with its status
machine.py kill DIR        cuts its power; the disk keeps what it had
machine.py boot DIR        boots it again
machine.py stop DIR        ends it for good

There, /tarn is the build directory ($TARN_BUILD or build/release), /vm is this directory, and /dev/vdb is the disk.
Everything else is in its memory. It is emulated: good for correctness and for counting, not for measuring time. Needs
root, for image.bash. The disk is a file of this machine: a power cut loses nothing that was written to it.
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

HERE = pathlib.Path(__file__).resolve().parent
BOOT_TIMEOUT_S = 180


class Machine:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory).resolve()
        self.conf = self.directory / "machine.json"

    def start(self, conf):
        self.directory.mkdir(parents=True, exist_ok=True)
        made = subprocess.run([HERE / "image.bash"], check=True, stdout=subprocess.PIPE, text=True)
        conf["image"] = made.stdout.strip()
        conf["build"] = os.environ.get("TARN_BUILD") or str(HERE.parents[1] / "build/release")
        self.conf.write_text(json.dumps(conf))
        subprocess.run(["truncate", "-s", conf["disk"], self.directory / "disk"], check=True)
        self.boot()

    def boot(self):
        conf = json.loads(self.conf.read_text())
        image = conf["image"]
        kernel_arguments = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable nowatchdog audit=0"
        qemu = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-machine", "q35,hpet=off",
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-smp", str(conf["cpus"]), "-m", conf["memory"],
            "-kernel", f"{image}/vmlinux", "-initrd", f"{image}/initrd", "-append", kernel_arguments,
            "-serial", "file:console.log",
            "-drive", f"if=virtio,format=raw,readonly=on,file={image}/root.ext4",
            "-drive", "if=virtio,format=raw,cache=writeback,file=disk",
            "-device", "virtio-serial-pci", "-chardev", "socket,id=agent,path=agent.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=agent",
            "-virtfs", f"local,path={HERE},mount_tag=vm,security_model=none,readonly=on",
            "-virtfs", f"local,path={conf['build']},mount_tag=tarn,security_model=none,readonly=on",
        ]
        # The names are relative: those of sockets must be short.
        (self.directory / "agent.sock").unlink(missing_ok=True)
        with open(self.directory / "qemu.log", "ab") as log:
            process = subprocess.Popen(qemu, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        (self.directory / "pid").write_text(str(process.pid))
        until = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the machine did not boot: see console.log and qemu.log in {self.directory}")
            try:
                if self.execute("true", timeout=1, quiet=True) == 0:
                    return
            except TimeoutError:
                continue
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.05)  # QEMU tells nobody when it listens

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

    def kill(self):
        """Only the process that was started here."""
        pid = int((self.directory / "pid").read_text())
        try:
            process = os.pidfd_open(pid)
            if not pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"qemu-system"):
                return
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [])  # until it has ended
        except (FileNotFoundError, ProcessLookupError):
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("start", "exec", "kill", "boot", "stop"):
        options = verbs.add_parser(verb)
        options.add_argument("directory")
        if verb == "start":
            options.add_argument("--cpus", type=int, default=2)
            options.add_argument("--memory", default="1G")
            options.add_argument("--disk", default="1G")
        if verb == "exec":
            options.add_argument("command")
    arguments = parser.parse_args()
    machine = Machine(arguments.directory)
    if arguments.verb == "start":
        machine.start({"cpus": arguments.cpus, "memory": arguments.memory, "disk": arguments.disk})
    elif arguments.verb == "exec":
        sys.exit(machine.execute(arguments.command))
    elif arguments.verb == "boot":
        machine.boot()
    else:
        machine.kill()


main()
