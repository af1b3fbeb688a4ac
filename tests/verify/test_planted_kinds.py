"""27 kinds of faults through four formats: found, and called by their cause; unchanged networks of
all operators and through all formats have none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.api import Model
from converter.commands.verify.result import Result
from converter.errors import ConverterError
from random_graphs import network as random_network
from random_graphs import suffix_of
from support import ROOT
from verify.plants import FAULTS, planted

TARGETS = ("onnx", "openvino+ir=7", "coreml", "zhouyi")
FOUND, EXACT = 0.98, 0.92  # shares of all faults
PAIRS = 80
FORMATS = (
    *("onnx", "coreml", "openvino", "openvino+ir=7", "zhouyi", "nnapi"),
    *("tflite", "mlprogram"),
)
Fault = tuple[str, ...]


def _compared(folder: Path, target: str, faults: Fault, half: bool, named: bool = True) -> Result:
    """The network as ONNX, and one with faults that went through a format."""
    reference, candidate = folder / "reference.onnx", folder / f"{'-'.join(faults)}{target}"
    if not reference.exists():
        converter.save(planted((), half=half, named=named), reference, "onnx")
    candidate.mkdir()
    path = candidate / f"net{suffix_of(target)}"
    converter.save(planted(faults, half=half, named=named), path, target)
    return converter.verify(reference, path, native="off")


def _exact(result: Result, fault: str) -> bool:
    """Whether the layer that is named first is the faulty one, with its cause first."""
    first, plant = result.first, FAULTS[fault]
    return (
        first is not None
        and first.layer in plant.layers
        and bool(first.causes)
        and re.search(plant.cause, first.causes[0]) is not None
    )


def _demand(
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    half: bool,
    named: bool = True,
) -> None:
    """Nearly every (target, fault) is found and called by its cause."""
    found, exact, missed = 0, 0, []
    for target, fault in pairs:
        result = _compared(folder, target, (fault,), half, named)
        found += not result.passed
        exact += _exact(result, fault)
        if not _exact(result, fault):
            first = result.first
            missed.append(f"{fault} {target}: {first and (first.layer, *first.causes[:2])}")
    for target in {t for t, _ in pairs}:
        assert _compared(folder, target, (), half, named).passed, f"false alarm: {target}"
    count = len(pairs)
    assert found >= FOUND * count and exact >= EXACT * count, "\n".join(missed)


def test_a_few_faults_are_called_by_their_cause(tmp_path: Path) -> None:
    through_v7 = ("const_small", "count_include_pad", "swap_sub")
    _demand(tmp_path, [("openvino+ir=7", f) for f in through_v7], half=True)
    _demand(tmp_path, [("zhouyi", f) for f in ("bias_missing", "dropped_relu")], half=False)


def _by_turns(first: int = 0, faults: slice = slice(None)) -> list[tuple[str, str]]:
    """Each fault through one target, another one than its neighbors and than in other tests."""
    return [(TARGETS[i % len(TARGETS)], f) for i, f in enumerate(list(FAULTS)[faults], first)]


@pytest.mark.slow
def test_faults_are_called_by_their_cause(tmp_path: Path) -> None:
    assert len(FAULTS) >= 27
    _demand(tmp_path, _by_turns(), half=False)


@pytest.mark.slow
def test_faults_next_to_an_unused_half_are_named_by_their_cause(tmp_path: Path) -> None:
    """Every second fault; the others are in the next test."""
    _demand(tmp_path, _by_turns(1, slice(0, None, 2)), half=True)


@pytest.mark.slow
def test_faults_in_layers_without_names(tmp_path: Path) -> None:
    _demand(tmp_path, _by_turns(2, slice(1, None, 2)), half=False, named=False)


@pytest.mark.slow
def test_two_faults_are_both_listed(tmp_path: Path) -> None:
    """Each fault in a pair, with the one half of the list away."""
    names, missed, first = list(FAULTS), [], 0
    ahead = len(names) // 2
    pairs = _by_turns(3, slice(ahead + 1))
    for target, fault in pairs:
        other = names[(names.index(fault) + ahead) % len(names)]
        result = _compared(tmp_path, target, (fault, other), half=False)
        listed = {f.layer for f in result.findings}
        first += _exact(result, fault) or _exact(result, other)
        if not all(listed & set(FAULTS[f].layers) for f in (fault, other)):
            missed.append(f"{fault}, {other} {target}: {sorted(listed)}")
    assert len(missed) <= (1 - FOUND) * len(pairs), "\n".join(missed)
    assert first >= EXACT * len(pairs)


def _unchanged(folder: Path, seed: str, target: str) -> Result | None:
    """A random network and its conversion; None where that is refused or does not
    run.
    """
    model = random_network(seed, 1 + sum(map(ord, seed)) % 8)
    if model is None or not any(n.dtype.kind == "f" for n in model.outputs):
        return None
    path = folder / f"{seed.replace(' ', '-')}{suffix_of(target)}"
    try:
        converter.save(model, path, target)
        return converter.verify(_as_file(model, folder, seed), path, native="off")
    except ConverterError:
        return None


def _as_file(model: Model, folder: Path, seed: str) -> Model:
    path = folder / f"{seed.replace(' ', '-')}.reference.onnx"
    converter.save(model, path, "onnx")
    return converter.load(path)


def _demand_no_alarm(folder: Path, count: int, prefix: str) -> None:
    alarms, compared, seed = [], 0, 0
    while compared < count:
        target = FORMATS[seed % len(FORMATS)]
        with np.errstate(all="ignore"):
            (here := folder / str(seed)).mkdir()
            result = _unchanged(here, f"{prefix} {seed}", target)
        seed += 1
        if result is None:
            continue
        compared += 1
        if not result.passed or result.findings:
            alarms.append(f"{prefix} {seed - 1} {target}: {result.first}")
    assert not alarms, "\n".join(alarms)


def _demand_no_alarm_apart(folder: Path, count: int, prefix: str = "unchanged") -> None:
    """In a process of its own: other tests add operators to those that networks are drawn from,
    which are those of both modules here.
    """
    code = (
        "import sys, random_operators\n"
        "from pathlib import Path; from verify import test_planted_kinds as kinds\n"
        "kinds._demand_no_alarm(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
    )
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "formats")))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder), str(count), prefix],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["unchanged", "quiet"])
def test_random_networks_raise_no_alarm(prefix: str, tmp_path: Path) -> None:
    _demand_no_alarm_apart(tmp_path, PAIRS, prefix)
