"""Operators with several results, and layers whose nodes are named like other layers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.commands.verify import verify
from converter.commands.verify.align import LAYER, align
from converter.commands.verify.program import Program
from converter.commands.verify.truth import in_doubles
from converter.graph.build import Builder, new_model

# layer names of the nodes Slice, Squeeze of two layers: as read from a file, and as a tool names
# the nodes that it writes for them
READ = ["cut", "cut", "cut_1", "cut_1"]
WRITTEN = ["cut", "cut_1", "cut_1_1", "cut_1_2"]


def _halves(other: bool = False) -> Model:
    """Return y = |first half of x| - the second half; `other`: the sizes of the halves are a
    constant, and the negative second half is added.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 2])
    given = [b.const([1, 1])] if other else []
    count = {} if other else {"num_outputs": 2}
    first, second = b.ops("Split", x, *given, axis=0, outputs=2, **count)
    first.name, second.name = "first", "second"
    size = b.op("Abs", first, name="size")
    b.output(
        b.op("Add", size, b.op("Neg", second, name="negative"), name="y")
        if other
        else b.op("Sub", size, second, name="y")
    )
    return Model(model, "onnx")


def _cuts(layers: list[str], named: bool, wrong: bool = False) -> Model:
    """Return y = whether one element of x is less than another, each taken by a layer of two nodes.
    `wrong`: the second layer takes the same element as the first.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    parts = b.ops("Split", x, axis=0, num_outputs=2, outputs=2)
    sliced = [b.op("Slice", p, b.const([0, 0]), b.const([1, 1])) for p in parts]
    read = [sliced[0], sliced[0 if wrong else 1]]
    cuts = [
        b.op("Squeeze", s, name=f"cut{'_1' * i}" if named else None) for i, s in enumerate(read)
    ]
    nodes = [v.producer() for pair in zip(sliced, cuts, strict=True) for v in pair]
    for node, layer in zip(nodes, layers, strict=True):
        assert node is not None
        node.metadata_props[LAYER] = layer
    b.output(b.op("Less", b.op("Abs", cuts[0], name="p"), b.op("Exp", cuts[1], name="q"), name="y"))
    return Model(model, "onnx")


@pytest.mark.parametrize("exact", [False, True])
def test_a_piece_reads_the_given_result_of_an_operator_with_several(exact: bool) -> None:
    program = Program(_halves())
    piece = program.piece(["y"], {"x", "first"})
    assert set(piece.inputs) == {"x", "first"}
    feed = {
        "x": np.array([[1, 2], [3, 4]], np.float32),
        "first": np.array([[-10, 20]], np.float32),
    }
    if exact:
        found = in_doubles(program, piece, [feed])
        assert found is not None
        ((result,),) = found
    else:
        (result,) = program.compile(piece).run(feed)
    np.testing.assert_array_equal(result, [[10 - 3, 20 - 4]])


def test_all_results_of_an_operator_are_aligned_if_one_is() -> None:
    candidate = _halves(other=True)
    for node in candidate.ir.graph:
        for i, value in enumerate(node.outputs if node.op_type == "Split" else ()):
            value.name = f"part{i}"
    assert align(_halves(), candidate).pairs["second"] == "part1"


def test_a_node_that_is_numbered_like_another_layer_is_not_that_layer() -> None:
    reference, candidate = _cuts(READ, named=True), _cuts(WRITTEN, named=False)
    pairs = align(reference, candidate).pairs
    squeezes = [str(n.outputs[0].name) for n in candidate.ir.graph if n.op_type == "Squeeze"]
    assert [pairs["cut"], pairs["cut_1"]] == squeezes
    assert verify(reference, candidate, native="off").passed


def test_a_layer_that_reads_the_wrong_tensor_stays_aligned_by_its_name() -> None:
    found = verify(_cuts(READ, named=True), _cuts(READ, named=True, wrong=True), native="off")
    assert not found.passed and found.first is not None and found.first.layer == "cut_1"


def _flat(kept: int) -> Model:
    """Return y = |x|, reshaped to its own sizes, the first of which is `kept` times the size: 0
    says to Reshape that it stays.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["n", 4])
    size = b.op("Mul", b.op("Shape", x, name="sizes"), b.const([kept, 1]), name="size")
    b.output(b.op("Reshape", b.op("Abs", x, name="p"), size, name="y"))
    return Model(model, "onnx")


def test_a_size_that_stays_may_be_said_in_two_ways() -> None:
    assert verify(_flat(0), _flat(1)).same


def _counted_rows(function: str) -> Model:
    """Return y = f(x) + 0, 1, 2, ... with x and the number of rows in half precision."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT16, [42])
    rows = b.op("Cast", b.op("Add", b.const(np.float16(40)), b.const(np.float16(2))), to=1)
    count = b.op("Range", b.const(np.float32(0)), rows, b.const(np.float32(1)))
    wide = b.op("Cast", x, to=1)
    smooth = b.op(function, wide) if function == "Sigmoid" else _written_out(b, wide)
    b.output(b.op("Add", smooth, count, name="y"))
    return Model(model, "onnx")


def _written_out(b: Builder, x: ir.Value) -> ir.Value:
    one = b.const(np.float32(1))
    return b.op("Div", one, b.op("Add", one, b.op("Exp", b.op("Neg", x))))


def test_noise_does_not_change_the_length_of_a_range() -> None:
    assert verify(_counted_rows("Sigmoid"), _counted_rows("formula")).same
