"""Which networks a job's pods may reach besides each other, DNS and the control plane. Pure.

A list of networks in CIDR notation, or the word `internet`: every address that is not of a private network.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from common.errors import Problem

INTERNET = "internet"
MOST = 50
EVERYTHING = ("0.0.0.0/0", "::/0")
# What `internet` leaves out: a cluster's own pods and services, other machines beside it, and metadata services.
INSIDE = {
    # 168.63.129.16 is a metadata service at a public address (Azure)
    "0.0.0.0/0": (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
    ),
    # the first two lead to addresses of IPv4, private ones too (NAT64, 6to4)
    "::/0": ("64:ff9b::/96", "2002::/16", "fc00::/7", "fe80::/10"),
}
# Variables whose programs call hosts on the internet, by the beginning of their names, with what they call.
_CALLS = {
    "HF_": "the Hugging Face Hub", "HUGGING_FACE_": "the Hugging Face Hub", "WANDB_": "Weights & Biases",
    "AWS_": "S3", "S3_": "S3", "COMET_": "Comet", "NEPTUNE_": "Neptune", "MLFLOW_TRACKING_URI": "MLflow",
    "CLEARML_": "ClearML", "GOOGLE_APPLICATION_CREDENTIALS": "Google Cloud", "AZURE_STORAGE_": "Azure Storage",
}  # fmt: skip
_OFFLINE = {"HF_": ("HF_HUB_OFFLINE", "1"), "WANDB_": ("WANDB_MODE", "offline")}


def check(value: Any, problems: list[Problem]) -> None:
    """Add a problem for each entry that is no network."""
    if not isinstance(value, list) or len(value) > MOST:
        words = f'must be a list of at most {MOST} networks, such as ["10.20.0.0/16"], or ["{INTERNET}"]'
        problems.append(Problem("egress", None, words))
        return
    for number, one in enumerate(value):
        if one != INTERNET and network(one) is None:
            words = f"is no network; write one such as 10.20.0.0/16, or {INTERNET} for everything outside"
            problems.append(Problem(f"egress.{number}", one, words))


def beyond(wanted: Iterable[str], allowed: Sequence[str]) -> list[str]:
    """Return the entries that lie in none of those that are allowed. Whoever may reach everything may choose `internet`."""
    return [one for one in wanted if not _is_allowed(one, allowed)]


def _is_allowed(one: str, allowed: Sequence[str]) -> bool:
    if one == INTERNET:
        return INTERNET in allowed or EVERYTHING[0] in allowed
    found = network(one)
    return found is not None and any(
        found.version == other.version and found.subnet_of(other)  # type: ignore[arg-type]
        for other in map(network, allowed)
        if other is not None
    )


def blocks(entries: Iterable[str]) -> list[dict[str, Any]]:
    """Return the entries as blocks of addresses of a NetworkPolicy."""
    found = list[dict[str, Any]]()
    for one in dict.fromkeys(entries):
        if one == INTERNET:
            found += [{"cidr": every, "except": list(INSIDE[every])} for every in EVERYTHING]
        else:
            found.append({"cidr": str(network(one))})
    return found


def closed(env: Mapping[str, str], entries: Iterable[str]) -> list[str]:
    """Return what variables of a job call on the internet, where its pods cannot reach that: `WANDB_API_KEY (Weights & Biases)`.

    A network that was named may have it, such as an object store in the house: then nothing is said of S3 and MLflow.
    """
    given = set(entries)
    if INTERNET in given or given & set(EVERYTHING):
        return []
    inside = {"S3", "MLflow"} if given else set()
    found = dict[str, str]()
    for name in sorted(env):
        for begin, what in _CALLS.items():
            switch, off = _OFFLINE.get(begin, ("", ""))
            if name.startswith(begin) and what not in inside and not (switch and env.get(switch) == off):
                found.setdefault(what, name)
    return [f"{name} ({what})" for what, name in found.items()]


def network(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network that a text names; None if it names none."""
    try:
        return ipaddress.ip_network(value) if isinstance(value, str) else None
    except ValueError:
        return None
