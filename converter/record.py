"""Lightweight dataclasses: Python compiles the methods of a dataclass, which takes ten times as
long as the class itself, and a conversion creates about two hundred of them at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(cls: type[C]) -> type[C]:
    """Decorate a dataclass that is immutable by convention and compares by identity.

    It has no comparison and no repr, and all records have the same constructor, which is slower
    than a compiled one.
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
    """Decorate a class like `dataclass(frozen=True)`: a record that cannot be changed, with a hash,
    equality and a repr by its fields.
    """
    made = by_fields(record(cls))
    content = attrgetter(*(f.name for f in fields(made) if f.compare))  # type: ignore[arg-type]
    made.__hash__ = lambda self: hash(content(self))  # type: ignore[method-assign]
    made.__setattr__ = made.__delattr__ = _refuse_change  # type: ignore[method-assign]
    return made


@dataclass_transform(field_specifiers=(field,))
def structure(cls: type[C]) -> type[C]:
    """Decorate a class like `dataclass(slots=True)`, for the parts of a file: there may be many, so
    that the constructor is compiled; equality and repr are common to all structures.
    """
    return by_fields(dataclass(eq=False, repr=False, slots=True)(cls))


def by_fields(cls: type[C]) -> type[C]:
    """Give a dataclass without equality and repr the common ones."""
    content = attrgetter(*(f.name for f in fields(cls) if f.compare))  # type: ignore[arg-type]

    def __eq__(self: Any, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        same: bool = content(self) == content(other)
        return same

    cls.__eq__ = __eq__  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    if "__repr__" not in vars(cls):
        cls.__repr__ = _text  # type: ignore[method-assign]
    return cls


def _text(self: Any) -> str:
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_change(self: Any, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


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
