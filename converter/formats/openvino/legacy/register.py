"""Where the pairs that no row can say are entered, each with the attributes that it knows."""

from __future__ import annotations

from collections.abc import Callable

from converter.mapping.drive import LiftSpecial, LowerSpecial

LIFT: dict[str, LiftSpecial] = {}
ATTRIBUTES: dict[str, tuple[str, ...]] = {}
LOWER: dict[tuple[str, str], LowerSpecial] = {}


def lifts(kind: str, *attributes: str) -> Callable[[LiftSpecial], LiftSpecial]:
    """Enters the reader of a layer type; `attributes` are those that mean something or are known to mean nothing."""

    def enter(f: LiftSpecial) -> LiftSpecial:
        for name in kind.split():
            assert name not in LIFT, name
            LIFT[name] = f
            ATTRIBUTES[name] = attributes
        return f

    return enter


def lowers(*op_types: str, domain: str = "") -> Callable[[LowerSpecial], LowerSpecial]:
    """Enters the writer of canonical operators."""

    def enter(f: LowerSpecial) -> LowerSpecial:
        for name in op_types:
            assert (domain, name) not in LOWER, name
            LOWER[domain, name] = f
        return f

    return enter
