"""Addresses of replicas that share a machine: one in 127.0.0.0/8 for each, so that none shares a port with another."""

from __future__ import annotations

import hashlib

LOCAL = "127.0.0.1"  # how a local cluster names every replica's host


def address(mark: str, role: str, index: int, *, incarnation: int = 0) -> str:
    """Return an address that no other replica of this machine has, but for one chance in 16 million."""
    first, second, third = hashlib.sha256(f"{mark} {role}-{index}.{incarnation}".encode()).digest()[:3]
    return f"127.{first % 254 + 1}.{second}.{third % 254 + 1}"
