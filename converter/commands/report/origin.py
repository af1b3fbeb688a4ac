"""The origin of results: when, where and with which versions they were computed."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from converter.commands.report.table import name
from converter.io.strict_json import Json

FILE = "origin.json"  # next to the results of a batch
ENGINES = ("onnxruntime", "openvino", "ai-edge-litert", "coreai-core", "coremltools")


def origin(arguments: Sequence[str] = ()) -> Json:
    """Return the origin of results that are computed now, by netconv with these arguments."""
    from converter.commands.versions import ABSENT, versions

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "folder": os.getcwd(),
        "versions": {k: v for k, v in versions().items() if v != ABSENT},
        **({"arguments": list(arguments)} if arguments else {}),
    }


def shown(found: Json) -> str:
    """Return the origin as a folded list of a page; "" if it is unknown."""
    rows = "".join(
        f'<tr><th scope="row">{title}</th><td>{text}</td></tr>' for title, text in _rows(found)
    )
    if not rows:
        return ""
    line = " · ".join(filter(None, (_date(found), str(found.get("host", "")))))
    return (
        f'<details class="origin"><summary>{escape(line)}</summary>'
        f"<table><tbody>{rows}</tbody></table></details>"
    )


def _rows(found: Json) -> Iterator[tuple[str, str]]:
    if "date" in found:
        yield "date", escape(_date(found))
    yield from ((key, name(str(found[key]))) for key in ("host", "folder") if key in found)
    if "arguments" in found:
        yield "command", f"<code>{escape(shlex.join(['netconv', *found['arguments']]))}</code>"
    versions = dict(found.get("versions", {}))
    engines = ", ".join(f"{e} {versions.pop(e)}" for e in ENGINES if e in versions)
    if engines:
        yield "engines", escape(engines)
    if versions:
        yield "versions", escape(", ".join(f"{k} {v}" for k, v in versions.items()))


def _date(found: Json) -> str:
    return str(found.get("date", "")).replace("T", " ").replace("+00:00", " UTC")
