"""The passes of a format: a list in order, and the changes of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter import formats
from converter.api import Model
from converter.commands import pipeline
from converter.errors import Diagnostic, UnsupportedError
from converter.formats import FORMATS
from converter.graph.build import Builder, new_model
from converter.graph.value import operand
from converter.graph.walk import all_nodes
from converter.passes.fold import fold_constants
from converter.passes.legalize import legalize
from converter.passes.pipeline import Context, Pass, change, observing, run_passes

FLAVORS = [
    *(f for f in FORMATS if f != "coreai"),  # whose bindings are not everywhere
    *("openvino+ir=7", "openvino+ir=10", "onnx+opset=17", "mlprogram+ios=15", "nnapi+level=3"),
]


def small() -> Model:
    """Two constants that are folded, a product, and an operator that most formats lack."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 6, 6])
    w = b.Mul(b.const(np.full([4, 3, 3, 3], 0.5, np.float32)), np.float32(0.5))
    y = b.Conv(x, w, kernel_shape=[3, 3])
    b.output(b.MaxPool(b.Mish(y), kernel_shape=[2, 2], strides=[2, 2]))
    return Model(model, "test")


def source(folder: Path) -> Path:
    """A file as large as that of a model, for the limit of written files."""
    (folder / "net.onnx").write_bytes(bytes(1000))
    return folder / "net.onnx"


@pytest.mark.parametrize("target", [*FLAVORS, "coreai", "zhouyi+int8"])
def test_every_pass_has_a_name_and_an_effect(target: str) -> None:
    flavor = formats.parse_flavor(target)
    passes = formats.get(flavor.format).passes(flavor)
    assert len(passes) >= 5
    for each in passes:
        assert isinstance(each, Pass)
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", each.name)
        assert re.fullmatch(r"[A-Z][^\n]{10,99}[^.\n]", each.effect)
    effects: dict[str, set[str]] = {}
    for each in passes:
        effects.setdefault(each.name, set()).add(each.effect)
    # only passes that legalize for a level or a version say so
    assert {n for n, found in effects.items() if len(found) > 1} <= {"legalize"}


@pytest.mark.parametrize("target", FLAVORS)
def test_the_listed_passes_run(target: str, tmp_path: Path) -> None:
    flavor = formats.parse_flavor(target)
    listed = [*formats.get(flavor.format).passes(flavor)]
    seen: list[Pass[Any]] = []

    @contextmanager
    def watched(each: Pass[Any], model: ir.Model, context: Context) -> Iterator[None]:
        seen.append(each)
        yield

    with observing(watched):
        converter.save(small(), tmp_path / f"net{formats.suffix(flavor)}", target)
    assert seen and all(any(each is p for p in listed) for each in seen)
    # in the order of the list; formats that try versions begin again with those of a version
    positions, starts = [], 0
    for each in seen:
        after = [i for i, p in enumerate(listed) if p is each and i > (positions or [-1])[-1]]
        if not after:
            starts += 1
            after = [i for i, p in enumerate(listed) if p is each]
        positions.append(after[0])
    assert starts == 0 or flavor.format in ("nnapi", "mlprogram")
    always = [p for p in listed if p.applies is listed[0].applies]
    assert all(any(p is each for each in seen) for p in always)


def test_conditions_are_refusals() -> None:
    calls: list[str] = []

    def refusing(when: str) -> Any:
        def condition(model: ir.Model, context: Context) -> list[Diagnostic]:
            calls.append(when)
            return [Diagnostic("X202", f"not {when}")]

        return condition

    model, context = small().ir, Context(small())
    before: Pass[Context] = Pass(
        "a", "", lambda m, c: calls.append("ran"), requires=refusing("before")
    )
    after: Pass[Context] = Pass(
        "b", "", lambda m, c: calls.append("ran"), ensures=refusing("after")
    )
    skipped = change("c", "", lambda m: calls.append("ran"), applies=lambda c: False)
    with pytest.raises(UnsupportedError, match="not before"):
        run_passes([before], model, context)
    assert calls == ["before"]
    with pytest.raises(UnsupportedError, match="not after"):
        run_passes([skipped, after, before], model, context)
    assert calls == ["before", "ran", "after"]


def negated(node: ir.Node, b: Builder) -> ir.Value:
    return b.Neg(operand(node))


def test_a_pipeline_of_passes_changes_the_graph_in_order() -> None:
    model = small()
    graph = model.ir.clone()
    passes = [fold_constants(), legalize(lambda n, _: n.op_type == "Mish", {("", "Mish"): negated})]
    run_passes(passes, graph, Context(model))
    assert [n.op_type for n in all_nodes(graph.graph)] == ["Conv", "Neg", "MaxPool"]
    assert [n.op_type for n in all_nodes(model.ir.graph)] == ["Mul", "Conv", "Mish", "MaxPool"]


def test_changes_of_passes_are_reported(tmp_path: Path) -> None:
    changes, found = pipeline.trace(small(), "tflite", source(tmp_path))
    assert not found.reasons
    fold, *_ = (c for c in changes if c.name == "fold-constants")
    assert (fold.removed, fold.added, fold.rewrote, fold.nodes) == ({"Mul": 1}, {}, {}, (4, 3))
    legalized, *_ = (c for c in changes if c.name == "legalize")
    assert legalized.removed["Mish"] == 1 and "Mish" not in legalized.added
    (turned,) = (c for c in changes if c.name == "channels-last")
    assert turned.rewrote == {"netconv.channels_last.Conv": 1, "netconv.channels_last.MaxPool": 1}
    quiet = [c for c in changes if not c.changed]
    assert quiet and {c.text() for c in quiet} == {"unchanged"}
    *shown, rest = pipeline.changed_lines(changes, all_=False)
    assert len(shown) == len(changes) - len(quiet)
    assert rest.startswith(f"{len(quiet)} of {len(changes)} passes")
    assert len([*pipeline.changed_lines(changes, all_=True)]) == len(changes)


def test_the_pass_that_refuses_is_named(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["n", 4])
    b.output(b.Relu(x))
    changes, found = pipeline.trace(Model(model, "test"), "zhouyi", source(tmp_path))
    assert found.reasons and {d.code for d in found.diagnostics} == {"X203"}
    assert [c.name for c in changes if c.refused] == ["check-static-shapes"]
    assert changes[-1].refused and changes[-1].text().endswith("refused")


def test_attempts_of_several_versions_are_reported(tmp_path: Path) -> None:
    changes, _ = pipeline.trace(small(), "nnapi", source(tmp_path))
    attempts = [c.attempt for c in changes if c.name == "channels-last"]
    assert attempts and all(re.fullmatch(r"level \d", a) for a in attempts)
    assert {c.attempt for c in changes if c.name == "check-target"} == {""}
