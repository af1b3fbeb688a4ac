"""How much of each format its tables say: `make tables`.

A kind (a layer type, an operation) is a row when fields own all of it in both directions: no custom
converter reads or writes it. `hooked` are rows with a hook; `functions` are the functions of custom
converters, each counted once.
"""

from __future__ import annotations

from dataclasses import dataclass

from converter.formats.coreai.mapping import MAPPING as COREAI
from converter.formats.coreml.mapping import MAPPING as COREML
from converter.formats.mlprogram.mapping import MAPPING as MLPROGRAM
from converter.formats.nnapi import rules as nnapi
from converter.formats.openvino.legacy.mapping import MAPPING as LEGACY
from converter.formats.openvino.opset.mapping import MAPPING as OPSETS
from converter.formats.tflite.mapping import MAPPING as TFLITE
from converter.formats.zhouyi.mapping import MAPPING as ZHOUYI
from converter.mapping.rules import Custom, Rule, Table


@dataclass(frozen=True)
class Count:
    name: str
    kinds: int
    rows: int
    hooked: int
    functions: int

    def __str__(self) -> str:
        return f"{self.name:9} {self.kinds:5} {self.rows:5} {self.hooked:5} {self.functions:5}"


def count(name: str, table: Table) -> Count:
    customs = [e for e in table.entries if isinstance(e, Custom)]
    by_function = {k for e in customs for k in e.kinds}
    rules = [e for e in table.entries if isinstance(e, Rule) and e.kind not in by_function]
    rows, hooked = {r.kind for r in rules}, {r.kind for r in rules if r.hooked}
    functions = {f for e in customs for f in (e.lift_, e.lower_) if f is not None}
    return Count(name, len(rows | by_function), len(rows), len(hooked), len(functions))


def counts() -> list[Count]:
    found = [
        count("coreml", COREML.table),
        count("legacy", LEGACY.table),
        count("opsets", OPSETS.table),
        count("zhouyi", ZHOUYI.table),
        count("nnapi", nnapi.TABLE),
        count("tflite", TFLITE.table),
        count("mlprogram", MLPROGRAM.table),
        count("coreai", COREAI.table),
    ]
    total = ((c.kinds, c.rows, c.hooked, c.functions) for c in found)
    return [*found, Count("TOTAL", *(sum(column) for column in zip(*total, strict=True)))]


if __name__ == "__main__":
    print("name kinds rows hooked functions")
    for one in counts():
        print(one)
