"""Inputs to compare on: the user's own, seeded random ones that the network can digest, and edge
cases.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, UsageError, Where, unreadable
from converter.graph.infer import Array, known, shape_of
from converter.graph.network import Network, TensorInfo

RANDOM = ("normal", "uniform")
EDGE = ("zeros", "ones", "large", "denormal", "image")
DEFAULT = ("normal", "uniform", "zeros", "ones")
SEEDED = (*RANDOM, "large", "denormal")  # kinds that depend on the seed
_THROUGH = {
    "Cast",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Identity",
    "Transpose",
    "Flatten",
    "Slice",
    "Expand",
    "Concat",
    "Split",
}
_UNKNOWN_SPATIAL = 32


@dataclass(frozen=True)
class Feed:
    """One set of inputs by public name, what it is called in the report, and the arrays of its file
    that are no inputs.
    """

    name: str
    arrays: dict[str, Array]
    unused: tuple[str, ...] = ()


def feeds_for(model: Network, data: Any = None, seed: int = 0, seeds: int = 1) -> list[Feed]:
    """The feeds that `data` asks for; random ones once for each of `seeds` seeds from `seed` on.

    None: two random ones and two edge cases. A mapping of arrays: exactly that one. Otherwise one
    text or path or several: `in.npz`, a folder of them, `random`, `edge`, or for one input
    `NAME=file.npy|random|edge` (the others are random).
    """
    first = _feeds(model, data, seed)
    more = (
        Feed(f"{f.name} {s}", f.arrays)
        for s in range(seed + 1, seed + seeds)
        for f in _feeds(model, data, s)
        if f.name in SEEDED
    )
    return [*first, *more]


def _feeds(model: Network, data: Any, seed: int) -> list[Feed]:
    if data is None:
        return [Feed(kind, generate(model, kind, seed)) for kind in DEFAULT]
    if isinstance(data, Mapping):
        return [Feed("given", model.check_feeds(dict(data)))]
    items = [data] if isinstance(data, str | Path) else list(data)
    named = dict(str(i).split("=", 1) for i in items if "=" in str(i))
    feeds = [f for item in items if "=" not in str(item) for f in _load(model, item, seed)]
    return [*feeds, *_named(model, named, seed)]


def _load(model: Network, item: Any, seed: int) -> list[Feed]:
    if isinstance(item, Mapping):
        return [Feed("given", model.check_feeds(dict(item)))]
    if str(item) in ("random", "edge"):
        return [
            Feed(kind, generate(model, kind, seed))
            for kind in (RANDOM if str(item) == "random" else EDGE)
        ]
    path = Path(item)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise unreadable("R100", "the folder holds no .npz file", Where(str(path)))
    return [_of_file(model, f) for f in files]


def _of_file(model: Network, file: Path) -> Feed:
    """The inputs that a file holds; what else is in it is left out where no input is missing."""
    arrays, names = _npz(file), {i.name for i in model.inputs}
    given = {n: a for n, a in arrays.items() if n in names}
    try:
        return Feed(file.name, model.check_feeds(given), tuple(sorted(arrays.keys() - names)))
    except UsageError:
        return Feed(file.name, model.check_feeds(arrays))


def notes(feeds: Sequence[Feed]) -> list[Diagnostic]:
    """N407 for each file that holds more than inputs."""
    return [
        Diagnostic("N407", f"no input is called {', '.join(f.unused)}", "note", Where(f.name))
        for f in feeds
        if f.unused
    ]


def _named(model: Network, named: dict[str, str], seed: int) -> list[Feed]:
    if not named:
        return []
    unknown = [n for n in named if n not in {i.name for i in model.inputs}]
    if unknown:
        raise UsageError(
            Diagnostic(
                "U501", f"--data names inputs that the model does not have: {', '.join(unknown)}"
            )
        )
    kinds = EDGE if "edge" in named.values() else ("normal",)
    files = {n: _npy(Path(v)) for n, v in named.items() if v not in ("random", "edge")}
    edges = {n for n, v in named.items() if v == "edge"}
    feeds = []
    for kind in kinds:
        arrays, base = generate(model, kind, seed), generate(model, "normal", seed)
        feeds.append(
            Feed(
                kind,
                model.check_feeds(
                    {n: files.get(n, arrays[n] if n in edges else base[n]) for n in arrays}
                ),
            )
        )
    return feeds


def _npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise ValueError("an .npy file needs the name of its input: NAME=FILE")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError) as e:
        raise unreadable(
            "R100",
            f"not a readable .npz file: {getattr(e, 'strerror', None) or e}",
            Where(str(path)),
        ) from None
    except Exception as e:  # zipfile and zlib raise families of their own
        raise unreadable("R103", f"not a readable .npz file: {e}", Where(str(path))) from None


def _npy(path: Path) -> Array:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as e:
        raise unreadable(
            "R100",
            f"not a readable .npy file: {getattr(e, 'strerror', None) or e}",
            Where(str(path)),
        ) from None


def generate(model: Network, kind: str, seed: int = 0) -> dict[str, Array]:
    """One feed of a kind, for every input; the same seed gives the same arrays whatever the order
    of inputs.
    """
    sizes: dict[str, int] = {}
    images = set(model.interface.get("images", ()))
    meant = model.interface.get("shapes", {})
    result = {}
    for info, value in zip(model.inputs, model.ir.graph.inputs, strict=True):
        if info.shape is None and any(
            u.node.op_type == "Einsum" for u in value.uses()
        ):  # onnxruntime ends the process for another rank
            raise UsageError(
                Diagnostic(
                    "N403",
                    f"the number of axes of the input {info.name!r} is not known",
                    help="give it a shape with --inputs, or data",
                )
            )
        rng = np.random.default_rng([seed, zlib.crc32(f"{kind}:{info.name}".encode())])
        result[info.name] = _array(
            info,
            _shape(info, sizes, meant.get(info.name, ())),
            kind,
            rng,
            index_range(value),
            info.name in images,
        )
    return result


def _shape(info: TensorInfo, sizes: dict[str, int], meant: Sequence[int]) -> tuple[int, ...]:
    """Static sizes as they are; a named one is the same wherever it appears: what the file means,
    else 1 for a batch, else enough for most windows.
    """
    shape = []
    for axis, d in enumerate(info.shape or ()):
        size = d if isinstance(d, int) else 1 if axis == 0 else _UNKNOWN_SPATIAL
        if not isinstance(d, int) and len(meant) == len(info.shape or ()):
            size = meant[axis]
        shape.append(sizes.setdefault(d, size) if isinstance(d, str) else size)
    return tuple(shape)


def _array(
    info: TensorInfo,
    shape: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
    limit: int | None,
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
    limit: int | None,
) -> Array:
    """Indices stay inside their table, bytes use all of their range, other integers stay small
    (they are often sizes).
    """
    if kind in ("zeros", "ones"):
        return np.full(shape, min(int(kind == "ones"), (limit or 2) - 1), dtype)
    low, high = (
        (0, limit)
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
    """Smooth, with edges, other in every channel: gradients and a checkerboard, between 0 and 1."""
    grid = np.indices(shape).astype(np.float64)
    total = np.zeros(shape)
    for axis, coordinate in enumerate(grid):
        total += (axis + 1) * coordinate / max(shape[axis], 1)
    return (0.5 * (total % 1.0) + 0.5 * ((grid.sum(axis=0) // 4) % 2)) if shape else total


def index_range(value: ir.Value) -> int | None:
    """The size of the table that an integer input indexes, or the bits that it shifts by, when it
    does (looking through casts and reshapes).
    """
    pending, seen = [value], {value}
    limits: list[int] = []
    while pending:
        v = pending.pop()
        for use in v.uses():
            node, at = use.node, use.idx
            if node.op_type in _THROUGH and not node.domain:
                new = [o for o in node.outputs if o not in seen]
                seen.update(new)
                pending.extend(new)
            elif (size := _table(node, at)) is not None:
                limits.append(size)
    return min(limits) if limits else None


def _table(node: ir.Node, at: int) -> int | None:
    if (
        node.op_type in ("Gather", "GatherElements")
        and at == 1
        and (data := node.inputs[0]) is not None
    ):
        shape = shape_of(data)
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        return shape[axis] if shape else None
    if node.op_type == "BitShift" and at == 1 and (data := node.inputs[0]) is not None:
        return None if data.dtype is None else int(data.dtype.bitwidth)
    if node.op_type == "OneHot" and at == 0:
        depth = known(node.inputs[1])
        return int(depth.reshape(-1)[0]) if depth is not None else None
    return None


def names(feeds: Sequence[Feed]) -> list[str]:
    return [f.name for f in feeds]
