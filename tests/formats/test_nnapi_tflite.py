"""The `.tflite` form: every argument has a place, tables come back, LiteRT computes what they mean,
the rest is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lite_tables.writer import run as run_table
from nnapi_models import (
    F32,
    I32,
    MODELS,
    Q8,
    branches,
    constant,
    corpus,
    network,
    quantised,
    scalar,
    tensor,
)

import converter
from converter.engines import litert
from converter.errors import ConverterError, ReadError, UnsupportedError, UsageError
from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.operations import operations
from converter.formats.nnapi.table import Operand, OperandType, Operation, Table
from converter.formats.nnapi.validate import validate
from converter.io.files import Output

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from lite_tables.rules import BY_OPERATION, REASONS, ROWS
from lite_tables.writer import write_tflite

from converter.formats.tflite import flatbuffer
from converter.formats.tflite.flatbuffer import BUILTINS, read_flat
from converter.formats.tflite.format import sniff
from converter.formats.tflite.options import fields_of

needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


def saved(table: Table, folder: Path, name: str = "net.tflite") -> Path:
    with Output(folder / name) as out:
        write_tflite(table, out)
    return folder / name


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.operation)
def test_every_argument_has_a_place(row: Any) -> None:
    arguments = {a.name for s in operations()[row.operation].signatures for a in s.inputs}
    placed = [*row.tensors, *(f.argument for f in row.fields.values()), *row.only, *row.special]
    optional = {"axes"} if row.operation == "SQUEEZE" else set()
    assert len(set(placed)) == len(placed)
    assert arguments - {"padding"} == set(placed) - {"padding"} | optional
    assert row.builtin in BUILTINS and set(row.fields) <= set(fields_of(row.options))


def test_operations_0_to_28_have_the_same_numbers() -> None:
    for row in ROWS:
        if operations()[row.operation].code <= 28:
            assert BUILTINS[row.builtin] == operations()[row.operation].code


@needs_litert
@pytest.mark.parametrize("name", ["network", "quantised", "branches"])
def test_a_written_table_is_read_as_litert_runs_it(name: str, tmp_path: Path) -> None:
    table = MODELS[name]()
    path = saved(table, tmp_path)
    assert sniff(path.read_bytes()[:64])
    model, rng = converter.load(path), np.random.default_rng(5)
    assert [i.name for i in model.inputs] == [table.operands[i].name for i in table.inputs]
    feeds = {i.name: rng.uniform(0, 9, shape_of(i)).astype(i.dtype) for i in model.inputs}
    wanted = run_table(table, feeds)
    for name_, found in model.run(feeds).items():
        assert found.dtype == wanted[name_].dtype
        np.testing.assert_allclose(found, wanted[name_], rtol=1e-4, atol=1e-5)


def shape_of(info: Any) -> list[int]:
    return [int(n) for n in info.shape]


def test_a_buffer_that_grows_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = network()
    whole = saved(table, tmp_path).read_bytes()
    monkeypatch.setattr(flatbuffer, "_ROOM", 64)
    assert saved(table, tmp_path, "grown.tflite").read_bytes() == whole


@pytest.mark.slow
@pytest.mark.corpus
def test_the_corpus_is_written_and_read(tmp_path: Path) -> None:
    written, refused = 0, 0
    for path in corpus():
        try:
            lite = saved(read_table(path), tmp_path)
        except UnsupportedError:
            refused += 1
            continue
        converter.load(lite)
        written += 1
    assert written >= 815 and refused <= 500


def run_one(
    kind: str,
    inputs: list[int],
    table: Table,
    shape: list[int],
    feeds: dict[str, Any],
    of: OperandType = F32,
) -> Any:
    y = tensor(table, shape, of, "y")
    table.operations, table.outputs = [Operation(kind, inputs, [y])], [y]
    assert [str(d) for d in validate(table)] == []
    return run_table(table, feeds)["y"]


def convolved(x: Any, w: Any, pads: tuple[int, int, int, int], step: int) -> Any:
    """A convolution by the book: x [1, h, w, c], w [o, kh, kw, c], pads top, bottom, left,
    right.
    """
    x = np.pad(x, ((0, 0), pads[:2], pads[2:], (0, 0)))
    kh, kw = w.shape[1:3]
    rows, columns = (x.shape[1] - kh) // step + 1, (x.shape[2] - kw) // step + 1
    return np.array(
        [
            [
                [
                    np.einsum(
                        "hwc,ohwc->o", x[0, i * step : i * step + kh, j * step : j * step + kw], w
                    )
                    for j in range(columns)
                ]
                for i in range(rows)
            ]
        ]
    )


PADDINGS = {"valid": (0, 0, 0, 0), "same": (0, 1, 0, 1), "neither": (1, 0, 2, 1)}


@needs_litert
@pytest.mark.parametrize("name", PADDINGS)
def test_explicit_padding(name: str, tmp_path: Path) -> None:
    rng, pads = np.random.default_rng(3), PADDINGS[name]
    x, w = (
        rng.standard_normal((1, 6, 8, 2)).astype(np.float32),
        rng.standard_normal((3, 3, 3, 2)).astype(np.float32),
    )
    wanted = convolved(x, w, pads, 2)
    t = Table()
    t.inputs = [tensor(t, [1, 6, 8, 2], name="x")]
    top, bottom, left, right = (scalar(t, p) for p in pads)
    two, none = scalar(t, 2), scalar(t, 0)
    inputs = [0, constant(t, w), constant(t, np.zeros(3)), left, right, top, bottom, two, two, none]
    np.testing.assert_allclose(
        run_one("CONV_2D", inputs, t, list(wanted.shape), {"x": x}), wanted, rtol=1e-5, atol=1e-5
    )
    graph = read_flat(saved(t, tmp_path)).graphs[0]
    assert [o.builtin for o in graph.operators] == (
        ["PAD", "CONV_2D"] if name == "neither" else ["CONV_2D"]
    )
    assert graph.operators[-1].options["padding"] == (0 if name == "same" else 1)


@needs_litert
def test_a_padded_maximum_ignores_the_padding() -> None:
    t = Table()
    t.inputs = [tensor(t, [1, 2, 2, 1], name="x")]
    one, two, none = scalar(t, 1), scalar(t, 2), scalar(t, 0)
    x = np.float32([[[[-1.0], [-2.0]], [[-3.0], [-4.0]]]])
    y = run_one(
        "MAX_POOL_2D",
        [0, one, none, one, none, one, one, two, two, none],
        t,
        [1, 2, 2, 1],
        {"x": x},
    )
    np.testing.assert_array_equal(y.reshape(-1), [-1, -1, -1, -1])


@needs_litert
@pytest.mark.parametrize("pads", [(0, 0), (0, 1), (1, 1)])
def test_transposed_convolution(pads: tuple[int, int]) -> None:
    x = np.arange(1.0, 5.0, dtype=np.float32).reshape(1, 2, 2, 1)
    whole = np.zeros((5, 5), np.float32)
    for i in range(2):
        for j in range(2):
            whole[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += x[0, i, j, 0]
    size = 5 - sum(pads)
    wanted = whole[pads[0] : pads[0] + size, pads[0] : pads[0] + size]
    t = Table()
    t.inputs = [tensor(t, [1, 2, 2, 1], name="x")]
    before, after, two, none, flag = (
        scalar(t, pads[0]),
        scalar(t, pads[1]),
        scalar(t, 2),
        scalar(t, 0),
        scalar(t, 0, OperandType.BOOL),
    )
    inputs = [
        0,
        constant(t, np.ones((1, 3, 3, 1))),
        constant(t, [0.0]),
        before,
        after,
        before,
        after,
        two,
        two,
        none,
        flag,
    ]
    np.testing.assert_allclose(
        run_one("TRANSPOSE_CONV_2D", inputs, t, [1, size, size, 1], {"x": x})[0, :, :, 0], wanted
    )


@needs_litert
def test_a_reduction_to_nothing_keeps_one_dimension() -> None:
    t = Table()
    t.inputs = [tensor(t, [2, 3], name="x")]
    y = run_one(
        "MEAN",
        [0, constant(t, [0, 1], I32), scalar(t, 0)],
        t,
        [1],
        {"x": np.arange(6.0).reshape(2, 3)},
    )
    assert y.shape == (1,) and y[0] == 2.5


@needs_litert
def test_network_and_quantised_run() -> None:
    prob = run_table(network(), {"data": np.ones((1, 8, 8, 3), np.float32)})["prob"]
    assert prob.shape == (1, 5) and np.isclose(prob.sum(), 1)
    y = run_table(quantised(), {"x": np.full((1, 4, 4, 2), 10, np.uint8)})["y"]
    assert y.dtype == np.uint8 and set(y.reshape(-1).tolist()) <= {
        4,
        5,
        6,
    }  # the input is zero, the bias almost


@needs_litert
@pytest.mark.parametrize(("condition", "wanted"), [(True, [-1.0, 3.0]), (False, [0.0, 2.0])])
def test_branches_run(condition: bool, wanted: list[float]) -> None:
    assert (
        run_table(branches(), {"condition": np.array([condition]), "x": np.float32([-2, 2])})[
            "y"
        ].tolist()
        == wanted
    )


@needs_litert
def test_what_does_not_run() -> None:
    with pytest.raises(ConverterError, match=r"N403.*no value for the input 'data'"):
        run_table(network(), {})
    with pytest.raises(
        ConverterError, match=r"N403.*has shape \[1\], the operand has \[1, 8, 8, 3\]"
    ):
        run_table(network(), {"data": np.zeros(1)})
    t = Table()
    t.inputs = [tensor(t, [2], name="x"), tensor(t, [1], OperandType.TENSOR_INT32, "i")]
    with pytest.raises(
        ConverterError, match=r"N403.*LiteRT refuses the model: .*gather index out of bounds"
    ):
        run_one("GATHER", [0, scalar(t, 0), 1], t, [1], {"x": np.zeros(2), "i": np.array([2])})


def test_without_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert, "available", lambda: False)
    with pytest.raises(UsageError, match="U502"):
        run_table(network(), {})


def _one(kind: str, build: Callable[[Table], list[int]], out: Operand) -> Table:
    t = Table()
    inputs = build(t)
    t.operations, t.outputs = [Operation(kind, inputs, [t.add(out)])], [len(t.operands) - 1]
    t.inputs = [i for i, o in enumerate(t.operands[:-1]) if o.name.startswith("t")]
    return t


def _signed(t: Table) -> list[int]:
    kind = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
    x = tensor(t, [1, 2], kind, scale=1.0)
    return [
        x,
        constant(t, [[1, 2]], kind, scale=1.0, zero_point=3),
        constant(t, [0], I32, scale=1.0),
        scalar(t, 0),
    ]


def _average(t: Table) -> list[int]:
    one, two = scalar(t, 1), scalar(t, 2)
    return [tensor(t, [1, 2, 2, 1]), one, one, one, one, one, one, two, two, scalar(t, 0)]


def _softmax(t: Table) -> list[int]:
    return [tensor(t, [2, 3]), scalar(t, 1, OperandType.FLOAT32), scalar(t, 0)]


def _nchw(t: Table) -> list[int]:
    return [tensor(t, [1, 4, 1, 1]), scalar(t, 2), scalar(t, 1, OperandType.BOOL)]


def _over_rows(t: Table) -> list[int]:
    return [
        tensor(t, [1, 4, 2, 3]),
        scalar(t, 1),
        *(scalar(t, 1, OperandType.FLOAT32) for _ in range(3)),
        scalar(t, 1),
    ]


REFUSALS: list[tuple[Callable[[], Table], str]] = [
    (
        lambda: _one("AVERAGE_POOL_2D", _average, Operand(F32, [1, 3, 3, 1])),
        r"padding \[1, 1, 1, 1\] is neither SAME nor VALID",
    ),
    (
        lambda: _one("LOCAL_RESPONSE_NORMALIZATION", _over_rows, Operand(F32, [1, 4, 2, 3])),
        "axis is 1, only the last axis",
    ),
    (
        lambda: _one(
            "DEPTH_TO_SPACE",
            lambda t: [tensor(t, [1, 4, 1, 1]), scalar(t, 2), scalar(t, 1, OperandType.BOOL)],
            Operand(F32, [1, 1, 2, 2]),
        ),
        "nchw is true, only false",
    ),
    (
        lambda: _one(
            "ELU", lambda t: [tensor(t, [2]), scalar(t, 2, OperandType.FLOAT32)], Operand(F32, [2])
        ),
        "alpha is 2.0, only 1.0 is possible",
    ),
    (
        lambda: _one(
            "FULLY_CONNECTED",
            _signed,
            Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, [1, 1], scale=9.0),
        ),
        "zero point of the signed weights is 3",
    ),
    (
        lambda: _one(
            "MAXIMUM",
            lambda t: [tensor(t, [2], Q8, scale=1.0), tensor(t, [2], Q8, scale=2.0)],
            Operand(Q8, [2], scale=1.0),
        ),
        "its operands differ in scale or zero point",
    ),
    (
        lambda: _one(
            "EQUAL",
            lambda t: [tensor(t, [2], Q8, scale=1.0), tensor(t, [2], Q8, scale=2.0)],
            Operand(OperandType.TENSOR_BOOL8, [2]),
        ),
        "its operands differ in scale",
    ),
    (
        lambda: _one(
            "DIV",
            lambda t: [tensor(t, [2], I32), tensor(t, [2], I32), scalar(t, 1)],
            Operand(I32, [2]),
        ),
        "integers has an activation",
    ),
    (
        lambda: _one(
            "CHANNEL_SHUFFLE",
            lambda t: [tensor(t, [2, 4]), scalar(t, 2), scalar(t, 1)],
            Operand(F32, [2, 4]),
        ),
        "it has no such operator",
    ),
    (lambda: quantised(True), "per-channel scales with unsigned activations"),
]


@pytest.mark.parametrize(("build", "message"), REFUSALS, ids=[r[1][:30] for r in REFUSALS])
def test_refusals_name_the_operation(
    build: Callable[[], Table], message: str, tmp_path: Path
) -> None:
    table = build()
    with pytest.raises(UnsupportedError, match=message) as e:
        saved(table, tmp_path)
    (found,) = e.value.diagnostics
    assert (found.code, found.where.path, found.where.kind) == (
        "X202",
        "operations[0]",
        table.operations[0].type,
    )
    assert not list(tmp_path.iterdir())


def test_every_refusal_is_reported_at_once(tmp_path: Path) -> None:
    t = network()
    shuffled = tensor(t, [1, 5], name="shuffled")
    t.operations += [
        Operation("CHANNEL_SHUFFLE", [5, 7, 7], [shuffled]),
        Operation("RNN", [5], [tensor(t, [1, 5])]),
    ]
    with pytest.raises(UnsupportedError) as e:
        saved(t, tmp_path)
    assert [d.where.path for d in e.value.diagnostics] == ["operations[5]", "operations[6]"]
    assert "its state is an operand" in str(e.value)


def test_an_input_of_another_world(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"operand 't0' is TENSOR_OEM_BYTE at inputIndexes\[0\]"
    ):
        saved(
            _one(
                "RELU", lambda t: [tensor(t, [2], OperandType.TENSOR_OEM_BYTE)], Operand(F32, [2])
            ),
            tmp_path,
        )


def test_operations_without_a_row_are_meant_to_be() -> None:
    assert not set(REASONS) & set(BY_OPERATION)
    boxes = "AXIS_ALIGNED_BBOX_TRANSFORM BOX_WITH_NMS_LIMIT DETECTION_POSTPROCESSING GENERATE_PROPOSALS HEATMAP_MAX_KEYPOINT ROI_ALIGN ROI_POOLING"
    assert set(operations()) - set(BY_OPERATION) - set(REASONS) == {
        *boxes.split(),
        "CHANNEL_SHUFFLE",
        "INSTANCE_NORMALIZATION",
    }


def test_relaxed_is_a_warning(tmp_path: Path) -> None:
    t = network()
    t.relaxed = True
    with Output(tmp_path / "net.tflite") as out:
        (warning,) = write_tflite(t, out)
    assert (warning.code, warning.level) == ("X207", "warning")


def test_weights_are_aligned_and_views(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    content = path.read_bytes()
    for tensor_ in read_flat(path).graphs[0].tensors:
        if tensor_.data is not None and tensor_.data.nbytes > 64:
            assert content.find(np.asarray(tensor_.data).tobytes()) % 16 == 0
            assert not np.asarray(tensor_.data).flags.owndata


def test_signed_weights_have_a_scale_for_each_channel(tmp_path: Path) -> None:
    kind, t = OperandType.TENSOR_QUANT8_ASYMM_SIGNED, quantised(True)
    for i in (0, 3):
        t.operands[i].type, t.operands[i].zero_point = kind, 1
    assert validate(t) == []
    path = saved(t, tmp_path)
    bias = read_flat(path).graphs[0].operators[0].inputs[2]
    assert read_flat(path).graphs[0].tensors[bias].scales == [0.125, 0.25, 0.0625]
    weights = read_flat(path).graphs[0].operators[0].inputs[1]
    found = read_flat(path).graphs[0].tensors[weights]
    assert (found.axis, found.scales) == (0, [0.25, 0.5, 0.125])


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"", "R103", "no TFL3"),
        (b"\x18\0\0\0TFL3" + bytes(40), "R10", ""),
        (b"x" * 99, "R103", "no TFL3"),
    ],
)
def test_what_is_no_model(content: bytes, code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.tflite").write_bytes(content)
    with pytest.raises(ReadError, match=f"{code}.*{message}"):
        converter.load(tmp_path / "x.tflite", "tflite")


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_a_refusal_or_a_table(tmp_path: Path, data: st.DataObject) -> None:
    path = saved(
        MODELS[data.draw(st.sampled_from(["network", "quantised", "branches"]))](), tmp_path
    )
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            # the tables lie before and behind the weights
            content[
                data.draw(
                    st.integers(0, min(len(content), 1500) - 1) | st.integers(0, len(content) - 1)
                )
            ] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        converter.load(path, "tflite")
    except ConverterError as e:
        assert {d.code[:2] for d in e.diagnostics} <= {"R1", "X2"}


@needs_litert
@pytest.mark.parametrize("kind", [Q8, OperandType.TENSOR_QUANT8_ASYMM_SIGNED])
def test_numbers_of_a_large_scale_are_compared(kind: OperandType, tmp_path: Path) -> None:
    """LiteRT's own comparison ends the process there."""
    t = Table()
    t.inputs = [tensor(t, [4], kind, scale=2.0, zero_point=3, name="x")]
    operands = [
        0,
        constant(
            t,
            np.array([3, 4, 5, 6], np.uint8 if kind is Q8 else np.int8),
            kind,
            scale=2.0,
            zero_point=3,
        ),
    ]
    t.outputs = [t.add(Operand(OperandType.TENSOR_BOOL8, [4], "y"))]
    t.operations = [Operation("GREATER", operands, t.outputs)]
    x = np.array([3, 5, 5, 7], np.uint8 if kind is Q8 else np.int8)
    np.testing.assert_array_equal(run_table(t, {"x": x})["y"], [False, True, False, True])
    (found,) = converter.load(saved(t, tmp_path)).run({"x": x}).values()
    np.testing.assert_array_equal(found, [False, True, False, True])
