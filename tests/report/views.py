"""Models and data for the tests of `netconv view`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.graph.build import new_model


def blocks(count: int, named: bool = True) -> Model:
    """`count` blocks of five layers each, in stages of ten, with names that say so or none that
    help.
    """
    model, b = new_model()
    rng = np.random.default_rng(0)
    x = b.input("x", ir.DataType.FLOAT, [4, 16])
    number = 0

    def layer(kind: str, place: str, *operands: Any) -> ir.Value:
        nonlocal number
        number += 1
        return b.op(kind, *operands, name=f"{place}/{kind}" if named else f"v{number}")

    for i in range(count):
        place = f"/net/stage.{i // 10}/block.{i % 10}"
        weight = rng.standard_normal((16, 16)).astype(np.float32)
        y = layer("MatMul", place, x, b.const(weight, f"w{i}"))
        z = layer("Add", place, layer("Relu", place, y), layer("Tanh", place, y))
        x = layer("Sigmoid", place, z)
    b.output(x)
    return Model(model, "onnx")


def integers() -> Model:
    """A layer of stored integers, as the reader of a file makes it."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    q = b.op("QuantizeLinear", x, np.float32(0.5), np.int8(3), name="q")
    y = b.op("DequantizeLinear", q, np.float32(0.5), np.int8(3), name="as_number")
    stored = b.const(np.arange(8, dtype=np.int8).reshape(4, 2), "w")
    scales = np.array([0.25, 2], np.float32)
    w = b.op("DequantizeLinear", stored, scales, axis=1, name="weights")
    b.output(b.op("MatMul", y, w, name="product"))
    product = next(n for n in model.graph if n.op_type == "MatMul")
    props = {"netconv.format": "tflite", "netconv.layer": "dense", "netconv.type": "DENSE"}
    product.metadata_props.update(props)
    return Model(model, "tflite")


def drawn(page: str | Path) -> dict[str, Any]:
    """The data in a page."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="models">(.*?)</script>', text, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def scope_of(model: dict[str, Any], node: dict[str, Any]) -> list[str]:
    """The names of the scopes around a layer, from the outside."""
    path: list[str] = []
    at = node["scope"]
    while at >= 0:
        path.insert(0, model["scopes"][at]["name"])
        at = model["scopes"][at]["parent"]
    return path
