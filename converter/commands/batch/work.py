"""Run the action of one job on local files. The outcome is plain data and the same for the same
job: it has no times and no paths of this machine.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converter.commands.batch.job import Outcome, outcome, refused
from converter.commands.options.convert import Convert
from converter.commands.options.declare import of_job
from converter.commands.options.verify import Verify
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    NothingComparedError,
    Where,
)
from converter.io.growth import CAREFUL, MaxOutput, parse
from converter.io.limits import exhausted, ran_out
from converter.io.strict_json import Json


@dataclass(frozen=True)
class Task:
    """One job on local files. `source` and `output` are local paths, the latter in a separate
    folder, `shown` and `shown_output` their names in reports.
    """

    action: str
    source: str
    shown: str
    target: str
    output: str = ""
    shown_output: str = ""
    options: Json = field(default_factory=dict)
    memory: int = 0


def perform(task: Task) -> Outcome:
    """Run the task; every refusal and every crash of Python code becomes an outcome."""
    try:
        found = _ACTIONS[task.action](task)
    except Exception as e:
        if isinstance(e, MemoryError) or (task.memory and (ran_out(e) or exhausted())):
            found = beyond_memory(task)
        else:
            found = refused(e) if isinstance(e, ConverterError) else _crashed(task, e)
    renamed: Outcome = _rename(
        found,
        {task.source: task.shown, **({task.output: task.shown_output} if task.output else {})},
    )
    return renamed


def _crashed(task: Task, error: Exception) -> Outcome:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    place = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    where, evidence = Where(task.shown), (place,)
    why = Diagnostic("B602", f"netconv has a bug: {text}", where=where, evidence=evidence)
    return outcome(ExitCode.BUG, why)


def beyond_memory(task: Task) -> Outcome:
    """Return the outcome of a job that exceeded its memory limit (B604)."""
    message = f"the job needs more memory than its limit of {task.memory} bytes"
    return outcome(ExitCode.MEMORY_LIMIT, Diagnostic("B604", message, where=Where(task.shown)))


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    """Replace paths of this machine by their names in reports."""
    if isinstance(value, str):
        for local, shown in names.items():
            value = value.replace(local, shown)
        return value
    if isinstance(value, dict):
        return {k: _rename(v, names) for k, v in value.items()}
    return [_rename(v, names) for v in value] if isinstance(value, list | tuple) else value


def _options(task: Task) -> Convert:
    return of_job(Convert, task.options, target=task.target, force=False)


def _most(task: Task) -> MaxOutput:
    """Return the maximum size of a job's result; without supervision, a limit is needed."""
    given = task.options.get("max_output")
    return CAREFUL if given is None else parse(given)


def _convert(task: Task) -> Outcome:
    from converter import formats
    from converter.commands import convert
    from converter.commands.inspect import summary
    from converter.commands.verify import compare
    from converter.formats import model_files

    Path(task.output).parent.mkdir(parents=True, exist_ok=True)
    written = convert.convert(
        Path(task.source), Path(task.output), _options(task), limit=_most(task)
    )
    flavor = written.flavor
    readable = formats.get(flavor.format).readable(Path(task.output), flavor)
    back = model_files.load(task.output, flavor.format) if readable else None
    structure = [summary(m) for m in (written.model, back) if m is not None]
    if back is None or "verify" not in task.options:
        return outcome(ExitCode.OK, *written.notes, structure=structure)
    try:
        names = task.shown, task.shown_output
        result = compare(written.model, back, verify_options(task.options["verify"], names))
    except NothingComparedError as e:  # the file is valid nevertheless
        if task.memory and ran_out(e):
            raise
        return outcome(e.exit_code, *written.notes, *e.diagnostics, structure=structure)
    said, numbers = (*written.notes, *result.diagnostics), result.as_json()
    return outcome(result.code, *said, structure=structure, numbers=numbers)


def verify_options(given: Json, names: tuple[str, str] = ("reference", "candidate")) -> Verify:
    """Return the comparison that a job file specifies. Files run in their own engines only on
    request, since that takes time.
    """
    return of_job(Verify, given, native="off", names=names)


def _check(task: Task) -> Outcome:
    from converter.commands import convert

    source = Path(task.source)
    options = _options(task)
    model = convert.read(source, options)
    found = convert.check(model, task.target, source, options.io_layout, _most(task))
    code = ExitCode.UNSUPPORTED if found.reasons else ExitCode.OK
    return outcome(code, *found.diagnostics, coverage=found.as_json())


def _roundtrip(task: Task) -> Outcome:
    from converter.commands.roundtrip import roundtrip

    trip = roundtrip(
        Path(task.source),
        task.target,
        verify_options(task.options.get("verify", {})).seed,
        _most(task),
    )
    data = trip.as_json()
    numbers = data.pop("numbers")
    return outcome(trip.numbers.code, *trip.notes, numbers=numbers, roundtrip=data)


def _quantize(task: Task) -> Outcome:
    from converter.commands.options.quantize import Quantize
    from converter.commands.quantize.run import quantize

    given = {**task.options, **task.options.get("quantize", {})}
    options = of_job(Quantize, given, targets=(task.target,), force=False)
    (made,) = quantize(Path(task.source), Path(task.output), options)
    lost = any(d.code == "N412" for d in made.notes)
    return outcome(ExitCode.FINDING if lost else ExitCode.OK, *made.notes, made.note)


_ACTIONS: dict[str, Callable[[Task], Outcome]] = {
    "convert": _convert,
    "check": _check,
    "roundtrip": _roundtrip,
    "quantize": _quantize,
}
