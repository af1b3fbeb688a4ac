"""Where the themes enter their pairs."""

from __future__ import annotations

from collections.abc import Callable

from converter.mapping.drive import LiftSpecial, LowerSpecial

LIFT: dict[str, LiftSpecial] = {}
LOWER: dict[tuple[str, str], LowerSpecial] = {}


def lifts(kinds: str) -> Callable[[LiftSpecial], LiftSpecial]:
    """Enters a lifting function for the layers named in `kinds` (separated by spaces)."""

    def enter(f: LiftSpecial) -> LiftSpecial:
        for kind in kinds.split():
            assert kind not in LIFT, kind
            LIFT[kind] = f
        return f

    return enter


def lowers(ops: str, domain: str = "") -> Callable[[LowerSpecial], LowerSpecial]:
    """Enters a lowering function for the operators named in `ops`."""

    def enter(f: LowerSpecial) -> LowerSpecial:
        for name in ops.split():
            assert (domain, name) not in LOWER, name
            LOWER[domain, name] = f
        return f

    return enter
