"""Passes over the shared graph, one per file. Each takes an `ir.Model` and changes it in place.

pipeline.py                passes as a list, with conditions; each format has one
rare.py                    passes for operators that few networks have
fold.py                    constants computed, known shape arithmetic replaced by constants
fold_empty.py              values without elements, and results that depend on them, as constants
constants.py               compact weights as plain numbers for layers that need them
constants_into_bodies.py   constants copied into the bodies that use them
fix_inputs.py              requested shapes and values of inputs
implied_shapes.py          branches, sizes and axes that operators imply
unroll.py                  loops unrolled, and branches with a known condition inlined
stack_sequences.py         sequences that loops build as stacked tensors
fixed_rows.py              results of data-dependent length with as many rows as there may be
both_branches.py           both branches of an If computed, and one result selected
dead_code.py               unused nodes and initializers removed
common_subexpressions.py   nodes that compute the same value merged
share_weights.py           equal weights merged
stored_halves.py           weights stored in half precision, recorded and stored so again
extract_subgraph.py        the part of a graph between given tensors
states.py                  inputs that receive outputs of the previous run, and initial values
labels.py                  text that only names classes removed
fuse_attention.py          attention fused into one operator
clamp_masks.py             attention masks clamped to the range of half precision
finite_masks.py            attention masks without infinities
fuse_constants.py          constants fused into the preceding operator
biases_before_reshapes.py  a bias moved between a product and its Reshape
fuse_hard_swish.py         HardSwish found in its parts
round_halves.py            rounding to half precision for targets that compute in floats
small_types.py             values of 4 and 8 bits in wider types if a target lacks theirs
promote_types.py           wider types if a target lacks an operator for the node's own
collapse_dims.py           ranks reduced for targets with few axes
collapse_dims_rules.py     how each operator is computed on fewer axes
conv3d_to_2d.py            convolutions and pools over three axes computed on planes
equal_shapes.py            operands that broadcast expanded to the shape of the result
images.py                  windows over one axis computed on images of height 1
indices.py                 negative indices converted to count from the front
split_directions.py        bidirectional recurrent operators split into two
suppression.py             suppression of overlapping boxes by Core ML's layer
legalize.py                unsupported operators rewritten until the target supports them
computed_sizes.py          sizes that are computed at run time
transposed_windows.py      transposed convolutions with different padding at each end
coverage.py                operators that a target can never write
lite/                      rewrites for kernels that TensorFlow Lite and NNAPI share
decompositions/            operators written as simpler ones, by theme
sizes/                     other sizes of inputs than the file fixes
channels_last.py           the layout pass, in both directions
layout/                    axes, groups and operators of the layout pass
"""
