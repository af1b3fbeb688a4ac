"""The shared graph: onnx_ir models with ONNX semantics, opset 21, IR version 10, one spelling per operator.

names.py       unique value names; foreign (boundary) names kept beside them
infer.py       type and shape of one node's outputs, known values of shape arithmetic
build.py       Builder: append or insert nodes, inferred at once
extensions.py  the `netconv` domain: operators whose definition is a function body in standard operators
catalogue/     those operators, by theme
walk.py        every graph and node including sub-graphs
shapes.py      fixing input shapes and inferring a whole graph again
invariants.py  what a canonical graph promises
text.py        ONNX's own textual syntax, weights by reference
"""

OPSET = 21
IR_VERSION = 10
EXTENSION_DOMAIN = "netconv"
CHANNELS_LAST_DOMAIN = "netconv.channels_last"
