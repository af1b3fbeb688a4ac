"""The commands by name."""

from __future__ import annotations

import importlib

import click

# command -> its line in the help; the module converter.cli.commands.NAME is imported when the
# command is called
COMMANDS = {
    "convert": "Convert a model to another format.",
    "check": "Check that a file is valid and can be converted.",
    "inspect": "Show a model's inputs, outputs, layers and weights.",
    "run": "Run a model.",
    "diff": "Compare the structure of two models.",
    "verify": "Compare the numbers of two models.",
    "certify-check": "Check a certificate of verify again.",
    "view": "Draw a model, or two side by side, as a page.",
    "reduce": "Find the smallest part of two models that differs.",
    "extract": "Extract a part of a model.",
    "roundtrip": "Convert there and back and compare.",
    "batch": "Run many conversions, resumable.",
    "report": "Render stored results.",
    "formats": "List the formats and their flavours.",
    "ops": "List the layer types of a format.",
    "explain": "Explain a diagnostic code.",
    "env": "Show versions, engines and settings.",
    "completion": "Print the completion script of a shell.",
}


def command(name: str) -> click.Command:
    """Load and return a command."""
    found: click.Command = importlib.import_module(
        f"converter.cli.commands.{name.replace('-', '_')}"
    ).command
    return found
