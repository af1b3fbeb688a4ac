"""The entry point: the group of commands, and what becomes of errors."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="netconv")
def app() -> None:
    """Convert neural networks and prove that the result is the same network."""


def run() -> None:
    app(prog_name="netconv")
