"""What each row writes of an operator computes what the operator computes when it is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import ConverterError, MappingError
from converter.formats.coreml_proto import Model_pb2
from converter.formats.format import Flavour
from converter.formats.mlprogram.format import FORMAT
from converter.formats.mlprogram.mapping import MAPPING
from converter.formats.mlprogram.rules.context import Writing
from converter.graph.infer import InferenceError
from converter.graph.network import Network
from converter.mapping.node import Node
from converter.mapping.rules import Rule
from mapping_samples import candidates, contexts, sample

ROWS = [
    pytest.param(rule, id=f"{number}-{rule.op}={rule.kind}")
    for number, rule in enumerate(MAPPING.table.rules)
    if not rule.lift_only and not rule.op.startswith("Random")  # see test_random_numbers.py
]
VERSIONS = {"18": 9, "16": 7}  # the newest, and what later ones do not have any more
RNG = np.random.default_rng(5)


def network_of(
    rule: Rule, context: str, attrs: dict[str, Any], version: int
) -> tuple[Network, Node]:
    """One operator between its inputs and outputs; MappingError where the row refuses it."""
    node, b = sample(rule, context, attrs)
    low = MAPPING.lowering(MAPPING, version)
    rule.lower(Writing(node, low))
    results = b.ops(
        node.op, *node.inputs, domain=node.domain, outputs=len(node.outputs), **node.attrs
    )
    b.output(*results)
    return Network(ir.Model(b.graph, ir_version=10), "onnx"), node


def numbers(value: ir.Value) -> Any:
    shape = [n if isinstance(n, int) else 2 for n in value.shape or ()]
    kind = (value.dtype or ir.DataType.FLOAT).numpy()
    if kind.kind == "b":
        return RNG.random(shape) < 0.5
    if kind.kind in "iu":
        return RNG.integers(1, 2, shape).astype(kind)
    return (RNG.random(shape) * 0.8 + 0.1).astype(kind)


def kinds(package: Path) -> list[str]:
    model = Model_pb2.Model()
    model.ParseFromString((package / "Data/com.apple.CoreML/model.mlmodel").read_bytes())
    function = model.mlProgram.functions["main"]
    return [o.type for o in function.block_specializations[function.opset].operations]


@pytest.mark.parametrize("rule", ROWS)
def test_what_a_row_writes_is_read_as_the_same(rule: Rule, tmp_path: Path) -> None:
    assert any(written(rule, tmp_path, ios) for ios in VERSIONS), "no sample fits: declare `given`"


def written(rule: Rule, tmp_path: Path, ios: str) -> int:
    """How many samples the row writes in one version; an earlier row may take others."""
    count = 0
    for context in contexts(rule):
        values = candidates(rule, context)
        sets = [{k: v[0] for k, v in values.items()}, {k: v[-1] for k, v in values.items()}]
        for attrs in sets:
            try:
                network, _ = network_of(rule, context, attrs, VERSIONS[ios])
            except (MappingError, InferenceError, ConverterError):
                continue
            package = tmp_path / f"{len(list(tmp_path.iterdir()))}.mlpackage"
            FORMAT.write(network, package, Flavour("mlprogram", {"ios": ios}))
            count += rule.kind in kinds(package)
            feeds = {v.name: numbers(v) for v in network.ir.graph.inputs}
            wanted = Model.of(network).run(feeds)
            found = Model.of(FORMAT.read(package, None)).run(feeds)
            for a, b in zip(wanted.values(), found.values(), strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    return count
