"""Variants of networks whose batch, height, width or length is dynamic, and their engines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import converter
from converter.api import Model
from converter.errors import ConverterError, MappingError
from converter.graph.infer import InferenceError
from converter.graph.shapes import forget, infer_all

Names = dict[tuple[str, int], str]  # of dynamic dimensions, by input and axis
Feeds = dict[str, np.ndarray]
# axes that become dynamic together, by their names and the rank of the inputs
KINDS: dict[str, Callable[[int], dict[int, str]]] = {
    "batch": lambda rank: {0: "N"} if rank > 1 else {},
    "image": lambda rank: {2: "H", 3: "W"} if rank == 4 else {},
    "rows": lambda rank: {1: "T"} if rank == 3 else {},
    "columns": lambda rank: {2: "T"} if rank == 3 else {},
}
GROWTH = (1, 2, 3)  # times the size of the file
STEPS = 2  # of an output in integers: a tie that rounds the other way inside of the network


class NoVariant(Exception):
    """The network does not run at other sizes, or has none of the axes."""


def names_of(model: Model, kind: str) -> Names:
    """Return the names of the dimensions that become dynamic."""
    found: Names = {}
    for value in model.ir.graph.inputs:
        dims = [] if value.shape is None else list(value.shape)
        for axis, name in KINDS[kind](len(dims)).items():
            if isinstance(dims[axis], int):
                found[str(value.name), axis] = name
    return found


def write_variant(model: Model, names: Names, path: Path) -> dict[str, int]:
    """Write the model with dynamic dimensions as ONNX; return the sizes that they had."""
    sizes: dict[str, int] = {}
    for value in model.ir.graph.inputs:
        dims = list(value.shape or ())
        for axis, size in enumerate(dims):
            name = names.get((str(value.name), axis))
            if name is not None and sizes.setdefault(name, int(size)) == size:  # type: ignore[arg-type]
                dims[axis] = ir.SymbolicDim(name)
        value.shape = ir.Shape(dims)
    try:
        forget(model.ir.graph)
        infer_all(model.ir)
        converter.save(Model(model.ir, "onnx"), path)
    except (ConverterError, InferenceError, MappingError) as e:
        raise NoVariant(str(e)) from None
    return sizes


def feeds_of(session: Any, sizes: Mapping[str, int]) -> Feeds:
    rng, found = np.random.default_rng(1), {}
    for given in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(d, 1) for d in given.shape]
        if "float" in given.type or "double" in given.type:
            array = rng.standard_normal(shape)
        else:
            array = rng.integers(0, 2, shape)
        kinds = {"float16": "e", "float": "f", "double": "d", "int64": "l", "int32": "i"}
        kinds |= {"bool": "?", "uint8": "B", "int8": "b"}
        found[given.name] = array.astype(kinds[given.type[7:-1]])
    return found


def expected(path: Path, sizes: Mapping[str, int]) -> Iterator[tuple[Feeds, list[np.ndarray]]]:
    """Yield feeds and results of onnxruntime at several sizes; raise NoVariant where it fails."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(str(path), options)
        for times in GROWTH:
            feeds = feeds_of(session, {n: size * times for n, size in sizes.items()})
            yield feeds, session.run(None, feeds)
    except Exception as e:  # onnxruntime has no common class of its errors
        raise NoVariant(str(e)) from None


def steps_of(path: Path) -> list[float]:
    """Return the distance of two neighbors of each output that is quantized, 0 of the others."""
    return [_step(o.producer()) for o in ir.load(path).graph.outputs]


def _step(node: ir.Node | None) -> float:
    given = [] if node is None else [ir.convenience.get_const_tensor(i) for i in node.inputs if i]
    if (
        node is None
        or None in given[1:]
        or node.op_type not in ("DequantizeLinear", "FakeQuantize")
    ):
        return 0.0
    numbers = [float(t.numpy().max()) for t in given[1:] if t is not None]
    if node.op_type == "DequantizeLinear":
        return numbers[0]
    return (numbers[3] - numbers[2]) / (node.attributes["levels"].as_int() - 1)


def in_litert(path: Path) -> Callable[[Feeds], list[np.ndarray]]:
    from converter.engines import litert

    names = [i.name for i in converter.load(path).inputs]
    return lambda feeds: litert.invoke(path, [feeds[n] for n in names])


def in_openvino(path: Path) -> Callable[[Feeds], list[np.ndarray]]:
    from openvino_runtime import PRECISE, core

    compiled = core().compile_model(core().read_model(path), "CPU", PRECISE)

    def run(feeds: Feeds) -> list[np.ndarray]:
        found = compiled(feeds)
        return [np.array(found[o]) for o in compiled.outputs]

    return run


def in_netconv(path: Path) -> Callable[[Feeds], list[np.ndarray]]:
    """Return the reading of a file whose engine does not run here."""
    model = converter.load(path)

    def run(feeds: Feeds) -> list[np.ndarray]:
        found = model.run(feeds)
        outputs = {str(o.name): o for o in ir.load(path.with_name("variant.onnx")).graph.outputs}
        if sorted(outputs) != sorted(found):
            return list(found.values())
        # a classifier of a program gives the label first, and as a scalar
        label = {n: (1,) for n, a in found.items() if not a.shape and outputs[n].shape == [1]}
        return [found[n].reshape(label.get(n, found[n].shape)) for n in outputs]

    return run


ENGINES: dict[str, tuple[str, Callable[[Path], Callable[[Feeds], list[np.ndarray]]]]] = {
    "tflite": (".tflite", in_litert),
    "openvino": (".xml", in_openvino),
    "mlprogram": (".mlpackage", in_netconv),
    "coreml": (".mlmodel", in_netconv),
}


def judge(source: Path, kind: str) -> dict[str, str]:
    """Return for each target "right", "refused: ..." or "wrong: ...", of a network with dynamic
    dimensions.

    Raise NoVariant if the network has no such variant.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = converter.load(source)
        names = names_of(model, kind)
        if not names:
            raise NoVariant("no input with such axes")
        variant = Path(folder) / "variant.onnx"
        sizes = write_variant(model, names, variant)
        cases = list(expected(variant, sizes))
        return {target: _verdict(variant, target, cases) for target in ENGINES}


def _verdict(variant: Path, target: str, cases: Sequence[tuple[Feeds, list[np.ndarray]]]) -> str:
    suffix, engine = ENGINES[target]
    path = variant.with_name(f"m{suffix}")
    try:
        converter.convert(variant, path, target=target)
    except ConverterError as e:
        return f"refused: {e}"
    try:
        run, steps = engine(path), steps_of(variant)
        found = (difference(run(f), right, steps) for f, right in cases)
        return next(filter(None, found), "right")
    except Exception as e:  # of the engine
        return f"wrong: {type(e).__name__}: {e}"


def difference(
    found: list[np.ndarray], right: list[np.ndarray], steps: Sequence[float] = ()
) -> str:
    for i, (a, b) in enumerate(zip(found, right, strict=True)):
        if a.shape != b.shape:
            return f"wrong: output {i} has the shape {a.shape}, not {b.shape}"
        if b.dtype.kind not in "fe":
            off = int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0))
            if off > (0 if b.dtype.kind == "b" or b.itemsize > 1 else 1):
                return f"wrong: output {i} is {off} off"
            continue
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=1e-3))
        least = max(1e-3 * scale, STEPS * steps[i] if steps else 0.0)
        if not np.allclose(a, b, 1e-3, least, equal_nan=True):
            worst = float(np.nanmax(np.abs(a.astype(float) - b.astype(float))))
            return f"wrong: output {i} is {worst:.3g} off, of {scale:.3g}"
    return ""
