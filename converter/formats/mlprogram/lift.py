"""A program -> the shared graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from google.protobuf.message import DecodeError

from converter.errors import Diagnostic, MappingError, UsageError, Where, unreadable
from converter.formats.coreml_proto import Model_pb2
from converter.formats.mlpackage import parts_of
from converter.formats.mlprogram.blobs import Blobs
from converter.formats.mlprogram.mapping import MAPPING
from converter.formats.mlprogram.rules.context import SMALL, MilReading
from converter.formats.mlprogram.values import constant, dims_of, dtype_of
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type
from converter.graph.names import set_public_name
from converter.graph.network import Network
from converter.graph.states import State, Variables
from converter.mapping.lifting import Lifting, refuse
from converter.mapping.node import Layer
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold

KINDS = {"pipeline": "a pipeline of models", "wordTagger": "a word tagger"}
# parameters that say nothing about the results
INFORMATIVE = {"validate_indices", "_existing_blocks", "_true_fn", "_false_fn", "_cond", "_body"}
Given = Any  # a value of the graph, an array, a string, a list of such, a state
VERSIONS = {"CoreML5": 6, "CoreML6": 7, "CoreML7": 8, "CoreML8": 9, "CoreML9": 10}


def read_model(path: Path, weights: Path | None = None, function: str = "") -> Network:
    """The network of a package, or of the function with this name; UnsupportedError with all
    refusals.
    """
    model = parse(parts_of(path).model)
    if model.WhichOneof("Type") != "mlProgram":
        kind = model.WhichOneof("Type") or "nothing"
        message = f"the model is {KINDS.get(kind, kind)}, no ML Program"
        raise unreadable("R104", message, Where(str(path)))
    description, program = model.description, model.mlProgram
    name = function or description.defaultFunctionName or "main"
    if name not in program.functions:
        known_ = ", ".join(sorted(program.functions))
        message = f"the program has no function {name!r}, it has {known_}"
        if function:
            raise UsageError(Diagnostic("U501", message))
        raise unreadable("R103", message, Where(str(path)))
    own = next((f for f in description.functions if f.name == name), description)
    b_model, b = new_model(name)
    variables = Variables(b)
    blobs = Blobs(parts_of(path).folder, weights)
    lifting = ProgramLifting(b, str(path), blobs, variables, program.functions[name])
    lifting.run(own)
    remove_dead_code(b_model)
    fold(b_model, limit=0)
    interface = {"defaults": variables.defaults(), "states": lifting.states}
    if images := lifting.images:
        interface["images"] = images
    return Network(b_model, "mlprogram", interface=interface)


def parse(path: Path) -> Any:
    """The Model message of a file."""
    try:
        model = Model_pb2.Model()
        model.ParseFromString(path.read_bytes())
    except OSError as e:
        raise unreadable("R100", f"cannot read: {e.strerror}", Where(str(path))) from None
    except DecodeError:
        raise unreadable("R103", "the protobuf message is damaged", Where(str(path))) from None
    return model


class ProgramLifting:
    """The function of a program that is the network."""

    def __init__(
        self, b: Builder, file: str, blobs: Blobs, variables: Variables, function: Any
    ) -> None:
        self.b, self.file, self.blobs, self.variables = b, file, blobs, variables
        self.function = function
        self.states: dict[str, str] = {}
        self.images: dict[str, dict[str, str]] = {}

    def run(self, description: Any) -> None:
        function = self.function
        block = function.block_specializations.get(function.opset)
        if block is None:
            message = f"the function has no block for {function.opset!r}"
            raise unreadable("R103", message, Where(self.file))
        version = VERSIONS.get(function.opset, 0)
        body = BlockLifting(block, self.b, self.file, self.blobs, self.variables, version)
        features = {f.name: f for f in description.input}
        for given in function.inputs:
            with body.noting(Where(self.file, path="inputs", layer=given.name)):
                body.env[given.name] = self._input(given, features.get(given.name))
        body.run()
        refuse(body.problems)
        for name in block.outputs:
            for suffix, value in body.results(name):
                self.b.output(value)
                set_public_name(self.b.graph.outputs[-1], name + suffix)
        self.states = self.variables.deliver()

    def _input(self, given: Any, feature: Any) -> Given:
        if given.type.HasField("stateType"):
            tensor = given.type.stateType.wrappedType.tensorType
            sizes = dims_of(tensor)
            if sizes is None or None in sizes:
                raise MappingError("a state without a size", "X203")
            initial = np.zeros([n for n in sizes if n is not None], dtype_of(tensor).numpy())
            return self.variables.states.setdefault(given.name, State(given.name, initial))
        tensor = given.type.tensorType
        value = self.b.input(given.name, dtype_of(tensor), dims_of(tensor))
        set_public_name(value, given.name)
        if feature is not None and feature.type.HasField("imageType"):
            colour = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE"}
            space = colour.get(feature.type.imageType.colorSpace, "RGB")
            self.images[given.name] = {"colour": space}
        return value


class BlockLifting(Lifting):
    """The operations of a block, in their order; nested blocks see the names of outer ones.

    `env`   what names stand for: values, arrays, strings, lists, states
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
        self.labels: dict[str, list[tuple[str, ir.Value]]] = {}

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
        """Enters the results of an operation; False when it was refused, or is behind such a
        one.
        """
        if operation.type == "const":
            value = operation.attributes["val"]
            self.env[operation.outputs[0].name] = constant(value, self.blobs)
            return True
        given = self._parameters(operation)
        if given is None:
            return False
        attrs = {k: self._plain(v) for k, v in given.items()}
        outputs = [ir.Value() for _ in operation.outputs]
        layer = Layer(operation.type, where.layer, attrs, {}, [], outputs, where, given)
        self.current = operation
        results = self.layer(layer)
        if results is None:
            return False
        for out, value in zip(operation.outputs, results, strict=False):
            self.env[out.name] = self._settled(value, out)
        return True

    def _parameters(self, operation: Any) -> dict[str, list[Given]] | None:
        """What the parameters are bound to; None where one of them was refused."""
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
                        raise MappingError(f"{binding.name!r} is not known here", "R105")
                    found[key].append(self.env[binding.name])
                else:
                    found[key].append(constant(binding.value, self.blobs))
        return found

    def _plain(self, given: list[Given]) -> Any:
        """A parameter as an attribute: a small constant as Python values."""
        if len(given) != 1:
            return [self._plain([g]) for g in given]
        (one,) = given
        if isinstance(one, np.ndarray) and one.size <= SMALL and one.dtype.kind in "biuf":
            return one.tolist()
        return one if isinstance(one, str | list | ir.Value) else self.as_value(one)

    def as_value(self, given: Given) -> Any:
        """What a name stands for as a value of the graph; a state stays a state."""
        if isinstance(given, np.ndarray):
            return self.builder.const(given, "const")
        if isinstance(given, ir.Value | State):
            return given
        raise MappingError("text, or a list, where a tensor is needed", "R105")

    def _settled(self, value: Given, out: Any) -> Given:
        """The result of an operation in the type that it declares, and under its name."""
        if not isinstance(value, ir.Value) or not out.type.HasField("tensorType"):
            return value
        wanted = dtype_of(out.type.tensorType)
        if value.dtype is not None and value.dtype != wanted and wanted != ir.DataType.STRING:
            value = self.builder.Cast(value, to=int(wanted))
        if value.producer() is not None and known(value) is None:
            value.name = self.builder.names.fresh(out.name)
        if value.shape is None and (sizes := dims_of(out.type.tensorType)) is not None:
            set_type(value, None, sizes)
        return value

    def lift(self, layer: Layer) -> list[ir.Value]:
        """The results of an operation; MappingError R111 for a parameter that nobody looks at."""
        r = self.reading(layer)
        results = self.mapping.table.lift(r)
        used = r.used | (r.rule.owned("keys") if r.rule is not None else set())
        for key in sorted(layer.attrs.keys() - used - INFORMATIVE):
            raise MappingError(f"parameter {key!r} is not known", "R111")
        return results

    def reading(self, layer: Layer) -> MilReading:
        return MilReading(layer, self.builder, self.version, self)

    def results(self, name: str) -> list[tuple[str, ir.Value]]:
        """The values of an output, with what their names have behind it."""
        if name in self.labels:
            return self.labels[name]
        if name not in self.env:
            raise unreadable("R105", f"the output {name!r} is not known", Where(self.file))
        return [("", self.as_value(self.env[name]))]

    def inner(self, index: int, b: Builder) -> BlockLifting:
        """A nested block of the operation that is being read, to be written with `b`."""
        blocks = self.current.blocks
        if index >= len(blocks):
            raise MappingError(f"{len(blocks)} blocks, {index + 1} are needed", "R105")
        args = (b, self.file, self.blobs, self.variables, self.version, self)
        return BlockLifting(blocks[index], *args)

    def inlined(self, index: int, b: Builder, inputs: Sequence[Given]) -> list[Given]:
        """The results of a nested block on these inputs."""
        child = self.inner(index, b)
        names = [i.name for i in child.block.inputs]
        if len(names) != len(inputs):
            raise MappingError(f"a block of {len(names)} inputs, {len(inputs)} are given", "R105")
        child.env.update(zip(names, inputs, strict=True))
        child.run()
        self.problems += child.problems
        if child.problems:
            raise MappingError("something in a block has no counterpart")
        return [child.env[name] for name in child.block.outputs]
