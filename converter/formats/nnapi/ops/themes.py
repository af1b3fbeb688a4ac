"""Every module that enters functions into LIFT and LOWER, imported for that."""

from converter.formats.nnapi.ops import blocks, elementwise, lookups, recurrent, reductions, regions, resize, sequences, shapes, windows

THEMES = (blocks, elementwise, lookups, recurrent, reductions, regions, resize, sequences, shapes, windows)
