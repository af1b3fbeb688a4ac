"""Each reader against an engine from outside, layer by layer: the files in the folders next to this
one.

A file is described in cases.py; record.py makes files, and fills in the numbers of one made by
hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import UnsupportedError
from converter.graph.open_sizes import Change, reading_open
from converter.mapping.context import REQUIRED, LiftContext
from converter.mapping.rules import Custom, Rule
from layers import cases
from layers.exceptions import EXCEPT, UNREAD
from layers.models import FORMATS, model_of, network_of
from test_mapping_laws import ADAPTERS

IN = {"opset": "openvino.", "legacy": "openvino."}  # the format that `make check` knows
LAWS = {"opset": "openvino.opset", "legacy": "openvino.legacy"}  # as the laws call them
FILES = [
    pytest.param(format, path, id=f"{IN.get(format, '')}{format}-{path.stem}")
    for format in FORMATS
    for path in sorted((cases.FOLDER / format).glob("*.toml"))
]


def computed(format: str, case: cases.Case) -> dict[str, Any]:
    """Run the graph that the format's reader makes of the layer."""
    model = Model.of(model_of(format).lift(network_of(format, case)))
    names = [f"x{i}" for i, t in enumerate(case.inputs) if not t.constant and not t.absent]
    feeds = {i.name: case.feeds()[n] for n, i in zip(names, model.inputs, strict=True)}
    return dict(zip(case.expected(), model.run(feeds).values(), strict=True))


def compare(got: Any, wanted: Any, rtol: float, atol: float) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "biuOSUT":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol
        )


@pytest.mark.parametrize("format", FORMATS)
def test_each_kind_has_a_file_or_a_reason(format: str) -> None:
    """`python tests/layers/record.py FORMAT KIND` makes files, exceptions.py has the reasons."""
    files = {path.stem.partition("-")[0] for path in (cases.FOLDER / format).glob("*.toml")}
    kinds, reasons = model_of(format).MAPPING.table.kinds(), set(EXCEPT[format])
    assert sorted(kinds - files - reasons) == [], "kinds without a file and without a reason"
    assert sorted(files & reasons) == [], "a file and a reason why there is none"
    assert files | reasons == kinds, "files or reasons of kinds that the format does not have"


@pytest.mark.parametrize("format", FORMATS)
def test_each_row_that_only_reads_has_a_file(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that write have samples of their own, see tests/test_mapping_laws.py."""
    adapter = ADAPTERS[LAWS.get(format, format)]
    rows = [r for r in adapter.table.rules if r.lift_only and not adapter.has_sample(r)]
    applied, lift = set(), Rule.lift

    def recorded(self: Rule, r: Any) -> Any:
        results = lift(self, r)
        applied.add(id(self))
        return results

    monkeypatch.setattr(Rule, "lift", recorded)
    for kind in sorted({r.kind for r in rows}):
        for path in sorted((cases.FOLDER / format).glob(f"{kind}*.toml")):
            if path.stem.partition("-")[0] == kind:
                model_of(format).lift(network_of(format, cases.read(path)))
    unread = {f"{r.op}={r.kind}" for r in rows if id(r) not in applied}
    unread -= {name for name in unread if name.partition("=")[2] in EXCEPT[format]}
    assert unread == UNREAD.get(format, {}).keys()


@pytest.mark.parametrize("format", ["opset", "legacy", "zhouyi", "mlprogram"])
def test_converters_drop_no_attribute(format: str) -> None:
    """As rows, see tests/test_mapping_laws.py: an unknown attribute is refused or noted. The other
    formats have a schema, by which there is none.
    """
    table = ADAPTERS[LAWS.get(format, format)].table
    kinds = {k for e in table.entries if isinstance(e, Custom) and e.lift_ for k in e.kinds}
    dropped = set()
    for kind in sorted(kinds - EXCEPT[format].keys()):
        case = cases.read(min((cases.FOLDER / format).glob(f"{kind}[-.]*toml")))
        if case.model:
            continue  # a file with bodies or states, whose attributes are not here
        case.attributes["a_surprise"] = 1 if format == "mlprogram" else "1"
        try:
            notes = model_of(format).lift(network_of(format, case)).notes
        except UnsupportedError as e:
            notes = e.diagnostics
        if not any(d.code == "R111" and "a_surprise" in d.message for d in notes):
            dropped.add(kind)
    assert dropped == set()


ABSENT = tomllib.loads((cases.FOLDER / "absent.toml").read_text("utf-8"))


@pytest.fixture
def assumed(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """Record the defaults of attributes that a layer may omit, by its kind and their names."""
    found, attr = {}, LiftContext.attr

    def recorded(self: Any, key: str, kind: Any, default: Any = REQUIRED) -> Any:
        if default is not REQUIRED and default is not None:
            found[self.layer.kind, key] = default
        return attr(self, key, kind, default)

    monkeypatch.setattr(LiftContext, "attr", recorded)
    return found


@pytest.mark.parametrize(("format", "path"), FILES)
def test_the_reader_agrees_with_the_engine(
    format: str, path: Path, assumed: dict[tuple[str, str], Any]
) -> None:
    case = cases.read(path)
    assert path.stem.partition("-")[0] == case.kind
    assert case.engine and case.expected(), "record.py fills in the numbers"
    got = computed(format, case)
    for name, wanted in case.expected().items():
        compare(got[name], wanted, case.rtol, case.atol)
    for (kind, key), value in assumed.items():
        if f"{format}.{kind}.{key}" not in ABSENT["computed"]:
            stated = ABSENT[format].get(kind, {}).get(key)
            assert alike(value) == stated, f"absent.toml has {stated} for {key} of {kind}"


def alike(value: Any) -> Any:
    """A list of equal elements as one with a single element, for any rank."""
    if not isinstance(value, list | tuple):
        return value
    return list(value[:1] if all(v == value[0] for v in value) else value)


REFUSED = {
    (format, change, positions, file)
    for line in (cases.FOLDER / "refused.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
    for format, change, positions, *files in [line.split()]
    for file in files
}


def is_refused(format: str, path: Path, change: str, positions: Iterable[int]) -> bool:
    return (format, change, ",".join(map(str, positions)), path.stem) in REFUSED


# with computed sizes the reader interpolates in floats, which may round to the next integer
INEXACT = {"RESIZE_BILINEAR-int16"}
EXACT = [p for p in FILES if Path(str(p.values[1])).stem not in INEXACT]
WITH_CONSTANTS = [
    p for p in EXACT if "constant = true" in Path(str(p.values[1])).read_text("utf-8")
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("format", "path"), WITH_CONSTANTS)
def test_a_computed_operand_counts_as_much_as_a_constant(format: str, path: Path) -> None:
    """All constant operands of a file, and each of the first ones alone, may be the results of
    other layers: the reader computes the same then, or refuses the layer, which refused.txt lists.
    """
    case = cases.read(path)
    constants = [i for i, t in enumerate(case.inputs) if t.constant]
    for computed_ones in {*((i,) for i in constants[:6]), tuple(constants)}:
        inputs = [
            replace(t, constant=False) if i in computed_ones else t
            for i, t in enumerate(case.inputs)
        ]
        try:
            got = computed(format, replace(case, inputs=inputs))
        except UnsupportedError as e:
            assert is_refused(format, path, "operands", computed_ones), e
            continue
        for name, wanted in case.expected().items():
            compare(got[name], wanted, case.rtol, case.atol)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("format", "path"), EXACT)
def test_a_layer_is_read_alike_for_other_sizes(format: str, path: Path) -> None:
    """A call that changes the sizes of inputs reads a file with names for these sizes: the graph
    computes the same for the sizes of the file, or the layer is refused, which refused.txt lists.
    """
    case = cases.read(path)
    shapes = {
        f"x{i}": t.shape for i, t in enumerate(case.inputs) if not t.constant and not t.absent
    }
    for first in (0, 2):  # all sizes, and those of the spatial axes
        wanted = {n: tuple(d + (i >= first) for i, d in enumerate(s)) for n, s in shapes.items()}
        changes = {n: Change(s, wanted[n]) for n, s in shapes.items() if s != wanted[n]}
        if not changes:
            continue
        try:
            with reading_open(changes):
                got = computed(format, case)
        except UnsupportedError as e:
            assert is_refused(format, path, "sizes", [first]), e
            continue
        for name, expected in case.expected().items():
            compare(got[name], expected, case.rtol, case.atol)


def understood(format: str, case: cases.Case) -> bytes:
    """Return the graph that the format's reader makes of the layer, as bytes."""
    return ir.to_proto(model_of(format).lift(network_of(format, case)).ir).SerializeToString(
        deterministic=True
    )


DEFAULTS = [
    pytest.param(*line.split(), id=f"{IN.get(line.split()[0], '')}{line.replace(' ', '-')}")
    for line in (cases.FOLDER / "defaults.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("format", "file", "key"), DEFAULTS)
def test_an_attribute_that_is_left_out_has_its_default(format: str, file: str, key: str) -> None:
    case = cases.read(cases.FOLDER / format / f"{file}.toml")
    whole = understood(format, case)
    del case.attributes[key]
    assert understood(format, case) == whole
