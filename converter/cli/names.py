"""The commands by name."""

from __future__ import annotations

import importlib

import click

# group of the help -> command -> its line; the module converter.cli.commands.NAME is imported when
# the command is called
GROUPS = {
    "Convert": {
        "convert": "Convert a model to another format.",
        "check": "Check that a file is valid and can be converted.",
        "quantize": "Make an int8 network of a float one.",
        "extract": "Cut a part out of a model.",
    },
    "Compare": {
        "verify": "Compare the outputs of two models.",
        "diff": "Compare the layers and weights of two models.",
        "roundtrip": "Convert a model there and back and compare.",
        "reduce": "Find the smallest part of two models that differs.",
        "certify-check": "Check a certificate of verify again.",
    },
    "Look": {
        "inspect": "Show inputs, outputs, layers and weights of a model.",
        "view": "Draw a model, or two side by side, as a page.",
        "run": "Execute a model.",
    },
    "Many models": {
        "batch": "Run many conversions; resumable.",
        "report": "Render stored results.",
    },
    "About netconv": {
        "formats": "List the formats and their flavors.",
        "ops": "List the layer types of a format.",
        "explain": "Explain a diagnostic code.",
        "env": "Show versions, engines and settings.",
        "completion": "Print a completion script for a shell.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}


def command(name: str) -> click.Command:
    """Load and return a command."""
    found: click.Command = importlib.import_module(
        f"converter.cli.commands.{name.replace('-', '_')}"
    ).command
    return found
