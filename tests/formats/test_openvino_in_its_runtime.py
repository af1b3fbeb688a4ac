"""Written files in the openvino runtime itself: names, conditions, computed sizes, and forms that
it computes otherwise than its specification.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import converter
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.format import Flavor
from converter.formats.openvino.codec import read_ir
from converter.formats.openvino.format import write
from converter.graph.build import Builder, new_model
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import public_name, set_public_name

ov = pytest.importorskip("openvino")
from openvino import opset1, opset8, opset11  # noqa: E402

from layers import cases  # noqa: E402
from openvino_runtime import PRECISE, close, infer  # noqa: E402

F, T = np.float32, ir.DataType
RNG = np.random.default_rng(5)
VERSIONS = pytest.mark.parametrize("version", [10, 11])


def saved(path: Path, b: Builder, model: ir.Model, version: int) -> Model:
    source = Model(model, "onnx")
    source.save(path, f"openvino+ir={version}")
    return source


def names_in_runtime(path: Path) -> tuple[list[set[str]], list[set[str]]]:
    model = ov.Core().read_model(path)
    ov.Core().compile_model(model, "CPU")
    return [p.get_names() for p in model.inputs], [p.get_names() for p in model.outputs]


def names_in_ours(path: Path) -> list[str]:
    return [public_name(v) for v in converter.load(path).ir.graph.outputs]


@VERSIONS
def test_outputs_of_one_layer_keep_their_names(version: int, tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 6])
    parts = b.ops("Split", x, axis=1, num_outputs=3, outputs=3, names=("first", "second", "third"))
    b.output(parts[2], parts[0], b.op("Relu", parts[1], name="last"))
    saved(tmp_path / "m.xml", b, model, version)
    _, outputs = names_in_runtime(tmp_path / "m.xml")
    assert [sorted(names) for names in outputs] == [["third"], ["first"], ["last"]]
    assert names_in_ours(tmp_path / "m.xml") == ["third", "first", "last"]
    feed = RNG.standard_normal((2, 6)).astype(F)
    for got, wanted in zip(
        infer(tmp_path / "m.xml", [feed]),
        (feed[:, 4:], feed[:, :2], np.maximum(feed[:, 2:4], 0)),
        strict=True,
    ):
        np.testing.assert_array_equal(got, wanted)


def test_outputs_of_v10_are_counted_by_position(tmp_path: Path) -> None:
    """Ports 3, 4 and 5 of `cut` are cut.0, cut.1 and cut.2; so they are written again without a
    layer in between.
    """
    model, b = new_model()
    parts = b.ops(
        "Split",
        b.input("x", T.FLOAT, [2, 6]),
        axis=1,
        num_outputs=3,
        outputs=3,
        names=("cut.0", "cut.1", "cut.2"),
    )
    b.output(*parts)
    saved(tmp_path / "m.xml", b, model, 10)
    layers = read_ir(tmp_path / "m.xml", None).layers
    (split,) = [layer for layer in layers if "Split" in layer.type]
    assert (
        split.name == "cut"
        and [p.id for p in split.outputs] == [3, 4, 5]
        and "Convert" not in {layer.type for layer in layers}
    )
    assert [sorted(n) for n in names_in_runtime(tmp_path / "m.xml")[1]] == [
        ["cut.0"],
        ["cut.1"],
        ["cut.2"],
    ]
    assert names_in_ours(tmp_path / "m.xml") == ["cut.0", "cut.1", "cut.2"]
    converter.load(tmp_path / "m.xml").save(tmp_path / "again.xml", "openvino+ir=10")
    assert [layer.type for layer in read_ir(tmp_path / "again.xml", None).layers] == [
        layer.type for layer in layers
    ]


@VERSIONS
def test_an_output_that_is_an_input_has_its_name(version: int, tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2])
    b.output(x, b.op("Relu", x, name="y"))
    set_public_name(b.graph.outputs[0], "x")
    saved(tmp_path / "m.xml", b, model, version)
    assert names_in_runtime(tmp_path / "m.xml") == ([{"x"}], [{"x"}, {"y"}])
    assert names_in_ours(tmp_path / "m.xml") == ["x", "y"]


@VERSIONS
def test_a_name_that_two_of_the_interface_have_is_changed_with_a_warning(
    version: int, tmp_path: Path
) -> None:
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", T.FLOAT, [2]), name="y"))
    set_public_name(b.graph.outputs[0], "x")
    notes = write(
        Model(model, "onnx"), tmp_path / "m.xml", Flavor("openvino", {"ir": str(version)})
    )
    assert [d.code for d in notes] == ["X210"]
    assert names_in_runtime(tmp_path / "m.xml") == ([{"x"}], [{"x_1"}])


def test_layers_do_not_take_the_names_of_outputs(tmp_path: Path) -> None:
    """The layer before an output has its name: v10 names outputs by their layers."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 2, 4, 4])
    with b.provenance(layer="y"):
        inner = b.op("Sigmoid", x, name="inner")
    b.output(b.op("Relu", inner, name="y"))
    saved(tmp_path / "m.xml", b, model, 10)
    assert names_in_runtime(tmp_path / "m.xml")[1] == [{"y"}]
    assert {layer.name: layer.type for layer in read_ir(tmp_path / "m.xml", None).layers}[
        "y"
    ] == "ReLU"


def test_texts_are_refused_in_v10(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(b.op("Reshape", b.input("x", T.STRING, [1]), b.const([1, 1]), name="label"))
    with pytest.raises(UnsupportedError, match="'label' is a string tensor"):
        saved(tmp_path / "m.xml", b, model, 10)


def branching(path: Path, condition: list[int] | None, shapes: tuple[list[int], list[int]]) -> Path:
    def branch(name: str, shape: list[int]) -> Any:
        sizes = numpy_helper.from_array(np.array(shape), f"{name}_sizes")
        node = helper.make_node("Reshape", ["x", f"{name}_sizes"], [f"{name}_y"])
        return helper.make_graph(
            [node],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
            [sizes],
        )

    nodes = [
        helper.make_node(
            "If",
            ["c"],
            ["r"],
            then_branch=branch("a", shapes[0]),
            else_branch=branch("b", shapes[1]),
        ),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, condition),
    ]
    graph = helper.make_graph(
        nodes, "branching", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


@VERSIONS
@pytest.mark.parametrize("shape", [[], [1], [1, 1], [1, 1, 1]], ids=str)
def test_conditions_of_any_rank(shape: list[int], version: int, tmp_path: Path) -> None:
    path = branching(tmp_path / "m.onnx", shape, ([3, 4], [12, 1]))
    converter.load(path).save(tmp_path / "m.xml", f"openvino+ir={version}")
    for which, wanted in ((True, (3, 4)), (False, (12, 1))):
        (got,) = infer(tmp_path / "m.xml", [np.ones((2, 6), F), np.full(shape, which)])
        assert got.shape == wanted


def test_branches_of_other_ranks_are_refused_by_name(tmp_path: Path) -> None:
    path = branching(tmp_path / "m.onnx", [], ([12], [3, 4]))
    with pytest.raises(UnsupportedError, match="the branches give results of rank 1 and 2"):
        converter.load(path).save(tmp_path / "m.xml", "openvino")


def test_inputs_of_unknown_rank_are_refused_by_name(tmp_path: Path) -> None:
    path = branching(tmp_path / "m.onnx", None, ([3, 4], [4, 3]))
    with pytest.raises(UnsupportedError, match="the rank of input 'c' is unknown"):
        converter.load(path).save(tmp_path / "m.xml", "openvino")


@VERSIONS
@pytest.mark.parametrize("order", ["msb", "lsb"])
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.sampled(5)
def test_packed_weights_are_constants(bits: int, order: str, version: int, tmp_path: Path) -> None:
    """Not a network of their own, which readers take very long to compute."""
    numbers = RNG.integers(0, 1 << bits, (5, 1001)).astype(np.uint8)
    digits = np.unpackbits(numbers.reshape(-1, 1), axis=1)[:, 8 - bits :]
    stream = np.packbits(
        digits if order == "msb" else digits[:, ::-1],
        bitorder="big" if order == "msb" else "little",
    )
    model, b = new_model()
    codes = b.ext("UnpackBits", b.const(stream), bits=bits, shape=[5, 1001], order=order)
    b.output(
        b.op("MatMul", b.op("DequantizeLinear", codes, F(0.5)), b.input("x", T.FLOAT, [1001, 3]))
    )
    saved(tmp_path / "m.xml", b, model, version)
    feed = (RNG.random((1001, 3)) - 0.5).astype(F)
    wanted = [(numbers * 0.5 @ feed).astype(F)]
    close(infer(tmp_path / "m.xml", [feed]), wanted, 1e-2)
    close(list(converter.load(tmp_path / "m.xml").run({"x": feed}).values()), wanted, 1e-2)
    assert {layer.type for layer in read_ir(tmp_path / "m.xml", None).layers} <= {
        "Parameter",
        "Const",
        "Convert",
        "Multiply",
        "MatMul",
        "Result",
    }
    stored = [
        layer.data["element_type"]
        for layer in read_ir(tmp_path / "m.xml", None).layers
        if layer.type == "Const"
    ]
    assert {1: "u1", 2: "u2", 4: "u4"}.get(bits, "u8") in stored


@pytest.mark.parametrize("mode", ["bilinear_pillow", "bicubic_pillow"])
@pytest.mark.parametrize("scale", [0.6, 0.37, 1.3])
def test_pillow_modes_follow_the_sizes(mode: str, scale: float, tmp_path: Path) -> None:
    """Scales that the sizes are no multiples of: the runtime counts with the sizes."""
    x = opset1.parameter([1, 2, 11, 13], F)
    x.output(0).set_names({"x"})
    y = opset11.interpolate(x, np.array([scale, scale], F), mode, "scales", axes=[2, 3])
    ov.serialize(ov.Model([y], [x], "pillow"), tmp_path / "a.xml")
    feed = RNG.standard_normal((1, 2, 11, 13)).astype(F)
    wanted = infer(tmp_path / "a.xml", [feed])
    model = converter.load(tmp_path / "a.xml")
    close(list(model.run({"x": feed}).values()), wanted, 1e-4)
    model.save(tmp_path / "b.xml", "openvino")
    close(infer(tmp_path / "b.xml", [feed]), wanted, 1e-4)


@pytest.mark.parametrize("scale", [0.6, 0.5])
def test_antialias_by_factors_is_written_as_the_operator_computes_it(
    scale: float, tmp_path: Path
) -> None:
    """0.6 of 11 is no integer: the operator goes on with 0.6, the runtime's modes would
    not.
    """
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 1, 12 - (scale == 0.6), 10])
    b.output(
        b.op(
            "Resize",
            x,
            None,
            np.array([1, 1, scale, scale], F),
            mode="linear",
            antialias=1,
            exclude_outside=1,
        )
    )
    source = saved(tmp_path / "m.xml", b, model, 11)
    assert ("bilinear_pillow" in (tmp_path / "m.xml").read_text()) == (scale == 0.5)
    feed = RNG.standard_normal([int(d) for d in x.shape or ()]).astype(F)
    close(infer(tmp_path / "m.xml", [feed]), list(source.run({"x": feed}).values()), 1e-4)


@VERSIONS
def test_the_last_states_of_both_directions(version: int, tmp_path: Path) -> None:
    """A Squeeze after a recurrent layer of two directions is taken for another in v10."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [5, 1, 3])
    weights = [RNG.standard_normal((2, 16, n)).astype(F) for n in (3, 4)]
    y, h, c = b.ops("LSTM", x, *weights, outputs=3, hidden_size=4, direction="bidirectional")
    b.output(b.op("Squeeze", y, [2]), b.op("Squeeze", h, [1]), b.op("Squeeze", c, [1]))
    source = saved(tmp_path / "m.xml", b, model, version)
    feed = RNG.standard_normal((5, 1, 3)).astype(F)
    close(infer(tmp_path / "m.xml", [feed]), list(source.run({"x": feed}).values()), 1e-4)
    assert ("Squeeze" in {layer.type for layer in read_ir(tmp_path / "m.xml", None).layers}) == (
        version == 11
    )


@VERSIONS
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_sequence_whose_data_others_read(version: int, kind: str, tmp_path: Path) -> None:
    """The runtime removes the transposition before a sequence for the others, too."""
    model, b = new_model()
    gates = 3 if kind == "GRU" else 4
    x = b.input("x", T.FLOAT, [4, 2, 5])
    w, r = (RNG.standard_normal((1, gates * 3, n)).astype(F) for n in (5, 3))
    more = b.op("ReduceMax", b.op("Transpose", x, perm=[1, 0, 2]), [1], keepdims=0)
    b.output(b.op(kind, x, w, r, hidden_size=3), b.op(kind, x, -w, r, hidden_size=3), more)
    source = saved(tmp_path / "m.xml", b, model, version)
    feed = RNG.standard_normal((4, 2, 5)).astype(F)
    close(infer(tmp_path / "m.xml", [feed]), list(source.run({"x": feed}).values()), 1e-5)


@VERSIONS
@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_a_dynamic_batch_and_constant_states(version: int, kind: str, tmp_path: Path) -> None:
    """The CPU plugin cannot compile a sequence whose states alone have a static batch."""
    model, b = new_model()
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind]
    x = b.input("x", T.FLOAT, ["length", "batch", 5])
    w, r = (RNG.standard_normal((1, gates * 3, n)).astype(F) for n in (5, 3))
    states = [RNG.standard_normal((1, 2, 3)).astype(F) for _ in range(1 + (kind == "LSTM"))]
    y, last = b.ops(kind, x, w, r, None, None, *states, outputs=2, hidden_size=3)
    b.output(y, last)
    source = saved(tmp_path / "m.xml", b, model, version)
    feed = RNG.standard_normal((4, 2, 5)).astype(F)
    close(infer(tmp_path / "m.xml", [feed]), list(source.run({"x": feed}).values()), 1e-5)


@VERSIONS
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 30, 200])
def test_the_first_of_equal_elements(version: int, k: int, largest: int, tmp_path: Path) -> None:
    """TopK before opset 11 takes any of them."""
    feed = RNG.integers(0, 3, (2, 200)).astype(F)
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 200])
    places = b.ops("TopK", x, [k], outputs=2, largest=largest)[1]
    op = "ArgMax" if largest else "ArgMin"
    best, last = (b.op(op, x, axis=1, keepdims=i, select_last_index=i) for i in (0, 1))
    b.output(places, best, last)
    saved(tmp_path / "m.xml", b, model, version)
    signed = -feed if largest else feed
    wanted = [
        np.argsort(signed, 1, kind="stable")[:, :k],
        signed.argmin(1),
        199 - signed[:, ::-1].argmin(1, keepdims=True),
    ]
    for got, want in zip(infer(tmp_path / "m.xml", [feed]), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_best_of_a_dynamic_axis_in_v10(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["n", 3])
    b.output(b.ops("TopK", x, [2], outputs=2, axis=0)[1], b.op("ArgMax", x, axis=0, keepdims=0))
    saved(tmp_path / "m.xml", b, model, 10)
    feed = np.array([[1, 5, 2], [1, 7, 2], [0, 7, 3]], F)
    two, best = infer(tmp_path / "m.xml", [feed])
    np.testing.assert_array_equal(two, [[0, 1, 2], [1, 2, 0]])
    np.testing.assert_array_equal(best, [0, 1, 2])


def test_equal_elements_of_a_long_axis_in_v10(tmp_path: Path) -> None:
    """More than 46,340 elements: the indices of group and element together need over 32 bits."""
    feed = RNG.integers(0, 500, (2, 50000)).astype(F)
    model, b = new_model()
    x = b.input("x", T.FLOAT, [*feed.shape])
    b.output(*b.ops("TopK", x, [9000], outputs=2, axis=1), b.op("ArgMax", x, axis=1, keepdims=0))
    saved(tmp_path / "m.xml", b, model, 10)
    values, places, best = infer(tmp_path / "m.xml", [feed])
    wanted = np.argsort(-feed, axis=1, kind="stable")[:, :9000]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(feed, wanted, 1))
    np.testing.assert_array_equal(best, feed.argmax(1))


def test_more_elements_than_indices_of_v10_distinguish(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(b.ops("TopK", b.input("x", T.FLOAT, [2_000_000]), [9], outputs=2, axis=0)[1])
    with pytest.raises(ConverterError, match="stable sorting needs opset 11"):
        saved(tmp_path / "m.xml", b, model, 10)


def test_rows_filled_up_in_their_order(tmp_path: Path) -> None:
    """By a sort of v10, which mixes up equal elements."""
    model, b = new_model()
    n = 40
    x, i = b.input("x", T.FLOAT, [n]), b.input("i", T.INT64, [n, 2])
    results = b.exts("SparseFillEmptyRows", i, x, np.float32(9), rows=3, length=n, outputs=3)
    b.output(*results)
    saved(tmp_path / "m.xml", b, model, 10)
    values = RNG.standard_normal(n).astype(F)
    places = np.stack([np.arange(n) % 3, np.arange(n)], 1)
    _, found, _ = infer(tmp_path / "m.xml", [values, places])
    np.testing.assert_array_equal(found, np.concatenate([values[k::3] for k in range(3)]))


@VERSIONS
@pytest.mark.parametrize("shape", [[3], [1, 3]], ids=str)
def test_computed_repeats(shape: list[int], version: int, tmp_path: Path) -> None:
    """In a list, or in a row; and of several axes, of which the runtime makes garbage when they are
    not known before.
    """
    model, b = new_model()
    x, repeats = b.input("x", T.FLOAT, [2, 3, 4]), b.input("repeats", T.INT64, shape)
    y = b.op("Tile", x, b.op("Reshape", repeats, [3]))
    b.output(y)
    node = y.producer()
    assert node is not None
    node.replace_input_with(1, repeats)
    saved(tmp_path / "m.xml", b, model, version)
    feed, counts = RNG.standard_normal((2, 3, 4)).astype(F), np.array([3, 2, 2])
    (got,) = infer(tmp_path / "m.xml", [feed, counts.reshape(shape)])
    np.testing.assert_array_equal(got, np.tile(feed, counts))


def test_a_proposal_whose_image_is_a_row(tmp_path: Path) -> None:
    """Legacy networks say the image's size as [1, 3], the opsets as [3]."""
    model, b = new_model()
    scores, boxes, image = (
        b.input(n, T.FLOAT, s)
        for n, s in (("scores", [1, 6, 4, 4]), ("boxes", [1, 12, 4, 4]), ("image", [1, 3]))
    )
    found = b.exts(
        "Proposal",
        scores,
        boxes,
        image,
        outputs=2,
        base_size=16,
        pre_nms_topn=20,
        post_nms_topn=5,
        nms_thresh=0.7,
        feat_stride=16,
        min_size=4,
        ratio=[0.5, 1.0, 2.0],
        scale=[1.0],
        clip_before_nms=1,
        clip_after_nms=0,
        normalize=0,
        box_size_scale=1.0,
        box_coordinate_scale=1.0,
        framework="",
    )
    b.output(found[0])
    source = saved(tmp_path / "m.xml", b, model, 11)
    feeds = {
        "scores": RNG.random((1, 6, 4, 4)).astype(F),
        "boxes": RNG.random((1, 12, 4, 4)).astype(F) * F(0.1),
        "image": np.array([[64, 64, 1]], F),
    }
    close(infer(tmp_path / "m.xml", list(feeds.values())), list(source.run(feeds).values()), 1e-3)


def test_legacy_deformable_convolution_clamps_at_the_border(tmp_path: Path) -> None:
    """The engine of legacy networks and opset8 without `bilinear_interpolation_pad` compute the
    same.
    """
    from converter.formats.openvino.ir import Edge, Layer, Net, Port

    x, offsets, weights = (
        RNG.standard_normal(s).astype(F) for s in ((1, 2, 5, 6), (1, 18, 5, 6), (3, 2, 3, 3))
    )
    data = {
        "kernel": "3,3",
        "strides": "1,1",
        "dilations": "1,1",
        "pads_begin": "1,1",
        "pads_end": "1,1",
        "output": "3",
        "group": "1",
    }
    ports = [Port(i, a.shape, "FP32") for i, a in enumerate((x, offsets))]
    layers = [
        Layer(i, n, "Input", precision="FP32", outputs=[Port(0, p.dims, "FP32")])
        for i, (n, p) in enumerate(zip(("x", "offsets"), ports, strict=True))
    ]
    layers.append(
        Layer(
            2,
            "y",
            "DeformableConvolution",
            precision="FP32",
            data={**data, "deformable_group": "1"},
            inputs=ports,
        )
    )
    layers[2].outputs, layers[2].blobs = (
        [Port(2, (1, 3, 5, 6), "FP32")],
        {"weights": LazyTensor(weights)},
    )
    from converter.formats.openvino.codec import write_ir
    from converter.io.files import Output

    with Output(tmp_path / "a.xml") as out:
        write_ir(
            Net(
                name="legacy", version=7, layers=layers, edges=[Edge(0, 0, 2, 0), Edge(1, 0, 2, 1)]
            ),
            out,
        )
    a, o = opset1.parameter(list(x.shape), F), opset1.parameter(list(offsets.shape), F)
    y = opset8.deformable_convolution(
        a,
        o,
        opset1.constant(weights),
        [1, 1],
        [1, 1],
        [1, 1],
        [1, 1],
        bilinear_interpolation_pad=False,
    )
    (wanted,) = (
        ov.Core()
        .compile_model(ov.Model([y], [a, o], "opset8"), "CPU", PRECISE)([x, offsets])
        .values()
    )
    model = converter.load(tmp_path / "a.xml")
    close(list(model.run({"x": x, "offsets": offsets}).values()), [wanted], 1e-3)
    model.save(tmp_path / "b.xml", "openvino")
    close(infer(tmp_path / "b.xml", [x, offsets]), [wanted], 1e-3)
    model.save(tmp_path / "c.xml", "openvino+ir=7")
    assert [layer.type for layer in read_ir(tmp_path / "c.xml", None).layers] == [
        "Input",
        "Input",
        "DeformableConvolution",
    ]


def test_computed_axes(tmp_path: Path) -> None:
    """The number of computed axes determines the rank; where that is not known either, the runtime
    knows none.
    """
    feed = RNG.standard_normal((2, 3)).astype(F)
    for kind, count in (("ReduceSum", 1), ("Squeeze", 1), ("ReduceSum", "n"), ("Squeeze", "n")):
        model, b = new_model()
        shape = [2, 3] if kind == "ReduceSum" else [2, 1, 3]
        x, axes = b.input("x", T.FLOAT, shape), b.input("axes", T.INT64, [count])
        b.output(
            b.op(
                kind,
                x,
                axes,
                **({"keepdims": 0, "noop_with_empty_axes": 1} if kind == "ReduceSum" else {}),
            )
        )
        if count == "n":
            with pytest.raises(UnsupportedError, match="the axes are computed"):
                saved(tmp_path / "m.xml", b, model, 11)
            continue
        saved(tmp_path / "m.xml", b, model, 11)
        close(
            infer(tmp_path / "m.xml", [feed.reshape(shape), np.array([1])]),
            [feed.sum(1) if kind == "ReduceSum" else feed],
            1e-5,
        )


def fingerprint(words: list[int]) -> int:
    """FarmHash's Fingerprint64 of 2 to 4 words of 32 bits, signed."""
    data = b"".join(w.to_bytes(4, "little") for w in words)
    whole, k2 = 2**64, 0x9AE16A3B2F90404F
    mul = k2 + len(data) * 2

    def rotated(v: int, n: int) -> int:
        return (v >> n | v << 64 - n) % whole

    first = (int.from_bytes(data[:8], "little") + k2) % whole
    last = int.from_bytes(data[-8:], "little")
    c, d = (rotated(last, 37) * mul + first) % whole, (rotated(first, 25) + last) * mul % whole
    a = (c ^ d) * mul % whole
    a ^= a >> 47
    b = (d ^ a) * mul % whole
    b ^= b >> 47
    result = b * mul % whole
    return result - whole * (result >> 63)


@pytest.mark.sampled(2)
@pytest.mark.sampled(5)
@VERSIONS
@pytest.mark.parametrize("seeds_are", ["constant", "computed"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_hashes_of_64_bits(version: int, seeds_are: str, width: int, tmp_path: Path) -> None:
    model, b = new_model()
    seeds = np.append(
        RNG.standard_normal(20), [0, 1, -1, 2.0**127, -(2.0**-126), 3e38, 0.9999999, 2.0000002, 7]
    ).astype(F)
    corners = [-(2**31), 2**31 - 1, -1, 0, 2**24 + 1, -65536, 65535, -(2**24) - 1, 16777215]
    x = RNG.integers(-(2**31), 2**31, (9, width)).astype(np.int32)
    x[:, 0] = corners
    weight = RNG.standard_normal(9).astype(F)
    wide = b.const(seeds[None]) if seeds_are == "constant" else b.input("s", T.FLOAT, [1, 29])
    rows = b.input("x", T.INT32, [9, width])
    b.output(b.ext("LSHProjection", wide, rows, b.input("w", T.FLOAT, [9]), kind=2))
    saved(tmp_path / "m.xml", b, model, version)
    feeds = [x, weight] if seeds_are == "constant" else [seeds[None], x, weight]
    wanted = [
        sum(
            float(w) * fingerprint([int(n) % 2**32 for n in (seed.view(np.int32), *row)])
            for w, row in zip(weight, x, strict=True)
        )
        > 0
        for seed in seeds
    ]
    close(infer(tmp_path / "m.xml", feeds), [np.array(wanted).astype(np.int32)], 0)


def test_hashes_are_refused_where_integers_are_floats(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", T.INT32, [3, 2])
    b.output(b.ext("LSHProjection", b.const(np.array([[0.123, 0.456]], F)), x, kind=2))
    for name, target in (("m.xml", "openvino+ir=7"), ("m.mlmodel", "coreml"), ("m.txt", "zhouyi")):
        with pytest.raises(UnsupportedError, match="the hashes need 32-bit integers"):
            Model(model, "onnx").save(tmp_path / name, target)


def computed_in_integers(path: Path) -> list[str]:
    """The precisions in which the runtime's plugin computes the convolutions of a file."""
    compiled = ov.Core().compile_model(path, "CPU", PRECISE)
    layers = [n.get_rt_info() for n in compiled.get_runtime_model().get_ordered_ops()]
    return [
        i["runtimePrecision"].astype(str)
        for i in layers
        if i["layerType"].astype(str) == "Convolution"
    ]


@VERSIONS
def test_small_weights_stay_quantized(version: int, tmp_path: Path) -> None:
    def quantized(x: Any, low: float, high: float, levels: int) -> Any:
        limits = [np.float32(v) for v in (low, high, low, high)]
        return opset1.fake_quantize(x, *limits, levels)

    x = opset1.parameter([1, 8, 9, 9], F)
    weights = opset1.convert(opset1.constant(RNG.integers(0, 255, (8, 1, 3, 3), np.uint8)), "f32")
    scaled = opset1.fake_quantize(weights, *map(F, (0, 254, -1, 1)), 255)
    groups = opset1.reshape(scaled, np.array([8, 1, 1, 3, 3]), False)
    y = quantized(x, 0, 2.55, 256)
    y = opset1.group_convolution(y, groups, [1, 1], [1, 1], [1, 1], [1, 1])
    kernel = opset1.constant(RNG.integers(0, 255, (4, 8, 1, 1), np.uint8))
    scaled = opset1.fake_quantize(opset1.convert(kernel, "f32"), *map(F, (0, 254, -1, 1)), 255)
    y = quantized(opset1.relu(y), 0, 8, 256)
    y = opset1.convolution(y, scaled, [1, 1], [0, 0], [0, 0], [1, 1])
    ov.save_model(ov.Model([y], [x]), tmp_path / "source.xml", compress_to_fp16=False)
    converter.load(tmp_path / "source.xml").save(tmp_path / "m.xml", f"openvino+ir={version}")
    in_source = computed_in_integers(tmp_path / "source.xml")
    assert set(in_source) == {"u8"} and computed_in_integers(tmp_path / "m.xml") == in_source
    feed = RNG.random((1, 8, 9, 9)).astype(F)
    close(infer(tmp_path / "m.xml", [feed]), infer(tmp_path / "source.xml", [feed]), 1e-5)


@VERSIONS
def test_few_weights_with_fractional_zero_points_stay_small(version: int, tmp_path: Path) -> None:
    packed = RNG.integers(0, 256, (8, 2, 16)).astype(np.uint8)
    scales, zeros = (RNG.random((8, 2, 1)).astype(F) * n for n in (F(0.1), F(15)))
    given = {"w": packed, "s": scales.reshape(-1), "z": zeros.reshape(-1)}
    node = helper.make_node(
        "MatMulNBits",
        ["x", *given],
        ["y"],
        domain="com.microsoft",
        K=64,
        N=8,
        bits=4,
        block_size=32,
    )
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [3, 64]), ("y", [3, 8]))
    )
    weights = [numpy_helper.from_array(a, n) for n, a in given.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    target = f"openvino+ir={version}"
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target=target)
    assert 'element_type="u4"' in (tmp_path / "m.xml").read_text()
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(8, 2, 32)
    feed = RNG.standard_normal((3, 64)).astype(F)
    wanted = feed @ ((numbers - zeros) * scales).reshape(8, 64).T
    close(infer(tmp_path / "m.xml", [feed]), [wanted], 1e-4)


def test_results_of_unknown_rank_are_refused_by_name(tmp_path: Path) -> None:
    model, b = new_model()
    b.output(b.op("Expand", b.const(F(2)), b.input("sizes", T.INT64, ["rank"])))
    with pytest.raises(UnsupportedError, match="Expand: the rank of the result is unknown"):
        saved(tmp_path / "m.xml", b, model, 11)


@VERSIONS
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceL1", "ReduceSumSquare"])
def test_reductions_over_no_axes(version: int, kind: str, tmp_path: Path) -> None:
    feed = RNG.normal(size=(2, 3)).astype(F)
    model, b = new_model()
    none = b.const(np.array([], np.int64))
    x = b.input("x", T.FLOAT, [2, 3])
    b.output(b.op(kind, x, none, keepdims=0, noop_with_empty_axes=1))
    saved(tmp_path / "m.xml", b, model, version)
    wanted = {"ReduceMean": feed, "ReduceL1": abs(feed), "ReduceSumSquare": feed**2}[kind]
    close(infer(tmp_path / "m.xml", [feed]), [wanted], 1e-5)


@VERSIONS
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("kind", ["Add", "Mul", "PRelu"])
def test_a_vector_after_a_reduction_of_the_last_of_three_axes(
    version: int, kind: str, batch: int | str, keep: int, tmp_path: Path
) -> None:
    """The runtime computes both at once, and there takes the first axis for the second."""
    feed, vector = RNG.normal(size=(2, 4, 5)).astype(F), RNG.normal(size=4).astype(F)
    model, b = new_model()
    x = b.input("x", T.FLOAT, [batch, 4, 5])
    mean = b.op("ReduceMean", x, np.array([-1]), keepdims=keep)
    b.output(b.op(kind, mean, vector.reshape(4, 1) if keep else vector))
    saved(tmp_path / "m.xml", b, model, version)
    found = feed.mean(2)
    formulas = {
        "Add": found + vector,
        "Mul": found * vector,
        "PRelu": np.where(found < 0, found * vector, found),
    }
    wanted = formulas[kind].reshape(2, 4, *[1] * keep)
    close(infer(tmp_path / "m.xml", [feed]), [wanted], 1e-5)


@VERSIONS
def test_half_precision_scales_of_channels(version: int, tmp_path: Path) -> None:
    feed = RNG.normal(size=(4, 3, 2)).astype(np.float16)
    scale, zero = np.array([0.5, 0.25, 1, 2], np.float16), np.array([3, 0, 7, 128], np.uint8)
    model, b = new_model()
    x = b.input("x", T.FLOAT16, [4, 3, 2])
    b.output(b.op("QuantizeLinear", x, scale, zero, axis=0))
    saved(tmp_path / "m.xml", b, model, version)
    each = (v.reshape(4, 1, 1).astype(F) for v in (scale, zero))
    wanted = np.clip(np.rint(feed.astype(F) / next(each)) + next(each), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(infer(tmp_path / "m.xml", [feed])[0], wanted)


@pytest.mark.sampled(5)
@VERSIONS
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool"])
def test_padding_of_an_image_of_dynamic_size(
    version: int, kind: str, auto_pad: str, tmp_path: Path
) -> None:
    """As a graph has it that was read from a format where the padding follows the size."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [1, 2, "h", "w"])
    weights = [RNG.normal(size=(3, 2, 3, 3)).astype(F)] if kind == "Conv" else []
    b.output(b.op(kind, x, *weights, auto_pad=auto_pad, kernel_shape=[3, 3], strides=[2, 2]))
    saved(tmp_path / "m.xml", b, model, version)
    session = InferenceSession(ir.to_proto(model).SerializeToString())
    for size in ((7, 8), (4, 9)):
        feed = RNG.normal(size=(1, 2, *size)).astype(F)
        close(infer(tmp_path / "m.xml", [feed]), session.run(None, {"x": feed}), 1e-5)


@VERSIONS
@pytest.mark.parametrize("kernel", [1, 3])
def test_compressed_weights_after_a_reshape_to_one_element(
    version: int, kernel: int, tmp_path: Path
) -> None:
    """Squeeze and excitation as exporters write it, with weights of 8 bits."""
    feed, bias = RNG.normal(size=(2, 24)).astype(F), RNG.normal(size=(1, 5, 1, 1)).astype(F)
    stored = RNG.integers(-128, 128, (5, 24, kernel, kernel), np.int8)
    scale = RNG.uniform(0.01, 0.02, 5).astype(F)
    model, b = new_model()
    image = b.op("Reshape", b.input("x", T.FLOAT, ["n", 24]), [-1, 24, 1, 1])
    weights = b.op("DequantizeLinear", b.const(stored), scale, np.zeros(5, np.int8), axis=0)
    y = b.op("Conv", image, weights, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)
    b.output(b.op("Relu", b.op("Add", y, bias)))
    saved(tmp_path / "m.xml", b, model, version)
    middle = stored[:, :, kernel // 2, kernel // 2] * scale[:, None]
    wanted = np.maximum((feed @ middle.T)[:, :, None, None] + bias, 0)
    close(infer(tmp_path / "m.xml", [feed]), [wanted], 1e-4)


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


def planes(b: Builder, x: ir.Value) -> ir.Value:
    """The brightness of two planes, whose colors nothing reads."""
    return b.ext("ColorToPlanes", x, order="BGR", single=0)


def spectrum(b: Builder, x: ir.Value) -> ir.Value:
    return b.ext("InverseRealDFT", x, axes=[0, 1], sizes=[3, -1])


IMAGE = RNG.normal(size=(2, 3, 4, 6)).astype(F)
FLOORS = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CEIL = {"ceil_mode": 1, "pads": [0, 0, 1, 1]}
GRU = [RNG.normal(size=(1, 6, 4)).astype(F), RNG.normal(size=(1, 6, 2)).astype(F)]
GRU += [RNG.normal(size=(1, 12)).astype(F)]
LSTM = [RNG.normal(size=(1, 8, 2)).astype(F), RNG.normal(size=(1, 16)).astype(F)]
BLOCKS: list[Any] = [RNG.integers(0, 256, (4, 6)).astype(np.uint8), np.array([[0.5], [2]], F)]
BLOCKS[1] = BLOCKS[1] * np.arange(1, 7, dtype=F)
TWO = ir.tensor(np.array([2], F))
# name -> (the function of the outputs, the inputs, the outputs by numpy; None: by onnxruntime)
WRITTEN: dict[str, tuple[Any, list[Any], Any]] = {
    "a power of integers": (
        lambda b, x, y: b.op("Pow", x, y),
        [np.array([[1.5, -2, 0.25]], F), np.array([[2], [3]], np.int32)],
        lambda x, y: x**y,
    ),
    "integers to a fractional power": (
        lambda b, x, y: b.op("Pow", x, y),
        [np.array([[4, 9, 5]], np.int32), np.array([[0.5], [1.5]], F)],
        lambda x, y: (x**y).astype(np.int32),
    ),
    "one length of a signal is given": (
        spectrum,
        [RNG.normal(size=(4, 5, 2)).astype(F)],
        lambda x: np.fft.irfft2(x[..., 0] + 1j * x[..., 1], (3, 8), (0, 1)).astype(F),
    ),
    "both halves of the spectrum of real numbers": (
        lambda b, x: b.op("DFT", x, None, 1),
        [RNG.normal(size=(2, 5, 3, 1)).astype(F)],
        lambda x: np.stack([(y := np.fft.fft(x[..., 0], axis=1)).real, y.imag], -1),
    ),
    "a slope for each column": (
        lambda b, x: b.op("PRelu", x, np.array([0.1, 0.2, 0.3, 0.4], F)),
        [RNG.normal(size=(2, 4, 4)).astype(F)],
        lambda x: np.where(x < 0, x * [0.1, 0.2, 0.3, 0.4], x),
    ),
    "one of three axes resized": (
        lambda b, x: b.op(
            "Resize",
            x,
            None,
            np.array([1, 1, 2], F),
            mode="linear",
            coordinate_transformation_mode="asymmetric",
        ),
        [RNG.normal(size=(2, 3, 4)).astype(F)],
        lambda x: np.stack([x, (x + np.append(x[..., 1:], x[..., -1:], -1)) / 2], -1).reshape(
            2, 3, 8
        ),
    ),
    "a pooled image without an index": (
        lambda b, x: b.op("MaxPool", x, kernel_shape=[2, 3], strides=[2, 1]),
        [IMAGE],
        lambda x: np.stack(
            [x[:, :, :4, i : i + 4].reshape(2, 3, 2, 2, 4).max(3) for i in range(3)]
        ).max(0),
    ),
    "bounds of which the lower one is above the upper one": (
        lambda b, x: b.op("Clip", x, F(1), F(-0.5)),
        [IMAGE],
        lambda x: np.full_like(x, -0.5),
    ),
    "an image resized to a size": (
        lambda b, x: b.op("Resize", x, None, None, [2, 3, 6, 9], mode="nearest", **FLOORS),
        [IMAGE],
        lambda x: x[:, :, np.arange(6) * 4 // 6][..., np.arange(9) * 6 // 9],
    ),
    "a maximum that is compared with a number": (
        lambda b, x: b.op("Equal", b.op("ReduceMax", x, [1], keepdims=0), F(3)),
        [np.array([[1, 3, 2], [5, 3, 4]], F)],
        lambda x: x.max(1) == 3,
    ),
    "rounded up windows that begin in the padding": (
        lambda b, x: b.op("MaxPool", x, kernel_shape=[2, 2], strides=[3, 3], **CEIL),
        [IMAGE[:, :, :, :3]],
        lambda x: np.stack([x[:, :, :2, :2].max((2, 3)), x[:, :, 3:, :2].max((2, 3))], -1)[
            ..., None
        ],
    ),
    "axes padded and cropped": (
        lambda b, x: b.op("Pad", x, [0, -1, 1, 2, 0, 2, -2, -1], F(7)),
        [IMAGE],
        lambda x: np.pad(x[:, 1:, :2, :5], [(0, 0), (0, 2), (1, 0), (2, 0)], constant_values=7),
    ),
    "the last of equal numbers": (
        lambda b, x: [
            b.op(kind, x, axis=1, keepdims=keep, select_last_index=1)
            for kind, keep in (("ArgMax", 0), ("ArgMin", 1))
        ],
        [np.array([[1, 3, 3, 0, 0], [2, 2, 4, 2, 2]], F)],
        lambda x: [np.array([2, 2]), np.array([[4], [4]])],
    ),
    "weights of all embeddings, the empty bags of zeros": (
        lambda b, x, w: b.ext(
            "EmbeddingBagOffsets", x, numbers(0, 2, 1), numbers(0, 2, 2), None, w
        ),
        [RNG.normal(size=(4, 2)).astype(F), np.array([0.5, 2, -1], F)],
        lambda x, w: np.stack([x[0] * w[0] + x[2] * w[1], x[0] * 0, x[1] * w[2]]),
    ),
    "nothing of size 1 is squeezed": (
        lambda b, x: b.op("Squeeze", b.op("Neg", x)),
        [IMAGE],
        lambda x: -x,
    ),
    "rows of a computed shape": (
        lambda b, x: b.op("Relu", b.op("Expand", x, b.op("Shape", b.op("NonZero", x)))),
        [np.array([[2], [3]], F)],
        lambda x: np.array([[2, 2], [3, 3]], F),
    ),
    "a state of each step, the last one first": (
        lambda b, x: b.op("GRU", x, *GRU, hidden_size=2, direction="reverse"),
        [RNG.normal(size=(3, 2, 4)).astype(F)],
        None,
    ),
    "a sequence with biases of a reset after the product": (
        lambda b, x: b.op("GRU", x, *GRU, hidden_size=2, linear_before_reset=1),
        [RNG.normal(size=(3, 2, 4)).astype(F)],
        None,
    ),
    "a sequence of computed weights": (
        lambda b, x, w: b.op("LSTM", x, w, LSTM[0], b.op("Neg", LSTM[1]), hidden_size=2),
        [RNG.normal(size=(3, 2, 4)).astype(F), RNG.normal(size=(1, 8, 4)).astype(F)],
        None,
    ),
    "rows of weights whose blocks are columns": (
        lambda b, x: b.op(
            "Gather", b.op("DequantizeLinear", *map(b.const, BLOCKS), axis=0, block_size=2), x
        ),
        [numbers(3, 0, 1)],
        lambda x: (BLOCKS[0] * np.repeat(BLOCKS[1], 2, 0))[x],
    ),
    "sums over computed axes": (
        lambda b, x, axes: [
            b.op("ReduceSum", x, axes, keepdims=0),
            b.op("ReduceSum", x, b.op("Concat", axes, [2], axis=0), keepdims=0),
            b.op("ReduceMax", x, axes),
        ],
        [IMAGE, numbers(-1, 1)],
        None,
    ),
    "computed padding of computed axes": (
        lambda b, x, pads, axes: b.op("Pad", x, pads, F(3), axes),
        [IMAGE, numbers(1, 0, 2, 1), numbers(-2, 1)],
        lambda x, pads, axes: np.pad(x, [(0, 0), (0, 1), (1, 2), (0, 0)], constant_values=3),
    ),
    "a number for no axes": (
        lambda b, x: b.op("Add", x, b.op("ConstantOfShape", b.op("Shape", x), value=TWO)),
        [np.array(1.5, F)],
        lambda x: x + 2,
    ),
}


@VERSIONS
@pytest.mark.parametrize("name", WRITTEN)
def test_written_operators_by_their_formulas(name: str, version: int, tmp_path: Path) -> None:
    write, feeds, formula = WRITTEN[name]
    model, b = new_model()
    inputs = [b.input(f"x{i}", T.from_numpy(x.dtype), x.shape) for i, x in enumerate(feeds)]
    results = write(b, *inputs)
    b.output(*(results if isinstance(results, list | tuple) else [results]))
    source = saved(tmp_path / "m.xml", b, model, version)
    if formula is None:
        wanted = list(source.run({f"x{i}": x for i, x in enumerate(feeds)}).values())
    else:
        wanted = formula(*feeds)
    found = infer(tmp_path / "m.xml", feeds)
    for got, want in zip(found, wanted if isinstance(wanted, list) else [wanted], strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_brightness_alone_is_written_with_the_plane_of_colors(tmp_path: Path) -> None:
    """The runtime has the operation from opset17 on, and no kernel for it."""
    model, b = new_model()
    b.output(planes(b, b.input("x", T.FLOAT, [1, 4, 6, 3])))
    saved(tmp_path / "m.xml", b, model, 11)
    (layer,) = [x for x in ov.Core().read_model(tmp_path / "m.xml").get_ops() if "NV12" in str(x)]
    assert [list(o.shape) for o in layer.outputs()] == [[1, 4, 6, 1], [1, 2, 3, 2]]


@VERSIONS
@pytest.mark.parametrize("axes", [[1], [1, -1], None], ids=str)
def test_squeezed_axes_between_dynamic_ones(
    version: int, axes: list[int] | None, tmp_path: Path
) -> None:
    """Runtimes that read v10 take a Squeeze after a recurrent layer for another one."""
    feed = RNG.normal(size=(2, 1, 5, 4, 1)).astype(F)
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["n", 1, "m", 4, 1] if axes else feed.shape)
    b.output(b.op("Squeeze", x, axes))
    saved(tmp_path / "m.xml", b, model, version)
    close(infer(tmp_path / "m.xml", [feed]), [feed.squeeze(axes and tuple(axes))], 0)
    types = {layer.type for layer in read_ir(tmp_path / "m.xml", None).layers}
    assert ("Squeeze" in types) == (version == 11)


def test_random_numbers_of_half_precision_are_floats(tmp_path: Path) -> None:
    model, b = new_model()
    shape, bounds = b.const([40]), [b.const(np.array(v, F)) for v in (-2, 3)]
    kind = int(T.FLOAT16)
    x = b.ext("UniformNumbers", shape, *bounds, dtype=kind, global_seed=3, op_seed=5)
    b.output(b.op("Add", x, b.input("x", T.FLOAT, [1])))
    saved(tmp_path / "m.xml", b, model, 11)
    (found,) = infer(tmp_path / "m.xml", [np.zeros(1, F)])
    assert found.dtype == F and found.min() >= -2 and found.max() < 3 and found.std() > 0.5


# name -> (the operation, the shapes of its inputs, -1 for a dynamic size, and the inputs)
DYNAMIC: dict[str, tuple[Any, list[list[int]], list[Any]]] = {
    "a slope for the channels, whose number is not known": (
        lambda x: opset1.prelu(x, np.array([0.1, 0.2, 0.3], F)),
        [[2, -1, 4]],
        [RNG.normal(size=(2, 3, 4)).astype(F)],
    ),
    "a slope for columns": (
        lambda x: opset1.prelu(x, np.array([0.1, 0.2, 0.3, 0.4], F)),
        [[2, 3, -1]],
        [RNG.normal(size=(2, 3, 4)).astype(F)],
    ),
    "a slice from a computed begin": (
        lambda x, n: opset1.strided_slice(x, n, numbers(4, 3), numbers(1, 2), [0, 0], [0, 1]),
        [[4, 5], [-1]],
        [RNG.normal(size=(4, 5)).astype(F), numbers(1, 0)],
    ),
    "a slice to a computed end": (
        lambda x, n: opset1.strided_slice(x, numbers(1, 0), n, numbers(1, 2), [0, 1], [0, 0]),
        [[4, 5], [-1]],
        [RNG.normal(size=(4, 5)).astype(F), numbers(3, 4)],
    ),
    "a shape of 0 that copies, of a dynamic size": (
        lambda x: opset1.reshape(x, numbers(0, 2, -1), True),
        [[-1, 6]],
        [RNG.normal(size=(3, 6)).astype(F)],
    ),
    "no elements reshaped to 0 and the rest": (
        lambda x: opset1.reshape(x, numbers(0, -1, 4), False),
        [[2, 0, 3]],
        [np.zeros((2, 0, 3), F)],
    ),
    "equal parts of a dynamic axis": (
        lambda x: opset1.split(x, np.int64(1), 3).outputs(),
        [[2, -1]],
        [RNG.normal(size=(2, 6)).astype(F)],
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_operands_of_dynamic_sizes_are_read(name: str, tmp_path: Path) -> None:
    operation, shapes, feeds = DYNAMIC[name]
    inputs = [
        opset1.parameter(ov.PartialShape(shape), x.dtype)
        for shape, x in zip(shapes, feeds, strict=True)
    ]
    for i, p in enumerate(inputs):
        p.output(0).set_names({f"x{i}"})
    found = operation(*inputs)
    results = found if isinstance(found, list) else [found]
    ov.serialize(ov.Model(results, inputs, "dynamic"), tmp_path / "m.xml")
    wanted = infer(tmp_path / "m.xml", feeds)
    model = converter.load(tmp_path / "m.xml")
    got = list(model.run({f"x{i}": x for i, x in enumerate(feeds)}).values())
    close(got, wanted, 1e-5)


def test_no_elements_of_a_dynamic_shape_are_not_reshaped_to_a_rest(tmp_path: Path) -> None:
    """The runtime takes the rest for 0 instead of 1 where the shape is known later."""
    x = opset1.parameter(ov.PartialShape([-1, 0, 3]), F)
    y = opset1.reshape(x, numbers(0, -1, 4), False)
    ov.serialize(ov.Model([y], [x], "dynamic"), tmp_path / "m.xml")
    with pytest.raises(UnsupportedError, match="a Reshape to 0 and -1 of a dynamic shape"):
        converter.load(tmp_path / "m.xml")


@pytest.mark.parametrize("repeats", [[2], [3, 1, 2], [1, 2, 1, 3]], ids=str)
def test_repeats_whose_number_is_dynamic_are_read(repeats: list[int], tmp_path: Path) -> None:
    """The CPU plugin has no results of dynamic rank."""
    x, n = opset1.parameter([2, 3, 2], F), opset1.parameter(ov.PartialShape([-1]), np.int64)
    for p, name in ((x, "x"), (n, "n")):
        p.output(0).set_names({name})
    ov.serialize(ov.Model([opset1.tile(x, n)], [x, n], "dynamic"), tmp_path / "m.xml")
    feed = RNG.normal(size=(2, 3, 2)).astype(F)
    model = converter.load(tmp_path / "m.xml")
    (found,) = model.run({"x": feed, "n": numbers(*repeats)}).values()
    np.testing.assert_array_equal(found, np.tile(feed, repeats))


BACKWARDS = 'start="-1" end="0" stride="-1" part_size="1"'
FORWARDS = 'start="0" end="-1" stride="1" part_size="1"'


def dynamic_iterator(path: Path, ports: str) -> Path:
    """The iterator of the layers' files over an axis of dynamic size."""
    text = (cases.FOLDER / "opset" / "TensorIterator.xml").read_text("utf-8")
    text = text.replace('shape="3,2"', 'shape="?,2"').replace("<dim>3</dim>", "<dim>-1</dim>")
    path.write_text(text.replace(BACKWARDS, ports), "utf-8")
    path.with_suffix(".bin").touch()
    return path


@pytest.mark.parametrize("ports", [BACKWARDS, FORWARDS])
def test_iterations_over_a_dynamic_axis(ports: str, tmp_path: Path) -> None:
    path = dynamic_iterator(tmp_path / "m.xml", ports)
    feeds = [RNG.normal(size=s).astype(F) for s in ((5, 2), (1, 2))]
    found = converter.load(path).run(dict(zip(("x0", "x1"), feeds, strict=True)))
    close(list(found.values()), infer(path, feeds), 1e-5)


def test_parts_of_a_dynamic_axis_are_refused(tmp_path: Path) -> None:
    path = dynamic_iterator(tmp_path / "m.xml", FORWARDS.replace("1", "2").replace("-2", "-1"))
    with pytest.raises(UnsupportedError, match="iterations depends on a dynamic dimension"):
        converter.load(path)


@pytest.mark.parametrize(
    ("kind", "size", "attributes"),
    [
        ("DFT", 2, {}),
        ("IDFT", 2, {"inverse": 1}),
        ("RDFT", 1, {"onesided": 1}),
    ],
)
def test_transforms_are_operations_of_the_opsets(
    kind: str, size: int, attributes: dict[str, int], tmp_path: Path
) -> None:
    model, b = new_model()
    b.output(b.op("DFT", b.input("x", T.FLOAT, [2, 6, size]), None, 1, **attributes))
    saved(tmp_path / "m.xml", b, model, 11)
    x = RNG.normal(size=(2, 6, size)).astype(F)
    whole = x[..., 0] + (1j * x[..., 1] if size == 2 else 0)
    wanted = {"DFT": np.fft.fft, "IDFT": np.fft.ifft, "RDFT": np.fft.rfft}[kind](whole)
    close(
        infer(tmp_path / "m.xml", [x]), [np.stack([wanted.real, wanted.imag], -1).astype(F)], 1e-5
    )
    assert kind in {layer.type for layer in read_ir(tmp_path / "m.xml", None).layers}
