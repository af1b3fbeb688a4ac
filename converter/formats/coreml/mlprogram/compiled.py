"""A program compiled by Core ML (a folder .mlmodelc): the text of the program and the description.

    NAME.mlmodelc/model.mil           the program as text
    NAME.mlmodelc/weights/weight.bin  its weights, in the storage of packages
    NAME.mlmodelc/coremldata.bin      the description of the model

The text has one operation a line, `type name = kind(parameter = value, ...)[attribute = value];`.
Source: texts and descriptions that Core ML's compiler wrote, with their models, in
https://github.com/rebeckerspecialties/mlmodelc-export (tests/fixtures). How it writes operations
with blocks (cond, while_loop) is not known: they are refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from converter.errors import ReadError, unreadable
from converter.formats.coreml.package import COMPILED_DATA
from converter.formats.coreml.proto import Model_pb2

T = TypeVar("T")
BEGIN = b"program("  # of the text
PROGRAM = 502  # the kind of model, in the first field of the description's file
_LENGTH = 0x4B  # where the length of the description is, a number of 64 bits; then it follows
LARGEST = 1 << 28  # bytes of a text
# names of types -> numbers of MIL.proto's DataType
TYPES = {
    **{"bool": 1, "string": 2, "fp16": 10, "fp32": 11, "fp64": 12, "bf16": 13},
    **{"int8": 21, "int16": 22, "int32": 23, "int64": 24, "int4": 25},
    **{"uint8": 31, "uint16": 32, "uint32": 33, "uint64": 34},
    **{"uint4": 35, "uint2": 36, "uint1": 37, "uint6": 38, "uint3": 39},
    **{"fp8e4m3fn": 40, "fp8e5m2": 41},
}
# types -> the field of a TensorValue for their elements, and how these are stored
_FIELDS = {
    **{"fp32": ("floats", "<f4"), "fp64": ("doubles", "<f8"), "int32": ("ints", "<i4")},
    **{"int64": ("longInts", "<i8"), "fp16": ("bytes", "<f2"), "int8": ("bytes", "i1")},
    **{"uint8": ("bytes", "u1"), "int16": ("bytes", "<i2"), "uint16": ("bytes", "<u2")},
    **{"uint32": ("bytes", "<u4"), "uint64": ("bytes", "<u8")},
}
_OPSETS = {"ios15": 5, "ios16": 6, "ios17": 7, "ios18": 8, "ios26": 9}
_ARRAYS = {10: 65552, 11: 65568, 12: 65600, 23: 131104, 21: 131080}  # of a MultiArrayFeature
_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_][\w.@]*")
_NUMBER = re.compile(r"\d{1,18}")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_SKIPPED = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\](){}]', re.DOTALL)
_DEEPEST = 32  # types in types
_BLOCKS = {"cond", "while_loop"}


def read_compiled(text: bytes, folder: Path) -> Any:
    """Return the Model message of a compiled program, whose text is given; ReadError R103 or R104
    for one that is damaged.
    """
    if len(text) > LARGEST:
        raise unreadable("R103", f"the program has {len(text)} bytes, limit {LARGEST}", folder)
    try:
        words = text.decode()
    except UnicodeDecodeError:
        raise unreadable("R103", "the program is not text", folder) from None
    model = Model_pb2.Model()
    _Text(words, folder).program(model.mlProgram)
    declared = _declared(folder / COMPILED_DATA)
    model.specificationVersion = declared[0] if declared else 8
    if declared and _fits(declared[1], model.mlProgram):
        model.description.CopyFrom(declared[1])
    else:
        _describe(model)
    return model


def _declared(file: Path) -> tuple[int, Any] | None:
    """Return the version of the specification and the description; None for a file of another
    form.
    """
    try:
        with open(file, "rb") as f:
            data = f.read(LARGEST)
        kind, version = struct.unpack_from("<II", data)
        (size,) = struct.unpack_from("<Q", data, _LENGTH)
        start = _LENGTH + 8
        if kind != PROGRAM or not 0 < version < 100 or size > len(data) - start:
            return None
        found = Model_pb2.ModelDescription()
        found.ParseFromString(data[start : start + size])
    except (OSError, struct.error, DecodeError):
        return None
    return version, found


def _fits(description: Any, program: Any) -> bool:
    """Return whether a description has the inputs and outputs of the program."""
    for name, function in program.functions.items():
        own = next((f for f in description.functions if f.name == name), description)
        inputs = {v.name for v in function.inputs if not v.type.HasField("stateType")}
        block = function.block_specializations[function.opset]
        if {f.name for f in own.input} != inputs:
            return False
        if not {f.name for f in own.output} <= set(block.outputs):
            return False
    return True


def _describe(model: Any) -> None:
    """Declare the inputs and outputs of the program's functions as arrays."""
    for name, function in model.mlProgram.functions.items():
        own = model.description
        if name != "main" or len(model.mlProgram.functions) > 1:
            own = model.description.functions.add(name=name)
        block = function.block_specializations[function.opset]
        types = {v.name: v.type for op in block.operations for v in op.outputs}
        types |= {v.name: v.type for v in function.inputs}
        for value in function.inputs:
            if not value.type.HasField("stateType"):
                _feature(own.input.add(name=value.name), value.type)
        for word in block.outputs:
            _feature(own.output.add(name=word), types.get(word))


def _feature(feature: Any, kind: Any) -> None:
    array = feature.type.multiArrayType
    if kind is None:
        return
    array.dataType = _ARRAYS.get(kind.tensorType.dataType, 65568)
    sizes = [d.constant.size for d in kind.tensorType.dimensions]
    if all(sizes):
        array.shape.extend(sizes)


class _Text:
    """The text of a program, read from `at`."""

    def __init__(self, text: str, folder: Path) -> None:
        self.text, self.folder, self.at = text, folder, 0

    # words -----------------------------------------------------------------------------------

    def fail(self, message: str, code: str = "R103") -> ReadError:
        line = self.text.count("\n", 0, self.at) + 1
        return unreadable(code, f"line {line} of model.mil cannot be read: {message}", self.folder)

    def skip(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def take(self, token: str) -> bool:
        """Read a token if it comes next."""
        self.skip()
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def need(self, token: str) -> None:
        if not self.take(token):
            found = self.text[self.at : self.at + 20].split("\n")[0]
            raise self.fail(f"{token!r} is expected, got {found!r}")

    def match(self, pattern: re.Pattern[str], name: str) -> str:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            part = self.text[self.at : self.at + 20].split("\n")[0]
            raise self.fail(f"{name} is expected, got {part!r}")
        self.at = found.end()
        return found[min(pattern.groups, 1)]

    def word(self) -> str:
        return self.match(_WORD, "a name")

    def number(self) -> int:
        return int(self.match(_NUMBER, "a number"))

    def quoted(self) -> str:
        text = self.match(_TEXT, "a text")
        return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), text)

    def several(self, end: str, read: Callable[[], T]) -> list[T]:
        """Read elements, separated by commas, up to a token."""
        found: list[T] = []
        while not self.take(end):
            if found:
                self.need(",")
            found.append(read())
        return found

    def pass_over(self, end: str) -> None:
        """Read up to a token outside of parentheses and texts."""
        depth = 0
        for found in _SKIPPED.finditer(self.text, self.at):
            if depth == 0 and found[0] == end:
                self.at = found.end()
                return
            if found[0][0] != '"':
                depth += 1 if found[0] in "([{" else -1
        raise self.fail(f"{end!r} is missing")

    # program ---------------------------------------------------------------------------------

    def program(self, message: Any) -> None:
        self.need("program")
        self.need("(")
        self.pass_over(")")
        if self.take("["):
            self.pass_over("]")  # versions of the compiler
        self.need("{")
        message.version = 1
        while not self.take("}"):
            self.need("func ")
            self.function(message)
        if not message.functions:
            raise self.fail("the program has no function")

    def function(self, program: Any) -> None:
        name = self.word()
        if name in program.functions:
            raise self.fail(f"function {name!r} is defined twice")
        function = program.functions[name]
        self.need("<")
        opset = self.word()
        number = _OPSETS.get(opset.lower())
        function.opset = opset if number is None else f"CoreML{number}"
        self.need(">")
        self.need("(")
        self.several(")", lambda: self.named(function.inputs.add()))
        if self.take("["):
            self.pass_over("]")  # flexible shapes, which the description has
        self.need("{")
        block = function.block_specializations[function.opset]
        while not self.take("}"):
            self.operation(block.operations.add())
        self.need("->")
        self.need("(")
        block.outputs.extend(self.several(")", self.word))
        self.need(";")

    def named(self, message: Any) -> None:
        self.type(message.type)
        message.name = self.word()

    def operation(self, message: Any) -> None:
        if self.take("("):
            self.several(")", lambda: self.named(message.outputs.add()))
            self.need("=")
        else:
            self.several("=", lambda: self.named(message.outputs.add()))
        message.type = self.word()
        if message.type in _BLOCKS:
            reason = "which compiled programs write in a form that is not documented"
            raise self.fail(f"{message.type} has blocks, {reason}", "R104")
        self.need("(")
        self.several(")", lambda: self.argument(message.inputs))
        if self.take("["):
            self.several("]", lambda: self.attribute(message.attributes))
        self.need(";")

    def argument(self, inputs: Any) -> None:
        found = inputs[self.key()]
        if self.take("("):
            self.several(")", lambda: self.binding(found.arguments.add()))
        else:
            self.binding(found.arguments.add())

    def key(self) -> str:
        name = self.word()
        self.need("=")
        return name

    def binding(self, message: Any) -> None:
        start = self.at
        name = self.word()
        self.skip()
        if self.text[self.at : self.at + 1] in ("(", "<"):
            self.at = start
            self.value(message.value)
        else:
            message.name = name

    def attribute(self, attributes: Any) -> None:
        self.value(attributes[self.key()])

    # types and values ------------------------------------------------------------------------

    def type(self, message: Any, depth: int = 0) -> str:
        """Read a type; return the name of the elements' type."""
        if depth > _DEEPEST:
            raise self.fail("a type has too many parts")
        name = self.word()
        if name in TYPES:
            message.tensorType.dataType = TYPES[name]
            return name
        self.need("<")
        if name == "state":
            inner = self.type(message.stateType.wrappedType, depth + 1)
            self.need(">")
            return inner
        if name != "tensor":
            raise self.fail(f"type {name!r} is not supported", "R104")
        name = self.word()
        if name not in TYPES:
            raise self.fail(f"type {name!r} is not known", "R104")
        tensor = message.tensorType
        tensor.dataType = TYPES[name]
        self.need(",")
        self.need("[")
        self.several("]", lambda: self.dimension(tensor.dimensions.add()))
        tensor.rank = len(tensor.dimensions)
        self.need(">")
        return name

    def dimension(self, message: Any) -> None:
        if self.take("?"):
            message.unknown.variadic = False
        else:
            message.constant.size = self.number()

    def value(self, message: Any) -> None:
        name = self.type(message.type)
        self.need("(")
        if self.take("BLOBFILE"):
            self.blob(message.blobFileValue)
            self.need(")")
        elif name in ("string", "bool"):
            tensor = message.immediateValue.tensor
            field = tensor.strings if name == "string" else tensor.bools
            self.nested(field.values, self.quoted if name == "string" else self.boolean)
        else:
            self.numbers(message.immediateValue.tensor, name)

    def blob(self, message: Any) -> None:
        self.need("(")
        for key in ("path", "offset"):
            self.need(key)
            self.need("=")
            self.type(Model_pb2.Model().mlProgram.attributes["type"].type)
            self.need("(")
            if key == "path":
                message.fileName = self.quoted()
            else:
                message.offset = self.number()
            self.need(")")
            if key == "path":
                self.need(",")
        self.need(")")

    def boolean(self) -> bool:
        word = self.word()
        if word not in ("true", "false"):
            raise self.fail(f"true or false is expected, got {word!r}")
        return word == "true"

    def nested(self, values: Any, read: Callable[[], Any]) -> None:
        """Read elements in nested brackets up to the end of a value."""
        while not self.take(")"):
            if not (self.take("[") or self.take("]") or self.take(",")):
                values.append(read())

    def numbers(self, tensor: Any, name: str) -> None:
        """Read numbers in nested brackets up to the end of a value."""
        end = self.text.find(")", self.at)
        if end < 0:
            raise self.fail("')' is missing")
        words = self.text[self.at : end].replace("[", " ").replace("]", " ").split(",")
        if name not in _FIELDS:
            raise self.fail(f"numbers of type {name} in the text are not supported", "R104")
        field, stored = _FIELDS[name]
        parse: Callable[[str], Any] = float.fromhex if stored[-2] == "f" else int
        try:
            if any(len(w) > 64 for w in words):
                raise ValueError
            found = np.array([parse(w.strip()) for w in words if not w.isspace()] or [])
            array = found.astype(stored)
            if stored[-2] != "f" and not np.array_equal(found, array):
                raise ValueError
        except (ValueError, OverflowError):
            raise self.fail(f"the numbers are not of type {name}") from None
        self.at = end + 1
        values = getattr(tensor, field)
        if field == "bytes":
            values.values = array.tobytes()
        else:
            values.values.extend(array.tolist())
