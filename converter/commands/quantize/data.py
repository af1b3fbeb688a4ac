"""The samples of a data set, read one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from converter.commands import dataset
from converter.commands.dataset import IMAGES, Preparation
from converter.commands.verify.feeds import feeds_for
from converter.commands.verify.sizes import Shape, shapes_for
from converter.errors import unreadable, wrong_call
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network, TensorInfo
from converter.graph.record import record


@record
class Sample:
    """One set of inputs, which `load` reads. `label` is the right class, -1 where none is given."""

    name: str
    load: Callable[[], Arrays]
    label: int = -1


def samples_of(
    model: Network,
    data: Any,
    labels: str | None = None,
    prepared: Preparation | None = None,
    seed: int = 0,
    inputs: Any = None,
) -> list[Sample]:
    """Return the samples of `data`: folders of images or .npz files, .npz files whose arrays hold
    samples along their first axis, and what `netconv verify --data` takes. `labels`: as there.
    """
    prepared = prepared or Preparation()
    items = [data] if isinstance(data, str | Path) or not isinstance(data, Sequence) else [*data]
    if labels is not None and len(items) != 1:
        raise wrong_call("--labels needs one --data: a folder, or an .npz file with samples")
    shapes = shapes_for(model, inputs)
    return [s for item in items for s in _of(model, item, labels, prepared, (seed, shapes))]


def _of(
    model: Network,
    item: Any,
    labels: str | None,
    prepared: Preparation,
    drawn: tuple[int, dict[str, Shape]],
) -> Iterator[Sample]:
    path = Path(item) if isinstance(item, str | Path) else None
    if path is not None and path.is_dir():
        known = None if labels is None else dataset.read_labels(Path(labels))
        kinds = (*IMAGES, ".npz")
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in kinds)
        for name in known or [str(p.relative_to(path)) for p in found]:
            load = partial(_of_file, model, path / name, prepared)
            yield Sample(name, load, -1 if known is None else known[name])
        if not found:
            raise unreadable("R100", "the folder contains no images and no .npz files", path)
    elif path is not None and path.suffix == ".npz":
        yield from _of_archive(model, path, labels)
    else:
        for feed in feeds_for(model, item, drawn[0], shapes=drawn[1]):
            yield Sample(feed.name, partial(dict, feed.arrays))


def _of_file(model: Network, path: Path, prepared: Preparation) -> Arrays:
    if path.suffix.lower() not in IMAGES:
        return dataset.arrays_of(path)
    (info,) = dataset.only_input(model)
    return {info.name: dataset.image(path, info, prepared)}


def _of_archive(model: Network, path: Path, labels: str | None) -> Iterator[Sample]:
    arrays = dataset.arrays_of(path)
    right = None if labels is None else dataset.array_in(arrays, labels, path).ravel()
    infos = {i.name: i for i in model.inputs if i.name in arrays}
    given = {n: arrays[n] for n in infos} or arrays  # the model names what is missing
    count = min((_samples(info, arrays[n]) for n, info in infos.items()), default=1)
    if count == 1 and right is None:
        yield Sample(path.name, partial(dict, given))
        return
    for i in range(count if right is None else len(right)):
        load = partial(dataset.part_of, given, infos, i)
        yield Sample(f"{path.name}[{i}]", load, -1 if right is None else int(right[i]))


def _samples(info: TensorInfo, array: Array) -> int:
    """Return how many samples an array holds along its first axis."""
    shape = info.shape
    if shape is None or not array.ndim:
        return 1
    if all(isinstance(d, int) for d in shape):
        size = int(np.prod([d for d in shape if isinstance(d, int)]))
        return len(array) if size and array.size == size * len(array) else 1
    return len(array) if array.ndim > len(shape) else 1


def digest(feeds: Sequence[Arrays]) -> str:
    """Return the SHA-256 of arrays, by their names."""
    found = hashlib.sha256()
    for feed in feeds:
        for name in sorted(feed):
            found.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode())
            found.update(np.ascontiguousarray(feed[name]).tobytes())
    return found.hexdigest()
