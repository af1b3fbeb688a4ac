"""Passes over the shared graph: one file, one pass. Each takes an `ir.Model` and changes it in place.

fold.py           constants computed, shape arithmetic replaced by what it is known to be
unroll.py         loops and choices that are known, written out
legalise.py       what a target cannot express is rewritten until it can, or left to be refused
decompose.py      rewrites of canonical operators into simpler ones that any target may use
channels_last.py  the layout pass, both ways
tidy.py           dead nodes and unused initializers removed
"""
