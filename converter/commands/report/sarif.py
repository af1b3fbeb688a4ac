"""SARIF 2.1.0: one rule for each code, a region where a line is known."""

from __future__ import annotations

import json
from collections.abc import Sequence

from converter import version
from converter.commands.explain import CODES
from converter.commands.report.cases import Case
from converter.errors import Diagnostic
from converter.io.strict_json import Json


def render(diagnostics: Sequence[Diagnostic], cases: Sequence[Case]) -> str:
    """Return diagnostics and failed cases as SARIF 2.1.0."""
    failures = [
        Diagnostic("N401", c.failure.splitlines()[0], where=c.where) for c in cases if c.failure
    ]
    found = [*diagnostics, *failures]
    rules = sorted({d.code for d in found})
    driver = {
        "name": "netconv",
        "version": version.__version__,
        "rules": [_rule(c) for c in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, rules) for d in found],
    }
    return json.dumps(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [run],
        },
        indent=2,
        ensure_ascii=False,
    )


def _rule(code: str) -> Json:
    page = CODES.get(code)
    return {
        "id": code,
        **(
            {"shortDescription": {"text": page.title}, "fullDescription": {"text": page.text}}
            if page
            else {}
        ),
    }


def _result(d: Diagnostic, rules: list[str]) -> Json:
    result: Json = {
        "ruleId": d.code,
        "ruleIndex": rules.index(d.code),
        "level": d.level,
        "message": {"text": d.message},
    }
    location: Json = {}
    if d.where.file:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": d.where.file.replace("\\", "/")}
        }
        if d.where.line:
            location["physicalLocation"]["region"] = {"startLine": d.where.line}
    if d.where.layer or d.where.path:
        location["logicalLocations"] = [
            {
                "name": d.where.layer or d.where.path,
                "fullyQualifiedName": d.where.path or d.where.layer,
            }
        ]
    return {**result, **({"locations": [location]} if location else {})}
