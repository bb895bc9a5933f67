"""The agent in a virtual machine: runs the commands that machine.py sends, and sends back what they print.

Each request is a line of JSON, each answer several: {"out": ...}, {"err": ...} (base64) and last {"status": ...}, each
with the number of the request.
"""

import base64
import json
import os
import selectors
import subprocess
import time
import tty

ENVIRONMENT = {
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "PATH": "/tarn/daemon:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DM_DISABLE_UDEV": "1",
}


def prepare():
    """What systemd does where it is the first process."""
    for kind, place in (("tmpfs", "/run"), ("tmpfs", "/tmp"), ("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")):
        os.makedirs(place, exist_ok=True)
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink("/proc/self/" + target, "/dev/" + name)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def port():
    """The end of the virtual serial line."""
    for name in os.listdir("/dev"):
        if name.startswith("vport"):
            return os.open("/dev/" + name, os.O_RDWR)
    # User-mode Linux has a terminal instead.
    line = os.open("/dev/ttyS0", os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    return line


def requests(line):
    got = rest = b""
    while True:
        if os.isatty(line):
            os.write(line, b"%d\n" % len(got))  # user_mode.py waits for it
        got = os.read(line, 65536)
        if not got:  # nobody is at the other end, and no event tells when somebody is
            rest = b""
            time.sleep(0.02)
            continue
        *whole, rest = (rest + got).split(b"\n")
        yield from map(json.loads, whole)


def run(command, say):
    process = subprocess.Popen(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=ENVIRONMENT, cwd="/root", start_new_session=True)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "out")
        selector.register(process.stderr, selectors.EVENT_READ, "err")
        # What a daemon holds open after the command has ended does not keep us.
        while selector.get_map() and process.poll() is None:
            relay(selector, say, 0.05)
        while relay(selector, say, 0):
            pass
    say({"status": process.wait()})


def relay(selector, say, timeout):
    """False: there was nothing."""
    ready = selector.select(timeout)
    for key, _ in ready:
        data = os.read(key.fd, 65536)
        if data:
            say({key.data: base64.b64encode(data).decode()})
        else:
            selector.unregister(key.fileobj)
    return bool(ready)


def main():
    if os.getpid() == 1:
        prepare()
    line = port()

    for request in requests(line):
        def say(answer, number=request["number"]):
            data = json.dumps({"number": number, **answer}).encode() + b"\n"
            while data:
                data = data[os.write(line, data):]

        run(request["command"], say)


main()
