"""Actions of workflows are pinned by content, and jobs that publish run nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import HANG, ROOT, SAMPLES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLE = SAMPLES / "ci" / "github.yml"
REQUIREMENTS = ROOT / ".ci" / "requirements"


def jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in yaml.safe_load(path.read_text())["jobs"].items():
        yield f"{path.stem}/{name}", job


def steps(job: dict[str, Any]) -> str:
    return "\n".join(f"{s.get('uses', '')} {s.get('run', '')}" for s in job["steps"])


@pytest.mark.parametrize("path", [*WORKFLOWS, EXAMPLE, ROOT / "action.yml"], ids=lambda p: p.name)
def test_actions_are_named_by_commit_and_version(path: Path) -> None:
    lines = re.findall(r"uses: *(.*)", path.read_text())
    assert lines
    for line in lines:
        # the example names this action, whose releases have no commit yet
        line = line.replace("OWNER/netconv@COMMIT", f"OWNER/netconv@{'0' * 40}")
        assert re.match(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@pytest.mark.parametrize("path", [*WORKFLOWS, EXAMPLE], ids=lambda p: p.name)
def test_jobs_may_only_read_but_for_those_that_run_nothing(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    for name, job in jobs(path):
        writes = [k for k, v in job.get("permissions", {}).items() if v == "write"]
        if writes:
            text = steps(job)
            assert "checkout" not in text and "setup-python" not in text, name
            assert not re.search(r"pip |make |python |netconv ", text), name
        elif "checkout" in steps(job):
            (checkout,) = [s for s in job["steps"] if "checkout" in s.get("uses", "")]
            assert checkout["with"]["persist-credentials"] is False, name


def test_published_files_are_built_with_pinned_tools() -> None:
    release = dict(jobs(ROOT / ".github" / "workflows" / "release.yml"))
    build = steps(release["release/build"])
    installs = re.findall(r"pip install.*", build)
    assert installs and all("--require-hashes" in line for line in installs)
    assert "--no-isolation" in build  # or the build would fetch tools of its own
    assert "make" not in build and "wheel.py" not in build
    uploads = [n for n, job in release.items() if "name: distributions" in yaml.dump(job)]
    assert "release/build" in uploads
    (publisher,) = [n for n, j in release.items() if "gh-action-pypi-publish" in steps(j)]
    assert not any("run" in step for step in release[publisher]["steps"])
    tokens = {n for n, j in release.items() if j.get("permissions", {}).get("id-token")}
    assert tokens == {publisher, "release/pages"}
    assert "attest-build-provenance" in steps(release[publisher])


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda p: p.name)
def test_tools_have_hashes(path: Path) -> None:
    text = path.read_text()
    packages = [p for p in re.split(r"\n(?! )", text) if p.strip()]
    assert packages and path.with_suffix(".in").exists()
    for package in packages:
        assert re.match(r"[a-z0-9-]+==\S+ ", package) and "--hash=sha256:" in package, package


@pytest.mark.parametrize(
    ("tool", "code", "said"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, 0, "1 packages audited"),
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]},
            1,
            "::error::a 1: CVE-1",
        ),
        ("requests.exceptions.ConnectionError: no route", 0, "::warning::nothing was audited"),
        ("KeyError: 'x'", 1, "::error::nothing was audited"),
    ],
)
def test_an_audit_without_an_answer_says_so(
    tmp_path: Path, tool: object, code: int, said: str
) -> None:
    """A pip-audit of our own plays the answers."""
    (tmp_path / "pip_audit.py").write_text(
        "import json, sys\n"
        f"answer = {json.dumps(tool)!r}\n"
        "answer = json.loads(answer)\n"
        "if isinstance(answer, str):\n"
        "    sys.exit(answer)\n"
        "place = sys.argv[sys.argv.index('--output') + 1]\n"
        "open(place, 'w').write(json.dumps(answer))\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "audit.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == code and said in done.stdout, done.stdout + done.stderr


def test_the_action_caches_and_needs_no_secrets() -> None:
    """So that it runs in the pull request of a fork, which gets none."""
    text = (ROOT / "action.yml").read_text()
    assert "secrets." not in text and "github.token" not in text and "permissions" not in text
    steps = yaml.safe_load(text)["runs"]["steps"]
    cached = [s["with"]["path"] for s in steps if "actions/cache" in s.get("uses", "")]
    assert any(p.endswith("/netconv-environment") for p in cached)
    assert "${{ inputs.results }}" in cached


def test_the_action_does_not_run_modules_of_the_checkout() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "python -m" not in step.get("run", "")
    assert "pull request" in action["inputs"]["arguments"]["description"]
