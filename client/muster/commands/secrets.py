"""Obtain the values of `--secret NAME`: never from the command line, which others on the machine can see."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from muster.commands.env_file import read_env


def names_only(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "=" in value:
            name = value.partition("=")[0]
            hint = "every user of this machine could see the value; give the name only"
            raise click.BadParameter(f"{name}=...: {hint}, the value is taken from ${name} or prompted for", ctx, param)
    return values


def secret_values(names: Sequence[str], *, is_piped: bool) -> dict[str, str]:
    """Return each name's value: from the standard input (KEY=VALUE lines), the environment, or a prompt."""
    piped = read_env(sys.stdin.read(), source="standard input", here=None) if is_piped else {}
    found = {**piped, **{name: _value(name) for name in names if name not in piped}}
    return found


def _value(name: str) -> str:
    if name in os.environ:
        return os.environ[name]
    if not sys.stdin.isatty():
        ways = f"set the variable {name}, or give `{name}=VALUE` lines to --secrets-stdin"
        raise click.UsageError(f"no value for the secret {name}, and no terminal to prompt on: {ways}")
    value: str = click.prompt(f"Secret {name}", hide_input=True, err=True)
    return value
