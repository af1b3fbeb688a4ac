"""A single planted fault is found and its layer named first; an unchanged pair has no fault."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.api import Model
from converter.commands.verify import verify
from converter.commands.verify.cause import layer_of
from converter.commands.verify.feeds import feeds_for
from converter.commands.verify.result import Result
from converter.errors import ConverterError
from converter.graph.build import Builder
from converter.graph.names import Names
from support import corpus_folder
from verify.nets import FAULTS, NETS, copy_of

COUNT, MISSED = 60, 1
REAL = 50  # faults in published networks
LARGEST = 120  # nodes of such a network: more take longer and prove no more
SAMPLE = 6


def _renamed(model: Model) -> Model:
    """The same network with all inner names gone, so that only its structure determines which
    tensor is which.
    """
    copy = copy_of(model)
    outer = set(copy.ir.graph.outputs)
    for i, v in enumerate(o for n in copy.ir.graph for o in n.outputs if o not in outer):
        v.name = f"v{i}"
    for node in copy.ir.graph:
        node.name = None
    return copy


def _plant(seed: int, strip: bool) -> tuple[Model, Model, str, str] | None:
    rng = np.random.default_rng(seed)
    name = list(NETS)[seed % len(NETS)]
    model = NETS[name](rng)
    candidate = copy_of(model)
    fault = FAULTS[(seed // len(NETS)) % len(FAULTS)]
    layer = fault(candidate.ir, rng)
    return (
        None
        if layer is None
        else (model, _renamed(candidate) if strip else candidate, layer, f"{name} {fault.__name__}")
    )


def _misses(count: int, strip: bool) -> list[str]:
    missed, seen, seed = [], 0, 0
    while seen < count:
        case = _plant(seed, strip)
        seed += 1
        if case is None:
            continue
        seen += 1
        model, candidate, layer, what = case
        result = verify(model, candidate, seed=seed)
        if result.passed or result.first is None or result.first.layer != layer:
            missed.append(
                f"seed {seed - 1} {what}: planted {layer}, named "
                f"{result.first and result.first.layer}"
            )
    return missed


@pytest.mark.parametrize("strip", [False, True], ids=["", "without any names"])
def test_the_planted_layer_is_named_first_in_a_few(strip: bool) -> None:
    assert _misses(SAMPLE, strip) == []


@pytest.mark.slow
def test_the_planted_layer_is_named_first() -> None:
    missed = _misses(COUNT, strip=False)
    assert len(missed) <= MISSED, "\n".join(missed)


@pytest.mark.slow
def test_the_planted_layer_is_named_first_without_any_names() -> None:
    missed = _misses(COUNT, strip=True)
    assert len(missed) <= MISSED, "\n".join(missed)


def test_a_few_unchanged_pairs_have_no_fault() -> None:
    _demand_no_fault(range(0, COUNT, 11))


@pytest.mark.slow
def test_unchanged_pairs_have_no_fault() -> None:
    _demand_no_fault(range(COUNT))


def _demand_no_fault(seeds: range) -> None:
    for seed in seeds:
        model = list(NETS.values())[seed % len(NETS)](np.random.default_rng(seed))
        candidate = (
            _rewritten(model, np.random.default_rng(seed)) if seed >= COUNT // 2 else copy_of(model)
        )
        result = verify(model, candidate, tensors="all", seed=seed)
        assert result.passed and not result.findings, (seed, result.first)


def _rewritten(model: Model, rng: np.random.Generator) -> Model:
    """The same function computed otherwise: batch normalization as multiply and add, Gemm as MatMul
    and Add, constants rescaled.
    """
    copy = copy_of(model)
    names = Names(copy.ir)
    for node in list(copy.ir.graph):
        b = Builder(copy.ir.graph, names, before=node)
        if node.op_type == "BatchNormalization":
            scale, shift, mean, var = (
                v.const_value.numpy().astype(np.float64) for v in node.inputs[1:]
            )  # type: ignore[union-attr]
            factor = (scale / np.sqrt(var + node.attributes["epsilon"].as_float())).reshape(
                -1, 1, 1
            )
            product = b.op("Mul", node.inputs[0], factor.astype(np.float32))
            result = b.op(
                "Add",
                product,
                (shift.reshape(-1, 1, 1) - mean.reshape(-1, 1, 1) * factor).astype(np.float32),
            )
        elif node.op_type == "Gemm":
            result = b.op(
                "Add",
                b.op(
                    "MatMul", node.inputs[0], b.const(node.inputs[1].const_value.numpy().T.copy())
                ),
                node.inputs[2],
            )  # type: ignore[union-attr]
        elif node.op_type == "HardSwish":
            gate = b.op("HardSigmoid", node.inputs[0], alpha=1 / 6, beta=0.5)
            result = b.op("Mul", node.inputs[0], gate)
        else:
            continue
        name, out = str(node.outputs[0].name), node.outputs[0]
        out.replace_all_uses_with(result)
        copy.ir.graph.remove(node, safe=True)
        result.name = name
    return copy


SUITES = ("coreml/nets", "openvino/nets", "openvino/legacy-nets", "zhouyi/nets")


def _real_cases() -> list[Path]:
    folder = corpus_folder()
    return (
        []
        if folder is None
        else [
            case for suite in SUITES for case in sorted((folder / suite).glob("*")) if case.is_dir()
        ]
    )


def _load(case: Path) -> tuple[Model, Result] | None:
    """The case's model, and the comparison with itself, when it is no larger than LARGEST and can
    be read and executed (those that cannot is the subject of other tests).
    """
    files = [
        f
        for f in sorted(case.iterdir())
        if f.suffix in (".mlmodel", ".xml", ".txt", ".json", ".onnx") and f.name != "case.json"
    ]
    try:
        model = converter.load(files[0])
        if len(model.ir.graph) > LARGEST:
            return None
        return model, verify(model, copy_of(model), tensors="all")
    except (ConverterError, IndexError):
        return None


def _shows(model: Model, candidate: Model, seed: int) -> bool:
    """Whether the fault changes any output at all: swapping two equal states, say, changes nothing
    that could be found.
    """
    for feed in feeds_for(model, seed=seed):
        a, b = model.run(feed.arrays), candidate.run(feed.arrays)
        if not all(np.array_equal(a[n], b[n], equal_nan=a[n].dtype.kind == "f") for n in a):
            return True
    return False


@pytest.mark.slow
def test_the_planted_layer_is_named_first_in_real_networks(corpus: Path) -> None:
    """Every fault that fits into every network, until there are REAL; an unchanged network has
    no fault.
    """
    loaded = list(islice((m for m in map(_load, _real_cases()) if m is not None), 16))
    models = [model for model, _ in loaded]
    assert len(models) >= 10, "too few networks can be executed for this test to mean something"
    missed, planted = [], 0
    for seed in range(40 * COUNT):
        model, rng = models[seed % len(models)], np.random.default_rng(seed)
        candidate = copy_of(model)
        name = FAULTS[seed // len(models) % len(FAULTS)](candidate.ir, rng)
        if name is None or not _shows(model, candidate, seed):
            continue
        planted += 1
        wanted = next(layer_of(n) for n in model.ir.graph for o in n.outputs if o.name == name)
        result = verify(model, candidate, tensors="all", seed=seed)
        if result.first is None or result.first.layer != wanted:
            missed.append(
                f"seed {seed} {model.format}: planted {wanted}, named "
                f"{result.first and result.first.layer}"
            )
        if planted == REAL:
            break
    assert not any(unchanged.findings for _, unchanged in loaded)
    assert planted == REAL
    assert len(missed) <= REAL // 50, "\n".join(missed)
