"""Results of many jobs: causes, new results, and forms for machines."""

from __future__ import annotations

import json
import platform
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converter.cli import app, console
from converter.commands import report
from converter.commands.batch import run
from converter.commands.batch.job import Done, Job, outcome
from converter.commands.report import facts
from converter.commands.report.causes import causes
from converter.errors import Diagnostic, ExitCode

TEXT = "StringNormalizer is not supported by zhouyi"
SPEC = {
    "a": (ExitCode.UNSUPPORTED, "X201", TEXT),
    "b": (ExitCode.OK, "", ""),
    "c": (ExitCode.UNSUPPORTED, "X201", TEXT),
    "d": (ExitCode.UNREADABLE, "R101", "netconv does not recognize this file format"),
    "e": (ExitCode.INTERRUPTED, "B605", "not run"),
    "f": (ExitCode.FINDING, "", ""),
}


def done(spec: dict[str, tuple[ExitCode, str, str]] = SPEC) -> list[Done]:
    return [
        Done(
            Job(f"{name}.onnx -> zhouyi", "convert", f"{name}.onnx", "zhouyi"),
            outcome(code, *([Diagnostic(key, text)] if key else [])),
            seconds=1.5,
        )
        for name, (code, key, text) in spec.items()
    ]


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run netconv batch with jobs that have these results already."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").touch()

    def call(*arguments: str, spec: Any = SPEC) -> int:
        def finished(plan: object, settings: object, tell: Any, note: object) -> list[Done]:
            found = done(spec)
            for d in found:
                tell(d)
            return found

        monkeypatch.setattr(run, "run", finished)
        line = ["netconv", "batch", "models", "-t", "zhouyi", "-o", "out", *arguments]
        monkeypatch.setattr(sys, "argv", line)
        console.use(console.Console())
        return app._guarded()

    return call


def test_failures_are_grouped_by_cause(
    batch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert batch() == ExitCode.UNREADABLE  # the most severe of those that ran
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:-1] == [
        "1 x unreadable: R101 netconv does not recognize this file format: d.onnx -> zhouyi",
        f"2 x unsupported: X201 {TEXT}: a.onnx -> zhouyi, c.onnx -> zhouyi",
        "1 x differs: f.onnx -> zhouyi",
    ]
    assert lines[-1].startswith("1 ok   2 unsupported")


def results(folder: Path, spec: Any) -> Path:
    from converter.commands.batch import result

    (path := folder / "results.json").write_text(result.dumps(result.as_json(done(spec))))
    return path


def test_only_new_failures_fail(
    batch: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = str(results(tmp_path, SPEC))
    assert batch("--baseline", old, "--fail-on", "new") == 0
    worse = {**SPEC, "b": (ExitCode.UNSUPPORTED, "X201", TEXT)}
    assert batch("--baseline", old, "--fail-on", "new", spec=worse) == ExitCode.UNSUPPORTED
    out = capsys.readouterr().out
    assert f"3 x unsupported: X201 {TEXT} (1 new): b.onnx" in out and "1 new, 0 fixed" in out
    crashed = {**SPEC, "a": (ExitCode.BUG, "B602", "crashed")}  # it failed before, but not so
    assert batch("--baseline", old, "--fail-on", "new", spec=crashed) == ExitCode.BUG
    better = {**SPEC, "a": (ExitCode.OK, "", "")}
    assert batch("--baseline", old, "--fail-on", "any", spec=better) == ExitCode.UNREADABLE
    assert "0 new, 1 fixed, 4 known" in capsys.readouterr().out
    assert batch("--fail-on", "new") == ExitCode.USAGE


def stored(tmp_path: Path, spec: Any = SPEC, baseline: Path | None = None) -> facts.Report:
    found = facts.read([results(tmp_path, spec)], baseline)
    times = {e.name: {"seconds": 1.5} for e in found.entries}
    return facts.Report(
        found.title, found.version, tuple(facts.timed(found.entries, times)), found.baseline
    )


def test_junit_distinguishes_errors_from_failures(tmp_path: Path) -> None:
    root = ET.fromstring(report.render(stored(tmp_path), "junit"))
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped", "time")] == [
        *("6", "3", "1", "1", "9.000")
    ]
    kinds = {c.get("name"): [x.tag for x in c] for c in root.iter("testcase")}
    assert kinds["d.onnx -> zhouyi"] == ["error"] and kinds["b.onnx -> zhouyi"] == []
    (error,) = root.iter("error")
    assert error.get("message") not in (error.text or "")
    assert next(root.iter("testcase")).get("time") == "1.500"


def test_a_summary_begins_with_new_failures_and_folds_the_others(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    before = {**SPEC, "c": (ExitCode.OK, "", "")}
    baseline = results(tmp_path / "old", before)
    text = report.render(stored(tmp_path, baseline=baseline), "md")
    rows = [line for line in text.splitlines() if line.startswith("| ❌") or "⛔" in line]
    assert "`c.onnx -> zhouyi` | unsupported (new)" in rows[0]
    assert text.index("1 passed</summary>") > text.index("`f.onnx -> zhouyi`")
    assert "* 2 x unsupported: X201" in text and "-&gt;" not in text.split("\n\n| |")[1][:300]
    many = {f"m{i}": (ExitCode.OK, "", "") for i in range(600)}
    large = report.render(stored(tmp_path, many), "md")
    assert len(large) < 60_000 and "and 300 more" in large and "600 passed" in large


def test_causes_come_by_severity_and_frequency(tmp_path: Path) -> None:
    found = causes(stored(tmp_path).entries)
    assert [(c.code, len(c.entries)) for c in found] == [(130, 1), (4, 1), (3, 2), (1, 1)]
    assert json.loads(results(tmp_path, SPEC).read_text())["exit_code"] == 4


def test_messages_that_differ_in_names_and_sizes_alone_are_one_cause(tmp_path: Path) -> None:
    def refused(name: str, text: str) -> tuple[ExitCode, str, str]:
        return ExitCode.UNSUPPORTED, "X203", text

    spec = {
        "a": refused("a", "x:0 has the shape [None,3], but the target needs static shapes"),
        "b": refused("b", "in/y has the shape [N,8,8], but the target needs static shapes"),
        "c": refused("c", "Conv2D is not supported by zhouyi"),
        "d": refused("d", "Conv3D is not supported by zhouyi"),
    }
    found = causes(stored(tmp_path, spec).entries)
    assert [(c.text, len(c.entries)) for c in found] == [
        ("unsupported: X203 … has the shape …, but the target needs static shapes", 2),
        ("unsupported: X203 Conv2D is not supported by zhouyi", 1),
        ("unsupported: X203 Conv3D is not supported by zhouyi", 1),
    ]


def test_pages_say_when_where_and_how_they_were_made(
    batch: Callable[..., int], tmp_path: Path
) -> None:
    batch("--report", "report")
    found = json.loads((tmp_path / "report" / "origin.json").read_text())
    assert found["arguments"][:2] == ["batch", "models"] and found["host"] == platform.node()
    assert found["folder"] == str(tmp_path) and "onnxruntime" in found["versions"]
    page = facts.read([tmp_path / "report" / "results.json"])
    for text in (
        (tmp_path / "report" / "index.html").read_text(),
        report.render(page, "html"),
        (tmp_path / "report" / "job-0000.html").read_text(),
    ):
        for part in (found["date"][:10], found["host"], "netconv batch models -t zhouyi"):
            assert part in text
        assert "onnxruntime " + found["versions"]["onnxruntime"] in text


def test_codes_of_a_page_lead_to_their_explanations_in_it(tmp_path: Path) -> None:
    page = report.render(stored(tmp_path), "html")
    for code in ("X201", "R101"):
        assert f'href="#{code}"' in page and f'<dt id="{code}">' in page
    targets = set(re.findall(r'href="#([A-Z]\d+)"', page))
    assert targets == set(re.findall(r'<dt id="(.*?)"', page))
