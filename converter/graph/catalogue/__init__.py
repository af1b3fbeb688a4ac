"""Extension operators by theme.

Each is defined once, executable, by a function that writes standard operators.
"""
