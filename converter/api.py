"""The Python API behind `import converter` (which loads this only when it is used)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.commands.options.convert import Convert
from converter.commands.options.declare import takes
from converter.commands.options.quantize import Quantize
from converter.commands.options.verify import Verify
from converter.errors import Diagnostic, UsageError, wrong_call
from converter.formats import model_files
from converter.formats.model_files import PathLike
from converter.graph.infer import InferenceError
from converter.graph.network import Network

if TYPE_CHECKING:
    from converter.commands.quantize.result import Quantized
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

    return compare(_network(reference), _network(candidate), options)


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


def _network(model: Any) -> Network:
    return model if isinstance(model, Network) else load(model)
