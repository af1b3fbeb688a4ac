"""The operator tests of the onnx package with numbers that no operator has: reading and rewriting
them ends in a refusal, never in an exception of Python.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import converter
from converter.errors import ConverterError
from onnx_node_cases import quick_node_cases

CHUNKS = 8


def damaged(model: onnx.ModelProto) -> Iterator[tuple[int, int, str, Any]]:
    """(node, attribute, field, value)."""
    for i, node in enumerate(model.graph.node):
        for j, a in enumerate(node.attribute):
            if a.type == onnx.AttributeProto.INT:
                yield from ((i, j, "i", v) for v in (0, -1, 1 << 31, 7))
            elif a.type == onnx.AttributeProto.FLOAT:
                yield from ((i, j, "f", v) for v in (0.0, -1.0, float("nan")))
            elif a.type == onnx.AttributeProto.INTS:
                n = len(a.ints)
                yield from ((i, j, "ints", [v] * n) for v in (0, -1, 1 << 31))
                yield from ((i, j, "ints", v) for v in ([], [*a.ints][:-1], [*a.ints, 1]))


def changed(model: onnx.ModelProto, i: int, j: int, field: str, value: Any) -> onnx.ModelProto:
    other = copy.deepcopy(model)
    attribute = other.graph.node[i].attribute[j]
    if field == "ints":
        attribute.ints[:] = value
    else:
        setattr(attribute, field, value)
    return other


def convert(model: onnx.ModelProto, folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(model, path)
    with contextlib.suppress(ConverterError):
        converter.save(converter.load(path), folder / "out.xml", "openvino")


# the slow test has all chunks
@pytest.mark.parametrize("chunk", range(0, CHUNKS, 4))
def test_one_impossible_number_each(chunk: int, tmp_path: Path) -> None:
    for name, case in sorted(quick_node_cases().items())[chunk::CHUNKS]:
        found = list(damaged(case.model)) if "_expanded" not in name else []
        if found:
            convert(changed(case.model, *random.Random(name).choice(found)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_several_impossible_numbers_each(chunk: int, tmp_path: Path) -> None:
    for name, case in sorted(quick_node_cases().items())[chunk::CHUNKS]:
        found = list(damaged(case.model)) if "_expanded" not in name else []
        for change in random.Random(name).sample(found, min(8, len(found))):
            convert(changed(case.model, *change), tmp_path)
