"""Pooling, resizing, normalisation, reduction and sorting -> layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import CoreLowering, attrs_with_defaults, is_float, numbers, rank_of_value, shape_list, small, x_of
from converter.formats.coreml.special.lower_arithmetic import core
from converter.formats.coreml.special.lower_matrix import borders, flat
from converter.formats.coreml.special.registry import lowers
from converter.formats.coreml.stored import of_array
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value
_TYPES = {"MaxPool": "MAX", "AveragePool": "AVERAGE", "LpPool": "L2", "GlobalMaxPool": "MAX", "GlobalAveragePool": "AVERAGE", "GlobalLpPool": "L2"}


@lowers("GlobalMaxPool GlobalAveragePool GlobalLpPool")
def lower_global_pool(near: Node, low: Lowering) -> None:
    x, rank = x_of(near), rank_of_value(x_of(near))
    if near.op == "GlobalLpPool" and (near.attrs.get("p", 2) != 2 or rank != 4):
        raise MappingError("GlobalLpPool with p other than 2, or not over two axes")
    if rank == 4:
        low.add("pooling", [x], near.outputs, {"type": _TYPES[near.op], "globalPooling": True, "valid": {"paddingAmounts": borders([0] * 4)}})
    elif rank == 5:
        low.add("globalPooling3d", [x], near.outputs, {"type": _TYPES[near.op]})
    else:
        raise MappingError(f"global pooling of rank {rank}")


@lowers("MaxPool AveragePool LpPool")
def lower_pool(near: Node, low: Lowering) -> None:
    attrs, x, c = attrs_with_defaults(near), x_of(near), core(low)
    kernel = [int(k) for k in attrs["kernel_shape"]]
    n = len(kernel)
    stride = [int(s) for s in attrs.get("strides") or [1] * n]
    pads = [int(p) for p in attrs.get("pads") or [0] * (2 * n)]
    if any(o.uses() or o.is_graph_output() for o in near.outputs[1:]):
        raise MappingError("the indices of MaxPool")
    if any(int(d) != 1 for d in attrs.get("dilations") or []) or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise MappingError("dilated or automatically padded pooling")
    if near.op == "LpPool" and attrs.get("p", 2) != 2:
        raise MappingError("LpPool with p other than 2")
    exclude = near.op == "AveragePool" and not attrs.get("count_include_pad", 0)
    if attrs.get("ceil_mode", 0):
        pads = _ceil_pads(near, kernel, stride, pads, exclude)
    if n == 3:
        _pool3(c, near, kernel, stride, pads, exclude)
        return
    outputs = [near.outputs[0]]
    if n == 1:
        x, inner = flat(c, x, near.outputs[0])
        outputs, kernel, stride, pads = [inner], [1, *kernel], [1, *stride], [0, pads[0], 0, pads[1]]
    layer = {"type": _TYPES[near.op], "kernelSize": kernel, "stride": stride, "avgPoolExcludePadding": exclude}
    low.add("pooling", [x], outputs, {**layer, "valid": {"paddingAmounts": borders(pads)}})
    if n == 1:
        low.add("squeeze", outputs, [near.outputs[0]], {"axes": [2]})


def _ceil_pads(near: Node, kernel: list[int], stride: list[int], pads: list[int], exclude: bool) -> list[int]:
    """Rounding up as padding after the end (less of it where a window goes), where padding does not count."""
    size = shape_of(x_of(near))
    if size is None:
        raise MappingError("ceil_mode needs static shapes", "X203", "fix the inputs with --inputs")
    n, more = len(kernel), list(pads)
    for i in range(n):
        whole = size[2 + i] + pads[i] + pads[n + i]
        steps = -(-(whole - kernel[i]) // stride[i])
        if steps * stride[i] >= size[2 + i] + pads[i]:  # a window may not begin in the padding after the end
            steps -= 1
        more[n + i] += steps * stride[i] + kernel[i] - whole
    if min(more) < 0:
        raise MappingError("rounding up that leaves padding out")
    if near.op == "AveragePool" and not exclude and more != pads:
        raise MappingError("ceil_mode of an average that counts padding")
    return more


def _pool3(low: CoreLowering, near: Node, kernel: list[int], stride: list[int], pads: list[int], exclude: bool) -> None:
    if near.op == "LpPool":
        raise MappingError("LpPool over three axes")
    names = ("Depth", "Height", "Width")
    attrs: dict[str, Any] = {"type": _TYPES[near.op], "paddingType": "CUSTOM", "countExcludePadding": exclude}
    attrs |= {f"kernel{a}": v for a, v in zip(names, kernel, strict=True)} | {f"stride{a}": v for a, v in zip(names, stride, strict=True)}
    attrs |= {f"customPadding{side}": v for side, v in zip(("Front", "Top", "Left", "Back", "Bottom", "Right"), pads, strict=True)}
    low.add("pooling3d", [x_of(near)], near.outputs[:1], attrs)


@lowers("Resize")
def lower_resize(near: Node, low: Lowering) -> None:
    """The last two axes, where a layer reads at the same positions; other cases are rewritten before."""
    x, attrs = x_of(near), attrs_with_defaults(near)
    rank = rank_of_value(x)
    given = small(near.input(2)) if near.input(2) is not None else None
    if given is None and near.input(2) is not None and shape_list(x_of(near, 2)) != [0]:
        raise MappingError("resizing by factors known only at run time")
    size, result = shape_list(x), shape_list(near.outputs[0])
    spatial = (size or [None] * rank)[-2:], (result or [None] * rank)[-2:]
    factors = [float(f) for f in given[-2:]] if given else _run_time_factors(near.input(3), x)
    if factors is None and None not in (*spatial[0], *spatial[1]):
        factors = [float(o) / float(i) for i, o in zip(*spatial, strict=True)]
    whole = factors is not None and all(f >= 1 and f.is_integer() for f in factors)
    if (given is not None and any(f != 1 for f in given[:-2])) or rank < 3 or factors is None or attrs.get("axes"):
        raise MappingError("resizing of other axes than the last two, or to a size known only at run time")
    if size is not None and result is not None and any(i != o for i, o in zip(size[:-2], result[:-2], strict=True) if None not in (i, o)):
        raise MappingError("resizing of other axes than the last two")
    if not whole and given and None not in (*spatial[0], *spatial[1]) and any(abs(f * i - o) > 1e-4 for f, i, o in zip(factors, *spatial, strict=True)):
        raise MappingError("factors that do not lead to whole sizes (the layer's positions follow from the sizes)")
    layer = _upsampling(attrs, factors, whole, spatial)
    low.add("upsample", [x], near.outputs, layer)


def _run_time_factors(sizes: Value | None, x: Value) -> list[float] | None:
    """The factors of Cast(Floor(Cast(Shape(x)) * factors)), the form in which fractional upsampling is lifted."""
    value = sizes
    for op in ("Cast", "Floor", "Mul"):
        node = value.producer() if value is not None else None
        if node is None or node.op_type != op:
            return None
        value = node.inputs[0]
        factors = small(node.inputs[1]) if op == "Mul" else None
    cast = value.producer() if value is not None else None
    shape = cast.inputs[0].producer() if cast is not None and cast.op_type == "Cast" and cast.inputs[0] is not None else None
    if factors is None or shape is None or shape.op_type != "Shape" or shape.inputs[0] is not x or any(f != 1 for f in factors[:-2]):
        return None
    return [float(f) for f in factors[-2:]]


def _upsampling(attrs: dict[str, Any], factors: list[float], whole: bool, spatial: Any) -> dict[str, Any]:
    mode, where = attrs["mode"], attrs["coordinate_transformation_mode"]
    scale = {"scalingFactor": [int(f) for f in factors]}
    if attrs.get("antialias", 0) and any(f < 1 for f in factors):
        raise MappingError("antialiased downsampling")
    if mode == "nearest":
        floors = where == "asymmetric" and attrs["nearest_mode"] == "floor"
        middles = where in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and attrs["nearest_mode"].startswith("round")
        if whole and (floors or middles):
            return {"mode": "NN", **scale}
    elif mode == "linear" and whole and where == "asymmetric":
        return {"mode": "BILINEAR", **scale}
    elif mode == "linear" and where in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        # pytorch_half_pixel is another formula for one element only
        if where == "pytorch_half_pixel" and (None in spatial[1] or 1 in spatial[1]):
            raise MappingError("pytorch_half_pixel to one element")
        name = {"align_corners": "ALIGN_CORNERS_TRUE"}.get(where, "ALIGN_CORNERS_FALSE")
        if whole:
            return {"mode": "BILINEAR", "linearUpsampleMode": name, **scale}
        if None in (*spatial[0], *spatial[1]):
            return {"mode": "BILINEAR", "linearUpsampleMode": name, "fractionalScalingFactor": factors}
        exact = [_factor(int(i), int(o)) for i, o in zip(*spatial, strict=True)]
        return {"mode": "BILINEAR", "linearUpsampleMode": name, "fractionalScalingFactor": exact}
    raise MappingError(f"resizing with mode={mode}, {where}, factors {factors}")


def _factor(size: int, wanted: int) -> float:
    """A float32 factor for which floor(size * factor) is `wanted` in any rounding."""
    factor = np.float32(wanted / size)
    while float(factor) * size < wanted or np.float32(size) * factor < np.float32(wanted):
        factor = np.nextafter(factor, np.float32(np.inf))
    return float(factor)


@lowers("DepthToSpace SpaceToDepth")
def lower_reorganise(near: Node, low: Lowering) -> None:
    modes = {"SpaceToDepth": "SPACE_TO_DEPTH", "DCR": "DEPTH_TO_SPACE", "CRD": "PIXEL_SHUFFLE"}
    mode = modes["SpaceToDepth" if near.op == "SpaceToDepth" else near.attrs.get("mode", "DCR")]
    if int(near.attrs["blocksize"]) < 2:
        core(low).alias(near.outputs[0], x_of(near))
    else:
        low.add("reorganizeData", [x_of(near)], near.outputs, {"mode": mode, "blockSize": int(near.attrs["blocksize"])})


@lowers("Softmax")
def lower_softmax(near: Node, low: Lowering) -> None:
    low.add("softmaxND", [x_of(near)], near.outputs, {"axis": int(near.attrs.get("axis", -1))})


def _vector(near: Node, low: Lowering, index: int, what: str) -> Any:
    return core(low).plain(numbers(near.input(index), what).reshape(-1))


@lowers("BatchNormalization")
def lower_batchnorm(near: Node, low: Lowering) -> None:
    x, attrs = x_of(near), attrs_with_defaults(near)
    if any(o.uses() or o.is_graph_output() for o in near.outputs[1:]) or rank_of_value(x) != 4 or attrs.get("training_mode", 0) or attrs["epsilon"] <= 0:
        raise MappingError("batch normalisation in training, without epsilon or not of rank 4")
    names = ("gamma", "beta", "mean", "variance")
    blobs = {n: _vector(near, low, i + 1, n) for i, n in enumerate(names)}
    low.add("batchnorm", [x], near.outputs[:1], {"channels": blobs["gamma"].count, "epsilon": attrs["epsilon"]}, blobs)


@lowers("InstanceNormalization")
def lower_instance_norm(near: Node, low: Lowering) -> None:
    x, epsilon = x_of(near), attrs_with_defaults(near)["epsilon"]
    if rank_of_value(x) != 4 or epsilon <= 0:
        raise MappingError("instance normalisation without epsilon or not of rank 4")
    gamma = numbers(near.input(1), "gamma").reshape(-1)
    c = core(low)
    blobs = {"gamma": c.plain(gamma), "beta": _vector(near, low, 2, "beta"), "mean": c.plain(np.zeros_like(gamma)), "variance": c.plain(np.ones_like(gamma))}
    attrs = {"channels": gamma.size, "epsilon": epsilon, "computeMeanVar": True, "instanceNormalization": True}
    low.add("batchnorm", [x], near.outputs, attrs, blobs)


@lowers("LayerNormalization")
def lower_layer_norm(near: Node, low: Lowering) -> None:
    x, attrs = x_of(near), attrs_with_defaults(near)
    if any(o.uses() or o.is_graph_output() for o in near.outputs[1:]):
        raise MappingError("mean and deviation of LayerNormalization")
    axis = int(attrs["axis"])
    shape = (shape_list(x) or [])[axis:] if axis < 0 or x.shape is not None else []
    if not shape or None in shape:
        raise MappingError("LayerNormalization over dimensions that are not static", "X203", "fix the inputs with --inputs")
    scale = np.broadcast_to(numbers(near.input(1), "the scale"), shape)
    beta = np.zeros(shape, np.float32) if near.input(2) is None else np.broadcast_to(numbers(near.input(2), "the bias"), shape)
    blobs = {"gamma": of_array(np.asarray(scale, np.float32)), "beta": of_array(np.asarray(beta, np.float32))}  # the layer takes no half precision
    low.add("layerNormalization", [x], near.outputs[:1], {"normalizedShape": shape, "eps": attrs["epsilon"]}, blobs)


@lowers("LRN")
def lower_lrn(near: Node, low: Lowering) -> None:
    attrs = attrs_with_defaults(near)
    if rank_of_value(x_of(near)) != 4 or attrs["bias"] == 0:
        raise MappingError("LRN of another rank than 4 or with bias 0")
    low.add("lrn", [x_of(near)], near.outputs, {"alpha": attrs["alpha"], "beta": attrs["beta"], "localSize": int(attrs["size"]), "k": attrs["bias"]})


@lowers("ReduceL1 ReduceL2 ReduceMax ReduceMin ReduceSum ReduceProd ReduceMean ReduceLogSum ReduceSumSquare ReduceLogSumExp")
def lower_reduce(near: Node, low: Lowering) -> None:
    x, keep = x_of(near), bool(near.attrs.get("keepdims", 1))
    axes = small(near.input(1)) if near.input(1) is not None else []
    if axes is None:
        raise MappingError("the axes must be constant")
    if not axes and near.attrs.get("noop_with_empty_axes", 0):
        raise MappingError("a reduction over no axis at all")
    kind = "reduce" + near.op.removeprefix("Reduce")
    rank = rank_of_value(x)
    everything = not axes or len({int(a) % max(rank, 1) for a in axes}) == rank
    target = near.outputs
    if near.op == "ReduceMean" and not is_float(near.outputs[0]):
        raise MappingError("the mean of integers")
    low.add(kind, [x], target, {"keepDims": keep, "reduceAll": True} if everything else {"keepDims": keep, "axes": sorted(int(a) % rank for a in axes)})


@lowers("ArgMax ArgMin")
def lower_arg(near: Node, low: Lowering) -> None:
    if near.attrs.get("select_last_index", 0):
        raise MappingError("the last of several extremes")
    attrs = {"axis": int(near.attrs.get("axis", 0)), "removeDim": not near.attrs.get("keepdims", 1)}
    low.add("argMax" if near.op == "ArgMax" else "argMin", [x_of(near)], near.outputs, attrs)


@lowers("TopK")
def lower_top_k(near: Node, low: Lowering) -> None:
    k, attrs = small(near.input(1)), {"axis": int(near.attrs.get("axis", -1)), "useBottomK": not near.attrs.get("largest", 1)}
    if k is not None:
        low.add("topK", [x_of(near)], near.outputs, {**attrs, "K": int(k[0])})
    else:
        low.add("topK", [x_of(near), near.input(1)], near.outputs, attrs)


@lowers("CumSum")
def lower_cum_sum(near: Node, low: Lowering) -> None:
    axis = small(near.input(1))
    attrs = {"excludeFinalSum": bool(near.attrs.get("exclusive", 0)), "reverse": bool(near.attrs.get("reverse", 0))}
    if axis is not None:
        low.add("cumSum", [x_of(near)], near.outputs, {**attrs, "axis": int(axis[0])})
    else:
        low.add("cumSum", [x_of(near), near.input(1)], near.outputs, attrs)


@lowers("NonZero")
def lower_non_zero(near: Node, low: Lowering) -> None:
    x, c = x_of(near), core(low)
    rows = c.one("whereNonZero", [x], [None, max(1, rank_of_value(x))])
    low.add("transpose", [rows], near.outputs, {"axes": [1, 0]})
