"""Layers along time."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.formats.openvino.fields import BATCH_AND_TIME, leading_axes
from converter.formats.openvino.legacy.rules.context import Reading, Writing
from converter.mapping.fields import Attr, InputType, ignore
from converter.mapping.rules import Custom, Rule, op


def all_of_them(r: Reading) -> None:
    """Without a mask every step counts."""
    if r.optional(1) is None:
        r.set_input(1, np.ones(r.static()[:2], np.float32))


class Merged(Attr):
    """The engine merges, whatever the attribute says."""

    def lower(self, w: Writing) -> None:
        if not w.attr(self.name):
            message = "repeated classes that are not merged are not known to the target"
            raise MappingError(message)
        super().lower(w)


MISSPELT = "CTCGreadyDecoder"  # as early tools wrote it

RULES: list[Rule | Custom] = [
    op(
        "ReverseSequence",
        "ReverseSequence",
        *BATCH_AND_TIME,
        InputType((1,)),
        before_lift=leading_axes,
        given="4,3,2 i64:3",
    ),
    *(
        op(
            "netconv::CTCGreedyDecoder",
            kind,
            Merged("ctc_merge_repeated", kind=bool, default=1),
            ignore("stride"),
            before_lift=all_of_them,
            given="4,1,3 4,1",
            lift_only=kind == MISSPELT,
        )
        for kind in ("CTCGreedyDecoder", MISSPELT)
    ),
    op(
        "netconv::GatherTree",
        "GatherTree",
        InputType((0, 1, 2, 3)),
        lift_only=True,
        given="i64:4,2,3 i64:4,2,3 i64:2 =i64:",
    ),
]
