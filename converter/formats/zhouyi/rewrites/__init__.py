"""Rewrites by theme; each takes a node and a builder in front of it and returns the replacement, or None."""

from __future__ import annotations

import importlib

from converter.formats.zhouyi.rewrites.register import REWRITES

for theme in ("elementwise", "reducing", "windows", "moving", "quantised", "recurrent", "detection", "sampling"):
    importlib.import_module(f"converter.formats.zhouyi.rewrites.{theme}")

__all__ = ["REWRITES"]
