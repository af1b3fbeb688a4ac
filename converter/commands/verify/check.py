"""One comparison from start to end: outputs first, then, where they differ or all tensors are asked
for, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter import engines
from converter.commands.run import save_arrays
from converter.commands.verify import evidence
from converter.commands.verify.align import Alignment, align, without
from converter.commands.verify.cause import (
    CONSTANT,
    FORM,
    OPERAND,
    Cause,
    causes,
    differences,
    kind,
    layer_of,
    location_of,
    paired,
    rewritten,
)
from converter.commands.verify.compare import Difference, compare
from converter.commands.verify.feeds import RANDOM, feeds_for
from converter.commands.verify.feeds import notes as unused
from converter.commands.verify.floor import Noise, Results
from converter.commands.verify.isolate import LockStep, Unit, in_shape
from converter.commands.verify.judge import Given, Judge, Limits
from converter.commands.verify.native import CHOICES, Side, examine
from converter.commands.verify.noise import (
    MORE_RUNS,
    MULTIPLE,
    RUNS,
    UNMOVED,
    Floors,
    doubtful,
    quantisation_steps,
    small,
    spread,
    tolerance,
)
from converter.commands.verify.numbers import more_aligned
from converter.commands.verify.program import CannotRun, Program, refuse
from converter.commands.verify.result import (
    EQUAL,
    INHERITED,
    NOISE,
    WRONG,
    Finding,
    Native,
    Output,
    Result,
    Tensor,
)
from converter.commands.verify.single_change import single_change
from converter.commands.verify.sizes import shapes_for
from converter.commands.verify.truth import in_doubles
from converter.engines.file import engine_of
from converter.errors import Diagnostic, NothingComparedError, wrong_call
from converter.graph.infer import Arrays
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import known_sizes
from converter.io import progress
from converter.passes.stored_halves import store_halves, stored_half

ROUNDS = 4
MODES = ("isolated", "chain")


@dataclass(frozen=True)
class Request:
    """What a user asked for; see converter.commands.verify.verify."""

    data: Any
    tensors: tuple[str, ...]
    rtol: Given
    atol: Given
    metrics: tuple[str, ...]
    mode: str
    seed: int
    seeds: int
    map: dict[str, str]
    engine: str
    fail_fast: bool
    keep_tensors: Any
    names: tuple[str, str]
    native: str = "off"
    inputs: Mapping[str, Sequence[int]] | None = None

    @property
    def outputs_alone(self) -> bool:
        """Whether the verdict is about the outputs, and tensors only help to find a cause."""
        return self.tensors == ("outputs",)


def as_stored(network: Network) -> Network:
    """The network with its weights in the half precision in which its file stores them: what they
    are rounded to is no fault of a layer.
    """
    dtype = stored_half(network.ir)
    if dtype is None or any(
        v.const_value is not None and v.const_value.dtype == dtype
        for v in network.ir.graph.initializers.values()
    ):
        return network
    network = replace(network, ir=network.ir.clone())
    store_halves(network.ir, dtype)
    return network


class Check:
    """The state of one comparison."""

    def __init__(self, reference: Network, candidate: Network, request: Request) -> None:
        if request.mode not in MODES:
            raise wrong_call(f"unknown mode {request.mode!r}", help=f"known: {', '.join(MODES)}")
        if request.native not in CHOICES:
            raise wrong_call(f"--native {request.native!r} is not one of {', '.join(CHOICES)}")
        reference, candidate = as_stored(reference), as_stored(candidate)
        self.reference, self.candidate, self.request = reference, candidate, request
        self.limits = Limits.of(request.rtol, request.atol, request.metrics)
        self.alignment = align(reference, candidate, request.map)
        self.mine, self.theirs = Program(reference), Program(candidate)
        shapes = shapes_for(reference, request.inputs, self._hints())
        self.feeds = feeds_for(reference, request.data, request.seed, request.seeds, shapes)
        if not self.feeds:
            raise NothingComparedError(Diagnostic("N402", "there is no input to compare on"))
        self.steps = quantisation_steps(candidate.ir)
        self.precision = self._steps(self.alignment).precision()
        self.arrays = [f.by_value(reference) for f in self.feeds]
        self.others = [self._for_candidate(f) for f in self.arrays]
        self.skipped: list[str] = []  # feeds that the reference does not take, and why
        # what onnxruntime computes from either model, once it did
        self.read: tuple[Results, Results | None] | None = None
        self.noise: Noise | None = None

    @property
    def judge(self) -> Judge:
        named = any(m.startswith("max=") for m in self.request.metrics)
        return Judge(self.limits, not named, tuple(f.name for f in self.feeds))

    def _hints(self) -> dict[str, tuple[int | None, ...]]:
        """The sizes that the candidate's inputs have, by the names of the reference's."""
        mine, theirs = self.mine.source.values, self.theirs.source.values
        return {
            public_name(mine[r]): tuple(sizes)
            for r, c in self.alignment.inputs
            if (sizes := known_sizes(theirs[c])) is not None
        }

    def run(self) -> Result:
        request = self.request
        compared = self._selected()
        self.limits.check_used(compared)
        outputs = [o for o in self._outputs() if request.outputs_alone or o.reference in compared]
        failed = not all(o.passed for o in outputs)
        if request.outputs_alone:
            _demand_numbers(outputs)
        by_steps = self._by_steps(outputs)
        units: list[Unit] = self._isolated() if by_steps else []
        if by_steps:
            outputs = [self._inherited(o, units) for o in outputs]
            failed = not all(o.passed for o in outputs)
        natives = self._natives(not failed)
        hidden = not (failed or by_steps) and self.limits.elementwise and self._hidden(outputs)
        units = self._units(failed or hidden, units)
        everything = request.outputs_alone or request.tensors == ("all",)
        judged = [u for u in units if everything or u.name in compared]
        told = self._told([u for u in judged if u.broken])
        tensors = [_at(told.get(u.name), self._tensor(u)) for u in judged]
        findings = _distinct(told.values())
        if request.keep_tensors is not None and units:
            self._keep(Path(request.keep_tensors), [u for u in units if u.broken])
        wrong = bool(findings) and (hidden or not request.outputs_alone)
        unfelt = wrong and not failed and request.outputs_alone
        return Result(
            passed=not failed and not wrong and not any(n.failed for n in natives),
            outputs=tuple(outputs),
            tensors=tuple(tensors),
            findings=findings,
            feeds=tuple(f.name for f in self.feeds),
            seed=request.seed,
            measured=request.rtol is None and request.atol is None,
            step=self.precision.largest,
            aligned=len(self.alignment.pairs),
            only_reference=tuple(self.alignment.only_reference),
            only_candidate=tuple(self.alignment.only_candidate),
            models=request.names,
            notes=self._notes(outputs),
            native=natives,
            samples=self._samples(units, findings, outputs),
            picture=evidence.around(
                self.reference.ir.graph, findings[0] if findings else None, tensors
            ),
            unfelt=unfelt,
        )

    def _units(self, wrong: bool, known: list[Unit]) -> list[Unit]:
        """The layers, as far as they were asked for or are needed to find what is wrong."""
        if not wrong and self.request.outputs_alone:
            return []
        if known or self.request.mode == "chain":
            return known or ([] if self.request.outputs_alone else self._lockstep(self.alignment))
        return self._isolated()

    def _by_steps(self, outputs: Sequence[Output]) -> bool:
        """Whether the verdict is that of the single layers: a quantized network whose outputs
        differ, which may be what a step at a tie leads to, whatever its size, or a fault, however
        small.
        """
        return (
            self.mine.quantized
            and self.request.mode == "isolated"
            and self.request.engine == "onnxruntime"
            and not self.limits.chosen
            and any(not o.difference.equal for o in outputs)
        )

    def _inherited(self, output: Output, units: Sequence[Unit]) -> Output:
        """An output of a quantized network: different where a layer before it is, else what steps
        at ties lead to.
        """
        d = output.difference
        if d.equal or d.max_abs == np.inf:
            return output
        if any(u.broken for u in units):
            return replace(output, passed=False, broken=("elem",))
        inherited = replace(
            d, excess=min(d.excess, 1.0), tolerance=max(d.tolerance, d.abs_at_index)
        )
        return replace(output, passed=True, broken=(), difference=inherited)

    def _samples(
        self, units: Sequence[Unit], findings: Sequence[Finding], outputs: Sequence[Output]
    ) -> tuple[dict[str, Any], ...]:
        """Parts of the tensors of the first wrong layers; where there is none, of the worst
        output.
        """
        names = [f.name for f in self.feeds]
        wrong = [f.tensor for f in findings[: evidence.SAMPLES]]
        found: list[evidence.Sample | None] = []
        if wrong:
            named = [u for u in units if u.name in wrong]
            feeds = list(zip(names, self.arrays, strict=True))
            found += evidence.of_layers(named, self.mine, self.theirs, feeds)
        failed = [o for o in outputs if not o.passed]
        mine, theirs = self.read or (None, None)
        if not findings and failed and mine is not None and theirs is not None:
            worst = max(failed, key=lambda o: o.difference.excess)
            known = [public_name(v) for v in self.reference.ir.graph.outputs]
            i, j = next((i, j) for i, j in self._places() if known[i] == worst.reference)
            found.append(
                evidence.of_output(
                    (worst.reference, worst.candidate),
                    names,
                    [m[i] for m in mine],
                    [t[j] for t in theirs],
                )
            )
        return tuple(asdict(s) for s in found if s is not None)

    def _selected(self) -> set[str]:
        """The names of the tensors that a verdict is about; NothingComparedError when there are
        none.
        """
        outputs = {public_name(self.mine.source.values[r]) for r, _ in self.alignment.outputs}
        globs = self.request.tensors
        if self.request.outputs_alone:
            return outputs
        known = outputs | self.alignment.pairs.keys()
        chosen = (
            known
            if globs == ("all",)
            else {n for n in known if any(fnmatchcase(n, g) for g in globs)}
        )
        if not chosen:
            raise NothingComparedError(
                Diagnostic(
                    "N402",
                    f"--tensors {' '.join(globs)} selects none of {len(known)} aligned tensors",
                )
            )
        return chosen

    def _for_candidate(self, arrays: Arrays) -> Arrays:
        """The same arrays under the candidate's names and, where only dimensions of one differ, in
        its shapes.
        """
        values = self.theirs.values
        return {c: in_shape(arrays[r], values[c]) for r, c in self.alignment.inputs}

    def _run_candidate(self) -> Results:
        try:
            session = self.theirs.compile(self.theirs.whole())
            return [session.run(f) for f in self.others]
        except CannotRun as e:
            raise refuse(e, "candidate") from None

    def _reference_outputs(self) -> Results:
        """What the reference computes; a feed that was drawn and that it does not take is left
        out, as long as there are others.
        """
        try:
            session = self.mine.compile(self.mine.whole())
        except CannotRun as e:
            raise refuse(e, "reference") from None
        taken: Results = []
        kept: list[int] = []
        for i, feed in enumerate(self.arrays):
            try:
                taken.append(session.run(feed))
                kept.append(i)
            except CannotRun as e:
                if self.request.data is not None or (i == len(self.arrays) - 1 and not kept):
                    raise refuse(e, "reference") from None
                self.skipped.append(f"the reference does not take {self.feeds[i].name}: {e}")
        for name in ("feeds", "arrays", "others"):
            setattr(self, name, [getattr(self, name)[i] for i in kept])
        return taken

    def _candidate_outputs(self) -> Results:
        if self.request.engine == "onnxruntime":
            return self._run_candidate()
        prepared = engines.get(self.request.engine).prepare(self.candidate)
        names = {str(v.name): public_name(v) for v in self.candidate.ir.graph.inputs}
        public = [{names[inner]: array for inner, array in f.items()} for f in self.others]
        return [list(prepared.run(self.candidate.check_feeds(f)).values()) for f in public]

    @progress.step("running both models")
    def _outputs(self) -> list[Output]:
        """The graph outputs, judged against the noise of the whole network (measured only when
        something differs).
        """
        mine = self._reference_outputs()
        theirs = self._candidate_outputs()
        self.read = mine, theirs if self.request.engine == "onnxruntime" else None
        self.noise = Noise(self.mine, self.arrays, mine, self.precision)
        pairs = self._places()
        equal = all(
            compare(a[i], b[j]).equal for a, b in zip(mine, theirs, strict=True) for i, j in pairs
        )
        try:
            floors = None if equal else self.noise.with_floats()
        except CannotRun as e:
            raise refuse(e, "reference") from None
        outputs = [self._output(i, j, mine, theirs, floors) for i, j in pairs]
        if floors is None:
            return outputs
        if self._doubtful_outputs(outputs):
            floors = self.noise.with_formulas(MORE_RUNS - RUNS)
            outputs = [self._output(i, j, mine, theirs, floors, UNMOVED) for i, j in pairs]
        if not any(not o.passed and small(o.difference) for o in outputs):
            return outputs
        exact = self._exact_floors(mine, theirs, floors)
        return (
            outputs
            if exact is None
            else [
                o if o.passed else self._output(i, j, mine, theirs, exact, UNMOVED)
                for o, (i, j) in zip(outputs, pairs, strict=True)
            ]
        )

    def _doubtful_outputs(self, outputs: Sequence[Output]) -> bool:
        formulas = self.mine.formulas is not None
        return any(not o.passed and doubtful(o.difference, formulas) for o in outputs)

    def _exact_floors(self, mine: Results, theirs: Results, floors: Floors) -> Floors | None:
        """The noise with the rounding errors that both models have on these very inputs, for those
        outputs that are the same in doubles; None where that is not known.
        """
        a = in_doubles(self.mine, self.mine.whole(), self.arrays)
        b = None if a is None else in_doubles(self.theirs, self.theirs.whole(), self.others)
        if a is None or b is None:
            return None
        found = [list(of_feed) for of_feed in floors]
        for i, j in self._places():
            # in doubles, but within the noise of what the models are computed in
            own = self.precision[self.mine.outputs[i]]
            limits = [
                tolerance(m[i], f[i], own, self.steps.get(self.theirs.outputs[j], 0.0), UNMOVED)
                for m, f in zip(mine, floors, strict=True)
            ]
            exact = [(x[i], y[j]) for x, y in zip(a, b, strict=True)]
            if all(compare(x, y, n).excess <= 1 for (x, y), n in zip(exact, limits, strict=True)):
                for k, (x, y) in enumerate(exact):
                    errors = spread(mine[k][i], [x]), spread(theirs[k][j], [y])
                    found[k][i] = np.maximum(found[k][i], errors[0])
                    found[k][i] = np.maximum(found[k][i], errors[1].reshape(errors[0].shape))
        return found

    def _places(self) -> list[tuple[int, int]]:
        """Where each aligned output stands among those of either model."""
        mine, theirs = self.mine.outputs, self.theirs.outputs
        return [(mine.index(r), theirs.index(c)) for r, c in self.alignment.outputs]

    def _output(
        self,
        i: int,
        j: int,
        mine: Results,
        theirs: Results,
        floors: Floors | None,
        unmoved: float = 1.0,
    ) -> Output:
        r, c = self.reference.ir.graph.outputs[i], self.candidate.ir.graph.outputs[j]
        step, own = self.steps.get(str(c.name), 0.0), self.precision[str(r.name)]
        noise = (
            None
            if floors is None
            else lambda k, base: tolerance(base, floors[k][i], own, step, unmoved)
        )
        return self.judge.output(
            (public_name(r), public_name(c)), [m[i] for m in mine], [t[j] for t in theirs], noise
        )

    @progress.step("running the files in their own engines")
    def _natives(self, same: bool) -> tuple[Native, ...]:
        """Both files in their own engines, where they were asked for. `same`: the outputs are, so
        the noise of one is that of the other.
        """
        if self.request.native == "off" or self.read is None or self.noise is None:
            return ()
        mine, theirs = self.read
        if theirs is None:
            theirs = self._run_candidate() if engine_of(self.candidate) else []
        in_order = [r for r, _ in self.alignment.outputs] == self.mine.outputs and [
            c for _, c in self.alignment.outputs
        ] == self.theirs.outputs
        shared = self.noise if same and in_order else None
        sides = (
            Side(
                "reference",
                self.request.names[0],
                self.reference,
                self.mine,
                self.arrays,
                mine,
                self.noise,
            ),
            Side(
                "candidate",
                self.request.names[1],
                self.candidate,
                self.theirs,
                self.others,
                theirs,
                shared,
            ),
        )
        places = [
            i
            for i, f in enumerate(self.feeds)
            if self.request.data is not None or f.name.split()[0] in RANDOM
        ] or [*range(len(self.feeds))]  # when none of those runs
        return examine(
            [s.on(places) for s in sides],
            replace(self.judge, feeds=tuple(self.judge.feeds[p] for p in places)),
            self.request.native,
        )

    @progress.step("comparing layer by layer")
    def _isolated(self) -> list[Unit]:
        """Piece by piece; a pair that only shares its name, or holds its numbers in another order,
        is told from a fault by looking at the piece that contains it.
        """
        self.alignment = more_aligned(
            (self.reference, self.candidate),
            (self.mine, self.theirs),
            self.alignment,
            self.arrays[0],
            self.others[0],
        )
        units = self._lockstep(self.alignment)
        for _ in range(ROUNDS):  # what is left may be turned, too, beside those that go
            turned = {u.name for u in units if u.broken and u.turned and not self._certain(u)}
            if not turned:
                break
            self.alignment = without(self.alignment, turned)
            units = self._lockstep(self.alignment)
        doubtful = self._doubtful(units)
        if not doubtful:
            return units
        outer = self._lockstep(without(self.alignment, doubtful))
        guilty = {str(o.name) for u in outer if u.broken for n in u.nodes for o in n.outputs}
        innocent = doubtful - guilty
        if not innocent:
            return units
        self.alignment = without(self.alignment, innocent)
        return outer if innocent == doubtful else self._lockstep(self.alignment)

    def _certain(self, u: Unit) -> bool:
        """An output, or aligned by the user."""
        return (
            u.name in {r for r, _ in self.alignment.outputs}
            or self.alignment.how.get(u.name) == "map"
        )

    def _doubtful(self, units: Sequence[Unit]) -> set[str]:
        """Of the pairs that differ, those made by another operator or from other weights (fused
        layers reuse names), and those that are read by another one that differs: the two may make
        up for each other.
        """
        wrong = [u for u in units if u.broken]
        followed = {n for u in wrong for n in (*u.mine.inputs, *u.given.values())}
        found = set()
        for u in wrong:
            a, b = self.mine.source.node(u.name), self.theirs.source.node(u.other)
            if a is None or b is None or self._certain(u):
                continue
            if u.name in followed or a.op_type != b.op_type or rewritten(a, b):
                found.add(u.name)
        return found

    def _hidden(self, outputs: Sequence[Output]) -> bool:
        """Whether layers say and compute other things though the outputs are the same: perhaps no
        input shows it.

        Weights that are others altogether are the work of a rewrite, unless the outputs are equal
        bit for bit.
        """
        exact = all(o.difference.equal for o in outputs)
        back = self.alignment.back
        steps = self._steps(self.alignment)
        suspects = [
            u.name
            for u in steps.units
            if any(
                self._says_other(n, m, exact, back, inner=n is not u.nodes[-1])
                for n, m in paired(u.nodes, u.others)
            )
        ]
        return bool(suspects) and steps.any_broken(suspects, self.arrays)

    def _says_other(
        self, a: ir.Node, b: ir.Node, exact: bool, back: dict[str, str], inner: bool
    ) -> bool:
        """`inner` nodes read tensors whose names say nothing."""
        step = MULTIPLE * self.precision[str(a.outputs[0].name)]
        found = {c.rank for c in differences(a, b, back, step)} - ({OPERAND} if inner else set())
        return bool(found - {CONSTANT}) or (bool(found) and (exact or not rewritten(a, b)))

    def _steps(self, alignment: Alignment) -> LockStep:
        return LockStep(self.mine, self.theirs, alignment, self.limits.tolerance, self.steps)

    @progress.step("comparing layer by layer")
    def _lockstep(self, alignment: Alignment) -> list[Unit]:
        steps = self._steps(alignment)
        found: list[Unit] = []
        try:
            for unit in steps.run(self.arrays, self.others):
                found.append(unit)
                if unit.broken and self.request.fail_fast:
                    break
        except CannotRun as e:
            raise refuse(e, "reference") from None
        return sorted(found, key=lambda u: self.mine.source.place[u.nodes[-1]])

    def _tensor(self, u: Unit) -> Tensor:
        node = self.mine.source.node(u.name)
        assert node is not None
        total = u.total if u.total is not None else Difference(np.inf, excess=np.inf)
        beyond = u.upstream and (u.total is None or total.max_abs > u.own.tolerance)
        status = (
            WRONG
            if u.broken
            else EQUAL
            if total.equal and u.own.equal
            else INHERITED
            if beyond
            else NOISE
        )
        return Tensor(
            u.name,
            u.other,
            layer_of(node),
            kind(node),
            self.mine.source.place[node],
            status,
            self.alignment.how.get(u.name, ""),
            u.own,
            u.total,
        )

    def _told(self, units: Sequence[Unit]) -> dict[str, Finding]:
        """What is wrong with pieces, by the names of their tensors."""
        return {u.name: self._finding(u) for u in units} if self.request.mode == "isolated" else {}

    def _causes(self, u: Unit) -> list[Cause]:
        """What differs; of a layer that is computed in another way, the single change that explains
        it.
        """
        found = causes(u.nodes, u.others, self.alignment.back, u.step)
        folded = len(found) > 1 and any(n.op_type == "BatchNormalization" for n in u.nodes)
        if found and found[0].rank != FORM and not folded:
            return found
        feed = next(
            (f for f, d in zip(self.arrays, u.by_feed, strict=False) if d.excess > 1),
            self.arrays[0],
        )
        told = single_change(u, self.mine, self.theirs, feed)
        return found if told is None else [told]

    def _finding(self, u: Unit) -> Finding:
        found = self._causes(u)
        node = next((c.node for c in found if c.node is not None), u.nodes[-1])
        last = u.others[-1] if u.others else None
        other = dict(paired(u.nodes, u.others)).get(node, last)
        inherited = (
            0.0 if not u.upstream or u.total is None else max(0.0, u.total.max_abs - u.own.max_abs)
        )
        return Finding(
            layer=layer_of(node),
            kind=kind(node),
            index=self.mine.source.place[node],
            tensor=u.name,
            layers=tuple(dict.fromkeys(layer_of(n) for n in u.nodes)),
            own=u.own,
            inherited=inherited,
            causes=tuple(c.text for c in found),
            where=(location_of(node), location_of(other) if other is not None else ""),
        )

    def _notes(self, outputs: Sequence[Output]) -> tuple[str, ...]:
        notes = [*self.skipped, *_without_numbers(outputs)]
        if len(self.alignment.outputs) < len(self.reference.ir.graph.outputs):
            notes.append(
                f"{len(self.reference.ir.graph.outputs) - len(self.alignment.outputs)} "
                "outputs of the reference have no counterpart"
            )
        notes += [f"{d.where}: {d.message}" for d in unused(self.feeds)]
        return tuple(notes)

    def _keep(self, folder: Path, units: list[Unit]) -> None:
        """Writes inputs and both results of each wrong piece, one .npz per tensor."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, u in enumerate(units):
            (found,) = self.mine.tensors([*u.mine.inputs, u.name], self.arrays[:1])
            arrays = {"tensor": np.array(u.name), "expected": found[u.name]}
            arrays |= {f"input_{i}": found[n] for i, n in enumerate(u.mine.inputs)}
            save_arrays(folder / f"{number:03d}.npz", arrays)


def _demand_numbers(outputs: Sequence[Output]) -> None:
    """NothingComparedError when every element of every output is NaN or infinite on both sides."""
    if (
        all(o.passed for o in outputs)
        and any(o.count for o in outputs)
        and not any(o.finite for o in outputs)
    ):
        message = (
            "every number of every output is NaN or infinite in both models, "
            "so that nothing can be compared"
        )
        help = "give inputs for which the network computes finite numbers: --data FILE.npz"
        raise NothingComparedError(Diagnostic("N402", message, help=help))


def _without_numbers(outputs: Sequence[Output]) -> Iterator[str]:
    """Outputs that say little of whether the models are the same."""
    for o in outputs:
        if o.passed and not o.count:
            yield f'output "{o.reference}" has no elements: only its shape is compared'
        elif o.passed and o.finite < o.count:
            yield (
                f'output "{o.reference}": {o.count - o.finite} of {o.count} numbers are NaN or '
                "infinite in both models, and show nothing"
            )


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Several pieces that hold the same layer, wrong for the same reason, tell of it once."""
    found: dict[tuple[str, tuple[str, ...]], Finding] = {}
    for f in findings:
        found.setdefault((f.layer, f.causes[:1] or (f.tensor,)), f)
    return tuple(found.values())


def _at(finding: Finding | None, tensor: Tensor) -> Tensor:
    """A wrong tensor is told at the layer that is wrong."""
    if finding is None:
        return tensor
    return replace(tensor, layer=finding.layer, kind=finding.kind, index=finding.index)
