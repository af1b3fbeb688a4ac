"""One declaration, both directions: rows that relate a canonical operator with a layer of a foreign
format.

    node.py      the two sides of a row: Node (canonical) and Layer (foreign)
    codecs.py    inverse pairs of functions on single values (text <-> number, enums, flags)
    context.py   Reading and Writing: what fields, hooks and custom converters see
    fields.py    the parts of a row; each owns attributes, inputs or weights on either side and
                 carries them both ways
    concepts/    what several formats mean alike: axes, matrix products, ...
    rules.py     rows, custom converters, and the table that finds them
    lifting.py   lifting layers into a graph, with all refusals collected
    lowering.py  lowering a graph into layers, with all refusals collected
    fusing.py    which activation stands behind an operator
    target.py    what a format can hold of a graph, whatever its operators are
    narrow.py    types that a target lacks and what it carries instead
    conversion_errors.py  the exceptions by which a layer or an operator is refused

lift = foreign -> canonical, lower = canonical -> foreign.
"""
