"""The options of the commands, each declared once, as a field of a frozen dataclass.

declare.py   what a field says of itself, and what is made of a class of options
general.py   the options of every command
shared.py    groups of options that several commands have
convert.py   convert, extract, check, inspect, roundtrip
verify.py    verify, reduce, view, diff, run
quantize.py  quantize
batch.py     batch, report, env

The command line (converter.cli.options), the functions of `import converter`, settings files and
environment variables, job files of a batch, and the page of options are made of these classes. A
class that a function of `import converter` takes holds what Python and the command line share; its
subclass named ...Command adds what only the command line has. Nothing heavy is imported here: the
command line loads these modules for `--help`.
"""
