"""Read models with the options of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from converter.commands.options.shared import Reading

if TYPE_CHECKING:
    from converter.api import Model


def read(file: Path, options: Reading) -> Model:
    """Read the model of a file."""
    from converter import api

    return api.load(
        file, options.source, options.weights, options.dequantize, signature=options.signature
    )
