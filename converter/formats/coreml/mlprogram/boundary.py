"""Inputs of a network as the description of a model declares them: sizes, pictures, values of those
that may be omitted; and the suppression model at the end of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.features import (
    COLORS,
    OPTIONAL,
    PICTURES,
    SIZES,
    Sizes,
    default_value,
    is_merely_optional,
    metadata_of,
    picture_of,
    sizes_of,
)
from converter.formats.coreml.suppression import lift_suppression_model
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.names import set_public_name


class NetworkInputs:
    """The inputs of a network, created when they are first needed. In a pipeline, the outermost
    description that has a feature declares it.
    """

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.features: dict[str, Any] = {}
        self.defaults: dict[str, Array] = {}
        self.images: dict[str, dict[str, str]] = {}
        self.sizes: dict[str, Any] = {}
        self.shapes: dict[str, list[int]] = {}

    def enter(self, description: Any) -> None:
        """Add the inputs of a description; the first of a name counts."""
        for feature in description.input:
            self.features.setdefault(feature.name, feature)

    def input(
        self, name: str, dtype: ir.DataType, dims: list[int | None] | None, public: str = ""
    ) -> ir.Value:
        """Return a new input of the network, of this type; its dynamic dimensions are those of the
        description. `public`: its name in the network, if different.
        """
        feature, name = self.features.get(name), public or name
        shape: list[int | str | None] | None = None if dims is None else list(dims)
        if feature is not None and dims is not None:
            sizes = sizes_of(feature)
            shape = declared(name, dims, sizes)
            if None in dims and not sizes.fixed:
                self.sizes[name] = sizes.as_json()
                if min(sizes.default, default=0) > 0:
                    self.shapes[name] = meant_by(shape, sizes)
        value = self.b.input(name, dtype, shape)
        set_public_name(value, name)
        if feature is None:
            return value
        if feature.type.HasField("imageType"):
            self.images[name] = {"colour": COLORS.get(feature.type.imageType.colorSpace, "RGB")}
        default = default_value(feature)
        if default is not None:
            self.defaults[name] = default.astype(dtype.numpy())
        return value

    def interface(self, description: Any) -> dict[str, Any]:
        """Return the declarations of the description beyond the tensors."""
        said: dict[str, Any] = {"metadata": metadata_of(description)}
        if self.sizes:
            said[SIZES] = self.sizes
        optional = [f.name for f in description.input if is_merely_optional(f)]
        if optional:
            said[OPTIONAL] = optional
        images = [f for f in description.output if f.type.HasField("imageType")]
        if images:
            said[PICTURES] = {f.name: picture_of(f.type.imageType) for f in images}
        if description.predictedFeatureName:
            label, scores = (
                description.predictedFeatureName,
                description.predictedProbabilitiesName,
            )
            said["classifier"] = {"label": label, "probabilities": scores}
        found = {"images": self.images, "shapes": self.shapes}
        return {"coreml": said, **{k: v for k, v in found.items() if v}}


def declared(name: str, dims: list[int | None], sizes: Sizes) -> list[int | str | None]:
    """Return dimensions that are dynamic in the program as the description has them: a fixed size
    where the caller has no choice, else a name.
    """
    own_sizes = sizes.dims(name, range(len(dims) - len(sizes.default), len(dims)))
    lead = [f"{name}_{axis}" for axis in range(len(dims) - len(own_sizes))]
    open_ = [*lead, *own_sizes][-len(dims) :] if dims else []
    return [d if d is not None else o for d, o in zip(dims, open_, strict=True)]


def meant_by(shape: Sequence[object], sizes: Sizes) -> list[int]:
    """Return the complete default shape; dynamic axes before those of `sizes` are 1."""
    lead = [d if isinstance(d, int) else 1 for d in shape[: len(shape) - len(sizes.default)]]
    return [*lead, *sizes.default]


def suppressed(b: Builder, model: Any, boundary: NetworkInputs, env: dict[str, ir.Value]) -> None:
    """Apply the suppression model at the end of a detector to the results of its members.
    Thresholds that are inputs are optional: the model has defaults.
    """
    nms = model.nonMaximumSuppression
    thresholds = {
        nms.iouThresholdInputFeatureName: nms.iouThreshold,
        nms.confidenceThresholdInputFeatureName: nms.confidenceThreshold,
    }
    for name, own in thresholds.items():
        if name in boundary.features and name not in env:
            env[name] = boundary.input(name, ir.DataType.DOUBLE, [1])
            boundary.defaults.setdefault(name, np.array([own]))
    for name in (*thresholds, nms.confidenceInputFeatureName, nms.coordinatesInputFeatureName):
        if name in env and env[name].dtype != ir.DataType.FLOAT:
            env[name] = b.Cast(env[name], to=ir.DataType.FLOAT)
    lift_suppression_model(b, nms, env)
