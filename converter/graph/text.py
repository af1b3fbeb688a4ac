"""The shared graph as text: ONNX's own syntax (onnx.printer, onnx.parser), large weights by
reference.

    <ir_version: 10, opset_import: ["" : 21]>
    main (float[1,3,8,8] x) => (float[1,4,8,8] relu)
       <float[4,3,1,1] w = ["location": "w", "sha256": "e2fea6553423387a"]>
    {
       conv = Conv <kernel_shape: ints = [1, 1]> (x, w)
       relu = Relu (conv)
    }

A reference names an array in the weights that `parse_text` is given (an .npz, for instance), with
the hash that it had when the text was printed. Provenance and names of the source format are not
part of the syntax.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx_ir as ir

from converter.errors import Diagnostic, ReadError
from converter.graph.infer import Array, Arrays
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.shapes import infer_all
from converter.graph.walk import all_graphs

INLINE = 16  # elements of a constant that is still printed inline
_NO_LITERALS = {
    ir.DataType.COMPLEX64,
    ir.DataType.COMPLEX128,
    ir.DataType.INT4,
    ir.DataType.UINT4,
    ir.DataType.INT2,
    ir.DataType.UINT2,
    ir.DataType.FLOAT4E2M1,
}
_DIGITS = 16  # digits of the hash that are shown
_GIVEN_NAME = re.compile(r"node_\w+_\d+")  # onnx_ir's name for a node without one


def print_text(model: ir.Model, *, types: bool = True, inline: int = INLINE) -> str:
    """Return the graph as text.

    `types`: list intermediate values with types and shapes; `inline`: the size of the largest
    constant that is printed inline.
    """
    clone = model.clone()
    hashes: dict[str, str] = {}
    for graph in all_graphs(clone.graph):
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and (tensor.size > inline or tensor.dtype in _NO_LITERALS):
                hashes[str(value.name)] = _hash(tensor)
                shape = ir.Shape(list(tensor.shape.numpy()))
                value.const_value = ir.ExternalTensor(
                    "-", 0, tensor.nbytes, tensor.dtype, shape=shape, name=str(value.name)
                )
    proto = ir.to_proto(clone)
    for part in _graphs(proto.graph):
        for node in part.node:
            if _GIVEN_NAME.fullmatch(node.name):
                node.ClearField("name")  # an empty name would be printed
        known = {c.name for c in part.initializer}
        kept = [v for v in part.value_info if types and v.name not in known]
        del part.value_info[:]
        part.value_info.extend(kept)
        for constant in part.initializer:
            if constant.name in hashes:
                del constant.external_data[:]
                constant.external_data.add(key="location", value=constant.name)
                constant.external_data.add(key="sha256", value=hashes[constant.name])
    return str(onnx.printer.to_text(proto)).rstrip() + "\n"


def parse_text(text: str, weights: Mapping[str, Array] | None = None) -> ir.Model:
    """Parse the graph in `text`, and infer types and shapes.

    `weights` has the arrays to which the text refers; None stands for zeros of the right type and
    shape. Raise ReadError R101 for invalid text, and R110 for a weight that is absent or differs
    from the one with which the text was printed.
    """
    try:
        proto = onnx.parser.parse_model(text)
    except onnx.parser.ParseError as e:
        raise ReadError(
            Diagnostic("R101", f"this is not the textual syntax of ONNX: {_reason(e)}")
        ) from None
    referred: dict[str, ir.TensorProtocol] = {}
    for graph in _graphs(proto.graph):
        for constant in graph.initializer:
            if constant.data_location == onnx.TensorProto.EXTERNAL:
                referred[constant.name] = _weight(constant, weights)
                constant.CopyFrom(
                    onnx.helper.make_tensor(constant.name, onnx.TensorProto.FLOAT, [0], [])
                )
    model = ir.from_proto(proto)
    for body in all_graphs(model.graph):
        for value in body.initializers.values():
            if (tensor := referred.get(str(value.name))) is not None:
                value.const_value = tensor
                value.type, value.shape = (
                    ir.TensorType(tensor.dtype),
                    ir.Shape(list(tensor.shape.numpy())),
                )
    infer_all(model)
    return model


def weights_of(model: ir.Model, inline: int = INLINE) -> Arrays:
    """Return the arrays to which the text of the model refers, by name (views)."""
    values = [v for g in all_graphs(model.graph) for v in g.initializers.values()]
    return {
        str(v.name): t.numpy()
        for v in values
        if (t := v.const_value) is not None and (t.size > inline or t.dtype in _NO_LITERALS)
    }


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """Return the graph and its sub-graphs."""
    inner = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    return [graph, *(g for body in inner for g in _graphs(body))]


def _hash(tensor: ir.TensorProtocol) -> str:
    return hashlib.sha256(tensor.tobytes()).hexdigest()[:_DIGITS]


def _weight(constant: onnx.TensorProto, weights: Mapping[str, Array] | None) -> ir.TensorProtocol:
    said = {e.key: e.value for e in constant.external_data}
    name, shape, dtype = (
        said.get("location", constant.name),
        tuple(constant.dims),
        ir.DataType(constant.data_type),
    )
    if weights is None:
        zeros = np.broadcast_to(np.zeros((), dtype.numpy()), shape)
        return ir.Tensor(zeros) if dtype == ir.DataType.STRING else LazyTensor(zeros, dtype)
    if name not in weights:
        raise ReadError(
            Diagnostic("R110", f"the text refers to the weights {name!r}, which were not given")
        )
    array = weights[name]
    if array.shape != shape:
        raise ReadError(
            Diagnostic(
                "R110",
                f"the weights {name!r} have shape {list(array.shape)}, but the "
                f"text declares {list(shape)}",
            )
        )
    if array.dtype.kind == "V":  # .npz stores types unknown to numpy as void
        array = array.view(dtype.numpy())
    if array.dtype != dtype.numpy():
        raise ReadError(
            Diagnostic(
                "R110",
                f"the weights {name!r} are {array.dtype}, but the text declares {dtype.numpy()}",
            )
        )
    tensor = LazyTensor(array, dtype=dtype)
    if said.get("sha256", _hash(tensor)) != _hash(tensor):
        raise ReadError(
            Diagnostic(
                "R110",
                f"the weights {name!r} have changed since the text was printed (sha256)",
            )
        )
    return tensor


def _reason(error: Exception) -> str:
    """Return the parser's message, which some versions return as bytes, without its line breaks."""
    text = error.args[0] if error.args else ""
    return " ".join(
        (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).split()
    )
