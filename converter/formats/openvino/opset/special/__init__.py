"""The pairs that no row can say, by theme; reading and writing of an operation stand side by side.

Importing the themes fills `LIFT` and `LOWER`.
"""

from __future__ import annotations

import importlib
import pkgutil

from converter.formats.openvino.opset.special.base import LIFT, LOWER

for _theme in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_theme.name}")

__all__ = ["LIFT", "LOWER"]
