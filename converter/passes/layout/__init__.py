"""The parts of the layout pass (passes/channels_last.py): axes and permutations, operators, groups
of values, stored forms.

A value has canonical axes, but may be stored in another order: stored axis i is canonical axis
perm[i].

axes.py           permutations, and their propagation through operators that change the rank
rules.py          operators that work on any order, and how their attributes are permuted
reassociation.py  operators that change the rank and propagate an order
groups.py         values that must share one order, and the choice of that order
materialized.py   the stored forms of each value, and conversions between them
dense.py          fully connected layers after a flatten: weights are permuted instead of
                  activations
rewrite.py        the rewriting of one graph
"""
