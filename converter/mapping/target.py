"""Constraints of a format and its engines on a graph that do not depend on its operators."""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import shape_of
from converter.graph.names import public_name
from converter.graph.shapes import freezing
from converter.graph.walk import all_nodes
from converter.mapping.lowering import refusal
from converter.record import record

NOT_A_TENSOR = {ir.SequenceType: "a sequence", ir.OptionalType: "an optional value"}


@record
class Target:
    """Properties of a network that no rewriting changes, and that a format supports or refuses.

    `name`         the format, as refusals call it
    `types`        of inputs and outputs; None: every tensor
    `floats_only`  the engine that computes integers in float32, which is exact up to 24 bits; "" if
                   there is none
    `fed`          the engine that requires at least one input; "" if none is required
    """

    name: str = ""
    types: Container[ir.DataType] | None = None
    floats_only: str = ""
    fed: str = ""

    def refusals(self, model: ir.Model) -> list[Diagnostic]:
        """Return X202 for everything that the target cannot represent.

        Shapes are not checked here: see `dynamic_values`, which runs after loops are unrolled.
        """
        found = [
            Diagnostic(
                "X202",
                f"{side} {public_name(value)} is {what}, which {self.name} does not support",
                where=_where(value),
            )
            for side, values in (("input", model.graph.inputs), ("output", model.graph.outputs))
            for value in values
            if (what := self._foreign(value))
        ]
        if self.floats_only:
            found += demand_exact_integers(model, self.floats_only)
        if self.fed and not model.graph.inputs:
            message = f"the network has no inputs, but {self.fed} needs at least one"
            found.append(Diagnostic("X202", message))
        return found

    def _foreign(self, value: ir.Value) -> str:
        """Return a description of an input or output that the target does not support; "" if it
        does.
        """
        for type_, what in NOT_A_TENSOR.items():
            if isinstance(value.type, type_):
                return what
        dtype = value.dtype
        known = self.types is None or dtype is None or dtype in self.types
        return "" if known or dtype is None else dtype.name


def demand_exact_integers(model: ir.Model, target: str) -> list[Diagnostic]:
    """Return X202 for hashes, which need every bit of an integer, in a target that computes in
    float32.
    """
    message = (
        f"the hashes need 32-bit integers, but {target} computes in float32, "
        "which represents 24 bits"
    )
    return [
        refusal(n, MappingError(message, "X202"))
        for n in all_nodes(model.graph)
        if n.domain == EXTENSION_DOMAIN and n.op_type == "LSHProjection"
    ]


def dynamic_values(model: ir.Model) -> list[Diagnostic]:
    """Return X203 for every value without a static shape.

    Inputs are reported first; other values only if all inputs are static.
    """
    dynamic = [v for v in model.graph.inputs if shape_of(v) is None]
    help = "fix the inputs with --inputs NAME:1,3,224,224"
    if not dynamic:
        dynamic = [
            o
            for n in all_nodes(model.graph)
            for o in n.outputs
            if isinstance(o.type, ir.TensorType | None)
            and shape_of(o) is None
            and (o.uses() or (o.is_graph_output() and o.shape is not None))
        ]
        wanted = freezing(dynamic)
        help = (
            f"a value that determines its size can be fixed, too: {wanted}"
            if wanted
            else "its size does not depend on the shapes of the inputs alone"
        )
    return [
        Diagnostic(
            "X203",
            f"{public_name(v)} has the shape {v.shape}, but the target needs static shapes",
            where=_where(v),
            help=help,
        )
        for v in dynamic
    ]


def _where(value: ir.Value) -> Where:
    node = value.producer()
    props = node.metadata_props if node is not None else {}
    return Where(
        layer=props.get("netconv.layer", value.name or ""),
        kind=node.op_type if node is not None else "input",
    )
