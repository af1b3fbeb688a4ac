"""The Core ML codec: bytes <-> messages and their weights."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.errors import ConverterError, ReadError, UnsupportedError
from converter.formats.coreml.neuralnetwork.codec import read_mlmodel, write_mlmodel
from converter.formats.coreml.neuralnetwork.format import sniff
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.formats.coreml.neuralnetwork.weights import REFERENCE, WeightData
from converter.formats.coreml.proto import Model_pb2, NeuralNetwork_pb2
from converter.graph.lazy_tensor import LazyTensor
from converter.io.files import Output
from converter.io.protobuf import LEN, WireError, encode_tag, encode_varint, fields

MODEL, WEIGHTS = Model_pb2.Model.DESCRIPTOR, NeuralNetwork_pb2.WeightParams.DESCRIPTOR
FLOATS = np.arange(3000, dtype="<f4")


def field(number: int, content: bytes) -> bytes:
    return encode_tag(number, LEN) + encode_varint(len(content)) + content


def unpacked(values: np.ndarray) -> bytes:
    return b"".join(b"\x0d" + v.tobytes() for v in values)


def convolution(weights: bytes, extra: bytes = b"") -> bytes:
    """A model with one convolution layer whose `weights` field is given in bytes."""
    return b"\x08\x04" + field(
        500, field(1, field(1, b"conv") + field(100, field(90, weights) + extra))
    )


def saved(folder: Path, content: bytes, name: str = "m.mlmodel") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def first_weights(model: MLModel) -> WeightData:
    return model.weights(model.proto.neuralNetwork.layers[0].convolution.weights)


def all_params(message: Any) -> Iterator[Any]:
    """Every WeightParams in a message, depth first."""
    if message.DESCRIPTOR is WEIGHTS:
        yield message
        return
    for known, value in message.ListFields():
        if known.message_type is None or known.message_type.GetOptions().map_entry:
            continue
        for inner in [value] if known.has_presence else value:
            yield from all_params(inner)


def canonical(raw: bytes) -> bytes:
    """Equal for equal messages (where `==` is false for equal NaNs)."""
    return Model_pb2.Model.FromString(raw).SerializeToString(deterministic=True)


def assert_same(model: MLModel, raw: bytes) -> None:
    """The model is equal to that of protobuf: equal message when written, equal weights when
    asked for.
    """
    plain = Model_pb2.Model.FromString(raw)
    assert canonical(model.to_bytes()) == canonical(raw)
    ours, theirs = list(all_params(model.proto)), list(all_params(plain))
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        got = model.weights(our).array().tobytes()
        assert got == (
            np.array(their.floatValue, "<f4").tobytes()
            or their.float16Value
            or their.rawValue
            or their.int8RawValue
        )


# ---- protobuf classes without coremltools


@pytest.mark.parametrize("order", ["first", "last"])
def test_the_real_coremltools_can_be_imported_before_and_after(order: str) -> None:
    ours = (
        "from converter.formats.coreml.proto import Model_pb2; m = "
        "Model_pb2.Model(specificationVersion=4)"
    )
    quiet = "assert not [n for n in sys.modules if n.split('.')[0] == 'coremltools']"
    theirs = "import coremltools"
    check = "assert coremltools.proto.Model_pb2.Model is Model_pb2.Model"
    lines = [
        "import sys",
        *([ours, quiet, theirs] if order == "first" else [theirs, ours]),
        check,
        "print(m.specificationVersion)",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(lines)], capture_output=True, text=True
    )
    assert done.stdout == "4\n", done.stderr


# ---- the wire format


def test_fields_are_ranges_of_bytes() -> None:
    data = memoryview(
        b"\x08\x96\x01"
        + b"\x0d\x00\x00\x80\x3f"
        + b"\x11"
        + bytes(8)
        + b"\x1a\x02hi"
        + b"\x23\x08\x01\x2b\x2c\x24"
    )
    assert [(f.number, f.wire, bytes(data[f.start : f.end])) for f in fields(data)] == [
        (1, 0, b"\x96\x01"),
        (1, 5, b"\x00\x00\x80\x3f"),
        (2, 1, bytes(8)),
        (3, 2, b"hi"),
        (4, 3, b"\x08\x01\x2b\x2c\x24"),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08", "the data ends within a number"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number is not terminated"),
        (b"\x0a\x05ab", "field 1 needs 5 bytes, but 2 are left"),
        (b"\x0d\x00", "field 1 needs 4 bytes, but 1 are left"),
        (b"\x00\x00", "0 is not a field number"),
        (b"\x0f", "field 1 has the impossible wire type 7"),
        (b"\x0c", "field 1 has the impossible wire type 4"),
        (b"\x0b\x14", "the groups around field 2 are not nested"),
        (b"\x0b" * 200, "the groups around field 1 are not nested"),
        (b"\x0b\x08\x01", "the data ends within a number"),
    ],
)
def test_malformed_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireError) as e:
        list(fields(memoryview(data)))
    assert str(e.value) == message


# ---- weights leave the message


def ways(descriptor: Any, visited: tuple[str, ...] = ()) -> Iterator[list[Any]]:
    """Each way of fields from a message to a WeightParams, entering no message type more than
    once.
    """
    if descriptor is WEIGHTS:
        yield []
    elif descriptor.full_name not in visited:
        for known in descriptor.fields:
            if known.message_type is not None:
                for rest in ways(known.message_type, (*visited, descriptor.full_name)):
                    yield [known, *rest]


NETWORK_WAYS = list(ways(NeuralNetwork_pb2.NeuralNetwork.DESCRIPTOR))
INTO = {
    "neuralNetwork": ["neuralNetwork"],
    "classifier": ["neuralNetworkClassifier"],
    "regressor": ["neuralNetworkRegressor"],
    "pipeline": ["pipeline", "models", "neuralNetwork"],
    "pipelineClassifier": ["pipelineClassifier", "pipeline", "models", "neuralNetworkClassifier"],
    "loop": ["neuralNetwork", "layers", "loop", "bodyNetwork"],
    "condition": ["neuralNetwork", "layers", "loop", "conditionNetwork"],
    "branches": ["neuralNetwork", "layers", "branch", "elseBranch", "layers", "branch", "ifBranch"],
}


def descend(message: Any, name: str) -> Any:
    value = getattr(message, name)
    return value.add() if hasattr(value, "add") else value


def test_the_schema_has_weights_in_many_messages() -> None:
    assert len(NETWORK_WAYS) > 70
    assert {"loadConstant", "loadConstantND", "custom", "biDirectionalLSTM", "batchnorm"} <= {
        way[1].name for way in NETWORK_WAYS
    }


@pytest.mark.parametrize("prefix", INTO)
def test_large_weights_are_found_wherever_the_schema_has_them(tmp_path: Path, prefix: str) -> None:
    model = Model_pb2.Model(specificationVersion=4)
    network: Any = model
    for name in INTO[prefix]:
        network = descend(network, name)
    for i, way in enumerate(NETWORK_WAYS):
        params = network
        for known in way:
            params = descend(params, known.name)
        params.floatValue.extend((FLOATS + i).tolist())
    raw = model.SerializeToString()
    read = read_mlmodel(saved(tmp_path, raw))
    assert read.proto.ByteSize() < 100 * len(NETWORK_WAYS)
    assert [read.weights(p).array()[0] for p in all_params(read.proto)] == [
        p.floatValue[0] for p in all_params(model)
    ]
    assert_same(read, raw)
    assert read.to_bytes() == model.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    "weights",
    [
        field(1, FLOATS.tobytes()),
        field(1, FLOATS[:1500].tobytes()) + field(1, FLOATS[1500:].tobytes()),
        unpacked(FLOATS),
        unpacked(FLOATS[:1])
        + field(1, FLOATS[1:1500].tobytes())
        + unpacked(FLOATS[1500:2999])
        + field(1, FLOATS[2999:].tobytes()),
        b"".join(field(1, FLOATS[i : i + 2].tobytes()) for i in range(0, 3000, 2)),
        b"".join(
            field(1, FLOATS[i : i + 2].tobytes()) + unpacked(FLOATS[i + 2 : i + 3])
            for i in range(0, 3000, 3)
        ),
        unpacked(FLOATS[:700]) + field(40, b"\x08\x08") + unpacked(FLOATS[700:]) + field(1, b""),
    ],
    ids=[
        "packed",
        "two chunks",
        "unpacked",
        "mixed",
        "small chunks",
        "alternating",
        "other fields between",
    ],
)
def test_every_spelling_of_a_float_list_is_read(tmp_path: Path, weights: bytes) -> None:
    read = read_mlmodel(saved(tmp_path, convolution(weights)))
    assert read.proto.ByteSize() < 200
    assert first_weights(read).kind == "float32"
    assert np.array_equal(first_weights(read).array(), FLOATS)
    assert_same(read, convolution(weights))


@pytest.mark.parametrize(
    ("number", "kind", "dtype"),
    [(2, "float16", "<f2"), (30, "quantised", "u1"), (31, "int8", "i1")],
)
def test_of_several_byte_strings_the_last_counts(
    tmp_path: Path, number: int, kind: str, dtype: str
) -> None:
    content = np.random.default_rng(1).bytes(2000)
    quantization = field(40, b"\x08\x08" + field(101, field(1, np.float32(0.5).tobytes())))
    raw = convolution(field(number, b"x" * 3000) + quantization + field(number, content))
    data = first_weights(read := read_mlmodel(saved(tmp_path, raw)))
    assert (data.kind, data.array().tobytes(), data.array().dtype) == (
        kind,
        content,
        np.dtype(dtype),
    )
    assert data.count == len(content) // np.dtype(dtype).itemsize
    assert_same(read, raw)


def test_quantization_is_decoded(tmp_path: Path) -> None:
    model = MLModel()
    model.proto.specificationVersion = 3
    layers = model.proto.neuralNetwork.layers
    three = WeightData(
        "quantised",
        LazyTensor(np.array([1, 2, 3], np.uint8)),
        3,
        lut=np.arange(8, dtype=np.float32),
    )
    eight = WeightData(
        "quantised",
        LazyTensor(np.zeros(2000, np.uint8)),
        8,
        np.ones(5, np.float32),
        np.full(5, 2, np.float32),
    )
    dynamic = WeightData("int8", LazyTensor(np.full(2000, -3, np.int8)), 8, np.ones(1, np.float32))
    for data in (three, eight, dynamic):
        model.set_weights(layers.add().innerProduct.weights, data)
    layers[0].innerProduct.weights.isUpdatable = True
    with Output(tmp_path / "q.mlmodel") as out:
        write_mlmodel(model, out)
    read = read_mlmodel(tmp_path / "q.mlmodel")
    assert read.proto.neuralNetwork.layers[0].innerProduct.weights.isUpdatable
    for layer, data in zip(read.proto.neuralNetwork.layers, (three, eight, dynamic), strict=True):
        got = read.weights(layer.innerProduct.weights)
        assert (got.kind, got.bits, got.count) == (data.kind, data.bits, data.count)
        assert all(
            np.array_equal(getattr(got, a), getattr(data, a)) for a in ("scale", "bias", "lut")
        )
        assert np.array_equal(got.array(), data.array())


def test_weights_do_not_stray_into_another_model(tmp_path: Path) -> None:
    one, other = MLModel(), MLModel()
    one.set_weights(
        one.proto.neuralNetwork.layers.add().innerProduct.weights, WeightData.of(FLOATS)
    )
    other.proto.CopyFrom(one.proto)
    for use in (
        other.to_bytes,
        lambda: other.weights(other.proto.neuralNetwork.layers[0].innerProduct.weights),
    ):
        with pytest.raises(AssertionError, match="the weights of one model were put into another"):
            use()


def test_reading_copies_no_weights(tmp_path: Path) -> None:
    path = saved(tmp_path, convolution(field(1, np.zeros(4_000_000, "<f4").tobytes())))
    read_mlmodel(path)  # fills caches, which are not counted
    tracemalloc.start()
    read = read_mlmodel(path)
    array = first_weights(read).array()
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
    assert array.size == 4_000_000
    assert not array.flags.writeable and not array.flags.owndata


def test_weights_are_made_one_by_one_while_writing(tmp_path: Path) -> None:
    made: list[int] = []

    def make(i: int) -> Callable[[], np.ndarray]:
        return lambda: made.append(i) or np.full((2, 1000), i, np.float16)

    model = MLModel()
    model.proto.specificationVersion = 2
    for i in range(3):
        model.set_weights(
            model.proto.neuralNetwork.layers.add().innerProduct.weights,
            WeightData.lazy("float16", 2000, make(i)),
        )
    model.set_weights(
        model.proto.neuralNetwork.layers.add().innerProduct.bias,
        WeightData.of(np.float32([[1, 2], [3, 4]]).T),
    )
    # layers may be copied and moved before the file is written
    model.proto.neuralNetwork.layers.add().CopyFrom(model.proto.neuralNetwork.layers[0])
    del model.proto.neuralNetwork.layers[0]
    model.pieces()
    assert made == []
    with Output(tmp_path / "new.mlmodel") as out:
        write_mlmodel(model, out)
    assert made == [1, 2, 0]
    plain = Model_pb2.Model.FromString((tmp_path / "new.mlmodel").read_bytes())
    halves = [
        np.frombuffer(layer.innerProduct.weights.float16Value, "<f2")
        for layer in plain.neuralNetwork.layers
    ]
    assert [h.size and int(h[-1]) for h in halves] == [1, 2, 0, 0]
    assert list(plain.neuralNetwork.layers[2].innerProduct.bias.floatValue) == [1, 3, 2, 4]
    assert plain.neuralNetwork.layers[3].innerProduct.weights.float16Value == bytes(4000)


def test_replaced_weights_leave_no_bytes(tmp_path: Path) -> None:
    read = read_mlmodel(saved(tmp_path, convolution(field(1, FLOATS.tobytes()))))
    read.set_weights(
        read.proto.neuralNetwork.layers[0].convolution.weights, WeightData.of(np.float16([1.5]))
    )
    assert len(read.to_bytes()) < 50
    assert first_weights(read).array().tolist() == [1.5]


def test_a_lazy_weight_of_the_wrong_size_is_not_written(tmp_path: Path) -> None:
    model = MLModel()
    model.set_weights(
        model.proto.neuralNetwork.layers.add().innerProduct.weights,
        WeightData.lazy("float32", 5, lambda: np.zeros(4, np.float32)),
    )
    with (
        pytest.raises(
            AssertionError, match="a weight of 20 bytes was declared, but 16 were produced"
        ),
        Output(tmp_path / "m.mlmodel") as out,
    ):
        write_mlmodel(model, out)
    assert list(tmp_path.iterdir()) == []


def test_a_model_beyond_two_gibibytes_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    model = MLModel()
    model.set_weights(
        model.proto.neuralNetwork.layers.add().innerProduct.weights,
        WeightData.lazy("float32", 1 << 29, lambda: pytest.fail("made")),
    )
    with (
        pytest.raises(
            UnsupportedError, match=r"X206\] the Core ML model has 214748\d+ bytes, limit 2 GiB"
        ),
        Output(tmp_path / "m.mlmodel") as out,
    ):
        write_mlmodel(model, out)
    assert list(tmp_path.iterdir()) == []


def test_unknown_fields_survive(tmp_path: Path) -> None:
    unknown = (
        field(REFERENCE, b"not ours" + bytes(8))
        + b"\xa0\x1f\x07"
        + b"\x9b\x1f\x08\x01\x9c\x1f"
        + b"\x98\x1f\x09"
    )
    weights = unknown + field(1, FLOATS.tobytes()) + unknown
    raw = convolution(weights, unknown) + unknown
    raw += field(500, field(1, field(1, b"new") + field(3999, field(1, FLOATS.tobytes()))))
    read = read_mlmodel(saved(tmp_path, raw))
    assert np.array_equal(first_weights(read).array(), FLOATS)
    written = read.to_bytes()
    assert canonical(written) == canonical(raw)
    assert written.count(field(REFERENCE, b"not ours" + bytes(8))) == 4


# ---- refusals


def other_kind(kind: str, version: int = 4) -> bytes:
    model = Model_pb2.Model(specificationVersion=version)
    getattr(model, kind).SetInParent()
    return model.SerializeToString()


def small_model() -> bytes:
    model = Model_pb2.Model(specificationVersion=4)
    model.description.input.add(name="x").type.multiArrayType.shape.append(3)
    model.description.metadata.userDefined["a"] = "b"
    conv = model.neuralNetwork.layers.add(name="conv", input=["x"], output=["y"])
    conv.convolution.weights.floatValue.extend(range(300))
    quantized = model.neuralNetwork.layers.add(name="fc", input=["y"], output=["z"]).innerProduct
    quantized.weights.rawValue = bytes(1200)
    quantized.weights.quantization.numberOfBits = 4
    quantized.weights.quantization.lookupTableQuantization.floatValue.extend(range(16))
    loop = model.neuralNetwork.layers.add(name="loop").loop
    loop.bodyNetwork.layers.add(name="inner").bias.bias.float16Value = bytes(1500)
    return model.SerializeToString(deterministic=True)


SMALL = small_model()
ONNX = onnx.helper.make_model(
    onnx.helper.make_graph([], "g", [], []), producer_name="pytorch"
).SerializeToString()
BAD_UTF8 = b"\x08\x04" + field(500, field(1, field(1, b"a")) + field(1, field(1, b"\xff\xfe")))
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "error[R103] the file is empty at FILE"),
    "version only": (
        b"\x08\x04",
        (
            "error[R103] this file contains no model: no network or other kind of Core "
            "ML model is set at FILE"
        ),
    ),
    "text": (
        b"<?xml version='1.0'?>",
        "error[R103] this is not a Core ML model: it does not begin with a "
        "specificationVersion at FILE",
    ),
    "onnx": (
        ONNX,
        (
            "error[R103] this is not a Core ML model; it looks like an ONNX file at FILE "
            "(help: use -f onnx to read it as ONNX)"
        ),
    ),
    "truncated": (
        SMALL[:-100],
        f"error[R103] the file is damaged at byte 28: field 500 needs {len(SMALL) - 32} "
        f"bytes, but {len(SMALL) - 132} are left at FILE "
        "(help: the file is probably truncated)",
    ),
    "truncated in a length": (
        SMALL[:31],
        "error[R103] the file is damaged at byte 28: the data ends within a number at FILE "
        "(help: the file is probably truncated)",
    ),
    "odd floats": (
        convolution(field(1, bytes(2001))),
        "error[R103] the file is damaged at byte 23: 2001 bytes cannot be split into "
        "floats at FILE  neuralNetwork.layers[0].convolution.weights",
    ),
    "bad length": (
        convolution(field(1, bytes(2000)) + b"\x0a\x7f"),
        "error[R103] the file is damaged at byte 2026: field 1 needs 127 bytes, but 0 are left "
        "at FILE  neuralNetwork.layers[0].convolution.weights",
    ),
    "bad length, small": (
        convolution(field(1, bytes(20)) + b"\x0a\x7f"),
        "error[R103] the file is damaged: protobuf cannot decode it at FILE  "
        "neuralNetwork.layers[0].convolution.weights",
    ),
    "not text": (
        BAD_UTF8,
        "error[R103] the file is damaged: protobuf cannot decode it at FILE  "
        "neuralNetwork.layers[1].name",
    ),
    "version 0": (SMALL[2:], "error[R104] no specificationVersion; netconv reads 1 to 9 at FILE"),
    "version 10": (
        b"\x08\x0a" + SMALL[2:],
        "error[R104] specificationVersion 10; netconv reads 1 to 9 at FILE",
    ),
    "negative version": (
        b"\x08" + b"\xff" * 9 + b"\x01" + SMALL[2:],
        "error[R104] specificationVersion 18446744073709551615; netconv reads 1 to 9 at FILE",
    ),
    "trees": (
        other_kind("treeEnsembleClassifier"),
        "error[R106] this Core ML file contains a model of kind treeEnsembleClassifier, not a "
        "neural network at FILE",
    ),
    "program": (
        other_kind("mlProgram", 7),
        "error[R106] this Core ML file contains an ML Program (mlProgram), not a neural network "
        "at FILE (help: use -f mlprogram to read it)",
    ),
    "newer kind": (
        b"\x08\x0b" + field(2999, b""),
        "error[R106] this Core ML file contains an unknown kind of model (field 2999) at FILE",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    path = saved(tmp_path, content)
    with pytest.raises(ReadError) as e:
        read_mlmodel(path)
    assert str(e.value) == message.replace("FILE", str(path))


def test_folders_and_missing_files_are_named(tmp_path: Path) -> None:
    inside = tmp_path / "folder"
    inside.mkdir()
    for path, message in {
        inside: "error[R100] cannot read: it is a folder at FILE",
        tmp_path / "nothing": "error[R100] cannot read: No such file or directory at FILE",
    }.items():
        with pytest.raises(ReadError) as e:
            read_mlmodel(path)
        assert str(e.value) == message.replace("FILE", str(path))


@pytest.mark.parametrize(
    "kind",
    [
        "neuralNetwork",
        "neuralNetworkClassifier",
        "neuralNetworkRegressor",
        "pipeline",
        "pipelineClassifier",
        "pipelineRegressor",
    ],
)
def test_networks_and_pipelines_are_read(tmp_path: Path, kind: str) -> None:
    assert read_mlmodel(saved(tmp_path, other_kind(kind))).kind == kind


QUANTIZED = {
    "two types": (
        field(1, bytes(8)) + field(2, b"ab"),
        "error[R110] weights are stored in several types at once: float32, float16",
    ),
    "two types, large": (
        field(1, bytes(8000)) + field(2, b"ab"),
        "error[R110] weights are stored in several types at once: float32, float16",
    ),
    "half a half": (
        field(2, b"abc"),
        "error[R103] 3 bytes cannot be split into float16 weights",
    ),
    "no quantization": (
        field(30, b"abc"),
        "error[R110] quantized weights of 0 bits are not supported; 1 to 8 bits are",
    ),
    "9 bits": (
        field(30, bytes(2000)) + field(40, b"\x08\x09"),
        "error[R110] quantized weights of 9 bits are not supported; 1 to 8 bits are",
    ),
    "int8 in 4 bits": (
        field(31, b"abc") + field(40, b"\x08\x04"),
        "error[R110] quantized weights of 4 bits are not supported; 8 bits are",
    ),
    "no method": (
        field(30, b"abc") + field(40, b"\x08\x08"),
        "error[R110] quantized weights have neither scales nor a lookup table",
    ),
    "short table": (
        field(30, b"abc") + field(40, b"\x08\x01" + field(102, field(1, bytes(4)))),
        "error[R110] a lookup table for 1 bits must have 2 entries, got 1",
    ),
}


@pytest.mark.parametrize("case", QUANTIZED)
def test_impossible_weights_are_refused_but_survive(tmp_path: Path, case: str) -> None:
    content, message = QUANTIZED[case]
    raw = convolution(content)
    read = read_mlmodel(path := saved(tmp_path, raw))
    with pytest.raises(ReadError) as e:
        first_weights(read)
    assert str(e.value) == f"{message} at {path}"
    assert canonical(read.to_bytes()) == canonical(raw)


@pytest.mark.parametrize("sizes", [(3000, 10), (10, 3000), (3000, 3000)])
def test_weights_merged_from_several_messages_are_refused(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """Protobuf would concatenate them; nothing writes such files, and the order of a large and a
    small piece is lost here.
    """
    first, second = (field(1, FLOATS[:size].tobytes()) for size in sizes)
    read = read_mlmodel(saved(tmp_path, convolution(first, field(90, second))))
    uses: list[Callable[[MLModel], Any]] = [first_weights, MLModel.to_bytes]
    for use in uses:
        with pytest.raises(
            ReadError, match=r"R103\] one set of weights is spread over several messages"
        ):
            use(read)


def test_no_weights_are_an_empty_array(tmp_path: Path) -> None:
    data = first_weights(read_mlmodel(saved(tmp_path, convolution(b""))))
    assert (data.kind, data.count, data.array().size) == ("float32", 0, 0)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, len(SMALL)), st.integers(0, 6))
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random, length: int, flips: int
) -> None:
    content = bytearray(SMALL[:length] if rng.random() < 0.5 else SMALL)
    for _ in range(flips if content else 0):
        # half of the flips where the structure is, not in the weights
        at = (
            rng.randrange(min(len(content), 80))
            if rng.random() < 0.5
            else rng.randrange(len(content))
        )
        content[at] ^= 1 << rng.randrange(8)
    path = saved(tmp_path_factory.getbasetemp(), bytes(content), "damaged.mlmodel")
    sniff(bytes(content[:64]), path)
    try:
        read = read_mlmodel(path)
        for params in all_params(read.proto):
            try:
                read.weights(params).array()
            except ReadError as e:
                assert {d.code for d in e.diagnostics} <= {"R103", "R110"}
        # accepted content survives
        assert canonical(read.to_bytes()) == canonical(bytes(content))
    except ReadError as e:
        assert {d.code for d in e.diagnostics} <= {"R103", "R104", "R106"}


# ---- telling a Core ML file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SMALL, True),
        (SMALL[:200], True),
        (SMALL[:31], True),
        (other_kind("treeEnsembleClassifier"), True),
        (other_kind("mlProgram", 7), False),
        (other_kind("pipeline") + b"\x50\x01", True),
        (ONNX, False),
        (ONNX[:10], False),
        (
            onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString(),
            False,
        ),
        (SMALL[2:], False),
        (SMALL + field(7, b""), False),
        (b"\x08\x04", False),
        (b"", False),
        (b"\x08\x00<net", False),
        (b'{"a": 1}', False),
    ],
)
def test_sniff(tmp_path: Path, content: bytes, expected: bool) -> None:
    assert sniff(content[:64], saved(tmp_path, content)) is expected


def test_sniff_refuses_folders_and_pipes(tmp_path: Path) -> None:
    assert not sniff(b"\x08", tmp_path)
    assert not sniff(b"\x08", "/dev/null")


# ---- real models


def corpus() -> list[Path]:
    place = os.environ.get("NETCONV_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus"
    return sorted(Path(place).glob("coreml/*/*/model.mlmodel"))


@pytest.mark.corpus
def test_every_model_of_the_corpus_survives() -> None:
    files = corpus()
    if not files:
        pytest.skip("no corpus: set NETCONV_CORPUS to its folder")
    failures = []
    for path in files:
        raw = path.read_bytes()
        try:
            assert sniff(raw[:64], path)
            assert_same(read_mlmodel(path), raw)
        except (AssertionError, ConverterError) as e:
            failures.append(f"{path.parent.name}: {e}")
    assert failures == []
