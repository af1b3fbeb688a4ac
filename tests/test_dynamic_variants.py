"""Networks of the corpus and single operators with dynamic batch, height, width and length: their
written files run in the engines at three sizes, or are refused.

onnxruntime runs the network at the same sizes; where it does not, the network is not dynamic.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import pytest

import converter
from converter.errors import ConverterError
from dynamic_variants import ENGINES, KINDS, NoVariant, difference, expected, judge, write_variant
from random_graphs import STEPS, network
from support import corpus_cases

SUITES = ("tflite/nets", "openvino/nets", "coreml/nets", "coreml/mlprogram-nets")
MODELS = ("model.tflite", "model.xml", "model.mlmodel", "model.mlpackage")
TARGETS = [
    pytest.param(
        "tflite",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("ai_edge_litert") is None, reason="LiteRT is not installed"
        ),
    ),
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("openvino") is None, reason="openvino is not installed"
        ),
    ),
]
OPERATORS = sorted(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for s in SUITES for c in corpus_cases(s)])
def test_a_network_with_dynamic_sizes(case: Path) -> None:
    """Every second kind of variant of the network, in every target that has an engine."""
    source = next(case / m for m in MODELS if (case / m).exists())
    verdicts, missing = {}, []
    turn = sum(map(ord, case.name)) % 2
    for kind in list(KINDS)[turn::2]:
        try:
            found = judge(source, kind)
        except NoVariant as e:
            missing.append(str(e)[:200])
        else:
            verdicts |= {(kind, target): verdict for target, verdict in found.items()}
    if not verdicts:
        pytest.skip("; ".join(dict.fromkeys(missing)))
    assert {k: v for k, v in verdicts.items() if v.startswith("wrong")} == {}


def sized(name: str, seed: int) -> tuple[Any, dict[tuple[str, int], str]]:
    """Return a network of one operator, and names for its sizes: equal ones have one name."""
    model = network(f"{name} {seed}", 1, name)
    if model is None:
        raise NoVariant("the operator does not take the drawn values")
    names = {
        (str(v.name), axis): f"d{size}"
        for v in model.ir.graph.inputs
        for axis, size in enumerate(v.shape or ())
        if isinstance(size, int) and size > 1
    }
    if not names:
        raise NoVariant("no sizes")
    return model, names


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("target", TARGETS)
def test_an_operator_with_dynamic_sizes(target: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        variant, path = Path(folder) / "variant.onnx", Path(folder) / f"m{ENGINES[target][0]}"
        try:
            model, names = sized(name, 0)
            cases = list(expected(variant, write_variant(model, names, variant)))
            converter.convert(variant, path, target=target)
        except NoVariant as e:
            pytest.skip(str(e)[:200])
        except ConverterError as e:
            assert {d.code for d in e.diagnostics} <= {"X201", "X202", "X203", "X204", "X205"}
            return
        run = ENGINES[target][1](path)
        for feeds, right in cases:
            assert not difference(run(feeds), right)
