"""Tables that are looked up by key or by hash."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiftContext
from converter.formats.tflite.schema import schema
from converter.graph.infer import constant
from converter.graph.states import Hashtable
from converter.graph.value import Value
from converter.mapping.codecs import enum
from converter.mapping.fields import Attr
from converter.mapping.rules import Custom, Rule, custom, op

HASHES = schema.LSHProjectionType
# kinds of the operator of the graph, whose sparse hashes are apart when it is 3
KINDS = enum({3: HASHES.SPARSE, 2: HASHES.DENSE})


# tables in the file ------------------------------------------------------------------------------


def handle(r: LiftContext) -> Sequence[ir.Value]:
    """Read HASHTABLE: the result refers to a table, which all handles of that number share."""
    tables, number = r.graph.variables.tables, r.attr("table_id", int)
    r.graph.tables[r.operator.outputs[0]] = tables.setdefault(number, Hashtable())
    return []


def table_of(t: LiftContext) -> Hashtable:
    """Return the table of the first operand. Raises MappingError X201 if a subgraph gets it as an
    input.
    """
    found = t.graph.tables.get(t.operator.inputs[0])
    if found is None:
        raise MappingError("passing a table to a subgraph is not supported", "X201")
    return found


def filled(r: LiftContext) -> Sequence[ir.Value]:
    """Read HASHTABLE_IMPORT: keys and values, which only its first execution sets."""
    table, (keys, values) = table_of(r), (constant(r.stored(i)) for i in (1, 2))
    if keys is None or values is None:
        raise MappingError("keys and values of a table must be constant", "X201")
    if keys.shape != values.shape:
        raise MappingError(f"{keys.size} keys are given for {values.size} values", "R105")
    if table.keys is None:
        table.keys, table.values = keys.reshape(-1), values.reshape(-1)
    return []


def content(t: LiftContext) -> Hashtable:
    """Return a table that has been filled. Raises MappingError R105 if it is read before."""
    table = table_of(t)
    if table.keys is None or table.values is None:
        raise MappingError("the table is read before it is filled", "R105")
    return table


def found(r: LiftContext) -> Value:
    """Read HASHTABLE_FIND with the inputs [table, keys, default for missing keys]."""
    b = r.b
    table, wanted, default = content(r), r.stored(1), b.Reshape(r.stored(2), [])
    assert table.keys is not None and table.values is not None
    if not table.keys.size:
        return b.Expand(default, b.Shape(wanted))
    equal = b.Equal(b.Unsqueeze(wanted, [-1]), b.const(table.keys, "keys"))
    hits = b.Cast(equal, to=ir.DataType.INT32)
    values = b.Gather(b.const(table.values, "values"), b.ArgMax(hits, axis=-1, keepdims=0), axis=0)
    hit = b.Cast(b.ReduceMax(hits, [-1], keepdims=0), to=ir.DataType.BOOL)
    return b.Where(hit, values, default)


def size(r: LiftContext) -> Value:
    """Return the number of keys as a constant."""
    keys = content(r).keys
    return r.b.const([0 if keys is None else len(keys)])


RULES: list[Rule | Custom] = [
    op(
        "netconv::HashtableLookup", "HASHTABLE_LOOKUP", example_inputs="i32:2 =i32:[0,1,2] 3,4 -> 2"
    ),
    op(
        "netconv::LSHProjection",
        "LSH_PROJECTION",
        Attr("kind", "type", KINDS),
        example_inputs="=3,2 i32:2,3 =2",
    ),
    custom("", "HASHTABLE", handle),
    custom("", "HASHTABLE_IMPORT", filled),
    custom("", "HASHTABLE_FIND", found),
    custom("", "HASHTABLE_SIZE", size),
]
