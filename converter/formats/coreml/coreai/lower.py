"""The shared graph -> a Core AI program."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError, Where
from converter.formats.coreml.coreai import bindings, package
from converter.formats.coreml.coreai.barriers import keep_apart
from converter.formats.coreml.coreai.bytecode import ALIGNMENT, Bytecode
from converter.formats.coreml.coreai.collector import CoreAILowering, all_layers, needed
from converter.formats.coreml.coreai.elements import INLINE
from converter.formats.coreml.coreai.mapping import MAPPING
from converter.formats.coreml.coreai.pipeline import FOR_BINDINGS, PREPARE
from converter.formats.coreml.coreai.program import TOKEN, Program, interface
from converter.formats.format import Flavor
from converter.graph.infer import shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names, public_name
from converter.graph.network import Network
from converter.io.files import Output
from converter.io.mapped_file import MappedFile
from converter.mapping.lifting import refuse
from converter.mapping.node import Layer
from converter.passes.pipeline import Context, run_passes

D = ir.DataType
COMPACT = ("blockwise_shift_scale", "lut_to_dense")  # operations that the bindings leave unchanged
LONG_SUM = 1024  # products from which on a sum in half precision is warned of
STATES = "netconv.states"  # key of the metadata: states -> the outputs that are their next values


def write_model(network: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a package; raise UnsupportedError with everything that has no counterpart."""
    bindings.demand_installed()
    notes: list[Diagnostic] = []
    model = prepared(network, notes)
    low = lowered(model, "fp16" in flavor.options)
    if any(map(folded_by_bindings, all_layers(low.layers))):
        run_passes(FOR_BINDINGS, model, Context(network, notes=notes))
        low = lowered(model, low.half)
    refuse(low.problems)
    keep_apart(low)
    notes += [*low.notes, *long_sums(low)]
    try:
        function = MainFunction(network, model.graph, low, notes)
        text = function.text()
    except MappingError as e:
        raise UnsupportedError(Diagnostic(e.code, str(e), help=e.help)) from None
    with Output(path) as out:
        package.write_package(out, function.metadata(), lambda f: _write(f, text, function.program))
    return notes


def lowered(model: ir.Model, half: bool) -> CoreAILowering:
    """Return the operations for the graph."""
    low = CoreAILowering(MAPPING)
    low.half = half
    for node in model.graph:
        low.node(node)
    low.layers = needed(low.layers, model.graph.outputs)
    return low


def long_sums(low: CoreAILowering) -> list[Diagnostic]:
    """Return a warning about the longest matrix product in half precision, whose sums the runtime
    computes in half precision.
    """
    found: dict[int, str] = {}
    for layer in all_layers(low.layers):
        x = layer.inputs[0] if layer.kind == "broadcasting_batch_matmul" else None
        if x is not None and low.carried(x) == D.FLOAT16 and x.shape is not None:
            count = x.shape[-1]
            if isinstance(count, int) and count >= LONG_SUM:
                found.setdefault(count, layer.name)
    if not found:
        return []
    most = max(found)
    message = f"a matrix product adds {most} numbers in half precision, which loses digits"
    help = "use -t coreai without +fp16, which adds in single precision"
    return [Diagnostic("X205", message, "warning", where=Where(layer=found[most]), help=help)]


def folded_by_bindings(layer: Layer) -> bool:
    """Return whether the bindings would compute an operation of constants not known yet."""
    operands = [v for v in layer.inputs if v is not None]
    large = any(v.const_value is not None and v.const_value.nbytes > INLINE for v in operands)
    return large and layer.kind not in COMPACT and all(v.const_value is not None for v in operands)


def prepared(network: Network, notes: list[Diagnostic]) -> ir.Model:
    """Return a copy of the graph in operators that Core AI has, with constants folded."""
    clone = network.ir.clone()
    run_passes(PREPARE, clone, Context(network, notes=notes))
    return clone


def _write(file: BinaryIO, text: str, program: Program) -> None:
    """Return the bytecode of the text, with the weights inserted as its resources.

    The bindings fold operations on constants while they write, and would read past the
    placeholders: there are no such operations, see `prepared`.
    """
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        source, made = Path(folder) / "program.mlir", Path(folder) / "main.mlirb"
        source.write_text(text + _placeholders(program.resources), encoding="utf-8")
        try:
            bindings.call("write", source, made)
        except bindings.Refused as e:
            message = f"Core AI cannot load the program: {e}"
            help = "please report this model"
            raise UnsupportedError(Diagnostic("X202", message, help=help)) from None
        code = Bytecode(MappedFile(made).bytes, str(made))
        if code.resources().keys() != program.resources.keys():
            raise AssertionError("Core AI changed the constants of the program")
        code.write(file, program.resources)


def _placeholders(resources: Mapping[str, LazyTensor]) -> str:
    """Return a resource of a few bytes for each weight: its number, since equal resources are
    merged into one.
    """
    head = ALIGNMENT.to_bytes(4, "little").hex()
    lines = ",\n".join(
        f'{name}: "0x{head}{i.to_bytes(8, "little").hex()}"' for i, name in enumerate(resources)
    )
    return f"\n{{-# dialect_resources: {{ builtin: {{ {lines} }} }} #-}}\n" if lines else ""


class MainFunction:
    """The only function of a written model: its inputs, outputs and states."""

    def __init__(
        self, network: Network, graph: ir.Graph, low: CoreAILowering, notes: list[Diagnostic]
    ) -> None:
        self.network, self.graph, self.low, self.notes = network, graph, low, notes
        self.program = Program(low)
        self.states = dict(self._states())
        self.before: list[Layer] = []
        self.after: list[Layer] = []

    def _states(self) -> Any:
        """Return the inputs that are states, with the outputs that are their next values. States
        need static sizes, and start as zeros, since the file stores no initial values.
        """
        inputs = {public_name(v): v for v in self.graph.inputs}
        outputs = {public_name(v): v for v in self.graph.outputs}
        for name, after in self.network.variables.items():
            if name not in inputs or after not in outputs:
                continue
            start = self.network.interface.get("defaults", {}).get(name)
            if shape_of(inputs[name]) is not None and (start is None or not np.any(start)):
                yield inputs[name], outputs[after]
                continue
            text = f"state {name} is written as an input and an output"
            help = "Core AI requires states of static shape that begin with zeros"
            self.notes.append(
                Diagnostic("X205", text, "warning", where=Where(layer=name), help=help)
            )

    def metadata(self) -> dict[str, Any]:
        """Return the content of metadata.json."""
        metadata = dict(self.network.interface.get("coreai", {}))
        named = {public_name(k): public_name(v) for k, v in self.states.items()}
        declared = {k: v for k, v in named.items() if v != f"{k}_out"}
        if declared:
            metadata["creatorDefinedMetadata"] = {
                **metadata.get("creatorDefinedMetadata", {}),
                STATES: declared,
            }
        return metadata

    def text(self) -> str:
        """Return the text of the module."""
        p, names = self.program, Names()
        arguments = [v for v in self.graph.inputs if v not in self.states]
        results = [v for v in self.graph.outputs if v not in self.states.values()]
        given = [self._boundary(v, self.before, False) for v in arguments]
        outer = [self._boundary(v, self.after, True) for v in results]
        stored = list(self.states.values())
        layers = [*self.before, *self.low.layers, *self.after]
        layers = needed(layers, [*outer, *stored])
        lines = p.constants(layers, [*outer, *stored])
        handles = [f"!coreai.handle<{p.type_of(v)}>" for v in self.states]
        heads, tokens = [], []
        for value, handle in zip(self.states, handles, strict=True):
            heads.append(f"{p.name((value, 0))}: {handle}")
            lines += self._read(value, handle)
        lines += p.lines(layers)
        for (value, _), handle, after in zip(self.states.items(), handles, stored, strict=True):
            tokens.append(p.name((value, 3)))
            operands = f"{p.name((value, 0))}, {p.name(after)}, {p.name((value, 2))}"
            types = f"{handle}, {p.type_of(after)}, {TOKEN}"
            lines.append(f'{tokens[-1]} = "coreai.write_handle"({operands}) : ({types}) -> {TOKEN}')
        lines.append(p.end("output", outer, tokens))
        heads += [f"{p.name(v)}: {p.type_of(v)}" for v in given]
        own = [public_name(v) for v in (*self.states, *arguments)]
        made = [public_name(v) for v in self.states] + [
            names.fresh(public_name(v)) for v in results
        ]
        types_in = ", ".join([*handles, *map(p.type_of, given)])
        types_out = ", ".join([*[TOKEN] * len(tokens), *map(p.type_of, outer)])
        attrs = (
            f"arg_attrs = {interface(own)}, function_type = ({types_in}) -> ({types_out}), "
            f'param_decls = #param.decl.array<[]>, res_attrs = {interface(made)}, sym_name = "main"'
        )
        body = "\n".join([f"^bb0({', '.join(heads)}):" if heads else "", *lines])
        main = f'"coreai.graph"() <{{{attrs}}}> ({{\n{body}\n}}) : () -> ()'
        graph = "\n".join([*p.private_graphs(), main])
        return f'"builtin.module"() ({{\n{graph}\n}}) : () -> ()\n'

    def _read(self, value: ir.Value, handle: str) -> list[str]:
        p = self.program
        token, pair = p.name((value, 1)), p.name((value, 4))
        p.rename(value, f"{pair}#0")
        p.rename((value, 2), f"{pair}#1")
        kind = p.type_of(value)
        return [
            f'{token} = "coreai.create_token"() : () -> {TOKEN}',
            f'{pair}:2 = "coreai.read_handle"({p.name((value, 0))}, {token}) : '
            f"({handle}, {TOKEN}) -> ({kind}, {TOKEN})",
        ]

    def _boundary(self, value: ir.Value, casts: list[Layer], out: bool) -> ir.Value:
        """Return an input or output in the source's type, with a cast if it is computed in
        another.
        """
        if public_name(value) in self.network.interface.get("complex", ()):
            return self._complex(value, casts, out)
        if self.low.carried(value) == value.dtype or value.dtype is None:
            return value
        outer = ir.Value(name=value.name, type=value.type, shape=value.shape)
        self.low.exact.add(outer)
        pair = ([value], [outer]) if out else ([outer], [value])
        casts.append(Layer("cast", "", {}, {}, pair[0], pair[1]))  # type: ignore[arg-type]
        return outer

    def _complex(self, value: ir.Value, casts: list[Layer], out: bool) -> ir.Value:
        """Declare pairs of numbers in the graph as complex numbers in the interface."""
        low, shape = self.low.inner(), list(value.shape or ())[:-1]
        outer = ir.Value(name=value.name, type=ir.TensorType(D.COMPLEX64), shape=ir.Shape(shape))
        axis = np.array([len(shape)], np.int32)
        halves = [low.value("part", value.dtype, shape) for _ in range(2)]
        wide = [low.value("part", value.dtype, [*shape, 1]) for _ in range(2)]
        last = low.constant(axis.reshape(()))
        if out:
            low.add("split", [value, low.constant(np.array([1, 1], np.uint32)), last], wide)
            for one, half in zip(wide, halves, strict=True):
                low.add("shrink_dims", [one, low.constant(axis)], [half])
            low.add("create_complex", halves, [outer])
        else:
            for kind, one, half in zip(("real", "imaginary"), wide, halves, strict=True):
                low.add(f"{kind}_part", [outer], [half])
                low.add("expand_dims", [half, low.constant(axis)], [one])
            low.add("concat", [last, *wide], [value])
        casts += low.layers
        return outer
