"""The type of a table of decompositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

import onnx_ir as ir

from converter.graph.build import Builder
from converter.mapping.rules import index_lines

# A function of a node and a builder that inserts before it. It returns the value or values that
# replace the node's results, or None if it does not apply.
Decomposition = Callable[[ir.Node, Builder], "ir.Value | Sequence[ir.Value | None] | None"]
Table = Mapping[tuple[str, str], Decomposition]  # by domain and operator


class Decompositions(Mapping[tuple[str, str], Decomposition]):
    """The decompositions of all modules of a package, which are imported when they are first used.


    `index` lists the operators of each module: lines of a module, `rewrites`, and operators.
    """

    def __init__(self, package: str, modules: Sequence[str], index: str) -> None:
        self._package, self._modules = package, {}
        for module, _, names in index_lines(index):
            for name in names:
                domain, _, op = name.rpartition("::")
                self._modules[domain, op] = module
        assert {*self._modules.values()} <= {*modules}

    def __getitem__(self, name: tuple[str, str]) -> Decomposition:
        module = import_module(f"{self._package}.{self._modules[name]}")
        found: Decomposition = module.TABLE[name]
        return found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
