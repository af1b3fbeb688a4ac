"""Recognize files that are not models of a supported format, and suggest the next step.

Most rejected files are a model of another framework, a side file of a model, or a failed download.
Each kind is an entry of a table: how it is recognized by its bytes, its members or (if the content
has no signature) its name, a description, and the command or the file to use instead.
"""

from __future__ import annotations

import fnmatch
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from converter.formats.coreml import package

# https://docs.pytorch.org/docs/stable/onnx.html
_FROM_TORCH = (
    "load it in PyTorch and export it: "
    "torch.onnx.export(model.eval(), (example,), 'model.onnx', dynamo=True)"
)
# https://keras.io/api/models/model_saving_apis/export/
_FROM_KERAS = (
    "load it in Keras and export it: keras.models.load_model(FILE).export('model.onnx', "
    "format='onnx')"
)
# https://github.com/onnx/tensorflow-onnx
_FROM_SAVED_MODEL = (
    "convert it with TensorFlow: tf.lite.TFLiteConverter.from_saved_model(FOLDER).convert() gives "
    "a .tflite file, python -m tf2onnx.convert --saved-model FOLDER --output model.onnx an ONNX one"
)
# https://huggingface.co/docs/optimum-onnx
_FROM_HUB = (
    "it holds weights but no network: export the model that it belongs to, for example with "
    "optimum-cli export onnx --model ORG/NAME FOLDER"
)
_COMPILED = "it is compiled for one device: convert the model that it was made from"
_ARCHIVE = "unpack it and give the model in it"
_FROM_MXNET = "export it with MXNet: mxnet.onnx.export_model(...)"
# https://github.com/PaddlePaddle/Paddle2ONNX
_FROM_PADDLE = "convert it to ONNX first: paddle2onnx --model_dir FOLDER --save_file model.onnx"
_FROM_NCNN = "it cannot be read back: convert the model that it was made from"


@dataclass(frozen=True)
class Foreign:
    """A kind of file: a noun phrase that follows "this is", and the suggested action."""

    title: str
    help: str


def _marks(*entries: tuple[int, bytes, str, str]) -> tuple[tuple[int, bytes, Foreign], ...]:
    return tuple((offset, mark, Foreign(title, help)) for offset, mark, title, help in entries)


@dataclass(frozen=True)
class Models:
    """The names by which models are recognized: the suffixes of their files, and the names of a
    model's side files relative to its folder.
    """

    suffixes: tuple[str, ...]
    side_names: Callable[[Path], Sequence[str]]


# Bytes at the beginning of a file, or at an offset.
MARKS = _marks(
    (0, b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file itself",
     "fetch the file: git lfs pull"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras 2 saves models and weights", _FROM_KERAS),
    (0, b"GGUF", "a GGUF file of llama.cpp", _FROM_HUB),
    (0, b"lmgg", "a GGML file of llama.cpp", _FROM_HUB),
    (0, b"tjgg", "a GGML file of llama.cpp", _FROM_HUB),
    (4, b"ET12", "an ExecuTorch program (.pte)", _FROM_TORCH),
    (0, b"ftrt", "a TensorRT engine", _COMPILED),
    (0, b"RKNN", "an RKNN model", _COMPILED),
    (0, b"LDMK", "a K210 model (.kmodel)", _COMPILED),
    (0, b"\x01HEF", "a Hailo executable (.hef)", _COMPILED),
    (0, b"7767517\n", "the network of an ncnn model (.param)", _FROM_NCNN),
    (0, b"CBM1", "a CatBoost model", "export it with CatBoost: save_model(FILE, format='onnx')"),
    (0, b"tree\nversion=", "a LightGBM model",
     "convert it to ONNX first: onnxmltools.convert_lightgbm(...)"),
    (0, b"\x93NUMPY", "a NumPy array", "name the model; arrays are inputs: netconv run MODEL"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image", "name the model; images are inputs: netconv run"),
    (0, b"\xff\xd8\xff", "a JPEG image", "name the model; images are inputs: netconv run"),
    (0, b"%PDF-", "a PDF document", "name the model"),
    (0, b"\x7fELF", "a program or library for Linux (ELF)", "name the model"),
    (0, b"\xcf\xfa\xed\xfe", "a program or library for macOS (Mach-O)", "name the model"),
    (0, b"MZ", "a program or library for Windows", "name the model"),
    (0, b"SQLite format 3\0", "an SQLite database", "name the model"),
    (0, b"\x1f\x8b", "a gzip archive", _ARCHIVE),
    (0, b"BZh", "a bzip2 archive", _ARCHIVE),
    (0, b"\xfd7zXZ\0", "an xz archive", _ARCHIVE),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _ARCHIVE),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive", _ARCHIVE),
    (0, b"Rar!\x1a\x07", "a RAR archive", _ARCHIVE),
    (257, b"ustar", "a tar archive", _ARCHIVE),
)  # fmt: skip

# Members of a zip file, as globs of which each must match one; the first entry that fits counts.
MEMBERS: tuple[tuple[tuple[str, ...], Foreign], ...] = (
    (
        ("*/code/*", "*/constants.pkl"),
        Foreign("a TorchScript program", _FROM_TORCH),
    ),
    (
        ("*/models/*.json", "*/archive_format"),
        Foreign(
            "an exported PyTorch program (.pt2)",
            "export it to ONNX: torch.onnx.export(torch.export.load(FILE), (), 'model.onnx', "
            "dynamo=True)",
        ),
    ),
    (
        ("serialized_exported_program.json",),
        Foreign("an exported PyTorch program (.pt2)", _FROM_TORCH),
    ),
    (
        ("*data.pkl",),
        Foreign(
            "a PyTorch checkpoint, which holds weights and maybe a pickled module", _FROM_TORCH
        ),
    ),
    (("config.json", "model.weights.h5"), Foreign("a Keras model", _FROM_KERAS)),
    (("model.params",), Foreign("a DLC file of Qualcomm's SDK", _COMPILED)),
    (("dlc.metadata",), Foreign("a DLC file of Qualcomm's SDK", _COMPILED)),
    (("*saved_model.pb",), Foreign("an archive with a TensorFlow SavedModel", _FROM_SAVED_MODEL)),
    (("*.npy",), Foreign("a NumPy archive of arrays", "name the model; arrays go to --data")),
)

# Names, for content without a signature.
SUFFIXES: dict[str, Foreign] = {
    ".pt2": Foreign("an exported PyTorch program (.pt2)", _FROM_TORCH),
    ".ptl": Foreign("a PyTorch Mobile program", _FROM_TORCH),
    ".pte": Foreign("an ExecuTorch program", _FROM_TORCH),
    ".keras": Foreign("a Keras model", _FROM_KERAS),
    ".h5": Foreign("a Keras model or its weights", _FROM_KERAS),
    ".pb": Foreign(
        "probably a TensorFlow graph (.pb)",
        "convert it to ONNX first: python -m tf2onnx.convert --graphdef FILE --inputs x:0 "
        "--outputs y:0 --output model.onnx",
    ),
    ".engine": Foreign("a TensorRT engine", _COMPILED),
    ".plan": Foreign("a TensorRT engine", _COMPILED),
    ".trt": Foreign("a TensorRT engine", _COMPILED),
    ".rknn": Foreign("an RKNN model", _COMPILED),
    ".dlc": Foreign("a DLC file of Qualcomm's SDK", _COMPILED),
    ".om": Foreign("a model for Ascend devices", _COMPILED),
    ".blob": Foreign("a compiled network", _COMPILED),
    ".hef": Foreign("a Hailo executable", _COMPILED),
    ".mnn": Foreign("an MNN model", _FROM_NCNN),
    ".tmfile": Foreign("a Tengine model", _FROM_NCNN),
    ".pdmodel": Foreign("a PaddlePaddle model", _FROM_PADDLE),
    ".pdiparams": Foreign("the weights of a PaddlePaddle model", _FROM_PADDLE),
    ".caffemodel": Foreign(
        "a Caffe model", "convert it to ONNX or IR first, for example with OpenVINO 2021.4's mo"
    ),
    ".prototxt": Foreign(
        "the network of a Caffe model",
        "convert it to ONNX or IR first, for example with OpenVINO 2021.4's mo",
    ),
    ".pkl": Foreign("a Python pickle", _FROM_TORCH),
    ".pickle": Foreign("a Python pickle", _FROM_TORCH),
    ".joblib": Foreign(
        "a pickled scikit-learn model", "convert it to ONNX first: skl2onnx.to_onnx(model, X[:1])"
    ),
    ".py": Foreign("a Python program", "run it, and export its model to ONNX"),
}

# Bytes that begin a pickle of protocol 2 to 5: PROTO and its number.
_PICKLES = tuple(bytes([0x80, n]) for n in range(2, 6))
# https://github.com/pytorch/pytorch/blob/main/torch/serialization.py: MAGIC_NUMBER as a pickle
_OLD_TORCH = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ENOUGH = 1 << 16  # bytes to examine if a file begins with zeros


def recognize(path: Path, head: bytes, models: Models) -> Foreign | None:
    """Describe a file or folder that no format reads; None if it is not recognized.

    `head` are the first bytes of a file, empty for a folder. Nothing is raised.
    """
    try:
        if path.is_dir():
            return _folder(path, models)
        checks: Iterator[Foreign | None] = (check(path, head) for check in _CHECKS)
        found = (
            _empty(path, head) or _side_file_of(path, models) or next(filter(None, checks), None)
        )
        return found or _zip(path, head, models) or SUFFIXES.get(path.suffix.lower())
    except OSError:
        return None


def _empty(path: Path, head: bytes) -> Foreign | None:
    size = path.stat().st_size
    if not size:
        return Foreign("an empty file", "write or download it again")
    if head.strip(b"\0"):
        return None
    with open(path, "rb") as file:
        begins = file.read(_ENOUGH)
    return None if begins.strip(b"\0") else Foreign("a file of zeros", "download it again")


def _marked(path: Path, head: bytes) -> Foreign | None:
    return next((what for at, mark, what in MARKS if head[at:].startswith(mark)), None)


def _page(path: Path, head: bytes) -> Foreign | None:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not begins.startswith((b"<!doctype html", b"<html")):
        return None
    return Foreign(
        "a web page, not a model",
        "the address leads to a page about the file: use the link that downloads the file itself",
    )


def _pickle(path: Path, head: bytes) -> Foreign | None:
    if not head.startswith(_PICKLES):
        return None
    if head[2:].startswith(_OLD_TORCH):
        return Foreign("a PyTorch checkpoint in the form before PyTorch 1.6", _FROM_TORCH)
    if path.suffix == ".joblib":
        return SUFFIXES[".joblib"]
    return Foreign("a Python pickle, which netconv never loads", _FROM_TORCH)


def _safetensors(path: Path, head: bytes) -> Foreign | None:
    """https://huggingface.co/docs/safetensors: the size of a header, and the header in JSON."""
    size = int.from_bytes(head[:8], "little")
    if head[8:9] != b"{" or not 2 <= size <= path.stat().st_size - 8:
        return None
    return Foreign("a safetensors file", _FROM_HUB)


def _zip(path: Path, head: bytes, known: Models) -> Foreign | None:
    if not head.startswith(b"PK\x03\x04"):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, RuntimeError):
        return Foreign("a damaged zip archive", "download it again")
    for globs, what in MEMBERS:
        if all(fnmatch.filter(names, glob) for glob in globs):
            return what
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    models = [n for n in names if n.endswith(known.suffixes)]
    inside = f": {', '.join(models[:3])}" if models else ""
    return Foreign(f"a zip archive{inside}", _ARCHIVE if models else "name the model")


def _json(path: Path, head: bytes) -> Foreign | None:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not begins.startswith(b"{"):
        return None
    if b'"modelTopology"' in head:
        return Foreign(
            "a TensorFlow.js model",
            "convert it to a SavedModel first: tensorflowjs_converter --input_format "
            "tfjs_layers_model --output_format keras_saved_model",
        )
    if b'"arg_nodes"' in head or path.name.endswith("-symbol.json"):
        return Foreign("the network of an MXNet model", _FROM_MXNET)
    if b'"learner"' in head:
        return Foreign(
            "an XGBoost model", "convert it to ONNX first: onnxmltools.convert_xgboost(...)"
        )
    if b'"architectures"' in head or b'"model_type"' in head:
        return Foreign("the configuration of a model on the Hugging Face hub", _FROM_HUB)
    return None


def _side_file_of(path: Path, models: Models) -> Foreign | None:
    """Recognize a side file of a model in the same folder, or of the package around it."""
    for folder in path.parents:
        if package.is_model_folder(folder):
            return Foreign(
                f"a part of the package {folder.name}", f"give the whole package: {folder}"
            )
    if (model := _reader_of(path, models)) is not None:
        return Foreign(f"a file with weights of {model.name}", f"give the model: {model}")
    return None


def _reader_of(path: Path, models: Models) -> Path | None:
    """Return the model in the same folder that lists this file as a side file."""
    with os.scandir(path.parent) as entries:
        beside = sorted(e.path for e in entries if e.name.endswith(models.suffixes) and e.is_file())
    stem = path.name.partition(".")[0]
    # the likely one first: reading all models of a large folder takes time
    near = sorted(map(Path, beside), key=lambda p: not p.name.startswith(stem))[:20]
    return next((m for m in near if m != path and path.name in models.side_names(m)), None)


_CHECKS: Sequence[Callable[[Path, bytes], Foreign | None]] = (
    *(_marked, _page, _pickle, _safetensors, _json),
)


def _folder(path: Path, known: Models) -> Foreign | None:
    """Describe a folder that is not a model package."""
    there = set(os.listdir(path))
    if "saved_model.pb" in there or "saved_model.pbtxt" in there:
        return Foreign("a TensorFlow SavedModel", _FROM_SAVED_MODEL)
    if "config.json" in there and any(n.endswith(".safetensors") for n in there):
        return Foreign("a checkpoint of the Hugging Face hub", _FROM_HUB)
    if there & {"__model__", "inference.pdmodel", "inference.json"}:
        return Foreign("a PaddlePaddle model", _FROM_PADDLE)
    models = sorted(n for n in there if n.endswith(known.suffixes))
    if len(models) == 1:
        return Foreign(f"a folder with the model {models[0]}", f"give it: {path / models[0]}")
    if models:
        return Foreign(
            f"a folder with {len(models)} models",
            f"convert all of them: netconv batch {path} -t FORMAT",
        )
    return Foreign("a folder without a model", "name a model file") if not there else None
