"""Layers of which only the name is known: they have no definition, so they are preserved but not
executed.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.extensions import opaque
from converter.graph.value import FLOAT
from converter.io.strict_json import note

Types = list[tuple[ir.DataType, list[Any] | None]]


@opaque
def CustomLayer(
    b: Any,
    *xs: ir.Value,
    class_name: str,
    description: str = "",
    parameters: str = "{}",
    weights: int = 0,
    domain_name: str = "",
    results: str = "",
) -> Types:
    """Return a layer that an application implements in a class; the last `weights` inputs are its
    weights, `parameters` is JSON.

    class_name and description are free text of the application. `results` is JSON: type and sizes
    of each result, which are unknown without it; `domain_name` is the set of operators that the
    layer is from. Source: Core ML, CustomLayerParams.
    """
    declared = note(results, [[(str, [(int, None)], None)]]) or ()
    if declared and all(len(r) == 2 and r[0] in ir.DataType.__members__ for r in declared):
        return [(ir.DataType[name], sizes) for name, sizes in declared]
    return [(FLOAT, None)] * 64
