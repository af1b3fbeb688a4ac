"""Resizing: NNAPI has three rules for coordinates; another rule is written as one of them where both pick the same sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.formats.nnapi.table import Array
from converter.graph.infer import known
from converter.graph.sizes import arange
from converter.mapping.node import MappingError


@lifts("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(a: Args) -> ir.Value:
    """Without flags a coordinate is i * in / out; sizes by factors are rounded down."""
    height, width = a.spatial()
    if "width" in a.binding.inputs:
        target = [a.integer("height"), a.integer("width")]
    else:
        target = [int(height * a.number("height_scale")), int(width * a.number("width_scale"))]
    corners, half = a.flag("align_corners"), a.flag("half_pixel_centers")
    coordinates = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    sizes = [a.shape()[0], a.channels(), *target]
    if a.name == "RESIZE_BILINEAR":
        return a.twin("Resize", a.real("input"), None, None, sizes, mode="linear", coordinate_transformation_mode=coordinates)
    # nearest: floor(i * in / out), or the nearest source pixel with ties upwards where a flag is set
    rounding = "round_prefer_ceil" if corners or half else "floor"
    return a.twin("Resize", a.real("input"), None, None, sizes, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=rounding)


@lowers("Resize")
def lower_resize(e: Emit) -> None:
    """RESIZE_NEAREST_NEIGHBOR or RESIZE_BILINEAR with the flags (align_corners, half_pixel_centers) that give the same sources."""
    mode = e.attrs["mode"]
    if mode not in ("nearest", "linear") or e.attrs.get("antialias") or len(e.shape()) != 4:
        raise MappingError(f"mode {mode!r} is not possible, or not in this rank")
    if e.shape()[0] != e.out[0] or e.channels() != e.channels(e.node.outputs[0]):
        raise MappingError("only height and width can be resized")
    size, target = e.spatial(), e.spatial(e.node.outputs[0])
    scales = image_scales(e, size, target)
    wanted = [sources(e.attrs["coordinate_transformation_mode"], n, m, s) for n, m, s in zip(size, target, scales, strict=True)]
    if mode == "nearest":
        wanted = [np.clip(ROUND[e.attrs["nearest_mode"]](c), 0, n - 1) for c, n in zip(wanted, size, strict=True)]
    else:
        wanted = [np.clip(c, 0, n - 1) for c, n in zip(wanted, size, strict=True)]
    for corners, half in ((False, False), (True, False), (False, True)):
        if all(np.allclose(own(mode, corners, half, n, m), w, atol=1e-4) for n, m, w in zip(size, target, wanted, strict=True)):
            flags = {"nchw": False, "align_corners": corners, "half_pixel_centers": half} if corners or half else {}
            x, y = e.image(), e.result(image=True)
            kind = "RESIZE_NEAREST_NEIGHBOR" if mode == "nearest" else "RESIZE_BILINEAR"
            e.put(kind, y, input=x, width=target[1], height=target[0], **flags or ({"nchw": False} if mode == "nearest" else {}))
            return
    raise MappingError("none of NNAPI's rules for coordinates gives these sources")


ROUND: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor, "ceil": np.ceil,
    "round_prefer_floor": lambda c: np.ceil(c - 0.5), "round_prefer_ceil": lambda c: np.floor(c + 0.5),
}  # fmt: skip


def image_scales(e: Emit, size: tuple[int, int], target: tuple[int, int]) -> list[float]:
    """The factors of height and width: those that are given, else the ratio of the sizes."""
    given = known(e.node.inputs[2]) if e.has(2) else None
    if given is None and e.has(2) and e.shape(2) != (0,):
        raise MappingError("the scales are known only at run time")
    if given is None or given.size not in (2, 4):
        return [m / n for n, m in zip(size, target, strict=True)]
    return [float(s) for s in given.reshape(-1)[-2:]]  # also a twin has them in the order N, C, height, width


def sources(rule: str, n: int, m: int, scale: float) -> Array:
    """The source coordinate of each of `m` positions, as ONNX's Resize has it."""
    i = arange(m, dtype=np.float64)
    if rule == "align_corners":
        return i * (n - 1) / (m - 1) if m > 1 else i * 0
    if rule == "asymmetric":
        return i / scale
    if rule == "pytorch_half_pixel" and m == 1:
        return i * 0
    if rule in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    if rule == "half_pixel_symmetric":
        return n / 2 * (1 - m / (scale * n)) + (i + 0.5) / scale - 0.5
    raise MappingError(f"the rule {rule!r} for coordinates is not possible")


def own(mode: str, corners: bool, half: bool, n: int, m: int) -> Array:
    """The same as NNAPI has it: source positions of the nearest neighbour, or coordinates between neighbours."""
    scale = (n - 1) / (m - 1) if corners and m > 1 else n / m
    i = arange(m, dtype=np.float64)
    found = (i + 0.5) * scale if half else i * scale
    if mode == "nearest":
        return np.minimum(np.floor(found + 0.5) if corners else np.floor(found), n - 1)
    return np.clip(found - 0.5 if half else found, 0, n - 1)
