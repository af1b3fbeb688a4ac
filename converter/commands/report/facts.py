"""Stored results of every kind as one kind of document, from which all renderings are made.

The inputs are the output of any command with --format json (schemas/report/run.json), a comparison
(verify.json) and the results of a batch (batch.json).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from converter.commands.report import origin
from converter.commands.report.cases import ERRORS, Case
from converter.commands.verify.result import Result
from converter.commands.verify.stored import result_of, value_of
from converter.commands.verify.text import headline, lines
from converter.errors import (
    INVALID,
    Diagnostic,
    ExitCode,
    Where,
    most_severe,
    unreadable,
    wrong_call,
)
from converter.io import strict_json
from converter.io.strict_json import Json


@dataclass(frozen=True)
class Entry:
    """One case: a comparison, a conversion, a job. `headline` is its result in one sentence,
    `arguments` are the arguments of netconv, `seconds` is the duration, if they are known.

    `trend` is the change since the baseline: "new" (fails since, or worse), "fixed", "known" (still
    fails), or "".
    """

    name: str
    group: str
    code: int
    headline: str
    source: str = ""
    target: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    numbers: Result | None = None
    structure: tuple[Json, ...] = ()
    files: Json = field(default_factory=dict)
    coverage: Json | None = None
    roundtrip: Json | None = None
    trend: str = ""
    seconds: float | None = None
    arguments: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return ExitCode(self.code).status

    @property
    def where(self) -> Where:
        """Return the location of the first wrong layer in the candidate's file."""
        if self.numbers is None or self.numbers.first is None:
            return Where(self.source)
        first, file = self.numbers.first, self.numbers.models[1]
        line = first.where[1]
        return Where(
            file,
            int(line) if line.isdigit() else 0,
            "" if line.isdigit() else line,
            first.layer,
            first.kind,
        )

    def text(self) -> list[str]:
        """Return the details beyond the headline."""
        said = list(lines(self.numbers)) if self.numbers is not None else []
        reported = (
            {d.message for d in self.numbers.diagnostics} if self.numbers is not None else set()
        )
        return [
            *said,
            *(str(d) for d in self.diagnostics if d.level != "note" and d.message not in reported),
        ]


@dataclass(frozen=True)
class Report:
    """The data of a rendering."""

    title: str
    version: str
    entries: tuple[Entry, ...]
    baseline: str = ""
    origin: Json = field(default_factory=dict)  # see converter.commands.report.origin

    @property
    def code(self) -> int:
        """Return the most severe exit code of the entries that ran."""
        ran = [e.code for e in self.entries if all(d.code != "B605" for d in e.diagnostics)]
        return most_severe(ran) if ran or not self.entries else ExitCode.INTERRUPTED

    @property
    def verdict(self) -> str:
        """Return the number of entries of each status, as text."""
        counts = Counter(e.status for e in self.entries)
        return ", ".join(
            f"{n} {s}" for s, n in sorted(counts.items(), key=lambda i: (i[0] != "ok", -i[1], i[0]))
        )

    @property
    def trend(self) -> str:
        """Return "1 new, 2 fixed, 0 known", or "" without a baseline."""
        counts = Counter(e.trend for e in self.entries)
        return (
            ", ".join(f"{counts[t]} {t}" for t in ("new", "fixed", "known"))
            if self.baseline
            else ""
        )

    def code_of(self, fail_on: str) -> int:
        """Return the exit code of all failures, or of those that are "new" since the baseline."""
        if fail_on != "new":
            return self.code
        return most_severe(e.code for e in self.entries if e.trend == "new")

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [d for e in self.entries for d in e.diagnostics]


@contextmanager
def strange(paths: Sequence[Path]) -> Iterator[None]:
    """Raise ReadError R103 if stored results have values that netconv never writes, such as a
    number instead of a text.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration):
        help = "use netconv COMMAND --format json, or the results.json of netconv batch --report"
        raise unreadable(
            "R103", "this is not a result of netconv", ", ".join(map(str, paths)), help
        ) from None


def read(paths: Sequence[Path], baseline: Path | None = None) -> Report:
    """Read stored results as one report; raise ReadError R103 for other files."""
    entries = [e for p in paths for e in _entries(p)]
    report = Report(
        ", ".join(p.name for p in paths[:3]) + (", ..." if len(paths) > 3 else ""),
        _version(paths),
        tuple(entries),
        origin=_origin(paths[0]),
    )
    return report if baseline is None else since(report, baseline)


def since(report: Report, baseline: Path) -> Report:
    """Return the report with the changes since stored results."""
    before = {e.name: e.code for e in _entries(baseline)}
    entries = tuple(replace(e, trend=_trend(before.get(e.name, 0), e.code)) for e in report.entries)
    return replace(report, baseline=baseline.name, entries=entries)


def _trend(before: int, now: int) -> str:
    if now:
        worse = not before or most_severe([before, now]) != before
        return "new" if worse else "known"
    return "fixed" if before else ""


def demand_baseline(fail_on: str, baseline: Path | None) -> None:
    """Raise UsageError if nothing says which failures are new."""
    if fail_on == "new" and baseline is None:
        raise wrong_call("--fail-on new needs the results of an earlier run: --baseline OLD.json")


def _version(paths: Sequence[Path]) -> str:
    from converter import version

    found = {
        str(data["version"])
        for data in (strict_json.read(p, "JSON") for p in paths)
        if isinstance(data, dict) and "version" in data
    }
    return ", ".join(sorted(found)) or version.__version__


def _entries(path: Path) -> list[Entry]:
    data = strict_json.read(path, "JSON")
    with strange([path]):
        return timed(list(of_data(data, path.stem)), _times(path))


def _times(path: Path) -> Json:
    return _read_json(path, "timing.json")


def _origin(path: Path) -> Json:
    """Return the origin of stored results, empty if it is unknown."""
    data = strict_json.read(path, "JSON")
    found = data.get("origin") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else _read_json(path, origin.FILE)


def _read_json(path: Path, name: str) -> Json:
    """Read a file next to results.json; empty if it is not there."""
    beside = path.with_name(name)
    known = path.name == "results.json" and beside.is_file()
    found = strict_json.read(beside, "JSON") if known else {}
    return found if isinstance(found, dict) else {}


def timed(entries: Iterable[Entry], times: Json) -> list[Entry]:
    """Add the data that differ from run to run to the entries of a batch: "seconds", and
    "arguments" that repeat a job, by the job's id.
    """
    return [
        replace(e, seconds=float(t["seconds"]), arguments=tuple(map(str, t.get("arguments", ()))))
        if (t := times.get(e.name)) is not None
        else e
        for e in entries
    ]


def of_data(data: Json, name: str) -> Iterator[Entry]:
    """Yield the entries of a document. Raises KeyError and the like if the data follow no
    schema.
    """
    match data["schema"]:
        case "netconv/verify/1":
            yield _compared(result_of(data), data, ())
        case "netconv/batch/1":
            yield from (_job(j) for j in data["jobs"])
        case "netconv/run/1":
            yield from _run(data, name)
        case other:
            raise ValueError(other)


def _run(data: Json, name: str) -> Iterator[Entry]:
    said = tuple(map(diagnostic, data["diagnostics"]))
    result, command = data["result"], data["command"]
    if isinstance(result, dict) and "schema" in result:
        for entry in of_data(result, name):
            if command != "verify":
                yield entry
                continue
            yield replace(
                entry,
                diagnostics=said,
                seconds=float(data["seconds"]) if "seconds" in data else None,
                arguments=tuple(map(str, data.get("arguments", ()))),
            )
    elif command == "roundtrip" and result:
        yield from map(_trip, result)
    else:
        coverage = (
            result
            if command == "check" and isinstance(result, dict) and "layers" in result
            else None
        )
        head = _headline(data["exit_code"], said, coverage)
        yield Entry(
            f"{command} {name}",
            command,
            data["exit_code"],
            head,
            diagnostics=said,
            coverage=coverage,
        )


def _compared(result: Result, data: Json, said: Iterable[Diagnostic]) -> Entry:
    code = result.code
    a, b = result.models
    return Entry(
        f"{a} -> {b}",
        "verify",
        int(code),
        headline(result),
        a,
        b,
        tuple(said),
        result,
        tuple(data.get("structure", ())),
    )


def _trip(data: Json) -> Entry:
    name = f"{data['file']} via {data['via']}"
    if "refused" in data:
        said = tuple(map(diagnostic, data["refused"]))
        invalid = any(d.code in INVALID for d in said)
        code = 4 if invalid else {"R": 4, "X": 3, "N": 6}.get(said[0].code[0], 2)
        return Entry(
            name, "roundtrip", code, _headline(code, said, None), data["file"], data["via"], said
        )
    result = result_of(data["numbers"])
    return Entry(
        name,
        "roundtrip",
        int(result.code),
        headline(result),
        data["file"],
        data["via"],
        (),
        result,
        roundtrip=data,
    )


def _job(data: Json) -> Entry:
    said = tuple(map(diagnostic, data["diagnostics"]))
    result = result_of(data["numbers"]) if "numbers" in data else None
    head = (
        headline(result)
        if result is not None
        else _headline(data["exit_code"], said, data.get("coverage"))
    )
    own = {k: data[k] for k in ("coverage", "roundtrip") if k in data}
    structure = tuple(data.get("structure", ()))
    return Entry(
        data["id"],
        data["action"],
        data["exit_code"],
        head,
        data["source"],
        data["target"],
        said,
        result,
        structure,
        data["files"],
        **own,
    )


def _headline(code: int, said: Sequence[Diagnostic], coverage: Json | None) -> str:
    errors = [d for d in said if d.level == "error"]
    if errors:
        return f"{errors[0].code} {errors[0].message}" + (
            f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        )
    if coverage is not None:
        return (
            f"{coverage['layers']['convert']} of {coverage['layers']['all']} layers "
            "can be converted"
        )
    return next((d.message for d in said if code), "done")


def diagnostic(data: Json) -> Diagnostic:
    """Return the inverse of Diagnostic.as_json."""
    found: Diagnostic = value_of(Diagnostic, data)
    return found


def cases(report: Report) -> list[Case]:
    """Return one case for each entry, for JUnit, SARIF and annotations."""
    return [
        Case(e.name, e.group, _failure(e), e.where, e.code in ERRORS, e.code == 130, e.seconds)
        for e in report.entries
    ]


def _failure(e: Entry) -> str:
    return "\n".join([e.headline, e.status, *e.text()]) if e.code else ""
