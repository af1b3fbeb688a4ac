"""Compare two models on a labeled data set: their answers for each sample, whether they agree, and
how often they are right.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from converter import engines
from converter.errors import (
    Diagnostic,
    NothingComparedError,
    UnsupportedError,
    Where,
    unreadable,
    wrong_call,
)
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network, TensorInfo
from converter.io import progress
from converter.io.extras import install

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
LAYOUTS = ("nchw", "nhwc")
SHOWN = 5  # samples on which the models disagree, in a text


@dataclass(frozen=True)
class Preparation:
    """The conversion of image pixels (0 to 255) to the numbers of an input: (pixel - mean) / std
    for each channel, in the order of `layout`; with "" it is inferred from the input's shape.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: str = ""


@dataclass(frozen=True)
class Sample:
    """One set of inputs, which `load` reads. `label` is the right class, -1 if none is given."""

    name: str
    load: Callable[[], Arrays]
    label: int = -1


@dataclass(frozen=True)
class Prediction:
    """The class that each model finds most likely for a sample, from 0, and the right one."""

    name: str
    label: int
    reference: int
    candidate: int


@dataclass(frozen=True)
class Agreement:
    """The answers of two models for a data set. `largest` is the largest difference of a score."""

    models: tuple[str, str]
    scores: str
    samples: int
    agree: int
    right: tuple[int, int]
    largest: float
    different: tuple[Prediction, ...]
    wanted: float = 1.0

    @property
    def passed(self) -> bool:
        return self.agree >= self.wanted * self.samples

    @property
    def diagnostic(self) -> Diagnostic | None:
        """Return N409 if the models agree on too few samples, else None."""
        if self.passed:
            return None
        message = (
            f"the models agree on {self.agree} of {self.samples} samples, "
            f"fewer than {self.wanted:.2%}"
        )
        return Diagnostic("N409", message, where=Where(self.models[1]))

    def as_json(self) -> dict[str, Any]:
        """Return the agreement as plain data."""
        return {**asdict(self), "passed": self.passed}

    def lines(self) -> Iterator[str]:
        """Yield the agreement as lines of text, with the first samples that differ."""
        yield f"{self.samples} samples, the largest of {self.scores}"
        for name, right in zip(self.models, self.right, strict=True):
            yield f"{right / self.samples:8.2%} right  {name}"
        yield f"{self.agree / self.samples:8.2%} agree, scores differ by up to {self.largest:.3g}"
        for s in self.different[:SHOWN]:
            yield f"  {s.name}: {s.reference} became {s.candidate}, right is {s.label}"
        if len(self.different) > SHOWN:
            yield f"  and {len(self.different) - SHOWN} more"


def compare(
    reference: Network,
    candidate: Network,
    samples: Iterable[Sample],
    *,
    names: tuple[str, str] = ("reference", "candidate"),
    scores: Sequence[str] = ("outputs",),
    engine: str = "onnxruntime",
    wanted: float = 1.0,
) -> Agreement:
    """Run both models on every sample. `scores`: globs that choose the output whose largest entry
    is the answer; `engine` runs the candidate; `wanted` is the share of samples on which they must
    agree. Raises NothingComparedError without samples or scores.
    """
    try:
        mine = engines.get("onnxruntime").prepare(reference)
        theirs = engines.get(engine).prepare(candidate)
    except UnsupportedError as e:
        raise NothingComparedError(e.diagnostics) from None
    place = scores_in(reference, scores)
    if place >= len(candidate.outputs):
        raise NothingComparedError(Diagnostic("N402", "the candidate has fewer outputs"))
    count, largest, different, right = 0, 0.0, list[Prediction](), [0, 0]
    with progress.step("running on the samples"):
        for sample in samples:
            count += 1
            arrays = sample.load()
            a = _answer(mine, reference, arrays, place)
            b = _answer(theirs, candidate, fed_to(candidate, reference, arrays), place)
            said = Prediction(sample.name, sample.label, int(a.argmax()), int(b.argmax()))
            largest = max(largest, float(np.abs(a - b).max())) if a.size == b.size else np.inf
            right[0] += said.reference == sample.label
            right[1] += said.candidate == sample.label
            if said.reference != said.candidate:
                different.append(said)
    if not count:
        raise NothingComparedError(Diagnostic("N402", "no samples were found"))
    return Agreement(
        names,
        reference.outputs[place].name,
        count,
        count - len(different),
        (right[0], right[1]),
        largest,
        tuple(different),
        wanted,
    )


def scores_in(model: Network, globs: Sequence[str]) -> int:
    """Return the index of the output that holds the scores: the first with more than one number."""
    for place, info in enumerate(model.outputs):
        chosen = globs in (("outputs",), ("all",)) or any(fnmatchcase(info.name, g) for g in globs)
        if chosen and info.dtype.kind == "f" and info.shape != ():
            return place
    what = f"no output contains scores (outputs: {', '.join(o.name for o in model.outputs)})"
    raise NothingComparedError(Diagnostic("N402", what, help="select one with --tensors NAME"))


def _answer(prepared: Any, model: Network, arrays: Arrays, place: int) -> Array:
    found = list(prepared.run(model.check_feeds(arrays)).values())[place]
    return np.asarray(found, np.float64).ravel()


def fed_to(candidate: Network, reference: Network, arrays: Arrays) -> Arrays:
    """Assign the arrays to the inputs of the candidate: by name, else by their order."""
    names = [i.name for i in candidate.inputs]
    if arrays.keys() <= {*names}:
        return arrays
    return {c: arrays[r.name] for c, r in zip(names, reference.inputs, strict=False)}


def samples_of(
    model: Network, data: Path, labels: str | None, prepared: Preparation | None = None
) -> list[Sample]:
    """Return the samples of a folder of images or .npz files, or of one .npz file whose arrays have
    the samples along their first axis. `labels` is a CSV file with the lines FILE,LABEL or, for one
    .npz file, the name of an array in it; labels are class numbers, from 0.
    """
    if data.is_dir():
        known = None if labels is None else read_labels(Path(labels))
        return list(_of_folder(model, data, known, prepared or Preparation()))
    return list(_of_archive(model, data, labels))


def read_labels(path: Path) -> dict[str, int]:
    """Read file -> label. A first line without a number is a heading."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            rows = [row for row in csv.reader(f) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise unreadable("R100", f"cannot read the labels: {e}", path) from None
    found: dict[str, int] = {}
    for number, row in enumerate(rows):
        try:
            found[row[0].strip()] = int(row[1])
        except (IndexError, ValueError):
            if number:
                why = f"line {number + 1} must be FILE,LABEL with a number"
                raise unreadable("R103", why, path) from None
    return found


def _of_folder(
    model: Network, folder: Path, labels: Mapping[str, int] | None, prepared: Preparation
) -> Iterator[Sample]:
    missing = [n for n in labels or () if not (folder / n).is_file()]
    if missing:
        why = f"{missing[0]!r} has a label, but is not in the folder"
        raise wrong_call(why, where=folder)
    kinds = (*IMAGES, ".npz")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in kinds)
    found = {str(p.relative_to(folder)): -1 for p in files} if labels is None else labels
    if not found and labels is None:
        raise unreadable("R100", "the folder contains no images and no .npz files", folder)
    for name, label in found.items():
        yield Sample(name, partial(_of_file, model, folder / name, prepared), label)


def _of_file(model: Network, path: Path, prepared: Preparation) -> Arrays:
    if path.suffix.lower() not in IMAGES:
        return _arrays(path)
    (info,) = _one(model)
    return {info.name: image(path, info, prepared)}


def _one(model: Network) -> tuple[TensorInfo]:
    if len(model.inputs) != 1:
        why = f"the model needs one input for images, but has {len(model.inputs)}"
        raise wrong_call(why, help="use .npz files with all inputs")
    return (model.inputs[0],)


def _arrays(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {n: archive[n] for n in archive.files}
    except Exception as e:  # zipfile and zlib raise their own exception types
        raise unreadable(
            "R103", f"the file is neither an image nor an .npz file: {e}", path
        ) from None


def _of_archive(model: Network, path: Path, labels: str | None) -> Iterator[Sample]:
    arrays = _arrays(path)
    if labels is not None and labels not in arrays:
        why = f"the file has no array {labels!r} with labels"
        raise wrong_call(why, help=f"the file has: {', '.join(arrays)}", where=path)
    known = {i.name: i for i in model.inputs if i.name in arrays}
    if labels is not None:
        right = [int(n) for n in arrays[labels].ravel()]
    else:
        right = [-1] * min((_count(i, arrays[n]) for n, i in known.items()), default=1)
    if len(right) == 1 and labels is None:
        yield Sample(path.name, lambda: {n: arrays[n] for n in known} or arrays)
        return
    for number, label in enumerate(right):
        yield Sample(f"{path.name}[{number}]", partial(_part, arrays, known, number), label)


def _part(arrays: Arrays, known: Mapping[str, TensorInfo], number: int) -> Arrays:
    """Return one sample of arrays that have the samples along their first axis."""
    return {
        n: arrays[n][number]
        if info.shape is None or arrays[n].ndim > len(info.shape)
        else arrays[n][number : number + 1]
        for n, info in known.items()
    }


def _count(info: TensorInfo, array: Array) -> int:
    """Return how many samples an array has along its first axis; 1 where it may be one sample."""
    sizes = [d for d in info.shape or () if isinstance(d, int)]
    if info.shape is None or not array.ndim:
        return 1
    if len(sizes) < len(info.shape):
        return len(array) if array.ndim > len(info.shape) else 1
    return len(array) if array.size == len(array) * math.prod(sizes) else 1


def image(path: Path, info: TensorInfo, prepared: Preparation) -> Array:
    """Convert an image to the form of an input: resized to its height and width, with its channels
    (1: gray, 3: red, green, blue). Raises UsageError U502 without Pillow.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        help = f"run {install('images')}"
        raise wrong_call("images need the package Pillow", help=help, code="U502") from None
    layout = prepared.layout or _layout(info)
    shape = list(info.shape or ())
    sizes = [d if isinstance(d, int) else None for d in shape[-3:]]
    if layout == "nhwc":
        sizes = [sizes[2], sizes[0], sizes[1]]
    channels, height, width = sizes
    try:
        with Image.open(path) as opened:
            picture = opened.convert("L" if channels == 1 else "RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as e:
        raise unreadable("R103", f"the image cannot be read: {e}", path) from None
    size = (width or picture.width, height or picture.height)
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, np.float32).reshape(size[1], size[0], -1)
    mean, std = (np.array(v or [d], np.float32) for v, d in ((prepared.mean, 0), (prepared.std, 1)))
    for what, values in (("--mean", mean), ("--std", std)):
        if values.size not in (1, pixels.shape[2]):
            why = f"{what} must have {pixels.shape[2]} numbers (one per channel), got {values.size}"
            raise wrong_call(why)
    pixels = (pixels - mean) / std
    array = pixels if layout == "nhwc" else pixels.transpose(2, 0, 1)
    return array[None] if len(shape) == 4 else array


def _layout(info: TensorInfo) -> str:
    """Return the layout: the channel axis has size 1 or 3, and is before the others if both are
    possible.
    """
    shape = info.shape or ()
    if len(shape) in (3, 4):
        if shape[-3] in (1, 3):
            return "nchw"
        if shape[-1] in (1, 3):
            return "nhwc"
    why = f"input {info.name!r} is not an image: {info}"
    raise wrong_call(why, help="give the position of the channels with --layout nchw or nhwc")
