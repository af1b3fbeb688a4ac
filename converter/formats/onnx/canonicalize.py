"""Conversion of graphs that a program built, in any form that ONNX allows, to the
canonical form.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from converter.errors import Diagnostic, ReadError
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.graph.network import Network


def canonical_form(model: Network) -> Network:
    """Return a model whose graph was built by hand, of any opset and spelling, in the form in which
    reading it from a file would give it; the model itself is unchanged.

    Raises the errors of reading: ReadError, UnsupportedError.
    """
    try:
        proto = ir.to_proto(model.ir)
    except (ir.serde.SerdeError, ValueError, TypeError) as e:
        raise ReadError(Diagnostic("R105", f"the graph cannot be written as ONNX: {e}")) from None
    read = lift(proto, TensorFiles(Path("the model in memory")))
    return Network(read.ir, model.format, list(model.notes), dict(model.interface))
