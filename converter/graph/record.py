"""A lightweight dataclass for entries of tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(cls: type[C]) -> type[C]:
    """Decorate a dataclass that is immutable by convention and compares by identity.

    Python takes five times as long to create a class that is frozen and has comparison and repr; a
    conversion creates about a hundred of these classes at its start.
    """
    return dataclass(eq=False, repr=False)(cls)
