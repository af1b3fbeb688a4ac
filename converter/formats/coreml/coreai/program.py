"""Operations -> the text of a module, and the weights that become its resources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.bits import Packed
from converter.formats.coreml.compressed import Scattered
from converter.formats.coreml.coreai.collector import (
    Composite,
    CoreAILowering,
    composite_of,
    operands_of,
)
from converter.formats.coreml.coreai.elements import INLINE, STORED_BITS, dense, type_text
from converter.graph.infer import Array
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.mapping.node import Layer

D = ir.DataType
TOKEN = "!coreai.token"
# operations whose broadcasting form is in a separate namespace
_ENCODING = "#coreai.sparse_tensor_encoding<bitmask, numNonZero = %d, posWidth = 1, crdWidth = 1>"
_DECOMPOSABLE = "broadcasting_"
# a further parameter of an operation: how updates are combined
_REGIONS = {"scatter_nd": "({{^bb0(%a: {0}, %b: {0}): {1}(%b) : ({0}) -> ()}})"}


class Program:
    """The text of one function. Constants precede all operations; equal weights share one
    constant.
    """

    def __init__(self, low: CoreAILowering) -> None:
        self.low = low
        self.resources: dict[str, LazyTensor] = {}
        self._resource_of: dict[tuple[LazyTensor, str], str] = {}
        self._numbers: dict[Any, str] = {}
        self._constants: dict[str, str] = {}
        self.graphs: dict[str, str] = {}  # the text of a graph without its name -> its name

    def name(self, value: Any) -> str:
        """Return the name of a value in the text, `%` and a number."""
        return self._numbers.setdefault(value, f"%{len(self._numbers)}")

    def rename(self, value: Any, name: str) -> None:
        """Set the name of a value in the text."""
        self._numbers[value] = name

    def type_of(self, value: ir.Value) -> str:
        """Return the text of a value's type. Raises MappingError for types that Core AI lacks."""
        sizes = None if value.shape is None else list(value.shape)
        if value.const_value is not None:
            sizes = list(value.const_value.shape.numpy())
        try:
            return type_text(self.low.carried(value), sizes, _word(value))
        except MappingError as e:
            raise MappingError(f"{value.name}: {e}", e.code, e.help) from None

    def constants(self, layers: Sequence[Layer], results: Sequence[ir.Value]) -> list[str]:
        """Return a line for each constant that operations and results read."""
        lines = []
        for value in dict.fromkeys([*operands_of(layers), *results]):
            if value.const_value is None or value in self._numbers:
                continue
            if (given := scattered_in(value)) is not None:
                lines += self._sparse(value, given)
                continue
            text = self._elements(value)
            if text in self._constants:
                self._numbers[value] = self._constants[text]
                continue
            self._constants[text] = self.name(value)
            lines.append(self._constant(value, text))
        return lines

    def _sparse(self, value: ir.Value, given: Scattered) -> list[str]:
        """Write a constant as its nonzero elements, and a bit for each element."""
        parts = [ir.Value(name=value.name, type=value.type) for _ in range(2)]
        parts[0].const_value = LazyTensor(np.ascontiguousarray(given.values.reshape(-1)))
        parts[1].const_value = given.mask.decoded().called("ui1")
        if value in self.low.exact:
            self.low.exact.add(parts[0])
        kind, built = self.type_of(value), self.name(object())
        encoded = f"{kind.removesuffix('>')}, {_ENCODING % given.values.size}>"
        names, types = (", ".join(map(f, parts)) for f in (self.name, self.type_of))
        dense = self.name(value)
        return [
            *map(self._constant, parts),
            f'{built} = "coreai.build_sparse_with_bitmask"({names}) : ({types}) -> {encoded}',
            f'{dense} = "coreai.sparse_with_bitmask_to_dense"({built}) : ({encoded}) -> {kind}',
        ]

    def _constant(self, value: ir.Value, text: str = "") -> str:
        text = text or self._elements(value)
        made = f'{self.name(value)} = "coreai.constant"() <{{value = {text}}}>'
        return f"{made} : () -> {self.type_of(value)}"

    def _elements(self, value: ir.Value) -> str:
        """Return the elements of a constant in the text, or the name of their resource."""
        assert value.const_value is not None
        dtype, tensor = self.low.carried(value), value.const_value
        if tensor.dtype == D.STRING:
            raise MappingError("Core AI does not support strings")
        lazy = LazyTensor.of(tensor)
        if word := _word(value):
            bits = STORED_BITS[word]
            stored = lazy.derived(Packed(bits), D.UINT8, [-(-lazy.size * bits // 8)])
            return self._resource((lazy, word), stored, self.type_of(value))
        if lazy.dtype != dtype:
            lazy = lazy.derived(_halved if dtype == D.FLOAT16 else Converted(dtype), dtype)
        if lazy.size * dtype.numpy().itemsize <= INLINE or _is_splat(lazy):
            array = lazy.numpy().astype(dtype.numpy())
            small = array.reshape(-1)[:1] if array.size > INLINE else array
            text = dense(small, dtype)
            return (
                text if small is array else f"{text.rpartition(' : ')[0]} : {self.type_of(value)}"
            )
        kind = self.type_of(value)
        return self._resource((lazy, kind), lazy, kind)

    def _resource(self, key: tuple[LazyTensor, str], stored: LazyTensor, kind: str) -> str:
        """Store the bytes of a constant under a name, which is returned; equal constants are stored
        once.
        """
        if key not in self._resource_of:
            self._resource_of[key] = f"w{len(self.resources)}"
            self.resources[self._resource_of[key]] = stored
        return f"dense_resource<{self._resource_of[key]}> : {kind}"

    def lines(self, layers: Sequence[Layer]) -> Iterator[str]:
        """Yield the text of each layer."""
        for layer in layers:
            yield self._operation(layer)

    def _operation(self, layer: Layer) -> str:
        kind = "invoke" if composite_of(layer) else layer.kind
        full = f"coreai.decomposable.{kind}" if kind.startswith(_DECOMPOSABLE) else f"coreai.{kind}"
        operands = [v for v in layer.inputs if v is not None]
        given = ", ".join(map(self.name, operands))
        types = ", ".join(map(self.type_of, operands))
        results = ", ".join(map(self.type_of, layer.outputs))
        attrs = ", ".join(f"{k} = {_attribute(v)}" for k, v in layer.attrs.items())
        if (graph := composite_of(layer)) is not None:
            attrs = f"callee = #param.constant<@{self._called(graph)}> : !param.symbol"
        made = self._made(layer.outputs)
        parts = [f'{made}"{full}"({given})', f"<{{{attrs}}}>" if attrs else ""]
        if kind in _REGIONS:
            scalar = type_text(self.low.carried(operands[0]), [])
            parts.append(_REGIONS[kind].format(scalar, '"coreai.yield"'))
        if layer.extra:
            parts.append(f"({', '.join(self._block(*b) for b in layer.extra)})")
        place = f" loc({json.dumps(layer.name, ensure_ascii=False)}:0:0)" if layer.name else ""
        return " ".join(p for p in parts if p) + f" : ({types}) -> ({results}){place}"

    def _called(self, graph: Composite) -> str:
        """Return the name of a private graph; graphs with the same text are merged."""
        p = Program(graph.low)
        p.resources, p._resource_of = self.resources, self._resource_of
        given = ", ".join(f"{p.name(v)}: {p.type_of(v)}" for v in graph.inputs)
        lines = p.constants(graph.low.layers, graph.results)
        lines += [*p.lines(graph.low.layers), p.end("output", graph.results)]
        quoted = ", ".join(map(json.dumps, graph.names))
        attrs = (
            f"arg_attrs = {interface(graph.names)}, "
            f'composite_decl = #coreai.composite_declaration<"{graph.kind}" = '
            f"{{input_names = [{quoted}], op_attrs = {{{graph.attributes}}}, "
            'output_names = ["output"]}>, '
            f"function_type = ({', '.join(map(p.type_of, graph.inputs))}) -> "
            f"({', '.join(map(p.type_of, graph.results))}), no_inline, "
            "param_decls = #param.decl.array<[]>, priv, res_attrs = [{}], sym_name = "
        )
        body = "\n".join([f"^bb0({given}):", *lines])
        text = f'"coreai.graph"() <{{{attrs}"%s"}}> ({{\n{body}\n}}) : () -> ()'
        return self.graphs.setdefault(text, f"{graph.kind}_{len(self.graphs)}")

    def private_graphs(self) -> list[str]:
        """Return the graphs that operations call."""
        return [text.replace('"%s"', f'"{name}"') for text, name in self.graphs.items()]

    def _made(self, outputs: Sequence[ir.Value]) -> str:
        """Return the left side of an operation's text; results of one operation are numbered
        together.
        """
        if not outputs:
            return ""
        if len(outputs) == 1:
            return f"{self.name(outputs[0])} = "
        group = self.name(object())
        for i, value in enumerate(outputs):
            self._numbers[value] = f"{group}#{i}"
        return f"{group}:{len(outputs)} = "

    def _block(
        self, layers: list[Layer], inputs: Sequence[ir.Value], end: str, results: Sequence[ir.Value]
    ) -> str:
        given = ", ".join(f"{self.name(v)}: {self.type_of(v)}" for v in inputs)
        head = f"^bb0({given}):\n" if inputs else ""
        lines = [*self.lines(layers), self.end(end, results)]
        return "{\n" + head + "\n".join(lines) + "\n}"

    def end(self, kind: str, results: Sequence[ir.Value], tokens: Sequence[str] = ()) -> str:
        """Return the text of an operation that ends a block."""
        names = [*tokens, *map(self.name, results)]
        types = [*[TOKEN] * len(tokens), *map(self.type_of, results)]
        return f'"coreai.{kind}"({", ".join(names)}) : ({", ".join(types)}) -> ()'


def scattered_in(value: ir.Value) -> Scattered | None:
    """Return the sparse constant that has only the nonzero elements, if that is shorter."""
    tensor = value.const_value
    given = tensor.source if isinstance(tensor, LazyTensor) else None
    if not isinstance(given, Scattered) or given.mask.size <= INLINE * 8:
        return None
    size = given.values.dtype.itemsize
    shorter = given.values.nbytes + given.mask.size // 8 < given.mask.size * size
    return given if shorter and given.values.size else None


def _word(value: ir.Value) -> str:
    """Return the type of a constant that is stored in fewer bits than any type of the graph."""
    tensor = value.const_value
    word = tensor.element if isinstance(tensor, LazyTensor) else ""
    return word if word in STORED_BITS else ""


def interface(names: Sequence[str]) -> str:
    """Return the attributes that name inputs or outputs."""
    entries = (f"{{coreai.name = {json.dumps(n, ensure_ascii=False)}}}" for n in names)
    return f"[{', '.join(entries)}]"


def _halved(array: Array) -> Array:
    """Return numbers in half precision. Numbers that overflow, such as the lowest float in a mask,
    are clamped to the largest number: infinity times 0 would be NaN.
    """
    largest = float(D.FLOAT16.max)
    return np.where(np.isinf(array), array, np.clip(array, -largest, largest)).astype(np.float16)


def _is_splat(tensor: LazyTensor) -> bool:
    """Return whether all elements of a small constant are equal; large ones are not checked."""
    if tensor.size > 1 << 12 or callable(tensor.source):
        return False
    data = tensor.numpy().reshape(-1)
    return bool((data == data[0]).all()) and not bool(np.signbit(data[0].astype(np.float64)))


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value} : i32" if isinstance(value, int) else str(value)
