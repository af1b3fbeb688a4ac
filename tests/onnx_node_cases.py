"""The operator tests that the onnx package carries (`onnx.backend.test`), and those that are out
of reach, with the reason.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import warnings
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

# pattern of test names -> why the model cannot be read (it must be refused by name)
REFUSED = {
    r"(adagrad|adam|momentum|nesterov_momentum).*": "training",
}
# pattern -> why the engine's results are not the expected ones, or it refuses
DIFFERENT = {
    r"image_decoder_.*": "onnxruntime has no image decoder",
    r"bernoulli.*|training_dropout(_default)?(_mask)?": "random",
    r"resize_downsample_scales_(linear|cubic)_align_corners": "the expected values "
    "contradict the operator's formula (onnxruntime "
    "leaves them out too)",
}


def expected_refusal(name: str) -> str | None:
    return next((why for p, why in REFUSED.items() if re.fullmatch(p, name)), None)


def expected_difference(name: str) -> str | None:
    return next((why for p, why in DIFFERENT.items() if re.fullmatch(p, name)), None)


# modules of the package whose expected results take seconds to compute (windows of three
# dimensions)
TAKE_LONG = {"averagepool", "lppool", "maxpool"}


@functools.cache
def node_cases() -> dict[str, Any]:
    """Every operator test. All are computed first: nothing may ask while tests are collected."""
    return _made(everything=True)


@functools.cache
def quick_node_cases() -> dict[str, Any]:
    """The operator tests that are made in a moment: everyday samples are drawn from them."""
    return _made(everything=False)


def node_case(name: str) -> Any:
    return quick_node_cases().get(name) or node_cases()[name]


def _made(everything: bool) -> dict[str, Any]:
    from onnx.backend.test.case import node

    modules = [m.name for m in pkgutil.walk_packages(node.__path__, f"{node.__name__}.")]
    if not everything:
        modules = [m for m in modules if m.rpartition(".")[2] not in TAKE_LONG]
    made = [case for module in modules for case in _made_by(module)]
    return {c.name.removeprefix("test_"): c for c in made}


@functools.cache
def _made_by(module: str) -> list[Any]:
    """The cases that a module of the package adds to its list when it is imported."""
    from onnx.backend.test.case import node

    before = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module)
    return list(node._NodeTestCases[before:])


# types of a few bits, whose numbers are presented in a wider type
PRESENTED = {"float4_e2m1fn": np.float32, "float8_e8m0fnu": np.float32}
PRESENTED |= {"int2": np.int8, "uint2": np.uint8}


def as_presented(value: Any) -> Any:
    """Numbers of a type of a few bits in the type in which they are presented."""
    wider = PRESENTED.get(value.dtype.name) if isinstance(value, np.ndarray) else None
    return value if wider is None else value.astype(wider)


def as_arrays(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return as_presented(numpy_helper.to_array(value))
    return [as_arrays(v) for v in value] if isinstance(value, list | tuple) else value


def constant_of(info: onnx.ValueInfoProto, array: Any) -> onnx.TensorProto:
    """A constant for an input, in its declared type: arrays of types of a few bits are those that
    are presented, in wider types.
    """
    dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    return numpy_helper.from_array(np.asarray(array).astype(dtype), info.name)


def differences(name: str, expected: Any, found: Any, rtol: float, atol: float) -> list[str]:
    """The differences between two results (arrays, sequences, None), as sentences."""
    if isinstance(expected, list) or expected is None or isinstance(found, list):
        if (
            not isinstance(found, list)
            or not isinstance(expected, list)
            or len(found) != len(expected)
        ):
            return (
                []
                if expected is None and found is None
                else [f"{name}: {type(found)} for {type(expected)}"]
            )
        return [
            d
            for i, (a, b) in enumerate(zip(expected, found, strict=True))
            for d in differences(f"{name}[{i}]", a, b, rtol, atol)
        ]
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.dtype.kind in "OUS":
        same = expected.shape == found.shape and bool(
            np.all(expected.astype(str) == found.astype(str))
        )
        return [] if same else [f"{name}: other texts"]
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return [f"{name}: {found.dtype}{found.shape} for {expected.dtype}{expected.shape}"]
    if expected.dtype.kind not in "iufbc":
        rtol = max(
            rtol, 0.02 if expected.dtype.name == "bfloat16" else rtol
        )  # two steps of the type
        expected, found = expected.astype(np.float32), found.astype(np.float32)
    if (
        expected.dtype.kind in "fc" and expected.size and np.any(np.isfinite(expected))
    ):  # a sum of large terms (DFT) is near zero only so far
        atol = max(atol, 2e-6 * float(np.max(np.abs(expected[np.isfinite(expected)]))))
    return (
        []
        if np.allclose(found, expected, rtol, atol, equal_nan=True)
        else [f"{name}: other numbers"]
    )
