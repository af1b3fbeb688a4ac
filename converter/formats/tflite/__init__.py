"""TensorFlow Lite files: read by rows of their own, written by way of NNAPI's operand tables.

format.py            TensorFlow Lite as a format
schema.py            the generated schema of its files
flatbuffer.py        bytes to and from plain values
options.py           options of builtin operators, by the names of the schema
custom.py            options of operators that are no builtins
sparsity.py          constants that are stored without their zeros
tensors.py           tensors as values: types, constants, stored integers and real numbers
mapping.py           the table of operators, and what the format holds of a graph
rules/               rows and custom converters, by family
lift.py              a file -> the shared graph
writer.py            an operand table as a file
arguments.py         arguments of operations of a table
table_rules.py       NNAPI operations and TensorFlow Lite operators: one row for each pair
table_converters.py  what those rows leave to functions
buffers.py           buffers that LiteRT shares although somebody still reads them
"""
