"""C source that builds a table through NeuralNetworks.h, for an application that uses the NDK.

Written, not read.

`NAME.nnapi.c` holds the operands and operations as constant tables and one function,

    int NAME_build(ANeuralNetworksMemory *weights, ANeuralNetworksModel **model);

which adds them in the order of the table, so that operand indexes stay. `NAME.nnapi.c.bin` holds
the values above 128 bytes; the caller maps it with ANeuralNetworksMemory_createFromFd. The
functions that it calls need the API level of the table's feature level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from string import Template

import numpy as np

from converter.errors import Diagnostic
from converter.formats.nnapi.layout import Layout, by_size, lay_out
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.operations import code_of
from converter.formats.nnapi.table import Lifetime, Subgraph, Table
from converter.io.files import Output

# API levels of the feature levels; later ones are updated apart from the platform.
_API = {1: 27, 2: 28, 3: 29, 4: 30, 5: 31}


def write_c(table: Table, out: Output) -> list[Diagnostic]:
    """Write a table as C source and its large values as a separate file; everything in the table
    that affects the computation is preserved.
    """
    clean = by_size(table)
    layout = lay_out(clean)
    name = identifier(out.stem.removesuffix(".nnapi"))
    suffix = ".c.bin" if out.stem.endswith(".nnapi") else ".nnapi.c.bin"
    if layout.chunks:
        out.stream(suffix, layout.pool())
    with out.open() as f:
        f.writelines(line.encode() for line in _source(clean, layout, name, out.path(suffix).name))
    return []


def identifier(name: str) -> str:
    """Return a C identifier for a file name."""
    word = re.sub(r"[^0-9A-Za-z_]", "_", name)
    return word if re.match(r"[A-Za-z]", word) else f"model_{word}"


_HEAD = Template("""\
/* A neural network for Android's NNAPI, feature level $level (API level $api), written by netconv.
 *
 * Build it with $name_build(); `weights` maps the file $weights, or is NULL when the model has no
 * large values. */
#include <stddef.h>
#include <stdint.h>

#include <android/NeuralNetworks.h>

typedef struct {
    int32_t type; uint32_t rank; uint32_t dimensions; float scale; int32_t zero_point;
} Operand;
typedef struct { uint32_t operand; uint32_t offset; uint32_t length; } Value;
typedef struct {
    int32_t type; uint32_t inputs; uint32_t input_count; uint32_t outputs; uint32_t output_count;
} Operation;
typedef struct {
    uint32_t operand; uint32_t dimension; uint32_t count; const float *scales;
} Channels;
typedef struct { uint32_t operand; uint32_t model; } Reference;

int $name_build(ANeuralNetworksMemory *weights, ANeuralNetworksModel **model);

""")

_STEP = "    if (status == ANEURALNETWORKS_NO_ERROR) status = {};\n"


def _source(table: Table, layout: Layout, name: str, weights: str) -> Iterator[str]:
    level = feature_level(table)[0]
    yield _HEAD.substitute(
        name=name,
        level=level,
        api=_API.get(level, "31 with an updated NNAPI"),
        weights=weights,
        name_build=f"{name}_build",
    )
    if layout.values:
        yield "/* values of up to 128 bytes; a union with int64_t aligns them */\n"
        padded = layout.values + bytes(-len(layout.values) % 4)
        words = np.frombuffer(padded, "<u4")
        yield from _array("uint32_t", "values", (f"0x{w:08x}u" for w in words.tolist()))
    for number, (_, subgraph) in enumerate(table.subgraphs()):
        yield from _tables(subgraph, layout, number)
    order = _children_first(table)
    for number in order:
        yield from _function(table, layout, number)
    yield from _entry(table, name, order)


def _array(kind: str, name: str, items: Iterable[str], per_line: int = 8) -> Iterator[str]:
    items = list(items)
    yield f"static const {kind} {name}[] = {{\n"
    for i in range(0, len(items), per_line):
        yield "    " + ", ".join(items[i : i + per_line]) + ",\n"
    yield "};\n"


def _tables(subgraph: Subgraph, layout: Layout, n: int) -> Iterator[str]:
    indexes: list[int] = []

    def keep(values: list[int]) -> int:
        indexes.extend(values)
        return len(indexes) - len(values)

    operands = [
        f"{{{int(o.type)}, {len(o.dimensions)}, {keep(o.dimensions)}, {_float(o.scale)}, "
        f"{o.zero_point}}} /* {i} {_comment(o.name)} */"
        for i, o in enumerate(subgraph.operands)
    ]
    rows = [
        f"{{{code_of(o.type)}, {keep(o.inputs)}, {len(o.inputs)}, {keep(o.outputs)}, "
        f"{len(o.outputs)}}} /* {o.type} */"
        for o in subgraph.operations
    ]
    ends = (keep(subgraph.inputs), keep(subgraph.outputs))
    lifetimes, locations = layout.lifetimes[n], layout.locations[n]
    yield from _array("uint32_t", f"indexes{n}", [f"{v}u" for v in indexes] or ["0"], 16)
    yield f"enum {{ inputs{n} = {ends[0]}, outputs{n} = {ends[1]} }};\n"
    yield from _array("Operand", f"operands{n}", operands, 1)
    yield from _array("Operation", f"operations{n}", rows, 1)
    for kind, lifetime in (
        ("copies", Lifetime.CONSTANT_COPY),
        ("references", Lifetime.CONSTANT_REFERENCE),
    ):
        found = [
            f"{{{i}, {at.offset}, {at.length}}}"
            for i, at in enumerate(locations)
            if lifetimes[i] is lifetime
        ]
        if found:
            yield from _array("Value", f"{kind}{n}", found, 4)
    missing = [f"{i}" for i, lifetime in enumerate(lifetimes) if lifetime is Lifetime.NO_VALUE]
    if missing:
        yield from _array("uint32_t", f"missing{n}", missing, 16)
    children = [
        f"{{{i}, {o.subgraph}}}"
        for i, o in enumerate(subgraph.operands)
        if lifetimes[i] is Lifetime.SUBGRAPH
    ]
    if children:
        yield from _array("Reference", f"children{n}", children)
    yield from _channels(subgraph, n)


def _channels(subgraph: Subgraph, n: int) -> Iterator[str]:
    rows = []
    for i, operand in enumerate(subgraph.operands):
        if operand.channel_quant is not None:
            yield from _array("float", f"scales{n}_{i}", map(_float, operand.channel_quant.scales))
            rows.append(
                f"{{{i}, {operand.channel_quant.dim}, {len(operand.channel_quant.scales)}, "
                f"scales{n}_{i}}}"
            )
    if rows:
        yield from _array("Channels", f"channels{n}", rows, 1)


_BUILD = Template("""\

static int build$n(ANeuralNetworksModel *model, ANeuralNetworksMemory *weights,
                   ANeuralNetworksModel *const *models) {
    int status = ANEURALNETWORKS_NO_ERROR;
    size_t i;
    (void)weights;
    (void)models;
    for (i = 0; i < sizeof operands$n / sizeof *operands$n && status == ANEURALNETWORKS_NO_ERROR;
         ++i) {
        const Operand *o = &operands$n[i];
        ANeuralNetworksOperandType type;
        type.type = o->type;
        type.dimensionCount = o->rank;
        type.dimensions = o->rank ? indexes$n + o->dimensions : NULL;
        type.scale = o->scale;
        type.zeroPoint = o->zero_point;
        status = ANeuralNetworksModel_addOperand(model, &type);
    }
""")

_LOOP = Template(
    "    for (i = 0; i < sizeof $array / sizeof *$array && status == "
    "ANEURALNETWORKS_NO_ERROR; ++i) {\n$body    }\n"
)

_CHANNEL_BODY = Template("""\
        ANeuralNetworksSymmPerChannelQuantParams parameters;
        parameters.channelDim = channels$n[i].dimension;
        parameters.scaleCount = channels$n[i].count;
        parameters.scales = channels$n[i].scales;
        status = ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
            model, (int32_t)channels$n[i].operand, &parameters);
""")

_COPY_BODY = (
    "        const Value *v = &copies{n}[i];\n"
    "        status = ANeuralNetworksModel_setOperandValue(model, (int32_t)v->operand, "
    "(const uint8_t *)values + v->offset, v->length);\n"
)
_REFERENCE_BODY = (
    "        const Value *v = &references{n}[i];\n"
    "        status = ANeuralNetworksModel_setOperandValueFromMemory(model, "
    "(int32_t)v->operand, weights, v->offset, v->length);\n"
)
_MISSING_BODY = (
    "        status = ANeuralNetworksModel_setOperandValue(model, "
    "(int32_t)missing{n}[i], NULL, 0);\n"
)
_CHILD_BODY = (
    "        status = ANeuralNetworksModel_setOperandValueFromModel(model, "
    "(int32_t)children{n}[i].operand, models[children{n}[i].model]);\n"
)
_OPERATION_BODY = (
    "        const Operation *o = &operations{n}[i];\n"
    "        status = ANeuralNetworksModel_addOperation(\n"
    "            model, o->type, o->input_count, indexes{n} + o->inputs, o->output_count, "
    "indexes{n} + o->outputs);\n"
)


def _function(table: Table, layout: Layout, n: int) -> Iterator[str]:
    subgraph = [s for _, s in table.subgraphs()][n]
    present = set(layout.lifetimes[n])
    yield _BUILD.substitute(n=n)
    if any(o.channel_quant is not None for o in subgraph.operands):
        yield _LOOP.substitute(array=f"channels{n}", body=_CHANNEL_BODY.substitute(n=n))
    for lifetime, array, body in (
        (Lifetime.CONSTANT_COPY, "copies", _COPY_BODY),
        (Lifetime.CONSTANT_REFERENCE, "references", _REFERENCE_BODY),
        (Lifetime.NO_VALUE, "missing", _MISSING_BODY),
        (Lifetime.SUBGRAPH, "children", _CHILD_BODY),
    ):
        if lifetime in present:
            yield _LOOP.substitute(array=f"{array}{n}", body=body.format(n=n))
    yield _LOOP.substitute(array=f"operations{n}", body=_OPERATION_BODY.format(n=n))
    ends = (
        f"{len(subgraph.inputs)}, indexes{n} + inputs{n}, {len(subgraph.outputs)}, indexes{n} + "
        f"outputs{n}"
    )
    yield _STEP.format(f"ANeuralNetworksModel_identifyInputsAndOutputs(model, {ends})")
    if table.relaxed:
        yield _STEP.format("ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, true)")
    yield _STEP.format("ANeuralNetworksModel_finish(model)")
    yield "    return status;\n}\n"


def _entry(table: Table, name: str, order: list[int]) -> Iterator[str]:
    """The public function; with subgraphs they are built first, and stay alive because the main
    model refers to them.
    """
    count = len(table.referenced)
    yield f"\nint {name}_build(ANeuralNetworksMemory *weights, ANeuralNetworksModel **model) {{\n"
    if count:
        yield (
            "    /* referenced models outlive the main one; they are freed only when building "
            f"fails */\n    static ANeuralNetworksModel *models[{count}];\n"
        )
    else:
        yield "    ANeuralNetworksModel *const *models = NULL;\n"
    yield "    int status = ANEURALNETWORKS_NO_ERROR;\n    *model = NULL;\n"
    for number in order[:-1]:
        yield _STEP.format(f"ANeuralNetworksModel_create(&models[{number - 1}])")
        yield _STEP.format(f"build{number}(models[{number - 1}], weights, models)")
    yield _STEP.format("ANeuralNetworksModel_create(model)")
    yield _STEP.format("build0(*model, weights, models)")
    yield (
        "    if (status != ANEURALNETWORKS_NO_ERROR) {\n        "
        "ANeuralNetworksModel_free(*model);\n        *model = NULL;\n"
    )
    for number in order[:-1]:
        yield (
            f"        ANeuralNetworksModel_free(models[{number - 1}]);\n        "
            f"models[{number - 1}] = NULL;\n"
        )
    yield "    }\n    return status;\n}\n"


def _children_first(table: Table) -> list[int]:
    """Return the indices of the subgraphs (0 is the main one), each after those that it
    refers to.
    """
    children = {
        number: [o.subgraph + 1 for o in graph.operands if o.subgraph is not None]
        for number, (_, graph) in enumerate(table.subgraphs())
    }
    return [*filter(None, TopologicalSorter(children).static_order()), 0]


def _float(value: float) -> str:
    # hexadecimal: exact, and C99
    return f"{float(np.float32(value)).hex()}f"


def _comment(name: str) -> str:
    return re.sub(r"[^ -~]|[*/\\?]", "_", name)[:60]
