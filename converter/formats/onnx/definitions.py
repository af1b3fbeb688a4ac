"""Bodies of unknown operators that a user defines: the functions of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from converter.errors import UnsupportedError, unreadable
from converter.formats.onnx.codec import read_onnx
from converter.formats.onnx.lift import Lifter
from converter.graph.build import Builder
from converter.graph.custom import CustomOperators


def definitions(paths: Sequence[Path], carry: bool = False) -> CustomOperators:
    """Return the functions of ONNX files as bodies of the operators of their names; raise ReadError
    R105 for a file without functions.
    """
    lifters: dict[str, Lifter] = {}
    functions: list[Any] = []
    for path in paths:
        proto, weights = read_onnx(path)
        if not proto.functions:
            help = "each operator is a function of the model: its name, inputs, attributes and body"
            raise unreadable("R105", "the model defines no functions", path, help)
        lifter = Lifter(proto, weights)
        lifters |= {f.name: lifter for f in proto.functions}
        functions += proto.functions

    def define(
        b: Builder, name: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
    ) -> Sequence[ir.Value] | None:
        lifter = lifters.get(name)
        if lifter is None:
            return None
        function = next(f for f in lifter.proto.functions if f.name == name)
        results = lifter.call(function, list(inputs), dict(attributes), b, name)
        if lifter.problems:
            raise UnsupportedError(lifter.problems)
        return [v for v in results if v is not None]

    return CustomOperators(carry, define, functions)
