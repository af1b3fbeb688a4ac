"""Checks of a single operand: dimensions, value, quantization, location."""

from __future__ import annotations

import math

import numpy as np

from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.table import Lifetime, Location, Operand, OperandType, Subgraph, Table

# Zero points that each quantized type allows; all of them want a positive scale.
_ZERO_POINTS = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    OperandType.TENSOR_QUANT8_SYMM: (0, 0),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 65535),
    OperandType.TENSOR_QUANT16_SYMM: (0, 0),
}


def check_operands(
    table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings
) -> None:
    """Check dimensions, quantization, value and boundary of each operand; findings are added to
    `found`.
    """
    for i, (operand, lifetime) in enumerate(zip(subgraph.operands, lifetimes, strict=True)):
        check = _Check(operand, lifetime, i, found)
        check.dimensions()
        check.quantization()
        check.channels()
        check.value(len(table.referenced))
        check.boundary()


class _Check:
    """The checks of one operand; errors of its value are R110, errors of its use in the table
    R105.
    """

    def __init__(self, operand: Operand, lifetime: Lifetime, index: int, found: Findings) -> None:
        self.operand, self.lifetime, self.index, self.found = operand, lifetime, index, found
        self.kind = operand.type.name

    def add(self, field: str, message: str, code: str = "R110", ours: bool = False) -> None:
        place = f"operands[{self.index}]" + (f".{field}" if field else "")
        self.found.add(place, message, self.index, code=code, ours=ours)

    def dimensions(self) -> None:
        operand = self.operand
        if not operand.type.is_tensor:
            if operand.dimensions and not operand.type.is_oem:
                self.add("dimensions", f"{self.kind} is a scalar and has no dimensions")
        elif self.lifetime.is_constant and not operand.dimensions:
            self.add("dimensions", "a constant tensor must have at least one dimension")
        if any(not 0 <= n < 2**32 for n in operand.dimensions):
            self.add("dimensions", f"{operand.dimensions} must be unsigned 32-bit integers")

    def quantization(self) -> None:
        if self.operand.type.is_oem:
            return
        given, zero = self.operand.scale, self.operand.zero_point
        scale = float(np.float32(given))
        if self.operand.type in _ZERO_POINTS:
            low, high = _ZERO_POINTS[self.operand.type]
            if not (math.isfinite(scale) and scale > 0):
                self.add("scale", f"the scale of {self.kind} must be positive, got {given}")
            if not low <= zero <= high:
                message = f"the zero point of {self.kind} must be within {low}..{high}, got {zero}"
                self.add("zeroPoint", message)
            return
        if self.operand.type is OperandType.TENSOR_INT32:
            if not (math.isfinite(scale) and scale >= 0):
                message = f"the scale of {self.kind} must not be negative, got {given}"
                self.add("scale", message)
        elif scale != 0:
            self.add("scale", f"{self.kind} must have scale 0, got {given}")
        if zero != 0:
            self.add("zeroPoint", f"{self.kind} must have zero point 0, got {zero}")

    def channels(self) -> None:
        quant, dims = self.operand.channel_quant, self.operand.dimensions
        per_channel = self.operand.type is OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
        if quant is None:
            if per_channel:
                self.add("extraParams", f"{self.kind} needs per-channel scales")
            return
        if not per_channel:
            self.add("extraParams", f"{self.kind} must not have per-channel scales")
        elif quant.dim >= len(dims):
            message = f"dimension {quant.dim} is outside the rank {len(dims)}"
            self.add("extraParams.channelDim", message)
        elif len(quant.scales) != dims[quant.dim]:
            message = f"a dimension of {dims[quant.dim]} has {len(quant.scales)} scales"
            self.add("extraParams.scales", message)
        scales = np.asarray(quant.scales, np.float32)
        if not (np.isfinite(scales) & (scales > 0)).all():
            self.add("extraParams.scales", "a scale is not positive")

    def value(self, graphs: int) -> None:
        """Check the value of an operand; `graphs` is the number of subgraphs that it may
        refer to.
        """
        operand, lifetime = self.operand, self.lifetime
        location = operand.location or Location()
        if (operand.type is OperandType.SUBGRAPH) != (lifetime is Lifetime.SUBGRAPH):
            self.add("lifetime", f"{self.kind} cannot have the lifetime {lifetime.name}")
        if lifetime is Lifetime.SUBGRAPH:
            if operand.subgraph is None or operand.subgraph >= graphs:
                message = f"subgraph {operand.subgraph} does not exist, there are {graphs}"
                self.add("location.offset", message, "R105")
        elif not lifetime.is_constant:
            if location != Location():
                self.add(
                    "location",
                    f"{lifetime.name} must have no location, so its fields must be 0",
                    "R105",
                )
            elif operand.value is not None:
                self.add("", f"{lifetime.name} must not have a value", "R105")
        else:
            if operand.value is None:
                self.add("", f"{lifetime.name} must have a value", "R105")
            elif operand.nbytes not in (None, operand.value.nbytes):
                has, needed = operand.value.nbytes, operand.nbytes
                self.add("", f"the value has {has} bytes, {needed} are needed", "R105")
            if lifetime is Lifetime.CONSTANT_COPY and location.pool:
                message = f"pool is {location.pool}, but CONSTANT_COPY must not have a pool"
                self.add("location.poolIndex", message, "R105")

    def boundary(self) -> None:
        ends = (Lifetime.MODEL_INPUT, Lifetime.MODEL_OUTPUT)
        if self.operand.boundary is not None and self.lifetime not in ends:
            self.add(
                "boundary", "only inputs and outputs of the model may have a boundary", ours=True
            )
