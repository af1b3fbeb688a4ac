"""Canonical operators rewritten for NNAPI, where no operation says them at a feature level."""

from __future__ import annotations

import onnx_ir as ir

from converter.passes.legalise import Rewrite, Rewrites
from converter.passes.tidy import tidy


def prepare(model: ir.Model) -> None:
    tidy(model)


def rewrites(level: int) -> Rewrites:
    return REWRITES


REWRITES: dict[tuple[str, str], Rewrite] = {}
