"""IR v2 to v7: layers from before the opsets, whose ports declare the authoritative shapes and
types.

rules/          the rows and custom converters, by family, and the contexts that they see
mapping.py      the capabilities of the format, with its rows and custom converters, in one value
lift.py         Net -> graph
lower.py        graph -> Net
pipeline.py     the passes before lowering, in order
legalize.py     canonical operators rewritten for legacy IR
fuse.py         constants that the graph adds after an operator, as part of its layer
loop_slices.py  slices that move with the iteration of a Loop, as lookups by that number
types.py        the types that files name, and the two in which the engine computes
fitting.py      workarounds for layers that the engine runs only in part
loose_ends.py   removal of unused layers, and ties for disconnected parts
"""
