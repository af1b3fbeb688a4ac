"""Constraints of an operator on its attributes and operands beyond those that onnx's inference
checks.

node.py          the checks of one node and of one value; windows, recurrence, reductions,
                 quantization
indexing.py      indices, bounds and equations
operands.py      how constants and operands fit together
enumerations.py  attributes that have one of a few words or numbers
shapes_of.py     helpers: shapes and attributes
"""
