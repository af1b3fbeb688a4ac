"""Empty values, and the results that follow from them, as constants. onnxruntime says the numbers;
where it has none, the specification does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest
from onnx import numpy_helper

import converter
from converter.errors import UnsupportedError
from converter.passes.fold_empty import fold_empty

F, I32, I64 = np.float32, np.int32, np.int64


def floats(*shape: int) -> Any:
    return np.random.default_rng(2).normal(size=shape).astype(F)


def model_of(kind: str, operands: list[Any], constant: Any = (), outputs: int = 1, **attributes: Any
             ) -> tuple[onnx.ModelProto, dict[str, Any]]:  # fmt: skip
    """A model of one operator, the operands in `constant` as initializers, and its feeds."""
    arrays = [None if o is None else np.asarray(o) for o in operands]
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constant}
    given = [numpy_helper.from_array(arrays[i], f"x{i}") for i in constant]
    results = [f"y{i}" for i in range(outputs)]
    graph = oh.make_graph(
        [oh.make_node(kind, names, results, **attributes)],
        "g",
        [
            oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in results],
        given,
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), feeds


def computed(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, feeds))


def folded(
    model: onnx.ModelProto, folder: Path, storable: bool = True
) -> tuple[onnx.ModelProto, set[str]]:
    """The model after the pass, and the kinds of its operators."""
    onnx.save(model, folder / "m.onnx")
    network = converter.load(folder / "m.onnx")
    fold_empty(network.ir, storable)
    kinds = {n.op_type for n in network.ir.graph}
    converter.save(network, folder / "folded.onnx")
    return onnx.load(folder / "folded.onnx"), kinds


AXIS = np.array([1])
REDUCTIONS = {
    "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceSum": 0, "ReduceProd": 1, "ReduceL1": 0,
    "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf,
}  # fmt: skip
CASES: dict[str, tuple[Any, ...]] = {
    "Add": ("Add", [floats(2, 0), floats(1)]),
    "Gather of none": ("Gather", [floats(3), np.zeros(0, I64)], (1,)),
    "Resize to 0": ("Resize", [floats(1, 1, 2, 3), None, None, [1, 1, 0, 3]], (3,)),
    "Resize to 0 along axes": ("Resize", [floats(1, 1, 2, 3), None, None, [0]], (3,), 1,
                               {"axes": [2]}),
    "Unique": ("Unique", [floats(0)], (), 4),
    "Unique along an axis": ("Unique", [floats(2, 0)], (), 4, {"axis": 1}),
    "NonZero": ("NonZero", [floats(2, 0)]),
    "MatMul": ("MatMul", [floats(2, 0), floats(0, 3)]),
    "Einsum": ("Einsum", [floats(2, 0), floats(0, 3)], (), 1, {"equation": "ij,jk->ki"}),
    "Gemm": ("Gemm", [floats(2, 0), floats(0, 3), floats(2, 1)], (), 1, {"beta": 2.0}),
    "Gemm of transposed": ("Gemm", [floats(0, 2), floats(3, 0), floats(3)], (1, 2), 1,
                           {"transA": 1, "transB": 1, "alpha": 0.5}),
    "Gemm without addend": ("Gemm", [floats(2, 0), floats(0, 3)]),
    "Pad": ("Pad", [floats(0, 2), [1, 0, 2, 1], F(3)], (1,)),
    "Pad with the default": ("Pad", [floats(0), [1, 1]], (1,)),
    **{f"{k} keepdims={d}": (k, [floats(2, 0), AXIS], (1,), 1, {"keepdims": d})
       for k in REDUCTIONS for d in (0, 1)},
    "ReduceMax of integers": ("ReduceMax", [np.zeros((2, 0), I32), AXIS], (1,)),
    "ReduceMin of integers": ("ReduceMin", [np.zeros((2, 0), I64), AXIS], (1,)),
    "ReduceSum over no axes": ("ReduceSum", [floats(2, 0), np.zeros(0, I64)], (1,), 1,
                               {"noop_with_empty_axes": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_known_results_are_not_computed(case: str, tmp_path: Path) -> None:
    kind, operands, *more = CASES[case]
    constant, outputs, attributes = (*more, *((), 1, {})[len(more) :])
    model, feeds = model_of(kind, operands, constant, outputs, **attributes)
    changed, kinds = folded(model, tmp_path)
    assert kind not in kinds and kinds <= {"Identity", "Add", "Mul", "Reshape", "Expand"}
    if kind == "Resize":  # onnxruntime does not run it
        (out,) = computed(changed, feeds)
        assert out.shape == (1, 1, 0, 3)
        return
    for actual, expected in zip(computed(changed, feeds), computed(model, feeds), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("kind", "expected"), [("ReduceMax", False), ("ReduceMin", True)])
def test_no_booleans_are_all_true_and_none_true(kind: str, expected: bool, tmp_path: Path) -> None:
    changed, kinds = folded(*model_of(kind, [np.zeros((2, 0), bool), AXIS], (1,))[:1], tmp_path)
    (out,) = computed(changed, {"x0": np.zeros((2, 0), bool)})
    assert kind not in kinds and out.tolist() == [[expected]] * 2


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(
    ("kind", "x", "weights", "attributes"),
    [
        ("Conv", (1, 0, 3), (2, 0, 1), {}),
        ("Conv", (1, 1, 0, 2), (2, 1, 3, 1), {"pads": [2, 0, 2, 0]}),
        ("ConvTranspose", (1, 0, 3), (0, 2, 2), {}),
    ],
)
def test_windows_on_nothing_give_the_bias(
    kind: str, x: Any, weights: Any, attributes: Any, constant: Any, tmp_path: Path
) -> None:
    bias = np.array([3, -2], F)
    model, feeds = model_of(kind, [floats(*x), floats(*weights), bias], constant, **attributes)
    changed, kinds = folded(model, tmp_path)
    (out,) = computed(changed, feeds)
    assert kind not in kinds and 0 not in out.shape
    assert all((out[:, i] == bias[i]).all() for i in range(2))


@pytest.mark.parametrize(
    ("kind", "operands"),
    [
        ("ReduceMean", [floats(2, 0), AXIS]),
        ("GlobalMaxPool", [floats(1, 2, 0)]),
        ("RandomNormalLike", [floats(2, 0)]),
    ],
)
def test_uncertain_results_stay(kind: str, operands: Any, tmp_path: Path) -> None:
    constant = [i for i, o in enumerate(operands) if i and o is not None]
    model, _ = model_of(kind, operands, constant)
    assert kind in folded(model, tmp_path)[1]


def test_only_results_with_elements_are_folded_for_targets_without_empty_constants(
    tmp_path: Path,
) -> None:
    model, _ = model_of("Add", [floats(2, 0), floats(1)])
    assert folded(model, tmp_path, storable=False)[1] == {"Add"}
    model, _ = model_of("MatMul", [floats(2, 0), floats(0, 3)])
    assert "MatMul" not in folded(model, tmp_path, storable=False)[1]


def test_zhouyi_stores_no_constant_without_elements(tmp_path: Path) -> None:
    model, _ = model_of("Concat", [floats(2, 0), floats(2, 0)], (1,), axis=0)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="x1 is an empty constant"):
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.txt", target="zhouyi")
