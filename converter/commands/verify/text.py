"""A comparison as text: the wrong layers before the worst output, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from converter.commands.verify.compare import Difference
from converter.commands.verify.result import (
    EQUAL,
    INHERITED,
    NOISE,
    SAME,
    WRONG,
    Finding,
    Native,
    Output,
    Result,
)
from converter.errors import ExitCode

# statuses of layers, for people
STATUSES = {
    WRONG: "wrong",
    INHERITED: "passes an error on",
    NOISE: "within rounding noise",
    EQUAL: "identical",
}
CAUSES = 3
ALSO = 6  # wrong layers after the first


def lines(result: Result) -> Iterator[str]:
    """Yield the report: the compared models, the first wrong layer and the cause, the worst output,
    the verdict.
    """
    extra = len(result.only_reference) + len(result.only_candidate)
    yield (
        f"{_count(len(result.outputs), 'output')} compared on "
        f"{', '.join(result.feeds[:6])}{', ...' if len(result.feeds) > 6 else ''} (seed "
        f"{result.seed})"
        + (
            f"; {_count(result.aligned, 'intermediate tensor')} matched"
            + (f", {extra} could not be matched" if extra else "")
        )
    )
    yield from result.notes
    if result.first is not None:
        yield from _first(result.first, result.models)
        yield from _others(result.findings[1:])
    failed = [o for o in result.outputs if not o.passed]
    if result.worst is not None and (failed or result.max_difference):
        yield _worst(result.worst, result.first, bool(failed))
    if result.tensors:
        c = result.counts()
        yield (
            f"{_count(c[WRONG], 'layer')} {'is' if c[WRONG] == 1 else 'are'} wrong; "
            f"{_count(c[INHERITED], 'later layer')} {'passes' if c[INHERITED] == 1 else 'pass'} "
            f"the error on; {_count(c[EQUAL], 'tensor')} {'is' if c[EQUAL] == 1 else 'are'} "
            f"identical, {c[NOISE]} within rounding noise."
        )
    if failed and result.first is None:
        yield (
            "No single layer is wrong: the difference accumulates over several "
            "layers, or lies where no tensors could be matched."
        )
    for n in result.native:
        yield from _native(n)
    within = "rounding noise" if result.measured else "the tolerance"
    same = f"same within {within}" if result.max_difference else "same"
    yield (
        result.hidden
        if result.unfelt and result.code == ExitCode.UNFELT
        else "DIFFERENT"
        if not result.same
        else same
        if result.passed
        else f"{same} as netconv reads them, but NOT IN THEIR OWN ENGINES"
    )


def headline(result: Result) -> str:
    """Return the result in one sentence."""
    if result.passed:
        return (
            f"{_count(len(result.outputs), 'output')} "
            f"{'agrees' if len(result.outputs) == 1 else 'agree'}, largest difference "
            f"{result.max_difference:.3g}"
        )
    if result.unfelt and result.first is not None:
        return f"{result.hidden} ({_why(result.first)})"
    if result.same:
        n = next(n for n in result.native if n.failed)
        return f"{n.file}: {n.message}"
    if (f := result.first) is not None:
        return f'layer "{f.layer}" ({f.kind}) is wrong: {_why(f)}'
    worst = result.worst
    return (
        f'output "{worst.reference}" differs by {worst.difference.max_abs:.3g}'
        f"{_times(worst.difference)}"
        if worst is not None
        else "different"
    )


def _times(d: Difference) -> str:
    return f", {d.excess:.2g} times the tolerance" if 0 < d.excess < float("inf") else ""


def _why(f: Finding) -> str:
    return f.causes[0] if f.causes else f"error introduced here: {error(f.own)}"


def error(d: Difference) -> str:
    """Describe the error of a tensor: the difference of the element that exceeds its tolerance
    most, and the L2 norm of the whole difference relative to that of the tensor.
    """
    if d.note and d.max_abs == float("inf"):
        return d.note
    return f"{d.abs_at_index:.3g}" + (f" ({100 * d.l2:.2g} %)" if 0 < d.l2 < float("inf") else "")


def _others(findings: Sequence[Finding]) -> Iterator[str]:
    for f in findings[:ALSO]:
        yield (
            (
                f'ALSO   layer {f.index} "{f.layer}" {f.kind}   error introduced '
                f"here: {error(f.own)}   {f.causes[0] if f.causes else ''}"
            ).rstrip()
        )
    if len(findings) > ALSO:
        yield f"       and {len(findings) - ALSO} more wrong layers"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _first(f: Finding, models: tuple[str, str]) -> Iterator[str]:
    tolerance = f", allowed: {f.own.tolerance:.2g}" if f.own.tolerance else ""
    inherited = f"; inherited: {f.inherited:.2g}" if f.inherited else ""
    yield (
        f'FIRST  layer {f.index} "{f.layer}" {f.kind}   error introduced here: '
        f"{error(f.own)}{tolerance}{inherited}"
    )
    places = [
        f"{model}{':' if place.isdigit() else '  '}{place}"
        for model, place in zip(models, f.where, strict=True)
        if place
    ]
    if places:
        yield f"       {'   '.join(places)}"
    for text in f.causes[:CAUSES]:
        yield f"       {text}" + ("   <- the only difference" if len(f.causes) == 1 else "")
    if len(f.causes) > CAUSES:
        yield f"       and {len(f.causes) - CAUSES} more"
    if not f.causes:
        yield (
            "       no attribute or weight differs; computed by "
            f"{', '.join(f.layers[:4])}{', ...' if len(f.layers) > 4 else ''}"
        )


def _worst(o: Output, first: Finding | None, failed: bool) -> str:
    d = o.difference
    measure = d.note or f"{d.abs_at_index:.3g} abs, {d.ulp_at_index:.0f} ulp"
    at = (
        f" at [{','.join(map(str, d.index))}] {_number(d.reference)} became {_number(d.candidate)}"
        if d.index
        else ""
    )
    share = _times(d)
    whole = "" if d.note else f" ({_array_text(d)})"
    cause = f'   caused by layer "{first.layer}"' if first is not None and failed else ""
    return f'WORST  output "{o.reference}"   {measure}{at}{whole}{share} (input {o.feed}){cause}'


def _array_text(d: Difference) -> str:
    """Describe the difference of the whole array, besides that of the worst element."""
    largest = f"at most {d.max_abs:.3g} abs, " if d.max_abs > d.abs_at_index else ""
    ulp = f", {d.ulp:.0f} ulp" if d.ulp > d.ulp_at_index else ""
    return f"whole output: {largest}cosine {d.cos:.6f}{ulp}"


def _native(n: Native) -> Iterator[str]:
    file = n.file if n.file == n.role else f"{n.role} {n.file}"
    if n.status == SAME:
        largest = max((o.difference.max_abs for o in n.outputs), default=0.0)
        within = f" (largest difference {largest:.2g})" if largest else ""
        yield f"NATIVE {n.engine} runs {file} and agrees with netconv{within}"
    else:
        yield f"NATIVE {file}: {n.level}[{n.code}] {n.message}" + (
            f" (help: {n.help})" if n.help else ""
        )


def _number(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
