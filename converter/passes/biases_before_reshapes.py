"""Move a bias between a product and its Reshape, where kernels compute it.

before:  Y = Add(Reshape(MatMul(X, W[K,N])), c[N])      after:  Y = Reshape(Add(MatMul(X, W), c))
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import known_sizes, producer_if
from converter.graph.walk import operators
from converter.mapping.fusing import only_user
from converter.passes.dead_code import remove_dead_code


def biases_before_reshapes(model: ir.Model) -> None:
    """Move biases in place."""
    names = Names(model)
    for node in operators(model.graph, "Add"):
        _move(node, names)
    remove_dead_code(model)


def _move(node: ir.Node, names: Names) -> None:
    for x, other in (node.inputs, node.inputs[::-1]):
        bias, reshape = constant(other), producer_if(x, "Reshape")
        product = None if reshape is None else producer_if(reshape.inputs[0], "MatMul")
        if bias is None or not bias.ndim or reshape is None or product is None:
            continue
        result = product.outputs[0]
        alone = only_user(result) is reshape and only_user(reshape.outputs[0]) is node
        sizes = [known_sizes(v) for v in (result, reshape.outputs[0], node.outputs[0])]
        last = bias.shape[-1]
        fits = bias.size == last and all(s is not None and s[-1:] == [last] for s in sizes)
        if not alone or not fits or len(sizes[1] or ()) != len(sizes[2] or ()):
            continue
        b = builder_before(node, names)
        made = b.Add(result, b.const(bias.reshape(-1), "bias"))
        replace(node, [b.op("Reshape", made, *reshape.inputs[1:], **attrs_of(reshape))], b)
        return
