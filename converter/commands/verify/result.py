"""What a comparison found, as plain data (JSON Schema: schemas/report/verify.json); text and exit
codes are renderings of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from converter.commands.verify.compare import Difference
from converter.errors import Diagnostic, ExitCode, Level, Where
from converter.io.strict_json import Json

SHOWN = 4  # layers that one sentence names
EQUAL, NOISE, WRONG, INHERITED = "equal", "noise", "wrong", "inherited"
SAME, NOTED, SKIPPED, ABSENT, DIFFERS, REFUSED = (
    "same",
    "noted",
    "skipped",
    "absent",
    "differs",
    "refused",
)


@dataclass(frozen=True)
class Tensor:
    """One aligned tensor, over all feeds: `own` is its error on the reference's inputs (None: not
    measured), `total` in the chain.

    status: equal (bit for bit), noise (within tolerance), wrong (by itself), inherited (only what
    comes in is wrong).
    """

    reference: str
    candidate: str
    layer: str
    kind: str
    index: int  # position of the layer among the reference's, from 0
    status: str
    aligned_by: str = ""
    own: Difference | None = None
    total: Difference | None = None


@dataclass(frozen=True)
class Finding:
    """A layer that is wrong by itself. `layers` are the reference's layers of the smallest
    comparable piece, `causes` sentences.
    """

    layer: str
    kind: str
    index: int
    tensor: str
    layers: tuple[str, ...]
    own: Difference
    inherited: float
    causes: tuple[str, ...] = ()
    where: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Output:
    """One compared graph output, over all feeds. The element and the counts in `difference` are
    those of `feed`, where the element is that exceeds its tolerance most; its other measures are
    the worst of any feed. `count` elements were compared on all feeds, of which `finite` are finite
    in the reference.
    """

    reference: str
    candidate: str
    passed: bool
    difference: Difference
    feed: str = ""
    broken: tuple[str, ...] = ()  # metrics whose limit is broken
    finite: int = 0
    count: int = 0


def worst_of(outputs: Iterable[Output]) -> Output | None:
    """The output that differs most, in units of what it may."""
    return max(outputs, key=lambda o: (o.difference.excess, o.difference.max_abs), default=None)


@dataclass(frozen=True)
class Native:
    """A file in the engine that it is written for; `role` says whose it is (reference or
    candidate), `file` what reports call it.

    status: same (as netconv reads it), noted (but for something the engine is known to leave out),
    skipped (not compared; `message` says why), absent (the engine is not installed), differs (the
    reader changes the network), refused (the engine does not take or run the file). In `outputs`
    the reference is what netconv reads, the candidate what the engine computes.
    """

    role: str
    file: str
    engine: str
    status: str
    code: str = ""
    message: str = ""
    help: str = ""
    outputs: tuple[Output, ...] = ()

    @property
    def level(self) -> Level:
        """A refused reference is no fault of the candidate: a warning, since its reading stays
        unconfirmed.
        """
        if self.status == DIFFERS or (self.status == REFUSED and self.role == "candidate"):
            return "error"
        return "warning" if self.status == REFUSED else "note"

    @property
    def failed(self) -> bool:
        return self.level == "error"

    @property
    def diagnostic(self) -> Diagnostic | None:
        """None when there is nothing to say."""
        return (
            Diagnostic(self.code, self.message, self.level, Where(self.file), help=self.help)
            if self.code
            else None
        )


@dataclass(frozen=True)
class Result:
    """`passed` is the verdict, `max_difference` the largest absolute difference of any compared
    output.
    """

    passed: bool
    outputs: tuple[Output, ...]
    tensors: tuple[Tensor, ...] = ()
    findings: tuple[Finding, ...] = ()
    feeds: tuple[str, ...] = ()
    seed: int = 0
    measured: bool = True  # judged against measured noise; else by the user's own tolerances
    step: float = 0.0
    aligned: int = 0
    only_reference: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    models: tuple[str, str] = ("reference", "candidate")
    notes: tuple[str, ...] = ()
    unfelt: bool = False  # no output shows what the findings say
    native: tuple[Native, ...] = ()  # either file in its own engine, where that was asked for
    structure: tuple[
        Json, ...
        # what is in either model, see converter.commands.inspect.summary; where it was asked for
    ] = ()
    # parts of the wrong tensors, and the graph around the first wrong layer, see
    # converter.commands.verify.evidence
    samples: tuple[Json, ...] = ()
    picture: Json | None = None

    @property
    def max_difference(self) -> float:
        return max((o.difference.max_abs for o in self.outputs), default=0.0)

    @property
    def same(self) -> bool:
        """Whether what was read of the two files is the same network, whatever their own engines
        make of them.
        """
        return all(o.passed for o in self.outputs) and not self.findings

    @property
    def code(self) -> ExitCode:
        """What a shell sees."""
        if self.passed:
            return ExitCode.OK
        felt = not self.unfelt or any(n.failed for n in self.native)
        return ExitCode.FINDING if felt else ExitCode.UNFELT

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What the files' own engines say beyond "same", and N408."""
        said = [d for n in self.native if (d := n.diagnostic) is not None]
        if self.unfelt:
            said.append(Diagnostic("N408", self.hidden, "warning", Where(self.models[1])))
        return tuple(said)

    @property
    def hidden(self) -> str:
        """The sentence about faults that no output shows."""
        names = [f'"{f.layer}"' for f in self.findings]
        count = (
            "1 layer differs by itself"
            if len(names) == 1
            else f"{len(names)} layers differ by themselves"
        )
        more = ", ..." if len(names) > SHOWN else ""
        return f"outputs the same; {count}: {', '.join(names[:SHOWN])}{more}"

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    @property
    def worst(self) -> Output | None:
        return worst_of(self.outputs)

    def counts(self) -> dict[str, int]:
        return {
            s: sum(t.status == s for t in self.tensors) for s in (EQUAL, NOISE, WRONG, INHERITED)
        }

    def as_json(self) -> Json:
        """Plain data; infinities and NaN as the texts "inf", "-inf", "nan", which JSON has no
        numbers for.
        """
        data = {
            "schema": "netconv/verify/1",
            **asdict(self),
            "max_difference": self.max_difference,
            "counts": self.counts(),
        }
        plain: Json = _plain(data)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
