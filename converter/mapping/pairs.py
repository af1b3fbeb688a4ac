"""Where a format's special pairs are entered: readers by layer type, writers by canonical operator."""

from __future__ import annotations

from collections.abc import Callable

from converter.mapping.drive import LiftSpecial, LowerSpecial


class Pairs:
    """`lift` and `lower` are the tables that a FormatMapping takes; the decorators enter functions, each name once.

    Names may be given one by one or separated by spaces.
    """

    def __init__(self) -> None:
        self.lift: dict[str, LiftSpecial] = {}
        self.lower: dict[tuple[str, str], LowerSpecial] = {}

    def lifts(self, *kinds: str) -> Callable[[LiftSpecial], LiftSpecial]:
        """Enters the reader of layer types."""

        def enter(f: LiftSpecial) -> LiftSpecial:
            for kind in " ".join(kinds).split():
                assert kind not in self.lift, kind
                self.lift[kind] = f
            return f

        return enter

    def lowers(self, *op_types: str, domain: str = "") -> Callable[[LowerSpecial], LowerSpecial]:
        """Enters the writer of canonical operators."""

        def enter(f: LowerSpecial) -> LowerSpecial:
            for name in " ".join(op_types).split():
                assert (domain, name) not in self.lower, name
                self.lower[domain, name] = f
            return f

        return enter
