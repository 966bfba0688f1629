"""muster completion: print the script with which a shell completes words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

HOW = {
    "bash": 'eval "$(muster completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(muster completion zsh)"    # in ~/.zshrc',
    "fish": "muster completion fish > ~/.config/fish/completions/muster.fish",
}


@click.command(epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(sorted(HOW)))
def completion(*, shell: str) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of these shells"
    click.echo(kind(click.get_current_context().find_root().command, {}, "muster", "_MUSTER_COMPLETE").source())
