"""One declaration, both directions: rows that relate a canonical operator with a foreign layer.

    node.py    the two sides a row relates: Node (canonical, near) and Layer (foreign, far)
    codecs.py  inverse pairs of functions on single values (text <-> number, enums, flags)
    fields.py  the pieces of a row; each owns keys, inputs or blobs on either side and carries them both ways
    table.py   Rule and Table: dispatch, ownership of every key, did-you-mean
    pairs.py   where special pairs are entered
    drive.py   lifting a list of layers and lowering a graph, with all refusals collected

lift = foreign -> canonical, lower = canonical -> foreign.
"""
