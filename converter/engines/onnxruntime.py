"""The default engine: onnxruntime on the shared graph."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from converter.engines import Prepared, prepared, refusing
from converter.engines.file_child import import_onnxruntime
from converter.engines.session_weights import LARGE, Weights, be_frugal
from converter.errors import Diagnostic, UnsupportedError
from converter.formats.onnx.legalize import BOUNDARY, legalize_for_onnxruntime
from converter.graph import EXTENSION_DOMAIN
from converter.graph.extensions import can_expand
from converter.graph.names import source_location
from converter.graph.walk import all_nodes
from converter.io import limits
from converter.passes.dead_code import remove_dead_code

if TYPE_CHECKING:
    import onnx
    from onnxruntime import InferenceSession

    from converter.graph.network import Network

# size in bytes from which a weight is passed as an array in memory instead of inside the model
EXTERNAL = 4096
NO_PACKING = (
    1 << 30
)  # bytes of weights from which the session reads them as they are, without a second, faster copy
THREADS = 2


class Runner:
    """A model, whole or a piece of one, in a session of onnxruntime.

    `weights` are those that are not inside the model; `frugal`: they are used as they are, without
    a second, faster copy. `loops`: the model may not terminate, so Ctrl-C and the like must not
    wait for it, as they normally do for C++ code; the same holds while a time limit is in force.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Weights,
        options: Any,
        *,
        frugal: bool,
        loops: bool,
    ) -> None:
        if frugal:
            be_frugal(options)
        weights.apply(options)
        try:
            self.session = _opened(proto.SerializeToString(), options)
        finally:
            weights.close()
        self._keep, self._loops = weights.keep, loops
        self.inputs = [i.name for i in self.session.get_inputs()]

    def run(self, wanted: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        """Compute the outputs called `wanted`, or all."""
        if not self._loops and not limits.timed():
            return list(self.session.run(wanted, feeds))
        return self._interruptible(wanted, feeds)

    def _interruptible(self, wanted: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        options = import_onnxruntime().RunOptions()
        found, failed, over = list[Any](), list[BaseException](), threading.Event()

        def work() -> None:
            try:
                found.extend(self.session.run(wanted, feeds, options))
            except BaseException as e:
                failed.append(e)
            over.set()

        threading.Thread(target=work).start()
        try:
            # not Thread.join, which considers the thread ended after an interrupt; the system may
            # deliver a signal to any thread, Python handles it only in this one
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
    """Return whether one of the nodes is a Loop."""
    return any(n.op_type == "Loop" for n in nodes)


def as_feed(array: Any, fed: np.dtype[Any] | None) -> Any:
    """Return an array in the type and the memory layout that onnxruntime takes; other values, such
    as sequences, unchanged.
    """
    if not isinstance(array, np.ndarray):
        return array
    # ascontiguousarray would reshape a scalar to a vector
    return (
        array.astype(fed)
        if fed is not None
        else array
        if array.dtype == object
        else np.require(array, requirements="C")
    )


def as_result(result: Any, value: ir.Value) -> Any:
    """Cast a result to its declared type if the engine returns another one."""
    if result is None or isinstance(result, list):
        return result
    array = np.asarray(result)
    if value.dtype is None or _fed(value) is None:
        return array
    return array.astype(value.dtype.numpy())


def prepare(model: Network, *, profile: str = "") -> Prepared:
    """Compile the model. Raises UnsupportedError N403/X208 if an operator cannot be executed.
    `profile`: the path prefix of the file that onnxruntime writes its timings to.
    """
    refuse_opaque(model.ir)
    clone = model.ir.clone()
    legalize_for_onnxruntime(clone)
    options = exact_options()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    # idle threads sleep: small networks finish before spinning pays off
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.use_deterministic_compute = True
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    loops = has_loop(all_nodes(clone.graph))
    with refusing(UnsupportedError, "onnxruntime cannot run this model"):
        proto, weights, size = _with_weights_apart(clone)
        runner = Runner(proto, weights, options, frugal=size >= NO_PACKING, loops=loops)
    wanted = {*runner.inputs}

    def compute(arrays: list[Any]) -> list[Any]:
        named = {
            str(v.name): as_feed(array, _fed(v))
            for v, array in zip(model.ir.graph.inputs, arrays, strict=True)
            if v.name in wanted
        }
        return list(map(as_result, runner.run(None, named), model.ir.graph.outputs))

    return prepared(model, "onnxruntime", compute, runner)


def exact_options() -> Any:
    """Return the options of a session that computes exactly the operators of a model."""
    onnxruntime = import_onnxruntime()

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # multiply weights of few bits as floats: the default computes with 8-bit activations
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    # compute quantized models as written: float operators between QuantizeLinear and
    # DequantizeLinear, no fused integer kernels
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def _fed(value: ir.Value) -> np.dtype[Any] | None:
    target = (
        BOUNDARY.get(value.dtype)
        if value.dtype is not None and isinstance(value.type, ir.TensorType)
        else None
    )
    return None if target is None else target.numpy()


def _with_weights_apart(model: ir.Model) -> tuple[onnx.ModelProto, Weights, int]:
    """Return the model without its large weights, these weights, and their size in bytes. The
    session receives them as locations in their file, or as arrays, so that the serialized model
    never exceeds the size limit of a protobuf message.
    """
    remove_dead_code(model)  # onnxruntime drops an unused initializer and then fails to find it
    large = {
        str(v.name): t
        for v in model.graph.initializers.values()
        if (t := v.const_value) is not None and t.nbytes >= EXTERNAL and t.dtype in _PLAIN
    }
    for name in large:
        del model.graph.initializers[name]
    proto = ir.to_proto(model)
    total = sum(t.nbytes for t in large.values())
    weights = Weights(total >= LARGE)
    for name, t in large.items():
        array = t.numpy()
        proto.graph.initializer.append(weights.proto(name, int(t.dtype), array, [array]))
    return proto, weights, total


def _opened(data: bytes, options: Any) -> InferenceSession:
    """Create a session; if the optimizer itself fails, one that computes the graph without
    optimization.
    """
    onnxruntime = import_onnxruntime()

    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime raises its own exception types
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


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
    """Raise UnsupportedError X208 that names every operator without a definition."""
    found = [
        n for n in all_nodes(model.graph) if n.domain == EXTENSION_DOMAIN and not can_expand(n)
    ]
    if found:
        why = "cannot be executed: it has no definition"
        raise UnsupportedError(
            Diagnostic("X208", f"{n.op_type} {why}", where=source_location(n)) for n in found
        )
