"""netconv completion"""

from __future__ import annotations

import click

from converter.cli.common import Choice
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.declare import Options


@subcommand(
    "completion",
    Options,
    examples='eval "$(netconv completion bash)"\nnetconv completion fish > '
    "~/.config/fish/completions/netconv.fish",
)
@click.argument("shell", metavar="SHELL", type=Choice(["bash", "zsh", "fish"]))
def command(console: Console, _: Options, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from converter.cli.app import app

    found = get_completion_class(shell)
    assert found is not None
    console.result = found(app, {}, "netconv", "_NETCONV_COMPLETE").source()
    console.document(console.result)
