"""Declarations for both directions: rows that relate a canonical operator to a layer of a foreign
format.

    node.py      the two sides of a row: Node (canonical) and Layer (foreign)
    codecs.py    inverse pairs of functions on single values (text <-> number, enums, flags)
    context.py   Reading and Writing: the interface of fields, hooks and custom converters
    fields.py    the parts of a row; each owns attributes, inputs or weights on either side and
                 converts them in both directions
    concepts/    concepts that several formats share: axes, matrix products, ...
    rules.py     rows, custom converters, and the table that looks them up
    lifting.py   lifting layers into a graph, with all refusals collected
    lowering.py  lowering a graph into layers, with all refusals collected
    fusing.py    activations that follow an operator
    target.py    constraints of a format on a graph that do not depend on operators
    narrow.py    types that a target lacks, and their replacements
    conversion_errors.py  the exceptions that refuse a layer or an operator

lift = foreign -> canonical, lower = canonical -> foreign.
"""
