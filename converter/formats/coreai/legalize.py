"""Operators that Core AI lacks."""

from __future__ import annotations

from converter.passes.legalise import Rewrites

REWRITES: Rewrites = {}
