"""The findings of a comparison as plain data (JSON Schema: schemas/report/verify.json); text and
exit codes are renderings of it.
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
    measured), `total` its error in the whole network.

    status: equal (bit for bit), noise (within tolerance), wrong (by itself), inherited (only its
    inputs are wrong).
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
    those of `feed`, the feed whose element exceeds its tolerance most; its other measures are the
    worst of any feed. `count` elements were compared on all feeds, of which `finite` are finite in
    the reference.
    """

    reference: str
    candidate: str
    passed: bool
    difference: Difference
    feed: str = ""
    broken: tuple[str, ...] = ()  # metrics whose limit is exceeded
    finite: int = 0
    count: int = 0


def worst_of(outputs: Iterable[Output]) -> Output | None:
    """Return the output that differs most, relative to its tolerance."""
    return max(outputs, key=lambda o: (o.difference.excess, o.difference.max_abs), default=None)


@dataclass(frozen=True)
class Native:
    """A file in the engine that it is written for; `role` is the model (reference or candidate),
    `file` its name in reports.

    status: same (as netconv reads it), noted (except for something that the engine is known to
    leave out), skipped (not compared; `message` gives the reason), absent (the engine is not
    installed), differs (netconv misreads the file), refused (the engine cannot load or run the
    file). In `outputs` the reference is netconv's reading, the candidate the engine's result.
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
        """Return the level of the diagnostic. A refused reference is not a fault of the candidate:
        only a warning that netconv's reading of it is unconfirmed.
        """
        if self.status == DIFFERS or (self.status == REFUSED and self.role == "candidate"):
            return "error"
        return "warning" if self.status == REFUSED else "note"

    @property
    def failed(self) -> bool:
        return self.level == "error"

    @property
    def diagnostic(self) -> Diagnostic | None:
        """Return the diagnostic, None if there is nothing to report."""
        return (
            Diagnostic(self.code, self.message, self.level, Where(self.file), help=self.help)
            if self.code
            else None
        )


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a comparison. `passed` is the verdict, `max_difference` the largest absolute
    difference of any compared output.
    """

    passed: bool
    outputs: tuple[Output, ...]
    tensors: tuple[Tensor, ...] = ()
    findings: tuple[Finding, ...] = ()
    feeds: tuple[str, ...] = ()
    seed: int = 0
    measured: bool = True  # judged by measured noise; else by the user's own tolerances
    step: float = 0.0
    aligned: int = 0
    only_reference: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    models: tuple[str, str] = ("reference", "candidate")
    notes: tuple[str, ...] = ()
    unfelt: bool = False  # the findings show in no output
    native: tuple[Native, ...] = ()  # either file in its own engine, if that was requested
    structure: tuple[
        Json, ...
        # the content of either model, if requested; see converter.commands.inspect.summary
    ] = ()
    # parts of the wrong tensors, and the graph around the first wrong layer, see
    # converter.commands.verify.evidence
    samples: tuple[Json, ...] = ()
    picture: Json | None = None

    def __repr__(self) -> str:
        """Return a short description."""
        verdict = "same" if self.passed else "different"
        wrong = f", first wrong layer {self.first.layer!r}" if self.first is not None else ""
        return (
            f"<Result {verdict}: {' and '.join(self.models)}, {len(self.outputs)} outputs, "
            f"largest difference {self.max_difference:.3g}{wrong}>"
        )

    @property
    def max_difference(self) -> float:
        return max((o.difference.max_abs for o in self.outputs), default=0.0)

    @property
    def same(self) -> bool:
        """Return whether both files, as netconv reads them, are the same network; the results of
        their own engines do not count.
        """
        return all(o.passed for o in self.outputs) and not self.findings

    @property
    def code(self) -> ExitCode:
        """Return the exit code of the process."""
        if self.passed:
            return ExitCode.OK
        felt = not self.unfelt or any(n.failed for n in self.native)
        return ExitCode.FINDING if felt else ExitCode.UNFELT

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return the findings of the files' own engines other than "same", and N408."""
        said = [d for n in self.native if (d := n.diagnostic) is not None]
        if self.unfelt:
            said.append(Diagnostic("N408", self.hidden, "warning", Where(self.models[1])))
        return tuple(said)

    @property
    def hidden(self) -> str:
        """Return the sentence about wrong layers that do not change any output."""
        names = [f'"{f.layer}"' for f in self.findings]
        count = "1 layer differs" if len(names) == 1 else f"{len(names)} layers differ"
        more = ", ..." if len(names) > SHOWN else ""
        return (
            f"hidden difference: outputs are equal, but {count}: {', '.join(names[:SHOWN])}{more}"
        )

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    @property
    def worst(self) -> Output | None:
        return worst_of(self.outputs)

    def counts(self) -> dict[str, int]:
        """Return the number of tensors of each status."""
        return {
            s: sum(t.status == s for t in self.tensors) for s in (EQUAL, NOISE, WRONG, INHERITED)
        }

    def as_json(self) -> Json:
        """Return plain data; infinities and NaN, which JSON numbers lack, are the texts "inf",
        "-inf", "nan".
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
