"""Results for programs. One document for one run of a command.

json    {"schema", "command", "exit_code", "diagnostics", "result"}, schemas/report/run.json
github  workflow commands that GitHub turns into annotations
sarif   SARIF 2.1.0, one rule for each code, a region where a line is known
junit   one test case for each case of the command (an output, a path, a layer), or for each diagnostic
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import converter
from converter.diagnostics import CODES, Diagnostic
from converter.report.text import group

FORMATS = ("text", "json", "github", "sarif", "junit")
Cases = Sequence[dict[str, Any]]  # {"name": ..., "group": ..., "failure": "" or text}


def render(format: str, command: str, code: int, diagnostics: Sequence[Diagnostic], cases: Cases, result: Any) -> str:
    match format:
        case "json":
            return _json(command, code, diagnostics, result)
        case "github":
            return "\n".join([_annotation(d) for d in diagnostics] + [_command("error", {"title": c["name"]}, c["failure"]) for c in cases if c["failure"]])
        case "sarif":
            return _sarif(diagnostics, cases)
        case "junit":
            return _junit(command, diagnostics, cases)
        case _:
            raise ValueError(format)


def _json(command: str, code: int, diagnostics: Sequence[Diagnostic], result: Any) -> str:
    data = {"schema": "netconv/run/1", "command": command, "exit_code": code, "diagnostics": [d.as_json() for d in diagnostics], "result": result}
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def _annotation(d: Diagnostic) -> str:
    properties = {"title": f"{d.code} {d.where.layer}".strip()}
    if d.where.file:
        properties = {"file": d.where.file, **({"line": str(d.where.line)} if d.where.line else {}), **properties}
    return _command("notice" if d.level == "note" else d.level, properties, d.message + (f" ({d.help})" if d.help else ""))


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    listed = ",".join(f"{k}={data(v).replace(':', '%3A').replace(',', '%2C')}" for k, v in properties.items())
    return f"::{kind} {listed}::{data(message)}"


def _sarif(diagnostics: Sequence[Diagnostic], cases: Cases) -> str:
    failures = [Diagnostic("N401", c["failure"].splitlines()[0], where=c.get("where", Diagnostic("", "").where)) for c in cases if c["failure"]]
    found = [*diagnostics, *failures]
    rules = sorted({d.code for d in found})
    driver = {"name": "netconv", "version": converter.__version__, "rules": [_rule(c) for c in rules]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(d, rules) for d in found]}
    return json.dumps({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _rule(code: str) -> dict[str, Any]:
    page = CODES.get(code)
    return {"id": code, **({"shortDescription": {"text": page.title}, "fullDescription": {"text": page.text}} if page else {})}


def _result(d: Diagnostic, rules: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": d.code, "ruleIndex": rules.index(d.code), "level": d.level, "message": {"text": d.message}}
    location: dict[str, Any] = {}
    if d.where.file:
        location["physicalLocation"] = {"artifactLocation": {"uri": d.where.file.replace("\\", "/")}}
        if d.where.line:
            location["physicalLocation"]["region"] = {"startLine": d.where.line}
    if d.where.layer or d.where.path:
        location["logicalLocations"] = [{"name": d.where.layer or d.where.path, "fullyQualifiedName": d.where.path or d.where.layer}]
    return {**result, **({"locations": [location]} if location else {})}


def _junit(command: str, diagnostics: Sequence[Diagnostic], cases: Cases) -> str:
    given: list[dict[str, Any]] = [*cases]
    if not given or any(d.level == "error" for d in diagnostics):
        given += [
            {"name": f"{g[0].code} {g[0].message}", "group": command, "failure": "\n".join(str(d) for d in g if d.level == "error")} for g in group(diagnostics)
        ]
    given = given or [{"name": command, "group": command, "failure": ""}]
    failures = sum(bool(c["failure"]) for c in given)
    body = "".join(_case(c) for c in given)
    name = quoteattr(f"netconv {command}")
    suite = f'<testsuite name={name} tests="{len(given)}" failures="{failures}" errors="0" skipped="0">\n{body}</testsuite>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites tests="{len(given)}" failures="{failures}">\n{suite}\n</testsuites>'


def _case(case: dict[str, Any]) -> str:
    head = f"<testcase classname={quoteattr(_clean(case['group']))} name={quoteattr(_clean(case['name']))}"
    if not case["failure"]:
        return f"{head}/>\n"
    text = _clean(case["failure"])
    return f"{head}><failure message={quoteattr(text.splitlines()[0])}>{escape(text)}</failure></testcase>\n"


def _clean(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or ord(c) >= 32)
