"""Canonical operators rewritten for the format, where no row or pair says them."""

from __future__ import annotations

from converter.formats.zhouyi.rewrites import REWRITES

__all__ = ["REWRITES"]
