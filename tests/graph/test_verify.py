"""converter/graph/verify/node.py: nodes that no input can make executable are refused on reading;
onnxruntime, which shares no code with it, refuses it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
from converter.errors import ConverterError, ExitCode
from converter.graph.verify.enumerations import WORDS

F = np.float32


def B(*shape: int) -> Any:
    return np.ones(shape, np.uint8)


# operator, shape of its input, constants, attributes
BROKEN: dict[str, tuple[str, list[int], list[Any], dict[str, Any]]] = {
    "kernel beyond the weights": (
        "Conv",
        [1, 2, 5, 5],
        [np.ones((4, 2, 3, 3), F)],
        {"kernel_shape": [2, 3]},
    ),
    "channels": ("Conv", [1, 3, 5, 5], [np.ones((4, 2, 3, 3), F)], {}),
    "groups": ("Conv", [1, 4, 5, 5], [np.ones((3, 2, 3, 3), F)], {"group": 2}),
    "bias": ("Conv", [1, 2, 5, 5], [np.ones((4, 2, 3, 3), F), np.ones(3, F)], {}),
    "larger than the input": ("Conv", [1, 2, 5, 5], [np.ones((4, 2, 7, 3), F)], {}),
    "stride 0": ("MaxPool", [1, 2, 5, 5], [], {"kernel_shape": [2, 2], "strides": [0, 1]}),
    "too few strides": ("MaxPool", [1, 2, 5, 5], [], {"kernel_shape": [2, 2], "strides": [1]}),
    "kernel 0": ("AveragePool", [1, 2, 5, 5], [], {"kernel_shape": [0, 2]}),
    "scales": (
        "BatchNormalization",
        [1, 2, 5, 5],
        [np.ones(3, F), np.ones(2, F), np.ones(2, F), np.ones(2, F)],
        {},
    ),
    "block": ("DepthToSpace", [1, 6, 2, 2], [], {"blocksize": 2}),
    "order": ("Transpose", [2, 3], [], {"perm": [0, 0]}),
    "part of an order": ("Transpose", [2, 3], [], {"perm": [0]}),
    "axis": ("Softmax", [2, 3], [], {"axis": 2}),
    "elements": ("Reshape", [2, 3], [np.array([4, 2])], {}),
    "slope": ("PRelu", [2, 3], [np.ones(2, F)], {}),
    "number of parts": ("Split", [2, 6], [], {"axis": 1, "num_outputs": 3}),
    "factors": ("Resize", [1, 1, 2, 3], [None, np.array([1, 1, np.nan, 1], F)], {}),
    "repeats": ("Tile", [2, 3], [np.array([2])], {}),
    "steps": ("Slice", [2, 3], [np.array([0]), np.array([2]), np.array([0]), np.array([0])], {}),
    "starts and ends": ("Slice", [2, 3], [np.array([0, 0]), np.array([2])], {}),
    "ranks": ("GatherElements", [2, 3], [np.array([0])], {}),
    "recurrent weights": (
        "RNN",
        [3, 1, 2],
        [np.ones((1, 4, 2), F), np.ones((1, 4, 3), F)],
        {"hidden_size": 4},
    ),
    "index": ("Gather", [2, 3], [np.array([0, 3])], {"axis": 1}),
    "index of an element": ("GatherElements", [2, 3], [np.array([[0], [-4]])], {"axis": 1}),
    "index of a place": ("GatherND", [2, 3], [np.array([[1, 3]])], {}),
    "depth of indices": ("GatherND", [2, 3], [np.zeros((1, 3), np.int64)], {}),
    "does not fit data": ("GatherND", [2, 3], [np.zeros((2, 1), np.int64)], {"batch_dims": 2}),
    "index of an update": ("ScatterElements", [2, 3], [np.array([[2]]), np.ones((1, 1), F)], {}),
    "index of updated rows": ("ScatterND", [2, 3], [np.array([[-3]]), np.ones((1, 3), F)], {}),
    "equation": ("Einsum", [2, 3], [], {"equation": "ij->ij->ji"}),
    "label that no operand has": ("Einsum", [2, 3], [], {"equation": "ij->ik"}),
    "label twice": ("Einsum", [2, 3], [], {"equation": "ij->jj"}),
    "scores": ("NonMaxSuppression", [1, 6, 4], [np.ones((1, 1, 5), F)], {}),
    "scale of a layer": ("LayerNormalization", [2, 3], [np.ones(2, F)], {}),
    "new axis": ("OneHot", [2, 3], [np.array(4), np.array([0, 1], F)], {"axis": 3}),
    "off and on": ("OneHot", [2, 3], [np.array(4), np.array([0, 1, 2], F)], {}),
    "padding away": ("Pad", [2, 3], [np.array([0, -4, 0, 0])], {}),
    "state": (
        "RNN",
        [3, 1, 2],
        [np.ones((1, 4, 2), F), np.ones((1, 4, 4), F), None, None, np.ones((1, 2, 4), F)],
        {"hidden_size": 4},
    ),
    "order of blocks": ("DepthToSpace", [1, 4, 2, 2], [], {"blocksize": 2, "mode": "RDC"}),
    "mode": ("Resize", [1, 1, 2, 2], [None, np.array([1, 1, 2, 2], F)], {"mode": "lanczos"}),
    "way": (
        "RNN",
        [3, 1, 2],
        [np.ones((1, 4, 2), F), np.ones((1, 4, 4), F)],
        {"hidden_size": 4, "direction": "backward"},
    ),
    "axes of time": (
        "ReverseSequence",
        [2, 3],
        [np.array([1, 1])],
        {"batch_axis": 0, "time_axis": 0},
    ),
    "operands": ("Concat", [2, 3], [None], {"axis": 0}),
    "selected along no axis": ("Compress", [2, 3], [np.array([True])], {"axis": 2}),
    "axis of a sum": ("CumSum", [2, 3], [np.array(2)], {}),
    "axes of a sum": ("CumSum", [2, 3], [np.array([0, 1])], {}),
    "diagonals": ("Trilu", [2, 3], [np.array([0, 1])], {}),
    "axes of a normalisation": ("MeanVarianceNormalization", [1, 2, 3, 3], [], {"axes": [7]}),
    "length of a sequence": ("ReverseSequence", [4, 2], [np.array([5, 1])], {}),
    "lengths of sequences": ("ReverseSequence", [4, 2], [np.array([1, 1, 1])], {}),
    "scale 0": ("Resize", [1, 1, 2, 2], [None, np.array([1, 1, 0, 2], F)], {}),
    "size below 0": ("Resize", [1, 1, 2, 2], [None, None, np.array([1, 1, -2, 2])], {}),
    "region": (
        "Resize",
        [1, 1, 2, 2],
        [np.array([0, 1], F), np.array([1, 1, 2, 2], F)],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    "groups of channels": (
        "GroupNormalization",
        [1, 4, 2, 2],
        [np.ones(4, F), np.ones(4, F)],
        {"num_groups": 3},
    ),
    "no group": (
        "GroupNormalization",
        [1, 4, 2, 2],
        [np.ones(4, F), np.ones(4, F)],
        {"num_groups": 0},
    ),
    "scale of a group": (
        "GroupNormalization",
        [1, 4, 2, 2],
        [np.ones(3, F), np.ones(4, F)],
        {"num_groups": 2},
    ),
    "columns": ("Col2Im", [1, 5, 4], [np.array([5, 5]), np.array([2, 2])], {}),
    "places of columns": ("Col2Im", [1, 4, 9], [np.array([5, 5]), np.array([2, 2])], {}),
    "boxes of regions": ("RoiAlign", [1, 1, 4, 4], [np.zeros((2, 5), F), np.array([0, 0])], {}),
    "image of a region": ("RoiAlign", [1, 1, 4, 4], [np.zeros((2, 4), F), np.array([0, 1])], {}),
    "samples": (
        "RoiAlign",
        [1, 1, 4, 4],
        [np.zeros((2, 4), F), np.array([0, 0])],
        {"sampling_ratio": -2},
    ),
    "rows of regions": (
        "MaxRoiPool",
        [1, 1, 4, 4],
        [np.zeros((2, 4), F)],
        {"pooled_shape": [2, 2]},
    ),
    "no pooled region": (
        "MaxRoiPool",
        [1, 1, 4, 4],
        [np.zeros((2, 5), F)],
        {"pooled_shape": [2, -1]},
    ),
    "place of a maximum": (
        "MaxUnpool",
        [1, 1, 2, 2],
        [np.full((1, 1, 2, 2), 99)],
        {"kernel_shape": [2, 2]},
    ),
    "places of maxima": (
        "MaxUnpool",
        [1, 1, 2, 2],
        [np.zeros((1, 1, 2, 3), np.int64)],
        {"kernel_shape": [2, 2]},
    ),
    "order of places": ("MaxPool", [1, 1, 4, 4], [], {"kernel_shape": [2, 2], "storage_order": 2}),
    "third operand": ("Gemm", [2, 3], [np.ones((3, 4), F), np.ones(5, F)], {}),
    "an empty axis cannot be repeated (axis": (
        "Pad",
        [2, 0],
        [np.array([0, 1, 0, 0])],
        {"mode": "edge"},
    ),
    "offsets": (
        "DeformConv",
        [1, 1, 4, 4],
        [np.ones((1, 1, 3, 3), F), np.ones((1, 4, 2, 2), F)],
        {},
    ),
    "channels of offsets": (
        "DeformConv",
        [1, 3, 4, 4],
        [np.ones((1, 3, 3, 3), F), np.ones((1, 36, 2, 2), F)],
        {"offset_group": 2},
    ),
    "factors of offsets": (
        "DeformConv",
        [1, 1, 4, 4],
        [
            np.ones((1, 1, 3, 3), F),
            np.ones((1, 18, 2, 2), F),
            np.ones(1, F),
            np.ones((1, 9, 1, 2), F),
        ],
        {},
    ),
    "class": ("NegativeLogLikelihoodLoss", [2, 3], [np.array([0, 3])], {}),
    "zero points of rows": ("MatMulInteger", [2, 3], [B(3, 4), B(7)], {}),
    "zero points of columns": ("MatMulInteger", [2, 3], [B(3, 4), B(1), B(3)], {}),
    "scales of rows": (
        "QLinearMatMul",
        [2, 3],
        [np.ones(5, F), B(5), B(3, 4), np.ones((), F), B(), np.ones((), F), B()],
        {},
    ),
    "zero points of filters": ("ConvInteger", [1, 1, 4, 4], [B(2, 1, 3, 3), B(), B(3)], {}),
    "zero points of data": ("ConvInteger", [1, 1, 4, 4], [B(2, 1, 3, 3), B(2)], {}),
    "blocks of scales": ("QuantizeLinear", [2, 4], [np.ones((2, 3), F)], {"block_size": 2}),
}


# operators of bytes; all others are fed floats
BYTES = ("MatMulInteger", "QLinearMatMul", "ConvInteger")
# onnxruntime computes something of these: the power 1 / 0, nothing at all, a part of the operand
TAKEN: dict[str, tuple[str, list[int], list[Any], dict[str, Any]]] = {
    "selected behind the end": ("Compress", [2, 3], [np.array([False, True, True])], {"axis": 0}),
    "class of a loss": ("SoftmaxCrossEntropyLoss", [2, 3], [np.array([-1, 2])], {}),
    "limit of boxes": (
        "NonMaxSuppression",
        [1, 6, 4],
        [np.ones((1, 1, 6), F), np.array([1, 1])],
        {},
    ),
    "norm 0": ("LpPool", [1, 1, 4, 4], [], {"kernel_shape": [2, 2], "p": 0}),
    "norm 0 of all": ("GlobalLpPool", [1, 1, 4, 4], [], {"p": 0}),
    "an empty region": (
        "RoiAlign",
        [1, 1, 4, 4],
        [np.zeros((2, 4), F), np.array([0, 0])],
        {"output_height": 0},
    ),
    "weights of classes": (
        "NegativeLogLikelihoodLoss",
        [2, 3],
        [np.array([0, 1]), np.ones(5, F)],
        {},
    ),
}


def written(
    folder: Path, op: str, shape: list[int], constants: list[Any], attributes: dict[str, Any]
) -> Path:
    tensors = [
        numpy_helper.from_array(c, f"c{i}") for i, c in enumerate(constants) if c is not None
    ]
    names = ["x", *("" if c is None else f"c{i}" for i, c in enumerate(constants))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(
                "x", TensorProto.UINT8 if op in BYTES else TensorProto.FLOAT, shape
            )
        ],
        [helper.make_empty_tensor_value_info("y")],
        tensors,
    )
    path = folder / "net.onnx"
    path.write_bytes(
        helper.make_model(
            graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]
        ).SerializeToString()
    )
    return path


def runs(path: Path, shape: list[int], dtype: Any = F) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(
            None, {"x": np.ones(shape, dtype)}
        )
        return True
    except Exception:  # a family of its own
        return False


@pytest.mark.parametrize("name", BROKEN)
def test_nodes_that_cannot_be_executed_are_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, *BROKEN[name])
    assert not runs(path, BROKEN[name][1], np.uint8 if BROKEN[name][0] in BYTES else F)
    with pytest.raises(ConverterError) as e:
        converter.load(path)
    assert e.value.exit_code == ExitCode.UNREADABLE or e.value.diagnostics[0].code.startswith("R")


@pytest.mark.parametrize("name", TAKEN)
def test_meaningless_nodes_are_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, *TAKEN[name])
    assert runs(path, TAKEN[name][1])
    with pytest.raises(ConverterError):
        converter.load(path)


@pytest.mark.parametrize("axes", [[0, 0], [0, -2], [2], [-3], [0] * 5000])
def test_axes_of_a_reduction_differ_and_exist(tmp_path: Path, axes: list[int]) -> None:
    with pytest.raises(ConverterError, match=r"different axes|axis must be|5000 axes"):
        converter.load(written(tmp_path, "ReduceMax", [2, 3], [np.array(axes)], {}))


@pytest.mark.parametrize("dims", [[-1, 3], [-(1 << 63), 3], [1 << 40, 1 << 40]])
def test_inputs_have_sizes_that_tensors_can_have(tmp_path: Path, dims: list[int]) -> None:
    path = written(tmp_path, "Relu", [2, 3], [], {})
    model = onnx.load(path)
    for d, value in zip(model.graph.input[0].type.tensor_type.shape.dim, dims, strict=True):
        d.dim_value = value
    path.write_bytes(model.SerializeToString())
    if dims[0] < 0:  # exporters write this for an unknown size
        shape = converter.load(path).inputs[0].shape
        assert shape is None or not isinstance(shape[0], int)
    else:
        with pytest.raises(ConverterError, match="elements"):
            converter.load(path)


def test_a_model_without_outputs(tmp_path: Path) -> None:
    path = written(tmp_path, "Relu", [2, 3], [], {})
    model = onnx.load(path)
    del model.graph.output[:]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ConverterError, match="no outputs"):
        converter.load(path)


@pytest.mark.parametrize("word", ["", "mean", "ADD"])
def test_a_reduction_that_no_operator_has(tmp_path: Path, word: str) -> None:
    """onnxruntime takes it for none."""
    with pytest.raises(ConverterError, match="must be one of none, add, mul, max, min"):
        converter.load(
            written(
                tmp_path,
                "ScatterElements",
                [2, 3],
                [np.array([[0]]), np.ones((1, 1), F)],
                {"reduction": word},
            )
        )


@pytest.mark.parametrize("bound", [1, 2])
def test_a_bound_is_a_number(tmp_path: Path, bound: int) -> None:
    """Engines differ for one that is not."""
    bounds: list[Any] = [np.array(0, F), np.array(1, F)]
    bounds[bound - 1] = np.array(np.nan, F)
    with pytest.raises(ConverterError, match="must be a number"):
        converter.load(written(tmp_path, "Clip", [2, 3], bounds, {}))


def test_the_words_are_those_of_the_operators() -> None:
    """Every default of onnx's schemas is one of them, and every attribute exists."""
    for op, attributes in WORDS.items():
        schema = onnx.defs.get_schema(op, 21)
        for name, known in attributes.items():
            default = (
                helper.get_attribute_value(schema.attributes[name].default_value)
                if schema.attributes[name].default_value.name
                else known[0]
            )
            assert (default.decode() if isinstance(default, bytes) else default) in known, (
                op,
                name,
            )


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("GatherND", {"batch_dims": -(1 << 63)}),
        ("GatherND", {"batch_dims": -1}),
        ("Gather", {"axis": 1 << 62}),
    ],
)
def test_numbers_that_engines_and_inference_do_not_survive(
    tmp_path: Path, op: str, attributes: dict[str, Any]
) -> None:
    with pytest.raises(ConverterError):
        converter.load(written(tmp_path, op, [2, 3], [np.zeros((2, 1), np.int64)], attributes))
