"""Matrix products."""

from __future__ import annotations

from typing import Any

from converter.mapping.fields import Field


class Transposes(Field):
    """Flags of a matrix product's operands: the last two axes of an operand are exchanged if its
    flag is set.

    Each operand has one flag; alternative spellings of its key follow after spaces. Vectors are
    left unchanged. When writing, the flag is set if the operand is stored transposed
    (`untransposed` of the format's context), and false otherwise.
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
