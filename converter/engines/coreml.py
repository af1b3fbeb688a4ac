"""Core ML on macOS: the model is written by netconv's Core ML writer and run by the system's
framework.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.engines import Prepared, prepared, refusing
from converter.engines.onnxruntime import refuse_opaque
from converter.errors import Diagnostic, UnsupportedError, wrong_call
from converter.formats.format import Flavor
from converter.graph.names import unique

if TYPE_CHECKING:
    from converter.graph.network import Network


def _feature(array: np.ndarray) -> np.ndarray:
    """Convert an array to a type that Core ML accepts: float32, float64 or int32."""
    return array.astype(np.int32) if array.dtype.kind in "iub" else array.astype(np.float32)


def prepare(model: Network) -> Prepared:
    """Prepare the model. Raises UnsupportedError N403 on any system except macOS: only Apple's
    framework executes Core ML models.
    """
    if sys.platform != "darwin":
        raise UnsupportedError(
            Diagnostic(
                "N403",
                "only macOS can run Core ML models",
                help="use the default engine: --engine onnxruntime",
            )
        )
    refuse_opaque(model.ir)
    import coremltools

    from converter.formats import get

    with (
        tempfile.TemporaryDirectory(prefix="netconv-") as folder,
        refusing(UnsupportedError, "coreml cannot run this model"),
    ):
        path = Path(folder) / "model.mlmodel"
        get("coreml").write(model, path, Flavor("coreml"))
        network = coremltools.models.MLModel(
            str(path), compute_units=coremltools.ComputeUnit.CPU_ONLY
        )
    names = unique([o.name for o in model.outputs])

    def compute(arrays: list[Any]) -> list[Any]:
        given = zip(model.inputs, arrays, strict=True)
        results = network.predict({i.name: _feature(np.asarray(array)) for i, array in given})
        missing = [n for n in names if n not in results]
        if missing:
            raise wrong_call(f"coreml did not return the output {missing[0]!r}", code="N403")
        outputs = zip(names, model.outputs, strict=True)
        return [np.asarray(results[n]).astype(o.dtype) for n, o in outputs]

    return prepared(model, "coreml", compute, network)
