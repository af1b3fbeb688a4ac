"""How far a quantized network is from the network of floats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from converter import engines
from converter.commands import dataset
from converter.commands.quantize.data import Sample
from converter.commands.verify.feeds import Feed
from converter.commands.verify.program import Program
from converter.engines import file
from converter.errors import Diagnostic, NothingComparedError
from converter.graph.infer import Array, Arrays
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.io import progress

CHUNK = 1 << 26  # bytes of inputs that an engine's process gets at once
EXACT = 200.0  # decibels that stand for no difference at all
Z = 1.96  # of an interval that holds the true share in 95 of 100 cases


@dataclass(frozen=True)
class Share:
    """How many of some samples, with the interval in which the share of all samples lies (Wilson's,
    95 %).
    """

    count: int
    of: int

    @property
    def value(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        n, p = self.of, self.value
        middle, half = p + Z * Z / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
        return tuple(max(0.0, min(1.0, (middle + s * half) / (1 + Z * Z / n))) for s in (-1, 1))  # type: ignore[return-value]

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2%} ({low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class Quality:
    """`sqnr`: signal to quantization noise of each output, in decibels. `agree`, `before` and
    `after`: the largest score is the same, is right in floats, and is right after quantization.
    """

    samples: int
    engine: str
    sqnr: Mapping[str, float]
    agree: Share | None = None
    before: Share | None = None
    after: Share | None = None

    @property
    def least(self) -> float:
        return min(self.sqnr.values(), default=EXACT)

    def drop(self, decibels: bool) -> float:
        """Return what is lost: decibels that are missing from 0, or a share of right or equal
        answers.
        """
        if decibels:
            return -self.least
        if self.before is not None and self.after is not None:
            return self.before.value - self.after.value
        return 0.0 if self.agree is None else 1 - self.agree.value

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Noise:
    """Sums over samples of squared numbers and squared differences, by name."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def add(self, name: str, expected: Array, actual: Array) -> None:
        signal = np.asarray(expected, np.float64).ravel()
        noise = np.asarray(actual, np.float64).ravel() - signal
        kept = self.sums.setdefault(name, [0.0, 0.0])
        kept[0] += float(np.square(signal[np.isfinite(signal)]).sum())
        kept[1] += float(np.square(noise[np.isfinite(noise)]).sum())

    def decibels(self) -> dict[str, float]:
        return {n: _decibels(*s) for n, s in self.sums.items()}


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return EXACT
    return 10 * math.log10(signal / noise) if signal else -EXACT


class Reference:
    """The float network with its answers for some samples, computed once."""

    def __init__(self, model: Network, samples: Sequence[Sample]) -> None:
        self.model, self.samples = model, samples
        self.labels = [s.label for s in samples]
        with progress.step("running the float network"):
            self.results = _run(model, "onnxruntime", (s.load() for s in samples))
        try:
            place = dataset.scores_in(model, ("outputs",))
            shape = model.outputs[place].shape or ()
        except NothingComparedError:
            place, shape = -1, ()
        flat = sum(d != 1 for d in shape[1:]) == 1 or (len(shape) == 1 and shape[0] != 1)
        self.scores = place if flat or any(n >= 0 for n in self.labels) else -1

    def quality(self, candidate: Network, *, native: bool = True) -> Quality:
        """Compare a network, in the engine of its file where there is one."""
        engine = file.engine_of(candidate) if native else ""
        engine = engine if engine and file.available(engine) else ""

        def feeds() -> Iterator[Arrays]:
            for sample in self.samples:
                yield fed(self.model, candidate, self.model.check_feeds(sample.load()))

        with progress.step("running the quantized network"):
            found = _natively(candidate, engine, feeds()) if engine else None
            if found is None:
                found, engine = _run(candidate, "onnxruntime", feeds()), "onnxruntime"
        noise = Noise()
        for a, b in zip(self.results, found, strict=True):
            for name, x, y in zip((o.name for o in self.model.outputs), a, b, strict=True):
                if np.asarray(x).dtype.kind == "f":
                    noise.add(name, x, as_shaped(np.asarray(y), np.shape(x)))
        return Quality(len(self.samples), engine, noise.decibels(), **self._answers(found))

    def _answers(self, found: Sequence[Sequence[Array]]) -> dict[str, Any]:
        if self.scores < 0 or not found:
            return {}
        mine, theirs = (
            [int(np.argmax(r[self.scores])) for r in rs] for rs in (self.results, found)
        )
        count = len(mine)
        more = {"agree": Share(sum(a == b for a, b in zip(mine, theirs, strict=True)), count)}
        if any(n >= 0 for n in self.labels):
            for key, answers in (("before", mine), ("after", theirs)):
                right = sum(a == n for a, n in zip(answers, self.labels, strict=True))
                more[key] = Share(right, count)
        return more


def _run(model: Network, engine: str, feeds: Iterable[Arrays]) -> list[list[Array]]:
    with engines.only_running():
        prepared = engines.get(engine).prepare(model)
        return [list(prepared.run(model.check_feeds(f)).values()) for f in feeds]


def _natively(model: Network, engine: str, feeds: Iterable[Arrays]) -> list[list[Array]] | None:
    """Run a file in its own engine; None if that cannot give its outputs in our order."""
    names = [public_name(v) for v in model.ir.graph.inputs]
    outputs = [public_name(v) for v in model.ir.graph.outputs]
    results: list[list[Array]] = []
    for part in _chunks(map(model.check_feeds, feeds)):
        assert model.source is not None
        ran = file.run(engine, model.source, names, [[f[n] for n in names] for f in part])
        if ran.stage in ("load", "run", "crash"):
            why = f"{engine} cannot run the quantized file: {ran.error}"
            raise NothingComparedError(Diagnostic("N405", why))
        order = [next((i for i, own in enumerate(ran.outputs) if n in own), -1) for n in outputs]
        if -1 in order and len(outputs) == len(ran.outputs):
            order = [*range(len(outputs))]
        if ran.stage != "done" or any(i not in r for r in ran.results for i in order):
            return None
        results += [[r[i] for i in order] for r in ran.results]
    return results


def _chunks(feeds: Iterable[Arrays]) -> Iterator[list[Arrays]]:
    part, size = list[Arrays](), 0
    for feed in feeds:
        part.append(feed)
        size += sum(a.nbytes for a in feed.values())
        if size > CHUNK:
            yield part
            part, size = [], 0
    if part:
        yield part


def fed(reference: Network, candidate: Network, arrays: Arrays) -> Arrays:
    """Return inputs of one network as those of another: by name or order, with images
    transposed.
    """
    found = dataset.fed_to(candidate, reference, arrays)
    shapes = {i.name: i.shape for i in candidate.inputs}
    return {n: as_shaped(a, shapes.get(n)) for n, a in found.items()}


def as_shaped(array: Array, shape: Sequence[Any] | None) -> Array:
    """Return an array in a shape that has the same sizes but for ones, or in another order of the
    axes of images.
    """
    sizes = [d if isinstance(d, int) else None for d in shape or ()]
    if shape is None or None in sizes or array.shape == tuple(shape):
        return array
    plain = [d for d in array.shape if d != 1], [d for d in sizes if d != 1]
    if plain[0] == plain[1]:
        return array.reshape(shape)
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2)):
        if array.ndim == 4 and array.transpose(perm).shape == tuple(shape):
            return array.transpose(perm)
    return array


def by_layer(
    reference: Network, candidate: Network, names: Iterable[str], feeds: Iterable[Arrays]
) -> dict[str, float]:
    """Return decibels of values that two graphs have under one name."""
    mine, theirs, noise = Program(reference), Program(candidate), Noise()
    kept = [n for n in names if n in mine.values and n in theirs.values]
    sessions = [p.compile(p.piece(kept, set(p.inputs))) for p in (mine, theirs)]
    for feed in feeds:
        given = Feed("", reference.check_feeds(feed)).by_value(reference)
        for name, a, b in zip(kept, *(s.run(given) for s in sessions), strict=True):
            noise.add(name, a, b)
    return noise.decibels()
