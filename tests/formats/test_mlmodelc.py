"""Programs compiled by Core ML (.mlmodelc), against the packages that they are made from.

The texts here have the form that Core ML's compiler writes, see
`converter/formats/coreml/mlprogram/compiled.py`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError, ReadError
from converter.formats.coreml.mlprogram.compiled import TYPES
from converter.formats.coreml.proto import Model_pb2
from formats.mil_files import Blob, Block, Op, package
from support import SAMPLES

NAMES = {number: name for name, number in TYPES.items()}
INNER = "Data/com.apple.CoreML"
ADDED = """program(1.3)
[buildInfo = dict<string, string>({{"coremlc-component-MIL", "3600.16.1"}, {"coremlc-version", "1"}})]
{
    func main<ios17>(tensor<fp32, [2, 2]> x) {
            tensor<fp16, [2]> half = const()[val = tensor<fp16, [2]>([0x1.8p-3, -0x1p-24])];
            tensor<fp32, [2]> wide = cast(dtype = string("fp32"), x = half);
            tensor<fp32, [2, 2]> sum = add(x = x, y = wide);
            tensor<fp32, [1, 2]> a, tensor<fp32, [1, 2]> b = split(axis = int32(0), num_splits = int32(2), x = sum);
            tensor<fp32, [2, 2]> y = concat(axis = int32(1), interleave = bool(false), values = (a, b));
        } -> (y);
}"""  # noqa: E501
# the form that compilers before 2024 wrote: scalars are tensors without axes
OLDER = """program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3402.4.1"}})]
{
    func main<ios15>(tensor<fp32, [3]> x) {
        tensor<bool, []> no = const()[name = tensor<string, []>("no"), val = tensor<bool, []>(false)];
        tensor<int32, [1]> axes = const()[name = tensor<string, []>("axes"), val = tensor<int32, [1]>([0])];
        tensor<fp32, []> y = reduce_sum(axes = axes, keep_dims = no, x = x)[name = tensor<string, []>("y")];
    } -> (y);
}"""  # noqa: E501


def compiled(path: Path, text: str, description: bytes = b"", weights: bytes = b"") -> Path:
    """A folder with a text; the description is stored after a head of 83 bytes."""
    path.mkdir(parents=True)
    (path / "model.mil").write_text(text)
    head = struct.pack("<II20xQ7sB31xQ", 502, 8, 7, b"generic", 8, len(description))
    (path / "coremldata.bin").write_bytes(head + description + struct.pack("<I12x", 502))
    if weights:
        (path / "weights").mkdir()
        (path / "weights" / "weight.bin").write_bytes(weights)
    return path


def type_text(kind: Any) -> str:
    if kind.HasField("stateType"):
        return f"state<{type_text(kind.stateType.wrappedType)}>"
    tensor = kind.tensorType
    sizes = [str(d.constant.size) if d.HasField("constant") else "?" for d in tensor.dimensions]
    name = NAMES[tensor.dataType]
    return f"tensor<{name}, [{', '.join(sizes)}]>" if sizes else name


def number_text(x: Any) -> str:
    if isinstance(x, str):
        return '"' + x.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(x, bool | np.bool_):
        return str(bool(x)).lower()
    return float(x).hex() if isinstance(x, float | np.floating) else str(x)


def nested(array: Any) -> str:
    """Numbers in brackets, as many as there are axes."""
    if not isinstance(array, list):
        return number_text(array)
    return f"[{', '.join(map(nested, array))}]"


def value_text(value: Any) -> str:
    kind, tensor = value.type.tensorType, value.immediateValue.tensor
    if value.HasField("blobFileValue"):
        blob = value.blobFileValue
        inner = f'BLOBFILE(path = string("{blob.fileName}"), offset = uint64({blob.offset}))'
        return f"{type_text(value.type)}({inner})"
    field = tensor.WhichOneof("value")
    if field == "bytes":
        dtype = {"fp16": np.float16, "int8": np.int8, "uint8": np.uint8}[NAMES[kind.dataType]]
        numbers: list[Any] = list(np.frombuffer(tensor.bytes.values, dtype))
    else:
        numbers = list(getattr(tensor, field).values) if field else []
    if not kind.dimensions:
        return f"{type_text(value.type)}({number_text(numbers[0])})"
    shaped = np.array(numbers, object).reshape([d.constant.size for d in kind.dimensions])
    return f"{type_text(value.type)}({nested(shaped.tolist())})"


def argument_text(argument: Any) -> str:
    found = [b.name or value_text(b.value) for b in argument.arguments]
    return found[0] if len(found) == 1 else f"({', '.join(found)})"


def program_text(program: Any) -> str:
    lines = ["program(1.3)", '[buildInfo = dict<string, string>({{"coremlc-version", "1"}})]', "{"]
    for name, function in program.functions.items():
        inputs = ", ".join(f"{type_text(v.type)} {v.name}" for v in function.inputs)
        opset = {"5": "15", "6": "16", "7": "17", "8": "18", "9": "26"}[function.opset[-1]]
        lines.append(f"    func {name}<ios{opset}>({inputs}) {{")
        block = function.block_specializations[function.opset]
        for op in block.operations:
            outputs = ", ".join(f"{type_text(v.type)} {v.name}" for v in op.outputs)
            given = sorted((k, argument_text(v)) for k, v in op.inputs.items())
            noted = sorted((k, value_text(v)) for k, v in op.attributes.items())
            inside = ", ".join(f"{k} = {v}" for k, v in given)
            after = ", ".join(f"{k} = {v}" for k, v in noted)
            lines.append(f"            {outputs} = {op.type}({inside})[{after}];")
        lines.append(f"        }} -> ({', '.join(block.outputs)});")
    return "\n".join([*lines, "}"])


def compile_package(source: Path, path: Path) -> Path:
    """A package as Core ML compiles it."""
    model = Model_pb2.Model.FromString((source / INNER / "model.mlmodel").read_bytes())
    weights = source / INNER / "weights" / "weight.bin"
    content = weights.read_bytes() if weights.exists() else b""
    text = program_text(model.mlProgram)
    return compiled(path, text, model.description.SerializeToString(), content)


def test_a_program_as_text(tmp_path: Path) -> None:
    path = compiled(tmp_path / "m.mlmodelc", ADDED)
    x = np.array([[1, 2], [3, 4]], np.float32)
    (y,) = converter.load(path).run({"x": x}).values()
    expected = x + np.array([0.1875, -(2.0**-24)], np.float32)
    np.testing.assert_array_equal(y, expected.reshape(1, 4))


def test_the_form_of_older_compilers(tmp_path: Path) -> None:
    path = compiled(tmp_path / "m.mlmodelc", OLDER)
    (y,) = converter.load(path).run({"x": np.array([1, 2, 4], np.float32)}).values()
    assert y == 7


@pytest.mark.filterwarnings("ignore::netconv.NetconvWarning")
@pytest.mark.parametrize("flavor", ["mlprogram", "mlprogram+fp16"])
def test_a_network_is_read_as_from_its_package(flavor: str, tmp_path: Path) -> None:
    source = tmp_path / "a.mlpackage"
    converter.convert(SAMPLES / "digits_cnn.mlmodel", source, target=flavor)
    path = compile_package(source, tmp_path / "a.mlmodelc")
    reference, model = converter.load(source), converter.load(path)
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [
        (i.name, i.shape, i.dtype) for i in reference.inputs
    ]
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.random(i.shape).astype(i.dtype) for i in model.inputs}
    expected, actual = reference.run(feeds), model.run(feeds)
    assert list(actual) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    assert not converter.check(path).diagnostics


def stateful(path: Path) -> Path:
    """x + a stored matrix + a state, which becomes the sum."""
    weights = Blob(np.arange(4, dtype=np.float16).reshape(2, 2))
    ops = [
        Op("const", {}, {"w": ("float16", [2, 2])}),
        Op("read_state", {"input": "$s"}, {"old": ("float16", [2, 2])}),
        Op("add", {"x": "$x", "y": weights}, {"a": ("float16", [2, 2])}),
        Op("add", {"x": "$a", "y": "$old"}, {"y": ("float16", [2, 2])}),
        Op("write_state", {"input": "$s", "data": "$y"}, {}),
    ]
    shape = ("float16", [2, 2])
    return package(path, Block({"x": shape, "s": shape}, ops[1:], ["y"]), ["s"], "CoreML8")


def test_states_and_stored_weights(tmp_path: Path) -> None:
    source = stateful(tmp_path / "a.mlpackage")
    path = compile_package(source, tmp_path / "a.mlmodelc")
    feeds = {"x": np.ones((2, 2), np.float16), "s": np.full((2, 2), 2, np.float16)}
    expected, actual = converter.load(source).run(feeds), converter.load(path).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_without_a_description_arrays_are_declared(tmp_path: Path) -> None:
    path = compiled(tmp_path / "m.mlmodelc", ADDED)
    (path / "coremldata.bin").write_bytes(b"of another form")
    model = converter.load(path)
    assert [(i.name, i.shape) for i in model.inputs] == [("x", (2, 2))]
    assert [o.name for o in model.outputs] == ["y"]


def test_blocks_are_refused(tmp_path: Path) -> None:
    text = ADDED.replace("add(x = x, y = wide)", "cond(pred = x)")
    path = compiled(tmp_path / "m.mlmodelc", text)
    with pytest.raises(ReadError, match=r"R104.*line 7 of model\.mil.*cond has blocks"):
        converter.load(path)


WRONG = {
    "half = const": "half const",
    "0x1.8p-3": "0x1.8p-3p",
    "int32(0)": "int32(99999999999)",
    "bool(false)": "bool(maybe)",
    "tensor<fp16, [2]>([": "tensor<fp99, [2]>([",
    "[2, 2]> x": "[2, 2> x",
    "-> (y)": "-> (z)",
    "program(1.3)": "program(1.3",
}


@pytest.mark.parametrize("part", WRONG)
def test_damaged_texts_are_refused(part: str, tmp_path: Path) -> None:
    path = compiled(tmp_path / "m.mlmodelc", ADDED.replace(part, WRONG[part], 1))
    with pytest.raises(ConverterError):
        converter.load(path)


def test_any_damage_is_a_message(tmp_path: Path) -> None:
    rng = random.Random(0)
    for number in range(60):
        letters = list(ADDED)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(letters))
            letters[place : place + rng.randrange(3)] = rng.choice('()[]{}<>="0x,; \n')
        path = compiled(tmp_path / f"{number}.mlmodelc", "".join(letters)[: rng.randrange(9, 2000)])
        with contextlib.suppress(ConverterError):
            converter.load(path)
        shutil.rmtree(path)
