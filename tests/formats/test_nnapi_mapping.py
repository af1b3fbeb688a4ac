"""The shared graph into operand tables and back: meaning, feature levels, layouts, quantization,
forms, refusals; LiteRT as a witness.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from nnapi_models import F32, branches, constant, network, quantized, scalar, tensor

import converter
from converter import engines
from converter.api import Model
from converter.engines import litert
from converter.errors import Diagnostic, UnsupportedError
from converter.formats.format import Flavor
from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.lift import lift
from converter.formats.nnapi.lower import lower, write_model
from converter.formats.nnapi.table import Operand, OperandType, Operation, Subgraph, Table
from converter.formats.nnapi.validate import validate
from converter.graph.build import Builder, new_model
from layers import cases
from layers.models import nnapi
from support import corpus_cases

F = ir.DataType.FLOAT
RNG = np.random.default_rng(3)
STEP = np.float32(0.05), np.uint8(128)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(build: Callable[..., ir.Value], *shapes: list[int], dtype: ir.DataType = F) -> Model:
    """`build(builder, *inputs)` gives the output."""
    m, b = new_model()
    b.output(build(b, *(b.input(f"x{i}", dtype, s) for i, s in enumerate(shapes))))
    return Model(m, "test")


def conv(b: Builder, x: ir.Value, w: np.ndarray, **attributes: object) -> ir.Value:
    return b.op("Conv", x, w, random(w.shape[0]), **attributes)


# name -> (how the graph is built, input shapes, the feature level that it needs, whether LiteRT has
# everything of it)
CASES: dict[str, tuple[Callable[..., ir.Value], list[list[int]], int, bool]] = {
    "conv": (
        lambda b, x: b.op(
            "Relu", conv(b, x, random(4, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
        ),
        [[1, 3, 9, 8]],
        1,
        True,
    ),
    "along one number": (
        lambda b, x: b.op(
            "ReduceMax", b.op("Reshape", b.op("ReduceSum", x, keepdims=0), [1]), [0], keepdims=1
        ),
        [[2, 3, 4]],
        3,
        True,
    ),
    "conv asymmetric": (
        lambda b, x: conv(b, x, random(4, 3, 3, 2), pads=[0, 1, 2, 0]),
        [[1, 3, 9, 8]],
        1,
        True,
    ),
    "depthwise": (lambda b, x: conv(b, x, random(6, 1, 3, 3), group=3), [[1, 3, 9, 8]], 1, True),
    "grouped": (lambda b, x: conv(b, x, random(4, 2, 3, 3), group=2), [[1, 4, 9, 8]], 3, True),
    "dilated": (
        lambda b, x: conv(b, x, random(4, 4, 3, 3), dilations=[2, 2]),
        [[1, 4, 9, 8]],
        3,
        True,
    ),
    "dilated groups": (
        lambda b, x: conv(b, x, random(4, 2, 3, 3), dilations=[2, 2], group=2),
        [[1, 4, 9, 8]],
        3,
        True,
    ),
    "conv over time": (lambda b, x: conv(b, x, random(4, 3, 3), pads=[1, 1]), [[2, 3, 9]], 2, True),
    "transposed": (
        lambda b, x: b.op(
            "ConvTranspose",
            x,
            random(3, 2, 3, 3),
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            output_padding=[1, 1],
        ),
        [[1, 3, 5, 4]],
        3,
        True,
    ),
    "transposed groups": (
        lambda b, x: b.op("ConvTranspose", x, random(4, 1, 2, 2), strides=[2, 2], group=4),
        [[1, 4, 5, 4]],
        3,
        True,
    ),
    "max pool ceil": (
        lambda b, x: b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        [[1, 2, 8, 8]],
        1,
        True,
    ),
    "average counts pads": (
        lambda b, x: b.op(
            "AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
        ),
        [[1, 2, 8, 8]],
        1,
        True,
    ),
    "mean of a plane": (
        lambda b, x: b.op("ReduceMean", x, [2, 3], keepdims=0),
        [[2, 3, 5, 4]],
        1,
        True,
    ),
    "global": (lambda b, x: b.op("GlobalAveragePool", x), [[2, 3, 5, 4]], 1, True),
    "dense": (
        lambda b, x: b.op("Add", b.op("MatMul", x, random(6, 5)), random(5)),
        [[2, 6]],
        1,
        True,
    ),
    "dense rank 3": (lambda b, x: b.op("MatMul", x, random(6, 5)), [[2, 3, 6]], 1, True),
    "batched product": (lambda b, x, y: b.op("MatMul", x, y), [[2, 3, 4], [2, 4, 5]], 6, True),
    "gemm": (
        lambda b, x: b.op("Gemm", x, random(5, 6), random(5), transB=1, alpha=0.5),
        [[2, 6]],
        1,
        True,
    ),
    "softmax rank 3": (lambda b, x: b.op("Softmax", x, axis=-1), [[2, 3, 4]], 1, True),
    "sub": (lambda b, x, y: b.op("Sub", x, y), [[2, 3], [2, 3]], 1, True),
    "leaky": (lambda b, x: b.op("LeakyRelu", x, alpha=0.1), [[2, 3]], 1, True),
    "hard swish": (lambda b, x: b.op("HardSwish", x), [[2, 3]], 1, True),
    "clip": (lambda b, x: b.op("Clip", x, b.like(x, -0.5), b.like(x, 0.25)), [[2, 3]], 1, True),
    "batch normalisation": (
        lambda b, x: b.op(
            "BatchNormalization", x, random(3), random(3), random(3), np.abs(random(3))
        ),
        [[1, 3, 4, 4]],
        1,
        True,
    ),
    "lrn": (
        lambda b, x: b.op("LRN", x, size=5, alpha=0.3, beta=0.5, bias=2.0),
        [[1, 8, 3, 3]],
        1,
        True,
    ),
    "pad": (lambda b, x: b.op("Pad", x, [0, 0, 1, 2, 0, 0, 2, 1]), [[1, 2, 3, 3]], 1, True),
    "pad at the edge": (
        lambda b, x: b.op("Pad", x, [0, 0, 1, 2, 0, 0, 2, 1], mode="edge"),
        [[1, 2, 3, 3]],
        3,
        True,
    ),
    "concat": (lambda b, x, y: b.op("Concat", x, y, axis=1), [[1, 2, 3, 3], [1, 4, 3, 3]], 1, True),
    "slice backwards": (lambda b, x: b.op("Slice", x, [-1], [-9], [1], [-1]), [[2, 5]], 2, True),
    "shuffle": (lambda b, x: b.ext("ShuffleChannels", x, group=2), [[1, 4, 3, 3]], 3, False),
    "depth to space CRD": (
        lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD"),
        [[1, 8, 3, 3]],
        2,
        True,
    ),
    "bilinear": (
        lambda b, x: b.op(
            "Resize",
            x,
            None,
            [1, 1, 2.0, 2.0],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        ),
        [[1, 2, 3, 3]],
        4,
        True,
    ),
    "nearest": (
        lambda b, x: b.op(
            "Resize",
            x,
            None,
            [1, 1, 2.0, 2.0],
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        [[1, 2, 3, 3]],
        3,
        True,
    ),
    "erf": (lambda b, x: b.op("Erf", x), [[3, 4]], 3, True),
    "round": (lambda b, x: b.op("Round", b.op("Mul", x, b.like(x, 2))), [[3, 4]], 3, True),
    "truth": (lambda b, x, y: b.op("Not", b.op("Less", x, y)), [[3, 4], [3, 4]], 3, True),
    "truth of many": (
        lambda b, x, y, z: b.op(
            "Where", b.op("Unsqueeze", b.op("Less", x, y), [-1]), b.like(z, -9), z
        ),
        [[1, 3], [1, 3], [1, 3, 72]],
        3,
        True,
    ),
    "rank 5": (
        lambda b, x: b.op(
            "Reshape",
            b.op("Transpose", b.op("Reshape", x, [1, 2, 3, 4, 4]), perm=[0, 2, 1, 3, 4]),
            [1, 6, 4, 4],
        ),
        [[1, 6, 4, 4]],
        2,
        True,
    ),
    "reduction of ones": (
        lambda b, x: b.op(
            "Reshape",
            b.op("ReduceMean", b.op("Reshape", x, [1, 3, 4, 1, 2, 1]), [-1, -3], keepdims=0),
            [3, 8],
        ),
        [[3, 8]],
        1,
        True,
    ),
    "grouped dilated": (
        lambda b, x: b.op("Conv", x, random(6, 2, 2, 2), random(6), group=2, dilations=[2, 1]),
        [[1, 4, 6, 6]],
        3,
        True,
    ),
    "max pool of bytes": (
        lambda b, x: b.op(
            "DequantizeLinear",
            b.op("MaxPool", b.op("QuantizeLinear", x, *STEP), kernel_shape=[2, 2], strides=[2, 2]),
            *STEP,
        ),
        [[1, 3, 4, 4]],
        3,
        True,
    ),
    "lstm": (
        lambda b, x: b.op(
            "LSTM", x, random(1, 16, 3), random(1, 16, 4), random(1, 32), hidden_size=4
        ),
        [[5, 2, 3]],
        3,
        False,
    ),
    "gru": (
        lambda b, x: b.op(
            "GRU",
            x,
            random(2, 12, 3),
            random(2, 12, 4),
            random(2, 24),
            hidden_size=4,
            direction="bidirectional",
        ),
        [[3, 2, 3]],
        2,
        True,
    ),
}


def agree(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(5)
def test_written_and_read_again_it_computes_the_same(name: str) -> None:
    build, shapes, level, _ = CASES[name]
    m = model(build, *shapes)
    feeds = {i.name: random(*i.shape) for i in m.inputs}
    table = lower(m)
    assert [d for d in validate(table) if d.level == "error"] == []
    assert feature_level(table)[0] == level
    agree(m.run(feeds), Model.of(lift(table)).run(feeds))


@pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[3]])
@pytest.mark.sampled(5)
def test_litert_computes_the_same(name: str) -> None:
    m = model(CASES[name][0], *CASES[name][1])
    feeds = {i.name: random(*i.shape) for i in m.inputs}
    agree(m.run(feeds), m.run(feeds, engine="litert"))


def test_operands_are_channels_last_and_say_so() -> None:
    table = lower(model(*CASES["conv"][:1], *CASES["conv"][1]))
    x, y = table.operands[table.inputs[0]], table.operands[table.outputs[0]]
    assert (x.dimensions, x.permutation) == ([1, 9, 8, 3], [0, 2, 3, 1])
    assert (y.dimensions, y.permutation) == ([1, 5, 4, 4], [0, 2, 3, 1])
    assert [o.type for o in table.operations] == ["CONV_2D"], (
        "the activation is part of the convolution"
    )


def test_a_constant_added_to_a_convolution_is_its_bias() -> None:
    m = model(
        lambda b, x: b.op(
            "Relu", b.op("Add", b.op("Conv", x, random(4, 3, 3, 3)), random(1, 4, 1, 1))
        ),
        [1, 3, 8, 8],
    )
    table = lower(m)
    assert [o.type for o in table.operations] == ["CONV_2D"]
    feeds = {i.name: random(*i.shape) for i in m.inputs}
    agree(m.run(feeds), Model.of(lift(table)).run(feeds))


def test_the_first_level_is_taken_where_it_is_enough() -> None:
    """The newest levels have MEAN for this; a pool says it too."""
    table = lower(model(lambda b, x: b.op("ReduceMean", x, [2, 3], keepdims=1), [1, 3, 8, 8]))
    assert ([o.type for o in table.operations], feature_level(table)[0]) == (["AVERAGE_POOL_2D"], 1)


def test_the_boundary_is_kept_on_request() -> None:
    table = lower(model(*CASES["conv"][:1], *CASES["conv"][1]), io_layout="keep")
    assert table.operands[table.inputs[0]].dimensions == [1, 3, 9, 8]
    assert [o.type for o in table.operations] == ["TRANSPOSE", "CONV_2D", "TRANSPOSE"]


def test_a_limit_that_is_too_low_is_named() -> None:
    with pytest.raises(UnsupportedError) as e:
        lower(model(*CASES["grouped"][:1], *CASES["grouped"][1]), limit=2)
    assert [d.code for d in e.value.diagnostics] == ["X206"]
    assert "needs NNAPI feature level 3, the limit is 2" in str(e.value)
    assert "nnapi+level=3" in e.value.diagnostics[0].help


@pytest.mark.parametrize(
    ("build", "shapes", "code"),
    [
        (
            lambda b, x: b.op("Conv", x, b.op("Reshape", x, [16, 2, 2, 2, 1])),
            [[1, 2, 4, 4, 4]],
            "X202",
        ),
        (lambda b, x: b.op("RandomUniformLike", x), [[4, 4]], "X201"),
        (lambda b, x: b.op("Relu", x), [[None, 4]], "X203"),
        (
            lambda b, x: b.ops("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2], outputs=2)[1],
            [[1, 8, 5, 5]],
            "X202",
        ),
    ],
)
def test_operators_without_counterpart_are_refused_and_nothing_is_written(
    build: Callable[..., ir.Value], shapes: list[list[int]], code: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError) as e:
        write_model(model(build, *shapes), tmp_path / "m.nnapi.json", Flavor("nnapi"))
    assert e.value.diagnostics[0].code == code
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_neither_input_nor_constant() -> None:
    m, b = new_model()
    x = b.input("x", F, [2])
    b.output(x, b.const(np.ones(2, np.float32)), b.op("Relu", x))
    table = lower(Model(m, "test"))
    assert validate(table) == []
    assert len(set(table.outputs)) == 3
    found = Model.of(lift(table)).run({"x": np.array([-1, 2], np.float32)})
    assert [v.tolist() for v in found.values()] == [[-1, 2], [1, 1], [0, 2]]


@pytest.mark.parametrize("dtype", ["INT8", "UINT8"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_numbers_of_8_bits_wrap_around(op: str, dtype: str) -> None:
    """Those of NNAPI end at their bounds. numpy is the witness."""
    model, b = new_model()
    kind = ir.DataType[dtype]
    b.output(b.op(op, *(b.input(n, kind, [4096]) for n in "xy")))
    feeds = {n: RNG.integers(kind.min, kind.max, 4096, kind.numpy(), endpoint=True) for n in "xy"}
    (found,) = Model.of(lift(lower(Model(model, "onnx")))).run(feeds).values()
    np.testing.assert_array_equal(
        found, {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](feeds["x"], feeds["y"])
    )


def test_int64_is_narrowed_with_a_warning_and_constants_are_checked() -> None:
    m = model(lambda b, x: b.op("Gather", random(5, 3), x, axis=0), [4], dtype=ir.DataType.INT64)
    notes: list[Diagnostic] = []
    table = lower(m, notes=notes)
    assert [n.code for n in notes] == ["X205"]
    assert table.operands[table.inputs[0]].type is OperandType.TENSOR_INT32
    with pytest.raises(UnsupportedError, match="X204"):
        lower(
            model(
                lambda b, x: b.op("Add", x, b.const(np.array([2**40]))),
                [4],
                dtype=ir.DataType.INT64,
            )
        )


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_quantized_table_comes_back_as_the_same_operation(per_channel: bool) -> None:
    source = quantized(per_channel)
    table = lower(lift(source))
    assert [o.type for o in table.operations] == ["CONV_2D"]

    def facts(t: Table) -> list[tuple[object, ...]]:
        operation = t.operations[0]
        used = [t.operands[i] for i in (*operation.inputs[:3], *operation.outputs)]
        return [
            (
                o.type,
                o.dimensions,
                o.scale,
                o.zero_point,
                o.channel_quant,
                None if o.value is None else o.array().tolist(),
            )
            for o in used
        ]

    assert facts(table) == facts(source)


def test_a_network_survives_the_round_trip() -> None:
    source = network()
    assert [o.type for o in lower(lift(source)).operations] == [o.type for o in source.operations]


def test_branches_become_an_if() -> None:
    m = Model.of(lift(branches()))
    x = np.array([-1, 2], np.float32)
    assert [
        engines.run(m, {"condition": np.array([c]), "x": x})["y"].tolist() for c in (True, False)
    ] == [
        [0, 3],
        [0, 2],
    ]


def test_a_loop_that_counts_by_itself_is_written_out(tmp_path: Path) -> None:
    """As Core ML has it: no number of turns, only a counter that the condition compares."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [5, 1, 3])
    weights = np.float32([[0.5, -1, 0.25], [1, 0.75, -0.5], [0, 0.5, -1]])
    body = b.body("body")
    body.input("turn", ir.DataType.INT64, [])
    body.input("go", ir.DataType.BOOL, [])
    i, h = body.input("i", ir.DataType.INT32, []), body.input("h", ir.DataType.FLOAT, [1, 3])
    later = body.Add(i, np.array(1, np.int32))
    new = body.Tanh(body.Add(body.Gather(x, i, axis=0), body.MatMul(h, weights)))
    body.output(body.Less(later, np.array(5, np.int32)), later, new)
    start = (b.const(np.array(0, np.int32)), b.const(np.zeros((1, 3), np.float32)))
    results = b.ops("Loop", None, b.const(np.array(True)), *start, outputs=2, body=body.graph)
    b.output(results[1])
    converter.save(Model(model, "onnx"), tmp_path / "m.nnapi.json")
    data = np.random.default_rng(0).normal(size=(5, 1, 3)).astype(np.float32)
    state = np.zeros((1, 3), np.float32)
    for step in data:
        state = np.tanh(step + state @ weights)
    (found,) = converter.load(tmp_path / "m.nnapi.json").run({"x": data}).values()
    np.testing.assert_allclose(found, state, rtol=1e-5)


def test_a_while_becomes_a_loop() -> None:
    """Doubles x until it is 10 or more."""
    condition, body, t = Subgraph(), Subgraph(), Table()
    x, c = tensor(condition, [1], name="x"), tensor(condition, [1], OperandType.TENSOR_BOOL8, "c")
    condition.operations, condition.inputs, condition.outputs = (
        [Operation("LESS", [x, constant(condition, [10.0])], [c])],
        [x],
        [c],
    )
    x, y = tensor(body, [1], name="x"), tensor(body, [1], name="y")
    body.operations, body.inputs, body.outputs = (
        [Operation("ADD", [x, x, scalar(body, 0)], [y])],
        [x],
        [y],
    )
    t.referenced = [condition, body]
    x, y = tensor(t, [1], F32, "x"), tensor(t, [1], F32, "y")
    parts = [t.add(Operand(OperandType.SUBGRAPH, subgraph=i, name=f"body{i}")) for i in (0, 1)]
    t.operations, t.inputs, t.outputs = [Operation("WHILE", [*parts, x], [y])], [x], [y]
    assert [d for d in validate(t) if d.level == "error"] == []
    m = Model.of(lift(t))
    assert [m.run({"x": np.array([v], np.float32)})["y"].item() for v in (3, 10, 1)] == [12, 10, 16]


FORMS = [
    ("m.nnapi.json", "nnapi"),
    ("m.nnapi", "nnapi+blob"),
    ("m.nnapi", None),
    ("m.tflite", "tflite"),
    ("m.tflite", None),
]


@pytest.mark.parametrize(("name", "target"), FORMS)
def test_every_form_is_written_and_read(name: str, target: str | None, tmp_path: Path) -> None:
    m, x = model(*CASES["dense"][:1], *CASES["dense"][1]), random(2, 6)
    converter.save(m, tmp_path / name, target)
    again = converter.load(tmp_path / name)
    found = again.run({again.inputs[0].name: x})
    np.testing.assert_allclose(
        next(iter(found.values())), next(iter(m.run({"x0": x}).values())), rtol=1e-4, atol=1e-6
    )


def test_c_source_is_written(tmp_path: Path) -> None:
    converter.save(model(*CASES["dense"][:1], *CASES["dense"][1]), tmp_path / "m.nnapi.c")
    assert "FULLY_CONNECTED" in (tmp_path / "m.nnapi.c").read_text()


@pytest.mark.parametrize(
    "case",
    corpus_cases("nnapi/level1", every=9)
    + corpus_cases("nnapi/level3plus", "V1_[23].*quant*", every=25),
)
@pytest.mark.sampled(5)
def test_real_tables_stay_right(case: Path, tmp_path: Path) -> None:
    target = tmp_path / "m.nnapi.json"
    try:
        source = converter.load(case / "model.nnapi.json")
        converter.save(source, target)
    except UnsupportedError as e:
        pytest.skip(f"refused: {e.diagnostics[0].message}")
    assert [d for d in validate(read_table(target)) if d.level == "error"] == []
    with np.load(case / "inputs.npz") as arrays:
        feeds = dict(
            zip([i.name for i in source.inputs], [arrays[k] for k in arrays.files], strict=False)
        )
    for a, b in zip(
        source.run(feeds).values(), converter.load(target).run(feeds).values(), strict=True
    ):
        step = 1 if a.dtype.kind in "iu" else 1e-4
        np.testing.assert_allclose(
            b.astype(np.float64).reshape(-1), a.astype(np.float64).reshape(-1), rtol=1e-3, atol=step
        )


@pytest.mark.parametrize(
    ("file", "place", "shape"),
    [
        ("FULLY_CONNECTED", 1, (12,)),
        ("RESIZE_BILINEAR", 0, (8, 2)),
        ("CONV_2D", 0, (5, 2)),
        ("CONV_2D", 1, (9,)),
    ],
)
def test_another_number_of_axes_is_refused(file: str, place: int, shape: tuple[int, ...]) -> None:
    """Tables declare shapes of their own, which the operation may not support."""
    case = cases.read(cases.FOLDER / "nnapi" / f"{file}.toml")
    case.inputs[place].shape, case.inputs[place].values = shape, np.ones(shape, np.float32)
    with pytest.raises(UnsupportedError, match="R105"):
        nnapi.lift(nnapi.build(case))


def test_weights_of_four_bits_keep_their_signs(tmp_path: Path) -> None:
    """They are numbers of eight bits there, with the same scale and zero point."""
    m, b = new_model("m")
    x = b.input("x", ir.DataType.INT8, [2, 8])
    real = b.DequantizeLinear(x, np.float32(0.05), np.int8(3))
    numbers = np.arange(-8, 8, dtype=np.int8).repeat(3).reshape(8, 6)
    stored = b.const(ir.tensor(numbers, dtype=ir.DataType.INT4))
    zero = b.const(ir.tensor(np.zeros((), np.int8), dtype=ir.DataType.INT4))
    weights = b.DequantizeLinear(stored, np.float32(0.1), zero)
    b.output(b.QuantizeLinear(b.MatMul(real, weights), np.float32(0.07), np.int8(1)))
    path = tmp_path / "m.nnapi.json"
    converter.save(Model(m, "onnx"), path)
    given = np.arange(-8, 8, dtype=np.int8).reshape(2, 8)
    wanted = np.round((given - 3.0) * 0.05 @ (numbers * 0.1) / 0.07) + 1
    (found,) = converter.load(path).run({"x": given}).values()
    np.testing.assert_allclose(np.asarray(found, float), np.clip(wanted, -128, 127), atol=1)


def test_a_refusal_names_the_level_that_supports_the_network() -> None:
    """Not that of an operation of a decomposition: products of matrices have level 6."""
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 2, 5, 7])
    b.output(b.Resize(x, None, np.float32([1, 1, 2, 2]), mode="linear"))
    with pytest.raises(UnsupportedError) as e:
        lower(Model(m, "test"), 3)
    (problem,) = e.value.diagnostics
    assert problem.message == "Resize needs NNAPI feature level 4, the limit is 3"
    assert "nnapi+level=4" in problem.help
    lower(Model(m, "test"), 4)
