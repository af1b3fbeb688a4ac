"""What several test modules use: the folders of the checkout, the corpus of real cases, fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
CONVERTER = ROOT / "converter"

NO_CORPUS = "the corpus of real cases is not here: set NETCONV_CORPUS, or put it in ../shared/corpus beside the checkout"


def corpus_folder() -> Path | None:
    """The corpus named by NETCONV_CORPUS, or the one beside the checkout; None when there is none."""
    named = os.environ.get("NETCONV_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if named and not folder.is_dir():
        raise pytest.UsageError(f"NETCONV_CORPUS={named} is not a folder")
    return folder if folder.is_dir() else None


def corpus_cases(suite: str, only: str = "*", every: int = 1) -> list[object]:
    """Parameters for pytest.mark.parametrize: the case folders of a suite such as "openvino/nets", marked `corpus`.

    `only` is a glob over the case names; `every` takes each n-th case. Without a corpus it is one skipped case that says why;
    an empty selection in a corpus that is there is an error.
    """
    corpus = corpus_folder()
    if corpus is None:
        return [pytest.param(None, id=suite, marks=(pytest.mark.corpus, pytest.mark.skip(reason=NO_CORPUS)))]
    cases = [p for p in sorted((corpus / suite).glob(only)) if p.is_dir()][::every]
    if not cases:
        raise pytest.UsageError(f"no case {only!r} in {corpus / suite}")
    return [pytest.param(case, id=f"{suite}/{case.name}", marks=pytest.mark.corpus) for case in cases]


def run_python(code: str, *arguments: str, cwd: Path = ROOT, timeout: float = 60) -> str:
    """Standard output of a fresh interpreter that finds this checkout's converter; fails the test with its stderr otherwise."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout
