"""A network that runs, reads and writes itself; converter.functions has the public functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.errors import ConverterError, Diagnostic, UsageError, python_error, wrong_call
from converter.formats import model_files
from converter.formats.model_files import PathLike
from converter.graph.infer import InferenceError
from converter.graph.network import Network, accepts_shape

if TYPE_CHECKING:
    from converter.graph.infer import Array


MOST_DRAWN = 2000  # nodes of a model that a notebook shows as a drawing


@dataclass(repr=False)
class Model(Network):
    """A network that can run and be saved: read from a file (`load`), or built by hand,
    Model(onnx_ir.Model, "onnx").
    """

    # engine -> compiled model; `ir` is not changed after reading
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    # kept alive as long as the model: the folder of a file that was given as bytes
    keep: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, network: Network) -> Model:
        """Return a network that a format's reader made."""
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
            help = f"its inputs are: {', '.join(map(str, self.inputs))}"
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


def save(
    model: Network, path: PathLike, format: str | None = None, io_layout: str = ""
) -> list[Diagnostic]:
    """Write a model; see converter.save."""
    return model_files.save(model, path, format, io_layout)
