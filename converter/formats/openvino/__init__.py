"""OpenVINO IR: v2 to v7 as they were before the opsets (`legacy/`), and v10 and v11 (`opset/`).

format.py    the value `FORMAT`: how netconv finds, reads and writes the format
codec.py     files on disk <-> `ir.Net`, without any meaning
ir.py        layers, ports, edges and blobs as they are in a file
reader.py    XML elements -> `ir`
writer.py    `ir` -> XML elements and offsets in the .bin
xml.py       XML that is parsed without trust
names.py     the names of layers, inputs and outputs
types.py     element types, their names in ports, and their sizes
check.py     whether the layers of a file are a graph
validate.py  validation of legacy IR against its grammar
fields.py    fields, hooks and attributes that rows of both dialects share
bodies.py    layers of a body, read and written one after the other
loops.py     port maps of loops, which both dialects share
legacy/      layers of IR v2 to v7 <-> operators
opset/       operations of opset1 to opset17 <-> operators
"""
