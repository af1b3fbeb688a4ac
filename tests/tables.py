"""Statistics of the tables of each format, and of the part that several share: `make tables`.

Of kinds (layer types, operations) that rows alone read and write, without a custom converter:

`kinds`    all kinds of the format, those of custom converters included
`custom`   kinds that a custom converter reads or writes
`shared`   kinds whose rows have fields of converter/mapping, or of a package that several formats
           import and use, and nothing else; a hook is allowed. A concept in the spelling of a
           format, which overrides nothing of it but the methods of its `SPELLING`, is one of these
           fields
`private`  kinds with fields of this format alone, each of which serves three rows or more
`single`   kinds with a field that serves one row or two

and of rows: `rows`, those with a hook, those that work one way (`one-way`), those whose sample is
neither one of the laws nor a file of tests/layers (`unsampled`). Last the classes of fields that
the format declares for itself: those that serve three rows or more (`often`), and one or two
(`rarely`).

The last line counts the names of classes that several formats or dialects declare.
"""

# ruff: noqa: E402 - the script finds the modules of the tests by a path that it sets itself
from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path[0] = str(Path(__file__).resolve().parent)

from converter.mapping.fields import Field, Hook, Nested
from converter.mapping.rules import Custom, Rule, Table
from layers.exceptions import UNREAD
from test_conversion_costs import MOST, cost_of
from test_imports import repeated_names
from test_mapping_laws import ADAPTERS

FEW = 2  # rows that a field serves which is a custom converter cut in two
# packages whose fields several formats use
SHARED = (
    *("converter.mapping", "converter.passes"),
    "converter.formats.lite",
    *("converter.formats.coreml.fields", "converter.formats.openvino.fields"),
)
LAYERS = {"openvino.opset": "opset", "openvino.legacy": "legacy"}  # as tests/layers calls them


@dataclass(frozen=True)
class Count:
    kinds: int
    custom: int
    shared: int
    private: int
    single: int
    rows: int
    has_hook: int
    one_way: int
    unsampled: int
    often: int
    rarely: int

    def __add__(self, other: Count) -> Count:
        return Count(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def classes(rule: Rule) -> set[type[Field]]:
    """The classes of a row's fields, those of messages inside included."""
    return {type(f) for f in flat(rule.fields)} - {Hook}


def flat(found: tuple[Field, ...]) -> Iterator[Field]:
    for f in found:
        yield f
        if isinstance(f, Nested):
            yield from flat(f.fields)


def is_shared(cls: type[Field]) -> bool:
    """Whether a class is where several formats find it, and in a format's folder several use it; or
    a concept in a format's spelling.
    """
    shared = [c for c in cls.__mro__ if c.__module__.startswith(SHARED)]
    if cls in shared:
        return not cls.__module__.startswith("converter.formats") or len(users()[cls]) > 1
    own = {name for c in cls.__mro__ if c not in shared for name in vars(c)}
    spelling = getattr(cls, "SPELLING", None)
    if spelling is None:
        return False
    theirs = {name for c in shared for name in vars(c) if not name.startswith(("__", "_abc_"))}
    return own & theirs <= spelling


@cache
def users() -> dict[type[Field], set[str]]:
    """The formats whose rows have a field of each class."""
    found: dict[type[Field], set[str]] = defaultdict(set)
    for name, adapter in ADAPTERS.items():
        for rule in adapter.table.rules:
            for cls in classes(rule):
                found[cls].add(name)
    return found


def count(name: str, table: Table) -> Count:
    by_function = {k for e in table.entries if isinstance(e, Custom) for k in e.kinds}
    serves = Counter(c for r in table.rules for c in classes(r) if not is_shared(c))
    of_kind: dict[str, set[type[Field]]] = {}
    for rule in table.rules:
        of_kind.setdefault(rule.kind, set()).update(c for c in classes(rule) if not is_shared(c))
    rows = {kind: own for kind, own in of_kind.items() if kind not in by_function}
    least = [min((serves[c] for c in own), default=0) for own in rows.values()]
    return Count(
        kinds=len(rows.keys() | by_function),
        custom=len(by_function),
        shared=sum(n == 0 for n in least),
        private=sum(n > FEW for n in least),
        single=sum(0 < n <= FEW for n in least),
        rows=len(table.rules),
        has_hook=sum(r.has_hook for r in table.rules),
        one_way=sum(r.lift_only or r.lower_only for r in table.rules),
        unsampled=len(UNREAD.get(LAYERS.get(name, name), {})),
        often=sum(n > FEW for n in serves.values()),
        rarely=sum(n <= FEW for n in serves.values()),
    )


def counts() -> dict[str, Count]:
    found = {name: count(name, adapter.table) for name, adapter in ADAPTERS.items()}
    return {**found, "TOTAL": sum(found.values(), Count(*[0] * len(fields(Count))))}


def line(name: str, found: Count) -> str:
    return f"{name:16}" + "".join(f"{n:10}" for n in astuple(found))


if __name__ == "__main__":
    names = [f.name.replace("_", "-") for f in fields(Count)]
    print(f"{'':16}" + "".join(f"{name:>10}" for name in names))
    for name, found in counts().items():
        print(line(name, found))
    names = repeated_names()
    print(f"{len(names)} names of classes are declared more than once: {', '.join(sorted(names))}")
    print(f"\n{'':16}" + "".join(f"{name:>10}" for name in ("modules", "functions", "lowered")))
    for target in MOST:
        with TemporaryDirectory() as folder:
            used = cost_of(target, Path(folder)).values()
        print(f"{target:16}" + "".join(f"{n:10g}" for n in used))
