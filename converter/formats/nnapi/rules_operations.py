"""What `validate` says about one operation: signature, ranks, missing values, scalars, quantisation, shapes, subgraphs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from converter.formats.nnapi.operations import (
    OEM_OPERATION,
    Argument,
    Binding,
    NoMatch,
    arguments_of,
    bind,
    domain_values,
)
from converter.formats.nnapi.shapes import Arguments, Shape, ShapeError, infer, shape_of
from converter.formats.nnapi.table import Lifetime, Operand, OperandType, Operation, Subgraph, Table

if TYPE_CHECKING:
    from converter.formats.nnapi.validate import Findings

# Scales are float32 products; AOSP's kernels accept this relative difference between a bias and input * filter.
_BIAS_TOLERANCE = 1e-4


# Where Android's own validator looks at the rank of the first input, and at scales that must be alike.
_RANKED = """
    ADD CAST CHANNEL_SHUFFLE CONCATENATION CONV_2D DEQUANTIZE DIV FLOOR FULLY_CONNECTED L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOGISTIC MEAN
    MIRROR_PAD MUL PAD PAD_V2 REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM RELU RELU1 RELU6 RESHAPE REVERSE SOFTMAX SQUEEZE
    STRIDED_SLICE SUB TANH TRANSPOSE
"""
_ALIKE = frozenset({"MIRROR_PAD", "PACK", "REVERSE"})


def check_operations(table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    for i, operation in enumerate(subgraph.operations):
        _Check(table, subgraph, lifetimes, found, operation, f"operations[{i}]").run()


def check_operation(table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings, operation: Operation) -> Binding | None:
    """The checks of one operation by itself, as it is about to be written, and its signature if it has one."""
    return _Check(table, subgraph, lifetimes, found, operation, "").run()


class _Check:
    """The checks of one operation; they share its place and operands. Ranks, missing values, scalars, scales and shapes are looked at where the
    findings are strict: Android's own validator lets nearly all of them pass."""

    def __init__(self, table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings, operation: Operation, place: str) -> None:
        self.table, self.subgraph, self.lifetimes, self.found = table, subgraph, lifetimes, found
        self.operation, self.place = operation, place

    def add(self, place: str, message: str, index: int | None = None, code: str = "R105", warning: bool = False) -> None:
        name = self.subgraph.operands[index].name if index is not None else ""
        at = f"{self.place}.{place}" if place else self.place
        self.found.add(at, message, code, "warning" if warning else "error", name, self.operation.type)

    def run(self) -> Binding | None:
        if self.operation.type == OEM_OPERATION:
            self.add("", "OEM_OPERATION means what one driver says; nothing about it can be checked", warning=True)
            return None
        try:
            binding = bind(self.operation, self.subgraph)
        except NoMatch as e:
            self.add(e.place, e.message)
            return None
        before = len(self.found)
        for place, argument, index in arguments_of(binding):
            if self.found.strict:
                self._argument(binding, place, argument, index)
            else:
                self._first(binding, place, argument, index)
        self._product(binding)
        if self.found.strict:
            self._bias(binding)
        if binding.spec.name in ("IF", "WHILE") and len(self.found) == before:
            self._subgraphs(binding)
        if self.found.strict and len(self.found) == before:
            self._shapes(binding)
        return binding

    def _argument(self, binding: Binding, place: str, argument: Argument, index: int) -> None:
        operand, missing = self.subgraph.operands[index], self.lifetimes[index] is Lifetime.NO_VALUE
        if missing:
            if not argument.optional:
                self.add(place, f"{argument.name} is required, operand {index} has no value", index)
            return
        self._rank(binding, place, argument, index)
        if argument.domain and operand.value is not None:
            self._domain(place, argument, operand, index)
        if argument.quantisation:
            self._quantisation(binding, place, argument, operand, index)
        if argument.name in ("filter", "weights") and operand.channel_quant is not None and operand.channel_quant.dim != binding.spec.channel_dim:
            self.add(place, f"per-channel scales of {binding.spec.name} lie along dimension {binding.spec.channel_dim}, not {operand.channel_quant.dim}", index)

    def _rank(self, binding: Binding, place: str, argument: Argument, index: int) -> None:
        operand = self.subgraph.operands[index]
        rank = len(operand.dimensions)
        if argument.rank and operand.type.is_tensor and rank and not argument.rank[0] <= rank <= (argument.rank[1] or rank):
            low, high = argument.rank
            wanted = str(low) if low == high else f"{low}..{high}" if high else f"at least {low}"
            self.add(place, f"{argument.name} has rank {rank}, {binding.spec.name} takes {wanted}", index)

    def _first(self, binding: Binding, place: str, argument: Argument, index: int) -> None:
        """What Android's own validator checks beside the types."""
        if place == "inputs[0]" and binding.spec.name in _RANKED.split() and self.lifetimes[index] is not Lifetime.NO_VALUE:
            self._rank(binding, place, argument, index)
        if argument.quantisation and binding.spec.name in _ALIKE:
            self._quantisation(binding, place, argument, self.subgraph.operands[index], index)

    def _domain(self, place: str, argument: Argument, operand: Operand, index: int) -> None:
        value = operand.array().reshape(-1)[0].item()
        allowed = domain_values(argument.domain)
        if allowed is not None:
            if value not in allowed:
                self.add(place, f"{argument.name} is {value}, allowed are {', '.join(map(str, allowed))}", index, "R110")
        elif argument.domain.startswith(">"):
            limit = int(argument.domain.lstrip(">="))
            if not (value >= limit if "=" in argument.domain else value > limit):
                self.add(place, f"{argument.name} is {value}, it must be {argument.domain}", index, "R110")

    def _quantisation(self, binding: Binding, place: str, argument: Argument, operand: Operand, index: int) -> None:
        if isinstance(argument.quantisation, str):
            source = binding.inputs[argument.quantisation]
            other = self.subgraph.operands[source] if isinstance(source, int) else None
            if other is None or operand.type not in _ASYMMETRIC or (other.scale, other.zero_point) == (operand.scale, operand.zero_point):
                return
            expected, what = (other.scale, other.zero_point), f"those of {argument.quantisation}"
        else:
            fixed = argument.quantisation.get(operand.type.name)
            if fixed is None or (np.float32(operand.scale) == np.float32(fixed[0]) and operand.zero_point == fixed[1]):
                return
            expected, what = (fixed[0], int(fixed[1])), f"fixed for {binding.spec.name}"
        self.add(
            place,
            f"scale {operand.scale} and zero point {operand.zero_point} of {argument.name} must be {expected[0]} and {expected[1]}, {what}",
            index,
            "R110",
        )

    def _bias(self, binding: Binding) -> None:
        """A quantised bias has scale input * filter (or 0 with per-channel scales)."""
        weights = binding.inputs.get("filter", binding.inputs.get("weights"))
        bias, source = binding.inputs.get("bias"), binding.inputs.get("input")
        if "B" not in binding.types or not (isinstance(bias, int) and isinstance(weights, int) and isinstance(source, int)):
            return
        b, w, x = (self.subgraph.operands[i] for i in (bias, weights, source))
        if b.type is not OperandType.TENSOR_INT32:
            return
        expected = 0.0 if w.channel_quant is not None else x.scale * w.scale
        if not math.isclose(b.scale, expected, rel_tol=_BIAS_TOLERANCE, abs_tol=1e-30):
            position = self.operation.inputs.index(bias)
            self.add(f"inputs[{position}]", f"the scale of the bias is {b.scale}, input and filter make it {expected:.9g}", bias, "R110")

    def _product(self, binding: Binding) -> None:
        """The scale of a quantised product is larger than the product of the scales; AOSP multiplies float32 by float32."""
        a, b, y = binding.inputs.get("a"), binding.inputs.get("b"), binding.outputs.get("output")
        if binding.spec.name != "MUL" or not (isinstance(a, int) and isinstance(b, int) and isinstance(y, int)):
            return
        left, right, out = (self.subgraph.operands[i] for i in (a, b, y))
        if out.type in _ASYMMETRIC and not np.float32(out.scale) > np.float32(left.scale) * np.float32(right.scale):
            self.add("outputs[0]", f"the scale {out.scale} of the product is not above {left.scale} * {right.scale}", y, "R110")

    def _shapes(self, binding: Binding) -> None:
        try:
            shapes = infer(binding, self.subgraph, self.lifetimes)
        except ShapeError as e:
            self.add("", str(e))
            return
        for k, (index, shape) in enumerate(zip(self.operation.outputs, shapes, strict=False)):
            operand = self.subgraph.operands[index]
            if not fits(shape_of(operand), shape):
                self.add(f"outputs[{k}]", f"the output has dimensions {_text(shape)}, the operand states {operand.dimensions}", index)

    def _subgraphs(self, binding: Binding) -> None:
        """The operands of IF and WHILE against the inputs and outputs of the subgraphs that they run."""
        inputs, outputs = binding.inputs["inputs"], binding.outputs["outputs"]
        assert isinstance(inputs, list) and isinstance(outputs, list)
        roles = ("then", "else") if binding.spec.name == "IF" else ("condition", "body")
        for role in roles:
            reference = binding.inputs[role]
            number = self.subgraph.operands[reference].subgraph if isinstance(reference, int) else None
            if number is None or number >= len(self.table.referenced):
                continue
            child = self.table.referenced[number]
            if role == "condition":
                self._condition(child, number)
                self._interface(inputs, child, child.inputs, f"inputs of the {role} subgraph")
                continue
            self._interface(inputs, child, child.inputs, f"inputs of the {role} subgraph")
            if role == "body":
                # a body may keep local state: it has at least as many outputs as the loop
                self._interface(outputs, child, child.outputs[: len(outputs)], f"outputs of the {role} subgraph")
            else:
                self._interface(outputs, child, child.outputs, f"outputs of the {role} subgraph")

    def _condition(self, child: Subgraph, number: int) -> None:
        kinds = [child.operands[i].type for i in child.outputs if i < len(child.operands)]
        if kinds != [OperandType.TENSOR_BOOL8]:
            self.add("inputs[0]", f"the condition, subgraph {number}, does not have one output of TENSOR_BOOL8")

    def _interface(self, mine: list[int], child: Subgraph, theirs: list[int], what: str) -> None:
        if len(mine) != len(theirs):
            self.add("", f"{len(mine)} operands for {len(theirs)} {what}")
            return
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if b >= len(child.operands):
                continue
            x, y = self.subgraph.operands[a], child.operands[b]
            if (x.type, x.scale, x.zero_point) != (y.type, y.scale, y.zero_point) or not fits(shape_of(x), shape_of(y)):
                self.add("", f"operand {a} ({x.type.name} {x.dimensions}) is not like number {k} of the {what} ({y.type.name} {y.dimensions})", a)


_ASYMMETRIC = {OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED, OperandType.TENSOR_QUANT16_ASYMM}


def fits(stated: Shape, found: Shape) -> bool:
    """Whether two shapes can be the same once everything is known."""
    if stated is None or found is None:
        return True
    return len(stated) == len(found) and all(a == b or not a or not b for a, b in zip(stated, found, strict=True))


def _text(shape: Shape) -> str:
    return "?" if shape is None else str(shape)


__all__ = ["Arguments", "check_operation", "check_operations", "fits"]
