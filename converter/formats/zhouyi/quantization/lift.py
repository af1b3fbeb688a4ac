"""Quantized layers as float operators between DequantizeLinear and QuantizeLinear.

    x (int8) -> DequantizeLinear -> Conv(weights: DequantizeLinear of int8) -> Relu
             -> QuantizeLinear -> y (uint8)

Layers that only move data keep the quantized values. Recurrent layers, and those whose float form
is not known, take their integer form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.lift import GraphLift
from converter.formats.zhouyi.quantization.context import without_integer_keys
from converter.formats.zhouyi.quantization.quant_params import QuantParams, dequantized, quantized
from converter.formats.zhouyi.quantization.requantize import bits_of, numbers, of_sizes, stated
from converter.formats.zhouyi.quantization.rules import TABLE, keeps_integers
from converter.formats.zhouyi.quantization.weights import WEIGHTED, NumericWeights, with_zero_points
from converter.formats.zhouyi.rules.context import blob_of
from converter.formats.zhouyi.types import is_float
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.value import Value, with_operators
from converter.mapping.conversion_errors import CONVERSION_ERRORS
from converter.mapping.node import Layer as FarLayer

# operands that are positions, lengths or conditions: never quantized numbers
_SECOND = """Gather GatherElements GatherND ScatterND ScatterElements ReverseSequence MaxUnpool
UpsampleByIndex InTopK Compress SegmentReduce Repeat CTCGreedyDecoder"""
_INTEGER_FORMS = {
    **dict.fromkeys(_SECOND.split(), 1),
    **dict.fromkeys(("Where", "OneHot"), 0),
    **dict.fromkeys(("CropAndResize", "RoiAlign"), 2),
}
# gates come from tables whose scales the file does not declare, with 1 as the largest quantized
# value; keys that have another meaning in an integer layer, or data whose scale is ignored
_INTEGER_ONLY = frozenset(
    [
        "BasicLSTM",
        "GRUv1",
        "GRUv3",
        "BoundingBox",
        "MultiboxTransformLoc",
        "RgbToYuv",
        "YuvToRgb",
        "FakeQuantWithMinMaxVars",
        "FractionalPool",
        "GenerateProposals",
        "Proposal",
        "PyramidROIAlign",
        "RoiAlign",
        "Mod",
        "OneHot",
    ]
)
# parameters that the vendor's quantizer takes out of the file: only the table still contains them
_IN_TABLE = {"ELU": "alpha", "CELU": "alpha", "SHRINK": "lambd"}
_STAYS_INTEGER = frozenset({"Logical", "Bitwise", "BitShift", "Shape", "NonZero"})
Params = list[QuantParams | None]


class NumbersLift(GraphLift):
    """Lift quantized layers as real numbers; `reals` maps tensor names to their dequantized values,
    which all consumers share.
    """

    def __init__(self, document: Graph, builder: Builder, outer: GraphLift | None = None) -> None:
        super().__init__(document, builder, outer)
        self.reals: dict[str, ir.Value] = {}

    def _params(self, tensor: Tensor) -> QuantParams | None:
        found = self.params.get(tensor.name)
        if isinstance(found, MappingError):
            raise found
        return found

    def _results(self, layer: Layer) -> Sequence[ir.Value]:
        b, far = self.builder, self._far(layer)
        sources, results = ([self._params(t) for t in ts] for ts in (layer.inputs, layer.outputs))
        around = [*sources, *results]
        if all(p is None or p.indices for p in around) or _moves(far, around):
            return self._moved(far)
        values = [with_operators(v) for v in self._quantized(layer, far, sources, results)]
        factor = 1.0 if self.parser else _merged_factor(far, sources, results)
        if factor != 1.0:
            values[0] = values[0] * factor
        return [
            quantized(b, v, p) if p is not None and is_float(v.dtype) else v
            for v, p in zip(values, results, strict=False)
        ]

    def _quantized(
        self, layer: Layer, far: FarLayer, sources: Params, results: Params
    ) -> Sequence[ir.Value]:
        """Return the results of the layer as real numbers, or its integers if only its integer form
        is known.
        """
        kind, source = far.kind, sources[0] if sources else None
        if kind in ("Cast", "Quantize", "DeQuantize"):
            return [self._real(layer.inputs[0], source)]
        if _is_integer_only(far, source) and not self.parser:
            return self._integer_form(layer, far, sources, results)
        for i, (tensor, params) in enumerate(zip(layer.inputs, sources, strict=True)):
            if _is_number(kind, i, params):
                far.inputs[i] = self._real(tensor, params)
        try:
            return self._numbers(self._float_layer(far, sources, results))
        except CONVERSION_ERRORS:
            if self.parser or kind not in TABLE:
                raise
        return self._integer_form(layer, self._far(layer), sources, results)

    def _integer_form(
        self, layer: Layer, far: FarLayer, sources: Params, results: Params
    ) -> list[ir.Value]:
        """Compute a layer in its integer form, with integers stored in floats."""
        far.inputs = [
            _as_quantized_value(self.builder, self._real(t, p), p)
            for t, p in zip(layer.inputs, sources, strict=True)
        ]
        values = self._integers(layer, far, [ir.DataType.FLOAT] * len(layer.outputs))
        return [_number(with_operators(v), p) for v, p in zip(values, results, strict=True)]

    def _real(self, tensor: Tensor, params: QuantParams | None) -> ir.Value:
        if params is None:
            return self.env[tensor.name]
        if tensor.name not in self.reals:
            self.reals[tensor.name] = dequantized(self.builder, self.env[tensor.name], params)
        return self.reals[tensor.name]

    def _float_layer(self, layer: FarLayer, sources: Params, results: Params) -> FarLayer:
        """Return the layer without the keys of the integer form, its constants as real numbers."""
        plain, result = without_integer_keys(layer), results[0] if results else None
        self._activation_as_numbers(layer, result, plain.attrs, plain.blobs)
        integers = "weights" in plain.blobs and plain.blobs["weights"].dtype.kind in "iu"
        if integers and sources and sources[0] is not None:
            weights = NumericWeights(layer, sources[0], result, self.parser)
            if layer.kind in WEIGHTED:
                b = self.builder
                plain.blobs |= {
                    "weights": weights.weights_value(b),
                    "biases": weights.biases_value(b),
                }
            else:
                plain.blobs |= {"weights": weights.real(), **self._biases(layer, weights)}
        return plain

    def _biases(self, layer: FarLayer, weights: NumericWeights) -> dict[str, Array]:
        """Dequantize the biases of layers without an operand for quantized ones: each row by its
        scale.
        """
        whole = weights.biases() if layer.kind == "BatchNorm" else None
        if whole is not None:
            scales = of_sizes(weights.bias_scales(), "weights_scale", 1, whole.size)
            return {"biases": np.asarray(whole * scales, np.float32)}
        if "biases" not in layer.blobs:
            return {}
        biases = with_zero_points(layer, "biases", self.parser)
        scales = stated(layer, "biases_scale", "biases_scale", 1.0)
        of_sizes(scales, "biases_scale", 1, biases.size)
        numbers = biases * scales if self.parser else biases / scales
        shape = blob_of(layer, "biases").shape
        return {"biases": np.asarray(numbers, np.float32).reshape(shape)}

    def _activation_as_numbers(
        self,
        layer: FarLayer,
        result: QuantParams | None,
        attrs: dict[str, Any],
        blobs: dict[str, Any],
    ) -> None:
        """Dequantize slopes and bounds, which an integer IR stores as integers, in `attrs` and
        `blobs`.
        """
        if self.parser:
            return
        name = layer.attrs.get("with_activation", layer.attrs.get("method"))
        slope = layer.attrs.get("negative_slope_value")
        if name == "LEAKYRELU" and isinstance(slope, int | float) and result is not None:
            shift = layer.attrs.get("negative_slope_shift", result.dtype.bitwidth)
            bits = bits_of(shift, "negative_slope_shift")
            attrs["negative_slope_value"] = float(slope) * 2.0**-bits
        if name == "CLIP" and result is not None:
            finer = 256 if result.dtype.bitwidth <= 8 else 1
            for key in ("clip_min", "clip_max"):
                bound = layer.attrs.get(key)
                if not isinstance(bound, int | float):
                    raise MappingError(
                        f"{key}={bound} is not a valid bound of an activation", "R110"
                    )
                attrs[key] = float(bound) * result.scale / finer
        if "negative_slope" in blobs:
            shift = bits_of(layer.attrs.get("negative_slope_shift", 0), "negative_slope_shift")
            slopes = np.asarray(blobs["negative_slope"], np.float32)
            blobs["negative_slope"] = np.ldexp(slopes, -shift)


def _is_integer_only(far: FarLayer, source: QuantParams | None) -> bool:
    """Return whether only the integer form of a layer determines its result; `source` are the
    parameters of its first operand.
    """
    method = str(far.attrs.get("method", ""))
    hidden = "lut" in far.blobs and _IN_TABLE.get(method, method) not in far.attrs
    return (
        far.kind in _INTEGER_ONLY
        or (far.kind == "Activation" and method in _IN_TABLE and hidden)
        or (far.kind == "LRN" and method == "WITHIN_CHANNEL")
        # by powers of two, which are far from a Softmax
        or (far.kind == "Softmax" and "adjust_q" in far.attrs)
        # products that lose bits one after the other, and no zero point
        or (far.kind.startswith("Scatter") and far.attrs.get("reduction") == "MUL")
        # of negative numbers, which only have powers of integer exponents
        or (far.kind == "Pow" and source is not None and source.low < source.zero)
        or (far.kind == "LayerNorm" and len(far.outputs) > 1)
    )


def _merged_factor(far: FarLayer, sources: Params, results: Params) -> float:
    """Return the ratio between the scale of a product and the scales of its tensors: 8-bit
    multipliers have an error of up to 1/256, and the quantizer merges factors that no other key
    declares, such as the root of the width of attention heads.
    """
    around = [*sources, *results]
    product = far.kind in ("MatMul", "Mul") or (
        far.kind == "Eltwise" and far.attrs.get("method") == "MUL"
    )
    if not product or len(around) != 3 or "scale_value" not in far.attrs:
        return 1.0
    x, y, z = (1.0 if p is None else p.scale for p in around)
    factor = numbers(far, "scale", 1) * 2.0 ** -numbers(far, "shift", 0)
    return float(factor[0]) * z / (x * y)


def _is_number(kind: str, port: int, params: QuantParams | None) -> bool:
    """Return whether input `port` of a layer is read as quantized numbers."""
    whole = kind in _STAYS_INTEGER or _INTEGER_FORMS.get(kind) == port
    return params is not None and not params.indices and not whole


def _moves(layer: FarLayer, around: Params) -> bool:
    """Return whether the layer moves quantized values: the result has scale and zero point of the
    first operand, or none.
    """
    first = around[0] if around else None
    others = [p for p in around if p is not None and not p.indices]
    same = all(first is None or (p.scale, p.zero) == (first.scale, first.zero) for p in others)
    return keeps_integers(layer) and same


def _as_quantized_value(b: Builder, value: ir.Value, params: QuantParams | None) -> ir.Value:
    """Return a real number as a float that holds the quantized value."""
    if params is None or params.plain:
        return value
    whole = b.Round(with_operators(value) / params.scale)
    return whole + params.zero if params.zero else whole


def _number(value: Value, params: QuantParams | None) -> Value:
    """Return the real number of a quantized value stored as a float."""
    if params is None or params.plain or value.dtype != ir.DataType.FLOAT:
        return value
    return (value - params.zero if params.zero else value) * params.scale
