"""Results of data-dependent length in formats with static shapes, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import converter
from converter.errors import UnsupportedError, UsageError

SUFFIX = {"nnapi+level=3": ".nnapi.json", "openvino+ir=7": ".xml", "zhouyi": ".txt"}
LIMITS = "int64[1] most = {5}, float[1] iou = {0.4}, float[1] least = {0.3}"
BOXES = f"""(float[2,12,4] boxes, float[2,2,12] scores) => (OUTPUTS)
  <{LIMITS}, int64 box = {{2}}, int64 zero = {{0}}, int64[1] some = {{7}}, int64[1] first = {{0}},
   int64[2] flat = {{-1, 4}}>
  {{ picked = NonMaxSuppression(boxes, scores, most, iou, least)
"""
NETWORKS = {
    "alone": "int64[K,3] picked }",
    "gathered": """int64[K] place, float[K,4] found, float[K] score
        place = Gather<axis=1>(picked, box)
        rows = Reshape(boxes, flat)
        found = Gather<axis=0>(rows, place)
        score = GatherND(scores, picked) }""",
    "best": """float[M] best, int64[M,3] rows
        score = GatherND(scores, picked)
        length = Shape(score)
        count = Min(length, some)
        best, order = TopK(score, count)
        rows = Gather<axis=0>(picked, order) }""",
    "first": """int64[M,3] rows
        rows = Slice(picked, first, some, first) }""",
    "counted": """int64[K,3] picked, int64 number
        length = Shape(picked)
        number = Gather<axis=0>(length, zero) }""",
}


def network(text: str, folder: Path) -> Path:
    outputs, _, body = text.partition("\n")
    outputs, closing, _ = outputs.partition(" }")
    header = BOXES.replace("OUTPUTS", outputs)
    return saved(f"main {header} {body if not closing else '}'}", folder)


def saved(text: str, folder: Path) -> Path:
    path = folder / "source.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}'), path)
    return path


def boxes(seed: int = 0, count: int = 12) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    middle, size = random.uniform(0, 1, (2, count, 2)), random.uniform(0.2, 0.6, (2, count, 2))
    found = np.concatenate([middle - size / 2, middle + size / 2], -1).astype(np.float32)
    scores = random.uniform(0, 1, (2, 2, count)).astype(np.float32)
    return {"boxes": found, "scores": scores}


def compared(source: Path, target: str, feeds: dict[str, np.ndarray]) -> None:
    """Compare the valid rows of a written file with the results of onnxruntime."""
    session = onnxruntime.InferenceSession(source)
    expected = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)
    )
    written = source.with_name("written" + SUFFIX[target])
    with pytest.warns(converter.NetconvWarning):
        converter.convert(source, written, target=f"{target}+padded", force=True)
    model = converter.load(written)
    given = {i.name: feeds[i.name].astype(i.dtype) for i in model.inputs}
    actual = {k: np.asarray(v) for k, v in model.run(given).items()}
    counts = {int(v.reshape(-1)[0]) for k, v in actual.items() if k.endswith("_count")}
    for name, value in expected.items():
        rows = actual[name].reshape(value.shape) if not value.ndim else actual[name]
        for axis, size in enumerate(value.shape):
            if size != rows.shape[axis]:
                assert size in counts, name
                rest = np.take(rows, range(size, rows.shape[axis]), axis)
                assert (rest == -1).all(), name
            rows = np.take(rows, range(size), axis)
        np.testing.assert_allclose(rows, value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        *((kind, "openvino+ir=7") for kind in NETWORKS),
        ("gathered", "nnapi+level=3"),
        ("best", "nnapi+level=3"),
        ("best", "zhouyi"),
        ("first", "zhouyi"),
    ],
)
def test_rows_after_the_last_valid_one_are_marked(kind: str, target: str, tmp_path: Path) -> None:
    compared(network(NETWORKS[kind], tmp_path), target, boxes())


def test_no_box_at_all(tmp_path: Path) -> None:
    feeds = boxes()
    feeds["scores"] *= 0
    compared(network(NETWORKS["gathered"], tmp_path), "openvino+ir=7", feeds)


def test_non_zero(tmp_path: Path) -> None:
    text = """main (float[3,5] x) => (int64[2,K] at, float[K] values) <float half = {0.5}> {
        mask = Greater(x, half)
        at = NonZero(mask)
        rows = Transpose(at)
        values = GatherND(x, rows) }"""
    x = np.random.default_rng(0).uniform(0, 1, (3, 5)).astype(np.float32)
    compared(saved(text, tmp_path), "nnapi+level=3", {"x": x})


@pytest.mark.slow
def test_few_of_many_boxes_are_selected_in_rounds(tmp_path: Path) -> None:
    """A table of the overlaps of all pairs would have 4 * 400^2 elements."""
    text = "main " + BOXES.replace("OUTPUTS", "int64[K,3] picked").replace("12", "400") + "}"
    compared(saved(text, tmp_path), "nnapi+level=3", boxes(count=400))


def test_verify_compares_the_valid_rows(tmp_path: Path) -> None:
    source = network(NETWORKS["gathered"], tmp_path)
    written = tmp_path / "written.xml"
    with pytest.warns(converter.NetconvWarning, match="output place has 20 rows"):
        converter.convert(source, written, target="openvino+ir=7+padded")
    assert converter.verify(source, written).same


def test_rows_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    text = """float[4] total
        place = Gather<axis=1>(picked, box)
        rows = Reshape(boxes, flat)
        found = Gather<axis=0>(rows, place)
        total = ReduceSum<keepdims=0>(found, first) }"""
    with pytest.raises(UnsupportedError, match="ReduceSum does not compute each of them by itself"):
        converter.convert(network(text, tmp_path), tmp_path / "written.xml", target="openvino+ir=7")


@pytest.mark.parametrize("target", SUFFIX)
def test_rows_are_not_padded_unasked(target: str, tmp_path: Path) -> None:
    source = network(NETWORKS["gathered"], tmp_path)
    with pytest.raises(UnsupportedError, match="number of rows of output place") as refused:
        converter.convert(source, tmp_path / f"m{SUFFIX[target]}", target=target)
    named = [d for d in refused.value.diagnostics if "add +padded to the target" in d.help]
    assert len(named) == len(NETWORKS["gathered"].splitlines()[0].split(", "))


def test_a_number_of_rows_that_shows_in_no_output_needs_no_padding(tmp_path: Path) -> None:
    source = network(NETWORKS["counted"].replace("int64[K,3] picked, ", ""), tmp_path)
    feeds, written = boxes(), tmp_path / "m.xml"
    converter.convert(source, written, target="openvino+ir=7")
    session = onnxruntime.InferenceSession(source)
    (found,) = converter.load(written).run(feeds).values()
    assert int(np.asarray(found).reshape(-1)[0]) == int(session.run(None, feeds)[0])


def test_padding_is_for_formats_with_static_shapes(tmp_path: Path) -> None:
    source = network(NETWORKS["gathered"], tmp_path)
    with pytest.raises(UsageError, match="is for IR 5 to 7"):
        converter.convert(source, tmp_path / "m.xml", target="openvino+padded")
