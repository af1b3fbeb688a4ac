"""Inputs and outputs: declared features <-> values of the graph.

Rank-5 networks (RANK5_ARRAY_MAPPING) declare (C) or (C,H,W) and see [Seq,Batch,C,H,W]: the adapter
between the two is here and nowhere else. Inputs of recurrent ones are sequences in truth and are
given all five axes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.features import (
    COLORS,
    OPTIONAL,
    PICTURES,
    SIZES,
    default_value,
    is_merely_optional,
    picture_of,
    sizes_of,
)
from converter.formats.coreml.neuralnetwork.network import RankPolicy
from converter.formats.coreml.neuralnetwork.operands import cast, floats
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.graph.names import set_public_name

DTYPES = {
    65568: ir.DataType.FLOAT,
    65600: ir.DataType.DOUBLE,
    131104: ir.DataType.INT32,
    65552: ir.DataType.FLOAT16,
    131080: ir.DataType.INT8,
}


def input_value(
    b: Builder, feature: Any, regime: RankPolicy, interface: dict[str, Any]
) -> tuple[ir.Value, ir.Value]:
    """Return the graph input of a feature, and the blob that the layers see."""
    kind, image = feature.type.WhichOneof("Type"), feature.type.imageType
    sizes = sizes_of(feature)
    if not sizes.fixed:
        interface["coreml"].setdefault(SIZES, {})[feature.name] = sizes.as_json()
    if is_merely_optional(feature):
        interface["coreml"].setdefault(OPTIONAL, []).append(feature.name)
    if kind == "imageType":
        channels = 1 if image.colorSpace in (10, 40) else 3
        lead = [1] * max(1, regime.image_lead)
        shape = [*lead, channels, *sizes.dims(feature.name, "HW")]
        value = graph_input(b, feature.name, ir.DataType.FLOAT, shape)
        color = {"colour": COLORS.get(image.colorSpace, "RGB")}
        interface.setdefault("images", {})[feature.name] = color
        return value, value
    if kind != "multiArrayType":
        raise MappingError(
            f"inputs of type {kind} are not supported: a network has multi-arrays and images",
            "X201",
        )
    declared = sizes.dims(feature.name, itertools.count())
    dtype = DTYPES.get(feature.type.multiArrayType.dataType, ir.DataType.FLOAT)
    if regime.lead == 0:
        value = graph_input(b, feature.name, dtype, declared)
        blob = value if dtype in (ir.DataType.INT32, ir.DataType.INT8) else floats(b, value)
    else:
        value, blob = _rank5_input(b, feature.name, dtype, declared, regime, interface)
    default = default_value(feature)
    if default is not None:
        channels = default.ndim == 1 and rank_of(value) == 5  # as feeds are taken
        default = default.reshape(1, 1, -1, 1, 1) if channels else default
        lead = [1] * ((rank_of(value) or 0) - default.ndim)
        whole = default.reshape([*lead, *default.shape])
        interface.setdefault("defaults", {})[feature.name] = whole
    return value, blob


def _rank5_input(
    b: Builder,
    name: str,
    dtype: ir.DataType,
    declared: list[Any],
    regime: RankPolicy,
    interface: dict[str, Any],
) -> tuple[ir.Value, ir.Value]:
    if len(declared) not in (1, 3, 5):
        raise MappingError(
            f"a rank-5 network must declare inputs of 1 or 3 axes, got {len(declared)}", "R110"
        )
    image = declared if len(declared) == 3 else [declared[0], 1, 1]
    if regime.recurrent or len(declared) == 5:
        whole = declared if len(declared) == 5 else [f"{name}_seq", f"{name}_batch", *image]
        value = graph_input(b, name, dtype, whole)
        interface.setdefault("channel_inputs", {})[name] = 2
        return value, floats(b, value)
    value = graph_input(b, name, dtype, declared)
    x = floats(b, value)
    lead = list(range(regime.lead))
    if len(declared) == 1:
        return value, b.Unsqueeze(x, [*lead, regime.lead + 1, regime.lead + 2])
    return value, b.Unsqueeze(x, lead)


def graph_input(b: Builder, name: str, dtype: ir.DataType, shape: list[Any]) -> ir.Value:
    """Add an input to the graph whose public name is that of the file."""
    value = b.input(name, dtype, shape)
    set_public_name(value, name)
    return value


def preprocess(b: Builder, entry: Any, x: ir.Value, color: str) -> ir.Value:
    """Apply the preprocessing of an image input: channelScale * x + bias of the color (scaler), or
    x - mean [C,H,W] (mean image).
    """
    if entry.WhichOneof("preprocessor") == "meanImage":
        array = np.array(entry.meanImage.meanImage, np.float32)
        shape = [int(d) for d in list(x.shape or ())[-3:] if isinstance(d, int)]
        if array.size != np.prod(shape) or len(shape) != 3:
            raise MappingError(
                f"the mean image has {array.size} elements, but the image has the shape {x.shape}",
                "R103",
            )
        return b.Sub(x, b.const(array.reshape(shape), "mean_image"))
    s = entry.scaler
    bias = {
        "grayscale": [s.grayBias],
        "grayscale16": [s.grayBias],
        "BGR": [s.blueBias, s.greenBias, s.redBias],
    }.get(color, [s.redBias, s.greenBias, s.blueBias])
    y = x if s.channelScale == 1.0 else b.Mul(x, float(s.channelScale))
    if not any(bias):
        return y
    channels = x.shape[-3] if x.shape is not None and len(x.shape) >= 3 else len(bias)
    if isinstance(channels, int) and channels != len(bias):
        bias = [bias[0]] * channels if len(set(bias)) == 1 else bias
    return b.Add(y, b.const(np.array(bias, np.float32).reshape(-1, 1, 1), "channel_bias"))


def output_value(
    b: Builder, feature: Any, blob: ir.Value, regime: RankPolicy, interface: dict[str, Any]
) -> ir.Value:
    """Return the output for a blob: in the declared type, rank-5 blobs without Seq and Batch."""
    kind = feature.type.WhichOneof("Type")
    if kind == "imageType":
        said = picture_of(feature.type.imageType)
        interface["coreml"].setdefault(PICTURES, {})[feature.name] = said
        pixels = b.Clip(b.Round(floats(b, blob)), 0.0, 255.0)
        return _without_lead(b, pixels, regime, [])
    array, dtype = feature.type.multiArrayType, ir.DataType.FLOAT
    if kind == "multiArrayType":
        dtype = DTYPES.get(array.dataType, dtype)
    return cast(b, _without_lead(b, blob, regime, [int(d) for d in array.shape]), dtype)


def _without_lead(b: Builder, blob: ir.Value, regime: RankPolicy, declared: list[int]) -> ir.Value:
    if regime.lead == 0 or regime.recurrent:
        return blob
    shape, extra = shape_of(blob), (rank_of(blob) or 0) - 3
    if shape is None:
        known = [i for i in range(max(0, extra)) if blob.shape is not None and blob.shape[i] == 1]
        return b.Squeeze(blob, known) if known and len(known) == extra else blob
    if len(declared) == 1 and shape[-2:] == (1, 1) and np.prod(shape) == declared[0]:
        return b.Reshape(blob, declared)
    if extra > 0 and all(d == 1 for d in shape[:extra]):
        return b.Squeeze(blob, list(range(extra)))
    return blob
