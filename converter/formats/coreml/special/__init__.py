"""Pairs that no row can say, by theme: layers are lifted in `<theme>.py`, operators lowered in `lower_<theme>.py`.

`LIFT` and `LOWER` are filled by importing the themes.
"""

from __future__ import annotations

import importlib
import pkgutil

from converter.formats.coreml.special.registry import LIFT, LOWER

for _theme in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_theme.name}")

__all__ = ["LIFT", "LOWER"]
