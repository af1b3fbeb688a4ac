"""The laws that every row of every table keeps: what is lowered lifts to the same, nothing is left over, no two rows collide."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter.formats
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import InferenceError, constant, rank_of, shape_of
from converter.mapping.codecs import Codec
from converter.mapping.fields import MISSING, Attr, Const, Field, Fixed, Guard
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.table import Rule, Table, defaults
from mapping_samples import CannotSample, candidates, contexts, filled, sample

CHANNELS_LAST = ("zhouyi", "nnapi")  # formats whose layout-sensitive rows see twins


def tables() -> dict[str, Table]:
    """Every Table that a module of a format holds, by the first module that does."""
    found: dict[int, tuple[str, Table]] = {}
    for module in pkgutil.walk_packages(converter.formats.__path__, "converter.formats."):
        if module.name.endswith(("child", "__main__")):  # programs, not modules
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Table):
                found.setdefault(id(value), (f"{module.name.removeprefix('converter.formats.')}.{name}", value))
    return dict(found.values())


TABLES = tables()
RULES = [
    pytest.param(rule, table, name.startswith(CHANNELS_LAST), id=f"{name}-{number}-{rule.near}={rule.far}")
    for name, table in TABLES.items()
    for number, rule in enumerate(table.rules)
]


def test_there_are_tables() -> None:
    assert RULES


def attempts(rule: Rule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Contexts with attribute sets: the ordinary one, then those that differ from it in one value."""
    for context in contexts(rule):
        values = candidates(rule, context)
        ordinary = {k: v[0] for k, v in values.items()}
        yield context, ordinary
        for key, options in values.items():
            for option in options[1:]:
                yield context, {**ordinary, key: option}


def lowered(rule: Rule, last: bool) -> list[tuple[Node, Layer, Builder]]:
    """Sample nodes with their layers. What a row refuses is no sample of it, but there has to be one."""
    found: list[tuple[Node, Layer, Builder]] = []
    reasons: list[str] = []
    for context, attrs in attempts(rule):
        try:
            near, b = sample(rule, context, attrs, last)
            found.append((near, rule.lower(near), b))
        except (MappingError, InferenceError) as e:
            reasons.append(f"{context} {attrs}: {e}")
    if not found:
        raise CannotSample("no sample fits: declare `given`, or add to SAMPLES\n" + "\n".join(reasons[:6]))
    return found


def emitted(far: Layer, near: Node, rule: Rule, b: Builder) -> Node:
    """The lifted node, which the graph accepts with the same outputs as the original."""
    lifted = rule.lift(far, b)
    twin = near.last
    extra = {"base_domain": rule.domain} if twin and rule.domain else {}
    results = b.ops(lifted.op, *lifted.inputs, domain=CHANNELS_LAST_DOMAIN if twin else lifted.domain, outputs=len(near.outputs), **lifted.attrs, **extra)
    assert [(v.dtype, str(v.shape)) for v in results] == [(v.dtype, str(v.shape)) for v in near.outputs]
    return lifted


def normal(node: Node) -> tuple[dict[str, Any], list[Any]]:
    """Attributes with defaults filled in and inputs by value, so that two spellings of one thing compare equal."""
    attrs = {k: v for k, v in {**defaults(node.op, node.domain), **node.attrs}.items() if v is not None}
    weights = shape_of(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if node.op in ("Conv", "ConvTranspose") and weights is not None:
        attrs.setdefault("kernel_shape", list(weights[2:]))
    if "kernel_shape" in attrs:
        n = len(attrs["kernel_shape"])
        for key, value in (("strides", [1] * n), ("dilations", [1] * n), ("pads", [0] * 2 * n), ("output_padding", [0] * n)):
            attrs[key] = list(attrs.get(key) or value)
    rank = rank_of(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    for key in {"axis", "axes"} & attrs.keys() if rank else ():
        attrs[key] = np.asarray(attrs[key]) % (rank + (node.op == "Flatten"))
    attrs = {k: _single(v) for k, v in attrs.items()}
    inputs = [_by_value(v) for v in node.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return attrs, inputs


def _single(value: Any) -> Any:
    """Lists as lists, floats as what ONNX makes of them."""
    array = np.asarray(value)
    return array.astype(np.float32).tolist() if array.dtype == np.float64 else array.tolist() if isinstance(value, list | tuple | np.ndarray) else value


def _by_value(value: ir.Value | None) -> Any:
    if value is None:
        return None
    array = constant(value)
    return value if array is None else (np.asarray(array).tolist(), str(np.asarray(array).dtype))


def normal_layer(far: Layer) -> tuple[Any, ...]:
    blobs = {k: _by_value(v) if isinstance(v, ir.Value) else np.asarray(v).tolist() for k, v in far.blobs.items() if v is not None}
    attrs = {k: np.asarray(v).tolist() if isinstance(v, np.ndarray) else v for k, v in far.attrs.items()}
    return far.kind, attrs, blobs, [_by_value(v) for v in far.inputs]


@pytest.mark.parametrize(("rule", "table", "last"), RULES)
def test_lift_undoes_lower(rule: Rule, table: Table, last: bool) -> None:
    for near, far, b in lowered(rule, last):
        lifted = emitted(far, near, rule, b)
        assert normal(lifted) == normal(near)


@pytest.mark.parametrize(("rule", "table", "last"), RULES)
def test_lower_undoes_lift(rule: Rule, table: Table, last: bool) -> None:
    """Also where the file leaves out what has a default: it is lowered to a layer that means the same."""
    for near, far, b in lowered(rule, last):
        for key in [None, *(f.as_ for f in rule.fields if isinstance(f, Attr | Const) and f.far_default is not MISSING)]:
            short = Layer(far.kind, far.name, {k: v for k, v in far.attrs.items() if k != key}, dict(far.blobs), list(far.inputs), list(far.outputs))
            try:
                lifted = rule.lift(short, b)
                full = Node(lifted.op, lifted.domain, filled(rule, lifted.attrs), lifted.inputs, near.outputs, near.last)
                again = rule.lower(full)
            except MappingError:
                assert key is not None  # the default may not fit the rest of this sample; the full layer must
                continue
            if key is None:
                assert normal_layer(again) == normal_layer(far)
            assert normal(rule.lift(again, b)) == normal(lifted)


@pytest.mark.parametrize(("rule", "table", "last"), RULES)
def test_everything_is_owned(rule: Rule, table: Table, last: bool) -> None:
    near, far, b = lowered(rule, last)[0]
    assert set(far.attrs) <= {k for f in rule.fields for k in f.far}
    assert set(far.blobs) <= {k for f in rule.fields for k in f.blobs}
    with pytest.raises(MappingError) as refused:
        rule.lift(Layer(far.kind, far.name, {**far.attrs, "a_surprise": 1}, far.blobs, far.inputs, far.outputs), b)
    assert refused.value.code == "R111"
    with pytest.raises(MappingError):
        rule.lift(Layer(far.kind, far.name, far.attrs, {**far.blobs, "a_surprise": np.zeros(1)}, far.inputs, far.outputs), b)
    with pytest.raises(MappingError):
        rule.lower(Node(near.op, near.domain, {**near.attrs, "a_surprise": 1}, near.inputs, near.outputs, near.last))


def versions(rule: Rule, table: Table) -> int:
    """A version at which the rule holds; the newest of the table where it may."""
    newest = max((r.since for r in table.rules), default=0)
    return min(max(newest, rule.since), rule.until)


@pytest.mark.parametrize(("rule", "table", "last"), RULES)
def test_the_table_finds_the_row(rule: Rule, table: Table, last: bool) -> None:
    """No row hides another: some sample gets to this row in either direction."""
    version = versions(rule, table)
    samples = lowered(rule, last)
    if not rule.lift_only:
        assert any(normal_layer(table.lower(near, version)) == normal_layer(far) for near, far, _ in samples), "an earlier row takes every sample"
    assert any(normal(table.lift(far, b, version)) == normal(near) for near, far, b in samples), "an earlier row takes every layer"


@pytest.mark.parametrize("name", TABLES)
def test_rows_for_one_layer_are_told_apart(name: str) -> None:
    for a, b in itertools.combinations(TABLES[name].rules, 2):
        if a.far == b.far and max(a.since, b.since) <= min(a.until, b.until):
            assert told_apart(a, b), f"{a.near} and {b.near} are both {a.far}: nothing says which"


def told_apart(a: Rule, b: Rule) -> bool:
    if (a.domain, a.near) == (b.domain, b.near) and (a.lift_only or b.lift_only):
        return True  # another spelling of the same
    fixed = [{f.as_: f.value for f in r.fields if isinstance(f, Fixed)} for r in (a, b)]
    if any(fixed[0][k] != fixed[1][k] for k in fixed[0].keys() & fixed[1].keys()):
        return True
    if any(isinstance(f, Guard) and f.lift_if is not Guard.lift_if for r in (a, b) for f in r.fields):
        return True
    return bool(required(a) - owned(b)) or bool(required(b) - owned(a))


def owned(rule: Rule) -> set[str]:
    return {k for f in rule.fields for k in (*f.far, *f.blobs)}


def required(rule: Rule) -> set[str]:
    """Keys without which the rule does not apply."""
    plain = {f.as_ for f in rule.fields if isinstance(f, Attr | Const) and f.far_default is MISSING}
    return plain | {f.as_ for f in rule.fields if isinstance(f, Fixed) and not f.absent} | {f.blob for f in rule.fields if _needs_blob(f)}


def _needs_blob(f: Field) -> bool:
    return hasattr(f, "blob") and not getattr(f, "optional", False)


@pytest.mark.parametrize("name", TABLES)
def test_enums_are_one_to_one(name: str) -> None:
    for rule in TABLES[name].rules:
        for codec in (c for f in rule.fields if isinstance(c := getattr(f, "codec", None), Codec) and c.table is not None):
            assert len(set(codec.table.values())) == len(codec.table)
            for near in codec.table:
                assert codec.lift(codec.lower(near)) == near
