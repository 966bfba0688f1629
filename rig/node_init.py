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
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

HIDDEN = "/run/muster"
WAIT_SECONDS = 300


def main(path: str) -> NoReturn:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    hide(config["hidden"])
    pretend(config["kernel"])
    lend(config["lent"])
    connect(config["network"])
    watched = {start(config, "containerd")}
    until(lambda: run(*config["ready"], check=False) == 0, "containerd")
    run(*config["import"])
    watched |= {start(config, name) for name in config["programs"] if name != "containerd"}
    reap(watched)


def hide(folders: Mapping[str, str]) -> None:
    """Mount the rig's folders over those that kubelet and containerd fill whatever their options.

    The machine's own stay intact.
    """
    for own, folder in folders.items():
        os.makedirs(folder, exist_ok=True)
        run("mount", "--bind", own, folder)
    os.makedirs(HIDDEN, exist_ok=True)


def pretend(kernel: Mapping[str, int]) -> None:
    """Mount files with the wanted values over kernel settings.

    The kubelet changes what differs in the kernel, for the whole machine. So it finds what it wants.
    """
    for number, (path, value) in enumerate(sorted(kernel.items())):
        file = f"{HIDDEN}/kernel-{number}"
        with open(file, "w", encoding="ascii") as into:
            into.write(f"{value}\n")
        run("mount", "--bind", file, path)


def lend(folders: Mapping[str, str]) -> None:
    """Mount folders of the machine that pods may read and not write."""
    for source, target in folders.items():
        os.makedirs(target, exist_ok=True)
        run("mount", "--bind", source, target)
        run("mount", "-o", "remount,bind,ro", target)


def connect(network: Mapping[str, Any]) -> None:
    """Create a bridge for pods with the cable's end in it; the machine itself is their gateway.

    Where it is filtered, what pods of the bridge send each other passes the node's filter too.
    """
    run("ip", "link", "set", "lo", "up")
    until(lambda: network["cable"] in (name for _, name in socket.if_nameindex()), "cable")
    run("ip", "link", "add", "pods", "type", "bridge")
    run("ip", "link", "set", network["cable"], "master", "pods")
    for name in (network["cable"], "pods"):
        run("ip", "link", "set", name, "up")
    run("ip", "address", "add", f"{network['node']}/24", "dev", "pods")
    if network["service"]:
        run("ip", "address", "add", f"{network['service']}/32", "dev", "pods")
    else:  # a kube-proxy sends what pods send to Services on to other pods
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
            file.write("1")
    run("ip", "route", "add", "default", "via", network["host"])
    if network["filtered"]:
        with open("/proc/sys/net/bridge/bridge-nf-call-iptables", "w", encoding="ascii") as file:
            file.write("1")


def start(config: Mapping[str, Any], name: str) -> int:
    with open(os.path.join(config["logs"], f"{name}.log"), "ab") as log:
        return subprocess.Popen(config["programs"][name], stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid


def run(*words: str, check: bool = True) -> int:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.returncode


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"{what} is not there after {WAIT_SECONDS} s")
        time.sleep(0.1)


def reap(watched: set[int]) -> NoReturn:
    """Reap orphans; exit if a watched program ended, since a node without one of its programs is useless."""
    while True:
        pid, status = os.wait()
        if pid in watched:
            sys.exit(f"process {pid} of {sorted(watched)} ended: {status}")


if __name__ == "__main__":
    main(sys.argv[1])
