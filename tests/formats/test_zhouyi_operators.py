"""Zhouyi Compass IR: every layer type and every section of the document is read and written, or
stands among those without an explanation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_zhouyi_codec import NO_DOCUMENT, examples
from test_zhouyi_mapping import document

import converter
from converter import engines
from converter.api import Model
from converter.errors import ConverterError, Diagnostic, UnsupportedError
from converter.formats.zhouyi.codec import parse_ir, read_ir
from converter.formats.zhouyi.format import kinds
from converter.formats.zhouyi.ir import Constant, Document, Layer, build_document
from converter.formats.zhouyi.lift_document import lift
from converter.formats.zhouyi.operators import find_operator, operators
from converter.formats.zhouyi.unsupported import QUESTIONS, question
from converter.formats.zhouyi.validate import validate
from converter.formats.zhouyi.values import DType
from layers import cases
from layers.models.zhouyi import build

FLOAT = DType.FLOAT32
# sections whose examples are integer files without the declarations of a float file
SILENT = {
    "BoundingBox": "contradicts itself in print",
    "DecodeBox": "has score_threshold_uint8 in place of score_threshold",
    "LeakyRelu": "has a shift in place of the slope",
    "MultiboxTransformLoc": "has look-up tables in place of the variances",
    "Region": "has a look-up table in place of the anchors",
    "Repeat": "flattens its data and declares two axes",
    "RoiAlign": "has shifts in place of spatial_scale",
    "Selu": "has a look-up table in place of alpha and gamma",
}


def test_every_layer_type_is_known_or_stands_among_the_vague_ones() -> None:
    read = {k.split("/")[0] for k in kinds()}
    assert sorted(set(operators()) - read) == sorted(QUESTIONS)
    assert not read & set(QUESTIONS)
    assert not any(q.endswith("?") for q in QUESTIONS.values())
    assert not any(operators()[n].documented for n in QUESTIONS)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_vague_layer_is_refused_with_its_question(kind: str, tmp_path: Path) -> None:
    x = np.zeros((1, 4, 4, 2), np.float32)
    path = document(tmp_path, kind, {"x": x}, [((1, 2, 2, 2), "float32")], {}, {})
    with pytest.raises(ConverterError) as caught:
        converter.load(path)
    assert [(d.code, question(kind) in d.message) for d in caught.value.diagnostics] == [
        ("X201", True)
    ]


def as_float(layer: Layer, types: list[bool]) -> Document:
    """The example as a float file: attributes of integer files are left out, and each input is
    float or int32.
    """
    operator = find_operator(layer.type)
    assert operator is not None
    only_int = {
        n for a in operator.attributes.values() if a.part == "int" for n in (a.name, *a.aliases)
    }
    groups = {g.name for g in operator.groups.values() if g.part == "int"} | {"scale", "shift"}
    made = Layer(layer.name, layer.type)
    made.attrs = {
        k: v
        for k, v in layer.attrs.items()
        if k not in only_int and not k.startswith(("layer_top", "scale", "shift"))
    }
    made.attrs = {
        k: v
        for k, v in made.attrs.items()
        if not k.endswith(("_scale_value", "_shift_value", "_scale_type", "_shift_type"))
    }
    rng = np.random.default_rng(0)
    for name, c in layer.constants.items():
        if name not in groups and "lut" not in name:
            made.constants[name] = Constant.of((rng.random(c.shape) + 0.1).astype(np.float32))
    made.inputs = [
        t._replace(dtype=FLOAT if f else DType.INT32)
        for t, f in zip(layer.inputs, types, strict=True)
    ]
    made.outputs = [t._replace(dtype=FLOAT) for t in layer.outputs]
    inputs = [Layer(t.name, "Input", [], [t]) for t in dict.fromkeys(made.inputs)]
    return build_document(
        "m", [*inputs, made], [x.outputs[0].name for x in inputs], [t.name for t in made.outputs]
    )


def readings(layer: Layer) -> list[Document]:
    """The file with all inputs float, with the others than the first as integers, and so on; with
    results as floats and as the example has them.
    """
    n = len(layer.inputs)
    kinds = [
        [True] * n,
        [True] + [False] * (n - 1),
        [True] * (n - 1) + [False],
        [False] * n,
        [True, False] + [True] * (n - 2),
        [False] + [True] * (n - 1),
    ]
    found = []
    for types in kinds:
        if len(types) == n:
            found += [as_float(layer, types), as_float(layer, types)]
            last = found[-1].layers[-1]
            last.outputs = [
                t._replace(dtype=DType.INT32 if i or len(last.outputs) == 1 else FLOAT)
                for i, t in enumerate(last.outputs)
            ]
            found.append(as_float(layer, types))
            found[-1].layers[-1].outputs = list(layer.outputs)
    return found


def first_read(layer: Layer) -> tuple[Model | None, list[Diagnostic]]:
    reasons: list[Diagnostic] = []
    for one in readings(layer):
        try:
            return Model.of(lift(one)), []
        except ConverterError as e:
            reasons += e.diagnostics
    return None, reasons


def feeds(model: Model) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        v.name: (rng.random(v.shape) if v.dtype == "float32" else np.ones(v.shape)).astype(v.dtype)
        for v in model.inputs
    }


@pytest.mark.skipif(not examples(), reason=NO_DOCUMENT)
@pytest.mark.parametrize("name", [n for n, _ in examples()])
@pytest.mark.sampled(5)
def test_every_section_is_read_and_written(name: str, tmp_path: Path) -> None:
    """The example of the section, made a float file, gives the same numbers after it was written
    and read again.
    """
    parsed, _ = parse_ir(dict(examples())[name])
    if not parsed.layers:
        assert name in SILENT
        return
    model, reasons = first_read(parsed.layers[0])
    if model is None:
        assert name in SILENT or (
            parsed.layers[0].type in QUESTIONS and all(d.code == "X201" for d in reasons)
        ), [str(d) for d in reasons]
        return
    assert name not in SILENT
    if not model.inputs:  # which the vendor's executor does not run
        with pytest.raises(UnsupportedError, match="has no inputs"):
            converter.save(model, tmp_path / "again.txt")
        return
    converter.save(model, tmp_path / "again.txt")
    assert [str(d) for d in validate(read_ir(tmp_path / "again.txt")) if d.level == "error"] == []
    fed = feeds(model)
    again = converter.load(tmp_path / "again.txt").run(fed)
    for found, wanted in zip(again.values(), engines.run(model, fed).values(), strict=True):
        np.testing.assert_allclose(
            np.asarray(found, np.float64), np.asarray(wanted, np.float64), 1e-3, 1e-4
        )


def test_a_pyramid_of_three_maps_is_refused() -> None:
    case = cases.read(cases.FOLDER / "zhouyi" / "PyramidROIAlign-parts.toml")
    del case.inputs[-1]
    with pytest.raises(UnsupportedError, match="four feature maps are needed, got 3"):
        lift(build(case))
