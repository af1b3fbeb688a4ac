"""A lightweight dataclass for entries of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
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


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def comparable(cls: type[C]) -> type[C]:
    """Decorate a class like `record`, and add a hash and equality by its fields."""
    made = record(cls)
    content = attrgetter(*(f.name for f in fields(made)))  # type: ignore[arg-type]

    def __eq__(self: Any, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        same: bool = content(self) == content(other)
        return same

    def __hash__(self: Any) -> int:
        return hash(content(self))

    made.__eq__ = __eq__  # type: ignore[method-assign]
    made.__hash__ = __hash__  # type: ignore[method-assign]
    return made


def _constructor(cls: Any) -> Callable[..., None]:
    """Return the `__init__` of a record, as dataclasses would compile it for the class."""
    own = [f for f in fields(cls) if f.init]
    names = tuple(f.name for f in own)
    defaults = {f.name: f.default for f in own if f.default is not MISSING}
    factories = {f.name: f.default_factory for f in fields(cls) if f.default_factory is not MISSING}
    every = frozenset(names) | factories.keys()
    after = getattr(cls, "__post_init__", None)

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        values: dict[str, Any] = self.__dict__
        values.update(defaults)
        values.update(zip(names, args, strict=False))
        twice = args and given and not given.keys().isdisjoint(names[: len(args)])
        values.update(given)
        for name, factory in factories.items():
            if name not in values:
                values[name] = factory()
        if twice or len(args) > len(names) or values.keys() != every:
            raise TypeError(f"{cls.__qualname__}({', '.join(names)}) got {args} and {given}")
        if after is not None:
            after(self)

    return __init__
