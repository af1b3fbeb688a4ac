"""Small networks of the usual kinds, and running them: for the tests of passes and formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.invariants import violations

T = ir.DataType
RNG = np.random.default_rng(7)


def choice(
    b: Builder,
    condition: ir.Value,
    then: Callable[[Builder], ir.Value],
    otherwise: Callable[[Builder], ir.Value],
) -> Any:
    """An If whose branches are written by two functions of a builder."""
    bodies = []
    for name, write in (("then", then), ("else", otherwise)):
        body = b.body(name)
        body.output(write(body))
        bodies.append(body.graph)
    return b.If(condition, then_branch=bodies[0], else_branch=bodies[1])


def w(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def conv(
    b: Builder, x: ir.Value, channels: int, kernel: int = 3, *, group: int = 1, stride: int = 1
) -> ir.Value:
    rank = x.shape.rank()
    inside = x.shape[1] // group
    pad = [kernel // 2] * (2 * (rank - 2))
    spatial = [kernel] * (rank - 2)
    return b.op(
        "Conv",
        x,
        w(channels, inside, *spatial),
        w(channels),
        kernel_shape=spatial,
        pads=pad,
        group=group,
        strides=[stride] * (rank - 2),
    )


def network(
    write: Callable[[Builder, ir.Value], Any], shape: tuple[int | str, ...] = (2, 3, 8, 8)
) -> ir.Model:
    model, b = new_model()
    x = b.input("x", T.FLOAT, shape)
    results = write(b, x)
    b.output(*(results if isinstance(results, tuple | list) else [results]))
    return model


def feeds_of(model: ir.Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        v.name: rng.standard_normal([d if isinstance(d, int) else 2 for d in v.shape]).astype(
            v.dtype.numpy()
        )
        for v in model.graph.inputs
    }


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    assert violations(model) == []
    return list(Model(model, "onnx").run(feeds).values())


def same(left: list[np.ndarray], right: list[np.ndarray]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def batch_norm(b: Builder, x: ir.Value) -> ir.Value:
    c = x.shape[1]
    return b.op("BatchNormalization", x, w(c), w(c), w(c), np.abs(w(c)) + 1)


def residual(b: Builder, x: ir.Value, channels: int, stride: int = 1) -> ir.Value:
    y = b.op("Relu", batch_norm(b, conv(b, x, channels, stride=stride)))
    y = batch_norm(b, conv(b, y, channels))
    return b.op(
        "Relu",
        b.op(
            "Add",
            y,
            x if x.shape[1] == channels and stride == 1 else conv(b, x, channels, 1, stride=stride),
        ),
    )


def resnet(b: Builder, x: ir.Value) -> ir.Value:
    x = b.op(
        "MaxPool",
        b.op("Relu", conv(b, x, 8, 3)),
        kernel_shape=[2, 2],
        strides=[2, 2],
        pads=[0, 0, 0, 0],
    )
    x = residual(b, residual(b, residual(b, x, 8), 16, 2), 16)
    return b.op(
        "Softmax", b.op("Gemm", b.op("Flatten", b.op("GlobalAveragePool", x)), w(16, 5), w(5))
    )


def mobilenet(b: Builder, x: ir.Value) -> ir.Value:
    for channels, stride in ((8, 2), (8, 1), (12, 1)):
        y = b.op(
            "Clip",
            batch_norm(b, conv(b, x, 8 if x.shape[1] == 3 else x.shape[1], 1)),
            np.float32(0),
            np.float32(6),
        )
        y = b.op("HardSwish", conv(b, y, y.shape[1], 3, group=y.shape[1], stride=stride))
        y = conv(b, y, channels, 1)
        x = b.op("Add", x, y) if x.shape[1] == channels and stride == 1 else y
    return b.op("MatMul", b.op("ReduceMean", x, [2, 3], keepdims=0), w(12, 4))


def unet(b: Builder, x: ir.Value) -> ir.Value:
    a = b.op("Relu", conv(b, x, 6))
    c = b.op("Relu", conv(b, b.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 8))
    up = b.op("ConvTranspose", c, w(8, 6, 2, 2), w(6), kernel_shape=[2, 2], strides=[2, 2])
    joined = b.op("Concat", up, a, axis=1)
    bigger = b.op(
        "Resize", conv(b, joined, 4), None, np.array([1, 1, 2, 2], np.float32), mode="linear"
    )
    return b.op("Sigmoid", conv(b, bigger, 2, 1))


def squeezenet(b: Builder, x: ir.Value) -> ir.Value:
    for squeeze, expand in ((4, 8), (4, 8)):
        s = b.op("Relu", conv(b, x, squeeze, 1))
        x = b.op(
            "Concat",
            b.op("Relu", conv(b, s, expand, 1)),
            b.op("Relu", conv(b, s, expand, 3)),
            axis=1,
        )
    x = b.op("GlobalAveragePool", conv(b, b.op("Dropout", x, np.float32(0.5)), 5, 1))
    return b.op("Softmax", b.op("Reshape", x, [0, -1]), axis=1)


def yolo(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    y = conv(b, b.op("LeakyRelu", conv(b, x, 8, stride=2)), 3 * 7, 1)
    y = b.op(
        "Sigmoid", b.op("Transpose", b.op("Reshape", y, [2, 3, 7, 4, 4]), perm=[0, 1, 3, 4, 2])
    )
    xy, wh, rest = b.ops("Split", y, [2, 2, 3], axis=4, outputs=3)
    return (
        b.op(
            "Reshape",
            b.op("Concat", b.op("Mul", xy, np.float32(2)), b.op("Exp", wh), rest, axis=-1),
            [2, -1, 7],
        ),
    )


def squeeze_excite(b: Builder, x: ir.Value) -> ir.Value:
    x = conv(b, x, 8)
    s = b.op("Flatten", b.op("GlobalAveragePool", x))
    s = b.op("Sigmoid", b.op("Gemm", b.op("Relu", b.op("Gemm", s, w(8, 2), w(2))), w(2, 8), w(8)))
    s2 = b.op("HardSigmoid", conv(b, b.op("ReduceMean", x, [-1, -2]), 8, 1))
    return conv(b, b.op("Mul", b.op("Mul", x, b.op("Reshape", s, [0, 8, 1, 1])), s2), 4)


def shuffle(b: Builder, x: ir.Value) -> ir.Value:
    x = conv(b, x, 8)
    left, right = b.ops("Split", x, axis=1, num_outputs=2, outputs=2)
    return conv(
        b, b.ext("ShuffleChannels", b.op("Concat", left, conv(b, right, 4), axis=1), group=2), 4
    )


def shuffle_by_hand(b: Builder, x: ir.Value) -> ir.Value:
    x = conv(b, x, 8)
    x = b.op("Transpose", b.op("Reshape", x, [2, 2, 4, 8, 8]), perm=[0, 2, 1, 3, 4])
    return conv(b, b.op("Reshape", x, [2, 8, 8, 8]), 4)


def dense(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    x = conv(b, x, 4, stride=2)
    flat = b.op("Relu", b.op("Dropout", b.op("Flatten", x)))
    return b.op("Gemm", flat, w(5, 64), w(5), transB=1), b.op(
        "MatMul", b.op("Tanh", flat), w(64, 3)
    )


def dense_quantized(b: Builder, x: ir.Value) -> ir.Value:
    x = b.op("Reshape", conv(b, x, 4, stride=2), [2, -1])
    x = b.op(
        "DequantizeLinear",
        b.op("QuantizeLinear", x, np.float32(0.05), np.uint8(128)),
        np.float32(0.05),
        np.uint8(128),
    )
    weights = b.op(
        "DequantizeLinear",
        RNG.integers(-90, 90, (64, 3), np.int8),
        np.array([0.1, 0.2, 0.3], np.float32),
        np.zeros(3, np.int8),
        axis=1,
    )
    return b.op("MatMul", x, weights)


def dense_and_more(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    flat = b.op("Flatten", conv(b, x, 4, stride=2))
    return b.op("MatMul", flat, w(64, 3)), flat


def keras(b: Builder, x: ir.Value) -> ir.Value:
    x = b.op("Transpose", b.op("Mul", x, np.float32(2)), perm=[0, 3, 1, 2])
    x = b.op("Transpose", b.op("Relu", conv(b, x, 4)), perm=[0, 2, 3, 1])
    x = b.op("Add", x, w(4))
    x = b.op("Transpose", x, perm=[0, 3, 1, 2])
    return b.op("Transpose", conv(b, x, 4), perm=[0, 2, 3, 1])


def detector(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    a = conv(b, x, 8, stride=2)
    c = conv(b, a, 8, stride=2)
    parts = [
        b.op("Reshape", b.op("Transpose", conv(b, v, 6), perm=[0, 2, 3, 1]), [2, -1, 3])
        for v in (a, c)
    ]
    return b.op("Concat", *parts, axis=1), b.op(
        "Softmax", b.op("Concat", *[b.op("Reshape", p, [2, -1]) for p in parts], axis=1)
    )


def per_axis(b: Builder, x: ir.Value) -> ir.Value:
    x = conv(b, x, 4)
    x = b.op("Pad", x, [0, 0, 1, 2, 0, 0, 1, 0], np.float32(0.5))
    x = b.op("Slice", x, [1, 0], [9, 8], [2, -1], [1, 2])
    x = b.op("Slice", x, [0, 1], [2, 4])
    x = b.op("PRelu", x, w(3, 1, 1))
    x = b.op("Add", x, b.op("CumSum", b.op("Softmax", x, axis=1), np.array(1)))
    x = b.op("Gather", b.op("Tile", x, [1, 2, 1, 1]), [0, 2, 4, 5], axis=1)
    x = b.op("Where", b.op("Greater", x, w(4, 1, 1)), x, b.op("Expand", np.float32(0.25), [1]))
    x = b.op("Sub", x, b.op("ReduceMax", x, [1], keepdims=1))
    x = b.op(
        "DequantizeLinear",
        b.op("QuantizeLinear", x, np.full(4, 0.05, np.float32), np.zeros(4, np.int8), axis=1),
        np.full(4, 0.05, np.float32),
        axis=1,
    )
    values, _ = b.ops("TopK", x, [2], axis=1, outputs=2)
    return conv(b, b.op("Expand", values, [1, 2, 1, 1]), 3)


def last_ranks(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    x = conv(b, x, 4)
    return (
        b.op("ReduceMax", x, [1], keepdims=0),
        b.op("ReduceSum", x, [0, 2], keepdims=0),
        b.op("ArgMax", x, axis=1, keepdims=0),
        b.op("Gather", x, np.array(1), axis=1),
        b.op("Shape", x),
        b.op("Shape", x, start=1, end=3),
    )


def with_image(b: Builder, x: ir.Value) -> ir.Value:
    mean = b.input("mean", T.FLOAT, [3, 1, 1])
    bias = b.input("bias", T.FLOAT, [4, 8, 8])
    return b.op("Add", conv(b, b.op("Sub", x, mean), 4), bias)


def branches(b: Builder, x: ir.Value) -> ir.Value:
    flag = b.input("flag", T.BOOL, [])
    x = conv(b, x, 4)
    then, other = b.body("then"), b.body("else")
    then.output(conv(then, conv(then, x, 4), 4))
    other.output(other.op("Relu", x))
    y = b.op("If", flag, then_branch=then.graph, else_branch=other.graph)
    return conv(b, y, 2)


def attention(b: Builder, x: ir.Value) -> ir.Value:
    x = conv(b, x, 4)
    tokens = b.op("Transpose", b.op("Reshape", x, [2, 4, 64]), perm=[0, 2, 1])
    mixed = b.op("Add", b.op("MatMul", tokens, w(4, 4)), tokens)
    back = b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1]), [2, 4, 8, 8])
    return conv(b, b.op("Add", back, x), 2)


def signal(b: Builder, x: ir.Value) -> ir.Value:
    """Channels and time alone, as Core ML has them: the batch axis comes first for the
    convolutions.
    """
    y = b.op("Unsqueeze", b.op("Mul", x, np.float32(2)), [0])
    return b.op("Squeeze", conv(b, b.op("Tanh", conv(b, y, 4)), 2), [0])


def normalised(b: Builder, x: ir.Value) -> ir.Value:
    y = b.ext("MVN", conv(b, x, 4), axes=[2, 3])
    y = b.ext("NormalizeL2", y, axes=[1])
    return conv(b, b.ext("CumProd", b.op("InstanceNormalization", y, w(4), w(4)), axis=-1), 2)
