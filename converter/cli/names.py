"""The commands by name."""

from __future__ import annotations

import importlib

import click

# command -> its line in the help; the module converter.cli.commands.NAME is imported when the
# command is called
COMMANDS = {
    "convert": "Convert a model into another format.",
    "quantize": "Make an int8 network of a float one.",
    "check": "Is a file valid; what in it would not convert?",
    "inspect": "What is in a model: inputs, outputs, layers, weights.",
    "run": "Execute a model.",
    "diff": "Differences of structure between two models.",
    "verify": "Differences of numbers between two models.",
    "certify-check": "Check a certificate of verify again.",
    "view": "Draw a model, or two side by side, as a page.",
    "reduce": "The smallest part of two models that differs.",
    "extract": "Cut a part out of a model.",
    "roundtrip": "Convert there and back and compare.",
    "batch": "Run many conversions, resumable.",
    "report": "Render stored results.",
    "formats": "The formats and their flavours.",
    "ops": "The layer types of a format.",
    "explain": "What a diagnostic code means.",
    "env": "Versions, engines and settings.",
    "completion": "Completion for a shell.",
}


def command(name: str) -> click.Command:
    """Load and return a command."""
    found: click.Command = importlib.import_module(
        f"converter.cli.commands.{name.replace('-', '_')}"
    ).command
    return found
