"""Nodes of thousands of operands: the work grows with their number, not with its square."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import onnx
import onnx.helper as oh
import onnx_ir as ir
import pytest

import converter
from converter.graph.walk import detach, replace_inputs, replace_uses, set_inputs

FILES = {"nnapi": "m.nnapi.json", "nnapi+c": "m", "zhouyi": "m.txt", "tflite": "m.tflite"}


def model(path: Path, count: int) -> Path:
    """A Split into `count` values, each of which a Concat reads five times."""
    parts = [f"s{i}" for i in range(count)]
    nodes = [
        oh.make_node("Split", ["x"], parts, axis=0, num_outputs=count),
        oh.make_node("Concat", parts * 5, ["y"], axis=0),
    ]
    ends = [oh.make_tensor_value_info(n, 1, [k]) for n, k in (("x", count), ("y", 5 * count))]
    graph = oh.make_graph(nodes, "g", ends[:1], ends[1:])
    opset = [oh.make_opsetid("", 21)]
    onnx.save(oh.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def calls(source: Path, target: str) -> int:
    profile = cProfile.Profile()
    profile.enable()
    converter.convert(source, source.parent / FILES[target], target=target)
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", FILES)
def test_calls_grow_with_the_operands(tmp_path: Path, target: str) -> None:
    """Generators count a call for each item, so that loops over all inputs are seen."""
    small, large = (model(tmp_path / f"{n}.onnx", n) for n in (50, 200))
    calls(small, target)  # imports, and caches
    assert calls(large, target) < 5 * calls(small, target)


def test_inputs_are_replaced_at_once() -> None:
    before, after = ([ir.Value(name=f"{k}{i}") for i in range(40)] for k in "ab")
    node = ir.Node("", "Concat", [*before, before[0], None])
    replace_uses(list(zip(before, after, strict=True)))
    assert list(node.inputs) == [*after, after[0], None]
    assert not any(v.uses() for v in before)
    assert {(u.node, u.idx) for u in after[0].uses()} == {(node, 0), (node, 40)}
    replace_inputs(node, {1: None, 2: before[2]})
    assert node.inputs[1] is None and node.inputs[2] is before[2] and not after[1].uses()
    set_inputs(node, after[:2])
    assert list(node.inputs) == after[:2] and not before[2].uses()
    detach(node)
    assert not node.inputs and not any(v.uses() for v in after)
