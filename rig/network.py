"""A cable between this machine and one node: a pair of interfaces on a small network of its own.

Pods reach a control plane here at the machine's end. Removing the node's end removes both, so nothing is left behind;
and as the interface's name is unique, two rigs at once never choose the same network.
"""

import os
import socket
import subprocess
from dataclasses import dataclass

NETWORKS = range(1, 200)  # the third number of 10.88.x.0/24


class NoNetwork(Exception):
    """The reason as a message."""


@dataclass(frozen=True)
class Cable:
    number: int

    @property
    def name(self) -> str:
        return f"muster-{self.number}"

    @property
    def far_end(self) -> str:
        return f"{self.name}n"

    @property
    def host(self) -> str:
        """Return the machine's address on it."""
        return f"10.88.{self.number}.1"

    @property
    def node(self) -> str:
        return f"10.88.{self.number}.2"

    @property
    def subnet(self) -> str:
        return f"10.88.{self.number}.0/24"

    def hand_over(self, pid: int) -> None:
        """Move the far end into that process's network; it is removed when the process ends."""
        _ip("link", "set", self.far_end, "netns", str(pid))

    def has_neighbours(self) -> bool:
        """Return whether another rig has a node on this machine."""
        there = {name for _, name in socket.if_nameindex() if name.startswith("muster-")}
        return bool(there - {self.name, self.far_end})

    def remove(self) -> None:
        """Remove the cable, if it still exists: it may have ended with the node's network."""
        subprocess.run(["ip", "link", "delete", self.name], capture_output=True)


def lay() -> Cable:
    """Create the first network that is not in use. Raises NoNetwork."""
    start = os.getpid() % len(NETWORKS)  # so that two that start at once do not collide at each step
    for number in (*NETWORKS[start:], *NETWORKS[:start]):
        cable = Cable(number)
        words = ["ip", "link", "add", cable.name, "type", "veth", "peer", "name", cable.far_end]
        if subprocess.run(words, capture_output=True).returncode == 0:
            _ip("address", "add", f"{cable.host}/24", "dev", cable.name)
            _ip("link", "set", cable.name, "up")
            return cable
    raise NoNetwork("no interface could be made; is this machine allowed to (CAP_NET_ADMIN)?")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise NoNetwork(f"ip {' '.join(words)}: {done.stderr.strip()}")
