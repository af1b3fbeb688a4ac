"""Single operations with unusual parameters, read and run beside the openvino runtime."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import UnsupportedError

ov = pytest.importorskip("openvino")
from openvino import opset1, opset8  # noqa: E402

from openvino_runtime import close, infer  # noqa: E402

F = np.float32
RNG = np.random.default_rng(3)


def agree(path: Path, model: Any, feeds: list[Any], tolerance: float = 1e-4) -> None:
    """Ours and the runtime's results of `model`, whose inputs take `feeds` in order; and the runtime's of what we write again."""
    for i, p in enumerate(model.inputs):
        p.set_names({f"in{i}"})
    ov.serialize(model, path, path.with_suffix(".bin"))
    wanted = infer(path, feeds)
    ours = converter.load(path)
    close(list(ours.run({f"in{i}": x for i, x in enumerate(feeds)}).values()), wanted, tolerance)
    again = path.with_name("again.xml")
    ours.save(again, "openvino")
    close(infer(again, feeds), wanted, tolerance)


@pytest.mark.parametrize("auto_pad", ["explicit", "same_upper", "same_lower", "valid"])
@pytest.mark.parametrize("change", [None, -3, -2, 0, 1])
def test_deconvolution_of_a_wanted_size(auto_pad: str, change: int | None, tmp_path: Path) -> None:
    """Where a size is wanted the mode says which end is cut off more; without one, only explicit pads cut anything off."""
    for (size, stride, kernel, dilation), begin, end, extra in itertools.product([(5, 3, 4, 2), (4, 3, 2, 1), (5, 1, 3, 1)], (0, 1), (0, 2), (0, 1)):
        x = opset1.parameter([1, 2, 1, size], F)
        more: dict[str, Any] = {}
        if change is not None:
            more["output_shape"] = opset1.constant(np.array([1, (size - 1) * stride + (kernel - 1) * dilation + 1 - begin - end + change]))
        weights = opset1.constant(RNG.standard_normal((2, 2, 1, kernel)).astype(F))
        windows = {"strides": [1, stride], "pads_begin": [0, begin], "pads_end": [0, end], "dilations": [1, dilation], "output_padding": [0, extra]}
        y = opset1.convolution_backprop_data(x, weights, auto_pad=auto_pad, **windows, **more)
        agree(tmp_path / "one.xml", ov.Model([y], [x], "one"), [RNG.standard_normal((1, 2, 1, size)).astype(F)])


@pytest.mark.parametrize("shapes", [((3, 2), (3,)), ((2, 5, 2, 4), (2,)), ((2,), (2, 3)), ((4,), (4,))], ids=str)
def test_products_with_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path) -> None:
    x, y = (opset1.parameter(list(s), F) for s in shapes)
    product = opset1.matmul(x, y, len(shapes[0]) > 1, False)
    agree(tmp_path / "one.xml", ov.Model([product], [x, y], "one"), [RNG.standard_normal(s).astype(F) for s in shapes])


@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 3), (1, 3, 2, 2, 2)], ids=str)
def test_local_response_off_four_axes(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = opset1.parameter(list(shape), F)
    y = opset1.lrn(x, opset1.constant(np.array([1])), 0.5, 0.75, 2.0, 3)
    agree(tmp_path / "one.xml", ov.Model([y], [x], "one"), [RNG.standard_normal(shape).astype(F)])


def test_prior_boxes_in_the_manner_of_mxnet_have_no_largest_size(tmp_path: Path) -> None:
    attributes = {"min_size": np.array([4.0], F), "max_size": np.array([9.0], F), "aspect_ratio": np.array([2.0], F), "offset": 0.5, "scale_all_sizes": False}
    y = opset8.prior_box(opset1.constant(np.array([2, 3])), opset1.constant(np.array([16, 24])), attributes)
    ov.serialize(ov.Model([y], [], "one"), tmp_path / "one.xml")
    (ours,) = converter.load(tmp_path / "one.xml").run({}).values()
    assert ours.shape == tuple(y.output(0).shape) == (2, 2 * 3 * 2 * 4)


def test_an_average_over_nothing_but_padding(tmp_path: Path) -> None:
    """Rounding up, a last window begins behind the padding: the legacy format cannot say it, the others do."""
    x = opset1.parameter([1, 2, 5, 2], F)
    y = opset1.avg_pool(x, [2, 3], [1, 0], [2, 1], [3, 2], True, "ceil")
    feed = RNG.standard_normal((1, 2, 5, 2)).astype(F)
    agree(tmp_path / "one.xml", ov.Model([y], [x], "one"), [feed])
    with pytest.raises(UnsupportedError, match="a pad as large as the window"):
        converter.convert(tmp_path / "one.xml", tmp_path / "old.xml", target="openvino+ir=7")
