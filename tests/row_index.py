"""Write the indexes of all tables whose rows are in several modules: `make index`.

A conversion imports only the modules whose rows it uses, and finds them by these indexes.
`tests/mapping/test_row_index.py` compares the indexes with the modules.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from converter.mapping.rules import Table

CONVERTER = Path(__file__).resolve().parent.parent / "converter"
WIDTH = 100
START = '''"""The operators and layers of each module's rows; `make index` writes this file."""

INDEX = """'''
END = '"""\n'


def packages() -> Iterator[str]:
    """The packages that have an index."""
    for file in sorted(CONVERTER.rglob("index.py")):
        if "INDEX" in file.read_text(encoding="utf-8"):
            yield ".".join(file.parent.relative_to(CONVERTER.parent).parts)


def text_of(package: str) -> str:
    """Return the source text of a package's index, made of its modules."""
    families = import_module(package).FAMILIES
    lines = [
        line
        for family in families
        for verb, names in names_of(import_module(f"{package}.{family}")).items()
        for line in wrapped(f"{family} {verb}", names)
    ]
    return f"{START}\n{chr(10).join(lines)}\n{END}"


def names_of(module: ModuleType) -> Mapping[str, Sequence[str]]:
    """Return the operators and layer kinds that a module has rows or decompositions for."""
    if not hasattr(module, "RULES"):
        return {"rewrites": full_names(module.TABLE)}
    table = Table(module.RULES)
    return {"writes": full_names(table.ops()), "reads": sorted(table.kinds())}


def full_names(ops: set[tuple[str, str]] | Mapping[tuple[str, str], object]) -> list[str]:
    return [f"{domain}::{op}" if domain else op for domain, op in sorted(ops)]


def wrapped(start: str, names: Sequence[str]) -> list[str]:
    """Return lines that all have the same start."""
    return textwrap.wrap(
        " ".join(names),
        WIDTH,
        initial_indent=f"{start} ",
        subsequent_indent=f"{start} ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def file_of(package: str) -> Path:
    return CONVERTER.parent.joinpath(*package.split("."), "index.py")


if __name__ == "__main__":
    for package in packages():
        file_of(package).write_text(text_of(package), encoding="utf-8")
