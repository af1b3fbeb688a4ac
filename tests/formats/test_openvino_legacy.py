"""Legacy OpenVINO IR (v2 to v7): reading rules on hand-made files, and graphs that are written and
read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ReadError, UnsupportedError
from converter.formats.openvino.legacy.lift import constant_of
from converter.graph.build import Builder, new_model
from converter.graph.names import set_public_name
from layers import cases
from layers.models import legacy
from support import corpus_cases

rng = np.random.default_rng(5)
X = rng.normal(size=(1, 4, 6, 6)).astype(np.float32)


def port(id: int, dims: tuple[int, ...], precision: str = "FP32") -> str:
    return (
        f'<port id="{id}" precision="{precision}">'
        + "".join(f"<dim>{d}</dim>" for d in dims)
        + "</port>"
    )


def net(
    folder: Path,
    type: str,
    out: tuple[int, ...],
    *,
    data: str = "",
    blobs: dict[str, Any] | None = None,
    version: int = 7,
    more: str = "",
    size: tuple[int, ...] = X.shape,
    name: str = "y",
) -> Model:
    """An input x and one layer on it."""
    heap, places = b"", ""
    for key, array in (blobs or {}).items():
        places += f'<{key} offset="{len(heap)}" size="{array.nbytes}" precision="FP32"/>'
        heap += array.tobytes()
    (folder / "m.bin").write_bytes(heap)
    (folder / "m.xml").write_text(
        f'<net name="n" version="{version}"><layers><layer id="0" name="x" type="Input" '
        f'precision="FP32"><output>{port(0, size)}</output></layer>'
        f'<layer id="1" name="{name}" type="{type}" precision="FP32"><data '
        f"{data}/><input>{port(0, size)}</input><output>{port(3, out)}</output>"
        f'<blobs>{places}</blobs></layer></layers><edges><edge from-layer="0" from-port="0" '
        f'to-layer="1" to-port="0"/></edges>{more}</net>'
    )
    return converter.load(folder / "m.xml")


def windows(x: Any, k: int, s: int, pad: tuple[int, int], n: int) -> Any:
    """[.., n, n, k*k] patches of x padded by nan."""
    p = np.pad(x, ((0, 0), (0, 0), pad, pad), constant_values=np.nan)
    p = np.pad(p, ((0, 0), (0, 0), (0, k), (0, k)), constant_values=np.nan)
    return np.stack(
        [
            np.stack(
                [
                    p[:, :, i * s : i * s + k, j * s : j * s + k].reshape(*x.shape[:2], -1)
                    for j in range(n)
                ],
                2,
            )
            for i in range(n)
        ],
        2,
    )


def test_the_port_decides_about_rounding(tmp_path: Path) -> None:
    data = (
        'kernel="3,3" strides="2,2" pads_begin="0,0" pads_end="0,0" pool-method="max" '
        'rounding_type="floor"'
    )
    for n in (2, 3):
        found = net(tmp_path, "Pooling", (1, 4, n, n), data=data).run({"x": X})["y"]
        np.testing.assert_array_equal(found, np.nanmax(windows(X, 3, 2, (0, 0), n), -1))


@pytest.mark.parametrize("exclude", ["true", "false"])
def test_an_average_counts_the_declared_pads_only(tmp_path: Path, exclude: str) -> None:
    data = (
        'kernel="3,3" strides="2,2" pads_begin="1,1" pads_end="0,0" pool-method="avg" '
        f'exclude-pad="{exclude}"'
    )
    found = net(tmp_path, "Pooling", (1, 4, 4, 4), data=data).run({"x": X})["y"]
    counted = np.pad(X, ((0, 0), (0, 0), (1, 0), (1, 0))) if exclude == "false" else X
    expected = np.nanmean(windows(counted, 3, 2, (0, 0) if exclude == "false" else (1, 0), 4), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_version_2_spells_windows_by_axis(tmp_path: Path) -> None:
    w = rng.normal(size=(2, 4, 3, 2)).astype(np.float32)
    old = (
        'kernel-x="2" kernel-y="3" stride-x="1" stride-y="2" stride="1,1,2,1" pad-x="0" '
        'pad-y="1" pad-r="1" pad-b="1" output="2" group="1"'
    )
    new = 'kernel="3,2" strides="2,1" pads_begin="1,0" pads_end="1,1" output="2" group="1"'
    results = [
        net(tmp_path, "Convolution", (1, 2, 3, 6), data=d, blobs={"weights": w}, version=v).run(
            {"x": X}
        )["y"]
        for d, v in ((old, 2), (new, 7))
    ]
    np.testing.assert_array_equal(*results)


def test_an_end_pad_that_is_absent_is_the_begin(tmp_path: Path) -> None:
    w = rng.normal(size=(2, 4, 3, 3)).astype(np.float32)
    model = net(
        tmp_path,
        "Convolution",
        (1, 2, 6, 6),
        data='kernel="3,3" pads_begin="1,1" output="2"',
        blobs={"weights": w},
    )
    assert list(model.ir.graph[-1].attributes["pads"].as_ints()) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("auto", "pads"), [("same_upper", [0, 0, 1, 1]), ("same_lower", [1, 1, 0, 0])]
)
def test_same_upper_pads_the_end(tmp_path: Path, auto: str, pads: list[int]) -> None:
    w = rng.normal(size=(2, 4, 2, 2)).astype(np.float32)
    model = net(
        tmp_path,
        "Convolution",
        (1, 2, 6, 6),
        data=f'kernel="2,2" output="2" auto_pad="{auto}"',
        blobs={"weights": w},
    )
    assert list(model.ir.graph[-1].attributes["pads"].as_ints()) == pads


def test_output_padding_comes_from_the_port(tmp_path: Path) -> None:
    w = rng.normal(size=(4, 2, 3, 3)).astype(np.float32)
    model = net(
        tmp_path,
        "Deconvolution",
        (1, 2, 12, 12),
        data='kernel="3,3" strides="2,2" pads_begin="1,1" pads_end="1,1" output="2"',
        blobs={"weights": w},
    )
    assert list(model.ir.graph[-1].attributes["pads"].as_ints()) == [
        1,
        1,
        0,
        0,
    ]  # the port gives back the elements that the end pads would take away
    assert model.run({"x": X})["y"].shape == (1, 2, 12, 12)


def test_types_match_in_any_case_and_activations_by_their_name(tmp_path: Path) -> None:
    for type_, data in (("ACTIVATION", 'TYPE="TanH"'), ("tanh", "")):
        np.testing.assert_allclose(
            net(tmp_path, type_, X.shape, data=data).run({"x": X})["y"], np.tanh(X), rtol=1e-5
        )


def test_an_unknown_attribute_is_a_warning_and_a_misspelt_one_an_error(tmp_path: Path) -> None:
    assert [d.code for d in net(tmp_path, "ReLU", X.shape, data='engine="CAFFE"').notes] == ["R111"]
    with pytest.raises(UnsupportedError, match=r"R111.*negative_slope"):
        net(tmp_path, "ReLU", X.shape, data='negative_slop="0.1"')


def test_a_shape_that_the_layer_cannot_give_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"R105.*declares"):
        net(tmp_path, "ReLU", (1, 4, 6, 5))


def test_a_blob_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"R103.*needed"):
        net(
            tmp_path,
            "Convolution",
            (1, 2, 4, 4),
            data='kernel="3,3" output="2"',
            blobs={"weights": np.zeros(5, np.float32)},
        )


def test_means_are_subtracted_and_scales_ignored(tmp_path: Path) -> None:
    channels = "".join(
        f'<channel id="{i}"><mean value="{i + 1}"/><scale value="2"/></channel>' for i in range(4)
    )
    more = f'<pre-process reference-layer-name="x">{channels}</pre-process>'
    found = net(tmp_path, "Power", X.shape, data='power="1" scale="2" shift="0"', more=more).run(
        {"x": X}
    )["y"]
    np.testing.assert_allclose(found, 2 * (X - np.arange(1, 5).reshape(-1, 1, 1)), rtol=1e-5)


def test_batch_normalization_has_the_variance_first(tmp_path: Path) -> None:
    variance, mean = np.array([1, 2, 3, 4], np.float32), np.array([0, 1, 2, 3], np.float32)
    found = net(
        tmp_path,
        "BatchNormalization",
        X.shape,
        data='epsilon="0.001"',
        blobs={"weights": variance, "biases": mean},
    ).run({"x": X})["y"]
    expected = (X - mean.reshape(-1, 1, 1)) / np.sqrt(variance.reshape(-1, 1, 1) + 0.001)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_calibration_ranges_are_kept(tmp_path: Path) -> None:
    more = "<statistics><layer><name>y</name><min>-1,0.5</min><max>2,3</max></layer></statistics>"
    model = net(tmp_path, "ReLU", X.shape, more=more, version=6)
    converter.save(model, tmp_path / "again.xml", "openvino+ir=6")
    text = (tmp_path / "again.xml").read_text()
    assert "<name>y</name>" in text and "0.5" in text


def test_states_are_inputs_and_outputs_of_one_name(tmp_path: Path) -> None:
    memory = (
        '<layer id="1" name="r" type="Memory"><data id="s" index="1" '
        f'size="2"/><output>{port(0, (1, 3))}</output></layer>'
    )
    inputs = f"<input>{port(0, (1, 3))}{port(1, (1, 3))}</input>"
    total = (
        '<layer id="2" name="y" type="Eltwise"><data '
        f'operation="sum"/>{inputs}<output>{port(2, (1, 3))}</output></layer>'
    )
    sink = (
        '<layer id="3" name="w" type="Memory"><data id="s" index="0" '
        f'size="2"/><input>{port(0, (1, 3))}</input></layer>'
    )
    after = (
        f'<layer id="4" name="z" type="ReLU"><input>{port(0, (1, 3))}</input>'
        f"<output>{port(1, (1, 3))}</output></layer>"
    )
    edges = "".join(
        f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>'
        for a, b, c, d in ((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0), (2, 2, 4, 0))
    )
    source = f'<layer id="0" name="x" type="Input"><output>{port(0, (1, 3))}</output></layer>'
    (tmp_path / "m.xml").write_text(
        '<net name="n" '
        f'version="7"><layers>{source}{memory}{total}{sink}{after}</layers><edges>{edges}</edges></net>'
    )
    model = converter.load(tmp_path / "m.xml")
    converter.save(model, tmp_path / "again.xml", "openvino+ir=7")
    assert (tmp_path / "again.xml").read_text().count('type="Memory"') == 2
    for m in (model, converter.load(tmp_path / "again.xml")):
        assert [i.name for i in m.inputs] == ["x", "s"]
        found = m.run(
            {"x": np.array([[1, -2, 3]], np.float32), "s": np.array([[1, 1, -5]], np.float32)}
        )
        np.testing.assert_array_equal(found["s"], [[2, -1, -2]])
        np.testing.assert_array_equal(found["z"], [[2, 0, 0]])


Write = Callable[[Builder, ir.Value], Any]
V = rng.normal(size=(4,)).astype(np.float32)
W4 = rng.normal(size=(6, 2, 3, 3)).astype(np.float32)


def lstm(b: Builder, x: ir.Value, direction: str) -> ir.Value:
    steps = b.op("Reshape", x, [6, 2, 12])
    count = 2 if direction == "bidirectional" else 1
    shapes = ((count, 20, 12), (count, 20, 5), (count, 40))
    parameters = [np.random.default_rng(3).normal(size=s).astype(np.float32) * 0.3 for s in shapes]
    return b.ops("LSTM", steps, *parameters, outputs=1, hidden_size=5, direction=direction)[0]


def resize(b: Builder, x: ir.Value, mode: str, **attributes: str) -> ir.Value:
    return b.op("Resize", x, None, None, [1, 4, 9, 12], mode=mode, **attributes)


def priors(b: Builder) -> ir.Value:
    return b.ext(
        "PriorBox", [6, 6], [64, 64], min_size=[8.0], max_size=[16.0], aspect_ratio=[2.0], flip=1
    )


def loop(b: Builder, x: ir.Value) -> tuple[ir.Value, ...]:
    """Sums of x[:, :, i] times the number of the step, and each of them."""
    inner = b.body("body")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    state = inner.input("s", ir.DataType.FLOAT, [1, 4, 6])
    row = inner.op("Mul", inner.op("Gather", x, i, axis=2), inner.op("Cast", i, to=1))
    total = inner.op("Add", state, row)
    inner.output(inner.const(True), total, row)
    return b.ops("Loop", 6, True, np.zeros((1, 4, 6), np.float32), outputs=2, body=inner.graph)


def moving_slices(b: Builder, x: ir.Value) -> ir.Value:
    """The products of two neighboring rows, from the last pair to the first."""
    inner = b.body("body")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    start = inner.op("Sub", [4], inner.op("Mul", inner.op("Reshape", i, [1]), [2]))
    pair = inner.op("Slice", x, start, inner.op("Add", start, [2]), [2])
    inner.output(inner.const(True), inner.op("ReduceProd", pair, [2], keepdims=0))
    return b.op("Loop", 3, True, body=inner.graph)


GRAPHS: dict[str, Write] = {
    "conv": lambda b, x: b.op(
        "Conv",
        x,
        W4,
        rng.normal(size=6).astype(np.float32),
        group=2,
        pads=[1, 0, 1, 2],
        strides=[2, 1],
    ),
    "conv1d": lambda b, x: b.op("Conv", b.op("Reshape", x, [1, 4, 36]), W4[:, :, 0], group=2),
    "conv_of_values": lambda b, x: b.op(
        "Conv", b.op("Reshape", x, [1, 4, 6, 6]), b.op("Reshape", x, [4, 4, 3, 3])
    ),
    "deconv": lambda b, x: b.op(
        "ConvTranspose", x, W4[:4], strides=[2, 2], output_padding=[1, 0], pads=[1, 1, 0, 1]
    ),
    "average": lambda b, x: b.op(
        "AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1
    ),
    "average_of_pads": lambda b, x: b.op(
        "AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "maxpool1d": lambda b, x: b.op(
        "MaxPool", b.op("Reshape", x, [1, 4, 36]), kernel_shape=[4], strides=[3]
    ),
    "global": lambda b, x: b.op("GlobalAveragePool", x),
    "gemm": lambda b, x: b.op(
        "Gemm",
        b.op("Reshape", x, [4, 36]),
        rng.normal(size=(36, 3)).astype(np.float32),
        V[:3],
        alpha=0.5,
        beta=2.0,
    ),
    "matmul": lambda b, x: b.op(
        "MatMul", x, b.op("Reshape", b.op("Slice", x, [0], [1], [1]), [6, 6])
    ),
    "scalars": lambda b, x: b.op(
        "Pow", b.op("Add", b.op("Mul", b.op("Sub", 1.5, x), 0.25), 3.0), 2.0
    ),
    "channels": lambda b, x: b.op("Add", b.op("Mul", x, V.reshape(4, 1, 1)), V.reshape(1, 4, 1, 1)),
    "comparison": lambda b, x: b.op(
        "Where",
        b.op("And", b.op("Greater", x, 0.0), b.op("Not", b.op("Equal", x, x))),
        x,
        b.op("Neg", x),
    ),
    "batchnorm": lambda b, x: b.op("BatchNormalization", x, V, V * 2, V * 3, V * V + 1),
    "instancenorm": lambda b, x: b.op("InstanceNormalization", x, V, V),
    "layernorm": lambda b, x: b.op("LayerNormalization", x, rng.normal(size=6).astype(np.float32)),
    "gelu": lambda b, x: b.op("Gelu", x),
    "hardswish": lambda b, x: b.op("HardSwish", x),
    "clip": lambda b, x: b.op("Clip", x, -0.5),
    "prelu": lambda b, x: b.op("PRelu", x, V.reshape(4, 1, 1)),
    "slope_of_pixels": lambda b, x: b.op("PRelu", x, rng.normal(size=(4, 6, 6)).astype(np.float32)),
    "slice": lambda b, x: b.op("Slice", x, [1, 5], [3, 0], [1, 3], [1, -2]),
    "split": lambda b, x: b.ops("Split", x, [1, 3], outputs=2, axis=1),
    "one_of_split": lambda b, x: b.ops("Split", x, [1, 3], outputs=2, axis=1)[1],
    "shuffle": lambda b, x: b.ext("ShuffleChannels", x, group=2),
    "depth": lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD"),
    "space": lambda b, x: b.op("SpaceToDepth", x, blocksize=3),
    "topk": lambda b, x: b.ops("TopK", x, [3], outputs=2, axis=2),
    "places_of_integers": lambda b, x: [
        b.op(op, b.op("Cast", b.op("Mul", x, 4.0), to=ir.DataType.INT32), axis=2)
        for op in ("ArgMax", "ArgMin")
    ],
    "best_of_integers": lambda b, x: [
        b.ops(
            "TopK",
            b.op("Cast", b.op("Mul", x, 4.0), to=ir.DataType.INT32),
            [1],
            outputs=2,
            axis=2,
            largest=i,
        )[i]
        for i in (0, 1)
    ],
    "places": lambda b, x: b.op("ArgMax", x, axis=1, keepdims=0),
    "smallest": lambda b, x: b.ops("TopK", x, [2], outputs=2, axis=3, largest=0)[0],
    "resize_nearest": lambda b, x: resize(
        b, x, "nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "resize_linear": lambda b, x: resize(
        b, x, "linear", coordinate_transformation_mode="align_corners"
    ),
    "resize_cubic": lambda b, x: resize(b, x, "cubic"),
    "gather": lambda b, x: b.op("Gather", x, np.array([[3, -1], [0, 2]]), axis=1),
    "reduce": lambda b, x: [
        b.op("ReduceMean", x, [1, 3], keepdims=0),
        b.op("ReduceMax", x, keepdims=0),
    ],
    "tile": lambda b, x: b.op("Tile", x, [2, 1, 3, 1]),
    "cumsum": lambda b, x: b.op("CumSum", x, 2, exclusive=1, reverse=1),
    "round": lambda b, x: b.op("Round", b.op("Mul", b.op("Floor", b.op("Mul", x, 8.0)), 0.5)),
    "remainder": lambda b, x: b.op("Mod", x, 0.75, fmod=1),
    "lstm": lambda b, x: lstm(b, x, "forward"),
    "lstm_both": lambda b, x: lstm(b, x, "bidirectional"),
    "loop": loop,
    "moving_slices": moving_slices,
    "priors": lambda b, x: b.op("Add", priors(b), b.op("ReduceMean", x, keepdims=0)),
    "quantised": lambda b, x: b.ext("FakeQuantize", x, -1.0, 1.0, -1.0, 1.0, levels=16),
    "quantised_infinity": lambda b, x: b.op(
        "DequantizeLinear",
        b.op("QuantizeLinear", b.op("Log", b.op("Relu", x)), np.float32(0.1), np.uint8(250)),
        np.float32(0.1),
        np.uint8(250),
    ),
    "read_twice": lambda b, x: [b.op("Relu", y := b.op("Exp", x)), y],
}


def graph(name: str) -> Model:
    model, b = new_model("m")
    results = GRAPHS[name](b, b.input("x", ir.DataType.FLOAT, X.shape))
    b.output(*(results if isinstance(results, tuple | list) else [results]))
    return Model(model, "onnx")


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("target", ["openvino+ir=7", "openvino+ir=5", "openvino+ir=7+fp16"])
@pytest.mark.sampled(7)
def test_written_and_read_again(name: str, target: str, tmp_path: Path) -> None:
    model = graph(name)
    expected = model.run({"x": X})
    converter.save(model, tmp_path / "m.xml", target)
    found = converter.load(tmp_path / "m.xml").run({"x": X})
    assert set(found) == set(expected)
    tolerance = 3e-2 if "fp16" in target else 1e-4
    for key, value in expected.items():
        np.testing.assert_allclose(
            np.asarray(found[key], np.float64).reshape(value.shape),
            value,
            rtol=tolerance,
            atol=tolerance,
            err_msg=key,
        )


def test_unknown_sizes_are_refused_by_name(tmp_path: Path) -> None:
    model, b = new_model("m")
    b.output(b.op("Relu", b.input("image", ir.DataType.FLOAT, ["n", 3])))
    with pytest.raises(UnsupportedError, match=r"X203.*image"):
        converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert not list(tmp_path.iterdir())


def test_integers_beyond_32_bits_are_refused_and_others_narrowed(tmp_path: Path) -> None:
    for number, fits in ((7, True), (1 << 40, False)):
        model, b = new_model("m")
        x = b.input("x", ir.DataType.INT64, [3])
        b.output(b.op("Add", x, np.array([number, 1, 2], np.int64)))
        if fits:
            converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
            found = converter.load(tmp_path / "m.xml")
            assert [str(i.dtype) for i in found.inputs] == ["int32"]
        else:
            with pytest.raises(UnsupportedError, match="X204"):
                converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")


def test_lengths_that_are_not_known(tmp_path: Path) -> None:
    """Written out step by step: a sequence that is shorter than others keeps its state after its
    end.
    """
    model, b = new_model("net")
    x, lengths = (
        b.input("x", ir.DataType.FLOAT, [3, 2, 3]),
        b.input("lengths", ir.DataType.INT32, [2]),
    )
    w, r = (
        rng.normal(size=(1, 4, 3)).astype(np.float32),
        rng.normal(size=(1, 4, 4)).astype(np.float32),
    )
    b.output(*b.ops("RNN", x, w, r, None, lengths, hidden_size=4, outputs=2))
    feeds = {
        "x": rng.normal(size=(3, 2, 3)).astype(np.float32),
        "lengths": np.array([3, 1], np.int32),
    }
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    found = converter.load(tmp_path / "m.xml").run(feeds)
    for (name, wanted), value in zip(
        Model(model, "onnx").run(feeds).items(), found.values(), strict=True
    ):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_slopes_of_a_scalar(tmp_path: Path) -> None:
    model, b = new_model("net")
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    b.output(b.op("PRelu", b.op("ReduceSum", x, [0, 1], keepdims=0), np.float32(0.25)))
    Model(model, "test").save(tmp_path / "m.xml", "openvino+ir=7")
    (found,) = converter.load(tmp_path / "m.xml").run({"x": -np.ones((2, 3), np.float32)}).values()
    np.testing.assert_allclose(found.reshape(()), -1.5)


def test_every_refusal_is_reported(tmp_path: Path) -> None:
    model, b = new_model("m")
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    b.output(
        b.op("Det", b.op("Expand", b.op("ReduceSum", x, keepdims=1), [5, 5])), b.op("Bernoulli", x)
    )
    with pytest.raises(UnsupportedError) as refused:
        converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert len(refused.value.diagnostics) >= 2


def test_a_file_that_is_no_net_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(
        '<net name="n" version="7"><layers><layer id="0" name="x" '
        'type="Input"/></layers><edges/></net>'
    )
    with pytest.raises((ReadError, UnsupportedError)):
        converter.load(tmp_path / "m.xml")


# the engine's own DepthToSpace is wrong for more than one channel: neither of the two orders that
# exist gives its numbers
UNSOUND = ("d2s_CRD", "d2s_engine")
CASES = [
    c for suite in ("legacy-layers", "legacy-nets") for c in corpus_cases(f"openvino/{suite}")
] + corpus_cases("openvino/legacy-ops", every=5)


@pytest.mark.parametrize("target", ["", "openvino+ir=7"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(9)
def test_real_case(case: Path, target: str, tmp_path: Path) -> None:
    if case.name in UNSOUND:
        pytest.skip("the engine that gave the numbers is wrong about this layer")
    if b'version="10"' in (case / "model.xml").read_bytes()[:300]:
        pytest.skip("an opset IR, which tests of its own read")
    model = converter.load(case / "model.xml")
    if target:
        converter.save(model, tmp_path / "m.xml", target)
        model = converter.load(tmp_path / "m.xml")
    with np.load(case / "inputs.npz") as inputs, np.load(case / "outputs.npz") as outputs:
        names = [i.name for i in model.inputs]
        order = names if set(names) == set(inputs.files) else inputs.files
        found = model.run({n: inputs[k] for n, k in zip(names, order, strict=True)})
        for key in outputs.files:
            value = found.get(key, next(iter(found.values())))
            np.testing.assert_allclose(
                np.asarray(value, np.float64).reshape(-1),
                outputs[key].reshape(-1),
                rtol=1e-2,
                atol=1e-3,
            )


@pytest.mark.parametrize(
    "names",
    [
        ("s.0", "s", "t.0", "t.1", "y"),
        ("s.0", "t.1", "s.1", "u.1", "t"),
        ("s.0", "u", "t.0", "s.1", "t"),
        ("s.1", "s.0", "s.2", "s.3", "s"),
    ],
)
def test_outputs_named_like_ports_of_several_layers(names: tuple[str, ...], tmp_path: Path) -> None:
    """A layer with several ports gives its name to its outputs, where that name is no one
    else's.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 4])
    outputs = [
        *b.ops("Split", x, [1, 3], axis=1, outputs=2),
        *b.ops("Split", x, [2, 2], axis=1, outputs=2),
        b.op("Relu", x),
    ]
    b.output(*outputs)
    for value, name in zip(outputs, names, strict=True):
        value.name = name
    feeds = {"x": np.arange(-4, 4, dtype=np.float32).reshape(2, 4)}
    wanted = Model(model, "onnx").run(feeds)
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    found = converter.load(tmp_path / "m.xml").run(feeds)
    assert set(found) == set(wanted)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_a_large_state_begins_with_zeros_that_take_no_memory(tmp_path: Path) -> None:
    model, b = new_model()
    x, u = (
        b.input("x", ir.DataType.FLOAT, [2**31 - 1, 4]),
        b.input("u", ir.DataType.FLOAT, [1, 4]),
    )  # the engine needs an input that is no state
    b.output(b.op("Max", x, u))
    set_public_name(x, "state")
    set_public_name(model.graph.outputs[0], "state")
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    back = converter.load(tmp_path / "m.xml")
    assert back.interface["defaults"]["state"].shape == (2**31 - 1, 4) and back.interface[
        "defaults"
    ]["state"].strides == (0, 0)


@pytest.mark.parametrize("kind", ["Pooling", "Convolution", "Deconvolution"])
def test_windows_of_another_number_of_axes(kind: str) -> None:
    case = cases.read(cases.FOLDER / "legacy" / f"{kind}.toml")
    case.outputs[0].shape = (*case.outputs[0].shape[:-1],)
    with pytest.raises(
        UnsupportedError, match=r"R105.*2 spatial axes enter the layer, but 1 leave it"
    ):
        legacy.lift(legacy.build(case))


def test_a_crop_may_have_an_input_of_its_size() -> None:
    """Caffe's layer has it; the port says the same."""
    case = cases.read(cases.FOLDER / "legacy" / "Crop.toml")
    plain = legacy.lift(legacy.build(case))
    case.inputs.append(replace(case.inputs[0], shape=(2, 2), values=np.zeros((2, 2), np.float32)))
    found = legacy.lift(legacy.build(case))
    assert [n.op_type for n in found.ir.graph] == [n.op_type for n in plain.ir.graph]


@pytest.mark.parametrize("group, biased", [(4, True), (1, False)])
def test_a_convolution_before_a_depthwise_one_has_a_bias(
    group: int, biased: bool, tmp_path: Path
) -> None:
    """The engine of 2020.2 makes one layer of both, and reads a bias that is not there."""
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 112, 112])
    y = b.Relu(b.Conv(x, rng.normal(size=(4, 3, 3, 3)).astype(np.float32)))
    kernel = rng.normal(size=(4, 4 // group, 3, 3)).astype(np.float32)
    b.output(b.Conv(y, kernel, np.ones(4, np.float32), group=group))
    converter.save(Model(m, "test"), tmp_path / "m.xml", "openvino+ir=7")
    assert (tmp_path / "m.xml").read_text().count("<biases ") == 1 + biased


@pytest.mark.parametrize("channels, layers", [(8, 0), (16, 1)])
def test_scales_of_a_part_of_a_block_go_into_filters(
    channels: int, layers: int, tmp_path: Path
) -> None:
    """The engine of 2020.2 computes 16 channels at once and reads as many scales."""
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 9, 8])
    filters = rng.normal(size=(channels, 3, 3, 3)).astype(np.float32)
    norm = [rng.uniform(0.5, 2, channels).astype(np.float32) for _ in range(4)]
    b.output(b.Relu(b.BatchNormalization(b.Conv(x, filters), *norm)))
    model = Model(m, "test")
    converter.save(model, tmp_path / "m.xml", "openvino+ir=7")
    assert (tmp_path / "m.xml").read_text().count('"ScaleShift"') == layers
    feeds = {"x": rng.normal(size=(1, 3, 9, 8)).astype(np.float32)}
    (want,) = model.run(feeds).values()
    (found,) = converter.load(tmp_path / "m.xml").run(feeds).values()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_slice_over_no_axes(tmp_path: Path) -> None:
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    nothing = np.zeros(0, np.int64)
    b.output(b.op("Slice", b.Neg(x), *(b.const(nothing) for _ in range(4))))
    converter.save(Model(m, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    (out,) = converter.load(tmp_path / "m.xml").run({"x": data}).values()
    np.testing.assert_array_equal(out, -data)


@pytest.mark.parametrize("kind", ["UINT8", "INT8", "FLOAT"])
def test_an_output_that_is_an_input_is_no_state(kind: str, tmp_path: Path) -> None:
    """Inputs of few bits are cast; then the output is the input still."""
    code = onnx.TensorProto.DataType.Value(kind)
    x, other = oh.make_tensor_value_info("x", code, [3]), oh.make_tensor_value_info("o", 1, [3])
    nodes = [oh.make_node("Cast", ["x"], ["c"], to=1), oh.make_node("Add", ["c", "o"], ["y"])]
    graph = oh.make_graph(nodes, "g", [x, other], [oh.make_tensor_value_info("y", 1, [3]), x])
    opset = [oh.make_opsetid("", 21)]
    onnx.save(oh.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino+ir=7")
    assert 'type="Memory"' not in (tmp_path / "m.xml").read_text()
    assert [i.name for i in converter.load(tmp_path / "m.xml").inputs] == ["x", "o"]


def test_the_maximum_of_numbers_that_may_all_be_zero(tmp_path: Path) -> None:
    """The engine's own maximum begins with the least positive number, which is not 0 in a test."""
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    truths = b.Cast(b.Greater(x, 0.5), to=ir.DataType.FLOAT)
    b.output(b.Cast(b.ReduceMax(truths, [1], keepdims=0), to=ir.DataType.BOOL))
    converter.save(Model(m, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert 'type="ReduceMax"' not in (tmp_path / "m.xml").read_text()
    data = np.array([[0, 0.25, 0.5], [0, 0.75, 0]], np.float32)
    (out,) = converter.load(tmp_path / "m.xml").run({"x": data}).values()
    assert out.tolist() == [False, True]


def test_a_computed_range_of_integers_is_counted_in_steps(tmp_path: Path) -> None:
    """The engine of 2020 makes an element less where the steps do not divide the distance."""
    model, b = new_model()
    start, limit, step = (b.input(n, ir.DataType.INT32, []) for n in ("start", "limit", "step"))
    y = b.op("Range", start, limit, step, name="y")
    y.shape = ir.Shape([2])
    b.output(y)
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert 'type="Range"' not in (tmp_path / "m.xml").read_text()
    feeds = {"start": np.int32(10), "limit": np.int32(6), "step": np.int32(-3)}
    (found,) = converter.load(tmp_path / "m.xml").run(feeds).values()
    np.testing.assert_array_equal(found, [10, 7])


@pytest.mark.parametrize(
    "file",
    [
        "Flatten",
        "Gather-computed",
        "Gather-gather",
        "Power-reciprocal",
        "ReduceLogSumExp",
        "Split-sizes",
        "Squeeze",
        "Unsqueeze",
    ],
)
def test_a_layer_is_written_as_it_was(file: str, tmp_path: Path) -> None:
    """Other layers would give the same; limits of a layer's type do not apply to the layer read."""
    case = cases.read(cases.FOLDER / "legacy" / f"{file}.toml")
    model = Model.of(legacy.lift(legacy.build(case)))
    converter.save(model, tmp_path / "m.xml", "openvino+ir=7")
    kinds = [layer.type for layer in legacy.read(tmp_path / "m.xml").layers]
    assert [k for k in kinds if k not in ("Input", "Const")] == [case.kind]


@pytest.mark.parametrize(
    ("before", "after", "precision"),
    [
        (ir.DataType.FLOAT, ir.DataType.INT32, "I32"),
        (ir.DataType.INT32, ir.DataType.FLOAT, "FP32"),
    ],
)
def test_a_conversion_names_the_type_of_its_result(
    before: ir.DataType, after: ir.DataType, precision: str, tmp_path: Path
) -> None:
    """The engine converts to `precision`, and not to the type of the port."""
    m, b = new_model()
    b.output(b.Cast(b.input("x", before, [2, 3]), to=after))
    converter.save(Model(m, "test"), tmp_path / "m.xml", "openvino+ir=7")
    (layer,) = (x for x in legacy.read(tmp_path / "m.xml").layers if x.type == "Convert")
    assert layer.data["precision"] == layer.outputs[0].precision == precision


@pytest.mark.parametrize(("epsilon", "kind"), [(0.0, "ScaleShift"), (1e-5, "BatchNormalization")])
def test_a_variance_is_never_divided_without_an_epsilon(
    tmp_path: Path, epsilon: float, kind: str
) -> None:
    """The engine of 2020 divides the channels that it adds, from 6 to 8, by 0 otherwise, and a
    convolution after it returns NaN.
    """
    model, b = new_model("net")
    x = b.input("x", ir.DataType.FLOAT, [1, 6, 4, 4])
    one, zero = (np.full(6, n, np.float32) for n in (1, 0))
    y = b.BatchNormalization(x, one, zero, zero, one, epsilon=epsilon)
    b.output(b.Conv(y, np.ones((3, 6, 1, 1), np.float32)))
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    assert f'type="{kind}"' in (tmp_path / "m.xml").read_text()


@pytest.mark.parametrize("channels", [6, 16])
def test_a_quotient_before_a_convolution_is_a_product(tmp_path: Path, channels: int) -> None:
    """As with the variance: 0 / 0 in the channels that the engine adds to 6, none to 16."""
    model, b = new_model("net")
    shape = [1, channels, 4, 4]
    x, y = (b.input(name, ir.DataType.FLOAT, shape) for name in "xy")
    b.output(b.Conv(b.Relu(b.Div(x, y)), np.ones((3, channels, 1, 1), np.float32)))
    feeds = {n: rng.uniform(1, 2, shape).astype(np.float32) for n in "xy"}
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    divided = 'operation="div"' in (tmp_path / "m.xml").read_text()
    assert divided == (channels == 16)
    found = converter.load(tmp_path / "m.xml").run(feeds)
    for wanted, value in zip(Model(model, "onnx").run(feeds).values(), found.values(), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_matrices_before_a_transposition_are_read_by_the_product(tmp_path: Path) -> None:
    model, b = new_model()
    x, y = b.input("x", ir.DataType.FLOAT, [2, 3, 4]), b.input("y", ir.DataType.FLOAT, [2, 5, 4])
    b.output(b.op("MatMul", x, b.op("Transpose", y, perm=[0, 2, 1])))
    converter.save(Model(model, "onnx"), tmp_path / "m.xml", "openvino+ir=7")
    text = (tmp_path / "m.xml").read_text()
    assert "Permute" not in text and 'transpose_b="True"' in text
    feeds = [rng.normal(size=s).astype(np.float32) for s in ((2, 3, 4), (2, 5, 4))]
    (found,) = converter.load(tmp_path / "m.xml").run(dict(zip("xy", feeds, strict=True))).values()
    np.testing.assert_allclose(found, feeds[0] @ feeds[1].transpose(0, 2, 1), rtol=1e-5)


def test_the_shape_of_filled_rows_has_as_many_elements_as_the_port(tmp_path: Path) -> None:
    case = cases.read(cases.FOLDER / "legacy" / "SparseFillEmptyRows.toml")
    model = Model.of(legacy.lift(legacy.build(case)))
    converter.save(model, tmp_path / "m.xml", "openvino+ir=7")
    constants = [x for x in legacy.read(tmp_path / "m.xml").layers if x.type == "Const"]
    assert [5, 4] in [constant_of(x).tolist() for x in constants]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('stride="-1" part_size="1"', 'stride="-2" part_size="1"', "overlap or leave gaps"),
        (
            'axis="0" start="-1" end="0" stride="-1" part_size="1"',
            "",
            "the iteration count is unknown, because no port is sliced",
        ),
        ('0" axis="0" start="-1"', '0" axis="0" start="-2"', r"requires \[2, 3\] iterations"),
    ],
)
def test_iterations_that_ports_contradict(old: str, new: str, message: str, tmp_path: Path) -> None:
    source = cases.FOLDER / "legacy" / "TensorIterator.xml"
    (tmp_path / "m.xml").write_text(source.read_text("utf-8").replace(old, new), "utf-8")
    (tmp_path / "m.bin").write_bytes(source.with_suffix(".bin").read_bytes())
    with pytest.raises(ReadError, match=message):
        converter.load(tmp_path / "m.xml")


def counted(path: Path, passed_on: bool) -> Path:
    """A network with a loop that collects its states; it ends by a condition, or goes on."""
    model, b = new_model()
    inner = b.body("body")
    inner.input("i", ir.DataType.INT64, [])
    go = inner.input("go", ir.DataType.BOOL, [])
    state = inner.input("s", ir.DataType.FLOAT, [1, 3])
    double = inner.op("Add", state, state)
    ends = inner.op("Less", inner.op("ReduceMax", double, keepdims=0), np.float32(9))
    inner.output(inner.op("Identity", go) if passed_on else ends, double, double)
    x = b.input("x", ir.DataType.FLOAT, [1, 3])
    b.output(*b.ops("Loop", 4, True, x, outputs=2, body=inner.graph))
    converter.save(Model(model, "onnx"), path, "openvino+ir=7")
    return path


def test_a_loop_that_passes_its_condition_on_is_an_iterator(tmp_path: Path) -> None:
    path = counted(tmp_path / "m.xml", passed_on=True)
    assert 'type="TensorIterator"' in path.read_text()
    feed = np.array([[1, -2, 0.5]], np.float32)
    last, every = converter.load(path).run({"x": feed}).values()
    np.testing.assert_array_equal(last, 16 * feed)
    np.testing.assert_array_equal(every, [n * feed for n in (2, 4, 8, 16)])


def test_a_loop_that_a_computed_condition_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="Loop"):
        counted(tmp_path / "m.xml", passed_on=False)
