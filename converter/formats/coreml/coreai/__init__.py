"""Core AI models (.aimodel): read and written through Apple's bindings, in a process of their own.

format.py      Core AI as a format
package.py     the folder: program, hash, metadata
bytecode.py    the sections of MLIR bytecode, and the location of weights in them
bindings.py    calls of the worker, and their results
worker.py      the worker: parses and writes bytecode with Apple's bindings
elements.py    types of MLIR, and the elements of constants
mapping.py     the table of operations, and the capabilities of the format
rules/         rows and custom converters, by family
lift.py        a program -> the shared graph
lower.py       the shared graph -> a program
pipeline.py    the passes before lowering, in order
legalize.py    operators that Core AI lacks
barriers.py    operations that the runtime must not join
program.py     operations -> the text of a module, and its weights
collector.py   the operations that are written, and their refusals
"""
