"""ML Programs as they are written: the content of a file, byte by byte where it is specified, and
its results, by formulas.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import converter
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml.proto import Model_pb2

F = np.float32
RNG = np.random.default_rng(18)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def network(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    dtype: int = T.FLOAT,
    **constants: Any,
) -> Path:
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info(k, dtype, v) for k, v in inputs.items()],
        [h.make_tensor_value_info(k, dtype, v) for k, v in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opset = [h.make_opsetid("", 20), h.make_opsetid("com.microsoft", 1)]
    onnx.save(h.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return path


def model_of(package: Path) -> Any:
    model = Model_pb2.Model()
    model.ParseFromString((package / "Data/com.apple.CoreML/model.mlmodel").read_bytes())
    return model


def operations(package: Path) -> list[Any]:
    function = model_of(package).mlProgram.functions["main"]
    return list(function.block_specializations[function.opset].operations)


def kinds(package: Path) -> list[str]:
    return [o.type for o in operations(package) if o.type != "const"]


def run(path: Path, **feeds: Any) -> Any:
    return next(iter(converter.load(path).run(feeds).values()))


def content(package: Path) -> dict[str, bytes]:
    files = (p for p in package.rglob("*") if p.is_file())
    return {str(p.relative_to(package)): p.read_bytes() for p in files}


def linear(path: Path, weights: Any) -> Path:
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"]), h.make_node("Add", ["m", "c"], ["y:0"])]
    n, m = weights.shape
    return network(path, nodes, {"x": [2, n]}, {"y:0": [2, m]}, w=weights, c=np.array([2.0], F))


def test_the_package_and_its_weights(tmp_path: Path) -> None:
    weights, x = floats(3, 7), floats(2, 3)
    package = tmp_path / "m.mlpackage"
    converter.convert(linear(tmp_path / "m.onnx", weights), package)
    manifest = json.loads((package / "Manifest.json").read_text())
    root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]
    assert manifest["fileFormatVersion"] == "1.0.0"
    assert root["path"] == "com.apple.CoreML/model.mlmodel"
    stored = (package / "Data/com.apple.CoreML/weights/weight.bin").read_bytes()
    assert struct.unpack_from("<II", stored) == (1, 2)
    assert struct.unpack_from("<IIQQQ", stored, 64) == (0xDEADBEEF, 2, 4 * 21, 128, 0)
    assert stored[128:] == weights.T.tobytes()
    assert kinds(package) == ["linear", "add"]
    np.testing.assert_allclose(run(package, x=x), x @ weights + 2, rtol=1e-6)


def test_names_are_identifiers_and_those_of_the_source_come_back(tmp_path: Path) -> None:
    package = tmp_path / "m.mlpackage"
    converter.convert(linear(tmp_path / "m.onnx", floats(3, 7)), package)
    assert [o.name for o in model_of(package).description.output] == ["y_0"]
    assert [o.name for o in converter.load(package).outputs] == ["y:0"]


def test_the_same_network_makes_the_same_bytes(tmp_path: Path) -> None:
    source = linear(tmp_path / "m.onnx", floats(3, 7))
    packages = [tmp_path / f"{i}.mlpackage" for i in range(2)]
    for package in packages:
        converter.convert(source, package)
    assert content(packages[0]) == content(packages[1])


def test_a_package_replaces_a_package_and_no_other_folder(tmp_path: Path) -> None:
    source, package = linear(tmp_path / "m.onnx", floats(3, 7)), tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (package / "left.txt").write_text("of the old one")
    with pytest.raises(ConverterError, match="exists"):
        converter.convert(source, package, force=False)
    converter.convert(source, package, force=True)
    assert not (package / "left.txt").exists()
    other = tmp_path / "n.mlpackage"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(
        ConverterError, match="the output would replace a folder that is not a model package"
    ):
        converter.convert(source, other, force=True)
    assert [p.name for p in other.iterdir()] == ["mine.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.mlpackage", "m.onnx", "n.mlpackage"]


def load_program(package: Path) -> None:
    """Let coremltools load the program, which checks each operation's operands."""
    pytest.importorskip("coremltools")
    from coremltools.converters.mil.frontend.milproto.load import load

    model, weights = model_of(package), package / "Data/com.apple.CoreML/weights"
    load(model, model.specificationVersion, str(weights))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_an_l2_pool_has_one_or_two_spatial_axes(axes: int, ceil_mode: int, tmp_path: Path) -> None:
    """The root of the sum of squares of each window; of volumes as an average pool."""
    size, kernel, stride = 6, 3, 2
    count = 3 if ceil_mode else 2
    node = h.make_node(
        *("LpPool", ["x"], ["y"]),
        kernel_shape=[kernel] * axes,
        strides=[stride] * axes,
        ceil_mode=ceil_mode,
    )
    source = network(
        tmp_path / "m.onnx", [node], {"x": [1, 2] + [size] * axes}, {"y": [1, 2] + [count] * axes}
    )
    package, x = tmp_path / "m.mlpackage", floats(1, 2, *[size] * axes)
    converter.convert(source, package)
    load_program(package)
    assert ("l2_pool" in kinds(package)) == (axes < 3)
    expected = np.zeros([1, 2] + [count] * axes)
    for place in np.ndindex(*[count] * axes):
        window = x[(..., *(slice(i * stride, i * stride + kernel) for i in place))]
        expected[(..., *place)] = np.sqrt((window**2).sum(tuple(range(2, axes + 2))))
    np.testing.assert_allclose(run(package, x=x), expected, rtol=1e-5)


@pytest.mark.parametrize("ios", ["15", "17"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_operands_stored_in_half_precision_become_constants(
    op: str, dilation: int, ios: str, tmp_path: Path
) -> None:
    """A bias, dilated filters, and before iOS 17 transposed ones, cannot be computed by a cast."""
    shape = (32, 4, 3, 3) if op == "Conv" else (4, 32, 3, 3)
    constants = {"w": floats(*shape).astype(np.float16), "b": floats(32).astype(np.float16)}
    nodes = [
        *(h.make_node("Cast", [k], [f"{k}32"], to=T.FLOAT) for k in constants),
        h.make_node(op, ["x", "w32", "b32"], ["y"], dilations=[dilation] * 2),
    ]
    size = 9 - 2 * dilation if op == "Conv" else 9 + 2 * dilation
    source = network(
        tmp_path / "m.onnx", nodes, {"x": [1, 4, 9, 9]}, {"y": [1, 32, size, size]}, **constants
    )
    package, x = tmp_path / "m.mlpackage", floats(1, 4, 9, 9)
    converter.convert(source, package, target=f"mlprogram+ios={ios}")
    load_program(package)
    (expected,) = ReferenceEvaluator(str(source)).run(None, {"x": x})
    np.testing.assert_allclose(run(package, x=x), expected, rtol=1e-4, atol=1e-4)


def test_a_quotient_of_integers_is_truncated(tmp_path: Path) -> None:
    x = np.array([[-7, 7, 5], [6, -6, 2]], np.int32)
    y = np.array([[2, -2, 3], [-4, -4, 2]], np.int32)
    nodes = [h.make_node("Div", ["x", "y"], ["z"])]
    shapes = {"x": [2, 3], "y": [2, 3]}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"z": [2, 3]}, T.INT32)
    converter.convert(source, tmp_path / "m.mlpackage")
    wanted = np.trunc(x / y).astype(np.int32)
    np.testing.assert_array_equal(run(tmp_path / "m.mlpackage", x=x, y=y), wanted)


@pytest.mark.parametrize("kind", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits_of_32_bit_integers(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(1 << 31), 1 << 31, (2, 3)).astype(np.int32) for _ in "xy")
    x[0], y[0] = [-(1 << 31), (1 << 31) - 1, -1], [-1, -(1 << 31), 1]
    shapes = {"x": [2, 3], "y": [2, 3]}
    nodes = [h.make_node(kind, ["x", "y"], ["z"])]
    source = network(tmp_path / "m.onnx", nodes, shapes, {"z": [2, 3]}, T.INT32)
    converter.convert(source, tmp_path / "m.mlpackage")
    wanted = {"BitwiseAnd": x & y, "BitwiseOr": x | y, "BitwiseXor": x ^ y}[kind]
    np.testing.assert_array_equal(run(tmp_path / "m.mlpackage", x=x, y=y), wanted)


def test_an_integer_of_more_than_32_bits_is_refused(tmp_path: Path) -> None:
    nodes = [h.make_node("Add", ["x", "c"], ["y"])]
    large = np.array([1 << 40], np.int64)
    source = network(tmp_path / "m.onnx", nodes, {"x": [1]}, {"y": [1]}, T.INT64, c=large)
    with pytest.raises(UnsupportedError, match=r"X204.*1099511627776"):
        converter.convert(source, tmp_path / "m.mlpackage")


def single(path: Path, op: str, shape: list[int], out: list[int], **attrs: Any) -> Path:
    """One operator of an input x; the result is y."""
    constants = {k: v for k, v in attrs.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in attrs.items() if k not in constants}
    nodes = [h.make_node(op, ["x", *constants], ["y"], **rest)]
    return network(path, nodes, {"x": shape}, {"y": out}, **constants)


def test_slopes_of_many_channels_are_a_constant_of_their_own(tmp_path: Path) -> None:
    x, slopes = floats(1, 12, 2, 3), np.arange(12, dtype=F).reshape(12, 1, 1)
    source = single(tmp_path / "m.onnx", "PRelu", [1, 12, 2, 3], [1, 12, 2, 3], s=slopes)
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (prelu,) = (o for o in operations(package) if o.type == "prelu")
    assert prelu.inputs["alpha"].arguments[0].WhichOneof("binding") == "name"
    np.testing.assert_allclose(run(package, x=x), np.where(x < 0, x * slopes, x), rtol=1e-6)


def test_a_choice_of_one_number_is_spread(tmp_path: Path) -> None:
    x = floats(3, 4)
    nodes = [
        h.make_node("Greater", ["x", "zero"], ["c"]),
        h.make_node("Where", ["c", "x", "low"], ["y"]),
    ]
    shapes = {"x": [3, 4]}
    constants = {"zero": F(0), "low": F(-5)}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"y": [3, 4]}, **constants)
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (select,) = (o for o in operations(package) if o.type == "select")
    (dims,) = (o.type.tensorType.dimensions for o in select.outputs)
    assert [d.constant.size for d in dims] == [3, 4]
    np.testing.assert_array_equal(run(package, x=x), np.where(x > 0, x, F(-5)))


def test_a_choice_of_numbers_by_a_condition_of_dynamic_size(tmp_path: Path) -> None:
    nodes = [
        h.make_node("Greater", ["x", "zero"], ["c"]),
        h.make_node("Where", ["c", "high", "low"], ["y"]),
    ]
    constants = {"zero": F(0), "high": F(2), "low": F(-5)}
    source = network(tmp_path / "m.onnx", nodes, {"x": ["n", 4]}, {"y": ["n", 4]}, **constants)
    package, x = tmp_path / "m.mlpackage", floats(3, 4)
    converter.convert(source, package)
    (select,) = (o for o in operations(package) if o.type == "select")
    names = {a.arguments[0].name for a in select.inputs.values()}
    ranks = {out.name: out.type.tensorType.rank for o in operations(package) for out in o.outputs}
    assert {ranks[n] for n in names} == {2}
    np.testing.assert_array_equal(run(package, x=x), np.where(x > 0, F(2), F(-5)))


def test_inputs_without_axes_get_one(tmp_path: Path) -> None:
    source = single(tmp_path / "m.onnx", "Exp", [], [])
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (given,) = model_of(package).mlProgram.functions["main"].inputs
    assert given.type.tensorType.rank == 1
    (own,) = converter.load(package).inputs
    assert own.shape == ()
    np.testing.assert_allclose(run(package, x=np.array(1, F)), np.e, rtol=1e-6)


def test_words_of_the_language_are_no_names(tmp_path: Path) -> None:
    nodes = [h.make_node("Relu", ["tensor"], ["true"])]
    source = network(tmp_path / "m.onnx", nodes, {"tensor": [2]}, {"true": [2]})
    converter.convert(source, tmp_path / "m.mlpackage")
    description = model_of(tmp_path / "m.mlpackage").description
    assert [description.input[0].name, description.output[0].name] == ["tensor_", "true_"]
    found = converter.load(tmp_path / "m.mlpackage")
    assert [found.inputs[0].name, found.outputs[0].name] == ["tensor", "true"]


def test_sizes_that_are_open_stay_open(tmp_path: Path) -> None:
    nodes = [h.make_node("Softmax", ["x"], ["y"], axis=-1)]
    source = network(tmp_path / "m.onnx", nodes, {"x": ["n", 3]}, {"y": ["n", 3]})
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    (feature,) = model_of(package).description.input
    ranges = feature.type.multiArrayType.shapeRange.sizeRanges
    assert [(r.lowerBound, r.upperBound) for r in ranges] == [(1, -1), (3, 3)]
    x = floats(5, 3)
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(run(package, x=x), wanted, rtol=1e-5)


def quantized(path: Path, dtype: Any) -> Path:
    """A product with weights of eight bits, with a factor for each column."""
    weights = RNG.integers(-8, 8, (16, 8)).astype(dtype)
    nodes = [
        h.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
        h.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    scales = np.linspace(0.5, 1, 8).astype(F)
    return network(path, nodes, {"x": [2, 16]}, {"y": [2, 8]}, w=weights, s=scales)


@pytest.mark.parametrize(
    ("ios", "kind"),
    [
        ("", "constexpr_affine_dequantize"),
        ("+ios=18", "constexpr_blockwise_shift_scale"),
        ("+ios=15", "linear"),  # has no compressed constants
    ],
)
def test_quantized_weights_stay_small_where_they_may(tmp_path: Path, ios: str, kind: str) -> None:
    source, package = quantized(tmp_path / "m.onnx", np.int8), tmp_path / "m.mlpackage"
    converter.convert(source, package, target=f"mlprogram{ios}")
    assert kind in kinds(package)
    x = floats(2, 16)
    np.testing.assert_allclose(run(package, x=x), run(source, x=x), rtol=1e-5, atol=1e-5)
    version = {"": 7, "+ios=18": 9, "+ios=15": 6}[ios]
    assert model_of(package).specificationVersion == version


def in_blocks(path: Path, n: int = 64, k: int = 128) -> tuple[Path, Any]:
    """com.microsoft's MatMulNBits, whose scales are one line of numbers, and its weights [n, k]."""
    packed = RNG.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    scales = RNG.random(n * k // 32).astype(F)
    attributes = {"K": k, "N": n, "bits": 4, "block_size": 32}
    node = h.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attributes)
    network(path, [node], {"x": [2, k]}, {"y": [2, n]}, w=packed, s=scales)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(n, k // 32, 32).astype(F)
    return path, ((codes - 8) * scales.reshape(n, k // 32, 1)).reshape(n, k)


@pytest.mark.parametrize("size", [128, 512])
def test_weights_of_four_bits_with_scales_of_blocks_stay_small(size: int, tmp_path: Path) -> None:
    source, weights = in_blocks(tmp_path / "m.onnx", size // 2, size)
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    assert kinds(package) == ["constexpr_blockwise_shift_scale", "linear"]
    assert model_of(package).specificationVersion == 9
    files = content(package)
    assert sum(map(len, files.values())) < weights.size // 2 + weights.size // 8 + 6000
    converter.convert(package, tmp_path / "b.onnx")
    types = {i.data_type for i in onnx.load(tmp_path / "b.onnx").graph.initializer}
    assert T.UINT4 in types
    x = floats(2, size)
    for path in (package, tmp_path / "b.onnx"):
        np.testing.assert_allclose(run(path, x=x), x @ weights.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("ios", "wanted"),
    [
        ("16", ["constexpr_affine_dequantize", "reshape", "matmul"]),
        ("15", ["linear"]),  # has no compressed constants
    ],
)
def test_blocks_are_rows_before_ios18(ios: str, wanted: list[str], tmp_path: Path) -> None:
    """Scales are there for the places of one axis: a row for each block, one byte for a number."""
    source, weights = in_blocks(tmp_path / "m.onnx")
    package, x = tmp_path / "m.mlpackage", floats(2, 128)
    converter.convert(source, package, target=f"mlprogram+ios={ios}")
    assert kinds(package) == wanted
    size = sum(map(len, content(package).values()))
    assert size < weights.size * (1 if ios == "16" else 4) + 4 * 256 + 6000
    np.testing.assert_allclose(run(package, x=x), x @ weights.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_blocks_of_any_axis_are_rows_before_ios18(axis: int, tmp_path: Path) -> None:
    codes = RNG.integers(-128, 128, (4, 6, 8)).astype(np.int8)
    scales = RNG.random([n // 2 if i == axis else n for i, n in enumerate(codes.shape)]).astype(F)
    nodes = [
        h.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=axis, block_size=2),
        h.make_node("Add", ["x", "f"], ["y"]),
    ]
    source = network(
        *(tmp_path / "m.onnx", nodes, {"x": [1, 6, 8]}, {"y": [4, 6, 8]}), w=codes, s=scales
    )
    model = onnx.load(source)
    model.opset_import[0].version = 21
    onnx.save(model, source)
    package, x = tmp_path / "m.mlpackage", floats(1, 6, 8)
    converter.convert(source, package, target="mlprogram+ios=17")
    assert "constexpr_affine_dequantize" in kinds(package)
    wanted = x + codes * np.repeat(scales, 2, axis)
    np.testing.assert_allclose(run(package, x=x), wanted, rtol=1e-5, atol=1e-4)


def test_activations_are_quantized_since_ios17(tmp_path: Path) -> None:
    """In eight bits between quantize and dequantize, with one scale or one for each channel; other
    consumers get the numbers in 32 bits.
    """
    zero, scales = np.uint8(7), np.array([0.5, 0.25, 0.125], F)
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        h.make_node("QuantizeLinear", ["d", "c"], ["p"], axis=1),
        h.make_node("Reshape", ["p", "line"], ["r"]),
        h.make_node("DequantizeLinear", ["r", "one"], ["y"]),
        h.make_node("Cast", ["q"], ["n"], to=T.FLOAT),
    ]
    constants = {"s": F(0.3), "z": zero, "c": scales, "line": np.array([-1]), "one": F(1)}
    source = network(
        *(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, {"y": [6], "n": [2, 3]}), **constants
    )
    package, x = tmp_path / "m.mlpackage", floats(2, 3) * 20
    converter.convert(source, package)
    assert model_of(package).specificationVersion == 8
    found = types_of(package)
    assert [f[:2] for f in found] == [
        *(("quantize", "uint8"), ("cast", "int32"), ("dequantize", "fp32")),
        *(("quantize", "uint8"), ("cast", "int32"), ("reshape", "int32"), ("cast", "uint8")),
        *(("dequantize", "fp32"), ("cast", "fp32")),
    ]
    q = np.clip(np.round(x / F(0.3)) + 7, 0, 255)
    p = np.clip(np.round((q - 7) * F(0.3) / scales), 0, 255)
    got = converter.load(package).run({"x": x})
    np.testing.assert_array_equal(got["n"], q)
    np.testing.assert_array_equal(got["y"], p.reshape(-1))
    converter.convert(source, package, target="mlprogram+ios=16")
    assert not {"quantize", "dequantize"} & set(kinds(package))
    np.testing.assert_array_equal(converter.load(package).run({"x": x})["y"], p.reshape(-1))


def test_weights_of_four_bits_are_stored_in_eight_before_ios18(tmp_path: Path) -> None:
    codes, scales = RNG.integers(-8, 8, (16, 8)).astype(np.int8), np.linspace(0.5, 1, 8).astype(F)
    nodes = [
        h.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
        h.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    source = network(tmp_path / "m.onnx", nodes, {"x": [2, 16]}, {"y": [2, 8]}, s=scales)
    model = onnx.load(source)
    model.graph.initializer.append(h.make_tensor("w", T.INT4, [16, 8], codes.reshape(-1)))
    model.opset_import[0].version = 21
    onnx.save(model, source)
    package, x = tmp_path / "m.mlpackage", floats(2, 16)
    converter.convert(source, package, target="mlprogram+ios=16")
    assert "constexpr_affine_dequantize" in kinds(package)
    np.testing.assert_allclose(run(package, x=x), x @ (codes * scales), rtol=1e-4, atol=1e-4)


def types_of(package: Path) -> list[tuple[str, str, list[int]]]:
    """Operations with the types of their results, each of which `cast` names itself."""
    words = {10: "fp16", 11: "fp32", 23: "int32", 21: "int8", 31: "uint8", 1: "bool"}
    found = []
    for o in operations(package):
        if o.type != "const":
            kind = o.outputs[0].type.tensorType
            sizes = [d.constant.size for d in kind.dimensions]
            found.append((o.type, words[kind.dataType], sizes))
            if o.type == "cast":
                given = o.inputs["dtype"].arguments[0].value.immediateValue.tensor.strings
                assert list(given.values) == [words[kind.dataType]]
    return found


def test_half_precision_is_inside_and_not_at_the_boundary(tmp_path: Path) -> None:
    weights, x = floats(3, 7), floats(2, 3)
    package = tmp_path / "m.mlpackage"
    converter.convert(linear(tmp_path / "m.onnx", weights), package, target="mlprogram+fp16")
    assert types_of(package) == [
        ("cast", "fp16", [2, 3]),
        ("linear", "fp16", [2, 7]),
        ("add", "fp16", [2, 7]),
        ("cast", "fp32", [2, 7]),
    ]
    np.testing.assert_allclose(run(package, x=x), x @ weights + 2, rtol=1e-2, atol=1e-2)


def test_inputs_without_axes_in_half_precision(tmp_path: Path) -> None:
    source, package = tmp_path / "m.onnx", tmp_path / "m.mlpackage"
    network(source, [h.make_node("Exp", ["x"], ["y"])], {"x": []}, {"y": []})
    converter.convert(source, package, target="mlprogram+fp16")
    assert types_of(package) == [
        ("squeeze", "fp32", []),
        ("cast", "fp16", []),
        ("exp", "fp16", []),
        ("cast", "fp32", []),
    ]
    np.testing.assert_allclose(run(package, x=F(2)), np.exp(2), rtol=1e-2)


def test_a_classifier(tmp_path: Path) -> None:
    nodes = [
        h.make_node("Softmax", ["x"], ["p"], axis=-1),
        h.make_node("ArgMax", ["p"], ["i"], axis=1, keepdims=0),
        h.make_node("Gather", ["words", "i"], ["label"]),
    ]
    words = h.make_tensor("words", T.STRING, [3], [b"cat", b"dog", b"cow"])
    outputs = [
        h.make_tensor_value_info("label", T.STRING, [1]),
        h.make_tensor_value_info("p", T.FLOAT, [1, 3]),
    ]
    inputs = [h.make_tensor_value_info("x", T.FLOAT, [1, 3])]
    graph = h.make_graph(nodes, "g", inputs, outputs, [words])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(tmp_path / "m.onnx"))
    package = tmp_path / "m.mlpackage"
    converter.convert(tmp_path / "m.onnx", package)
    description = model_of(package).description
    assert description.predictedFeatureName == "label"
    assert description.predictedProbabilitiesName == "p"
    assert description.output[1].type.dictionaryType.WhichOneof("KeyType") == "stringKeyType"
    found = converter.load(package).run({"x": np.array([[1, 3, 2]], F)})
    assert str(found["label"]) == "dog"
    np.testing.assert_allclose(found["p"].sum(), 1, rtol=1e-6)


def test_a_loop_that_collects(tmp_path: Path) -> None:
    """x + 0, x + 1, ... as many times as n says."""
    body = h.make_graph(
        [
            h.make_node("Identity", ["go"], ["again"]),
            h.make_node("Add", ["s", "one"], ["s2"]),
            h.make_node("Identity", ["s"], ["row"]),
        ],
        "b",
        [
            h.make_tensor_value_info("i", T.INT64, []),
            h.make_tensor_value_info("go", T.BOOL, []),
            h.make_tensor_value_info("s", T.FLOAT, [2]),
        ],
        [
            h.make_tensor_value_info("again", T.BOOL, []),
            h.make_tensor_value_info("s2", T.FLOAT, [2]),
            h.make_tensor_value_info("row", T.FLOAT, [2]),
        ],
    )
    nodes = [h.make_node("Loop", ["n", "", "x"], ["last", "rows"], body=body)]
    inputs = [
        h.make_tensor_value_info("n", T.INT64, []),
        h.make_tensor_value_info("x", T.FLOAT, [2]),
    ]
    outputs = [
        h.make_tensor_value_info("last", T.FLOAT, [2]),
        h.make_tensor_value_info("rows", T.FLOAT, [None, 2]),
    ]
    one = numpy_helper.from_array(F(1), "one")
    graph = h.make_graph(nodes, "g", inputs, outputs, [one])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(tmp_path / "m.onnx"))
    package = tmp_path / "m.mlpackage"
    converter.convert(tmp_path / "m.onnx", package)
    assert "while_loop" in kinds(package)
    x = floats(2)
    found = converter.load(package).run({"n": np.array(3, np.int32), "x": x})
    np.testing.assert_allclose(found["last"], x + 3, rtol=1e-6)
    np.testing.assert_allclose(found["rows"], x + np.arange(3, dtype=F)[:, None], rtol=1e-6)


def test_states_are_states_again(tmp_path: Path) -> None:
    from mil_files import Block, Op
    from mil_files import package as made

    half, shape = "float16", [2, 3]
    ops = [
        Op("read_state", {"input": "$s"}, {"a": (half, shape)}),
        Op("add", {"x": "$a", "y": "$x"}, {"y": (half, shape)}),
        Op("write_state", {"input": "$s", "data": "$y"}, {}),
    ]
    block = Block({"x": (half, shape), "s": (half, shape)}, ops, ["y"])
    source = made(tmp_path / "a.mlpackage", block, states=["s"], opset="CoreML8")
    package = tmp_path / "b.mlpackage"
    converter.convert(source, package)
    assert {"read_state", "write_state"} < set(kinds(package))
    model = model_of(package)
    assert [f.name for f in model.description.state] == ["s"]
    assert [f.name for f in model.description.output] == ["y"]
    again = converter.load(package)
    assert again.interface["states"] == {"s": "s_out"}
    x = np.ones(shape, np.float16)
    first = again.run({"x": x})
    second = again.run({"x": x, "s": first["s_out"]})
    np.testing.assert_array_equal(second["y"], np.full(shape, 2, np.float16))


def test_the_newest_operation_of_a_flavor_that_lacks_it_is_refused_or_taken_apart(
    tmp_path: Path,
) -> None:
    nodes = [h.make_node("GRU", ["x", "w", "r"], ["", "y"], hidden_size=2, linear_before_reset=1)]
    shapes, out = {"x": [3, 1, 4]}, {"y": [1, 1, 2]}
    weights = {"w": floats(1, 6, 4), "r": floats(1, 6, 2)}
    source = network(tmp_path / "m.onnx", nodes, shapes, out, **weights)
    x, found = floats(3, 1, 4), {}
    for ios in ("15", "18"):
        package = tmp_path / f"{ios}.mlpackage"
        converter.convert(source, package, target=f"mlprogram+ios={ios}")
        assert ("gru" in kinds(package)) == (ios == "18")
        found[ios] = run(package, x=x)
        np.testing.assert_allclose(found[ios], run(source, x=x), rtol=1e-4, atol=1e-5)


def test_branches_of_different_sizes_are_refused(tmp_path: Path) -> None:
    def branch(name: str, n: int) -> Any:
        node = h.make_node("Expand", ["x", f"{name}_n"], [name])
        size = numpy_helper.from_array(np.array([n, 1]), f"{name}_n")
        out = [h.make_tensor_value_info(name, T.FLOAT, [n, 1])]
        return h.make_graph([node], name, [], out, [size])

    node = h.make_node("If", ["c"], ["y"], then_branch=branch("a", 2), else_branch=branch("b", 3))
    inputs = [
        h.make_tensor_value_info("c", T.BOOL, []),
        h.make_tensor_value_info("x", T.FLOAT, [1, 1]),
    ]
    graph = h.make_graph([node], "g", inputs, [h.make_tensor_value_info("y", T.FLOAT, [None, 1])])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(
        UnsupportedError, match="branches with results of different sizes are not supported"
    ):
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.mlpackage")


def computed_slice(path: Path, x: list[Any], axes: list[int], steps: list[int]) -> Path:
    """Of "x", with bounds that are inputs."""
    count = len(axes)
    graph = h.make_graph(
        [h.make_node("Slice", ["x", "start", "end", "axes", "steps"], ["y"])],
        "g",
        [
            h.make_tensor_value_info("x", T.FLOAT, x),
            h.make_tensor_value_info("start", T.INT32, [count]),
            h.make_tensor_value_info("end", T.INT32, [count]),
        ],
        [h.make_tensor_value_info("y", T.FLOAT, [None] * len(x))],
        [
            numpy_helper.from_array(np.array(axes, np.int32), "axes"),
            numpy_helper.from_array(np.array(steps, np.int32), "steps"),
        ],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9), str(path))
    return path


@pytest.mark.parametrize(
    ("axes", "start", "end", "steps"),
    [
        ([0, 1, 2], [1, 0, -3], [4, 9, -1], [1, 1, 1]),
        ([0, 1, 2], [3, -1, 9], [-99, -99, 1], [-1, -1, -2]),
        ([2, 0], [-5, 2], [99, 3], [2, 1]),
        ([0, 2], [3, 0], [0, 2], [-1, 1]),
        ([1], [2], [2], [1]),
    ],
)
@pytest.mark.parametrize("open_size", [False, True])
def test_slices_with_computed_bounds(
    axes: list[int],
    start: list[int],
    end: list[int],
    steps: list[int],
    open_size: bool,
    tmp_path: Path,
) -> None:
    size: list[Any] = ["n", 4, 6] if open_size else [5, 4, 6]
    package = tmp_path / "m.mlpackage"
    converter.convert(computed_slice(tmp_path / "m.onnx", size, axes, steps), package)
    x = floats(5, 4, 6)
    feeds = {"x": x, "start": np.array(start, np.int32), "end": np.array(end, np.int32)}
    places = [slice(None)] * 3
    for axis, *bounds in zip(axes, start, end, steps, strict=True):
        places[axis] = slice(*bounds)
    np.testing.assert_array_equal(run(package, **feeds), x[tuple(places)])


@pytest.mark.parametrize(
    ("mode", "rule"),
    [("linear", "half_pixel"), ("linear", "align_corners"), ("nearest", "asymmetric")],
)
def test_sizes_that_are_factors_of_the_image(mode: str, rule: str, tmp_path: Path) -> None:
    """Floor(size * factor) of a dynamic size: the operation rounds down, too, and takes the
    coordinates from the sizes, as ONNX does.
    """
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Cast", ["shape"], ["sizes"], to=T.FLOAT),
        h.make_node("Mul", ["sizes", "factors"], ["scaled"]),
        h.make_node("Floor", ["scaled"], ["floor"]),
        h.make_node("Cast", ["floor"], ["new"], to=T.INT64),
        h.make_node(
            "Resize",
            ["x", "", "", "new"],
            ["y"],
            mode=mode,
            coordinate_transformation_mode=rule,
            nearest_mode="floor",
        ),
    ]
    factors = np.array([1, 1, 2.6, 0.7], F)
    source = network(
        tmp_path / "m.onnx",
        nodes,
        {"x": [1, 2, "h", "w"]},
        {"y": [1, 2, "a", "b"]},
        factors=factors,
    )
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    assert set(kinds(package)) & {"upsample_bilinear", "upsample_nearest_neighbor"}
    x = floats(1, 2, 5, 9)
    wanted = ReferenceEvaluator(str(source)).run(None, {"x": x})[0]
    assert wanted.shape == (1, 2, 13, 6)
    np.testing.assert_allclose(run(package, x=x), wanted, atol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 0.3])
@pytest.mark.parametrize(("ios", "fused"), [("17", False), ("18", True)])
def test_attention_is_one_operation_from_ios18(
    ios: str, fused: bool, scale: float, tmp_path: Path
) -> None:
    nodes = [
        h.make_node("Mul", ["q", "scale"], ["s"]),
        h.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        h.make_node("MatMul", ["s", "t"], ["a"]),
        h.make_node("Add", ["a", "mask"], ["m"]),
        h.make_node("Softmax", ["m"], ["p"], axis=-1),
        h.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": [1, 2, 3, 4], "k": [1, 2, 5, 4], "v": [1, 2, 5, 6]}
    mask = np.where(np.tri(3, 5, 2), F(0), F(-1e4))
    source = network(
        *(tmp_path / "m.onnx", nodes, shapes, {"y": [1, 2, 3, 6]}), scale=F(scale), mask=mask
    )
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package, target=f"mlprogram+ios={ios}")
    assert ("scaled_dot_product_attention" in kinds(package)) == fused
    # the operation scales by the root of the size, 0.5 here
    assert ("mul" in kinds(package)) == (not fused or scale != 0.5)
    q, k, v = (floats(*s) for s in shapes.values())
    weights = np.exp(scale * q @ k.swapaxes(-1, -2) + mask)
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run(package, q=q, k=k, v=v), wanted, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_has_its_bias(tmp_path: Path) -> None:
    """Plain weights, and quantized ones whose axes are changed; weights that are read elsewhere,
    too, stay separate.
    """
    weights, codes = floats(3, 5), RNG.integers(-128, 128, (3, 5)).astype(np.int8)
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["m"]),
        h.make_node("Add", ["c", "m"], ["a"]),
        h.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        h.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        h.make_node("MatMul", ["a", "t"], ["n"]),
        h.make_node("Add", ["n", "e"], ["y"]),
        h.make_node("MatMul", ["y", "w"], ["p"]),
        h.make_node("Add", ["p", "c"], ["z"]),
        h.make_node("Add", ["p", "z"], ["last"]),
    ]
    c, e = floats(5), floats(1, 3)
    outputs = {"last": [2, 5]}
    constants = {"w": weights, "c": c, "q": codes, "s": F(0.1), "e": e}
    source = network(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, outputs, **constants)
    package, x = tmp_path / "m.mlpackage", floats(2, 3)
    converter.convert(source, package)
    dequantize = "constexpr_affine_dequantize"
    assert kinds(package) == ["linear", dequantize, "linear", "linear", "add", "add"]
    y = (x @ weights + c) @ (codes * F(0.1)).T + e
    np.testing.assert_allclose(run(package, x=x), 2 * (y @ weights) + c, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("sum_", [True, False])
@pytest.mark.parametrize("op", ["Reciprocal", "Div"])
def test_roots_and_gates_are_one_operation(op: str, sum_: bool, tmp_path: Path) -> None:
    """1 / sqrt(x + number), x * sigmoid(x)."""
    nodes = [
        h.make_node("Add", ["x", "small"], ["a"]),
        h.make_node("Sqrt", ["a" if sum_ else "x"], ["r"]),
        h.make_node(op, ["r"] if op == "Reciprocal" else ["one", "r"], ["i"]),
        h.make_node("Sigmoid", ["i"], ["s"]),
        h.make_node("Mul", ["s", "i"], ["y"]),
    ]
    constants = {"small": F(0.5), "one": F(1)}
    source = network(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, {"y": [2, 3]}, **constants)
    package, x = tmp_path / "m.mlpackage", np.abs(floats(2, 3))
    converter.convert(source, package)
    assert kinds(package) == ["rsqrt", "silu"]
    number = next(o for o in operations(package) if o.type == "rsqrt").inputs["epsilon"]
    (epsilon,) = number.arguments[0].value.immediateValue.tensor.floats.values
    assert epsilon == (0.5 if sum_ else 0)
    i = 1 / np.sqrt(x + F(epsilon))
    np.testing.assert_allclose(run(package, x=x), i / (1 + np.exp(-i)), rtol=1e-5)


@pytest.mark.parametrize(("ios", "kind"), [("15", "fp32"), ("16", "fp16")])
def test_coordinates_of_half_precision(ios: str, kind: str, tmp_path: Path) -> None:
    """`resample` takes them since iOS16."""
    nodes = [h.make_node("Tanh", ["g"], ["t"]), h.make_node("GridSample", ["x", "t"], ["y"])]
    shapes = {"x": [1, 2, 4, 5], "g": [1, 3, 3, 2]}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"y": [1, 2, 3, 3]})
    package, feeds = tmp_path / "m.mlpackage", {k: floats(*v) for k, v in shapes.items()}
    converter.convert(source, package, target=f"mlprogram+ios={ios}+fp16")
    made = {o.outputs[0].name: o.outputs[0].type.tensorType.dataType for o in operations(package)}
    (sample,) = (o for o in operations(package) if o.type == "resample")
    assert made[sample.inputs["coordinates"].arguments[0].name] == {"fp32": 11, "fp16": 10}[kind]
    found = converter.load(package).run(feeds)["y"]
    np.testing.assert_allclose(found, run(source, **feeds), rtol=5e-2, atol=5e-2)


def test_empty_parts_are_left_out_after_quantized_weights(tmp_path: Path) -> None:
    codes = RNG.integers(-128, 128, (3, 4)).astype(np.int8)
    nodes = [
        h.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        h.make_node("MatMul", ["x", "w"], ["m"]),
        h.make_node("Slice", ["m", "zero", "zero"], ["none"]),
        h.make_node("Concat", ["none", "m"], ["y"], axis=0),
    ]
    constants = {"q": codes, "s": F(0.5), "zero": np.array([0])}
    source = network(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, {"y": [2, 4]}, **constants)
    x = floats(2, 3)
    converter.convert(source, tmp_path / "m.mlpackage")
    found = run(tmp_path / "m.mlpackage", x=x)
    np.testing.assert_allclose(found, x @ (codes * F(0.5)), rtol=1e-4, atol=1e-4)


def test_a_choice_of_operands_of_other_dynamic_sizes(tmp_path: Path) -> None:
    """None of them has the size of the result, which is not completely known."""
    nodes = [
        h.make_node("Greater", ["c", "zero"], ["p"]),
        h.make_node("Where", ["p", "x", "zero"], ["y"]),
    ]
    shapes = {"c": ["m", "n"], "x": [2, "k", "n"]}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"y": [2, "r", "n"]}, zero=F(0))
    package = tmp_path / "m.mlpackage"
    converter.convert(source, package)
    for rows, own in ((1, 3), (3, 1), (3, 3)):
        c, x = floats(rows, 4), floats(2, own, 4)
        np.testing.assert_array_equal(run(package, c=c, x=x), np.where(c > 0, x, F(0)))


def test_short_integers_are_added_in_32_bits(tmp_path: Path) -> None:
    source = network(
        *(tmp_path / "m.onnx", [h.make_node("Add", ["x", "x"], ["y"])]),
        *({"x": [2]}, {"y": [2]}, T.INT16),
    )
    converter.convert(source, tmp_path / "m.mlpackage")
    assert "add" in kinds(tmp_path / "m.mlpackage")


def test_quantized_networks_with_suppression_are_for_ios16(tmp_path: Path) -> None:
    """`quantize` is there since iOS17, a least score of a suppression until then."""
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        h.make_node("NonMaxSuppression", ["b", "d", "most", "iou", "least"], ["n"]),
        h.make_node("Cast", ["n"], ["y"], to=T.FLOAT),
    ]
    constants = {"s": F(0.01), "most": np.array([2]), "iou": F([0.5]), "least": F([0.1])}
    shapes = {"x": [1, 1, 3], "b": [1, 3, 4]}
    source = network(tmp_path / "m.onnx", nodes, shapes, {"y": ["n", 3]}, **constants)
    converter.convert(source, tmp_path / "m.mlpackage")
    assert model_of(tmp_path / "m.mlpackage").specificationVersion < 8


@pytest.mark.parametrize(
    ("image", "weights", "attributes"),
    [
        ([1, 4, 9, 8], [6, 2, 3, 2], {"dilations": [2, 3], "group": 2, "pads": [1, 0, 2, 1]}),
        ([1, 4, 9], [6, 4, 3], {"dilations": [2], "strides": [2]}),
        ([1, 4, 9, 8], [6, 4, 1, 3], {"dilations": [2, 2]}),
    ],
)
def test_computed_weights_get_zeros_instead_of_dilations(
    image: list[int], weights: list[int], attributes: dict[str, Any], tmp_path: Path
) -> None:
    """Dilations need constant weights."""
    node = h.make_node("Conv", ["x", "w"], ["y"], **attributes)
    inputs = [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in (("x", image), ("w", weights))]
    graph = h.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, tmp_path / "m.onnx")
    path = tmp_path / "m.mlpackage"
    converter.convert(tmp_path / "m.onnx", path)
    (convolution,) = (o for o in operations(path) if o.type == "conv")
    given = convolution.inputs["dilations"].arguments[0]
    assert set(given.value.immediateValue.tensor.ints.values) <= {1}
    x, w = floats(*image), floats(*weights)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x, "w": w})
    np.testing.assert_allclose(run(path, x=x, w=w), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "shape", "out"), [("Squeeze", [2, 3, 1], [2, 3]), ("Unsqueeze", [2, 3], [2, 3, 1])]
)
def test_axes_of_size_one_count_from_the_end(
    op: str, shape: list[int], out: list[int], tmp_path: Path
) -> None:
    path = single(tmp_path / "m.onnx", op, shape, out, axes=np.array([-1]))
    converter.convert(path, tmp_path / "m.mlpackage")
    x = np.arange(6, dtype=np.float32).reshape(shape)
    (found,) = converter.load(tmp_path / "m.mlpackage").run(x=x).values()
    np.testing.assert_array_equal(found, x.reshape(out))
