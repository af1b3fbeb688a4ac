"""Run one model file in the engine that it is written for, in a separate process: an engine may
abort, and an abort cannot be caught.

    python file_child.py ENGINE MODEL REQUEST.npz RESULTS.npz REPORT.json

REQUEST.npz holds `names`, the caller's names of the inputs (one for each; empty: by order), arrays
called feed/FEED/INPUT, counted from 0, `feeds` (their number), `exact` (whether to use exact
options), `full_floats` (whether to compute floats in 32 bits), `function` (the name of the chosen
function, "" for the file's own choice), and optionally expected/FEED/OUTPUT. RESULTS.npz holds
arrays called FEED/OUTPUT.
REPORT.json describes the inputs and outputs of the file and the stage that was reached; see
converter.engines.file. Nothing of netconv is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

THREADS = 1
Port = dict[
    str, Any
    # names: all names of the port; type: numpy's name, "" if numpy has none; shape: None for a
    # dynamic size
]


class Boundary(Exception):
    """The inputs of the file differ from those that are fed."""


def port_of(names: list[str], word: str, shape: Sequence[int | None] | None) -> Port:
    """Describe a port; `word` is numpy's name of its type, if there is one."""
    return {"names": names, "type": word if word in _NUMPY else "", "shape": shape}


def import_onnxruntime() -> Any:
    """Import onnxruntime without its telemetry: since 1.32 its wheels store an identifier and a
    database of events in the home folder, and send them.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry: with `openvino_telemetry`, a dependency of its wheel,
    the import itself looks up an address and writes an identifier into the home folder.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # cannot be found
    import openvino

    return openvino


class OnnxRuntime:
    """onnxruntime; exact options allow basic optimizations only: the others may compute quantized
    layers in other types.
    """

    may_be_exact = True  # with default options, for most networks

    def __init__(self, path: str, function: str) -> None:
        self.path = path
        self.session = self._session()

    def exact(self) -> None:
        """Use basic optimizations only."""
        self.session = None
        self.session = self._session("ORT_ENABLE_BASIC")

    def _session(self, level: str = "") -> Any:
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = THREADS
        if level:
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        return onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])

    def inputs(self) -> list[Port]:
        """Return the inputs of the file, those with a default last."""
        return [
            self._port(i)
            for i in (*self.session.get_inputs(), *self.session.get_overridable_initializers())
        ]

    def required(self) -> int:
        """Return the number of inputs without a default."""
        return len(self.session.get_inputs())

    def outputs(self) -> list[Port]:
        """Return the outputs of the file."""
        return [self._port(o) for o in self.session.get_outputs()]

    def _port(self, port: Any) -> Port:
        kind = (
            port.type.removeprefix("tensor(").removesuffix(")")
            if port.type.startswith("tensor(")
            else ""
        )
        word = {"float": "float32", "double": "float64", "string": "object"}.get(kind, kind)
        return port_of([port.name], word, [d if isinstance(d, int) else None for d in port.shape])

    def run(self, feeds: dict[int, Any]) -> list[Any]:
        """Return the outputs for inputs by their indices."""
        ports = self.inputs()
        found = self.session.run(None, {ports[i]["names"][0]: a for i, a in feeds.items()})
        return list(map(without_maps, found))


def without_maps(result: Any) -> Any:
    """Return the numbers of a sequence of maps as columns; other results unchanged."""
    if isinstance(result, list) and result and all(isinstance(r, dict) for r in result):
        return np.array([list(r.values()) for r in result], np.float32)
    return result


class OpenVino:
    """OpenVINO; exact options are 32-bit floats, no dynamic quantization, and quantized layers as
    the file defines them.
    """

    may_be_exact = False
    WORDS = (
        {"boolean": "bool", "string": "object"}
        | {f"f{n}": f"float{n}" for n in (16, 32, 64)}
        | {f"i{n}": f"int{n}" for n in (8, 16, 32, 64)}
        | {f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)}
    )
    EXACT = (
        {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
        {"LP_TRANSFORMS_MODE": "NO"},
    )

    def __init__(self, path: str, function: str) -> None:
        openvino = import_openvino()
        self.ov, self.core = openvino, openvino.Core()
        self.model = self.core.read_model(path)
        self._compile({})

    def full_floats(self) -> None:
        """Compute floats in float32, where some processors would use 16 bits; integers are computed
        as by default.
        """
        self._compile(self.EXACT[0])

    def exact(self) -> None:
        """Compute in float32 without quantization."""
        plain, internal = self.EXACT
        try:
            self._compile({**plain, **internal})
        except RuntimeError:  # a release without this setting
            self._compile(plain)

    def _compile(self, config: dict[str, str]) -> None:
        self.compiled: Any = None  # two at once would be two copies of the weights
        self.compiled = self.core.compile_model(
            self.model, "CPU", {"INFERENCE_NUM_THREADS": THREADS, **config}
        )

    def inputs(self) -> list[Port]:
        """Return the parameters, and the states, which netconv reads as optional inputs."""
        return [
            *(self._port(p, p.get_node().get_friendly_name()) for p in self.compiled.inputs),
            *self._states(),
        ]

    def required(self) -> int:
        """Return the number of inputs without a default."""
        return len(self.compiled.inputs)

    def outputs(self) -> list[Port]:
        """Return the results, and the final states."""
        own = (
            [
                p.get_node().input_value(0).get_node().get_friendly_name(),
                p.get_node().get_friendly_name(),
            ]
            for p in self.compiled.outputs
        )
        return [
            *(self._port(p, *names) for p, names in zip(self.compiled.outputs, own, strict=True)),
            *self._states("_out"),
        ]

    def _states(self, suffix: str = "") -> list[Port]:
        states = self.compiled.create_infer_request().query_state()
        return [port_of([s.name + suffix], self._word(s.state.element_type), None) for s in states]

    def _port(self, port: Any, *layers: str) -> Port:
        shape = port.get_partial_shape()
        sizes = (
            [d.get_length() if d.is_static else None for d in shape]
            if shape.rank.is_static
            else None
        )
        names = [*sorted(port.get_names()), *layers]
        return port_of(names, self._word(port.get_element_type()), sizes)

    def _word(self, kind: Any) -> str:
        """Return numpy's name of a type, "" if numpy does not have it."""
        return self.WORDS.get(kind.get_type_name(), "")

    def run(self, feeds: dict[int, Any]) -> list[Any]:
        """Return the outputs for inputs and states by their indices."""
        request = (
            self.compiled.create_infer_request()
        )  # a new one: states begin at their initial values
        count, states = len(self.compiled.inputs), request.query_state()
        for i, array in feeds.items():
            if i < count:
                request.set_input_tensor(i, self.ov.Tensor(array))
            else:
                states[i - count].state = self.ov.Tensor(array)
        request.infer()
        tensors = [request.get_output_tensor(i) for i in range(len(self.compiled.outputs))]
        results = [
            np.array(t.str_data if t.get_element_type() == self.ov.Type.string else t.data)
            for t in tensors
        ]
        return [*results, *(np.array(s.state.data) for s in states)]


class LiteRt:
    """LiteRT as its users start it, with its default delegate; it has no exact options."""

    may_be_exact = False

    def __init__(self, path: str, function: str) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(model_path=path, num_threads=THREADS)
        self.runner = self.interpreter.get_signature_runner(function) if function else None
        details = self._inputs()
        # with unknown sizes set to 1, a file may be invalid
        self.allocated = all(d >= 0 for detail in details for d in detail["shape_signature"])
        if self.allocated and self.runner is None:
            self.interpreter.allocate_tensors()

    def exact(self) -> None:
        pass

    def _inputs(self) -> list[Any]:
        """Descriptions of the inputs; those of a signature have its names."""
        if self.runner is None:
            return list(self.interpreter.get_input_details())
        return [d | {"name": n} for n, d in self.runner.get_input_details().items()]

    def _outputs(self) -> list[Any]:
        if self.runner is None:
            return list(self.interpreter.get_output_details())
        return [d | {"name": n} for n, d in self.runner.get_output_details().items()]

    def inputs(self) -> list[Port]:
        """Return the inputs of the file."""
        return [self._port(d) for d in self._inputs()]

    def required(self) -> int:
        """Return the number of inputs without a default."""
        return len(self._inputs())

    def outputs(self) -> list[Port]:
        """Return the outputs of the file."""
        return [self._port(d) for d in self._outputs()]

    def _port(self, detail: Any) -> Port:
        word = np.dtype(detail["dtype"]).name
        signature = detail["shape_signature"] if len(detail["shape_signature"]) else detail["shape"]
        return port_of([detail["name"]], word, [None if d < 0 else int(d) for d in signature])

    def run(self, feeds: dict[int, Any]) -> list[Any]:
        """Return the outputs for inputs by their indices; variables have their initial values."""
        details = self._inputs()
        if self.runner is not None:
            self.interpreter.reset_all_variables()
            found = self.runner(**{details[i]["name"]: a for i, a in feeds.items()})
            return [found[d["name"]] for d in self._outputs()]
        other = any(list(details[i]["shape"]) != list(a.shape) for i, a in feeds.items())
        if other or not self.allocated:
            for i, array in feeds.items():
                self.interpreter.resize_tensor_input(details[i]["index"], list(array.shape))
            self.interpreter.allocate_tensors()
            self.allocated = True
        self.interpreter.reset_all_variables()
        for i, array in feeds.items():
            self.interpreter.set_tensor(details[i]["index"], array)
        self.interpreter.invoke()
        return [
            self.interpreter.get_tensor(d["index"]) for d in self.interpreter.get_output_details()
        ]


class CoreAi:
    """Apple's own runtime with its default options, the only ones on Linux."""

    may_be_exact = False
    WORDS = {"cfloat32": "complex64"}  # noqa: RUF012

    def __init__(self, path: str, function: str) -> None:
        import os

        self.function = function
        if hasattr(os, "sched_setaffinity"):  # it starts one thread per processor
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import coreai.authoring
        from coreai.runtime import NDArray

        self.array, self.asset = NDArray, coreai.authoring.AIModelAsset.load(path)
        self.description: Any = None
        self._computed(None)

    def exact(self) -> None:
        pass

    def _computed(self, feeds: dict[int, Any] | None) -> list[Any]:
        """Compute the results; without feeds, only load the description of the chosen function, of
        `main`, or of the first one.
        """
        import asyncio

        return asyncio.run(self._run(feeds))

    async def _run(self, feeds: dict[int, Any] | None) -> list[Any]:
        async with self.asset.executable() as model:
            names = list(model.function_names)
            own = "main" if "main" in names else names[0]
            function = model.load_function(self.function or own)
            d = self.description = function.desc
            if feeds is None:
                return []
            ports, count = self.inputs(), len(d.input_names)
            given: dict[str, Any] = {
                ports[i]["names"][0]: self.array(np.array(a, order="C")) for i, a in feeds.items()
            }
            states: dict[str, Any] = {n: given.pop(n, None) for n in d.state_names}
            for port in ports[count:]:
                name = port["names"][0]
                if states[name] is None:
                    states[name] = self.array(np.zeros(port["shape"], port["type"]))
            found: dict[str, Any] = dict(await function(given, states))
            return [*(np.array(found[n].numpy()) for n in d.output_names),
                    *(np.array(v.numpy()) for v in states.values())]  # fmt: skip

    def inputs(self) -> list[Port]:
        """Return the inputs, and the states, which netconv reads as optional inputs."""
        d = self.description
        return [*(self._port(n, d.input_descriptor(n)) for n in d.input_names),
                *(self._port(n, d.state_descriptor(n)) for n in d.state_names)]  # fmt: skip

    def required(self) -> int:
        """Return the number of inputs without a default."""
        return len(self.description.input_names)

    def outputs(self) -> list[Port]:
        """Return the outputs, and the final states."""
        d = self.description
        return [
            *(self._port(n, d.output_descriptor(n)) for n in d.output_names),
            *(self._port(f"{n}_out", d.state_descriptor(n)) for n in d.state_names),
        ]

    def _port(self, name: str, d: Any) -> Port:
        word = str(d.dtype)
        shape = [None if n is None or n < 0 else int(n) for n in d.shape]
        return port_of([name], self.WORDS.get(word, word), shape)

    def run(self, feeds: dict[int, Any]) -> list[Any]:
        """Return the outputs for inputs by their indices."""
        return self._computed(feeds)


ENGINES: dict[str, Any] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "litert": LiteRt,
    "coreai": CoreAi,
}
_NUMPY = {
    "float16",
    "float32",
    "complex64",
    "complex128",
    "float64",
    "bool",
    "object",
    *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
}


def matched(
    ports: Sequence[Port], required: int, names: Sequence[str], count: int
) -> dict[int, int]:
    """Map the index of each port of the file to the index of the caller's array: by name, else by
    order.
    """
    places = {n: i for i, n in enumerate(names)}
    by_name = {
        p: found[0]
        for p, port in enumerate(ports)
        if (found := [places[n] for n in port["names"] if n in places])
    }
    if len(set(by_name.values())) == len(by_name) and all(p in by_name for p in range(required)):
        return by_name
    if required != count:
        raise Boundary(f"the file has {required} inputs, but netconv reads {count}")
    return {i: i for i in range(count)}


def fitted(port: Port, array: Any) -> Any:
    """Convert the array to the type of the port, and to its shape if they differ only by axes of
    size 1.
    """
    shape = port["shape"]
    if shape is not None and not fits(shape, array.shape):
        if None in shape or [d for d in shape if d != 1] != [d for d in array.shape if d != 1]:
            raise Boundary(
                f"input {port['names'][0]!r} is {_words(shape)} in the file, "
                f"but {_words(array.shape)} as netconv reads it"
            )
        array = array.reshape(shape)
    return np.require(
        array.astype(port["type"], copy=False), requirements="C"
    )  # ascontiguousarray would reshape a scalar to a vector


def fits(shape: Sequence[int | None], given: Sequence[int]) -> bool:
    """Return whether a shape with None for dynamic sizes permits these sizes."""
    return len(shape) == len(given) and all(
        d is None or d == n for d, n in zip(shape, given, strict=True)
    )


def _words(shape: Sequence[int | None]) -> str:
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def main(name: str, model: str, request: str, results: str, report: str) -> int:
    """Run the file and write the report. Its stage is "load" (the engine does not accept the file),
    "feed", "boundary", "run", "done", or "absent": the engine cannot be imported.
    """
    said: dict[str, Any] = {"stage": "load", "error": ""}
    found: dict[str, Any] = {}
    try:
        with np.load(request, allow_pickle=False) as arrays:
            given = {k: arrays[k] for k in arrays.files}
        engine = ENGINES[name](model, str(given["function"]))
        wanted = by_index(given, "expected")
        if given["full_floats"] and isinstance(engine, OpenVino):
            engine.full_floats()
        if given["exact"] and not (engine.may_be_exact and wanted):
            engine.exact()
        compute(engine, said, given, found)
        if given["exact"] and engine.may_be_exact and wanted and not same(wanted, found):
            engine.exact()
            compute(engine, said, given, found)
    except Boundary as e:
        said |= {"stage": "boundary", "error": str(e)}
    except ImportError as e:
        said |= {"stage": "absent", "error": str(e)}
    except Exception as e:  # every engine raises its own exception types
        said["error"] = (str(e).strip() or type(e).__name__)[:4000]
        said["memory"] = isinstance(e, MemoryError) or any(
            w in str(e) for w in ("bad_alloc", "Failed to allocate memory")
        )
    np.savez(results, **found)
    with open(report, "w", encoding="utf-8") as f:
        json.dump(said, f)
    return 0


def compute(
    engine: Any, said: dict[str, Any], given: dict[str, Any], found: dict[str, Any]
) -> None:
    """Run an engine on all feeds. Completes `said` with the stages reached and the ports, and
    `found` with the results by "feed/output"; inputs of a type that Python lacks stop it before the
    run.
    """
    ports, required = engine.inputs(), engine.required()
    said |= {"stage": "feed", "inputs": ports, "outputs": engine.outputs()}
    names = [str(n) for n in given["names"]]
    feeds = by_index(given, "feed")
    for number in range(int(given["feeds"])):
        feed = feeds.get(number, {})  # empty for a network without inputs
        places = matched(ports, required, names, len(feed))
        if any(not ports[p]["type"] for p in places):
            return
        arrays = {p: fitted(ports[p], feed[i]) for p, i in places.items()}
        said |= {"stage": "run", "feed": number}
        for i, result in enumerate(engine.run(arrays)):
            if said["outputs"][i]["type"] and (
                isinstance(result, np.ndarray) or np.isscalar(result)
            ):
                result = np.asarray(result)
                found[f"{number}/{i}"] = result.astype(str) if result.dtype == object else result
    said["stage"] = "done"


def by_index(given: dict[str, Any], kind: str) -> dict[int, dict[int, Any]]:
    """Return the arrays KIND/FEED/INDEX, by feed and index."""
    feeds: dict[int, dict[int, Any]] = {}
    for key in given:
        if key.startswith(f"{kind}/"):
            feed, place = map(int, key.split("/")[1:])
            feeds.setdefault(feed, {})[place] = given[key]
    return dict(sorted(feeds.items()))


def same(wanted: dict[int, dict[int, Any]], found: dict[str, Any]) -> bool:
    """Return whether the results equal the expected ones bit for bit, in the caller's order of
    outputs.
    """
    everything = {f"{k}/{i}": a for k, feed in wanted.items() for i, a in feed.items()}
    return found.keys() == everything.keys() and all(
        a.dtype == found[k].dtype and a.tobytes() == found[k].tobytes()
        for k, a in everything.items()
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
