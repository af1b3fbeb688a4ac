"""Set shapes and values of inputs as requested.

before:  main(x[N,8], k) { If(k == 2) {...} }
after (x is [1,8], k is 2):  main(x[1,8]) { ... }
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, UsageError, Where, wrong_call
from converter.graph.build import attributes
from converter.graph.infer import Array, InferenceError, known, shape_of
from converter.graph.lazy_tensor import lazy
from converter.graph.names import Names, layer_name, public_name
from converter.graph.shapes import forget, freezing, keep_better
from converter.graph.value import array_type
from converter.graph.walk import all_graphs, all_nodes, subgraphs
from converter.graph.windows import SAME, same_pads, transposed_pads
from converter.passes.unroll import infer_and_choose, unroll

_PADDED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})


def fix_inputs(
    model: ir.Model,
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Any] | None = None,
) -> list[Diagnostic]:
    """Set shapes of inputs by their public names, make inputs with `values` constants, infer shapes
    again, and resolve sizes and branches that these determine. Return warnings.

    A symbolic dimension is replaced everywhere, in other inputs too. If it would get several sizes,
    only the given shapes are set (U504), and other dimensions with the name stay dynamic. A value
    is an array, nested lists, or a number that fills an input of known shape. Raise UsageError U501
    for unknown input names, for a shape that contradicts the declared rank, a fixed dimension or
    the operators, and for a value that the input's type cannot represent.
    """
    values = values or {}
    by_name = {public_name(v): v for v in model.graph.inputs}
    _demand_known("--inputs", shapes, by_name)
    _demand_known("--freeze", values, by_name)
    given = _bound(by_name, shapes)
    for name, value in values.items():
        array = _as_declared(by_name[name], name, value)
        _bind(by_name[name], name, array.shape, given)
        _freeze(model.graph, by_name[name], array)
    notes = [_contradiction(n, sizes) for n, sizes in given.items() if len(sizes) > 1]
    try:
        replace_dimensions(model, _numbers(given))
    except InferenceError as e:
        conditions = [n.inputs[0] for n in all_nodes(model.graph) if n.op_type == "If"]
        where = Where() if e.node is None else Where(layer=layer_name(e.node), kind=e.node.op_type)
        message = f"the network does not accept these shapes: {_rule(e)}"
        raise _refused(message, freezing(conditions), where) from None
    return notes


def needed_to_accept(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Return the command-line options that are needed besides shapes of inputs: "" for none, those
    that fix a condition of which one branch accepts the shapes; None if the network does not accept
    the shapes at all.
    """
    clone, failing = model.clone(), set()
    names = Names(clone)

    def leniently(branch: ir.Graph) -> None:
        try:
            infer_and_choose(branch, names, leniently)
        except InferenceError:
            failing.add(branch)

    given = _bound({public_name(v): v for v in clone.graph.inputs}, shapes)
    try:
        replace_dimensions(clone, _numbers(given), leniently)
    except InferenceError:
        return None
    choices = [n for n in all_nodes(clone.graph) if not failing.isdisjoint(subgraphs(n))]
    if any(failing.issuperset(subgraphs(n)) for n in choices):
        return None
    return freezing(n.inputs[0] for n in choices)


def _bound(
    by_name: Mapping[str, ir.Value], shapes: Mapping[str, Sequence[int]]
) -> dict[str, set[int]]:
    """Set shapes of inputs; return the sizes that their named dimensions get."""
    given: dict[str, set[int]] = defaultdict(set)
    for name, shape in shapes.items():
        _bind(by_name[name], name, shape, given)
    return given


def _numbers(given: Mapping[str, set[int]]) -> dict[str, int | ir.SymbolicDim]:
    """Return the only size of each named dimension; an unknown one if there are several."""
    return {
        n: next(iter(sizes)) if len(sizes) == 1 else ir.SymbolicDim(None)
        for n, sizes in given.items()
    }


def replace_dimensions(
    model: ir.Model,
    numbers: Mapping[str, int | ir.SymbolicDim],
    branch: Callable[[ir.Graph], None] | None = None,
) -> None:
    """Replace named dimensions everywhere, in place, infer shapes again, and resolve sizes and
    branches that these determine; `branch` infers branches of choices that stay. Raise
    InferenceError for nodes that do not accept them.
    """
    declared: dict[ir.Value, ir.Shape] = {}
    for graph in all_graphs(model.graph):
        for value in [*graph.inputs, *(o for n in graph for o in n.outputs)]:
            if value.shape is not None:
                value.shape = declared[value] = ir.Shape(
                    [
                        numbers.get(d.value or "", d) if isinstance(d, ir.SymbolicDim) else d
                        for d in value.shape
                    ]
                )
    forget(model.graph)
    infer_and_choose(model.graph, Names(model), branch)
    if branch is None:
        unroll(model, lambda node: node.op_type == "If")
    for value, old in declared.items():
        if value.producer() is not None:
            keep_better(value, value.type, old)
    for node in all_nodes(model.graph):
        if node.op_type in _PADDED and not node.domain:
            _pad_by_numbers(node)


def _rule(error: InferenceError) -> str:
    """Return the rule of the network that a shape breaks."""
    node = error.node
    if node is None or node.op_type != "Reshape" or node.domain:
        return str(error)
    shape, target = shape_of(node.inputs[0]), known(node.inputs[1])
    if shape is None or target is None:
        return str(error)
    sizes = ",".join(str(int(n)) for n in target.reshape(-1))
    return f"{math.prod(shape)} elements cannot have the shape [{sizes}]"


def _pad_by_numbers(node: ir.Node) -> None:
    """Replace auto_pad, which depends on sizes, by explicit padding if the sizes are known."""
    a, (size, weights) = attributes(node), [shape_of(v) for v in (*node.inputs, None)[:2]]
    transposed, mode = node.op_type == "ConvTranspose", a["auto_pad"]
    kernel = a.get("kernel_shape") or (weights or ())[2:]
    if size is None or not kernel or not (mode in SAME or (transposed and a.get("output_shape"))):
        return
    if transposed:
        pads, extra = transposed_pads(a, size[2:], kernel)
        node.attributes["output_padding"] = ir.AttrInt64s("output_padding", extra)
    else:
        strides = a.get("strides") or [1] * len(kernel)
        upper = mode == "SAME_UPPER"
        pads = same_pads(size[2:], kernel, strides, a.get("dilations"), upper=upper)
    for name in ("auto_pad", "output_shape"):
        node.attributes.pop(name, None)
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)


def _demand_known(option: str, asked: Mapping[str, Any], by_name: Mapping[str, ir.Value]) -> None:
    if unknown := [n for n in asked if n not in by_name]:
        raise _refused(
            f"{option} names inputs that the model does not have: {', '.join(unknown)}",
            help=f"it has: {', '.join(f'{n}:{_shape_text(v)}' for n, v in by_name.items())}",
        )


def _shape_text(value: ir.Value) -> str:
    """Return a shape as --inputs has it, with ? for unknown sizes."""
    sizes = value.shape if value.shape is not None else ()
    return ",".join(str(d) if isinstance(d, int) else d.value or "?" for d in sizes)


def _bind(value: ir.Value, name: str, shape: Sequence[int], given: Mapping[str, set[int]]) -> None:
    if value.shape is not None and len(value.shape) != len(shape):
        raise _refused(f"input {name!r} has {len(value.shape)} dimensions, got {len(shape)}")
    for declared, size in zip(value.shape or (), shape, strict=False):
        if isinstance(declared, int) and declared != size:
            raise _refused(
                f"input {name!r} has a fixed dimension of {declared}, got {size}",
                help="for another size, read the file with it: netconv.load(path, inputs={...})",
            )
        if isinstance(declared, ir.SymbolicDim) and declared.value:
            given[declared.value].add(size)
    value.shape = ir.Shape(shape)


def _contradiction(name: str, sizes: set[int]) -> Diagnostic:
    found = ", ".join(map(str, sorted(sizes)))
    return Diagnostic(
        "U504",
        f"dimension {name!r} has the sizes {found} in the given shapes; its "
        "other uses stay dynamic",
        "warning",
        help="no action is needed if the file uses one name for unrelated dimensions",
    )


def _as_declared(value: ir.Value, name: str, given: Any) -> Array:
    """Return the value in the input's declared type, expanded to its shape if it is a single
    number.
    """
    dtype = array_type(value)
    try:
        array = np.asarray(given, object if value.dtype == ir.DataType.STRING else None)
    except ValueError:  # nested lists of different lengths
        raise _refused(f"the value of input {name!r} must be an array") from None
    if value.dtype != ir.DataType.STRING:
        array = _of_type(array, dtype, name)
    shape = shape_of(value)
    return np.full(shape, array) if shape and not array.shape else array


def _of_type(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Cast to another type; floats may be rounded. Raise UsageError if another number changes."""
    if array.dtype.kind not in "biuf":
        raise _refused(f"input {name!r} is {dtype}, but its value {array.tolist()!r} is not")
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    rounds = dtype.kind not in "biu" and array.dtype.kind in "iuf"
    if not rounds and not np.array_equal(cast.astype(array.dtype), array):
        raise _refused(
            f"the value {array.tolist()!r} is outside the range of the {dtype} input {name!r}"
        )
    return cast


def _freeze(graph: ir.Graph, value: ir.Value, array: Array) -> None:
    graph.inputs.remove(value)
    value.const_value = lazy(array)
    graph.register_initializer(value)


def _refused(message: str, help: str = "", where: Where | None = None) -> UsageError:
    return wrong_call(message, help=help, where=where or Where())
