"""Every operation of the newest opset of the installed openvino package is read and written, or
stands in a short list with the reason.

The operations here are made by the package, run by its CPU runtime, read and run, written again as
the same operation, and run by the runtime again.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import converter
from converter.errors import UnsupportedError
from converter.formats.openvino.codec import read_ir
from converter.formats.openvino.opset.mapping import MAPPING
from converter.formats.openvino.opset.revisions import revisions
from converter.mapping.rules import FOREVER, Rule
from random_graphs import STEPS, network

ov = pytest.importorskip("openvino")
import test_openvino_opset_reads  # noqa: E402
import test_openvino_opset_writes  # noqa: E402
from openvino import opset3, opset4, opset8, opset13, opset15, opset16, opset17  # noqa: E402
from openvino.utils.node_factory import NodeFactory  # noqa: E402

from openvino_runtime import PRECISE  # noqa: E402

RNG = np.random.default_rng(11)
I32, U8 = np.int32, np.uint8
STRUCTURE = {"Const", "Parameter", "Result"}  # no operations for the tables
ALIASES = {"absolute": "abs", "ceil": "ceiling", "constant": "const", "if_op": "if"}


def f(*shape: int) -> Any:
    return RNG.random(shape, np.float32)


def n(low: int, high: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return RNG.integers(low, high, shape).astype(dtype)


def node(kind: str, *inputs: Any, **attributes: Any) -> Any:
    """One operation that the package has no function for."""
    return NodeFactory("opset17").create(kind, [v.output(0) for v in inputs], attributes)


def loss(**options: Any) -> Callable[..., Any]:
    return lambda x, t, y, k: opset4.ctc_loss(x, t, y, k, np.array(3, I32), **options)


LOSS = [
    f(3, 6, 4) * 3,
    np.array([6, 5, 4], I32),
    np.array([[1, 1, 2, 1, 0, 0], [1, 2, 2, 1, 0, 0], [2, 2, 0, 1, 1, 2]], I32),
    np.array([4, 3, 2], I32),
]
TABLE, PICKED, STARTS = f(5, 3), np.array([0, 2, 3, 4], I32), np.array([0, 2, 2], I32)
LOWER, UPPER = np.array([-5], np.float32), np.array([9], np.float32)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "AdaptiveMaxPool": (
        lambda x: opset8.adaptive_max_pool(x, np.array([3, 2]), "i32"),
        [f(1, 2, 7, 5)],
    ),
    "CTCLoss": (loss(), LOSS),
    "CTCLoss-collapsed": (loss(preprocess_collapse_repeated=True), LOSS),
    "CTCLoss-unmerged": (loss(ctc_merge_repeated=False), LOSS),
    "CTCLoss-unique": (loss(unique=True, ctc_merge_repeated=False), LOSS),
    "CTCLoss-last": (
        lambda x, t, y, k: opset4.ctc_loss(x, t, y, k),
        [f(1, 3, 5), np.array([3]), np.array([[0, 1, 2]]), np.array([2])],
    ),
    "EmbeddingBagOffsets": (
        lambda x: opset15.embedding_bag_offsets(x, PICKED, STARTS, reduction="mean"),
        [TABLE],
    ),
    "EmbeddingBagOffsets-default": (
        lambda x, w: opset15.embedding_bag_offsets(x, PICKED, STARTS, np.array(1, I32), w),
        [TABLE, f(4)],
    ),
    "EmbeddingBagOffsets-inputs": (
        lambda x, i, o: opset15.embedding_bag_offsets(x, i, o),
        [f(5, 2, 3), PICKED, STARTS],
    ),
    "EmbeddingBagPacked": (
        lambda x, w: opset15.embedding_bag_packed(x, PICKED.reshape(2, 2), w),
        [TABLE, f(2, 2)],
    ),
    "EmbeddingSegmentsSum": (
        lambda x: opset3.embedding_segments_sum(
            x, PICKED, np.array([0, 0, 2, 2], I32), np.array(4, I32), np.array(0, I32)
        ),
        [TABLE],
    ),
    "ErfInv": (
        opset17.erfinv,
        [np.array([-1.5, -1, -0.9999, -0.5, 0, 0.3, 0.99, 1, 2], np.float32)],
    ),
    "FakeConvert": (
        lambda x: opset13.fake_convert(x, np.float32(2), np.float32(0.5)),
        [f(3, 4) * 900 - 300],
    ),
    "I420toBGR": (
        lambda y, u, v: opset8.i420_to_bgr(y, u, v),
        [n(0, 256, (1, 4, 4, 1)), n(0, 256, (1, 2, 2, 1)), n(0, 256, (1, 2, 2, 1))],
    ),
    "IRDFT": (lambda x: opset16.irdft(x, np.array([0, 1]), np.array([3, 7])), [f(3, 5, 2)]),
    "RDFT": (lambda x: opset16.rdft(x, np.array([0, -1]), np.array([2, 5])), [f(3, 5)]),
    "ISTFT": (
        lambda x: opset16.istft(
            x, f(16) + 0.1, np.array(16), np.array(8), True, True, np.array(70)
        ),
        [f(2, 9, 7, 2)],
    ),
    "STFT": (lambda x, w: opset16.stft(x, w, np.array(16), np.array(5), True), [f(2, 64), f(12)]),
    "NV12toRGB": (lambda x: opset8.nv12_to_rgb(x), [n(0, 256, (2, 6, 4, 1))]),
    "RandomUniform": (
        lambda a, z: opset8.random_uniform(np.array([3, 7]), a, z, "f32", 12345, 54321),
        [LOWER, UPPER],
    ),
    "RandomUniform-integers": (
        lambda a, z: opset8.random_uniform(np.array([3, 7]), a, z, "i32", 7, 9),
        [LOWER.astype(I32), UPPER.astype(I32)],
    ),
    "RandomUniform-pytorch": (
        lambda a, z: opset8.random_uniform(np.array([3, 7]), a, z, "f32", 99, 0, "pytorch"),
        [LOWER, UPPER],
    ),
    "SegmentMax": (
        lambda x: opset16.segment_max(x, np.array([0, 0, 2, 2]), np.array(4), "ZERO"),
        [f(4, 3)],
    ),
    "SegmentMax-cut": (
        lambda x, s: opset16.segment_max(x, s, np.array(2, I32), "LOWEST"),
        [f(4, 3), np.array([0, 0, 2, 2], I32)],
    ),
    "SegmentMax-count": (
        lambda x, s: opset16.segment_max(x, s, fill_mode="ZERO"),
        [n(0, 9, (4, 3), I32), np.array([0, 0, 2, 2], I32)],
    ),
    "SparseFillEmptyRows": (
        opset16.sparse_fill_empty_rows,
        [
            f(4),
            np.array([5, 6], I32),
            np.array([[0, 1], [1, 2], [3, 4], [3, 3]], I32),
            np.array(99, np.float32),
        ],
    ),
}


def serialized(operation: Callable[..., Any], feeds: list[Any], folder: Path) -> Path:
    inputs = [
        opset16.parameter(list(a.shape), ov.Type.string if a.dtype.kind == "U" else a.dtype)
        for a in feeds
    ]
    model = ov.Model(operation(*inputs).outputs(), inputs, "one")
    for i, p in enumerate(inputs):
        p.output(0).set_names({f"in{i}"})
    ov.serialize(model, folder / "one.xml")
    return folder / "one.xml"


def infer(path: Path, feeds: list[Any]) -> list[Any]:
    compiled = ov.Core().compile_model(path, "CPU", PRECISE)
    results = compiled(feeds)
    return [np.array(results[o]) for o in compiled.outputs]


def run(path: Path, feeds: list[Any]) -> list[Any]:
    return list(converter.load(path).run({f"in{i}": a for i, a in enumerate(feeds)}).values())


def close(got: list[Any], wanted: list[Any]) -> None:
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in wanted]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_read_and_written_as_the_same_operation(name: str, tmp_path: Path) -> None:
    operation, feeds = CASES[name]
    path, kind, again = (
        serialized(operation, feeds, tmp_path),
        name.partition("-")[0],
        tmp_path / "again.xml",
    )
    wanted = infer(path, feeds)
    close(run(path, feeds), wanted)
    converter.convert(path, again)
    assert kind in {layer.type for layer in read_ir(again, None).layers}
    close(infer(again, feeds), wanted)


def registered() -> set[str]:
    """The types of all operations that the package has a function for, and of those of ours that
    its node factory knows.
    """
    spelled = {t.casefold(): t for t in revisions()}
    newest = max(i for i in range(1, 40) if importlib.util.find_spec(f"openvino.opset{i}"))
    functions = {
        name
        for i in range(1, newest + 1)
        for name in dir(importlib.import_module(f"openvino.opset{i}"))
        if not name.startswith("_")
    }
    types = {ALIASES.get(name, name).replace("_", "").casefold() for name in functions - {"ops"}}
    assert types <= spelled.keys(), (
        f"operations that we have never heard of: {sorted(types - spelled.keys())}"
    )
    return {spelled[t] for t in types}


def test_every_operation_is_read() -> None:
    table = MAPPING
    read = table.table.kinds() | STRUCTURE
    assert registered() - read == set()
    assert revisions().keys() - read == set()


def test_the_first_revision_of_every_operation_is_read() -> None:
    first: dict[str, int] = {}
    for entry in MAPPING.table.entries:
        for kind in [entry.kind] if isinstance(entry, Rule) else entry.kinds:
            reads = not isinstance(entry, Rule) or not entry.lower_only
            first[kind] = min(first.get(kind, FOREVER), entry.since if reads else FOREVER)
    assert [k for k, (oldest, *_) in revisions().items() if first.get(k, 0) > oldest] == []


# operation -> its written form
COMPOSED = {
    "BatchToSpace": "Reshape, Transpose", "Bucketize": "Less, ReduceSum", "ConvertLike": "Convert",
    "ConvertPromoteTypes": "Convert", "ExtractImagePatches": "Convolution, Reshape",
    "Eye": "a constant, or Range and Equal", "GRUCell": "GRUSequence", "HSigmoid": "HardSigmoid",
    "IsFinite": "IsInf, IsNaN", "LSTMCell": "LSTMSequence", "NotEqual": "Equal, LogicalNot",
    "RNNCell": "RNNSequence", "Roll": "Slice, Concat",
    "ScaledDotProductAttention": "MatMul, SoftMax", "ScatterUpdate": "ScatterNDUpdate",
    "SearchSorted": "Less, ReduceSum", "SliceScatter": "ScatterElementsUpdate",
    "SpaceToBatch": "Reshape, Transpose", "SquaredDifference": "Subtract, Multiply",
    "StridedSlice": "Slice", "Swish": "Sigmoid, Multiply", "TensorIterator": "Loop",
}  # fmt: skip
# neither here nor in random networks: their own tests demand that they are written as themselves
ELSEWHERE = {"Assign", "ReadValue", "Split"}


def types_of(path: Path) -> set[str]:
    return {layer.type for layer in read_ir(path, None).walk()}


@pytest.mark.slow
def test_every_operation_is_written_or_composed(tmp_path: Path) -> None:
    """As itself, by a row of the table or as is seen in files; or as others."""
    written = {r.kind for r in MAPPING.table.rules if not r.lift_only} | STRUCTURE
    again = tmp_path / "again.xml"
    for operation, feeds in [*CASES.values(), *test_openvino_opset_reads.CASES.values()]:
        converter.load(serialized(operation, feeds, tmp_path)).save(again, "openvino")
        written |= types_of(again)
    for name in test_openvino_opset_writes.CASES:
        test_openvino_opset_writes.build(name)[0].save(again, "openvino")
        written |= types_of(again)
    for name in (f"{step} {i}" for step in STEPS for i in range(4)):
        model = network(name, 1, name.rpartition(" ")[0])
        with contextlib.suppress(UnsupportedError):
            if model is not None:
                converter.save(model, again, "openvino")
                written |= types_of(again)
    assert registered() - written == COMPOSED.keys() | ELSEWHERE


@pytest.mark.parametrize("kind", ["RGBtoNV12", "BGRtoNV12"])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, U8])
def test_colors_to_planes(kind: str, single: bool, dtype: Any, tmp_path: Path) -> None:
    """The CPU runtime does not know these: BT.601 by its matrix, colors as means of four."""
    x = n(0, 256, (2, 4, 6, 3), dtype)
    path = serialized(lambda p: node(kind, p, single_plane=single), [x], tmp_path)
    rgb = x[..., ::-1].astype(np.float64) if kind[0] == "B" else x.astype(np.float64)
    yuv = rgb @ np.array(
        [[0.257, 0.504, 0.098], [-0.148, -0.291, 0.439], [0.439, -0.368, -0.071]]
    ).T + [16, 128, 128]
    kept = (
        (lambda v: np.round(np.clip(v, 0, 255))) if dtype == U8 else (lambda v: np.clip(v, 0, 255))
    )
    yuv = kept(yuv)
    y, uv = yuv[..., :1], kept(yuv[..., 1:].reshape(2, 2, 2, 3, 2, 2).mean((2, 4)))
    wanted = [np.concatenate([y, uv.reshape(2, 2, 6, 1)], 1)] if single else [y, uv]
    converter.convert(path, tmp_path / "again.xml")
    assert kind in {layer.type for layer in read_ir(tmp_path / "again.xml", None).layers}
    for file in (path, tmp_path / "again.xml"):
        found = run(file, [x])
        assert [a.dtype for a in found] == [np.dtype(dtype)] * len(wanted)
        for a, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, w, atol=1 if dtype == U8 else 1e-3)


@pytest.mark.parametrize("rows", [False, True])
def test_products_in_groups(rows: bool, tmp_path: Path) -> None:
    """The CPU runtime does not know it. Rows after the last end stay 0."""
    w, ends = f(3, 5, 4), np.array([2, 2, 6], I32)
    x = f(7, 4) if rows else f(3, 2, 4)
    feeds = [x, w, ends] if rows else [x, w]
    path = serialized(opset17.grouped_matmul, feeds, tmp_path)
    wanted = (
        np.concatenate([x[:2] @ w[0].T, x[2:6] @ w[2].T, np.zeros((1, 5))])
        if rows
        else np.einsum("gmk,gnk->gmn", x, w)
    )
    converter.convert(path, tmp_path / "again.xml")
    assert "GroupedMatMul" in {layer.type for layer in read_ir(tmp_path / "again.xml", None).layers}
    for file in (path, tmp_path / "again.xml"):
        np.testing.assert_allclose(run(file, feeds)[0], wanted, rtol=1e-5, atol=1e-6)


def test_strings_are_put_together(tmp_path: Path) -> None:
    feeds = [
        np.array([[0], [3]], I32),
        np.array([[3], [9]], I32),
        np.frombuffer("abcdé世".encode(), U8),
    ]
    path = serialized(opset15.string_tensor_pack, feeds, tmp_path)
    assert run(path, feeds)[0].tolist() == [["abc"], ["dé世"]]
    converter.convert(path, tmp_path / "again.xml")
    assert infer(tmp_path / "again.xml", feeds)[0].tolist() == [["abc"], ["dé世"]]


def test_strings_taken_apart_are_written_again_and_refused_to_engines(tmp_path: Path) -> None:
    feeds = [np.array(["ab", "cé"])]
    path = serialized(opset15.string_tensor_unpack, feeds, tmp_path)
    converter.convert(path, tmp_path / "again.xml")
    assert [a.tolist() for a in infer(tmp_path / "again.xml", feeds)] == [
        [0, 2],
        [2, 5],
        [97, 98, 99, 195, 169],
    ]
    with pytest.raises(converter.errors.UnsupportedError, match="StringUnpack"):
        run(path, feeds)


def test_rows_of_strings_are_filled(tmp_path: Path) -> None:
    feeds = [
        np.array(["a", "bb"]),
        np.array([4, 6], I32),
        np.array([[1, 0], [3, 0]], I32),
        np.array("none"),
    ]
    found = run(serialized(opset16.sparse_fill_empty_rows, feeds, tmp_path), feeds)
    assert [a.tolist() for a in found] == [
        [[0, 0], [1, 0], [2, 0], [3, 0]],
        ["none", "a", "none", "bb"],
        [True, False, True, False],
    ]


def single(path: Path, node: Any, inputs: dict[str, list[int]], result: int) -> None:
    """An ONNX model of one node."""
    value = onnx.helper.make_tensor_value_info
    ends = (
        [value(k, onnx.TensorProto.FLOAT, v) for k, v in inputs.items()],
        [value("y", result, None)],
    )
    graph = onnx.helper.make_graph([node], "single", *ends)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def test_onnx_draws(tmp_path: Path) -> None:
    shares, count = np.array([[0.1, 0, 0.6, 0.3], [0.5, 0.5, 0, 0]], np.float32), 4000
    draws = onnx.helper.make_node(
        "Multinomial", ["in0"], ["y"], sample_size=count, seed=3.0, dtype=7
    )
    single(tmp_path / "draws.onnx", draws, {"in0": [2, 4]}, onnx.TensorProto.INT64)
    converter.convert(tmp_path / "draws.onnx", tmp_path / "draws.xml")
    with np.errstate(divide="ignore"):
        found = run(tmp_path / "draws.xml", [np.log(shares) + 2])[0]
    assert found.shape == (2, count) and found.dtype == np.int64
    drawn = np.stack([np.bincount(row, minlength=4) / count for row in found])
    np.testing.assert_allclose(drawn, shares, atol=0.04)


def test_regions_of_onnx_are_pooled_alike(tmp_path: Path) -> None:
    pooled = onnx.helper.make_node(
        "MaxRoiPool", ["in0", "in1"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5
    )
    shapes = {"in0": [2, 3, 9, 11], "in1": [4, 5]}
    single(tmp_path / "rois.onnx", pooled, shapes, onnx.TensorProto.FLOAT)
    rois = [[0, 1, 2, 12, 9], [1, 0, 0, 21, 17], [1, 5, 5, 5, 5], [0, 3, 7, 18, 16]]
    feeds = [f(*shapes["in0"]), np.array(rois, np.float32)]
    session = onnxruntime.InferenceSession(tmp_path / "rois.onnx")
    expected = session.run(None, dict(zip(shapes, feeds, strict=True)))[0]
    converter.convert(tmp_path / "rois.onnx", tmp_path / "rois.xml")
    np.testing.assert_array_equal(run(tmp_path / "rois.xml", feeds)[0], expected)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("via", ["", "again.xml", "again.onnx"])
def test_draws_follow_the_probabilities(replacement: bool, via: str, tmp_path: Path) -> None:
    feeds = [np.array([[0.1, 0, 0.6, 0.3], [0.5, 0.5, 0, 0]], np.float32)]
    count = 4000 if replacement else 2
    path = serialized(
        lambda p: opset13.multinomial(p, np.array([count], I32), "i64", replacement, False, 1, 2),
        feeds,
        tmp_path,
    )
    if via:
        converter.convert(path, tmp_path / via)
        path = tmp_path / via
    found = run(path, feeds)[0]
    assert found.shape == (2, count) and found.dtype == np.int64
    if replacement:
        shares = np.stack([np.bincount(row, minlength=4) / count for row in found])
        np.testing.assert_allclose(shares, feeds[0], atol=0.04)
    else:
        assert set(found[0].tolist()) < {0, 2, 3} and set(found[1].tolist()) == {0, 1}


def test_draws_keep_their_attributes(tmp_path: Path) -> None:
    path = serialized(
        lambda p: opset13.multinomial(p, np.array([3], I32), "i32", False, True, 5, 6),
        [f(2, 4)],
        tmp_path,
    )
    converter.convert(path, tmp_path / "again.xml")
    a, b = (
        [layer.data for layer in read_ir(p, None).layers if layer.type == "Multinomial"]
        for p in (path, tmp_path / "again.xml")
    )
    assert a == b


@pytest.mark.parametrize(
    ("dtype", "first"),
    [
        ("f64", [0.2921047836089943, 0.1865942500848503]),
        ("i64", [230, -4]),
        ("f16", [0.2353515625, 0.73681640625]),
    ],
)
def test_seeded_numbers_of_types_that_the_runtime_narrows(
    dtype: str, first: list[float], tmp_path: Path
) -> None:
    """TensorFlow's (float64, int64) and PyTorch's (float16) own numbers for these seeds."""
    low, high = (-100, 250) if dtype == "i64" else (0, 1)
    numpy = {"f64": np.float64, "i64": np.int64, "f16": np.float16}[dtype]
    feeds = [np.array([low], numpy), np.array([high], numpy)]
    align = "pytorch" if dtype == "f16" else "tensorflow"
    path = serialized(
        lambda a, z: opset8.random_uniform(np.array([7, 6]), a, z, dtype, 12345, 54321, align),
        feeds,
        tmp_path,
    )
    np.testing.assert_allclose(run(path, feeds)[0].reshape(-1)[:2], first, rtol=1e-9)


def test_binary_convolution(tmp_path: Path) -> None:
    """Zeros and ones are -1 and 1; the kernel takes the lowest bit of a byte first, although the
    constant has the first weight in the highest, and padding with 0 counts for nothing.
    """
    w, x = n(0, 2, (3, 8, 3, 3), U8), n(0, 2, (1, 8, 6, 7))
    packed = np.packbits(w, bitorder="little")
    highest_first = np.unpackbits(packed).reshape(w.shape)
    path = serialized(
        lambda p: opset3.binary_convolution(
            p,
            opset16.constant(highest_first, ov.Type.u1),
            *([1, 1], [1, 1], [1, 1], [1, 1], "xnor-popcount", 0.0),
        ),
        [x],
        tmp_path,
    )
    signs = np.pad(x * 2 - 1, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(signs[0], (3, 3), axis=(1, 2))
    wanted = np.einsum("chwij,ocij->ohw", windows, w * 2.0 - 1)[None]
    for file in (path, tmp_path / "again.xml"):
        if file != path:
            converter.convert(path, file)
            assert file.with_suffix(".bin").read_bytes() == path.with_suffix(".bin").read_bytes()
        np.testing.assert_array_equal(run(file, [x])[0], wanted)
        np.testing.assert_array_equal(infer(file, [x])[0], wanted)
