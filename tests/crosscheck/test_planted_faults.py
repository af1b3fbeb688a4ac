"""A single planted fault is found and its layer named first; an unchanged pair has no fault."""

from __future__ import annotations

import numpy as np

from converter.crosscheck import verify
from converter.graph.build import Builder
from converter.graph.names import Names
from converter.model import Model
from crosscheck.nets import FAULTS, NETS, copy_of

COUNT, NEEDED = 100, 98


def _renamed(model: Model) -> Model:
    """The same network with all inner names gone, so that only its structure tells which tensor is which."""
    copy = copy_of(model)
    outer = set(copy.ir.graph.outputs)
    for i, v in enumerate(o for n in copy.ir.graph for o in n.outputs if o not in outer):
        v.name = f"v{i}"
    return copy


def _plant(seed: int, strip: bool) -> tuple[Model, Model, str, str] | None:
    rng = np.random.default_rng(seed)
    name = list(NETS)[seed % len(NETS)]
    model = NETS[name](rng)
    candidate = copy_of(model)
    fault = FAULTS[(seed // len(NETS)) % len(FAULTS)]
    layer = fault(candidate.ir, rng)
    return None if layer is None else (model, _renamed(candidate) if strip else candidate, layer, f"{name} {fault.__name__}")


def _misses(strip: bool) -> list[str]:
    missed, seen, seed = [], 0, 0
    while seen < COUNT:
        case = _plant(seed, strip)
        seed += 1
        if case is None:
            continue
        seen += 1
        model, candidate, layer, what = case
        result = verify(model, candidate, tensors="all", seed=seed)
        if result.passed or result.first is None or result.first.layer != layer:
            missed.append(f"seed {seed - 1} {what}: planted {layer}, named {result.first and result.first.layer}")
    return missed


def test_the_planted_layer_is_named_first() -> None:
    missed = _misses(strip=False)
    assert len(missed) <= COUNT - NEEDED, "\n".join(missed)


def test_the_planted_layer_is_named_first_without_any_names() -> None:
    missed = _misses(strip=True)
    assert len(missed) <= COUNT - NEEDED, "\n".join(missed)


def test_unchanged_pairs_have_no_fault() -> None:
    for seed in range(COUNT):
        model = list(NETS.values())[seed % len(NETS)](np.random.default_rng(seed))
        candidate = _rewritten(model, np.random.default_rng(seed)) if seed >= COUNT // 2 else copy_of(model)
        result = verify(model, candidate, tensors="all", seed=seed)
        assert result.passed and not result.findings, (seed, result.first)


def _rewritten(model: Model, rng: np.random.Generator) -> Model:
    """The same function computed otherwise: batch normalisation as multiply and add, Gemm as MatMul and Add, constants rescaled."""
    copy = copy_of(model)
    names = Names(copy.ir)
    for node in list(copy.ir.graph):
        b = Builder(copy.ir.graph, names, before=node)
        if node.op_type == "BatchNormalization":
            scale, shift, mean, var = (v.const_value.numpy().astype(np.float64) for v in node.inputs[1:])  # type: ignore[union-attr]
            factor = (scale / np.sqrt(var + node.attributes["epsilon"].as_float())).reshape(-1, 1, 1)
            product = b.op("Mul", node.inputs[0], factor.astype(np.float32))
            result = b.op("Add", product, (shift.reshape(-1, 1, 1) - mean.reshape(-1, 1, 1) * factor).astype(np.float32))
        elif node.op_type == "Gemm":
            result = b.op("Add", b.op("MatMul", node.inputs[0], b.const(node.inputs[1].const_value.numpy().T.copy())), node.inputs[2])  # type: ignore[union-attr]
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
