"""Other sizes of inputs than a file fixes.

resized.py   the file read again for other sizes
change.py    the assignments of sizes that are tried
walk.py      the network with the old and the new sizes, node by node
repairs.py   constants that are computed anew, by operator
checks.py    constants that may have come from the old sizes, refused
regroup.py   sizes of a Reshape that follow those of its operand
stretch.py   constants that meet data of another size
"""
