"""Driving a table over a whole model: every layer lifted, every node lowered, all refusals at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.errors import UnsupportedError
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder, attrs_of
from converter.graph.channels_last import base_domain, is_last
from converter.graph.infer import InferenceError
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.table import Table
from converter.mapping.trouble import TROUBLE, told

LiftSpecial = Callable[[Layer, Builder], "ir.Value | Sequence[ir.Value]"]
LowerSpecial = Callable[[Node, "Lowering"], None]


@dataclass(frozen=True)
class FormatMapping:
    """Everything a format knows about operators: rows, and the pairs that no row can say."""

    table: Table
    lift_special: Mapping[str, LiftSpecial] = field(default_factory=dict)
    lower_special: Mapping[tuple[str, str], LowerSpecial] = field(default_factory=dict)
    channels_last: bool = False  # the format's layout-sensitive layers are channels-last


def refuse(problems: Sequence[Diagnostic]) -> None:
    """Raises UnsupportedError with all of `problems`, if any."""
    errors = [d for d in problems if d.level == "error"]
    if errors:
        raise UnsupportedError(errors)


class Lifting:
    """Lifts layers one after the other into `builder`; `env` maps the format's tensor names to values.

    A layer that cannot be lifted is noted in `problems`; layers that depend on it are passed over silently.
    """

    def __init__(self, mapping: FormatMapping, builder: Builder, format: str, version: int = 0) -> None:
        self.mapping, self.builder, self.format, self.version = mapping, builder, format, version
        self.problems: list[Diagnostic] = []

    def layer(self, layer: Layer) -> list[ir.Value] | None:
        """The output values of `layer`, or None when it was refused (see `problems`)."""
        b = self.builder
        with b.provenance(format=self.format, layer=layer.name, type=layer.kind, where=str(layer.where.path or layer.where.line or "")):
            try:
                special = self.mapping.lift_special.get(layer.kind)
                if special is not None:
                    results = special(layer, b)
                    return [results] if isinstance(results, ir.Value) else list(results)
                return list(self._row(layer))
            except TROUBLE as e:
                code, message, help = told(e)
                self.refuse(layer, message, code, help)
        return None

    def _row(self, layer: Layer) -> Sequence[ir.Value]:
        near = self.mapping.table.lift(layer, self.builder, self.version)
        if self.mapping.channels_last:
            domain = twin_domain(near)
            extra = {"base_domain": near.domain} if domain == CHANNELS_LAST_DOMAIN and near.domain else {}
            return self.builder.ops(near.op, *near.inputs, domain=domain, outputs=max(1, len(layer.outputs)), **near.attrs, **extra)
        return self.builder.ops(near.op, *near.inputs, domain=near.domain, outputs=max(1, len(layer.outputs)), **near.attrs)

    def refuse(self, layer: Layer, message: str, code: str, help: str = "") -> None:
        shapes = tuple(f"{v.name} {v.dtype}{v.shape}" for v in layer.inputs if v is not None)
        where = layer.where if layer.where.layer else Where(layer.where.file, layer.where.line, layer.where.path, layer.name, layer.kind)
        self.problems.append(Diagnostic(code, message, where=where, evidence=shapes, help=help))


def twin_domain(near: Node) -> str:
    from converter.graph.channels_last import LAYOUT_SENSITIVE

    return CHANNELS_LAST_DOMAIN if (near.domain, near.op) in LAYOUT_SENSITIVE else near.domain


class Lowering:
    """Collects the far layers of a graph. Special pairs add layers with `add`."""

    def __init__(self, mapping: FormatMapping, version: int = 0) -> None:
        self.mapping, self.version = mapping, version
        self.layers: list[Layer] = []
        self.problems: list[Diagnostic] = []
        self._name = ""
        self._count = 0

    def add(
        self,
        kind: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        attrs: dict[str, Any] | None = None,
        blobs: dict[str, Any] | None = None,
        extra: Any = None,
    ) -> Layer:
        layer = Layer(kind, self._name, dict(attrs or {}), dict(blobs or {}), list(inputs), list(outputs), extra=extra)
        self.layers.append(layer)
        return layer

    def value(self, name: str, dtype: ir.DataType | None, shape: Iterable[Any] | None) -> ir.Value:
        """A new intermediate value between two layers of one node."""
        self._count += 1
        return ir.Value(name=f"{name}.{self._count}", type=ir.TensorType(dtype) if dtype else None, shape=None if shape is None else ir.Shape(shape))

    def node(self, node: ir.Node) -> None:
        """Appends the layers of `node`, or notes why it has none."""
        mark = len(self.layers)
        try:
            self.lower(node)
        except MappingError as e:
            del self.layers[mark:]
            self.problems.append(refusal(node, e))

    def lower(self, node: ir.Node) -> None:
        self._name = node.metadata_props.get("netconv.layer") or node.name or node.op_type
        try:
            self.lower_near(near_of(node))
        except InferenceError as e:  # a table that would be too large, mostly
            raise MappingError(str(e)) from None
        except MemoryError:
            raise MappingError("what stands for it is too large to be written out") from None

    def lower_near(self, near: Node) -> None:
        """Appends the layers of an operator that need not stand in any graph."""
        special = self.mapping.lower_special.get((near.domain, near.op))
        if special is not None:
            special(near, self)
            return
        layer = self.mapping.table.lower(near, self.version)
        layer.name = self._name
        self.layers.append(layer)


def near_of(node: ir.Node) -> Node:
    """The detached view of a graph node that rows and special pairs look at."""
    attrs = {k: v for k, v in attrs_of(node).items() if k != "base_domain"}
    return Node(node.op_type, base_domain(node), attrs, list(node.inputs), list(node.outputs), is_last(node))


def reason_against(mapping: FormatMapping, node: ir.Node, version: int = 0) -> MappingError | None:
    """Why `node` cannot be lowered as it is; None when it can. A dry run of the same code that lowers."""
    try:
        Lowering(mapping, version).lower(node)
    except MappingError as e:
        return e
    return None


def refusal(node: ir.Node, error: MappingError) -> Diagnostic:
    props = node.metadata_props
    place = props.get("netconv.where", "")  # a line, or a path inside the file
    line, path = (int(place), "") if place.isdecimal() and place.isascii() and len(place) < 10 else (0, place)
    where = Where(line=line, path=path, layer=props.get("netconv.layer") or node.name or "", kind=props.get("netconv.type") or node.op_type)
    shapes = tuple(f"{v.name} {v.dtype}{v.shape}" for v in node.inputs if v is not None)
    return Diagnostic(error.code, f"{node.op_type}: {error}", where=where, evidence=shapes, help=error.help)
