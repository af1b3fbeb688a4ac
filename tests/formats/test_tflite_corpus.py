"""Files of the corpus, whose expected numbers LiteRT computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from support import corpus_cases

# Operators whose numbers differ from LiteRT's for a reason that is known.
DIFFERENT = {
    "SUM-i32-overflow": "onnxruntime's sum of integers ends at the largest",
    "RANDOM_STANDARD_NORMAL": "other random numbers",
}


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=True) as found:
        return dict(found)


def check(case: Path, model: converter.Model) -> None:
    """The results of the first run, and of those after it with the states that it leaves."""
    info = json.loads((case / "case.json").read_text())
    given = arrays(case / "inputs.npz")
    names = [i.name for i in model.inputs]
    feeds = given if given.keys() <= set(names) else dict(zip(names, given.values(), strict=False))
    runs = [case / "outputs.npz"]  # outputs_step1.npz is the first run again
    runs += sorted(case.glob("outputs_step[2-9].npz")) if info.get("steps") else []
    left: dict[str, Any] = {}
    for outputs in runs:
        wanted = arrays(outputs)
        found = model.run({**feeds, **left})
        for name, (got, value) in zip(
            wanted, zip(found.values(), wanted.values(), strict=False), strict=True
        ):
            tolerance = info.get("atol", 0)
            atol = tolerance.get(name, 0) if isinstance(tolerance, dict) else tolerance
            compare(got, value, info.get("rtol", 0), atol)
        states = model.interface.get("states", {})
        left = {i: found[o] for i, o in states.items()}


def compare(got: Any, wanted: Any, rtol: float, atol: float) -> None:
    if wanted.dtype.kind in "OSUb":
        assert got.tolist() == wanted.tolist()
        return
    kind = complex if wanted.dtype.kind == "c" else float
    np.testing.assert_allclose(got.astype(kind), wanted.astype(kind), rtol, atol, equal_nan=True)


@pytest.mark.corpus
@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", corpus_cases("tflite/ops"))
def test_operators(case: Path) -> None:
    if case.name in DIFFERENT:
        pytest.skip(DIFFERENT[case.name])
    check(case, converter.load(case / "model.tflite"))


@pytest.mark.corpus
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", corpus_cases("tflite/nets"))
def test_networks(case: Path) -> None:
    check(case, converter.load(case / "model.tflite"))
