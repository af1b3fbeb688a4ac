"""Checks of a single operation: signature, ranks, values, quantization, subgraphs."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np

from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.operations import (
    OEM_OPERATION,
    Argument,
    Binding,
    NoMatch,
    arguments_of,
    bind,
    domain_values,
)
from converter.formats.nnapi.repeated import signature
from converter.formats.nnapi.table import (
    Lifetime,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
    fits,
)

# Scales are float32 products; AOSP's kernels accept this relative difference between the scale of
# a bias and input * filter.
_BIAS_TOLERANCE = 1e-4
# Operations for which Android's own validator checks the rank of the first input, and scales that
# must be equal
_RANKED = """
    ADD CAST CHANNEL_SHUFFLE CONCATENATION CONV_2D DEQUANTIZE DIV FLOOR FULLY_CONNECTED
    L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOGISTIC MEAN MIRROR_PAD MUL PAD PAD_V2 REDUCE_ALL
    REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM RELU RELU1 RELU6 RESHAPE REVERSE SOFTMAX
    SQUEEZE STRIDED_SLICE SUB TANH TRANSPOSE
"""
_ALIKE = frozenset({"MIRROR_PAD", "PACK", "REVERSE"})
_ASYMMETRIC = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT16_ASYMM,
}
# Optional operands of an LSTM cell that must be there together or not at all.
_TOGETHER = (
    ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias"),
    ("cell_to_forget_weights", "cell_to_output_weights"),
)


def check_operations(
    table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings
) -> list[int]:
    """Return the indices of the operations without findings."""
    sound, known = [], set[Hashable]()
    for i, operation in enumerate(subgraph.operations):
        before, same = len(found), signature(operation, subgraph)
        if same is None or same not in known:
            check_operation(table, lifetimes, found, operation, f"operations[{i}]")
        if len(found) == before:
            sound.append(i)
            known.add(same)
    return sound


def check_operation(
    table: Table,
    lifetimes: list[Lifetime],
    found: Findings,
    operation: Operation,
    location: str = "",
) -> Binding | None:
    """Check one operation, and its signature if it has one.

    Ranks, missing values, scalars and scales are only checked strictly: Android's own validator
    accepts nearly all of them.
    """
    return _Check(table, lifetimes, found, operation, location).run()


class _Check:
    """The checks of one operation; they share its path and operands."""

    def __init__(
        self,
        table: Table,
        lifetimes: list[Lifetime],
        found: Findings,
        operation: Operation,
        location: str,
    ) -> None:
        self.table, self.lifetimes, self.found = table, lifetimes, found
        self.operation, self.location, self.operands = operation, location, found.subgraph.operands

    def add(
        self, location: str, message: str, index: int | None = None, code: str = "R105", **more: str
    ) -> None:
        at = f"{self.location}.{location}" if location else self.location
        kind = self.operation.type
        self.found.add(at, message, index, code=code, kind=kind, **more)  # type: ignore[arg-type]

    def run(self) -> Binding | None:
        if self.operation.type == OEM_OPERATION:
            message = "OEM_OPERATION is defined by one driver alone; netconv cannot check it"
            self.add("", message, level="warning")
            return None
        try:
            self.binding = binding = bind(self.operation, self.found.subgraph)
        except NoMatch as e:
            self.add(e.location, str(e))
            return None
        before, strict = len(self.found), self.found.strict
        for location, argument, index in arguments_of(binding):
            if strict:
                self._argument(location, argument, index)
            else:
                self._first(location, argument, index)
        self._product()
        if strict:
            self._bias()
            self._cells()
        if binding.spec.name in ("IF", "WHILE") and len(self.found) == before:
            self._subgraphs()
        return binding

    def _given(self, name: str, side: str = "inputs") -> Operand | None:
        """Return the operand of an argument, unless it is omitted or repeated."""
        index = getattr(self.binding, side).get(name)
        return self.operands[index] if isinstance(index, int) else None

    def _argument(self, location: str, argument: Argument, index: int) -> None:
        operand, name = self.operands[index], self.binding.spec.name
        if self.lifetimes[index] is Lifetime.NO_VALUE:
            if not argument.optional:
                self.add(
                    location,
                    f"{argument.name} is required, but operand {index} has no value",
                    index,
                )
            return
        self._rank(location, argument, index)
        if argument.domain and operand.value is not None:
            self._domain(location, argument, operand, index)
        if argument.quantization:
            self._quantization(location, argument, operand, index)
        channel, wanted = operand.channel_quant, self.binding.spec.channel_dim
        if argument.name in ("filter", "weights") and channel and channel.dim != wanted:
            message = f"per-channel scales of {name} must be along dimension {wanted}"
            self.add(location, f"{message}, got {channel.dim}", index)

    def _rank(self, location: str, argument: Argument, index: int) -> None:
        operand = self.operands[index]
        rank = len(operand.dimensions)
        if not argument.rank or not operand.type.is_tensor or not rank:
            return
        low, high = argument.rank
        if not low <= rank <= (high or rank):
            wanted = str(low) if low == high else f"{low}..{high}" if high else f"at least {low}"
            message = (
                f"{argument.name} of {self.binding.spec.name} must have rank {wanted}, got {rank}"
            )
            self.add(location, message, index)

    def _first(self, location: str, argument: Argument, index: int) -> None:
        """Check the conditions of Android's own validator, except types."""
        name, given = self.binding.spec.name, self.lifetimes[index] is not Lifetime.NO_VALUE
        if location == "inputs[0]" and name in _RANKED.split() and given:
            self._rank(location, argument, index)
        if argument.quantization and name in _ALIKE:
            self._quantization(location, argument, self.operands[index], index)

    def _domain(self, location: str, argument: Argument, operand: Operand, index: int) -> None:
        value, limits = operand.array().reshape(-1)[0].item(), argument.domain
        allowed = domain_values(limits)
        wrong = ""
        if allowed is not None:
            if value not in allowed:
                wrong = f"it must be one of {', '.join(map(str, allowed))}"
        elif limits.startswith(">"):
            limit = int(limits.lstrip(">="))
            if not (value >= limit if "=" in limits else value > limit):
                wrong = f"it must be {limits}"
        if wrong:
            self.add(location, f"{argument.name} is {value}; {wrong}", index, "R110")

    def _quantization(
        self, location: str, argument: Argument, operand: Operand, index: int
    ) -> None:
        """Check scale and zero point that must equal those of another argument, or fixed
        numbers.
        """
        wanted, has = argument.quantization, (operand.scale, operand.zero_point)
        if isinstance(wanted, str):
            other = self._given(wanted)
            if other is None or operand.type not in _ASYMMETRIC:
                return
            expected, what = (other.scale, other.zero_point), f"those of {wanted}"
            same = has == expected
        else:
            fixed = wanted.get(operand.type.name)
            if fixed is None:
                return
            expected, what = (fixed[0], int(fixed[1])), f"fixed for {self.binding.spec.name}"
            same = (np.float32(has[0]), has[1]) == (np.float32(expected[0]), expected[1])
        if not same:
            message = f"scale {has[0]} and zero point {has[1]} of {argument.name} must be "
            self.add(location, f"{message}{expected[0]} and {expected[1]}, {what}", index, "R110")

    def _bias(self) -> None:
        """A quantized bias has scale input * filter (or 0 with per-channel scales)."""
        weights = self._given("filter") or self._given("weights")
        bias, x = self._given("bias"), self._given("input")
        if "B" not in self.binding.types or bias is None or weights is None or x is None:
            return
        if bias.type is not OperandType.TENSOR_INT32:
            return
        expected = 0.0 if weights.channel_quant is not None else x.scale * weights.scale
        if not math.isclose(bias.scale, expected, rel_tol=_BIAS_TOLERANCE, abs_tol=1e-30):
            index = self.binding.inputs["bias"]
            assert isinstance(index, int)
            message = (
                f"the scale of the bias must be {expected:.9g}, the product of input and filter "
                f"scales, got {bias.scale}"
            )
            location = f"inputs[{self.operation.inputs.index(index)}]"
            self.add(location, message, index, "R110")

    def _product(self) -> None:
        """The scale of a quantized product is larger than the product of the scales.

        AOSP multiplies float32 by float32.
        """
        if self.binding.spec.name != "MUL":
            return
        a, b, y = self._given("a"), self._given("b"), self._given("output", "outputs")
        if a is None or b is None or y is None or y.type not in _ASYMMETRIC:
            return
        if not np.float32(y.scale) > np.float32(a.scale) * np.float32(b.scale):
            message = f"the scale {y.scale} of the product must be above {a.scale} * {b.scale}"
            self.add("outputs[0]", message, self.operation.outputs[0], "R110")

    def _cells(self) -> None:
        """Check which optional operands of LSTM cells must be given together."""
        inputs = self.binding.inputs
        for prefix in ("", "fw_", "bw_"):
            if f"{prefix}cell_to_forget_weights" not in inputs:
                continue

            def given(name: str, prefix: str = prefix) -> bool:
                index = inputs.get(prefix + name)
                return isinstance(index, int) and self.lifetimes[index] is not Lifetime.NO_VALUE

            for names in _TOGETHER:
                if len({given(n) for n in names}) > 1:
                    message = f"{prefix}{', '.join(names)} must be given together"
                    self.add("", message)
            own_gate, peepholes = given("input_gate_bias"), given("cell_to_forget_weights")
            if own_gate and given("cell_to_input_weights") != peepholes:
                message = "cell_to_input_weights must be given together with the other peepholes"
                self.add("", prefix + message)
            if given("projection_bias") and not given("projection_weights"):
                self.add("", f"{prefix}projection_bias needs projection_weights")

    def _subgraphs(self) -> None:
        """The operands of IF and WHILE against the inputs and outputs of their subgraphs."""
        inputs, outputs = self.binding.inputs["inputs"], self.binding.outputs["outputs"]
        assert isinstance(inputs, list) and isinstance(outputs, list)
        is_if = self.binding.spec.name == "IF"
        for role in ("then", "else") if is_if else ("condition", "body"):
            reference = self._given(role)
            number = None if reference is None else reference.subgraph
            if number is None or number >= len(self.table.referenced):
                continue
            child = self.table.referenced[number]
            if role == "condition":
                self._condition(child, number)
            self._interface(inputs, child, child.inputs, f"inputs of the {role} subgraph")
            # a body may keep local state: it has at least as many outputs as the loop
            results = child.outputs[: len(outputs)] if role == "body" else child.outputs
            if role != "condition":
                self._interface(outputs, child, results, f"outputs of the {role} subgraph")

    def _condition(self, child: Subgraph, number: int) -> None:
        kinds = [child.operands[i].type for i in child.outputs if i < len(child.operands)]
        if kinds != [OperandType.TENSOR_BOOL8]:
            message = f"subgraph {number}, the condition, must have one output of TENSOR_BOOL8"
            self.add("inputs[0]", message)

    def _interface(self, mine: list[int], child: Subgraph, theirs: list[int], what: str) -> None:
        if len(mine) != len(theirs):
            self.add("", f"{len(mine)} operands are given for {len(theirs)} {what}")
            return
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if b >= len(child.operands):
                continue
            x, y = self.operands[a], child.operands[b]
            same = (x.type, x.scale, x.zero_point) == (y.type, y.scale, y.zero_point)
            if not same or not fits(x.shape, y.shape):
                message = (
                    f"operand {a} ({x.type.name} {x.dimensions}) does not match number {k} of "
                )
                self.add("", f"{message}the {what} ({y.type.name} {y.dimensions})", a)
