"""Zhouyi Compass IR: every required key, every type of a value and every declared shape of every
section is looked at.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from test_zhouyi_codec import NO_DOCUMENT, examples
from test_zhouyi_operators import readings

from converter.errors import ConverterError
from converter.formats.zhouyi.codec import parse_ir, read_ir
from converter.formats.zhouyi.format import check
from converter.formats.zhouyi.ir import Constant, Document
from converter.formats.zhouyi.lift_document import lift
from converter.formats.zhouyi.linting import lint
from converter.formats.zhouyi.operators import find_operator
from support import corpus_cases

# types whose result is as large as the file says: there is nothing to compare it with
DECLARED = {
    "AccidentalHits", "AdaptivePool", "CTCGreedyDecoder", "Constant", "DecodeBox",
    "EmbeddingLookupSparse", "NMS", "Region", "RegionFuse", "Reshape", "Resize", "RoiAlign",
    "MaxRoiPool", "SegmentReduce", "YuvToRgb", "MaxUnpool", "UpsampleByIndex",
}  # fmt: skip


def sound(name: str) -> Document | None:
    """The example as a float file without findings of its own; None where it has some."""
    parsed, _ = parse_ir(dict(examples())[name])
    for one in readings(parsed.layers[0]) if parsed.layers else []:
        try:
            lift(one)
        except ConverterError:
            continue
        return one
    return None


def errors(document: Document) -> list[str]:
    return [f"{d.code} {d.message}" for d in lint(document) if d.level == "error"]


@pytest.mark.skipif(not examples(), reason=NO_DOCUMENT)
@pytest.mark.parametrize("name", [n for n, _ in examples()])
@pytest.mark.sampled(7)
def test_faults_of_every_section_are_found(name: str) -> None:
    document = sound(name)
    if document is None:
        return
    layer = document.layers[-1]
    operator = find_operator(layer.type)
    assert operator is not None
    before = errors(document)
    method = operator.methods.get(str(layer.attrs.get("method", "")).upper())
    attributes = [
        a for part in (operator, method) if part is not None for a in part.attributes.values()
    ]
    for a in attributes:
        for key in {a.name, *a.aliases} & set(layer.attrs):
            faulty = deepcopy(document)
            value = faulty.layers[-1].attrs.pop(key)
            assert not a.required or set(errors(faulty)) - set(before), f"without {key}"
            if isinstance(value, int | float) and not {"any", "string"} & set(a.type.split("|")):
                faulty.layers[-1].attrs[key] = "nonsense"
                assert set(errors(faulty)) - set(before), f"{key}=nonsense"
    for group in layer.constants:
        faulty = deepcopy(document)
        c = faulty.layers[-1].constants[group]
        faulty.layers[-1].constants[group] = Constant(c.dtype, c.shape, c.data, 0, c.size + 1)
        assert any("but size is" in e for e in errors(faulty)), f"{group}_size"
    if layer.type not in DECLARED and not before:
        faulty = deepcopy(document)
        top = faulty.layers[-1].outputs[0]
        faulty.layers[-1].outputs[0] = top._replace(shape=(*(top.shape or ()), 7))
        assert any(e.startswith("R") for e in errors(faulty)), "layer_top_shape"


@pytest.mark.parametrize("case", corpus_cases("zhouyi/ops"))
def test_real_layers_have_no_findings(case: Path) -> None:
    assert check(case / "model.txt", None) == []
    document = read_ir(case / "model.txt")
    assert lint(document) == []
