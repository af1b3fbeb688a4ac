"""Core ML neural networks (`.mlmodel`): protobuf messages of layers, weights inside the file.

format            the format as one value

bytes <-> model
codec             files with their weights
wire              the protobuf wire format, walked without decoding it
proto             the generated protobuf classes
model             a model in memory: the message, and its weights beside it
weights           payloads of weights as slices of the file, or made while they are written
locate_error      where a damaged file is damaged

layers <-> graph
params            parameters of layers: messages <-> attributes and weights
weight_encoding   stored weights <-> values of the graph
mapping           what the format holds, with the table, in one value
rules             the table of operators and layers
operands          tensors of one type and at least one axis, in a graph that knows types
boundary          declared features <-> inputs and outputs

model -> graph
lift              a model, its classifier or its pipeline
network           the layers of one network
control           branches and loops

graph -> model
lower             a graph as a network
legalise          operators that the format lacks, with legalise_recurrent
legalise_recurrent  a GRU that no layer says, as a loop
collector         what layers are collected in, and the version that they need
declaring         the declaration of a written model
"""
