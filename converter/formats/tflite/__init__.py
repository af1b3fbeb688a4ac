"""TensorFlow Lite files, read and written by rows of their own.

format.py            TensorFlow Lite as a format
schema.py            the generated schema of its files
codec.py             bytes to and from plain values
options.py           options of builtin operators, by the names of the schema
associated.py        files appended to the flatbuffer, mostly lists of labels
custom.py            options of operators that are not builtins
sparsity.py          constants that are stored without their zeros
tensors.py           tensors as values: types, constants, quantized values and real numbers
kernels.py           limits of LiteRT's kernels: types, ranks, scales of results
versions.py          the lowest version of an operator that supports its features
mapping.py           the table of operators, and the capabilities of the format
rules/               rows and custom converters, by family
lift.py              a file -> the shared graph
pipeline.py          the passes before lowering, in order
legalize.py          legalize a graph for the rows: operators, types, ranks, layout
integers.py          integers of quantized graphs: made signed, and moved without dequantization
collector.py         the operators of one graph, before they have tensors
lower.py             the shared graph -> a file
buffers.py           copies of buffers that LiteRT would overwrite too early
"""
