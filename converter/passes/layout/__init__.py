"""What the layout pass (passes/channels_last.py) knows: axes and permutations, operators, groups of
values, stored forms.

A value keeps its canonical axes in mind while it is stored in another order: stored axis i is
canonical axis perm[i].

axes.py           permutations, and how axes go through operators that change the rank
rules.py          operators that work in any order, with their axes re-mapped
reassociation.py  operators that change the rank and pass an order on
groups.py         values that must share one order, and which order that is
materialized.py   the forms in which each value exists, and conversions between them
dense.py          fully connected layers behind a flatten: weights are permuted instead of
                  activations
rewrite.py        the rewriting of one graph
"""
