"""Zhouyi Compass IR, meaning: real cases both ways, and layers against their definition written in
numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.zhouyi.codec import read_ir
from converter.formats.zhouyi.validate import validate
from converter.graph.build import new_model
from support import corpus_cases

Array = Any
Outputs = Sequence[tuple[tuple[int, ...], str]]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.random(shape).astype(np.float32)


def corners(*shape: int) -> Array:
    low = floats(*shape, 2)
    return np.concatenate([low, low + 0.4 * floats(*shape, 2)], -1)


def document(
    folder: Path,
    kind: str,
    inputs: Mapping[str, Array],
    outputs: Outputs,
    attrs: Mapping[str, Any],
    constants: Mapping[str, Array],
) -> Path:
    """A file with one layer."""

    def shapes(values: Sequence[Sequence[int]]) -> str:
        return "[" + ",".join("[" + ",".join(map(str, s)) + "]" for s in values) + "]"

    def block(**keys: Any) -> str:
        return "\n".join(f"{k}={v}" for k, v in keys.items())

    names, tops = list(inputs), [f"o{i}" for i in range(len(outputs))]
    blocks = [
        block(
            model_name="m",
            layer_number=len(inputs) + 1,
            model_bin="./m.bin",
            input_tensors=f"[{','.join(names)}]",
            output_tensors=f"[{','.join(tops)}]",
        )
    ]
    empty = {"layer_bottom": "[]", "layer_bottom_shape": "[]", "layer_bottom_type": "[]"}
    for i, (name, a) in enumerate(inputs.items()):
        top = {
            "layer_top": f"[{name}]",
            "layer_top_shape": shapes([a.shape]),
            "layer_top_type": f"[{a.dtype}]",
        }
        blocks.append(
            block(layer_id=i, layer_name=f"in_{name}", layer_type="Input", **empty, **top)
        )
    raw, groups = b"", {}
    for name, a in constants.items():
        groups |= {
            f"{name}_type": a.dtype,
            f"{name}_offset": len(raw),
            f"{name}_size": a.nbytes,
            f"{name}_shape": shapes([a.shape])[1:-1],
        }
        raw += a.tobytes()
    bottom = {
        "layer_bottom_shape": shapes([a.shape for a in inputs.values()]),
        "layer_bottom_type": f"[{','.join(str(a.dtype) for a in inputs.values())}]",
    }
    top = {
        "layer_top": f"[{','.join(tops)}]",
        "layer_top_shape": shapes([s for s, _ in outputs]),
        "layer_top_type": f"[{','.join(t for _, t in outputs)}]",
    }
    blocks.append(
        block(
            layer_id=len(inputs),
            layer_name="it",
            layer_type=kind,
            layer_bottom=f"[{','.join(names)}]",
            **bottom,
            **top,
            **groups,
            **attrs,
        )
    )
    (folder / "m.txt").write_text("\n\n".join(blocks) + "\n\n\n")
    (folder / "m.bin").write_bytes(raw)
    return folder / "m.txt"


def rewritten(model: Model, folder: Path) -> Model:
    """Written and read again; the written file is sound."""
    path = folder / "again.txt"
    converter.save(model, path)
    assert [str(d) for d in validate(read_ir(path)) if d.level == "error"] == []
    return converter.load(path)


def compute(
    folder: Path,
    kind: str,
    inputs: Mapping[str, Array],
    outputs: Outputs,
    constants: Mapping[str, Array] | None = None,
    **attrs: Any,
) -> list[Array]:
    """The results of a one-layer file, the same after writing it again."""
    model = converter.load(document(folder, kind, inputs, outputs, attrs, constants or {}))
    found = list(model.run(dict(inputs)).values())
    for first, second in zip(
        found, rewritten(model, folder).run(dict(inputs)).values(), strict=True
    ):
        np.testing.assert_allclose(second, first, 1e-4, 1e-5)
    return found


def equal(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-4, 1e-4)


def groups(
    scores: Array, boxes: Array, threshold: float, size: int, classes: int
) -> tuple[Array, ...]:
    """Boxes class by class: boxes, counts, number of classes, scores, classes."""
    batch = scores.shape[0]
    kept, values, counts, labels, number = (
        np.zeros((batch, *s)) for s in ((size, 4), (size,), (classes,), (classes,), (1,))
    )
    for n in range(batch):
        at = there = 0
        for c in range(scores.shape[2]):
            found = np.flatnonzero(scores[n, :, c] > threshold)
            if found.size:
                kept[n, at : at + found.size], values[n, at : at + found.size] = (
                    boxes[n, found],
                    scores[n, found, c],
                )
                counts[n, there], labels[n, there] = found.size, c
                at, there = at + found.size, there + 1
        number[n] = there
    return kept, counts, number, values, labels


def moved(boxes: Array, deltas: Array, largest: float = np.inf) -> Array:
    center, size = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
    middle = center + deltas[..., :2] / 10 * size
    half = np.minimum(np.exp(deltas[..., 2:] / 5) * size, largest) / 2
    return np.concatenate([middle - half, middle + half], -1).clip(0, 1)


@pytest.mark.parametrize("case", corpus_cases("zhouyi/ops"))
@pytest.mark.sampled(5)
def test_real_layers_both_ways(case: Path, tmp_path: Path) -> None:
    check_case(case, tmp_path, 1e-4)


@pytest.mark.parametrize("case", corpus_cases("zhouyi/nets"))
def test_real_networks_both_ways(case: Path, tmp_path: Path) -> None:
    check_case(case, tmp_path, 1e-4)


@pytest.mark.parametrize("case", corpus_cases("zhouyi/int8"))
@pytest.mark.sampled(3)
def test_integers_are_exact(case: Path, tmp_path: Path) -> None:
    check_case(case, tmp_path, 0)


def check_case(case: Path, folder: Path, tolerance: float) -> None:
    """Feeds and results are those of the case in its order of inputs and outputs."""
    model = converter.load(case / "model.txt")
    with np.load(case / "inputs.npz") as i, np.load(case / "outputs.npz") as o:
        feeds, wanted = (
            dict(zip([x.name for x in model.inputs], i.values(), strict=True)),
            list(o.values()),
        )
    for each in (model, rewritten(model, folder)):
        for found, value in zip(each.run(feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(
                found.astype(np.float64), value.astype(np.float64), 10 * tolerance, tolerance
            )


def test_rows_above_a_threshold_come_first(tmp_path: Path) -> None:
    x = floats(2, 7, 6)
    x[..., 0] = RNG.integers(-1, 3, (2, 7))
    count, rows, numbers = np.zeros(2), -np.ones_like(x), -np.ones((2, 7))
    for n in range(2):
        found = np.flatnonzero((x[n, :, 1] > 0.3) & (x[n, :, 0] >= 0))
        count[n], rows[n, : found.size], numbers[n, : found.size] = found.size, x[n, found], found
    shapes = [((2,), "int32"), ((2, 7, 6), "float32"), ((2, 7), "int32")]
    equal(
        compute(
            tmp_path,
            "GetValidCount",
            {"x": x},
            shapes,
            score_threshold=0.3,
            score_index=1,
            id_index=0,
        ),
        [count, rows, numbers],
    )


def test_accidental_hits(tmp_path: Path) -> None:
    true, sampled = RNG.integers(0, 6, (4, 3)).astype(np.int32), np.array([5, 2, 0, 1], np.int32)
    hits = [
        (r, int(np.flatnonzero(sampled == v)[0]))
        for r, row in enumerate(true)
        for v in row
        if v in sampled
    ]
    first, second = np.zeros(60), np.zeros(60)
    first[: len(hits)], second[: len(hits)] = [h[0] for h in hits], [h[1] for h in hits]
    shapes = [((60,), "int32"), ((60,), "int32"), ((1,), "int32")]
    equal(
        compute(tmp_path, "AccidentalHits", {"t": true, "s": sampled}, shapes),
        [first, second, [len(hits)]],
    )


def test_filter_moves_slices_to_the_front(tmp_path: Path) -> None:
    a, c, chosen = floats(5, 3), floats(5, 2, 2), np.array([0, 1, 0, 1, 1], np.int32)
    wanted = [np.concatenate([v[chosen != 0], np.zeros_like(v[:2])]) for v in (a, c)]
    found = compute(
        tmp_path,
        "Filter",
        {"a": a, "c": c, "s": chosen},
        [((5, 3), "float32"), ((5, 2, 2), "float32"), ((), "int32")],
        num=2,
        axis=0,
    )
    equal(found, [*wanted, 3])


def test_histogram(tmp_path: Path) -> None:
    x = (floats(2, 50) * 12 - 1).astype(np.float32)
    x[0, :3] = [0, 10, 10]
    found = compute(
        tmp_path, "Count", {"x": x}, [((2, 5), "float32")], nbins=5, min=0, max=10, discrete="true"
    )
    equal(found, [np.stack([np.histogram(row, 5, (0, 10))[0] for row in x])])


@pytest.mark.parametrize("combiner", ["SUM", "MEAN", "SQRTN"])
def test_weighted_lookup(combiner: str, tmp_path: Path) -> None:
    table, rows, ids, w = (
        floats(8, 3),
        np.array([0, 0, 2, 2, 2], np.int32),
        np.array([1, 3, 7, 0, 2], np.int32),
        floats(5),
    )
    wanted = np.zeros((3, 3))
    for r in (0, 2):
        mine = w[rows == r]
        norm = {"SUM": 1.0, "MEAN": mine.sum(), "SQRTN": np.sqrt((mine**2).sum())}[combiner]
        wanted[r] = (table[ids[rows == r]] * mine[:, None]).sum(0) / norm
    feeds = {"p": table, "i": rows, "v": ids, "w": w}
    equal(
        compute(
            tmp_path,
            "EmbeddingLookupSparse",
            feeds,
            [((3, 3), "float32")],
            combiner=combiner,
            max_norm="NONE",
        ),
        [wanted],
    )


def test_greedy_labels(tmp_path: Path) -> None:
    x, lengths = floats(2, 8, 4), np.array([8, 5], np.int32)
    wanted = np.full((2, 16, 1, 1), np.iinfo(np.int32).max)
    for n in range(2):
        best = x[n, : lengths[n]].argmax(1)
        kept = [v for i, v in enumerate(best) if (i == 0 or best[i - 1] != v) and v != 3]
        wanted[n, : len(kept), 0, 0] = kept
    equal(
        compute(
            tmp_path,
            "CTCGreedyDecoder",
            {"x": x, "l": lengths},
            [((2, 16, 1, 1), "int32")],
            merge_repeated="true",
        ),
        [wanted],
    )


def test_boxes_are_refined(tmp_path: Path) -> None:
    boxes, deltas = corners(1, 6), floats(1, 6, 4)
    equal(
        compute(tmp_path, "BoundingBox", {"b": boxes, "d": deltas}, [((1, 6, 4), "float32")]),
        [moved(boxes, deltas)],
    )


def test_boxes_are_decoded_and_grouped(tmp_path: Path) -> None:
    scores, deltas, anchors = floats(2, 9, 5), floats(2, 9, 4), floats(9, 4)
    shapes = [
        ((2, 50, 4), "float32"),
        ((2, 4), "float32"),
        ((2, 1), "float32"),
        ((2, 50), "float32"),
        ((2, 4), "float32"),
    ]
    found = compute(
        tmp_path,
        "DecodeBox",
        {"s": scores, "d": deltas},
        shapes,
        {"weights": anchors},
        class_num=4,
        score_threshold=0.6,
    )
    half = anchors[:, 2:] / 2
    corner = np.concatenate([anchors[:, :2] - half, anchors[:, :2] + half], 1)[None]
    boxes = moved(corner, deltas, largest=1.0)
    equal(found, groups(scores[..., 1:], boxes, 0.6, 50, 4))


def test_two_groups_become_one(tmp_path: Path) -> None:
    scores, boxes = [floats(1, 8, 4) for _ in range(2)], [corners(1, 8) for _ in range(2)]
    scores[0][..., 2] = 0
    made = [groups(s, b, 0.5, 20, 4) for s, b in zip(scores, boxes, strict=True)]
    feeds = {
        f"{name}{i}": made[i][j].astype(np.float32)
        for name, j in (("s", 3), ("b", 0), ("n", 1), ("l", 4), ("t", 2))
        for i in range(2)
    }
    shapes = [
        ((1, 40), "float32"),
        ((1, 40, 4), "float32"),
        ((1, 4), "float32"),
        ((1, 4), "float32"),
        ((1, 1), "float32"),
    ]
    kept, counts, number, values, labels = groups(
        np.concatenate(scores, 1), np.concatenate(boxes, 1), 0.5, 40, 4
    )
    equal(
        compute(tmp_path, "RegionFuse", feeds, shapes, class_num=4),
        [values, kept, counts, labels, number],
    )


def test_multibox(tmp_path: Path) -> None:
    scores, deltas, anchors = floats(2, 4, 6), floats(2, 24), corners(1, 6)
    rows, count = -np.ones((2, 6, 6)), np.zeros(2)
    for n in range(2):
        best, label = scores[n, 1:].max(0), scores[n, 1:].argmax(0)
        found = np.flatnonzero(best > 0.7)
        boxes = moved(anchors[0, found], deltas.reshape(2, 6, 4)[n, found])
        rows[n, : found.size], count[n] = (
            np.concatenate([np.stack([label[found], best[found]], 1), boxes], 1),
            found.size,
        )
    attrs = {"score_threshold": 0.7, "variance": "[0.1,0.1,0.2,0.2]"}
    equal(
        compute(
            tmp_path,
            "MultiboxTransformLoc",
            {"c": scores, "l": deltas, "a": anchors},
            [((2, 6, 6), "float32"), ((2,), "int32")],
            **attrs,
        ),
        [rows, count],
    )


@pytest.mark.parametrize("kind", ["Dilation", "Erosion"])
def test_morphology(kind: str, tmp_path: Path) -> None:
    x, w = floats(1, 6, 7, 2), floats(2, 3, 2, 1)
    attrs = {
        "kernel_x": 2,
        "kernel_y": 3,
        "stride_x": 1,
        "stride_y": 2,
        "dilation_x": 1,
        "dilation_y": 1,
    } | {"pad_left": 0, "pad_right": 1, "pad_top": 1, "pad_bottom": 0}
    wanted = np.zeros((1, 3, 7, 2))
    for i, j, c in np.ndindex(3, 7, 2):
        under = [
            (2 * i - 1 + p, j + q, p, q)
            for p in range(3)
            for q in range(2)
            if 0 <= 2 * i - 1 + p < 6 and j + q < 7
        ]
        if kind == "Dilation":
            wanted[0, i, j, c] = max(x[0, y, k, c] + w[c, p, q, 0] for y, k, p, q in under)
        else:
            wanted[0, i, j, c] = min(x[0, y, k, c] - w[c, 2 - p, 1 - q, 0] for y, k, p, q in under)
    equal(
        compute(tmp_path, kind, {"x": x}, [((1, 3, 7, 2), "float32")], {"weights": w}, **attrs),
        [wanted],
    )


@pytest.mark.parametrize(
    ("exclusive", "reverse"),
    [("false", "false"), ("true", "false"), ("false", "true"), ("true", "true")],
)
def test_running_product(exclusive: str, reverse: str, tmp_path: Path) -> None:
    x = floats(2, 4)
    y = np.cumprod(x[:, ::-1] if reverse == "true" else x, 1)
    y = np.concatenate([np.ones((2, 1)), y[:, :-1]], 1) if exclusive == "true" else y
    found = compute(
        tmp_path,
        "Cumulate",
        {"x": x},
        [((2, 4), "float32")],
        method="PROD",
        axis=1,
        exclusive=exclusive,
        reverse=reverse,
    )
    equal(found, [y[:, ::-1] if reverse == "true" else y])


def test_a_vague_layer_is_refused_by_name(tmp_path: Path) -> None:
    attrs = {"method": "AVG", "pseudo": "true", "overlap": "true", "seed": 0}
    path = document(
        tmp_path,
        "FractionalPool",
        {"x": floats(1, 4, 4, 2)},
        [((1, 2, 2, 2), "float32")],
        attrs,
        {},
    )
    with pytest.raises(UnsupportedError, match="FractionalPool"):
        converter.load(path)


def test_a_key_of_ones_own_is_named_and_left_out(tmp_path: Path) -> None:
    path = document(tmp_path, "Abs", {"x": floats(2)}, [((2,), "float32")], {"my_key": 3}, {})
    model = converter.load(path)
    assert [d.code for d in model.notes if "my_key" in d.message] == ["R111"]


def test_a_shape_that_contradicts_the_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConverterError, match="R105"):
        converter.load(
            document(tmp_path, "Abs", {"x": floats(2, 3)}, [((2, 4), "float32")], {}, {})
        )


def test_names_come_back(tmp_path: Path) -> None:
    """Names that no line carries are changed in the file and restored from the map next to it."""
    model, b = new_model("m")
    x = b.input("in=1", ir.DataType.FLOAT, [2])
    b.output(b.op("Relu", x, name="out,[2]"))
    converter.save(Model(model, "onnx"), tmp_path / "n.txt")
    assert (tmp_path / "n.map.json").exists()
    again = converter.load(tmp_path / "n.txt")
    assert ([i.name for i in again.inputs], [o.name for o in again.outputs]) == (
        ["in=1"],
        ["out,[2]"],
    )


def test_a_dynamic_shape_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model, b = new_model("m")
    b.output(b.op("Relu", b.input("x", ir.DataType.FLOAT, ["n", 2])))
    with pytest.raises(UnsupportedError, match="X203"):
        converter.save(Model(model, "onnx"), tmp_path / "d.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_constant_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model, b = new_model("m")
    b.output(b.op("Add", b.input("x", ir.DataType.INT64, [1]), b.const(np.array([1 << 40]))))
    with pytest.raises(UnsupportedError, match="X204"):
        converter.save(Model(model, "onnx"), tmp_path / "c.txt")
