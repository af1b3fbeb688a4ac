"""ML Programs: read programs compute the operations' definitions; programs that cannot be read are
refused by name.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_files import PACKED, Blob, Block, Op, package

import converter
from converter.errors import ConverterError, ReadError, UnsupportedError
from converter.formats.coreml.proto import Model_pb2
from support import corpus_cases, run_python

F = np.float32
RNG = np.random.default_rng(31)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def one(path: Path, kind: str, dims: Any, out: Any, opset: str = "CoreML7", **given: Any) -> Path:
    """One operation on an input x; the result is y."""
    op = Op(kind, {"x": "$x", **given}, {"y": ("float32", out)})
    return package(path, Block({"x": ("float32", dims)}, [op], ["y"]), opset=opset)


def run(path: Path, **feeds: Any) -> Any:
    return next(iter(converter.load(path).run(feeds).values()))


def convolved(x: Any, w: Any, pads: Any) -> Any:
    """A convolution by the book: x [1,c,h,w], w [o,c,kh,kw], pads top, bottom, left, right."""
    x = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    kh, kw = w.shape[2:]
    rows, columns = x.shape[2] - kh + 1, x.shape[3] - kw + 1
    cells = [
        [np.einsum("chw,ochw->o", x[0, :, i : i + kh, j : j + kw], w) for j in range(columns)]
        for i in range(rows)
    ]
    return np.array(cells).transpose(2, 0, 1)[None]


def test_a_convolution_whose_weights_are_stored(tmp_path: Path) -> None:
    x, w, bias = floats(1, 2, 5, 6), floats(3, 2, 3, 2), floats(3)
    pad = [1, 0, 2, 1]  # before and after of each axis
    path = one(
        *(tmp_path / "m.mlpackage", "conv", x.shape, [1, 3, 4, 8]),
        weight=Blob(w),
        bias=Blob(bias),
        pad_type="custom",
        pad=np.array(pad),
        strides=np.array([1, 1]),
    )
    wanted = convolved(x, w, pad) + bias[:, None, None]
    np.testing.assert_allclose(run(path, x=x), wanted, rtol=1e-4, atol=1e-5)


X = floats(2, 3, 4)
OPERATIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "linear": (
        {"weight": (w := floats(5, 4)), "bias": (c := floats(5))},
        X @ w.T + c,
    ),
    "matmul": ({"y": (m := np.arange(20, dtype=np.int32).reshape(4, 5))}, X @ m),
    "clamped_relu": ({"alpha": 0.5, "beta": 1.0}, np.minimum(np.where(X >= 0, X, X * 0.5), 1)),
    "scaled_tanh": ({"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(0.5 * X)),
    "silu": ({}, X / (1 + np.exp(-X))),
    "softmax": ({"axis": 1}, np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    "l2_norm": (
        {"epsilon": 1e-3},
        X / np.sqrt((X * X).sum((0, 1, 2), keepdims=True) + 1e-3),
    ),
    "reduce_log_sum_exp": (
        {"axes": np.array([-1]), "keep_dims": False},
        np.log(np.exp(X).sum(-1)),
    ),
    "slice_by_index": (
        {
            "begin": np.array([1, 2, 0]),
            "end": np.array([0, 0, 3]),
            "stride": np.array([1, -1, 2]),
            "end_mask": np.array([False, True, False]),
            "squeeze_mask": np.array([True, False, False]),
        },
        X[1, ::-1, 0:3:2],
    ),
    "slice_update": (
        {
            "update": np.full((1, 3, 2), 7, F),
            "begin": np.array([0, 0, 1]),
            "end": np.array([1, 3, 3]),
        },
        np.where(np.pad(np.ones((1, 3, 2)), ((0, 1), (0, 0), (1, 1))) > 0, 7, X),
    ),
    "pad": (
        {"pad": np.array([1, 0, 2, 1]), "mode": "constant", "constant_val": 0.5},
        np.pad(X, ((0, 0), (1, 0), (2, 1)), constant_values=0.5),
    ),
    "reverse": ({"axes": np.array([0, 2])}, X[::-1, :, ::-1]),
    "sliding_windows": (
        {"axis": 2, "size": 2, "stride": 2},
        X.reshape(2, 3, 2, 2),
    ),
    "band_part": (
        {"lower": 0, "upper": 1},
        X * np.array([[[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]),
    ),
    "cumsum": (
        {"axis": 1, "exclusive": True, "reverse": False},
        np.concatenate([np.zeros((2, 1, 4)), X.cumsum(1)[:, :-1]], 1),
    ),
    "layer_norm": (
        {"axes": np.array([1]), "epsilon": 1e-5},
        (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5),
    ),
}


@pytest.mark.parametrize("kind", OPERATIONS)
def test_operations(kind: str, tmp_path: Path) -> None:
    given, wanted = OPERATIONS[kind]
    path = one(tmp_path / "m.mlpackage", kind, X.shape, wanted.shape, **given)
    np.testing.assert_allclose(run(path, x=X), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "wanted"), [("CoreML6", (2, 3, 4)), ("CoreML7", (2, 3, 4))])
def test_a_zero_in_a_shape_copies_the_size_of_its_axis(
    opset: str, wanted: Any, tmp_path: Path
) -> None:
    path = one(
        tmp_path / "m.mlpackage", "reshape", X.shape, wanted, opset, shape=np.array([0, 0, -1])
    )
    assert run(path, x=X).shape == wanted


def test_a_zero_counts_from_the_end_since_ios17(tmp_path: Path) -> None:
    shape = np.array([6, 0])
    early = one(tmp_path / "a.mlpackage", "reshape", [2, 3, 4], [6, 3], "CoreML6", shape=shape)
    late = one(tmp_path / "b.mlpackage", "reshape", [2, 3, 4], [6, 4], "CoreML7", shape=shape)
    with pytest.raises(ConverterError):
        converter.load(early)
    assert run(late, x=X).shape == (6, 4)


def test_quantized_weights_stay_quantized(tmp_path: Path) -> None:
    q = RNG.integers(-127, 128, (3, 4)).astype(np.int8)
    scale, zero = np.array([[0.1], [0.2], [0.3]], F), np.array([[1], [0], [-2]], np.int8)
    weights = Op(
        "constexpr_blockwise_shift_scale",
        {"data": Blob(q), "scale": scale, "offset": zero},
        {"w": ("float32", [3, 4])},
    )
    product = Op("linear", {"x": "$x", "weight": "$w"}, {"y": ("float32", [2, 3])})
    block = Block({"x": ("float32", [2, 4])}, [weights, product], ["y"])
    path, x = package(tmp_path / "m.mlpackage", block, opset="CoreML8"), floats(2, 4)
    np.testing.assert_allclose(
        run(path, x=x), x @ ((q - zero.astype(F)) * scale).T, rtol=1e-4, atol=1e-5
    )
    assert "DequantizeLinear" in {n.op_type for n in converter.load(path).ir.graph}


def test_a_loop_over_a_list(tmp_path: Path) -> None:
    """Rows of x, doubled as often as their index, are written into a list one by one."""
    i, ls = ("int32", []), ("float32", [-1, 3])
    body = Block(
        {"i": i, "ls": ls},
        [
            Op("gather", {"x": "$x", "indices": "$i", "axis": 0}, {"row": ("float32", [3])}),
            Op("mul", {"x": "$row", "y": F(2)}, {"twice": ("float32", [3])}),
            Op("list_write", {"ls": "$ls", "index": "$i", "value": "$twice"}, {"ls2": ls}),
            Op("add", {"x": "$i", "y": 1}, {"i2": i}),
        ],
        ["i2", "ls2"],
    )
    condition = Block(
        {"a": i, "b": ls}, [Op("less", {"x": "$a", "y": 4}, {"more": ("bool", [])})], ["more"]
    )
    ops = [
        Op("make_list", {"init_length": 1, "elem_shape": [3], "dtype": "fp32"}, {"l": ls}),
        Op(
            "while_loop",
            {"loop_vars": [0, "$l"]},
            {"n": i, "rows": ls},
            [condition, body],
        ),
        Op("list_gather", {"ls": "$rows", "indices": np.array([3, 0])}, {"y": ("float32", [2, 3])}),
    ]
    x = floats(4, 3)
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float32", [4, 3])}, ops, ["y"]))
    np.testing.assert_allclose(run(path, x=x), 2 * x[[3, 0]], rtol=1e-6)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_list_whose_elements_have_a_symbolic_size(batch: int, tmp_path: Path) -> None:
    """As coremltools writes a TensorArray with a dynamic batch."""
    rows = ("float32", [3, batch, 4])
    made = {"init_length": 3, "elem_shape": ["is0", 4], "dtype": "fp32", "dynamic_length": False}
    written = {"ls": "$l", "indices": np.array([2, 0, 1]), "value": "$x"}
    ops = [
        Op("make_list", made, {"l": rows}),
        Op("list_scatter", written, {"m": rows}),
        Op(
            "list_gather",
            {"ls": "$m", "indices": np.array([0, 2])},
            {"y": ("float32", [2, batch, 4])},
        ),
    ]
    path = package(tmp_path / "m.mlpackage", Block({"x": rows}, ops, ["y"]))
    x = floats(3, batch, 4)
    np.testing.assert_array_equal(run(path, x=x), x[[1, 0]])


def test_a_branch(tmp_path: Path) -> None:
    sides = [
        Block({}, [Op(kind, {"x": "$x"}, {"r": ("float32", [3])})], ["r"])
        for kind in ("exp", "abs")
    ]
    ops = [
        Op("reduce_sum", {"x": "$x", "axes": np.array([0])}, {"s": ("float32", [])}),
        Op("greater", {"x": "$s", "y": F(0)}, {"p": ("bool", [])}),
        Op("cond", {"pred": "$p"}, {"y": ("float32", [3])}, sides),
    ]
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float32", [3])}, ops, ["y"]))
    for x in (F([1, 2, 3]), F([-1, -2, -3])):
        np.testing.assert_allclose(
            run(path, x=x), np.exp(x) if x.sum() > 0 else np.abs(x), rtol=1e-6
        )


def accumulator(path: Path) -> Path:
    half = ("float16", [3])
    ops = [
        Op("read_state", {"input": "$sum"}, {"old": half}),
        Op("add", {"x": "$old", "y": "$x"}, {"new": half}),
        Op("write_state", {"input": "$sum", "data": "$new"}, {}),
        Op("mul", {"x": "$new", "y": np.float16(2)}, {"y": half}),
    ]
    inputs = {"x": half, "sum": half}
    return package(path, Block(inputs, ops, ["y"]), ["sum"], opset="CoreML8")


def test_a_state(tmp_path: Path) -> None:
    model = converter.load(accumulator(tmp_path / "m.mlpackage"))
    assert model.interface["states"] == {"sum": "sum_out"}
    x = np.array([1, 2, 3], np.float16)
    first = model.run({"x": x})
    np.testing.assert_array_equal(first["y"], 2 * x)
    second = model.run({"x": x, "sum": first["sum_out"]})
    np.testing.assert_array_equal(second["y"], 4 * x)


@pytest.mark.parametrize("target", ["onnx", "openvino", "tflite"])
def test_other_formats(target: str, tmp_path: Path) -> None:
    x, w = floats(1, 2, 5, 5), floats(3, 2, 3, 3)
    source = one(
        *(tmp_path / "m.mlpackage", "conv", x.shape, [1, 3, 5, 5]), weight=Blob(w), pad_type="same"
    )
    written = tmp_path / f"m.{'xml' if target == 'openvino' else target}"
    converter.convert(source, written, target=target)
    wanted = convolved(x, w, (1, 1, 1, 1))
    np.testing.assert_allclose(run(written, x=x), wanted, rtol=1e-4, atol=1e-5)


# files -------------------------------------------------------------------------------------------


def relu(path: Path) -> Path:
    return one(path, "relu", [2, 3], [2, 3])


def test_a_bare_file_is_a_program_too(tmp_path: Path) -> None:
    inner = relu(tmp_path / "m.mlpackage") / "Data/com.apple.CoreML/model.mlmodel"
    (tmp_path / "bare.mlmodel").write_bytes(inner.read_bytes())
    assert converter.load(tmp_path / "bare.mlmodel").format == "mlprogram"


def test_a_package_with_a_neural_network_is_coreml(tmp_path: Path) -> None:
    path = relu(tmp_path / "m.mlpackage")
    model = Path(__file__).resolve().parents[2] / "samples" / "digits_cnn.mlmodel"
    (path / "Data/com.apple.CoreML/model.mlmodel").write_bytes(model.read_bytes())
    assert converter.load(path).format == "coreml"


def test_the_manifest_says_where_the_model_is(tmp_path: Path) -> None:
    path = relu(tmp_path / "m.mlpackage")
    (path / "Data/other").mkdir()
    (path / "Data/com.apple.CoreML/model.mlmodel").rename(path / "Data/other/net.mlmodel")
    manifest = json.loads((path / "Manifest.json").read_text())
    manifest["itemInfoEntries"]["A"]["path"] = "other/net.mlmodel"
    (path / "Manifest.json").write_text(json.dumps(manifest))
    assert converter.load(path).format == "mlprogram"


MANIFESTS = {
    "must be a JSON object": ("{", "R103"),
    "another form": ('{"itemInfoEntries": []}', "R103"),
    "no root": ('{"itemInfoEntries": {}, "rootModelIdentifier": "A"}', "R103"),
    "outside": (
        '{"itemInfoEntries": {"A": {"path": "../../m.mlmodel"}}, "rootModelIdentifier": "A"}',
        "R107",
    ),
    "absent": (
        '{"itemInfoEntries": {"A": {"path": "x.mlmodel"}}, "rootModelIdentifier": "A"}',
        "R102",
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_that_are_none(name: str, tmp_path: Path) -> None:
    text, code = MANIFESTS[name]
    path = relu(tmp_path / "m.mlpackage")
    (path / "Manifest.json").write_text(text)
    with pytest.raises(ReadError, match=code):
        converter.load(path, "mlprogram")


def test_a_link_out_of_the_package_is_refused(tmp_path: Path) -> None:
    path = relu(tmp_path / "m.mlpackage")
    inner = path / "Data/com.apple.CoreML/model.mlmodel"
    inner.rename(tmp_path / "elsewhere.mlmodel")
    inner.symlink_to(tmp_path / "elsewhere.mlmodel")
    with pytest.raises(ReadError, match="R107"):
        converter.load(path, "mlprogram")


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = one(tmp_path / "m.mlpackage", "linear", [2, 4], [2, 5], weight=Blob(floats(5, 4)))
    weights = path / "Data/com.apple.CoreML/weights/weight.bin"
    content = bytearray(weights.read_bytes())
    content[64] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(ReadError, match=r"R103.*no weight of type 11 at offset 64"):
        converter.load(path)


def test_every_operation_that_is_not_known_is_named(tmp_path: Path) -> None:
    ops = [Op("custom_layer", {"x": "$x"}, {"a": ("float32", [3])})]
    ops.append(Op("conv_quantized", {"x": "$x"}, {"b": ("float32", [3])}))
    ops.append(Op("add", {"x": "$a", "y": "$b"}, {"y": ("float32", [3])}))
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float32", [3])}, ops, ["y"]))
    with pytest.raises(UnsupportedError) as e:
        converter.load(path)
    assert [d.where.kind for d in e.value.diagnostics] == ["custom_layer", "conv_quantized"]


def test_a_parameter_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = one(tmp_path / "m.mlpackage", "relu", [3], [3], slope=0.5)
    with pytest.raises(UnsupportedError, match=r"R111.*'slope' is not known"):
        converter.load(path)


# the corpus --------------------------------------------------------------------------------------


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=True) as found:
        return dict(found)


@pytest.mark.corpus
@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "case", [*corpus_cases("coreml/mlprogram-ops"), *corpus_cases("coreml/mlprogram-nets")]
)
def test_programs_of_the_corpus(case: Path) -> None:
    info, model = (
        json.loads((case / "case.json").read_text()),
        converter.load(case / "model.mlpackage"),
    )
    left: dict[str, Any] = {}
    for step in range(int(info.get("steps") or 1)):
        suffix = f"_step{step}" if step else ""
        feeds, wanted = (arrays(case / f"{k}{suffix}.npz") for k in ("inputs", "outputs"))
        names = [i.name for i in model.inputs]
        if not feeds.keys() <= set(names):
            feeds = dict(zip(names, feeds.values(), strict=False))
        found = model.run({**feeds, **left})
        for name, value in wanted.items():
            got = found[name] if name in found else next(iter(found.values()))
            if value.dtype.kind in "OSUb":
                assert got.tolist() == value.tolist()
                continue
            atol = info["atol"][name] if isinstance(info["atol"], dict) else info["atol"]
            np.testing.assert_allclose(got.astype(float), value.astype(float), info["rtol"], atol)
        left = {i: found[o] for i, o in model.interface["states"].items()}


@pytest.mark.parametrize("blocks", [1, 5])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_packed_numbers_in_blocks(kind: str, blocks: int, tmp_path: Path) -> None:
    """scale * (data - offset) of each block; an odd number of elements, more than are
    attributes.
    """
    low = -8 if kind == "int4" else 0
    data = RNG.integers(low, low + 16, (25, 45)).astype(np.int8)
    scale = RNG.standard_normal((25, blocks)).astype(F)
    offset = RNG.integers(low, low + 16, (25, blocks)).astype(np.int8)
    constexpr = Op(
        "constexpr_blockwise_shift_scale",
        {"data": Blob(data, kind), "scale": Blob(scale), "offset": Blob(offset, kind)},
        {"w": ("float32", [25, 45])},
    )
    x = floats(2, 45)
    linear = Op("linear", {"x": "$x", "weight": "$w"}, {"y": ("float32", [2, 25])})
    block = Block({"x": ("float32", [2, 45])}, [constexpr, linear], ["y"])
    path = package(tmp_path / "m.mlpackage", block, opset="CoreML8")
    wide = [np.repeat(a, 45 // blocks, axis=1).astype(F) for a in (scale, offset)]
    wanted = x @ (wide[0] * (data - wide[1])).T
    np.testing.assert_allclose(run(path, x=x), wanted, rtol=1e-4, atol=1e-4)
    converter.convert(path, tmp_path / "m.onnx")
    np.testing.assert_allclose(run(tmp_path / "m.onnx", x=x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["uint1", "uint2", "uint3", "uint4", "uint6"])
def test_packed_indices_of_a_table(kind: str, tmp_path: Path) -> None:
    """Of the whole weight, and one for each half of its rows."""
    bits = int(kind[4:])
    for groups in (1, 2):
        places = RNG.integers(0, 1 << bits, (26, 45)).astype(np.uint8)
        table = floats(groups, 1, 1 << bits, 1)
        constexpr = Op(
            "constexpr_lut_to_dense",
            {"indices": Blob(places, kind), "lut": Blob(table)},
            {"w": ("float32", [26, 45])},
        )
        x = floats(2, 45)
        linear = Op("linear", {"x": "$x", "weight": "$w"}, {"y": ("float32", [2, 26])})
        block = Block({"x": ("float32", [2, 45])}, [constexpr, linear], ["y"])
        path = package(tmp_path / f"{groups}.mlpackage", block, opset="CoreML8")
        rows = zip(np.split(places, groups), table, strict=True)
        wanted = x @ np.concatenate([t.reshape(-1)[p] for p, t in rows]).T
        np.testing.assert_allclose(run(path, x=x), wanted, rtol=1e-4, atol=1e-4)


def test_a_table_of_integers_that_are_scaled(tmp_path: Path) -> None:
    """scale * (lut[indices] - offset): the numbers of one constant are those of another one."""
    places = RNG.integers(0, 16, (6, 8)).astype(np.uint8)
    table = RNG.integers(-128, 128, (1, 1, 16, 1)).astype(np.int8)
    scale, offset = floats(6, 1), RNG.integers(-9, 9, (6, 1)).astype(np.int8)
    dense = Op(
        "constexpr_lut_to_dense",
        {"indices": Blob(places, "uint4"), "lut": Blob(table)},
        {"q": ("int8", [6, 8])},
    )
    scaled = Op(
        "constexpr_blockwise_shift_scale",
        {"data": "$q", "scale": Blob(scale), "offset": Blob(offset)},
        {"w": ("float32", [6, 8])},
    )
    linear = Op("linear", {"x": "$x", "weight": "$w"}, {"y": ("float32", [2, 6])})
    block, x = Block({"x": ("float32", [2, 8])}, [dense, scaled, linear], ["y"]), floats(2, 8)
    path = package(tmp_path / "m.mlpackage", block, opset="CoreML8")
    weights = scale * (table.reshape(-1)[places].astype(F) - offset)
    np.testing.assert_allclose(run(path, x=x), x @ weights.T, rtol=1e-4, atol=1e-3)


def test_packed_numbers_that_are_too_few_are_refused(tmp_path: Path) -> None:
    data = np.ones((30, 45), np.int8)
    constexpr = Op(
        "constexpr_blockwise_shift_scale",
        {"data": Blob(data, "int4"), "scale": Blob(np.ones((1, 1), F))},
        {"w": ("float32", [30, 45])},
    )
    path = package(tmp_path / "m.mlpackage", Block({}, [constexpr], ["w"]), opset="CoreML8")
    weights = path / "Data/com.apple.CoreML/weights/weight.bin"
    content = bytearray(weights.read_bytes())
    struct.pack_into("<Q", content, 64 + 8, 600)
    weights.write_bytes(content)
    with pytest.raises(ConverterError, match=r"R103.*600 bytes.*1350 elements"):
        converter.load(path)


def without_name(model: Any) -> None:
    block_of(model).operations[0].outputs.pop()


def another_axis(model: Any) -> None:
    axis = block_of(model).operations[0].inputs["vector_axis"].arguments.add().value
    axis.type.tensorType.dataType = 23
    axis.immediateValue.tensor.ints.values.append(5)


def another_set(model: Any) -> None:
    function = model.mlProgram.functions["main"]
    function.block_specializations["CoreML99"].CopyFrom(block_of(model))
    function.opset = "CoreML99"


def block_of(model: Any) -> Any:
    return model.mlProgram.functions["main"].block_specializations["CoreML8"]


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("const", without_name, "R105.*a constant has no name"),
        ("constexpr_lut_to_dense", another_axis, "R105.*axis 5"),
        ("const", another_set, "R104.*'CoreML99' is not known"),
    ],
)
def test_programs_that_are_damaged(kind: str, change: Any, said: str, tmp_path: Path) -> None:
    table = {"indices": np.zeros((2, 2), np.uint8), "lut": np.zeros((2, 1, 2, 1), F)}
    op = Op(kind, table if "lut" in kind else {}, {"w": ("float32", [2, 2])})
    path = package(tmp_path / "m.mlpackage", Block({}, [op], ["w"]), opset="CoreML8")
    inner = path / "Data/com.apple.CoreML/model.mlmodel"
    model = Model_pb2.Model.FromString(inner.read_bytes())
    change(model)
    inner.write_bytes(model.SerializeToString())
    with pytest.raises(ConverterError, match=said):
        converter.load(path)


def test_a_block_without_the_result_that_it_names(tmp_path: Path) -> None:
    sides = [
        Block({}, [Op("relu", {"x": "$x"}, {"a": ("float32", [3])})], [name]) for name in ("a", "b")
    ]
    ops = [
        Op("reduce_sum", {"x": "$x", "axes": np.array([0])}, {"s": ("float32", [])}),
        Op("greater", {"x": "$s", "y": F(0)}, {"p": ("bool", [])}),
        Op("cond", {"pred": "$p"}, {"y": ("float32", [3])}, sides),
    ]
    main = Block({"x": ("float32", [3])}, ops, ["y"])
    with pytest.raises(ConverterError, match=r"R105.*result 'b' of a block is not defined"):
        converter.load(package(tmp_path / "m.mlpackage", main))


# memory ------------------------------------------------------------------------------------------

GROWTH = """if True:
    import resource, sys
    from pathlib import Path
    sys.path[:0] = [sys.argv[1], sys.argv[2]]
    import converter
    from test_mlprogram import compressed

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    kind = sys.argv[3]
    converter.convert(compressed(Path("small.mlpackage"), kind, 64), "small.onnx")
    path = compressed(Path("large.mlpackage"), kind, 1 << 18)
    before = peak()
    converter.convert(path, "large.onnx")
    print(peak() - before)
"""


def compressed(path: Path, kind: str, rows: int) -> Path:
    """A row is 1024 numbers: `rows` times 512 bytes of int4, or of 3 bits or 2 bytes for 1024."""
    size = {"int4": 512, "uint3": 384, "float16": 2048}[kind]
    _, number, stored = PACKED.get(kind, (16, 10, 1))
    constexpr = {
        "int4": ("constexpr_blockwise_shift_scale", "data", {"scale": np.ones((1, 1), np.float16)}),
        "uint3": (
            "constexpr_lut_to_dense",
            "indices",
            {"lut": np.arange(8, dtype=np.float16).reshape(1, 1, 8, 1)},
        ),
    }
    table = np.zeros((1, 1), np.float16)
    name, key, more = constexpr.get(kind, ("identity", "x", {}))
    ops = [
        Op(name, {key: Blob(table), **more}, {"w": ("float16", [rows, 1024])}),
        Op("gather", {"x": "$w", "indices": "$x", "axis": 0}, {"y": ("float16", [1, 1024])}),
    ]
    package(path, Block({"x": ("int32", [1])}, ops, ["y"]), opset="CoreML8")
    inner = path / "Data/com.apple.CoreML/model.mlmodel"
    model = Model_pb2.Model.FromString(inner.read_bytes())
    blob = model.mlProgram.functions["main"].block_specializations["CoreML8"].operations[0]
    tensor = blob.inputs[key].arguments[0].value.type.tensorType
    tensor.dataType = number
    for dimension, n in zip(tensor.dimensions, (rows, 1024), strict=True):
        dimension.constant.size = n
    inner.write_bytes(model.SerializeToString())
    with open(path / "Data/com.apple.CoreML/weights/weight.bin", "wb") as f:
        f.write(struct.pack("<II56x", 1, 2))
        head = (0xDEADBEEF, stored, rows * size, 128)
        f.write(struct.pack("<IIQQ40x", *head))
        f.truncate(128 + rows * size)
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["int4", "uint3", "float16"])
def test_large_weights_stay_where_they_are(kind: str, tmp_path: Path) -> None:
    """128 MB of four bits and 512 MB of two bytes are converted in hardly more memory than a few
    kB; numbers of three bits, 256 MB as bytes, are taken apart when they are written.
    """
    here = Path(__file__).parent
    said = run_python(GROWTH, str(here), str(here.parent), kind, cwd=tmp_path)
    limit = {"int4": 100, "uint3": 800, "float16": 100}[kind]
    assert int(said) < limit, f"{said} MB"


# rules for halves, types and orders --------------------------------------------------------------


@pytest.mark.parametrize("padding", ["constant", "border", "reflection", "symmetric"])
@pytest.mark.parametrize("mode", ["unnormalized", "normalized_zero_to_one"])
def test_nearest_samples_round_halves_to_even(mode: str, padding: str, tmp_path: Path) -> None:
    """As in coremltools' own test of resample, where 0.5 is 0; reflected before it is rounded."""
    x = np.arange(15, dtype=F).reshape(1, 1, 3, 5) + 1
    halves = np.arange(-4, 7, 0.5, dtype=F)
    columns, rows = (v.reshape(1, 22, 22) for v in np.meshgrid(halves, halves))
    places = np.stack([columns, rows], axis=-1)
    given = places if mode == "unnormalized" else (places + F(0.5)) / np.array([5, 3], F)
    block = Block(
        {"x": ("float32", [1, 1, 3, 5]), "places": ("float32", [1, 22, 22, 2])},
        [
            Op(
                "resample",
                {
                    **{"x": "$x", "coordinates": "$places", "sampling_mode": "nearest"},
                    **{"padding_mode": padding, "padding_value": F(0), "align_corners": False},
                    "coordinates_mode": mode,
                },
                {"y": ("float32", [1, 1, 22, 22])},
            )
        ],
        ["y"],
    )
    path = package(tmp_path / "m.mlpackage", block)
    exact = (given[..., 0], given[..., 1])
    if mode != "unnormalized":
        exact = (exact[0] * F(5) - F(0.5), exact[1] * F(3) - F(0.5))
    inside = np.ones(exact[0].shape, bool)
    found = []
    for v, size in zip(exact, (5, 3), strict=True):
        if padding == "symmetric":
            turns, rest = np.divmod(abs(v + F(0.5)), F(size))
            v = np.where(turns % 2 == 0, rest, size - rest) - F(0.5)
        elif padding == "reflection":
            turns, rest = np.divmod(abs(v), F(size - 1))
            v = np.where(turns % 2 == 0, rest, size - 1 - rest)
        near = np.round(v).astype(int)
        inside &= (near >= 0) & (near < size)
        found.append(np.clip(near, 0, size - 1))
    expected = x[0, 0][found[1], found[0]]
    if padding == "constant":
        expected = np.where(inside, expected, 0)
    np.testing.assert_array_equal(run(path, x=x, places=given)[0], expected)


@pytest.mark.parametrize("sort", [True, False])
def test_the_largest_are_sorted_in_any_case(sort: bool, tmp_path: Path) -> None:
    """As in coremltools' own test of topk."""
    x = np.array([[-1, 2, -3], [4, -5, 6]], F)
    given = {"x": "$x", "k": np.int32(2), "axis": np.int32(1), "sort": sort}
    outputs = {"y": ("float32", [2, 2]), "places": ("int32", [2, 2])}
    block = Block({"x": ("float32", [2, 3])}, [Op("topk", given, outputs)], ["y", "places"])
    path = package(tmp_path / "m.mlpackage", block, opset="CoreML6")
    found = converter.load(path).run({"x": x})
    np.testing.assert_array_equal(found["y"], [[2, -1], [6, 4]])
    np.testing.assert_array_equal(found["places"], [[1, 0], [2, 0]])


def test_a_table_of_single_numbers_may_name_an_axis(tmp_path: Path) -> None:
    places, table = RNG.integers(0, 4, (3, 5)).astype(np.uint8), floats(1, 1, 4, 1)
    given = {"indices": Blob(places, "uint2"), "lut": Blob(table), "vector_axis": np.int32(-1)}
    ops = [
        Op("constexpr_lut_to_dense", given, {"w": ("float32", [3, 5])}),
        Op("linear", {"x": "$x", "weight": "$w"}, {"y": ("float32", [2, 3])}),
    ]
    path = package(
        tmp_path / "m.mlpackage", Block({"x": ("float32", [2, 5])}, ops, ["y"]), opset="CoreML8"
    )
    x = floats(2, 5)
    expected = x @ table.reshape(-1)[places].T
    np.testing.assert_allclose(run(path, x=x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interpolation", ["LINEAR", "NEAREST_NEIGHBOR"])
def test_sizes_that_are_computed(interpolation: str, tmp_path: Path) -> None:
    """The size of an axis stays where the computed one is 0."""
    given = {
        **{"x": "$x", "shape": "$shape", "resized_dims": np.uint32(2)},
        **{"interpolation_mode": interpolation, "sampling_mode": "DEFAULT"},
    }
    ops = [
        Op("mul", {"x": "$n", "y": np.int32(2)}, {"shape": ("int32", [3])}),
        Op("resize", given, {"y": ("float32", [1, 1, 2, 5])}),
    ]
    inputs = {"x": ("float32", [1, 1, 2, 2]), "n": ("int32", [3])}
    path = package(tmp_path / "m.mlpackage", Block(inputs, ops, ["y"]))
    x = np.array([[[[0, 1], [2, 4]]]], F)
    found = run(path, x=x, n=np.array([9, 0, 2], np.int32))
    if interpolation == "LINEAR":
        expected = [[0, 0.5, 1, 1], [2, 3, 4, 4]]
    else:
        expected = [[0, 0, 1, 1], [2, 2, 4, 4]]
    np.testing.assert_allclose(found, [[expected]])


def test_a_mask_in_half_precision(tmp_path: Path) -> None:
    q, k, v = floats(3, 4, 8), floats(3, 5, 8), floats(3, 5, 6)
    mask = RNG.choice(np.array([0, -np.inf], np.float16), (4, 5))
    mask[:, 2] = 0
    given = {"query": "$q", "key": "$k", "value": "$v", "attn_mask": "$mask"}
    inputs = {
        **{n: ("float32", a.shape) for n, a in (("q", q), ("k", k), ("v", v))},
        "mask": ("float16", [4, 5]),
    }
    op = Op("scaled_dot_product_attention", given, {"y": ("float32", [3, 4, 6])})
    path = package(tmp_path / "m.mlpackage", Block(inputs, [op], ["y"]), opset="CoreML8")
    scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(F(8)) + mask.astype(F))
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run(path, q=q, k=k, v=v, mask=mask), expected, atol=1e-5)


def test_a_range_of_halves(tmp_path: Path) -> None:
    given = {"start": "$start", "end": np.float16(4), "step": np.float16(0.75)}
    ops = [
        Op("squeeze", {"x": "$x"}, {"start": ("float16", [])}),
        Op("range_1d", given, {"y": ("float16", [5])}),
    ]
    path = package(tmp_path / "m.mlpackage", Block({"x": ("float16", [1])}, ops, ["y"]))
    found = run(path, x=np.array([0.5], np.float16))
    np.testing.assert_array_equal(found, np.arange(0.5, 4, 0.75, dtype=np.float16))
