"""Bundles of several TensorFlow Lite models: MediaPipe's .task and LiteRT-LM's .litertlm.

A .litertlm is built here by the runtime of flatbuffers, slot by slot as its schema numbers them.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import converter
from converter.cli.app import app
from converter.errors import ReadError, UsageError

BLOCK = 16 * 1024


@pytest.fixture
def models(tmp_path: Path) -> dict[str, bytes]:
    """Two models: y = x + 1 and y = x + 2."""
    found = {}
    for n in (1.0, 2.0):
        x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, [3]) for v in "xy")
        c = helper.make_tensor("c", TensorProto.FLOAT, [1], [n])
        graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y], [c])
        onnx.save(helper.make_model(graph, ir_version=9), tmp_path / "m.onnx")
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.tflite")
        found[f"plus_{int(n)}.tflite"] = (tmp_path / "m.tflite").read_bytes()
    return found


@pytest.fixture
def task(models: dict[str, bytes], tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "b.task", "w", zipfile.ZIP_STORED) as archive:
        for name, data in models.items():
            archive.writestr(name, data)
    return tmp_path / "b.task"


def header(sections: list[tuple[int, int, int, str]]) -> bytes:
    """The flatbuffer of (type, begin, end, model_type)."""
    b = flatbuffers.Builder(0)
    made = []
    for kind, begin, end, name in sections:
        key, text = b.CreateString("model_type"), b.CreateString(name)
        b.StartObject(1)
        b.PrependUOffsetTRelativeSlot(0, text, 0)
        value = b.EndObject()
        b.StartObject(3)
        b.PrependUOffsetTRelativeSlot(0, key, 0)
        b.PrependUint8Slot(1, 9, 0)  # StringValue
        b.PrependUOffsetTRelativeSlot(2, value, 0)
        pair = b.EndObject()
        b.StartVector(4, 1, 4)
        b.PrependUOffsetTRelative(pair)
        items = b.EndVector()
        b.StartObject(4)
        b.PrependUint64Slot(1, begin, 0)
        b.PrependUint64Slot(2, end, 0)
        b.PrependUOffsetTRelativeSlot(0, items, 0)
        b.PrependUint8Slot(3, kind, 0)
        made.append(b.EndObject())
    b.StartVector(4, len(made), 4)
    for one in reversed(made):
        b.PrependUOffsetTRelative(one)
    objects = b.EndVector()
    b.StartObject(1)
    b.PrependUOffsetTRelativeSlot(0, objects, 0)
    metadata = b.EndObject()
    b.StartObject(2)
    b.PrependUOffsetTRelativeSlot(1, metadata, 0)
    b.Finish(b.EndObject())
    return bytes(b.Output())


@pytest.fixture
def litertlm(models: dict[str, bytes], tmp_path: Path) -> Path:
    """A tokenizer and two models, each at a multiple of the block size."""
    parts = [(4, "", b"tokenizer"), *((3, n.split(".")[0], d) for n, d in models.items())]
    places = [
        (k, BLOCK * (i + 1), BLOCK * (i + 1) + len(d), n) for i, (k, n, d) in enumerate(parts)
    ]
    text = header(places)
    data = bytearray(b"LITERTLM" + struct.pack("<III4xQ", 1, 0, 0, 32 + len(text)) + text)
    for (_, begin, _, _), (_, _, part) in zip(places, parts, strict=True):
        data += bytes(begin - len(data)) + part
    (tmp_path / "b.litertlm").write_bytes(data)
    return tmp_path / "b.litertlm"


@pytest.fixture(params=["task", "litertlm"])
def bundle(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_a_member_is_read(bundle: Path, tmp_path: Path) -> None:
    x = np.array([1, 2, 3], np.float32)
    for n in (1, 2):
        (y,) = converter.load(bundle, member=f"plus_{n}").run({"x": x}).values()
        np.testing.assert_array_equal(y, x + n)
    converter.convert(bundle, tmp_path / "out.onnx", member="plus_2")
    (y,) = converter.load(tmp_path / "out.onnx").run({"x": x}).values()
    np.testing.assert_array_equal(y, x + 2)


def test_without_a_member_the_models_are_named(bundle: Path) -> None:
    with pytest.raises(ReadError) as refused:
        converter.load(bundle)
    (found,) = refused.value.diagnostics
    assert "plus_1" in found.message and "plus_2" in found.message and "--member" in found.help
    listed = CliRunner().invoke(app, ["inspect", str(bundle)])
    assert listed.exit_code == 0 and "plus_1" in listed.output and "plus_2" in listed.output
    with pytest.raises(UsageError, match="no model 'plus_3'"):
        converter.load(bundle, member="plus_3")


def test_a_bundle_of_one_model_needs_no_member(models: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.task", "w") as archive:
        archive.writestr("a.tflite", models["plus_1.tflite"])
    (y,) = converter.load(tmp_path / "one.task").run({"x": np.zeros(3, np.float32)}).values()
    np.testing.assert_array_equal(y, np.ones(3))


def test_a_damaged_bundle_is_refused(litertlm: Path) -> None:
    data = litertlm.read_bytes()
    for damaged in (data[:20], data[:24] + b"\xff" * 8 + data[32:], data[:32] + b"\xff" * 40):
        litertlm.write_bytes(damaged)
        with pytest.raises(ReadError):
            converter.load(litertlm, member="plus_1")


def test_only_bundles_have_members(models: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "a.tflite").write_bytes(models["plus_1.tflite"])
    with pytest.raises(UsageError, match="--member is for bundles"):
        converter.load(tmp_path / "a.tflite", member="x")
