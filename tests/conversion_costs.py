"""Count the work of one conversion in a fresh process: conversion_costs.py IN OUT TARGET prints
the modules of the package that are executed beyond their definitions, the functions in them that
are called, and how often each node that is written was lowered (the median).
"""

from __future__ import annotations

import inspect
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "converter")


def measured(source: str, target: str, flavor: str) -> dict[str, float]:
    """Convert a file and return the counts."""
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    sys.setprofile(profile)
    import converter
    from converter.mapping.rules import Table

    lower, times, nodes = Table.lower, Counter[int](), []

    def counted(table: Table, context: Any) -> None:
        nodes.append(context.node.outputs)  # kept, so that no other object has the same id
        times[id(context.node.outputs[0])] += 1
        lower(table, context)

    Table.lower = counted  # type: ignore[method-assign]
    converter.convert(source, target, target=flavor)
    sys.setprofile(None)
    functions = {
        (c.co_filename, c.co_firstlineno, c.co_name)
        for c in called
        if c.co_filename.startswith(PACKAGE) and c.co_flags & inspect.CO_OPTIMIZED
    }
    functions = {
        f for f in functions if f[2] not in ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
    }
    return {
        "modules": len({file for file, _, _ in functions}),
        "functions": len(functions),
        "lowered": statistics.median(times.values()) if times else 0,
    }


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    print(json.dumps(measured(*sys.argv[1:])))
