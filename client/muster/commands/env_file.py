"""Environments in files, as python-dotenv and Compose read them. Pure: text in, values out."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

from dotenv.parser import Binding, parse_stream
from dotenv.variables import Variable, parse_variables

from muster.errors import JobFileError

_OPENS_QUOTE = re.compile(r"""\s*(?:export\s+)?[^=\s]+[^\S\n]*=[^\S\n]*(['"])""")


def read_env(text: str, *, source: str, here: Mapping[str, str] | None) -> dict[str, str]:
    """Return the variables of a file; `here`: this shell's, which the file may name. None: values are as written.

    Quotes may span lines, and double ones know escapes such as `\\n`. `NAME` alone is taken from `here`, and so is
    `${NAME}` outside of single quotes, where no line above sets it; `${NAME:-text}` says what it is otherwise. Other
    dollar signs are text. Raises JobFileError, naming the line.
    """
    found: dict[str, str] = {}
    for one in parse_stream(io.StringIO(text.removeprefix("\ufeff"))):
        where = f"{source}, line {_line(one)}"
        if one.error:
            raise JobFileError(f"{where}: {_complaint(one.original.string)}")
        if one.key is None:
            continue
        known = found if here is None else {**here, **found}
        if one.value is None:
            if one.key not in known:
                raise JobFileError(f"{where}: {one.key!r} is not KEY=VALUE, and no variable of this shell either")
            found[one.key] = known[one.key]
        elif here is None or _quote(one) == "'":
            found[one.key] = one.value
        else:
            found[one.key] = _resolved(one.value, known=known, where=where)
    return found


def _resolved(value: str, *, known: Mapping[str, str], where: str) -> str:
    parts = []
    for atom in parse_variables(value):
        if isinstance(atom, Variable) and atom.name not in known and atom.default is None:
            ways = f"write ${{{atom.name}:-}} for an empty text, or single quotes to keep it as it is"
            raise JobFileError(f"{where}: ${{{atom.name}}} is set neither above nor in this shell; {ways}")
        parts.append(atom.resolve(known))
    return "".join(parts)


def _quote(one: Binding) -> str:
    found = _OPENS_QUOTE.match(one.original.string)
    return found[1] if found else ""


def _line(one: Binding) -> int:
    """Return its line; the parser counts empty lines above as its own."""
    text = one.original.string
    return one.original.line + text[: len(text) - len(text.lstrip())].count("\n")


def _complaint(text: str) -> str:
    if _OPENS_QUOTE.match(text):
        return "a quote is not closed, or something follows it"
    return f"{text.strip()[:40]!r} is not KEY=VALUE"
