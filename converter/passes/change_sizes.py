"""Change the sizes of inputs that a file fixes, and with them the constants that came from the old
sizes.

before:  main(x[1,3,8,8]) { y[1,192] = Reshape(x, [1, 192]) }
after:   main(x[5,3,8,8]) { y[5,192] = Reshape(x, [5, 192]) }

The shapes of all values are inferred twice, with the old sizes and with the new ones. A constant
that no longer fits is computed anew where the operators show the size that it follows: the target
of a Reshape from the order of elements (`regroup.py`), the end of a Slice that was the end of the
axis, sizes of a Resize that were a whole multiple, a constant that meets data of another size
(`stretch.py`). Where several values are possible, each is tried, and one is taken if the layers
after it contradict the others. Everything else is refused with its layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, UsageError, Where
from converter.graph import BROADCAST, EXTENSION_DOMAIN
from converter.graph.build import RecordingBuilder, attributes, attrs_of
from converter.graph.infer import Array, InferenceError, constant, known, shape_of
from converter.graph.names import Names, layer_name, public_name
from converter.graph.shapes import forget, infer_again
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute, window_of
from converter.graph.walk import all_nodes, subgraphs
from converter.graph.windows import transposed_pads
from converter.passes.dead_code import remove_dead_code
from converter.passes.regroup import Factors, Pair, regrouped
from converter.passes.stretch import Stretch

FEW = 3  # elements of an axis of which the first one may also be a half
MOST_TRIED = 24  # assignments of sizes of which several are possible
# operators whose results follow the sizes of their data, independently of their other operands
_FOLLOWING = frozenset(
    {
        *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "LpPool"),
        *("BatchNormalization", "Gemm", "MatMul", "InstanceNormalization", "LayerNormalization"),
        *("GroupNormalization", "LRN", "Transpose", "Unsqueeze", "Squeeze", "Flatten"),
        *("Cast", "Shape", "Size", "Identity", "Pad", "Clip", "CumSum", "Dropout"),
        *("QuantizeLinear", "DequantizeLinear", "DepthToSpace", "SpaceToDepth", "Concat"),
    }
)
_WHOLE_AXIS = (1 << 63) - 1


class Undecided(Exception):
    """Several sizes are possible for the layer."""

    def __init__(self, node: ir.Node, count: int) -> None:
        super().__init__(node, count)
        self.node, self.count = node, count


class Refused(Exception):
    """A constant cannot be computed anew; the message is the reason."""

    def __init__(self, node: ir.Node | None, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


Sizes = tuple[int, ...]


def change_sizes(
    model: ir.Model,
    old: Mapping[str, Sequence[int]],
    new: Mapping[str, Sequence[int]],
    by_declared: bool = False,
) -> list[Diagnostic]:
    """Change the shapes of inputs, by their public names, from `old` to `new`, in place; return a
    note that lists the layers whose constants were computed anew.

    `by_declared`: the graph was read with the old sizes, so that padding may depend on them.

    Raise UsageError U501 with the layer whose constant cannot be computed anew.
    """

    def attempt(graph: ir.Model, choices: tuple[int, ...]) -> _Walk:
        return _Walk(graph, old, new, by_declared, choices)

    tried = 0
    possible: list[tuple[int, ...]] = []
    queue: list[tuple[int, ...]] = [()]
    refusal: Refused | None = None
    undecided: ir.Node | None = None  # the first layer for which several sizes are possible
    while queue:
        choices = queue.pop(0)
        tried += 1
        try:
            attempt(model.clone(), choices).run()
            possible.append(choices)
        except Undecided as e:
            undecided = undecided or e.node
            if tried + len(queue) + e.count > MOST_TRIED:
                raise _error(e.node, _SEVERAL) from None
            queue += [(*choices, k) for k in range(e.count)]
        except Refused as e:
            refusal = refusal or e
        if len(possible) > 1:
            raise _error(undecided, _SEVERAL)
    if not possible:
        assert refusal is not None
        raise _error(refusal.node, refusal.reason)
    walk = attempt(model, possible[0])
    walk.run()
    return walk.notes()


_SEVERAL = (
    "the target shape is constant, and nothing in the network shows which of its sizes follow "
    "those of the inputs"
)


def _error(node: ir.Node | None, reason: str) -> UsageError:
    where = Where() if node is None else Where(layer=layer_name(node), kind=node.op_type)
    message = f"the network does not accept these shapes: {reason}"
    help = "export the network with the new size, or with a dynamic one"
    return UsageError(Diagnostic("U501", message, where=where, help=help))


@dataclass
class _Walk:
    """One attempt: `choices` are the options to take where several sizes are possible, in the order
    in which they come up.
    """

    model: ir.Model
    old_inputs: Mapping[str, Sequence[int]]
    new_inputs: Mapping[str, Sequence[int]]
    by_declared: bool
    choices: tuple[int, ...]
    old: dict[ir.Value, Sizes | None] = field(default_factory=dict)
    old_known: dict[ir.Value, Array] = field(default_factory=dict)
    factors: dict[tuple[ir.Value, int], Factors] = field(default_factory=dict)
    computed: dict[str, tuple[Sizes, Sizes]] = field(default_factory=dict)
    pending: dict[tuple[ir.Value, int], str] = field(default_factory=dict)
    single: set[Pair] = field(default_factory=set)  # sizes of 1 of inputs, but for the batch
    batches: set[Pair] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)  # large ones, of images and sequences
    assumed: bool = False  # a size of 1 was taken for the batch
    asked: int = 0

    def run(self) -> None:
        self._infer_old()
        forget(self.model.graph)
        self._shape(self.new_inputs)
        self.names = Names(self.model)
        self.stretch = Stretch(self.old, self.names)
        inputs = [self.pairs(v) or [] for v in self.model.graph.inputs]
        self.batches = {p for pairs in inputs for p in pairs[:1] if p.changed}
        self.single = {p for pairs in inputs for p in pairs[1:] if p.changed and p.old == 1}
        self.single -= self.batches
        self.sizes = {p.old for pairs in inputs for p in pairs[1:] if p.changed and p.old >= _LARGE}
        for node in list(self.model.graph):
            self._node(node)
        if self.assumed:
            self._demand_separate_samples()
        remove_dead_code(self.model)  # with the constants that were replaced
        for (value, _), reason in self.pending.items():
            if value.is_graph_output() or any(True for _ in value.uses()):
                raise Refused(value.producer(), reason)

    def _demand_separate_samples(self) -> None:
        """Refuse layers that may mix the samples of a batch, where a size of 1 was taken for it."""
        for node in self.model.graph:
            if self._is_affected(node) and not _keeps_samples(self, node):
                raise Refused(node, _SEVERAL)

    def notes(self) -> list[Diagnostic]:
        """Return a note that lists the computed constants."""
        if not self.computed:
            return []
        said = [
            f"{name}: {_text(old)} became {_text(new)}"
            for name, (old, new) in self.computed.items()
        ]
        message = f"{len(said)} constants that fix sizes were computed for the new shapes"
        return [Diagnostic("U506", message, "note", evidence=tuple(said[:_SHOWN]))]

    def _shape(self, shapes: Mapping[str, Sequence[int]]) -> None:
        for value in self.model.graph.inputs:
            if public_name(value) in shapes:
                value.shape = ir.Shape(shapes[public_name(value)])

    def _infer_old(self) -> None:
        forget(self.model.graph)
        self._shape(self.old_inputs)
        for value in self.model.graph.inputs:
            self.old[value] = shape_of(value)
        for node in self.model.graph:
            try:
                infer_again(node)
            except InferenceError as e:
                raise Refused(node, str(e)) from None
        for node in all_nodes(self.model.graph):
            for value in node.outputs:
                self._keep_old(value)

    def _keep_old(self, value: ir.Value) -> None:
        self.old[value] = shape_of(value)
        if value.const_value is None and (array := known(value)) is not None:
            self.old_known[value] = array

    # nodes ---------------------------------------------------------------------------------------

    def _node(self, node: ir.Node) -> None:
        """Repair the constants of one node and infer it with the new sizes."""
        if self._is_affected(node):
            for repair in (*self._repairs(node), *_CHECKS):
                repair(self, node)
            self._forget_states(node)
        try:
            infer_again(node)
        except InferenceError as e:
            raise Refused(node, f"{e}") from None
        inner = [n for body in subgraphs(node) for n in all_nodes(body) if self._is_affected(n)]
        for n in inner:
            if n.op_type in _REPAIRS and not n.domain and any(map(self.is_fixed, n.inputs[1:])):
                raise Refused(n, "constants in the bodies of loops and choices are not changed")
        if node.op_type == "Loop" and not node.domain and (inner or self._is_affected(node)):
            self._demand_iterations(node)
        for value in node.outputs:
            self._result(node, value)

    def _forget_states(self, node: ir.Node) -> None:
        """Drop the old sizes that the states of a loop declare."""
        if node.op_type == "Loop" and not node.domain:
            body = next(subgraphs(node))
            for formal, actual in zip(body.inputs[2:], node.inputs[2:], strict=False):
                if actual is not None and self.old.get(actual) != shape_of(actual):
                    formal.shape = None

    def _repairs(self, node: ir.Node) -> Iterator[Callable[[_Walk, ir.Node], None]]:
        if node.op_type in BROADCAST and not node.domain:
            yield _join
        elif node.op_type in _REPAIRS and not node.domain:
            yield _REPAIRS[node.op_type]
        elif node.domain or not (node.op_type in _FOLLOWING or node.op_type.startswith("Reduce")):
            yield _demand_no_traces

    def _result(self, node: ir.Node, value: ir.Value) -> None:
        """Compare a result with the old one, and keep the factors of its dimensions."""
        before, after = self.old.get(value), value.shape
        if before is not None and after is not None and len(before) != len(after):
            raise Refused(node, f"the rank of the result would be {len(after)}, not {len(before)}")
        sources = {
            self.factors[v, axis]
            for v in node.inputs
            if v is not None
            for axis in range(len(self.old.get(v) or ()))
            if (v, axis) in self.factors
        }
        for axis, pair in enumerate(self.pairs(value) or ()):
            if (value, axis) in self.factors or not pair.changed:
                continue
            alike = [f for f in sources if _merged(f) == pair]
            if len(alike) == 1:
                self.factors[value, axis] = alike[0]

    # sizes ---------------------------------------------------------------------------------------

    def pairs(self, value: ir.Value | None) -> list[Pair] | None:
        """Return the old and new sizes of a value; None if a size is not known."""
        if value is None:
            return None
        new = shape_of(value)
        old = self.old.get(value, new)
        if old is None or new is None or len(old) != len(new):
            return None
        return [Pair(a, b) for a, b in zip(old, new, strict=True)]

    def changed(self, value: ir.Value | None) -> list[int]:
        """Return the axes of a value whose sizes have changed."""
        return [i for i, pair in enumerate(self.pairs(value) or ()) if pair.changed]

    def fixed(self, value: ir.Value | None) -> Array | None:
        """Return the elements of a constant; None if it follows the sizes of inputs by itself,
        or is computed from their elements.
        """
        array = constant(value)
        before = None if value is None else self.old_known.get(value, array)
        return array if array is not None and _is_same(before, array) else None

    def is_fixed(self, value: ir.Value | None) -> bool:
        return self.fixed(value) is not None

    def _demand_iterations(self, node: ir.Node) -> None:
        """Refuse a loop whose number of iterations may have come from the old sizes."""
        trips, body = optional(node, 0), next(subgraphs(node))
        count, goes_on = known(trips), known(body.outputs[0])
        endless = goes_on is not None and bool(goes_on.all())
        if count is None or not (endless or body.outputs[0] is body.inputs[1]):
            raise Refused(node, "what ends the loop may follow the old sizes")
        sizes = {p.old for v in self.old for p in self.pairs(v) or () if p.changed}
        if self.is_fixed(trips) and int(count.reshape(-1)[0]) in sizes:
            raise Refused(node, f"the loop has {int(count.reshape(-1)[0])} iterations")

    def _is_affected(self, node: ir.Node) -> bool:
        return any(
            v is not None and v in self.old and self.old[v] != shape_of(v) for v in node.inputs
        )

    def factors_of(self, value: ir.Value) -> list[Factors] | None:
        pairs = self.pairs(value)
        if pairs is None:
            return None
        return [self.factors.get((value, axis), (pair,)) for axis, pair in enumerate(pairs)]

    def choose(
        self, node: ir.Node, options: Sequence[list[Pair]], leading: Pair | None
    ) -> list[Pair]:
        """Return the only option, that which keeps the batch at the first axis, or that of this
        attempt.
        """
        kept = [o for o in options if leading in self.batches and o[0] == leading]
        if len(options) > 1 and len(kept) == 1 and leading is not None and leading.old == 1:
            self.assumed = True
            return kept[0]
        if len(options) == 1:
            return options[0]
        if self.asked == len(self.choices):
            raise Undecided(node, len(options))
        self.asked += 1
        return options[self.choices[self.asked - 1]]

    def set_constant(self, node: ir.Node, index: int, numbers: Sequence[int]) -> None:
        """Replace an operand by a constant, and note the change."""
        before = node.inputs[index]
        assert before is not None and isinstance(node.graph, ir.Graph)
        array = constant(before)
        dtype = np.dtype(np.int64) if array is None else array.dtype
        b = RecordingBuilder(node.graph, self.names, node)
        node.replace_input_with(index, b.const(np.array(numbers, dtype), before.name or "sizes"))
        if array is not None:
            self.computed[layer_name(node)] = (tuple(array.reshape(-1).tolist()), tuple(numbers))


_MIXING = frozenset(
    {
        *("LSTM", "GRU", "RNN", "Loop", "Scan", "If", "CumSum", "Einsum", "NonZero", "Compress"),
        *("GatherND", "GatherElements", "ScatterND", "ScatterElements", "TopK", "Unique", "Det"),
        *("NonMaxSuppression", "RoiAlign", "MaxRoiPool", "OneHot", "EyeLike", "Tile", "Size"),
    }
)
_SHOWN = 20


def _text(sizes: Sequence[int]) -> str:
    return ",".join("end" if n > 1 << 40 else str(n) for n in sizes)


def _merged(factors: Factors) -> Pair:
    return Pair(math.prod(f.old for f in factors), math.prod(f.new for f in factors))


def _keeps_samples(walk: _Walk, node: ir.Node) -> bool:
    """Return whether an operator computes each element along the first axis by itself."""
    extension = node.domain and "axes" not in node.attributes
    if extension or node.op_type in _MIXING or any(subgraphs(node)):
        return False
    shapes = [walk.pairs(v) for v in node.inputs]
    if node.op_type == "Transpose":
        return bool(attribute(node, "perm", [1])[0] == 0)
    if node.op_type == "MatMul":
        first, second = ([p for p in s or () if p.changed] for s in shapes)
        return bool(first) and (not second or len(shapes[1] or ()) > 2)
    if node.op_type == "Gemm":
        return not attribute(node, "transA", 0) and not any(p.changed for p in shapes[1] or ())
    return 0 not in _axes(node, len(shapes[0] or ()))


def _axes(node: ir.Node, rank: int) -> set[int]:
    """Return the axes along which an operator computes."""
    axes: list[int] = []
    if "axes" in node.attributes:
        axes = attribute(node, "axes", [])
    elif "axis" in node.attributes or node.op_type in ("Gather", "Split", "ArgMax", "ArgMin"):
        axes = [attribute(node, "axis", 0)]
    elif node.op_type.startswith("Reduce"):
        given = known(optional(node, 1))
        axes = [*range(rank)] if given is None or not given.size else given.reshape(-1).tolist()
    return {int(a) % rank for a in axes} if rank else set()


# repairs -----------------------------------------------------------------------------------------


def _reshape(walk: _Walk, node: ir.Node) -> None:
    """Compute the target of a Reshape anew."""
    x, target, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None and target is not None
    dims, before = walk.factors_of(x), walk.old[out]
    if dims is None or before is None:
        raise Refused(node, "its sizes are not known")
    options = regrouped(dims, before)
    if not options:
        shapes = f"{_text(walk.old[x] or ())} becomes {_text(before)}"
        new = _text(shape_of(x) or ())
        raise Refused(node, f"{shapes} in the file, and no constant does that to {new}")
    leading = _merged(dims[0]) if dims else None
    sizes = walk.choose(node, options, leading)
    wanted = [s.new for s in sizes]
    if _asks_for(known(target), shape_of(x) or (), wanted, node):
        pass
    elif target in walk.old_known and not _is_same(known(target), walk.old_known[target]):
        raise Refused(node, "its target is computed from sizes and from constants")
    else:
        walk.set_constant(node, 1, wanted)
    _keep_factors(walk, dims, out, sizes)


def _is_same(one: Array | None, other: Array) -> bool:
    return one is not None and np.array_equal(one, other)


def _asks_for(
    target: Array | None, shape: Sequence[int], wanted: Sequence[int], node: ir.Node
) -> bool:
    """Return whether a target, which may have -1 and 0, gives the wanted sizes."""
    if target is None or target.size != len(wanted):
        return target is None
    copied = not attribute(node, "allowzero", 0)
    found = [
        shape[i] if n == 0 and copied and i < len(shape) else int(n)
        for i, n in enumerate(target.reshape(-1))
    ]
    return all(n in (-1, w) for n, w in zip(found, wanted, strict=True))


def _keep_factors(
    walk: _Walk, dims: Sequence[Factors], out: ir.Value, sizes: Sequence[Pair]
) -> None:
    """Keep which sizes a dimension of a result was merged from."""
    atoms = [a for factors in dims for a in factors if a != Pair(1, 1)]
    at = 0
    for axis, pair in enumerate(sizes):
        found: list[Pair] = []
        while at < len(atoms) and _merged((*found, atoms[at])).old <= pair.old:
            if atoms[at].old == 1 and pair.old != 1 and found and _merged(tuple(found)) == pair:
                break
            found.append(atoms[at])
            at += 1
            if _merged(tuple(found)) == pair:
                break
        if _merged(tuple(found)) != pair:
            return  # a size was split: its parts have no factors
        if len(found) > 1 and pair.changed:
            walk.factors[out, axis] = tuple(found)


def _expand(walk: _Walk, node: ir.Node) -> None:
    """Let elements of a constant target follow the data."""
    x, target = node.inputs[0], walk.fixed(node.inputs[1])
    pairs = walk.pairs(x)
    if target is None:
        return
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    numbers = [int(n) for n in target.reshape(-1)]
    lead = len(numbers) - len(pairs)
    for axis, pair in enumerate(pairs):
        at = lead + axis
        if not pair.changed or at < 0 or numbers[at] == 1:
            continue
        if numbers[at] != pair.old:
            raise Refused(node, f"data of the size {pair.old} are repeated {numbers[at]} times")
        numbers[at] = pair.new
    if numbers != target.reshape(-1).tolist():
        walk.set_constant(node, 1, numbers)


def _slice(walk: _Walk, node: ir.Node) -> None:
    """Let the end of a Slice that was the end of the axis follow the axis."""
    pairs = walk.pairs(node.inputs[0])
    bounds = [walk.fixed(v) for v in node.inputs[1:3]]
    if any(b is None for b in bounds):
        return
    starts, ends = ([int(n) for n in b.reshape(-1)] for b in bounds if b is not None)
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    axes, steps = known(optional(node, 3)), known(optional(node, 4))
    chosen = range(len(starts)) if axes is None else [int(a) for a in axes.reshape(-1)]
    strides = [1] * len(starts) if steps is None else [int(s) for s in steps.reshape(-1)]
    moved = list(ends)
    for i, axis in enumerate(chosen):
        pair = pairs[axis % len(pairs)]
        if pair.changed and strides[i] > 0:
            moved[i] = _end(node, pair, starts[i], ends[i], strides[i])
        elif pair.changed and not (starts[i] == -1 or starts[i] >= 1 << 30):
            raise Refused(node, f"it begins at {starts[i]} of an axis of {pair.old}")
    if moved != ends:
        walk.set_constant(node, 2, moved)


def _end(node: ir.Node, pair: Pair, start: int, end: int, step: int) -> int:
    """Return the end of a slice of an axis whose size has changed."""
    begins = start < 0 or start < max(step, 2)  # counted from the end, or at the first elements
    if end >= pair.old and begins and (start != 1 or step > 1 or pair.old > FEW):
        return _WHOLE_AXIS
    first = (start, end) == (0, 1) and pair.old > FEW
    if (end < 0 and begins) or first:
        return end
    reason = (
        f"it takes elements {start} to {min(end, pair.old)} of {pair.old}; nothing shows which of "
        "these bounds follow the size of the axis"
    )
    raise Refused(node, reason)


def _gather(walk: _Walk, node: ir.Node) -> None:
    """Check that constant indices count from an end of the axis."""
    pairs, indices = walk.pairs(node.inputs[0]), walk.fixed(node.inputs[1])
    if pairs is None or indices is None:
        return
    pair = pairs[attribute(node, "axis", 0) % len(pairs)]
    if pair.changed and ((indices > 0).any() or (pair.old == 1 and indices.size > 1)):
        reason = f"constant indices select elements of an axis of {pair.old}, which has changed"
        raise Refused(node, reason)


def _split(walk: _Walk, node: ir.Node) -> None:
    """Let equal parts follow the axis."""
    pairs, parts = walk.pairs(node.inputs[0]), walk.fixed(optional(node, 1))
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    pair = pairs[attribute(node, "axis", 0) % len(pairs)]
    if not pair.changed or parts is None:
        return
    count = parts.size
    equal = {*parts.reshape(-1).tolist()}
    if len(equal) > 1 or 1 in equal or pair.new % count:
        raise Refused(node, f"an axis of {pair.old} is split into parts of constant sizes")
    walk.set_constant(node, 1, [pair.new // count] * count)


def _resize(walk: _Walk, node: ir.Node) -> None:
    """Let constant sizes that were a whole multiple follow the image. Layers after it show
    whether others do.
    """
    pairs, sizes = walk.pairs(node.inputs[0]), walk.fixed(optional(node, 3))
    if sizes is None:
        return
    if pairs is None:
        raise Refused(node, "its sizes are not known")
    axes = attribute(node, "axes", range(len(pairs)))
    numbers = [int(n) for n in sizes.reshape(-1)]
    for i, axis in enumerate(axes):
        pair, size = pairs[axis], numbers[i]
        if not pair.changed:
            continue
        if (size % pair.old == 0 and size > pair.old) or (axis < 2 and size == pair.old):
            numbers[i] = pair.new * size // pair.old
        else:
            walk.pending[node.outputs[0], axis] = (
                f"it resizes {pair.old} to {size}; what the size follows is not shown"
            )
    if numbers != sizes.reshape(-1).tolist():
        walk.set_constant(node, 3, numbers)


def _join(walk: _Walk, node: ir.Node) -> None:
    """Extend constants that meet data of another size."""
    shapes = [walk.pairs(v) for v in node.inputs]
    rank = max((len(s) for s in shapes if s is not None), default=0)
    for axis in range(1, rank + 1):
        column = [s[-axis] if s is not None and len(s) >= axis else None for s in shapes]
        for pair in {p for p in column if p is not None and p.changed}:
            _fit(walk, node, column, pair, -axis)


def _fit(walk: _Walk, node: ir.Node, column: Sequence[Pair | None], pair: Pair, axis: int) -> None:
    """Make the operands of one node fit an axis that has changed from one size to another."""
    for i, other in enumerate(column):
        if other is None or other == pair:
            continue
        if other == Pair(1, 1):
            _demand_batch(walk, node, node.inputs[i], pair)
            continue
        if pair.old == 1:
            reason = f"data of the size 1 meet {other.old} elements, and have {pair.new} now"
            raise Refused(node, reason)
        if not other.changed and other.old == pair.old:
            value = node.inputs[i]
            assert value is not None
            node.replace_input_with(i, _extended(walk, node, value, axis, pair))


def _demand_batch(walk: _Walk, node: ir.Node, value: ir.Value | None, pair: Pair) -> None:
    """Refuse a constant of one entry along an axis of size 1 that is not the batch: it may be a
    table for one position, or the same for all.
    """
    if pair in walk.single and constant(value) is not None:
        reason = "a constant has one entry for an axis of size 1, and none for the others"
        raise Refused(node, reason)


def _extended(walk: _Walk, node: ir.Node, value: ir.Value, axis: int, pair: Pair) -> ir.Value:
    size = len(walk.old.get(value) or shape_of(value) or ())
    try:
        found = walk.stretch.extended(value, axis % size, pair, node)
    except ValueError as e:
        raise Refused(node, str(e)) from None
    for old, new, along in walk.stretch.steps:  # other axes stay to be shown
        more = [(at, why) for (v, at), why in walk.pending.items() if v is old and at != along]
        walk.pending.update({(new, at): why for at, why in more})
    walk.stretch.steps.clear()
    before = walk.old.get(value) or shape_of(value) or ()
    walk.computed[layer_name(node)] = (before, shape_of(found) or ())
    return found


def _concat(walk: _Walk, node: ir.Node) -> None:
    """Extend constants that are joined with data of another size."""
    shapes = [walk.pairs(v) for v in node.inputs]
    if any(s is None for s in shapes):
        raise Refused(node, "its sizes are not known")
    rank = len(shapes[0] or ())
    axis = attribute(node, "axis", 0) % rank
    for other in (i for i in range(rank) if i != axis):
        column = [s[other] for s in shapes if s is not None]
        pair, *more = {p for p in column if p.changed} or [None]
        if pair is None or more:
            continue  # inference refuses several sizes
        for i, own in enumerate(column):
            value = node.inputs[i]
            if own != pair and value is not None:
                _demand_batch(walk, node, value, pair)
                node.replace_input_with(i, _extended(walk, node, value, other, pair))


def _matmul(walk: _Walk, node: ir.Node) -> None:
    """Refuse weights of a batch that has changed, and a contraction over other sizes."""
    for value in node.inputs:
        pairs = walk.pairs(value)
        if pairs is None or value is None:
            raise Refused(node, "its sizes are not known")
    _demand_no_batches(walk, node)


def _demand_no_batches(walk: _Walk, node: ir.Node) -> None:
    shapes = [(walk.pairs(v) or [])[:-2] for v in node.inputs]
    for a, b in (shapes, shapes[::-1]):
        for one, other in zip(reversed(a), reversed(b), strict=False):
            if one.changed and other != one and other.old != 1:
                raise Refused(node, f"one operand has {other.old} matrices, the other {one.new}")
            if one.changed and one.old == 1 and other.new not in (1, one.new):
                raise Refused(node, f"one operand has {other.new} matrices, the other {one.new}")


def _recurrent(walk: _Walk, node: ir.Node) -> None:
    """Give constant initial states and lengths the batch and the length of the sequence."""
    pairs = walk.pairs(node.inputs[0])
    if pairs is None or attribute(node, "layout", 0):
        raise Refused(node, "its sizes are not known")
    length, batch = pairs[0], pairs[1]
    for i in range(5, min(len(node.inputs), 7)):
        value, own = node.inputs[i], walk.pairs(node.inputs[i])
        if value is not None and batch.changed and own is not None and own[1] != batch:
            node.replace_input_with(i, _extended(walk, node, value, 1, batch))
    lengths = walk.fixed(optional(node, 4))
    if lengths is not None and (length.changed or batch.changed):
        if set(lengths.reshape(-1).tolist()) != {length.old}:
            raise Refused(node, "the lengths of its sequences are constant")
        walk.set_constant(node, 4, [length.new] * batch.new)


def _conv_transpose(walk: _Walk, node: ir.Node) -> None:
    """Crop as much as the constant size of the result cropped before."""
    if "output_shape" not in node.attributes:
        return
    pairs, weights = walk.pairs(node.inputs[0]), shape_of(node.inputs[1])
    a = attributes(node)
    kernel = a.get("kernel_shape") or (weights or ())[2:]
    if pairs is None or not kernel:
        raise Refused(node, "its sizes are not known")
    pads, extra = transposed_pads(a, [p.old for p in pairs[2:]], kernel)
    for name in ("auto_pad", "output_shape"):
        node.attributes.pop(name, None)
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes["output_padding"] = ir.AttrInt64s("output_padding", extra)


def _demand_no_whole_window(walk: _Walk, node: ir.Node) -> None:
    """Refuse a window over the whole image of the old size: it may stand for a global pooling."""
    pairs = walk.pairs(node.inputs[0])
    kernel = attribute(node, "kernel_shape", [])
    if pairs is None:
        return
    spatial = pairs[2:]
    _, _, pads = window_of(node, len(kernel))
    whole = all(k >= p.old for k, p in zip(kernel, spatial, strict=True)) and not any(pads)
    if whole and any(p.changed for p in spatial):
        size = _text(kernel)
        raise Refused(node, f"its window {size} covers the old image; it may be a global pooling")


def _topk(walk: _Walk, node: ir.Node) -> None:
    pairs, k = walk.pairs(node.inputs[0]), walk.fixed(node.inputs[1])
    if pairs is None or k is None:
        return
    pair = pairs[attribute(node, "axis", -1) % len(pairs)]
    if pair.changed and int(k.reshape(-1)[0]) == pair.old:
        raise Refused(node, f"it returns all {pair.old} elements of an axis that has changed")


def _demand_scale(walk: _Walk, node: ir.Node) -> None:
    """Refuse a sum that is divided by the old number of its elements."""
    if node.op_type != "ReduceSum" or node.domain:
        return
    pairs, axes = walk.pairs(node.inputs[0]), known(optional(node, 1))
    if pairs is None:
        return
    chosen = range(len(pairs)) if axes is None or not axes.size else axes.reshape(-1).tolist()
    reduced = [pairs[int(a) % len(pairs)] for a in chosen]
    count = math.prod(p.old for p in reduced)
    if count == 1 or not any(p.changed for p in reduced):
        return
    for user in (use.node for use in node.outputs[0].uses()):
        factors = [walk.fixed(v) for v in user.inputs if v is not node.outputs[0]]
        for factor in (f for f in factors if f is not None and f.size == 1):
            number = abs(float(factor.reshape(-1)[0]))
            if (
                user.op_type in ("Mul", "Div")
                and number
                and (math.isclose(number * count, 1, rel_tol=1e-3) or number == count)
            ):
                raise Refused(user, f"it divides by {count}, the number of elements before")


def _demand_scale_of_axis(walk: _Walk, node: ir.Node) -> None:
    """Refuse scales for each element of an axis that has changed."""
    pairs, scale = walk.pairs(node.inputs[0]), shape_of(node.inputs[1])
    if pairs is None or scale is None or math.prod(scale) == 1:
        return
    layers = node.op_type == "LayerNormalization"
    axis = attribute(node, "axis", -1 if layers else 1) % len(pairs)
    if any(p.changed for p in (pairs[axis:] if layers else pairs[axis : axis + 1])):
        raise Refused(node, f"it has a constant for each of {pairs[axis].old} elements")


def _demand_no_size_as_number(walk: _Walk, node: ir.Node) -> None:
    """Refuse arithmetic with a constant that may be an old size of the input: coordinates are
    divided by the size of the image, or limited to it.
    """
    if node.op_type not in _ARITHMETIC or node.domain:
        return
    for value in node.inputs:
        array = walk.fixed(value)
        if array is None or array.dtype.kind not in "fiu" or array.size > _FEW_NUMBERS:
            continue
        for number in np.abs(array.reshape(-1).astype(float)):
            size = next((n for n in walk.sizes if _is_of_size(number, n)), None)
            if size is not None:
                reason = f"it computes with {number:g}, which may come from the size {size}"
                raise Refused(node, reason)


def _is_of_size(number: float, size: int) -> bool:
    """Return whether a number is a size, its last index, or the reciprocal of either."""
    return number in (size, size - 1) or (
        0 < number < 1 and any(math.isclose(number * n, 1, rel_tol=1e-6) for n in (size, size - 1))
    )


def _demand_no_traces(walk: _Walk, node: ir.Node) -> None:
    """Refuse operands that may have come from the old sizes."""
    changed = {p.old for v in node.inputs for p in walk.pairs(v) or () if p.changed} - {1}
    for value in node.inputs:
        pairs = walk.pairs(value)
        if value is None or pairs is None or walk.changed(value):
            continue
        numbers = walk.fixed(value)
        small = numbers is not None and numbers.dtype.kind in "iu" and numbers.size <= _FEW_NUMBERS
        traces = [p.old for p in pairs if p.old in changed]
        if numbers is not None and small:
            traces += [int(n) for n in numbers.reshape(-1) if n in changed]
        if traces:
            reason = f"an operand has {traces[0]} elements or this number, as the data had"
            raise Refused(node, reason)
    for name, number in _numbers(node):
        if number in changed:
            raise Refused(node, f"its {name} has the number {number}, as the data had elements")


def _numbers(node: ir.Node) -> Iterator[tuple[str, int]]:
    """Yield the integers of the attributes of a node that may be sizes."""
    for name, value in attrs_of(node).items():
        if name not in ("axis", "axes", "dtype", "to"):
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, int) and not isinstance(number, bool):
                    yield name, number


def _demand_no_constants(walk: _Walk, node: ir.Node) -> None:
    """Refuse constant indices, updates and sizes for data whose sizes have changed."""
    for value in node.inputs[1:]:
        if walk.fixed(value) is not None and (shape_of(value) or ()) != ():
            raise Refused(node, "it has constant operands, and data of another size")


def _demand_same_padding(walk: _Walk, node: ir.Node) -> None:
    """Refuse windows whose padding was computed from the old size, unless it is the same."""
    if not walk.by_declared or node.op_type not in _WINDOWS or node.domain == "netconv":
        return
    pairs = walk.pairs(node.inputs[0])
    strides = attribute(node, "strides", None)
    if pairs is None or strides is None:
        return
    spatial = pairs[1:-1] if node.domain else pairs[2:]
    for pair, stride in zip(spatial, strides, strict=True):
        if (pair.new - pair.old) % stride:
            reason = f"its padding may depend on the size; use one that is {pair.old} plus a "
            raise Refused(node, f"{reason}multiple of {stride}")


def _demand_standard(walk: _Walk, node: ir.Node) -> None:
    """Refuse operators of formats that declare all shapes: their attributes may have come from the
    old sizes.
    """
    if walk.by_declared and node.domain == EXTENSION_DOMAIN:
        raise Refused(node, f"the attributes of {node.op_type} may depend on the size")


_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool", "LpPool"})
_ARITHMETIC = frozenset(
    {"Add", "Sub", "Mul", "Div", "Min", "Max", "Clip", "Mod", "Less", "Greater"}
)
_LARGE, _FEW_NUMBERS = 16, 64  # sizes that few other numbers are; elements of a constant
_CHECKS = (_demand_scale, _demand_no_size_as_number, _demand_same_padding, _demand_standard)
_REPAIRS: dict[str, Callable[[_Walk, ir.Node], None]] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Gather": _gather,
    "Split": _split,
    "Resize": _resize,
    "Concat": _concat,
    "MatMul": _matmul,
    "LayerNormalization": _demand_scale_of_axis,
    "DequantizeLinear": _demand_scale_of_axis,
    "QuantizeLinear": _demand_scale_of_axis,
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _demand_no_whole_window),
    "TopK": _topk,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("GatherElements", "GatherND", "MaxUnpool"), _demand_no_constants),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _demand_no_constants),
    **dict.fromkeys(("AffineGrid", "CenterCropPad"), _demand_no_constants),
}
