"""Zhouyi Compass IR: a text file of layers, and a `.bin` file of constants.

format         the format as one value

bytes <-> document
codec          files, and the same without files
blocks         lines <-> blocks
layers         blocks <-> layers
values         text of single values
bind           constants and their bytes
ir             the nodes of a document
names          names that every reader takes
sidemap        names that the format cannot carry
types          types of the format and of the graph

validation
operators      the allowed content of a layer of each type
topology       the graph of a document
validate       whether a document is sound
linting        everything that is wrong with a document
unsupported    layer types whose meaning is undocumented

layers <-> graph
rules          the table of operators and layers
mapping        the table with the contexts of its converters
fused          activations that are fused into another layer
quantization   layers on quantized values, both ways
lift_document  document -> graph
lift           layers -> nodes
lift_bodies    sub-graphs -> bodies of If and Loop
lower          graph -> document
bodies         bodies of If and Loop -> sub-graphs
pipeline       the passes before lowering, in order
legalize       operators that the format lacks
legalize_windows  windows and matrix products among them
"""
