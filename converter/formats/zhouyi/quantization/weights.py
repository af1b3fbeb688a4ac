"""Stored weights of quantized layers.

Integers          read: the integers in the file, without zero points
Weights           read: DequantizeLinear of these integers, or their real numbers
StoredWeights     written: integers in the format's order, scales and zero points
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.constants import QuantizedConstant
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.requantize import (
    INT32,
    limits_of_bits,
    numbers,
    of_sizes,
    within,
    zeros_of,
)
from converter.formats.zhouyi.rules.context import blob_of
from converter.formats.zhouyi.rules.convolution import CONV_2D, CONV_3D, DECONV_2D, DECONV_3D
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.node import Layer

# kinds whose weights may stay integers, and the order of their axes
WEIGHTED: dict[str, tuple[int, ...]] = {
    "Convolution": CONV_2D,
    "DepthwiseConv": CONV_2D,
    "Convolution3D": CONV_3D,
    "ConvTranspose": DECONV_2D,
    "ConvTranspose3D": DECONV_3D,
    "FullyConnected": (1, 0),
}
NORMS = frozenset({"LayerNorm", "InstanceNorm", "GroupNorm"})
WINOGRAD = "weights in Winograd form are not supported"


def with_zero_points(layer: Layer, name: str, parser: bool = False) -> Array:
    """Return the numbers of a constant, flattened, with `NAME_zp` added to all of them or to each;
    files of the parser have ONNX's zero points.
    """
    array = blob_of(layer, name).reshape(-1).astype(np.float64)
    zeros = of_sizes(zeros_of(layer, name), f"{name}_zp", 1, array.size)
    return np.asarray(array - zeros if parser else array + zeros)


@dataclass(eq=False)
class StoredWeights:
    """The weights of one layer in the format's order: integers, and a scale and a zero point for
    each output channel.
    """

    weights: Array
    scales: Array
    zeros: Array
    biases: QuantizedConstant | None


@dataclass(eq=False)
class Made:
    """The origin of a float layer."""

    node: ir.Node
    stored: StoredWeights | None = None


def made(layer: Layer) -> Made:
    """Return the origin of a float layer."""
    assert isinstance(layer.extra, Made)
    return layer.extra


class Integers:
    """The weights and biases of one layer without their zero points. An integer IR uses its inputs
    as stored: the biases contain the input's zero point (`source_zero`, in ONNX's sense) times the
    sum of each row, which is subtracted here. The parser's files have plain biases and ONNX's zero
    points (`parser`).
    """

    def __init__(self, layer: Layer, source_zero: int, parser: bool = False) -> None:
        if layer.attrs.get("with_winograd"):
            raise MappingError(WINOGRAD)
        self.layer, self.source_zero, self.parser = layer, source_zero, parser
        self.stored = blob_of(layer, "weights")
        self._check_shape()
        zeros = of_sizes(zeros_of(layer, "weights"), "weights_zp", 1, self._channels)
        self.zeros: Array = zeros if parser else -zeros

    @property
    def _channels(self) -> int:
        """Return the number of rows of the weights; for a norm, of columns."""
        return int(self.stored.shape[-1 if self.layer.kind in NORMS else 0])

    def _check_shape(self) -> None:
        """Raise MappingError R105 for weights of another rank, or biases of other rows."""
        rank, shape = len(WEIGHTED.get(self.layer.kind, self.stored.shape)), self.stored.shape
        if not self.stored.size or len(shape) != rank or not rank:
            raise MappingError(
                f"weights must have {rank} axes, got the shape {list(shape)}", "R105"
            )
        biases = self.layer.blobs.get("biases")
        if biases is not None and (not biases.size or biases.size % shape[0]):
            raise MappingError(
                f"{biases.size} biases do not fit {shape[0]} rows of weights", "R105"
            )

    def whole(self) -> Array:
        """Return the weights with their zero points subtracted."""
        return np.asarray(self.stored.astype(np.float64) - self._along(self.zeros))

    def _along(self, numbers: Array) -> Array:
        """Return one number for each row of the weights, or of those of a norm for each column."""
        return numbers.reshape(
            [-1] + [1] * (0 if self.layer.kind in NORMS else self.stored.ndim - 1)
        )

    def absorbed(self) -> Array:
        """Return the part of the biases of an integer IR that compensates the input's zero
        point.
        """
        rows = -self.source_zero * self.whole().reshape(self.stored.shape[0], -1).sum(axis=1)
        # transposed weights hold the rows of one group only
        return np.tile(rows, blob_of(self.layer, "biases").size // rows.size)

    def biases(self) -> Array | None:
        """Return the biases, in steps of input scale * weight scale; None without biases."""
        if "biases" not in self.layer.blobs:
            return None
        biases = with_zero_points(self.layer, "biases", self.parser)
        return biases if self.parser else biases - self.absorbed()


class NumericWeights(Integers):
    """The weights and biases of one layer as real numbers. `scales` has one for each row of the
    weights (or one for all), in ONNX's sense.
    """

    def __init__(
        self, layer: Layer, source: QuantParams, result: QuantParams | None, parser: bool
    ) -> None:
        super().__init__(layer, source.zero, parser)
        self.source = source
        scales = self._given("weights_scale")
        if scales is not None and not parser:
            scales = 1 / scales
        if scales is None or (layer.kind in WEIGHTED and self._has_factor()):
            computed = self._from_factor(result)  # of few bits, but used by the layer
            scales = computed if scales is None or computed.size == scales.size else scales
        self.scales: Array = np.asarray(scales, np.float32)
        self._check_scales()

    def _check_scales(self) -> None:
        """Raise MappingError R105 for scales of other rows than the weights have."""
        groups, rest = divmod(self.scales.size, self._channels)
        grouped = self.layer.kind in WEIGHTED and groups and not self.stored.shape[-1] % groups
        if self.scales.size != 1 and (rest or not (groups == 1 or grouped)):
            message = f"{self.scales.size} scales do not fit {self._channels} rows of weights"
            raise MappingError(message, "R105")

    def _has_factor(self) -> bool:
        keys = {*self.layer.attrs, *self.layer.blobs}
        return not self.parser and not keys.isdisjoint(("scale", "scale_value"))

    def _given(self, key: str) -> Any:
        found = self.layer.blobs.get(key)
        value = np.asarray(found if found is not None else self.layer.attrs.get(key))
        return None if value.dtype == object else value.reshape(-1).astype(np.float64)

    def _from_factor(self, result: QuantParams | None) -> Array:
        """Return the requantization factor input scale * weight scale / output scale."""
        if result is None or self.parser:
            raise MappingError("weights_scale is absent", "R110")
        scale, shift = numbers(self.layer, "scale", 1), numbers(self.layer, "shift", 0)
        factor = scale * 2.0 ** -of_sizes(shift, "shift", 1, scale.size)
        return np.asarray(factor * result.scale / self.source.scale)

    def bias_scales(self) -> Array:
        """Return the scales of the biases: given ones, or the products of those of the operands."""
        given = self._given("biases_scale")
        if given is not None and self.parser:
            return np.asarray(given, np.float32)
        return np.asarray(self.scales * np.float32(self.source.scale), np.float32)

    def weights_value(self, b: Builder) -> Value:
        """Return the weights in ONNX's order."""
        perm = np.argsort(WEIGHTED[self.layer.kind])
        name, transposed = f"{self.layer.name}.weights", self.stored.transpose(perm)
        axis, one = perm.tolist().index(0), self.scales.size == 1
        zeros = self.zeros
        if zeros.size == 1 and not one:
            zeros = np.broadcast_to(zeros, self.scales.shape)
        fits = zeros.size == self.scales.size and (one or zeros.size == transposed.shape[axis])
        if not fits or not self._fits(zeros):
            return b.const(self.real().transpose(perm), name)
        shape = () if one else self.scales.shape
        zero = None
        if zeros.any() or self.stored.dtype.kind == "u":
            zero = b.const(zeros.astype(self.stored.dtype).reshape(shape))
        scale = b.const(self.scales.reshape(shape))
        return b.DequantizeLinear(
            b.const(transposed, name), scale, zero, axis=None if one else axis
        )

    def _fits(self, zeros: Array) -> bool:
        """Return whether DequantizeLinear supports integers and zero points of the stored type."""
        dtype = self.stored.dtype
        if dtype.kind not in "iu" or dtype.itemsize > 2:
            return False
        return within(zeros, *limits_of_bits(8 * dtype.itemsize, dtype.kind == "i"))

    def real(self) -> Array:
        """Return the weights as numbers; transposed ones in groups have their scales by group, then
        by row.
        """
        whole, rows = self.whole().astype(np.float32), self.stored.shape[0]
        if self.scales.size in (1, rows) or self.layer.kind in NORMS:
            return np.asarray(whole * self._along(self.scales))
        groups = self.scales.size // rows
        parts = np.split(whole, groups, axis=-1)
        scales = self.scales.reshape([groups, -1] + [1] * (whole.ndim - 1))
        return np.concatenate([p * s for p, s in zip(parts, scales, strict=True)], axis=-1)

    def biases_value(self, b: Builder) -> Value | None:
        """Return the biases as int32 with the product of both scales, as QDQ networks store
        them.
        """
        whole, scales, name = self.biases(), self.bias_scales(), f"{self.layer.name}.biases"
        if whole is None or not whole.any():
            return None
        if scales.size == self.stored.shape[0] < whole.size:
            scales = np.tile(scales, whole.size // scales.size)
        of_sizes(scales, "biases_scale", 1, whole.size)
        given, one = blob_of(self.layer, "biases"), scales.size == 1
        if given.dtype.kind == "f":  # numbers already
            return b.const(given.reshape(-1).astype(np.float32), name)
        fits = within(whole, *INT32) and not np.any(whole != np.rint(whole))
        if not fits or not (one or scales.size == whole.size):
            return b.const((whole * scales.astype(np.float64)).astype(np.float32), name)
        stored = b.const(whole.astype(np.int32), name)
        scale = b.const(scales.reshape(() if one else -1))
        return b.DequantizeLinear(stored, scale, axis=None if one else 0)
