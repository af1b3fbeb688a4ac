"""The options of the commands, each declared once, as a field of a frozen dataclass.

declare.py   the declaration of a field, and the forms derived from a class of options
general.py   the options of every command
shared.py    groups of options that several commands have
convert.py   convert, extract, check, inspect, roundtrip
verify.py    verify, reduce, view, diff, run
quantize.py  quantize
batch.py     batch, report, env

The command line (converter.cli.options), the functions of `import converter`, settings files and
environment variables, job files of a batch, and the page of options are made of these classes. A
class that a function of `import converter` takes has the options that Python and the command line
share; its subclass named ...Command adds those of the command line alone. Nothing heavy is imported
here: the command line loads these modules for `--help`.
"""
