"""Output in four forms: a table for people, JSON and YAML (exactly the API's objects) for programs, ids."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Protocol, TypeVar

import click
import yaml

from muster.http.model import Json
from muster.render import STEERING, inert, printable, table, terminal_of

F = TypeVar("F", bound=Callable[..., Any])
M_contra = TypeVar("M_contra", contravariant=True)


class ServerModel(Protocol):
    """A model: it keeps what the server sent."""

    @property
    def raw(self) -> Json: ...


A = TypeVar("A", bound=ServerModel)


@dataclass(frozen=True)
class Output:
    form: str = "table"
    is_quiet: bool = False

    def items(
        self,
        found: Sequence[A],
        *,
        ident: Callable[[A], object],
        headers: Sequence[str],
        row: Callable[[A], Sequence[object]],
        empty: str,
        is_sparse: bool = False,
    ) -> None:
        """Print a list. `empty` says what to do about an empty one; `is_sparse` leaves out columns without values."""
        if self.is_quiet:
            return echo_lines([inert(str(ident(item))) for item in found])
        if self.form != "table":
            return self._plain([item.raw for item in found])
        if not found:
            return note(empty)
        rows: Sequence[Sequence[object]] = [row(item) for item in found]
        if is_sparse:
            headers, rows = without_empty_columns(headers, rows=rows)
        echo_lines(table(headers, rows=rows, terminal=terminal_of()))

    def item(self, found: A, *, ident: object, lines: Callable[[], Sequence[str]]) -> None:
        if self.is_quiet:
            return echo_lines([inert(line) for line in str(ident).split("\n")])
        if self.form != "table":
            return self._plain(found.raw)
        echo_lines(lines())

    def _plain(self, answer: Any) -> None:
        click.echo(as_yaml(answer) if self.form == "yaml" else as_json(answer))


def reading(command: F) -> F:
    """Add `-o` and `-q` to a command, which receives them as one `output`."""

    @functools.wraps(command)
    def outer(*args: Any, output: str, quiet: bool, **options: Any) -> Any:
        return command(*args, output=Output(output, quiet), **options)

    forms = click.Choice(["table", "json", "yaml"])
    outer = click.option("-q", "--quiet", is_flag=True, help="Print only ids, one per line.")(outer)
    outer = click.option("-o", "--output", type=forms, default="table", help="Output format.")(outer)
    return outer  # type: ignore[return-value]


def limited(default: int) -> Callable[[F], F]:
    """Add `-n`, the most items to show."""
    kind = click.IntRange(min=1)
    return click.option(
        "-n", "--limit", metavar="N", type=kind, default=default, show_default=True, help="Maximum number to show."
    )


def as_json(answer: Any, *, indent: int | None = 2) -> str:
    text = json.dumps(answer, indent=indent, ensure_ascii=False)
    # JSON escapes most of it itself; an indented text's line ends are outside its strings.
    return STEERING.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def as_yaml(answer: Any) -> str:
    """Return YAML without the final newline, which printing adds."""
    # Through JSON first: models return read-only mappings, which YAML does not support.
    plain = json.loads(json.dumps(answer))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10**6)
    if any(found[0] != "\n" for found in STEERING.finditer(text)):
        # YAML escapes control characters itself, but not the marks that reorder text.
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=10**6)
    return text.rstrip("\n")


def without_empty_columns(
    headers: Sequence[str], *, rows: Sequence[Sequence[object]]
) -> tuple[list[str], list[list[object]]]:
    """Drop columns without any value, such as the GPU figures of a CPU job or the steps of a young one."""
    kept = [at for at in range(len(headers)) if any(row[at] not in ("", None) for row in rows)]
    return [headers[at] for at in kept], [[row[at] for at in kept] for row in rows]


def say(text: str) -> None:
    """Print a sentence that contains names chosen by others."""
    echo_lines([printable(text)])


def echo_lines(lines: Sequence[str]) -> None:
    if lines:
        click.echo("\n".join(lines), color=True)


def note(text: str) -> None:
    """Print something for the user, not for a pipe."""
    click.echo(text, err=True, color=True)
