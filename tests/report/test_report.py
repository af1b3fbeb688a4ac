"""Stored results in every form: the same facts everywhere, data that follow their schemas, a page
that is small and complete.
"""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import onnx_ir as ir
import pytest
from referencing import Registry, Resource

from batch.models import save, small
from converter.cli import app, console
from converter.commands import report
from converter.commands.batch import result
from converter.commands.batch.job import Job
from converter.commands.report import facts
from converter.commands.verify.stored import result_of
from converter.errors import ReadError
from converter.graph.build import new_model
from converter.io.resources import schema_path
from support import ROOT

FORMS = ("text", "junit", "sarif", "github", "md", "html")


def validate(data: Any, schema: str) -> None:
    loaded = {
        n: json.loads(schema_path("report", n).read_text())
        for n in ("run.json", "verify.json", "batch.json", "roundtrip.json")
    }
    registry = Registry().with_resources((n, Resource.from_contents(s)) for n, s in loaded.items())
    jsonschema.Draft202012Validator(loaded[schema], registry=registry).validate(data)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """verify.json (a finding), roundtrip.json (a refusal), batch/results.json (all kinds)."""
    folder = tmp_path_factory.mktemp("results")
    small(folder / "good.onnx", 0.1)
    small(folder / "bad.onnx", 0.2)
    (folder / "broken.onnx").write_bytes(b"no model | with `marks` <b>")
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", ir.DataType.FLOAT, [2, 2]), name="<b>|`act`"))
    save(model, folder / "odd|na<m>e.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)

        def call(*arguments: str) -> str:
            patch.setattr(sys, "argv", ["netconv", *arguments])
            console.use(console.Console())
            app._guarded()
            return ""

        for name, arguments in {
            "verify": ["verify", "good.onnx", "bad.onnx", "--tensors", "all"],
            "roundtrip": ["roundtrip", "good.onnx", "broken.onnx", "--via", "onnx"],
            "check": ["check", "good.onnx", "-t", "onnx"],
        }.items():
            with open(folder / f"{name}.json", "w") as f:
                patch.setattr(sys, "stdout", f)
                call(*arguments, "--format", "json")
            patch.undo()
            patch.chdir(folder)
        call("batch", ".", "-t", "onnx", "--verify", "-o", "made", "--report", "batch", "-q")
    return folder


def test_stored_results_follow_their_schemas(results: Path) -> None:
    for name in ("verify", "roundtrip", "check"):
        validate(json.loads((results / f"{name}.json").read_text()), "run.json")
    verify = json.loads((results / "verify.json").read_text())["result"]
    validate(verify, "verify.json")
    assert [s["nodes"] for s in verify["structure"]] == [2, 2]
    validate(json.loads((results / "roundtrip.json").read_text())["result"], "roundtrip.json")
    validate(json.loads((results / "batch" / "results.json").read_text()), "batch.json")
    with pytest.raises(jsonschema.ValidationError):
        validate({"schema": "netconv/batch/1"}, "batch.json")


def test_a_stored_comparison_is_read_back(results: Path) -> None:
    data = json.loads((results / "verify.json").read_text())["result"]
    assert result_of(data).as_json() == data


def read(results: Path, baseline: Path | None = None) -> facts.Report:
    return facts.read(
        [
            results / "verify.json",
            results / "roundtrip.json",
            results / "check.json",
            results / "batch" / "results.json",
        ],
        baseline,
    )


def squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# form -> its text as a reader sees it
READERS: dict[str, Callable[[str], str]] = {
    "text": str,
    "junit": lambda t: " ".join(
        " ".join([*e.attrib.values(), e.text or ""]) for e in ET.fromstring(t).iter()
    ),
    "sarif": lambda t: " ".join(r["message"]["text"] for r in json.loads(t)["runs"][0]["results"]),
    "github": lambda t: (
        t.replace("%0A", " ").replace("%3A", ":").replace("%2C", ",").replace("%25", "%")
    ),
    "md": lambda t: html.unescape(re.sub(r"\\([|`*_\\])", r"\1", t)),
    "html": lambda t: html.unescape(
        re.sub(r"<(?:style|script).*?</(?:style|script)>|<[^>]*>", "", t, flags=re.S)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_facts_in_every_form(results: Path, form: str) -> None:
    found = read(results)
    assert [e.status for e in found.entries] == [
        "differs",
        "ok",
        "unreadable",
        "ok",
        "ok",
        "unreadable",
        "ok",
        "ok",
    ]
    text = squeeze(READERS[form](report.render(found, form)))
    for e in found.entries:
        if e.code or form not in ("sarif", "github"):  # these two list problems only
            assert form == "sarif" or e.name in text or (e.source in text and e.target in text)
            assert (
                not e.code
                or squeeze(e.headline) in text
                or all(d.message in text for d in e.diagnostics)
            )
        if e.code and form not in ("sarif",):
            assert e.status in text
    first = found.entries[0]
    assert "alpha 0.1 became 0.2" in text or squeeze(first.headline) in text
    assert "conv" in first.headline and "Conv" in first.headline


def test_counts_agree(results: Path) -> None:
    found = read(results)
    failed = sum(bool(e.code) for e in found.entries)
    suite = ET.fromstring(report.render(found, "junit"))
    assert suite.get("tests") == str(len(found.entries))
    assert sum(int(suite.get(k, "")) for k in ("failures", "errors", "skipped")) == failed
    page = report.render(found, "html")
    embedded = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert [(c["name"], c["status"]) for c in embedded["cases"]] == [
        (e.name, e.status) for e in found.entries
    ]
    assert (
        embedded["verdict"] == found.verdict
        and found.verdict in page
        and found.verdict in report.render(found, "md")
    )


def test_the_page_is_complete_and_needs_nothing(results: Path) -> None:
    page = report.render(facts.read([results / "verify.json"]), "html")
    body = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:|//)|@import|url\((?!#)", page)
    for part in (
        "First wrong layer",
        "Error along the graph",
        "<svg",
        "Structure, weights and sizes",
        'class="layers',
        "conv",
        "LeakyRelu",
        "as netconv verify prints it",
    ):
        assert part in body
    assert body.index("<h3>Outputs</h3>") < body.index("First wrong layer")
    assert '<h1><span class="verdict"><span class="s-bad">Different</span>' in body
    ET.fromstring(re.search(r"<svg.*</svg>", page, re.S)[0])  # type: ignore[index]
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    assert "<b>|" not in report.render(read(results), "html")


def test_the_page_of_thousands_stays_small(results: Path) -> None:
    entry = facts.read([results / "verify.json"]).entries[0]
    assert entry.numbers is not None
    from dataclasses import replace

    numbers = replace(entry.numbers, tensors=entry.numbers.tensors * 4000)
    alone = report.render(facts.Report("t", "1", (replace(entry, numbers=numbers),)), "html")
    assert len(alone.encode()) < 1_000_000 and "2500 of 8000 tensors" in alone
    many = report.render(
        facts.Report(
            "t", "1", tuple(replace(entry, name=f"{i} -> b", source=str(i)) for i in range(1000))
        ),
        "html",
    )
    assert len(many.encode()) < 1_500_000 and many.count('data-s="differs"') == 1000


def test_the_pages_of_a_batch_are_linked(results: Path) -> None:
    page = (results / "batch" / "index.html").read_text()
    links = set(re.findall(r'href="(job-[^"]+)"', page))
    assert links == {p.name for p in (results / "batch").glob("job-*.html")} and links


def lines_of(page: str) -> list[str]:
    return [html.unescape(c) for c in re.findall(r"<code>(netconv .*?)</code>", page)]


def test_the_commands_to_repeat_are_those_that_were_called(results: Path) -> None:
    page = report.render(facts.read([results / "verify.json"]), "html")
    assert lines_of(page) == [
        "netconv verify good.onnx bad.onnx --tensors all",
        "netconv reduce good.onnx bad.onnx -o smallest",
        "netconv view good.onnx bad.onnx --verify -o view.html",
    ]
    said = {
        line for p in (results / "batch").glob("job-*.html") for line in lines_of(p.read_text())
    }
    times = json.loads((results / "batch" / "timing.json").read_text())
    assert times["good.onnx -> onnx"]["arguments"] == [
        *("verify", "good.onnx", "made/onnx/good.onnx", "--native", "off")
    ]
    assert "netconv convert broken.onnx -o made/onnx/broken.onnx -t onnx" in said
    (odd,) = [t["arguments"] for name, t in times.items() if "odd" in name]
    assert odd[1] == "odd|na<m>e.onnx"


def test_a_job_of_a_batch_is_repeated_with_its_options() -> None:
    def again(action: str, compared: bool, **options: Any) -> str:
        job = Job("id", action, "s3://b/a.onnx", "openvino+ir=7", "s3://b/a.xml", options)
        return " ".join(result.again(job, compared))

    verify = {"tensors": "all", "seeds": 3, "native": "auto", "data": ["x=random", "y=edge"]}
    assert again("convert", True, verify=verify) == (
        "verify s3://b/a.onnx s3://b/a.xml --native auto --tensors all --seeds 3 --data x=random "
        "--data y=edge"
    )
    assert again("convert", False, inputs={"x": [1, 3]}, outputs=["p"], io_layout="keep") == (
        "convert s3://b/a.onnx -o s3://b/a.xml -t openvino+ir=7 --io-layout keep --outputs p "
        "--inputs x:1,3"
    )
    assert again("check", False) == "check s3://b/a.onnx -t openvino+ir=7"
    assert again("roundtrip", True) == "roundtrip s3://b/a.onnx --via openvino+ir=7"


def test_times_and_sizes_are_listed(results: Path) -> None:
    times = json.loads((results / "batch" / "timing.json").read_text())
    found = facts.read([results / "batch" / "results.json"])
    assert {e.name: e.seconds for e in found.entries} == {
        name: t["seconds"] for name, t in times.items()
    }
    page = report.render(found, "html")
    assert re.search(r'<td class="n" data-v="[\d.]+" data-label="in">[\d.]+ s</td>', page)
    sizes = {sum(f["bytes"] for f in e.files.values()) for e in found.entries if e.files}
    assert all(f'data-v="{s}" data-label="size"' in page for s in sizes) and sizes
    alone = report.render(facts.read([results / "verify.json"]), "html")
    assert re.search(r"exit code 1 · [\d.]+ s ·", alone)


def test_stored_results_of_a_batch_name_the_files_to_do_a_job_again(results: Path) -> None:
    times = json.loads((results / "batch" / "timing.json").read_text())
    page = report.render(facts.read([results / "batch" / "results.json"]), "html")
    again = [shlex.join(["netconv", *t["arguments"]]) for t in times.values()]
    assert again and all(html.escape(line) in page for line in again)
    written = {line.split()[3] for line in again if line.startswith("netconv verify")}
    assert written and all("/" in place for place in written)


def test_every_form_names_the_same_layer_first(results: Path) -> None:
    found = facts.read([results / "verify.json"])
    (entry,) = found.entries
    assert entry.numbers is not None and entry.numbers.first is not None
    layer = entry.numbers.first.layer
    forms = {form: report.render(found, form) for form in ("text", "html", "junit", "md")}
    forms["html"] = html.unescape(forms["html"].replace("<wbr>", ""))
    first = {
        form: re.search(r'layer (?:\d+ )?"?([\w./]+)"? \(?', html.unescape(text))
        for form, text in forms.items()
    }
    assert {form: m and m[1] for form, m in first.items()} == dict.fromkeys(forms, layer)
    data = json.loads((results / "verify.json").read_text())
    stored = data["result"]["findings"] if "result" in data else data["findings"]
    assert stored[0]["layer"] == layer


def test_failures_come_first(results: Path) -> None:
    found = read(results)
    states = re.findall(r'<tr data-s="([^"]*)"[^>]*><td class="st">', report.render(found, "html"))
    assert states == sorted(states, key=lambda s: (s == "ok", s)) and len(states) == 8


def test_additional_facts_are_no_obstacle(results: Path) -> None:
    """Results of a later version, and of an earlier one without samples and picture."""
    data = json.loads((results / "verify.json").read_text())
    data["result"]["findings"][0]["weight"] = 3
    data["result"]["tensors"][0]["relative"] = 0.1
    data["result"]["new"] = {"a": 1}
    (later,) = facts.of_data(data, "x")
    assert "First wrong layer" in report.render(facts.Report("t", "1", (later,)), "html")
    for key in ("samples", "picture"):
        del data["result"][key]
    (earlier,) = facts.of_data(data, "x")
    page = report.render(facts.Report("t", "1", (earlier,)), "html")
    assert "before and after" not in page and 'class="picture"' not in page


def test_the_trend_since_a_baseline(results: Path, tmp_path: Path) -> None:
    data = json.loads((results / "batch" / "results.json").read_text())
    for job in data["jobs"]:
        job["exit_code"] = {"good.onnx": 1, "bad.onnx": 0, "broken.onnx": 0}.get(job["source"], 0)
    (tmp_path / "old.json").write_text(json.dumps(data))
    found = facts.read([results / "batch" / "results.json"], tmp_path / "old.json")
    assert {e.source: e.trend for e in found.entries if e.trend} == {
        "good.onnx": "fixed",
        "broken.onnx": "new",
    }
    for form in ("text", "md", "html"):
        assert "1 new, 1 fixed, 0 known" in report.render(found, form)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "other"}',
        '{"schema": "netconv/batch/1", "jobs": [{}], "version": "1"}',
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ReadError, match="R103"):
        facts.read([tmp_path / "x.json"])


def test_verify_writes_the_page_itself(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    page = tmp_path / "r.html"
    call = ["netconv", "verify", "good.onnx", "bad.onnx", "--tensors", "all", "--report", str(page)]
    monkeypatch.setattr(sys, "argv", call)
    console.use(console.Console())
    assert app._guarded() == 1
    stored = report.render(facts.read([results / "verify.json"]), "html")
    written = page.read_text(encoding="utf-8")
    assert re.findall("<h3>(.*?)</h3>", written) == re.findall("<h3>(.*?)</h3>", stored)
    assert shlex.join(call) in lines_of(written)
    monkeypatch.setattr(sys, "argv", [*call, "--engine", "onnxruntime,openvino"])
    console.use(console.Console())
    assert app._guarded() == 2  # a table of engines has no such page


def test_the_command(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", "report", *arguments])
        console.use(console.Console())
        return app._guarded()

    verify = str(results / "verify.json")
    assert call(verify) == 1
    assert "conv" in capsys.readouterr().out
    assert call(verify, "--to", "html", "-o", str(tmp_path / "r.html"), "--exit-zero") == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert call(str(tmp_path / "absent.json")) == 4
    assert (ROOT / "schemas" / "report" / "batch.json").exists()
