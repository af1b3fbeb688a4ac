"""Compare both models layer by layer: the tensors that differ by themselves, and the pairs that
stay aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from converter.commands.verify.align import Alignment, without
from converter.commands.verify.cause import CONSTANT, OPERAND, differences, paired, rewritten
from converter.commands.verify.isolate import LockStep, Unit
from converter.commands.verify.noise import MULTIPLE
from converter.commands.verify.numbers import more_aligned
from converter.commands.verify.plan import Plan
from converter.commands.verify.program import CannotRun, refuse
from converter.commands.verify.result import Output
from converter.io import progress

ROUNDS = 4


@dataclass(frozen=True)
class Layers:
    """The compared pieces, and the alignment that defines them."""

    units: tuple[Unit, ...]
    alignment: Alignment

    @property
    def broken(self) -> list[Unit]:
        return [u for u in self.units if u.broken]


def needed(plan: Plan, wrong: bool, known: Layers) -> Layers:
    """Return the layers, as far as they were requested or are needed to find the fault; `known` are
    those that were compared already.
    """
    if not wrong and plan.outputs_alone:
        return replace(known, units=())
    if known.units:
        return known
    if plan.options.mode != "chain":
        return isolated(plan)
    return known if plan.outputs_alone else _compared(plan, known.alignment)


@progress.step("comparing layer by layer")
def isolated(plan: Plan) -> Layers:
    """Compare piece by piece. A pair that only shares its name, or is transposed, is distinguished
    from a fault by comparing the piece that contains it.
    """
    alignment = more_aligned(
        (plan.reference, plan.candidate),
        (plan.mine, plan.theirs),
        plan.alignment,
        plan.arrays[0],
        plan.others[0],
    )
    found = _compared(plan, alignment)
    for _ in range(ROUNDS):  # removing pairs may reveal more transposed ones
        transposed = {
            u.name for u in found.broken if u.transposed and not _certain(u, found.alignment)
        }
        if not transposed:
            break
        found = _compared(plan, without(found.alignment, transposed))
    doubtful = _doubtful(plan, found)
    if not doubtful:
        return found
    outer = _compared(plan, without(found.alignment, doubtful))
    guilty = {str(o.name) for u in outer.broken for n in u.nodes for o in n.outputs}
    innocent = doubtful - guilty
    if not innocent:
        return found
    if innocent == doubtful:
        return outer
    return _compared(plan, without(found.alignment, innocent))


def _certain(u: Unit, alignment: Alignment) -> bool:
    """Return whether the unit is an output, or was aligned by the user."""
    return u.name in {r for r, _ in alignment.outputs} or alignment.how.get(u.name) == "map"


def _doubtful(plan: Plan, found: Layers) -> set[str]:
    """Return the differing pairs that have different operators or different weights (fused layers
    reuse names), and those whose consumer differs too: the two may compensate each other.
    """
    followed = {n for u in found.broken for n in (*u.mine.inputs, *u.given.values())}
    doubtful = set()
    for u in found.broken:
        a, b = plan.mine.source.node(u.name), plan.theirs.source.node(u.other)
        if a is None or b is None or _certain(u, found.alignment):
            continue
        if u.name in followed or a.op_type != b.op_type or rewritten(a, b):
            doubtful.add(u.name)
    return doubtful


def _steps(plan: Plan, alignment: Alignment) -> LockStep:
    return LockStep(plan.mine, plan.theirs, alignment, plan.limits.tolerance, plan.steps)


@progress.step("comparing layer by layer")
def _compared(plan: Plan, alignment: Alignment) -> Layers:
    found: list[Unit] = []
    try:
        for unit in _steps(plan, alignment).run([*plan.arrays], [*plan.others]):
            found.append(unit)
            if unit.broken and plan.options.fail_fast:
                break
    except CannotRun as e:
        raise refuse(e, "reference") from None
    place = plan.mine.source.order
    return Layers(tuple(sorted(found, key=lambda u: place[u.nodes[-1]])), alignment)


def any_hidden(plan: Plan, outputs: Sequence[Output]) -> bool:
    """Return whether layers have other attributes or weights and compute something else although
    the outputs are the same: possibly no input shows the difference.

    Entirely different weights are considered the result of a rewrite, unless the outputs are equal
    bit for bit.
    """
    exact = all(o.difference.equal for o in outputs)
    steps = _steps(plan, plan.alignment)
    suspects = [
        u.name
        for u in steps.units
        if any(
            _says_other(plan, n, m, exact, inner=n is not u.nodes[-1])
            for n, m in paired(u.nodes, u.others)
        )
    ]
    return bool(suspects) and steps.any_broken(suspects, [*plan.arrays])


def _says_other(plan: Plan, a: ir.Node, b: ir.Node, exact: bool, inner: bool) -> bool:
    """Return whether two nodes differ; operands of `inner` nodes are ignored, since names of inner
    tensors mean nothing.
    """
    step = MULTIPLE * plan.precision[str(a.outputs[0].name)]
    ignored = {OPERAND} if inner else set()
    found = {c.rank for c in differences(a, b, plan.alignment.back, step)} - ignored
    return bool(found - {CONSTANT}) or (bool(found) and (exact or not rewritten(a, b)))
