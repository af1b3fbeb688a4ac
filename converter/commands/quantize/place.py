"""Choose the values of a graph that a target computes as integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.normalizations import normalizations
from converter.commands.quantize.scales import LARGEST
from converter.formats.integers import Integers, named
from converter.graph.build import attributes
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import optional
from converter.mapping.fusing import activation_of, only_user

RECURRENT = ("GRU", "LSTM", "RNN")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm")
_ALL = named("Add Concat Div MatMul Max Min Mul PRelu Sub")
_FUSED = (*WEIGHTED, "MatMul", "Add")
F = ir.DataType.FLOAT


@dataclass
class Placement:
    """The choice of scales, by names of values.

    `nodes`   first results of the nodes that compute on integers
    `groups`  quantized value -> a value whose scale it has
    `fixed`   quantized value -> the range that the kernel dictates
    `owned`   quantized values of which all users read the quantized numbers
    `layers`  first result of a layer on integers -> its last one, which is another one if the
              kernel adds a vector or computes an activation
    `again`   (first result, input) where a value with a fixed scale gets that of its group
    `floats`  layer -> why it computes in floats
    """

    nodes: set[str] = field(default_factory=set)
    groups: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, tuple[float, float]] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    layers: dict[str, str] = field(default_factory=dict)
    again: set[tuple[str, int]] = field(default_factory=set)
    floats: dict[str, str] = field(default_factory=dict)

    def group(self, name: str) -> str:
        """Return the value whose scale a value has."""
        while self.groups[name] != name:
            name = self.groups[name]
        return name

    def add(self, name: str) -> None:
        """Add a value as a group of its own, unless it has one."""
        self.groups.setdefault(name, name)

    def join(self, one: str, other: str) -> bool:
        """Give two values one scale; return whether that is new."""
        known = one in self.groups and other in self.groups
        self.add(one)
        self.add(other)
        a, b = self.group(one), self.group(other)
        self.groups[max(a, b)] = min(a, b)
        return not known


def key(node: ir.Node) -> str:
    """The name by which a node is known in copies of its graph."""
    return str(node.outputs[0].name)


def layer(node: ir.Node) -> str:
    """The name of a layer in the source."""
    return node.metadata_props.get("netconv.layer") or node.name or key(node)


def chosen(*globs: str) -> Callable[[ir.Node], bool]:
    """Return whether a layer, a result, or an operator of a node has one of these names."""
    return lambda n: any(fnmatchcase(v, g) for v in (layer(n), key(n), n.op_type) for g in globs)


def data_inputs(node: ir.Node) -> Iterator[int]:
    """Yield the inputs of a node that hold quantized values, without weights and biases."""
    for i, v in enumerate(node.inputs):
        if v is not None and v.dtype == F and (i == 0 or node.op_type in _ALL):
            yield i


def computed(node: ir.Node) -> Iterator[tuple[int, str]]:
    """Yield those of them that are no constants, with their names."""
    for i in data_inputs(node):
        if (v := node.inputs[i]) is not None and constant(v) is None:
            yield i, str(v.name)


def is_depthwise(node: ir.Node) -> bool:
    """Return whether each channel of the result is computed from one channel of the data."""
    shape = shape_of(node.inputs[1]) if node.op_type == "Conv" else None
    return shape is not None and shape[0] == attributes(node)["group"] != 1 == shape[1]


def tail(node: ir.Node, rules: Integers) -> list[ir.Node]:
    """Return the nodes that the kernel of `node` computes as well: an added vector, an
    activation.
    """
    found: list[ir.Node] = [node]
    weighted = node.op_type == "MatMul" and constant(optional(node, 1)) is not None
    user = only_user(node.outputs[0])
    if rules.biased and weighted and user is not None and _adds_vector(user):
        found.append(user)
        user = only_user(user.outputs[0])
    fuses = node.op_type in _FUSED and (weighted or node.op_type != "MatMul")
    if fuses and user is not None and user.inputs[0] in found[-1].outputs and activation_of(user):
        found.append(user)
    return found


def _adds_vector(node: ir.Node) -> bool:
    ranks = [a.ndim for v in node.inputs if (a := constant(v)) is not None]
    return (node.domain, node.op_type) == ("", "Add") and ranks == [1]


def reason_for_float(node: ir.Node, rules: Integers, title: str) -> str:
    """Return why a node cannot compute on integers; "" if it can."""
    if rules.recurrent and node.op_type in RECURRENT:
        return "the states and gates of recurrent layers are not measured; weights have 8 bits"
    if node.domain or node.op_type not in rules.operators:
        return f"{title} has no integer kernel for {node.op_type}"
    if any(v.dtype != F for v in node.outputs):
        return "the operator does not compute float32"
    operands = [constant(node.inputs[i]) for i in data_inputs(node)]
    if any(a is not None and np.abs(a).max(initial=0) > LARGEST for a in operands):
        return "a constant is infinite, or so large that nothing else is left of the scale"
    if node.op_type in WEIGHTED:
        attrs, weights = attributes(node), optional(node, 1)
        if constant(weights) is None:
            return "the weights are computed"
        if rank_of(node.inputs[0]) not in rules.ranks and node.op_type != "Gemm":
            return f"{title} has integer kernels only for data of rank {rules.ranks}"
        if node.op_type == "Gemm" and (attrs["alpha"], attrs["beta"], attrs["transA"]) != (1, 1, 0):
            return "the operator scales or transposes its operands"
        bias = optional(node, 2)
        if bias is not None and (constant(bias) is None or rank_of(bias) != 1):
            return "the bias must be a constant vector"
    return rules.reason(node)


def place(
    graph: ir.Graph,
    rules: Integers,
    title: str,
    kept: Callable[[ir.Node], str] = lambda node: "",
) -> Placement:
    """Choose the values of a graph that are quantized. `kept` returns why a node is to compute in
    floats, "" for others.
    """
    made, absorbed, parts = Placement(), set[ir.Node](), normalizations(graph)
    for node in graph:
        if node in absorbed or node.op_type in rules.moves or node.op_type == "Constant":
            continue
        why = kept(node) or ("a part of a normalization" if node in parts else "")
        why = why or reason_for_float(node, rules, title)
        if rules.fake and node.op_type == "Add" and not why and not _adds_layer(made, node):
            why = "no result of a layer on integers is added"
        if why:
            absorbed.update(tail(node, rules) if kept(node) else ())
            if any(v.dtype == F for v in node.outputs) and any(map(_is_computed, node.inputs)):
                made.floats[layer(node)] = why
            continue
        whole = tail(node, rules)
        absorbed.update(whole)
        made.nodes.update(map(key, whole))
        result = str(whole[-1].outputs[0].name)
        made.layers[key(node)] = result
        for _, name in computed(node):
            made.add(name)
        if not rules.fake:  # those kernels give floats as well
            made.owned.add(result)
            made.add(result)
        if (ends := rules.fixed.get(whole[-1].op_type)) is not None:
            made.fixed[result] = ends
    moving = {n for n in graph if n not in parts and not kept(n) and _moves(n, rules)}
    while any([_moved(made, n, rules) for n in graph if n in moving]):
        pass
    return made


def _adds_layer(made: Placement, node: ir.Node) -> bool:
    names = [n for _, n in computed(node)]
    return len(names) > 1 and any(n in made.layers.values() for n in names)


def _is_computed(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == F and constant(value) is None


def _moves(node: ir.Node, rules: Integers) -> bool:
    floats = [v.dtype == F for v in node.outputs]
    mode = str(attributes(node).get("mode", "")) if node.op_type == "Resize" else ""
    plain = shape_of(node.outputs[0]) is not None and mode != "cubic"
    return not node.domain and node.op_type in rules.moves and all(floats) and plain


def _moved(made: Placement, node: ir.Node, rules: Integers) -> bool:
    """Quantize the operands and results of a node that moves quantized values; return whether that
    is new.
    """
    inputs = [*computed(node)]
    outputs = [str(v.name) for v in node.outputs]
    if not any(n in made.groups for n in (*outputs, *(n for _, n in inputs))) or not inputs:
        return False
    new = any([made.join(outputs[0], n) for n in outputs[1:]])
    for i, name in inputs:
        if node.op_type == "Concat" and any(
            made.group(f) == made.group(name) for f in made.fixed if name in made.groups
        ):
            made.add(outputs[0])
            new |= (key(node), i) not in made.again
            made.again.add((key(node), i))
        elif (key(node), i) not in made.again:
            new |= made.join(outputs[0], name)
    made.nodes.add(key(node))
    if not rules.fake:
        made.owned.update(outputs)
    return new
