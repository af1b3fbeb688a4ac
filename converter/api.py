"""The Python API behind `import converter` (which loads this only when it is used)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.errors import Diagnostic, UsageError, wrong_call
from converter.formats import model_files
from converter.formats.model_files import PathLike
from converter.graph.infer import InferenceError
from converter.graph.network import Network

if TYPE_CHECKING:
    from converter.commands.verify import Result
    from converter.graph.infer import Array


@dataclass
class Model(Network):
    """A network that can run and be saved: of a file (`load`), or built by hand,
    Model(onnx_ir.Model, "onnx").
    """

    # engine -> compiled model; `ir` is not changed after reading
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, network: Network) -> Model:
        """A network that a format's reader made."""
        return cls(**{f.name: getattr(network, f.name) for f in dataclasses.fields(network)})

    def run(self, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Array]:
        """The outputs by name, in the model's order.

        Feeds are cast to the declared types; states that are left out begin as the file says.
        UsageError for a missing or unknown name, and for what no engine could execute.
        """
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
                    (found,) = begin.run(known, engine).values()
                    feeds = {**feeds, name: found}
        results: dict[str, Array] = self._prepared[engine].run(self.check_feeds(feeds))
        return self.outside(results)

    def save(self, path: PathLike, format: str | None = None) -> None:
        """`converter.save` of this model."""
        save(self, path, format)


def load(
    path: PathLike,
    format: str | None = None,
    weights: PathLike | None = None,
    dequantize: bool = False,
    *,
    signature: str = "",
) -> Model:
    """Reads a model file into the shared graph.

    `format` overrides detection by content; `weights` names the second file where it does not lie
    beside the first. With `dequantize` exact integer arithmetic (Zhouyi integer IR) becomes float
    operators between DequantizeLinear and QuantizeLinear, which other formats can take; files
    without such arithmetic are read as ever. `signature` is one of several networks: the key of
    a signature of a TensorFlow Lite file, whose names inputs and outputs then get, or a function of
    an ML Program. Raises ReadError (unreadable or invalid) or
    UnsupportedError (layers without a mapping, all of them at once).
    """
    return Model.of(model_files.load(path, format, weights, dequantize, signature))


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


def convert(
    src: PathLike,
    dst: PathLike,
    source: str | None = None,
    target: str | None = None,
    dequantize: bool = False,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    freeze: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    io_layout: str = "",
    weights: PathLike | None = None,
    force: bool = True,
    signature: str = "",
    state: Mapping[str, str] | None = None,
    states: str = "keep",
    max_output: str | int = "",
) -> list[Diagnostic]:
    """One conversion from file to file, as `netconv convert` does it; returns what reading and
    writing warn of.

    `source` overrides detection by content; `target` may carry a flavour ("openvino+ir=7"), without
    it the suffix of `dst` decides. `inputs` fixes the shapes of inputs by name, `freeze` makes
    inputs constants (arrays, nested lists, or a number that fills the input), `outputs` keeps only
    what these tensors or layers need. `state` names inputs that are states, and for each the output
    that is its next value; `states` is "keep" (in the target's own form where it has one) or "io"
    (as inputs and outputs). `io_layout` is "keep" or "native" for channels-last targets, `weights`,
    `dequantize` and `signature` are as in `load`. Existing files are overwritten unless `force` is
    false, but never an input, nor a side file that another model beside it uses (W302). All files
    appear, or none. `max_output` refuses a larger result (W304): a size ("2GB", or bytes), or a
    multiple of the source ("100x"). Raises what `load` and `save` raise, and UsageError for names
    and shapes that the model does not have.
    """
    from converter.commands.convert import Request, convert
    from converter.io import growth

    if states not in ("keep", "io"):
        raise wrong_call(f"states={states!r} is neither 'keep' nor 'io'")
    request = Request(
        source=Path(src),
        target=Path(dst),
        source_format=source,
        target_format=target,
        weights=Path(weights) if weights else None,
        shapes=inputs or {},
        freeze=freeze or {},
        state=state or {},
        states=states,
        outputs=(outputs,) if isinstance(outputs, str) else outputs,
        io_layout=io_layout,
        force=force,
        dequantize=dequantize,
        signature=signature,
        max_output=growth.parse(max_output),
    )
    return list(convert(request).notes)


def run(path: PathLike, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Array]:
    """Executes a model file once."""
    return load(path).run(feeds, engine)


def verify(
    reference: Any, candidate: Any, data: Any = None, *, native: str = "auto", **options: Any
) -> Result:
    """Compares two models (files or Models) on the same inputs; see
    converter.commands.verify.verify.

    The files run in their own engines, too, unless `native` is "off".
    """
    from converter.commands.verify import verify as compare

    return compare(_network(reference), _network(candidate), data, native=native, **options)


def inspect(path: PathLike) -> dict[str, Any]:
    """What is in a model file, as plain data."""
    from converter.commands.inspect import full

    return full(load(path))


def _network(model: Any) -> Network:
    return model if isinstance(model, Network) else load(model)
