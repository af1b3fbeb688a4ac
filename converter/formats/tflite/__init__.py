"""TensorFlow Lite files, read and written by rows of their own.

format.py            TensorFlow Lite as a format
schema.py            the generated schema of its files
codec.py             bytes to and from plain values
options.py           options of builtin operators, by the names of the schema
associated.py        files behind the flatbuffer, mostly lists of labels
custom.py            options of operators that are no builtins
sparsity.py          constants that are stored without their zeros
tensors.py           tensors as values: types, constants, stored integers and real numbers
kernels.py           what LiteRT's kernels take: types, numbers of axes, scales of results
versions.py          the version of an operator that has what it uses
mapping.py           the table of operators, and what the format holds of a graph
rules/               rows and custom converters, by family
lift.py              a file -> the shared graph
pipeline.py          the passes before lowering, in order
legalise.py          a graph that rows can say: operators, types, numbers of axes, layout
integers.py          stored integers of quantized graphs: signed, and moved as they are
collector.py         the operators of one graph, before they have tensors
lower.py             the shared graph -> a file
buffers.py           buffers that LiteRT shares although somebody still reads them
"""
