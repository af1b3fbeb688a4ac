"""Explain why a piece differs: the attributes, weights, operands and operators that are not the
same in the reference and the candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.commands.verify.align import LAYER
from converter.commands.verify.compare import distance, transposed, wide
from converter.commands.verify.compressed import computed, is_computed, same_form
from converter.commands.verify.spelling import added_bias, attributes, constants
from converter.graph.build import AT
from converter.graph.infer import Array, constant, schema_of
from converter.graph.value import optional

SHOWN = 4
PART = 1 << 20  # numbers that are compared at once


# kinds of causes, the most informative first: different constants, different operands, different
# attributes, a different decomposition
CONSTANT, OPERAND, ATTRIBUTE, FORM = range(4)
# relative; constants that differ by less differ only by rounding to float
ROUNDED = 2.0**-21


@dataclass(frozen=True)
class Cause:
    """One difference, attributed to a node of the reference (None: the node exists only in the
    candidate). `rank` is its kind.
    """

    node: ir.Node | None
    text: str
    rank: int = FORM


def causes(
    mine: Sequence[ir.Node], theirs: Sequence[ir.Node], back: Mapping[str, str], step: float = 0.0
) -> list[Cause]:
    """Return all differences between two pieces that should compute the same, the most informative
    first, then in the order of the reference.

    `back` maps names of the candidate's aligned tensors to those of the reference; `step` is the
    relative rounding that weights may have.
    """
    pairs, extra = _pair(mine, theirs)
    names = dict(back)
    for n, m in pairs:
        names.update((str(b.name), str(a.name)) for a, b in zip(n.outputs, m.outputs, strict=False))
    past = _past(set(mine) - {n for n, _ in pairs})
    found = [c for n, m in pairs for c in differences(n, m, names, step, past)]
    place = {n: i for i, n in enumerate(mine)}
    return sorted(
        [*found, *extra],
        key=lambda c: (c.rank, place[c.node] if c.node is not None else len(place)),
    )


def _past(missing: set[ir.Node]) -> dict[str, set[str]]:
    """Map each output of a missing layer to the tensors before that layer: a consumer that reads
    one of them instead does so because the layer is missing.
    """
    found: dict[str, set[str]] = {}
    for n in missing:
        pending, before = [n], set[str]()
        while pending:
            for v in pending.pop().inputs:
                producer = v.producer() if v is not None else None
                if v is not None and str(v.name) not in before:
                    before.add(str(v.name))
                    pending.extend([producer] if producer in missing and producer else [])
        found.update((str(o.name), before) for o in n.outputs)
    return found


def differences(
    n: ir.Node,
    m: ir.Node,
    names: Mapping[str, str],
    step: float = 0.0,
    past: Mapping[str, set[str]] | None = None,
) -> Iterator[Cause]:
    """Yield the differences of two nodes of one operator. An omitted attribute or operand equals an
    explicit one of the same meaning.
    """
    yield from (Cause(n, t, CONSTANT) for t in _constant_operands(n, m, max(step, ROUNDED)))
    yield from (Cause(n, t, OPERAND) for t in _operands(n, m, names, past or {}))
    yield from (Cause(n, t, ATTRIBUTE) for t in _attributes(n, m))


def _pair(
    mine: Sequence[ir.Node], theirs: Sequence[ir.Node]
) -> tuple[list[tuple[ir.Node, ir.Node]], list[Cause]]:
    """Match nodes in order by operator; unmatched nodes are causes themselves."""
    pairs: list[tuple[ir.Node, ir.Node]] = []
    extra: list[Cause] = []
    matcher = SequenceMatcher(None, [*map(_part, mine)], [*map(_part, theirs)], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            pairs.extend(zip(mine[i:j], theirs[k:m], strict=True))
        elif mine[i:j]:
            extra.append(Cause(mine[i], _form(mine[i:j], theirs[k:m])))
        else:
            at = mine[min(i, len(mine) - 1)] if mine else None
            extra.append(Cause(at, f"{_kinds(theirs[k:m])} exists in the candidate only"))
    return pairs, extra


def _part(node: ir.Node) -> str:
    """Return the kind of a node for matching: adding a bias is distinguished from other sums."""
    made = [v.producer() for v in node.inputs if v is not None] if node.op_type == "Add" else []
    bias = any(m is not None and added_bias(m) is not None for m in made)
    return "bias" if bias else kind(node)


def paired(mine: Sequence[ir.Node], theirs: Sequence[ir.Node]) -> list[tuple[ir.Node, ir.Node]]:
    """Return the pairs of nodes with the same operator, in order, in two pieces."""
    return _pair(mine, theirs)[0]


def _form(mine: Sequence[ir.Node], theirs: Sequence[ir.Node]) -> str:
    if theirs:
        return f"{_kinds(mine)} became {_kinds(theirs)}"
    return f"{_kinds(mine)} {'is' if len(mine) == 1 else 'are'} missing in the candidate"


def _kinds(nodes: Sequence[ir.Node]) -> str:
    return ", ".join(kind(n) for n in nodes[:SHOWN]) + (
        f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    )


def kind(node: ir.Node) -> str:
    """Return the operator of a node, with its domain unless it is ONNX's or netconv's."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "netconv") else node.op_type


def layer_of(node: ir.Node) -> str:
    """Return the name by which a user knows this node: its layer in the source file, else the
    node's own name or that of its result.
    """
    names = [node.metadata_props.get(LAYER), node.name, *(o.name for o in node.outputs)]
    invented = re.compile(
        rf"node_{re.escape(node.op_type)}_\d+"
    )  # generated by onnx_ir for an unnamed node
    return next((n for n in names if n and not invented.fullmatch(n)), "")


def location_of(node: ir.Node) -> str:
    """Return the location of a node in the source file: a line, or a path inside of it."""
    return node.metadata_props.get(AT) or node.metadata_props.get("netconv.where", "")


def _attributes(n: ir.Node, m: ir.Node) -> list[str]:
    a, b = attributes(n), attributes(m)
    return [
        f"{k}  {became(a.get(k), b.get(k))}"
        for k in sorted({*a, *b})
        if not _same(a.get(k), b.get(k))
    ]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and np.array_equal(a, b)
    if isinstance(a, ir.Graph) and isinstance(b, ir.Graph):
        return [kind(x) for x in a] == [kind(x) for x in b]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.float32(a) == np.float32(b))
    return bool(a == b)


def became(a: Any, b: Any) -> str:
    """Format both values, with as few digits as distinguish them."""
    digits = next((d for d in (7, 9, 17) if show(a, d) != show(b, d)), 17)
    return f"{show(a, digits)} became {show(b, digits)}"


def show(value: Any, digits: int = 9) -> str:
    """Return an attribute's value as a short text; graphs and arrays only by their sizes."""
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


def _operands(
    n: ir.Node, m: ir.Node, names: Mapping[str, str], past: Mapping[str, set[str]]
) -> list[str]:
    """Describe operands that come from different producers."""
    found: list[str] = []
    flow_a = [str(v.name) for v in n.inputs if v is not None and _flows(v)]
    flow_b = [names.get(str(v.name), str(v.name)) for v in m.inputs if v is not None and _flows(v)]
    if flow_a != flow_b and sorted(flow_a) == sorted(flow_b):
        found.append(f"operands ({', '.join(flow_a)}) became ({', '.join(flow_b)})")
    elif flow_a != flow_b and len(flow_a) == len(flow_b):
        found.extend(
            f"reads {b} instead of {a}"
            for a, b in zip(flow_a, flow_b, strict=True)
            if a != b and b in names.values() and b not in past.get(a, ())
        )
    return found


def _flows(value: ir.Value) -> bool:
    """Return whether a value depends on the inputs of the network."""
    return constant(value) is None and not is_computed(value)


def _decompressed(n: ir.Node, m: ir.Node, mine: dict[int, Array], theirs: dict[int, Array]) -> None:
    """Add the operands that either side computes from constants, unless both compute them in the
    same way.
    """
    for i in range(min(len(n.inputs), len(m.inputs))):
        a, b = n.inputs[i], m.inputs[i]
        sides = [(v, found) for v, found in ((a, mine), (b, theirs)) if is_computed(v)]
        if not sides or (len(sides) == 2 and same_form(a, b)):
            continue
        for value, found in sides:
            array = computed(value) if value is not None else None
            if array is not None:
                found[i] = array


def _constant_operands(n: ir.Node, m: ir.Node, step: float) -> Iterator[str]:
    mine, theirs = constants(n), constants(m)
    _decompressed(n, m, mine, theirs)
    if (optional(n, 2) is None) != (optional(m, 2) is None):
        for found, node in ((mine, n), (theirs, m)):
            if (bias := added_bias(node)) is not None:
                found[2] = bias
    for i in sorted({*mine, *theirs}):
        x, y, label = mine.get(i), theirs.get(i), named_input(n, i)
        if x is not None and y is not None:
            yield from (f"{label}  {t}" for t in weights(*_alike(x, y), step))
        elif (optional(n, i) is None) != (optional(m, i) is None):
            yield f"{label} is {'absent' if y is None else 'given'} in the candidate only"
        else:
            yield f"{label} is constant in one model only"


def _alike(x: Array, y: Array) -> tuple[Array, Array]:
    """Broadcast a scalar operand of one side to the shape of the other side's operand."""
    if x.size == 1 < y.size and not x.ndim:
        return np.broadcast_to(x, y.shape), y
    if y.size == 1 < x.size and not y.ndim:
        return x, np.broadcast_to(y, x.shape)
    return x, y


def rewritten(n: ir.Node, m: ir.Node) -> bool:
    """Return whether the weights are entirely different, as after folding a neighboring layer into
    them: more of them, or most values changed.
    """
    apart = added_bias(n) is not None or added_bias(m) is not None
    return (len(n.inputs) != len(m.inputs) and not apart) or any(
        2 * sum(int((x != y).sum()) for x, y in _parts(a, b)) > a.size > 1
        for a, b in _constants(n, m)
    )


def _constants(n: ir.Node, m: ir.Node) -> Iterator[tuple[Array, Array]]:
    for a, b in zip(n.inputs, m.inputs, strict=False):
        if (
            a is not b
            and (x := constant(a)) is not None
            and (y := constant(b)) is not None
            and x.shape == y.shape
            and x.dtype.kind in "fiub"
        ):
            yield x, y


def _parts(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two arrays of the same size in pieces, flattened, so that large weights are never
    duplicated.
    """
    x, y = a.reshape(-1), b.reshape(-1)
    for start in range(0, x.size, PART):
        yield x[start : start + PART], y[start : start + PART]


def identical(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape hold the same numbers."""
    return a is b or all(
        np.array_equal(x, y, equal_nan=x.dtype.kind == "f" == y.dtype.kind) for x, y in _parts(a, b)
    )


def named_input(node: ir.Node, index: int) -> str:
    """Return the name of an input in the schema and in the model."""
    formal = input_label(node, index)
    value = optional(node, index)
    return f"{formal} ({value.name})" if value is not None and value.name else formal


def input_label(node: ir.Node, index: int) -> str:
    """Return the name of an input in the operator's schema."""
    schema = schema_of(node.op_type) if not node.domain else None
    return (
        schema.inputs[min(index, len(schema.inputs) - 1)].name
        if schema is not None and schema.inputs
        else f"operand {index}"
    )


def weights(a: Array, b: Array, step: float = 0.0) -> list[str]:
    """Describe the difference of two constants in one sentence; empty if there is none (beyond
    `step`, relative).
    """
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        return [] if a.shape == b.shape and (a == b).all() else ["strings differ"]
    if a.shape != b.shape:
        if a.size == b.size and np.array_equal(a.reshape(-1), b.reshape(-1)):
            return (
                []
                if [d for d in a.shape if d != 1] == [d for d in b.shape if d != 1]
                else [f"shape {list(a.shape)} became {list(b.shape)}"]
            )
        return [f"shape {list(a.shape)} became {list(b.shape)}{_permuted(a, b)}"]
    count, worst = _differing(a, b, step)
    if not count:
        return []
    if permuted := _permuted(a, b):
        return [f"{list(a.shape)}{permuted}"]
    at = np.unravel_index(worst, a.shape)
    place = f"[{','.join(str(int(i)) for i in at)}]" if a.ndim else ""
    here = f"{place} {became(a[at].item(), b[at].item())}".strip()
    return [
        here if count == 1 else f"{count} of {a.size} values differ{_scaled(a, b)}, most at {here}"
    ]


def _permuted(a: Array, b: Array) -> str:
    order = transposed(a, b, lambda x: np.array_equal(x, b))
    return "" if order is None else f" (transposed: axes {list(order)})"


def _differing(a: Array, b: Array, step: float) -> tuple[int, int]:
    """Return the number of elements that differ by more than `step`, relative, and the flat index
    of the largest difference.
    """
    count, largest, worst = 0, -1.0, 0
    for k, (part, other) in enumerate(_parts(a, b)):
        delta = distance(part, other)
        with np.errstate(all="ignore"):
            count += int((delta > step * np.abs(wide(part))).sum())
        at = int(np.argmax(delta)) if delta.size else 0
        if delta.size and delta[at] > largest:
            largest, worst = float(delta[at]), k * PART + at
    return count, worst


def _scaled(a: Array, b: Array) -> str:
    """Describe a common factor of all numbers, if the first ones have one."""
    x, y = (v.reshape(-1)[:PART].astype(np.float64) for v in (a, b))
    used = x != 0
    if used.sum() < 2 or (y[~used] != 0).any():
        return ""
    ratio = y[used] / x[used]
    if not np.allclose(ratio, ratio[0], 1e-5, 0):
        return ""
    return f" (all times {ratio[0]:.6g})" if ratio[0] else " (all became 0)"
