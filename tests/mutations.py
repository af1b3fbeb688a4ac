"""Damaged model files: small networks in every format, and seeded ways to break them.

`outcome` reads a damaged file and converts it; the answer is "right" (it was read, and written
where it could be) or "refused". A traceback, more than `LIMIT` seconds, or a file left over after
a refusal is a fault and raises.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir

import converter
from converter.api import Model
from converter.errors import ConverterError
from converter.graph.build import new_model

# every form that is written; those of SUFFIXES are one for each codec
FORMS = {
    **{
        "onnx": ".onnx",
        "onnx+external": ".onnx",
        "coreml": ".mlmodel",
        "mlprogram": ".mlpackage",
        "openvino": ".xml",
        "openvino+ir=10": ".xml",
        "openvino+ir=7": ".xml",
    },
    **{
        "openvino+ir=5": ".xml",
        "zhouyi": ".txt",
        "nnapi": ".nnapi.json",
        "nnapi+blob": ".nnapi",
        "nnapi+c": ".nnapi.c",
        "tflite": ".tflite",
    },
}
# read and written in a process of its own each time, a second long, and where its package is
APART = {"coreai": ".aimodel"}
SUFFIXES = {
    "onnx": ".onnx",
    "coreml": ".mlmodel",
    "openvino": ".xml",
    "openvino+ir=7": ".xml",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
}
PACKAGED = "Data/com.apple.CoreML/model.mlmodel"
NUMBERS = (
    "0",
    "-1",
    "1",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "nan",
    "65536,65536,65536",
    "",
    "x",
)


def network() -> Model:
    """A convolution with everything around it that a side file or a shape can get wrong."""
    rng = np.random.default_rng(0)
    model, b = new_model("small")
    x = b.input("x", ir.DataType.FLOAT, [1, 4, 6, 6])
    y = b.op(
        "Conv",
        x,
        rng.normal(size=(8, 4, 3, 3)).astype(np.float32),
        rng.normal(size=8).astype(np.float32),
        pads=[1, 1, 1, 1],
        kernel_shape=[3, 3],
    )
    y = b.op("MaxPool", b.op("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    y = b.op("Concat", y, b.op("Sigmoid", y), axis=1)
    y = b.op("MatMul", b.op("Reshape", y, [1, 144]), rng.normal(size=(144, 5)).astype(np.float32))
    b.output(b.op("Softmax", y, axis=-1, name="y"))
    return Model(model, "onnx")


def seeds(
    folder: Path, model: Model | None = None, forms: Iterable[str] = tuple(FORMS)
) -> dict[str, Path]:
    """A network, the small one unless another is given, in every form (or `forms`) that can express
    it and that is read; by target.
    """
    made = {}
    for target, suffix in ((t, {**FORMS, **APART}[t]) for t in forms):
        path = folder / target.replace("+", "_").replace("=", "") / f"net{suffix}"
        path.parent.mkdir(parents=True)
        try:
            converter.save(network() if model is None else model, path, target)
            converter.load(path)
            made[target] = path
        except ConverterError:
            assert model is not None or target == "nnapi+c", target
    return made


def files_of(path: Path) -> list[Path]:
    """The model and its side files: everything in its folder that has its stem, and the files in a
    package.
    """
    stem = path.name.partition(".")[0]
    found = [p for p in sorted(path.parent.iterdir()) if p.name.partition(".")[0] == stem]
    return [f for p in found for f in ([p] if p.is_file() else sorted(p.rglob("*"))) if f.is_file()]


def contents(path: Path) -> dict[str, bytes]:
    """The bytes of the model and its side files, by their names in the folder of the model."""
    return {p.relative_to(path.parent).as_posix(): p.read_bytes() for p in files_of(path)}


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Writes files by their names in `folder`."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def model_file(path: Path) -> Path:
    """The file with the network: in a package one of several."""
    if not path.is_dir():
        return path
    return path / ("main.mlirb" if path.suffix == ".aimodel" else PACKAGED)


def flip(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def swap(data: bytes, rng: random.Random) -> bytes:
    a, b, c, d = sorted(rng.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:b] + data[a:b] * rng.choice((1, 2, 5)) + data[b:]


def renumber(data: bytes, rng: random.Random) -> bytes:
    """One run of digits becomes an unexpected number."""
    digits = [
        i for i, c in enumerate(data[:200_000]) if 48 <= c <= 57 and not 48 <= data[i - 1] <= 57
    ]
    if not digits:
        return flip(data, rng)
    start = end = rng.choice(digits)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:start] + rng.choice(NUMBERS).encode() + data[end:]


def overwrite(data: bytes, rng: random.Random) -> bytes:
    """One word becomes a float or an unexpected integer."""
    word = rng.choice(WORDS)
    at = rng.randrange(len(data)) & -rng.choice((1, 2, 4, 8))
    return (data[:at] + word + data[at + len(word) :])[: max(len(data), len(word))]


def blank(data: bytes, rng: random.Random) -> bytes:
    """A run of bytes becomes a run of one byte."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:a] + rng.choice((b"\0", b"\xff", b" ", b"\n", b"1", b"[")) * (b - a) + data[b:]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Something that text must not hold, or much of it."""
    a = rng.choice((0, rng.randrange(len(data) + 1), len(data)))
    return data[:a] + rng.choice(INSERTED) + data[a:]


def recode(data: bytes, rng: random.Random) -> bytes:
    """The whole file in another code, or packed."""
    return rng.choice(RECODINGS)(data)


WORDS = (
    *(np.float32(v).tobytes() for v in (np.nan, np.inf, -np.inf, 0, -0.0, 1e-42, 3e38)),
    *(n.to_bytes(4, "little", signed=True) for n in (-1, 1 << 16, (1 << 31) - 1, -(1 << 31))),
    *(
        n.to_bytes(8, "little", signed=True)
        for n in (0, -1, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
    ),
)
INSERTED = (
    b"\xef\xbb\xbf",
    b"\0",
    b"\0" * 5000,
    b"\xff\xfe",
    b"\x80",
    b" " * 100_000,
    b"\n" * 100_000,
    b"<!-- -->",
    b"&#0;",
    b"&amp;",
    b"\\u0000",
    b"9" * 5000,
)
RECODINGS: tuple[Callable[[bytes], bytes], ...] = (
    lambda d: gzip.compress(d, mtime=0),
    lambda d: d.decode("latin-1").encode("utf-16"),
    lambda d: d.decode("latin-1").encode("utf-16-be"),
    lambda d: d.replace(b"\n", b"\r\n"),
    lambda d: d.replace(b"\n", b"\r"),
    lambda d: d.replace(b"\n", b""),
    lambda d: d + d,
    lambda d: d[::-1],
    lambda d: d.upper(),
    lambda d: d.replace(b"=", b""),
    lambda d: bytes(len(d)),
    lambda d: b"",
)
MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip,
    flip,
    truncate,
    swap,
    repeat,
    renumber,
    renumber,
    overwrite,
    overwrite,
    blank,
    insert,
    recode,
)


def mutants(path: Path, count: int, seed: int) -> Iterator[dict[str, bytes]]:
    """`count` damaged copies: the bytes of the model and its side files, one of which is damaged,
    by name.
    """
    rng = random.Random(f"{path.parent.name} {path.name} {seed}")
    originals, main = contents(path), model_file(path).relative_to(path.parent).as_posix()
    others = [name for name, data in originals.items() if name != main and data]
    for _ in range(count):
        victim = main if rng.random() < 0.8 or not others else rng.choice(others)
        yield {**originals, victim: rng.choice(MUTATIONS)(originals[victim], rng)}
