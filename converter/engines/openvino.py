"""OpenVINO's runtime as an engine that shares no code with onnxruntime: the model is written by our
own IR v11 writer.

A model that was read from an IR of version 10 or 11, and whose inputs and outputs have not changed
since, is run from its own file. Numbers are float32 throughout: no reduced precision, no dynamic
quantization.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.engines import Prepared, prepared, refusing
from converter.engines.file_child import import_openvino
from converter.engines.onnxruntime import refuse_opaque
from converter.errors import Diagnostic, UnsupportedError
from converter.formats.format import Flavor
from converter.graph.network import Network

if TYPE_CHECKING:
    pass

ov: Any = import_openvino()
CONFIG = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "INFERENCE_NUM_THREADS": "2",
}


def _tensor(array: Any, port: Any) -> Any:
    kind = (
        port.get_element_type().to_dtype()
        if port.get_element_type() != ov.Type.string
        else array.dtype
    )
    return ov.Tensor(np.require(array.astype(kind, copy=False), requirements="C"))


def prepare(model: Network) -> Prepared:
    """Compile the model. Raises UnsupportedError with the reasons of the IR writer or of
    OpenVINO.
    """
    refuse_opaque(model.ir)
    folder = tempfile.TemporaryDirectory(prefix="netconv-")
    core = ov.Core()
    with refusing(UnsupportedError, "openvino cannot run this model"):
        network = _own_file(core, model) or _written(core, model, Path(folder.name))
        compiled = core.compile_model(network, "CPU", CONFIG)
    if len(compiled.inputs) != len(model.inputs) or len(compiled.outputs) != len(model.outputs):
        raise UnsupportedError(
            Diagnostic(
                "N403", "openvino reports other numbers of inputs or outputs than the model has"
            )
        )

    def compute(arrays: list[Any]) -> list[Any]:
        pairs = zip(arrays, compiled.inputs, strict=True)
        results = compiled([_tensor(np.asarray(array), port) for array, port in pairs])
        found = [np.array(results[port]) for port in compiled.outputs]
        return [
            a.astype(o.dtype, copy=False) if o.dtype.kind != "O" else a
            for o, a in zip(model.outputs, found, strict=True)
        ]

    # the compiled model maps files of the folder
    return prepared(model, "openvino", compute, (compiled, folder))


def _written(core: Any, model: Network, folder: Path) -> Any:
    """Write the model to a file, with its states as plain inputs and outputs, and read the file."""
    from converter.formats import get

    path = folder / "model.xml"
    plain = {k: v for k, v in model.interface.items() if k != "states"}
    model = Network(model.ir, model.format, interface=plain)
    get("openvino").write(model, path, Flavor("openvino", {"ir": "11"}))
    return core.read_model(path)


def _own_file(core: Any, model: Network) -> Any | None:
    """Return the network of the model's source file; None if inputs or outputs have changed since,
    or if OpenVINO does not read the file.
    """
    if (
        model.format != "openvino"
        or model.source is None
        or not model.source.with_suffix(".bin").is_file()
    ):
        return None
    try:
        network = core.read_model(model.source)
    except RuntimeError:  # a legacy IR: current releases do not read it
        return None
    shapes = [
        tuple(d.get_length() if d.is_static else None for d in i.partial_shape)
        if i.partial_shape.rank.is_static
        else None
        for i in network.inputs
    ]
    declared = [
        None if i.shape is None else tuple(d if isinstance(d, int) else None for d in i.shape)
        for i in model.inputs
    ]
    same = shapes == declared and len(network.outputs) == len(model.outputs)
    named = all(
        not port.names or info.name in port.names or len(port.names) > 1
        for port, info in zip(network.inputs, model.inputs, strict=False)
    )
    return network if same and named else None
