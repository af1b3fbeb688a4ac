"""Random networks made odd: other types, names that no format has, shared weights, outputs of every
kind, sizes that are not stated.

`variant(seed)` gives a network as it was built, its feeds and the changes of it; importing this
module enters all writers of operators.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

import random_operators
from converter.api import Model
from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.infer import InferenceError, infer, set_type
from converter.graph.names import Names
from converter.graph.walk import all_graphs, all_nodes, subgraphs
from random_graphs import STEPS, T, drawn, feeds_of

assert random_operators.INDEX and STEPS
ODD_NAMES = (
    "a b",
    "a_b",
    "a/b",
    "a.b",
    "a:0",
    "a,b",
    "é",
    "网络",
    "<&>'\"",
    "0",
    "-1",
    "x" * 300,
    "%s",
    "{}",
    "a\tb",
    "ﬀ",
    "a=b;c",
    "|",
    "Input",
    "None",
)
SPECIAL = (np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, -1e-45, 3e38, 65504.0, 1e-7)
# the way of a NaN is open: sums of products, orders, comparisons of values that have
# no order
OPEN = frozenset(
    [
        "Conv",
        "ConvTranspose",
        "MatMul",
        "Gemm",
        "Einsum",
        "Resize",
        "Hardmax",
        "TopK",
        "ArgMax",
        "ArgMin",
        "Softmax",
        "LogSoftmax",
        "Unique",
        "NonZero",
        "Compress",
        "GridSample",
        "RoiAlign",
        "CumSum",
        "LRN",
        "AveragePool",
        "MaxPool",
        "LpPool",
        "LSTM",
        "GRU",
        "RNN",
        "DeformConv",
        "Sort",
        "Cast",
        "CastLike",
        "QuantizeLinear",
        "If",
        "Loop",
        "Scan",
        "Max",
        "Min",
        "Clip",
        "Mod",
        "Sign",
    ]
)


@dataclass
class Variant:
    model: Model
    feeds: dict[str, np.ndarray]
    done: tuple[str, ...]


def variant(seed: str, size: int = 1, only: str = "") -> Variant | None:
    """A network and its feeds; None when none came about."""
    r = random.Random(f"variant {seed}")
    model = drawn(seed, size, only)
    if model is None:
        return None
    done = []
    for name, (chance, change) in CHANGES.items():
        if r.random() < chance:
            try:
                if change(model, r):
                    done.append(name)
            except (InferenceError, MappingError):
                return None
    feeds = feeds_of(model, bindings={"N": r.randint(1, 3), "M": r.randint(1, 5)})
    if (
        r.random() < 0.08
        and "half" not in done
        and not OPEN & {n.op_type for n in all_nodes(model.ir.graph)}
    ):
        special(feeds, r)
        done.append("special")
    return Variant(model, feeds, tuple(done))


def special(feeds: dict[str, np.ndarray], r: random.Random) -> None:
    for array in feeds.values():
        if array.dtype.kind == "f" and array.size:
            for _ in range(r.randint(1, 3)):
                array.reshape(-1)[r.randrange(array.size)] = r.choice(SPECIAL)


def again(model: Model) -> None:
    """Types and shapes of all nodes once more, from those of the inputs."""
    for graph in all_graphs(model.ir.graph):
        for value in graph.initializers.values():
            if value.const_value is not None:
                set_type(value, value.const_value.dtype, value.const_value.shape)
    for node in all_nodes(model.ir.graph):
        for out in node.outputs:
            out.type, out.shape = None, None
            out.meta.pop("netconv.known", None)
    for node in model.ir.graph:
        infer(node)
    if any(v.type is None for v in model.ir.graph.outputs):
        raise InferenceError("an output without a type")


def retyped(dtype: ir.DataType) -> Callable[[Model, random.Random], bool]:
    def change(model: Model, r: random.Random) -> bool:
        nodes = list(all_nodes(model.ir.graph))
        if any(
            n.op_type
            in (
                "Cast",
                "CastLike",
                "QuantizeLinear",
                "DequantizeLinear",
                "ConstantOfShape",
                "EyeLike",
            )
            or any(subgraphs(n))
            for n in nodes
        ):
            return False
        for value in [*model.ir.graph.inputs, *model.ir.graph.initializers.values()]:
            if value.dtype == T.FLOAT:
                set_type(value, dtype, None)
                if value.const_value is not None and not (
                    value.uses()
                    and value.uses()[0].node.op_type in ("Resize",)
                    and value.uses()[0].idx > 0
                ):
                    value.const_value = ir.Tensor(value.const_value.numpy().astype(dtype.numpy()))
        again(model)
        return True

    return change


def dynamic(model: Model, r: random.Random) -> bool:
    """The first dimension of one input, or all inputs that agree in it, is not stated."""
    inputs = [v for v in model.ir.graph.inputs if v.shape is not None and len(v.shape) > 0]
    if not inputs:
        return False
    axis = r.choice([0, 0, -1])
    size = inputs[0].shape[axis]  # type: ignore[index]
    for v in inputs:
        if v.shape[axis] == size:  # type: ignore[index]
            dims = list(v.shape)  # type: ignore[arg-type]
            dims[axis] = "N"
            v.shape = ir.Shape(dims)
    again(model)
    return True


def odd_names(model: Model, r: random.Random) -> bool:
    values = [v for g in all_graphs(model.ir.graph) for n in g for v in n.outputs] + list(
        model.ir.graph.inputs
    )
    chosen = r.sample(ODD_NAMES, min(len(values), r.randint(1, 6)))
    for value, name in zip(r.sample(values, len(chosen)), chosen, strict=True):
        value.name = name
    return True


def shared(model: Model, r: random.Random) -> bool:
    """Initializers of one type and shape become one."""
    kept: dict[Any, ir.Value] = {}
    changed = False
    for value in list(model.ir.graph.initializers.values()):
        if value.const_value is None or value.is_graph_output() or value.dtype != T.FLOAT:
            continue
        first = kept.setdefault((value.dtype, tuple(value.const_value.shape)), value)
        if first is not value and first.const_value is not None and len(value.const_value.shape):
            value.replace_all_uses_with(first)
            del model.ir.graph.initializers[value.name or ""]
            changed = True
    return changed


def inner_outputs(model: Model, r: random.Random) -> bool:
    """Values that are used inside are outputs as well."""
    values = [
        v
        for n in model.ir.graph
        for v in n.outputs
        if v not in model.ir.graph.outputs and isinstance(v.type, ir.TensorType)
    ]
    for v in r.sample(values, min(len(values), r.randint(1, 2))):
        model.ir.graph.outputs.append(v)
    return bool(values)


def _builder(model: Model) -> Builder:
    return Builder(model.ir.graph, Names(model.ir))


def passed(model: Model, r: random.Random) -> bool:
    """An input is an output."""
    value = r.choice(list(model.ir.graph.inputs))
    if r.random() < 0.5:
        model.ir.graph.outputs.append(value)
    else:
        _builder(model).output(value)
    return True


def fixed(model: Model, r: random.Random) -> bool:
    """A constant is an output."""
    b = _builder(model)
    constant = b.const(
        np.arange(6, dtype=r.choice([np.float32, np.int64, np.int32])).reshape(
            r.choice([(6,), (2, 3), (1, 2, 3, 1)])
        )
    )
    if r.random() < 0.5:
        model.ir.graph.outputs.append(constant)
    else:
        b.output(constant)
    return True


def twice(model: Model, r: random.Random) -> bool:
    """The same value is two outputs."""
    _builder(model).output(r.choice(list(model.ir.graph.outputs)))
    return True


def unused(model: Model, r: random.Random) -> bool:
    _builder(model).input(
        "spare", r.choice([T.FLOAT, T.INT64]), r.choice([[2, 3], [1, 2, 3, 4], [5]])
    )
    return True


def dead(model: Model, r: random.Random) -> bool:
    b = _builder(model)
    b.op("Identity", r.choice(list(model.ir.graph.inputs)))
    return True


def reversed_outputs(model: Model, r: random.Random) -> bool:
    outputs = list(model.ir.graph.outputs)
    r.shuffle(outputs)
    model.ir.graph.outputs.clear()
    model.ir.graph.outputs.extend(outputs)
    return len(outputs) > 1


CHANGES: dict[str, tuple[float, Callable[[Model, random.Random], bool]]] = {
    "half": (0.06, retyped(T.FLOAT16)),
    "double": (0.06, retyped(T.DOUBLE)),
    "shared": (0.2, shared),
    "inner outputs": (0.25, inner_outputs),
    "passed": (0.08, passed),
    "fixed": (0.08, fixed),
    "twice": (0.08, twice),
    "unused": (0.08, unused),
    "dead": (0.08, dead),
    "shuffled": (0.3, reversed_outputs),
    "dynamic": (0.08, dynamic),
    "names": (0.15, odd_names),
}
