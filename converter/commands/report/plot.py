"""The error along the graph as an SVG: one point per compared tensor in the order of execution,
logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from converter.commands.verify.compare import Difference
from converter.commands.verify.result import WRONG, Tensor

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 220, 60, 24, 10
POINTS = 1500  # more are thinned out; the largest of their neighbours stay


def svg(tensors: Sequence[Tensor]) -> str:
    """Own error, total error and tolerance; a dashed line where the first layer is wrong. Empty
    without any error.
    """
    chosen = _thin(tensors)
    curves = {
        "own": [_size(t.own, lambda d: d.max_abs) for t in chosen],
        "total": [_size(t.total, lambda d: d.max_abs) for t in chosen],
        "limit": [_size(t.own, lambda d: d.tolerance) for t in chosen],
    }
    exponents = [math.log10(v) for points in curves.values() for v in points if v]
    if not exponents:
        return ""
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    high = max(high, low + 1)
    step = (WIDTH - LEFT - 10) / max(len(chosen) - 1, 1)

    def place(i: int, value: float) -> str:
        y = (
            TOP + (high - math.log10(value)) / (high - low) * (HEIGHT - TOP - BOTTOM)
            if value
            else HEIGHT - BOTTOM
        )
        return f"{LEFT + i * step:.1f},{y:.1f}"

    drawn = [_axis(low, high)]
    drawn += [
        f'<polyline class="{name}" points="{" ".join(place(i, v) for i, v in enumerate(points))}"/>'
        for name, points in curves.items()
        if any(points)
    ]
    first = next((i for i, t in enumerate(chosen) if t.status == WRONG), None)
    if first is not None:
        x = LEFT + first * step
        drawn.append(
            f'<line class="first" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        )
    label = f"{len(tensors)} tensors in the order of execution: own error, total error, tolerance (dashed)"
    drawn.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">{label}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="error along the graph">{"".join(drawn)}</svg>'


def _axis(low: int, high: int) -> str:
    marks = []
    for e in range(low, high + 1, max(1, (high - low) // 5)):
        y = TOP + (high - e) / (high - low) * (HEIGHT - TOP - BOTTOM)
        marks.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text x="{LEFT - 8}" y="{y + 4:.1f}" '
            f'text-anchor="end">1e{e}</text>'
        )
    return "".join(marks)


def _size(d: Difference | None, value: Callable[[Difference], float]) -> float:
    found = value(d) if d is not None else 0.0
    return 1e30 if math.isinf(found) else found if found > 1e-45 else 0.0


def _thin(tensors: Sequence[Tensor]) -> list[Tensor]:
    size = max(1, math.ceil(len(tensors) / POINTS))
    return [
        max(tensors[i : i + size], key=lambda t: _size(t.own, lambda d: d.max_abs))
        for i in range(0, len(tensors), size)
    ]
