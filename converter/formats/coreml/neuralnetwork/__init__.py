"""Core ML neural networks (`.mlmodel`): protobuf messages of layers, weights inside the file.

format.py           the format as one value

bytes <-> model
codec.py            files with their weights
model.py            a model in memory: the message, and its weights apart
weights.py          payloads of weights as slices of the file, or made while they are written
locate_error.py     the location of the damage in a file

layers <-> graph
params.py           parameters of layers: messages <-> attributes and weights
weight_encoding.py  stored weights <-> values of the graph
mapping.py          the capabilities of the format, with the table, in one value
rules/              the table of operators and layers
operands.py         tensors of one type and at least one axis, in a graph that knows types
boundary.py         declared features <-> inputs and outputs

model -> graph
lift.py             a model, its classifier or its pipeline
network.py          the layers of one network
lift_bodies.py      branches and loops

graph -> model
lower.py            a graph as a network
pipeline.py         the passes before lowering, in order
legalize.py         operators that the format lacks
collector.py        the collector of layers, and the version that they need
description.py      the declaration of a written model
"""
