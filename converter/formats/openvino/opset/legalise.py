"""Canonical operators rewritten for the opsets, where no row or pair says them."""

from __future__ import annotations

from converter.passes.legalise import Rewrites

REWRITES: Rewrites = {}
