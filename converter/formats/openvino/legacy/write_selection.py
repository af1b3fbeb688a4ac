"""Canonical choices by value and the catalogue's detection operators -> legacy layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.write_arithmetic import pairs
from converter.formats.openvino.legacy.writing import const, finish, ints, ints_of, is_float, need, reshaped, static, step
from converter.graph.infer import known, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node


@lowers("TopK")
def lower_top_k(node: Node, low: Lowering) -> None:
    """Both results need TopK; one alone is ArgMax, so that no port is left over."""
    x, k = need(node, 0), ints_of(node, 1, "k")[0]
    axis = node.attrs.get("axis", -1) % len(static(x))
    used = [o.uses() or o.is_graph_output() for o in node.outputs]
    if all(used) and len(used) == 2:
        if not is_float(x):
            raise MappingError("the best of integers are not known to the target")
        attrs = {"axis": str(axis), "mode": "max" if node.attrs.get("largest", 1) else "min", "sort": "value"}
        low.add("TopK", [x, const(low, np.array(k, np.int64))], node.outputs, attrs)
        return
    if not node.attrs.get("largest", 1):
        raise MappingError("the smallest values alone, or their places alone, are not known to the target")
    _arg_max(low, x, node.outputs[0] if used[0] else node.outputs[1], axis, k, values=bool(used[0]))


def _arg_max(low: Lowering, x: ir.Value, out: ir.Value, axis: int, k: int, values: bool) -> None:
    """The places that the layer gives are floats."""
    attrs = {"axis": str(axis), "out_max_val": "1" if values else "0", "top_k": str(k)}
    if not is_float(x) and x.dtype != ir.DataType.BOOL:  # answers to questions are floats there
        raise MappingError("the best of integers are not known to the target")
    if values:
        low.add("ArgMax", [x], [out], attrs)
        return
    shape = [k if i == axis else n for i, n in enumerate(static(x))]
    places = step(low, "ArgMax", [x], x, shape, attrs)
    number = low.value("convert", out.dtype, shape)
    if shape == static(out):
        low.add("Convert", [places], [out], {"precision": "I32"})
    else:
        low.add("Convert", [places], [number], {"precision": "I32"})
        finish(low, number, out)


@lowers("ArgMax")
def lower_arg_max(node: Node, low: Lowering) -> None:
    if node.attrs.get("select_last_index"):
        raise MappingError("the last of equal values is not known to the target")
    _arg_max(low, need(node, 0), node.outputs[0], node.attrs.get("axis", 0) % len(static(need(node, 0))), 1, values=False)


@lowers("FixedNonMaxSuppression", domain="netconv")
def lower_nms(node: Node, low: Lowering) -> None:
    inputs: list[ir.Value] = [need(node, 0), need(node, 1)]
    defaults = (np.array([static(inputs[1])[2]], np.int32), np.array([1.0], np.float32), np.array([0.0], np.float32))
    for i, default in enumerate(defaults):
        given, array = node.input(2 + i), known(node.input(2 + i))
        if given is not None and array is None:
            inputs.append(reshaped(low, given, [1]))
        else:
            inputs.append(const(low, default if array is None else array.reshape(1)))
    attrs = pairs({"sort_result_descending": 1, "center_point_box": 0, **node.attrs}, "center_point_box", "sort_result_descending")
    low.add("NonMaxSuppression", inputs, node.outputs, attrs)


@lowers("FixedUnique", domain="netconv")
def lower_unique(node: Node, low: Lowering) -> None:
    """All three outputs are asked for; those that nobody uses would be outputs of the net and are left out."""
    used = [len(node.outputs) > i and bool(node.outputs[i].uses() or node.outputs[i].is_graph_output()) for i in (1, 2)]
    flags = {"sorted": bool(node.attrs.get("sorted", 1)), "return_inverse": used[0], "return_counts": used[1]}
    outputs = [node.outputs[0], *(o for o, u in zip(node.outputs[1:], used, strict=False) if u)]
    low.add("Unique", [need(node, 0)], outputs, {k: str(v).lower() for k, v in flags.items()})


@lowers("SparseSegment", domain="netconv")
def lower_sparse_segment(node: Node, low: Lowering) -> None:
    kind = {"sum": "Sum", "mean": "Mean", "sqrtn": "SqrtN"}[node.attrs.get("mode", "sum")]
    low.add(f"SparseSegment{kind}", [need(node, i) for i in range(3)], node.outputs)


@lowers("SparseFillEmptyRows", domain="netconv")
def lower_fill_empty(node: Node, low: Lowering) -> None:
    rows = node.attrs["rows"]
    shape = const(low, np.array([rows, max(1, node.attrs["length"] // rows)], need(node, 0).dtype.numpy()))  # type: ignore[union-attr]
    low.add("SparseFillEmptyRows", [need(node, 0), need(node, 1), shape, reshaped(low, need(node, 2), [1])], node.outputs)


@lowers("SparseWeightedSum", domain="netconv")
def lower_weighted_sum(node: Node, low: Lowering) -> None:
    shape = ints(low, [node.attrs["rows"], static(need(node, 1))[0]])
    inputs = [need(node, 0), need(node, 1), shape, need(node, 2), reshaped(low, need(node, 3), [])]
    low.add("ExperimentalSparseWeightedSum", [*inputs, *([need(node, 4)] if node.input(4) is not None else [])], node.outputs)


def _image(node: Node, low: Lowering, index: int) -> ir.Value:
    """A value of which the layer only looks at the size: one that the graph has already, else a constant of zeros."""
    size = ints_of(node, index, "the sizes")
    if min(size) < 1:
        raise MappingError("a prior box of an empty image")
    owner = node.outputs[0].producer()
    if owner is not None and isinstance(owner.graph, ir.Graph):
        for value in (*owner.graph.inputs, *_before(owner, owner.graph)):
            shape = shape_of(value)
            if shape is not None and len(shape) == 4 and list(shape[2:]) == size and is_float(value):
                return value
    return const(low, np.zeros([1, 1, *size], np.float32), "size")


def _before(owner: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    for node in graph:
        if node is owner:
            return
        if node.domain == "" and node.op_type in ("Conv", "Relu", "MaxPool", "AveragePool", "Concat", "Add", "Mul"):
            yield from node.outputs[:1]


@lowers("PriorBox", domain="netconv")
def lower_prior_box(node: Node, low: Lowering) -> None:
    if not node.attrs.get("min_max_aspect_ratios_order", 1):
        raise MappingError("the aspect ratios in front of max_size are not known to the target")
    names = ["min_size", "max_size", "aspect_ratio", "flip", "clip", "step", "offset", "variance", "scale_all_sizes"]
    names += [k for k in ("fixed_size", "fixed_ratio", "density") if node.attrs.get(k)]
    lists: dict[str, Any] = {k: () for k in ("min_size", "max_size", "aspect_ratio", "variance")}
    full = {"flip": 0, "clip": 0, "step": 0.0, "offset": 0.5, "scale_all_sizes": 1, **lists, **node.attrs}
    _priors(node, low, "PriorBox", pairs(full, *names))


@lowers("PriorBoxClustered", domain="netconv")
def lower_prior_box_clustered(node: Node, low: Lowering) -> None:
    """`flip` has no meaning here, but the engine does not read the layer without it."""
    full = {"clip": 0, "step": 0.0, "step_w": 0.0, "step_h": 0.0, "offset": 0.5, "img_w": 0.0, "img_h": 0.0, "variance": [], "flip": 0, **node.attrs}
    _priors(node, low, "PriorBoxClustered", pairs(full, *full))


def _priors(node: Node, low: Lowering, kind: str, attrs: dict[str, str]) -> None:
    """[2, n] of the catalogue is [1, 2, n] here."""
    out = node.outputs[0]
    boxes = step(low, kind, [_image(node, low, 0), _image(node, low, 1)], out, [1, *static(out)], attrs)
    finish(low, boxes, out)


ATTRIBUTES = (
    "num_classes background_label_id top_k keep_top_k nms_threshold confidence_threshold share_location "
    "variance_encoded_in_target clip_before_nms clip_after_nms decrease_label_id normalized input_height input_width"
)


@lowers("DetectionOutput", domain="netconv")
def lower_detection_output(node: Node, low: Lowering) -> None:
    names = ATTRIBUTES.split()
    attrs = {k: v for k, v in defaults_of("DetectionOutput").items() if k not in node.attrs} | node.attrs
    classes = static(need(node, 1))[1] // max(1, static(need(node, 2))[-1] // (4 if attrs["normalized"] else 5))
    attrs["num_classes"] = attrs["num_classes"] or classes
    if attrs["background_label_id"] < 0:  # none: the engine reads no numbers below 0, and no class has the number behind the last
        attrs["background_label_id"] = attrs["num_classes"]
    if attrs["top_k"] < 0:  # all of them
        attrs["top_k"] = static(need(node, 1))[1] // classes
    if attrs["keep_top_k"] < 1:
        attrs["keep_top_k"] = static(node.outputs[0])[2] // static(need(node, 0))[0]
    kind = {"corner": "CORNER", "center_size": "CENTER_SIZE"}.get(str(attrs["code_type"]).rsplit(".", 1)[-1].lower())
    if kind is None:
        raise MappingError(f"code_type={attrs['code_type']!r} is not known to the target")
    inputs = [v for v in node.inputs if v is not None]
    extra = pairs(attrs, "objectness_score") if len(inputs) > 3 else {}
    low.add("DetectionOutput", inputs, node.outputs, pairs(attrs, *names) | extra | {"code_type": f"caffe.PriorBoxParameter.{kind}"})


def defaults_of(name: str) -> dict[str, Any]:
    from converter.mapping.table import defaults

    return dict(defaults(name, "netconv"))


def _plain(name: str, far: str, **renamed: str) -> None:
    """An operator whose attributes have the same names here and there (or those in `renamed`)."""

    @lowers(name, domain="netconv")
    def lower(node: Node, low: Lowering) -> None:
        attrs = {**defaults_of(name), **node.attrs}
        outputs = list(node.outputs)
        while len(outputs) > 1 and not (outputs[-1].uses() or outputs[-1].is_graph_output()):
            outputs.pop()
        written = pairs(attrs, *attrs)
        low.add(far, [v for v in node.inputs if v is not None], outputs, {renamed.get(k, k): v for k, v in written.items() if v != "" or k == "framework"})


@lowers("CTCGreedyDecoder", domain="netconv")
def lower_ctc(node: Node, low: Lowering) -> None:
    if not {**defaults_of("CTCGreedyDecoder"), **node.attrs}.get("ctc_merge_repeated", 1):
        raise MappingError("repeated classes that are not merged are not known to the target")
    low.add("CTCGreedyDecoder", [need(node, i) for i in range(2)], node.outputs, {"ctc_merge_repeated": "1"})


_plain("Proposal", "Proposal")
_plain("ROIPooling", "ROIPooling")
_plain("PSROIPooling", "PSROIPooling")
_plain("RegionYolo", "RegionYolo")
_plain("ReorgYolo", "ReorgYolo")
_plain("DetectronPriorGridGenerator", "ExperimentalDetectronPriorGridGenerator", h="grid_h", w="grid_w")
_plain("DetectronTopKROIs", "ExperimentalDetectronTopKROIs")
_plain("DetectronGenerateProposals", "ExperimentalDetectronGenerateProposalsSingleImage")
_plain("DetectronDetectionOutput", "ExperimentalDetectronDetectionOutput")
_plain("DetectronROIFeatureExtractor", "ExperimentalDetectronROIFeatureExtractor")
