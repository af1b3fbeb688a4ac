"""What the commands do, apart from their options: one module or folder for each command, under its
name.

convert.py, run.py, inspect.py, diff.py, reduce.py, roundtrip.py
options/       the options of all commands, each declared once
verify/        two networks on the same inputs, tensor by tensor
batch/         many conversions and comparisons, in processes of their own
report/        results as text, HTML, JUnit, SARIF
view/          a model, or two, as a page

certificate.py   what was compared and found, as a statement to be checked again (for verify)
costs.py         multiplications, parameters and memory (for inspect)
dataset.py       what two models say of samples with labels (for verify)
engine_table.py  one comparison in several engines (for verify)
profile.py       which layers take the time (for run)

file_diff.py   two files of one format, field by field (for roundtrip)
provenance.py  OUT.map.json: what comes from where (for convert and verify)
explain.py     the page behind each diagnostic code
pipeline.py    the passes of a format, and what they change in a model (for explain)
startup.py     what a process of netconv's own arranges
"""
