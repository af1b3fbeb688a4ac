"""The name of the package `converter` for programs: `import netconv` gives that very package, even
if the working folder has a module of the name `converter`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from converter import *  # noqa: F403 - its `__all__` lists the names
    from converter import __version__ as __version__

_REAL = "converter"
_HERE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(_HERE, "__main__.py")
# installed next to it; in a checkout this is converter/alias/netconv, so that no folder of the
# package is a folder of modules
_INSTALLED = os.path.join(os.path.dirname(_HERE), _REAL)
_FOLDER = (
    _INSTALLED
    if os.path.isfile(os.path.join(_INSTALLED, "api.py"))
    else os.path.dirname(os.path.dirname(_HERE))
)


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find netconv.NAME as converter.NAME: the same module, which is loaded once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        begin, _, rest = name.partition(".")
        if begin != "netconv" or not rest:
            return None
        if rest == "__main__":
            return importlib.util.spec_from_file_location(name, _MAIN)
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_REAL + spec.name.removeprefix("netconv"))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the attributes of the module that the import system has changed."""
        alias = module.__spec__
        module.__spec__ = None if alias is None else alias.loader_state


def _package() -> ModuleType:
    """Return the package next to this one. A module of another origin that has its name, such as a
    user's own converter.py, stays as it is for those who have imported it.
    """
    found = sys.modules.get(_REAL)
    if found is not None and _FOLDER in getattr(found, "__path__", ()):
        return found
    place = os.path.join(_FOLDER, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        _REAL, place, submodule_search_locations=[_FOLDER]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules[_REAL] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__["_replaced"] = found
    return module


if not TYPE_CHECKING:
    sys.meta_path.insert(0, _Alias())
    sys.modules[__name__] = _package()
