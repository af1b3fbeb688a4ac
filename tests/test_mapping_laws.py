"""The laws that every row of every table keeps: lowered nodes lift to the same, nothing is left
over, no two rows collide.

How a format writes one node and reads it back is its adapter in tests/laws. A row that makes more
than one node or layer is compared by numbers: the operator and its lifted layers compute
the same. Where an engine from outside runs the format's files, it has to agree, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import ConverterError, MappingError, UnsupportedError
from converter.formats.coreml.coreai.mapping import MAPPING as COREAI
from converter.formats.coreml.neuralnetwork.mapping import MAPPING as COREML
from converter.formats.openvino.legacy.mapping import MAPPING as LEGACY
from converter.formats.openvino.opset.mapping import MAPPING as OPSETS
from converter.formats.zhouyi.mapping import MAPPING as ZHOUYI
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import attrs_of, defaults
from converter.graph.extensions import can_expand
from converter.graph.infer import RANDOM, InferenceError, constant, rank_of, schema_of, shape_of
from converter.graph.value import operand
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import (
    MISSING,
    Attr,
    Const,
    Field,
    Guard,
    IgnoreInputs,
    ImpliedAttrs,
    Nested,
    RequireKey,
)
from converter.mapping.node import Node
from converter.mapping.rules import Rule
from laws.adapters import Adapter, CoreMLAdapter, Sample, by_value, normal_layer
from laws.mlprogram import MLProgramAdapter
from laws.nnapi import NNAPIAdapter
from laws.numbers import feeds_of
from laws.tflite import TFLiteAdapter
from mapping_samples import CannotSample, candidates, codec_in, contexts, filled, is_attribute

ADAPTERS: dict[str, Adapter] = {
    "coreai": Adapter("coreai", COREAI),
    "coreml": CoreMLAdapter("coreml", COREML),
    "openvino.legacy": Adapter("openvino.legacy", LEGACY),
    "openvino.opset": Adapter("openvino.opset", OPSETS),
    "zhouyi": Adapter("zhouyi", ZHOUYI),
    "nnapi": NNAPIAdapter(),
    "tflite": TFLiteAdapter(),
    "mlprogram": MLProgramAdapter(),
}
RULES = [
    pytest.param(rule, adapter, id=f"{name}-{number}-{rule.op}={rule.kind}")
    for name, adapter in ADAPTERS.items()
    for number, rule in enumerate(adapter.table.rules)
]
# a row that only reads cannot write a sample, unless it is of fields that work both ways: then a
# file of tests/layers is its sample
SYMMETRIC = [p for p in RULES if p.values[1].has_sample(p.values[0])]


def test_there_are_rows() -> None:
    assert RULES


def attempts(rule: Rule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Contexts with attribute sets: the ordinary one, that of all last values, those that differ
    from it in one value.
    """
    for context in contexts(rule):
        values = candidates(rule, context)
        ordinary = {k: v[0] for k, v in values.items()}
        yield context, ordinary
        yield context, {k: v[-1] for k, v in values.items()}
        for key, options in values.items():
            for option in options[1:]:
                yield context, {**ordinary, key: option}


REFUSALS = (MappingError, UnsupportedError, InferenceError)


def lowered(rule: Rule, adapter: Adapter) -> Iterator[Sample]:
    """Samples with their layers, made as they are asked for. A node that a row refuses is no sample
    of it, but there has to be one.
    """
    reasons: list[str] = []
    for version in adapter.versions(rule):
        found = False
        for context, attrs in attempts(rule):
            try:
                node, b = adapter.node(rule, context, attrs)
                made = adapter.write(rule, rule, node, b, version)
            except REFUSALS as e:
                reasons.append(f"{context} {attrs}: {e}")
                continue
            found = True
            yield replace(made, context=context, attrs=attrs)
        if found:
            return
    raise CannotSample(
        "no sample fits: declare `example_inputs`, or add to SAMPLES\n" + "\n".join(reasons[:6])
    )


def lifted(adapter: Adapter, s: Sample) -> tuple[Node | None, list[tuple[ir.Value, ir.Value]]]:
    """The node that the row makes of its layer, and each result of the operator with the value that
    stands for it.
    """
    back, own = adapter.read_back(s), None
    for index, layer in enumerate(s.layers):
        r = back.reading(index)
        if layer.kind == s.rule.kind and not s.rule.lower_only and own is None:
            results, own = s.rule.lift(r), r.node
        else:
            results = adapter.table.lift(r)
        back.enter(index, results)
    return own, back.results()


def reading(adapter: Adapter, s: Sample, index: int | None = None) -> Any:
    """The context of the row's own layer, when those before it have been read."""
    back, index = adapter.read_back(s), s.own if index is None else index
    for before in range(index):
        back.enter(before, adapter.table.lift(back.reading(before)))
    return back.reading(index)


def normal(node: Node) -> tuple[dict[str, Any], list[Any]]:
    """Attributes with defaults filled in and inputs by value, so that two spellings of one thing
    compare equal.
    """
    attrs = {
        k: v for k, v in {**defaults(node.op, node.domain), **node.attrs}.items() if v is not None
    }
    weights = (
        shape_of(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    )
    if node.op in ("Conv", "ConvTranspose") and weights is not None:
        attrs.setdefault("kernel_shape", list(weights[2:]))
    if "kernel_shape" in attrs:
        n = len(attrs["kernel_shape"])
        for key, value in (
            ("strides", [1] * n),
            ("dilations", [1] * n),
            ("pads", [0] * 2 * n),
            ("output_padding", [0] * n),
        ):
            attrs[key] = list(attrs.get(key) or value)
    rank = rank_of(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    for key in {"axis", "axes"} & attrs.keys() if rank else ():
        attrs[key] = np.asarray(attrs[key]) % (rank + (node.op == "Flatten"))
    if node.op == "Resize" and attrs.get("mode") != "nearest":
        attrs.pop("nearest_mode", None)
    attrs = {k: normal_value(v) for k, v in attrs.items()}
    inputs = [by_value(v) for v in node.inputs]
    if node.op == "Pad" and attrs.get("mode") != "constant":
        inputs[2:3] = [None]  # the value counts in this mode alone
    if node.op == "Split" and (count := attrs.pop("num_outputs", None)):
        size = shape_of(node.inputs[0])[attrs["axis"]]  # type: ignore[arg-type,index]
        inputs[1:] = [([size // count] * count, "int64")]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return attrs, inputs


def normal_value(value: Any) -> Any:
    """Lists as lists, floats rounded as in ONNX."""
    array = np.asarray(value)
    if array.dtype == np.float64:
        return array.astype(np.float32).tolist()
    return array.tolist() if isinstance(value, list | tuple | np.ndarray) else value


def same_numbers(adapter: Adapter, s: Sample, pairs: list[tuple[ir.Value, ir.Value]]) -> None:
    """The operator and its lifted layers give the same on the same inputs."""
    b = s.b
    assert pairs and len(pairs) <= len(s.node.outputs)
    for expected, actual in pairs:
        b.output(expected, actual)
    model = Model(ir.Model(b.graph, ir_version=10), "onnx")
    outputs = list(model.run(feeds_of(model, s.node.op)).values())[-2 * len(pairs) :]
    for expected, actual in zip(outputs[::2], outputs[1::2], strict=True):
        assert expected.dtype == actual.dtype and expected.shape == actual.shape
        np.testing.assert_allclose(expected, actual, rtol=adapter.rtol, atol=adapter.atol)


def plain(s: Sample, own: Node | None, results: list[ir.Value]) -> bool:
    """Whether one layer stands for one node, which can be compared part by part."""
    if own is None or len(s.layers) > 1 or len(results) != len(s.node.outputs):
        return False
    producer = results[0].producer()
    if producer is None or producer.op_type != own.op:
        return False
    made = {v.producer() for v in (*own.inputs,) if v is not None} - {None}
    return not made


def check_lift_undoes_lower(rule: Rule, adapter: Adapter, which: slice = slice(None)) -> None:
    """`which`: samples, by number."""
    for s in itertools.islice(lowered(rule, adapter), which.start, which.stop):
        node = s.node
        own, pairs = lifted(adapter, s)
        assert [(y.dtype, str(y.shape)) for _, y in pairs] == [
            (v.dtype, str(v.shape)) for v, _ in pairs
        ]
        folded = any(f.folds for f in rule.fields)
        one = plain(s, own, [y for _, y in pairs]) and not folded
        if own is not None and one and normal(own) == normal(node):
            continue
        if node.op in RANDOM or not is_defined(node):
            if own is not None and own.op == node.op:
                assert carried(rule, own) == carried(rule, node)
            else:
                assert node.op in RANDOM
                assert_same_distribution(rule, node, pairs[0][1])
        else:  # another spelling of the same has the same numbers
            same_numbers(adapter, s, pairs)


def assert_same_distribution(rule: Rule, node: Node, value: ir.Value) -> None:
    """Another operator draws `value`, with the attributes in common with the node."""
    producer = value.producer()
    while producer is not None and producer.op_type in ("Cast", "Identity"):
        value = operand(producer)
        producer = value.producer()
    assert producer is not None
    if producer.op_type == "UniformNumbers":
        low, high = (constant(v) for v in producer.inputs[1:3])
        assert (low, high) == (node.attrs["low"], node.attrs["high"])
        return
    if producer.op_type in ("ClassDraws", "RandomCategorical"):
        return  # their attributes have other names
    assert producer.op_type.startswith(node.op)
    read, own = attrs_of(producer), carried(rule, node)[0]
    for key in (read.keys() & own.keys()) - {"dtype"}:
        assert normal_value(read[key]) == normal_value(own[key]), key


def carried(rule: Rule, node: Node) -> Any:
    """The content of a node without the attributes that the row may drop."""
    implied = {n for f in rule.fields if isinstance(f, ImpliedAttrs) for n in f.names}
    attrs, inputs = normal(node)
    return {k: v for k, v in attrs.items() if k not in implied | rule.ignored}, inputs


def check_lower_undoes_lift(rule: Rule, adapter: Adapter, which: slice = slice(None)) -> None:
    """Also where the file leaves out an attribute with a default: it is lowered to a layer that
    means the same.

    Left out of the first two samples, the ordinary one and that of all last values. `which`:
    samples, by number.
    """
    optional = [
        key
        for f in rule.fields
        if isinstance(f, Attr | Const | Axis) and f.default is not MISSING
        for key in f.keys
    ]
    samples = enumerate(lowered(rule, adapter))
    for number, s in itertools.islice(samples, which.start, which.stop):
        for key in [None, *(optional if number < 2 else ())]:
            if not written_again(rule, adapter, s, key):
                break


def written_again(rule: Rule, adapter: Adapter, s: Sample, key: str | None) -> bool:
    """The node read from the layer without `key` is written as a layer that means the same;
    False where the layer does not stand for one node.
    """
    r = reading(adapter, s)
    r.layer.attrs.pop(key, None)
    far = s.layers[s.own]
    try:
        results = rule.lift(r)
        if any(f.folds for f in rule.fields) or not plain(s, r.node, results):
            return False
        if key is None and normal(r.node) != normal(s.node):
            return False  # the layer says the same otherwise
        attrs = filled(rule, r.node.attrs)
        full = Node(r.node.op, r.node.domain, attrs, r.node.inputs, s.node.outputs, s.node.last)
        again = adapter.write(rule, rule, full, s.b, s.version)
    except REFUSALS:
        # the default may not fit the rest of this sample; the full layer must
        assert key is not None
        return True
    if key is None:
        assert normal_layer(again.layers[-1]) == normal_layer(far)
    back = reading(adapter, again)
    rule.lift(back)
    assert normal(back.node) == normal(r.node)
    return True


def parts(first: int) -> pytest.MarkDecorator:
    """The first samples of each row are for every day, the others slow."""
    others = pytest.param(slice(first, None), id="others", marks=pytest.mark.slow)
    return pytest.mark.parametrize("which", [pytest.param(slice(first), id="first"), others])


@parts(2)
@pytest.mark.parametrize(("rule", "adapter"), SYMMETRIC)
def test_lift_undoes_lower(rule: Rule, adapter: Adapter, which: slice) -> None:
    check_lift_undoes_lower(rule, adapter, which)


@parts(1)
@pytest.mark.parametrize(("rule", "adapter"), [p for p in SYMMETRIC if not p.values[0].lower_only])
def test_lower_undoes_lift(rule: Rule, adapter: Adapter, which: slice) -> None:
    check_lower_undoes_lift(rule, adapter, which)


@pytest.mark.parametrize(("rule", "adapter"), SYMMETRIC)
def test_everything_is_owned(rule: Rule, adapter: Adapter) -> None:
    s = next(lowered(rule, adapter))
    layer = s.layers[s.own]
    if type(adapter) in (Adapter, CoreMLAdapter):
        assert set(layer.attrs) <= rule.owned("keys")
        assert set(layer.blobs) <= rule.owned("blobs")
    if not rule.lower_only:
        r = reading(adapter, s)
        r.layer.attrs["a_surprise"] = 1
        with pytest.raises(MappingError) as refused:
            rule.lift(r)
        assert refused.value.code == "R111"
        if not isinstance(adapter, NNAPIAdapter):  # an operation has the operands of its signature
            r = reading(adapter, s)
            r.layer.blobs["a_surprise"] = np.zeros(1)
            with pytest.raises(MappingError):
                rule.lift(r)
    with pytest.raises(MappingError):
        odd = replace(s.node, attrs={**s.node.attrs, "a_surprise": 1})
        adapter.write(rule, rule, odd, s.b, s.version)
    if not rule.lower_only:
        check_a_surplus_operand_is_refused(rule, adapter, s)


def check_a_surplus_operand_is_refused(rule: Rule, adapter: Adapter, s: Sample) -> None:
    """A layer with one more operand is refused, or the operator reads it; a field that knows that
    an operand says nothing declares it.
    """
    surplus = adapter.add_operand(s)
    r = reading(adapter, s)
    declared = {i for f in rule.fields if isinstance(f, IgnoreInputs) for i in f.positions}
    if surplus is None or len(r.layer.inputs) - 1 in declared:
        return
    try:
        rule.lift(r)
    except REFUSALS:
        return
    assert surplus.uses(), "the operand is dropped"


@pytest.mark.parametrize(("rule", "adapter"), SYMMETRIC)
def test_the_table_finds_the_row(rule: Rule, adapter: Adapter) -> None:
    """No row hides another: some sample gets to this row in either direction."""
    if not rule.lift_only:
        assert any(is_written_by_table(adapter, s) for s in lowered(rule, adapter)), (
            "an earlier row takes every sample"
        )
    if not rule.lower_only:
        assert any(is_read_by_table(rule, adapter, s) for s in lowered(rule, adapter)), (
            "an earlier row takes every layer"
        )


def is_written_by_table(adapter: Adapter, s: Sample) -> bool:
    found = adapter.write(adapter.table, s.rule, s.node, s.b, s.version)
    return [*map(normal_layer, found.layers)] == [*map(normal_layer, s.layers)]


def is_read_by_table(rule: Rule, adapter: Adapter, s: Sample) -> bool:
    if s.layers[s.own].kind != rule.kind:
        return True
    r, own = reading(adapter, s), reading(adapter, s)
    adapter.table.lift(r)
    if r.rule is rule:
        return True
    rule.lift(own)
    found, wanted = normal(r.node), normal(own.node)
    same = (r.node.op, r.node.domain, found[0]) == (own.node.op, own.node.domain, wanted[0])
    return same and [made(v) for v in found[1]] == [made(v) for v in wanted[1]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("rule", "adapter"), [p for p in SYMMETRIC if not p.values[0].lift_only])
def test_an_attribute_that_is_dropped_is_declared(rule: Rule, adapter: Adapter) -> None:
    """An operator with another value of an attribute is another layer, is refused or computes the
    same; or a field says that it ignores the attribute.
    """
    s = next(lowered(rule, adapter))
    for name in sorted(rule.owned("names") - rule.ignored):
        for value in other_values(rule, s, name):
            try:
                node, b = adapter.node(rule, s.context, {**s.attrs, name: value})
                made = adapter.write(rule, rule, node, b, s.version)
            except (*REFUSALS, ArithmeticError):  # a group of nothing
                continue
            if said_by(made) == said_by(s):
                assert computes_alike(s, made), f"{name}={value!r} is dropped"


IGNORING = [p for p in RULES if p.values[0].ignored]


@pytest.mark.parametrize(("rule", "adapter"), IGNORING)
def test_a_dropped_attribute_is_noted(rule: Rule, adapter: Adapter) -> None:
    s = next(lowered(rule, adapter))
    for name in sorted(rule.ignored):
        attrs = {**s.attrs, name: changed(None, rule, name)}
        node, _ = adapter.node(rule, s.context, attrs)
        low = adapter.mapping.lowering(adapter.mapping, s.version)
        adapter.table.lower(low.writing(node))
        assert [d.code for d in low.notes if name in d.message] == ["X207"]


def said_by(s: Sample) -> Any:
    """Layers with the types and shapes that they declare for the results."""
    results = [(v.dtype, str(v.shape)) for v in s.node.outputs]
    return [*map(normal_layer, s.layers)], results


# attributes that leave the choice to the implementation: it may ignore them
CHOICES = {("TopK", "sorted")}


def other_values(rule: Rule, s: Sample, name: str) -> list[Any]:
    """Values of an attribute other than the sample's."""
    own = s.node.attrs.get(name)
    trusted = {n for f in rule.fields if isinstance(f, ImpliedAttrs) for n in f.names}
    if not is_attribute(rule, name) or (rule.op, name) in CHOICES:
        return []
    if name in trusted and not is_defined(s.node):
        return []  # no engine shows the change
    found = [*candidates(rule, s.context).get(name, ()), changed(own, rule, name)]
    return [v for v in found if v is not None and normal_value(v) != normal_value(own)]


# attributes that are numbers of types, of which not each follows on another
TYPES = {"to", "dtype", "output_dtype", "precision", "stash_type", "index"}


def changed(value: Any, rule: Rule, name: str) -> Any:
    """Another value of the type of this one, or of the schema's where there is none."""
    if value is None:
        schema = schema_of(rule.op) if not rule.domain and name not in TYPES else None
        kind = schema.attributes[name].type.name if schema is not None else ""
        return {"FLOAT": 0.5, "INT": 1}.get(kind)
    if isinstance(value, list | tuple):
        found = [changed(v, rule, name) for v in value]
        return None if None in found else found or None
    if isinstance(value, int):
        other = 1 - value if value in (0, 1) else value + 1
        return None if name in TYPES else other
    return value / 2 or 0.5 if isinstance(value, float) else None


def computes_alike(s: Sample, other: Sample) -> bool:
    """Whether two nodes on inputs of the same shapes give the same."""
    if s.node.op in RANDOM or not is_defined(s.node):
        return False
    results = []
    for one in (s, other):
        one.b.graph.outputs.clear()
        one.b.output(*one.node.outputs)
        model = Model(ir.Model(one.b.graph, ir_version=10), "onnx")
        try:
            results.append(list(model.run(feeds_of(model, one.node.op)).values()))
        except ConverterError:  # no operator of the standard
            return True
    pairs = zip(*results, strict=True)
    return all(x.shape == y.shape and close(x, y) for x, y in pairs)


def close(x: Any, y: Any) -> bool:
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    return bool(np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True))


def is_defined(node: Node) -> bool:
    """Whether a node has a definition by which it is executed."""
    return node.domain != EXTENSION_DOMAIN or can_expand(node.outputs[0].producer())


def made(value: Any) -> Any:
    """An operand, of one that the row made the operator that makes it."""
    node = value.producer() if isinstance(value, ir.Value) else None
    return value if node is None else node.op_type


@pytest.mark.parametrize("name", ADAPTERS)
def test_rows_for_one_layer_are_distinguished(name: str) -> None:
    readers = [r for r in ADAPTERS[name].table.rules if not r.lower_only]
    for a, b in itertools.combinations(readers, 2):
        if a.kind == b.kind and max(a.since, b.since) <= min(a.until, b.until):
            assert told_apart(a, b), f"{a.op} and {b.op} are both {a.kind}: nothing says which"


def told_apart(a: Rule, b: Rule) -> bool:
    if (a.domain, a.op) == (b.domain, b.op) and (a.lift_only or b.lift_only):
        return True  # another spelling of the same
    fixed = [{f.key: f.value for f in r.fields if isinstance(f, RequireKey)} for r in (a, b)]
    if any(fixed[0][k] != fixed[1][k] for k in fixed[0].keys() & fixed[1].keys()):
        return True
    if fixed[0].keys() - fixed[1].keys():
        return True  # the first takes one value of a key, the second the others
    if any(isinstance(f, Guard) and f.lift_if is not None for r in (a, b) for f in r.fields):
        return True
    if excludes(a, b) or excludes(b, a):
        return True
    return bool(required(a) - owned(b)) or bool(required(b) - owned(a))


def excludes(a: Rule, b: Rule) -> bool:
    """Whether `b` has a fixed value under a key of which `a` does not know it."""
    fixed = {f.key: f.value for f in b.fields if isinstance(f, RequireKey)}
    listed = [(f.key, codec_in(f)) for f in a.fields if isinstance(f, Attr) and f.key in fixed]
    return any(c and c.table and fixed[key] not in c.table.values() for key, c in listed)


def owned(rule: Rule) -> set[str]:
    return {k for f in rule.fields for k in (*f.keys, *f.blobs)}


def required(rule: Rule) -> set[str]:
    """Keys without which the rule does not apply."""
    plain = {f.key for f in rule.fields if isinstance(f, Attr | Const) and f.default is MISSING}
    return (
        plain
        | {f.key for f in rule.fields if isinstance(f, RequireKey) and not f.absent}
        | {f.key for f in rule.fields if isinstance(f, Nested)}
        | {f.blob for f in rule.fields if _needs_blob(f)}
    )


def _needs_blob(f: Field) -> bool:
    return hasattr(f, "blob") and not getattr(f, "optional", False)


@pytest.mark.parametrize("name", ADAPTERS)
def test_enums_are_one_to_one(name: str) -> None:
    for rule in ADAPTERS[name].table.rules:
        for codec in (c for f in rule.fields if (c := codec_in(f)) is not None and c.table):
            assert len(set(codec.table.values())) == len(codec.table)
            for value in codec.table:
                assert codec.lift(codec.lower(value)) == value


JUDGED = [p for p in SYMMETRIC if type(p.values[1]).judge is not Adapter.judge]


@pytest.mark.sampled(3)
@parts(1)
@pytest.mark.parametrize(("rule", "adapter"), [p for p in JUDGED if not p.values[0].lift_only])
def test_an_engine_agrees_with_written_layers(
    rule: Rule, adapter: Adapter, which: slice, tmp_path: Path
) -> None:
    for s in itertools.islice(lowered(rule, adapter), which.start, which.stop):
        adapter.judge(s, tmp_path)
