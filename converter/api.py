"""The Python API behind `import converter` (which loads this only when it is used)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.commands.options.convert import Convert
from converter.commands.options.declare import takes
from converter.commands.options.quantize import Quantize
from converter.commands.options.verify import Verify
from converter.errors import ConverterError, Diagnostic, UsageError, python_error, wrong_call
from converter.formats import model_files
from converter.formats.model_files import PathLike
from converter.graph.infer import InferenceError
from converter.graph.network import Network, accepts_shape

if TYPE_CHECKING:
    from converter.commands.quantize.result import Quantized
    from converter.commands.verify import Result
    from converter.graph.infer import Array


MOST_DRAWN = 2000  # nodes of a model that a notebook shows as a drawing


@dataclass(repr=False)
class Model(Network):
    """A network that can run and be saved: of a file (`load`), or built by hand,
    Model(onnx_ir.Model, "onnx").
    """

    # engine -> compiled model; `ir` is not changed after reading
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    # what must last as long as the model: the folder of a file that was given as bytes
    keep: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, network: Network) -> Model:
        """A network that a format's reader made."""
        return cls(**{f.name: getattr(network, f.name) for f in dataclasses.fields(network)})

    def __repr__(self) -> str:
        """Return a short description: name, format, size, inputs and outputs."""
        name = f" {self.source.name}" if self.source is not None else ""
        sides = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"<Model{name} {self.format}, {len(self.ir.graph)} nodes, {' -> '.join(sides)}>"

    def __str__(self) -> str:
        """Return the text that `netconv inspect` prints."""
        from converter.commands.inspect import table

        return "\n".join(table(self, self.source.name if self.source is not None else "model"))

    def _repr_html_(self) -> str:
        """Return the drawing of the layers for a notebook; a table for large models."""
        from converter.commands.report.assets import frame
        from converter.commands.view.page import render

        if len(self.ir.graph) > MOST_DRAWN:
            return f"<pre>{escape(str(self))}</pre>"
        name = self.source.name if self.source is not None else "model"
        return frame(render([(name, self)]), repr(self))

    def __call__(self, *arrays: Any, engine: str = "onnxruntime", **named: Any) -> dict[str, Array]:
        """Run the model on arrays: in the order of its inputs, or by their names."""
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            return self.run({**arrays[0], **named}, engine)
        return self.run(self._named(arrays, named), engine)

    def _named(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return arrays by the names of the inputs. Raises UsageError if there are too many."""
        names = [i.name for i in self.inputs]
        if len(arrays) > len(names):
            message = f"{len(arrays)} arrays are given, the model has {len(names)} inputs"
            help = f"its inputs: {', '.join(map(str, self.inputs))}"
            raise python_error(wrong_call(message, help=help))
        return {**dict(zip(names, arrays, strict=False)), **named}

    def run(self, feeds: Any = None, engine: str = "onnxruntime", **named: Any) -> dict[str, Array]:
        """Run the model and return its outputs by name, in the model's order.

        `feeds` are arrays by the names of the inputs, or the array of the first input; arrays may
        also be given by keyword: `model.run(image=array)`. They are cast to the declared types;
        states that are left out begin as the file says. Raises UsageError for a missing or unknown
        name, for an array of another shape, and for a model that the engine cannot run.
        """
        try:
            if not isinstance(feeds, Mapping):
                feeds = self._named([] if feeds is None else [feeds], {})
            return self._run({**feeds, **named}, engine)
        except ConverterError as e:
            raise python_error(e) from None

    def _run(self, feeds: dict[str, Any], engine: str) -> dict[str, Array]:
        from converter.engines import get
        from converter.passes.states import initial_values

        if engine not in self._prepared:
            try:
                self._prepared[engine] = get(engine).prepare(self)
            except InferenceError as e:
                raise UsageError(Diagnostic("N403", str(e))) from None
        if any(i.name not in feeds for i in self.inputs):
            for name, model in initial_values(self).items():
                begin = Model(model, self.format)
                known = {i.name: feeds[i.name] for i in begin.inputs if i.name in feeds}
                if name not in feeds:
                    (found,) = begin._run(known, engine).values()
                    feeds = {**feeds, name: found}
        arrays = self.check_feeds(feeds)
        self._demand_shapes(arrays, feeds)
        results: dict[str, Array] = self._prepared[engine].run(arrays)
        return self.outside(results)

    def _demand_shapes(self, arrays: Mapping[str, Any], feeds: Mapping[str, Any]) -> None:
        """Raise UsageError for an array that does not have the shape of its input."""
        tensors = self.tensor_inputs()  # each element of a sequence has a shape of its own
        for info in self.inputs:
            if info.name not in feeds or info.name not in tensors:
                continue
            if accepts_shape(info.shape, np.shape(arrays[info.name])):
                continue
            shape = ",".join(map(str, np.shape(feeds[info.name])))
            message = f"the input is {info}, the given array has the shape [{shape}]"
            found = np.shape(arrays[info.name])
            alike = info.shape is not None and len(info.shape) == len(found)
            help = f"--inputs {info.name}:{','.join(map(str, found))}, or load(inputs=...)"
            raise UsageError(
                Diagnostic("N403", message, help=f"to read the model so: {help}" if alike else "")
            )

    def save(self, path: PathLike, format: str | None = None) -> None:
        """Write the model; see converter.save."""
        try:
            save(self, path, format)
        except ConverterError as e:
            raise python_error(e) from None


def load(
    path: PathLike,
    format: str | None = None,
    weights: PathLike | None = None,
    dequantize: bool = False,
    *,
    signature: str = "",
    member: str = "",
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """Read a model file; see converter.load."""
    found = model_files.load(path, format, weights, dequantize, signature, member, inputs)
    return Model.of(found)


def check(
    path: PathLike, format: str | None = None, weights: PathLike | None = None
) -> list[Diagnostic]:
    """What is wrong with a model file by itself. Raises ReadError for what cannot be read at
    all.
    """
    return model_files.check(path, format, weights)


def save(
    model: Network, path: PathLike, format: str | None = None, io_layout: str = ""
) -> list[Diagnostic]:
    """Writes a model: `format` may carry a flavour ("openvino+ir=7"); without it the suffix
    decides. Returns warnings.

    Nothing is written unless everything can be (UnsupportedError lists all that cannot, WriteError
    says why not). A graph that was built by hand and is not in canonical form (implicit padding,
    another opset, values without types) is read as a file would be. Existing files are overwritten,
    but for a side file that another model beside it uses (WriteError W302).
    """
    return model_files.save(model, path, format, io_layout)


@takes(Convert)
def convert(src: PathLike, dst: PathLike, options: Convert) -> list[Diagnostic]:
    """One conversion from file to file, as `netconv convert` does it; returns what reading and
    writing warn of.

    The suffix of `dst` decides on the format where `target` does not. States are kept in the
    target's own form where it has one, or become inputs and outputs (`states="io"`). All files
    appear, or none. Raises what `load` and `save` raise, UsageError for names and shapes that the
    model does not have, WriteError W302 where a file may not be overwritten and W304 where the
    result is larger than `max_output`.
    """
    from converter.commands.convert import convert

    if options.states not in ("keep", "io"):
        raise wrong_call(f"states must be 'keep' or 'io', got {options.states!r}")
    return list(convert(Path(src), Path(dst), options).notes)


def run(path: PathLike, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Array]:
    """Executes a model file once."""
    return load(path).run(feeds, engine)


@takes(Verify)
def verify(reference: Any, candidate: Any, options: Verify) -> Result:
    """Compares two models (files or Models) on the same inputs.

    A difference is judged against the measured rounding noise of the reference unless `rtol` or
    `atol` ("[GLOB:]NUMBER") say otherwise. Inputs that are drawn and that the reference does not
    take are left out, with a note. Sizes that one of the models has are those of both; `inputs` are
    for those that both leave open.

    `native` says whether the files that the models were read from run too, each in the engine it is
    written for (onnxruntime, OpenVINO, LiteRT), and must give what was read: "auto" where that is
    installed, "on" (UsageError U502 where it is not), or "off". A model without a file has no such
    run; a model that was changed after reading is no longer what its file says: set its `source` to
    None, or "off".

    NothingComparedError when nothing could be compared, be it that an engine cannot run a model
    (N403).
    """
    from converter.commands.verify import compare

    a, b = (_network(m, options.inputs) for m in (reference, candidate))
    return compare(a, b, options)


@takes(Quantize)
def quantize(src: PathLike, dst: PathLike, options: Quantize) -> list[Quantized]:
    """Writes an int8 network of a float one, or one with compressed weights, as `netconv quantize`
    does it; returns what became of each target.

    `dst` is a folder where `targets` has several formats. A result's `quality` says how far the
    written file is from the float network, `floats` which layers compute in floats, and why,
    `notes` what there is to warn of. Raises what `convert` raises, UnsupportedError X215 where
    there is nothing to quantize, and N412 where only the float network keeps `max_drop`.
    """
    from converter.commands.quantize.run import quantize

    return list(quantize(Path(src), Path(dst), options))


def inspect(path: PathLike) -> dict[str, Any]:
    """What is in a model file, as plain data."""
    from converter.commands.inspect import full

    return full(load(path))


def _network(model: Any, inputs: Mapping[str, Sequence[int]] | None = None) -> Network:
    return model if isinstance(model, Network) else load(model, inputs=inputs)
