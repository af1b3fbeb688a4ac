"""`.nnapi.json` with its pools: bytes to a Table and back, without loss: equal JSON values and
equal pool bytes for an unchanged table.

    {"format": "nnapi-operand-table", "version": 1, "featureLevel": 1,
     "operands": [...], "operations": [...], "inputIndexes": [0], "outputIndexes": [1],
     "operandValues": "<base64>", "pools": ["net.nnapi.bin"],
     "referenced": [subgraph, ...], "relaxComputationFloat32toFloat16": true}

The structures are those of types.hal (Operand, Operation, Model); `referenced` holds further
subgraphs (operands, operations, inputIndexes, outputIndexes) that share the values and pools. Pools
lie next to the table. Only the form is checked here; `validate.py` judges the model.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from converter.errors import Where, unreadable
from converter.formats.nnapi.json_objects import Fields, open_pool, parse_object
from converter.formats.nnapi.layout import Layout, lay_out
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.operations import is_operation, nearest
from converter.formats.nnapi.table import (
    Bytes,
    ChannelQuant,
    Lifetime,
    Location,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
    Value,
    ValueBytes,
)
from converter.io.files import Output
from converter.io.limits import MOST_AXES
from converter.io.mapped_file import MappedFile

FORMAT = "nnapi-operand-table"
VERSION = 1
SUFFIX = ".nnapi.json"

_TYPES = {t.name: t for t in OperandType}
_LIFETIMES = {lifetime.name: lifetime for lifetime in Lifetime}
_U32 = 2**32 - 1
_S = TypeVar("_S", bound=Subgraph)


def read_table(path: str | Path) -> Table:
    """Return the table in `path`; its pools are mapped, its values are views.

    Raises ReadError: R100 no file, R102 a value outside operandValues or its pool, R103 not this
    format or damaged, R104 another version, R107 a pool outside the folder, R110 a value of the
    wrong type or domain. The diagnostic's `where.path` is the JSON path.
    """
    path = Path(path)
    fields = Fields(parse_object(MappedFile(path), str(path)), str(path))
    if fields.get("format") != FORMAT:
        raise unreadable(
            "R103",
            f'this is not an operand table: "format" is {fields.get("format")!r}, not "{FORMAT}"',
            Where(str(path), path="format"),
        )
    if (version := fields.integer("version", 0, _U32)) != VERSION:
        raise unreadable(
            "R104",
            f"version {version} of the operand table is not supported; netconv "
            f"reads version {VERSION}",
            Where(str(path), path="version"),
        )
    stored = _read_stored(fields, path)
    table = Table(
        feature_level=fields.integer("featureLevel", 1, 10000)
        if "featureLevel" in fields
        else None,
        relaxed=fields.boolean("relaxComputationFloat32toFloat16", False),
        stored=stored,
    )
    _read_subgraph(fields, table, stored)
    for child in fields.objects("referenced", optional=True):
        table.referenced.append(_read_subgraph(child, Subgraph(), stored))
        child.done(table.referenced[-1].extra)
    table.omitted = fields.omitted
    fields.done(table.extra)
    return table


def _read_stored(fields: Fields, path: Path) -> ValueBytes:
    text = fields.text("operandValues", "")
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except ValueError as e:
        raise unreadable(
            "R103", f"operandValues is not base64: {e}", fields.where("operandValues")
        ) from None
    if base64.b64encode(values.data).decode() != text:
        raise unreadable(
            "R103",
            "operandValues is not canonical base64: bits after the last byte are set",
            fields.where("operandValues"),
        )
    names, pools = fields.texts("pools"), []
    for i, name in enumerate(names):
        where = fields.where(f"pools[{i}]")
        pool = open_pool(path, name, where)
        if pool is None:
            raise unreadable(
                "R102",
                f"pool {name!r} is missing",
                where,
                "the values of constants are stored in a second file next to "
                "the table; copy it there",
            )
        pools.append(pool.bytes)
    return ValueBytes(values, pools, names, _stem(path.name))


def _stem(name: str) -> str:
    return name[: -len(SUFFIX)] if name.endswith(SUFFIX) else Path(name).stem


def _read_subgraph(fields: Fields, subgraph: _S, stored: ValueBytes) -> _S:
    subgraph.operands = [_read_operand(f, stored) for f in fields.objects("operands")]
    for f in fields.objects("operations"):
        operation = Operation(
            _operation_type(f), f.integers("inputs", 0, _U32), f.integers("outputs", 0, _U32)
        )
        f.done(operation.extra)
        subgraph.operations.append(operation)
    subgraph.inputs = fields.integers("inputIndexes", 0, _U32)
    subgraph.outputs = fields.integers("outputIndexes", 0, _U32)
    return subgraph


def _operation_type(fields: Fields) -> str:
    name = fields.text("type")
    if not is_operation(name):
        raise unreadable(
            "R110", f"{name!r} is not an operation{nearest(name)}", fields.where("type")
        )
    return name


def _read_operand(fields: Fields, stored: ValueBytes) -> Operand:
    kind = fields.choice("type", _TYPES)
    location, odd_location = _read_location(fields)
    dimensions = fields.integers("dimensions", 0, _U32)
    if len(dimensions) > MOST_AXES:
        raise unreadable(
            "R110",
            f"an operand has {len(dimensions)} dimensions, limit {MOST_AXES}",
            fields.where("dimensions"),
        )
    operand = Operand(
        kind,
        dimensions,
        fields.text("name", ""),
        fields.number("scale", 0.0),
        fields.integer("zeroPoint", -(2**31), 2**31 - 1, 0),
        lifetime=fields.choice("lifetime", _LIFETIMES),
        consumers=fields.integer("numberOfConsumers", 0, _U32)
        if "numberOfConsumers" in fields
        else None,
        location=location,
    )
    if "extraParams" in fields:
        operand.channel_quant, odd_params = _read_channel_quant(fields.object("extraParams"))
        if odd_params is not None:
            operand.extra["extraParams"] = odd_params
    if odd_location is not None:
        operand.extra["location"] = odd_location
    if "boundary" in fields:
        operand.boundary = _read_boundary(fields, operand.dimensions)
    if operand.lifetime is Lifetime.SUBGRAPH and operand.location is not None:
        operand.subgraph = operand.location.offset
    operand.value = _read_value(operand, stored, fields)
    operand.omitted = fields.omitted
    fields.done(operand.extra)
    return operand


def _read_location(fields: Fields) -> tuple[Location | None, dict[str, Any] | None]:
    """Return the location, and its JSON object when that has more or fewer keys than ours."""
    if "location" not in fields:
        return None, None
    f = fields.object("location")
    location = Location(*(f.integer(key, 0, _U32, 0) for key in ("poolIndex", "offset", "length")))
    return location, f.raw if f.omitted or f.unread() else None


def _read_channel_quant(fields: Fields) -> tuple[ChannelQuant, dict[str, Any] | None]:
    quant = ChannelQuant(fields.integer("channelDim", 0, _U32), tuple(fields.numbers("scales")))
    return quant, fields.raw if fields.unread() else None


def _read_boundary(fields: Fields, dimensions: list[int]) -> dict[str, Any]:
    rank = len(dimensions)
    boundary = fields.object("boundary")
    if "permutation" in boundary and sorted(boundary.integers("permutation", 0, _U32)) != list(
        range(rank)
    ):
        raise unreadable(
            "R110",
            f"the permutation must be one of the operand's {rank} axes",
            boundary.where("permutation"),
        )
    if "shape" in boundary and math.prod(boundary.integers("shape", 1, _U32)) != math.prod(
        dimensions
    ):
        raise unreadable(
            "R110",
            f"the shape must have as many elements as the operand ({dimensions})",
            boundary.where("shape"),
        )
    return boundary.raw


def _read_value(operand: Operand, stored: ValueBytes, fields: Fields) -> Value | None:
    if operand.lifetime is None or not operand.lifetime.is_constant:
        return None
    at, where = operand.location or Location(), fields.where("location")
    if operand.lifetime is Lifetime.CONSTANT_COPY:
        source, name = stored.values, "operandValues"
    elif at.pool < len(stored.pools):
        source, name = stored.pools[at.pool], stored.names[at.pool]
    else:
        raise unreadable(
            "R102", f"pool {at.pool} does not exist, the table lists {len(stored.pools)}", where
        )
    if at.offset + at.length > source.size:
        raise unreadable(
            "R102",
            f"bytes {at.offset}..{at.offset + at.length} are outside {name}, which has "
            f"{source.size}",
            where,
        )
    return view(operand, source[at.offset : at.offset + at.length], where)


def view(operand: Operand, data: Bytes, where: Where) -> Value:
    """Return the bytes of an operand's value as an array of its type and dimensions, ReadError R103
    if their number differs; OEM values stay flat bytes.
    """
    expected = operand.nbytes if operand.nbytes is not None or operand.type.is_oem else 0
    if expected is not None and expected != data.size:
        what = f"{operand.type.name} of dimensions {operand.dimensions}"
        raise unreadable("R103", f"the value has {data.size} bytes, {what} needs {expected}", where)
    if operand.type.is_oem or operand.type.dtype is None:
        return data
    if operand.type.dtype == np.bool_:
        # any non-zero byte is true, numpy wants 1
        return cast(Value, (data != 0).reshape(operand.dimensions))
    return data.view(operand.type.dtype).reshape(operand.dimensions)


def write_table(table: Table, out: Output) -> None:
    """Write a table as the target of `out`, and its pools in the same folder
    (`NAME.nnapi.bin`).

    A table that was read is written back as it was (pool files follow the name of the new table);
    for a new one lifetimes, locations, consumer counts and the feature level are computed and large
    values are streamed one after the other, while the text is made. Raise ValueError if a value
    does not have the size that its operand declares.
    """
    layout = None
    if table.stored is not None:
        suffixes = _pool_suffixes(out, table.stored)
        pools = {
            suffix: iter([pool]) for suffix, pool in zip(suffixes, table.stored.pools, strict=True)
        }
        values = table.stored.values.tobytes()
    else:
        layout = lay_out(table)
        suffixes = [_suffix(out, ".nnapi.bin")] if layout.chunks else []
        pools = {suffix: layout.pool() for suffix in suffixes}
        values = layout.values
    for suffix, pool in pools.items():
        out.stream(suffix, pool)
    names = [out.path(suffix).name for suffix in suffixes]
    with out.open() as f:
        f.writelines(
            line.encode()
            for line in _document(table, layout, base64.b64encode(values).decode(), names)
        )


def _suffix(out: Output, suffix: str) -> str:
    # `Output` may not know that the table's suffix is ".nnapi.json"
    return suffix.removeprefix(".nnapi") if out.stem.endswith(".nnapi") else suffix


def _pool_suffixes(out: Output, stored: ValueBytes) -> list[str]:
    """Return the part of each read pool's new name that follows the table's stem; a file that is
    listed twice stays one file.
    """
    found: dict[str, str] = {}
    for name in stored.names:
        own = name[len(stored.stem) :] if stored.stem and name.startswith(stored.stem) else ""
        if own.startswith(".") and out.path(_suffix(out, own)) != out.target:
            found[name] = _suffix(out, own)
    for name in stored.names:
        number = 0
        while name not in found:
            suffix = _suffix(out, f".nnapi.{number}.bin" if number else ".nnapi.bin")
            if suffix not in found.values():
                found[name] = suffix
            number += 1
    return [found[name] for name in stored.names]


def _document(table: Table, layout: Layout | None, values: str, pools: list[str]) -> Iterator[str]:
    """The JSON text, one operand or operation on a line."""
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    level = table.feature_level
    if level is None and table.stored is None:
        level = feature_level(table)[0]
    if level is not None:
        head["featureLevel"] = level
    yield "{" + ", ".join(f"{_json(k)}: {_json(v)}" for k, v in head.items())
    yield from _subgraph_lines(table, layout, 0)
    for key, value, default in (("operandValues", values, ""), ("pools", pools, None)):
        if not (key in table.omitted and value == default):
            yield f",\n{_json(key)}: {_json(value)}"
    if table.referenced or ("referenced" not in table.omitted and table.stored is not None):
        yield ',\n"referenced": ['
        for i, subgraph in enumerate(table.referenced):
            yield ",\n{" if i else "\n{"
            yield from _subgraph_lines(subgraph, layout, i + 1, first=True)
            yield from (f",\n{_json(k)}: {_json(v)}" for k, v in subgraph.extra.items())
            yield "}"
        yield "]"
    if table.relaxed or (
        "relaxComputationFloat32toFloat16" not in table.omitted and table.stored is not None
    ):
        yield f',\n"relaxComputationFloat32toFloat16": {_json(table.relaxed)}'
    yield from (f",\n{_json(k)}: {_json(v)}" for k, v in table.extra.items())
    yield "}\n"


def _subgraph_lines(
    subgraph: Subgraph, layout: Layout | None, number: int, first: bool = False
) -> Iterator[str]:
    counts = subgraph.consumers() if layout is not None else []
    operands: Iterable[dict[str, Any]] = (
        operand_json(o)
        if layout is None
        else operand_json(o, layout.lifetimes[number][i], layout.locations[number][i], counts[i])
        for i, o in enumerate(subgraph.operands)
    )
    operations = (
        {"type": o.type, "inputs": o.inputs, "outputs": o.outputs, **o.extra}
        for o in subgraph.operations
    )
    separator = "" if first else ",\n"
    for key, lines in (("operands", operands), ("operations", operations)):
        yield f'{separator}"{key}": ['
        yield from (("," if i else "") + "\n " + _json(line) for i, line in enumerate(lines))
        yield "\n]" if getattr(subgraph, key) else "]"
        separator = ",\n"
    yield (
        f',\n"inputIndexes": {_json(subgraph.inputs)},\n"outputIndexes": {_json(subgraph.outputs)}'
    )


def operand_json(
    o: Operand,
    lifetime: Lifetime | None = None,
    location: Location | None = None,
    consumers: int | None = None,
) -> dict[str, Any]:
    """Return one operand as JSON values; `lifetime`, `location` and `consumers` come from the
    layout of a new table.
    """
    lifetime = lifetime if lifetime is not None else o.lifetime
    location = location or o.location or Location()
    item: dict[str, Any] = {
        "name": o.name,
        "type": o.type.name,
        "dimensions": [int(n) for n in o.dimensions],
        "numberOfConsumers": consumers if consumers is not None else o.consumers,
        "scale": _scale(o.scale),
        "zeroPoint": int(o.zero_point),
        "lifetime": lifetime.name if lifetime is not None else None,
        "location": {
            "poolIndex": location.pool,
            "offset": location.offset,
            "length": location.length,
        },
    }
    for key in o.omitted & item.keys():
        if item[key] in (None, "", 0) or (key == "location" and location == Location()):
            del item[key]
    if o.channel_quant is not None:
        item["extraParams"] = {
            "channelDim": int(o.channel_quant.dim),
            "scales": [_scale(s) for s in o.channel_quant.scales],
        }
    if o.boundary is not None:
        item["boundary"] = o.boundary
    return {**item, **o.extra}


def _scale(scale: float) -> float:
    # a scale is a float32; its shortest spelling that reads back the same
    return float(str(scale)) if isinstance(scale, np.floating) else scale


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
