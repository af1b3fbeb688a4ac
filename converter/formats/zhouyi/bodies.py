"""Bodies of If and Loop as sub-graphs: captured outer values become inputs, since a sub-graph of
the format sees its own tensors only.

If:   bottoms [condition, inputs of the then branch..., inputs of the else branch...], as many as
      `then_branch_inputs_num` and `else_branch_inputs_num` state; `then_branch` and `else_branch`
      name the sub-graphs.
Loop: bottoms [number of iterations, condition, states..., captured values...], tops [states...,
      results of the iterations, concatenated along the first axis...]; `body` names a sub-graph
      [iteration number, condition, states..., captured values...] -> [condition, states...,
      results of an iteration...]. `dependency_inputs_num` is the number of states,
      `scan_outputs_num` the number of concatenated outputs.

The vendor's executor feeds the number of the iteration into a body.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from converter.mapping.node import Layer


@dataclass(eq=False)
class GraphBody:
    """A sub-graph to be written: the attribute that names it, its inputs (its own and values from
    outside) and outputs, and its layers.
    """

    key: str
    graph: ir.Graph
    inputs: list[ir.Value]
    outputs: list[ir.Value]
    layers: list[Layer] = field(default_factory=list)
