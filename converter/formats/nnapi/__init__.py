"""NNAPI: operand tables of the Android Neural Networks API.

format.py                the interface of the format to the rest of netconv
table.py                 a model as a table: operands, operations, subgraphs
operations.py            signatures of operations, and which one an operation uses
levels.py                the lowest feature level that has everything in a table

codec.py                 a table and its JSON file with pools
json_objects.py          JSON objects with every access checked
layout.py                the location of constants in a new table
blob.py                  the flat form that PyTorch's loader takes
csource.py               C source against NeuralNetworks.h

validate.py              whether a table is valid
findings.py              diagnostics about a subgraph, with their JSON paths
validate_structure.py    indexes, roles, order of execution, references
validate_operands.py     operands by themselves
validate_operations.py   operations by their signatures
repeated.py              operations that equal earlier ones in everything that is checked
validate_shapes.py       stated dimensions against those that the graph infers

mapping.py               the table in one value
rules/                   the table of rows: operators and operations, both directions
quantization.py          quantized values and their real numbers
boundary.py              inputs and outputs whose layout or shape differs from the source

lift.py                  a table into the graph
lift_bodies.py           IF and WHILE into the graph

lower.py                 the graph into a table of the lowest feature level
collector.py             a subgraph that is being written
pipeline.py              the passes before lowering, in order
legalize.py              rewrites by feature level
"""
