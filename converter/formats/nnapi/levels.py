"""The lowest feature level that supports everything in a table.

It follows from operations, argument counts, operand types, and restrictions of older levels.
"""

from __future__ import annotations

import numpy as np

from converter.formats.nnapi.operations import Binding, NoMatch, bind, operations
from converter.formats.nnapi.table import Operand, OperandType, Subgraph, Table

_Q8 = OperandType.TENSOR_QUANT8_ASYMM


def feature_level(table: Table) -> tuple[int, str]:
    """Return the minimal feature level and the reason for it ("" at level 1).

    The reason is a JSON path with the type of the operation or operand.
    """
    # the permission to relax is no operation: a level 1 driver just does not use it
    level, reason = 1, ""
    if table.referenced:
        level, reason = 4, "referenced"
    for prefix, subgraph in table.subgraphs():
        for i, operation in enumerate(subgraph.operations):
            needed = operation_level(subgraph, i)
            if needed > level:
                level, reason = needed, f"{prefix}operations[{i}] {operation.type}"
        for i, operand in enumerate(subgraph.operands):
            needed = operand_level(operand)
            if needed > level:
                level, reason = needed, f"{prefix}operands[{i}] {operand.type.name}"
    return level, reason


def operand_level(operand: Operand) -> int:
    """Return the feature level that an operand needs."""
    # a tensor without dimensions has an unspecified rank, which only level 3 supports
    return max(operand.type.since, 3 if operand.type.is_tensor and not operand.dimensions else 1)


def operation_level(subgraph: Subgraph, index: int) -> int:
    """Return the level that one operation needs.

    For one that fits no signature the level at which it was introduced.
    """
    operation = subgraph.operations[index]
    if (
        any(i >= len(subgraph.operands) for i in operation.inputs + operation.outputs)
        or operation.type not in operations()
    ):
        return 1
    try:
        binding = bind(operation, subgraph)
    except NoMatch:
        return operations()[operation.type].level
    return bound_level(binding, subgraph)


def bound_level(binding: Binding, subgraph: Subgraph) -> int:
    """Return the level that an operation with a signature needs."""
    return max(binding.level, 3 if _needs_level_3(binding, subgraph) else 1)


def _needs_level_3(binding: Binding, subgraph: Subgraph) -> bool:
    """Check the restrictions of levels 1 and 2 that level 3 lifted. AOSP's validator reports each
    violation as "needs level 3".
    """
    name = binding.spec.name

    def one(index: object) -> Operand:
        assert isinstance(index, int)
        return subgraph.operands[index]

    if (
        name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
        and binding.types["T"] is _Q8
        and binding.types["F"] is _Q8
    ):
        x = one(binding.inputs["input"])
        w = one(binding.inputs.get("filter", binding.inputs.get("weights")))
        # by the documentation, for the output
        bound = one(binding.outputs["output"]) if name == "FULLY_CONNECTED" else x
        return not np.float32(bound.scale) > np.float32(x.scale) * np.float32(w.scale)
    if name == "CONCATENATION" and binding.types["T"] is _Q8:
        inputs, y = binding.inputs["inputs"], one(binding.outputs["output"])
        assert isinstance(inputs, list)
        return any((one(i).scale, one(i).zero_point) != (y.scale, y.zero_point) for i in inputs)
    if name in ("PAD", "SPACE_TO_BATCH_ND") and binding.types["T"] is _Q8:
        return one(binding.inputs["input"]).zero_point != 0
    ranks = {"SOFTMAX": (2, 4), "L2_NORMALIZATION": (4,), "LOCAL_RESPONSE_NORMALIZATION": (4,)}.get(
        name
    )
    return ranks is not None and len(one(binding.inputs["input"]).dimensions) not in ranks
