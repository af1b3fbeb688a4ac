"""The shared graph: onnx_ir models with ONNX semantics, opset 21, IR version 10, one spelling per
operator.

network.py        a graph with what its source file says about inputs and outputs
build.py          Builder: nodes appended to a graph or inserted, inferred at once
value.py          values with operators: `x * b.Sigmoid(x)`
lazy_tensor.py    the numbers of a constant, where they lie in a file or how they are computed
known.py          shapes and values that are known without running the network
infer.py          type and shape of one node's outputs
infer_control.py  the same for If, Loop and Scan
infer_sizes.py    sizes that onnx's inference leaves open although the graph says them
interpolation.py  the curve of cubic interpolation
windows.py        padding of sliding windows that is said by name
demands.py        what attributes must be before something is computed with them
loops.py          If and Loop of bodies that are functions
recurrent.py      LSTM, GRU and RNN written with simpler operators
fixed_point.py    products, roots and activations of integers as gemmlowp rounds them
pools.py          what onnx's inference gets wrong about pooling that rounds up
shapes.py         fixing input shapes and inferring a whole graph again
sizes.py          shapes that must be known, and arrays whose size a file says
verify/           what operators demand beyond onnx's inference
extensions.py     the domain `netconv`: operators whose definition is a function body in standard
                  operators
catalogue/        those operators, by theme
channels_last.py  the domain `netconv.channels_last`: operators on data stored N, spatial..., C
equal_weights.py  weights of the same bytes, which a file holds once
generators.py     random bits that engines agree on
states.py         variables of a file as inputs and outputs
names.py          unique value names; the names of the source file beside them
walk.py           every graph and node including sub-graphs
invariants.py     what a canonical graph promises
record.py         a lighter dataclass for what tables consist of
text.py           ONNX's own textual syntax, weights by reference
"""

OPSET = 21
IR_VERSION = 10
EXTENSION_DOMAIN = "netconv"
CHANNELS_LAST_DOMAIN = "netconv.channels_last"
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
