"""The kernels of the installed onnxruntime, in the form of `onnxruntime_kernels.json`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import onnx.defs

from converter.formats.onnx.onnxruntime_kernels import TYPES
from converter.graph import OPSET


def measured() -> dict[str, Any]:
    """The table as the installed onnxruntime says it."""
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
