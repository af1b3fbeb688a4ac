"""Extension operators by theme.

Each has a single, executable definition: a function that writes standard operators.
"""
