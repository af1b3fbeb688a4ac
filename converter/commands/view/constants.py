"""Constants of a drawing. Operators on constants alone, such as a Cast of half-precision weights or
a DequantizeLinear of stored integers, belong to the layer that uses their result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from converter.commands.costs import describe
from converter.commands.verify.cause import input_label, kind
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant
from converter.graph.value import optional

_SHOWN = 4  # numbers that are written out


def stored(value: ir.Value) -> ir.Value:
    """Return the largest constant of the file from which a computed one follows."""
    node = value.producer()
    if node is None:
        return value
    found = [stored(v) for v in node.inputs if v is not None]
    return max(found, key=lambda v: 0 if v.const_value is None else v.const_value.size)


def steps(value: ir.Value) -> Iterator[str]:
    """Yield the steps by which a constant is computed from the stored one."""
    node = value.producer()
    if node is None:
        return
    of, *others = sorted(
        (i for i, v in enumerate(node.inputs) if v is not None),
        key=lambda i: stored(node.inputs[i]) is not stored(value),  # type: ignore[arg-type]
    )
    yield from steps(node.inputs[of])  # type: ignore[arg-type]
    with_ = [f"{input_label(node, i)} {numbers(constant(node.inputs[i]))}" for i in sorted(others)]
    with_ += [f"{k} {v}" for k, v in sorted(attrs_of(node).items()) if isinstance(v, int)]
    yield (
        f"Cast to {describe(value)}" if node.op_type == "Cast" else ", ".join([kind(node), *with_])
    )


def numbers(array: Array | None) -> str:
    """Describe a few numbers: all of them, or their count and range."""
    if array is None:
        return "computed"
    flat = np.asarray(array).ravel()
    if flat.dtype.kind in "OUS":
        return " ".join(map(str, flat[:_SHOWN].tolist()))
    if flat.size <= _SHOWN:
        return " ".join(f"{v:.5g}" for v in flat.astype(np.float64))
    low, high = (float(f(flat)) for f in (np.min, np.max))
    return f"{flat.size} numbers, {low:.5g} to {high:.5g}"


def scale_of(value: ir.Value) -> str:
    """Return scale and zero point of quantized numbers; "" if they have none."""
    producer = value.producer()
    users = [u.node for u in itertools.islice(value.uses(), 4)]
    made = [producer] if producer is not None and producer.op_type == "QuantizeLinear" else []
    for node in [*made, *(u for u in users if u.op_type == "DequantizeLinear")]:
        if (scale := constant(optional(node, 1))) is None:
            continue
        zero = constant(optional(node, 2))
        text = f"scale {numbers(scale)}"
        return text if zero is None or not np.any(zero) else f"{text}, zero point {numbers(zero)}"
    return ""
