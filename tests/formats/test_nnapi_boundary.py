"""Inputs and outputs of written tables and TensorFlow Lite files, judged by LiteRT on
the file itself, not by our reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from nnapi_models import scalar, tensor

import converter
from converter import formats
from converter.api import Model
from converter.engines import litert
from converter.errors import Diagnostic, UnsupportedError
from converter.formats.format import Flavor
from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.lift import lift
from converter.formats.nnapi.lower import lower, write_model
from converter.formats.nnapi.table import OperandType, Operation, Table
from converter.formats.tflite.codec import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    read_flat,
    write_flat,
)
from converter.graph.build import Builder, new_model
from converter.io.files import Output

F, H = ir.DataType.FLOAT, ir.DataType.FLOAT16
RNG = np.random.default_rng(5)
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


def network(write: Callable[..., Any], *shapes: list[int], dtype: ir.DataType = F) -> Model:
    m, b = new_model()
    found = write(b, *(b.input(f"x{i}", dtype, s) for i, s in enumerate(shapes)))
    b.output(*(found if isinstance(found, tuple) else (found,)))
    return Model(m, "test")


def run_file(path: Path, *feeds: Any, plain: bool = False) -> list[Any]:
    """The outputs of a file in LiteRT as any user of it gets them: by the order and the shapes of
    the file.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else OpResolverType.BUILTIN
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()]


def conv(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Conv", x, b.const(np.eye(4, 3, dtype=np.float32).reshape(4, 3, 1, 1)))


BORDERS: dict[str, tuple[Callable[..., Any], list[list[int]]]] = {
    "an image": (conv, [[1, 3, 5, 4]]),
    "a sequence turned behind": (
        lambda b, x: b.op("Transpose", b.op("Relu", x), perm=[0, 2, 1]),
        [[1, 4, 3]],
    ),
    "nothing but a turn": (lambda b, x: b.op("Transpose", x, perm=[1, 0]), [[4, 3]]),
    "weights that are given": (lambda b, x, w: b.op("MatMul", x, w), [[2, 3], [3, 4]]),
    "one spatial axis": (
        lambda b, x: b.op("Conv", x, b.const(np.ones((2, 3, 1), np.float32))),
        [[1, 3, 5]],
    ),
    "five axes": (lambda b, x: b.op("Relu", x), [[2, 1, 3, 4, 5]]),
    "an image of five axes": (
        lambda b, x: b.op("Reshape", conv(b, b.op("Reshape", x, [1, 3, 4, 5])), [1, 1, 4, 4, 5]),
        [[1, 1, 3, 4, 5]],
    ),
    "the last two axes change places": (
        lambda b, x: b.op("Transpose", conv(b, x), perm=[0, 1, 3, 2]),
        [[1, 3, 5, 4]],
    ),
}


def numbers(shape: list[int]) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 5


@needs_litert
@pytest.mark.parametrize("case", BORDERS)
@pytest.mark.parametrize("plain", [False, True])
def test_a_file_has_the_inputs_and_outputs_of_the_source(
    case: str, plain: bool, tmp_path: Path
) -> None:
    build, shapes = BORDERS[case]
    model, path = network(build, *shapes), tmp_path / "m.tflite"
    assert converter.save(model, path) == []
    assert not read_flat(path).metadata
    feeds = [numbers(s) for s in shapes]
    for found, wanted in zip(
        run_file(path, *feeds, plain=plain),
        model.run({f"x{i}": v for i, v in enumerate(feeds)}).values(),
        strict=True,
    ):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@needs_litert
def test_images_are_channels_last_on_request(tmp_path: Path) -> None:
    model, path = network(conv, [1, 3, 5, 4]), tmp_path / "m.tflite"
    notes = formats.get("tflite").write(model, path, Flavor("tflite", io_layout="native"))
    assert [n.code for n in notes] == ["X211", "X211"]
    assert [o.builtin for o in read_flat(path).graphs[0].operators] == ["CONV_2D"]
    x = numbers([1, 3, 5, 4])
    (found,) = run_file(path, np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(
        found.transpose(0, 3, 1, 2), model.run({"x0": x})[model.outputs[0].name], rtol=1e-5
    )
    assert [i.shape for i in converter.load(path).inputs] == [(1, 5, 4, 3)], "no note undoes it"


@pytest.mark.parametrize("channels", [1, 2])
def test_a_boolean_image_keeps_its_layout(channels: int, tmp_path: Path) -> None:
    """There is no RESHAPE nor TRANSPOSE of booleans, in which the order of its axes changes."""

    def mask(b: Builder, x: ir.Value) -> ir.Value:
        y = b.op("Conv", x, random(channels, 3, 1, 1))
        return b.op("Greater", y, b.const(np.float32(0)))

    source = network(mask, [1, 3, 4, 5])
    path, feeds = tmp_path / "m.nnapi.json", {"x0": random(1, 3, 4, 5)}
    converter.convert(source, path, io_layout="keep")
    expected, actual = (list(m.run(feeds).values()) for m in (source, converter.load(path)))
    np.testing.assert_array_equal(actual[0].reshape(expected[0].shape), expected[0])


@pytest.mark.parametrize("case", BORDERS)
def test_a_table_turns_images_alone(case: str) -> None:
    notes: list[Diagnostic] = []
    table = lower(network(BORDERS[case][0], *BORDERS[case][1]), notes=notes)
    ends = [table.operands[i] for i in (*table.inputs, *table.outputs)]
    turned = [o.permutation for o in ends if o.permutation]
    assert turned == {
        "an image": [[0, 2, 3, 1]] * 2,
        "the last two axes change places": [[0, 2, 3, 1]],
    }.get(case, [])
    assert [n.code for n in notes] == ["X211"] * sum(o.boundary is not None for o in ends)


def test_the_operation_stays_in_the_table() -> None:
    table = lower(
        network(*BORDERS["a sequence turned behind"][:1], *BORDERS["a sequence turned behind"][1])
    )
    assert [o.type for o in table.operations] == ["RELU", "TRANSPOSE"]


@pytest.mark.parametrize("name", ["m.nnapi", "m.nnapi.c"])
def test_a_form_without_room_for_a_note_keeps_the_layout(name: str, tmp_path: Path) -> None:
    model = network(conv, [1, 3, 5, 4])
    assert converter.save(model, tmp_path / name) == []
    if name.endswith(".nnapi"):
        assert [i.shape for i in converter.load(tmp_path / name).inputs] == [(1, 3, 5, 4)]
    with pytest.raises(UnsupportedError, match=r"X202.*cannot declare"):
        write_model(
            model,
            tmp_path / f"native.{name}",
            Flavor("nnapi", {"c": ""} if name.endswith(".c") else {"blob": ""}, io_layout="native"),
        )


def stored(path: Path) -> list[tuple[Any, ...]]:
    table = read_table(path)
    return [
        (o.name, o.type, o.dimensions, o.boundary)
        for o in (table.operands[i] for i in (*table.inputs, *table.outputs))
    ]


def edited(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of a table whose inputs have other boundary notes."""
    document = json.loads(source.read_text())
    for i in document["inputIndexes"]:
        for key, value in changes.items():
            document["operands"][i].pop(key, None)
            if value is not None:
                document["operands"][i][key] = value
    target.write_text(json.dumps(document))
    weights = source.with_name(source.name.replace(".json", ".bin"))
    if weights.exists():
        target.with_name(target.name.replace(".json", ".bin")).write_bytes(weights.read_bytes())
    return target


@pytest.mark.parametrize("case", BORDERS)
@pytest.mark.parametrize("noted", [True, False])
def test_a_table_keeps_its_interface(case: str, noted: bool, tmp_path: Path) -> None:
    build, shapes = BORDERS[case]
    converter.save(network(build, *shapes), tmp_path / "a.nnapi.json")
    source = (
        tmp_path / "a.nnapi.json"
        if noted
        else edited(tmp_path / "a.nnapi.json", tmp_path / "a2.nnapi.json", boundary=None)
    )
    converter.convert(source, tmp_path / "b.nnapi.json")
    assert stored(tmp_path / "b.nnapi.json") == stored(source)


def test_a_former_note_of_another_order_is_kept(tmp_path: Path) -> None:
    """Earlier versions took any Transpose out of the network and noted it; such a table is read
    literally, and is written as it was.
    """
    converter.save(network(lambda b, x: b.op("Relu", x), [1, 4, 3]), tmp_path / "a.nnapi.json")
    source = edited(
        tmp_path / "a.nnapi.json", tmp_path / "old.nnapi.json", boundary={"permutation": [0, 2, 1]}
    )
    assert [i.shape for i in converter.load(source).inputs] == [(1, 3, 4)]
    converter.convert(source, tmp_path / "b.nnapi.json")
    assert stored(tmp_path / "b.nnapi.json") == stored(source)


def test_a_former_note_in_a_file_is_passed_over(tmp_path: Path) -> None:
    """LiteRT never read it."""
    graph = LiteGraph(
        tensors=[LiteTensor("x", 0, [1, 4, 3]), LiteTensor("y", 0, [1, 4, 3])],
        operators=[LiteOperator("RELU", [0], [1])],
        inputs=[0],
        outputs=[1],
    )
    with Output(tmp_path / "old.tflite") as out:
        write_flat(
            LiteModel(
                [graph], {"netconv.boundary": b'{"inputs": {"0": {"permutation": [0, 2, 1]}}}'}
            ),
            out,
        )
    model = converter.load(tmp_path / "old.tflite")
    assert [i.shape for i in model.inputs] == [(1, 4, 3)]
    assert [n.code for n in model.notes] == ["R108"]


@needs_litert
def test_the_engine_runs_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.tflite"
    converter.save(network(conv, [1, 3, 5, 4]), path)
    model, ran = converter.load(path), []
    invoke = litert.invoke
    monkeypatch.setattr(
        litert, "invoke", lambda file, inputs: ran.append(file) or invoke(file, inputs)
    )
    model.run({"x0": numbers([1, 3, 5, 4])}, engine="litert")
    assert ran == [path]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tflite"]


# --- halves
# -------------------------------------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize("plain", [False, True])
def test_half_precision_is_computed_in_floats(plain: bool, tmp_path: Path) -> None:
    w = random(4, 3, 2, 2, dtype=np.float16)
    model = network(
        lambda b, x: b.op(
            "Relu", b.op("Conv", b.op("Mul", x, b.const(np.array(2, np.float16))), w)
        ),
        [1, 3, 6, 6],
        dtype=H,
    )
    path = tmp_path / "m.tflite"
    assert [n.code for n in converter.save(model, path)] == ["X211", "X211"]
    graph = read_flat(path).graphs[0]
    halves = {i for i, t in enumerate(graph.tensors) if t.type == 1}
    assert halves and all(graph.tensors[i].data is not None for i in halves)
    assert all(
        o.builtin == "DEQUANTIZE" for o in graph.operators if halves & {*o.inputs, *o.outputs}
    )
    x = random(1, 3, 6, 6, dtype=np.float16)
    (found,) = run_file(path, x.astype(np.float32), plain=plain)
    np.testing.assert_allclose(
        found, next(iter(model.run({"x0": x}).values())).astype(np.float32), rtol=1e-2, atol=1e-2
    )


@needs_litert
@pytest.mark.parametrize("plain", [False, True])
def test_a_cast_to_half_precision_rounds(plain: bool, tmp_path: Path) -> None:
    model = network(lambda b, x: b.op("Cast", b.op("Cast", x, to=int(H)), to=int(F)), [4])
    converter.save(model, tmp_path / "m.tflite")
    x = np.array([1.0001, 2049.0, 1e-9, 3.14159], np.float32)
    (found,) = run_file(tmp_path / "m.tflite", x, plain=plain)
    np.testing.assert_array_equal(found, x.astype(np.float16).astype(np.float32))


@needs_litert
def test_a_half_interface_of_a_file_stays(tmp_path: Path) -> None:
    graph = LiteGraph(
        tensors=[
            LiteTensor("x", 1, [3]),
            LiteTensor("f", 0, [3]),
            LiteTensor("g", 0, [3]),
            LiteTensor("y", 1, [3]),
        ],
        inputs=[0],
        outputs=[3],
    )
    graph.operators = [
        LiteOperator("DEQUANTIZE", [0], [1]),
        LiteOperator("RELU", [1], [2]),
        LiteOperator("CAST", [2], [3]),
    ]
    with Output(tmp_path / "a.tflite") as out:
        write_flat(LiteModel([graph]), out)
    converter.convert(tmp_path / "a.tflite", tmp_path / "b.tflite")
    again = read_flat(tmp_path / "b.tflite").graphs[0]
    assert [
        (again.tensors[i].name, again.tensors[i].type, again.tensors[i].shape)
        for i in again.inputs + again.outputs
    ] == [("x", 1, [3]), ("y", 1, [3])]
    assert run_file(tmp_path / "b.tflite", np.array([-1, 2, 3], np.float16))[0].tolist() == [
        0,
        2,
        3,
    ]


# --- look-ups, integers, buffers
# -------------------------------------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("given", [True, False])
def test_negative_indices_count_from_the_end(op: str, given: bool, tmp_path: Path) -> None:
    index = np.array(
        [[-1, 0, -2], [1, -3, 2]]
        if op == "GatherElements"
        else [[-1], [1]]
        if op == "GatherND"
        else [-1, 0, -2],
        np.int32,
    )
    m, b = new_model()
    x = b.input("x", F, [3, 3])
    i = (
        b.const(index.astype(np.int64))
        if given
        else b.input(
            "i", ir.DataType.INT32 if op != "GatherND" else ir.DataType.INT64, list(index.shape)
        )
    )
    b.output(b.op(op, x, i, **({} if op == "GatherND" else {"axis": 0})))
    converter.save(Model(m, "test"), tmp_path / "m.tflite")
    data = numbers([3, 3])
    wanted = {
        "Gather": lambda: data[index],
        "GatherElements": lambda: np.take_along_axis(data, index % 3, 0),
        "GatherND": lambda: data[index[:, 0]],
    }[op]()
    stored = index.astype(np.int64 if op == "GatherND" else np.int32)
    (found,) = run_file(tmp_path / "m.tflite", data, *([] if given else [stored]), plain=True)
    np.testing.assert_array_equal(found, wanted)


def test_look_ups_of_a_table_are_not_wrapped() -> None:
    """NNAPI has no negative indices."""
    table = Table()
    table.inputs = [
        tensor(table, [3, 3], name="x"),
        tensor(table, [2], OperandType.TENSOR_INT32, "i"),
    ]
    y = tensor(table, [2, 3], name="y")
    table.operations, table.outputs = (
        [Operation("GATHER", [table.inputs[0], scalar(table, 0), table.inputs[1]], [y])],
        [y],
    )
    assert [o.type for o in lower(lift(table)).operations] == ["EMBEDDING_LOOKUP"]  # of level 1


@needs_litert
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("shapes", [([2, 3], [3, 4]), ([2, 2, 3], [2, 3, 2]), ([2, 3], [2, 3, 2])])
def test_integers_are_multiplied(
    shapes: tuple[list[int], list[int]], plain: bool, tmp_path: Path
) -> None:
    model = network(lambda b, x, y: b.op("MatMul", x, y), *shapes, dtype=ir.DataType.INT32)
    converter.save(model, tmp_path / "m.tflite")
    a, b = (RNG.integers(-9, 9, s, dtype=np.int32) for s in shapes)
    np.testing.assert_array_equal(run_file(tmp_path / "m.tflite", a, b, plain=plain)[0], a @ b)


def test_nothing_is_written_twice() -> None:
    table = lower(
        network(
            lambda b, x: b.op(
                "Mul", b.op("Reshape", b.op("Exp", x), [6]), b.op("Reshape", b.op("Exp", x), [6])
            ),
            [2, 3],
        )
    )
    assert [o.type for o in table.operations] == ["EXP", "RESHAPE", "MUL"]
    assert len(set(table.operations[-1].inputs[:2])) == 1


@needs_litert
def test_no_kernel_overwrites_a_value_in_use(tmp_path: Path) -> None:
    """LiteRT's plain kernels would write the product over the difference, of which the quotient is
    about to be taken.
    """

    def write(b: Builder, x: ir.Value) -> ir.Value:
        centered = b.op(
            "Sub", b.op("Add", x, b.const(np.float32([1]))), b.op("ReduceMean", x, [1], keepdims=1)
        )
        squares = b.op("Mul", b.op("Reshape", centered, [24]), b.const(np.float32([3])))
        return b.op(
            "Div", centered, b.op("ReduceSum", b.op("Reshape", squares, [4, 6]), [1], keepdims=1)
        )

    model = network(write, [4, 6])
    converter.save(model, tmp_path / "m.tflite")
    x = random(4, 6) + 3
    found = [run_file(tmp_path / "m.tflite", x, plain=plain)[0] for plain in (False, True)]
    for array in found:
        np.testing.assert_allclose(
            array, next(iter(model.run({"x0": x}).values())), rtol=1e-4, atol=1e-5
        )
