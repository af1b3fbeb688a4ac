"""Operand tables of NNAPI in LiteRT, operation by operation, without the graph: what an engine that
shares no code with the readers makes of a table.

rules.py       operations and operators of TensorFlow Lite: one row for each pair
converters.py  what those rows leave to functions
arguments.py   the arguments of an operation by name
writer.py      a table as a file, and its run
"""
