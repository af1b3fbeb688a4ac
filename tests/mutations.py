"""Damaged model files: small networks in every format, and seeded ways to break them.

`outcome` reads a damaged file and converts it; the answer is "right" (it was read, and written where it could be) or "refused". A traceback,
more than `LIMIT` seconds, or a file left behind after a refusal is a fault and raises.
"""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import onnx_ir as ir

import converter
from converter.errors import ConverterError
from converter.graph.build import new_model
from converter.model import Model

LIMIT = 10  # seconds for one small file
SUFFIXES = {"onnx": ".onnx", "coreml": ".mlmodel", "openvino": ".xml", "openvino+ir=7": ".xml", "zhouyi": ".txt", "nnapi": ".nnapi.json"}
NUMBERS = ("0", "-1", "1", "4294967296", "9223372036854775807", "-9223372036854775808", "1e999", "nan", "65536,65536,65536", "", "x")


def network() -> Model:
    """A convolution with everything around it that a side file or a shape can get wrong."""
    rng = np.random.default_rng(0)
    model, b = new_model("small")
    x = b.input("x", ir.DataType.FLOAT, [1, 4, 6, 6])
    y = b.op("Conv", x, rng.normal(size=(8, 4, 3, 3)).astype(np.float32), rng.normal(size=8).astype(np.float32), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    y = b.op("MaxPool", b.op("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    y = b.op("Concat", y, b.op("Sigmoid", y), axis=1)
    y = b.op("MatMul", b.op("Reshape", y, [1, 144]), rng.normal(size=(144, 5)).astype(np.float32))
    b.output(b.op("Softmax", y, axis=-1, name="y"))
    return Model(model, "onnx")


def seeds(folder: Path) -> dict[str, Path]:
    """The small network, written in every format; by target."""
    made = {}
    for target, suffix in SUFFIXES.items():
        path = folder / f"{target.replace('+', '_').replace('=', '')}{suffix}"
        converter.save(network(), path, target)
        made[target] = path
    return made


def files_of(path: Path) -> list[Path]:
    """The model and its side file."""
    stem = path.name.removesuffix(".json").rsplit(".", 1)[0] if path.name.endswith(".nnapi.json") else path.stem
    return [p for p in sorted(path.parent.iterdir()) if p == path or (p.stem.removesuffix(".nnapi") == stem and p.suffix == ".bin")]


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
    """One run of digits becomes a number that nobody expects."""
    digits = [i for i, c in enumerate(data[:200_000]) if 48 <= c <= 57 and not 48 <= data[i - 1] <= 57]
    if not digits:
        return flip(data, rng)
    start = end = rng.choice(digits)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:start] + rng.choice(NUMBERS).encode() + data[end:]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, flip, truncate, swap, repeat, renumber, renumber)


def mutants(path: Path, folder: Path, count: int, seed: int) -> Iterator[Path]:
    """`count` damaged copies, one after the other, under the same names in `folder`."""
    rng = random.Random(f"{path.name} {seed}")
    originals = {p: p.read_bytes() for p in files_of(path)}
    for _ in range(count):
        victim = path if rng.random() < 0.8 or len(originals) == 1 else rng.choice([p for p in originals if p != path])
        for p, data in originals.items():
            broken = rng.choice(MUTATIONS)(data, rng) if p == victim and data else data
            (folder / p.name).write_bytes(broken)
        yield folder / path.name


def outcome(path: Path, target: str) -> str:
    """ "right" or "refused"; anything else raises."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    with tempfile.TemporaryDirectory() as empty:
        try:
            converter.convert(path, Path(empty) / f"out{SUFFIXES[target]}", target=target)
            return "right"
        except ConverterError:
            left = [p.name for p in Path(empty).iterdir()]
            assert not left, f"left behind after a refusal: {left}"
            return "refused"
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, previous)
