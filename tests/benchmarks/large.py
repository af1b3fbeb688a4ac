"""Networks of today's sizes with seeded random weights, in ONNX: each is built on the spot, its
weights written one by one into a file next to the model.

python tests/benchmarks/large.py FOLDER NAME ...    NAME is one of: gpt2 (124 million parameters),
llama_f32, llama_f16, llama_int4 (1.1 billion), vit_large (304 million), whisper_base (71 million,
encoder and decoder as one network), diffusion_unet (860 million, halves), chain_N (N layers)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from networks import Network, chain

# the sizes of one step of a decoder, which targets of static shapes are given
LLAMA = {"input_ids": "1,4", "attention_mask": "1,12", "past_key_values.0.key": "1,4,8,64"}
SIZES = {
    "gpt2": {"input_ids": "1,4", "mask": "1,1,4,12", "past.0.key": "1,12,8,64"},
    "llama_f32": LLAMA,
    "llama_f16": LLAMA,
    "llama_int4": LLAMA,
}
NAMES = (*SIZES, "vit_large", "whisper_base", "diffusion_unet")
FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}
# random numbers are drawn once and written again and again, each time multiplied: a gigabyte of
# normal numbers takes longer than a conversion
DRAWN = 1 << 22


class Large(Network):
    """A network whose weights lie in `path` + ".data"; `dtype` is the type of all floats."""

    def __init__(self, path: Path, dtype: type[np.floating] = np.float32) -> None:
        super().__init__(path.stem)
        self.path, self.dtype = path, np.dtype(dtype)
        self.data = Path(f"{path}.data").open("wb")  # noqa: SIM115  (finish closes it)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.drawn = self.random.standard_normal(DRAWN, np.float32)

    def outside(self, name: str, kind: int, shape: Sequence[int], pieces: Sequence[bytes]) -> str:
        self.data.write(b"\0" * (-self.data.tell() % 64))
        start = self.data.tell()
        for piece in pieces:
            self.data.write(piece)
        weight = TensorProto(name=name, data_type=kind, dims=shape, data_location=1)
        place = {
            "location": Path(self.data.name).name,
            "offset": start,
            "length": self.data.tell() - start,
        }
        for key, value in place.items():
            weight.external_data.add(key=key, value=str(value))
        self.weights.append(weight)
        return name

    def weight(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        left, pieces = int(np.prod(shape)), []
        number = len(self.weights)
        base = (offset + scale * (1 + number % 7 / 100) * self.drawn).astype(self.dtype)
        base = np.roll(base, number)  # no two weights are equal
        while left > 0:
            pieces.append(base[:left].tobytes())
            left -= DRAWN
        return self.outside(f"weight_{number}", FLOATS[self.dtype], shape, pieces)

    def integers(self, *shape: int) -> str:
        """Random bytes: packed four-bit weights or zero points."""
        values = self.random.integers(0, 256, shape, np.uint8)
        return self.outside(
            f"weight_{len(self.weights)}", TensorProto.UINT8, shape, [values.tobytes()]
        )

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.dtype))

    def shape(self, *sizes: int) -> str:
        return self.constant(np.array(sizes, np.int64))

    def input(self, name: str, kind: int | None, sizes: Sequence[int | str]) -> str:
        kind = FLOATS[self.dtype] if kind is None else kind
        self.inputs.append(helper.make_tensor_value_info(name, kind, sizes))
        return name

    def output(self, value: str, name: str, sizes: Sequence[int | str]) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name], f"{name}_identity"))
        self.outputs.append(helper.make_tensor_value_info(name, FLOATS[self.dtype], sizes))

    def contributed(
        self, kind: str, inputs: Sequence[str], results: int, **attributes: object
    ) -> list[str]:
        """A node of onnxruntime's own operators."""
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(results)]
        node = helper.make_node(
            kind, list(inputs), names, names[0], domain="com.microsoft", **attributes
        )
        self.nodes.append(node)
        return names

    def heads(self, x: str, heads: int, size: int, perm: Sequence[int]) -> str:
        """(batch, length, heads * size) to `perm` of (batch, length, heads, size)."""
        return self.node(
            "Transpose", [self.node("Reshape", [x, self.shape(0, -1, heads, size)])], perm=perm
        )

    def attend(self, q: str, k: str, v: str, size: int, mask: str = "") -> str:
        """q, v: (batch, heads, length, size), k: (batch, heads, size, length); the result is
        (batch, length, heads * size).
        """
        scores = self.node("MatMul", [q, k])
        scores = self.node("Mul", [scores, self.number(size**-0.5)])
        if mask:
            scores = self.node("Add", [scores, mask])
        y = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), v])
        y = self.node("Transpose", [y], perm=(0, 2, 1, 3))
        return self.node("Reshape", [y, self.shape(0, 0, -1)])

    def attention(self, x: str, other: str, width: int, heads: int, mask: str = "") -> str:
        """Self-attention of `x`, or cross-attention to `other`, with its projections."""
        size = width // heads
        q = self.heads(self.linear(x, width, width), heads, size, (0, 2, 1, 3))
        k = self.heads(self.linear(other, width, width), heads, size, (0, 2, 3, 1))
        v = self.heads(self.linear(other, width, width), heads, size, (0, 2, 1, 3))
        return self.linear(self.attend(q, k, v, size, mask), width, width)

    def gelu(self, x: str) -> str:
        y = self.node("Erf", [self.node("Mul", [x, self.number(0.5**0.5)])])
        y = self.node("Mul", [x, self.node("Add", [y, self.number(1)])])
        return self.node("Mul", [y, self.number(0.5)])

    def perceptron(self, x: str, width: int) -> str:
        return self.linear(self.gelu(self.linear(x, width, 4 * width)), 4 * width, width)

    def add(self, a: str, b: str) -> str:
        return self.node("Add", [a, b])

    def group_norm(self, x: str, channels: int) -> str:
        """32 groups over the plane, as instance normalization of a reshaped tensor."""
        y = self.node("Reshape", [x, self.shape(0, 32, -1)])
        ones = self.constant(np.ones(32, self.dtype))
        zeros = self.constant(np.zeros(32, self.dtype))
        y = self.node("InstanceNormalization", [y, ones, zeros], epsilon=1e-5)
        y = self.node("Reshape", [y, self.node("Shape", [x])])
        y = self.node("Mul", [y, self.weight(channels, 1, 1, scale=0.01, offset=1.0)])
        return self.add(y, self.weight(channels, 1, 1, scale=0.01))

    def silu(self, x: str) -> str:
        return self.node("Mul", [x, self.node("Sigmoid", [x])])

    def finish(self) -> None:
        self.data.close()
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), self.path)


def gpt2(path: Path) -> None:
    """Radford et al. 2019, 124 million parameters, with the keys and values of the past."""
    net, width, heads, size = Large(path), 768, 12, 64
    ids = net.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    net.input("position_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = net.input("mask", None, ["batch", 1, "sequence", "total"])
    table = net.weight(50257, width, scale=0.02)
    places = net.node("Gather", [net.weight(1024, width, scale=0.02), "position_ids"])
    x = net.add(net.node("Gather", [table, ids]), places)
    for layer in range(12):
        y = net.layer_norm(x, width)
        q, k, v = net_split(net, net.linear(y, width, 3 * width), heads, size)
        for name, now in (("key", k), ("value", v)):
            sizes = ["batch", heads, "past", size]
            past = net.input(f"past.{layer}.{name}", None, sizes)
            joined = net.node("Concat", [past, now], axis=2)
            net.output(joined, f"present.{layer}.{name}", ["batch", heads, "total", size])
            k, v = (joined, v) if name == "key" else (k, joined)
        k = net.node("Transpose", [k], perm=(0, 1, 3, 2))
        x = net.add(x, net.linear(net.attend(q, k, v, size, mask), width, width))
        x = net.add(x, net.perceptron(net.layer_norm(x, width), width))
    x = net.layer_norm(x, width)
    x = net.node("MatMul", [x, net.node("Transpose", [table], perm=(1, 0))])
    net.output(x, "logits", ["batch", "sequence", 50257])
    net.finish()


def net_split(net: Large, x: str, heads: int, size: int) -> list[str]:
    """Queries, keys and values of one projection, each (batch, heads, length, size)."""
    width, parts = heads * size, []
    for i in range(3):
        bounds = [net.shape(v) for v in (i * width, (i + 1) * width, 2)]
        parts.append(net.heads(net.node("Slice", [x, *bounds]), heads, size, (0, 2, 1, 3)))
    return parts


def llama(path: Path) -> None:
    """TinyLlama's sizes (22 layers, 32 heads, 4 of keys and values) in onnxruntime's operators for
    decoders; `path` ends in _f32, _f16 or _int4 (blocks of 32, float activations).
    """
    kind = path.stem.rpartition("_")[2]
    net = Large(path, np.float16 if kind == "f16" else np.float32)
    width, heads, shared, size, inner, words = 2048, 32, 4, 64, 5632, 32000

    def linear(x: str, k: int, n: int) -> str:
        if kind != "int4":
            return net.node("MatMul", [x, net.weight(k, n, scale=k**-0.5)])
        packed = net.integers(n, k // 32, 16)
        scales = net.weight(n * k // 32, scale=k**-0.5 / 80, offset=k**-0.5 / 8)
        zeros = net.integers(n * ((k // 32 + 1) // 2))
        given = [x, packed, scales, zeros]
        return net.contributed("MatMulNBits", given, 1, K=k, N=n, bits=4, block_size=32)[0]

    ids = net.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = net.input("attention_mask", TensorProto.INT64, ["batch", "total"])
    counted = net.node("ReduceSum", [mask, net.shape(1)], keepdims=1)
    lengths = net.node("Sub", [counted, net.shape(1)])
    lengths = net.node("Cast", [lengths], to=TensorProto.INT32)
    total = net.node("Gather", [net.node("Shape", [mask]), net.constant(np.array(1))])
    total = net.node("Cast", [total], to=TensorProto.INT32)
    angles = np.arange(2048)[:, None] / 10000 ** (np.arange(size // 2) / (size // 2))
    turns = [net.constant(f(angles).astype(net.dtype)) for f in (np.cos, np.sin)]
    x = net.node("Gather", [net.weight(words, width), ids])
    gain = net.weight(width, scale=0.01, offset=1.0)
    y = net.node("SimplifiedLayerNormalization", [x, gain], axis=-1, epsilon=1e-5)
    for layer in range(22):
        given = [linear(y, width, n * size) for n in (heads, shared, shared)]
        for name in ("key", "value"):
            sizes = ["batch", shared, "past", size]
            given.append(net.input(f"past_key_values.{layer}.{name}", None, sizes))
        given += [lengths, total, *turns]
        made = net.contributed(
            "GroupQueryAttention", given, 3, num_heads=heads, kv_num_heads=shared, do_rotary=1
        )
        for name, value in zip(("key", "value"), made[1:], strict=True):
            net.output(value, f"present.{layer}.{name}", ["batch", shared, "total", size])
        x, y = skip_norm(net, x, linear(made[0], width, width), width)
        gate = net.silu(linear(y, width, inner))
        y = linear(net.node("Mul", [gate, linear(y, width, inner)]), inner, width)
        x, y = skip_norm(net, x, y, width)
    net.output(linear(y, width, words), "logits", ["batch", "sequence", words])
    net.finish()


def skip_norm(net: Large, x: str, y: str, width: int) -> tuple[str, str]:
    """The sum of both, and the sum normalized by its root mean square."""
    total = net.add(x, y)
    gain = net.weight(width, scale=0.01, offset=1.0)
    normal = net.node("SimplifiedLayerNormalization", [total, gain], axis=-1, epsilon=1e-5)
    return total, normal


def vit_large(path: Path) -> None:
    """Dosovitskiy et al. 2020: 24 layers of width 1024, patches of 16 x 16 of a plane of 224."""
    net, width = Large(path), 1024
    image = net.input("image", None, [1, 3, 224, 224])
    x = net.conv(image, 3, width, 16, 16)
    x = net.node("Transpose", [net.node("Reshape", [x, net.shape(1, width, 196)])], perm=(0, 2, 1))
    x = net.node("Concat", [net.weight(1, 1, width, scale=0.02), x], axis=1)
    x = net.add(x, net.weight(1, 197, width, scale=0.02))
    for _ in range(24):
        y = net.layer_norm(x, width)
        x = net.add(x, net.attention(y, y, width, 16))
        x = net.add(x, net.perceptron(net.layer_norm(x, width), width))
    x = net.node("Gather", [net.layer_norm(x, width), net.constant(np.array(0))], axis=1)
    net.output(net.linear(x, width, 1000), "classes", [1, 1000])
    net.finish()


def whisper_base(path: Path) -> None:
    """Radford et al. 2022: 6 layers that read 30 s of sound, 6 that read the tokens and them."""
    net, width, heads, tokens = Large(path), 512, 8, 32
    x = net.input("mel", None, [1, 80, 3000])
    for channels, stride in ((80, 1), (width, 2)):
        w = net.weight(width, channels, 3, scale=(channels * 3) ** -0.5)
        given = [x, w, net.weight(width, scale=0.01)]
        x = net.gelu(net.node("Conv", given, pads=[1, 1], strides=[stride], kernel_shape=[3]))
    x = net.node("Transpose", [x], perm=(0, 2, 1))
    x = net.add(x, net.weight(1500, width, scale=0.02))
    for _ in range(6):
        y = net.layer_norm(x, width)
        x = net.add(x, net.attention(y, y, width, heads))
        x = net.add(x, net.perceptron(net.layer_norm(x, width), width))
    sound = net.layer_norm(x, width)
    table = net.weight(51865, width, scale=0.02)
    ids = net.input("tokens", TensorProto.INT64, [1, tokens])
    x = net.add(net.node("Gather", [table, ids]), net.weight(tokens, width, scale=0.02))
    mask = net.constant(np.triu(np.full((tokens, tokens), -1e4, np.float32), 1))
    for _ in range(6):
        y = net.layer_norm(x, width)
        x = net.add(x, net.attention(y, y, width, heads, mask))
        x = net.add(x, net.attention(net.layer_norm(x, width), sound, width, heads))
        x = net.add(x, net.perceptron(net.layer_norm(x, width), width))
    x = net.layer_norm(x, width)
    x = net.node("MatMul", [x, net.node("Transpose", [table], perm=(1, 0))])
    net.output(x, "logits", [1, tokens, 51865])
    net.finish()


def diffusion_unet(path: Path) -> None:
    """Rombach et al. 2022: the denoiser of Stable Diffusion 1, 64 x 64 x 4, 77 tokens of text."""
    net = Large(path, np.float16)
    x = net.input("sample", None, [1, 4, 64, 64])
    net.input("time", None, [1, 320])  # the sinusoids of the step
    net.input("text", None, [1, 77, 768])
    time = net.linear(net.silu(net.linear("time", 320, 1280)), 1280, 1280)

    def residual(x: str, inputs: int, outputs: int) -> str:
        y = net.conv(net.silu(net.group_norm(x, inputs)), inputs, outputs, 3, 1, 1)
        step = net.linear(net.silu(time), 1280, outputs)
        y = net.add(y, net.node("Reshape", [step, net.shape(1, outputs, 1, 1)]))
        y = net.conv(net.silu(net.group_norm(y, outputs)), outputs, outputs, 3, 1, 1)
        return net.add(y, x if inputs == outputs else net.conv(x, inputs, outputs, 1))

    def transformer(x: str, width: int, plane: int) -> str:
        y = net.conv(net.group_norm(x, width), width, width, 1)
        y = net.node("Reshape", [y, net.shape(1, width, plane * plane)])
        y = net.node("Transpose", [y], perm=(0, 2, 1))
        z = net.layer_norm(y, width)
        y = net.add(y, net.attention(z, z, width, 8))
        text = net.linear("text", 768, width)  # 768 to the width once, for keys and values
        y = net.add(y, net.attention(net.layer_norm(y, width), text, width, 8))
        z = net.layer_norm(y, width)
        gate = net.node(
            "Mul", [net.linear(z, width, 4 * width), net.gelu(net.linear(z, width, 4 * width))]
        )
        y = net.add(y, net.linear(gate, 4 * width, width))
        y = net.node("Transpose", [y], perm=(0, 2, 1))
        y = net.node("Reshape", [y, net.shape(1, width, plane, plane)])
        return net.add(x, net.conv(y, width, width, 1))

    x, width, plane = net.conv(x, 4, 320, 3, 1, 1), 320, 64
    kept = [(x, width)]
    for level, wide in enumerate((320, 640, 1280, 1280)):
        for _ in range(2):
            x, width = residual(x, width, wide), wide
            x = transformer(x, width, plane) if level < 3 else x
            kept.append((x, width))
        if level < 3:
            x, plane = net.conv(x, width, width, 3, 2, 1), plane // 2
            kept.append((x, width))
    x = residual(transformer(residual(x, width, width), width, plane), width, width)
    for level, wide in enumerate((1280, 1280, 640, 320)):
        for _ in range(3):
            other, channels = kept.pop()
            x = residual(net.node("Concat", [x, other], axis=1), width + channels, wide)
            width = wide
            x = transformer(x, width, plane) if level else x
        if level < 3:
            factors = net.constant(np.array([1, 1, 2, 2], np.float32))
            x = net.node("Resize", [x, "", factors], mode="nearest")
            x, plane = net.conv(x, width, width, 3, 1, 1), plane * 2
    x = net.conv(net.silu(net.group_norm(x, width)), width, 4, 3, 1, 1)
    net.output(x, "noise", [1, 4, 64, 64])
    net.finish()


def make(folder: Path, name: str) -> None:
    path = folder / f"{name}.onnx"
    if name.startswith("chain_"):
        chain(path, int(name.removeprefix("chain_")))
    elif name.startswith("llama_"):
        llama(path)
    else:
        {f.__name__: f for f in (gpt2, vit_large, whisper_base, diffusion_unet)}[name](path)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        make(Path(sys.argv[1]), name)
