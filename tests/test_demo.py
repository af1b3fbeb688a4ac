"""`make demo`: every sample in every format, the same numbers, the same accuracy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import HANG, ROOT, SAMPLES


@pytest.mark.slow
def test_the_demo_shows_the_same_accuracy_everywhere(tmp_path: Path) -> None:
    command = [sys.executable, str(SAMPLES / "demo.py"), "--out", str(tmp_path)]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("digits_")]
    assert len(rows) == 12
    accuracy = {network: cell for network, kind, _, cell, *_ in rows if kind == "coreml"}
    for network, kind, difference, cell, *_ in rows:
        assert cell == accuracy[network], (network, kind)
        assert kind == "coreml" or float(difference) < 1e-5, (network, kind)
