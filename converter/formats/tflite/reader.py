"""A TensorFlow Lite file as an operand table.

Tensors become operands, and options become scalars where the operation's signature has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converter.errors import (
    ConverterError,
    Diagnostic,
    ReadError,
    UnsupportedError,
    Where,
    unreadable,
)
from converter.formats.nnapi.codec import view
from converter.formats.nnapi.operations import Argument, Signature, operations
from converter.formats.nnapi.table import (
    ChannelQuant,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.formats.tflite.converters import LIFT
from converter.formats.tflite.flatbuffer import (
    OPTIONS,
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    read_flat,
)
from converter.formats.tflite.rewrites import plain
from converter.formats.tflite.rules import BY_BUILTIN, LAST, Refused, Row
from converter.formats.tflite.schema import schema

# Metadata of earlier versions: how inputs and outputs were stored. The file means what LiteRT
# computes, so that nothing is undone.
FORMER_NOTE = "netconv.boundary"
_TYPES = {
    schema.TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    schema.TensorType.FLOAT16: OperandType.TENSOR_FLOAT16,
    schema.TensorType.INT32: OperandType.TENSOR_INT32,
    schema.TensorType.BOOL: OperandType.TENSOR_BOOL8,
    schema.TensorType.UINT8: OperandType.TENSOR_QUANT8_ASYMM,
    schema.TensorType.INT8: OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    schema.TensorType.INT16: OperandType.TENSOR_QUANT16_SYMM,
    schema.TensorType.UINT16: OperandType.TENSOR_QUANT16_ASYMM,
}
_TYPE_NAMES = {v: k for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
# Options that say how to compute, not what.
_FREE = {"ValuesCount", "OutputType"}


@dataclass
class Lift:
    """An operation that is being read, by names of arguments.

    `args` are operands; `scalars` get operands when the signature is chosen.
    """

    operation: str
    args: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)


def read_tflite(path: str | Path, notes: list[Diagnostic] | None = None) -> Table:
    """The operand table that says the same as a file; a missing bias is zeros there.

    `notes` gets warnings.

    Raises ReadError: R103 damaged, R104 schema version; UnsupportedError X201: operators and tensor
    types that NNAPI does not have.
    """
    try:
        model = read_flat(path)
        if notes is not None and FORMER_NOTE in model.metadata:
            message = (
                "a note of an earlier netconv about the order of inputs and outputs is passed "
                "over: no runtime reads it"
            )
            notes.append(
                Diagnostic(
                    "R108",
                    message,
                    "warning",
                    Where(str(path), path=f"metadata {FORMER_NOTE}"),
                    help="convert the source again",
                )
            )
        return lift_model(model)
    except UnsupportedError as e:
        raise UnsupportedError(_at_file(d, str(path)) for d in e.diagnostics) from None
    except ReadError as e:
        raise ReadError(_at_file(d, str(path)) for d in e.diagnostics) from None


def _at_file(d: Diagnostic, file: str) -> Diagnostic:
    return Diagnostic(
        d.code,
        d.message,
        d.level,
        Where(file, d.where.line, d.where.path, d.where.layer, d.where.kind),
        d.evidence,
        d.help,
    )


def lift_model(model: LiteModel) -> Table:
    problems: list[Diagnostic] = []
    graphs = []
    for number, graph in enumerate(model.graphs):
        plain(graph)
        lifting = Lifting(graph, Table() if number == 0 else Subgraph(), len(model.graphs))
        graphs.append(lifting.run(f"subgraphs[{number}].", problems))
    if problems:
        raise UnsupportedError(problems)
    table = graphs[0]
    assert isinstance(table, Table)
    table.referenced = list(graphs[1:])
    return table


class Lifting:
    """One subgraph that is being read; an operand is made when something uses its tensor."""

    def __init__(self, graph: LiteGraph, subgraph: Subgraph, graphs: int) -> None:
        self.graph, self.subgraph, self.graphs = graph, subgraph, graphs
        self._operands: dict[int, int] = {}

    def run(self, prefix: str, problems: list[Diagnostic]) -> Subgraph:
        try:
            self.subgraph.inputs = [self.tensor(i) for i in self.graph.inputs]
        except Refused as e:
            problems.append(Diagnostic("X201", str(e), where=Where(path=f"{prefix}inputs")))
        for i, lite in enumerate(self.graph.operators):
            name = self.graph.tensors[lite.outputs[0]].name if lite.outputs else ""
            where = Where(path=f"{prefix}operators[{i}]", layer=name, kind=lite.builtin)
            try:
                self._operator(lite)
            except Refused as e:
                problems.append(
                    Diagnostic("X201", f"NNAPI cannot express {lite.builtin}: {e}", where=where)
                )
            except ConverterError:
                raise
            except (ValueError, KeyError, IndexError) as e:
                raise unreadable(
                    "R105",
                    f"{lite.builtin} does not have the tensors that it needs ({type(e).__name__})",
                    where,
                ) from None
        try:
            self.subgraph.outputs = [self.tensor(i) for i in self.graph.outputs]
        except Refused as e:
            problems.append(Diagnostic("X201", str(e), where=Where(path=f"{prefix}outputs")))
        return self.subgraph

    def operand(self, index: int) -> Operand:
        return self.subgraph.operands[index]

    def add(self, operand: Operand) -> int:
        return self.subgraph.add(operand)

    def tensor(self, index: int) -> int:
        """The operand of a tensor."""
        if index not in self._operands:
            self._operands[index] = self.add(self._like(self.graph.tensors[index]))
        return self._operands[index]

    def _like(self, tensor: LiteTensor) -> Operand:
        kind = _TYPES.get(tensor.type)
        if kind is None:
            raise Refused(
                f"tensor {tensor.name!r} is {_TYPE_NAMES.get(tensor.type, tensor.type)}, "
                "which NNAPI does not have"
            )
        if tensor.variable:
            raise Refused(f"tensor {tensor.name!r} is a hidden variable, which NNAPI does not have")
        operand = Operand(kind, list(tensor.shape) or [1], tensor.name)
        self._quantisation(tensor, operand)
        if tensor.data is not None:
            data = np.asarray(tensor.data)
            if data.nbytes != operand.nbytes:
                raise unreadable(
                    "R103",
                    f"the buffer has {data.nbytes} bytes, {operand.nbytes} are needed",
                    Where(layer=tensor.name),
                )
            operand.value = view(operand, data)
        return operand

    def _quantisation(self, tensor: LiteTensor, operand: Operand) -> None:
        scales, zeros = tensor.scales, tensor.zero_points or [0] * len(tensor.scales)
        if operand.type in (
            OperandType.TENSOR_FLOAT32,
            OperandType.TENSOR_FLOAT16,
            OperandType.TENSOR_BOOL8,
        ):
            return
        if len(scales) > 1 and operand.type in (
            OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
            OperandType.TENSOR_INT32,
        ):
            operand.channel_quant = ChannelQuant(tensor.axis, tuple(scales))
            if any(zeros):
                raise Refused(f"tensor {tensor.name!r} has per-channel zero points")
            if operand.type is OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
                operand.type = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
        elif len(scales) == 1 and len(zeros) == 1 and abs(zeros[0]) < 2**31:
            operand.scale, operand.zero_point = float(str(np.float32(scales[0]))), int(zeros[0])
        elif scales or operand.type is not OperandType.TENSOR_INT32:
            raise Refused(f"tensor {tensor.name!r} has {len(scales)} scales, NNAPI wants one")

    def constant(self, index: int, name: str, count: int | None = None) -> list[Any]:
        """The elements of a constant tensor."""
        tensor = self.graph.tensors[index]
        if index < 0 or tensor.data is None or tensor.type not in _TYPES:
            raise Refused(f"{name} is not a constant")
        dtype = _TYPES[tensor.type].dtype
        assert dtype is not None
        data = np.asarray(tensor.data)
        if data.nbytes % dtype.itemsize or (
            count is not None and data.nbytes != count * dtype.itemsize
        ):
            raise unreadable("R103", f"{name} has {data.nbytes} bytes", Where(layer=tensor.name))
        return list(data.view(dtype).tolist())

    def _operator(self, lite: LiteOperator) -> None:
        row = BY_BUILTIN.get(lite.builtin)
        if row is None:
            raise Refused("it has no such operation")
        self._check_options(row, lite)
        if row.operation == "RESHAPE" and self._is_scalar(lite):
            return
        x = Lift(row.operation, scalars=self._scalars(row, lite))
        if row.operation != "TRANSPOSE_CONV_2D":
            self._tensors(row, lite, x)
        x.scalars.update({k: -1 if v == LAST else v for k, v in row.only.items() if v is not False})
        for special in LIFT.get(row.operation, ()):
            special(self, lite, x)
        x.outputs = outputs = [self.tensor(i) for i in lite.outputs]
        if x.operation == "RANK":
            self.operand(outputs[0]).type, self.operand(outputs[0]).dimensions = (
                OperandType.INT32,
                [],
            )
        signature = self._signature(x)
        self.subgraph.operations.append(Operation(x.operation, self._inputs(signature, x), outputs))

    def _is_scalar(self, lite: LiteOperator) -> bool:
        """A tensor without dimensions is one of [1] in NNAPI; making it one is no operation."""
        source, target = lite.inputs[0], lite.outputs[0]
        tensors = self.graph.tensors
        if (
            tensors[source].shape
            or tensors[target].shape != [1]
            or tensors[source].data is not None
            or source in self.graph.inputs + self.graph.outputs
        ):
            return False
        self._operands[target] = self.tensor(source)
        self.operand(self._operands[target]).name = tensors[target].name
        return True

    def _check_options(self, row: Row, lite: LiteOperator) -> None:
        """Options that no argument holds have the value that they have when they are left out."""
        if (
            lite.options
            and lite.kind != row.options
            and lite.kind not in ("ArgMaxOptions", "ArgMinOptions")
        ):
            raise Refused(f"it has {lite.kind}")
        for name, value in lite.options.items():
            owned = (
                name in row.fields
                or name in _FREE
                or name.endswith("SubgraphIndex")
                or name in ("SqueezeDims", "Type")
            )
            if not owned and value != OPTIONS[lite.kind][name]:
                raise Refused(f"{name} is {value}")

    def _scalars(self, row: Row, lite: LiteOperator) -> dict[str, Any]:
        scalars = {}
        for name, f in row.fields.items():
            value = lite.options.get(name, OPTIONS[row.options][name])
            if f.argument == "activation" and value not in (0, 1, 2, 3):
                raise Refused(f"its activation is {value}")
            scalars[f.argument] = int(value) if f.flag else value - f.shift if f.shift else value
        return scalars

    def _tensors(self, row: Row, lite: LiteOperator, x: Lift) -> None:
        arguments = {a.name: a for s in operations()[row.operation].signatures for a in s.inputs}
        left = list(lite.inputs)
        for name in row.tensors:
            if arguments[name].repeat:
                x.args[name] = [self.tensor(i) for i in left]
                left = []
                continue
            index = left.pop(0) if left else -1
            if index < 0:
                if name not in ("bias", "shape") and not arguments[name].optional:
                    raise Refused(f"its {name} is missing")
                x.args[name] = None
            elif arguments[name].type in ("INT32", "BOOL", "S", "FLOAT32"):
                x.scalars[name] = self.constant(index, name, 1)[0]
            else:
                x.args[name] = self.tensor(index)

    def _signature(self, x: Lift) -> Signature:
        given = {k for k, v in (*x.args.items(), *x.scalars.items()) if v is not None}
        for signature in operations()[x.operation].signatures:
            names = {a.name for a in signature.inputs}
            if given <= names and all(
                a.name in given or a.optional or a.since or a.name == "nchw"
                for a in signature.inputs
            ):
                return signature
        raise Refused("its inputs fit no signature of NNAPI")

    def _inputs(self, signature: Signature, x: Lift) -> list[int]:
        """Operands in the signature's order, without those at the end that have their defaults."""
        arguments = list(signature.inputs)
        counts = signature.counts or tuple(range(len(arguments) + 1))
        while arguments and arguments[-1].since is not None and self._default(arguments[-1], x):
            arguments.pop()
        if not any(a.repeat for a in arguments):
            arguments = list(
                signature.inputs[: next(n for n in sorted(counts) if n >= len(arguments))]
            )
        inputs: list[int] = []
        for a in arguments:
            value = x.args.get(a.name)
            if isinstance(value, list):
                inputs += value
            elif value is not None:
                inputs.append(value)
            elif a.name in x.scalars or a.type in ("INT32", "BOOL", "S"):
                inputs.append(self._scalar(a, x))
            else:
                inputs.append(
                    self.add(Operand(self._variable(a.type, x), [0] if a.rank else [], a.name))
                )
        return inputs

    def _default(self, argument: Argument, x: Lift) -> bool:
        return (
            x.args.get(argument.name) is None
            and x.scalars.get(argument.name, argument.default) == argument.default
        )

    def _variable(self, name: str, x: Lift) -> OperandType:
        """The type of an argument of which only the type variable is known.

        The types of an operation stand in rows; the row is the one of the operation's first tensor.
        """
        if name in OperandType.__members__:
            return OperandType[name]
        spec = operations()[x.operation]
        kinds = {a.name: a.type for signature in spec.signatures for a in signature.inputs}
        first = next(
            (
                v[0] if isinstance(v, list) else v
                for k, v in x.args.items()
                if v not in (None, []) and kinds.get(k) in spec.variables
            ),
            x.outputs[0],
        )
        actual = self.operand(first).type
        for row, _ in spec.types:
            if actual in row:
                return row[spec.variables.index(name)]
        return OperandType.FLOAT32 if name == "S" else actual

    def _scalar(self, argument: Argument, x: Lift) -> int:
        kind = self._variable(argument.type, x)
        value = x.scalars.get(
            argument.name, argument.default if argument.default is not None else False
        )
        assert kind.dtype is not None
        return self.add(Operand(kind, [], argument.name, value=np.asarray(value, kind.dtype)))
