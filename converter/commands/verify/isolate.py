"""Own error and inherited error: every piece of the candidate also runs on the reference's inputs.

Both models advance together, one aligned tensor at a time; a tensor is released after its last
consumer, so memory is bounded by the widest cut through the networks. The unit is the smallest
piece between aligned tensors: usually one layer.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from converter.commands.verify.align import Alignment
from converter.commands.verify.cause import identical
from converter.commands.verify.compare import (
    WORST,
    Difference,
    compare,
    distance,
    same_shape,
    transposed,
    wide,
)
from converter.commands.verify.floor import DRAWN, anywhere
from converter.commands.verify.noise import (
    MORE_RUNS,
    MULTIPLE,
    RUNS,
    UNMOVED,
    Floor,
    Precision,
    coarsest,
    doubtful,
    quantization_steps,
    shaken,
    small,
    spread,
    step_of,
    tolerance,
)
from converter.commands.verify.numbers import in_other_units
from converter.commands.verify.program import ROUNDING, CannotRun, Jitter, Piece, Program, Session
from converter.commands.verify.truth import in_doubles
from converter.graph.infer import Array, Arrays, constant, shape_of

CLOSE = 1e-4  # relative to the largest number: the same numbers in another order
# relative to the rounded value: the error of engines that multiply by 15-bit integers
TIES = 2.0**-13
# the share (or, for small tensors, the number) of elements of a quantized tensor that may be off
# without a tie: by a step, or by the effect of ties elsewhere in the tensor
NOW_AND_THEN, FEW = 0.1, 2
STEP_ROUNDING = 1e-3  # of a step: two floats that are a step apart
TOGETHER = 16  # units whose inputs are computed in one run of the reference
Values = list[Array]  # one array per feed
Tolerance = Callable[
    [str, Array], "Array | float | None"
]  # a user's own for this tensor, None: use the noise


@dataclass
class Unit:
    """One aligned tensor with the pieces that compute it in both models, and their measured errors.
    `mine` and `theirs` are the pieces that run, `nodes` and `others` the same pieces in the models
    themselves.
    """

    name: str
    other: str
    mine: Piece
    theirs: Piece
    given: dict[str, str]  # inputs of `theirs` -> their names in the reference
    nodes: tuple[ir.Node, ...]
    others: tuple[ir.Node, ...]
    own: Difference = field(default_factory=Difference)
    total: Difference | None = None
    broken: bool = False  # wrong by itself
    upstream: bool = False  # a wrong tensor flows in
    transposed: bool = False  # wrong, but equal after transposing, or in other units
    by_feed: list[Difference] = field(default_factory=list)  # own error, where it was judged
    step: float = 0.0  # the relative step of its coarsest type, on either side

    @property
    def reads(self) -> list[str]:
        """Return the reference's tensors that are needed to judge this one: the inputs of both
        pieces, and the result.
        """
        return [*self.mine.inputs, *self.given.values(), self.name]

    def given_by(self, values: Mapping[str, Array], program: Program) -> Arrays:
        """Return the inputs of `theirs`, a piece of `program`, from the reference's tensors."""
        return {c: in_shape(values[r], program.values[c]) for c, r in self.given.items()}


class LockStep:
    """Run two programs piece by piece on the same feeds (arrays by value name, one dict per
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
        self.own_steps = quantization_steps(mine.ir)
        pairs = {
            r: c for r, c in alignment.pairs.items() if r in mine.values and c in theirs.values
        }
        self.back = replace(alignment, pairs=pairs).back
        stops = {r for r, _ in alignment.inputs} | pairs.keys()
        others = {c for _, c in alignment.inputs} | set(pairs.values())
        order = sorted((mine.order[p], r) for r in pairs if (p := mine.node(r)) is not None)
        self.units = [self._unit(r, pairs[r], stops, others) for _, r in order]
        self.inputs = alignment.inputs
        self._by_other = {u.other: u for u in self.units}
        self.lost = set[str]()  # tensors of the candidate that cannot be computed

    def _unit(self, name: str, other: str, stops: set[str], others: set[str]) -> Unit:
        theirs = self.theirs.piece([other], others)
        unit = Unit(
            name,
            other,
            self.mine.piece([name], stops),
            theirs,
            {n: self.back[n] for n in theirs.inputs},
            self.mine.source.piece([name], stops).nodes,
            self.theirs.source.piece([other], others).nodes,
        )
        unit.step = step_of([*unit.nodes, *unit.others])
        return unit

    def precision(self) -> Precision:
        """Return the steps of the reference's tensors, each determined by the types of its piece on
        either side.
        """
        steps = {r: coarsest([self.mine.values[r], self.theirs.values[c]]) for r, c in self.inputs}
        for u in self.units:
            for n in u.mine.nodes:
                steps.update(
                    (str(o.name), max(u.step, steps.get(str(o.name), 0.0))) for o in n.outputs
                )
        return Precision(steps)

    def run(self, feeds: Sequence[Arrays], others: Sequence[Arrays]) -> Iterator[Unit]:
        """Yield each unit after it is measured, in the order of the reference as far as both models
        allow. Raises CannotRun if the reference cannot run.
        """
        a, b = ([dict(values) for values in each] for each in (feeds, others))
        mine, theirs = self._readers()
        waiting: dict[str, list[Unit]] = defaultdict(list)
        self.lost.clear()
        for unit in self.units:
            session = self.mine.compile(unit.mine)
            for values in a:
                (values[unit.name],) = session.run(values)
            ready = [unit]
            while ready:
                u = ready.pop()
                known = self.lost | b[0].keys()
                missing = next((n for n in u.theirs.inputs if n not in known), None)
                if missing is not None:
                    waiting[missing].append(u)
                    continue
                self._measure(u, a, b)
                yield u
                ready.extend(waiting.pop(u.other, ()))
                _release(a, mine, u.reads)
                _release(b, theirs, [*u.theirs.inputs, u.other])

    def any_broken(self, names: Sequence[str], feeds: Sequence[Arrays]) -> bool:
        """Return whether one of the units `names` is wrong by itself; no other piece of the
        candidate runs.
        """
        chosen = [u for u in self.units if u.name in set(names)]
        for start in range(0, len(chosen), TOGETHER):
            units = chosen[start : start + TOGETHER]
            results = self.mine.tensors((n for u in units for n in u.reads), feeds)
            if any(self._broken(u, results) for u in units):
                return True
        return False

    def _broken(self, u: Unit, computed: Sequence[Arrays]) -> bool:
        try:
            session = self.theirs.compile(u.theirs)
            results = [session.run(u.given_by(values, self.theirs))[0] for values in computed]
            del session
            self._judge(u, computed, results)
        except CannotRun:
            return True
        return u.broken

    def _readers(self) -> tuple[Counter[str], Counter[str]]:
        mine: Counter[str] = Counter()
        theirs: Counter[str] = Counter()
        for u in self.units:
            mine.update(u.reads)
            theirs.update([*u.theirs.inputs, u.other])
        return mine, theirs

    def _measure(self, u: Unit, a: Sequence[Arrays], b: Sequence[Arrays]) -> None:
        """Measure own and total error of one unit from the values of either side for each feed. The
        candidate's results are added to its values, or marked as `lost` if they cannot be computed.
        """
        sources = map(self._by_other.get, u.theirs.inputs)
        u.upstream = any(s is not None and (s.broken or s.upstream) for s in sources)
        chain: Sequence[Array | None] = [None] * len(a)
        results: Values = []
        try:
            session = self.theirs.compile(u.theirs)
            if self.lost.isdisjoint(u.theirs.inputs):
                with contextlib.suppress(CannotRun):
                    chain = [session.run(values)[0] for values in b]
            for mine, theirs, result in zip(a, b, chain, strict=True):
                inputs = {c: _shaped(mine[r], theirs.get(c)) for c, r in u.given.items()}
                # if nothing differs upstream, the chained run equals the isolated run
                if result is None or not all(_identical(x, theirs[c]) for c, x in inputs.items()):
                    result = session.run(inputs)[0]
                results.append(result)
        except CannotRun as e:
            u.own, u.broken = _impossible(e), True
        else:
            del session
            self._judge(u, a, results)
            bases = [values[u.name] for values in a]
            total = [
                compare(x, y, self.limit(u.name, x))
                for x, y in zip(bases, chain, strict=True)
                if y is not None
            ]
            u.total = worst(total) if total else None
        for values, result in zip(b, chain, strict=True):
            if result is None:
                self.lost.add(u.other)
            else:
                values[u.other] = result

    def _judge(self, u: Unit, a: Sequence[Arrays], results: Values) -> None:
        """Compare the isolated results: bit for bit, then against the noise of the reference's own
        piece; a result that slightly exceeds it, against more measurements of the noise.
        """
        bases = [values[u.name] for values in a]
        if all(compare(x, y).equal for x, y in zip(bases, results, strict=True)):
            if (table := _unread(u)) is not None:
                u.own, u.broken = table, table.excess > 1
            return
        if self.rounds(u) and self.limit(u.name, bases[0]) is None:
            self._judge_steps(u, a, results)
            return
        self._judge_by(u, a, results, RUNS)
        if doubtful(u.own, self.mine.cancels(u.mine)):
            self._judge_by(u, a, results, MORE_RUNS)
        if small(u.own) and (errors := self._errors(u, a, results)) is not None:
            self._judge_by(u, a, results, MORE_RUNS, errors)
        wrong = [i for i, d in enumerate(u.by_feed) if d.excess > 1]
        u.broken = bool(wrong)
        u.transposed = u.broken and all(self._unrelated(bases[i], results[i]) for i in wrong)

    def _unrelated(self, base: Array, result: Array) -> bool:
        """Return whether two tensors are equal after transposing or, in quantized networks, in
        other units, so that their pairing is doubtful.
        """
        return _is_transposition(base, result) or (
            self.mine.quantized and in_other_units(base, result)
        )

    def rounds(self, u: Unit) -> bool:
        """Return whether a piece quantizes."""
        return self.mine.quantized and any(n.op_type in ROUNDING for n in u.mine.nodes)

    def _judge_steps(self, u: Unit, a: Sequence[Arrays], results: Values) -> None:
        """Compare quantized results: a difference of one step is allowed where the reference is at
        a tie, and so are its effects later in the piece; elsewhere only in a few elements, as
        tables and approximations in integers cause.
        """
        bases = [values[u.name] for values in a]
        step = max(self.steps.get(u.other, 0.0), self.own_steps.get(u.name, 0.0))
        ties = self._ties(u, a)
        rounding = [_rounding(base, u.step) for base in bases]
        limits = list(map(np.maximum, ties, rounding))
        apart = [distance(x, _alike(x, y)) for x, y in zip(bases, results, strict=True)]
        off = sum(int((d > n).sum()) for d, n in zip(apart, limits, strict=True))
        if off <= max(FEW, NOW_AND_THEN * sum(d.size for d in apart)):
            least = step * (1 + STEP_ROUNDING)
            limits = [
                np.maximum(np.maximum(anywhere(t), r), least)
                for t, r in zip(ties, rounding, strict=True)
            ]
        u.by_feed = [compare(x, y, n) for x, y, n in zip(bases, results, limits, strict=True)]
        u.own = worst(u.by_feed)
        u.broken = any(d.excess > 1 for d in u.by_feed)
        u.transposed = u.broken and all(
            self._unrelated(x, y)
            for x, y, d in zip(bases, results, u.by_feed, strict=True)
            if d.excess > 1
        )

    def _ties(self, u: Unit, a: Sequence[Arrays]) -> list[Floor]:
        """Return the spread of the reference's piece with ties rounded up, down, or each at
        random.
        """
        moved = [Jitter(ties=TIES), Jitter(ties=-TIES)]
        moved += [Jitter(k + 1, ties=TIES) for k in range(DRAWN)]
        found = []
        for m in moved:
            session = self.mine.compile(u.mine, m)
            found.append(_computed(session, a))
        return _spreads([values[u.name] for values in a], found)

    def _judge_by(
        self,
        u: Unit,
        a: Sequence[Arrays],
        results: Values,
        runs: int,
        errors: Sequence[Floor] | None = None,
    ) -> None:
        """Judge the results by the noise of `runs` runs; `errors` are known rounding errors, which
        count as noise.
        """
        bases = [values[u.name] for values in a]
        limits = [self.limit(u.name, base) for base in bases]
        floors = self._floors(u, a, runs) if any(n is None for n in limits) else []
        if errors is not None:
            floors = list(map(np.maximum, floors, errors))
        unmoved = 1.0 if runs == RUNS else UNMOVED
        u.by_feed = []
        for i, (base, limit) in enumerate(zip(bases, limits, strict=True)):
            if limit is None:
                other = self.steps.get(u.other, 0.0)
                limit = tolerance(base, floors[i], u.step, other, unmoved)
            u.by_feed.append(compare(base, results[i], limit))
        u.own = worst(u.by_feed)

    def _errors(self, u: Unit, a: Sequence[Arrays], results: Values) -> list[Floor] | None:
        """Return the rounding errors of both pieces on exactly these inputs, if both agree in
        doubles, within the noise of the types that they compute in; else None.
        """
        given = [u.given_by(values, self.theirs) for values in a]
        mine = in_doubles(self.mine, u.mine, a)
        theirs = None if mine is None else in_doubles(self.theirs, u.theirs, given)
        if (
            mine is None
            or theirs is None
            or any(self.limit(u.name, v[u.name]) is not None for v in a)
        ):
            return None
        other = self.steps.get(u.other, 0.0)
        found = []
        for values, floor, result, (x,), (y,) in zip(
            a, self._floors(u, a, MORE_RUNS), results, mine, theirs, strict=True
        ):
            base = values[u.name]
            if compare(x, y, tolerance(base, floor, u.step, other, UNMOVED)).excess > 1:
                return None
            found.append(np.maximum(spread(base, [x]), spread(result, [y]).reshape(base.shape)))
        return found

    def _floors(self, u: Unit, a: Sequence[Arrays], runs: int) -> list[Floor]:
        """Measure the noise of the reference's own piece with each feed. Only one session exists at
        a time: each has its own copy of the weights, with jitter.
        """
        moved = Precision({}, u.step)
        feeds = [{n: values[n] for n in u.mine.inputs} for values in a]
        repeats = []
        for k in range(runs):
            session = self.mine.compile(u.mine, Jitter(k + 1, moved))
            moved_feeds = (shaken(feed, k, lambda _: u.step) for feed in feeds)
            repeats.append(_computed(session, moved_feeds))
        exact = self._in_floats(u)
        repeats += [] if exact is None else [_computed(exact, feeds)]
        floors = _spreads([values[u.name] for values in a], repeats)
        sessions = self._formulas(u, moved) if runs > RUNS else ()
        terms = [[s.run(f)[0] for f in feeds] for s in sessions]
        if terms:
            floors = list(map(np.maximum, floors, _spreads(terms[0], terms[1:])))
        return floors

    def _formulas(self, u: Unit, moved: Precision) -> Iterator[Session]:
        """Yield the piece with formulas in place of functions that cancel: unchanged, then with
        jitter.
        """
        formulas = self.mine.formulas if self.mine.cancels(u.mine) else None
        if formulas is not None:
            piece = formulas.piece(u.mine.targets, u.mine.inputs)
            for j in (None, *(Jitter(i + 1, moved) for i in range(RUNS))):
                yield formulas.compile(piece, j, optimize=False)

    def _in_floats(self, u: Unit) -> Session | None:
        try:
            return self.mine.compile(u.mine, floats=True) if self.mine.halves else None
        except CannotRun:
            return None


def _computed(session: Session, feeds: Iterable[Arrays]) -> list[Array | None]:
    """Return the first result for each feed, None if it cannot be computed."""
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


def _rounding(base: Array, step: float) -> float:
    """Return the rounding error allowed for any element of a tensor of floats; 0.0 for integers."""
    if base.dtype.kind != "f":
        return 0.0
    size = np.abs(wide(base))
    return MULTIPLE * step * float(np.max(size[np.isfinite(size)], initial=0.0))


def _alike(base: Array, result: Array) -> Array:
    """Return the result in the shape of `base`; NaN if the shapes are not comparable."""
    aligned = same_shape(base, result)
    return np.full(base.shape, np.nan) if aligned is None else aligned


def _is_transposition(base: Array, result: Array) -> bool:
    """Return whether one array is a transposition of the other."""
    if base.dtype.kind not in "fiu" or result.dtype.kind != base.dtype.kind or not base.size:
        return False
    x, y = wide(base), wide(result)
    limit = CLOSE * float(np.max(np.abs(x), initial=0.0))
    with np.errstate(all="ignore"):
        return transposed(x, y, lambda x: float(np.max(np.abs(x - y))) <= limit) is not None


def _unread(u: Unit) -> Difference | None:
    """Return the difference of two lookup tables, which shows errors in rows that no feed has
    read.
    """
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
        compare(a, b, MULTIPLE * u.step * np.abs(wide(a)) if a.dtype.kind == "f" else 0.0),
        note="in rows that no input reached",
    )


_LOOKUPS = {"Gather", "GatherElements", "GatherND"}


def worst(differences: Sequence[Difference]) -> Difference:
    """Return the difference that exceeds its tolerance most."""
    return max(differences, key=lambda d: (d.excess, d.max_abs), default=Difference())


def _impossible(e: CannotRun) -> Difference:
    return replace(WORST, note=f"cannot run on the reference's inputs: {e}")


def _identical(x: Array, y: Array) -> bool:
    return x is y or (x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())


def _shaped(array: Array, template: Array | None) -> Array:
    """Return the reference's array in the shape of the candidate's tensor, which may differ by axes
    of size 1.
    """
    if template is not None and template.shape != array.shape and template.size == array.size:
        return array.reshape(template.shape)
    return array


def in_shape(array: Array, value: ir.Value) -> Array:
    """Return the array in the shape of a value if they differ only by axes of size 1."""
    shape = shape_of(value)
    fits = shape is not None and int(np.prod(shape)) == array.size
    return array.reshape(shape) if shape is not None and fits else array


def _release(by_feed: Sequence[Arrays], left: Counter[str], names: Sequence[str]) -> None:
    for n in names:
        left[n] -= 1
        for values in by_feed if left[n] == 0 else ():
            values.pop(n, None)
