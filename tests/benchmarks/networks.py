"""Networks with seeded random weights, in ONNX, built on the spot: nothing is downloaded.

python tests/benchmarks/networks.py FOLDER NAME ...     NAME is a function below: one_layer,
squeezenet, resnet50 (102 MB of weights),
                                                  bert_base (438 MB), external (2.2 GB next to the
                                                  model), chain_2500, small_500, kinds (ten small
                                                  networks of different kinds, in a folder), ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A chain of nodes with the convolutional building blocks; every method returns the name of the
    value it makes.
    """

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

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, pad: int = 0
    ) -> str:
        w = self.weight(
            outputs, inputs, kernel, kernel, scale=(2 / (inputs * kernel * kernel)) ** 0.5
        )
        b = self.weight(outputs, scale=0.01)
        return self.node(
            "Conv", [x, w, b], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def norm(self, x: str, channels: int) -> str:
        parameters = [self.weight(channels, scale=0.01, offset=o) for o in (1.0, 0.0, 0.0)]
        return self.node(
            "BatchNormalization",
            [x, *parameters, self.weight(channels, scale=0.01, offset=1.0)],
            epsilon=1e-5,
        )

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.node(
            "MaxPool", [x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        y = self.node("MatMul", [x, self.weight(inputs, outputs, scale=inputs**-0.5)])
        return self.node("Add", [y, self.weight(outputs, scale=0.01)])

    def layer_norm(self, x: str, size: int) -> str:
        return self.node(
            "LayerNormalization",
            [x, self.weight(size, scale=0.01, offset=1.0), self.weight(size, scale=0.01)],
            axis=-1,
            epsilon=1e-12,
        )

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def save(
        self,
        path: Path,
        output: str,
        shape: Sequence[int],
        inputs: Sequence[int] = (1, 3, 224, 224),
        kind: int = TensorProto.FLOAT,
    ) -> None:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("image", kind, inputs)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            path,
        )


def resnet50(path: Path) -> None:
    """He et al. 2015, with batch normalization as nodes of its own."""
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
    x = net.node(
        "Gemm", [x, net.weight(1000, 2048, scale=0.02), net.weight(1000, scale=0.01)], transB=1
    )
    net.save(path, net.node("Softmax", [x], axis=-1), [1, 1000])


def squeezenet(path: Path) -> None:
    """Iandola et al. 2016, version 1.1."""
    net = Network("squeezenet")

    def conv_relu(
        x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, pad: int = 0
    ) -> str:
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
        x = net.node(
            "Concat",
            [conv_relu(s, squeeze, expand, 1), conv_relu(s, squeeze, expand, 3, pad=1)],
            axis=1,
        )
        channels = 2 * expand
        if pool:
            x = net.max_pool(x, 3, 2)
    x = net.node("GlobalAveragePool", [conv_relu(x, channels, 1000, 1)])
    net.save(path, net.node("Softmax", [net.node("Flatten", [x], axis=1)], axis=-1), [1, 1000])


def one_layer(path: Path) -> None:
    """A network of one operator, for the fixed cost of a conversion."""
    net = Network("one_layer")
    net.save(path, net.conv("image", 3, 3, 1), [1, 3, 8, 8], [1, 3, 8, 8])


def bert_base(path: Path) -> None:
    """Devlin et al. 2018: 12 layers of width 768, 12 heads, 128 tokens."""
    net, width, heads, length = Network("bert_base"), 768, 12, 128

    def turned(x: str, perm: Sequence[int]) -> str:
        return net.node(
            "Transpose",
            [net.node("Reshape", [x, net.constant(np.array([1, length, heads, width // heads]))])],
            perm=perm,
        )

    x = net.node("Gather", [net.weight(30522, width, scale=0.02), "image"])
    x = net.layer_norm(net.node("Add", [x, net.weight(1, length, width, scale=0.02)]), width)
    for _ in range(12):
        q, k, v = (
            turned(net.linear(x, width, width), perm)
            for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = net.node(
            "Div", [net.node("MatMul", [q, k]), net.constant(np.array(8, np.float32))]
        )
        y = net.node(
            "Transpose",
            [net.node("MatMul", [net.node("Softmax", [scores], axis=-1), v])],
            perm=(0, 2, 1, 3),
        )
        y = net.linear(
            net.node("Reshape", [y, net.constant(np.array([1, length, width]))]), width, width
        )
        x = net.layer_norm(net.node("Add", [x, y]), width)
        y = net.linear(x, width, 4 * width)
        y = net.node(
            "Add",
            [
                net.node("Erf", [net.node("Div", [y, net.constant(np.array(2**0.5, np.float32))])]),
                net.constant(np.array(1, np.float32)),
            ],
        )
        y = net.linear(
            net.node("Mul", [y, net.constant(np.array(0.5, np.float32))]), 4 * width, width
        )
        x = net.layer_norm(net.node("Add", [x, y]), width)
    net.save(path, x, [1, length, width], [1, length], TensorProto.INT64)


def external(path: Path, layers: int = 33, width: int = 4096) -> None:
    """Square matrices in a file next to the model; the file is made matrix by matrix."""
    net, base = (
        Network("external"),
        np.random.default_rng(0).standard_normal((width, width), np.float32)
        / np.float32(width**0.5),
    )
    x, data = "image", path.with_suffix(".onnx.data")
    with data.open("wb") as f:
        for i in range(layers):
            place = {"location": data.name, "offset": f.tell(), "length": base.nbytes}
            f.write((base * np.float32(1 + i / layers)).data)
            weight = TensorProto(
                name=f"weight_{i}",
                data_type=TensorProto.FLOAT,
                dims=base.shape,
                data_location=TensorProto.EXTERNAL,
            )
            for key, value in place.items():
                weight.external_data.add(key=key, value=str(value))
            net.weights.append(weight)
            x = net.node("Relu", [net.node("MatMul", [x, weight.name])])
    net.save(path, x, [1, width], [1, width])


def chain(path: Path, layers: int) -> None:
    """Conv, Relu, Add, MaxPool in turn, each with little to compute."""
    net, x = Network("chain"), "image"
    for i in range(layers):
        if i % 4 == 0:
            x = net.node("Conv", [x, net.weight(4, 4, 1, 1, scale=0.5)], kernel_shape=[1, 1])
        elif i % 4 == 2:
            x = net.node("Add", [x, net.weight(1, 4, 1, 1)])
        else:
            x = net.node("Relu", [x]) if i % 4 == 1 else net.max_pool(x, 3, 1, 1)
    net.save(path, x, [1, 4, 8, 8], [1, 4, 8, 8])


def small(folder: Path, count: int) -> None:
    """`count` networks of 14 layers."""
    folder.mkdir(parents=True)
    for seed in range(count):
        net, x = Network(f"small_{seed}", seed), "image"
        for k in range(5):
            x = net.node("Relu", [net.conv(x, 8 if k else 3, 8, 3, 2, 1)])
        x = net.node("Flatten", [net.node("GlobalAveragePool", [x])], axis=1)
        x = net.node("Gemm", [x, net.weight(10, 8), net.weight(10)], transB=1)
        net.save(folder / f"small_{seed}.onnx", net.node("Softmax", [x], axis=-1), [1, 10])


def mobile(net: Network) -> tuple[str, list[int], list[int]]:
    """Depthwise separable convolutions with residuals (Sandler et al. 2018)."""
    x, channels = net.conv("image", 3, 16, 3, 2, 1), 16
    for _ in range(4):
        y = net.node("Clip", [net.conv(x, channels, 64, 1), *bounds(net)])
        w = net.weight(64, 1, 3, 3, scale=0.3)
        y = net.node("Conv", [y, w, net.weight(64)], group=64, pads=[1] * 4)
        x = net.node("Add", [x, net.conv(net.node("Clip", [y, *bounds(net)]), 64, channels, 1)])
    return net.node("GlobalAveragePool", [x]), [1, channels, 1, 1], [1, 3, 64, 64]


def bounds(net: Network) -> list[str]:
    return [net.constant(np.array(v, np.float32)) for v in (0, 6)]


def unet(net: Network) -> tuple[str, list[int], list[int]]:
    """Down twice, up by transposed convolutions, joined by the channels."""
    first = net.node("Relu", [net.conv("image", 3, 8, 3, 1, 1)])
    second = net.node("Relu", [net.conv(net.max_pool(first, 2, 2), 8, 16, 3, 1, 1)])
    w = net.weight(16, 8, 2, 2, scale=0.2)
    up = net.node("ConvTranspose", [second, w], kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(net.node("Concat", [first, up], axis=1), 16, 4, 3, 1, 1)
    return net.node("Sigmoid", [x]), [1, 4, 48, 48], [1, 3, 48, 48]


def detector(net: Network) -> tuple[str, list[int], list[int]]:
    """A detection head whose classes follow the coordinates (Redmon et al. 2016)."""
    x = net.node("LeakyRelu", [net.conv("image", 3, 16, 3, 2, 1)], alpha=0.1)
    x = net.conv(x, 16, 18, 1)
    x = net.node("Reshape", [x, net.constant(np.array([1, 3, 6, 16, 16]))])
    x = net.node("Transpose", [x], perm=[0, 1, 3, 4, 2])
    x = net.node("Reshape", [net.node("Sigmoid", [x]), net.constant(np.array([1, 768, 6]))])
    return x, [1, 768, 6], [1, 3, 32, 32]


def attention(net: Network) -> tuple[str, list[int], list[int]]:
    """One block of self-attention on 12 tokens of width 32."""
    heads = [net.linear("image", 32, 32) for _ in range(3)]
    shape = net.constant(np.array([1, 12, 4, 8]))
    q, k, v = (
        net.node("Transpose", [net.node("Reshape", [h, shape])], perm=perm)
        for h, perm in zip(heads, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = net.node("Softmax", [net.node("MatMul", [q, k])], axis=-1)
    y = net.node("Transpose", [net.node("MatMul", [scores, v])], perm=[0, 2, 1, 3])
    y = net.node("Reshape", [y, net.constant(np.array([1, 12, 32]))])
    x = net.layer_norm(net.node("Add", ["image", net.linear(y, 32, 32)]), 32)
    return x, [1, 12, 32], [1, 12, 32]


def recurrent(kind: str, gates: int) -> Callable[[Network], tuple[str, list[int], list[int]]]:
    def build(net: Network) -> tuple[str, list[int], list[int]]:
        """One direction over 20 steps."""
        x = net.node("Transpose", ["image"], perm=[1, 0, 2])
        w, r = (net.weight(1, gates * 16, n, scale=0.2) for n in (8, 16))
        y = net.node(kind, [x, w, r, net.weight(1, gates * 32, scale=0.1)], hidden_size=16)
        y = net.node("Squeeze", [y, net.constant(np.array([1]))])
        return net.node("Transpose", [y], perm=[1, 0, 2]), [1, 20, 16], [1, 20, 8]

    return build


def audio(net: Network) -> tuple[str, list[int], list[int]]:
    """Dilated convolutions over time."""
    x, channels = "image", 1
    for dilation in (1, 2, 4):
        w, b = net.weight(8, channels, 3, scale=0.3), net.weight(8)
        pads = [dilation, dilation]
        x = net.node("Conv", [x, w, b], dilations=[dilation], pads=pads, kernel_shape=[3])
        x, channels = net.node("Tanh", [x]), 8
    return x, [1, 8, 160], [1, 1, 160]


def upscaler(net: Network) -> tuple[str, list[int], list[int]]:
    """Depth to space and a linear resize."""
    deep = net.node("DepthToSpace", [net.conv("image", 3, 12, 3, 1, 1)], blocksize=2, mode="CRD")
    factors = net.constant(np.array([1, 1, 2, 2], np.float32))
    wide = net.node("Resize", ["image", "", factors], mode="linear")
    return net.node("Add", [deep, wide]), [1, 3, 64, 64], [1, 3, 32, 32]


def gated(net: Network) -> tuple[str, list[int], list[int]]:
    """Group normalization and SiLU, as in diffusion networks."""
    x = net.conv("image", 3, 16, 3, 1, 1)
    y = net.node("Reshape", [x, net.constant(np.array([1, 4, -1]))])
    parameters = [net.constant(np.full(4, v, np.float32)) for v in (1, 0)]
    y = net.node("InstanceNormalization", [y, *parameters])
    y = net.node("Reshape", [y, net.constant(np.array([1, 16, 12, 12]))])
    y = net.node("Mul", [y, net.node("Sigmoid", [y])])
    return net.node("Add", [x, net.conv(y, 16, 16, 3, 1, 1)]), [1, 16, 12, 12], [1, 3, 12, 12]


def mlp(net: Network) -> tuple[str, list[int], list[int]]:
    """Rows of numbers to probabilities."""
    x = net.node("Relu", [net.linear("image", 20, 64)])
    return net.node("Softmax", [net.linear(x, 64, 5)], axis=-1), [1, 5], [1, 20]


KINDS: dict[str, Callable[[Network], tuple[str, list[int], list[int]]]] = {
    "mobile": mobile,
    "unet": unet,
    "detector": detector,
    "attention": attention,
    "lstm": recurrent("LSTM", 4),
    "gru": recurrent("GRU", 3),
    "audio": audio,
    "upscaler": upscaler,
    "gated": gated,
    "mlp": mlp,
}


def kinds(folder: Path) -> None:
    """Ten small networks of different kinds: each gives its output, its shape and the input's."""
    folder.mkdir(parents=True)
    for name, build in KINDS.items():
        net = Network(name)
        net.save(folder / f"{name}.onnx", *build(net))


def make(folder: Path, name: str) -> None:
    kind, _, number = name.partition("_")
    if name == "kinds":
        kinds(folder / name)
    elif kind == "chain":
        chain(folder / f"{name}.onnx", int(number))
    elif kind == "small":
        small(folder / name, int(number))
    else:
        {f.__name__: f for f in (one_layer, squeezenet, resnet50, bert_base, external)}[name](
            folder / f"{name}.onnx"
        )


if __name__ == "__main__":
    for name in sys.argv[2:]:
        make(Path(sys.argv[1]), name)
