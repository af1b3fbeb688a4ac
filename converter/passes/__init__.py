"""Passes over the shared graph: one file, one pass. Each takes an `ir.Model` and changes it in
place.

pipeline.py                passes as a list, with conditions, as each format has one
fold.py                    constants computed, shape arithmetic replaced by what it is known to be
fold_empty.py              values without elements, and what follows from them, as constants
constants.py               compact weights as plain numbers where a layer needs them so
constants_into_bodies.py   constants that a body reads, once more inside of it
fix_inputs.py              shapes and values of inputs that are asked for
unroll.py                  loops and choices that are known, written out
both_branches.py           both branches of a choice, and one result, where there are no choices
dead_code.py               nodes and initializers that nobody uses, removed
common_subexpressions.py   the same operator on the same values, once
share_weights.py           equal weights, once
stored_halves.py           weights that are stored in half precision, noted and stored so again
extract_subgraph.py        only what some tensors need
states.py                  inputs that the next run gets from outputs, and how they begin
labels.py                  text that only names classes, left out
fuse_attention.py          products and the Softmax between them as one operator
fuse_constants.py          constants behind an operator move into it
round_halves.py            roundings to half precision for targets that compute in floats
promote_types.py           wider types where a target lacks an operator in the node's own
collapse_dims.py           fewer axes where a target has few
collapse_dims_rules.py     how each operator works on fewer axes
conv3d_to_2d.py            convolutions and pools over three axes on planes
equal_shapes.py            operands that broadcast in the shape of the result
images.py                  windows over one axis on images of height 1
indices.py                 indices that count from the front only
split_directions.py        recurrent operators of two directions as two operators
suppression.py             suppression of overlapping boxes in the manner of Core ML
legalise.py                what a target cannot express is rewritten until it can, or left to be
                           refused
computed_sizes.py          sizes that are computed when the network runs
transposed_windows.py      transposed convolutions with another padding at each end
coverage.py                the operators that a target has no way to write
lite/                      rewrites for kernels that TensorFlow Lite and NNAPI share
decompositions/            operators written as simpler ones, by theme
channels_last.py           the layout pass, both ways
layout/                    what the layout pass knows about axes and operators
"""
