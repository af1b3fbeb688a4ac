"""Why a piece differs: the attributes, weights, operands and operators that are not the same in its
two forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.commands.verify.align import LAYER
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, schema_of
from converter.graph.value import optional

SHOWN = 4


@dataclass(frozen=True)
class Cause:
    """One difference, told at a node of the reference (None: the node exists only in the
    candidate).
    """

    node: ir.Node | None
    text: str


def causes(
    mine: Sequence[ir.Node], theirs: Sequence[ir.Node], back: Mapping[str, str], step: float = 0.0
) -> list[Cause]:
    """Everything that differs between two pieces that should compute the same.

    `back` names the candidate's aligned tensors as the reference does; `step` is the relative
    rounding that weights may have.
    """
    pairs, extra = _pair(mine, theirs)
    names = dict(back)
    for n, m in pairs:
        names.update((str(b.name), str(a.name)) for a, b in zip(n.outputs, m.outputs, strict=False))
    found = [
        Cause(n, t) for n, m in pairs for t in [*_attributes(n, m), *_operands(n, m, names, step)]
    ]
    return sorted(
        [*found, *extra], key=lambda c: mine.index(c.node) if c.node is not None else len(mine)
    )


def _pair(
    mine: Sequence[ir.Node], theirs: Sequence[ir.Node]
) -> tuple[list[tuple[ir.Node, ir.Node]], list[Cause]]:
    """Nodes in order, matched by operator; what is left over is a cause by itself."""
    pairs: list[tuple[ir.Node, ir.Node]] = []
    extra: list[Cause] = []
    matcher = SequenceMatcher(
        None, [kind(n) for n in mine], [kind(n) for n in theirs], autojunk=False
    )
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            pairs.extend(zip(mine[i:j], theirs[k:m], strict=True))
        elif tag == "replace" and j - i == m - k:
            extra.extend(
                Cause(n, f"{kind(n)} became {kind(o)}")
                for n, o in zip(mine[i:j], theirs[k:m], strict=True)
            )
        else:
            extra.extend(Cause(n, f"{kind(n)} is missing in the candidate") for n in mine[i:j])
            at = mine[min(i, len(mine) - 1)] if mine else None
            extra.extend(Cause(at, f"{kind(o)} exists only in the candidate") for o in theirs[k:m])
    return pairs, extra


def kind(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "netconv") else node.op_type


def layer_of(node: ir.Node) -> str:
    """The name under which a person knows this node: its layer in the source file, else its own or
    its result's.
    """
    names = [node.metadata_props.get(LAYER), node.name, *(o.name for o in node.outputs)]
    invented = re.compile(
        rf"node_{re.escape(node.op_type)}_\d+"
    )  # onnx_ir's own, for a node that had no name
    return next((n for n in names if n and not invented.fullmatch(n)), "")


def _attributes(n: ir.Node, m: ir.Node) -> list[str]:
    a, b = ({**_defaults(x), **attrs_of(x)} for x in (n, m))
    return [
        f"{k}  {became(a.get(k), b.get(k))}"
        for k in sorted({*a, *b})
        if not _same(a.get(k), b.get(k))
    ]


def _defaults(node: ir.Node) -> dict[str, Any]:
    schema = schema_of(node.op_type) if not node.domain else None
    if schema is None:
        return {}
    return {
        k: ir.serde.deserialize_attribute(a.default_value).value
        for k, a in schema.attributes.items()
        if a.default_value.type
    }


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.shape == b.shape
            and bool(np.array_equal(a, b))
        )
    if isinstance(a, ir.Graph) and isinstance(b, ir.Graph):
        return [kind(x) for x in a] == [kind(x) for x in b]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def became(a: Any, b: Any) -> str:
    """Both values, with as few digits as tell them apart."""
    digits = next((d for d in (7, 9, 17) if show(a, d) != show(b, d)), 17)
    return f"{show(a, digits)} became {show(b, digits)}"


def show(value: Any, digits: int = 9) -> str:
    if isinstance(value, ir.Graph):
        return f"a graph of {len(value)} nodes"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(show(v, digits) for v in value) + "]"
    return (
        f"an array {list(value.shape)}"
        if isinstance(value, np.ndarray)
        else "absent"
        if value is None
        else str(value)
    )


def _operands(n: ir.Node, m: ir.Node, names: Mapping[str, str], step: float) -> list[str]:
    found: list[str] = []
    mine, theirs = [*n.inputs], [*m.inputs]
    flow_a = [str(v.name) for v in mine if v is not None and constant(v) is None]
    flow_b = [
        names.get(str(v.name), str(v.name)) for v in theirs if v is not None and constant(v) is None
    ]
    if flow_a != flow_b and sorted(flow_a) == sorted(flow_b):
        found.append(f"operands ({', '.join(flow_a)}) became ({', '.join(flow_b)})")
    elif flow_a != flow_b and len(flow_a) == len(flow_b):
        found.extend(
            f"reads {b} instead of {a}"
            for a, b in zip(flow_a, flow_b, strict=True)
            if a != b and b in names.values()
        )
    for i in range(max(len(mine), len(theirs))):
        a, b = (v[i] if i < len(v) else None for v in (mine, theirs))
        label = _label(n, i)
        if (a is None) != (b is None):
            found.append(f"{label} is {'absent' if b is None else 'given'} in the candidate only")
            continue
        x, y = constant(a), constant(b)
        if x is not None and y is not None:
            found.extend(f"{label}  {t}" for t in weights(x, y, step))
        elif (x is None) != (y is None) and a is not None:
            found.append(f"{label} is constant on one side only")
    return found


def other_weights(n: ir.Node, m: ir.Node, step: float) -> bool:
    """Whether a constant operand has the same shape and other values (beyond `step`, relative)."""
    return any(bool((np.abs(x - y) > step * np.abs(x)).any()) for x, y in _constants(n, m))


def rewritten(n: ir.Node, m: ir.Node) -> bool:
    """Whether the weights look like others altogether, as after folding a neighbour in: more of
    them, or most values changed.
    """
    return len(n.inputs) != len(m.inputs) or any(
        2 * int((x != y).sum()) > x.size > 1 for x, y in _constants(n, m)
    )


def _constants(
    n: ir.Node, m: ir.Node
) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    for a, b in zip(n.inputs, m.inputs, strict=False):
        if (
            a is not b
            and (x := constant(a)) is not None
            and (y := constant(b)) is not None
            and x.shape == y.shape
            and x.dtype.kind in "fiub"
        ):
            with np.errstate(all="ignore"):
                yield np.nan_to_num(x.astype(np.float64)), np.nan_to_num(y.astype(np.float64))


def _label(node: ir.Node, index: int) -> str:
    formal = input_label(node, index)
    value = optional(node, index)
    return f"{formal} ({value.name})" if value is not None and value.name else formal


def input_label(node: ir.Node, index: int) -> str:
    """What the operator's schema calls an input."""
    schema = schema_of(node.op_type) if not node.domain else None
    return (
        schema.inputs[min(index, len(schema.inputs) - 1)].name
        if schema is not None and schema.inputs
        else f"operand {index}"
    )


def weights(a: Array, b: Array, step: float = 0.0) -> list[str]:
    """How two constants differ, in one sentence; empty when they do not (beyond `step`,
    relative).
    """
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        return [] if a.shape == b.shape and (a == b).all() else ["other texts"]
    if a.shape != b.shape:
        if a.size == b.size and np.array_equal(a.reshape(-1), b.reshape(-1)):
            return (
                []
                if [d for d in a.shape if d != 1] == [d for d in b.shape if d != 1]
                else [f"shape {list(a.shape)} became {list(b.shape)}"]
            )
        return [f"shape {list(a.shape)} became {list(b.shape)}{_permuted(a, b)}"]
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        delta = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        delta = np.where(np.isnan(delta), np.inf, delta)
        differs = delta > step * np.abs(x)
    count = int(differs.sum())
    if not count:
        return []
    if permuted := _permuted(a, b):
        return [f"{list(a.shape)}{permuted}"]
    at = np.unravel_index(int(np.argmax(delta)), a.shape)
    place = f"[{','.join(str(int(i)) for i in at)}]" if a.ndim else ""
    here = f"{place} {became(a[at].item(), b[at].item())}".strip()
    return [
        here if count == 1 else f"{count} of {a.size} values differ{_scaled(x, y)}, most at {here}"
    ]


def _permuted(a: Array, b: Array) -> str:
    if 2 <= a.ndim == b.ndim <= 5 and a.size == b.size:
        for p in permutations(range(a.ndim)):
            if (
                p != tuple(range(a.ndim))
                and tuple(a.shape[i] for i in p) == b.shape
                and np.array_equal(a.transpose(p), b)
            ):
                return f" (transposed: axes {list(p)})"
    return ""


def _scaled(x: Array, y: Array) -> str:
    used = x != 0
    if used.sum() < 2 or (y[~used] != 0).any():
        return ""
    ratio = y[used] / x[used]
    return f" (all times {ratio[0]:.6g})" if np.allclose(ratio, ratio[0], 1e-5, 0) else ""
