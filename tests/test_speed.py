"""The cost of a layer does not depend on their number: reading and writing of every format,
many layers against few.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter

FEW, MANY = 30, 90
SUFFIXES = {
    "onnx": ".onnx",
    "coreml": ".mlmodel",
    "openvino": ".xml",
    "openvino+ir=7": ".xml",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
    "tflite": ".tflite",
}


def chain(path: Path, layers: int) -> Path:
    """Conv, Relu, Add, MaxPool in turn on [1, 2, 4, 4]."""
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        kind, name = ("Conv", "Relu", "Add", "MaxPool")[i % 4], f"layer_{i}"
        inputs = [x]
        if kind in ("Conv", "Add"):
            array = np.full(
                (2, 2, 1, 1) if kind == "Conv" else (1, 2, 1, 1), 0.5 + i / 1e4, np.float32
            )
            weights.append(numpy_helper.from_array(array, f"weight_{i}"))
            inputs.append(f"weight_{i}")
        attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]} if kind == "MaxPool" else {}
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        x = name
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4, 4]) for name in ("x", x)
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def calls(action: Callable[[], object]) -> int:
    """The number of calls of an action."""
    profile = cProfile.Profile()
    profile.runcall(action)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def calls_and_seconds(action: Callable[[], object]) -> tuple[int, float]:
    """The number of calls of an action that has filled its caches, and its processor time while
    they are counted, which hardly adds to calls that are long.

    Without Python's search for cycles, which comes now and then and scans everything else in
    memory.
    """
    action()
    gc.disable()
    try:
        start = time.process_time()
        count = calls(action)
        return count, time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("target", SUFFIXES)
def test_the_cost_of_a_layer_is_constant(tmp_path: Path, target: str) -> None:
    """Calls are counted exactly; time, which also sees work inside one call, is compared
    generously, and once more where a busy machine may have spoiled it.
    """
    found: dict[int, list[tuple[int, float]]] = {}
    actions: dict[int, list[Callable[[], object]]] = {}
    for layers in (8, 8, FEW, MANY):  # the first fills caches
        source, file = (
            chain(tmp_path / f"{layers}.onnx", layers),
            tmp_path / f"{layers}{SUFFIXES[target]}",
        )
        made = file.with_name(f"made_{file.name}")
        model = converter.load(source)
        actions[layers] = [
            lambda m=model, f=made: converter.save(m, f, target),
            lambda f=made: converter.load(f),
        ]
        found[layers] = list(map(calls_and_seconds, actions[layers]))
        assert len(converter.load(made).ir.graph) >= layers * 3 // 4
    for i, (base, few, many) in enumerate(zip(found[8], found[FEW], found[MANY], strict=True)):
        assert (many[0] - base[0]) / (few[0] - base[0]) / ((MANY - 8) / (FEW - 8)) < 1.1
        took = few[1], many[1]
        for _ in range(3):
            if took[1] / took[0] / (MANY / FEW) < 3:
                break
            again = (calls_and_seconds(actions[n][i])[1] for n in (FEW, MANY))
            took = tuple(map(min, took, again))
        assert took[1] / took[0] / (MANY / FEW) < 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", SUFFIXES)
def test_a_long_chain_needs_no_deep_stack(target: str, tmp_path: Path) -> None:
    """Nothing walks a chain by calling itself: far less than Python's usual depth is enough for
    hundreds of layers.
    """
    source, usual = chain(tmp_path / "chain.onnx", 400), sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        made = tmp_path / f"made{SUFFIXES[target]}"
        converter.convert(source, made, target=target)
        converter.load(made)
    finally:
        sys.setrecursionlimit(usual)


@pytest.mark.parametrize(
    ("few", "many"),
    [(FEW // 2, MANY // 2), pytest.param(FEW, MANY, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("dtype", "kind", "inputs"),
    [(TensorProto.FLOAT, "Relu", ["x"]), (TensorProto.INT32, "Add", ["x", "x"])],
)
def test_the_cost_of_an_output_is_constant(
    tmp_path: Path, dtype: int, kind: str, inputs: list[str], few: int, many: int
) -> None:
    """A value on more axes than the target has, given again and again: each output is rewritten
    without a look at all the others.

    Nor is the scale of stored integers looked for among all of them.
    """
    found = []
    for count in (8, 8, few, many):  # the first fills caches
        ends = [
            helper.make_tensor_value_info(name, dtype, [1, 4, 2, 2, 2])
            for name in ("x", *(f"y{i}" for i in range(count)))
        ]
        nodes = [
            helper.make_node(kind, inputs, ["r"]),
            *(helper.make_node("Identity", ["r"], [v.name]) for v in ends[1:]),
        ]
        source, made = tmp_path / f"{count}.onnx", tmp_path / f"{count}.tflite"
        onnx.save(
            helper.make_model(
                helper.make_graph(nodes, "g", ends[:1], ends[1:]),
                opset_imports=[helper.make_opsetid("", 17)],
                ir_version=8,
            ),
            source,
        )
        model = converter.load(source)
        found.append(calls(lambda m=model, f=made: converter.save(m, f)))
        assert [o.name for o in converter.load(made).outputs] == [v.name for v in ends[1:]]
    _, base, some, most = found
    assert (most - base) / (some - base) / ((many - 8) / (few - 8)) < 1.1
