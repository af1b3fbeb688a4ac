"""States of a network: inputs that receive the value of an output of the previous run.

before:  main(x[N,4], past[N,t,4]) => (y, present)
after:   the same, and `past` is State(past, Expand(0, [N, 0, 4])), which `interface` pairs with
         `present`
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, UsageError, wrong_call
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.names import Names, public_name
from converter.graph.network import Network
from converter.graph.states import begun_states
from converter.passes.dead_code import remove_dead_code
from converter.passes.extract_subgraph import extract_subgraph


def settle(network: Network) -> None:
    """Turn constant initial values into defaults of the inputs, in place; one that contradicts the
    shape of its input is dropped.
    """
    begun = begun_states(network.ir.graph)
    for name, node in begun.items():
        source, array = node.inputs[0], constant(node.inputs[1])
        assert source is not None
        if array is None and not _excluded(source, node.inputs[1]):
            continue
        if array is not None:
            network.interface.setdefault("defaults", {})[name] = array
        node.outputs[0].replace_all_uses_with(source)
    if begun:
        remove_dead_code(network.ir)
    network.tidy()


def _excluded(value: ir.Value, initial: ir.Value | None) -> bool:
    """Return whether no initial value of this shape can be fed to an input."""
    if value.shape is None or initial is None or initial.shape is None:
        return False
    return len(value.shape) != len(initial.shape) or _differ(value, initial)


def _differ(one: ir.Value, other: ir.Value) -> bool:
    """Return whether two values of known rank have a dimension with different known sizes."""
    return any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(one.shape or (), other.shape or (), strict=False)
    )


def declare_states(network: Network, pairs: Mapping[str, str]) -> None:
    """Declare inputs as states whose next values are outputs, by public names; all begin with
    zeros.

    A dynamic dimension starts with the size of the dimension of the same name in another input
    (without names: that of the first dimension, as the batch), else with 0, as in a cache. Raise
    UsageError U501 for unknown names, and for pairs of different types or ranks.
    """
    graph = network.ir.graph
    inputs = {public_name(v): v for v in graph.inputs}
    outputs = {public_name(v): v for v in graph.outputs}
    if len(set(pairs.values())) < len(pairs):
        raise wrong_call("--state maps one output to two states")
    for past, present in pairs.items():
        _demand("input", past, inputs)
        _demand("output", present, outputs)
        one, other = inputs[past], outputs[present]
        ranks = {len(v.shape) for v in (one, other) if v.shape is not None}
        fixed = one.shape is not None and other.shape is not None and _differ(one, other)
        if one.dtype != other.dtype or len(ranks) > 1 or fixed:
            raise UsageError(
                Diagnostic(
                    "U501",
                    f"--state cannot use {present!r} as the next value of {past!r}",
                    evidence=tuple(f"{v.name} {v.dtype}{v.shape}" for v in (one, other)),
                    help="a state must keep its type and its static sizes",
                )
            )
    others = [v for n, v in inputs.items() if n not in pairs]
    b = Builder(graph, Names(network.ir), before=next(iter(graph), None))
    for past, present in pairs.items():
        _begin_with_zeros(network, b, inputs[past], others)
        network.interface.setdefault("states", {})[past] = present


def _demand(what: str, name: str, known: Mapping[str, ir.Value]) -> None:
    if name not in known:
        raise wrong_call(
            f"--state names the {what} {name}, which the model does not have",
            help=f"the model has: {', '.join(known)}",
        )


def _begin_with_zeros(
    network: Network, b: Builder, value: ir.Value, others: list[ir.Value]
) -> None:
    name = public_name(value)
    dtype = ir.DataType.FLOAT if value.dtype is None else value.dtype
    if value.shape is None:
        raise wrong_call(f"--state needs the rank of {name!r}, which is unknown")
    sources = [_other_source_of(d, axis, others) for axis, d in enumerate(value.shape)]
    if not any(sources):
        sizes = [d if isinstance(d, int) else 0 for d in value.shape]
        network.interface.setdefault("defaults", {})[name] = np.zeros(sizes, dtype.numpy())
        return
    sizes_ = [None if s is None else b.Shape(s[0], start=s[1], end=s[1] + 1) for s in sources]
    some = next(s for s in sizes_ if s is not None)
    # the 0 is computed, because for a constant 0 OpenVINO's CPU plugin assumes that the variable is
    # always empty
    parts = [
        b.const([d]) if isinstance(d, int) else b.Sub(some, some) if size is None else size
        for d, size in zip(value.shape, sizes_, strict=True)
    ]
    uses = list(value.uses())
    zeros = b.Expand(b.const(np.zeros((), dtype.numpy())), b.Concat(*parts, axis=0))
    state = b.State(value, zeros)
    for node, index in uses:
        node.replace_input_with(index, state)


def _other_source_of(
    dim: int | ir.SymbolicDim, at: int, others: list[ir.Value]
) -> tuple[ir.Value, int] | None:
    """Return another input and the axis that determines the size of the dynamic dimension `dim` at
    axis `at`.
    """
    if isinstance(dim, int):
        return None
    for value in others:
        for axis, found in enumerate(value.shape or ()):
            same = isinstance(found, ir.SymbolicDim) and found.value == dim.value
            if same and (dim.value or axis == at == 0):
                return value, axis
    return None


def initial_values(network: Network) -> dict[str, ir.Model]:
    """Return networks that compute initial values of states that depend on other inputs, by the
    public names of the states. Each has one output.
    """
    found = {}
    for name, node in begun_states(network.ir.graph).items():
        initial = node.inputs[1]
        assert initial is not None
        clone = network.ir.clone()
        extract_subgraph(clone, [str(initial.name)])
        found[name] = clone
    return found
