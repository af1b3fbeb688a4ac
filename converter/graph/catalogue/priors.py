"""Prior boxes of detection networks, which depend only on the sizes of a feature map and of the
image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import above, at_least, of_length
from converter.graph.extensions import extension
from converter.graph.infer import known
from converter.graph.value import FLOAT

# shift of the center in x and y, half width, half height, whether it is always clipped
Prior = tuple[float, float, float, float, bool]


@extension
def PriorBox(
    b: Builder,
    layer: Value,
    image: Value,
    *,
    min_size: Sequence[float] = (),
    max_size: Sequence[float] = (),
    aspect_ratio: Sequence[float] = (),
    fixed_size: Sequence[float] = (),
    fixed_ratio: Sequence[float] = (),
    density: Sequence[float] = (),
    variance: Sequence[float] = (),
    flip: int = 0,
    clip: int = 0,
    step: float = 0.0,
    offset: float = 0.5,
    scale_all_sizes: int = 1,
    min_max_aspect_ratios_order: int = 1,
) -> Value:
    """SSD anchors: [2, H*W*P*4], row 0 the corners (x1, y1, x2, y2) relative to the image, row 1
    the variances.

    `layer` and `image` are (height, width). step 0 spreads the cells evenly over the image. With
    scale_all_sizes 0 (the MXNet form) min_size and step are relative to the image height, which
    then must be known, and max_size is ignored; step -1 there means even spreading. Source:
    OpenVINO, PriorBox-8.
    """
    at_least(0, min_size=min_size, max_size=max_size)
    above(0, aspect_ratio=aspect_ratio)
    low, even = list(min_size), step == 0
    if not scale_all_sizes:
        max_size = ()
        height = _height(image)
        low = [s * height for s in low]
        step = height / _height(layer) if step == -1 else step * height
        even = step == 0
    ratios = _ratios(aspect_ratio, flip)
    priors = [
        *_fixed(fixed_size, fixed_ratio, density, ratios),
        *_sized(low, max_size, ratios, bool(scale_all_sizes), bool(min_max_aspect_ratios_order)),
    ]
    centers = _centers(b, layer, image, (step, step), 0.5 if even else offset)
    return _corners(b, centers, priors, image, bool(clip), list(variance))


@extension
def PriorBoxClustered(
    b: Builder,
    layer: Value,
    image: Value,
    *,
    width: list[float],
    height: list[float],
    variance: Sequence[float] = (),
    clip: int = 0,
    step: float = 0.0,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    img_w: float = 0.0,
    img_h: float = 0.0,
) -> Value:
    """Anchors of given widths and heights around each cell: [2, H*W*P*4] as PriorBox.

    img_w, img_h 0: those of `image`. Source: OpenVINO, PriorBoxClustered-1.
    """
    of_length(len(width), height=height)
    priors = [(0.0, 0.0, w / 2, h / 2, False) for w, h in zip(width, height, strict=True)]
    size = image
    if img_w or img_h:
        size = b.Concat(_or(b, img_h, image, 0), _or(b, img_w, image, 1), axis=0)
    centers = _centers(b, layer, size, (step_h or step, step_w or step), offset)
    return _corners(b, centers, priors, size, bool(clip), list(variance))


def _or(b: Builder, number: float, image: Value, index: int) -> Value:
    if not number:
        return b.Slice(image, [index], [index + 1])
    return b.const(np.array([number], image.dtype.numpy() if image.dtype else np.int64))


def _height(size: Value) -> float:
    array = known(size)
    if array is None:
        raise MappingError("prior boxes relative to the image height need static sizes", "X203")
    return float(array[0])


def _ratios(aspect_ratio: Sequence[float], flip: int) -> list[float]:
    """Return the distinct ratios other than 1, each followed by its reciprocal if `flip`."""
    found = [1.0]
    for ratio in aspect_ratio:
        for r in (ratio, 1.0 / ratio) if flip and ratio else (ratio,):
            if all(abs(r - f) >= 1e-6 for f in found):
                found.append(r)
    return found[1:]


def _fixed(
    sizes: Sequence[float],
    fixed_ratio: Sequence[float],
    density: Sequence[float],
    ratios: list[float],
) -> Iterator[Prior]:
    for i, size in enumerate(sizes):
        count = int(density[i]) if i < len(density) else 1
        shift, half = int(size / count), int(size) // 2
        shapes = [
            (size / 2 * math.sqrt(r), size / 2 / math.sqrt(r)) for r in (fixed_ratio or ratios)
        ]
        if not fixed_ratio and density:
            shapes.insert(0, (int(size) / 2, int(size) / 2))
        for w, h in shapes:
            for r in range(count):
                for c in range(count):
                    yield -half + shift / 2 + c * shift, -half + shift / 2 + r * shift, w, h, True


def _sized(
    low: Sequence[float], high: Sequence[float], ratios: list[float], each: bool, max_first: bool
) -> Iterator[Prior]:
    for i, size in enumerate(low):
        yield 0.0, 0.0, size / 2, size / 2, False
        base = size if each else low[0]
        shaped = (
            [(0.0, 0.0, base / 2 * math.sqrt(r), base / 2 / math.sqrt(r), False) for r in ratios]
            if each or i == len(low) - 1
            else []
        )
        half = math.sqrt(size * high[i]) / 2 if i < len(high) else 0.0
        middle = [(0.0, 0.0, half, half, False)] if i < len(high) else []
        yield from [*middle, *shaped] if max_first else [*shaped, *middle]


def _part(b: Builder, size: Value, index: int) -> Value:
    """Return height (0) or width (1) as a float32 scalar."""
    return b.Cast(b.Gather(size, index), to=FLOAT)


def _centers(
    b: Builder, layer: Value, image: Value, steps: tuple[float, float], offset: float
) -> list[Value]:
    """Return y and x of the cells' centers; steps that are both 0 spread them evenly over the
    image.
    """
    found = []
    for i, own in enumerate(steps):
        step = own if any(steps) else _part(b, image, i) / _part(b, layer, i)
        found.append((b.Range(0.0, _part(b, layer, i), 1.0) + offset) * step)
    return found


def _corners(
    b: Builder,
    centers: Sequence[Value],
    priors: list[Prior],
    image: Value,
    clip: bool,
    variance: list[float],
) -> Value:
    """Return corner boxes of all priors around all centers (y, x), and the row of variances."""
    table = np.array([p[:4] for p in priors], np.float32).reshape(-1, 4)
    bounded = np.array([p[4] for p in priors], bool)
    y, x = centers[0][:, None, None], centers[1][None, :, None]
    nothing = (x + y) * 0.0  # [H, W, 1]: broadcasts every coordinate to its full shape
    parts = []
    for sign in (-1, 1):
        for center, axis, size in ((x, 0, 1), (y, 1, 0)):
            edge = (center + (table[:, axis] + sign * table[:, axis + 2])) / _part(b, image, size)
            if bounded.any():
                border = np.where(bounded, max(sign, 0), sign * np.inf).astype(np.float32)
                edge = b.operator("Max" if sign < 0 else "Min")(edge, border)
            parts.append((edge + nothing)[..., None])
    boxes = b.Reshape(b.Concat(*parts, axis=-1), [1, -1])
    if clip:
        boxes = b.Clip(boxes, 0.0, 1.0)
    four = np.array(variance * 4 if len(variance) == 1 else variance or [0.1] * 4, np.float32)
    count = b.Div(b.Shape(boxes), [1, 4])
    return b.Concat(boxes, b.Tile(four.reshape(1, 4), count), axis=0)
