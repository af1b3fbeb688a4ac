"""IR v2 to v7: layers from before the opsets, whose ports declare shapes and types, and decide.

rules/          the rows and custom converters, by family, and the contexts that they see
access.py       types by their precision, and values in the shape and type that a port declares
mapping.py      what the format holds, with its rows and custom converters, in one value
lift.py         Net -> graph
lower.py        graph -> Net
legalise.py     canonical operators rewritten for legacy IR
fuse.py         constants that a layer holds itself, although the graph adds them behind it
loop_slices.py  slices that move with the step of a Loop, as lookups by that step
types.py        the two types in which the engine computes
fitting.py      other layers around those that the engine runs in part
ordering.py     which layers are needed, and in which order they are written
loose_ends.py   ties what hangs loose, which the engine does not load
"""
