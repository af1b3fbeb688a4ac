"""Two networks with seeded random weights, in ONNX, built on the spot: nothing is downloaded.

python benchmarks/networks.py FOLDER       writes resnet50.onnx (102 MB of weights) and squeezenet.onnx (5 MB)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A chain of nodes with the convolutional building blocks; every method returns the name of the value it makes."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def weight(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        name = f"weight_{len(self.weights)}"
        values = offset + scale * self.random.standard_normal(shape, np.float32)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> str:
        w = self.weight(outputs, inputs, kernel, kernel, scale=(2 / (inputs * kernel * kernel)) ** 0.5)
        b = self.weight(outputs, scale=0.01)
        return self.node("Conv", [x, w, b], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def norm(self, x: str, channels: int) -> str:
        parameters = [self.weight(channels, scale=0.01, offset=o) for o in (1.0, 0.0, 0.0)]
        return self.node("BatchNormalization", [x, *parameters, self.weight(channels, scale=0.01, offset=1.0)], epsilon=1e-5)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.node("MaxPool", [x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def save(self, path: Path, output: str, shape: Sequence[int]) -> None:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def resnet50(path: Path) -> None:
    """He et al. 2015, with batch normalisation as nodes of its own."""
    net = Network("resnet50")

    def conv_norm(x: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        return net.norm(net.conv(x, inputs, outputs, kernel, stride, kernel // 2), outputs)

    x = net.max_pool(net.node("Relu", [conv_norm("image", 3, 64, 7, 2)]), 3, 2, 1)
    channels = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            y = net.node("Relu", [conv_norm(x, channels, width, 1)])
            y = net.node("Relu", [conv_norm(y, width, width, 3, stride)])
            y = conv_norm(y, width, width * 4, 1)
            shortcut = conv_norm(x, channels, width * 4, 1, stride) if block == 0 else x
            x = net.node("Relu", [net.node("Add", [y, shortcut])])
            channels = width * 4
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])], axis=1)
    x = net.node("Gemm", [x, net.weight(1000, 2048, scale=0.02), net.weight(1000, scale=0.01)], transB=1)
    net.save(path, net.node("Softmax", [x], axis=-1), [1, 1000])


def squeezenet(path: Path) -> None:
    """Iandola et al. 2016, version 1.1."""
    net = Network("squeezenet")

    def conv_relu(x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> str:
        return net.node("Relu", [net.conv(x, inputs, outputs, kernel, stride, pad)])

    x, channels = net.max_pool(conv_relu("image", 3, 64, 3, 2), 3, 2), 64
    for squeeze, expand, pool in (
        (16, 64, False),
        (16, 64, True),
        (32, 128, False),
        (32, 128, True),
        (48, 192, False),
        (48, 192, False),
        (64, 256, False),
        (64, 256, False),
    ):
        s = conv_relu(x, channels, squeeze, 1)
        x = net.node("Concat", [conv_relu(s, squeeze, expand, 1), conv_relu(s, squeeze, expand, 3, pad=1)], axis=1)
        channels = 2 * expand
        if pool:
            x = net.max_pool(x, 3, 2)
    x = net.node("GlobalAveragePool", [conv_relu(x, channels, 1000, 1)])
    net.save(path, net.node("Softmax", [net.node("Flatten", [x], axis=1)], axis=-1), [1, 1000])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    resnet50(folder / "resnet50.onnx")
    squeezenet(folder / "squeezenet.onnx")
