"""The shared graph: onnx_ir models with ONNX semantics, opset 21, IR version 10, one spelling per
operator.

network.py        a graph with the source file's description of inputs and outputs
build.py          Builder: nodes appended to a graph or inserted, inferred at once
value.py          values with operators: `x * b.Sigmoid(x)`
activations.py    activations of layers, by name
lazy_tensor.py    the elements of a constant, stored in a file or computed on use
known.py          shapes and values that are known without running the network
infer.py          type and shape of one node's outputs
infer_control.py  the same for If, Loop and Scan
infer_sizes.py    sizes that onnx's inference leaves unknown although the graph determines them
size_expressions.py  arithmetic of sizes with named dimensions
symbolic.py       elements of small tensors as such expressions
symbolic_dimensions.py  dimensions of results, named by such expressions
interpolation.py  source coordinates of a resized axis, and the cubic kernel
windows.py        sliding windows, and padding that is specified by name
demands.py        checks of attributes before they are used in computations
loops.py          If and Loop with bodies that are functions
linear_attention.py  states of linear attention, changed by every token
recurrent.py      LSTM, GRU and RNN written with simpler operators
fixed_point.py    integer products, roots and activations as gemmlowp rounds them
pools.py          a correction of onnx's inference for pooling that rounds up
shapes.py         inference over a whole graph
open_sizes.py     names instead of the sizes that a call changes, while a file is read
sizes.py          shapes that must be known, and arrays whose size is read from a file
verify/           constraints of operators that onnx's inference does not check
extensions.py     the domain `netconv`: operators defined by a function body of standard
                  operators
catalogue/        those operators, by theme
channels_last.py  the domain `netconv.channels_last`: operators on data stored N, spatial..., C
equal_weights.py  weights of equal bytes, which a file stores once
custom.py         operators that netconv does not know, carried or with a body of the user
generators.py     random number generators that engines agree on
states.py         variables of a file as inputs and outputs
names.py          unique value names, and the names in the source file
walk.py           every graph and node including sub-graphs
invariants.py     invariants of a canonical graph
snapshot.py       detection of changes of a graph
text.py           ONNX's own textual syntax, weights by reference
"""

OPSET = 21
IR_VERSION = 10
EXTENSION_DOMAIN = "netconv"
CHANNELS_LAST_DOMAIN = "netconv.channels_last"
# element by element: of one operand, and of several that are broadcast
_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh "
    "Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log "
    "Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign "
    "Sqrt Tan Tanh ThresholdedRelu"
)
_BROADCAST = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"
)
UNARY = frozenset(_UNARY.split())
BROADCAST = frozenset(_BROADCAST.split())
# operators that return all elements of the first operand in their order, and those that move,
# repeat or select elements of it
RESHAPES = frozenset(["Flatten", "Reshape", "Squeeze", "Unsqueeze"])
SAME_ELEMENTS = RESHAPES | {"Identity"}
MOVES = SAME_ELEMENTS | frozenset(
    ["Expand", "Gather", "GatherElements", "GatherND", "Slice", "Split", "Tile", "Transpose"]
)
REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)
