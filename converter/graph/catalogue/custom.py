"""Layers of which only the name is known: they have no definition, so they are preserved but not
executed.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.extensions import opaque
from converter.graph.value import FLOAT

Types = list[tuple[ir.DataType, list[Any] | None]]


@opaque
def CustomLayer(
    b: Any,
    *xs: ir.Value,
    class_name: str,
    description: str = "",
    parameters: str = "{}",
    weights: int = 0,
) -> Types:
    """A layer that an application implements in a class; the last `weights` inputs are its weights,
    `parameters` is JSON.

    class_name and description are free text of the application. Types and shapes of the results are
    unknown. Source: Core ML, CustomLayerParams.
    """
    return [(FLOAT, None)] * 64
