"""Operators of TensorFlow Lite in files of their own: LiteRT says the numbers, or a formula where
LiteRT does not have the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import converter
from converter.engines import litert
from converter.errors import ReadError, UnsupportedError
from converter.formats.tflite.codec import read_flat

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from flatbuffers import flexbuffers
from tflite_files import Graph, Op, Tensor, const, in_litert, write

needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
RNG = np.random.default_rng(5)
F, I32, I64, C64, TEXT = np.float32, np.int32, np.int64, np.complex64, object


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(F)


def ours(path: Path, feeds: Sequence[Any]) -> list[Any]:
    model = converter.load(path)
    return list(model.run({i.name: v for i, v in zip(model.inputs, feeds, strict=True)}).values())


def alike(path: Path, feeds: Sequence[Any], atol: float = 1e-5) -> None:
    """Read files compute the same as LiteRT."""
    equal(ours(path, feeds), in_litert(path, feeds), atol)


def equal(found: Sequence[Any], wanted: Sequence[Any], atol: float = 1e-5) -> None:
    for got, value in zip(found, wanted, strict=True):
        assert got.shape == value.shape and got.dtype.kind == value.dtype.kind
        if value.dtype == object:
            assert [str(v) for v in text(got)] == [str(v) for v in text(value)]
        else:
            np.testing.assert_allclose(got, value, 1e-5, atol)


def text(array: Any) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]


def single(
    path: Path,
    builtin: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    table: str = "",
    **options: Any,
) -> Path:
    """A file of one operator, whose constants are those of `inputs` that have data."""
    return single_op(path, Op(builtin, [], [], table, options), inputs, outputs)


def single_op(path: Path, op: Op, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Path:
    n = len(inputs)
    op.inputs, op.outputs = range(n), range(n, n + len(outputs))
    fed = [i for i, t in enumerate(inputs) if t.data is None]
    return write(path / "m.tflite", Graph([*inputs, *outputs], [op], fed, list(op.outputs)))


# forms of no published file ----------------------------------------------------------------------

X = Tensor(F, [2, 3])
ALONE = {
    "bits": ("BITCAST", [X], [Tensor(I32, [2, 3])]),
    "axes": ("RANK", [X], [Tensor(I32, [])]),
    "a complex number": ("CAST", [X], [Tensor(C64, [2, 3])]),
    "distinct": ("UNIQUE", [Tensor(I64, [5])], [Tensor(I64, [-1]), Tensor(I32, [5])]),
    "one of many": (
        "ONE_HOT",
        [Tensor(I64, [5]), const(3, I32), const(2, F), const(0.5, F)],
        [Tensor(F, [5, 3])],
    ),
}


@needs_litert
@pytest.mark.parametrize("name", ALONE)
def test_operators_of_their_own(tmp_path: Path, name: str) -> None:
    builtin, inputs, outputs = ALONE[name]
    feed = np.array([2, 7, 2, -1, 7]) if inputs[0].kind == I64 else floats(2, 3)
    options = ("UniqueOptions", {"IdxOutType": 2}) if builtin == "UNIQUE" else ()
    alike(single_op(tmp_path, Op(builtin, [], [], *options), inputs, outputs), [feed])


# segments and tables -----------------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize("ids", [None, [0, 0, 1, 2, 2]])
@pytest.mark.parametrize("kind", [F, I32])
def test_sums_of_segments(tmp_path: Path, kind: Any, ids: Any) -> None:
    x, places = (100 * floats(5, 2, 3)).astype(kind), np.array([0, 1, 1, 1, 3 - 1], I32)
    given = const(ids, I32) if ids else Tensor(I32, [5])
    path = single(tmp_path, "SEGMENT_SUM", [Tensor(kind, [5, 2, 3]), given], [Tensor(kind)])
    alike(path, [x] if ids else [x, places], 1e-4)


def test_integers_of_segments_stay_exact(tmp_path: Path) -> None:
    ids = const([0, 0, 1], I32)
    path = single(tmp_path, "SEGMENT_SUM", [Tensor(I32, [3]), ids], [Tensor(I32)])
    found = ours(path, [np.array([2**24, 1, 3], I32)])
    assert found[0].tolist() == [2**24 + 1, 3]


@needs_litert
@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN"])
@pytest.mark.parametrize("kind", [F, I32])
def test_segments_in_any_order(tmp_path: Path, name: str, kind: Any) -> None:
    x, ids = (10 * floats(2, 3, 4)).astype(kind), np.array([[3, 0, -1], [3, 3, 1]], I32)
    inputs = [Tensor(kind, [-1, 3, 4]), Tensor(I32, [-1, 3]), const(5, I32)]
    alike(single(tmp_path, f"UNSORTED_SEGMENT_{name}", inputs, [Tensor(kind)]), [x, ids])


@needs_litert
@pytest.mark.parametrize("combiner", [0, 1, 2])
@pytest.mark.parametrize("sizes", [[3, 4], [2, 3, 4]])
@pytest.mark.parametrize("open_", [False, True])
def test_sparse_look_ups(tmp_path: Path, combiner: int, sizes: list[int], open_: bool) -> None:
    """`open_`: how many ids there are is not known, nor where they are."""
    places = [[0, 0], [0, 2], [2, 1]] if len(sizes) == 2 else [[0, 1, 0], [1, 1, 0], [1, 1, 2]]
    inputs = [
        Tensor(I32, [3]),
        const(places, I32),
        const(sizes, I32),
        Tensor(F, [3]),
        const(floats(5, 2, 2)),
    ]
    inputs[:2] = [Tensor(I32, [-1]), Tensor(I32, [-1, len(sizes)])] if open_ else inputs[:2]
    inputs[3] = Tensor(F, [-1 if open_ else 3])
    path = single(
        tmp_path,
        "EMBEDDING_LOOKUP_SPARSE",
        inputs,
        [Tensor(F, [*sizes[:-1], 2, 2])],
        "EmbeddingLookupSparseOptions",
        Combiner=combiner,
    )
    given = [np.array(places, I32)] if open_ else []
    alike(path, [np.array([1, 4, 0], I32), *given, np.array([0.5, 2, 3], F)])


@needs_litert
def test_rows_by_key(tmp_path: Path) -> None:
    inputs = [Tensor(I32, [4]), const([1, 3, 9], I32), const(floats(3, 2))]
    outputs = [Tensor(F, [4, 2]), Tensor(np.uint8, [4])]
    path = single(tmp_path, "HASHTABLE_LOOKUP", inputs, outputs)
    alike(path, [np.array([9, 2, 1, 9], I32)])


@needs_litert
@pytest.mark.parametrize("kind", [1, 2])
def test_hashes(tmp_path: Path, kind: int) -> None:
    inputs = [const(floats(3, 2)), Tensor(I32, [5, 2])]
    shape = [3] if kind == 1 else [6]
    options = {"table": "LSHProjectionOptions", "Type": kind}
    path = single(tmp_path, "LSH_PROJECTION", inputs, [Tensor(I32, shape)], **options)
    alike(path, [RNG.integers(-9, 9, (5, 2)).astype(I32)])


def table_file(path: Path, keys: Tensor, values: Tensor, wanted: int, default: Tensor) -> Path:
    """A table that a subgraph fills once."""
    types = {"KeyDtype": keys.type, "ValueDtype": values.type, "TableId": 7}
    handle = Tensor(13)
    main = Graph(
        [handle, Tensor(keys.kind, [wanted]), default, Tensor(values.kind, [wanted]), Tensor(I64)],
        [
            Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            Op("HASHTABLE", [], [0], "HashtableOptions", types),
            Op("HASHTABLE_FIND", [0, 1, 2], [3]),
            Op("HASHTABLE_SIZE", [0], [4]),
        ],
        [1],
        [3, 4],
    )
    start = Graph(
        [handle, keys, values],
        [
            Op("HASHTABLE", [], [0], "HashtableOptions", types),
            Op("HASHTABLE_IMPORT", [0, 1, 2], []),
        ],
        [],
        [],
    )
    return write(path / "m.tflite", main, start)


@needs_litert
def test_a_table_of_texts_by_number(tmp_path: Path) -> None:
    keys, values = const([5, -1, 2**40], I64), const(np.array(["five", "", "much"], object))
    path = table_file(tmp_path, keys, values, 4, const(np.array("none", object)))
    found = ours(path, [np.array([2**40, 6, 5, -1], I64)])
    assert text(found[0]) == ["much", "none", "five", ""] and found[1].tolist() == [3]


@needs_litert
def test_a_table_of_numbers_by_text(tmp_path: Path) -> None:
    keys, values = const(np.array(["a", "bc"], object)), const([10, 20], I64)
    path = table_file(tmp_path, keys, values, 3, const(-1, I64))
    alike(path, [np.array(["bc", "x", "a"], object)])


def test_texts_that_do_not_fill_their_shape_are_refused(tmp_path: Path) -> None:
    keys = const(np.array(["a", "bc"], object))
    keys.shape = [3]
    path = table_file(tmp_path, keys, const([10, 20], I64), 3, const(-1, I64))
    with pytest.raises(ReadError, match="has 2 elements"):
        converter.load(path)


@needs_litert
@pytest.mark.parametrize("kind", [F, I32])
def test_buckets(tmp_path: Path, kind: Any) -> None:
    options = {"table": "BucketizeOptions", "Boundaries": [-1.0, 0.0, 2.0, 2.0]}
    path = single(tmp_path, "BUCKETIZE", [Tensor(kind, [-1, 3])], [Tensor(I32)], **options)
    alike(path, [np.array([[-3, -1, 0], [1, 2, 7]], kind)])


@needs_litert
@pytest.mark.parametrize("kind", [F, I32])
def test_sums_of_several(tmp_path: Path, kind: Any) -> None:
    inputs = [Tensor(kind, [2, 3]) for _ in range(3)]
    path = single(tmp_path, "ADD_N", inputs, [Tensor(kind, [2, 3])])
    alike(path, [(9 * floats(2, 3)).astype(kind) for _ in range(3)])


# windows -----------------------------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize("kind", [F, I32, np.int8])
@pytest.mark.parametrize("steps", [[1, 1, 1], [2, 1, 3], [1, 2, 1]])
def test_dilated_data(tmp_path: Path, kind: Any, steps: list[int]) -> None:
    inputs = [Tensor(kind, [-1, 3, 4]), const(steps, I32), const(7, kind)]
    op = Op("DILATE", [], [], "DilateOptions", union="2")
    path = single_op(tmp_path, op, inputs, [Tensor(kind, [-1, -1, -1])])
    alike(path, [(10 * floats(2, 3, 4)).astype(kind)])


@needs_litert
@pytest.mark.parametrize("function", range(1, 7))
@pytest.mark.parametrize(
    "window", [([2, 3, 1], [1, 2, 1], [1, 1, 1]), ([1, 2, 3], [2, 1, 3], [1, 3, 2])]
)
def test_reduced_windows(tmp_path: Path, function: int, window: Any) -> None:
    kind: Any = bool if function > 4 else F
    start = {1: 0.5, 2: 2, 3: 0.25, 4: -0.5, 5: True, 6: False}[function]
    op = Op("REDUCE_WINDOW", [], [], "ReduceWindowOptions", {"ReduceFunction": function}, union="2")
    inputs = [Tensor(kind, [5, 7, 9]), const(start, kind), *(const(v, I64) for v in window)]
    x = floats(5, 7, 9)
    alike(
        single_op(tmp_path, op, inputs, [Tensor(kind, [-1, -1, -1])]),
        [x > 0.3 if kind is bool else x],
    )


@needs_litert
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_transposed_convolution_of_volumes(tmp_path: Path, padding: int, bias: bool) -> None:
    size = [1, 6, 6, 7, 2] if padding == 0 else [1, 8, 5, 9, 2]
    kernel = [2, 3, 3] if padding == 0 else [4, 3, 5]
    strides = {"StrideD": 2, "StrideH": 2 if padding == 0 else 1, "StrideW": 2}
    inputs = [const(size, I32), const(floats(*kernel, 2, 3)), Tensor(F, [1, 3, 3, 4 - padding, 3])]
    inputs += [const(floats(2))] if bias else []
    path = single(
        tmp_path,
        "CONV_3D_TRANSPOSE",
        inputs,
        [Tensor(F, size)],
        "Conv3DOptions",
        Padding=padding,
        DilationDFactor=1,
        DilationHFactor=1,
        DilationWFactor=1,
        **strides,
    )
    alike(path, [floats(1, 3, 3, 4 - padding, 3)], 1e-4)


@needs_litert
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 5)])
def test_resized_images_of_16_bits(tmp_path: Path, flags: Any, size: Any) -> None:
    image = Tensor(np.int16, [-1, 4, 3, 2], scale=0.001)
    path = single(
        tmp_path,
        "RESIZE_BILINEAR",
        [image, const(size, I32)],
        [Tensor(np.int16, [-1, *size, 2], scale=0.001)],
        "ResizeBilinearOptions",
        AlignCorners=flags[0],
        HalfPixelCenters=flags[1],
    )
    alike(path, [RNG.integers(-32768, 32767, (2, 4, 3, 2)).astype(np.int16)], 1)


def test_a_filter_of_other_axes_is_refused(tmp_path: Path) -> None:
    inputs = [Tensor(F, [1, 4, 4, 2]), const(floats(3, 2, 2)), const(floats(3))]
    table = {"table": "Conv2DOptions", "StrideW": 1, "StrideH": 1}
    path = single(tmp_path, "CONV_2D", inputs, [Tensor(F, [1, 4, 4, 3])], **table)
    with pytest.raises(ReadError, match=r"weights must have 4 axes|filter has depth"):
        converter.load(path)


# signals and complex numbers ---------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize("lengths", [[1, 16], [4, 8], [1, 8], [8, 32]])
def test_transforms(tmp_path: Path, lengths: list[int]) -> None:
    inputs = [Tensor(F, [-1, 5, 12]), const(lengths, I32)]
    path = single(tmp_path, "RFFT2D", inputs, [Tensor(C64, [-1, lengths[0], lengths[1] // 2 + 1])])
    x = floats(2, 5, 12)
    alike(path, [x], 1e-4)
    converter.convert(path, tmp_path / "again.tflite")
    (pairs,) = in_litert(tmp_path / "again.tflite", [x], shapes=True)
    equal([pairs[..., 0] + 1j * pairs[..., 1]], in_litert(path, [x]), 1e-4)


def complexes(*shape: int) -> Any:
    return (floats(*shape) + 1j * floats(*shape)).astype(C64)


@needs_litert
def test_complex_numbers_in_and_out(tmp_path: Path) -> None:
    tensors = [
        Tensor(C64, [2, 1, 3]),
        Tensor(C64, [3]),
        Tensor(C64, [2, 1, 3]),
        Tensor(C64, [2, 3]),
    ]
    tensors += [const([3, -1], I32), Tensor(C64, [3, 2]), Tensor(F, [3, 2]), Tensor(F, [3, 2])]
    operators = [
        Op("MUL", [0, 1], [2]),
        Op("SQUEEZE", [2], [3], "SqueezeOptions", {"SqueezeDims": [-2]}),
        Op("RESHAPE", [3, 4], [5]),
        Op("IMAG", [5], [6]),
        Op("CAST", [5], [7]),
    ]
    path = write(tmp_path / "m.tflite", Graph(tensors, operators, [0, 1], [5, 6, 7]))
    alike(path, [complexes(2, 1, 3), complexes(3)])


@needs_litert
def test_complex_numbers_natively(tmp_path: Path) -> None:
    inputs = [Tensor(C64, [2, 3]), Tensor(C64, [2, 3])]
    path = single(tmp_path, "MUL", inputs, [Tensor(C64, [2, 3])])
    result = converter.verify(path, path, native="on")
    assert [n.status for n in result.native] == ["same", "same"]


def test_complex_numbers_are_pairs_elsewhere(tmp_path: Path) -> None:
    path = single(tmp_path, "MUL", [Tensor(C64, [3]), Tensor(C64, [3])], [Tensor(C64, [3])])
    converter.convert(path, tmp_path / "m.onnx")
    model = converter.load(tmp_path / "m.onnx")
    x, y = complexes(3), complexes(3)
    assert [i.shape for i in model.inputs] == [(3, 2), (3, 2)]
    found = model.run({i.name: v for i, v in zip(model.inputs, (x, y), strict=True)})
    (pairs,) = found.values()
    np.testing.assert_allclose(pairs[..., 0] + 1j * pairs[..., 1], x * y, 1e-5)


def test_other_operators_of_complex_numbers_are_refused(tmp_path: Path) -> None:
    path = single(tmp_path, "SIGN", [Tensor(C64, [3])], [Tensor(C64, [3])])
    with pytest.raises(UnsupportedError, match="complex data in SIGN are not supported"):
        converter.load(path)


@needs_litert
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize(("width", "step"), [(64, 20), (50, 50)])
def test_spectra_of_sounds(tmp_path: Path, width: int, step: int, squared: bool) -> None:
    options = {"window_size": width, "stride": step, "magnitude_squared": squared}
    if width == step and not squared:
        del options["magnitude_squared"]
    content = flexbuffers.Dumps(options)
    op = Op("CUSTOM", [], [], custom="AudioSpectrogram", content=bytes(content))
    path = single_op(tmp_path, op, [Tensor(F, [200, 2])], [Tensor(F, [-1, -1, -1])])
    alike(path, [floats(200, 2)], 1e-3)


@needs_litert
@pytest.mark.parametrize(
    ("limits", "bands", "count"), [((20.0, 4000.0), 40, 13), ((100.0, 7500.0), 12, 12)]
)
def test_cepstra_of_sounds(tmp_path: Path, limits: Any, bands: int, count: int) -> None:
    options = {
        "lower_frequency_limit": limits[0],
        "upper_frequency_limit": limits[1],
        "filterbank_channel_count": bands,
        "dct_coefficient_count": count,
    }
    op = Op("CUSTOM", [], [], custom="Mfcc", content=bytes(flexbuffers.Dumps(options)))
    inputs = [Tensor(F, [1, 5, 257]), const([16000], I32)]
    path = single_op(tmp_path, op, inputs, [Tensor(F, [1, 5, count])])
    alike(path, [np.abs(floats(1, 5, 257))], 1e-3)


def test_cepstra_have_the_defaults_of_tensorflow(tmp_path: Path) -> None:
    """As tf.raw_ops.Mfcc has them: https://www.tensorflow.org/api_docs/python/tf/raw_ops/Mfcc"""
    options = {
        "lower_frequency_limit": 20.0,
        "upper_frequency_limit": 4000.0,
        "filterbank_channel_count": 40,
        "dct_coefficient_count": 13,
    }
    found = []
    for given in (options, {}):
        op = Op("CUSTOM", [], [], custom="Mfcc", content=bytes(flexbuffers.Dumps(given)))
        inputs = [Tensor(F, [1, 5, 257]), const([16000], I32)]
        path = single_op(tmp_path, op, inputs, [Tensor(F, [1, 5, 13])])
        found += ours(path, [np.ones((1, 5, 257), F)])
    np.testing.assert_array_equal(*found)


# random numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [("RANDOM_UNIFORM", 0.5, 12**-0.5), ("RANDOM_STANDARD_NORMAL", 0, 1)],
)
def test_random_numbers(
    tmp_path: Path, name: str, mean: float, deviation: float, known: bool
) -> None:
    shape = np.array([50, 40], I32)
    given = const(shape) if known else Tensor(I32, [2])
    path = single(tmp_path, name, [given], [Tensor(F, [-1, -1])], "RandomOptions", Seed=3)
    (found,) = ours(path, [] if known else [shape])
    assert found.shape == (50, 40) and found.dtype == F
    assert abs(found.mean() - mean) < 0.1 and abs(found.std() - deviation) < 0.1


def test_random_classes(tmp_path: Path) -> None:
    logits = np.log(np.array([[0.7, 0.1, 0.2], [0, 1, 0]], F) + F(1e-9))
    inputs = [Tensor(F, [-1, 3]), const(2000, I32)]
    path = single(tmp_path, "MULTINOMIAL", inputs, [Tensor(I64, [-1, 2000])], "RandomOptions")
    (found,) = ours(path, [logits])
    assert found.shape == (2, 2000) and found.dtype == I64 and (found[1] == 1).all()
    assert np.abs(np.bincount(found[0], minlength=3) / 2000 - [0.7, 0.1, 0.2]).max() < 0.05


# boxes -------------------------------------------------------------------------------------------


def boxes(count: int) -> Any:
    first = RNG.uniform(0, 4, (count, 2))
    return np.concatenate([first, first + RNG.uniform(0.5, 3, (count, 2))], 1).astype(F)


@needs_litert
@pytest.mark.parametrize("overlap", [0.5, 0.0, None])
@pytest.mark.parametrize("most", [3, 20, None])
def test_suppression(tmp_path: Path, most: int | None, overlap: float | None) -> None:
    limits = [
        Tensor(I32) if most is None else const(most, I32),
        Tensor(F) if overlap is None else const(overlap, F),
        const(0.1, F),
    ]
    inputs = [Tensor(F, [-1, 4]), Tensor(F, [-1]), *limits]
    outputs = [Tensor(I32, [-1 if most is None else most]), Tensor(I32)]
    path = single(tmp_path, "NON_MAX_SUPPRESSION_V4", inputs, outputs)
    feeds = [boxes(12), RNG.uniform(0, 1, 12).astype(F)]
    feeds += [np.array(5, I32)] if most is None else []
    alike(path, feeds + ([np.array(0.4, F)] if overlap is None else []))


@needs_litert
def test_an_overlap_that_reaches_the_threshold(tmp_path: Path) -> None:
    two = np.array([[0, 0, 2, 2], [0, 0, 2, 1], [4, 4, 5, 5]], F)
    inputs = [Tensor(F, [3, 4]), Tensor(F, [3]), const(3, I32), const(0.5, F), const(0, F)]
    path = single(tmp_path, "NON_MAX_SUPPRESSION_V4", inputs, [Tensor(I32, [3]), Tensor(I32)])
    feeds = [two, np.array([0.9, 0.8, 0.7], F)]
    alike(path, feeds)
    assert ours(path, feeds)[1] == 2


@needs_litert
@pytest.mark.parametrize("sigma", [0.0, 0.5, None])
def test_soft_suppression(tmp_path: Path, sigma: float | None) -> None:
    inputs = [Tensor(F, [-1, 4]), Tensor(F, [-1]), const(8, I32), const(0.6, F), const(0.05, F)]
    inputs += [Tensor(F) if sigma is None else const(sigma, F)]
    outputs = [Tensor(I32, [8]), Tensor(F, [8]), Tensor(I32)]
    path = single(tmp_path, "NON_MAX_SUPPRESSION_V5", inputs, outputs)
    feeds = [boxes(12), RNG.uniform(0, 1, 12).astype(F)]
    alike(path, feeds + ([np.array(0.3, F)] if sigma is None else []))


def detection_file(path: Path, classes: int, background: int, **options: Any) -> Path:
    given = {
        "max_detections": 6,
        "max_classes_per_detection": 1,
        "num_classes": classes,
        "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.4,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
        **options,
    }
    content = bytes(flexbuffers.Dumps(given))
    middles = RNG.uniform(0.2, 0.8, (12, 2))
    anchors = np.concatenate([middles, RNG.uniform(0.1, 0.4, (12, 2))], 1).astype(F)
    most = given["max_detections"]
    return single_op(
        path,
        Op("CUSTOM", [], [], custom="TFLite_Detection_PostProcess", content=content),
        [Tensor(F, [1, 12, 4]), Tensor(F, [1, 12, classes + background]), const(anchors)],
        [Tensor(F, [1, most, 4]), Tensor(F, [1, most]), Tensor(F, [1, most]), Tensor(F, [1])],
    )


@needs_litert
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("regular", [False, True])
def test_detections(tmp_path: Path, regular: bool, background: int) -> None:
    path = detection_file(tmp_path, 3, background, use_regular_nms=regular, detections_per_class=2)
    scores = RNG.uniform(0, 1, (1, 12, 3 + background)).astype(F)
    feeds = [floats(1, 12, 4), scores]
    found, wanted = ours(path, feeds), in_litert(path, feeds)
    count = int(wanted[3][0])
    assert count >= 2 and [f.shape for f in found] == [w.shape for w in wanted]
    equal([f[:, :count] for f in found[:3]], [w[:, :count] for w in wanted[:3]])
    assert found[3].tolist() == wanted[3].tolist()


def test_several_classes_of_a_box_are_refused(tmp_path: Path) -> None:
    path = detection_file(tmp_path, 3, 1, max_classes_per_detection=2)
    with pytest.raises(UnsupportedError, match="several classes per box need suppression by class"):
        converter.load(path)


# MediaPipe's operators, of which LiteRT has no kernels -------------------------------------------

SAME, VALID = 1, 2


def mediapipe(
    path: Path, name: str, content: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Path:
    """Options are a map, or a structure of numbers."""
    named = isinstance(content, dict)
    content = bytes(flexbuffers.Dumps(content)) if named else np.array(content, "<i4").tobytes()
    return single_op(path, Op("CUSTOM", [], [], custom=name, content=content), inputs, outputs)


@pytest.mark.parametrize(
    ("padding", "size", "stride", "kernel", "totals"),
    [
        (VALID, (3, 4), (2, 2), (2, 2), (0, 0)),
        (SAME, (3, 4), (2, 2), (3, 4), (2, 2)),  # kernel - (size - 1) % stride - 1
        (SAME, (4, 5), (1, 3), (3, 4), (2, 2)),
    ],
)
def test_transposed_convolution_with_bias(
    tmp_path: Path, padding: int, size: Any, stride: Any, kernel: Any, totals: Any
) -> None:
    x, w, bias = floats(1, *size, 3), floats(2, *kernel, 3), floats(2)
    full = [(n - 1) * s + k for n, s, k in zip(size, stride, kernel, strict=True)]
    whole = np.zeros((1, *full, 2), F)
    for i in range(size[0]):
        for j in range(size[1]):
            top, left = i * stride[0], j * stride[1]
            part = np.einsum("nc,ohwc->nhwo", x[:, i, j], w)
            whole[:, top : top + kernel[0], left : left + kernel[1]] += part
    (top, left), (height, width) = [t // 2 for t in totals], full
    cut = whole[:, top : top + height - totals[0], left : left + width - totals[1]] + bias
    inputs = [Tensor(F, x.shape), const(w), const(bias)]
    options = (padding, stride[1], stride[0])
    path = mediapipe(
        tmp_path, "Convolution2DTransposeBias", options, inputs, [Tensor(F, cut.shape)]
    )
    equal(ours(path, [x]), [cut])


@pytest.mark.parametrize(
    ("padding", "before", "out"), [(VALID, (0, 0), (2, 3)), (SAME, (0, 1), (3, 4))]
)
def test_largest_of_windows_with_positions(
    tmp_path: Path, padding: int, before: Any, out: Any
) -> None:
    x = floats(2, 5, 7, 3)
    big = np.full((2, 20, 20, 3), -np.inf, F)
    big[:, before[0] : before[0] + 5, before[1] : before[1] + 7] = x
    largest, places = np.zeros((2, *out, 3), F), np.zeros((2, *out, 3), F)
    for i in range(out[0]):
        for j in range(out[1]):
            window = big[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 3].reshape(2, 6, 3)
            largest[:, i, j], places[:, i, j] = window.max(1), window.argmax(1) + 0.1
    outputs = [Tensor(F, largest.shape), Tensor(F, largest.shape)]
    options = (padding, 2, 2, 3, 2, 1)
    inputs = [Tensor(F, [-1, 5, 7, 3])]
    path = mediapipe(tmp_path, "MaxPoolingWithArgmax2D", options, inputs, outputs)
    equal(ours(path, [x]), [np.maximum(largest, 0), places])


def test_numbers_at_their_positions_in_windows(tmp_path: Path) -> None:
    x, places = floats(2, 2, 3, 4), RNG.integers(0, 6, (2, 2, 3, 4))
    wanted = np.zeros((2, 4, 9, 4), F)
    for (n, i, j, c), place in np.ndenumerate(places):
        wanted[n, 2 * i + place // 3, 3 * j + place % 3, c] = x[n, i, j, c]
    inputs = [Tensor(F, [-1, 2, 3, 4]), Tensor(F, [-1, 2, 3, 4])]
    options = (SAME, 3, 2, 3, 2, 0)
    path = mediapipe(tmp_path, "MaxUnpooling2D", options, inputs, [Tensor(F, wanted.shape)])
    equal(ours(path, [x, places.astype(F) + F(0.1)]), [wanted])


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(("first", "scale"), [(True, 2.0), (True, None), (False, None)])
def test_landmarks_are_moved(tmp_path: Path, depth: int, first: bool, scale: float | None) -> None:
    """The first version has rows of numbers and scales the sum."""
    points, matrix = floats(5, depth), floats(1, 4, 4)
    wanted = points.copy()
    for i in range(2):
        wanted[:, i] = points[:, :2] @ matrix[0, i, :2] + matrix[0, i, 3] * (scale or 1)
    shape = [1, 1, 1, 5 * depth] if first else [1, 5, depth]
    options = {"dimensions": depth} if first else {}
    options |= {} if scale is None else {"scale": scale}
    inputs = [Tensor(F, shape), Tensor(F, [1, 4, 4])]
    path = mediapipe(tmp_path, "TransformLandmarks", options, inputs, [Tensor(F, shape)])
    equal(ours(path, [points.reshape(shape), matrix]), [wanted.reshape(shape)])


@pytest.mark.parametrize("name", ["TransformTensor", "TransformTensorBilinear"])
def test_images_are_moved(tmp_path: Path, name: str) -> None:
    x, middle = floats(1, 6, 7, 2), 0.5 if name == "TransformTensorBilinear" else 0.0
    matrix = np.array([[[1.1, 0.3, 0, -0.67], [-0.2, 0.9, 0, 1.3], [0] * 4, [0] * 4]], F)
    wanted = np.zeros((1, 5, 8, 2))
    for i in range(5):
        for j in range(8):
            u, v = matrix[0, :2] @ np.array([j + middle, i + middle, 0, 1]) - middle
            if 0 <= u <= 6 and 0 <= v <= 5:
                left, top = int(u), int(v)
                a, b = u - left, v - top
                right, under = min(left + 1, 6), min(top + 1, 5)
                upper = (1 - a) * x[0, top, left] + a * x[0, top, right]
                lower = (1 - a) * x[0, under, left] + a * x[0, under, right]
                wanted[0, i, j] = (1 - b) * upper + b * lower
    assert 0 < (wanted[..., 0] == 0).sum() < 40
    options = {"mode": "bilinear", "output_size": [5, 8]}
    inputs = [Tensor(F, [1, 6, 7, 2]), Tensor(F, [1, 4, 4])]
    path = mediapipe(tmp_path, name, options, inputs, [Tensor(F, [1, 5, 8, 2])])
    equal(ours(path, [x, matrix]), [wanted.astype(F)])


def turned(angle: float) -> Any:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def test_matrix_of_a_crop(tmp_path: Path) -> None:
    points, subset = floats(6, 3), [0, 2, 3, 5, 4]
    across, up = points[4, :2] - points[1, :2]
    angle = 0.3 - np.arctan2(up, across)
    upright = points[subset, :2] @ turned(angle).T
    size, middle = np.ptp(upright, 0), (upright.max(0) + upright.min(0)) / 2
    factors = turned(-angle) @ np.diag(size * [1.5, 2.0] / np.array([20, 10]))
    wanted = np.eye(4, dtype=F)
    wanted[:2, :2] = factors
    wanted[:2, 3] = turned(-angle) @ middle + factors @ [-10, -5]
    options = {
        "subset_idxs": subset,
        "left_rotation_idx": 1,
        "right_rotation_idx": 4,
        "target_rotation_radians": 0.3,
        "output_height": 10,
        "output_width": 20,
        "scale_x": 1.5,
        "scale_y": 2.0,
    }
    inputs = [Tensor(F, [1, 6, 3])]
    path = mediapipe(tmp_path, "Landmarks2TransformMatrix", options, inputs, [Tensor(F, [1, 4, 4])])
    equal(ours(path, [points[None]]), [wanted[None]])


def test_matrix_of_a_crop_by_relative_positions(tmp_path: Path) -> None:
    points, subset, span = 64 + 20 * floats(6, 3), [0, 2, 3, 5], 192
    across, up = points[4, :2] - points[1, :2]
    angle = -np.arctan(up / across)
    upright = points[subset, :2] @ turned(angle).T
    box, middle = 1.5 * np.ptp(upright, 0) / span, (upright.max(0) + upright.min(0)) / 2
    absolute = np.array([[47.5, 0, 47.5], [0, 31.5, 31.5], [0, 0, 1]])
    turn = np.eye(3)
    turn[:2, :2], turn[:2, 2] = turned(-angle), turned(-angle) @ middle / span * 2 - 1
    relative = np.array([[2 / 19, 0, -1], [0, 2 / 9, -1], [0, 0, 1]])
    found = absolute @ turn @ np.diag([*box, 1]) @ relative
    wanted = np.eye(4, dtype=F)
    wanted[:2, :2], wanted[:2, 3] = found[:2, :2], found[:2, 2]
    options = {
        "dimensions": 3,
        "landmarks_range": span,
        "left_rotation_idx": 1,
        "right_rotation_idx": 4,
        "bbox_size_multiplier": 1.5,
        "input_hw": [64, 96],
        "output_hw": [10, 20],
        "subset": subset,
    }
    inputs, outputs = [Tensor(F, [1, 1, 1, 18])], [Tensor(F, [1, 4, 4])]
    path = mediapipe(tmp_path, "Landmarks2TransformMatrix", options, inputs, outputs)
    equal(ours(path, [points.reshape(1, 1, 1, 18)]), [wanted[None]], 1e-4)


# subgraphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CALL", "STABLEHLO_COMPOSITE"])
def test_a_subgraph_in_place(tmp_path: Path, kind: str) -> None:
    op = Op(kind, [0], [1], "CallOptions", {"Subgraph": 1})
    if kind != "CALL":
        options = {"Name": "twice", "DecompositionSubgraphIndex": 1}
        options["CompositeAttributes"] = bytes(flexbuffers.Dumps({"factor": 2}))
        op = Op(kind, [0], [1], "StableHLOCompositeOptions", options, union="2")
    main = Graph([Tensor(F, [3]), Tensor(F, [3])], [op], [0], [1])
    double = Graph(
        [Tensor(F, [3]), const(2, F), Tensor(F, [3])], [Op("MUL", [0, 1], [2])], [0], [2]
    )
    path = write(tmp_path / "m.tflite", main, double)
    assert ours(path, [np.array([1, 2, 3], F)])[0].tolist() == [2, 4, 6]
    if kind != "CALL" and litert.available():  # LiteRT has no kernel of CALL
        alike(path, [floats(3)])


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (Op("CUSTOM", [0], [1], custom="FlexErf"), "FlexErf is an operator of TensorFlow"),
        (Op("STABLEHLO_TANH", [0], [1]), "STABLEHLO_TANH has no kernel in the"),
        (Op("STABLEHLO_SORT", [0], [1]), "STABLEHLO_SORT"),
        (Op("SKIP_GRAM", [0], [1]), "SKIP_GRAM"),
    ],
)
def test_unsupported_operators_are_named(tmp_path: Path, op: Op, name: str) -> None:
    graph = Graph([Tensor(F, [3]), Tensor(F, [3])], [op], [0], [1])
    with pytest.raises(UnsupportedError, match=f"{name} .*"):
        converter.load(write(tmp_path / "m.tflite", graph))


@needs_litert
@pytest.mark.parametrize("kind", [F, np.int8])
def test_a_resize_of_an_open_batch_is_written_again(kind: Any, tmp_path: Path) -> None:
    scale = 0.0 if kind == F else 0.1
    image, result = (Tensor(kind, [-1, n, n, 2], scale=scale) for n in (4, 7))
    inputs = [image, const([7, 7], I32)]
    table = "ResizeBilinearOptions"
    path = single(tmp_path, "RESIZE_BILINEAR", inputs, [result], table, HalfPixelCenters=True)
    again = tmp_path / "again.tflite"
    converter.convert(path, again)
    assert [o.builtin for o in read_flat(again).graphs[0].operators] == ["RESIZE_BILINEAR"]
    feed = (10 * floats(3, 4, 4, 2)).astype(kind)
    equal(in_litert(again, [feed]), in_litert(path, [feed]))


def test_a_seed_is_dropped_with_a_note(tmp_path: Path) -> None:
    """LiteRT's generator gives other numbers, and files without a seed others in each run."""
    node = onnx.helper.make_node("RandomNormal", [], ["y"], shape=[2, 3], seed=5.0)
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
    graph = onnx.helper.make_graph([node], "g", [], [y])
    opset = onnx.helper.make_opsetid("", 21)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset]), tmp_path / "r.onnx")
    notes = converter.save(converter.load(tmp_path / "r.onnx"), tmp_path / "r.tflite")
    assert [(d.code, "seed=5.0" in d.message) for d in notes] == [("X207", True)]


@pytest.mark.parametrize("name", ["ADD", "Warp"])
def test_a_custom_operator_has_no_name_of_a_builtin_one(tmp_path: Path, name: str) -> None:
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy")
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"], domain="acme")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    if name == "Warp":
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.tflite", allow_custom=True)
        return
    with pytest.raises(UnsupportedError, match="ADD is the name of an operator of the format"):
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.tflite", allow_custom=True)
