"""ai.onnx operators of every opset to and from opset 21, the one of the shared graph.

v1_6.py             reading opsets 1 to 6, and operators that never became standard
upgrade.py          reading opsets below 21
v22_plus.py         reading opsets above 21
downgrade.py        writing other opsets
decompose_newer.py  writing opsets below 21: computed inputs that were attributes then
"""
