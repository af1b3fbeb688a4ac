"""ONNX files of every opset: reading and writing are normalization, not mapping.

format.py               ONNX as a format
about.py                versions and producer that a file states
detect.py               detection of ONNX files among other protobufs
wire.py                 large tensors cut out of a file before it is parsed
codec.py                bytes to and from ModelProto, weights mapped and streamed
attributes.py, types.py attributes and types as Python values
narrow_types.py         types of a few bits in wider ones
four_bits.py            floats of 4 bits written as indices into their table
unsigned_bytes.py       signed quantized bytes written as unsigned ones
schema.py               checks of nodes against onnx's schemas
op.py                   a node of a file on its way into the graph, and the tables that rewrite it
order.py                nodes in an order in which every name is written before it is read
lift.py, lower.py       a file's graph to and from the shared graph
lift_bodies.py          If, Loop and Scan
scope.py                the values of names while a graph is read
boundary.py             inputs and outputs
canonical.py            one spelling where ONNX allows several
canonicalize.py         graphs that a program built, read like a file
opset_converter/        other opsets than 21
definitions.py          bodies of unknown operators that a user defines
ai_onnx_ml.py           classical machine learning
microsoft.py            com.microsoft: the table of its operators
microsoft_attention.py, microsoft_cache.py, microsoft_blocks.py  attention, its cache, fused
                                                                 operators
microsoft_quantized.py, microsoft_weights.py, microsoft_recurrent.py  quantized operators, weights
                                                                      and LSTM
microsoft_experts.py, microsoft_linear.py  mixtures of experts and linear attention
loadable.py             the form that onnxruntime loads
onnxruntime_kernels.py  the types that its kernels support
pipeline.py             the passes before lowering, in order
legalize.py             a graph that those kernels execute
"""
