"""The layout pass on hand-made networks: same numbers, and no Transpose that need not be there."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder
from converter.graph.channels_last import LAYOUT_SENSITIVE
from converter.graph.extensions import write_definition
from converter.graph.infer import infer, known
from converter.graph.names import Names
from converter.graph.walk import all_nodes
from converter.passes.channels_last import (
    boundary_permutation,
    count_transposes,
    restore_boundary,
    to_nchw,
    to_nhwc,
)
from networks import (
    attention,
    branches,
    conv,
    dense,
    dense_and_more,
    dense_quantized,
    detector,
    feeds_of,
    keras,
    last_ranks,
    mobilenet,
    network,
    normalised,
    per_axis,
    resnet,
    run,
    same,
    shuffle,
    shuffle_by_hand,
    signal,
    squeeze_excite,
    squeezenet,
    unet,
    w,
    with_image,
    yolo,
)


def check(model: ir.Model, *, kept: int, inner: int = 0) -> ir.Model:
    """`kept` Transposes with the boundary as it is, `inner` with images transposed at the boundary
    too; back again none but the original ones.
    """
    feeds = feeds_of(model)
    before = run(model, feeds)
    original = count_transposes(model)
    names = [v.name for v in [*model.graph.inputs, *model.graph.outputs]]

    last = model.clone()
    to_nhwc(last)
    assert [v.name for v in [*last.graph.inputs, *last.graph.outputs]] == names
    same(before, run(last, feeds))
    assert count_transposes(last) == kept
    assert not [
        n
        for n in all_nodes(last.graph)
        if n.domain == "" and ("", n.op_type) in LAYOUT_SENSITIVE and n.inputs[0].shape.rank() > 2
    ]
    back = last.clone()
    to_nchw(back)
    same(before, run(back, feeds))
    assert count_transposes(back) <= original
    assert not [n for n in all_nodes(back.graph) if n.domain == CHANNELS_LAST_DOMAIN]

    native = model.clone()
    warnings = to_nhwc(native, "native")
    assert [v.name for v in [*native.graph.inputs, *native.graph.outputs]] == names
    assert count_transposes(native) == inner
    perms = {v.name: boundary_permutation(v) for v in [*native.graph.inputs, *native.graph.outputs]}
    assert set(perms.values()) <= {None, (0, 2, 3, 1)}, "images alone are turned"
    assert [w.code for w in warnings] == ["X211"] * sum(
        boundary_permutation(v) is not None for v in [*native.graph.inputs, *native.graph.outputs]
    )
    turned = {k: v.transpose(perms[k]) if perms[k] else v for k, v in feeds.items()}
    outputs = [v.name for v in native.graph.outputs]
    same(
        [a.transpose(perms[n]) if perms[n] else a for a, n in zip(before, outputs, strict=True)],
        run(native, turned),
    )
    restore_boundary(native, {k: p for k, p in perms.items() if p})
    same(before, run(native, feeds))
    to_nchw(native)
    assert [v.name for v in [*native.graph.inputs, *native.graph.outputs]] == names
    same(before, run(native, feeds))
    assert count_transposes(native) <= original
    return last


CASES: dict[str, tuple[Callable[[Builder, ir.Value], Any], tuple[int | str, ...], int, int]] = {
    "resnet": (resnet, (2, 3, 8, 8), 1, 0),
    "resnet, one channel": (resnet, (2, 1, 8, 8), 0, 0),
    "resnet, any batch": (resnet, ("N", 3, 8, 8), 1, 0),
    "mobilenet": (mobilenet, (2, 3, 8, 8), 1, 0),
    "unet": (unet, (2, 3, 8, 8), 2, 0),
    "unet, any size": (unet, ("N", 3, 8, 8), 2, 0),
    "squeezenet": (squeezenet, (2, 3, 8, 8), 1, 0),
    "yolo head": (yolo, (2, 3, 8, 8), 2, 1),  # anchors before positions: data must move once
    "squeeze and excite": (squeeze_excite, (2, 3, 8, 8), 2, 0),
    "channel shuffle": (shuffle, (2, 3, 8, 8), 2, 0),
    "channel shuffle by hand": (shuffle_by_hand, (2, 3, 8, 8), 3, 1),  # data must move once
    "dense": (dense, (2, 3, 8, 8), 1, 0),
    "dense, quantised": (dense_quantized, (2, 3, 8, 8), 1, 0),
    "dense and another user": (dense_and_more, (2, 3, 8, 8), 2, 1),
    "keras": (keras, (2, 8, 8, 3), 0, 0),
    "detector": (detector, (2, 3, 8, 8), 1, 0),
    "operators with axes": (per_axis, (2, 3, 8, 8), 2, 0),
    "fewer axes": (last_ranks, (2, 3, 8, 8), 2, 1),  # an output of three axes is no image
    "operands of lower rank": (with_image, (2, 3, 8, 8), 3, 1),
    "attention": (attention, (2, 3, 8, 8), 2, 0),
    "bodies": (branches, (2, 3, 8, 8), 6, 4),  # bodies read and give canonical values
    "signal": (signal, (3, 8), 2, 2),
    "normalised": (normalised, (2, 3, 8, 8), 2, 0),
    "one dimension": (lambda b, x: conv(b, b.op("Relu", conv(b, x, 4)), 4), (2, 3, 8), 2, 2),
    "three dimensions": (
        lambda b, x: conv(b, b.op("Relu", conv(b, x, 4)), 4),
        (2, 3, 4, 4, 4),
        2,
        2,
    ),
    "nothing to do": (lambda b, x: b.op("Relu", x), (2, 3, 8, 8), 0, 0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_network(name: str) -> None:
    write, shape, kept, inner = CASES[name]
    check(network(write, shape), kept=kept, inner=inner)


def test_weights_are_views() -> None:
    """A permuted operand shares memory with the original; dense weights are computed only when they
    are asked for.
    """
    slope = w(4, 8, 8)
    model = network(
        lambda b, x: b.op("MatMul", b.op("Flatten", b.op("Add", conv(b, x, 4), slope)), w(256, 3))
    )
    to_nhwc(model)
    permuted = [v.const_value for v in model.graph.initializers.values()]
    assert any(np.shares_memory(t.numpy(), slope) and t.shape == (1, 8, 8, 4) for t in permuted)
    assert any(isinstance(t, ir.LazyTensor) and t.shape == (256, 3) for t in permuted)


def test_small_quantized_weights_after_a_flatten_stay_exact() -> None:
    """Results of small constants are remembered where nodes are made; the weights move."""

    def write(b: Builder, x: ir.Value) -> ir.Value:
        integers = np.arange(48, dtype=np.int8).reshape(48, 1)
        weights = b.op("DequantizeLinear", integers, np.float32(0.5), np.int8(3))
        return b.op("MatMul", b.op("Flatten", b.op("MaxPool", x, kernel_shape=[2, 2])), weights)

    model = network(write, (1, 3, 5, 5))
    to_nhwc(model)
    (node,) = [n for n in model.graph if n.op_type == "DequantizeLinear"]
    stored, remembered = known(node.inputs[0]), known(node.outputs[0])
    assert stored is not None and sorted(stored.reshape(-1)) == list(range(48))
    assert remembered is None or ((stored - 3.0) * 0.5 == remembered).all()


def test_boundary_corners() -> None:
    """An output that is an input of the graph, a Transpose of an input, one value as two
    outputs.
    """

    def write(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
        y = b.op("Transpose", x, perm=[0, 2, 3, 1])
        z = conv(b, x, 4)
        return (
            x,
            y,
            b.op("Transpose", z, perm=[0, 2, 3, 1]),
            b.op("Transpose", z, perm=[0, 2, 3, 1]),
            z,
        )

    model = network(write)
    model.graph.outputs.append(model.graph.initializers[next(iter(model.graph.initializers))])
    check(
        model, kept=3
    )  # two for the outputs x and z, one for the convolution and the output y together


def test_names_stay() -> None:
    """A value that is stored in another order keeps its name, so does one that is made by another
    node than before.
    """
    model = network(
        lambda b, x: b.op(
            "MatMul",
            b.op("Flatten", b.op("Relu", conv(b, x, 4), name="act"), name="flat"),
            w(256, 3),
        )
    )
    to_nhwc(model)
    names = {o.name for n in model.graph for o in n.outputs}
    assert {"act", "flat", model.graph.outputs[0].name} <= names


def test_twin_of_an_extension_operator() -> None:
    model = network(shuffle)
    to_nhwc(model)
    (node,) = [n for n in model.graph if n.op_type == "ShuffleChannels"]
    assert (
        node.domain == CHANNELS_LAST_DOMAIN
        and node.attributes["base_domain"].as_string() == "netconv"
    )


@pytest.mark.parametrize("name", CASES)
def test_a_twin_is_inferred_like_its_definition(name: str) -> None:
    """The outputs' types and shapes are those of Transpose, the operator, Transpose."""
    model = network(*CASES[name][:2])
    to_nhwc(model)
    for node in [n for n in all_nodes(model.graph) if n.domain == CHANNELS_LAST_DOMAIN]:
        told = [(o.type, o.shape) for o in node.outputs]
        for o in node.outputs:
            o.type = o.shape = None
        infer(node)
        assert [(o.type, o.shape) for o in node.outputs] == told
        b = Builder(ir.Graph([], [], nodes=[]), Names())
        written = write_definition(b, node, list(node.inputs))
        assert [(o.type, o.shape) for o in written] == told


def test_twice_the_layers_are_twice_the_work() -> None:
    """Calls are counted, not time: they are the same on every machine."""

    def calls(layers: int) -> int:
        def write(b: Builder, x: ir.Value) -> ir.Value:
            x = conv(b, x, 4)
            for _ in range(layers // 3):
                x = b.op("Add", b.op("Relu", b.op("AveragePool", x, kernel_shape=[1, 1])), x)
            return x

        model = network(write)
        profile = cProfile.Profile()
        profile.runcall(to_nhwc, model)
        assert count_transposes(model) == 2
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    calls(8)  # fills caches
    assert calls(3000) < 2.1 * calls(1500)
