"""IR v10 and v11: layers are operations of the opsets, nearly all of them close to ONNX's own.

ops.py       the rows
special.py   the pairs that no row can say
legalise.py  canonical operators rewritten for the opsets
lift.py      Net -> graph      lower.py      graph -> Net
"""
