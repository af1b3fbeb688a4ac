"""Where the themes enter their pairs."""

from __future__ import annotations

from converter.mapping.pairs import Pairs

PAIRS = Pairs()
LIFT, LOWER, lifts, lowers = PAIRS.lift, PAIRS.lower, PAIRS.lifts, PAIRS.lowers
