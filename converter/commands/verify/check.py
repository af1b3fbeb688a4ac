"""Run one comparison from start to end: outputs first, then, if they differ or all tensors are
requested, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from converter.commands.run import save_arrays
from converter.commands.verify import evidence
from converter.commands.verify.cause import (
    FORM,
    Cause,
    causes,
    kind,
    layer_of,
    location_of,
    paired,
)
from converter.commands.verify.compare import Difference
from converter.commands.verify.feeds import notes as unused
from converter.commands.verify.isolate import Unit
from converter.commands.verify.layers import Layers, any_hidden, isolated, needed
from converter.commands.verify.outputs import BothResults, decided_by_layers, inherited, run_outputs
from converter.commands.verify.plan import Plan
from converter.commands.verify.result import (
    EQUAL,
    INHERITED,
    NOISE,
    WRONG,
    Finding,
    Output,
    Result,
    Tensor,
)
from converter.commands.verify.single_change import single_change
from converter.errors import Diagnostic, NothingComparedError
from converter.graph.names import public_name


def check(plan: Plan) -> Result:
    """Run a comparison."""
    compared = plan.judged()
    plan.limits.check_used(compared)
    ran, outputs = run_outputs(plan)
    plan = ran.plan
    outputs = [o for o in outputs if plan.outputs_alone or o.reference in compared]
    if plan.outputs_alone:
        _demand_numbers(outputs)
    layers = Layers((), plan.alignment)
    by_layers = decided_by_layers(plan, outputs)
    if by_layers:
        layers = isolated(plan)
        outputs = [inherited(o, bool(layers.broken)) for o in outputs]
    failed = not all(o.passed for o in outputs)
    natives = ran.natives(not failed)
    hidden = not (failed or by_layers) and plan.limits.elementwise and any_hidden(plan, outputs)
    layers = needed(plan, failed or hidden, layers)
    everything = plan.outputs_alone or plan.tensors == ("all",)
    judged = [u for u in layers.units if everything or u.name in compared]
    faults = _faults(plan, layers, judged)
    tensors = [_at(faults.get(u.name), _tensor(plan, layers, u)) for u in judged]
    findings = _distinct(faults.values())
    if plan.options.keep_tensors is not None and layers.units:
        _keep(plan, Path(plan.options.keep_tensors), layers.broken)
    wrong = bool(findings) and (hidden or not plan.outputs_alone)
    unfelt = wrong and not failed and plan.outputs_alone
    return Result(
        passed=not failed and not wrong and not any(n.failed for n in natives),
        outputs=tuple(outputs),
        tensors=tuple(tensors),
        findings=findings,
        feeds=tuple(f.name for f in plan.feeds),
        seed=plan.options.seed,
        measured=plan.options.rtol is None and plan.options.atol is None,
        step=plan.precision.largest,
        aligned=len(layers.alignment.pairs),
        only_reference=tuple(layers.alignment.only_reference),
        only_candidate=tuple(layers.alignment.only_candidate),
        models=plan.options.names,
        notes=_notes(ran, outputs),
        native=natives,
        samples=_samples(ran, layers.units, findings, outputs),
        picture=evidence.around(
            plan.reference.ir.graph, findings[0] if findings else None, tensors
        ),
        unfelt=unfelt,
    )


def _samples(
    ran: BothResults, units: Sequence[Unit], findings: Sequence[Finding], outputs: Sequence[Output]
) -> tuple[dict[str, Any], ...]:
    """Return parts of the tensors of the first wrong layers; if there are none, of the worst
    output.
    """
    plan = ran.plan
    names = [f.name for f in plan.feeds]
    wrong = [f.tensor for f in findings[: evidence.SAMPLES]]
    found: list[evidence.Sample | None] = []
    if wrong:
        named = [u for u in units if u.name in wrong]
        feeds = list(zip(names, plan.arrays, strict=True))
        found += evidence.of_layers(named, plan.mine, plan.theirs, feeds)
    failed = [o for o in outputs if not o.passed]
    if not findings and failed and plan.options.engine == "onnxruntime":
        worst = max(failed, key=lambda o: o.difference.excess)
        known = [public_name(v) for v in plan.reference.ir.graph.outputs]
        i, j = next((i, j) for i, j in plan.positions if known[i] == worst.reference)
        pair = worst.reference, worst.candidate
        mine, theirs = [m[i] for m in ran.mine], [t[j] for t in ran.theirs]
        found.append(evidence.of_output(pair, names, mine, theirs))
    graphs = plan.reference.ir.graph, plan.candidate.ir.graph

    def with_file_axes(s: evidence.Sample) -> evidence.Sample:
        a, b = map(evidence.axes_in_file, graphs, (s.tensor, s.counterpart))
        return replace(s, axes=(a, b))

    return tuple(asdict(with_file_axes(s)) for s in found if s is not None)


def _tensor(plan: Plan, layers: Layers, u: Unit) -> Tensor:
    node = plan.mine.source.node(u.name)
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
        plan.mine.source.order[node],
        status,
        layers.alignment.how.get(u.name, ""),
        u.own,
        u.total,
    )


def _faults(plan: Plan, layers: Layers, units: Sequence[Unit]) -> dict[str, Finding]:
    """Return the finding for each wrong piece, by the names of the tensors."""
    if plan.options.mode != "isolated":
        return {}
    return {u.name: _finding(plan, layers, u) for u in units if u.broken}


def _causes(plan: Plan, layers: Layers, u: Unit) -> list[Cause]:
    """Return the differences of a piece; for a layer that is computed in another way, the single
    change that explains it.
    """
    found = causes(u.nodes, u.others, layers.alignment.back, u.step)
    folded = len(found) > 1 and any(n.op_type == "BatchNormalization" for n in u.nodes)
    if found and found[0].rank != FORM and not folded:
        return found
    feed = next(
        (f for f, d in zip(plan.arrays, u.by_feed, strict=False) if d.excess > 1), plan.arrays[0]
    )
    explained = single_change(u, plan.mine, plan.theirs, feed)
    return found if explained is None else [explained]


def _finding(plan: Plan, layers: Layers, u: Unit) -> Finding:
    found = _causes(plan, layers, u)
    node = next((c.node for c in found if c.node is not None), u.nodes[-1])
    last = u.others[-1] if u.others else None
    other = dict(paired(u.nodes, u.others)).get(node, last)
    passed_on = (
        0.0 if not u.upstream or u.total is None else max(0.0, u.total.max_abs - u.own.max_abs)
    )
    return Finding(
        layer=layer_of(node),
        kind=kind(node),
        index=plan.mine.source.order[node],
        tensor=u.name,
        layers=tuple(dict.fromkeys(layer_of(n) for n in u.nodes)),
        own=u.own,
        inherited=passed_on,
        causes=tuple(c.text for c in found),
        where=(location_of(node), location_of(other) if other is not None else ""),
    )


def _notes(ran: BothResults, outputs: Sequence[Output]) -> tuple[str, ...]:
    plan = ran.plan
    notes = [*ran.skipped, *_without_numbers(outputs)]
    missing = len(plan.reference.ir.graph.outputs) - len(plan.alignment.outputs)
    if missing > 0:
        are = "output of the reference is" if missing == 1 else "outputs of the reference are"
        notes.append(f"{missing} {are} missing in the candidate")
    notes += [f"{d.where}: {d.message}" for d in unused(plan.feeds)]
    return tuple(notes)


def _keep(plan: Plan, folder: Path, units: list[Unit]) -> None:
    """Write inputs and both results of each wrong piece, one .npz per tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, u in enumerate(units):
        (found,) = plan.mine.tensors([*u.mine.inputs, u.name], plan.arrays[:1])
        arrays = {"tensor": np.array(u.name), "expected": found[u.name]}
        arrays |= {f"input_{i}": found[n] for i, n in enumerate(u.mine.inputs)}
        save_arrays(folder / f"{number:03d}.npz", arrays)


def _demand_numbers(outputs: Sequence[Output]) -> None:
    """Raise NothingComparedError if every element of every output is NaN or infinite on both
    sides.
    """
    if (
        all(o.passed for o in outputs)
        and any(o.count for o in outputs)
        and not any(o.finite for o in outputs)
    ):
        message = (
            "every number of every output is NaN or infinite in both models, "
            "so that nothing can be compared"
        )
        help = "use inputs for which the network computes finite numbers: --data FILE.npz"
        raise NothingComparedError(Diagnostic("N402", message, help=help))


def _without_numbers(outputs: Sequence[Output]) -> Iterator[str]:
    """Yield outputs that give little evidence of whether the models are the same."""
    for o in outputs:
        if o.passed and not o.count:
            yield f'output "{o.reference}" is empty: only its shape is compared'
        elif o.passed and o.finite < o.count:
            yield (
                f'output "{o.reference}": {o.count - o.finite} of {o.count} '
                "numbers are NaN or infinite in both models, so they prove "
                "nothing"
            )


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings without repetitions: several pieces that hold the same layer, wrong for the
    same reason, give one.
    """
    found: dict[tuple[str, tuple[str, ...]], Finding] = {}
    for f in findings:
        found.setdefault((f.layer, f.causes[:1] or (f.tensor,)), f)
    return tuple(found.values())


def _at(finding: Finding | None, tensor: Tensor) -> Tensor:
    """Return a wrong tensor with the name of the layer that is wrong."""
    if finding is None:
        return tensor
    return replace(tensor, layer=finding.layer, kind=finding.kind, index=finding.index)
