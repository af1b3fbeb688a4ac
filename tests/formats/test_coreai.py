"""Core AI models: written files run in Apple's runtime with the numbers of ONNX's definitions,
read files compute the same as in that runtime, damage and odd programs are refused.

Expected numbers are formulas in numpy; the runtime is the independent witness of the files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.cli import app, console
from converter.engines import file
from converter.errors import ConverterError, MappingError, ReadError, UnsupportedError, UsageError
from converter.formats.coreml.bits import packed_tensor
from converter.formats.coreml.compressed import Scattered
from converter.formats.coreml.coreai import bindings, bytecode, package
from converter.formats.coreml.coreai.elements import dense, type_of
from converter.formats.coreml.coreai.format import FORMAT
from converter.formats.coreml.coreai.lower import write_model
from converter.formats.coreml.coreai.worker import unquoted
from converter.formats.format import Flavor
from converter.graph.build import Builder, new_model
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.network import Network
from support import corpus_cases

MODEL = "model.aimodel"
needs_runtime = pytest.mark.skipif(
    not file.available("coreai"), reason="coreai-core is not installed: pip install '.[coreai]'"
)
D = ir.DataType
F = np.float32
ROOT = Path(converter.__file__).parents[1]


def model_of(write: Callable[..., Any], feeds: dict[str, np.ndarray], *dynamic: str) -> Network:
    """A network that `write` builds on inputs like the feeds; `dynamic` ones have no sizes."""
    model, b = new_model("net")
    inputs = [
        b.input(n, D.from_numpy(a.dtype), [None] * a.ndim if n in dynamic else list(a.shape))
        for n, a in feeds.items()
    ]
    with b:
        made = write(b, *inputs)
    b.output(*(made if isinstance(made, tuple | list) else [made]))
    return Network(model, "onnx")


def native(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a file in Apple's runtime."""
    found = file.run("coreai", path, list(feeds), [list(feeds.values())])
    assert found.stage == "done", found
    return [found.results[0][i] for i in range(len(found.outputs))]


def written(network: Network, path: Path, flavor: str = "") -> Path:
    write_model(network, path, Flavor("coreai", {flavor: ""} if flavor else {}))
    return path


# the container ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 1 << 40, (1 << 64) - 1])
def test_numbers_are_prefix_encoded(value: int) -> None:
    data = np.frombuffer(bytecode.number(value) + b"\xff", np.uint8)
    cursor = bytecode.Cursor(data, 0, len(data), "")
    assert cursor.number() == value and cursor.at == len(data) - 1


@pytest.mark.parametrize(
    "content",
    [b"", b"ML", b"ML\xefR", b"ML\xefR\x0dMLIR", b"ML\xefR\x0dx\0\0\xff\xff", b"module {}"],
)
def test_damaged_bytecode_is_refused_before_anybody_else_reads_it(content: bytes) -> None:
    with pytest.raises(ReadError, match="R103"):
        bytecode.Bytecode(np.frombuffer(content, np.uint8), "x")


def test_types_are_read_as_mlir_prints_them() -> None:
    kind = type_of("tensor<2x?x3xsi8>")
    assert (kind.dtype, kind.dims) == (D.INT8, (2, None, 3))
    assert type_of("!coreai.handle<tensor<3xf16>>").wrapper == "handle"
    assert type_of("tensor<4xui6>").dtype == D.UINT8 and type_of("!coreai.token").wrapper == "token"
    with pytest.raises(MappingError, match="not supported"):
        type_of("vector<3xf32>")


def test_constants_are_written_as_bits() -> None:
    assert dense(np.array([1.5, 1.5], F), D.FLOAT) == 'dense<"0x0000C03F"> : tensor<2xf32>'
    assert dense(np.array([True, False, True]), D.BOOL) == 'dense<"0x05"> : tensor<3xi1>'
    assert dense(np.zeros((0, 2), F), D.FLOAT) == "dense<> : tensor<0x2xf32>"


def test_signed_numbers_of_two_bits_are_unpacked() -> None:
    stored = packed_tensor(np.array([0b11_10_01_00], np.uint8), 2, D.INT8, [4])
    assert stored.numpy().tolist() == [0, 1, -2, -1]


def test_without_the_package_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "is_installed", lambda: False)
    with pytest.raises(UsageError, match=r"U502.*coreai-core") as info:
        converter.convert(ROOT / "samples" / "digits_cnn.mlmodel", tmp_path / "m.aimodel")
    assert "netconv[coreai]" in str(info.value) and not (tmp_path / "m.aimodel").exists()


def test_compiled_files_are_refused(tmp_path: Path) -> None:
    for folder, name in (("a.aimodel", "main-h18p.mlirb"), ("b.aimodelx", "main.mlirb")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"ML\xefR")
        with pytest.raises(ReadError, match=r"R106.*compiled Core AI model"):
            converter.load(tmp_path / folder)


@pytest.mark.parametrize(
    "said, code",
    [("[]", "R103"), ("{", "R103"), ("{}", "R104"), ('{"assetVersion": "3.0"}', "R104")],
)
def test_metadata_is_refused_as_apples_loader_does(tmp_path: Path, said: str, code: str) -> None:
    (tmp_path / package.METADATA).write_text(said)
    with pytest.raises(ReadError, match=code):
        package.metadata_of(tmp_path / package.MAIN)


def test_links_in_a_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.aimodel").mkdir()
    (tmp_path / "m.aimodel" / "main.mlirb").symlink_to("/etc/passwd")
    with pytest.raises(ReadError, match="R107"):
        converter.load(tmp_path / "m.aimodel")


# operators in Apple's runtime ---------------------------------------------------------------------

NAN, INF = np.nan, np.inf
ODD = np.array([NAN, INF, -INF, -0.5, 0.5, 2.5, -2.5, 3.0], F)
INTS = np.array([7, -7, 0, -(2**31), 300, -129, 2**31 - 1, 5], np.int32)
BYTES = np.array([1, 3, 200, 255, 129, 7], np.uint8)
SHIFTS = np.array([7, 0, 1, 8, 4, 255], np.uint8)
LINE = np.arange(24, dtype=F).reshape(2, 3, 4)
Case = tuple[Callable[..., Any], dict[str, np.ndarray], Any]


def _loop(b: Builder, x: Any) -> Any:
    with b.loop(b.Squeeze(b.Shape(x)[:1], [0]), x) as body:
        (state,) = body.states
        after = state + state
    return body.end(after, after)


def _where(b: Builder, x: Any) -> Any:
    then, other = b.body("then"), b.body("other")
    then.output(then.op("Slice", x, [0], [1], [0]))
    other.output(other.op("Neg", x))
    return b.If(b.ReduceMax(x, keepdims=0) > 3.0, then_branch=then.graph, else_branch=other.graph)


CASES: dict[str, Case] = {
    "floor keeps infinities": (lambda b, x: b.Floor(x), {"x": ODD}, np.floor(ODD)),
    "ceil keeps infinities": (lambda b, x: b.Ceil(x), {"x": ODD}, np.ceil(ODD)),
    "less or equal of NaN": (lambda b, x: b.LessOrEqual(x, b.const(F(1))), {"x": ODD}, ODD <= 1),
    "sign": (lambda b, x: b.Sign(x), {"x": ODD}, np.sign(ODD)),
    "is infinite": (lambda b, x: b.IsInf(x), {"x": ODD}, np.isinf(ODD)),
    "division by computed zeros": (
        lambda b, x, y: b.Where(b.Equal(y, b.const(np.int32(0))), b.like(x, 9), b.Div(x, y)),
        {"x": INTS, "y": np.array([2, 2, 0, -1, 7, -4, 0, 1], np.int32)},
        np.array([3, -3, 9, -(2**31), 42, 32, 9, 5]),  # -2^31 / -1 wraps around
    ),
    "modulo has the divisor's sign": (
        lambda b, x: b.Mod(x, b.const(np.int32(-4))), {"x": INTS}, INTS % np.int32(-4)),
    "casts of integers wrap around": (
        lambda b, x: b.Cast(x, to=D.INT8), {"x": INTS}, INTS.astype(np.int8)),
    "powers of integers": (
        lambda b, x: b.Pow(x, b.const(np.int32(3))), {"x": INTS[:3]}, INTS[:3] ** 3),
    "sums of integers of 64 bits": (
        lambda b, x: b.ReduceSum(x, [0], keepdims=0), {"x": np.array([2**40, 3])}, 2**40 + 3),
    "backwards in steps": (
        lambda b, x: b.Slice(x, [-1], [-100], [2], [-3]), {"x": LINE}, LINE[:, :, ::-3]),
    "gather on the last axis": (
        lambda b, x: b.Gather(x, np.array([[2, -1]]), axis=2), {"x": LINE}, LINE[:, :, [[2, 3]]]),
    "products with a vector": (
        lambda b, x, y: b.MatMul(x, y), {"x": LINE, "y": LINE[0, 0]}, LINE @ LINE[0, 0]),
    "convolution with a bias and padding": (
        lambda b, x: b.Conv(x, b.const(np.ones((1, 3, 2), F)), b.const(F([0.5])), pads=[1, 0]),
        {"x": LINE},
        np.pad(LINE, ((0, 0), (0, 0), (1, 0)))[:, :, :-1].sum(1, keepdims=True)
        + LINE.sum(1, keepdims=True) + 0.5,
    ),
    "average of what lies inside": (
        lambda b, x: b.AveragePool(x, kernel_shape=[3], pads=[1, 1]), {"x": LINE},
        np.stack([LINE[..., max(0, i - 1) : i + 2].mean(-1) for i in range(4)], -1)),
    "top two": (
        lambda b, x: b.TopK(x, [2], axis=1, outputs=2)[1], {"x": LINE},
        np.broadcast_to(np.array([2, 1])[:, None], (2, 2, 4))),
    "scatter that adds": (
        lambda b, x: b.ScatterND(x, np.array([[0], [0]]), b.const(np.ones((2, 3, 4), F)),
                                 reduction="add"),
        {"x": LINE}, LINE + np.array([2, 0])[:, None, None]),
    "a loop that collects": (
        _loop, {"x": LINE[0]}, [LINE[0] * 8, np.stack([LINE[0] * 2**k for k in (1, 2, 3)])]),
    "branches of other sizes": (_where, {"x": LINE[0]}, LINE[0, :1]),
    "a quotient times its divisor": (
        lambda b, x: b.Mul(b.Div(x, b.const(np.int32(7))), b.const(np.int32(7))),
        {"x": INTS}, (np.fix(INTS / 7) * 7).astype(np.int32)),
    "floats as integers and back": (
        lambda b, x: b.Cast(b.Cast(x, to=D.INT32), to=D.FLOAT), {"x": ODD[3:]}, np.trunc(ODD[3:])),
    "integers as floats and back": (
        lambda b, x: b.Cast(b.Cast(x, to=D.FLOAT), to=D.INT32),
        {"x": np.array([2**24 + 1], np.int32)}, [2**24]),
    "sums that round away": (
        lambda b, x: b.Sub(b.Add(x, b.const(F(2**23))), b.const(F(2**23))),
        {"x": ODD[3:]}, (ODD[3:] + F(2**23)) - F(2**23)),
    "running totals that overflow": (
        lambda b, x: b.CumSum(x, 0), {"x": INTS}, np.cumsum(INTS, dtype=np.int32)),
    "products that overflow": (
        lambda b, x: b.MatMul(x, x), {"x": INTS[4:].reshape(2, 2)},
        INTS[4:].reshape(2, 2) @ INTS[4:].reshape(2, 2)),
    "a maximum of one": (lambda b, x: b.op("Max", x), {"x": LINE}, LINE),
    "a maximum of three": (
        lambda b, x: b.op("Max", x, b.Neg(x), b.const(F(0.5))), {"x": LINE},
        np.maximum(np.abs(LINE), F(0.5))),
    "a power by integers": (
        lambda b, x: b.op("Pow", x, b.const(np.array([2, 3, 0, 1], np.int64))), {"x": LINE[0]},
        LINE[0] ** np.array([2, 3, 0, 1])),
    "shifts to the left": (
        lambda b, x, n: b.BitShift(x, n, direction="LEFT"), {"x": BYTES, "n": SHIFTS},
        np.where(SHIFTS < 8, BYTES << np.minimum(SHIFTS, 7), 0)),
    "shifts to the right": (
        lambda b, x, n: b.BitShift(x, n, direction="RIGHT"), {"x": BYTES, "n": SHIFTS},
        np.where(SHIFTS < 8, BYTES >> np.minimum(SHIFTS, 7), 0)),
    "known shifts": (
        lambda b, x: b.BitShift(x, b.const(SHIFTS), direction="LEFT"), {"x": BYTES},
        np.where(SHIFTS < 8, BYTES << np.minimum(SHIFTS, 7), 0)),
    "64 bits without a sign": (
        lambda b, x: b.Cast(x, to=D.UINT64), {"x": np.array([-1, 5, -(2**63)])},
        np.array([2**64 - 1, 5, 2**63], np.uint64)),
    "64 bits with a sign": (
        lambda b, x: b.Cast(x, to=D.INT64), {"x": np.array([2**64 - 1, 5, 2**63], np.uint64)},
        np.array([-1, 5, -(2**63)])),
    "elements by a computed condition": (
        lambda b, x, c: b.Compress(x, c, axis=1), {"x": LINE, "c": np.array([True, False, True])},
        LINE[:, [0, 2]]),
    "as many classes as computed": (
        lambda b, x, n: b.OneHot(x, n, np.array([2, 5], F), axis=0),
        {"x": np.array([1, -1]), "n": np.array([3])}, F([[2, 2], [5, 2], [2, 5]])),
    "an empty maximum": (
        lambda b, x: b.ReduceMax(x, [1], keepdims=0), {"x": np.zeros((2, 0), F)}, F([-INF, -INF])),
}  # fmt: skip


@needs_runtime
@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CASES)
def test_the_runtime_agrees_with_written_files(name: str, tmp_path: Path) -> None:
    write, feeds, expected = CASES[name]
    path = written(model_of(write, feeds), tmp_path / "m.aimodel")
    results = native(path, feeds)
    again = list(converter.load(path).run(feeds).values())
    for actual, read, wanted in zip(
        results, again, expected if len(results) > 1 else [expected], strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)
        np.testing.assert_allclose(read, wanted, rtol=1e-6)


@pytest.mark.sampled(3)
@needs_runtime
@pytest.mark.parametrize(
    "write, expected",
    [
        (lambda b, x: b.Softmax(x, axis=-1), None),
        (lambda b, x: b.Reshape(x, b.Concat(b.Shape(x)[:1], [-1], axis=0)), LINE.reshape(2, 12)),
        (lambda b, x: b.Expand(x[:, :1], b.Shape(x)), np.broadcast_to(LINE[:, :1], (2, 3, 4))),
        (lambda b, x: b.Flatten(x, axis=2), LINE.reshape(6, 4)),
        (lambda b, x: b.Pad(x, b.Concat([0, 0, 0, 0], b.Shape(x)[:2], axis=0)),
         np.pad(LINE, ((0, 0), (0, 2), (0, 3)))),
    ],
)  # fmt: skip
def test_sizes_may_be_dynamic(write: Any, expected: Any, tmp_path: Path) -> None:
    path = written(model_of(write, {"x": LINE}, "x"), tmp_path / "m.aimodel")
    if expected is None:
        e = np.exp(LINE - LINE.max(-1, keepdims=True))
        expected = e / e.sum(-1, keepdims=True)
    np.testing.assert_allclose(native(path, {"x": LINE})[0], expected, rtol=1e-5)
    assert converter.load(path).inputs[0].shape == (None, None, None)


# weights, states, functions -----------------------------------------------------------------------


def compact(b: Builder, x: Any) -> Any:
    values = np.arange(64 * 32).reshape(64, 32) % 16 - 8
    weights = b.const(LazyTensor(values.astype(np.int8), D.INT8).derived(_as_four, D.INT4))
    scale = np.linspace(0.1, 0.2, 128, dtype=F).reshape(64, 2)
    return x @ b.DequantizeLinear(weights, b.const(scale), axis=1, block_size=16)


def _as_four(array: np.ndarray) -> np.ndarray:
    return array.astype(D.INT4.numpy())


@needs_runtime
def test_weights_of_four_bits_stay_packed(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(F)
    path = written(model_of(compact, {"x": x}), tmp_path / "m.aimodel")
    values = np.arange(64 * 32).reshape(64, 32) % 16 - 8
    scale = np.linspace(0.1, 0.2, 128, dtype=F).reshape(64, 2).repeat(16, 1)
    np.testing.assert_allclose(
        native(path, {"x": x})[0], x @ (values * scale), rtol=1e-4, atol=1e-4
    )
    code = bytecode.Bytecode(np.fromfile(path / "main.mlirb", np.uint8), str(path))
    sizes = sorted(r.data[1] for r in code.resources().values())
    assert 64 * 32 // 2 in sizes and (path / "main.mlirb").stat().st_size < 6000
    kinds = [n.op_type for n in converter.load(path).ir.graph]
    assert "DequantizeLinear" in kinds


@needs_runtime
@pytest.mark.parametrize(("count", "bits"), [(2, 1), (3, 2), (8, 3), (16, 4), (33, 6), (200, 8)])
def test_palettes_have_indices_of_few_bits(tmp_path: Path, count: int, bits: int) -> None:
    table, places = np.linspace(-1, 1, count, dtype=F), np.arange(63 * 65).reshape(65, 63) % count

    def write(b: Builder, x: Any) -> Any:
        found = b.Gather(
            b.const(table), b.Cast(b.const(places.astype(np.uint8)), to=D.INT32), axis=0
        )
        return x @ found

    x = np.random.default_rng(0).normal(size=(3, 65)).astype(F)
    path = written(model_of(write, {"x": x}), tmp_path / "m.aimodel")
    np.testing.assert_allclose(native(path, {"x": x})[0], x @ table[places], rtol=1e-4, atol=1e-5)
    assert 0 < (path / "main.mlirb").stat().st_size - places.size * bits // 8 < 2500
    again = converter.load(path)
    np.testing.assert_allclose(
        next(iter(again.run({"x": x}).values())), x @ table[places], atol=1e-5
    )


@needs_runtime
@pytest.mark.parametrize("flavor", ["", "fp16"])
def test_sparse_weights_stay_sparse(tmp_path: Path, flavor: str) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((300, 70)) < 0.2
    w, x = np.zeros(mask.shape, F), rng.normal(size=(3, 300)).astype(F)
    w[mask] = values = rng.normal(size=int(mask.sum())).astype(F)
    source = Scattered(LazyTensor(mask.astype(np.uint8)), values)
    network = model_of(lambda b, x: x @ b.const(LazyTensor(source, D.FLOAT, mask.shape)), {"x": x})
    first = written(network, tmp_path / "m.aimodel", flavor)
    again = tmp_path / "again.aimodel"
    converter.convert(first, again, target="coreai" + (flavor and f"+{flavor}"))
    stored = values.nbytes // (2 if flavor else 1) + mask.size // 8
    for path in (first, again):
        found = native(path, {"x": x})[0]
        np.testing.assert_allclose(found, x @ w, atol=0.1 if flavor else 1e-4)
        assert 0 < (path / "main.mlirb").stat().st_size - stored < 2500


@needs_runtime
def test_equal_and_large_weights_are_stored_once_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.normal(size=(40, 40)).astype(F) for _ in range(2))

    def write(b: Builder, x: Any) -> Any:
        one = b.const(first)
        return (x @ one) @ one @ b.const(second)

    x = rng.normal(size=(2, 40)).astype(F)
    path = written(model_of(write, {"x": x}), tmp_path / "m.aimodel")
    np.testing.assert_allclose(
        native(path, {"x": x})[0], x @ first @ first @ second, rtol=1e-4, atol=1e-4
    )
    assert 12800 < (path / "main.mlirb").stat().st_size < 14500


@needs_runtime
def test_states_are_states(tmp_path: Path) -> None:
    x = np.array([1, 2, 3], F)
    network = model_of(lambda b, s, x: (b.Add(s, x), b.Mul(x, b.const(F(2)))), {"s": x, "x": x})
    outputs = [v.name for v in network.ir.graph.outputs]
    network.interface.update({"states": {"s": outputs[0]}, "defaults": {"s": x * 0}})
    path = written(network, tmp_path / "m.aimodel")
    found = file.run("coreai", path, ["x"], [[x]])
    names = [n for (n,) in found.outputs]
    assert names[1] == "s_out" and np.array_equal(found.results[0][1], x)
    again = converter.load(path)
    assert (
        again.interface["states"] == {"s": "s_out"} and not again.interface["defaults"]["s"].any()
    )


@needs_runtime
def test_a_state_that_begins_with_other_numbers_is_an_input(tmp_path: Path) -> None:
    x = np.array([1, 2, 3], F)
    network = model_of(lambda b, s, x: b.Add(s, x), {"s": x, "x": x})
    network.interface.update(
        {"states": {"s": network.ir.graph.outputs[0].name}, "defaults": {"s": x}}
    )
    notes = write_model(network, tmp_path / "m.aimodel", Flavor("coreai"))
    assert [n.code for n in notes] == ["X205"] and "begin with zeros" in notes[0].help
    assert [i.name for i in converter.load(tmp_path / "m.aimodel").inputs] == ["s", "x"]


@needs_runtime
def test_half_precision_keeps_the_boundary_and_warns_of_long_sums(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 2048)).astype(F)
    w = np.ones((2048, 4), F) / 64
    network = model_of(lambda b, x: x @ b.const(w), {"x": x})
    notes = write_model(network, tmp_path / "m.aimodel", Flavor("coreai", {"fp16": ""}))
    assert [n.code for n in notes] == ["X205"] and "half precision" in notes[0].message
    (y,) = native(tmp_path / "m.aimodel", {"x": x})
    assert y.dtype == F and np.abs(y - x @ w).max() < 0.05
    assert (tmp_path / "m.aimodel" / "main.mlirb").stat().st_size < 18000


@needs_runtime
def test_numbers_beyond_half_precision_become_the_largest(tmp_path: Path) -> None:
    least = np.array([np.finfo(F).min, -np.inf, 2], F)
    network = model_of(lambda b, x: x * b.const(least), {"x": (x := F([0, 1, 3]))})
    (y,) = native(written(network, tmp_path / "m.aimodel", "fp16"), {"x": x})
    assert y.tolist() == [0, -np.inf, 6]


@needs_runtime
def test_a_tensor_that_may_be_empty_is_padded_by_joining(tmp_path: Path) -> None:
    """The runtime ends its process where it pads a tensor without elements."""

    def write(b: Builder, x: Any, n: Any) -> Any:
        part = b.Slice(x, b.const([0]), n, b.const([0]))
        rest = b.const([3]) - n
        return b.Pad(part, b.Concat(b.const([0, 1]), rest, b.const([0]), axis=0), b.const(F(7)))

    x = np.arange(6, dtype=F).reshape(3, 2)
    for count in (0, 2):
        feeds = {"x": x, "n": np.array([count], np.int64)}
        path = written(model_of(write, feeds), tmp_path / f"{count}.aimodel")
        expected = np.pad(x[:count], ((0, 3 - count), (1, 0)), constant_values=7)
        np.testing.assert_array_equal(native(path, feeds)[0], expected)


@needs_runtime
@pytest.mark.parametrize("flavor", ["", "fp16"])
def test_normalization_and_attention_are_graphs_with_a_declaration(
    tmp_path: Path, flavor: str
) -> None:
    """As Apple's tools write them; equal ones are one graph."""
    rng = np.random.default_rng(0)
    x, mask = (rng.normal(size=s).astype(F) for s in ((1, 4, 17, 16), (17, 17)))
    one, other = (rng.normal(size=16).astype(F) for _ in range(2))

    def write(b: Builder, x: Any) -> Any:
        n = b.LayerNormalization(x, b.const(one), b.const(other), axis=-1, epsilon=1e-3)
        m = b.LayerNormalization(n, b.const(other), b.const(one), axis=-1, epsilon=1e-3)
        return b.ScaledDotProductAttention(n, m, x, b.const(mask), scale=0.5)

    def normalized(x: np.ndarray, factor: np.ndarray, bias: np.ndarray) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-3) * factor + bias

    n = normalized(x, one, other)
    scores = n @ normalized(n, other, one).swapaxes(-1, -2) * 0.5 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ x
    path = written(model_of(write, {"x": x}), tmp_path / "m.aimodel", flavor)
    found = native(path, {"x": x})[0]
    np.testing.assert_allclose(found, expected, atol=0.02 if flavor else 1e-5)
    graphs = [op["attrs"] for op in bindings.program(path / "main.mlirb")]
    declared = [str(a.get("composite_decl", "")).split('"')[1:2] for a in graphs]
    assert declared == [["layer_norm"], ["scaled_dot_product_attention"], []]
    assert "axes = [3 : si64], eps = 1.0" in str(graphs[0]["composite_decl"])
    operators = [n.op_type for n in converter.load(path).ir.graph]
    assert operators.count("LayerNormalization") == 2


IMAGE = np.random.default_rng(3).normal(size=(2, 8, 4, 4)).astype(F)
FACTORS = np.linspace(0.5, 2, 8, dtype=F)


def _normalized(groups: int) -> np.ndarray:
    rows = IMAGE.reshape(2, groups, -1)
    centered = rows - rows.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.25)
    line = FACTORS.reshape(-1, 1, 1)
    return np.asarray(scaled.reshape(IMAGE.shape) * line + line, F)


def _windows(image: np.ndarray) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))[:, :, ::2, ::2]
    return np.asarray(views.mean((-1, -2)), F)


COMPOSITES: dict[str, Any] = {
    "instance_norm": (
        lambda b, x: b.InstanceNormalization(x, FACTORS, FACTORS, epsilon=0.25), _normalized(8)),
    "group_norm": (
        lambda b, x: b.GroupNormalization(x, FACTORS, FACTORS, num_groups=2, epsilon=0.25),
        _normalized(2)),
    "log_softmax": (
        lambda b, x: b.LogSoftmax(x, axis=-3),
        IMAGE - np.log(np.exp(IMAGE).sum(1, keepdims=True))),
    "hard_sigmoid": (
        lambda b, x: b.HardSigmoid(x, alpha=1 / 6, beta=0.5), np.clip(IMAGE / 6 + 0.5, 0, 1)),
    "pixel_shuffle": (
        lambda b, x: b.DepthToSpace(x, blocksize=2, mode="CRD"),
        IMAGE.reshape(2, 2, 2, 2, 4, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 8, 8)),
    "avg_pool_2d": (
        lambda b, x: b.AveragePool(
            x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1),
        _windows(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1))))),
}  # fmt: skip


@needs_runtime
@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", COMPOSITES)
def test_operators_of_apples_tools_are_graphs_with_a_declaration(
    kind: str, dynamic: bool, tmp_path: Path
) -> None:
    """All but pools with padding are read as the operator."""
    write, expected = COMPOSITES[kind]
    model, b = new_model("net")
    x = b.input("x", D.FLOAT, [None, *IMAGE.shape[1:]] if dynamic else list(IMAGE.shape))
    with b:
        made = write(b, x)
    b.output(made)
    path = written(Network(model, "onnx"), tmp_path / "m.aimodel")
    np.testing.assert_allclose(native(path, {"x": IMAGE})[0], expected, rtol=1e-5, atol=1e-6)
    declared = [op["attrs"].get("composite_decl") for op in bindings.program(path / "main.mlirb")]
    assert f'composite_declaration<"{kind}" =' in str(declared[0]) and declared[1] is None
    again = converter.load(path)
    (actual,) = again.run({"x": IMAGE}).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    if kind != "avg_pool_2d":
        assert [n.op_type for n in again.ir.graph] == [made.producer().op_type]


FUNCTIONS = """"builtin.module"() ({
"coreai.graph"() <{arg_attrs = [{coreai.name = "x"}], function_type = (tensor<2xf32>) -> (tensor<2xf32>), param_decls = #param.decl.array<[]>, res_attrs = [{coreai.name = "y"}], sym_name = "twice"}> ({
^bb0(%0: tensor<2xf32>):
%1 = "coreai.add"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("the sum":0:0)
"coreai.output"(%1) : (tensor<2xf32>) -> ()
}) : () -> ()
"coreai.graph"() <{arg_attrs = [{coreai.name = "x"}, {coreai.name = "n"}], function_type = (tensor<2xsi32>, tensor<2xsi32>) -> (tensor<2xsi32>), param_decls = #param.decl.array<[]>, res_attrs = [{coreai.name = "q"}], sym_name = "quotient"}> ({
^bb0(%0: tensor<2xsi32>, %1: tensor<2xsi32>):
%2 = "coreai.divide"(%0, %1) : (tensor<2xsi32>, tensor<2xsi32>) -> tensor<2xsi32>
"coreai.output"(%2) : (tensor<2xsi32>) -> ()
}) : () -> ()
}) : () -> ()
"""  # noqa: E501


def authored(text: str, path: Path) -> Path:
    """A package of a program's text."""
    path.mkdir()
    (path.parent / "text.mlir").write_text(text)
    bindings.call("write", path.parent / "text.mlir", path / "main.mlirb")
    return path


@needs_runtime
def test_functions_are_chosen_by_name_and_layers_keep_theirs(tmp_path: Path) -> None:
    path = authored(FUNCTIONS, tmp_path / "m.aimodel")
    model = converter.load(path)
    assert list(model.run({"x": F([1, 2])})) == ["y"]
    (note,) = model.notes
    assert note.level == "note" and "2 functions; 'twice'" in note.message
    assert not converter.load(path, signature="twice").notes
    assert [n.metadata_props["netconv.layer"] for n in model.ir.graph] == ["the sum"]
    other = converter.load(path, signature="quotient")
    assert other.run({"x": [7, -7], "n": [2, 2]})["q"].tolist() == [3, -3]
    with pytest.raises(UsageError, match=r"no function 'third'.*twice, quotient"):
        converter.load(path, signature="third")
    result = converter.verify(other, other, native="on")  # the runtime is asked for it, too
    assert result.passed and {(n.engine, n.status) for n in result.native} == {("coreai", "same")}


@needs_runtime
def test_a_function_is_compared_and_certified_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(arguments: list[str]) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    monkeypatch.chdir(tmp_path)
    authored(FUNCTIONS, tmp_path / "m.aimodel")
    converter.convert("m.aimodel", "q.onnx", signature="quotient")
    call = ["verify", "m.aimodel", "q.onnx", "--function", "quotient", "--native", "on"]
    assert main([*call, "--certificate", "c.json"]) == 0
    assert "coreai runs reference m.aimodel" in capsys.readouterr().out
    assert main(["certify-check", "c.json"]) == 0
    assert json.loads(Path("c.json").read_text())["predicate"]["reference"]["function"] == call[4]
    capsys.readouterr()
    assert main(["verify", "q.onnx", "q.onnx", "--function", "quotient"]) == 2
    assert "--signature needs a file of several functions" in capsys.readouterr().err


@needs_runtime
def test_a_graph_that_invokes_itself_is_refused(tmp_path: Path) -> None:
    call = '"coreai.invoke"(%0) <{callee = #param.constant<@twice> : !param.symbol}>'
    text = FUNCTIONS.replace('"coreai.add"(%0, %0)', call)
    text = text.replace("(tensor<2xf32>, tensor<2xf32>) -> tensor", "(tensor<2xf32>) -> tensor")
    with pytest.raises(ConverterError, match=r"graphs are nested more than|cannot read"):
        converter.load(authored(text, tmp_path / "m.aimodel"))


@needs_runtime
def test_a_crash_of_the_runtime_is_an_error(tmp_path: Path) -> None:
    text = FUNCTIONS.replace('sym_name = "twice"', 'sym_name = "other"').replace(
        '"quotient"', '"main"'
    )
    path = authored(text, tmp_path / "m.aimodel")
    feeds = [np.array([1, 2], np.int32), np.array([0, 1], np.int32)]
    found = file.run("coreai", path, ["x", "n"], [feeds])
    assert found.stage == "crash" and "SIGILL" in found.error
    converter.convert(path, tmp_path / "guarded.aimodel")
    assert file.run("coreai", tmp_path / "guarded.aimodel", ["x", "n"], [feeds]).stage == "done"


@pytest.mark.slow
@needs_runtime
def test_damaged_programs_are_refused_and_a_wrong_hash_is_reported(tmp_path: Path) -> None:
    path = written(model_of(compact, {"x": np.ones((1, 64), F)}), tmp_path / "m.aimodel")
    good = (path / "main.mlirb").read_bytes()
    rng = np.random.default_rng(3)
    for content in (good[:-40], b"", b"module {}", *(_flipped(good, rng) for _ in range(4))):
        (path / "main.mlirb").write_bytes(content)
        try:
            assert [n.code for n in FORMAT.check(path, None)] == ["R103"]
        except ConverterError:
            continue
    (path / "main.mlirb").write_bytes(good)
    assert FORMAT.check(path, None) == []
    (path / "main.hash").write_bytes(bytes(32))
    assert "main.hash" in str(FORMAT.check(path, None))


def _flipped(content: bytes, rng: np.random.Generator) -> bytes:
    made = bytearray(content)
    made[int(rng.integers(4, 1500))] ^= 1 << int(rng.integers(8))
    return bytes(made)


@needs_runtime
def test_the_same_network_makes_the_same_bytes(tmp_path: Path) -> None:
    source = ROOT / "samples" / "digits_cnn.mlmodel"
    for seed in ("1", "2"):
        call = [
            sys.executable,
            "-m",
            "converter.cli",
            "convert",
            source,
            "-o",
            f"{seed}.aimodel",
            "-q",
        ]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(call, cwd=tmp_path, env=environment, check=True)
    first, second = (
        {p.name: p.read_bytes() for p in (tmp_path / f"{s}.aimodel").iterdir()} for s in "12"
    )
    assert first == second and set(first) == {"main.mlirb", "main.hash", "metadata.json"}
    assert b"/" + tmp_path.name.encode() not in first["main.mlirb"]
    assert json.loads(first["metadata.json"])["assetVersion"] == "2.0"


@pytest.mark.slow
@needs_runtime
def test_a_package_is_one_model_everywhere(tmp_path: Path) -> None:
    source = ROOT / "samples" / "digits_cnn.mlmodel"
    (tmp_path / "in").mkdir()
    converter.convert(source, tmp_path / "in" / "a.aimodel")
    shutil.copytree(tmp_path / "in" / "a.aimodel", tmp_path / "plain")
    assert converter.load(tmp_path / "plain").format == "coreai"
    with pytest.raises(ConverterError, match="W302"):
        converter.convert(source, tmp_path / "in" / "a.aimodel", force=False)
    converter.convert(source, tmp_path / "in" / "a.aimodel", force=True)
    (tmp_path / "mine.aimodel").mkdir()
    (tmp_path / "mine.aimodel" / "notes").write_text("mine")
    with pytest.raises(ConverterError, match=r"W302.*not a model package"):
        converter.convert(source, tmp_path / "mine.aimodel", force=True)
    result = converter.verify(source, tmp_path / "in" / "a.aimodel")
    assert result.passed and [n.status for n in result.native] == ["same"]


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ("plain", "plain"),
        ('"a b"', "a b"),
        (r'"a\09b\0A"', "a\tb\n"),
        (r'"\22 and \\"', '" and \\'),
        (r'"\C3\A4"', "ä"),
        (r'"\FF"', "\\xff"),
    ],
)
def test_names_are_read_as_mlir_prints_them(printed: str, text: str) -> None:
    assert unquoted(printed) == text


# the corpus ---------------------------------------------------------------------------------------


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=True) as found:
        return dict(found)


# read only with sizes or axes that are computed from an input's numbers
UNREAD = ("A-reverse-runtime", "T-dyn_interp")


@needs_runtime
@pytest.mark.corpus
@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "case", [*corpus_cases("coreai/coreai-ops"), *corpus_cases("coreai/coreai-nets")]
)
def test_programs_of_the_corpus(case: Path) -> None:
    if case.name in UNREAD:
        with pytest.raises(UnsupportedError, match=r"must be (known|static)"):
            converter.load(case / MODEL)
        return
    info = json.loads((case / "case.json").read_text())
    model = converter.load(case / MODEL, signature=info.get("function", ""))
    left: dict[str, Any] = {}
    for step in range(int(info.get("steps") or 1)):
        suffix = f"_step{step}" if step else ""
        feeds, expected = (arrays(case / f"{k}{suffix}.npz") for k in ("inputs", "outputs"))
        found = model.run({**feeds, **left})
        for name, value in expected.items():
            atol = info["atol"][name] if isinstance(info["atol"], dict) else info["atol"]
            actual = found[name].astype(complex)
            np.testing.assert_allclose(actual, value.astype(complex), info["rtol"], atol)
        left = {i: found[o] for i, o in model.interface["states"].items()}
