"""Small operand tables that the NNAPI tests share, and the corpus of real ones when there is
one.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from converter.formats.nnapi.codec import write_table
from converter.formats.nnapi.table import (
    ChannelQuant,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.io.files import Output

F32, Q8, I32 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_INT32


def corpus(*levels: str) -> list[Path]:
    """Every table of the corpus; the calling test is skipped when there is no corpus."""
    root = (
        Path(os.environ.get("NETCONV_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
        / "nnapi"
    )
    if not root.is_dir():
        pytest.skip("the corpus of real cases is not here (NETCONV_CORPUS)")
    return sorted(
        p
        for level in levels or ("level1", "level2", "level3plus")
        for p in (root / level).glob("*/model.nnapi.json")
    )


def scalar(table: Subgraph, value: float, kind: OperandType = OperandType.INT32) -> int:
    return table.add(
        Operand(kind, value=np.array(value, kind.dtype), name=f"c{len(table.operands)}")
    )


def tensor(
    table: Subgraph, shape: list[int], kind: OperandType = F32, name: str = "", **more: object
) -> int:
    return table.add(Operand(kind, shape, name or f"t{len(table.operands)}", **more))  # type: ignore[arg-type]


def constant(table: Subgraph, values: object, kind: OperandType = F32, **more: object) -> int:
    array = np.asarray(values, kind.dtype)
    return table.add(
        Operand(kind, list(array.shape), f"w{len(table.operands)}", value=array, **more)
    )  # type: ignore[arg-type]


def network() -> Table:
    """data -> CONV_2D SAME -> MAX_POOL_2D explicit -> RESHAPE -> FULLY_CONNECTED -> SOFTMAX ->
    prob, in float32.
    """
    rng, t = np.random.default_rng(1), Table()
    data = tensor(t, [1, 8, 8, 3], name="data", boundary={"permutation": [0, 2, 3, 1]})
    conv, pool, flat, dense, prob = (
        tensor(t, s, name=n)
        for s, n in (
            ([1, 8, 8, 4], "conv"),
            ([1, 4, 4, 4], "pool"),
            ([1, 64], "flat"),
            ([1, 5], "fc"),
            ([1, 5], "prob"),
        )
    )
    zero, one, two = (scalar(t, v) for v in (0, 1, 2))
    weights, bias = constant(t, rng.standard_normal((4, 3, 3, 3))), constant(t, np.zeros(4))
    t.operations = [
        Operation("CONV_2D", [data, weights, bias, one, one, one, one], [conv]),
        Operation("MAX_POOL_2D", [conv, zero, zero, zero, zero, two, two, two, two, zero], [pool]),
        Operation("RESHAPE", [pool, constant(t, [1, -1], I32)], [flat]),
        Operation(
            "FULLY_CONNECTED",
            [flat, constant(t, rng.standard_normal((5, 64))), constant(t, np.arange(5)), zero],
            [dense],
        ),
        Operation("SOFTMAX", [dense, scalar(t, 1.0, OperandType.FLOAT32)], [prob]),
    ]
    t.inputs, t.outputs = [data], [prob]
    return t


def quantized(per_channel: bool = False) -> Table:
    """CONV_2D VALID in quant8, the filter per tensor or per channel."""
    t = Table()
    x = tensor(t, [1, 4, 4, 2], Q8, "x", scale=0.5, zero_point=10)
    if per_channel:
        kind, more = (
            OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL,
            {"channel_quant": ChannelQuant(0, (0.25, 0.5, 0.125))},
        )
    else:
        kind, more = Q8, {"scale": 0.25, "zero_point": 3}
    w = constant(t, np.arange(24).reshape(3, 2, 2, 2), kind, **more)
    b = constant(t, [1, 2, 3], I32, scale=0.0 if per_channel else 0.125)
    y = tensor(t, [1, 3, 3, 3], Q8, "y", scale=1.0, zero_point=5)
    one, valid, none = scalar(t, 1), scalar(t, 2), scalar(t, 0)
    t.operations = [Operation("CONV_2D", [x, w, b, valid, one, one, none], [y])]
    t.inputs, t.outputs = [x], [y]
    return t


def branches() -> Table:
    """IF with two subgraphs, x + 1 and relu(x)."""

    def body(kind: str) -> Subgraph:
        g = Subgraph()
        x, y = tensor(g, [2], name="x"), tensor(g, [2], name="y")
        extra = [constant(g, [1.0, 1.0]), scalar(g, 0)] if kind == "ADD" else []
        g.operations, g.inputs, g.outputs = [Operation(kind, [x, *extra], [y])], [x], [y]
        return g

    t = Table(referenced=[body("ADD"), body("RELU")])
    c = tensor(t, [1], OperandType.TENSOR_BOOL8, "condition")
    x, y = tensor(t, [2], name="x"), tensor(t, [2], name="y")
    then, other = (
        t.add(Operand(OperandType.SUBGRAPH, subgraph=i, name=f"body{i}")) for i in (0, 1)
    )
    t.operations, t.inputs, t.outputs = [Operation("IF", [c, then, other, x], [y])], [c, x], [y]
    return t


MODELS = {
    "network": network,
    "quantised": quantized,
    "per-channel": lambda: quantized(True),
    "branches": branches,
}


def written(table: Table, folder: Path, name: str = "net") -> Path:
    target = folder / f"{name}.nnapi.json"
    with Output(target, ".nnapi.json") as out:
        write_table(table, out)
    return target
