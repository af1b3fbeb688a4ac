"""Matrix products."""

from __future__ import annotations

from typing import Any

from converter.mapping.fields import Field


class Transposes(Field):
    """Operands of a matrix product, whose last two axes are exchanged where a flag says so.

    A flag for each operand; other spellings of it follow after spaces. A vector stays as it is.
    Written, a flag is set for an operand that is stored the other way (`untransposed` of the
    format's context), and false otherwise.
    """

    def __init__(self, *flags: str) -> None:
        self.flags = [flag.split() for flag in flags]
        self.keys = tuple(key for names in self.flags for key in names)

    def lift(self, r: Any) -> None:
        for i, names in enumerate(self.flags):
            if any(r.attr(key, bool, False) for key in names):
                value = r.node.inputs[i]
                rank = r.rank(value)
                if rank > 1:
                    order = [*range(rank - 2), rank - 1, rank - 2]
                    r.node.inputs[i] = r.transpose(value, order)

    def lower(self, w: Any) -> None:
        for i, (key, *_) in enumerate(self.flags):
            stored = w.untransposed(i)
            if stored is not None:
                w.set_operand(i, stored)
            w.set(**{key: stored is not None})
