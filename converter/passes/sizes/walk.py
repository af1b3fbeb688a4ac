"""A walk over the network with the old and the new sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, counted
from converter.graph.build import RecordingBuilder
from converter.graph.infer import Array, InferenceError, constant, known, shape_of
from converter.graph.names import Names, layer_name, public_name
from converter.graph.shapes import forget, infer_again
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute
from converter.graph.walk import all_nodes, subgraphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.sizes.regroup import Factors, Pair
from converter.passes.sizes.stretch import Stretch

LARGE = 16  # sizes that few other numbers are
SEVERAL = (
    "the target shape is constant, and nothing in the network shows which of its sizes follow "
    "those of the inputs"
)


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


Repair = Callable[["Walk", ir.Node], None]


@dataclass(frozen=True)
class Rules:
    """The repairs by operator, and `of`: the repairs and checks of a node."""

    by_operator: Mapping[str, Repair]
    of: Callable[[ir.Node], Iterable[Repair]]


@dataclass
class Walk:
    """One attempt: `choices` are the options to take where several sizes are possible, in the order
    in which they come up.
    """

    model: ir.Model
    old_inputs: Mapping[str, Sequence[int]]
    new_inputs: Mapping[str, Sequence[int]]
    by_declared: bool
    choices: tuple[int, ...]
    rules: Rules
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
        """Compute the constants that depend on the old sizes anew, node by node."""
        self._infer_old()
        forget(self.model.graph)
        self._shape(self.new_inputs)
        self.names = Names(self.model)
        self.stretch = Stretch(self.old, self.names)
        inputs = [self.pairs(v) or [] for v in self.model.graph.inputs]
        self.batches = {p for pairs in inputs for p in pairs[:1] if p.changed}
        self.single = {p for pairs in inputs for p in pairs[1:] if p.changed and p.old == 1}
        self.single -= self.batches
        self.sizes = {p.old for pairs in inputs for p in pairs[1:] if p.changed and p.old >= LARGE}
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
                raise Refused(node, SEVERAL)

    def notes(self) -> list[Diagnostic]:
        """Return a note that lists the computed constants."""
        if not self.computed:
            return []
        said = [
            f"{name}: {text_of(old)} became {text_of(new)}"
            for name, (old, new) in self.computed.items()
        ]
        message = (
            f"the given shapes changed {counted(len(said), 'constant')} that had the old sizes"
        )
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
            for repair in self.rules.of(node):
                repair(self, node)
            self._forget_states(node)
        try:
            infer_again(node)
        except InferenceError as e:
            raise Refused(node, f"{e}") from None
        inner = [n for body in subgraphs(node) for n in all_nodes(body) if self._is_affected(n)]
        for n in inner:
            if (
                n.op_type in self.rules.by_operator
                and not n.domain
                and any(map(self.is_fixed, n.inputs[1:]))
            ):
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
            alike = [f for f in sources if merged(f) == pair]
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
        return array if array is not None and is_same(before, array) else None

    def is_fixed(self, value: ir.Value | None) -> bool:
        """Return whether a value is the same for the old and the new sizes."""
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
        """Return the factors of each size of a value, or None if a shape of it is unknown."""
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


def text_of(sizes: Sequence[int]) -> str:
    """Return sizes, or ends of slices, for a message."""
    return ",".join("end" if n > 1 << 40 else str(n) for n in sizes)


def merged(factors: Factors) -> Pair:
    """Return the old and the new product of factors."""
    return Pair(math.prod(f.old for f in factors), math.prod(f.new for f in factors))


def _keeps_samples(walk: Walk, node: ir.Node) -> bool:
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


def is_same(one: Array | None, other: Array) -> bool:
    """Return whether both arrays are known, and equal."""
    return one is not None and np.array_equal(one, other)
