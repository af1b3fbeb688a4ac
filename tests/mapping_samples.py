"""Sample nodes for the laws of mapping tables: contexts from `Rule.example_inputs`, attributes from
SAMPLES and ONNX's schemas.

`example_inputs` is explained at `converter.mapping.rules.Rule`. A new attribute name that a schema
gives no default for gets a line in SAMPLES: "name", "Operator.name" or "Operator=Kind.name" ->
values, most ordinary first; a function takes the number of spatial axes of input 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx.defs
import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder, defaults, new_model
from converter.graph.channels_last import LAYOUT_SENSITIVE, to_nhwc
from converter.graph.extensions import lookup
from converter.graph.infer import InferenceError, schema_of
from converter.mapping.codecs import Codec
from converter.mapping.fields import Field, RequireAttr
from converter.mapping.node import Node
from converter.mapping.rules import Rule

SAMPLES: dict[str, list[Any] | Callable[[int], list[Any]]] = {
    "axis": [1, 0, -1],
    "RandomNormal.shape": [[40, 50]],
    "RandomUniform.shape": [[40, 50]],
    "axes": [[1], [0, 1]],
    "alpha": [0.25, 1.0],
    "beta": [0.5],
    "bias": [0.5],
    "blocksize": [2],
    "BitShift.direction": ["LEFT", "RIGHT"],
    "cell_clip": [0.5, 0.0],
    "proj_clip": [0.0],
    "SVDF.rank": [2],
    "count_include_pad": [0, 1],
    "ceil_mode": [0, 1],
    "equation": ["ij,jk->ik"],
    "epsilon": [0.125],
    "fmod": [0, 1],
    "group": [1, 2],
    "k": [2],
    "keepdims": [1, 0],
    "kernel_shape": lambda n: [[3, 2, 3][:n], [2, 2, 2][:n]],
    "strides": lambda n: [[2, 1, 2][:n], [1, 1, 1][:n]],
    "dilations": lambda n: [[1, 1, 1][:n], [1, 2, 1][:n]],
    "pads": lambda n: [[0, 1, 1][:n] + [1, 0, 1][:n], [0] * (2 * n)],
    "ConvTranspose.pads": lambda n: [[0, 1, 1][:n] + [0, 0, 1][:n], [0] * (2 * n)],
    "ConvTranspose.output_padding": lambda n: [[1, 0, 1][:n], [0] * n],
    "output_shape": lambda n: [],
    "output_size": [[2, 2]],
    "QuantizeLinear.block_size": [0],
    "Cast=Convert.to": [6, 7, 1],  # halves are computed in floats
    "Col2Im.strides": [[1, 1], [2, 1]],
    "Col2Im.dilations": [[1, 1], [1, 2]],
    "Col2Im.pads": [[0, 0, 0, 0], [0, 1, 1, 0]],
    "num_groups": [2],
    "num_outputs": [None, 2],
    "perm": [[1, 0]],
    "FakeConvert.to": [17, 19],
    "DequantizeLinear.block_size": [0, 2],
    "UnpackBits.bits": [2, 4],
    "UnpackBits.shape": [[2, 3], [2, 2]],
    "UnpackBits.order": ["msb", "lsb"],
    "levels": [256],
    "Shape.start": [0, 1],
    "size": [3],
    "LayerNormalization.axis": [-1, 1],
    "CropResize.size": [[2, 3]],
    "CropResize.sampling": ["align_endpoints"],
    "CropResize.coordinates": ["center_size_width_first"],
    "Resize.axes": [None],
    "Resize.coordinate_transformation_mode": ["half_pixel", "align_corners", "asymmetric"],
    "Resize.nearest_mode": ["round_prefer_floor", "floor", "round_prefer_ceil"],
    "ConstantOfShape.value": [np.array([0.5], np.float32)],
    "Pad.mode": ["constant", "reflect", "edge"],
    "ScatterND.reduction": ["none", "add", "mul", "max", "min"],
    "ScatterElements.reduction": ["none", "add", "mul", "max", "min"],
    "ReverseSequence.batch_axis": [1, 0],
    "ReverseSequence.time_axis": [0, 1],
    "stash_type": [1],
    "to": [6, 7, 9, 10, 1],
    "AveragePool.dilations": lambda n: [[1, 1, 1][:n]],
    "DepthToSpace.mode": ["DCR", "CRD"],
    "HardSigmoid=composite:hard_sigmoid.alpha": [1 / 6],
    "HardSigmoid=composite:hard_sigmoid.beta": [0.5],
    # boxes and regions
    "base_size": [16],
    "feat_stride": [16],
    "nms_thresh": [0.5],
    "nms_threshold": [0.5],
    "score_threshold": [0.125, 0.5, 0.25],
    "max_delta_log_wh": [4.0],
    "deltas_weights": [[10.0, 10.0, 5.0, 5.0]],
    "pre_nms_topn": [6],
    "post_nms_topn": [4],
    "pre_nms_count": [6],
    "post_nms_count": [4],
    "max_detections_per_image": [3],
    "max_rois": [3],
    "num_classes": [2],
    "DetectionOutput.num_classes": [0],
    "min_size": [1.0, 0.5],
    "Proposal.min_size": [16],
    "PriorBox.min_size": [[4.0, 8.0]],
    "max_size": [[8.0, 16.0]],
    "aspect_ratio": [[2.0, 3.0], []],
    "variance": [[0.1, 0.1, 0.2, 0.2], []],
    "DecodeBoxes.variance": [[0.5, 0.5, 0.25, 0.25]],
    "width": [[4.0, 8.0]],
    "height": [[8.0, 4.0]],
    "ratio": [[1.0]],
    "scale": [[2.0]],
    "RandomNormal.scale": [0.5],
    "framework": ["", "tensorflow"],
    "keep_top_k": [3, -1],
    "output_dim": [2],
    "group_size": [2, 1],
    "spatial_scale": [0.5, 1.0],
    "sampling_ratio": [2],
    "pooled_h": [2],
    "pooled_w": [3],
    "output_height": [2],
    "output_width": [3],
    "DetectronROIFeatureExtractor.output_size": [2],
    "pyramid_scales": [[4]],
    "coords": [4],
    "classes": [2],
    "num": [3],
    "mask": [[0, 1, 2]],
    "end_axis": [3],
    "stride": [2],
    # signals, random numbers, colors
    "RealDFT.axes": [[1], [-1]],
    "InverseRealDFT.axes": [[1], [0]],
    "sizes": [[-1], [6]],
    "FramedDFT.size": [4],
    "InverseFramedDFT.size": [4],
    "step": [2],
    "length": [-1, 8],
    "dtype": [1],
    "global_seed": [3],
    "ClassDraws.index": [6, 7],
    # recurrent layers
    "hidden_size": [2, 4],
    "direction": ["forward", "reverse"],
    "linear_before_reset": [0, 1],
    "clip": [],
    "eps": [0.125],
    "normalize_variance": [1, 0],
    "MVN.axes": [[2, 3], [1, 2, 3]],
    "Resize.mode": ["linear", "nearest"],
    "rows": [3],
    "SparseFillEmptyRows.length": [12],
    "Gelu.approximate": ["none", "tanh"],
    "GridSample.mode": ["linear", "nearest", "cubic"],
    "GridSample.padding_mode": ["zeros", "border", "reflection"],
    "Transpose.perm": [[1, 0]],
    "NormalizeL2.eps": [1e-12],
    "NormalizeL2.eps_mode": ["max", "add"],
    "BatchToSpace.block_size": [[2, 2]],
    "SpaceToBatch.block_size": [[2, 2]],
    "Split.num_outputs": [2],
    "Split=Slice.num_outputs": [None],
    "Cast.to": [6, 7, 10, 1, 9],
    "SpaceToBatch.pads": [[0, 0, 0, 0], [1, 0, 1, 2]],
    "RegionAlign.ratio": [[1.0, 1.0], [0.5, 2.0]],
    "RegionPool.ratio": [[1.0, 1.0], [0.5, 2.0]],
    "GridProposals.ratio": [[1.0, 1.0], [0.5, 2.0]],
    "RegionAlign.size": [[2, 3]],
    "RegionPool.size": [[2, 3]],
    "RegionAlign.samples": [[2, 1]],
    "nms_score_threshold": [0.25],
    "iou_threshold": [0.5],
    "limit": [2],
    "kernel": [0, 1, 2],
    "sigma": [0.5],
    "before": [4],
    "after": [2],
    "scales": [[10.0, 10.0, 5.0, 5.0]],
    "per_class": [0, 1, 2],
    "classes_each": [1],
    "limit_each": [1],
    "background": [0, 1],
    "LSHProjection.kind": [1, 2, 3],
    "largest": [1],
    "RoiAlign.coordinate_transformation_mode": ["output_half_pixel", "half_pixel"],
    "GatherND.batch_dims": [0, 1],
    "nbins": [4],
    "low": [0.0],
    "high": [4.0],
    "block_size": [[2, 2]],
    "EmbeddingLookupSparse.count": [3],
    "SegmentSum.rows": [4],
    "AccidentalHits.size": [4],
    "crop_size": [[3, 2]],
    "coefficient": [[1.0, 0.5, 0.25] * 5],
    "shift": [0],
    "YuvToRgb.height": [4],
    "YuvToRgb.width": [4],
    "class_num": [2],
    "threshold": [0.5],
    "DecodeBoxes.size": [24],
    "DecodeBoxes.classes": [3],
    "RegionGroups.size": [4],
    "RegionGroups.anchors": [[1.0, 2.0, 3.0, 4.0]],
    "FuseRegions.size": [8],
    "FuseRegions.classes": [3],
    "GroupedNMS.size": [4],
    "GroupedSoftNMS.size": [4],
    "variances": [[0.5, 0.5, 0.25, 0.25]],
    "pooled_shape": [[2, 2]],
}
# how many outputs a sample has, where they may be left out
OUTPUTS = {"TopK": 2}
# how many of them have a consumer, where not all
READ = {("TopK", "ArgMax"): 1}
# metadata that reading leaves with a node: rows that write the layer again which it was
METADATA = {
    (op, kind): {"openvino.legacy": kind}
    for op, kinds in {"Reshape": "Squeeze Unsqueeze Flatten", "Reciprocal": "Power"}.items()
    for kind in kinds.split()
}
# contexts of operators for which neither the schema nor "2,3" will do, before the row's own; each
# one that fits is a sample
_IMAGE = ("1,4,8,8", "1,4,8", "1,4,4,4,4")
CONTEXTS: dict[str, tuple[str, ...]] = {
    "GatherND": ("2,3 =i64:2,1",),
    "ScatterND": ("4,3 =i64:2,1 2,3",),
    "MatMul": ("2,3 3,4", "2,3 =3,4", "2,2,3 2,3,4"),
    "Gemm": ("2,3 =3,4 =4", "2,3 =4,3 =4"),
    "Mod": ("i64:2,3 i64:2,3",),  # of floats it is legal with fmod=1 alone
    "Conv": (
        "1,4,8,8 =6,4,3,3 =6",
        "1,4,8,8 =6,4,3,3",
        "1,4,8,8 =4,1,3,3 =4",
        "1,4,8 =6,4,3 =6",
        "1,4,4,4,4 =6,4,3,3,3 =6",
        "1,4,4,4,4 =6,4,3,3,3",
    ),
    "ConvTranspose": (
        "1,4,8,8 =4,6,3,3 =6",
        "1,4,8,8 =4,6,3,3",
        "1,4,8 =4,6,3 =6",
        "1,4,4,4,4 =4,6,3,3,3 =6",
        "1,4,4,4,4 =4,6,3,3,3",
    ),
    **{
        op: _IMAGE
        for op in (
            "MaxPool",
            "AveragePool",
            "LpPool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "GlobalLpPool",
            "LRN",
        )
    },
    "DepthToSpace": ("1,8,2,2",),
    "DFT": ("4,8,2 ? =i64:", "4,8,1 ? =i64:", "4,8,2 =i64:[6] =i64:"),
    "SpaceToDepth": ("1,2,4,4",),
    "BatchNormalization": ("1,4,8,8 =4 =4 =4 =4", "1,4 =4 =4 =4 =4"),
    "InstanceNormalization": ("1,4,8,8 =4 =4", "1,4,8 =4 =4"),
    "GroupNormalization": ("1,4,8,8 =4 =4",),
    "LayerNormalization": ("2,3 =3 =3", "2,3 =3"),
    "Reshape": ("2,3 =[3,2]",),
    "Expand": ("2,3 =[2,2,3]",),
    "Tile": ("2,3 =[1,2]",),
    "Squeeze": ("2,1 =[1]",),
    "Unsqueeze": ("2,3 =[1]",),
    "Pad": ("2,3 =[1,0,0,2]", "2,3 =[1,0,0,2] ="),
    "Slice": ("4,6 =[1] =[4] =[1] =[2]",),
    "Gather": ("4,3 =[2,0]", "4,4 i64:2"),
    "OneHot": ("i64:2,3 =i64:[4] =[0,1]",),
    "Split": ("4,6",),
    "TopK": ("3,4 =i64:[2]",),
}
_ORDER = ("float", "int64", "int32", "bool", "uint8", "int8", "string")
_ENTRY = re.compile(r"(?P<const>=?)(?:(?P<type>[a-z]+\d*):)?(?P<rest>\[.*\]|\(.*\)|[\dn,]*)$")
_MADE = re.compile(r"(?P<op>[A-Z]\w*)\((?P<inputs>.*)\)$")
_TYPES = {
    "f32": ir.DataType.FLOAT, "f16": ir.DataType.FLOAT16, "i64": ir.DataType.INT64,
    "i32": ir.DataType.INT32, "i8": ir.DataType.INT8, "u8": ir.DataType.UINT8,
    "b": ir.DataType.BOOL, "s": ir.DataType.STRING,
}  # fmt: skip


class CannotSample(Exception):
    pass


def contexts(rule: Rule) -> tuple[str, ...]:
    default = " ".join(["2,3"] * _arity(rule))
    listed = CONTEXTS.get(rule.op, ()) if rule.domain == "" else ()
    return (rule.example_inputs, *listed) if rule.example_inputs else listed or (default,)


def sample(
    rule: Rule, context: str, attrs: dict[str, Any], last: bool = False, outputs: int = 0
) -> tuple[Node, Builder]:
    """A node for the rule in its context, with inferred outputs; `last`: as a channels-last target
    sees it.

    The node is the only one of the builder's graph. `outputs`: how many it has, if not as few as it
    may.
    """
    _, b = new_model()
    context, _, count = context.partition(" -> ")
    inputs = _inputs(rule, context, b)
    domain, extra, twin = rule.domain, {}, last and (rule.domain, rule.op) in LAYOUT_SENSITIVE
    if twin:
        data = LAYOUT_SENSITIVE[rule.domain, rule.op][0]
        inputs = [_turned(v, b) if i in data and v is not None else v for i, v in enumerate(inputs)]
        domain, extra = CHANNELS_LAST_DOMAIN, ({"base_domain": rule.domain} if rule.domain else {})
    floats = inputs and inputs[0] is not None and inputs[0].dtype == ir.DataType.FLOAT
    if rule.op == "Mod" and not attrs.get("fmod", 0) and floats:
        raise InferenceError("the standard has no floor-mod of floats")
    if rule.op == "ConvTranspose" and not fits(attrs):
        raise InferenceError("the standard has no output padding of a stride or more")
    outputs = outputs or int(count or _output_count(rule, context))
    made = b.ops(rule.op, *inputs, domain=domain, outputs=outputs, **attrs, **extra)
    b.output(*made[: READ.get((rule.op, rule.kind))])
    made[0].producer().metadata_props.update(METADATA.get((rule.op, rule.kind), {}))
    return Node(rule.op, rule.domain, filled(rule, attrs), inputs, list(made), twin), b


def fits(attrs: dict[str, Any]) -> bool:
    """Whether the output padding of a transposed convolution is below its strides or dilations."""
    added = attrs.get("output_padding") or ()
    ones = [1] * len(added)
    steps = zip(attrs.get("strides") or ones, attrs.get("dilations") or ones, strict=False)
    return all(n < max(step) for n, step in zip(added, steps, strict=False))


def filled(rule: Rule, attrs: dict[str, Any]) -> dict[str, Any]:
    """With the operator's defaults, as Table.lower sees them; a row that is never written need not
    own them all.
    """
    owned = {k for f in rule.fields for k in f.names}
    return {
        **{
            k: v
            for k, v in defaults(rule.op, rule.domain).items()
            if k in owned or not rule.lift_only
        },
        **attrs,
    }


def _turned(value: ir.Value, b: Builder) -> ir.Value:
    shape = list(value.shape or [])
    return (
        value
        if len(shape) < 3
        else b.input(
            str(value.name),
            value.dtype or ir.DataType.FLOAT,
            [shape[a] for a in to_nhwc(len(shape))],
        )
    )


def _output_count(rule: Rule, context: str) -> int:
    schema = schema_of(rule.op) if rule.domain == "" else None
    if rule.op == "Split" and not rule.domain:  # as many as there are sizes
        return max(1, context.count(",", context.rfind("[")) + 1) if "[" in context else 2
    return max(OUTPUTS.get(rule.op, 1), schema.min_output if schema is not None else 1)


def _inputs(
    rule: Rule, context: str, b: Builder, outer: list[ir.Value | None] | None = None
) -> list[ir.Value | None]:
    """`outer`: the operator's inputs so far, where these are of another one before it."""
    chosen: dict[str, str] = {}
    values: list[ir.Value | None] = []
    for i, entry in enumerate(context.split()):
        if made := _MADE.match(entry):
            own = _inputs(rule, _split(made["inputs"]), b, values if outer is None else outer)
            values.append(b.op(made["op"], *own))
            continue
        if entry == "?" or entry[0] in "$#":
            known = b.graph.inputs if entry[0] == "#" else values if outer is None else outer
            values.append(None if entry == "?" else known[int(entry[1:])])
            continue
        match = _ENTRY.match(entry)
        if match is None:
            raise CannotSample(f"{entry!r} in {context!r} is not understood")
        dtype = _TYPES[match["type"]] if match["type"] else _dtype(rule, i, chosen)
        if match["const"]:
            values.append(b.const(_constant(match["rest"], dtype.numpy()), f"c{i}"))
        else:
            sizes = [int(d) if d.isdigit() else None for d in match["rest"].split(",") if d]
            values.append(b.input(f"x{i}", dtype, sizes))
    return values


def _split(inputs: str) -> str:
    """The inputs of an operator before it, separated by `;`, as a context; those of a further one
    stay together.
    """
    depth, found = 0, ""
    for c in inputs:
        depth += (c == "(") - (c == ")")
        found += " " if c == ";" and not depth else c
    return found


def _constant(text: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if text.startswith("["):
        return np.array(json.loads(text), dtype)
    if text.startswith("("):
        return np.array(float(text[1:-1]), dtype)
    shape = [int(d) for d in text.split(",") if d]
    count = np.arange(int(np.prod(shape)))
    return (
        (
            ((count % 7) + 1) * 0.5
            if dtype.kind == "f"
            else count % 2
            if dtype.kind == "b"
            else count
        )
        .astype(dtype)
        .reshape(shape)
    )


def _arity(rule: Rule) -> int:
    if rule.domain:
        entry = lookup(rule.op)
        assert entry is not None, rule.op
        return len(entry.inputs)
    schema = schema_of(rule.op)
    assert schema is not None, rule.op
    variadic = any(
        p.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for p in schema.inputs
    )
    return max(2, schema.min_input) if variadic else schema.min_input


def _dtype(rule: Rule, index: int, chosen: dict[str, str]) -> ir.DataType:
    """The most ordinary type that the schema allows; the same for inputs of the same type
    variable.
    """
    schema = schema_of(rule.op) if rule.domain == "" else None
    if schema is None:
        return ir.DataType.FLOAT
    parameter = schema.inputs[min(index, len(schema.inputs) - 1)]
    if parameter.type_str not in chosen:
        allowed = {t.removeprefix("tensor(").removesuffix(")") for t in parameter.types}
        chosen[parameter.type_str] = next(t for t in _ORDER if t in allowed)
    name = chosen[parameter.type_str]
    return (
        ir.DataType.FLOAT
        if name == "float"
        else ir.DataType.from_numpy(np.dtype(name))
        if name != "string"
        else ir.DataType.STRING
    )


def candidates(rule: Rule, context: str) -> dict[str, list[Any]]:
    """The values to try for each attribute that the rule's fields own, most ordinary first."""
    spatial = _spatial(context)
    result: dict[str, list[Any]] = {}
    for f in rule.fields:
        for name in f.names:
            values = list(_own(f))
            if not (isinstance(f, RequireAttr) and f.value is not None):
                keys = (f"{rule.op}={rule.kind}.{name}", f"{rule.op}.{name}", name)
                listed = next((SAMPLES[key] for key in keys if key in SAMPLES), [])
                values += _of_weights(rule, name, context) or (
                    listed(spatial) if callable(listed) else listed
                )
                if name in (known := defaults(rule.op, rule.domain)):
                    values.append(known[name])
            if rule.op == "Split" and name == "num_outputs" and "=[" in context:
                values = [None]  # the sizes say it
            values = [
                v for i, v in enumerate(values) if v not in values[:i] and is_attribute(rule, name)
            ]
            if not values and _required(rule, name):
                raise CannotSample(f"no value for {rule.op}.{name}: add it to SAMPLES")
            if values and not (isinstance(f, RequireAttr) and f.value is None):
                result[name] = values
    return result


def codec_in(f: Field) -> Codec | None:
    """The codec of a field that has one."""
    found = getattr(f, "kind", None) or getattr(f, "codec", None)
    return found if isinstance(found, Codec) else None


def _own(f: Field) -> Iterator[Any]:
    """Values that the field itself knows."""
    codec = codec_in(f)
    if isinstance(f, RequireAttr) and f.value is not None:
        yield f.value
    if codec is not None and codec.table is not None:
        yield from codec.table


def _spatial(context: str) -> int:
    return max(1, context.partition(" ")[0].count(",") - 1)


def _of_weights(rule: Rule, name: str, context: str) -> list[Any]:
    """Attributes that follow from the weights of a convolution: kernel and group."""
    entries = [
        [int(d) for d in e.rpartition(":")[2].removeprefix("=").split(",") if d.isdigit()]
        for e in context.split()
    ]
    if rule.op not in ("Conv", "ConvTranspose", "ConvInteger") or len(entries) < 2:
        return []
    data, weights = entries[:2]
    if name == "group":
        return [data[1] // weights[1]] if rule.op != "ConvTranspose" else [1, 2]
    return [weights[2:]] if name == "kernel_shape" else []


def is_attribute(rule: Rule, name: str) -> bool:
    schema = schema_of(rule.op) if rule.domain == "" else None
    entry = lookup(rule.op) if rule.domain else None
    return (
        name in schema.attributes
        if schema is not None
        else entry is not None and name in entry.attributes
    )


def _required(rule: Rule, name: str) -> bool:
    if rule.domain:
        entry = lookup(rule.op)
        return (
            entry is not None
            and name in entry.attributes
            and name not in defaults(rule.op, rule.domain)
        )
    schema = schema_of(rule.op)
    return schema is not None and name in schema.attributes and schema.attributes[name].required
