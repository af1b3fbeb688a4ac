"""Run both models as a whole and judge their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from converter import engines
from converter.commands.verify.compare import compare
from converter.commands.verify.feeds import RANDOM
from converter.commands.verify.floor import Noise, Results
from converter.commands.verify.native import Side, examine
from converter.commands.verify.noise import (
    MORE_RUNS,
    RUNS,
    UNMOVED,
    Floors,
    doubtful,
    small,
    spread,
    tolerance,
)
from converter.commands.verify.plan import Plan
from converter.commands.verify.program import CannotRun, refuse
from converter.commands.verify.result import Native, Output
from converter.commands.verify.rows import cut
from converter.commands.verify.truth import in_doubles
from converter.engines.file import engine_of
from converter.graph.names import public_name
from converter.io import progress


@dataclass(frozen=True)
class BothResults:
    """The results of both models. `plan` is restricted to the feeds that the reference accepts,
    `skipped` has the reasons for the others. `noise` measures the noise of the reference.
    """

    plan: Plan
    mine: Results
    theirs: Results
    skipped: tuple[str, ...]
    noise: Noise

    @progress.step("running the files in their own engines")
    def natives(self, same: bool) -> tuple[Native, ...]:
        """Run both files in their own engines if requested. `same`: the outputs are the same, so
        both models share one measured noise.
        """
        plan = self.plan
        options = plan.options
        if options.native == "off":
            return ()
        theirs = self.theirs
        if options.engine != "onnxruntime":
            theirs = _run_candidate(plan) if engine_of(plan.candidate) else []
        in_order = [r for r, _ in plan.alignment.outputs] == plan.mine.outputs and [
            c for _, c in plan.alignment.outputs
        ] == plan.theirs.outputs
        shared = self.noise if same and in_order else None
        first, second = options.names
        arrays, others = [*plan.arrays], [*plan.others]
        sides = (
            Side("reference", first, plan.reference, plan.mine, arrays, self.mine, self.noise),
            Side("candidate", second, plan.candidate, plan.theirs, others, theirs, shared),
        )
        places = [
            i
            for i, f in enumerate(plan.feeds)
            if options.data is not None or f.name.split()[0] in RANDOM
        ] or [*range(len(plan.feeds))]  # if there are none of those
        return examine([s.on(places) for s in sides], plan.on(places).judge, options.native)


@progress.step("running both models")
def run_outputs(plan: Plan) -> tuple[BothResults, list[Output]]:
    """Run both models on all feeds and judge the outputs against the noise of the whole network
    (measured only if there are differences).
    """
    plan, mine, skipped = _run_reference(plan)
    theirs = _run_candidate(plan) if plan.options.engine == "onnxruntime" else _in_engine(plan)
    noise = Noise(plan.mine, [*plan.arrays], mine, plan.precision)
    ran = BothResults(plan, mine, theirs, skipped, noise)
    valid = cut(plan.reference, plan.candidate, plan.positions, mine, theirs)
    return ran, _judged(replace(ran, theirs=valid))


def _run_reference(plan: Plan) -> tuple[Plan, Results, tuple[str, ...]]:
    """Run the reference; a generated feed that it rejects is skipped, as long as there are
    others.
    """
    try:
        session = plan.mine.compile(plan.mine.complete())
    except CannotRun as e:
        raise refuse(e, "reference") from None
    taken: Results = []
    kept: list[int] = []
    skipped: list[str] = []
    for i, feed in enumerate(plan.arrays):
        try:
            taken.append(session.run(feed))
            kept.append(i)
        except CannotRun as e:
            if plan.options.data is not None or (i == len(plan.arrays) - 1 and not kept):
                raise refuse(e, "reference") from None
            skipped.append(f"the reference does not accept {plan.feeds[i].name}: {e}")
    return plan.on(kept), taken, tuple(skipped)


def _run_candidate(plan: Plan) -> Results:
    try:
        session = plan.theirs.compile(plan.theirs.complete())
        return [session.run(f) for f in plan.others]
    except CannotRun as e:
        raise refuse(e, "candidate") from None


def _in_engine(plan: Plan) -> Results:
    """Run the candidate in the requested engine."""
    prepared = engines.get(plan.options.engine).prepare(plan.candidate)
    names = {str(v.name): public_name(v) for v in plan.candidate.ir.graph.inputs}
    public = [{names[inner]: array for inner, array in f.items()} for f in plan.others]
    return [list(prepared.run(plan.candidate.check_feeds(f)).values()) for f in public]


def _judged(ran: BothResults) -> list[Output]:
    plan, pairs = ran.plan, ran.plan.positions
    equal = all(
        compare(a[i], b[j]).equal
        for a, b in zip(ran.mine, ran.theirs, strict=True)
        for i, j in pairs
    )
    try:
        floors = None if equal else ran.noise.with_floats()
    except CannotRun as e:
        raise refuse(e, "reference") from None
    outputs = [_output(ran, i, j, floors) for i, j in pairs]
    if floors is None:
        return outputs
    formulas = plan.mine.formulas is not None
    if any(not o.passed and doubtful(o.difference, formulas) for o in outputs):
        floors = ran.noise.with_formulas(MORE_RUNS - RUNS)
        outputs = [_output(ran, i, j, floors, UNMOVED) for i, j in pairs]
    if not any(not o.passed and small(o.difference) for o in outputs):
        return outputs
    exact = _exact_floors(ran, floors)
    if exact is None:
        return outputs
    return [
        o if o.passed else _output(ran, i, j, exact, UNMOVED)
        for o, (i, j) in zip(outputs, pairs, strict=True)
    ]


def _exact_floors(ran: BothResults, floors: Floors) -> Floors | None:
    """Return the noise including the rounding errors of both models on exactly these inputs, for
    outputs that agree in doubles; None if that cannot be determined.
    """
    plan = ran.plan
    a = in_doubles(plan.mine, plan.mine.complete(), plan.arrays)
    b = None if a is None else in_doubles(plan.theirs, plan.theirs.complete(), plan.others)
    if a is None or b is None:
        return None
    found = [list(of_feed) for of_feed in floors]
    for i, j in plan.positions:
        # in doubles, but within the noise of the types that the models compute in
        own = plan.precision[plan.mine.outputs[i]]
        limits = [
            tolerance(m[i], f[i], own, plan.steps.get(plan.theirs.outputs[j], 0.0), UNMOVED)
            for m, f in zip(ran.mine, floors, strict=True)
        ]
        exact = [(x[i], y[j]) for x, y in zip(a, b, strict=True)]
        if all(compare(x, y, n).excess <= 1 for (x, y), n in zip(exact, limits, strict=True)):
            for k, (x, y) in enumerate(exact):
                errors = spread(ran.mine[k][i], [x]), spread(ran.theirs[k][j], [y])
                found[k][i] = np.maximum(found[k][i], errors[0])
                found[k][i] = np.maximum(found[k][i], errors[1].reshape(errors[0].shape))
    return found


def _output(
    ran: BothResults, i: int, j: int, floors: Floors | None, unmoved: float = 1.0
) -> Output:
    plan = ran.plan
    r, c = plan.reference.ir.graph.outputs[i], plan.candidate.ir.graph.outputs[j]
    step, own = plan.steps.get(str(c.name), 0.0), plan.precision[str(r.name)]
    noise = (
        None
        if floors is None
        else lambda k, base: tolerance(base, floors[k][i], own, step, unmoved)
    )
    names = public_name(r), public_name(c)
    return plan.judge.output(names, [m[i] for m in ran.mine], [t[j] for t in ran.theirs], noise)


def decided_by_layers(plan: Plan, outputs: Sequence[Output]) -> bool:
    """Return whether the verdict is that of the single layers: in a quantized network, differing
    outputs may be the effect of a step at a tie, however large, or a fault, however small.
    """
    return (
        plan.mine.quantized
        and plan.options.mode == "isolated"
        and plan.options.engine == "onnxruntime"
        and not plan.limits.chosen
        and any(not o.difference.equal for o in outputs)
    )


def inherited(output: Output, broken: bool) -> Output:
    """Judge an output of a quantized network: it is different if a layer before it is (`broken`),
    otherwise the difference is the effect of steps at ties.
    """
    d = output.difference
    if d.equal or d.max_abs == np.inf:
        return output
    if broken:
        return replace(output, passed=False, broken=("elem",))
    within = replace(d, excess=min(d.excess, 1.0), tolerance=max(d.tolerance, d.abs_at_index))
    return replace(output, passed=True, broken=(), difference=within)
