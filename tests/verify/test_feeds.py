"""Random feeds for inputs of dynamic sizes, and for indices and counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.commands.run import run
from converter.commands.verify import verify
from converter.commands.verify.feeds import Feed, feeds_for
from converter.commands.verify.sizes import shapes_for
from converter.errors import NothingComparedError, UsageError
from converter.graph.build import Builder, new_model

T = ir.DataType


Sizes = tuple[int | str | None, ...]
NAMED, STATIC, NAMELESS = ("batch", "past", "seq", "total"), (1, 3, 2, 5), (None,) * 4


def decoder(sizes: Sizes = NAMED) -> Model:
    """One head of attention over past and new tokens, with a mask over both."""
    model, b = new_model()
    batch, past, seq, total = sizes
    ids = b.input("ids", T.INT64, [batch, seq])
    mask = b.input("mask", T.FLOAT, [batch, total])
    key = b.input("key", T.FLOAT, [batch, past, 4])
    table = np.random.default_rng(0).standard_normal((11, 4)).astype(np.float32)
    x = b.op("Gather", b.const(table, "table"), ids, axis=0, name="x")
    k = b.op("Concat", key, x, axis=1, name="k")
    scores = b.op("MatMul", x, b.op("Transpose", k, perm=[0, 2, 1], name="kt"), name="scores")
    masked = b.op("Add", scores, b.op("Unsqueeze", mask, b.const([1]), name="wide"), name="masked")
    b.output(b.op("MatMul", b.op("Softmax", masked, axis=-1, name="p"), k, name="y"))
    return Model(model, "onnx")


@pytest.mark.parametrize(("sizes", "most"), [(NAMED, 16), (NAMELESS, 64)])
def test_sizes_that_depend_on_each_other_are_found(sizes: Sizes, most: int) -> None:
    shapes = shapes_for(decoder(sizes))
    (_, seq), (_, total), (_, past, _) = shapes["ids"], shapes["mask"], shapes["key"]
    assert total == past + seq and total <= most
    for feed in feeds_for(decoder(sizes)):
        assert decoder(sizes).run(feed.arrays)["y"].shape == (1, seq, 4)


def test_a_sum_may_be_the_name_of_a_size() -> None:
    shapes = shapes_for(decoder(("batch", "past", "seq", "past + seq")))
    assert shapes["mask"][1] == shapes["key"][1] + shapes["ids"][1]


def test_static_sizes_of_either_model_are_those_of_both() -> None:
    for pair in ((decoder(), decoder(STATIC)), (decoder(STATIC), decoder())):
        result = verify(*pair)
        assert result.passed and result.outputs[0].difference.count == 2 * 4


def test_given_shapes_win() -> None:
    shapes = {"ids": [1, 6], "key": [1, 4, 4], "mask": [1, 10]}
    assert shapes_for(decoder(), shapes)["ids"] == (1, 6)
    assert verify(decoder(), decoder(), inputs=shapes).outputs[0].difference.count == 6 * 4
    for wrong in ({"nobody": [1]}, {"ids": [1]}, {"key": [1, 4, 5]}):
        with pytest.raises(UsageError, match="U501"):
            shapes_for(decoder(), wrong)


def test_a_name_that_the_file_uses_twice_does_not_stand_against_given_shapes() -> None:
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", T.FLOAT, [1, "?", "?"]), name="y"))
    assert shapes_for(Model(model, "onnx"), {"x": [1, 5, 7]}) == {"x": (1, 5, 7)}


Draw = Callable[[Builder, ir.Value], ir.Value]


def _argument(shape: list[int], write: Draw, dtype: ir.DataType = T.INT64) -> Model:
    model, b = new_model()
    b.output(write(b, b.input("n", dtype, shape)))
    return Model(model, "onnx")


def _data(b: Builder, *shape: int) -> ir.Value:
    return b.input("x", T.FLOAT, list(shape))


LENGTHS = {
    "gather_nd": lambda b, n: b.op("GatherND", _data(b, 3, 7), n),
    "scatter_nd": lambda b, n: b.op(
        "ScatterND", _data(b, 3, 7), n, b.const(np.ones(2, np.float32))
    ),
}
ARGUMENTS: dict[str, tuple[list[int], Draw]] = {
    "gather": ([5], lambda b, n: b.op("Gather", _data(b, 3, 7), n, axis=0)),
    **{name: ([2, 2], write) for name, write in LENGTHS.items()},
    "elements": ([3, 2], lambda b, n: b.op("GatherElements", _data(b, 3, 2), n, axis=1)),
    "reverse": ([4], lambda b, n: b.op("ReverseSequence", _data(b, 3, 4), n)),
    "reshape": ([3], lambda b, n: b.op("Reshape", _data(b, 3, 4), n)),
    "expand": ([2], lambda b, n: b.op("Expand", _data(b, 3, 1), n)),
    "tile": ([2], lambda b, n: b.op("Tile", _data(b, 3, 4), n)),
    "end": ([1], lambda b, n: b.op("Slice", _data(b, 3, 4), b.const([0]), n, b.const([1]))),
    "start": ([1], lambda b, n: b.op("Slice", _data(b, 3, 4), n, b.const([2]), b.const([0]))),
    "split": ([2], lambda b, n: b.ops("Split", _data(b, 6, 4), n, axis=0, outputs=2)[1]),
    "topk": ([1], lambda b, n: b.ops("TopK", _data(b, 3, 4), n, outputs=2)[0]),
    "reduce": ([1], lambda b, n: b.op("ReduceSum", _data(b, 3, 4), n)),
    "squeeze": ([1], lambda b, n: b.op("Squeeze", _data(b, 3, 1, 4), n)),
    "lstm": (
        [2],
        lambda b, n: b.ops(
            "LSTM",
            _data(b, 6, 2, 3),
            np.ones((1, 8, 3), np.float32),
            np.ones((1, 8, 2), np.float32),
            None,
            b.op("Cast", n, to=int(T.INT32)),
            hidden_size=2,
            outputs=3,
        )[0],
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_indices_and_lengths_fit_their_consumers(name: str) -> None:
    shape, write = ARGUMENTS[name]
    model = _argument(shape, write)
    result = verify(model, model)
    assert result.passed and result.feeds == ("normal", "uniform", "zeros", "ones")
    assert not result.notes


def test_one_feed_that_does_not_run_spoils_nothing() -> None:
    """The index into a table of one row is computed: only zeros do not fall beyond it."""
    model, b = new_model()
    n = b.input("n", T.FLOAT, [1])
    place = b.op("Cast", b.op("Ceil", b.op("Abs", n)), to=int(T.INT64))
    b.output(b.op("Gather", b.const(np.ones((1, 3), np.float32)), place, axis=0, name="y"))
    found = verify(Model(model, "onnx"), Model(model, "onnx"))
    assert found.passed and found.feeds == ("zeros",)
    assert len([n for n in found.notes if "the reference does not accept" in n]) == 3
    with pytest.raises(NothingComparedError, match="N403"):
        verify(Model(model, "onnx"), Model(model, "onnx"), {"n": np.full(1, 5, np.float32)})


def test_run_ignores_unknown_inputs() -> None:
    model, b = new_model()
    n = b.input("n", T.FLOAT, [1])
    big = b.op("Greater", n, b.const(np.array(2, np.float32)))
    place = b.op("Cast", big, to=int(T.INT64))
    b.output(b.op("Gather", b.const(np.ones((1, 3), np.float32)), place, axis=0, name="y"))
    sets = [
        Feed("normal", {"n": np.full(1, 5, np.float32)}),
        Feed("uniform", {"n": np.zeros(1, np.float32)}),
    ]
    assert [name for name, _ in run(Model(model, "onnx"), sets)] == ["uniform"]
    with pytest.raises(UsageError, match="N403"):
        run(Model(model, "onnx"), sets[:1])
    with pytest.raises(UsageError, match="N403"):
        run(Model(model, "onnx"), [Feed("mine", sets[0].arrays), sets[1]])
