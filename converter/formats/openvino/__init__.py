"""OpenVINO IR: v2 to v7 as they were before the opsets (`legacy/`), and v10 and v11 (`opset/`).

format.py    the value `FORMAT`: how netconv finds, reads and writes the format
codec.py     files on disk <-> `ir.Net`, without any meaning
ir.py        layers, ports, edges and blobs as they are in a file
reader.py    XML elements -> `ir`
writer.py    `ir` -> XML elements and places in the .bin
xml.py       XML that is parsed without trust
names.py     what layers, inputs and outputs are called
types.py     element types, what ports call them, and their sizes
check.py     whether the layers of a file are a graph
validate.py  validation of legacy IR against its grammar
fields.py    fields, hooks and attributes that rows of both dialects share
bodies.py    layers of a body, read and written one after the other
loops.py     port maps of loops, which both dialects share
legacy/      layers of IR v2 to v7 <-> operators
opset/       operations of opset1 to opset17 <-> operators
"""
