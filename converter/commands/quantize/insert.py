"""Write scales into a graph: QuantizeLinear and DequantizeLinear, or FakeQuantize."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.bias import Rounded
from converter.commands.quantize.blocks import nonzero
from converter.commands.quantize.place import Placement, computed, data_inputs, is_depthwise, key
from converter.commands.quantize.scales import BITS, Range, Scale, whole
from converter.formats.integers import Integers
from converter.graph.build import Builder
from converter.graph.infer import Array, constant
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import operand, optional
from converter.graph.walk import replace_outputs
from converter.passes.fuse_constants import channel_axis

D = ir.DataType
_SELECTS = ("Max", "Min")
# in units of the scale of data times that of weights; int32 holds twice that
LARGEST_BIAS = 2.0**30


def insert(
    model: ir.Model,
    placed: Placement,
    ranges: Mapping[str, Range],
    rules: Integers,
    dtype: str,
    wide: Collection[str] = (),
) -> Rounded:
    """Quantize a graph in place; return nodes with their data and weights as they were, which are
    still in the graph. Values that have no range are left as they are. `wide`: the layers of 16
    bits.
    """
    writer = _Insertion(model, placed, ranges, rules, dtype)
    writer.choose_scales({placed.layers[n] for n in wide})
    for node in list(model.graph):
        if key(node) in placed.nodes:
            writer.constants(node)
            writer.requantize(node)
    for name, value in writer.values.items():
        writer.activation(name, value)
    model.graph.sort()
    return writer.rounded


class _Insertion:
    def __init__(
        self,
        model: ir.Model,
        placed: Placement,
        ranges: Mapping[str, Range],
        rules: Integers,
        dtype: str,
    ) -> None:
        self.placed, self.ranges, self.rules, self.dtype = placed, ranges, rules, dtype
        graph = model.graph
        self.b = Builder(graph, Names(model))
        everything = [*graph.inputs, *(v for n in graph for v in n.outputs)]
        self.values = {str(v.name): v for v in everything if v.name in placed.groups}
        self.scales: dict[str, Scale] = {}
        self.scale_in: dict[str, Callable[[str], Scale]] = {}  # of a value, in another type
        self.rounded: list[tuple[ir.Node, ir.Value, ir.Value]] = []
        self.bounds: dict[tuple[tuple[int, ...], bytes], ir.Value] = {}  # of FakeQuantize

    def choose_scales(self, wide: Collection[str]) -> None:
        """Choose one scale for each group of values; `wide` values have 16 bits."""
        members: dict[str, list[str]] = {}
        for name in self.placed.groups:
            members.setdefault(self.placed.group(name), []).append(name)
        for names in members.values():
            if (of := self._scales(names)) is not None:
                scale = of("int16" if {*names} & {*wide} else self.dtype)
                self.scales.update(dict.fromkeys(names, scale))
                self.scale_in.update(dict.fromkeys(names, of))

    def _scales(self, names: list[str]) -> Callable[[str], Scale] | None:
        """Return the scale of values that have one in common, as a function of its type."""
        fixed = [self.placed.fixed[n] for n in names if n in self.placed.fixed]
        found = [self.ranges[n] for n in names if n in self.ranges]
        if fixed:
            return partial(_fixed, *fixed[0])
        if not found:
            return None
        alone = len(names) == 1 and self._feeds_channels(names[0])
        return (found[0] if alone else whole(*found)).scale

    def _feeds_channels(self, name: str) -> bool:
        """Return whether only depthwise convolutions read a value."""
        readers = [u.node for u in self.values[name].uses() if key(u.node) in self.placed.nodes]
        return all(map(is_depthwise, readers))

    def pair(self, value: ir.Value, scale: Scale) -> ir.Value:
        """Return the numbers of a value after quantization."""
        b = self.b
        if self.rules.fake:
            first, last = BITS[scale.dtype]
            ends = [self.bound(scale.numbers(n)) for n in (first, last)]
            return b.FakeQuantize(value, *ends, *ends, levels=last - first + 1)
        given = scale.step, scale.zero.astype(scale.dtype)
        return b.DequantizeLinear(b.QuantizeLinear(value, *given), *given)

    def bound(self, numbers: Array) -> ir.Value:
        """Return a constant, the same for the same numbers: most results of Relu begin at 0."""
        array = numbers.astype(np.float32)
        key = array.shape, array.tobytes()
        if key not in self.bounds:
            self.bounds[key] = self.b.const(array)
        return self.bounds[key]

    def activation(self, name: str, value: ir.Value) -> None:
        """Quantize a value for the nodes that compute on integers, or for all users."""
        scale, producer = self.scales.get(name), value.producer()
        keeps = self.rules.fake and producer is not None and self._keeps_numbers(producer)
        if scale is None or keeps:
            return
        owned, uses = name in self.placed.owned, list(value.uses())
        made = self.pair(value, scale)
        for use in uses:
            if owned or key(use.node) in self.placed.nodes:
                use.node.replace_input_with(use.idx, made)
        if owned:  # the value with the name has the numbers of the file
            value.name = self.b.names.fresh("real")
            made.name = name
            if value.is_graph_output():
                made.metadata_props.update(value.metadata_props)
                value.metadata_props.clear()
                replace_outputs(value, made)

    def _keeps_numbers(self, node: ir.Node) -> bool:
        """Return whether the results of a node are quantized numbers, as its operands are."""
        moves = node.op_type in self.rules.moves and key(node) in self.placed.nodes
        return moves and node.op_type != "Resize"

    def requantize(self, node: ir.Node) -> None:
        """Give operands the scale of the result, where they have another type of integers, or a
        fixed scale.
        """
        result = self.scales.get(self.placed.layers.get(key(node), key(node)))
        for i, name in computed(node):
            value, own = node.inputs[i], self.scales.get(name)
            if value is None or own is None or result is None:
                continue
            if (key(node), i) in self.placed.again:
                node.replace_input_with(i, self.pair(value, result))
            elif own.dtype != result.dtype:
                node.replace_input_with(i, self.pair(value, self.scale_in[name](result.dtype)))

    # constants -----------------------------------------------------------------------------------

    def constants(self, node: ir.Node) -> None:
        """Quantize weights, for each channel where that is possible, and other constant
        operands.
        """
        weighted = node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
        for i in {*data_inputs(node), *((1,) if weighted else ())}:
            value = optional(node, i)
            array = constant(value)
            if value is None or array is None:
                continue
            if weighted and i == 1:
                made = self._weights(node, value, array)
                self.rounded.append((node, operand(node), value))
            else:
                made = self._constant(value, array, self._scale_of(node, array))
            node.replace_input_with(i, made)

    def _scale_of(self, node: ir.Node, array: Array) -> Scale:
        result = self.scales.get(self.placed.layers.get(key(node), key(node)))
        if result is not None and (node.op_type in self.rules.moves or node.op_type in _SELECTS):
            return result  # larger numbers than those of the result are clipped, and never selected
        dtype = self.dtype if result is None else result.dtype
        return Range(array.min(initial=0), array.max(initial=0)).scale(dtype)

    def _weights(self, node: ir.Node, value: ir.Value, array: Array) -> ir.Value:
        """Symmetric 8 bits. Scales are so large that the bias fits into 32 bits."""
        kind = node.op_type
        batched = kind == "MatMul" and array.ndim > 2
        grouped = kind == "ConvTranspose" and node.attributes.get_int("group", 1) != 1
        single = kind not in self.rules.per_channel or batched or grouped
        axis = None if single else channel_axis(node)
        rest = tuple(i for i in range(array.ndim) if i != axis)
        largest = np.abs(array).max(axis=rest, initial=0)
        bias, data = constant(optional(node, 2)), self.scales.get(str(operand(node).name))
        if bias is not None and data is not None and not self.rules.fake:
            size = np.abs(bias).astype(np.float64) / (float(data.step) * LARGEST_BIAS)
            largest = np.maximum(largest, 127 * (size.max(initial=0) if axis is None else size))
        steps = nonzero(np.asarray(largest / 127, np.float32))
        return self._constant(value, array, Scale(steps, np.zeros(steps.shape, int), "int8"), axis)

    def _constant(
        self, value: ir.Value, array: Array, scale: Scale, axis: int | None = None
    ) -> ir.Value:
        line = () if axis is None else [-1 if i == axis else 1 for i in range(array.ndim)]
        spread = replace(scale, step=scale.step.reshape(line), zero=scale.zero.reshape(line))
        integers = partial(_integers, array, spread)
        tensor = LazyTensor(integers, D.from_numpy(np.dtype(scale.dtype)), array.shape)
        zeros = scale.zero.astype(scale.dtype) if scale.zero.any() or not self.rules.fake else None
        stored = self.b.const(tensor, str(value.name))
        return self.b.DequantizeLinear(stored, scale.step, zeros, axis=axis)


def _fixed(low: float, high: float, dtype: str) -> Scale:
    """Return the scale that a kernel dictates."""
    if dtype == "int16":
        step = np.float32(2.0 ** np.ceil(np.log2(max(-low, high))) / 32768)
        return Scale(np.asarray(step), np.asarray(0), dtype)
    return Range(low, high).scale(dtype)


def _integers(array: Array, scale: Scale) -> Array:
    return scale.stored(array).astype(scale.dtype)
