"""Small ML Programs, written with coremltools' protobuf classes alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converter.formats.coreml.proto import Model_pb2

TYPES = {
    **{"float32": 11, "float16": 10, "int32": 23, "bool": 1, "int8": 21, "uint8": 31},
    "uint32": 33,
}
FIELDS = {"float32": "floats", "int32": "ints", "bool": "bools"}
ARRAYS = {"float32": 65568, "float16": 65552, "int32": 131104}
STORED = {"float16": 1, "float32": 2, "uint8": 3, "int8": 4}
# types of less than a byte: bits, numbers in a program and in the storage
PACKED = {
    **{"int4": (4, 25, 8), "uint4": (4, 35, 11), "uint6": (6, 38, 13)},
    **{"uint1": (1, 37, 9), "uint2": (2, 36, 10), "uint3": (3, 39, 12)},
}


@dataclass
class Blob:
    """A constant that lies in the storage of weights; `packed`: its type, if it is one of
    PACKED.
    """

    array: Any
    packed: str = ""


@dataclass
class Op:
    """`given` are names of values (str with a leading $), numbers, words, arrays or blobs."""

    kind: str
    given: Mapping[str, Any]
    outputs: Mapping[str, tuple[str, Sequence[int]]]
    blocks: Sequence[Block] = ()


@dataclass
class Block:
    inputs: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=dict)
    ops: Sequence[Op] = ()
    outputs: Sequence[str] = ()


class Storage:
    def __init__(self) -> None:
        self.content, self.count = bytearray(struct.pack("<II56x", 0, 2)), 0

    def add(self, array: Any, packed: str = "") -> int:
        self.content += bytes(-len(self.content) % 64)
        offset, data = len(self.content), np.ascontiguousarray(array).tobytes()
        if packed:  # a stream of bits, the least significant first
            bits, _, kind = PACKED[packed]
            text = "".join(
                f"{int(n) & ((1 << bits) - 1):0{bits}b}"[::-1] for n in array.reshape(-1)
            )
            data = int(text[::-1], 2).to_bytes(-(-len(text) // 8), "little")
        else:
            kind = STORED[array.dtype.name]
        self.count += 1
        struct.pack_into("<I", self.content, 0, self.count)
        self.content += struct.pack("<IIQQ40x", 0xDEADBEEF, kind, len(data), offset + 64) + data
        return offset


def tensor_type(message: Any, dtype: str, shape: Sequence[int]) -> None:
    message.dataType, message.rank = TYPES[dtype], len(shape)
    for n in shape:
        if n < 0:
            message.dimensions.add().unknown.variadic = False
        else:
            message.dimensions.add().constant.size = n


def set_value(message: Any, given: Any, storage: Storage) -> None:
    if isinstance(given, Blob):
        array = np.asarray(given.array)
        tensor_type(message.type.tensorType, array.dtype.name, array.shape)
        if given.packed:
            message.type.tensorType.dataType = PACKED[given.packed][1]
        message.blobFileValue.fileName = "@model_path/weights/weight.bin"
        message.blobFileValue.offset = storage.add(array, given.packed)
    elif isinstance(given, str):
        message.type.tensorType.dataType = 2
        message.immediateValue.tensor.strings.values.append(given)
    else:
        array = np.asarray(given)
        array = array.astype(
            {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype)
        )
        tensor_type(message.type.tensorType, array.dtype.name, array.shape)
        tensor = message.immediateValue.tensor
        if array.dtype.name in FIELDS:
            getattr(tensor, FIELDS[array.dtype.name]).values.extend(array.reshape(-1).tolist())
        else:
            tensor.bytes.values = array.tobytes()


def set_block(message: Any, block: Block, storage: Storage) -> None:
    for name, (dtype, shape) in block.inputs.items():
        given = message.inputs.add()
        given.name = name
        tensor_type(given.type.tensorType, dtype, shape)
    for op in block.ops:
        operation = message.operations.add()
        operation.type = op.kind
        set_value(operation.attributes["name"], next(iter(op.outputs), op.kind), storage)
        for key, given in op.given.items():
            argument = operation.inputs[key]
            for one in given if isinstance(given, list) else [given]:
                binding = argument.arguments.add()
                if isinstance(one, str) and one.startswith("$"):
                    binding.name = one[1:]
                else:
                    set_value(binding.value, one, storage)
        for name, (dtype, shape) in op.outputs.items():
            out = operation.outputs.add()
            out.name = name
            tensor_type(out.type.tensorType, dtype, shape)
        for inner in op.blocks:
            set_block(operation.blocks.add(), inner, storage)
    message.outputs.extend(block.outputs)


def package(path: Path, block: Block, states: Sequence[str] = (), opset: str = "CoreML7") -> Path:
    """A package with one function; inputs named in `states` are states."""
    model, storage = Model_pb2.Model(), Storage()
    model.specificationVersion = {"CoreML5": 6, "CoreML6": 7, "CoreML7": 8, "CoreML8": 9}[opset]
    function = model.mlProgram.functions["main"]
    model.mlProgram.version, function.opset = 1, opset
    for name, (dtype, shape) in block.inputs.items():
        given = function.inputs.add()
        given.name = name
        kind = given.type.stateType.wrappedType if name in states else given.type
        tensor_type(kind.tensorType, dtype, shape)
        if name not in states:
            feature = model.description.input.add(name=name)
            feature.type.multiArrayType.dataType = ARRAYS[dtype]
            feature.type.multiArrayType.shape.extend(shape)
    body = function.block_specializations[opset]
    set_block(body, Block({}, block.ops, block.outputs), storage)
    for name in block.outputs:
        model.description.output.add(name=name).type.multiArrayType.dataType = ARRAYS["float32"]
    folder = path / "Data" / "com.apple.CoreML"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.mlmodel").write_bytes(model.SerializeToString())
    (folder / "weights" / "weight.bin").write_bytes(storage.content)
    entry = {"path": "com.apple.CoreML/model.mlmodel", "name": "model.mlmodel"}
    manifest = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": {"A": {**entry, "author": "", "description": ""}},
        "rootModelIdentifier": "A",
    }
    (path / "Manifest.json").write_text(json.dumps(manifest))
    return path
