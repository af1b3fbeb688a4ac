"""Correct biases for the error of rounding in the mean of each channel.

before:  y = Conv(x', w', b)                            with rounded data x' and weights w'
after:   y = Conv(x', w', b + mean(Conv(x, w) - Conv(x', w')))          over the samples

Source: Nagel et al., Data-Free Quantization (https://arxiv.org/abs/1906.04721), section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.place import WEIGHTED
from converter.commands.verify.program import Program
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Arrays, constant, rank_of
from converter.graph.names import Names
from converter.graph.network import Network
from converter.graph.value import optional
from converter.graph.walk import set_inputs
from converter.passes.dead_code import remove_dead_code

# nodes with their data and weights as they were
Rounded = Sequence[tuple[ir.Node, ir.Value, ir.Value]]


def correct_biases(model: Network, rounded: Rounded, feeds: Sequence[Arrays]) -> None:
    """Correct in place; `feeds` are by the names of the graph's inputs."""
    b = Builder(model.ir.graph, Names(model.ir))
    lost: dict[str, ir.Node] = {}
    for node, data, weights in rounded:
        rank = rank_of(node.outputs[0])
        if node.op_type in WEIGHTED and rank is not None:
            attrs = attrs_of(node)
            made = b.op(node.op_type, data, weights, **attrs)
            made = b.Sub(made, b.op(node.op_type, *node.inputs[:2], **attrs))
            mean = b.ReduceMean(made, [i for i in range(rank) if i != 1], keepdims=0)
            lost[str(mean.name)] = node
    if lost and feeds:
        means = Program(model).tensors(lost, feeds)
        for name, node in lost.items():
            shift = np.mean([m[name] for m in means], axis=0, dtype=np.float64)
            bias = constant(optional(node, 2))
            whole = shift if bias is None else bias + shift
            set_inputs(node, [*node.inputs[:2], b.const(whole.astype(np.float32), "bias")])
    remove_dead_code(model.ir)
    model.ir.graph.sort()
