"""Run a Core AI model, or a model that can be written as one, on Apple's own runtime.

A model that was read from an `.aimodel`, and whose inputs and outputs have not changed since, is
run from its own file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converter.engines import Prepared, file, prepared
from converter.errors import Diagnostic, NothingComparedError
from converter.formats.format import Flavor
from converter.graph.network import as_complex, as_pairs

if TYPE_CHECKING:
    from converter.graph.infer import Array
    from converter.graph.network import Network


def prepare(model: Network) -> Prepared:
    """Prepare the model for Core AI: from its file, or written as one. Raises UnsupportedError for
    layers that Core AI cannot express, UsageError U502 if the package is not installed.
    """
    from converter.formats import get
    from converter.formats.coreml.coreai.bindings import demand_installed

    demand_installed()
    folder = tempfile.TemporaryDirectory(prefix="netconv-")
    own = model.interface.get("coreai_boundary") == (model.inputs, model.outputs)
    path = Path(folder.name) / "model.aimodel"
    function = ""
    if own and model.source is not None:
        path, function = model.source, model.function
    else:
        get("coreai").write(model, path, Flavor("coreai"))
    pairs = model.interface.get("complex", ())
    names = [o.name for o in model.outputs]

    def compute(arrays: list[Array]) -> list[Array]:
        given = zip(model.inputs, arrays, strict=True)
        feeds = [np.asarray(as_complex(a) if i.name in pairs else a) for i, a in given]
        names_in = [i.name for i in model.inputs]
        found = file.run("coreai", path, names_in, [feeds], function=function)
        if found.stage != "done":
            why = found.error or "Python cannot represent its input types as arrays"
            raise NothingComparedError(Diagnostic("N403", f"Core AI cannot run the model: {why}"))
        position = {n: i for i, ports in enumerate(found.outputs) for n in ports}
        results = [found.results[0][position[n]] for n in names]
        return [as_pairs(r) if r.dtype.kind == "c" else r for r in results]

    return prepared(model, "coreai", compute, folder)
