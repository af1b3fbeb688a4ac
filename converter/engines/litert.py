"""Run a TensorFlow Lite file, or a model that can be written as one, on LiteRT, an engine that
shares no code with ours.

A model that was read from a `.tflite`, and whose inputs and outputs have not changed since, is run
from its own file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converter.engines import Prepared, file, prepared
from converter.errors import ConverterError, Diagnostic, wrong_call
from converter.formats.format import Flavor
from converter.graph.network import as_complex, as_pairs
from converter.io.extras import install

if TYPE_CHECKING:
    from converter.graph.infer import Array
    from converter.graph.network import Network, TensorInfo


def available() -> bool:
    """Return whether ai-edge-litert is installed, without importing it."""
    return file.available("litert")


def prepare(model: Network) -> Prepared:
    """Prepare the model for LiteRT: from its file, or written as one. Raises UnsupportedError for
    layers that TensorFlow Lite cannot express.
    """
    if not available():
        raise wrong_call("LiteRT is not installed", help=f"run {install('litert')}", code="U502")
    folder = tempfile.TemporaryDirectory(prefix="netconv-")
    unchanged = model.interface.get("tflite") == (model.inputs, model.outputs)
    own = model.source if unchanged else None
    path = own or _written(model, Path(folder.name))
    # complex numbers are pairs in the model, and in files written from it
    pairs = model.interface.get("complex", ()) if own else ()

    def compute(arrays: list[Array]) -> list[Array]:
        given = zip(model.inputs, arrays, strict=True)
        inputs = [np.asarray(as_complex(a) if i.name in pairs else a) for i, a in given]
        found = invoke(path, inputs)
        return list(map(_as_declared, found, model.outputs))

    return prepared(model, "litert", compute, folder)


def _written(model: Network, folder: Path) -> Path:
    from converter.formats import get

    path = folder / "model.tflite"
    get("tflite").write(model, path, Flavor("tflite"))
    return path


def _as_declared(result: Array, info: TensorInfo) -> Array:
    """Return the result in the type and shape that the model declares."""
    value = as_pairs(result) if result.dtype.kind == "c" else result
    static = info.shape is not None and all(isinstance(d, int) for d in info.shape)
    shape = info.shape if static else value.shape
    return value.reshape(shape).astype(info.dtype, copy=False)  # type: ignore[arg-type]


def invoke(model: Path, inputs: list[Array]) -> list[Array]:
    """Run a model in LiteRT in a child process and return its outputs. Raises ConverterError N403
    if LiteRT cannot run it.
    """
    found = file.run("litert", model, (), [inputs])
    if found.stage != "done":
        raise ConverterError(
            Diagnostic(
                "N403",
                "LiteRT cannot run the model: "
                f"{found.error or 'Python cannot represent its input types as arrays'}",
            )
        )
    return [found.results[0][i] for i in range(len(found.outputs))]
