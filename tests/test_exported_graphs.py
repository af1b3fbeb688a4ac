"""Spellings that exporters use, to every format: the numbers are those of the operators' formulas,
here, in OpenVINO and in LiteRT.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.commands import convert
from converter.commands.options.convert import Convert
from converter.engines import litert
from converter.errors import ConverterError
from converter.graph.build import Builder, new_model
from mutations import FORMS

RNG = np.random.default_rng(11)
TARGETS = (
    "onnx",
    "openvino",
    "openvino+ir=10",
    "openvino+ir=7",
    "coreml",
    "zhouyi",
    "nnapi",
    "tflite",
)
NATIVE = {"openvino": "openvino", "openvino+ir=10": "openvino", "tflite": "litert"}
FLOAT = int(ir.DataType.FLOAT)
Make = Callable[..., ir.Value]

INTS = RNG.integers(-90, 90, (3, 5, 7)).astype(np.int32)
OTHERS = np.where((d := RNG.integers(-9, 9, (3, 5, 7))) == 0, 4, d).astype(np.int32)
FLOATS = RNG.normal(size=(2, 3, 4)).astype(np.float32)
ODD = np.array([np.inf, -np.inf, np.nan, 1, 0], np.float32)
SMALL = (RNG.integers(-(2**23), 2**23, 40)).astype(np.int32)
POINTS = np.array([[-0.5, -0.5, -0.5], [0.5, 0.5, 0.5], [-0.5, 0.5, 0.5]], np.float32)
CUBE = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2)


def infinite(**which: int) -> Make:
    return lambda b, x: b.op("Cast", b.op("IsInf", x, **which), to=FLOAT)


def chosen(b: Builder, x: ir.Value) -> ir.Value:
    """A choice whose condition is a sum over ones along an axis that is given as a list."""
    branches = [b.body(name) for name in ("then", "else")]
    for branch, factor in zip(branches, (2.0, 3.0), strict=True):
        branch.output(
            branch.op("Mul", b.op("ReduceSum", x, [-1], keepdims=0) if factor == 0 else x, factor)
        )
    counted = b.op("CumSum", b.op("ConstantOfShape", b.op("Shape", x)), np.array([0]))
    condition = b.op(
        "Equal", b.op("Shape", counted, start=0, end=1), b.op("Shape", x, start=0, end=1)
    )
    return b.op("If", condition, then_branch=branches[0].graph, else_branch=branches[1].graph)


def reduction(kind: str, axes: list[int] | None, keep: int) -> Make:
    return lambda b, x: b.op(kind, x, *([] if axes is None else [axes]), keepdims=keep)


CASES: dict[str, tuple[Make, list[np.ndarray], Any]] = {
    "remainder": (lambda b, x, y: b.op("Mod", x, y), [INTS, OTHERS], np.mod(INTS, OTHERS)),
    "quotient": (lambda b, x, y: b.op("Div", x, y), [INTS, OTHERS], np.trunc(INTS / OTHERS)),
    "remainder of floats": (
        lambda b, x: b.op("Mod", x, np.float32([0.7, -0.7, 2, 5]), fmod=1),
        [FLOATS * 9],
        np.fmod(FLOATS * 9, np.float32([0.7, 0.7, 2, 5])),
    ),
    "and": (lambda b, x: b.op("BitwiseAnd", x, SMALL[::-1].copy()), [SMALL], SMALL & SMALL[::-1]),
    "or": (
        lambda b, x, y: b.op("BitwiseOr", x, y),
        [SMALL, SMALL[::-1].copy()],
        SMALL | SMALL[::-1],
    ),
    "xor": (lambda b, x: b.op("BitwiseXor", x, np.int32(12345)), [SMALL], SMALL ^ 12345),
    "through 8 bits": (
        lambda b, x: b.op("Cast", b.op("Cast", x, to=int(ir.DataType.INT8)), to=FLOAT),
        [INTS * 5],
        (INTS * 5).astype(np.int8),
    ),
    "sign": (lambda b, x: b.op("Sign", x), [INTS], np.sign(INTS)),
    "every second": (
        lambda b, x: b.op("Slice", x, [0, 6], [5, -100], [1, 2], [2, -3]),
        [INTS],
        INTS[:, ::2, 6::-3],
    ),
    "sum": (reduction("ReduceSum", [0, -1], 0), [INTS], INTS.sum((0, 2))),
    "sum of all": (reduction("ReduceSum", None, 1), [INTS], INTS.sum(keepdims=True)),
    "largest": (reduction("ReduceMax", [1], 1), [INTS], INTS.max(1, keepdims=True)),
    "least": (reduction("ReduceMin", [2], 0), [INTS], INTS.min(2)),
    "product": (reduction("ReduceProd", [0], 0), [OTHERS], OTHERS.prod(0)),
    "softmax of the first axis": (
        lambda b, x: b.op("Softmax", x, axis=0),
        [FLOATS],
        np.exp(FLOATS) / np.exp(FLOATS).sum(0),
    ),
    "logarithm of that": (
        lambda b, x: b.op("LogSoftmax", x, axis=1),
        [FLOATS],
        FLOATS - np.log(np.exp(FLOATS).sum(1, keepdims=True)),
    ),
    "infinite": (infinite(), [ODD], np.isinf(ODD)),
    "positive infinite": (
        infinite(detect_negative=0),
        [ODD],
        np.where(ODD > 0, np.isinf(ODD), False),
    ),
    "negative infinite": (
        infinite(detect_positive=0),
        [ODD],
        np.where(ODD < 0, np.isinf(ODD), False),
    ),
    "not asked for": (infinite(detect_positive=0, detect_negative=0), [ODD], np.zeros(5)),
    "doubles": (
        lambda b, x: b.op(
            "Cast", b.op("Tan", b.op("Atan", b.op("Erf", b.op("Cast", x, to=11)))), to=FLOAT
        ),
        [FLOATS],
        np.array([math.erf(v) for v in FLOATS.ravel()]).reshape(FLOATS.shape),
    ),
    "infinite doubles": (
        lambda b, x: b.op("Cast", b.op("IsInf", b.op("Cast", x, to=11)), to=FLOAT),
        [ODD],
        np.isinf(ODD),
    ),
    "joined to nothing": (
        lambda b, x: b.op("Concat", b.op("Slice", x, [0], [0], [1]), x, axis=1),
        [FLOATS],
        FLOATS,
    ),
    "a known choice": (chosen, [FLOATS], FLOATS * 2),
    "a window over the end": (
        lambda b, x: b.op(
            "MaxPool",
            x,
            kernel_shape=[3, 3],
            dilations=[1, 2],
            pads=[0, 1, 0, 1],
            strides=[3, 1],
            ceil_mode=1,
        ),
        [(WIDE := RNG.normal(size=(1, 2, 2, 7)).astype(np.float32))],
        np.stack(
            [
                np.pad(WIDE.max(2), ((0, 0), (0, 0), (1, 1)), constant_values=-9)[
                    ..., [i, i + 2, i + 4]
                ].max(-1)
                for i in range(5)
            ],
            -1,
        )[:, :, None],
    ),
    "samples of a cube": (
        lambda b, x: b.op("GridSample", x, POINTS.reshape(1, 1, 1, 3, 3)),
        [CUBE],
        np.float32([0, 7, 6]).reshape(1, 1, 1, 1, 3),
    ),
}


def model_of(name: str) -> Model:
    make, inputs, _ = CASES[name]
    graph, b = new_model(name)
    b.output(
        make(
            b,
            *(
                b.input(f"x{i}", ir.DataType.from_numpy(x.dtype), list(x.shape))
                for i, x in enumerate(inputs)
            ),
        )
    )
    return Model(graph, "test")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(7)
def test_everywhere_the_same_numbers(name: str, target: str, tmp_path: Path) -> None:
    if target == "tflite" and not litert.available():
        pytest.skip("LiteRT is not installed")
    _, inputs, wanted = CASES[name]
    path = tmp_path / f"net{FORMS[target]}"
    if name == "a window over the end" and target == "coreml":
        return  # no pooling with dilations
    converter.save(model_of(name), path, target)
    back = converter.load(path)
    feeds = {i.name: x for i, x in zip(back.inputs, inputs, strict=True)}
    engines = [
        "onnxruntime",
        *([NATIVE[target]] if target in NATIVE and name != "infinite doubles" else []),
    ]
    for engine in engines:
        (found,) = back.run(feeds, engine).values()
        np.testing.assert_allclose(
            np.asarray(found, np.float64).reshape(np.shape(wanted)),
            np.asarray(wanted, np.float64),
            rtol=1e-4,
            atol=1e-4,
        )


def test_a_choice_that_is_written_out_reads_nothing_any_more(tmp_path: Path) -> None:
    """The sum is read in a branch only, which is copied: in channels-last order there is one of it,
    not one for each copy.
    """
    graph, b = new_model("branches")
    x = b.input("x", ir.DataType.FLOAT, [2, 2, 7, 6])
    summed = b.op("ReduceSum", x, [-1], keepdims=0)
    yes, no = b.body("yes"), b.body("no")
    yes.output(
        yes.op(
            "GatherND",
            summed,
            np.tile(np.arange(5).reshape(1, 1, 5, 1), (2, 2, 1, 1)),
            batch_dims=2,
        )
    )
    no.output(no.op("Slice", summed, [0], [5], [2]))
    b.output(b.op("If", np.array(True), then_branch=yes.graph, else_branch=no.graph))
    b.output(b.op("Conv", x, np.ones((2, 2, 1, 1), np.float32), kernel_shape=[1, 1]))
    model, data = Model(graph, "test"), RNG.normal(size=(2, 2, 7, 6)).astype(np.float32)
    converter.save(model, tmp_path / "net.nnapi.json", "nnapi")
    back = converter.load(tmp_path / "net.nnapi.json")
    for found, wanted in zip(
        back.run({"x": data}).values(), model.run({"x": data}).values(), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_indices_of_images_keep_their_order(tmp_path: Path) -> None:
    """Integers in channels-last order are transposed although Transpose has no such type."""
    graph, b = new_model("places")
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 4, 5])
    y = b.op("Conv", x, RNG.normal(size=(2, 3, 1, 1)).astype(np.float32), kernel_shape=[1, 1])
    places = b.ops("TopK", y, [2], axis=-1, outputs=2)[1]
    b.output(b.op("Cast", b.op("Reshape", places, [-1]), to=FLOAT))
    model, data = Model(graph, "test"), RNG.normal(size=(1, 3, 4, 5)).astype(np.float32)
    try:
        converter.save(model, tmp_path / "net.tflite", "tflite")
    except ConverterError as e:
        raise AssertionError(str(e)) from None
    back = converter.load(tmp_path / "net.tflite")
    (wanted,) = model.run({"x": data}).values()
    for engine in ["onnxruntime", *(["litert"] if litert.available() else [])]:
        (found,) = back.run({back.inputs[0].name: data}, engine).values()
        np.testing.assert_array_equal(found, wanted)


def test_more_axes_than_are_resized_at_once(tmp_path: Path) -> None:
    graph, b = new_model("resized")
    x = b.input("x", ir.DataType.FLOAT, [2, 3, 2, 2])
    b.output(
        b.op(
            "Resize",
            x,
            None,
            None,
            [4, 3, 4, 6],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
    )
    data = RNG.normal(size=(2, 3, 2, 2)).astype(np.float32)
    converter.save(Model(graph, "test"), tmp_path / "net.xml", "openvino")
    (found,) = converter.load(tmp_path / "net.xml").run({"x": data}, "openvino").values()
    np.testing.assert_array_equal(found, data.repeat(2, 0).repeat(2, 2).repeat(3, 3))


def test_indices_that_are_fewer_than_a_batch_of_unknown_size(tmp_path: Path) -> None:
    graph, b = new_model("picked")
    x = b.input("x", ir.DataType.FLOAT, ["n", 4])
    b.output(b.op("GatherElements", x, np.array([[3, 0], [1, 1]]), axis=1))
    data = RNG.normal(size=(3, 4)).astype(np.float32)
    converter.save(Model(graph, "test"), tmp_path / "net.xml", "openvino")
    (found,) = converter.load(tmp_path / "net.xml").run({"x": data}, "openvino").values()
    np.testing.assert_array_equal(found, [[data[0, 3], data[0, 0]], [data[1, 1], data[1, 1]]])


def test_branches_of_other_ranks(tmp_path: Path) -> None:
    """The result of a known choice has the axes of its branch; the other branch disappears."""
    graph, b = new_model("ranks")
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    yes, no = b.body("yes"), b.body("no")
    yes.output(yes.op("Squeeze", x))
    no.output(no.op("Identity", x))
    y = b.op("If", np.array(False), then_branch=yes.graph, else_branch=no.graph)
    b.output(b.op("ScatterElements", y, np.array([[2]]), np.float32([[7]]), axis=1))
    converter.save(Model(graph, "test"), tmp_path / "net.xml", "openvino")
    (found,) = (
        converter.load(tmp_path / "net.xml").run({"x": np.zeros((1, 4), np.float32)}).values()
    )
    np.testing.assert_array_equal(found, [[0, 0, 7, 0]])


@pytest.mark.parametrize("shapes", [([2, 2, 2, 3, 4], [4]), ([4], [2, 2, 2, 4, 3])])
def test_a_vector_times_matrices_on_many_axes(
    shapes: tuple[list[int], list[int]], tmp_path: Path
) -> None:
    left, right = (RNG.normal(size=s).astype(np.float32) for s in shapes)
    graph, b = new_model("product")
    b.output(b.op("Flatten", b.op("MatMul", b.input("x", ir.DataType.FLOAT, left.shape), right)))
    converter.save(Model(graph, "test"), tmp_path / "net.nnapi.json", "nnapi")
    back = converter.load(tmp_path / "net.nnapi.json")
    (found,) = back.run({back.inputs[0].name: left}).values()
    np.testing.assert_allclose(found, (left @ right).reshape(2, -1), rtol=1e-5)


@pytest.mark.parametrize("target", ["openvino+ir=7", "nnapi"])
def test_scalars_that_become_vectors(target: str, tmp_path: Path) -> None:
    """PRelu of one number, and its result once more: targets have no tensors without axes."""
    graph, b = new_model("scalars")
    x = b.input("x", ir.DataType.FLOAT, [3])
    total = b.op("ReduceSum", x, keepdims=0)
    b.output(b.op("PRelu", total, np.float32(0.5)), b.op("Expand", total, [1]))
    path = tmp_path / f"net{FORMS[target]}"
    converter.save(Model(graph, "test"), path, target)
    first, second = converter.load(path).run({"x": np.float32([1, -2, -3])}).values()
    assert (float(np.asarray(first).item()), float(np.asarray(second).item())) == (-2, -4)


def test_shapes_that_decide_a_choice(tmp_path: Path) -> None:
    """The branch that is not taken squeezes an axis that is no longer 1."""
    graph, b = new_model("decided")
    x = b.input("x", ir.DataType.FLOAT, ["n", 4])
    yes, no = b.body("yes"), b.body("no")
    yes.output(yes.op("Squeeze", x, [0]))
    no.output(no.op("Identity", x))
    single = b.op("Equal", b.op("Gather", b.op("Shape", x), np.int64(0)), np.int64(1))
    b.output(b.op("Neg", b.op("If", single, then_branch=yes.graph, else_branch=no.graph)))
    converter.save(Model(graph, "test"), tmp_path / "net.onnx", "onnx")
    for count, shape in ((3, (3, 4)), (1, (4,))):
        model = convert.read(tmp_path / "net.onnx", Convert(inputs={"x": [count, 4]}))
        assert model.outputs[0].shape == shape
        converter.save(model, tmp_path / "net.txt", "zhouyi")
        (found,) = (
            converter.load(tmp_path / "net.txt")
            .run({"x": np.ones((count, 4), np.float32)})
            .values()
        )
        assert found.shape == shape and (found == -1).all()


@pytest.mark.parametrize(("shape", "wanted"), [((3, 1, 4), (3, 4)), ((3, 2, 4), (3, 2, 4))])
def test_squeezing_with_a_dimension_of_unknown_size(
    shape: tuple[int, ...], wanted: tuple[int, ...], tmp_path: Path
) -> None:
    """The file says how many axes are left: the runtime does not work on a number of axes that it
    does not know.
    """
    graph, b = new_model("squeezed")
    y = b.op("Squeeze", b.input("x", ir.DataType.FLOAT, ["n", *shape[1:]]))
    y.shape = ir.Shape(["n", *wanted[1:]])
    b.output(b.op("Neg", y))
    converter.save(Model(graph, "test"), tmp_path / "net.xml", "openvino")
    (found,) = (
        converter.load(tmp_path / "net.xml")
        .run({"x": np.ones(shape, np.float32)}, "openvino")
        .values()
    )
    assert found.shape == wanted and (found == -1).all()
