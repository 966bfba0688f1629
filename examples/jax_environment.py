"""Meets the other processes of a job at JAX's coordinator, with Python alone: shows what JAX finds, without installing it.

    muster submit --framework plain --nodes 2 -- python jax_environment.py

Needs the three variables that Muster sets for jax.distributed.initialize, and meets as it does: process 0 listens at the
coordinator's address, and all others connect to it.
"""

import json
import os
import socket
import sys
import time

MEETING_SECONDS = 60.0  # any of them may be the last one to come up


def main() -> None:
    address = os.environ["JAX_COORDINATOR_ADDRESS"]
    count, number = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
    # With JAX, this takes the place of everything below: jax.distributed.initialize(address, count, number)
    print(f"process {number} of {count} on {socket.gethostname()}, coordinator at {address}", flush=True)
    host, _, port = address.rpartition(":")
    meeting = (host, int(port))
    met = coordinate(meeting, count) if number == 0 else join(meeting, number)
    print(f"process {number} has met {' '.join(map(str, met))}", flush=True)


def coordinate(meeting: tuple[str, int], count: int) -> list[int]:
    """Waits for all other processes and sends each of them the numbers of all."""
    peers: dict[int, socket.socket] = {}
    with socket.create_server(meeting) as server:
        server.settimeout(MEETING_SECONDS)
        while len(peers) < count - 1:
            try:
                peer, _ = server.accept()
            except socket.timeout:  # noqa: UP041 - TimeoutError is another class before Python 3.10
                missing = sorted(set(range(1, count)) - set(peers))
                sys.exit(f"processes that did not come within {MEETING_SECONDS:.0f} s: {missing}")
            number = int(receive(peer))
            if number in peers or not 0 < number < count:
                sys.exit(f"a process came as number {number}, which is taken or not below {count}")
            peers[number] = peer
    met = sorted([0, *peers])
    for peer in peers.values():
        send(peer, json.dumps(met))
    return met


def join(meeting: tuple[str, int], number: int) -> list[int]:
    with connect(meeting) as coordinator:
        send(coordinator, str(number))
        return json.loads(receive(coordinator))


def connect(meeting: tuple[str, int]) -> socket.socket:
    """Connects once process 0 listens and its name is known."""
    give_up = time.monotonic() + MEETING_SECONDS
    while True:
        try:
            return socket.create_connection(meeting, timeout=MEETING_SECONDS)
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def send(peer: socket.socket, line: str) -> None:
    peer.sendall(f"{line}\n".encode())


def receive(peer: socket.socket) -> str:
    line = peer.makefile().readline()
    if not line:
        raise ConnectionError("another process has left")
    return line


if __name__ == "__main__":
    main()
