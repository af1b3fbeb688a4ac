"""Sample nodes for the laws of mapping tables: contexts from `Rule.given`, attributes from SAMPLES and ONNX's schemas.

`given` is explained at `converter.mapping.table.Rule`. A new attribute name that a schema gives no default for gets a line in
SAMPLES: "name" or "Operator.name" -> values, most ordinary first; a function takes the number of spatial axes of input 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx.defs
import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder, new_model
from converter.graph.channels_last import LAYOUT_SENSITIVE, to_last
from converter.graph.extensions import lookup
from converter.graph.infer import InferenceError, schema_of
from converter.mapping.codecs import Codec
from converter.mapping.fields import Field, Only
from converter.mapping.node import Node
from converter.mapping.table import Rule, defaults

SAMPLES: dict[str, list[Any] | Callable[[int], list[Any]]] = {
    "axis": [1, 0, -1],
    "axes": [[1], [0, 1]],
    "alpha": [0.25, 1.0],
    "beta": [0.5],
    "bias": [0.5],
    "blocksize": [2],
    "BitShift.direction": ["LEFT", "RIGHT"],
    "count_include_pad": [0, 1],
    "ceil_mode": [0, 1],
    "equation": ["ij,jk->ik"],
    "epsilon": [0.125],
    "fmod": [0, 1],
    "group": [1, 2],
    "k": [2],
    "keepdims": [1, 0],
    "kernel_shape": lambda n: [[3, 2, 3][:n], [2, 2, 2][:n]],
    "strides": lambda n: [[2, 1, 2][:n], [1, 1, 1][:n]],
    "dilations": lambda n: [[1, 1, 1][:n], [1, 2, 1][:n]],
    "pads": lambda n: [[0, 1, 1][:n] + [1, 0, 1][:n], [0] * (2 * n)],
    "output_shape": lambda n: [],
    "num_groups": [2],
    "perm": [[1, 0]],
    "size": [3],
    "stash_type": [1],
    "to": [6, 7, 10, 1],
    "AveragePool.dilations": lambda n: [[1, 1, 1][:n]],
    "DepthToSpace.mode": ["DCR", "CRD"],
    "Gelu.approximate": ["none", "tanh"],
    "GridSample.mode": ["linear", "nearest", "cubic"],
    "GridSample.padding_mode": ["zeros", "border", "reflection"],
    "Transpose.perm": [[1, 0]],
}
# contexts of operators for which neither the schema nor "2,3" will do, beside the row's own; each one that fits is a sample
_IMAGE = ("1,4,8,8", "1,4,8", "1,4,4,4,4")
CONTEXTS: dict[str, tuple[str, ...]] = {
    "GatherND": ("2,3 =i64:2,1",),
    "ScatterND": ("4,3 =i64:2,1 2,3",),
    "MatMul": ("2,3 3,4", "2,3 =3,4", "2,2,3 2,3,4"),
    "Gemm": ("2,3 =3,4 =4", "2,3 =4,3 =4"),
    "Mod": ("i64:2,3 i64:2,3",),  # of floats it is legal with fmod=1 alone
    "Conv": ("1,4,8,8 =6,4,3,3 =6", "1,4,8,8 =6,4,3,3", "1,4,8,8 =4,1,3,3 =4", "1,4,8 =6,4,3 =6", "1,4,4,4,4 =6,4,3,3,3 =6", "1,4,4,4,4 =6,4,3,3,3"),
    "ConvTranspose": ("1,4,8,8 =4,6,3,3 =6", "1,4,8,8 =4,6,3,3", "1,4,8 =4,6,3 =6", "1,4,4,4,4 =4,6,3,3,3 =6", "1,4,4,4,4 =4,6,3,3,3"),
    **{op: _IMAGE for op in ("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LRN")},
    "DepthToSpace": ("1,8,2,2",),
    "SpaceToDepth": ("1,2,4,4",),
    "BatchNormalization": ("1,4,8,8 =4 =4 =4 =4", "1,4 =4 =4 =4 =4"),
    "InstanceNormalization": ("1,4,8,8 =4 =4", "1,4,8 =4 =4"),
    "GroupNormalization": ("1,4,8,8 =4 =4",),
    "LayerNormalization": ("2,3 =3 =3", "2,3 =3"),
    "Reshape": ("2,3 =[3,2]",),
    "Expand": ("2,3 =[2,2,3]",),
    "Tile": ("2,3 =[1,2]",),
    "Squeeze": ("2,1 =[1]",),
    "Unsqueeze": ("2,3 =[1]",),
    "Pad": ("2,3 =[1,0,0,2]", "2,3 =[1,0,0,2] ="),
    "Slice": ("4,6 =[1] =[4] =[1] =[2]",),
    "Gather": ("4,3 =[2,0]", "4,3 i64:2"),
    "OneHot": ("i64:2,3 =i64: =[0,1]",),
    "Split": ("4,6",),
}
_ORDER = ("float", "int64", "int32", "bool", "uint8", "int8", "string")
_ENTRY = re.compile(r"(?P<const>=?)(?:(?P<type>[a-z]+\d*):)?(?P<rest>\[.*\]|[\d,]*)$")
_TYPES = {"f32": ir.DataType.FLOAT, "f16": ir.DataType.FLOAT16, "i64": ir.DataType.INT64, "i32": ir.DataType.INT32, "i8": ir.DataType.INT8,
          "u8": ir.DataType.UINT8, "b": ir.DataType.BOOL}  # fmt: skip


class CannotSample(Exception):
    pass


def contexts(rule: Rule) -> tuple[str, ...]:
    default = " ".join(["2,3"] * _arity(rule))
    listed = CONTEXTS.get(rule.near, ()) if rule.domain == "" else ()
    return (rule.given, *listed) if rule.given else listed or (default,)


def sample(rule: Rule, context: str, attrs: dict[str, Any], last: bool = False) -> tuple[Node, Builder]:
    """A node for the rule in its context, with inferred outputs; `last`: as a channels-last target sees it."""
    _, b = new_model()
    inputs = _inputs(rule, context, b)
    domain, extra, twin = rule.domain, {}, last and (rule.domain, rule.near) in LAYOUT_SENSITIVE
    if twin:
        data = LAYOUT_SENSITIVE[rule.domain, rule.near][0]
        inputs = [_turned(v, b) if i in data and v is not None else v for i, v in enumerate(inputs)]
        domain, extra = CHANNELS_LAST_DOMAIN, ({"base_domain": rule.domain} if rule.domain else {})
    if rule.near == "Mod" and not attrs.get("fmod", 0) and inputs[0] is not None and inputs[0].dtype == ir.DataType.FLOAT:
        raise InferenceError("the standard has no floor-mod of floats")
    made = b.ops(rule.near, *inputs, domain=domain, outputs=_output_count(rule), **attrs, **extra)
    return Node(rule.near, rule.domain, filled(rule, attrs), inputs, list(made), twin), b


def filled(rule: Rule, attrs: dict[str, Any]) -> dict[str, Any]:
    """With the operator's defaults, as Table.lower sees them; a row that is never written need not own them all."""
    owned = {k for f in rule.fields for k in f.near}
    return {**{k: v for k, v in defaults(rule.near, rule.domain).items() if k in owned or not rule.lift_only}, **attrs}


def _turned(value: ir.Value, b: Builder) -> ir.Value:
    shape = list(value.shape or [])
    return value if len(shape) < 3 else b.input(str(value.name), value.dtype or ir.DataType.FLOAT, [shape[a] for a in to_last(len(shape))])


def _output_count(rule: Rule) -> int:
    schema = schema_of(rule.near) if rule.domain == "" else None
    return 1 if schema is None else max(1, schema.min_output)


def _inputs(rule: Rule, context: str, b: Builder) -> list[ir.Value | None]:
    chosen: dict[str, str] = {}
    values: list[ir.Value | None] = []
    for i, entry in enumerate(context.split()):
        match = _ENTRY.match(entry)
        if entry == "?":
            values.append(None)
            continue
        if match is None:
            raise CannotSample(f"{entry!r} in {context!r} is not understood")
        dtype = _TYPES[match["type"]] if match["type"] else _dtype(rule, i, chosen)
        if match["const"]:
            values.append(b.const(_constant(match["rest"], dtype.numpy()), f"c{i}"))
        else:
            values.append(b.input(f"x{i}", dtype, [int(d) for d in match["rest"].split(",") if d]))
    return values


def _constant(text: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if text.startswith("["):
        return np.array(json.loads(text), dtype)
    shape = [int(d) for d in text.split(",") if d]
    count = np.arange(int(np.prod(shape)))
    return (((count % 7) + 1) * 0.5 if dtype.kind == "f" else count % 2 if dtype.kind == "b" else count).astype(dtype).reshape(shape)


def _arity(rule: Rule) -> int:
    if rule.domain:
        entry = lookup(rule.near)
        assert entry is not None, rule.near
        return len(entry.inputs)
    schema = schema_of(rule.near)
    assert schema is not None, rule.near
    variadic = any(p.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for p in schema.inputs)
    return max(2, schema.min_input) if variadic else schema.min_input


def _dtype(rule: Rule, index: int, chosen: dict[str, str]) -> ir.DataType:
    """The most ordinary type that the schema allows; the same for inputs of the same type variable."""
    schema = schema_of(rule.near) if rule.domain == "" else None
    if schema is None:
        return ir.DataType.FLOAT
    parameter = schema.inputs[min(index, len(schema.inputs) - 1)]
    if parameter.type_str not in chosen:
        allowed = {t.removeprefix("tensor(").removesuffix(")") for t in parameter.types}
        chosen[parameter.type_str] = next(t for t in _ORDER if t in allowed)
    name = chosen[parameter.type_str]
    return ir.DataType.FLOAT if name == "float" else ir.DataType.from_numpy(np.dtype(name)) if name != "string" else ir.DataType.STRING


def candidates(rule: Rule, context: str) -> dict[str, list[Any]]:
    """The values to try for each attribute that the rule's fields own, most ordinary first."""
    spatial = _spatial(context)
    result: dict[str, list[Any]] = {}
    for f in rule.fields:
        for name in f.near:
            values = list(_own(f))
            if not (isinstance(f, Only) and f.value is not None):
                listed = SAMPLES.get(f"{rule.near}.{name}", SAMPLES.get(name, []))
                values += _of_weights(rule, name, context) or (listed(spatial) if callable(listed) else listed)
                if name in (known := defaults(rule.near, rule.domain)):
                    values.append(known[name])
            values = [v for i, v in enumerate(values) if v not in values[:i] and _is_attribute(rule, name)]
            if not values and _required(rule, name):
                raise CannotSample(f"no value for {rule.near}.{name}: add it to SAMPLES")
            if values and not (isinstance(f, Only) and f.value is None):
                result[name] = values
    return result


def _own(f: Field) -> Iterator[Any]:
    """Values that the field itself knows."""
    codec = getattr(f, "codec", None)
    if isinstance(f, Only) and f.value is not None:
        yield f.value
    if isinstance(codec, Codec) and codec.table is not None:
        yield from codec.table


def _spatial(context: str) -> int:
    return max(1, context.partition(" ")[0].count(",") - 1)


def _of_weights(rule: Rule, name: str, context: str) -> list[Any]:
    """What the weights of a convolution say already: kernel and group."""
    entries = [[int(d) for d in e.rpartition(":")[2].removeprefix("=").split(",") if d] for e in context.split()]
    if rule.near not in ("Conv", "ConvTranspose") or len(entries) < 2:
        return []
    data, weights = entries[:2]
    if name == "group":
        return [data[1] // weights[1]] if rule.near == "Conv" else [1]
    return [weights[2:]] if name == "kernel_shape" else []


def _is_attribute(rule: Rule, name: str) -> bool:
    schema = schema_of(rule.near) if rule.domain == "" else None
    entry = lookup(rule.near) if rule.domain else None
    return name in schema.attributes if schema is not None else entry is not None and name in entry.attributes


def _required(rule: Rule, name: str) -> bool:
    if rule.domain:
        entry = lookup(rule.near)
        return entry is not None and name in entry.attributes and name not in defaults(rule.near, rule.domain)
    schema = schema_of(rule.near)
    return schema is not None and name in schema.attributes and schema.attributes[name].required
