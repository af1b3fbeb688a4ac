"""Core ML itself, on macOS: the model goes through our own Core ML writer and is run by the
system's framework.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.engines.onnxruntime import first_line, refuse_opaque, unique
from converter.errors import ConverterError, Diagnostic, UnsupportedError, UsageError
from converter.formats.format import Flavour

if TYPE_CHECKING:
    from converter.graph.network import Network


@dataclass
class Prepared:
    """A compiled model; feeds and results by feature name."""

    network: Any
    outputs: list[tuple[str, np.dtype[Any]]]

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        try:
            results = self.network.predict(
                {name: _feature(np.asarray(array)) for name, array in feeds.items()}
            )
        except Exception as e:  # the framework's errors come as RuntimeError
            raise UsageError(Diagnostic("N403", f"coreml: {first_line(e)}")) from None
        missing = [name for name, _ in self.outputs if name not in results]
        if missing:
            raise UsageError(Diagnostic("N403", f"coreml gave no output {missing[0]!r}"))
        return {name: np.asarray(results[name]).astype(dtype) for name, dtype in self.outputs}


def _feature(array: np.ndarray) -> np.ndarray:
    """Core ML feeds are float32, float64 or int32."""
    return array.astype(np.int32) if array.dtype.kind in "iub" else array.astype(np.float32)


def prepare(model: Network) -> Prepared:
    """UnsupportedError N403 on any other system than macOS: only Apple's framework executes Core ML
    models.
    """
    if sys.platform != "darwin":
        raise UnsupportedError(
            Diagnostic(
                "N403",
                "Core ML models are executed by macOS only",
                help="use the default engine: --engine onnxruntime",
            )
        )
    refuse_opaque(model.ir)
    import coremltools

    from converter.formats import get

    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        path = Path(folder) / "model.mlmodel"
        try:
            get("coreml").write(model, path, Flavour("coreml"))
            network = coremltools.models.MLModel(
                str(path), compute_units=coremltools.ComputeUnit.CPU_ONLY
            )
        except ConverterError:
            raise
        except Exception as e:
            raise UnsupportedError(
                Diagnostic("N403", f"coreml cannot run this model: {first_line(e)}")
            ) from None
    names = unique([o.name for o in model.outputs])
    return Prepared(network, [(n, o.dtype) for n, o in zip(names, model.outputs, strict=True)])
