"""What `validate` says about one operand by itself: dimensions, value, scale and zero point, per-channel scales, location."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from converter.formats.nnapi.table import Lifetime, Location, Operand, OperandType, Subgraph, Table

if TYPE_CHECKING:
    from converter.formats.nnapi.validate import Findings

# Zero points that each quantised type allows; all of them want a positive scale.
_ZERO_POINTS = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    OperandType.TENSOR_QUANT8_SYMM: (0, 0),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 65535),
    OperandType.TENSOR_QUANT16_SYMM: (0, 0),
}


def check_operands(table: Table, subgraph: Subgraph, lifetimes: list[Lifetime], found: Findings) -> None:
    for i, (operand, lifetime) in enumerate(zip(subgraph.operands, lifetimes, strict=True)):
        place = f"operands[{i}]"
        _check_dimensions(operand, lifetime, place, found)
        _check_quantisation(operand, place, found)
        _check_channels(operand, place, found)
        _check_value(table, operand, lifetime, place, found)
        if operand.boundary is not None and lifetime not in (Lifetime.MODEL_INPUT, Lifetime.MODEL_OUTPUT):
            found.add(f"{place}.boundary", "only inputs and outputs of the model have a boundary", "R110", name=operand.name, ours=True)


def _check_dimensions(operand: Operand, lifetime: Lifetime, place: str, found: Findings) -> None:
    if not operand.type.is_tensor:
        if operand.dimensions and not operand.type.is_oem:
            found.add(f"{place}.dimensions", f"{operand.type.name} is a scalar and has no dimensions", "R110", name=operand.name)
    elif lifetime.is_constant and not operand.dimensions:
        found.add(f"{place}.dimensions", "a constant tensor has at least one dimension", "R110", name=operand.name)
    if any(not 0 <= n < 2**32 for n in operand.dimensions):
        found.add(f"{place}.dimensions", f"{operand.dimensions} are not unsigned 32-bit numbers", "R110", name=operand.name)


def _check_quantisation(operand: Operand, place: str, found: Findings) -> None:
    if operand.type.is_oem:
        return
    scale, zero, name = float(np.float32(operand.scale)), operand.zero_point, operand.type.name
    if operand.type in _ZERO_POINTS:
        low, high = _ZERO_POINTS[operand.type]
        if not (math.isfinite(scale) and scale > 0):
            found.add(f"{place}.scale", f"{name} needs a positive scale, not {operand.scale}", "R110", name=operand.name)
        if not low <= zero <= high:
            found.add(f"{place}.zeroPoint", f"the zero point of {name} is within {low}..{high}, not {zero}", "R110", name=operand.name)
        return
    if operand.type is OperandType.TENSOR_INT32:
        if not (math.isfinite(scale) and scale >= 0):
            found.add(f"{place}.scale", f"the scale of {name} is not negative, {operand.scale} is not allowed", "R110", name=operand.name)
    elif scale != 0:
        found.add(f"{place}.scale", f"{name} has no scale, {operand.scale} is not 0", "R110", name=operand.name)
    if zero != 0:
        found.add(f"{place}.zeroPoint", f"{name} has no zero point, {zero} is not 0", "R110", name=operand.name)


def _check_channels(operand: Operand, place: str, found: Findings) -> None:
    quant, per_channel = operand.channel_quant, operand.type is OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
    if quant is None:
        if per_channel:
            found.add(f"{place}.extraParams", f"{operand.type.name} needs per-channel scales", "R110", name=operand.name)
        return
    if not per_channel:
        found.add(f"{place}.extraParams", f"{operand.type.name} has no per-channel scales", "R110", name=operand.name)
    elif quant.dim >= len(operand.dimensions):
        found.add(f"{place}.extraParams.channelDim", f"{quant.dim} is outside the rank {len(operand.dimensions)}", "R110", name=operand.name)
    elif len(quant.scales) != operand.dimensions[quant.dim]:
        message = f"{len(quant.scales)} scales for a dimension of {operand.dimensions[quant.dim]}"
        found.add(f"{place}.extraParams.scales", message, "R110", name=operand.name)
    scales = np.asarray(quant.scales, np.float32)
    if not (np.isfinite(scales) & (scales > 0)).all():
        found.add(f"{place}.extraParams.scales", "a scale is not a positive number", "R110", name=operand.name)


def _check_value(table: Table, operand: Operand, lifetime: Lifetime, place: str, found: Findings) -> None:
    if (operand.type is OperandType.SUBGRAPH) != (lifetime is Lifetime.SUBGRAPH):
        found.add(f"{place}.lifetime", f"{operand.type.name} cannot have the lifetime {lifetime.name}", "R110", name=operand.name)
    if lifetime is Lifetime.SUBGRAPH:
        if operand.subgraph is None or operand.subgraph >= len(table.referenced):
            found.add(f"{place}.location.offset", f"subgraph {operand.subgraph} does not exist, there are {len(table.referenced)}", name=operand.name)
        return
    location = operand.location or Location()
    if lifetime.is_constant:
        if operand.value is None:
            found.add(place, f"{lifetime.name} without a value", name=operand.name)
        elif operand.nbytes is not None and operand.value.nbytes != operand.nbytes:
            found.add(place, f"the value has {operand.value.nbytes} bytes, {operand.nbytes} are needed", name=operand.name)
        if lifetime is Lifetime.CONSTANT_COPY and location.pool:
            found.add(f"{place}.location.poolIndex", f"{location.pool}, but CONSTANT_COPY has no pool", name=operand.name)
    elif location != Location():
        found.add(f"{place}.location", f"{lifetime.name} has no location, its fields are 0", name=operand.name)
    elif operand.value is not None:
        found.add(place, f"{lifetime.name} with a value", name=operand.name)
