"""Stored weights of quantised layers: as DequantizeLinear of the integers in the file, or as the numbers that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.integer.register import numbers
from converter.formats.zhouyi.special.register import blob
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError


class Weights:
    """Weights and biases of one layer. `scales` has one step for each row of the weights (or one for all), in ONNX's sense.

    An integer IR takes its inputs as stored: the biases hold the input's zero point times the sum of each row, which is
    taken out again here. The parser's files have plain biases (`steps`).
    """

    def __init__(self, layer: Layer, source: Grid, result: Grid | None, steps: bool) -> None:
        self.layer, self.source, self.steps = layer, source, steps
        self.stored = blob(layer, "weights")
        self.zeros = self._given("weights_zp", 0.0).astype(np.int64) * (1 if steps else -1)
        scales = self._given("weights_scale", None)
        self.scales: Array = np.asarray(self._from_factor(result) if scales is None else scales if steps else 1 / scales, np.float32)

    def _given(self, key: str, default: float | None) -> Any:
        found = self.layer.blobs.get(key)
        value = np.asarray(found if found is not None else self.layer.attrs.get(key, default))
        return None if value.dtype == object else value.reshape(-1).astype(np.float64)

    def _from_factor(self, result: Grid | None) -> Array:
        """Files without weights_scale: the requantisation is input step * weight step / output step."""
        if result is None or self.steps:
            raise MappingError("weights_scale is absent", "R110")
        factor = numbers(self.layer, "scale", 1) * 2.0 ** -numbers(self.layer, "shift", 0)
        return np.asarray(factor * result.scale / self.source.scale)

    def whole(self) -> Array:
        """The integers of the weights without their zero points."""
        zeros = self.zeros.reshape([-1] + [1] * (self.stored.ndim - 1))
        return np.asarray(self.stored.astype(np.int64) - zeros)

    def biases(self) -> Array | None:
        """The integers of the biases, in steps of input step * weight step; None without biases."""
        found = self.layer.blobs.get("biases")
        if found is None:
            return None
        array = np.asarray(found).reshape(-1).astype(np.float64)
        zero = self._given("biases_zp", 0.0)
        if self.steps:
            return np.asarray(array - zero)
        absorbed = -self.source.zero * self.whole().reshape(self.stored.shape[0], -1).sum(axis=1)
        # transposed weights hold the rows of one group only
        return np.asarray(array + zero - np.tile(absorbed, array.size // absorbed.size))

    def bias_scales(self) -> Array:
        given = self._given("biases_scale", None)
        if given is not None and self.steps:
            return np.asarray(given, np.float32)
        return np.asarray(self.scales * np.float32(self.source.scale), np.float32)

    def near_weights(self, b: Builder, perm: tuple[int, ...]) -> ir.Value:
        """The weights in ONNX's order: the far axis perm[i] is the near axis i."""
        name, turned = f"{self.layer.name}.weights", self.stored.transpose(perm)
        axis = perm.index(0)
        one = self.scales.size == 1
        zeros = self.zeros if self.zeros.size > 1 or one else np.broadcast_to(self.zeros, self.scales.shape)
        info = np.iinfo(self.stored.dtype) if self.stored.dtype.kind in "iu" else None
        fits = info is not None and self.stored.dtype.itemsize <= 2 and zeros.min() >= info.min and zeros.max() <= info.max
        if not fits or (zeros.size != self.scales.size) or (not one and self.scales.size != turned.shape[axis]):
            return b.const(self.real().transpose(perm), name)
        shape = () if one else self.scales.shape
        zero = b.const(zeros.astype(self.stored.dtype).reshape(shape)) if zeros.any() else None
        if self.stored.dtype.kind == "u" and zero is None:
            zero = b.const(np.zeros(shape, self.stored.dtype))
        return b.op("DequantizeLinear", b.const(turned, name), b.const(self.scales.reshape(shape)), zero, axis=None if one else axis)

    def real(self) -> Array:
        """The weights as numbers; transposed ones in groups have their scales by group, then by row."""
        whole, rows = self.whole().astype(np.float32), self.stored.shape[0]
        if self.scales.size in (1, rows):
            return np.asarray(whole * self.scales.reshape([-1] + [1] * (whole.ndim - 1)))
        groups = self.scales.size // rows
        parts = np.split(whole, groups, axis=-1)
        scales = self.scales.reshape([groups, -1] + [1] * (whole.ndim - 1))
        return np.concatenate([p * s for p, s in zip(parts, scales, strict=True)], axis=-1)

    def near_biases(self, b: Builder) -> ir.Value | None:
        """The biases as int32 with the product of both steps, as QDQ networks store them."""
        whole, scales, name = self.biases(), self.bias_scales(), f"{self.layer.name}.biases"
        if whole is None or not whole.any():
            return None
        if scales.size == self.stored.shape[0] < whole.size:
            scales = np.tile(scales, whole.size // scales.size)
        if blob(self.layer, "biases").dtype.kind == "f":  # numbers already
            return b.const(blob(self.layer, "biases").reshape(-1).astype(np.float32), name)
        limit = np.iinfo(np.int32)
        if np.all(whole == np.rint(whole)) and whole.min() >= limit.min and whole.max() <= limit.max and scales.size in (1, whole.size):
            one = scales.size == 1
            stored = b.const(whole.astype(np.int32), name)
            return b.op("DequantizeLinear", stored, b.const(scales.reshape(() if one else -1)), axis=None if one else 0)
        return b.const((whole * scales.astype(np.float64)).astype(np.float32), name)
