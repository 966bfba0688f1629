"""Amounts in the notation of Kubernetes, such as 500m or 32Gi. Pure. (apimachinery, resource.Quantity)"""

import math
import re
from fractions import Fraction
from typing import Any

_SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    **{name: Fraction(1000) ** power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip
_FORM = re.compile(r"(\d{1,20}(?:\.\d{1,20})?|\.\d{1,20})(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", re.ASCII)
# How people write them elsewhere: with blanks, a B behind, or letters of the other case.
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]?)(i?)(B|BYTES?)?", re.IGNORECASE)
_CORES = re.compile(r"(\d+(?:\.\d+)?)\s*(cores?|cpus?|vcpus?)", re.IGNORECASE)

CPU, MEMORY = "cpu", "memory"
EXAMPLES = {CPU: "8 or 500m", MEMORY: "32Gi"}
MOST_CORES = 100_000
MOST_NUMBER = 10**18  # that is given as a number
LEAST_BYTES, MOST_BYTES = 2**20, 2**60


def read(text: str) -> Fraction:
    """Return the number that it stands for; 0 if it is malformed."""
    found = _FORM.fullmatch(text.strip())
    return Fraction(found[1]) * _SUFFIXES[found[2] or ""] if found else Fraction(0)


def parse(value: Any, kind: str) -> str:
    """Return an amount of `CPU` or `MEMORY` as Kubernetes takes it; a plain number is taken for its text.

    Raises ValueError with what is wrong and what to write, as the end of a sentence that begins with the field.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) < MOST_NUMBER and math.isfinite(value):
        value = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    remedy = f"use a Kubernetes quantity such as {EXAMPLES[kind]}"
    if not isinstance(value, str):
        raise ValueError(f"is not understood; {remedy}")
    text = value.strip()
    if not (found := _FORM.fullmatch(text)):
        nearest = _nearest(text, kind)
        raise ValueError(f"is not understood; write {nearest}" if nearest else f"is not understood; {remedy}")
    amount, suffix = read(text), found[2] or ""
    if not amount:
        raise ValueError(f"must be above 0; {remedy}")
    if kind == CPU and suffix not in ("", "m", "k"):
        raise ValueError(f"is no number of cores; {remedy}")
    if kind == CPU and not Fraction(1, 1000) <= amount <= MOST_CORES:
        raise ValueError(f"must be from 1m to {MOST_CORES} cores; {remedy}")
    if kind == MEMORY and not LEAST_BYTES <= amount <= MOST_BYTES:
        is_bare = not suffix and amount <= MOST_CORES
        raise ValueError(f"is {text} bytes; write {text}Gi" if is_bare else f"must be from 1Mi to 1Ei; {remedy}")
    return text


def _nearest(text: str, kind: str) -> str:
    """Return what was probably meant; empty if nothing comes near."""
    if kind == CPU:
        found = _CORES.fullmatch(text)
        return found[1] if found else ""
    found = _WRITTEN.fullmatch(text)
    if not found or not found[2]:
        return ""
    return f"{found[1]}{found[2].upper()}i"
