"""IR v10 and v11: layers are operations of the opsets, nearly all of them close to ONNX's own.

rules/        the rows and custom converters, by family, and the contexts that they see
mapping.py    the capabilities of the format, with its rows and custom converters, in one value
lift.py       Net -> graph
lower.py      graph -> Net
pipeline.py   the passes before lowering, in order
legalize.py   canonical operators rewritten for the opsets
constants.py  Const layers <-> tensors
codes.py      element types that the graph does not have
revisions.py  the opsets that changed an operation
widening.py   types that an operation takes here and its ONNX counterpart does not
"""
