"""The laws that every row of every table keeps: what is lowered lifts to the same, nothing is left
over, no two rows collide.

A row that makes more than one node or layer is compared by numbers: the operator and what its
layers are read as compute the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import MappingError
from converter.formats.coreai.mapping import MAPPING as COREAI
from converter.formats.coreml.mapping import MAPPING as COREML
from converter.formats.openvino.legacy.mapping import MAPPING as LEGACY
from converter.formats.openvino.opset.mapping import MAPPING as OPSETS
from converter.formats.zhouyi.mapping import MAPPING as ZHOUYI
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, defaults
from converter.graph.extensions import can_expand
from converter.graph.infer import RANDOM, InferenceError, constant, rank_of, shape_of
from converter.mapping.context import Reading
from converter.mapping.fields import MISSING, Attr, Const, Field, Fixed, Guard, Nested
from converter.mapping.lifting import FormatMapping, Lifting
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Custom, Rule
from mapping_samples import CannotSample, candidates, codec_in, contexts, filled, sample

MAPPINGS = {
    "coreai": COREAI,
    "coreml": COREML,
    "openvino.legacy": LEGACY,
    "openvino.opset": OPSETS,
    "zhouyi": ZHOUYI,
}
RULES = [
    pytest.param(rule, mapping, id=f"{name}-{number}-{rule.op}={rule.kind}")
    for name, mapping in MAPPINGS.items()
    for number, rule in enumerate(mapping.table.rules)
]
# a row that only reads, with a hook, has no layer of its own to begin with: its numbers are tested
# with its format
SYMMETRIC = [p for p in RULES if not (p.values[0].lift_only and p.values[0].hooked)]


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


def version_of(rule: Rule, mapping: FormatMapping) -> int:
    """A version at which the rule holds; the newest of the table where it may."""
    newest = max((r.since for r in mapping.table.rules), default=0)
    return min(max(newest, rule.since), rule.until)


def reading(mapping: FormatMapping, rule: Rule, layer: Layer, b: Builder) -> Reading:
    return Lifting(mapping, b, "test", version_of(rule, mapping)).reading(layer)


def written(mapping: FormatMapping, rule: Rule, node: Node) -> list[Layer]:
    """The layers that the row writes."""
    low = mapping.lowering(mapping, version_of(rule, mapping))
    rule.lower(low.writing(node))
    return low.layers


Sample = tuple[Node, list[Layer], Builder]


def lowered(rule: Rule, mapping: FormatMapping) -> Iterator[Sample]:
    """Sample nodes with their layers, made as they are asked for. What a row refuses is no sample
    of it, but there has to be one.
    """
    found = False
    reasons: list[str] = []
    for context, attrs in attempts(rule):
        try:
            node, b = sample(rule, context, attrs, mapping.channels_last)
            made = node, written(mapping, rule, node), b
        except (MappingError, InferenceError) as e:
            reasons.append(f"{context} {attrs}: {e}")
            continue
        found = True
        yield made
    if not found:
        raise CannotSample(
            "no sample fits: declare `given`, or add to SAMPLES\n" + "\n".join(reasons[:6])
        )


def in_graph(value: ir.Value | None, known: dict[ir.Value, ir.Value], b: Builder) -> Any:
    """The value of the graph that an operand of a layer is: constants of the writer become those of
    the graph.
    """
    if value is None or value in known:
        return known.get(value) if value is not None else None
    if value.const_value is not None and value.graph is None:
        known[value] = b.const(value.const_value, "c")
        return known[value]
    return value


def lifted(
    rule: Rule, mapping: FormatMapping, layers: list[Layer], node: Node, b: Builder
) -> tuple[Node | None, list[ir.Value]]:
    """The node that the row makes of its layer, and the values that stand for the operator's
    results.
    """
    known: dict[ir.Value, ir.Value] = {}
    own = None
    for layer in layers:
        far = replace(layer, inputs=[in_graph(v, known, b) for v in layer.inputs])
        r = reading(mapping, rule, far, b)
        if layer.kind == rule.kind and not rule.lower_only and own is None:
            results, own = rule.lift(r), r.node
        else:
            beside = Lifting(mapping, b, "test", version_of(rule, mapping))
            results = beside.layer(far) or []
            assert results, beside.problems
        known |= dict(zip(layer.outputs, results, strict=False))
    found = [(v, known[v]) for v in node.outputs if v in known]
    if mapping is MAPPINGS["coreml"]:
        return own, [as_declared(v, result, b) for v, result in found]
    return own, [result for _, result in found]


def as_declared(wanted: ir.Value, value: ir.Value, b: Builder) -> ir.Value:
    """A result of Core ML, whose tensors are float32 of rank 1 at least, as the boundary of a model
    declares it.
    """
    if value.dtype != wanted.dtype and wanted.dtype is not None:
        value = b.op("Cast", value, to=int(wanted.dtype))
    return value if rank_of(wanted) or rank_of(value) != 1 else b.op("Squeeze", value, [0])


def in_front(
    mapping: FormatMapping, rule: Rule, layers: list[Layer], own: Layer, b: Builder
) -> dict[ir.Value, ir.Value]:
    """The values of the graph that the layers in front of a row's own are read as."""
    known: dict[ir.Value, ir.Value] = {}
    for layer in itertools.takewhile(lambda layer: layer is not own, layers):
        far = replace(layer, inputs=[in_graph(v, known, b) for v in layer.inputs])
        results = mapping.table.lift(reading(mapping, rule, far, b))
        known |= dict(zip(layer.outputs, results, strict=False))
    return known


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
    attrs = {k: _single(v) for k, v in attrs.items()}
    inputs = [_by_value(v) for v in node.inputs]
    if node.op == "Pad" and attrs.get("mode") != "constant":
        inputs[2:3] = [None]  # the value counts in this mode alone
    if node.op == "Split" and (count := attrs.pop("num_outputs", None)):
        size = shape_of(node.inputs[0])[attrs["axis"]]  # type: ignore[arg-type,index]
        inputs[1:] = [([size // count] * count, "int64")]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return attrs, inputs


def _single(value: Any) -> Any:
    """Lists as lists, floats as what ONNX makes of them."""
    array = np.asarray(value)
    if array.dtype == np.float64:
        return array.astype(np.float32).tolist()
    return array.tolist() if isinstance(value, list | tuple | np.ndarray) else value


def _by_value(value: ir.Value | None) -> Any:
    if value is None:
        return None
    array = constant(value)
    return value if array is None else (np.asarray(array).tolist(), str(np.asarray(array).dtype))


def _number(value: Any) -> Any:
    """Two texts of one number are the same."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    try:
        return float(np.float32(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def normal_layer(far: Layer) -> tuple[Any, ...]:
    blobs = {
        k: _by_value(v) if isinstance(v, ir.Value) else np.asarray(v).tolist()
        for k, v in far.blobs.items()
        if v is not None
    }
    attrs = {k: _number(v) for k, v in far.attrs.items()}
    inputs = [_by_value(v) for v in far.inputs]
    return far.kind, attrs, blobs, [v.name if isinstance(v, ir.Value) else v for v in inputs]


def same_numbers(node: Node, results: list[ir.Value], b: Builder) -> None:
    """The operator and what its layers are read as give the same on the same inputs."""
    assert results and len(results) <= len(node.outputs)
    pairs = list(zip(node.outputs, results, strict=False))
    for wanted, found in pairs:
        b.output(wanted, found)
    model = Model(ir.Model(b.graph, ir_version=10), "onnx")
    rng = np.random.default_rng(0)
    feeds = {i.name: _numbers(rng, i) for i in model.inputs}
    outputs = list(model.run(feeds).values())[-2 * len(pairs) :]
    for wanted, found in zip(outputs[::2], outputs[1::2], strict=True):
        assert wanted.dtype == found.dtype and wanted.shape == found.shape
        np.testing.assert_allclose(wanted, found, rtol=1e-5, atol=1e-6)


def _numbers(rng: np.random.Generator, port: Any) -> Any:
    shape = [d if isinstance(d, int) else 2 for d in port.shape]
    dtype = np.dtype(port.dtype.numpy() if hasattr(port.dtype, "numpy") else port.dtype)
    if dtype.kind == "f":
        return rng.uniform(-3, 3, shape).astype(dtype)
    low, high = (0, 2) if dtype.kind == "b" else (1, 4)  # divisors, and places of small tensors
    return rng.integers(low, high, shape).astype(dtype)


def spelled_alike(mapping: FormatMapping, node: Node, own: Node) -> bool:
    """Whether the nodes are equal. Where ports decide, as in legacy IR, one may say the same window
    otherwise.
    """
    return normal(own) == normal(node)


def plain(node: Node, own: Node | None, results: list[ir.Value], layers: list[Layer]) -> bool:
    """Whether one layer stands for one node, which can be compared part by part."""
    if own is None or len(layers) > 1 or len(results) != len(node.outputs):
        return False
    maker = results[0].producer()
    if maker is None or maker.op_type != own.op:
        return False
    made = {v.producer() for v in (*own.inputs,) if v is not None} - {None}
    return not made


def check_lift_undoes_lower(rule: Rule, mapping: FormatMapping, which: slice = slice(None)) -> None:
    """`which`: samples, by number."""
    for node, layers, b in itertools.islice(lowered(rule, mapping), which.start, which.stop):
        own, results = lifted(rule, mapping, layers, node, b)
        got = [(v.dtype, str(v.shape)) for v in results]
        assert got == [(v.dtype, str(v.shape)) for v in node.outputs][: len(got)]
        folded = any(f.folds for f in rule.fields)
        one = plain(node, own, results, layers) and not folded
        if own is not None and one and normal(own) == normal(node):
            continue
        if node.domain == EXTENSION_DOMAIN and not can_expand(node.outputs[0].producer()):
            assert own is not None and normal(own) == normal(node)  # random numbers
        elif node.op not in RANDOM:  # another spelling of the same has the same numbers
            same_numbers(node, results, b)


def check_lower_undoes_lift(rule: Rule, mapping: FormatMapping, which: slice = slice(None)) -> None:
    """Also where the file leaves out what has a default: it is lowered to a layer that means the
    same.

    Left out of the first two samples, the ordinary one and that of all last values. `which`:
    samples, by number.
    """
    optional = [
        f.key for f in rule.fields if isinstance(f, Attr | Const) and f.default is not MISSING
    ]
    samples = enumerate(lowered(rule, mapping))
    for number, (node, layers, b) in itertools.islice(samples, which.start, which.stop):
        for key in [None, *(optional if number < 2 else ())]:
            own = own_layer(rule, layers)
            far = replace(own, attrs={k: v for k, v in own.attrs.items() if k != key})
            known = in_front(mapping, rule, layers, own, b)
            far.inputs = [in_graph(v, known, b) for v in far.inputs]
            try:
                r = reading(mapping, rule, far, b)
                results = rule.lift(r)
                folded = any(f.folds for f in rule.fields)
                if folded or not plain(node, r.node, results, layers):
                    break
                if key is None and not spelled_alike(mapping, node, r.node):
                    break
                full = Node(
                    r.node.op,
                    r.node.domain,
                    filled(rule, r.node.attrs),
                    r.node.inputs,
                    node.outputs,
                    node.last,
                )
                again = written(mapping, rule, full)[-1]
            except (MappingError, InferenceError):
                assert (
                    key is not None
                )  # the default may not fit the rest of this sample; the full layer must
                continue
            if key is None:
                assert normal_layer(again) == normal_layer(far)
            back = reading(mapping, rule, replace(again, inputs=far.inputs), b)
            rule.lift(back)
            assert normal(back.node) == normal(r.node)


def own_layer(rule: Rule, layers: list[Layer]) -> Layer:
    """The layer of the row among those that it writes."""
    return next((layer for layer in layers[::-1] if layer.kind == rule.kind), layers[-1])


def parts(first: int) -> pytest.MarkDecorator:
    """The first samples of each row are for every day, the others slow."""
    others = pytest.param(slice(first, None), id="others", marks=pytest.mark.slow)
    return pytest.mark.parametrize("which", [pytest.param(slice(first), id="first"), others])


@parts(2)
@pytest.mark.parametrize(("rule", "mapping"), SYMMETRIC)
def test_lift_undoes_lower(rule: Rule, mapping: FormatMapping, which: slice) -> None:
    check_lift_undoes_lower(rule, mapping, which)


@parts(1)
@pytest.mark.parametrize(("rule", "mapping"), [p for p in SYMMETRIC if not p.values[0].lower_only])
def test_lower_undoes_lift(rule: Rule, mapping: FormatMapping, which: slice) -> None:
    check_lower_undoes_lift(rule, mapping, which)


@pytest.mark.parametrize(("rule", "mapping"), SYMMETRIC)
def test_everything_is_owned(rule: Rule, mapping: FormatMapping) -> None:
    node, layers, b = next(lowered(rule, mapping))
    far = own_layer(rule, layers)
    assert set(far.attrs) <= {k for f in rule.fields for k in f.keys}
    assert set(far.blobs) <= {k for f in rule.fields for k in f.blobs}
    known = in_front(mapping, rule, layers, far, b)
    far = replace(far, inputs=[in_graph(v, known, b) for v in far.inputs])
    if not rule.lower_only:
        with pytest.raises(MappingError) as refused:
            odd = replace(far, attrs={**far.attrs, "a_surprise": 1})
            rule.lift(reading(mapping, rule, odd, b))
        assert refused.value.code == "R111"
        with pytest.raises(MappingError):
            odd = replace(far, blobs={**far.blobs, "a_surprise": np.zeros(1)})
            rule.lift(reading(mapping, rule, odd, b))
    with pytest.raises(MappingError):
        written(mapping, rule, replace(node, attrs={**node.attrs, "a_surprise": 1}))


@pytest.mark.parametrize(("rule", "mapping"), SYMMETRIC)
def test_the_table_finds_the_row(rule: Rule, mapping: FormatMapping) -> None:
    """No row hides another: some sample gets to this row in either direction."""
    table, version = mapping.table, version_of(rule, mapping)

    def by_table(node: Node) -> list[Layer]:
        low = mapping.lowering(mapping, version)
        table.lower(low.writing(node))
        return low.layers

    if not rule.lift_only:
        assert any(
            [normal_layer(x) for x in by_table(node)] == [normal_layer(x) for x in layers]
            for node, layers, _ in lowered(rule, mapping)
            if not isinstance(_, Custom)
        ), "an earlier row takes every sample"
    if not rule.lower_only:
        assert any(
            _is_read_by(rule, mapping, layers, b) for _, layers, b in lowered(rule, mapping)
        ), "an earlier row takes every layer"


def _is_read_by(rule: Rule, mapping: FormatMapping, layers: list[Layer], b: Builder) -> bool:
    layer = own_layer(rule, layers)
    if layer.kind != rule.kind:
        return True
    known = in_front(mapping, rule, layers, layer, b)
    far = replace(layer, inputs=[in_graph(v, known, b) for v in layer.inputs])
    r, own = reading(mapping, rule, far, b), reading(mapping, rule, far, b)
    mapping.table.lift(r)
    if r.rule is rule:
        return True
    rule.lift(own)
    found, wanted = normal(r.node), normal(own.node)
    same = (r.node.op, r.node.domain, found[0]) == (own.node.op, own.node.domain, wanted[0])
    return same and [made(v) for v in found[1]] == [made(v) for v in wanted[1]]


def made(value: Any) -> Any:
    """An operand, of one that the row made the operator that makes it."""
    node = value.producer() if isinstance(value, ir.Value) else None
    return value if node is None else node.op_type


@pytest.mark.parametrize("name", MAPPINGS)
def test_rows_for_one_layer_are_told_apart(name: str) -> None:
    readers = [r for r in MAPPINGS[name].table.rules if not r.lower_only]
    for a, b in itertools.combinations(readers, 2):
        if a.kind == b.kind and max(a.since, b.since) <= min(a.until, b.until):
            assert told_apart(a, b), f"{a.op} and {b.op} are both {a.kind}: nothing says which"


def told_apart(a: Rule, b: Rule) -> bool:
    if (a.domain, a.op) == (b.domain, b.op) and (a.lift_only or b.lift_only):
        return True  # another spelling of the same
    fixed = [{f.key: f.value for f in r.fields if isinstance(f, Fixed)} for r in (a, b)]
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
    fixed = {f.key: f.value for f in b.fields if isinstance(f, Fixed)}
    listed = [(f.key, codec_in(f)) for f in a.fields if isinstance(f, Attr) and f.key in fixed]
    return any(c and c.table and fixed[key] not in c.table.values() for key, c in listed)


def owned(rule: Rule) -> set[str]:
    return {k for f in rule.fields for k in (*f.keys, *f.blobs)}


def required(rule: Rule) -> set[str]:
    """Keys without which the rule does not apply."""
    plain = {f.key for f in rule.fields if isinstance(f, Attr | Const) and f.default is MISSING}
    return (
        plain
        | {f.key for f in rule.fields if isinstance(f, Fixed) and not f.absent}
        | {f.key for f in rule.fields if isinstance(f, Nested)}
        | {f.blob for f in rule.fields if _needs_blob(f)}
    )


def _needs_blob(f: Field) -> bool:
    return hasattr(f, "blob") and not getattr(f, "optional", False)


@pytest.mark.parametrize("name", MAPPINGS)
def test_enums_are_one_to_one(name: str) -> None:
    for rule in MAPPINGS[name].table.rules:
        for codec in (c for f in rule.fields if (c := codec_in(f)) is not None and c.table):
            assert len(set(codec.table.values())) == len(codec.table)
            for value in codec.table:
                assert codec.lift(codec.lower(value)) == value
