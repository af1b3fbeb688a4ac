"""Lifting a list of layers into a graph, with all refusals collected, and the declaration of the
operators of a format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError, Where
from converter.graph import custom
from converter.graph.build import Builder
from converter.mapping.codecs import PLAIN, Codec, Kind
from converter.mapping.context import LiftContext, LowerContext
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer
from converter.mapping.rules import Table
from converter.mapping.target import Target
from converter.record import record


@record
class FormatMapping:
    """The operators of a format.

    `table`          rows and custom converters
    `target`         the constraints on a graph that do not depend on operators
    `spelling`       how the format spells a value of a Python type
    `channels_last`  the format's layout-sensitive layers are channels-last
    `reading`, `writing`: the contexts of its layers
    `lowering`       collects the layers that are written
    `custom`         the domain of layers of other kinds, which may be carried; "" for none
    """

    table: Table
    target: Target = field(default_factory=Target)
    channels_last: bool = False
    spelling: Mapping[Kind, Codec] = field(default_factory=lambda: PLAIN)
    reading: type[LiftContext] = LiftContext
    writing: type[LowerContext] = LowerContext
    lowering: type[Lowering] = Lowering
    custom: str = ""

    def reason_against(self, node: ir.Node, version: int = 0) -> MappingError | None:
        """Return the reason why no row can lower `node` as it is, or None if one can.

        The rows define which operators are legal: they are applied to a layer that is then
        discarded.
        """
        try:
            self.lowering(self, version).lower(node)
        except MappingError as e:
            return e
        return None


def refuse(problems: Sequence[Diagnostic]) -> None:
    """Raise UnsupportedError with all of `problems`, if any."""
    errors = [d for d in problems if d.level == "error"]
    if errors:
        raise UnsupportedError(errors)


class Lifting:
    """Lift layers one after the other into `builder`.

    A layer that cannot be lifted is recorded in `problems`; layers that depend on it are skipped
    silently.
    """

    def __init__(
        self, mapping: FormatMapping, builder: Builder, format: str, version: int = 0
    ) -> None:
        self.mapping, self.builder, self.format, self.version = mapping, builder, format, version
        self.problems: list[Diagnostic] = []
        self.foreign = ""  # the set of operators of the current layer, if it is not the format's

    def reading(self, layer: Layer) -> LiftContext:
        """Return the context in which a layer is lifted."""
        m = self.mapping
        return m.reading(layer, self.builder, self.version, m.spelling, m.channels_last)

    def layer(self, layer: Layer) -> list[ir.Value] | None:
        """Return the output values of `layer`, or None if it was refused (see `problems`)."""
        b, where = self.builder, layer.where
        place = str(where.path or where.line or "")
        with b.provenance(format=self.format, layer=layer.name, type=layer.kind, where=place):
            try:
                return self.lift(layer)
            except CONVERSION_ERRORS as e:
                code, message, help = code_message_help(e)
                self.refuse(layer, message, code, help)
        return None

    def lift(self, layer: Layer) -> list[ir.Value]:
        """Return the results of `layer` by the table; raise MappingError if it is refused."""
        if self.foreign or not self.mapping.table.reads(layer.kind):
            return self.unknown(layer)
        return self.mapping.table.lift(self.reading(layer))

    def unknown(self, layer: Layer) -> list[ir.Value]:
        """Return the results of a layer of a kind that the table does not have: of its body, if the
        user defines one, or carried.
        """
        if not self.mapping.custom:
            return self.mapping.table.lift(self.reading(layer))
        declared = [(v.dtype, v.shape) for v in layer.outputs]
        domain = self.foreign or self.mapping.custom
        found = custom.unknown_operator(
            self.builder, layer.kind, layer.inputs, layer.attrs, declared, domain
        )
        if found is None:
            whose = f"{layer.kind} of the operation set {self.foreign}" if self.foreign else ""
            message = f"{whose} is unknown" if whose else f"{layer.kind} has no counterpart"
            raise MappingError(message, "X201", custom.HELP)
        return found

    @contextlib.contextmanager
    def noting(self, where: Where) -> Iterator[None]:
        """Record conversion errors raised inside in `problems`, with their location."""
        try:
            yield
        except CONVERSION_ERRORS as e:
            code, message, help = code_message_help(e)
            self.problems.append(Diagnostic(code, message, where=where, help=help))

    def refuse(self, layer: Layer, message: str, code: str, help: str = "") -> None:
        """Record the refusal of a layer, with its location and the shapes of its inputs."""
        shapes = tuple(f"{v.name} {v.dtype}{v.shape}" for v in layer.inputs if v is not None)
        where = layer.where
        if not where.layer:
            where = Where(where.file, where.line, where.path, layer.name, layer.kind)
        self.problems.append(Diagnostic(code, message, where=where, evidence=shapes, help=help))
