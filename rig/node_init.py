"""The first process of a node: it and all below run in namespaces of their own, and end with it.

Mounts, interfaces, filter rules and processes of kubelet and containerd exist nowhere else, so killing this one process
removes them all, however the tests ended. Standard library, configured by one JSON file.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

HIDDEN = "/run/muster"
WAIT_SECONDS = 300


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    hide(told["hidden"])
    pretend(told["kernel"])
    lend(told["lent"])
    connect(told["network"])
    watched = {start(told, "containerd")}
    until(lambda: run(*told["ready"], check=False) == 0, "containerd")
    run(*told["import"])
    watched |= {start(told, "coredns"), start(told, "kubelet")}
    return reap(watched)


def hide(folders):
    """Mount the rig's folders over those that kubelet and containerd fill whatever their options.

    The machine's own stay intact.
    """
    for own, folder in folders.items():
        os.makedirs(folder, exist_ok=True)
        run("mount", "--bind", own, folder)
    os.makedirs(HIDDEN, exist_ok=True)


def pretend(kernel):
    """Mount files with the wanted values over kernel settings.

    The kubelet changes what differs in the kernel, for the whole machine. So it finds what it wants.
    """
    for number, (path, value) in enumerate(sorted(kernel.items())):
        file = f"{HIDDEN}/kernel-{number}"
        with open(file, "w", encoding="ascii") as into:
            into.write(f"{value}\n")
        run("mount", "--bind", file, path)


def lend(folders):
    """Mount folders of the machine that pods may read and not write."""
    for source, target in folders.items():
        os.makedirs(target, exist_ok=True)
        run("mount", "--bind", source, target)
        run("mount", "-o", "remount,bind,ro", target)


def connect(network):
    """Create a bridge for pods with the cable's end in it; the machine itself is their gateway."""
    run("ip", "link", "set", "lo", "up")
    until(lambda: network["cable"] in dict(map(reversed, socket.if_nameindex())), "cable")
    run("ip", "link", "add", "pods", "type", "bridge")
    run("ip", "link", "set", network["cable"], "master", "pods")
    for name in (network["cable"], "pods"):
        run("ip", "link", "set", name, "up")
    run("ip", "address", "add", f"{network['node']}/24", "dev", "pods")
    run("ip", "route", "add", "default", "via", network["host"])


def start(told, name):
    with open(os.path.join(told["logs"], f"{name}.log"), "ab") as log:
        return subprocess.Popen(told["programs"][name], stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid


def run(*words, check=True):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.returncode


def until(is_so, what):
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"{what} is not there after {WAIT_SECONDS} s")
        time.sleep(0.1)


def reap(watched):
    """Reap orphans; exit if a watched program ended, since a node without one of its programs is useless."""
    while True:
        pid, status = os.wait()
        if pid in watched:
            sys.exit(f"process {pid} of {sorted(watched)} ended: {status}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
