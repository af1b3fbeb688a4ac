"""The work of the commands, without their options: one module or folder for each command, under
its name.

convert.py, run.py, inspect.py, diff.py, reduce.py, roundtrip.py
options/       the options of all commands, each declared once
verify/        two networks on the same inputs, tensor by tensor
quantize/      a network of integers made of one of floats, and its accuracy
batch/         many conversions and comparisons, in separate processes
report/        results as text, HTML, JUnit, SARIF
view/          one or two models as a page

certificate.py   a comparison that anyone can check again (for verify)
costs.py         multiplications, parameters and memory (for inspect)
dataset.py       the answers of two models for labeled samples (for verify)
engine_table.py  one comparison in several engines (for verify)
labels.py        the names of classes that a model carries (for run)
profile.py       execution times of layers (for run)

file_diff.py   two files of one format, field by field (for roundtrip)
provenance.py  OUT.map.json: the origin of tensors and layers (for convert and verify)
explain.py     the page for each diagnostic code
pipeline.py    the passes of a format, and their changes in a model (for explain)
startup.py     the setup of netconv's own processes
versions.py    the versions of netconv, packages and engines (for env and pages)
"""
