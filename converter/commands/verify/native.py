"""Compare a file in the engine that it is written for with netconv's reading of it.

A reader and a writer by the same authors share their mistakes, and agree with each other. So the
engine gets the file itself, without any information that only netconv knows (notes about the
boundary, maps): it must load it, and must compute the same as our reading of it, as far as rounding
allows. The tolerance is the same as between two models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from converter.commands.verify.floor import Noise, Results
from converter.commands.verify.judge import Judge
from converter.commands.verify.noise import Floors, precision_of, quantization_steps, tolerance
from converter.commands.verify.program import CannotRun, Program
from converter.commands.verify.result import (
    ABSENT,
    DIFFERS,
    NOTED,
    REFUSED,
    SAME,
    SKIPPED,
    Native,
    Output,
    worst_of,
)
from converter.engines import file
from converter.engines.processor import saturates
from converter.errors import wrong_call
from converter.graph.infer import Array
from converter.graph.names import public_name
from converter.graph.network import Network, as_complex, as_pairs
from converter.io.extras import install

CHOICES = ("auto", "on", "off")


_FINEST = {"openvino": 2.0**-23}  # its CPU computes doubles as floats


@dataclass(frozen=True)
class Side:
    """One model of a comparison: `computed` holds the results of our reading of its file on `feeds`
    (arrays by value name), by feed and output.
    """

    role: str
    name: str
    model: Network
    program: Program
    feeds: Sequence[dict[str, Array]]
    computed: list[list[Array]]
    noise: Noise | None = None  # that of this network, as far as it is already measured

    @property
    def engine(self) -> str:
        return file.engine_of(self.model)

    def on(self, places: Sequence[int]) -> Side:
        """Return this side with only some of the feeds."""
        noise = None if self.noise is None else self.noise.of(places)
        return replace(
            self,
            feeds=[self.feeds[p] for p in places],
            computed=[self.computed[p] for p in places if self.computed],
            noise=noise,
        )

    def found(
        self,
        status: str,
        code: str = "",
        message: str = "",
        help: str = "",
        outputs: tuple[Output, ...] = (),
    ) -> Native:
        """Return the result of running the file."""
        return Native(self.role, self.name, self.engine, status, code, message, help, outputs)

    def absent(self, why: str) -> Native:
        """Return that the engine is not installed (U502)."""
        help = f"run {install(self.engine)}, or use --native off"
        return self.found(ABSENT, "U502", f"{self.engine} {why}", help)

    def untyped(self, what: str) -> Native:
        """Return that the file was loaded and not run, because Python lacks a type (N406)."""
        why = (
            f"{self.engine} loads the file, but Python cannot represent the types "
            f"of its {what} as arrays"
        )
        return self.found(SKIPPED, "N406", why)

    def expected(self) -> list[list[Array]]:
        """Return the computed results, if all of them can be represented as arrays, else empty."""
        return (
            self.computed
            if all(isinstance(v.type, ir.TensorType) for v in self.model.ir.graph.outputs)
            else []
        )

    def measured(self) -> Noise:
        """Return the noise of this model alone: in steps of its own types, not those of the
        other model, and not finer than its engine computes.
        """
        own = precision_of(self.model.ir, _FINEST.get(self.engine, 0.0))
        return (
            self.noise
            if self.noise is not None and self.noise.precision.largest == own.largest
            else Noise(self.program, self.feeds, self.computed, own)
        )


def examine(sides: Sequence[Side], judge: Judge, choice: str) -> tuple[Native, ...]:
    """Run each file in its own engine; files of formats without one are omitted. With "on", a
    missing engine raises UsageError U502.
    """
    having = [s for s in sides if s.engine]
    missing = sorted({s.engine for s in having if not file.available(s.engine)})
    if choice == "on" and missing:
        raise wrong_call(
            f"engine {missing[0]!r} is not installed",
            help=f"run {install(missing[0])}, or use --native auto",
            code="U502",
        )
    if choice == "on" and not having:
        raise wrong_call(
            "no engine of the files' formats runs here",
            help="use --native auto to run those that do",
            code="U502",
        )
    absent = "is not installed, so the file was not run there"
    return tuple(s.absent(absent) if s.engine in missing else _examined(s, judge) for s in having)


def _examined(s: Side, judge: Judge) -> Native:
    graph = s.model.ir.graph
    declared = s.model.interface if s.engine == "litert" else {}
    states, pairs = declared.get("states", {}), declared.get("complex", ())
    fed = {
        n: str(v.name)
        for v in graph.inputs
        if (n := public_name(v)) not in states and all(str(v.name) in f for f in s.feeds)
    }
    feeds = [[as_complex(f[v]) if n in pairs else f[v] for n, v in fed.items()] for f in s.feeds]
    assert s.model.source is not None
    found = file.run(s.engine, s.model.source, list(fed), feeds, s.expected(), s.model.function)
    if found.stage != "done":
        return _unfinished(s, found, judge)
    if states:
        message = (
            "litert runs the file, but Python cannot set its variables to the "
            "initial values that netconv uses"
        )
        return s.found(SKIPPED, "N406", message)
    wanted = [public_name(v) for v in graph.outputs]
    places = output_order(wanted, found.outputs)
    if places is None:
        message = f"the file has {len(found.outputs)} outputs, but netconv reads {len(wanted)}"
        return s.found(DIFFERS, "N404", message)

    def compared(run: file.Run) -> Native:
        results = [[_plain(r.get(p)) for p in places] for r in run.results]
        return _compared(s, judge, results)

    native = compared(found)
    if native.status not in (SAME, NOTED) or not _may_saturate(s):
        return native
    usual = file.run(s.engine, s.model.source, list(fed), feeds, None, s.model.function)
    return native if usual.stage != "done" else _saturated(s, native, compared(usual))


def _may_saturate(s: Side) -> bool:
    """Return whether the default options, which users have, may give other numbers than the exact
    ones: those of 8-bit products on this processor.
    """
    return s.engine == "onnxruntime" and s.program.quantized and saturates()


def _saturated(s: Side, native: Native, usual: Native) -> Native:
    """Return the result of exact options, or the fault of the default ones."""
    if usual.status != DIFFERS:
        return native
    worst = worst_of(o for o in usual.outputs if not o.passed)
    where = "" if worst is None else f": {_words(worst)}"
    message = (
        f"{s.engine} agrees with netconv on the file with exact options, but not with its default "
        "options: this processor has no VNNI, where the sums of its 8-bit products saturate at 16 "
        f"bits{where}"
    )
    status = DIFFERS if s.role == "candidate" else NOTED
    return s.found(status, "N414", message, _SATURATED, usual.outputs)


def _plain(found: Array | None) -> Array | None:
    """Convert complex numbers to the form of the graph."""
    return as_pairs(found) if found is not None and found.dtype.kind == "c" else found


def _unfinished(s: Side, found: file.Run, judge: Judge) -> Native:
    """Describe a run that ended without results."""
    match found.stage:
        case "boundary":
            return s.found(DIFFERS, "N404", found.error)
        case "feed" if found.error:
            why = f"the inputs that netconv reads do not match those of the file: {found.error}"
            return s.found(DIFFERS, "N404", why)
        case "feed":
            return s.untyped("inputs")
        case "absent":
            return s.absent(f"cannot be imported: {found.error}")
        case "memory":
            why = f"there is not enough memory for {s.engine}: {found.error}"
            return s.found(SKIPPED, "U503", why)
    when = f" when it runs on the input {judge.feeds[found.feed]}" if found.stage == "run" else ""
    why = f"{s.engine} cannot load this file{when}: {found.error}"
    return s.found(REFUSED, "N405", why, _REFUSED[s.role])


_REFUSED = {
    "candidate": (
        "netconv reads it, but its users' engine does not; try another flavor (netconv formats)"
    ),
    "reference": "netconv's reading of it is unconfirmed",
}


def output_order(wanted: Sequence[str], outputs: Sequence[tuple[str, ...]]) -> list[int] | None:
    """Return the index in the file of each of our outputs: by name, else by order."""
    by_name = [next((i for i, names in enumerate(outputs) if w in names), None) for w in wanted]
    if None not in by_name and len(set(by_name)) == len(by_name):
        return [p for p in by_name if p is not None]
    return list(range(len(wanted))) if len(wanted) == len(outputs) else None


def _compared(s: Side, judge: Judge, results: list[list[Array | None]]) -> Native:
    """Judge the engine's results against the noise of our own reading, which is measured further
    only if a difference exceeds the known noise.
    """
    graph = s.model.ir.graph
    comparable = [
        i
        for i, v in enumerate(graph.outputs)
        if isinstance(v.type, ir.TensorType) and all(r[i] is not None for r in results)
    ]
    if not comparable:
        return s.untyped("outputs")
    noise = s.measured()
    steps = quantization_steps(s.model.ir)

    def judged(by: Judge, read: Results, floors: Floors) -> tuple[Output, ...]:
        return tuple(one(by, i, read, floors) for i in comparable)

    def one(by: Judge, i: int, read: Results, floors: Floors) -> Output:
        name, step = public_name(graph.outputs[i]), steps.get(str(graph.outputs[i].name), 0.0)

        def allowed(k: int, base: Array) -> Array:
            return tolerance(base, floors[k][i], noise.step(i), step)

        return by.output(
            (name, name), [r[i] for r in read], [np.asarray(r[i]) for r in results], allowed
        )

    def found(by: Judge) -> Native:
        return _agreement(s, noise, lambda read, floors: judged(by, read, floors))

    native = found(judge)
    if native.status != DIFFERS:
        return native
    worst = worst_of(o for o in native.outputs if not o.passed)
    assert worst is not None
    if judge.limits.chosen and found(judge.measuring()).status != DIFFERS:
        message = (
            f"{s.engine} and netconv agree on the file within rounding noise, "
            f"but not within the given tolerance: {_words(worst)}"
        )
        return s.found(DIFFERS, "N401", message, _CHOSEN, native.outputs)
    message = (
        f"netconv misreads this file, or {s.engine} does: they compute "
        f"different results, {_words(worst)}"
    )
    return s.found(DIFFERS, "N404", message, _DIFFERS, native.outputs)


def _agreement(
    s: Side, noise: Noise, judged: Callable[[Results, Floors], tuple[Output, ...]]
) -> Native:
    """Determine whether the engine agrees with our reading, measuring no more of the noise than
    necessary.
    """
    outputs: tuple[Output, ...] = ()
    for floors in _known(noise):
        outputs = judged(s.computed, floors)
        if all(o.passed for o in outputs):
            return s.found(SAME, outputs=outputs)
    exact = noise.in_floats()
    if exact is not None and all(o.passed for o in judged(exact, floors)):
        message = (
            f"{s.engine} computes values in float32 that the file declares as half "
            "precision, and omits the rounding"
        )
        return s.found(NOTED, "N406", message, outputs=outputs)
    for floors in _special(noise):
        again = judged(s.computed, floors)
        if all(o.passed for o in again):
            return s.found(SAME, outputs=again)
    return s.found(DIFFERS, outputs=outputs)


_SATURATED = (
    'set the session option "session.x64quantprecision" to "1", or store weights as uint8 or in 7 '
    "bits"
)
_CHOSEN = "choose a larger tolerance, or omit the engines with --native off"
_DIFFERS = "please report it with the file; --native off omits this comparison"


def _known(noise: Noise) -> Iterator[Floors]:
    """Yield the noise known at first, and after each repetition, as long as the engine can repeat
    its computation.
    """
    with contextlib.suppress(CannotRun):
        for count in range(min(noise.done, noise.repetitions), noise.repetitions + 1):
            yield noise.floors(count)


def _special(noise: Noise) -> Iterator[Floors]:
    """Yield the noise with the further roundings that engines may do differently: large sums and
    constants, float16, ties of quantization, and, in integers, one step in a layer.
    """
    with contextlib.suppress(CannotRun):
        yield noise.with_sums()
        if noise.program.halves:
            yield noise.with_floats()
        if noise.program.rounds:
            yield noise.with_ties()
            yield noise.with_steps()


def _words(o: Output) -> str:
    d = o.difference
    if d.index:
        return (
            f'output "{o.reference}" is {d.candidate} instead of {d.reference} at '
            f"[{','.join(map(str, d.index))}] (input {o.feed})"
        )
    return f'output "{o.reference}": {d.note or f"off by {d.max_abs:.3g}"} (input {o.feed})'
