"""The location of the package's data files: `schemas/` next to it in a checkout,
`converter/_schemas/` in an installed wheel.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def schema_path(*parts: str) -> Path:
    """Return the path of a data file or folder: `schema_path("openvino", "legacy-ir.rng")`.

    Raises FileNotFoundError if the installation lacks it, which is a fault of the installation and
    not of the user's input.
    """
    installed = _PACKAGE / "_schemas"
    path = (installed if installed.is_dir() else _PACKAGE.parent / "schemas").joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"netconv is not installed completely: {path} is missing")
    return path
