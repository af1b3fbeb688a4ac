"""IR v2 to v7: layers from before the opsets, whose ports declare shapes and types, and decide.

rules/          the rows and custom converters, by family, and the contexts that they see
mapping.py      what the format holds, with its rows and custom converters, in one value
lift.py         Net -> graph
lower.py        graph -> Net
pipeline.py     the passes before lowering, in order
legalise.py     canonical operators rewritten for legacy IR
fuse.py         constants that a layer holds itself, although the graph adds them behind it
loop_slices.py  slices that move with the step of a Loop, as lookups by that step
types.py        the types that files name, and the two in which the engine computes
fitting.py      other layers around those that the engine runs in part
loose_ends.py   which layers are needed, and ties what hangs loose, which the engine does not load
"""
