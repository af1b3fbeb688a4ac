"""Graphs that Apple's tools declare as one operation; their bodies compute the same."""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import Reading
from converter.graph.value import Value
from converter.mapping.rules import Custom, Rule, custom

PREFIX = "composite:"


def layer_norm(r: Reading) -> Value:
    """Over the last axes, with factor and bias."""
    x, rank = r.input(0), r.rank()
    axes = sorted(a % rank for a in r.attr("axes", list))
    if not axes or axes != list(range(axes[0], rank)):
        raise MappingError("axes that are not the last ones")
    rest = [v for v in r.layer.inputs[1:3] if v is not None]
    sizes = list(r.static(x)[axes[0] :]) if rest else []
    if any(v.shape is None or list(v.shape) != sizes for v in rest):
        raise MappingError("factors of another shape than the axes")
    if not rest:
        raise MappingError("a normalization without a factor")
    return r.b.LayerNormalization(x, *rest, axis=axes[0], epsilon=r.attr("eps", float))


RULES: list[Rule | Custom] = [custom("", f"{PREFIX}layer_norm", layer_norm)]
