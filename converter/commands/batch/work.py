"""What one job does, on local files. The outcome is plain data and the same for the same job: no
times, no machine's paths.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from converter.commands.batch.job import Outcome, refused
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    NothingComparedError,
    Where,
)
from converter.io.limits import ran_out


@dataclass(frozen=True)
class Task:
    """`source` and `output` are local files, the latter in a folder of its own, `shown` and
    `shown_output` what reports call them.
    """

    action: str
    source: str
    shown: str
    target: str
    output: str = ""
    shown_output: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    memory: int = 0


def perform(task: Task) -> Outcome:
    """Does it; every refusal and every crash of Python code becomes an outcome."""
    try:
        found = _ACTIONS[task.action](task)
    except ConverterError as e:
        if task.memory and ran_out(e):
            return beyond_memory(task.memory, task.shown)
        found = refused(e.exit_code, *e.diagnostics)
    except MemoryError:
        found = beyond_memory(task.memory, task.shown)
    except Exception as e:
        if task.memory and ran_out(e):
            return beyond_memory(task.memory, task.shown)
        last = traceback.extract_tb(e.__traceback__)[-1]
        text = f"{type(e).__name__}: {e}".splitlines()[0]
        place = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
        found = refused(
            ExitCode.BUG,
            Diagnostic(
                "B602", f"a bug in netconv: {text}", where=Where(task.shown), evidence=(place,)
            ),
        )
    renamed: Outcome = _rename(
        found,
        {task.source: task.shown, **({task.output: task.shown_output} if task.output else {})},
    )
    return renamed


def beyond_memory(limit: int, shown: str) -> Outcome:
    return refused(
        ExitCode.MEMORY_LIMIT,
        Diagnostic(
            "B604", f"the job needs more memory than its limit of {limit} bytes", where=Where(shown)
        ),
    )


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    """Paths of this machine become what the report calls them."""
    if isinstance(value, str):
        for local, shown in names.items():
            value = value.replace(local, shown)
        return value
    if isinstance(value, dict):
        return {k: _rename(v, names) for k, v in value.items()}
    return [_rename(v, names) for v in value] if isinstance(value, list | tuple) else value


def _request(task: Task, output: Path) -> Any:
    from converter.commands.convert import Request

    o = task.options
    return Request(
        source=Path(task.source),
        target=output,
        source_format=o.get("from"),
        target_format=task.target,
        shapes=o.get("inputs", {}),
        outputs=tuple(o.get("outputs", ())),
        io_layout=o.get("io_layout", ""),
    )


def _convert(task: Task) -> Outcome:
    from converter import formats
    from converter.commands import convert
    from converter.commands.inspect import summary
    from converter.commands.verify import verify
    from converter.formats import model_files

    Path(task.output).parent.mkdir(parents=True, exist_ok=True)
    written = convert.convert(_request(task, Path(task.output)))
    flavour = written.flavour
    readable = formats.get(flavour.format).readable(Path(task.output), flavour)
    back = model_files.load(task.output, flavour.format) if readable else None
    outcome: Outcome = {
        "exit_code": int(ExitCode.OK),
        "diagnostics": [d.as_json() for d in written.notes],
        "files": {},
        "structure": [summary(m) for m in (written.model, back) if m is not None],
    }
    if back is None or "verify" not in task.options:
        return outcome
    try:
        result = verify(
            written.model,
            back,
            names=(task.shown, task.shown_output),
            **verify_options(task.options["verify"]),
        )
    except NothingComparedError as e:  # the file is right all the same
        if task.memory and ran_out(e):
            raise
        said = [*written.notes, *e.diagnostics]
        return {
            **outcome,
            "exit_code": int(e.exit_code),
            "diagnostics": [d.as_json() for d in said],
        }
    code = result.code
    said = [*written.notes, *result.diagnostics]
    return {
        **outcome,
        "exit_code": int(code),
        "diagnostics": [d.as_json() for d in said],
        "numbers": result.as_json(),
    }


def verify_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of converter.verify from the keys of a job file. Files run in their own engines only
    where that is asked for: it takes time.
    """
    names = {"metric": "metrics"}
    options = {"native": "off", **{names.get(k, k): v for k, v in given.items()}}
    if isinstance(options.get("metrics"), str):
        options["metrics"] = [options["metrics"]]
    return options


def _check(task: Task) -> Outcome:
    from converter.commands import convert

    source = Path(task.source)
    found = convert.check(
        convert.read(_request(task, source)),
        task.target,
        source,
        task.options.get("io_layout", ""),
    )
    return {
        "exit_code": int(ExitCode.UNSUPPORTED if found.reasons else ExitCode.OK),
        "diagnostics": [d.as_json() for d in found.diagnostics],
        "files": {},
        "coverage": found.as_json(),
    }


def _roundtrip(task: Task) -> Outcome:
    from converter.commands.roundtrip import roundtrip

    trip = roundtrip(
        Path(task.source),
        task.target,
        verify_options(task.options.get("verify", {})).get("seed", 0),
    )
    code = trip.numbers.code
    data = trip.as_json()
    return {
        "exit_code": int(code),
        "diagnostics": [d.as_json() for d in trip.notes],
        "files": {},
        "numbers": data.pop("numbers"),
        "roundtrip": data,
    }


_ACTIONS: dict[str, Callable[[Task], Outcome]] = {
    "convert": _convert,
    "check": _check,
    "roundtrip": _roundtrip,
}
