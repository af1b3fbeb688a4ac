"""Every operator test of the onnx package: read, run, compared with the expected results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converter import engines
from converter.errors import ConverterError, UnsupportedError
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.graph.invariants import violations
from onnx_node_cases import (
    as_arrays,
    differences,
    expected_difference,
    expected_refusal,
    node_case,
    node_cases,
    quick_node_cases,
)


def outcome(case: Any) -> str:
    """Return "" if the case passes."""
    name = case.name.removeprefix("test_")
    refusal = expected_refusal(name)
    try:
        model = lift(case.model, TensorFiles(Path("model.onnx")))
    except UnsupportedError as e:
        return "" if refusal else f"refused: {e}"
    except ConverterError as e:
        return f"refused as invalid: {e}"
    if refusal:
        return f"expected to be refused ({refusal}) but was read"
    found = violations(model.ir)
    return f"not canonical: {found}" if found else run(case, model)


def run(case: Any, model: Any) -> str:
    problems: list[str] = []
    try:
        for inputs, outputs in case.data_sets:
            results = engines.run(
                model,
                {i.name: as_arrays(x) for i, x in zip(case.model.graph.input, inputs, strict=True)},
            )
            for expected, (key, value) in zip(outputs, results.items(), strict=True):
                problems += differences(key, as_arrays(expected), value, case.rtol, case.atol)
    except ConverterError as e:
        problems.append(str(e))
    if expected_difference(case.name.removeprefix("test_")):
        return ""
    return "; ".join(problems)


def judge(names: list[str]) -> None:
    failures = {n: o for n in names if (o := outcome(node_case(n)))}
    assert not failures, "\n".join(f"{n}: {o[:300]}" for n, o in failures.items())


@pytest.mark.parametrize("part", range(5))
def test_sample_of_node_cases(part: int) -> None:
    """Everyday: every tenth case."""
    judge(sorted(quick_node_cases())[part * 10 :: 50])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_node_cases(part: int) -> None:
    judge(sorted(node_cases())[part::20])


@pytest.mark.slow
def test_lists_are_used() -> None:
    """A pattern that matches no case has outlived its reason."""
    import re

    from onnx_node_cases import DIFFERENT, REFUSED

    names = list(node_cases())
    assert len(names) > 1000
    assert [p for p in [*REFUSED, *DIFFERENT] if not any(re.fullmatch(p, n) for n in names)] == []
