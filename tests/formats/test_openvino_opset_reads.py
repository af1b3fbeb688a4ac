"""Single operations made by the openvino package: read and run, and written again and run by
openvino; both give openvino's own numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter

ov = pytest.importorskip("openvino")
from openvino import opset1, opset2, opset8, opset9, opset13, opset15, opset16  # noqa: E402

from openvino_runtime import PRECISE  # noqa: E402

RNG = np.random.default_rng(7)
I32 = np.int32


def f(*shape: int) -> Any:
    return RNG.random(shape, np.float32)


def n(low: int, high: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return RNG.integers(low, high, shape).astype(dtype)


LINES = np.array([[0, 0, 4, 5], [1, 2, 7, 7]], np.float32)
# name -> (operation of the inputs, inputs)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "Abs": (opset16.abs, [f(2, 3) - 0.5]),
    "BatchToSpace": (
        lambda x: opset16.batch_to_space(x, [1, 2, 2, 1], [0, 0, 1, 0], [0, 1, 0, 0]),
        [f(8, 2, 3, 1)],
    ),
    "Broadcast-first": (
        lambda x: opset1.broadcast(x, np.array([2, 3, 4]), np.array(0), "NUMPY"),
        [f(3, 1)],
    ),
    "Gelu-first": (opset2.gelu, [f(2, 3) - 0.5]),
    "Bucketize": (
        lambda x: opset16.bucketize(x, np.array([0.2, 0.5], np.float32), with_right_bound=False),
        [f(5)],
    ),
    "Clamp-int": (lambda x: opset16.clamp(x, -2.5, 3.4), [n(-9, 9, (3, 4), I32)]),
    "Col2Im": (lambda x: opset15.col2im(x, np.array([4, 4]), np.array([2, 2])), [f(1, 12, 9)]),
    "ConvertPromoteTypes": (
        lambda x, y: opset16.convert_promote_types(x, y, True),
        [f(2), n(0, 9, (2,), I32)],
    ),
    "CTCGreedyDecoderSeqLen": (
        lambda x: opset16.ctc_greedy_decoder_seq_len(x, np.array([6, 4], I32), np.array(3, I32)),
        [f(2, 6, 4)],
    ),
    "EmbeddingBagOffsets-mean": (
        lambda x: opset15.embedding_bag_offsets(
            x, np.array([0, 2, 3, 1], I32), np.array([0, 2, 2], I32), reduction="mean"
        ),
        [f(5, 3)],
    ),
    "EmbeddingBagPacked": (
        lambda x, w: opset15.embedding_bag_packed(x, np.array([[0, 2], [3, 1]], I32), w),
        [f(5, 3), f(2, 2)],
    ),
    "EmbeddingSegmentsSum": (
        lambda x, w: opset16.embedding_segments_sum(
            x,
            np.array([0, 2, 3, 1], I32),
            np.array([0, 0, 2, 2], I32),
            np.array(4, I32),
            np.array(1, I32),
            w,
        ),
        [f(5, 3), f(4)],
    ),
    "Eye": (
        lambda r, c, k: opset9.eye(r, c, k, "f32", np.array([2])),
        [np.array(3), np.array(4), np.array(-1)],
    ),
    "Greater-boolean": (opset16.greater, [np.array([[False], [True]]), np.array([False, True])]),
    "Erf-int": (opset16.erf, [n(-3, 3, (2, 3), I32)]),
    "FakeConvert": (lambda x: opset13.fake_convert(x, np.float32(2), np.float32(0.5)), [f(3, 4)]),
    "Gather-batch": (
        lambda x: opset16.gather(x, n(0, 4, (2, 3), np.int64), np.array(2), 1),
        [f(2, 3, 4, 5)],
    ),
    "GatherTree": (
        lambda s, p, m: opset16.gather_tree(s, p, m, np.float32(7)),
        [n(0, 9, (4, 2, 3)), n(0, 3, (4, 2, 3)), np.array([4, 2], np.float32)],
    ),
    "GridSample": (
        lambda x, g: opset9.grid_sample(
            x, g, {"align_corners": True, "mode": "bilinear", "padding_mode": "reflection"}
        ),
        [f(1, 2, 5, 5), f(1, 3, 4, 2) * 2.4 - 1.2],
    ),
    "GRUSequence": (
        lambda x, h: opset16.gru_sequence(
            x,
            h,
            np.array([5, 3]),
            f(1, 12, 3),
            f(1, 12, 4),
            f(1, 16),
            4,
            "forward",
            linear_before_reset=True,
        ),
        [f(2, 5, 3), f(2, 1, 4)],
    ),
    "I420": (
        lambda y, u, v: opset8.i420_to_rgb(y, u, v),
        [n(0, 256, (1, 8, 8, 1)), n(0, 256, (1, 4, 4, 1)), n(0, 256, (1, 4, 4, 1))],
    ),
    "Interpolate-as preprocessing writes it": (
        lambda x: opset16.interpolate(
            x, np.array([4, 13]), "bicubic_pillow", "sizes", axes=np.array([1, 2]), cube_coeff=-0.75
        ),
        [f(1, 8, 8, 2)],
    ),
    "Interpolate-cubic of the middle": (
        lambda x: opset16.interpolate(
            x, np.array([4, 13]), "cubic", "sizes", axes=np.array([1, 2])
        ),
        [f(1, 8, 8, 2)],
    ),
    "Interpolate-bicubic_pillow": (
        lambda x: opset16.interpolate(
            x, np.array([4, 5]), "bicubic_pillow", "sizes", axes=np.array([2, 3]), cube_coeff=-0.5
        ),
        [f(1, 2, 8, 8)],
    ),
    "Interpolate-cubic": (
        lambda x: opset16.interpolate(
            x, np.array([1.5, 0.7], np.float32), "cubic", "scales", axes=np.array([2, 3])
        ),
        [f(1, 2, 8, 8)],
    ),
    "Interpolate-antialias": (
        lambda x: opset16.interpolate(
            x, np.array([4, 9, 3]), "linear", "sizes", antialias=True, axes=np.array([2, 3, 4])
        ),
        [f(1, 2, 8, 7, 6)],
    ),
    "Interpolate-tf": (
        lambda x: opset16.interpolate(
            x,
            np.array([4, 11]),
            "cubic",
            "sizes",
            coordinate_transformation_mode="tf_half_pixel_for_nn",
            axes=np.array([2, 3]),
        ),
        [f(1, 2, 8, 8)],
    ),
    "Interpolate-simple": (
        lambda x: opset16.interpolate(
            x,
            np.array([4, 11]),
            "nearest",
            "sizes",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="simple",
            axes=np.array([2, 3]),
        ),
        [f(1, 2, 8, 8)],
    ),
    "Inverse": (lambda x: opset16.inverse(x, True), [f(2, 3, 3) + np.eye(3, dtype=np.float32)]),
    "IRDFT": (lambda x: opset16.irdft(x, np.array([0, 1])), [f(3, 5, 2)]),
    "ISTFT": (
        lambda x: opset16.istft(x, f(16) + 0.1, np.array(16), np.array(8), True, False),
        [f(2, 9, 7, 2)],
    ),
    "LRN-even": (lambda x: opset16.lrn(x, np.array([1]), 1.0, 0.75, 1.0, 4), [f(1, 6, 3, 3)]),
    "LSTMCell": (
        lambda x, h, c: opset16.lstm_cell(x, h, c, f(16, 3), f(16, 4), f(16), 4),
        [f(2, 3), f(2, 4), f(2, 4)],
    ),
    "LSTMSequence": (
        lambda x, h, c: opset16.lstm_sequence(
            x, h, c, np.array([5, 3]), f(2, 16, 3), f(2, 16, 4), f(2, 16), 4, "bidirectional"
        ),
        [f(2, 5, 3), f(2, 2, 4), f(2, 2, 4)],
    ),
    "MVN": (lambda x: opset16.mvn(x, np.array([1, 2]), True, 1e-5, "outside_sqrt"), [f(2, 3, 4)]),
    "NormalizeL2": (lambda x: opset16.normalize_l2(x, np.array([1]), 1e-2, "max"), [f(2, 3, 4)]),
    "NormalizeL2-alone": (
        lambda x: opset16.normalize_l2(x, np.zeros(0, np.int64), 0.05, "add"),
        [np.array([[[-2, 0.5], [3, 0.1]]], np.float32)],
    ),
    "ReduceSum-bytes": (
        lambda x: opset16.reduce_sum(x, np.array([1]), True),
        [n(0, 30, (3, 4), np.uint8)],
    ),
    "NV12": (lambda x: opset8.nv12_to_bgr(x), [n(0, 256, (1, 12, 8, 1), np.uint8)]),
    "Pad-symmetric": (
        lambda x: opset16.pad(x, np.array([1, 2]), np.array([2, 1]), "symmetric"),
        [f(3, 4)],
    ),
    "ReduceMean-int": (lambda x: opset16.reduce_mean(x, np.array([1])), [n(-9, 9, (3, 4), I32)]),
    "ReverseSequence": (
        lambda x: opset16.reverse_sequence(x, np.array([2, 3, 1, 5]), 1, 2),
        [f(3, 4, 5)],
    ),
    "ROIAlign-max": (
        lambda x, r: opset9.roi_align(x, r, np.array([0, 0]), 2, 2, 2, 0.8, "max", "half_pixel"),
        [f(1, 2, 8, 8), LINES],
    ),
    "ScaledDotProductAttention": (
        opset13.scaled_dot_product_attention,
        [f(1, 2, 4, 8), f(1, 2, 5, 8), f(1, 2, 5, 8), f(4, 5)],
    ),
    "ScatterElementsUpdate-mean": (
        lambda x, u: opset16.scatter_elements_update(
            x, np.array([[0, 0, 0, 0], [0, 1, 2, 0]]), u, np.array(0), "mean", False
        ),
        [f(3, 4), f(2, 4)],
    ),
    "ScatterUpdate": (
        lambda x, u: opset16.scatter_update(x, np.array([[0, 3]]), u, np.array(1)),
        [f(3, 4, 2), f(3, 1, 2, 2)],
    ),
    "SearchSorted": (lambda x: opset16.search_sorted(np.sort(f(2, 5)), x, True), [f(2, 3)]),
    "SegmentMax": (
        lambda x: opset16.segment_max(x, np.array([0, 0, 2, 2]), np.array(4), "LOWEST"),
        [f(4, 3)],
    ),
    "SliceScatter": (
        lambda x, u: opset15.slice_scatter(
            x, u, np.array([1]), np.array([3]), np.array([1]), np.array([0])
        ),
        [f(4, 5), f(2, 5)],
    ),
    "STFT": (lambda x: opset16.stft(x, f(12), np.array(16), np.array(8), False), [f(2, 64)]),
    "TopK-index": (lambda x: opset16.topk(x, np.array(3), 1, "max", "index", "i64"), [f(3, 6)]),
    "Unique": (opset16.unique, [n(0, 5, (8,), I32)]),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Any], list[Any]]:
    """The file, the feeds and openvino's results of one operation."""
    operation, feeds = CASES[request.param]
    inputs = [opset16.parameter(list(a.shape), a.dtype) for a in feeds]
    model = ov.Model(operation(*inputs).outputs(), inputs, "one")
    for i, p in enumerate(inputs):
        p.output(0).set_names({f"in{i}"})
    for i, out in enumerate(model.outputs):
        out.set_names({f"out{i}"})
    path = tmp_path / "one.xml"
    ov.serialize(model, path, path.with_suffix(".bin"))
    return path, feeds, infer(path, feeds)


def infer(path: Path, feeds: list[Any]) -> list[Any]:
    core = ov.Core()
    return [
        np.asarray(v)
        for v in core.compile_model(core.read_model(path), "CPU", PRECISE)(feeds).values()
    ]


def close(got: list[Any], wanted: list[Any]) -> None:
    assert [g.shape for g in got] == [w.shape for w in wanted]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=1e-4)


@pytest.mark.sampled(5)
def test_read_and_run(made: tuple[Path, list[Any], list[Any]]) -> None:
    path, feeds, wanted = made
    model = converter.load(path)
    assert [o.name for o in model.outputs] == [f"out{i}" for i in range(len(wanted))]
    close(list(model.run({f"in{i}": a for i, a in enumerate(feeds)}).values()), wanted)


@pytest.mark.sampled(5)
def test_written_again(made: tuple[Path, list[Any], list[Any]]) -> None:
    path, feeds, wanted = made
    again = path.with_name("again.xml")
    converter.load(path).save(again, "openvino")
    close(infer(again, feeds), wanted)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            lambda x: opset16.interpolate(
                x, np.array([4, 5]), "linear", "sizes", antialias=True, axes=np.array([2, 3])
            ),
            "antialias",
        ),
        (lambda x: opset16.convert(x, "nf4"), "nf4"),
    ],
)
def test_refused_with_a_reason(operation: Callable[..., Any], reason: str, tmp_path: Path) -> None:
    x = opset16.parameter([1, 2, 8, 8], np.float32)
    ov.serialize(ov.Model([operation(x)], [x], "one"), tmp_path / "one.xml", tmp_path / "one.bin")
    with pytest.raises(converter.errors.UnsupportedError, match=reason):
        converter.load(tmp_path / "one.xml")
