"""Copies for buffers that LiteRT's built-in kernels would overwrite while they are still needed.

RESHAPE and similar operators let their result share the buffer of their input, and an elementwise
operator writes its result over an input that has no other consumer. LiteRT only counts the
consumers of that input and of the tensor that first used the buffer, not those of the tensors
between: in

    a = ADD(..); s = SUB(a, ..); r = RESHAPE(s); m = MUL(r, ..); d = DIV(s, ..)

s lies in the buffer of a, which only SUB reads, so that MUL overwrites the data that DIV is about
to read. This module follows LiteRT's memory plan (ArenaPlanner) operator by operator.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from converter.formats.tflite.codec import LiteGraph, LiteOperator, LiteTensor
from converter.formats.tflite.schema import schema

# Operators that give a buffer a second name, and those that may overwrite one of the inputs named.
RENAMES = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_ONE_OF_TWO = ("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "SQUARED_DIFFERENCE", "SUB")
_ONE = (
    "ABS CAST ELU EXP FLOOR HARD_SWISH LEAKY_RELU LOG LOG_SOFTMAX LOGISTIC NEG RELU RELU6 "
    "RELU_N1_TO_1 RSQRT SIN SOFTMAX SQRT TANH"
)
OVERWRITES = {**dict.fromkeys(_ONE_OF_TWO, 2), **dict.fromkeys(_ONE.split(), 1)}
_POINTER = 8  # size in bytes up to which no buffer is overwritten


def separate(graph: LiteGraph) -> None:
    """Insert copies, in place, for the operands that LiteRT would overwrite too early."""
    plan = _Plan(graph)
    graph.operators = [
        made
        for position, operator in enumerate(list(graph.operators))
        for made in plan.step(position, operator)
    ]


class _Plan:
    """The tensors in each buffer, after the operators seen so far."""

    def __init__(self, graph: LiteGraph) -> None:
        self.graph = graph
        self.ends = {*graph.inputs, *graph.outputs}
        self.reads = Counter(
            [i for o in graph.operators for i in o.inputs] + [*graph.inputs, *graph.outputs]
        )
        self.last = {i: position for position, o in enumerate(graph.operators) for i in o.inputs}
        self.first: dict[int, int] = {}  # tensor -> the tensor that its buffer began with
        self.names: dict[int, list[int]] = defaultdict(list)  # and the other way

    def step(self, position: int, operator: LiteOperator) -> list[LiteOperator]:
        if operator.builtin in RENAMES and self._may_share(operator.inputs[0], operator.outputs[0]):
            self._share(operator.inputs[0], operator.outputs[0])
            return [operator]
        candidates = operator.inputs[: OVERWRITES.get(operator.builtin, 0)]
        source = next(
            (
                i
                for i in candidates
                if self._may_share(i, operator.outputs[0])
                and self._overwritten(i, operator.outputs[0])
            ),
            None,
        )
        if source is None or self.reads[self.first.get(source, source)] > 1:
            return [operator]
        root = self.first.get(source, source)
        if not any(
            self.last.get(name, -1) > position
            for name in (root, *self.names[root])
            if name != source
        ):
            self._share(source, operator.outputs[0])
            return [operator]
        copy = self._copied(source)
        operator.inputs = [copy.outputs[0] if i == source else i for i in operator.inputs]
        self._share(copy.outputs[0], operator.outputs[0])
        return [copy, operator]

    def _may_share(self, source: int, result: int) -> bool:
        return (
            source >= 0
            and self.graph.tensors[source].data is None
            and source not in self.graph.inputs
            and result not in self.graph.outputs
        )

    def _overwritten(self, source: int, result: int) -> bool:
        sizes = [_bytes(self.graph.tensors[i]) for i in (source, result)]
        return sizes[0] == sizes[1] > _POINTER and self.reads[source] == 1

    def _share(self, source: int, result: int) -> None:
        root = self.first[result] = self.first.get(source, source)
        self.names[root].append(result)

    def _copied(self, source: int) -> LiteOperator:
        """Return a copy of a tensor, by a slice of the whole: an operator with a separate
        buffer.
        """
        tensor = self.graph.tensors[source]
        rank = [len(tensor.shape)]
        begin = LiteTensor(
            f"{tensor.name}_begin", schema.TensorType.INT32, rank, np.zeros(rank, np.int32)
        )
        size = LiteTensor(
            f"{tensor.name}_size", schema.TensorType.INT32, rank, np.asarray(tensor.shape, np.int32)
        )
        copy = LiteTensor(
            f"{tensor.name}_copy",
            tensor.type,
            list(tensor.shape),
            None,
            list(tensor.scales),
            list(tensor.zero_points),
        )
        self.graph.tensors += [begin, size, copy]
        count = len(self.graph.tensors)
        return LiteOperator("SLICE", [source, count - 3, count - 2], [count - 1])


_WIDTHS = {
    schema.TensorType.FLOAT32: 4,
    schema.TensorType.INT32: 4,
    schema.TensorType.INT64: 8,
    schema.TensorType.FLOAT16: 2,
    schema.TensorType.INT16: 2,
}


def _bytes(tensor: LiteTensor) -> int:
    return math.prod(tensor.shape) * _WIDTHS.get(tensor.type, 1)
