"""Writing integer IR from quantised networks.

approximate.py  factors as multiplier and shift
held.py         constants that are stored integers
lowering.py     nodes -> float layers that know their stored weights
forms.py        float layers -> integer layers, by kind (and forms_more.py)
tables.py       look-up tables
plan.py         which layers compute on integers, and what stands between them
"""
