"""Single operations with unusual parameters, read, run, and compared with the openvino runtime."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.graph.build import new_model

ov = pytest.importorskip("openvino")
from openvino import opset1, opset8  # noqa: E402

from openvino_runtime import close, infer  # noqa: E402

F = np.float32
RNG = np.random.default_rng(3)


def agree(
    path: Path, model: Any, feeds: list[Any], tolerance: float = 1e-4, undefined: float = np.nan
) -> None:
    """Ours and the runtime's results of `model`, whose inputs take `feeds` in order; and the
    runtime's of the file written again.

    Where the runtime says NaN, ours is `undefined`.
    """
    for i, p in enumerate(model.inputs):
        p.set_names({f"in{i}"})
    ov.serialize(model, path, path.with_suffix(".bin"))
    wanted = [np.nan_to_num(w, nan=undefined) for w in infer(path, feeds)]
    ours = converter.load(path)
    close(list(ours.run({f"in{i}": x for i, x in enumerate(feeds)}).values()), wanted, tolerance)
    again = path.with_name("again.xml")
    ours.save(again, "openvino")
    close(infer(again, feeds), wanted, tolerance)


class Network:
    """Operations side by side in one network, each on an input of its own: built, read and compiled
    once.
    """

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.feeds: list[Any] = []
        self.results: list[Any] = []

    def input(self, *shape: int) -> Any:
        self.inputs.append(opset1.parameter(list(shape), F))
        self.feeds.append(RNG.standard_normal(shape).astype(F))
        return self.inputs[-1]

    def agree(self, folder: Path, undefined: float = np.nan) -> None:
        model = ov.Model(self.results, self.inputs, "many")
        agree(folder / "one.xml", model, self.feeds, undefined=undefined)


@pytest.mark.parametrize("auto_pad", ["explicit", "same_upper", "same_lower", "valid"])
@pytest.mark.parametrize("change", [None, -3, -2, 0, 1])
@pytest.mark.sampled(7)
def test_deconvolution_of_a_wanted_size(auto_pad: str, change: int | None, tmp_path: Path) -> None:
    """With a requested size, the mode determines which end is cropped more; without one, only
    explicit pads crop.
    """
    network = Network()
    for (size, stride, kernel, dilation), begin, end, extra in itertools.product(
        [(5, 3, 4, 2), (4, 3, 2, 1), (5, 1, 3, 1)], (0, 1), (0, 2), (0, 1)
    ):
        x = network.input(1, 2, 1, size)
        more: dict[str, Any] = {}
        if change is not None:
            more["output_shape"] = opset1.constant(
                np.array(
                    [1, (size - 1) * stride + (kernel - 1) * dilation + 1 - begin - end + change]
                )
            )
        weights = opset1.constant(RNG.standard_normal((2, 2, 1, kernel)).astype(F))
        windows = {
            "strides": [1, stride],
            "pads_begin": [0, begin],
            "pads_end": [0, end],
            "dilations": [1, dilation],
            "output_padding": [0, extra],
        }
        y = opset1.convolution_backprop_data(x, weights, auto_pad=auto_pad, **windows, **more)
        network.results.append(y)
    network.agree(tmp_path)


@pytest.mark.parametrize(
    "shapes", [((3, 2), (3,)), ((2, 5, 2, 4), (2,)), ((2,), (2, 3)), ((4,), (4,))], ids=str
)
def test_products_with_vectors(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path
) -> None:
    x, y = (opset1.parameter(list(s), F) for s in shapes)
    product = opset1.matmul(x, y, len(shapes[0]) > 1, False)
    agree(
        tmp_path / "one.xml",
        ov.Model([product], [x, y], "one"),
        [RNG.standard_normal(s).astype(F) for s in shapes],
    )


@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 3), (1, 3, 2, 2, 2)], ids=str)
def test_local_response_off_four_axes(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = opset1.parameter(list(shape), F)
    y = opset1.lrn(x, opset1.constant(np.array([1])), 0.5, 0.75, 2.0, 3)
    agree(tmp_path / "one.xml", ov.Model([y], [x], "one"), [RNG.standard_normal(shape).astype(F)])


def test_prior_boxes_in_the_manner_of_mxnet_have_no_largest_size(tmp_path: Path) -> None:
    attributes = {
        "min_size": np.array([4.0], F),
        "max_size": np.array([9.0], F),
        "aspect_ratio": np.array([2.0], F),
        "offset": 0.5,
        "scale_all_sizes": False,
    }
    y = opset8.prior_box(
        opset1.constant(np.array([2, 3])), opset1.constant(np.array([16, 24])), attributes
    )
    ov.serialize(ov.Model([y], [], "one"), tmp_path / "one.xml")
    (ours,) = converter.load(tmp_path / "one.xml").run({}).values()
    assert ours.shape == tuple(y.output(0).shape) == (2, 2 * 3 * 2 * 4)


@pytest.mark.parametrize("kind", ["average", "average with padding", "largest"])
@pytest.mark.parametrize("rounding", ["ceil", "floor"])
@pytest.mark.sampled(4)
def test_pooled_windows_that_extend_beyond_the_padding(
    kind: str, rounding: str, tmp_path: Path
) -> None:
    """Rounding up, a last window may begin after data and padding; where it holds nothing an
    average is 0 (the runtime: or 0/0).
    """
    network = Network()
    for size, (kernel, stride), (begin, end), auto_pad in itertools.product(
        (2, 4),
        [(2, 1), (2, 3), (3, 4)],
        [(0, 0), (0, 1), (1, 1)],
        ("explicit", "valid", "same_upper"),
    ):
        windows: list[Any] = [[1, stride], [0, begin], [0, end], [2, kernel]]
        if size + begin + end < kernel or (auto_pad == "valid" and size < kernel):
            continue
        x = network.input(1, 2, 3, size)
        y = (
            opset1.max_pool(x, *windows, rounding, auto_pad)
            if kind == "largest"
            else opset1.avg_pool(x, *windows, kind == "average", rounding, auto_pad)
        )
        network.results.append(y)
    network.agree(tmp_path, undefined=0.0)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("corners", [False, True])
def test_resizing_of_the_first_opset(mode: str, corners: bool, tmp_path: Path) -> None:
    network = Network()
    for size, target in itertools.product((4, 5, 6), (1, 2, 3, 5, 7, 8)):
        x = network.input(1, 2, 3, size)
        attributes = {
            "axes": np.array([2, 3]),
            "mode": mode,
            "align_corners": corners,
            "antialias": False,
            "pads_begin": np.array([0]),
            "pads_end": np.array([0]),
        }
        y = opset1.interpolate(x, opset1.constant(np.array([4, target])), attributes)
        network.results.append(y)
    network.agree(tmp_path)


def test_averages_that_count_padding_when_rounding_up(tmp_path: Path) -> None:
    """ONNX (onnxruntime is the witness) divides by the elements in the padded data, the runtime by
    the whole window.
    """
    model, b = new_model()
    made, feeds = [], {}
    for size, kernel, stride, begin, end in itertools.product(
        (4, 5), (2, 3), (2, 3), (0, 1), (0, 1)
    ):
        x = b.input(f"x{len(made)}", ir.DataType.FLOAT, [1, 2, size])
        feeds[x.name] = RNG.standard_normal((1, 2, size)).astype(F)
        made.append(
            b.op(
                "AveragePool",
                x,
                kernel_shape=[kernel],
                strides=[stride],
                pads=[begin, end],
                ceil_mode=1,
                count_include_pad=1,
            )
        )
    b.output(*made)
    ours = Model(model, "test")
    ours.save(tmp_path / "one.xml", "openvino")
    wanted = list(ours.run(feeds).values())
    close(infer(tmp_path / "one.xml", list(feeds.values())), wanted, 1e-4)
    close(list(converter.load(tmp_path / "one.xml").run(feeds).values()), wanted, 1e-4)


def test_operations_of_extensions(tmp_path: Path) -> None:
    """The runtime refuses them as well."""
    parameter = opset1.parameter([2, 3], F)
    path = tmp_path / "one.xml"
    ov.serialize(
        ov.Model([opset1.softmax(parameter, 1)], [parameter], "one"), path, path.with_suffix(".bin")
    )
    path.write_text(
        path.read_text().replace(
            'type="SoftMax" version="opset1"', 'type="SoftMax" version="extension"'
        )
    )
    with pytest.raises(RuntimeError, match="unsupported opset"):
        infer(path, [np.ones((2, 3), F)])
    with pytest.raises(
        converter.errors.UnsupportedError, match="of the operation set extension is unknown"
    ):
        converter.load(path)


def test_an_attribute_with_two_defaults_is_asked_for(tmp_path: Path) -> None:
    """The document says axis 1 for the first SoftMax, the runtime takes 0; both take 1 for that of
    opset 8.
    """
    x = RNG.standard_normal((2, 3)).astype(F)
    for softmax, axis in ((opset1.softmax, 0), (opset8.softmax, 1)):
        parameter = opset1.parameter([2, 3], F)
        path = tmp_path / "one.xml"
        ov.serialize(
            ov.Model([softmax(parameter, 1)], [parameter], "one"), path, path.with_suffix(".bin")
        )
        text = path.read_text()
        assert 'axis="1"' in text
        path.write_text(text.replace('axis="1"', ""))
        (got,) = infer(path, [x])
        wanted = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
        np.testing.assert_allclose(got, wanted, rtol=1e-4)
        if axis == 1:
            model = converter.load(path)
            (ours,) = model.run({model.inputs[0].name: x}).values()
            np.testing.assert_allclose(ours, wanted, rtol=1e-4)
        else:
            with pytest.raises(
                converter.errors.ConverterError, match="no attribute 'axis', whose default differs"
            ):
                converter.load(path)


def test_attributes_that_cannot_be(tmp_path: Path) -> None:
    """The runtime refuses them as well."""
    x, w, offset = (
        opset1.parameter(list(s), F) for s in ((1, 1, 5, 5), (1, 1, 2, 2), (1, 8, 4, 4))
    )
    path = tmp_path / "one.xml"
    ov.serialize(
        ov.Model(
            [opset8.deformable_convolution(x, offset, w, [1, 1], [0, 0], [0, 0], [1, 1])],
            [x, w, offset],
            "one",
        ),
        path,
        path.with_suffix(".bin"),
    )
    text = path.read_text()
    converter.load(path)
    for old, new, expected in (
        ('strides="1, 1"', 'strides="0, 1"', "R110.*stride has the invalid value 0"),
        ('dilations="1, 1"', 'dilations="2, 1"', "R105.*must have the shape"),
        ('deformable_group="1"', 'deformable_group="2"', "R105.*2 groups of offsets do not fit"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(RuntimeError):
            ov.Core().read_model(path)
        with pytest.raises(converter.errors.ConverterError, match=expected):
            converter.load(path)


@pytest.mark.parametrize("kind", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [ir.DataType.INT32, ir.DataType.INT64])
@pytest.mark.sampled(4)
def test_bits_of_negative_numbers_before_opset_13(
    kind: str, dtype: ir.DataType, tmp_path: Path
) -> None:
    """By the definition of two's complement, which numpy has; IR v10 presents integers of 64 bits
    as ones of 32.
    """
    model, b = new_model()
    b.output(b.op(kind, b.input("x", dtype, [3, 4]), b.input("y", dtype, [3, 4])))
    Model(model, "test").save(tmp_path / "bits.xml", "openvino+ir=10")
    x, y = (RNG.integers(-(1 << 20), 1 << 20, (3, 4)).astype(dtype.numpy()) for _ in range(2))
    (found,) = infer(tmp_path / "bits.xml", [x, y])
    np.testing.assert_array_equal(
        found, {"BitwiseAnd": x & y, "BitwiseOr": x | y, "BitwiseXor": x ^ y}[kind]
    )
