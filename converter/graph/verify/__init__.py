"""What an operator demands of its attributes and operands beyond what onnx's inference looks at.

node.py          the checks of one node and of one value; windows, recurrence, reductions,
                 quantisation
indexing.py      places, bounds and equations
operands.py      how constants and operands fit each other
enumerations.py  attributes that take one of a few words or numbers
shapes_of.py     shapes and attributes as checks look at them
"""
