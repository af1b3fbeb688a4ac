"""A program -> the shared graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from google.protobuf.message import DecodeError

from converter.errors import (
    Diagnostic,
    MappingError,
    UnsupportedError,
    Where,
    unreadable,
    wrong_call,
)
from converter.formats.coreml.features import remember
from converter.formats.coreml.mlprogram.blobs import Blobs
from converter.formats.coreml.mlprogram.boundary import NetworkInputs, suppressed
from converter.formats.coreml.mlprogram.compiled import BEGIN, read_compiled
from converter.formats.coreml.mlprogram.mapping import MAPPING
from converter.formats.coreml.mlprogram.names import NAMES, SCALARS, STATES
from converter.formats.coreml.mlprogram.rules.context import SMALL, LiftContext
from converter.formats.coreml.mlprogram.values import constant, dims_of, dtype_of
from converter.formats.coreml.package import open_model
from converter.formats.coreml.proto import Model_pb2
from converter.formats.integers import NOTE
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import set_public_name
from converter.graph.network import Network
from converter.graph.states import State, Variables
from converter.io.mapped_file import MappedFile
from converter.io.strict_json import note
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help
from converter.mapping.lifting import Lifting, refuse
from converter.mapping.node import Layer
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold

KINDS = {"wordTagger": "a word tagger"}
PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")
# parameters that do not affect the results
INFORMATIVE = {"validate_indices", "_existing_blocks", "_true_fn", "_false_fn", "_cond", "_body"}
Given = Any  # a value of the graph, an array, a lazy tensor, a string, a list of such, a state
VERSIONS = {"CoreML5": 6, "CoreML6": 7, "CoreML7": 8, "CoreML8": 9, "CoreML9": 10}


def read_model(path: Path, weights: Path | None = None, function: str = "") -> Network:
    """Return the network of a package, or of the function with this name; raise UnsupportedError
    with all refusals.
    """
    file = open_model(path)
    model = parse(file)
    name = function or model.description.defaultFunctionName or "main"
    b_model, b = new_model(name)
    reading = ModelReading(b, str(path), Blobs(file.path.parent, weights, path), function)
    description = reading.description(model)
    env: dict[str, ir.Value] = {}
    reading.member(model, description, env)
    reading.outputs(description, env, model.WhichOneof("Type") == "mlProgram")
    noted = remembered(model.description, STATES)
    states = {**noted, **reading.variables.deliver(noted)}
    remove_dead_code(b_model)
    fold(b_model, limit=0)
    defaults = {**reading.boundary.defaults, **reading.variables.defaults()}
    interface = {"defaults": defaults, "states": states}
    interface |= reading.boundary.interface(model.description)
    remember(b_model, interface)
    if quantization := model.description.metadata.userDefined.get(NOTE):
        b_model.metadata_props[NOTE] = quantization
    return Network(b_model, "mlprogram", interface=interface)


def parse(file: MappedFile) -> Any:
    """Return the Model message of a file, or of the text of a compiled program."""
    if file.bytes[: len(BEGIN)].tobytes() == BEGIN:
        return read_compiled(file.bytes.tobytes(), file.path.parent)
    model = Model_pb2.Model()
    try:
        model.ParseFromString(file.bytes.tobytes())
    except DecodeError:
        raise unreadable("R103", "the protobuf message is damaged", file.path) from None
    return model


class ModelReading:
    """A program, or the members of a pipeline one after the other. `env` contains the features of
    inputs and members by name; `names` are the source's names by those of the program, which a
    writer recorded.
    """

    def __init__(self, b: Builder, file: str, blobs: Blobs, function: str) -> None:
        self.b, self.file, self.blobs, self.function = b, file, blobs, function
        self.variables, self.boundary = Variables(b), NetworkInputs(b)
        self.names: dict[str, str] = {}

    def description(self, model: Any) -> Any:
        """Return the description of the model, or of the requested function."""
        own = model.description
        if self.function and model.WhichOneof("Type") != "mlProgram":
            raise wrong_call("a pipeline has no functions")
        name = self.function or own.defaultFunctionName
        return next((f for f in own.functions if f.name == name), own)

    def member(self, model: Any, description: Any, env: dict[str, ir.Value]) -> None:
        """Lift one member of a pipeline with the features of `env`, and add its outputs to them."""
        kind = model.WhichOneof("Type") or "nothing"
        self.boundary.enter(description)
        if kind == "mlProgram":
            self._program(model, description, env)
        elif kind in PIPELINES:
            holder = getattr(model, kind)
            for inner in (holder if kind == "pipeline" else holder.pipeline).models:
                self.member(inner, inner.description, env)
        elif kind == "nonMaximumSuppression":
            try:
                suppressed(self.b, model, self.boundary, env)
            except CONVERSION_ERRORS as e:
                code, message, help = code_message_help(e)
                where = Where(self.file, kind=kind)
                raise UnsupportedError(Diagnostic(code, message, where=where, help=help)) from None
        else:
            message = f"the model is {KINDS.get(kind, kind)}, not an ML Program"
            raise unreadable("R106", message, self.file)

    def _program(self, model: Any, description: Any, env: dict[str, ir.Value]) -> None:
        program = model.mlProgram
        name = self.function or model.description.defaultFunctionName or "main"
        if name not in program.functions:
            known_ = ", ".join(sorted(program.functions))
            message = f"the program has no function {name!r}, it has {known_}"
            if self.function:
                raise wrong_call(message)
            raise unreadable("R103", message, self.file)
        lifting = ProgramLifting(self, program.functions[name])
        env.update(lifting.run(description, env))

    def outputs(self, description: Any, env: dict[str, ir.Value], all_: bool) -> None:
        """Return the outputs of the network: those of the description, in its order; with `all_`
        also the others.
        """
        declared = (self.names.get(f.name, f.name) for f in description.output)
        names = [name for name in declared if name in env]
        for name in dict.fromkeys([*names, *env]) if all_ else names:
            self.b.output(env[name])
            set_public_name(self.b.graph.outputs[-1], name)


class ProgramLifting:
    """Lift a function of a program."""

    def __init__(self, model: ModelReading, function: Any) -> None:
        self.model, self.function = model, function
        self.b, self.file, self.variables = model.b, model.file, model.variables
        self.names: dict[str, str] = {}
        self.scalars: list[str] = []

    def run(self, description: Any, env: dict[str, ir.Value]) -> dict[str, ir.Value]:
        """Return the outputs by name; inputs are features of `env`, or inputs of the network."""
        function = self.function
        self.names = remembered(description, NAMES)
        self.scalars = scalars_of(description)
        block = function.block_specializations.get(function.opset)
        if block is None:
            message = f"the function has no block for {function.opset!r}"
            raise unreadable("R103", message, self.file)
        version = VERSIONS.get(function.opset)
        if version is None:
            message = f"the operation set {function.opset!r} is not known"
            raise unreadable("R104", message, self.file)
        body = BlockLifting(block, self.b, self.file, self.model.blobs, self.variables, version)
        for given in function.inputs:
            with body.noting(Where(self.file, path="inputs", layer=given.name)):
                body.env[given.name] = self._input(given, env)
        body.run()
        refuse(body.problems)
        self.model.names |= self.names
        return {self.names.get(name, name): body.result(name) for name in block.outputs}

    def _input(self, given: Any, env: dict[str, ir.Value]) -> Given:
        if given.type.HasField("stateType"):
            tensor = given.type.stateType.wrappedType.tensorType
            sizes = dims_of(tensor)
            if sizes is None or None in sizes:
                raise MappingError("states of unknown size are not supported", "X203")
            initial = np.zeros([n for n in sizes if n is not None], dtype_of(tensor).numpy())
            state = State(self.names.get(given.name, given.name), initial)
            return self.variables.states.setdefault(given.name, state)
        tensor = given.type.tensorType
        if given.name not in env:
            scalar = given.name in self.scalars
            dims = [] if scalar else dims_of(tensor)
            public = self.names.get(given.name, given.name)
            value = self.model.boundary.input(given.name, dtype_of(tensor), dims, public)
            return self.b.Reshape(value, [1]) if scalar else value
        value, wanted = env[given.name], dtype_of(tensor)
        return value if value.dtype == wanted else self.b.Cast(value, to=wanted)


def scalars_of(description: Any) -> list[str]:
    """Return the inputs that are scalars in the source; a writer gave them an axis of length 1."""
    if not hasattr(description, "metadata"):
        return []
    return note(description.metadata.userDefined.get(SCALARS, ""), [str]) or []


def remembered(description: Any, key: str) -> dict[str, str]:
    """Return the original names that a writer noted for other names."""
    if not hasattr(description, "metadata"):
        return {}
    found = note(description.metadata.userDefined.get(key, ""), {})
    return {k: v for k, v in (found or {}).items() if isinstance(v, str)}


class BlockLifting(Lifting):
    """The operations of a block, in their order; nested blocks see the names of outer ones.

    `env`   values of the names: values, arrays, strings, lists, states
    """

    def __init__(
        self,
        block: Any,
        b: Builder,
        file: str,
        blobs: Blobs,
        variables: Variables,
        version: int,
        outer: BlockLifting | None = None,
    ) -> None:
        super().__init__(MAPPING, b, "mlprogram", version)
        self.block, self.file, self.blobs, self.variables = block, file, blobs, variables
        self.outer = outer
        self.env: dict[str, Given] = dict(outer.env) if outer is not None else {}
        self.refused: set[str] = set(outer.refused) if outer is not None else set()

    def run(self) -> None:
        for position, operation in enumerate(self.block.operations):
            name = operation.outputs[0].name if operation.outputs else ""
            place = f"operations[{position}]"
            where = Where(self.file, path=place, layer=name, kind=operation.type)
            done = False
            with self.noting(where):
                done = self._operation(operation, where)
            if not done:
                self.refused.update(o.name for o in operation.outputs)

    def _operation(self, operation: Any, where: Where) -> bool:
        """Lift an operation and record its results; return False if it was refused, or depends on a
        refused one.
        """
        if operation.type == "const":
            if not operation.outputs:
                raise MappingError("a constant has no name", "R105")
            value = operation.attributes["val"]
            self.env[operation.outputs[0].name] = constant(value, self.blobs)
            return True
        layer = self.layer_of(operation, where)
        results = None if layer is None else self.layer(layer)
        if results is None:
            return False
        self.enter(operation, results)
        return True

    def layer_of(self, operation: Any, where: Where) -> Layer | None:
        """Return an operation with its arguments; None if one of them was refused."""
        given = self._parameters(operation)
        if given is None:
            return None
        attrs = {k: self._plain(v) for k, v in given.items()}
        outputs = [ir.Value() for _ in operation.outputs]
        self.current = operation
        return Layer(operation.type, where.layer, attrs, {}, [], outputs, where, given)

    def enter(self, operation: Any, results: Sequence[Given]) -> None:
        """The results of an operation in the types that it declares, under their names."""
        for out, value in zip(operation.outputs, results, strict=False):
            self.env[out.name] = self._settled(value, out)

    def _parameters(self, operation: Any) -> dict[str, list[Given]] | None:
        """Return the arguments of the parameters; None if one of them was refused."""
        found: dict[str, list[Given]] = {}
        sources = operation.attributes if operation.type.startswith("constexpr") else {}
        for key, value in sources.items():
            if key != "name":
                found[key] = [constant(value, self.blobs)]
        for key, argument in operation.inputs.items():
            found[key] = []
            for binding in argument.arguments:
                if binding.WhichOneof("binding") == "name":
                    if binding.name in self.refused:
                        return None
                    if binding.name not in self.env:
                        raise MappingError(f"{binding.name!r} is not defined here", "R105")
                    found[key].append(self.env[binding.name])
                else:
                    found[key].append(constant(binding.value, self.blobs))
        return found

    def _plain(self, given: list[Given]) -> Any:
        """Return a parameter as an attribute: a small constant as Python values."""
        if len(given) != 1:
            return [self._plain([g]) for g in given]
        (one,) = given
        if isinstance(one, np.ndarray) and one.size <= SMALL and one.dtype.kind in "biuf":
            return one.tolist()
        return one if isinstance(one, str | list | ir.Value) else self.as_value(one)

    @property
    def nested(self) -> bool:
        return self.outer is not None

    def as_value(self, given: Given) -> Any:
        """Return a name's value as a value of the graph; a state stays a state."""
        if isinstance(given, np.ndarray | LazyTensor):
            return self.builder.const(given, "const")
        if isinstance(given, ir.Value | State):
            return given
        raise MappingError("a tensor is needed, got a string or a list", "R105")

    def _settled(self, value: Given, out: Any) -> Given:
        """Return the result of an operation in the type that it declares, and under its name."""
        if not isinstance(value, ir.Value) or not out.type.HasField("tensorType"):
            return value
        wanted = dtype_of(out.type.tensorType)
        if value.dtype is not None and value.dtype != wanted and wanted != ir.DataType.STRING:
            value = self.builder.Cast(value, to=wanted)
        if value.producer() is not None and known(value) is None:
            value.name = self.builder.names.fresh(out.name)
        if value.shape is None and (sizes := dims_of(out.type.tensorType)) is not None:
            set_type(value, None, sizes)
        return value

    def lift(self, layer: Layer) -> list[ir.Value]:
        """Return the results of an operation; raise MappingError R111 for a parameter that is not
        used.
        """
        r = self.reading(layer)
        results = self.mapping.table.lift(r)
        used = r.used | (r.rule.owned("keys") if r.rule is not None else set())
        for key in sorted(layer.attrs.keys() - used - INFORMATIVE):
            raise MappingError(f"parameter {key!r} is not known", "R111")
        return results

    def reading(self, layer: Layer) -> LiftContext:
        return LiftContext(layer, self.builder, self.version, self)

    def result(self, name: str) -> ir.Value:
        """Return the value of an output."""
        if name not in self.env:
            raise unreadable("R105", f"output {name!r} is not defined", self.file)
        value: ir.Value = self.as_value(self.env[name])
        return value

    def inner(self, index: int, b: Builder) -> BlockLifting:
        """Return a nested block of the operation that is being read, to be written with `b`."""
        blocks = self.current.blocks
        if index >= len(blocks):
            raise MappingError(f"{index + 1} blocks are needed, got {len(blocks)}", "R105")
        args = (b, self.file, self.blobs, self.variables, self.version, self)
        return BlockLifting(blocks[index], *args)

    def inlined(self, index: int, b: Builder, inputs: Sequence[Given]) -> list[Given]:
        """Return the results of a nested block on these inputs."""
        child = self.inner(index, b)
        names = [i.name for i in child.block.inputs]
        if len(names) != len(inputs):
            raise MappingError(f"a block takes {len(names)} inputs, got {len(inputs)}", "R105")
        child.env.update(zip(names, inputs, strict=True))
        child.run()
        self.problems += child.problems
        if child.problems:
            raise MappingError("an operation inside a block cannot be converted")
        for name in child.block.outputs:
            if name not in child.env:
                raise MappingError(f"result {name!r} of a block is not defined", "R105")
        return [child.env[name] for name in child.block.outputs]
