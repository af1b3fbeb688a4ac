"""Random numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.fields import words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import computed
from converter.graph.demands import at_least
from converter.mapping.fields import Attr, AttrInput, Detail, RequireAttr, RequireKey, attrs
from converter.mapping.rules import op

T = ir.DataType


def read_drawn_type(r: LiftContext) -> None:
    """The type of the numbers and of their bounds; those of half precision are computed on as
    float32.
    """
    r.set(dtype=r.attr("output_type", element_type))


def write_drawn_type(w: LowerContext) -> None:
    """Write the type of random numbers, with the limits in that type; half precision is converted
    to float32.
    """
    to = T(w.attr("dtype"))
    w.set(output_type=element_type.lower(int(to)))
    for i in (1, 2):
        w.layer.inputs[i] = w.cast(w.input(i), to)
    if computed(to) != to:
        drawn = w.result("drawn", to)
        w.after_emit(lambda: w.put("Convert", drawn, destination_type="f32"))


DRAWN_TYPE = Detail(
    read=read_drawn_type,
    write=write_drawn_type,
    names=("dtype",),
    keys=("output_type",),
)


def write_seed(w: LowerContext) -> None:
    """Write the seed: an optional number in ONNX, 0 for none in the operation."""
    seed = w.attr("seed", None)
    at_least(0, seed=seed or 0)
    w.set(global_seed=0, op_seed=0 if seed is None else int(seed) or 1)


WRITE_SEED = Detail(write=write_seed, names=("seed",), keys=("global_seed", "op_seed"))


SEEDS = attrs(global_seed=0, op_seed=0)
RULES = [
    op(
        "netconv::UniformNumbers",
        "RandomUniform",
        DRAWN_TYPE,
        *SEEDS,
        Attr(
            "alignment", kind=words("tensorflow", "pytorch"), default="tensorflow", since=9
        ),  # OpenVINO added it to the revision of opset8
        since=8,
        example_inputs="=i64:[2,3] = =",
    ),
    op(
        "RandomUniform",
        "RandomUniform",
        AttrInput("shape", 0, list),
        AttrInput("low", 1, float, np.float32),
        AttrInput("high", 2, float, np.float32),
        RequireAttr("dtype", int(T.FLOAT)),
        RequireKey("output_type", "f32"),
        WRITE_SEED,
        since=8,
        lower_only=True,
    ),
    op(
        "netconv::ClassDraws",
        "Multinomial",
        Attr("index", "convert_type", element_type),
        Attr("replacement", "with_replacement", bool),
        Attr("log", "log_probs", bool),
        *SEEDS,
        since=13,
        example_inputs="2,5 =i64:[3]",
    ),
    op(
        "Multinomial",
        "Multinomial",
        Attr("dtype", "convert_type", element_type),
        AttrInput("sample_size", 1),
        RequireKey("with_replacement", True, kind=bool),
        RequireKey("log_probs", True, kind=bool),
        WRITE_SEED,
        since=13,
        lower_only=True,
        example_inputs="2,5",
    ),
]
