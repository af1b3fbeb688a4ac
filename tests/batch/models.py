"""Small models in bulk, and two that take too long or too much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

import converter
from converter.graph.build import new_model
from converter.model import Model


def small(path: Path, slope: float = 0.1, size: int = 8) -> Path:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, size, size])
    y = b.op("Conv", x, np.full((4, 3, 3, 3), slope, np.float32), pads=[1, 1, 1, 1], name="conv")
    b.output(b.op("LeakyRelu", y, alpha=slope, name="act"))
    return save(model, path)


def slow(path: Path, side: int = 1024, channels: int = 128) -> Path:
    """Little to store, long to run."""
    model, b = new_model()
    y = b.input("x", ir.DataType.FLOAT, [1, channels, side, side])
    for i in range(4):
        y = b.op("Conv", y, np.ones((channels, channels, 3, 3), np.float32), pads=[1, 1, 1, 1], name=f"conv{i}")
    b.output(y)
    return save(model, path)


def wide(path: Path) -> Path:
    """Little to store, 1.6 GB to run."""
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", ir.DataType.FLOAT, [1, 1, 20000, 20000]), name="act"))
    return save(model, path)


def save(model: ir.Model, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    converter.save(Model(model, "onnx"), path)
    return path
