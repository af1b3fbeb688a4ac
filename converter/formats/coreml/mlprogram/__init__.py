"""Core ML ML Programs, in an .mlpackage or a bare .mlmodel: read, and written as packages.

format.py      ML Programs as a format
compiled.py    the text of a program that Core ML compiled
blobs.py       the storage of weights outside of a model
values.py      constants of a program that is read, immediate or in the storage
names.py       names that a program may have, and their original names in the source
operations.py  the types that operations support
mapping.py     the table of operations, and the capabilities of the format
rules/         rows and custom converters, by family
boundary.py    inputs and outputs as a description declares them
lift.py        a program, or a pipeline of such -> the shared graph
lower.py       the shared graph -> a program
pipeline.py    the passes before lowering, in order
legalize.py    operators that programs lack
collector.py   the operations that are written, and their refusals
description.py inputs, outputs and states of a written program
classifier.py  the last operation of a classifier
program.py     operations -> protobuf messages
validate.py    contradictions within a program
"""
