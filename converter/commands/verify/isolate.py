"""Own error and inherited error: every piece of the candidate also runs on the reference's inputs.

Both models advance together, one aligned tensor at a time; a tensor is let go after its last
reader, so memory is bounded by the widest cut through the networks. The unit is the smallest piece
between aligned tensors: usually one layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
import onnx_ir as ir

from converter.commands.verify.align import Alignment
from converter.commands.verify.cause import identical
from converter.commands.verify.compare import WORST, Difference, compare, wide
from converter.commands.verify.noise import (
    MORE_RUNS,
    MULTIPLE,
    RUNS,
    UNMOVED,
    Floor,
    Precision,
    coarsest,
    doubtful,
    jitter,
    spread,
    tolerance,
)
from converter.commands.verify.program import CannotRun, Jitter, Piece, Program, Session
from converter.graph.infer import Array, constant, shape_of
from converter.graph.walk import all_nodes, subgraphs

CLOSE = 1e-4  # of the largest number: the same numbers in another order
TOGETHER = 16  # units whose inputs are computed in one run of the reference
Values = list[Array]  # one array per feed
Tolerance = Callable[
    [str, Array], "Array | float | None"
]  # a user's own for this tensor, None: use the noise


@dataclass
class Unit:
    """One aligned tensor with the pieces that compute it on either side, and what was measured.

    `mine` and `theirs` are what runs, `nodes` and `others` the same pieces in the models
    themselves.
    """

    name: str
    other: str
    mine: Piece
    theirs: Piece
    nodes: tuple[ir.Node, ...]
    others: tuple[ir.Node, ...]
    own: Difference = field(default_factory=Difference)
    total: Difference | None = None
    broken: bool = False  # wrong by itself
    upstream: bool = False  # something wrong flows in
    turned: bool = False  # wrong, but for another order of its axes
    by_feed: list[Difference] = field(default_factory=list)  # own, where it was judged
    step: float = 0.0  # the relative step of its coarsest type, on either side


class LockStep:
    """Runs two programs piece by piece on the same feeds (arrays by value name, one dict per
    feed).
    """

    def __init__(
        self,
        mine: Program,
        theirs: Program,
        alignment: Alignment,
        limit: Tolerance,
        steps: dict[str, float],
    ) -> None:
        self.mine, self.theirs, self.limit, self.steps = mine, theirs, limit, steps
        pairs = {
            r: c for r, c in alignment.pairs.items() if r in mine.values and c in theirs.values
        }
        self.back = {c: r for r, c in [*alignment.inputs, *pairs.items()]}
        stops = {r for r, _ in alignment.inputs} | pairs.keys()
        others = {c for _, c in alignment.inputs} | set(pairs.values())
        order = sorted((mine.place[p], r) for r in pairs if (p := mine.node(r)) is not None)
        self.units = [self._unit(r, pairs[r], stops, others) for _, r in order]
        self.inputs = alignment.inputs
        self._by_other = {u.other: u for u in self.units}

    def _unit(self, name: str, other: str, stops: set[str], others: set[str]) -> Unit:
        unit = Unit(
            name,
            other,
            self.mine.piece([name], stops),
            self.theirs.piece([other], others),
            self.mine.source.piece([name], stops).nodes,
            self.theirs.source.piece([other], others).nodes,
        )
        unit.step = max(_step(unit.nodes), _step(unit.others))
        return unit

    def precision(self) -> Precision:
        """The steps of the reference's tensors, each by the types of its piece on either side."""
        steps = {r: coarsest([self.mine.values[r], self.theirs.values[c]]) for r, c in self.inputs}
        for u in self.units:
            for n in u.mine.nodes:
                steps.update(
                    (str(o.name), max(u.step, steps.get(str(o.name), 0.0))) for o in n.outputs
                )
        return Precision(steps)

    def run(
        self, feeds: Sequence[dict[str, Array]], others: Sequence[dict[str, Array]]
    ) -> Iterator[Unit]:
        """Yields each unit when it is measured, in the order of the reference as far as both allow.
        CannotRun: the reference cannot.
        """
        a: dict[str, Values] = {r: [f[r] for f in feeds] for r in self.mine.inputs}
        b: dict[str, Values | None] = {c: [f[c] for f in others] for _, c in self.inputs}
        mine, theirs = self._readers()
        waiting: dict[str, list[Unit]] = defaultdict(list)
        for unit in self.units:
            session = self.mine.compile(unit.mine)
            a[unit.name] = [
                session.run({n: a[n][i] for n in unit.mine.inputs})[0] for i in range(len(feeds))
            ]
            ready = [unit]
            while ready:
                u = ready.pop()
                missing = next((n for n in u.theirs.inputs if n not in b), None)
                if missing is not None:
                    waiting[missing].append(u)
                    continue
                b[u.other] = self._measure(u, a, b)
                yield u
                ready.extend(waiting.pop(u.other, ()))
                _release(
                    a, mine, [*u.mine.inputs, *(self.back[n] for n in u.theirs.inputs), u.name]
                )
                _release(b, theirs, [*u.theirs.inputs, u.other])

    def any_broken(self, names: Sequence[str], feeds: Sequence[dict[str, Array]]) -> bool:
        """Whether one of the units `names` is wrong by itself; nothing else of the candidate
        runs.
        """
        chosen = [u for u in self.units if u.name in set(names)]
        for start in range(0, len(chosen), TOGETHER):
            units = chosen[start : start + TOGETHER]
            wanted = list(
                dict.fromkeys(
                    n
                    for u in units
                    for n in (*u.mine.inputs, *(self.back[c] for c in u.theirs.inputs), u.name)
                )
            )
            session = self.mine.compile(self.mine.piece(wanted, set(self.mine.inputs)))
            results = [session.run(f) for f in feeds]
            del session  # its weights are large where the network is
            a = {n: [r[i] for r in results] for i, n in enumerate(wanted)}
            if any(self._broken(u, a) for u in units):
                return True
        return False

    def _broken(self, u: Unit, a: dict[str, Values]) -> bool:
        given: dict[str, Values | None] = {
            n: [in_shape(x, self.theirs.values[n]) for x in a[self.back[n]]]
            for n in u.theirs.inputs
        }
        try:
            session = self.theirs.compile(u.theirs)
            results = [
                session.run({n: v[i] for n, v in given.items() if v is not None})[0]
                for i in range(len(a[u.name]))
            ]
            del session
            if not all(compare(x, y).equal for x, y in zip(a[u.name], results, strict=True)):
                self._judge(u, a, results)
            elif (table := _unread(u, u.step)) is not None:
                u.broken = table.excess > 1
        except CannotRun:
            return True
        return u.broken

    def _readers(self) -> tuple[Counter[str], Counter[str]]:
        mine: Counter[str] = Counter()
        theirs: Counter[str] = Counter()
        for u in self.units:
            mine.update([*u.mine.inputs, *(self.back[n] for n in u.theirs.inputs), u.name])
            theirs.update([*u.theirs.inputs, u.other])
        return mine, theirs

    def _measure(self, u: Unit, a: dict[str, Values], b: dict[str, Values | None]) -> Values | None:
        """Own and total error of one unit; gives the candidate's values, None when they cannot be
        computed.
        """
        given = {n: b[n] for n in u.theirs.inputs}
        u.upstream = any(
            (w := self._by_other.get(n)) is not None and (w.broken or w.upstream)
            for n in u.theirs.inputs
        )
        count = len(a[u.name])
        try:
            session = self.theirs.compile(u.theirs)
        except CannotRun as e:
            u.own, u.broken = _impossible(e), True
            return None
        chain = self._chain(session, given, count)
        results: Values = []
        try:
            for i in range(count):
                inputs = {n: _shaped(a[self.back[n]][i], given[n], i) for n in u.theirs.inputs}
                # when nothing differs upstream, the chain is the isolated run
                as_chain = chain is not None and all(
                    _identical(x, given[n], i) for n, x in inputs.items()
                )
                results.append(
                    chain[i] if as_chain and chain is not None else session.run(inputs)[0]
                )
        except CannotRun as e:
            u.own, u.broken = _impossible(e), True
            return chain
        del session
        if not all(compare(x, y).equal for x, y in zip(a[u.name], results, strict=True)):
            self._judge(u, a, results)
        elif (table := _unread(u, u.step)) is not None:
            u.own, u.broken = table, table.excess > 1
        if chain is not None:
            u.total = worst(
                [
                    compare(x, y, self.limit(u.name, x))
                    for x, y in zip(a[u.name], chain, strict=True)
                ]
            )
        return chain

    def _chain(
        self, session: Session, given: dict[str, Values | None], count: int
    ) -> Values | None:
        if any(v is None for v in given.values()):
            return None
        try:
            return [
                session.run({n: v[i] for n, v in given.items() if v is not None})[0]
                for i in range(count)
            ]
        except CannotRun:
            return None

    def _judge(self, u: Unit, a: dict[str, Values], results: Values) -> None:
        """Compares the isolated results again, against the noise of the reference's own piece; what
        exceeds it by little, against more of it.
        """
        self._judge_by(u, a, results, RUNS)
        if doubtful(u.own, self.mine.cancels(u.mine)):
            self._judge_by(u, a, results, MORE_RUNS)
        wrong = [i for i, d in enumerate(u.by_feed) if d.excess > 1]
        u.broken = bool(wrong)
        u.turned = u.broken and all(_turned(a[u.name][i], results[i]) for i in wrong)

    def _judge_by(self, u: Unit, a: dict[str, Values], results: Values, runs: int) -> None:
        limits = [self.limit(u.name, base) for base in a[u.name]]
        floors = self._floors(u, a, runs) if any(n is None for n in limits) else []
        unmoved = 1.0 if runs == RUNS else UNMOVED
        u.by_feed = []
        for i, (base, limit) in enumerate(zip(a[u.name], limits, strict=True)):
            if limit is None:
                other = self.steps.get(u.other, 0.0)
                limit = tolerance(base, floors[i], u.step, other, unmoved)
            u.by_feed.append(compare(base, results[i], limit))
        u.own = worst(u.by_feed)

    def _floors(self, u: Unit, a: dict[str, Values], runs: int) -> list[Floor]:
        """The noise of the reference's own piece with each feed. One session at a time: each has
        its own copy of the weights, with jitter.
        """
        moved = Precision({}, u.step)
        feeds = [{n: a[n][i] for n in u.mine.inputs} for i in range(len(a[u.name]))]
        repeats = []
        for k in range(runs):
            session = self.mine.compile(u.mine, Jitter(k + 1, moved))
            random = [np.random.default_rng([k, i]) for i in range(len(feeds))]
            shaken = (
                {n: jitter(x, rng, u.step) for n, x in feed.items()}
                for feed, rng in zip(feeds, random, strict=True)
            )
            repeats.append(_each(session, shaken))
        exact = self._in_floats(u)
        repeats += [] if exact is None else [_each(exact, feeds)]
        floors = _spreads(a[u.name], repeats)
        sessions = self._formulas(u, moved) if runs > RUNS else ()
        terms = [[s.run(f)[0] for f in feeds] for s in sessions]
        if terms:
            floors = list(map(np.maximum, floors, _spreads(terms[0], terms[1:])))
        return floors

    def _formulas(self, u: Unit, moved: Precision) -> Iterator[Session]:
        """The piece with formulas for functions that cancel: as they are, then with jitter."""
        formulas = self.mine.formulas if self.mine.cancels(u.mine) else None
        if formulas is not None:
            piece = formulas.piece(u.mine.targets, u.mine.inputs)
            for j in (None, *(Jitter(i + 1, moved) for i in range(RUNS))):
                yield formulas.compile(piece, j, optimise=False)

    def _in_floats(self, u: Unit) -> Session | None:
        try:
            return self.mine.compile(u.mine, floats=True) if self.mine.halves else None
        except CannotRun:
            return None


def _each(session: Session, feeds: Iterable[dict[str, Array]]) -> list[Array | None]:
    """The first result for each feed, None where it cannot be computed."""
    found: list[Array | None] = []
    for feed in feeds:
        try:
            found.append(session.run(feed)[0])
        except CannotRun:
            found.append(None)
    return found


def _spreads(base: Values, repeats: Sequence[Sequence[Array | None]]) -> list[Floor]:
    return [
        spread(x, [r for of_run in repeats if (r := of_run[i]) is not None])
        for i, x in enumerate(base)
    ]


def _step(nodes: Sequence[ir.Node]) -> float:
    inner = [v for n in nodes for g in subgraphs(n) for m in all_nodes(g) for v in m.outputs]
    return coarsest([*inner, *(v for n in nodes for v in (*n.inputs, *n.outputs))])


def _turned(base: Array, result: Array) -> bool:
    """Whether one is the other with its axes in another order."""
    if (
        base.dtype.kind not in "fiu"
        or result.dtype.kind != base.dtype.kind
        or not 2 <= base.ndim == result.ndim <= 5
        or not base.size
    ):
        return False
    x, y = wide(base), wide(result)
    limit = CLOSE * float(np.max(np.abs(x), initial=0.0))
    with np.errstate(all="ignore"):
        return any(
            x.transpose(p).shape == y.shape and float(np.max(np.abs(x.transpose(p) - y))) <= limit
            for p in permutations(range(x.ndim))
            if p != tuple(range(x.ndim))
        )


def _unread(u: Unit, step: float) -> Difference | None:
    """The difference of two lookup tables, most of whose rows no feed may have read."""
    if (
        len(u.nodes) != 1
        or len(u.others) != 1
        or any(n.op_type not in _LOOKUPS for n in (*u.nodes, *u.others))
    ):
        return None
    a, b = constant(u.nodes[0].inputs[0]), constant(u.others[0].inputs[0])
    if a is None or b is None or a.shape != b.shape or identical(a, b):
        return None
    return replace(
        compare(a, b, MULTIPLE * step * np.abs(wide(a)) if a.dtype.kind == "f" else 0.0),
        note="in rows that no input reached",
    )


_LOOKUPS = {"Gather", "GatherElements", "GatherND"}


def worst(differences: Sequence[Difference]) -> Difference:
    return max(differences, key=lambda d: (d.excess, d.max_abs), default=Difference())


def _impossible(e: CannotRun) -> Difference:
    return replace(WORST, note=f"cannot run on the reference's inputs: {e}")


def _identical(x: Array, others: Values | None, i: int) -> bool:
    if others is None:
        return False
    y = others[i]
    return x is y or (x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())


def _shaped(array: Array, template: Values | None, i: int) -> Array:
    """The reference's array in the shape in which the candidate has that tensor (dimensions of one
    may differ).
    """
    if template is not None and template[i].shape != array.shape and template[i].size == array.size:
        return array.reshape(template[i].shape)
    return array


def in_shape(array: Array, value: ir.Value) -> Array:
    """The array in the shape of a value, where only dimensions of one differ."""
    shape = shape_of(value)
    fits = shape is not None and int(np.prod(shape)) == array.size
    return array.reshape(shape) if shape is not None and fits else array


def _release(
    values: dict[str, Values] | dict[str, Values | None], left: Counter[str], names: Sequence[str]
) -> None:
    for n in names:
        left[n] -= 1
        if left[n] == 0:
            del values[n]
