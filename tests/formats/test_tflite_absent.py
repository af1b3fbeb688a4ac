"""Operators that `netconv ops tflite` lists as not written are refused, and the engine's limits are
listed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import UnsupportedError
from converter.formats.tflite.format import FORMAT
from converter.formats.tflite.kernels import PARTLY
from converter.graph.build import Builder, new_model

D = ir.DataType
ONES = np.ones((2, 2, 3, 3), np.float32)


def image(b: Builder, *sizes: Any) -> ir.Value:
    return b.input("x", D.FLOAT, list(sizes or (1, 2, 6, 6)))


def given(b: Builder, name: str, dtype: D, *sizes: Any) -> ir.Value:
    return b.input(name, dtype, list(sizes))


def stacking(b: Builder) -> Any:
    body = b.body("step")
    body.input("turn", D.INT64, [])
    again = body.input("again", D.BOOL, [])
    places = body.op("NonZero", given(b, "x", D.FLOAT, 8))
    body.output(body.op("Identity", again), places)
    return b.ops("Loop", given(b, "n", D.INT64), None, body=body.graph, outputs=1)


def two_scales(b: Builder) -> Any:
    zero = np.array(0, np.int8)
    stored = b.op("QuantizeLinear", image(b), np.float32(0.5), zero)
    return [b.op("DequantizeLinear", stored, np.float32(s), zero) for s in (0.5, 0.25)]


def bits(kind: str) -> Callable[[Builder], Any]:
    return lambda b: b.op(kind, *(given(b, n, D.UINT64, 3) for n in "xy"))


def resized(b: Builder) -> Any:
    sizes = given(b, "sizes", D.INT64, 4)
    return b.op("Resize", image(b, 1, 2, None, None), None, None, sizes, mode="cubic")


def of_rois(b: Builder) -> Any:
    rois = given(b, "rois", D.FLOAT, 1, 4)
    return b.op("RoiAlign", image(b), rois, np.zeros(1, np.int64), sampling_ratio=0)


CASES: dict[str, Callable[[Builder], Any]] = {
    "BitwiseAnd": bits("BitwiseAnd"),
    "BitwiseOr": bits("BitwiseOr"),
    "Col2Im": lambda b: b.op(*("Col2Im", image(b, 1, 4, 4), given(b, "size", D.INT64, 2), [2, 2])),
    "ConvTranspose": lambda b: b.op(
        "ConvTranspose", image(b), b.op("Relu", given(b, "w", D.FLOAT, 2, 1, 3, 3)), group=2
    ),
    "DequantizeLinear": two_scales,
    "Einsum": lambda b: b.op("Einsum", image(b, None, None), equation="ii->i"),
    "Loop": stacking,
    "MaxPool": lambda b: b.ops("MaxPool", image(b), kernel_shape=[2, 2], outputs=2),
    "Pad": lambda b: b.op("Pad", image(b), given(b, "pads", D.INT64, 8), mode="edge"),
    "Resize": resized,
    "RoiAlign": of_rois,
    "ScatterElements": lambda b: b.op(
        *("ScatterElements", given(b, "x", D.INT64, 8), given(b, "i", D.INT64, 8)),
        given(b, "u", D.INT64, 8),
        reduction="min",
    ),
    "ScatterND": lambda b: b.op(
        *("ScatterND", image(b, None), given(b, "i", D.INT64, None, 1)),
        given(b, "u", D.FLOAT, None),
        reduction="max",
    ),
    "Slice": lambda b: b.op("Slice", image(b), [0], [1], given(b, "axes", D.INT64, 1)),
    "Squeeze": lambda b: b.op("Squeeze", image(b), given(b, "axes", D.INT64, 1)),
}


def test_every_case_is_listed() -> None:
    assert CASES.keys() == PARTLY.keys()


@pytest.mark.parametrize("name", CASES)
def test_listed_operators_are_refused(name: str, tmp_path: Path) -> None:
    model, b = new_model()
    found = CASES[name](b)
    b.output(*([found] if isinstance(found, ir.Value) else found))
    with pytest.raises(UnsupportedError):
        converter.save(Model(model, "test"), tmp_path / "a.tflite")


def test_an_operator_that_is_not_written_is_listed(tmp_path: Path) -> None:
    absent = FORMAT.written().absent
    assert {"Unique", "StringNormalizer"} <= set(absent)
    assert not {"Relu", "Gelu", "RoiAlign", "LSTM", "netconv::L2Pool"} & set(absent)
    model, b = new_model()
    b.output(b.ops("Unique", image(b, 6), outputs=4)[0])
    with pytest.raises(UnsupportedError, match="Unique is not supported"):
        converter.save(Model(model, "test"), tmp_path / "a.tflite")


def test_limits_of_kernels_are_listed() -> None:
    limits = FORMAT.written().limits
    assert limits["DEPTH_TO_SPACE"] == (
        "float int32 int64 int8 uint8, quantized int8 uint8; up to 4 axes"
    )
