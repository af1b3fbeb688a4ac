"""Everything that the format knows about operators, in one value."""

from __future__ import annotations

from functools import cache

from converter.formats.zhouyi.ops import TABLE
from converter.formats.zhouyi.special import LIFT, LOWER
from converter.mapping.drive import FormatMapping


@cache
def mapping() -> FormatMapping:
    return FormatMapping(TABLE, LIFT, LOWER, channels_last=True)
