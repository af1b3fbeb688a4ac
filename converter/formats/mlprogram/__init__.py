"""Core ML ML Programs, in an .mlpackage or a bare .mlmodel: read.

format.py    ML Programs as a format
blobs.py     the storage of weights beside a model
values.py    constants of a program, immediate or in the storage
mapping.py   the table of operations, and what the format holds of a graph
rules/       rows and custom converters, by family
boundary.py  inputs and outputs as a description declares them
lift.py      a program, or a pipeline of such -> the shared graph
validate.py  what a program contradicts itself in
"""
