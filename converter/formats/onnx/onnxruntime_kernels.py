"""Which types onnxruntime's CPU kernels have, for each operator of opset 21: data measured on the
oldest release that we support.

`onnxruntime_kernels.json` maps an operator to its kernels; a kernel maps the type parameters of the
operator's schema to the tensor types it takes. `measured()` asks the installed onnxruntime for the
same table; tests compare the two: later releases have more.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx.defs
import onnx_ir as ir

from converter.graph import OPSET

Kernel = dict[str, frozenset[ir.DataType]]
_FILE = Path(__file__).with_name("onnxruntime_kernels.json")
_NO_DOUBLE = ("GRU", "LSTM", "RNN")  # registered for doubles, but refuse them when they run
_OTHER = {
    "FLOAT": "float",
    "DOUBLE": "double",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "BOOL": "bool",
    "STRING": "string",
}
TYPES = {_OTHER.get(t.name, t.name.lower()): t for t in ir.DataType}


@functools.cache
def kernels() -> dict[str, list[Kernel]]:
    """Operator -> kernels, each parameter -> types. An operator that is absent has no kernel of its
    own.
    """
    data = json.loads(_FILE.read_text())["kernels"]
    table = {
        op: [
            {p: frozenset(TYPES[t] for t in types.split()) for p, types in k.items()} for k in found
        ]
        for op, found in data.items()
    }
    for op in _NO_DOUBLE:
        table[op] = [{p: types - {ir.DataType.DOUBLE} for p, types in k.items()} for k in table[op]]
    return table


def measured() -> dict[str, Any]:
    """The table as the installed onnxruntime says it, in the form of the JSON file."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    by_name: dict[str, list[Any]] = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        if kernel.domain in ("", "ai.onnx") and kernel.provider == "CPUExecutionProvider":
            by_name[kernel.op_name].append(kernel)
    table = {}
    for name in sorted(by_name):
        try:
            schema = onnx.defs.get_schema(name, OPSET)
        except onnx.defs.SchemaError:
            continue
        found = [
            _types(k)
            for k in by_name[name]
            if k.version_range[0] <= schema.since_version <= k.version_range[1]
        ]
        if found:
            table[name] = _joined(found)
    return {"onnxruntime": onnxruntime.__version__, "opset": OPSET, "kernels": table}


def _types(kernel: Any) -> dict[str, frozenset[str]]:
    return {
        p: frozenset(t[7:-1] for t in types if t.startswith("tensor("))
        for p, types in kernel.type_constraints.items()
    }


def _joined(kernels: list[dict[str, frozenset[str]]]) -> list[dict[str, str]]:
    """Kernels that differ in one parameter only become one."""
    result: list[dict[str, frozenset[str]]] = []
    for kernel in kernels:
        for known in result:
            differing = (
                [p for p in known if known[p] != kernel.get(p)]
                if known.keys() == kernel.keys()
                else ["", ""]
            )
            if len(differing) <= 1:
                known.update({p: known[p] | kernel[p] for p in differing})
                break
        else:
            result.append(dict(kernel))
    known_types = set(TYPES)
    return sorted(
        ({p: " ".join(sorted(t & known_types)) for p, t in sorted(k.items())} for k in result),
        key=str,
    )
