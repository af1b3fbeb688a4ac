"""One node as operations of an ML Program's block, and back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Where
from converter.formats.coreml.mlprogram.blobs import Blobs, NewBlobs
from converter.formats.coreml.mlprogram.collector import MilLowering
from converter.formats.coreml.mlprogram.lift import BlockLifting
from converter.formats.coreml.mlprogram.lower import OPSETS
from converter.formats.coreml.mlprogram.mapping import MAPPING
from converter.formats.coreml.mlprogram.program import WEIGHTS, ProgramWriter
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.proto import Model_pb2
from converter.graph.build import Builder
from converter.graph.infer import Array, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.states import Variables
from converter.io.chunks import write_array
from converter.mapping.node import Node
from converter.mapping.rules import Rule, Table
from laws.adapters import Adapter, ReadBack, Sample, as_declared, computed_before

VERSIONS = (9, 7)  # the newest default of coremltools, and one for removed operations


class Memory(NewBlobs):
    """The storage of weights of one program, which is never a file."""

    def __init__(self) -> None:
        super().__init__()
        self.content: dict[int, LazyTensor] = {}

    def add(self, tensor: LazyTensor, dtype: int) -> int:
        offset = super().add(tensor, dtype)
        self.content[offset] = tensor
        return offset


class Remembered(Blobs):
    def __init__(self, memory: Memory) -> None:
        super().__init__(Path())
        self.memory = memory

    def bytes(self, name: str, offset: int, dtype: int) -> Array:
        file = io.BytesIO()
        write_array(file, self.memory.content[offset].stored())
        return np.frombuffer(file.getvalue(), np.uint8)


class MLProgramAdapter(Adapter):
    """Layers are operations: all that they have are parameters with names."""

    symmetric = False

    def __init__(self) -> None:
        super().__init__("mlprogram", MAPPING)

    def versions(self, rule: Rule) -> Sequence[int]:
        return [v for v in VERSIONS if rule.since <= v <= rule.until]

    def write(self, by: Rule | Table, rule: Rule, node: Node, b: Builder, version: int) -> Sample:
        low = MilLowering(MAPPING, version)
        by.lower(LowerContext(node, low))
        memory = Memory()
        writer = ProgramWriter(low, memory)
        model = Model_pb2.Model(specificationVersion=version)
        model.mlProgram.version = 1
        function = model.mlProgram.functions["main"]
        inputs = [*computed_before(low.layers, b), *b.graph.inputs]
        for value in inputs:
            writer.value_type(function.inputs.add(name=writer.name(value)).type, value)
        function.opset = OPSETS[version]
        block = function.block_specializations[OPSETS[version]]
        writer.block(block, low.layers, node.outputs)
        return Sample(rule, node, low.layers, b, version, (model, memory, low, inputs))

    def add_operand(self, s: Sample) -> None:
        return None

    def read_back(self, s: Sample) -> ReadBack:
        return BlockReadBack(self, s)

    def judge(self, s: Sample, folder: Path) -> None:
        """coremltools loads the program: operations, parameters and types are those that it has."""
        from coremltools.converters.mil.frontend.milproto.load import load

        model, memory, _, inputs = s.file
        if any(v.shape is not None and len(v.shape) == 0 for v in inputs):
            return  # the boundary gives such inputs an axis, which is not written here
        (folder / "weights").mkdir(exist_ok=True)
        with (folder / WEIGHTS.removeprefix("@model_path/")).open("wb") as file:
            memory.write(file)
        program = load(model, s.version, str(folder / "weights"))
        (main,) = program.functions.values()
        for value, loaded in zip(s.node.outputs, main.outputs, strict=True):
            shape = shape_of(value)
            assert shape is None or loaded.shape == shape


class BlockReadBack(ReadBack):
    def __init__(self, adapter: Adapter, s: Sample) -> None:
        super().__init__(adapter, s)
        model, memory, low, inputs = s.file
        function = model.mlProgram.functions["main"]
        block = function.block_specializations[function.opset]
        self.block = BlockLifting(block, s.b, "", Remembered(memory), Variables(s.b), s.version)
        for given, value in zip(function.inputs, inputs, strict=True):
            dtype = low.carried(value)
            same = value.dtype == dtype
            self.block.env[given.name] = value if same else s.b.op("Cast", value, to=int(dtype))
        self.operations: list[Any] = []
        for operation in block.operations:
            if operation.type == "const":
                self.block._operation(operation, Where())
            else:
                self.operations.append(operation)

    def reading(self, index: int) -> LiftContext:
        operation = self.operations[index]
        layer = self.block.layer_of(operation, Where(kind=operation.type))
        assert layer is not None
        return self.block.reading(layer)

    def enter(self, index: int, results: Sequence[ir.Value]) -> None:
        self.block.enter(self.operations[index], results)

    def results(self) -> list[tuple[ir.Value, ir.Value]]:
        found = [self.block.result(name) for name in self.block.block.outputs]
        pairs = zip(self.sample.node.outputs, found, strict=True)
        return [(v, as_declared(v, y, self.sample.b)) for v, y in pairs]
