"""Running a TensorFlow Lite file, or a model that can be written as one, on LiteRT, an engine that
shares no code with ours.

A model that was read from a `.tflite` and has the boundary it was read with is run from its own
file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converter.engines import file
from converter.errors import ConverterError, Diagnostic, UsageError
from converter.formats.format import Flavour
from converter.graph.network import as_complex, as_pairs

if TYPE_CHECKING:
    from converter.graph.infer import Array
    from converter.graph.network import Network


def available() -> bool:
    """Whether ai-edge-litert is installed; nothing is imported."""
    return file.available("litert")


class Prepared:
    """A model as the file that it was read from, or is written as; feeds and results are in the
    model's own types and shapes.
    """

    def __init__(self, model: Network) -> None:
        self.inputs, self.outputs = model.inputs, model.outputs
        self.folder = tempfile.TemporaryDirectory(prefix="netconv-")
        own = _own_file(model)
        # complex numbers are pairs in the model, and in files that are written of it
        self.complex = model.interface.get("complex", ()) if own else ()
        self.path = own or self._written(model)

    def _written(self, model: Network) -> Path:
        from converter.formats import get

        path = Path(self.folder.name) / "model.tflite"
        get("tflite").write(model, path, Flavour("tflite"))
        return path

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {n: as_complex(v) if n in self.complex else v for n, v in feeds.items()}
        found = invoke(self.path, [np.asarray(given[i.name]) for i in self.inputs])
        results: dict[str, Array] = {}
        for info, result in zip(self.outputs, found, strict=True):
            value = as_pairs(result) if result.dtype.kind == "c" else result
            shape = (
                info.shape
                if info.shape is not None and all(isinstance(d, int) for d in info.shape)
                else value.shape
            )
            results[info.name] = value.reshape(shape).astype(info.dtype, copy=False)  # type: ignore[arg-type]
        return results


def _own_file(model: Network) -> Path | None:
    """The file that the model came from, unless inputs or outputs were changed since."""
    return model.source if model.interface.get("tflite") == (model.inputs, model.outputs) else None


def prepare(model: Network) -> Prepared:
    """The model as LiteRT runs it: from its file, or written as one. Raises UnsupportedError for
    what that cannot express.
    """
    if not available():
        raise UsageError(
            Diagnostic("U502", "LiteRT is not installed", help="pip install 'netconv[litert]'")
        )
    return Prepared(model)


def invoke(model: Path, inputs: list[Array]) -> list[Array]:
    found = file.run("litert", model, (), [inputs])
    if found.stage != "done":
        raise ConverterError(
            Diagnostic(
                "N403",
                "LiteRT refuses the model: "
                f"{found.error or 'Python has no arrays of the types of its inputs'}",
            )
        )
    return [found.results[0][i] for i in range(len(found.outputs))]
