"""Inputs for a comparison: the user's own, seeded random ones that are valid for the network, and
edge cases.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.commands.verify.arguments import Range, Sizes, argument, index_range
from converter.commands.verify.sizes import Shape, shapes_for
from converter.errors import Diagnostic, ReadError, UsageError, Where, unreadable, wrong_call
from converter.graph.infer import Array, Arrays
from converter.graph.names import public_name
from converter.graph.network import Network, TensorInfo
from converter.io.files import npz_files

RANDOM = ("normal", "uniform")
EDGE = ("zeros", "ones", "large", "denormal", "image")
DEFAULT = ("normal", "uniform", "zeros", "ones")
Draw = Callable[[str], Arrays]  # one feed of a kind
SEEDED = (*RANDOM, "large", "denormal")  # kinds that depend on the seed


@dataclass(frozen=True)
class Feed:
    """One set of inputs by public name, its name in the report, and the arrays of its file that are
    not inputs.
    """

    name: str
    arrays: Arrays
    unused: tuple[str, ...] = ()

    def by_value(self, model: Network) -> Arrays:
        """Return the arrays by the names of the graph's own inputs."""
        return {str(v.name): self.arrays[public_name(v)] for v in model.ir.graph.inputs}


def feeds_for(
    model: Network,
    data: Any = None,
    seed: int = 0,
    seeds: int = 1,
    shapes: Mapping[str, Shape] | None = None,
) -> list[Feed]:
    """Return the feeds that `data` specifies; random ones once for each of `seeds` seeds from
    `seed` on, with the `shapes` (by input name) from converter.commands.verify.sizes.shapes_for.

    None: two random ones and two edge cases. A mapping of arrays: exactly that one. Otherwise one
    text or path or several: `in.npz`, a folder of them, `random`, `edge`, or for one input
    `NAME=file.npy|random|edge` (the others are random).
    """

    def seeded(seed: int) -> list[Feed]:
        return _feeds(model, data, functools.partial(generate, model, seed=seed, shapes=shapes))

    more = (
        Feed(f"{f.name} {s}", f.arrays)
        for s in range(seed + 1, seed + seeds)
        for f in seeded(s)
        if f.name in SEEDED
    )
    return [*seeded(seed), *more]


def _feeds(model: Network, data: Any, draw: Draw) -> list[Feed]:
    if data is None:
        return [Feed(kind, draw(kind)) for kind in DEFAULT]
    if isinstance(data, Mapping):
        return [Feed("given", model.check_feeds(dict(data)))]
    items = [data] if isinstance(data, str | Path) else list(data)
    named = dict(str(i).split("=", 1) for i in items if "=" in str(i))
    feeds = [f for item in items if "=" not in str(item) for f in _load(model, item, draw)]
    return [*feeds, *_named(model, named, draw)]


def _load(model: Network, item: Any, draw: Draw) -> list[Feed]:
    if isinstance(item, Mapping):
        return [Feed("given", model.check_feeds(dict(item)))]
    if str(item) in ("random", "edge"):
        return [Feed(kind, draw(kind)) for kind in (RANDOM if str(item) == "random" else EDGE)]
    path = Path(item)
    files = npz_files(path)
    if not files:
        raise unreadable("R100", "the folder contains no .npz file", path)
    return [_of_file(model, f) for f in files]


def _of_file(model: Network, file: Path) -> Feed:
    """Return the inputs that a file holds; if no input is missing, other arrays are ignored."""
    arrays, names = _npz(file), {i.name for i in model.inputs}
    given = {n: a for n, a in arrays.items() if n in names}
    try:
        return Feed(file.name, model.check_feeds(given), tuple(sorted(arrays.keys() - names)))
    except UsageError:
        return Feed(file.name, model.check_feeds(arrays))


def notes(feeds: Sequence[Feed]) -> list[Diagnostic]:
    """Return N407 for each file that holds more than inputs."""
    return [
        Diagnostic("N407", f"no input has the name {', '.join(f.unused)}", "note", Where(f.name))
        for f in feeds
        if f.unused
    ]


def _named(model: Network, named: dict[str, str], draw: Draw) -> list[Feed]:
    if not named:
        return []
    unknown = [n for n in named if n not in {i.name for i in model.inputs}]
    if unknown:
        raise wrong_call(f"--data names inputs that the model does not have: {', '.join(unknown)}")
    kinds = EDGE if "edge" in named.values() else ("normal",)
    files = {n: _npy(Path(v)) for n, v in named.items() if v not in ("random", "edge")}
    edges = {n for n, v in named.items() if v == "edge"}
    feeds = []
    for kind in kinds:
        arrays, base = draw(kind), draw("normal")
        feeds.append(
            Feed(
                kind,
                model.check_feeds(
                    {n: files.get(n, arrays[n] if n in edges else base[n]) for n in arrays}
                ),
            )
        )
    return feeds


def _npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise ValueError("an .npy file needs the name of its input: use NAME=FILE")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError) as e:
        raise _no_arrays(path, ".npz", e) from None
    except Exception as e:  # zipfile and zlib raise their own exception types
        raise unreadable("R103", f"the .npz file cannot be read: {e}", path) from None


def _npy(path: Path) -> Array:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as e:
        raise _no_arrays(path, ".npy", e) from None


def _no_arrays(path: Path, kind: str, e: Exception) -> ReadError:
    why = getattr(e, "strerror", None) or e
    return unreadable("R100", f"the {kind} file cannot be read: {why}", path)


def generate(
    model: Network, kind: str, seed: int = 0, shapes: Mapping[str, Shape] | None = None
) -> Arrays:
    """Generate one feed of a kind, for every input; the same seed gives the same arrays in
    any order of inputs.
    """
    images = set(model.interface.get("images", ()))
    for info, value in zip(model.inputs, model.ir.graph.inputs, strict=True):
        if info.shape is None and any(
            u.node.op_type == "Einsum" for u in value.uses()
        ):  # onnxruntime aborts the process for another rank
            raise UsageError(
                Diagnostic(
                    "N403",
                    f"the rank of input {info.name!r} is unknown",
                    help="specify its shape with --inputs, or data",
                )
            )
    shapes = shapes_for(model) if shapes is None else shapes
    sizes = _sizes(model, shapes)
    result = {}
    for info, value in zip(model.inputs, model.ir.graph.inputs, strict=True):
        rng = np.random.default_rng([seed, zlib.crc32(f"{kind}:{info.name}".encode())])
        shape = shapes[info.name]
        whole = argument(value, shape, sizes) if info.dtype.kind in "iuf" else None
        result[info.name] = (
            whole.astype(info.dtype)
            if whole is not None
            else _array(info, shape, kind, rng, index_range(value, sizes), info.name in images)
        )
    return result


def _sizes(model: Network, shapes: Mapping[str, Shape]) -> Sizes:
    """Return the numbers of symbolic sizes, taken from the inputs' shapes."""
    numbers: dict[str, int] = {}
    inputs: dict[ir.Value, Shape] = {}
    for info, value in zip(model.inputs, model.ir.graph.inputs, strict=True):
        inputs[value] = shapes[info.name]
        for d, n in zip(info.shape or (), shapes[info.name], strict=False):
            if isinstance(d, str):
                numbers.setdefault(d, n)
    return Sizes(numbers, inputs)


def _array(
    info: TensorInfo,
    shape: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
    limit: Range | None,
    image: bool,
) -> Array:
    dtype = info.dtype
    if dtype.kind in "OUS":
        words = np.array(["", "a", "netconv", "Zürich", "0"], object)
        return np.asarray(words[rng.integers(0, len(words), shape)], object)
    if dtype.kind == "b":
        return (
            np.full(shape, kind == "ones")
            if kind in ("zeros", "ones")
            else rng.integers(0, 2, shape).astype(bool)
        )
    if dtype.kind in "iu" or limit:  # Core ML's indices are floats
        return _integers(dtype, shape, kind, rng, limit)
    return _floats(shape, kind, rng, image).astype(dtype)


def _integers(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
    limit: Range | None,
) -> Array:
    """Draw integers: indices stay inside their table, bytes use their whole range, other integers
    stay small (they are often sizes).
    """
    if kind in ("zeros", "ones"):
        low, high = limit or (0, 2)
        return np.full(shape, min(max(int(kind == "ones"), low), high - 1), dtype)
    low, high = (
        limit
        if limit
        else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1)
        if dtype.itemsize == 1
        else (0, 4)
    )
    return rng.integers(low, high, shape).astype(dtype)


def _floats(shape: tuple[int, ...], kind: str, rng: np.random.Generator, image: bool) -> Array:
    scale = 255.0 if image else 1.0
    match kind:
        case "zeros" | "ones":
            return np.full(shape, float(kind == "ones") * scale)
        case "large":
            return rng.standard_normal(shape) * 1e4
        case "denormal":
            return rng.standard_normal(shape) * 1e-40
        case "uniform":
            return rng.random(shape) * scale
        case "image":
            return _picture(shape) * scale
        case _:
            return np.abs(rng.standard_normal(shape)) * 64 if image else rng.standard_normal(shape)


def _picture(shape: tuple[int, ...]) -> Array:
    """Return a smooth picture with edges that differs in every channel: gradients and a
    checkerboard, between 0 and 1.
    """
    grid = np.indices(shape).astype(np.float64)
    total = np.zeros(shape)
    for axis, coordinate in enumerate(grid):
        total += (axis + 1) * coordinate / max(shape[axis], 1)
    return (0.5 * (total % 1.0) + 0.5 * ((grid.sum(axis=0) // 4) % 2)) if shape else total
