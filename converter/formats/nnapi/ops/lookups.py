"""Operations that pick, repeat or fill."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers, only_user
from converter.formats.nnapi.ops.shapes import axis, int64, put_reshape
from converter.formats.nnapi.table import OperandType as T
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import known, rank_of
from converter.graph.sizes import demand_small
from converter.mapping.node import MappingError
from converter.passes.indices import never_negative


@lifts("GATHER")
def gather(a: Args) -> ir.Value:
    return a.b.op("Gather", a.real("input"), a.stored("indices"), axis=axis(a))


@lifts("TILE")
def tile(a: Args) -> ir.Value:
    """What has no axes in the graph has one here."""
    x = a.real("input")
    return a.b.op("Tile", a.b.op("Reshape", x, [1]) if rank_of(x) == 0 else x, int64(a, "multiples"))


@lifts("REVERSE")
def reverse(a: Args) -> ir.Value:
    i = a.ints("axis")[0]
    return a.b.op("Slice", a.real("input"), [-1], [np.iinfo(np.int64).min + 1], [i], [-1])


@lifts("FILL", raw=True)
def fill(a: Args) -> ir.Value:
    return a.b.op("Expand", a.stored("value"), int64(a, "shape"))


@lifts("RANK", raw=True)
def rank_operation(a: Args) -> ir.Value:
    return a.b.op("Cast", a.b.op("Size", a.b.op("Shape", a.stored("input"))), to=int(ir.DataType.INT32))


@lifts("EMBEDDING_LOOKUP", raw=True)
def embedding_lookup(a: Args) -> ir.Value:
    return a.b.op("Gather", a.stored("values"), a.stored("lookups"), axis=0)


@lifts("HASHTABLE_LOOKUP", raw=True)
def hashtable_lookup(a: Args) -> tuple[ir.Value, ...]:
    return a.b.exts("HashtableLookup", a.stored("lookups"), a.stored("keys"), a.stored("values"), outputs=2)


@lowers("HashtableLookup", domain=EXTENSION_DOMAIN)
def lower_hashtable(e: Emit) -> None:
    e.put("HASHTABLE_LOOKUP", [e.result(0), e.result(1)], lookups=e.stored(0), keys=e.stored(1), values=e.stored(2))


@lifts("LSH_PROJECTION", raw=True)
def lsh_projection(a: Args) -> ir.Value:
    """Kind 1 is sparse, 2 dense, 3 sparse with an offset for each hash."""
    weight = a.stored("weight") if a.has("weight") else None
    return a.b.ext("LSHProjection", a.real("hash"), a.stored("input"), weight, kind=a.integer("kind"))


@lowers("LSHProjection", domain=EXTENSION_DOMAIN)
def lower_lsh(e: Emit) -> None:
    e.put("LSH_PROJECTION", e.result(), hash=e.stored(0), input=e.stored(1), weight=e.stored(2) if e.has(2) else None, kind=e.attrs["kind"])


def counts_from_front(node: ir.Node) -> bool:
    """Whether the indices of a Gather cannot be negative at run time: they are constants, or known to be none, or come from NNAPI, which has none."""
    return known(node.inputs[1]) is not None or node.metadata_props.get("netconv.format") == "nnapi" or never_negative(node.inputs[1])


@lowers("Gather")
def lower_gather(e: Emit) -> None:
    """Indices are counted from the front; a single one is a list of one, whose axis goes again."""
    i, x, given = e.axis(), e.real(0), known(e.value(1))
    if not counts_from_front(e.node):
        raise MappingError("negative indices count from the end, which they do not do there")
    if given is not None:
        given = np.where(given < 0, given + e.shape()[i], given).astype(np.int32)
        indices = e.writer.tensor(given, T.TENSOR_INT32)
    else:
        indices = e.stored(1)
    y = e.result()
    dims = [*e.shape()[:i], *e.operand(indices).dimensions, *e.shape()[i + 1 :]]
    if dims == e.operand(y).dimensions:
        e.put("GATHER", y, input=x, axis=i, indices=indices)
    else:
        put_reshape(e, e.step("GATHER", dims, y, input=x, axis=i, indices=indices), y)


@lowers("Tile")
def lower_tile(e: Emit) -> None:
    x = e.real(0)
    e.put("TILE", e.result(), input=x, multiples=e.ints(1))


@lowers("Expand")
def lower_expand(e: Emit) -> None:
    """Repeated, or below level 3 multiplied by ones."""
    x, dims, y = e.real(0), [1] * (len(e.out) - len(e.shape())) + list(e.shape()), e.result()
    if e.level < 3 and not e.quantised:
        demand_small(*e.operand(y).dimensions)
        e.put("MUL", y, a=x, b=e.number(np.ones(e.operand(y).dimensions), y), activation=0)
        return
    multiples = [1 if n == m else m for n, m in zip(dims, e.out, strict=True)] or [1]
    e.put("TILE", y, input=e.reshaped(x, dims), multiples=multiples)


@lifts("RANDOM_MULTINOMIAL")
def random_classes(a: Args) -> ir.Value:
    """Draws by unnormalised log-probability; the two seeds are the halves of one."""
    low, high = (int(n) for n in a.ints("seeds"))
    drawn = a.b.ext("RandomCategorical", a.real("input"), samples=a.integer("samples"), seed=(low & 0xFFFFFFFF) | high << 32)
    return a.b.op("Cast", drawn, to=int(ir.DataType.INT32))


@lowers("RandomCategorical", domain=EXTENSION_DOMAIN)
def lower_random_classes(e: Emit) -> None:
    if not e.attrs["logits"] or e.attrs["temperature"] != 1 or len(e.shape()) != 2:
        raise MappingError("only draws by log-probability from rows are possible")
    user, seed = only_user(e.node.outputs[0]), int(e.attrs["seed"])
    if user is None or user.op_type != "Cast" or user.outputs[0].dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        raise MappingError("the drawn classes are whole numbers there")
    low = seed & 0xFFFFFFFF
    y = e.result_of(e.absorb(user))
    e.put("RANDOM_MULTINOMIAL", y, input=e.stored(0), samples=int(e.attrs["samples"]), seeds=[low - (low >> 31 << 32), seed >> 32])
