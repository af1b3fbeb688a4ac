"""Passes before and after, as text files; see README.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.invariants import violations
from converter.graph.text import parse_text, print_text
from converter.passes.biases_before_reshapes import biases_before_reshapes
from converter.passes.channels_last import to_nchw, to_nhwc
from converter.passes.clamp_masks import clamp_masks
from converter.passes.collapse_dims import collapse_dims, join_reshapes
from converter.passes.common_subexpressions import eliminate_common_subexpressions
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import fold
from converter.passes.fuse_attention import fuse_attention
from converter.passes.fuse_constants import fuse_constants
from converter.passes.legalize import rewrite_illegal
from converter.passes.unroll import unroll

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
HEADER = '<ir_version: 10, opset_import: ["" : 21, "netconv" : 1, "netconv.channels_last" : 1]>\n'
BAR = "----\n"


def decompose(model: ir.Model, *operators: str) -> None:
    """For a target that lacks these operators."""
    rewrite_illegal(model, lambda node: node.op_type in operators, {})


PASSES: dict[str, Callable[..., object]] = {
    "biases_before_reshapes": biases_before_reshapes,
    "decompose": decompose,
    "fold": fold,
    "join_reshapes": join_reshapes,
    "clamp_masks": clamp_masks,
    "collapse_dims": lambda model, most: collapse_dims(model, int(most)),
    "fuse_attention": fuse_attention,
    "fuse_constants": fuse_constants,
    "eliminate_common_subexpressions": eliminate_common_subexpressions,
    "remove_dead_code": remove_dead_code,
    "to_nchw": to_nchw,
    "to_nhwc": to_nhwc,
    "unroll": lambda model: (unroll(model), remove_dead_code(model)),
}


def shown(model: ir.Model) -> str:
    """The graph without the header, which is the same in all cases."""
    text = print_text(model, types=False, inline=64)
    return text[text.index("main ") :]


@pytest.mark.parametrize("file", CASES, ids=lambda f: f.stem)
def test_case(file: Path, record: bool) -> None:
    before, _, after = file.read_text("utf-8").partition(BAR)
    title, use, graph = before.split("\n", 2)
    name, *arguments = use.removeprefix("pass:").split()
    assert title and use.startswith("pass:") and name in PASSES
    source, model = parse_text(HEADER + graph), parse_text(HEADER + graph)
    PASSES[name](model, *arguments)
    assert violations(model) == []
    found = shown(model)
    if record and found != after:
        file.write_text(f"{before}{BAR}{found}", "utf-8")
        pytest.skip(f"recorded: {file.name}")
    assert found == after
    same_numbers(source, model)


def same_numbers(before: ir.Model, after: ir.Model) -> None:
    rng = np.random.default_rng(0)
    first, second = Model(before, "onnx"), Model(after, "onnx")
    feeds = {}
    for port in first.inputs:
        drawn = rng.uniform(-2, 2, port.shape)
        drawn = drawn if port.dtype.kind == "f" else rng.integers(0, 5, port.shape)
        feeds[port.name] = drawn.astype(port.dtype)
    for wanted, found in zip(first.run(feeds).values(), second.run(feeds).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_every_pass_has_a_case() -> None:
    used = {f.read_text("utf-8").split("pass:", 1)[1].split()[0] for f in CASES}
    assert used == PASSES.keys()
