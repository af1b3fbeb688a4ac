"""The default engine: onnxruntime on the shared graph."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.engines.session_weights import LARGE, Weights, frugal
from converter.errors import Diagnostic, UnsupportedError, UsageError, Where
from converter.formats.onnx.legalise import BOUNDARY, legalise_for_onnxruntime
from converter.graph import EXTENSION_DOMAIN
from converter.graph.extensions import can_expand
from converter.graph.walk import all_nodes
from converter.io import limits
from converter.passes.dead_code import remove_dead_code

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from converter.graph.network import Network

# bytes from which a weight is handed over as it lies in memory instead of inside the model
EXTERNAL = 4096
NO_PACKING = (
    1 << 30
)  # bytes of weights from which the session reads them as they are, without a second, faster copy
THREADS = 2


@dataclass
class Session:
    """A prepared model; feeds and results are keyed by the model's public names."""

    session: InferenceSession
    inputs: list[
        tuple[str, str, np.dtype[Any] | None]
    ]  # (public name, name inside, type fed instead of the declared one)
    outputs: list[
        tuple[str, np.dtype[Any] | None]
    ]  # (public name, declared type where the engine returns another one)
    weights: list[Any] = field(
        default_factory=list
    )  # arrays that the session reads in place: they must outlive it
    loops: bool = False
    wanted: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.wanted = frozenset(i.name for i in self.session.get_inputs())

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """UsageError N403 with onnxruntime's first line when the feeds do not fit."""
        named = {
            name: as_feed(feeds[public], fed)
            for public, name, fed in self.inputs
            if name in self.wanted
        }
        try:
            results = executed(self.session, None, named, self.loops)
        except Exception as e:  # onnxruntime raises its own RuntimeError family
            raise UsageError(Diagnostic("N403", f"onnxruntime: {first_line(e)}")) from None
        return {
            name: as_result(r, declared)
            for (name, declared), r in zip(self.outputs, results, strict=True)
        }


def executed(
    session: InferenceSession, wanted: list[str] | None, feeds: dict[str, Any], loops: bool
) -> list[Any]:
    """What the session computes. `loops`: it may have no end, so Ctrl-C and the like must not wait
    for it, as they do for C++ code; nor where time is limited.
    """
    if not loops and not limits.timed():
        return list(session.run(wanted, feeds))
    import onnxruntime

    options, found, failed, over = (
        onnxruntime.RunOptions(),
        list[Any](),
        list[BaseException](),
        threading.Event(),
    )

    def work() -> None:
        try:
            found.extend(session.run(wanted, feeds, options))
        except BaseException as e:
            failed.append(e)
        over.set()

    threading.Thread(target=work).start()
    try:
        # not Thread.join, which takes the thread for ended after an interrupt; the system may tell
        # any thread of a signal, Python only this one
        while not over.wait(0.1):
            pass
    except BaseException:
        options.terminate = True
        over.wait()
        raise
    if failed:
        raise failed[0]
    return found


def has_loop(nodes: Iterable[ir.Node]) -> bool:
    return any(n.op_type == "Loop" for n in nodes)


def as_feed(array: Any, fed: np.dtype[Any] | None) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    # ascontiguousarray would turn a scalar into a vector
    return (
        array.astype(fed)
        if fed is not None
        else array
        if array.dtype == object
        else np.require(array, requirements="C")
    )


def as_result(result: Any, declared: np.dtype[Any] | None) -> Any:
    if result is None or isinstance(result, list):
        return result
    return np.asarray(result) if declared is None else np.asarray(result).astype(declared)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def prepare(model: Network, *, optimise: bool = True, profile: str = "") -> Session:
    """Compiles the model; UnsupportedError N403/X208 when an operator cannot be executed.
    `profile`: the beginning of the path of a file that onnxruntime writes its times to.
    """
    import onnxruntime

    refuse_opaque(model.ir)
    clone = model.ir.clone()
    legalise_for_onnxruntime(clone)
    options = onnxruntime.SessionOptions()
    # weights of few bits are multiplied as floats: the default computes with 8-bit activations
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    options.log_severity_level = 4
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    # a thread without work sleeps: small networks are done before turning in a loop pays
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.use_deterministic_compute = True
    # quantised models compute what they say: float operators between QuantizeLinear and
    # DequantizeLinear, not fused integer kernels
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    inputs = [
        (i.name, str(v.name), _fed(v))
        for i, v in zip(model.inputs, model.ir.graph.inputs, strict=True)
    ]
    names = unique([o.name for o in model.outputs])
    outputs = [
        (n, None if _fed(v) is None or v.dtype is None else v.dtype.numpy())
        for n, v in zip(names, model.ir.graph.outputs, strict=True)
    ]
    try:
        session, weights = _load(clone, options)
    except Exception as e:  # onnxruntime raises its own RuntimeError family
        raise UnsupportedError(
            Diagnostic("N403", f"onnxruntime cannot run this model: {first_line(e)}")
        ) from None
    return Session(session, inputs, outputs, weights, has_loop(all_nodes(clone.graph)))


def _fed(value: ir.Value) -> np.dtype[Any] | None:
    target = (
        BOUNDARY.get(value.dtype)
        if value.dtype is not None and isinstance(value.type, ir.TensorType)
        else None
    )
    return None if target is None else target.numpy()


def unique(names: list[str]) -> list[str]:
    """Output names for a dict: a repeated name gets a number (Core ML lets two outputs share
    one).
    """
    seen: dict[str, int] = {}
    result = []
    for n in names:
        seen[n] = seen.get(n, 0) + 1
        result.append(n if seen[n] == 1 else f"{n}.{seen[n] - 1}")
    return result


def _load(model: ir.Model, options: Any) -> tuple[InferenceSession, list[Any]]:
    """Large weights go to the session as places in their file, or as arrays; the serialised model
    holds the rest, so that it is never too large for one message.
    """
    remove_dead_code(model)  # onnxruntime drops an initializer that nobody reads and then misses it
    large = {
        str(v.name): t
        for v in model.graph.initializers.values()
        if (t := v.const_value) is not None and _by_reference(t)
    }
    for name in large:
        del model.graph.initializers[name]
    proto = ir.to_proto(model)
    total = sum(t.nbytes for t in large.values())
    if total >= NO_PACKING:
        frugal(options)
    weights = Weights(total >= LARGE)
    for name, t in large.items():
        array = t.numpy()
        proto.graph.initializer.append(weights.proto(name, int(t.dtype), array, [array]))
    weights.apply(options)
    try:
        return opened(proto.SerializeToString(), options), weights.keep
    finally:
        weights.close()


def opened(data: bytes, options: Any) -> InferenceSession:
    """A session; where the optimiser itself fails, one that computes the graph as it is."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime raises its own RuntimeError family
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _by_reference(tensor: ir.TensorProtocol) -> bool:
    return tensor.nbytes >= EXTERNAL and tensor.dtype in _PLAIN


_PLAIN = frozenset(
    ir.DataType[n]
    for n in (
        "FLOAT",
        "DOUBLE",
        "FLOAT16",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "BOOL",
    )
)


def refuse_opaque(model: ir.Model) -> None:
    """UnsupportedError X208 that names every operator without a definition."""
    found = [
        n for n in all_nodes(model.graph) if n.domain == EXTENSION_DOMAIN and not can_expand(n)
    ]
    if found:
        raise UnsupportedError(_opaque(found))


def _opaque(nodes: list[ir.Node]) -> Iterable[Diagnostic]:
    for n in nodes:
        where = Where(layer=n.metadata_props.get("netconv.layer", ""), kind=n.op_type)
        yield Diagnostic(
            "X208", f"{n.op_type} cannot be executed: it has no definition", where=where
        )
