"""A Core AI program -> the shared graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where, unreadable, wrong_call
from converter.formats.coreml.coreai import bindings, package
from converter.formats.coreml.coreai.bytecode import Bytecode
from converter.formats.coreml.coreai.elements import Type, elements, resource, type_of
from converter.formats.coreml.coreai.mapping import MAPPING
from converter.formats.coreml.coreai.rules.complex import compute
from converter.formats.coreml.coreai.rules.composites import PREFIX
from converter.formats.coreml.coreai.rules.context import LiftContext
from converter.formats.coreml.coreai.rules.quantization import SparseValue
from converter.graph.build import Builder, new_model
from converter.graph.infer import known, set_type
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network, as_pairs
from converter.graph.states import State, Variables
from converter.io.mapped_file import MappedFile
from converter.mapping.lifting import Lifting, refuse
from converter.mapping.node import Layer
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold

D = ir.DataType
Operation = Mapping[str, Any]
DEEPEST = 50  # graphs and blocks in each other
TOKEN = object()  # orders the uses of states, as the order of operations already does
Given = Any  # a value of the graph, a state, a token
_NAME, _STATE = "coreai.name", "MutableBuffers.buffer_mutation"
# attributes that do not affect the results
INFORMATIVE = {"__coreai_pure__", "template_op", "arg_attrs", "res_attrs"}
_UNKNOWN = "-"  # the location of an operation without one
_REFUSED = {
    "metal4_kernel": "Metal kernels have no equivalent in other formats",
    "delegate": "a compiled part of a program cannot be read",
    "image_to_tensor": "only macOS and iOS can read images",
    "tensor_to_image": "only macOS and iOS can write images",
    "reduce": "the runtime cannot load a reduction with its own block",
    "reduce_index": "the runtime cannot load a reduction with its own block",
}


def read_model(path: Path, function: str = "") -> Network:
    """Return the network of a package, or of the function with this name; raise UnsupportedError
    with all refusals.
    """
    main = package.main_of(path)
    said, content = package.metadata_of(main), MappedFile(main)
    code = Bytecode(content.bytes, str(main))
    graphs = dict(graphs_of(bindings.program(main)))
    name = chosen(graphs, function, path)
    model, b = new_model(name)
    reading = ModelReading(b, str(path), code, graphs)
    reading.run(graphs[name])
    states = reading.variables.deliver()
    states |= reading.open_states()
    remove_dead_code(model)
    fold(model, limit=0)
    interface: dict[str, Any] = {"defaults": reading.variables.defaults(), "states": states}
    if reading.complex:
        interface["complex"] = tuple(reading.complex)
    kept = {k: said[k] for k in (*package.TEXTS, "creatorDefinedMetadata") if said.get(k)}
    if kept:
        interface["coreai"] = kept
        model.metadata_props["netconv.coreai"] = json.dumps(kept, sort_keys=True)
    notes = [] if function else others_left(graphs, name, path)
    return Network(model, "coreai", notes, interface)


def graphs_of(operations: Sequence[Operation], prefix: str = "") -> Iterator[tuple[str, Operation]]:
    """The graphs of a module by name; those of a namespace begin with its name."""
    for op in operations:
        name = prefix + str(op["attrs"].get("sym_name", ""))
        if op["kind"] == "coreai.graph":
            yield name, op
        elif op["kind"] == "udml.namespace":
            for block in op["regions"][0]:
                yield from graphs_of(block["body"], f"{name}_")


def chosen(graphs: Mapping[str, Operation], function: str, path: Path) -> str:
    """Return the name of the graph to read: as requested, else `main`, else the first public
    one.
    """
    public = [n for n, g in graphs.items() if not g["attrs"].get("priv")]
    if function:
        if function not in public:
            known_ = ", ".join(public) or "none"
            raise wrong_call(f"the model has no function {function!r}", f"it has: {known_}")
        return function
    if not public:
        raise unreadable("R103", "the model has no public function", path)
    return "main" if "main" in public else public[0]


def others_left(graphs: Mapping[str, Operation], name: str, path: Path) -> list[Diagnostic]:
    """Return a note on the functions that are not read because none was chosen."""
    others = [n for n, g in graphs.items() if not g["attrs"].get("priv") and n != name]
    if not others:
        return []
    message = f"the model has {len(others) + 1} functions; {name!r} is read"
    help = f"use --signature to choose another: {', '.join(others)}"
    return [Diagnostic("X207", message, "note", Where(str(path)), help=help)]


class ModelReading:
    """The state that the graphs of a model share while they are read. `complex` are the names of
    complex inputs and outputs, `pairs` the values that represent complex numbers.
    """

    def __init__(
        self, b: Builder, file: str, code: Bytecode, graphs: Mapping[str, Operation]
    ) -> None:
        self.b, self.file, self.code, self.graphs = b, file, code, graphs
        self.resources = code.resources()
        self.variables = Variables(b)
        self.open: list[tuple[State, ir.Value]] = []
        self.complex: list[str] = []
        self.pairs: set[ir.Value] = set()

    def run(self, graph: Operation) -> None:
        """Lift a function: its inputs, operations and outputs."""
        block = graph["regions"][0][0]
        body = BlockLifting(block, self)
        given = graph["attrs"].get("arg_attrs") or [{}] * len(block["arguments"])
        for (number, text), attrs in zip(block["arguments"], given, strict=True):
            name = attrs.get(_NAME, f"arg{number}")
            with body.noting(Where(self.file, path="inputs", layer=name)):
                body.env[number] = self._input(name, type_of(text))
        results = body.run()
        refuse(body.problems)
        names = graph["attrs"].get("res_attrs") or [{}] * len(results)
        for value, attrs in zip(results, names, strict=True):
            if value is TOKEN:
                continue
            name = attrs.get(_NAME, "output")
            if not isinstance(value, ir.Value):
                raise unreadable("R105", f"output {name!r} must be a tensor", self.file)
            self.b.output(value)
            set_public_name(self.b.graph.outputs[-1], name)
            if value in self.pairs:
                self.complex.append(name)

    def _input(self, name: str, kind: Type) -> Given:
        dims = list(kind.dims)
        if kind.wrapper == "handle":
            if None not in dims:
                state = State(name, np.zeros([n or 0 for n in dims], kind.dtype.numpy()))
                return self.variables.states.setdefault(name, state)
            value = self.b.input(name, kind.dtype, dims)
            set_public_name(value, name)
            state = State(name, None, value, value)
            self.open.append((state, value))
            return state
        if kind.wrapper:
            raise MappingError(f"an input of type {kind.wrapper} is not supported", "X201")
        pair = kind.dtype == D.COMPLEX64
        value = self.b.input(name, D.FLOAT if pair else kind.dtype, [*dims, 2] if pair else dims)
        set_public_name(value, name)
        if pair:
            self.complex.append(name)
            self.pairs.add(value)
        return value

    def open_states(self) -> dict[str, str]:
        """Return the outputs for states with dynamic sizes, whose initial shape is unknown."""
        found = {}
        for state, source in self.open:
            if state.value is not None and state.value is not source:
                self.b.output(state.value)
                set_public_name(self.b.graph.outputs[-1], f"{state.name}_out")
                found[public_name(source)] = f"{state.name}_out"
        return found

    def constant(self, op: Operation) -> Any:
        """Return the elements of a constant operation."""
        given, kind = op["attrs"]["value"], type_of(op["outputs"][0][1])
        if "resource" not in given:
            return elements(given, kind)
        found = self.resources.get(given["resource"])
        if found is None:
            raise MappingError(f"resource {given['resource']!r} is not in the file", "R103")
        start, length = found.data
        return resource(self.code.data[start : start + length], kind)


class BlockLifting(Lifting):
    """Lift the operations of a block, in their order; `env` maps the numbers of values to values.
    Nested blocks see the values of outer ones.
    """

    def __init__(
        self, block: Mapping[str, Any], model: ModelReading, outer: BlockLifting | None = None,
        b: Builder | None = None,
    ) -> None:  # fmt: skip
        super().__init__(MAPPING, b or model.b, "coreai")
        self.block, self.model, self.outer = block, model, outer
        self.env: dict[int, Given] = dict(outer.env) if outer is not None else {}
        self.refused: set[int] = set(outer.refused) if outer is not None else set()
        self.current: Operation = {}
        self.depth = 0

    def run(self) -> list[Given]:
        """Lift the block; return the operands of its last operation."""
        *body, last = self.block["body"]
        for position, op in enumerate(body):
            name, kind = self._name(op), op["kind"].removeprefix("coreai.")
            where = Where(self.model.file, path=f"operations[{position}]", layer=name, kind=kind)
            done = False
            with self.noting(where):
                done = self._operation(op, kind, name, where)
            if not done:
                self.refused.update(n for n, _ in op["outputs"])
        if self.refused.intersection(last["inputs"]):
            return [self.env.get(n, TOKEN) for n in last["inputs"]]
        return [self._operand(n) for n in last["inputs"]]

    def _name(self, op: Operation) -> str:
        name = str(op.get("name", ""))
        return "" if name == _UNKNOWN else name

    def is_complex(self, value: ir.Value) -> bool:
        """Return whether a value stores complex numbers as pairs."""
        return value in self.model.pairs

    def is_seen(self, but: str) -> bool:
        """Return whether operations other than `coreai.{but}` use the results of the current
        operation.
        """
        own = {n for n, _ in self.current["outputs"]}
        users = [op["kind"] for op in self.block["body"] if own.intersection(op["inputs"])]
        return any(kind != f"coreai.{but}" for kind in users)

    def _operand(self, number: int) -> Given:
        if number not in self.env:
            raise MappingError(f"value {number} is not defined here", "R105")
        return self.env[number]

    def _operation(self, op: Operation, kind: str, name: str, where: Where) -> bool:
        """Enter the results of an operation; False when it was refused, or depends on such a
        one.
        """
        self.current = op
        if self.refused.intersection(op["inputs"]):
            return False
        if kind == "constant":
            tensor = self.model.constant(op)
            pair = tensor.dtype == D.COMPLEX64
            value = self.builder.const(
                as_pairs(tensor.numpy()) if pair else tensor, name or "const"
            )
            self.model.pairs.update([value] if pair else [])
            self.env[op["outputs"][0][0]] = value
            return True
        if kind in _REFUSED:
            raise MappingError(f"{kind}: {_REFUSED[kind]}", "X201")
        given = [self._operand(n) for n in op["inputs"]]
        structure = getattr(self, f"_{kind.replace('.', '_')}", None)
        results = (
            structure(given)
            if structure is not None
            else self._by_rows(op, kind, name, given, where)
        )
        if results is None:
            return False
        for (number, text), value in zip(op["outputs"], results, strict=True):
            self.env[number] = self._settled(value, type_of(text), name)
        return True

    def _by_rows(
        self, op: Operation, kind: str, name: str, given: list[Given], where: Where
    ) -> list[Given] | None:
        attrs = {k: v for k, v in op["attrs"].items() if k not in INFORMATIVE}
        outputs = [self._declared(type_of(text)) for _, text in op["outputs"]]
        kind = kind.removeprefix("decomposable.")
        return self.layer(Layer(kind, name, attrs, {}, list(given), outputs, where))

    def _declared(self, kind: Type) -> ir.Value:
        return ir.Value(type=ir.TensorType(kind.dtype), shape=ir.Shape(list(kind.dims)))

    def _settled(self, value: Given, kind: Type, name: str) -> Given:
        """Return a result with the type and the sizes that the operation declares."""
        if not isinstance(value, ir.Value) or isinstance(value, SparseValue) or kind.wrapper:
            return value
        wanted = kind.dtype
        if wanted == D.COMPLEX64:
            self.model.pairs.add(value)
            return value
        if value.dtype is not None and value.dtype != wanted:
            value = self.builder.Cast(value, to=wanted)
        if name and value.producer() is not None and known(value) is None:
            value.name = self.builder.names.fresh(name)
        own = list(value.shape) if value.shape is not None else list(kind.dims)
        if value.const_value is None and len(own) == len(kind.dims):
            dims = [n if isinstance(n, int) or m is None else m
                    for n, m in zip(own, kind.dims, strict=True)]  # fmt: skip
            if value.shape is None or dims != own:
                set_type(value, None, dims)
        return value

    def lift(self, layer: Layer) -> list[ir.Value]:
        """Return the results of an operation; those of a custom converter are not checked for
        unused attributes.
        """
        r = self.reading(layer)
        parts = ("real_part", "imaginary_part")
        if layer.kind in parts or not any(map(r.is_complex, layer.inputs)):
            return self.mapping.table.lift(r)
        with self.builder:
            return [compute(r)]

    def reading(self, layer: Layer) -> LiftContext:
        return LiftContext(layer, self.builder, block=self)

    def inlined(
        self, index: int, b: Builder, inputs: Sequence[Given], block: Any = None
    ) -> list[Given]:
        """Return the results of a block of the operation that is being read, or of `block`."""
        if block is None:
            regions = self.current.get("regions", [])
            if index >= len(regions):
                raise MappingError(f"{index + 1} blocks are needed, got {len(regions)}", "R105")
            block = regions[index][0]
            child = BlockLifting(block, self.model, self, b)
        else:
            child = BlockLifting(block, self.model, None, b)
        numbers = [n for n, _ in block["arguments"]]
        if len(numbers) != len(inputs):
            message = f"a block takes {len(numbers)} inputs, got {len(inputs)}"
            raise MappingError(message, "R105")
        child.depth = self.depth + 1
        child.env.update(zip(numbers, inputs, strict=True))
        current = self.current
        results = child.run()
        self.current = current
        self.problems += child.problems
        if child.problems:
            raise MappingError("an operation of a block cannot be read")
        return results

    # structure ------------------------------------------------------------------------------------

    def _invoke(self, given: list[Given]) -> list[Given]:
        """Return the results of a graph: by the row of the operation that it is declared to be,
        else by its body.
        """
        found = re.fullmatch(
            r'#param\.constant<@("?)(.*?)\1>.*', str(self.current["attrs"]["callee"])
        )
        name = found[2] if found else ""
        if name not in self.model.graphs:
            raise MappingError(f"graph {name!r} is not in the file", "R105")
        graph = self.model.graphs[name]
        if (made := self._composite(graph, given)) is not None:
            return made
        if self.depth > DEEPEST:
            raise MappingError(f"graphs are nested more than {DEEPEST} deep", "R105")
        return self.inlined(0, self.builder, given, graph["regions"][0][0])

    def _composite(self, graph: Operation, given: list[Given]) -> list[Given] | None:
        """Return the results by the row for a composite graph; None if no row matches."""
        text = str(graph["attrs"].get("composite_decl", ""))
        found = re.match(r'#coreai\.composite_declaration<"(\w+)" = ', text)
        kind = f"{PREFIX}{found[1]}" if found else ""
        if kind not in self.mapping.table.kinds():
            return None
        try:
            return list(self.lift(Layer(kind, "", numbers_in(text), {}, list(given))))
        except MappingError:
            return None

    def _create_token(self, given: list[Given]) -> list[Given]:
        return [TOKEN]

    _join_token = _create_token

    def _read_handle(self, given: list[Given]) -> list[Given]:
        return [self.model.variables.read(self._state(given[0])), TOKEN]

    def _write_handle(self, given: list[Given]) -> list[Given]:
        state = self._state(given[0])
        self.model.variables.read(state)  # it is an input even where it is only written
        state.value = given[1]
        return [TOKEN]

    def _state(self, given: Given) -> State:
        if not isinstance(given, State):
            raise MappingError("the operand must be a state", "R105")
        if self.outer is not None:
            raise MappingError("states inside a branch or a loop are not supported", "X201")
        return given

    def _isolated_group(self, given: list[Given]) -> list[Given]:
        return self.inlined(0, self.builder, given)

    def _target_spec(self, given: list[Given]) -> list[Given]:
        return []


def numbers_in(text: str) -> dict[str, Any]:
    """Return the attributes of a composite declaration that are numbers or lists of numbers."""
    inner = re.search(r"op_attrs = \{(.*?)\}", text)
    found: dict[str, Any] = {}
    for key, value in re.findall(r"(\w+) = (\[.*?\]|[^,\]]+)", inner[1] if inner else ""):
        parts = [p.partition(" : ")[0].strip() for p in value.strip("[]").split(",") if p.strip()]
        whole = all(re.fullmatch(r"-?\d+", p) for p in parts)
        try:
            numbers = [int(p) if whole else float(p) for p in parts]
        except ValueError:
            continue
        found[key] = numbers if value.startswith("[") else numbers[0] if numbers else None
    return found
