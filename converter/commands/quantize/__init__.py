"""Quantize a float network, and measure the loss of accuracy.

result.py   the result for one network
run.py      one model for one or several targets
place.py    which values are quantized for a target
normalizations.py  normalizations in several operators, which stay in floats
doubts.py   warnings of data
scales.py   ranges, measured on data, and their scales
equalize.py  equal ranges for the channels of depthwise convolutions
insert.py   scales in a graph
bias.py     biases corrected for rounded weights
weights.py  weights alone in fewer bits
blocks.py   weights in units of scales
feedback.py  rounding errors that make up for each other, with data
measure.py  how far the result is from the float network
search.py   which layers stay in floats
"""
