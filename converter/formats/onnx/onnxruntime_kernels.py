"""The types that onnxruntime's CPU kernels support, for each operator of opset 21: measured on the
oldest release that we support.

`onnxruntime_kernels.json` maps an operator to its kernels; a kernel maps the type parameters of the
operator's schema to the tensor types it takes. `tests/measured_kernels.py` measures the same table
with the installed onnxruntime; tests compare the two: later releases have more.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import onnx_ir as ir

Kernel = dict[str, frozenset[ir.DataType]]
_FILE = Path(__file__).with_name("onnxruntime_kernels.json")
_NO_DOUBLE = ("GRU", "LSTM", "RNN")  # registered for doubles, but refuse them when they run
TYPES = {t.name.lower(): t for t in ir.DataType}


@functools.cache
def kernels() -> dict[str, list[Kernel]]:
    """Return the kernels of each operator: the types of each parameter. Operators without an entry
    have no kernel.
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
