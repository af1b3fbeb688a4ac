"""The default engine: onnxruntime on the shared graph."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.errors import UnsupportedError, UsageError
from converter.graph import EXTENSION_DOMAIN
from converter.graph.extensions import bind, can_expand
from converter.graph.walk import all_nodes

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from converter.model import Model

INLINE_LIMIT = 1 << 30  # bytes of weights; above this they go to the engine as external data


@dataclass
class Session:
    """A prepared model; feeds and results are keyed by the model's public names."""

    session: InferenceSession
    inputs: list[tuple[str, str]]  # (public name, graph name)
    outputs: list[str]

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        named = {g: ir_feed(feeds[p]) for p, g in self.inputs}
        try:
            results = self.session.run(None, {k: v for k, v in named.items() if k in {i.name for i in self.session.get_inputs()}})
        except Exception as e:  # onnxruntime raises its own RuntimeError family
            raise UsageError(Diagnostic("N403", f"onnxruntime: {str(e).splitlines()[0]}")) from None
        return dict(zip(self.outputs, (np.asarray(r) for r in results), strict=True))


def ir_feed(array: Any) -> Any:
    return np.ascontiguousarray(array) if array.dtype != object else array


def prepare(model: Model, *, optimise: bool = True) -> Session:
    """Compiles the model; UnsupportedError N403/X208 when an operator cannot be executed."""
    import onnxruntime

    refuse_opaque(model.ir)
    clone = model.ir.clone()
    bind(clone)
    from converter.engines.legalise import legalise_for_onnxruntime

    legalise_for_onnxruntime(clone)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    size = sum(v.const_value.nbytes for v in clone.graph.initializers.values() if v.const_value is not None)
    try:
        session = _load(clone, options, size)
    except Exception as e:  # onnxruntime raises its own RuntimeError family
        raise UnsupportedError(Diagnostic("N403", f"onnxruntime cannot run this model: {str(e).splitlines()[0]}")) from None
    names = [(i.name, str(v.name)) for i, v in zip(model.inputs, model.ir.graph.inputs, strict=True)]
    return Session(session, names, unique([o.name for o in model.outputs]))


def unique(names: list[str]) -> list[str]:
    """Output names for a dict: a repeated name gets a number (Core ML lets two outputs share one)."""
    seen: dict[str, int] = {}
    result = []
    for n in names:
        seen[n] = seen.get(n, 0) + 1
        result.append(n if seen[n] == 1 else f"{n}.{seen[n] - 1}")
    return result


def _load(model: ir.Model, options: Any, size: int) -> InferenceSession:
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    if size < INLINE_LIMIT:
        return onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.bin")
        return onnxruntime.InferenceSession(str(path), options, providers=providers)


def refuse_opaque(model: ir.Model) -> None:
    """UnsupportedError X208 that names every operator without a definition."""
    found = [n for n in all_nodes(model.graph) if n.domain == EXTENSION_DOMAIN and not can_expand(n)]
    if found:
        raise UnsupportedError(
            Diagnostic(
                "X208", f"{n.op_type} cannot be executed: it has no definition", where=Where(layer=n.metadata_props.get("netconv.layer", ""), kind=n.op_type)
            )
            for n in found
        )
