"""Constants of every element type: read as the runtime reads them, computed in types of the shared
graph, written again as they were stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.formats.openvino.codec import read_ir
from converter.formats.openvino.ir import Layer
from converter.formats.openvino.opset.codes import CODES, read_strings, write_strings
from converter.formats.openvino.opset.constants import read_const
from converter.graph.build import new_model
from converter.graph.lazy_tensor import LazyTensor

ov = pytest.importorskip("openvino")
from openvino import opset13, opset16  # noqa: E402

from openvino_runtime import PRECISE  # noqa: E402

ONE = np.ones(1, np.float32)
VALUES: dict[str, list[float]] = {
    "u1": [1, 0, 1, 1, 0, 0, 0, 1, 1], "u2": [1, 2, 3, 0, 2], "u3": [1, 2, 3, 4, 5, 6, 7, 0, 1],
    "u4": [1, 2, 15], "i4": [1, -2, 7, -8, 3], "u6": [1, 2, 3, 63, 33],
    "nf4": [-1, 0, 1, 0.5, 0.3], "f4e2m1": [0, 0.5, 1.5, 6, -3], "f8e8m0": [1, 2, 0.5],
    "f8e4m3": [1.5, -448], "f8e5m2": [1.5, 3], "bf16": [1.5, 3], "f16": [1.5, 3], "f64": [1.5, 3],
    "i8": [-3, 5], "u8": [3, 250], "i16": [-3, 5], "u16": [3, 65535], "i32": [-3, 5],
    "u32": [3, 9], "i64": [-3, 5], "u64": [3, 9], "boolean": [1, 0],
}  # fmt: skip


def constant(element: str, values: list[float], shape: list[int]) -> Any:
    return ov.op.Constant(getattr(ov.Type, element), ov.Shape(shape), values)


def save(results: list[Any], x: Any, path: Path) -> Path:
    x.output(0).set_names({"x"})
    ov.serialize(ov.Model(results, [x], "constants"), path)
    return path


def infer(path: Path, x: Any) -> Any:
    return ov.Core().compile_model(path, "CPU", PRECISE)(x)[0]


@pytest.mark.parametrize("count", [0, 9000])
@pytest.mark.parametrize("element", VALUES)
@pytest.mark.sampled(5)
def test_read_as_the_runtime_reads_it(element: str, count: int, tmp_path: Path) -> None:
    """`count` elements are too many to be computed when converting."""
    values = (VALUES[element] * (count + 1))[: count or None]
    x = opset16.parameter([1], np.float32)
    path = save(
        [opset16.add(opset16.convert(constant(element, values, [len(values)]), "f32"), x)],
        x,
        tmp_path / "a.xml",
    )
    wanted = infer(path, ONE)
    assert wanted.shape == (len(values),)
    converter.convert(path, tmp_path / "b.xml")
    for file in (path, tmp_path / "b.xml"):
        np.testing.assert_array_equal(
            next(iter(converter.load(file).run({"x": ONE}).values())), wanted
        )
    np.testing.assert_array_equal(infer(tmp_path / "b.xml", ONE), wanted)
    if count:
        stored = [
            layer.data["element_type"]
            for layer in read_ir(tmp_path / "b.xml", None).layers
            if layer.type == "Const"
        ]
        assert (
            element in (*stored, "f64", "i32", "u32", "i64", "u64")
            and (tmp_path / "b.bin").stat().st_size <= path.with_suffix(".bin").stat().st_size + 16
        )


@pytest.mark.parametrize("element", ["u8", "i8", "u4", "i4", "u2"])
@pytest.mark.parametrize("size", [8, 2048])
def test_compressed_weights_stay_compressed(element: str, size: int, tmp_path: Path) -> None:
    x = opset16.parameter([3, size], np.float32)
    codes = opset16.convert(constant(element, [i % 4 for i in range(4 * size)], [4, size]), "f32")
    shifted = opset16.subtract(
        codes, opset16.convert(constant(element, [1, 2, 3, 0], [4, 1]), "f32")
    )
    scaled = opset16.multiply(shifted, np.array([[0.1], [0.2], [0.3], [0.4]], np.float32))
    path = save([opset13.matmul(x, scaled, False, True)], x, tmp_path / "a.xml")
    converter.convert(path, tmp_path / "b.xml")
    layers = read_ir(tmp_path / "b.xml", None).layers
    assert element in [layer.data["element_type"] for layer in layers if layer.type == "Const"]
    assert {"Convert", "Subtract", "Multiply", "MatMul"} <= {layer.type for layer in layers}
    feed = np.random.default_rng(3).random((3, size), np.float32)
    wanted = (
        feed
        @ ((np.arange(4 * size) % 4).reshape(4, size) - np.array([[1], [2], [3], [0]]))
        .astype(np.float32)
        .T
        * np.float32([0.1, 0.2, 0.3, 0.4])
    )
    for file in (path, tmp_path / "b.xml"):
        np.testing.assert_allclose(
            next(iter(converter.load(file).run({"x": feed}).values())), wanted, rtol=1e-4, atol=1e-3
        )
        np.testing.assert_allclose(infer(file, feed), wanted, rtol=1e-2, atol=1e-2)


def test_strings(tmp_path: Path) -> None:
    texts = [b"ab", b"", "cé".encode()]
    raw = write_strings(ir.StringTensor(texts, shape=ir.Shape([3, 1]))).bytes()
    assert (
        raw.tobytes()
        == bytes.fromhex("03000000 00000000 02000000 02000000 05000000") + b"abc\xc3\xa9"
    )
    assert read_strings(raw, [3, 1]).numpy().tolist() == [[b"ab"], [b""], ["cé".encode()]]
    for broken in (raw[:8], raw[:-1], np.concatenate([raw[:4] + 1, raw[4:]])):
        with pytest.raises(ValueError, match="are invalid"):
            read_strings(broken, [3, 1])
    model, b = new_model()
    x = b.input("x", ir.DataType.STRING, [2])
    b.output(
        b.op("Concat", x, b.const(ir.StringTensor([b"one", b"two"], shape=ir.Shape([2]))), axis=0)
    )
    path = tmp_path / "a.xml"
    converter.save(Model(model, "test"), path)
    assert infer(path, np.array(["a", "b"])).tolist() == ["a", "b", "one", "two"]
    converter.convert(path, tmp_path / "b.xml")
    for file in (path, tmp_path / "b.xml"):
        assert next(
            iter(converter.load(file).run({"x": np.array(["a", "b"])}).values())
        ).tolist() == ["a", "b", "one", "two"]


@pytest.mark.parametrize("element", CODES)
def test_inputs_of_such_types_are_presented_in_another_with_a_warning(
    element: str, tmp_path: Path
) -> None:
    x = opset16.parameter([4], getattr(ov.Type, element))
    model = converter.load(save([opset16.convert(x, "f32")], x, tmp_path / "a.xml"))
    assert model.inputs[0].dtype == CODES[element][0].numpy()
    assert [d.code for d in model.notes] == ["X205"] and element in model.notes[0].message


@pytest.mark.parametrize("target", ["openvino+ir=10", "openvino+ir=7"])
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.uint32, 2**31 - 1),
        (np.uint32, 2**31),
        (np.uint32, 2**32 - 1),
        (np.uint64, 2**64 - 1),
        (np.int64, -(2**31)),
        (np.int64, 2**31),
    ],
)
def test_integers_beyond_i32_are_refused(
    dtype: Any, number: int, target: str, tmp_path: Path
) -> None:
    """Readers of v10 present such outputs as i32 (the runtime shows 2^32 - 1 as -1), older formats
    have nothing else; v11 keeps them.
    """
    m, b = new_model()
    x = b.input("x", ir.DataType.from_numpy(np.dtype(dtype)), [2])
    b.output(b.op("Identity", b.const(np.array([number, 1], dtype))), b.op("Identity", x))
    model, path, feeds = Model(m, "test"), tmp_path / "m.xml", {"x": np.array([5, 6], dtype)}
    if -(2**31) <= number < 2**31:
        model.save(path, target)
        assert next(
            iter(
                converter.load(path)
                .run({"x": np.array([5, 6], converter.load(path).inputs[0].dtype)})
                .values()
            )
        ).tolist() == [number, 1]
    else:
        with pytest.raises(converter.errors.UnsupportedError, match=rf"X204.*{number}"):
            model.save(path, target)
        assert list(tmp_path.iterdir()) == []
    model.save(tmp_path / "new.xml", "openvino")
    assert next(iter(converter.load(tmp_path / "new.xml").run(feeds).values())).tolist() == [
        number,
        1,
    ]


def test_every_byte_but_0_is_true() -> None:
    """Damaged files and arrays that were made from bytes hold others than 1, with which kernels
    compute nonsense.
    """
    layer = Layer(
        0,
        "c",
        "Const",
        data={"element_type": "boolean", "shape": "3"},
        blobs={"value": LazyTensor(np.array([0, 1, 5], np.uint8))},
    )
    assert read_const(layer).numpy().view(np.uint8).tolist() == [0, 1, 1]
    model, b = new_model()
    x = b.input("x", ir.DataType.BOOL, [3])
    b.output(b.op("Where", x, np.ones(3, np.float32), np.zeros(3, np.float32)))
    (found,) = (
        Model(model, "test").run({"x": np.array([0, 2, 255], np.uint8).view(np.bool_)}).values()
    )
    assert found.tolist() == [0, 1, 1]
