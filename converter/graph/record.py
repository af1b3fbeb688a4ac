"""A lighter dataclass for what tables consist of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def record(cls: type[C]) -> type[C]:
    """A dataclass that is never changed, by convention, and is equal to nothing but itself.

    Python needs five times as long to make a class that is frozen and can be compared and shown; a
    conversion makes about a hundred of them when it starts.
    """
    return dataclass(eq=False, repr=False)(cls)
