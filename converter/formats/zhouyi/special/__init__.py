"""The pairs that no row can say, by theme; `LIFT` by layer type, `LOWER` by canonical operator."""

from __future__ import annotations

import importlib

from converter.formats.zhouyi.special.register import LIFT, LOWER

THEMES = (
    "logic",
    "elementwise",
    "windows",
    "pooling",
    "norms",
    "reducing",
    "moving",
    "blocks",
    "images",
    "recurrent",
    "products",
    "detection",
    "tables",
    "control",
    "groups",
    "undocumented",
)
for theme in THEMES:
    importlib.import_module(f"converter.formats.zhouyi.special.{theme}")

__all__ = ["LIFT", "LOWER"]
