"""The plan of one comparison: two models, their inputs, and how differences are judged. Nothing has
run yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from converter.commands.options.verify import Verify
from converter.commands.verify.align import Alignment, align
from converter.commands.verify.feeds import Feed, feeds_for
from converter.commands.verify.isolate import LockStep, in_shape
from converter.commands.verify.judge import Judge, Limits
from converter.commands.verify.native import CHOICES
from converter.commands.verify.noise import Precision, quantization_steps
from converter.commands.verify.program import Program
from converter.commands.verify.rows import without_padded
from converter.commands.verify.sizes import shapes_for
from converter.errors import Diagnostic, NothingComparedError, wrong_call
from converter.graph.infer import Arrays
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import known_sizes
from converter.passes.stored_halves import store_halves, stored_half

MODES = ("isolated", "chain")


@dataclass(frozen=True)
class Plan:
    """One comparison. `mine` and `theirs` are the reference and the candidate in pieces; `arrays`
    and `others` are the feeds by the names of either graph's inputs. `steps` are those of the
    candidate's quantized outputs, `precision` has the rounding steps of the reference's tensors.
    """

    reference: Network
    candidate: Network
    options: Verify
    limits: Limits
    alignment: Alignment
    mine: Program
    theirs: Program
    feeds: tuple[Feed, ...]
    arrays: tuple[Arrays, ...]
    others: tuple[Arrays, ...]
    steps: dict[str, float]
    precision: Precision

    @classmethod
    def of(cls, reference: Network, candidate: Network, options: Verify) -> Plan:
        """Plan a comparison. Raises UsageError for invalid options, NothingComparedError if there
        is no input.
        """
        if options.mode not in MODES:
            raise wrong_call(
                f"--mode {options.mode!r} is not known", help=f"use one of {', '.join(MODES)}"
            )
        if options.native not in CHOICES:
            raise wrong_call(
                f"--native must be one of {', '.join(CHOICES)}, got {options.native!r}"
            )
        reference, candidate = as_stored(reference), as_stored(candidate)
        metrics = (options.metrics,) if isinstance(options.metrics, str) else options.metrics
        limits = Limits.of(options.rtol, options.atol, tuple(metrics))
        alignment = align(reference, candidate, dict(options.map or {}))
        alignment = without_padded(alignment, reference, candidate)
        mine, theirs = Program(reference), Program(candidate)
        shapes = shapes_for(reference, options.inputs, _hints(alignment, mine, theirs))
        feeds = feeds_for(reference, options.data, options.seed, options.seeds, shapes)
        if not feeds:
            raise NothingComparedError(Diagnostic("N402", "there are no inputs to compare on"))
        steps = quantization_steps(candidate.ir)
        precision = LockStep(mine, theirs, alignment, limits.tolerance, steps).precision()
        arrays = [f.by_value(reference) for f in feeds]
        others = [
            {c: in_shape(a[r], theirs.values[c]) for r, c in alignment.inputs} for a in arrays
        ]
        return cls(
            reference=reference,
            candidate=candidate,
            options=options,
            limits=limits,
            alignment=alignment,
            mine=mine,
            theirs=theirs,
            feeds=tuple(feeds),
            arrays=tuple(arrays),
            others=tuple(others),
            steps=steps,
            precision=precision,
        )

    def on(self, kept: list[int]) -> Plan:
        """Return the plan with only some of the feeds."""
        return replace(
            self,
            feeds=tuple(self.feeds[i] for i in kept),
            arrays=tuple(self.arrays[i] for i in kept),
            others=tuple(self.others[i] for i in kept),
        )

    @property
    def judge(self) -> Judge:
        """Return the judge of the comparison; differences count by the limits of the options."""
        named = any(str(m).startswith("max=") for m in self.options.metrics)
        return Judge(self.limits, not named, tuple(f.name for f in self.feeds))

    @property
    def tensors(self) -> tuple[str, ...]:
        """Return the names of the judged tensors."""
        given = self.options.tensors
        return (given,) if isinstance(given, str) else tuple(given)

    @property
    def outputs_alone(self) -> bool:
        """Return whether the verdict is about outputs, and tensors only help to find a cause."""
        return self.tensors == ("outputs",)

    @property
    def positions(self) -> list[tuple[int, int]]:
        """Return the positions of each pair of aligned outputs in either model."""
        mine, theirs = self.mine.outputs, self.theirs.outputs
        return [(mine.index(r), theirs.index(c)) for r, c in self.alignment.outputs]

    def judged(self) -> set[str]:
        """Return the names of the tensors that determine the verdict. Raises NothingComparedError
        if there are none.
        """
        outputs = {public_name(self.mine.source.values[r]) for r, _ in self.alignment.outputs}
        globs = self.tensors
        if self.outputs_alone:
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
                    f"--tensors {' '.join(globs)} selects none of {len(known)} matched tensors",
                )
            )
        return chosen


def as_stored(network: Network) -> Network:
    """Return the network with its weights in the half-precision type in which its file stores them:
    their rounding is not a fault of a layer.
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


def _hints(
    alignment: Alignment, mine: Program, theirs: Program
) -> dict[str, tuple[int | None, ...]]:
    """Return the sizes of the candidate's inputs, by the names of the reference's inputs."""
    return {
        public_name(mine.source.values[r]): tuple(sizes)
        for r, c in alignment.inputs
        if (sizes := known_sizes(theirs.source.values[c])) is not None
    }
