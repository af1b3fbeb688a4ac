"""Zhouyi Compass IR, quantized: integer files as numbers, the parser's quantized files, integer
files written from quantized networks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError
from converter.formats.zhouyi.codec import write_ir
from converter.formats.zhouyi.ir import Constant, Document, Layer, Tensor, build_document
from converter.formats.zhouyi.values import DType
from converter.io.files import Output
from support import corpus_cases

Array = Any
RNG = np.random.default_rng(0)
SUFFIXES = {"onnx": ".onnx", "openvino": ".xml", "nnapi": ".nnapi.json", "coreml": ".mlmodel"}


def case_of(case: Path | None) -> tuple[Path, dict[str, Array], dict[str, Array]]:
    assert case is not None
    with np.load(case / "inputs.npz") as feeds, np.load(case / "outputs.npz") as wanted:
        return case / "model.txt", dict(feeds), dict(wanted)


def steps_apart(found: dict[str, Array], wanted: dict[str, Array]) -> int:
    pairs = zip(found.values(), wanted.values(), strict=True)
    return max(
        int(np.abs(np.asarray(f, np.float64).reshape(-1) - w.astype(np.float64).reshape(-1)).max())
        for f, w in pairs
    )


@pytest.mark.parametrize("case", corpus_cases("zhouyi/int8"))
def test_dequantized_files_stay_within_two_steps_of_the_integer_arithmetic(
    case: Path | None,
) -> None:
    path, feeds, wanted = case_of(case)
    model = converter.load(path, dequantize=True)
    ops = {n.op_type for n in model.ir.graph}
    assert "DequantizeLinear" in ops
    assert [str(i.dtype) for i in model.inputs] == [
        str(i.dtype) for i in converter.load(path).inputs
    ]
    assert steps_apart(model.run(feeds), wanted) <= 2


@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("case", corpus_cases("zhouyi/int8", "[mls][bsi]*"))
@pytest.mark.sampled(5)
def test_dequantized_files_become_other_formats(
    case: Path | None, target: str, tmp_path: Path
) -> None:
    path, feeds, wanted = case_of(case)
    converter.convert(path, tmp_path / f"m{SUFFIXES[target]}", target=target, dequantize=True)
    assert steps_apart(converter.load(tmp_path / f"m{SUFFIXES[target]}").run(feeds), wanted) <= 2


# --- files of the vendor's parser: steps and zero points in ONNX's sense, weights and biases with
# their own ---------------------------------------------------------------------------------------


def quantized(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(name, shape, DType(dtype))


def grid(scale: float, zero: int) -> dict[str, Any]:
    return {"layer_top_scale": [scale], "layer_top_zp": [zero]}


def written(
    folder: Path, layers: list[Layer], inputs: list[str], outputs: list[str], parser: bool = True
) -> Path:
    document: Document = build_document(
        "m", layers, inputs, outputs, precision="int8", compat_quantized_model=parser
    )
    if not parser:
        del document.header["precision"], document.header["compat_quantized_model"]
    with Output(folder / "m.txt") as out:
        write_ir(document, out)
    return folder / "m.txt"


def constants(**arrays: Array) -> dict[str, Constant]:
    return {k: Constant.of(a) for k, a in arrays.items()}


WINDOW = {
    f"{k}_{a}": v for k, v in (("kernel", 3), ("stride", 1), ("dilation", 1)) for a in "xy"
} | {f"pad_{s}": 1 for s in ("left", "right", "top", "bottom")}


def parser_convolution(folder: Path, per_channel: bool) -> tuple[Path, Array, Array]:
    """A convolution with Relu as the parser writes it; the file, an input, the wanted output."""
    x = RNG.integers(0, 256, (1, 5, 6, 3), np.uint8)
    w = RNG.integers(-120, 120, (4, 3, 3, 3), np.int8)
    b = RNG.integers(-900, 900, 4, np.int32)
    ws = (
        np.array([0.01, 0.02, 0.005, 0.03], np.float32)
        if per_channel
        else np.array([0.02], np.float32)
    )
    wz = np.array([0, 3, 0, -2], np.int8) if per_channel else np.array([5], np.int8)
    bs = (0.04 * ws).astype(np.float32)
    groups = constants(
        weights=w,
        biases=b,
        weights_scale=ws,
        weights_zp=wz,
        biases_scale=bs,
        biases_zp=np.zeros(ws.shape, np.int32),
    )
    a, y = quantized("a", x.shape, "uint8"), quantized("y", (1, 5, 6, 4), "int8")
    conv = Layer(
        "conv",
        "Convolution",
        [a],
        [y],
        {**grid(0.4, -100), **WINDOW, "num_output": 4, "group": 1, "with_activation": "RELU"},
        groups,
    )
    path = written(folder, [Layer("a", "Input", [], [a], grid(0.04, 120)), conv], ["a"], ["y"])
    real = np.pad((x.astype(np.float64) - 120) * 0.04, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rw = (w.astype(np.float64) - wz.reshape(-1, 1, 1, 1)) * ws.reshape(-1, 1, 1, 1)
    windows = np.lib.stride_tricks.sliding_window_view(real, (3, 3), (1, 2))
    found = np.einsum("nyxcij,oijc->nyxo", windows, rw) + b * bs
    return path, x, np.clip(np.rint(np.maximum(found, 0) / 0.4) - 100, -128, 127)


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_parsers_quantized_convolution(per_channel: bool, tmp_path: Path) -> None:
    path, x, wanted = parser_convolution(tmp_path, per_channel)
    model = converter.load(path)
    assert {"DequantizeLinear", "Conv", "QuantizeLinear"} <= {n.op_type for n in model.ir.graph}
    assert any(
        v.const_value is not None and v.const_value.dtype.name == "INT8"
        for v in model.ir.graph.initializers.values()
    )
    assert np.abs(model.run({"a": x})["y"] - wanted).max() <= 1
    converter.save(model, tmp_path / "m.onnx")
    assert np.abs(converter.load(tmp_path / "m.onnx").run({"a": x})["y"] - wanted).max() <= 1


def test_the_parsers_borders_and_moves(tmp_path: Path) -> None:
    """Quantize, a Transpose of stored integers, an average with another grid, DeQuantize."""
    x = RNG.normal(size=(1, 4, 4, 2)).astype(np.float32)
    tensors = [
        Tensor("a", x.shape, DType.FLOAT32),
        quantized("q", x.shape, "int8"),
        quantized("t", (1, 2, 4, 4), "int8"),
        quantized("s", (1, 2, 4, 4), "uint8"),
    ]
    result = Tensor("y", (1, 2, 4, 4), DType.FLOAT32)
    one = {"quantize_scale": np.array([0.03], np.float32), "quantize_zp": np.array([7], np.int8)}
    other = {
        "quantize_scale": np.array([0.004], np.float32),
        "quantize_zp": np.array([0], np.uint8),
    }
    layers = [
        Layer("a", "Input", [], [tensors[0]]),
        Layer(
            "quantize",
            "Quantize",
            [tensors[0]],
            [tensors[1]],
            {**grid(0.03, 7), "axis": 1},
            constants(**one),
        ),
        Layer(
            "turn", "Transpose", [tensors[1]], [tensors[2]], {**grid(0.03, 7), "perm": [0, 3, 1, 2]}
        ),
        Layer(
            "sigmoid",
            "Activation",
            [tensors[2]],
            [tensors[3]],
            {**grid(0.004, 0), "method": "SIGMOID"},
        ),
        Layer("dequantize", "DeQuantize", [tensors[3]], [result], {"axis": 1}, constants(**other)),
    ]
    path = written(tmp_path, layers, ["a"], ["y"])
    stored = np.clip(np.rint(x / np.float32(0.03)) + 7, -128, 127).transpose(0, 3, 1, 2)
    sigmoid = 1 / (1 + np.exp(-(stored - 7) * 0.03))
    wanted = np.clip(np.rint(sigmoid / 0.004), 0, 255) * 0.004
    np.testing.assert_allclose(converter.load(path).run({"a": x})["y"], wanted, atol=0.0041)


def test_a_scale_for_each_slice_of_an_activation_is_refused_by_name(tmp_path: Path) -> None:
    a = quantized("a", (1, 2), "int8")
    several = {"layer_top_scale": [[0.1, 0.2]], "layer_top_zp": [[0, 0]]}
    y = quantized("y", (1, 2), "int8")
    layers = [Layer("a", "Input", [], [a], grid(0.1, 0)), Layer("exp", "Exp", [a], [y], several)]
    with pytest.raises(ConverterError, match="y has a scale for each slice"):
        converter.load(written(tmp_path, layers, ["a"], ["y"]))
