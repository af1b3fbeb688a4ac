"""Small models in bulk, one that is never done, one that takes too much,
and one that cannot be run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

import converter
from converter.api import Model
from converter.graph.build import new_model


def small(path: Path, slope: float = 0.1, size: int = 8) -> Path:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, size, size])
    y = b.op("Conv", x, np.full((4, 3, 3, 3), slope, np.float32), pads=[1, 1, 1, 1], name="conv")
    b.output(b.op("LeakyRelu", y, alpha=slope, name="act"))
    return save(model, path)


def endless(path: Path) -> Path:
    """Comparing its numbers never ends, however fast the machine: a loop of 2^62 turns."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    body = b.body("turn")
    body.input("i", ir.DataType.INT64, [])
    go, state = (
        body.input("go", ir.DataType.BOOL, []),
        body.input("state", ir.DataType.FLOAT, [1, 4]),
    )
    body.output(body.op("Identity", go), body.op("Tanh", state))
    b.output(b.op("Loop", np.array(1 << 62), np.array(True), x, body=body.graph, name="loop"))
    return save(model, path)


def wide(path: Path) -> Path:
    """Little to store, 1.6 GB to run."""
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", ir.DataType.FLOAT, [1, 1, 20000, 20000]), name="act"))
    return save(model, path)


def opaque(path: Path) -> Path:
    """Pictures are decoded in it, which onnxruntime does not do."""
    model, b = new_model()
    x = b.input("x", ir.DataType.UINT8, ["n"])
    b.output(b.op("ImageDecoder", x, pixel_format="RGB", name="picture"))
    return save(model, path)


def save(model: ir.Model, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    converter.save(Model(model, "onnx"), path)
    return path
