"""Half precision in IR v10 and v11 is for storage and for the boundary: computed in float32, as the
runtime does when asked to, and stored as before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model
from judged import assert_valid_core_ml, run_in

ov = pytest.importorskip("openvino")
from openvino import opset13, opset16  # noqa: E402

from openvino_runtime import PRECISE  # noqa: E402

X = np.array([[1, 3, 5, 7]], np.float16)
WEIGHTS = np.random.default_rng(5).random((4, 64)).astype(np.float16)


def save(path: Path, results: Any, *parameters: Any) -> Path:
    ov.serialize(ov.Model(results, list(parameters), "net"), path)
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """x * 2048 + 1 - x * 2048 times weights: in half precision the 1 is lost."""
    x = opset16.parameter([1, 4], np.float16)
    x.output(0).set_names({"x"})
    large = opset16.multiply(x, np.float16(2048))
    one = opset16.subtract(opset16.add(large, np.float16(1)), large)
    y = opset16.matmul(one, opset16.constant(WEIGHTS), False, False)
    y.output(0).set_names({"y"})
    return save(tmp_path / "net.xml", [y], x)


def infer(path: Path) -> Any:
    return ov.Core().compile_model(path, "CPU", PRECISE)(X)[0]


@pytest.mark.parametrize("via", ["", "openvino", "openvino+ir=10", "onnx"])
def test_computed_in_float32(net: Path, tmp_path: Path, via: str) -> None:
    wanted = infer(net)
    path = net
    if via:
        path = tmp_path / ("other.onnx" if via == "onnx" else "other.xml")
        converter.convert(net, path, target=via)
    model = converter.load(path)
    assert [(v.name, v.dtype) for v in model.inputs] == [
        ("x", np.float32 if "10" in via else np.float16)
    ]
    assert model.outputs[0].dtype == (np.float32 if "10" in via else np.float16)
    got = model.run({"x": X})["y"]
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=2e-3)
    np.testing.assert_allclose(
        got.astype(np.float32), WEIGHTS.astype(np.float32).sum(0, keepdims=True), rtol=2e-3
    )
    if via.startswith("openvino"):
        np.testing.assert_allclose(
            infer(path).astype(np.float32), wanted.astype(np.float32), rtol=2e-3
        )


@pytest.mark.parametrize("through", ["", "onnx"])
def test_half_precision_weights_stay_half(net: Path, tmp_path: Path, through: str) -> None:
    source = net
    if through:
        source = tmp_path / "between.onnx"
        converter.convert(net, source)
    converter.convert(source, tmp_path / "again.xml")
    assert WEIGHTS.nbytes <= (tmp_path / "again.bin").stat().st_size < 1.5 * WEIGHTS.nbytes


def test_compressed_weights_stay_compressed(tmp_path: Path) -> None:
    x = opset16.parameter([2, 4], np.float32)
    source = save(
        tmp_path / "a.xml",
        [opset16.matmul(x, opset16.convert(opset16.constant(WEIGHTS), "f32"), False, False)],
        x,
    )
    converter.convert(source, tmp_path / "b.xml")
    assert (tmp_path / "b.bin").stat().st_size < 1.5 * WEIGHTS.nbytes
    assert 'name="decompression"' in (tmp_path / "b.xml").read_text()


def test_weights_of_other_formats_stay_half_too(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 4])
    b.output(b.op("MatMul", x, b.op("Cast", b.const(WEIGHTS), to=int(ir.DataType.FLOAT))))
    converter.save(Model(model, "test"), tmp_path / "a.xml")
    assert (tmp_path / "a.bin").stat().st_size < 1.5 * WEIGHTS.nbytes


def test_weights_of_legacy_files_stay_half_too(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 4])
    b.output(b.op("Gemm", x, b.const(WEIGHTS.astype(np.float32))))
    converter.save(Model(model, "test"), tmp_path / "a.xml", "openvino+ir=7+fp16")
    converter.convert(tmp_path / "a.xml", tmp_path / "b.xml")
    assert (tmp_path / "b.bin").stat().st_size < 1.5 * WEIGHTS.nbytes
    feed = {"x": np.ones((2, 4), np.float32)}
    found = [
        next(iter(converter.load(tmp_path / name).run(feed).values()))
        for name in ("a.xml", "b.xml")
    ]
    np.testing.assert_array_equal(*found)


def test_weights_beyond_half_precision_stay_float32(tmp_path: Path) -> None:
    x = opset16.parameter([2, 4], np.float32)
    whole = WEIGHTS.astype(np.float32) + np.float32(1e-5)
    y = opset16.matmul(
        opset16.matmul(x, opset16.convert(opset16.constant(WEIGHTS), "f32"), False, False),
        opset16.constant(whole),
        False,
        True,
    )
    source = save(tmp_path / "a.xml", [y], x)
    converter.convert(source, tmp_path / "b.xml")
    assert (tmp_path / "b.bin").stat().st_size >= WEIGHTS.nbytes + whole.nbytes
    feed = np.ones((2, 4), np.float32)
    compiled = [
        ov.Core().compile_model(tmp_path / name, "CPU", PRECISE)(feed)[0]
        for name in ("a.xml", "b.xml")
    ]
    np.testing.assert_allclose(*compiled, rtol=1e-5)


def test_brain_floats(tmp_path: Path) -> None:
    x = opset16.parameter([3], ov.Type.bf16)
    y = opset16.convert(
        opset16.sqrt(opset16.multiply(x, opset16.constant(np.float32([1.01]), ov.Type.bf16))), "f32"
    )
    source = save(tmp_path / "a.xml", [y], x)
    for path in (source, tmp_path / "b.xml"):
        if path != source:
            converter.convert(source, path)
        got = next(
            iter(
                converter.load(path)
                .run({converter.load(path).inputs[0].name: np.float32([1, 2, 300])})
                .values()
            )
        )
        np.testing.assert_allclose(
            got, np.sqrt(np.float32([1, 2, 300]) * np.float32(1.0078125)), rtol=1e-6
        )


def test_the_quantization_of_weights_is_computed_in_float32(tmp_path: Path) -> None:
    x = opset16.parameter([2, 4], np.float32)
    numbers, scale = (
        np.arange(256).reshape(4, 64).astype(np.uint8),
        np.linspace(0.1, 0.7, 64).astype(np.float16).reshape(1, 64),
    )
    scaled = opset16.multiply(
        opset16.subtract(opset16.convert(opset16.constant(numbers), "f16"), np.float16([[3]])),
        scale,
    )
    source = save(
        tmp_path / "a.xml", [opset13.matmul(x, opset16.convert(scaled, "f32"), False, False)], x
    )
    feed = np.float32([[1, 2, 3, 4], [4, 3, 2, 1]])
    wanted = feed @ ((numbers.astype(np.float32) - 3) * scale.astype(np.float32))
    got = next(
        iter(converter.load(source).run({converter.load(source).inputs[0].name: feed}).values())
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    np.testing.assert_allclose(
        ov.Core().compile_model(source, "CPU", PRECISE)(feed)[0], wanted, rtol=1e-3
    )


@pytest.mark.parametrize("like", [np.float16, np.float32])
def test_converted_like_something_in_half_precision(like: Any, tmp_path: Path) -> None:
    """The numbers are rounded as numpy rounds them, though all is computed in float32."""
    x = opset16.parameter([4], np.float32)
    x.output(0).set_names({"x"})
    y = opset16.convert(opset16.convert_like(x, opset16.constant(np.ones(1, like))), "f32")
    feed = np.array([1.0001, 1 / 3, 1e5, -3], np.float32)
    with np.errstate(over="ignore"):
        wanted = feed.astype(like).astype(np.float32)
    (found,) = converter.load(save(tmp_path / "like.xml", [y], x)).run({"x": feed}).values()
    np.testing.assert_array_equal(found, wanted)


def small(folder: Path, target: str) -> tuple[Path, Any, Any]:
    """A layer with weights of which half precision keeps next to nothing, and one with others: the
    file, its input and its output.
    """
    rng = np.random.default_rng(3)
    tiny = (rng.standard_normal((64, 8)) * 2e-8).astype(np.float32)
    plain = rng.standard_normal((16, 64)).astype(np.float16).astype(np.float32)
    model, b = new_model("main")
    x = b.input("x", ir.DataType.FLOAT, [2, 16])
    y = b.op("Gemm", b.op("Relu", b.op("Gemm", x, b.const(plain))), b.const(tiny))
    b.output(b.op("Mul", y, b.const(np.float32(1 << 24))))
    path = folder / ("m.mlmodel" if target.startswith("coreml") else "m.xml")
    converter.save(Model(model, "test"), path, target)
    feed = rng.standard_normal((2, 16)).astype(np.float32)
    return path, feed, np.maximum(feed @ plain, 0) @ tiny * np.float32(1 << 24)


@pytest.mark.parametrize("target", ["openvino", "openvino+ir=10"])
def test_weights_below_half_precision_stay_whole(target: str, tmp_path: Path) -> None:
    path, feed, wanted = small(tmp_path, f"{target}+fp16")
    assert 2 * 16 * 64 + 4 * 64 * 8 <= path.with_suffix(".bin").stat().st_size < 4 * 64 * 24
    core = ov.Core()
    found = core.compile_model(core.read_model(path), "CPU", PRECISE)(feed)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["openvino+ir=7", "openvino+ir=5", "coreml"])
def test_weights_below_half_precision_stay_whole_elsewhere(target: str, tmp_path: Path) -> None:
    path, feed, wanted = small(tmp_path, f"{target}+fp16")
    weights = path if target == "coreml" else path.with_suffix(".bin")
    assert 2 * 16 * 64 + 4 * 64 * 8 <= weights.stat().st_size < 4 * 64 * 24
    (found,) = converter.load(path).run({"x": feed}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.judges
@pytest.mark.parametrize("target", ["openvino+ir=7", "openvino+ir=5", "coreml"])
def test_engines_take_halves_with_floats(target: str, tmp_path: Path) -> None:
    path, feed, wanted = small(tmp_path, f"{target}+fp16")
    if target == "coreml":
        assert_valid_core_ml(path)
    engine = "coreml-interp" if target == "coreml" else "legacy-engine"
    (found,) = run_in(engine, path, {"x": feed}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
