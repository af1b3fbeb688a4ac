"""Parts that other repositories use in their own integration: the hook, the action, the examples,
and the options made for them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batch.models import small, wide
from support import ROOT, SAMPLES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`netconv` on the path is this checkout's."""
    shim = tmp_path / "bin" / "netconv"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m converter.cli "$@"\n')
    shim.chmod(0o755)
    return os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{shim.parent}:{os.environ['PATH']}"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_hook_checks_every_file(tmp_path: Path, environment: dict[str, str]) -> None:
    (hook,) = load(ROOT / ".pre-commit-hooks.yaml")
    (example,) = load(SAMPLES / "ci" / "pre-commit-config.yaml")["repos"]
    assert [h["id"] for h in example["hooks"]] == [hook["id"]]
    small(tmp_path / "a b.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")

    def run(*files: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*shlex.split(hook["entry"]), *files],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    assert run("a b.onnx").returncode == 0
    done = run("bad.onnx", "a b.onnx")
    assert done.returncode == 4 and "a b.onnx: valid" in done.stdout


def test_the_action_runs_the_example(tmp_path: Path, environment: dict[str, str]) -> None:
    action, workflow = load(ROOT / "action.yml"), load(SAMPLES / "ci" / "github.yml")
    (step,) = [s for s in workflow["jobs"]["models"]["steps"] if "netconv@" in s.get("uses", "")]
    assert set(step["with"]) <= set(action["inputs"])
    shutil.copytree(SAMPLES, tmp_path / "samples")
    script = next(s["run"] for s in action["runs"]["steps"] if s.get("name") == "batch")
    own = {
        "JOBS": step["with"]["jobs"],
        "REPORT": action["inputs"]["report"]["default"],
        "ARGUMENTS": "",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=environment | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = tmp_path / "netconv-report"
    assert json.loads((report / "results.json").read_text())["counts"] == {"ok": 5}
    assert "5 ok" in (tmp_path / "summary.md").read_text()
    assert json.loads((report / "results.sarif").read_text())["version"] == "2.1.0"
    assert {"index.html", "junit.xml"} <= {p.name for p in report.iterdir()}


def test_warnings_are_findings_by_code(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "net.xml").write_bytes(
        small(tmp_path / "net.onnx").read_bytes()
    )  # content and suffix disagree: R108

    def code(*options: str) -> int:
        return subprocess.run(
            ["netconv", "inspect", "net.xml", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
        ).returncode

    assert [code(), code("--deny", "R108"), code("--deny", "R105")] == [0, 1, 0]
    assert [code("--strict"), code("--strict", "--allow", "R108"), code("--allow", "R999")] == [
        1,
        0,
        2,
    ]


def test_verify_with_seeds_and_a_limit_of_memory(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    small(tmp_path / "a.onnx")
    wide(tmp_path / "wide.onnx")

    def verify(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            ["netconv", "verify", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    code, out = verify("a.onnx", "a.onnx", "--seeds", "2", "--max-memory", "1G", "--format", "json")
    assert code == 0 and json.loads(out)["result"]["feeds"] == [
        "normal",
        "uniform",
        "zeros",
        "ones",
        "normal 1",
        "uniform 1",
    ]
    code, out = verify("wide.onnx", "wide.onnx", "--max-memory", "500M")
    assert code == 8 and "U503" in out
    code, out = verify("a.onnx", "a.onnx", "--max-memory", "1K")  # libraries that load later
    assert code == 8 and "U503" in out
