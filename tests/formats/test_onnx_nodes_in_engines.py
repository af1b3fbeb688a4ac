"""Operator tests of the onnx package that targets compute in their own way, in the engines of the
written files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import converter
from converter.engines.file import available
from onnx_node_cases import as_arrays, node_case

ENGINES = {"openvino": ("openvino", "xml"), "tflite": ("litert", "tflite")}
SHIFTS = ["left_int32_negative_shift", "right_int32_negative_input", "left_int8_overflow"]
SHIFTS += ["left_int32_overflow", "left_int64", "right_int8_negative_shift"]
# types that OpenVINO has itself, for which its Python package has no arrays
OWN = ["FLOAT_to_INT4", "UINT4_to_UINT8", "FLOAT_to_FLOAT8E4M3FN"]
OWN = [*(f"cast_{name}" for name in OWN), "cast_no_saturate_FLOAT_to_FLOAT8E5M2"]
OWN += ["dequantizelinear_uint4", "dequantizelinear_e4m3fn_zero_point"]
OWN += ["quantizelinear_e5m2", "quantizelinear_int4"]
CASES = [
    *(f"bitshift_{name}" for name in SHIFTS),
    *("cast_FLOAT_to_FLOAT8E5M2FNUZ", "cast_FLOAT8E4M3FNUZ_to_FLOAT16"),
    "bitcast_int32_to_float32",
    *OWN,
]
EVERYDAY = {(SHIFTS[0], "openvino"), (SHIFTS[1], "tflite"), (OWN[0], "tflite"), (OWN[5], "tflite")}
PAIRS = [
    pytest.param(name, target, marks=[] if (name, target) in EVERYDAY else [pytest.mark.slow])
    for name in CASES
    for target in ENGINES
    if target != "openvino" or name not in OWN
]


def in_floats(array: Any) -> Any:
    """Types that targets present in wider ones are compared as floats."""
    found = np.asarray(array)
    return found if found.dtype.kind in "biuf" else found.astype(np.float32)


def written(source: Path, target: str) -> tuple[Any, str]:
    """The file of a target, and its engine."""
    engine, suffix = ENGINES[target]
    if not available(engine):
        pytest.skip(f"{engine} is not installed")
    path = source.with_name(f"written.{suffix}")
    converter.save(converter.load(source), path, target)
    return converter.load(path), engine


@pytest.mark.filterwarnings("ignore::netconv.NetconvWarning")
@pytest.mark.parametrize("name, target", PAIRS)
def test_a_written_node_in_its_engine(name: str, target: str, tmp_path: Path) -> None:
    case, source = node_case(name), tmp_path / "case.onnx"
    source.write_bytes(case.model.SerializeToString())
    model, engine = written(source, target)
    for inputs, outputs in case.data_sets:
        arrays = [as_arrays(x) for x in inputs]
        feeds = {
            i.name: in_floats(x) if i.dtype == "float32" else x
            for i, x in zip(model.inputs, arrays, strict=True)
        }
        found = model.run(feeds, engine)
        for expected, actual in zip(outputs, found.values(), strict=True):
            wanted = in_floats(as_arrays(expected))
            np.testing.assert_allclose(in_floats(actual), wanted, case.rtol, case.atol)


TYPES = {
    "FLOAT8E4M3FN": (ml_dtypes.float8_e4m3fn, 448),
    "FLOAT8E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, 240),
    "FLOAT8E5M2": (ml_dtypes.float8_e5m2, 57344),
    "FLOAT8E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, 57344),
}


@pytest.mark.filterwarnings("ignore::netconv.NetconvWarning")
@pytest.mark.parametrize("target", ENGINES)
def test_floats_of_8_bits_inside_a_network(target: str, tmp_path: Path) -> None:
    """Numbers beyond the greatest become it, or without saturation infinity or NaN; the expected
    numbers are those of ml_dtypes.
    """
    x = np.array([np.nan, np.inf, -np.inf, 1e6, -465, 464, 0.3, 1e-9, 61000, -250], np.float32)
    nodes, expected = [], {}
    for name, (dtype, greatest) in TYPES.items():
        for saturate in (0, 1):
            key, to = f"{name}_{saturate}", getattr(TensorProto, name)
            nodes.append(helper.make_node("Cast", ["x"], [f"{key}_s"], to=to, saturate=saturate))
            nodes.append(helper.make_node("Cast", [f"{key}_s"], [key], to=TensorProto.FLOAT))
            with np.errstate(all="ignore"):
                number = np.clip(x, -greatest, greatest) if saturate else x
                expected[key] = number.astype(dtype).astype(np.float32)
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [len(x)]) for n in ("x", *expected)
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    source = tmp_path / "case.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), source)
    model, engine = written(source, target)
    actual = model.run({"x": x}, engine)
    for key, wanted in expected.items():
        np.testing.assert_array_equal(actual[key], wanted, err_msg=key)
