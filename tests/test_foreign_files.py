"""Files that are no models are named in the refusal, with a way out."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.errors import ReadError
from converter.formats import foreign, sidefiles
from converter.formats.foreign import MARKS, MEMBERS, SUFFIXES
from support import SAMPLES

Make = Callable[[Path], Path]


def content(name: str, data: bytes) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return make


def archive(name: str, *members: str) -> Make:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / name, "w") as file:
            for member in members:
                file.writestr(member, b"content")
        return folder / name

    return make


def folder(name: str, *files: str) -> Make:
    def make(parent: Path) -> Path:
        path = parent / name
        for file in files:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_bytes(b"content")
        path.mkdir(exist_ok=True)
        return path

    return make


def safetensors(parent: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path = parent / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return path


def array(parent: Path) -> Path:
    np.save(parent / "x.npy", np.zeros(3))
    return parent / "x.npy"


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
# argument: parts of the message and of the help
GIVEN: dict[str, tuple[Make, str, str]] = {
    "LFS pointer": (content("net.onnx", LFS), "Git LFS pointer", "git lfs pull"),
    "web page": (content("net.tflite", b"\n<!DOCTYPE html><html>"), "web page", "downloads"),
    "empty": (content("net.onnx", b""), "an empty file", "download it again"),
    "zeros": (content("net.xml", bytes(100_000)), "a file of zeros", "download it again"),
    "GGUF": (content("llama.gguf", b"GGUF\3\0\0\0"), "GGUF", "optimum-cli export onnx"),
    "safetensors": (safetensors, "safetensors", "holds weights but no network"),
    "checkpoint": (archive("net.pt", "net/data.pkl", "net/data/0"), "PyTorch", "torch.onnx.export"),
    "TorchScript": (
        archive("net.pt", "net/code/a.py", "net/constants.pkl", "net/data.pkl"),
        "TorchScript",
        "torch.onnx.export",
    ),
    "exported program": (
        archive("net.pt2", "net/archive_format", "net/models/model.json"),
        "exported PyTorch program",
        "torch.export.load",
    ),
    "old checkpoint": (
        content("net.pth", pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)),
        "before PyTorch 1.6",
        "torch.onnx.export",
    ),
    "pickle": (content("net.pkl", pickle.dumps([1], protocol=4)), "never loads", ""),
    "Keras 3": (archive("net.keras", "config.json", "model.weights.h5"), "Keras model", "export("),
    "Keras 2": (content("net.h5", b"\x89HDF\r\n\x1a\n"), "HDF5", "keras.models.load_model"),
    "SavedModel": (
        folder("saved", "saved_model.pb", "variables/variables.index"),
        "TensorFlow SavedModel",
        "from_saved_model",
    ),
    "checkpoint of a hub": (
        folder("bert", "config.json", "model.safetensors"),
        "Hugging Face",
        "optimum-cli",
    ),
    "ExecuTorch": (content("net.pte", b"\x18\0\0\0ET12"), "ExecuTorch", "torch.onnx.export"),
    "TensorRT": (content("net.engine", b"ftrt\0\0"), "TensorRT", "compiled for one device"),
    "RKNN": (content("net.rknn", b"RKNN\0\0"), "RKNN", "compiled for one device"),
    "ncnn": (content("net.param", b"7767517\n3 3\n"), "ncnn", "made from"),
    "archive": (archive("nets.zip", "a/net.onnx"), "a zip archive: a/net.onnx", "unpack"),
    "gzip": (content("net.tflite.gz", b"\x1f\x8b\x08"), "gzip", "unpack"),
    "array": (array, "NumPy array", "netconv run"),
    "MXNet": (content("net-symbol.json", b'{"nodes": [], "arg_nodes": []}'), "MXNet", "export"),
    "TensorFlow.js": (
        content("model.json", b'{"modelTopology": {}}'),
        "TensorFlow.js",
        "tensorflowjs_converter",
    ),
    "configuration": (
        content("config.json", b'{"architectures": ["Bert"], "model_type": "bert"}'),
        "Hugging Face",
        "optimum-cli",
    ),
    "program": (content("net", b"\x7fELF\2\1\1"), "ELF", "name the model"),
    "empty folder": (folder("nothing"), "without a model", "name a model"),
    "folder with a model": (folder("nets", "a.onnx"), "with the model a.onnx", "give it"),
    "folder with models": (folder("nets", "a.onnx", "b.tflite"), "2 models", "netconv batch"),
}


def refused(path: Path) -> tuple[str, str]:
    with pytest.raises(ReadError) as error:
        converter.load(path)
    (found,) = error.value.diagnostics
    assert found.code == ("R100" if path.is_dir() else "R101")
    return found.message, found.help


@pytest.mark.parametrize("kind", GIVEN)
def test_a_foreign_file_is_recognized_and_the_way_on_is_named(kind: str, tmp_path: Path) -> None:
    make, message, help = GIVEN[kind]
    actual = refused(make(tmp_path))
    assert message in actual[0]
    assert help in actual[1]


@pytest.mark.parametrize(
    ("offset", "mark", "title"), [pytest.param(o, m, w.title, id=w.title) for o, m, w in MARKS]
)
def test_every_mark_is_found(offset: int, mark: bytes, title: str, tmp_path: Path) -> None:
    path = content("model", bytes([7] * offset) + mark + bytes(20))(tmp_path)
    assert title in refused(path)[0]


@pytest.mark.parametrize(
    ("globs", "title"), [pytest.param(g, w.title, id=" ".join(g)) for g, w in MEMBERS]
)
def test_every_kind_of_archive_is_found(globs: Sequence[str], title: str, tmp_path: Path) -> None:
    path = archive("model.zip", *(glob.replace("*", "m") for glob in globs))(tmp_path)
    assert title in refused(path)[0]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_a_mark_the_name_decides(suffix: str, tmp_path: Path) -> None:
    assert SUFFIXES[suffix].title in refused(content(f"m{suffix}", b"\7" * 40)(tmp_path))[0]


def test_a_file_of_weights_names_its_model(tmp_path: Path) -> None:
    converter.convert(SAMPLES / "digits_cnn.mlmodel", tmp_path / "net.xml")
    message, help = refused(tmp_path / "net.bin")
    assert "weights of net.xml" in message
    assert str(tmp_path / "net.xml") in help


def test_external_data_of_onnx_names_its_model(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(_converted(tmp_path / "net.onnx"))
    onnx.save(
        model,
        tmp_path / "big.onnx",
        save_as_external_data=True,
        location="big.data",
        size_threshold=0,
    )
    message, _ = refused(tmp_path / "big.data")
    assert "weights of big.onnx" in message


@pytest.mark.parametrize("part", ["Manifest.json", "Data/com.apple.CoreML/weights/weight.bin"])
def test_a_part_of_a_package_names_the_package(part: str, tmp_path: Path) -> None:
    converter.convert(SAMPLES / "digits_cnn.mlmodel", tmp_path / "net.mlpackage")
    message, help = refused(tmp_path / "net.mlpackage" / part)
    assert "a part of the package net.mlpackage" in message
    assert str(tmp_path / "net.mlpackage") in help


def test_broken_models_next_to_a_file_do_not_matter(tmp_path: Path) -> None:
    for name in ("a.xml", "b.onnx", "c.nnapi.json"):
        (tmp_path / name).write_bytes(b"\7broken")
    (tmp_path / "weights.bin").write_bytes(b"\7" * 100)
    assert refused(tmp_path / "weights.bin")[0] == "netconv does not recognize this file format"


def test_a_package_without_its_folder_is_still_read(tmp_path: Path) -> None:
    """The model file inside a package is a model of its own."""
    converter.convert(SAMPLES / "digits_cnn.mlmodel", tmp_path / "net.mlpackage")
    inside = tmp_path / "net.mlpackage" / "Data/com.apple.CoreML/model.mlmodel"
    assert converter.load(inside).format == "mlprogram"


def _converted(path: Path) -> Path:
    shutil.copy(SAMPLES / "digits_cnn.mlmodel", path.parent / "source.mlmodel")
    converter.convert(path.parent / "source.mlmodel", path)
    return path


def test_side_files_are_looked_up_without_an_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may hold thousands of texts that are no models: each explanation reads others."""
    monkeypatch.setattr(foreign, "recognize", lambda *_: pytest.fail("an explanation is made"))
    (tmp_path / "notes.txt").write_text("no model")
    assert sidefiles.names(tmp_path / "notes.txt") == []
