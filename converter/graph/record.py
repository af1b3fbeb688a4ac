"""A lightweight dataclass for entries of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(cls: type[C]) -> type[C]:
    """Decorate a dataclass that is immutable by convention and compares by identity.

    A conversion creates about a hundred of these classes at its start. Python compiles the methods
    of a dataclass, which takes ten times as long as the class itself. So a record has no comparison
    and no repr, and all records have the same constructor.
    """
    documented = cls.__doc__
    cls.__doc__ = documented or cls.__name__  # else it would be the signature, at some cost
    made = dataclass(eq=False, repr=False, init=False)(cls)
    made.__doc__ = documented
    if "__init__" not in vars(made):
        made.__init__ = _constructor(made)  # type: ignore[method-assign]
    return made


def _constructor(cls: Any) -> Callable[..., None]:
    """Return the `__init__` of a record, as dataclasses would compile it for the class."""
    own = [f for f in fields(cls) if f.init]
    names = tuple(f.name for f in own)
    known = frozenset(names)
    defaults = {f.name: f.default for f in own if f.default is not MISSING}
    factories = {f.name: f.default_factory for f in fields(cls) if f.default_factory is not MISSING}
    required = [n for n in names if n not in defaults and n not in factories]
    after = getattr(cls, "__post_init__", None)

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        values = vars(self)
        values.update(defaults)
        values.update(zip(names, args, strict=False))
        values.update(given)
        for name, factory in factories.items():
            if name not in values:
                values[name] = factory()
        wrong = given.keys() - known or given.keys() & set(names[: len(args)])
        if wrong or len(args) > len(names) or any(n not in values for n in required):
            raise TypeError(f"{cls.__qualname__}({', '.join(names)}) got {args} and {given}")
        if after is not None:
            after(self)

    return __init__
