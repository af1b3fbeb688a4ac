"""Measure how far a quantized network is from the network of floats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from converter import engines
from converter.commands.dataset import Sample, fed_to, scores_in
from converter.commands.verify.native import output_order
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


def interval(count: int, of: int) -> tuple[float, float]:
    """Return the least and the largest share that a count stands for (Wilson's interval, 95 %)."""
    share = count / of
    middle, whole = share + Z * Z / (2 * of), 1 + Z * Z / of
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


@dataclass(frozen=True)
class Quality:
    """`sqnr`: signal to quantization noise of each output, in decibels. Numbers of samples whose
    largest score is the same (`agree`), right in floats (`before`) and quantized (`after`).
    """

    samples: int
    engine: str
    sqnr: Mapping[str, float]
    agree: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def least(self) -> float:
        return min(self.sqnr.values(), default=EXACT)

    @property
    def lost(self) -> int:
        """The number of right answers that are lost, or of answers that are others."""
        if self.before is not None and self.after is not None:
            return max(0, self.before - self.after)
        return 0 if self.agree is None else self.samples - self.agree

    def shares(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield each count with its name: the number of samples, their share of all, and its
        interval.
        """
        counts = {"same answer": self.agree, "right": self.after, "right in floats": self.before}
        counts["lost"] = None if self.agree is None else self.lost
        for name, count in counts.items():
            if count is not None:
                low, high = interval(count, self.samples)
                yield name, count, f"{count / self.samples:.2%}", f"{low:.1%} to {high:.1%}"

    def as_json(self) -> dict[str, Any]:
        """Return the quality as plain data."""
        return asdict(self)


class Noise:
    """Sums over samples of squared numbers and squared differences, by name."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def add(self, name: str, expected: Array, actual: Array) -> None:
        """Add the energies of a signal and of its error, of finite numbers only."""
        signal = np.asarray(expected, np.float64).ravel()
        noise = np.asarray(actual, np.float64).ravel() - signal
        kept = self.sums.setdefault(name, [0.0, 0.0])
        for i, part in enumerate((signal, noise)):
            kept[i] += float(np.square(part[np.isfinite(part)]).sum())

    def decibels(self) -> dict[str, float]:
        """Return the signal-to-noise ratio of each value, in decibels."""
        return {
            n: 10 * math.log10(a / b) if a and b else -EXACT if b else EXACT
            for n, (a, b) in self.sums.items()
        }


class Reference:
    """The float network with its results for some samples, computed once."""

    def __init__(self, model: Network, samples: Sequence[Sample]) -> None:
        self.model, self.samples = model, samples
        with progress.step("running the float network"):
            self.results = _run(model, (s.load() for s in samples))
        self.labeled = any(s.label >= 0 for s in samples)
        try:
            self.scores = scores_in(model, ("outputs",))
            shape = model.outputs[self.scores].shape or ()
        except NothingComparedError:
            self.scores, shape = -1, ()
        if not self.labeled and sum(d != 1 for d in shape[1:] or shape) != 1:
            self.scores = -1

    def quality(self, candidate: Network, *, native: bool = True) -> Quality:
        """Compare a network, in the engine of its file where there is one."""
        engine = file.engine_of(candidate) if native else ""

        def feeds() -> Iterator[Arrays]:
            shapes = {i.name: i.shape for i in candidate.inputs}
            for sample in self.samples:
                given = fed_to(candidate, self.model, self.model.check_feeds(sample.load()))
                yield candidate.check_feeds(
                    {n: as_shaped(a, shapes.get(n)) for n, a in given.items()}
                )

        with progress.step("running the quantized network"):
            known = engine and file.available(engine)
            found = _natively(candidate, engine, feeds()) if known else None
            if found is None:
                found, engine = _run(candidate, feeds()), "onnxruntime"
        noise, outputs = Noise(), [o.name for o in self.model.outputs]
        for mine, theirs in zip(self.results, found, strict=True):
            for name, x, y in zip(outputs, mine, theirs, strict=True):
                if np.asarray(x).dtype.kind == "f":
                    noise.add(name, x, as_shaped(np.asarray(y), np.shape(x)))
        return Quality(len(self.samples), engine, noise.decibels(), *self._answers(found))

    def _answers(self, found: Sequence[Sequence[Array]]) -> Iterator[int]:
        if self.scores >= 0 and found:
            mine, theirs = (
                [int(np.argmax(r[self.scores])) for r in results]
                for results in (self.results, found)
            )
            yield sum(a == b for a, b in zip(mine, theirs, strict=True))
            for answers in (mine, theirs) if self.labeled else ():
                yield sum(a == s.label for a, s in zip(answers, self.samples, strict=True))


def _run(model: Network, feeds: Iterable[Arrays]) -> list[list[Array]]:
    with engines.only_running():
        prepared = engines.get("onnxruntime").prepare(model)
        return [list(prepared.run(model.check_feeds(f)).values()) for f in feeds]


def _natively(model: Network, engine: str, feeds: Iterator[Arrays]) -> list[list[Array]] | None:
    """Run a file in its own engine; None if that cannot give its outputs in our order."""
    names = [public_name(v) for v in model.ir.graph.inputs]
    outputs = [public_name(v) for v in model.ir.graph.outputs]
    results, part = list[list[Array]](), list[list[Array]]()
    for feed in feeds:
        part.append([feed[n] for n in names])
        if sum(a.nbytes for f in part for a in f) > CHUNK:
            results, part = results + _part(model, engine, names, outputs, part), []
    if part:
        results += _part(model, engine, names, outputs, part)
    return None if any(not r for r in results) else results


def _part(
    model: Network, engine: str, names: list[str], outputs: list[str], feeds: list[list[Array]]
) -> list[list[Array]]:
    assert model.source is not None
    ran = file.run(engine, model.source, names, feeds, full_floats=True)
    if ran.stage in ("load", "run", "crash"):
        why = f"{engine} does not run the quantized file: {ran.error}"
        raise NothingComparedError(Diagnostic("N405", why))
    order = output_order(outputs, ran.outputs) or ()
    return [[r[i] for i in order if i in r] for r in ran.results] or [[]]


def as_shaped(array: Array, shape: Sequence[Any] | None) -> Array:
    """Return an array in a shape that has the same sizes but for ones, or in another order of the
    axes of images.
    """
    if shape is None or array.shape == tuple(shape) or not all(isinstance(d, int) for d in shape):
        return array
    if [d for d in array.shape if d != 1] == [d for d in shape if d != 1]:
        return array.reshape(shape)
    transposed = [array.transpose(p) for p in ((0, 2, 3, 1), (0, 3, 1, 2)) if array.ndim == 4]
    return next((a for a in transposed if a.shape == tuple(shape)), array)


def by_layer(
    reference: Network, candidate: Network, names: Iterable[str], feeds: Sequence[Arrays]
) -> dict[str, float]:
    """Return decibels of values that two graphs have under one name, for feeds by the names of the
    graphs' inputs.
    """
    programs, noise = [Program(reference), Program(candidate)], Noise()
    kept = [n for n in names if all(n in p.values for p in programs)]
    for mine, theirs in zip(*(p.stream(kept, feeds) for p in programs), strict=True):
        for name, array in mine.items():
            noise.add(name, array, theirs[name])
    return noise.decibels()
