"""TensorFlow Lite files, by way of NNAPI's operand tables: the operators that NNAPI has.

format.py      TensorFlow Lite as a format
schema.py      the generated schema of its files
flatbuffer.py  bytes to and from plain values
arguments.py   arguments of operators as operands of a table
reader.py      a file as an operand table
writer.py      an operand table as a file
rules.py       NNAPI operations and TensorFlow Lite operators: one row for each pair
converters.py  what the rows leave to functions
rewrites.py    operators that NNAPI says with two of its own
buffers.py     buffers that LiteRT shares although somebody still reads them
"""
