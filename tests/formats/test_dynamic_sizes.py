"""Networks with dynamic batch, height, width and length, in the engines of the formats.

Every network runs at three sizes; onnxruntime runs the source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from test_mlprogram_write import kinds
from test_tflite_operators import needs_litert

import converter
from converter.api import Model
from converter.engines import litert
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml.features import Sizes
from converter.graph.build import Builder, new_model
from converter.graph.value import Value
from judged import run_in

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
F = np.float32
SIZES = (
    {"N": 1, "H": 6, "W": 9, "T": 7},
    {"N": 2, "H": 5, "W": 8, "T": 10},
    {"N": 3, "H": 11, "W": 7, "T": 13},
)
Write = Callable[[Builder, Value], Any]
Shape = list[int | str]
LINE: Shape = ["N", 4, "T"]
IMAGE: Shape = ["N", 3, "H", "W"]
ROWS: Shape = ["T", "N", 4]
NETWORKS: dict[str, tuple[Write, Shape]] = {}


def network(shape: Shape) -> Callable[[Write], Write]:
    def keep(write: Write) -> Write:
        NETWORKS[write.__name__] = write, shape
        return write

    return keep


@cache
def w(*shape: int) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.3).astype(F)


# one spatial axis --------------------------------------------------------------------------------


@network(LINE)
def largest_rounded_up(b: Builder, x: Value) -> Value:
    return b.MaxPool(x, kernel_shape=[3], strides=[2], pads=[1, 0], ceil_mode=1)


@network(IMAGE)
def largest_of_images_rounded_up(b: Builder, x: Value) -> Value:
    return b.MaxPool(x, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)


@network(LINE)
def last_step(b: Builder, x: Value) -> Value:
    return b.Gather(x, np.array(-1), axis=2)


@network(LINE)
def convolution(b: Builder, x: Value) -> Value:
    return b.Conv(x, w(6, 4, 3), w(6), strides=[2], pads=[1, 1])


@network(LINE)
def dilated(b: Builder, x: Value) -> Value:
    return b.Conv(x, w(6, 4, 3), dilations=[2], pads=[4, 0])


@network(LINE)
def depthwise(b: Builder, x: Value) -> Value:
    return b.Conv(x, w(4, 1, 3), w(4), group=4, pads=[1, 1])


@network(LINE)
def pointwise(b: Builder, x: Value) -> Value:
    return b.Relu(b.Conv(x, w(6, 4, 1)))


@network(LINE)
def transposed(b: Builder, x: Value) -> Value:
    return b.ConvTranspose(x, w(4, 5, 4), w(5), strides=[2], pads=[1, 1])


@network(LINE)
def largest(b: Builder, x: Value) -> Value:
    return b.MaxPool(x, kernel_shape=[3], strides=[2], pads=[1, 1])


@network(LINE)
def mean(b: Builder, x: Value) -> Value:
    return b.AveragePool(x, kernel_shape=[2], strides=[2])


@network(LINE)
def longer(b: Builder, x: Value) -> Value:
    return b.Resize(x, None, F([1, 1, 2]), mode="linear")


@network(LINE)
def temporal(b: Builder, x: Value) -> Value:
    """A block of a TCN: causal convolutions and a residual."""
    y = b.Relu(b.Conv(b.Pad(x, [0, 0, 2, 0, 0, 0]), w(4, 4, 3)))
    y = b.Conv(b.Pad(y, [0, 0, 4, 0, 0, 0]), w(4, 4, 3), dilations=[2])
    return b.Relu(x + y)


@network(LINE)
def parts(b: Builder, x: Value) -> list[Value]:
    return list(b.Split(x, outputs=2, axis=2, num_outputs=2))


# images ------------------------------------------------------------------------------------------


@network(IMAGE)
def down_and_up(b: Builder, x: Value) -> Value:
    y = b.Relu(b.Conv(x, w(5, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    return b.ConvTranspose(y, w(5, 3, 2, 2), w(3), strides=[2, 2])


@network(IMAGE)
def cropped(b: Builder, x: Value) -> Value:
    return b.ConvTranspose(
        x, w(3, 4, 4, 3), strides=[2, 3], pads=[1, 0, 2, 1], output_padding=[1, 0]
    )


@network(["N", 4, 1, "T"])
def squeezed(b: Builder, x: Value) -> Value:
    return b.Squeeze(b.Relu(x), [2])


@network(ROWS)
def views_of_exporters(b: Builder, x: Value) -> Value:
    """Reshape as torch's exporter writes it, and a scalar as large as the input."""
    count, batch = b.Shape(x, start=0, end=1), b.Shape(x, start=1, end=2)
    apart = b.Reshape(x, b.Concat(count, batch, [2, 2], axis=0), allowzero=1)
    y = b.Reshape(b.Relu(apart), b.Concat(count, batch, [-1], axis=0), allowzero=1)
    return y + b.Expand(F(0.5), b.Concat(count, batch, [4], axis=0))


@network(IMAGE)
def same_size(b: Builder, x: Value) -> Value:
    return b.ConvTranspose(x, w(3, 4, 3, 3), pads=[1, 1, 1, 1])


@network(IMAGE)
def twice(b: Builder, x: Value) -> Value:
    return b.Resize(x, None, F([1, 1, 2, 2]), mode="linear")


@network(IMAGE)
def twice_nearest(b: Builder, x: Value) -> Value:
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return b.Resize(x, None, F([1, 1, 2, 3]), mode="nearest", **attributes)


@network(IMAGE)
def like_features(b: Builder, x: Value) -> Value:
    """A feature pyramid: the small image in the size of the large one."""
    y = b.Conv(x, w(3, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    sizes = b.Concat(b.Shape(y)[:2], b.Shape(x)[2:], axis=0)
    return x + b.Resize(y, None, None, sizes, mode="linear")


RESIZED: dict[str, tuple[Any, dict[str, Any]]] = {
    "pytorch": (2, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    "less": (0.5, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    "more": (1.5, {"mode": "linear"}),
    "corners": (1.7, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    "floor": (
        0.6,
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "nearest": (1.3, {"nearest_mode": "round_prefer_ceil"}),
}


def by_factor(name: str) -> Write:
    factor, attributes = RESIZED[name]

    def write(b: Builder, x: Value) -> Value:
        return b.Resize(x, None, F([1, 1, factor, factor]), **attributes)

    write.__name__ = f"factor-{name}"
    return write


def to_size(name: str) -> Write:
    """The sizes are computed in floats, as exporters write them."""
    factor, attributes = RESIZED[name]

    def write(b: Builder, x: Value) -> Value:
        shape = b.Shape(x)
        sizes = b.Cast(b.Floor(b.Cast(shape[2:], to=FLOAT) * float(F(factor))), to=INT64)
        return b.Resize(x, None, None, b.Concat(shape[:2], sizes, axis=0), **attributes)

    write.__name__ = f"size-{name}"
    return write


for _name in RESIZED:
    network(IMAGE)(by_factor(_name))
    network(IMAGE)(to_size(_name))


# sequences ---------------------------------------------------------------------------------------


def recurrent(kind: str, gates: int, direction: str) -> Write:
    ways = 2 if direction == "bidirectional" else 1

    def write(b: Builder, x: Value) -> Value:
        operands = w(ways, gates * 5, 4), w(ways, gates * 5, 5), w(ways, 2 * gates * 5)
        attributes = {"hidden_size": 5, "direction": direction}
        y, h = b.ops(kind, x, *operands, outputs=2, **attributes)[:2]
        return [y, h]

    write.__name__ = f"{kind}-{direction}"
    return write


for _kind, _gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    for _direction in ("forward", "reverse", "bidirectional"):
        network(ROWS)(recurrent(_kind, _gates, _direction))


@network(ROWS)
def recurrent_from_zeros(b: Builder, x: Value) -> Value:
    """A bidirectional GRU as torch exports it: ML Programs have its loop since iOS 18 only."""
    zeros = b.Expand(F(0), b.Concat([2], b.Shape(x, start=1, end=2), [5], axis=0))
    operands = w(2, 15, 4), w(2, 15, 5), w(2, 30)
    attributes = {"hidden_size": 5, "direction": "bidirectional", "linear_before_reset": 1}
    return b.ops("GRU", x, *operands, None, zeros, outputs=1, **attributes)[0]


def accumulated(b: Builder, x: Value, until: float) -> list[Value]:
    """Sums of the rows until one is large, or the end: their number depends on the data."""
    count = b.Gather(b.Shape(x), np.array(0))
    with b.loop(count, b.const(np.zeros((1, 4), F))) as body:
        (total,) = body.states
        row = body.ReduceMean(body.Gather(x, body.iteration, axis=0), [0], keepdims=1)
        after = total + row
        going = body.Reshape(body.ReduceMax(body.Abs(after), [0, 1]) < until, [])
        last, rows = body.end(after, after, going=going)
    return [last, rows]


@network(ROWS)
def until_large(b: Builder, x: Value) -> list[Value]:
    return accumulated(b, x, 1.0)


def built(name: str) -> ir.Model:
    write, shape = NETWORKS[name]
    model, b = new_model()
    with b:
        results = write(b, b.input("x", FLOAT, shape))
    b.output(*(results if isinstance(results, list) else [results]))
    return model


def feed(name: str, sizes: dict[str, int]) -> Any:
    shape = [sizes.get(str(d), d) for d in NETWORKS[name][1]]
    return np.random.default_rng(3).standard_normal([int(n) for n in shape]).astype(F)


def compare(name: str, run: Callable[[Any], Any]) -> None:
    """Compare the result of `run` with onnxruntime, at every size."""
    source = Model(built(name), "onnx")
    for sizes in SIZES:
        x = feed(name, sizes)
        wanted = source.run({"x": x}).values()
        for found, right in zip(run(x), wanted, strict=True):
            assert found.shape == right.shape
            np.testing.assert_allclose(found, right, 1e-4, 1e-5, err_msg=f"{sizes}")


def saved(name: str, path: Path) -> Path:
    converter.save(Model(built(name), "onnx"), path)
    return path


def test_an_old_system_is_named_with_one_that_has_the_operations(tmp_path: Path) -> None:
    source = Model(built("recurrent_from_zeros"), "onnx")
    with pytest.raises(ConverterError, match="X206") as e:
        converter.convert(source, tmp_path / "m.mlpackage", target="mlprogram+ios=17")
    assert {d.help for d in e.value.diagnostics} == {
        "write it for a newer system: mlprogram+ios=18"
    }
    converter.convert(source, tmp_path / "m.mlpackage", target="mlprogram+ios=18")


@needs_litert
def test_initial_states_have_the_batch_of_the_data(tmp_path: Path) -> None:
    """Also if the file gives it another name."""
    model, b = new_model()
    with b:
        x = b.input("x", FLOAT, ["T", "N", 4])
        h, c = (b.input(n, FLOAT, [1, f"{n}_dim", 5]) for n in "hc")
        operands = w(1, 20, 4), w(1, 20, 5), w(1, 40)
        y = b.ops("LSTM", x, *operands, None, h, c, outputs=1, hidden_size=5)[0]
        b.output(b.Clip(y, F(-0.2)))
    source, path = Model(model, "onnx"), tmp_path / "m.tflite"
    converter.save(source, path)
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal(s).astype(F) for s in ((6, 3, 4), (1, 3, 5), (1, 3, 5))]
    (expected,) = source.run(dict(zip("xhc", feeds, strict=True))).values()
    (actual,) = litert.invoke(path, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@needs_litert
@pytest.mark.parametrize("name", NETWORKS)
def test_litert_runs_a_network_at_every_size(name: str, tmp_path: Path) -> None:
    path = saved(name, tmp_path / "m.tflite")
    compare(name, lambda x: litert.invoke(path, [x]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_openvino_runs_a_network_at_every_size(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    from openvino_runtime import core

    model = core().compile_model(
        str(saved(name, tmp_path / "m.xml")), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )

    def run(x: Any) -> list[Any]:
        found = model([x])
        return [np.array(found[o]) for o in model.outputs]

    compare(name, run)


@pytest.mark.judges
@pytest.mark.parametrize(
    ("judge", "file"), [("mil-validate", "m.mlpackage"), ("coreml-interp", "m.mlmodel")]
)
@pytest.mark.parametrize("name", NETWORKS)
def test_interpreters_of_core_ml_run_a_network_at_every_size(
    name: str, judge: str, file: str, tmp_path: Path
) -> None:
    try:
        path = saved(name, tmp_path / file)
    except ConverterError as e:
        assert judge == "coreml-interp", e
        pytest.skip(f"refused: {e}")
    compare(name, lambda x: list(run_in(judge, path, {"x": x}).values()))


def test_parts_of_a_dynamic_axis_are_cut_unless_it_divides(tmp_path: Path) -> None:
    """Apple's `split` takes equal parts alone, where ONNX's last part may be smaller."""
    found = []
    for shape in (["N", 4, "T"], ["N", 4, "2*T"]):
        model, b = new_model()
        with b:
            results = b.Split(b.input("x", FLOAT, shape), outputs=2, axis=2, num_outputs=2)
        b.output(*results)
        path = tmp_path / f"{len(found)}.mlpackage"
        converter.save(Model(model, "onnx"), path)
        found.append("split" in kinds(path))
    assert found == [False, True]


@pytest.mark.parametrize("file", ["m.mlmodel", "m.mlpackage", "m.tflite", "m.xml"])
def test_a_dynamic_batch_is_resized_too(file: str, tmp_path: Path) -> None:
    """The batch is dynamic in the image alone: its size in the result is 1."""
    model, b = new_model()
    with b:
        x = b.input("x", FLOAT, ["N", 3, 4, 4])
        attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        y = b.Resize(x, None, None, np.array([1, 3, 8, 8]), **attributes)
    b.output(y)
    converter.save(Model(model, "onnx"), tmp_path / file)
    x = np.random.default_rng(0).random((3, 3, 4, 4), np.float32)
    (found,) = converter.load(tmp_path / file).run({"x": x}).values()
    np.testing.assert_array_equal(found, x[:1].repeat(2, axis=2).repeat(2, axis=3))


def test_a_dimension_that_is_dynamic_by_now_is_open_in_the_declared_sizes() -> None:
    sizes = Sizes((1, 3, 8), ranges=((1, 1), (3, 3), (8, 64)))
    fitted = sizes.fitted([None, 3, None])
    assert fitted is not None and fitted.ranges == ((1, -1), (3, 3), (8, 64))
    assert Sizes((1, 8), choices=((1, 8), (1, 16))).fitted([None, None]) is None


def test_a_refusal_asks_for_no_version_that_does_not_help(tmp_path: Path) -> None:
    """This GRU needs iOS 18, but no version has a Squeeze of axes that are not known."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["T", "N", 2])
    w, r = (np.ones((1, 9, n), np.float32) for n in (2, 3))
    y = b.GRU(x, w, r, outputs=2, hidden_size=3, linear_before_reset=1)[0]
    b.output(b.Relu(b.Squeeze(y)))
    with pytest.raises(UnsupportedError) as e:
        converter.save(Model(model, "onnx"), tmp_path / "m.mlpackage")
    assert {d.code for d in e.value.diagnostics} == {"X203"}


@needs_litert
@pytest.mark.parametrize("pads", [[1, 2, 3, 0], [-1, 0, 2, 2], [0, -2, 0, -1]])
def test_litert_repeats_the_edge_of_dynamic_axes(pads: list[int], tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", FLOAT, ["H", "W"])
    b.output(b.Relu(b.Pad(x, pads, None, [0, 1], mode="edge")))
    converter.save(Model(model, "onnx"), tmp_path / "m.tflite")
    for size in ((3, 5), (4, 4)):
        data = np.random.default_rng(0).random(size).astype(F)
        cut = data[max(-pads[0], 0) : size[0] + min(pads[2], 0)]
        cut = cut[:, max(-pads[1], 0) : size[1] + min(pads[3], 0)]
        margins = [(max(pads[i], 0), max(pads[2 + i], 0)) for i in range(2)]
        (found,) = litert.invoke(tmp_path / "m.tflite", [data])
        np.testing.assert_array_equal(found, np.pad(cut, margins, "edge"))


SEVERAL: dict[str, tuple[Write, Shape]] = {
    "Einsum of heads": (
        lambda b, x: b.Einsum(x, np.ones((4, 2, 3), F), equation="bnd,dhk->bnhk"),
        ROWS,
    ),
    "Einsum of batches": (lambda b, x: b.Einsum(x, x, equation="abd,abe->abde"), ROWS),
    "Flatten": (lambda b, x: b.Flatten(x, axis=2), IMAGE),
}


@pytest.mark.parametrize("suffix", [".tflite", ".xml", ".mlpackage", ".mlmodel"])
@pytest.mark.parametrize("name", SEVERAL)
def test_shapes_with_several_dynamic_sizes(name: str, suffix: str, tmp_path: Path) -> None:
    write, shape = SEVERAL[name]
    model, b = new_model()
    b.output(b.Relu(write(b, b.input("x", FLOAT, shape))))
    converter.save(Model(model.clone(), "onnx"), tmp_path / f"m{suffix}")
    written = converter.load(tmp_path / f"m{suffix}")
    for sizes in SIZES[:2]:
        dims = [d if isinstance(d, int) else sizes[d] for d in shape]
        feeds = {"x": np.random.default_rng(0).standard_normal(dims).astype(F)}
        (expected,) = Model(model.clone(), "onnx").run(feeds).values()
        (found,) = written.run(feeds).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@needs_litert
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("indices", [-1, [0, -2], [[-1], [1]]])
def test_litert_gathers_from_the_end_of_dynamic_axes(
    indices: Any, axis: int, tmp_path: Path
) -> None:
    model, b = new_model()
    x = b.input("x", FLOAT, ["N", "T", 3])
    b.output(b.Relu(b.Gather(x, np.array(indices), axis=axis)))
    converter.save(Model(model, "onnx"), tmp_path / "m.tflite")
    for size in ((2, 5, 3), (4, 2, 3)):
        data = np.random.default_rng(0).random(size).astype(F)
        (found,) = litert.invoke(tmp_path / "m.tflite", [data])
        np.testing.assert_array_equal(found, data.take(indices, axis))
