"""Every decomposition against the operator tests of the onnx package: the operator is taken away,
the results stay.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
from converter import engines
from converter.api import Model
from converter.errors import ConverterError
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.graph.build import new_model
from converter.graph.invariants import violations
from converter.graph.walk import all_nodes
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.legalize import rewrite_illegal
from onnx_node_cases import (
    as_arrays,
    constant_of,
    differences,
    expected_difference,
    node_case,
    node_cases,
    quick_node_cases,
)

KINDS = {kind for domain, kind in DECOMPOSITIONS if domain == ""}
Case = tuple[onnx.ModelProto, list[Any], list[Any]]


def own_case(kind: str, inputs: list[np.ndarray], outputs: int = 1, **attributes: Any) -> Case:
    """A model of one operator, the first input fed and the others constant; its result is
    computed by itself.
    """
    names = [f"i{i}" for i in range(len(inputs))]
    feeds = [
        helper.make_tensor_value_info(
            "i0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape
        )
    ]
    results = [
        helper.make_tensor_value_info(f"o{i}", TensorProto.UNDEFINED, None) for i in range(outputs)
    ]
    node = helper.make_node(kind, names, [f"o{i}" for i in range(outputs)], **attributes)
    constants = [numpy_helper.from_array(x, n) for x, n in zip(inputs[1:], names[1:], strict=True)]
    proto = helper.make_model(
        helper.make_graph([node], "g", feeds, results, constants),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    expected = engines.run(lift(proto, TensorFiles(Path("model"))), {"i0": inputs[0]})
    return proto, inputs[:1], list(expected.values())


def sliced_case() -> Case:
    """Two rows of four, from a row that is data; -3 is the second."""
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    feeds = [helper.make_tensor_value_info("start", TensorProto.INT64, [1])]
    nodes = [
        helper.make_node("Add", ["start", "two"], ["end"]),
        helper.make_node("Slice", ["data", "start", "end", "axis"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(v, n)
        for n, v in (("data", data), ("two", np.array([2])), ("axis", np.array([0])))
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        feeds,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        constants,
    )
    return (
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        [np.array([-3])],
        [data[1:3]],
    )


def listed(body: str) -> Case:
    """A graph around a sequence of parts of x [6,4]; its result is computed by itself."""
    header = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[6,4] x) => (float[] y) '
        "<int64 last = {-1}, int64 first = {0}, int64[3] sizes = {1, 2, 3}> "
    )
    proto = onnx.parser.parse_model(
        header.replace("float[] y", "float y" if "Length" not in body else "int64 y")
        + "{"
        + body
        + "}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
    return proto, [x], list(engines.run(lift(proto, TensorFiles(Path("model"))), {"x": x}).values())


X = np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)
BYTES = np.random.default_rng(4).integers(0, 256, (1, 4, 2000), np.uint8)
SIGNED = np.random.default_rng(5).integers(-127, 128, 6000, np.int8)
ONES = np.ones(4, np.float32)
H = np.float16
# the second one is small, the third beyond the image, the last one reversed
BOXES = np.array([[0, 0, 11, 7], [3.2, 4.1, 4, 4.5], [-9, 2, 30, 40], [8, 8, 2, 3]], np.float32)
IMAGES = np.array([0, 1, 1, 0])
OWN = {
    **{
        f"RoiAlign {mode} {ratio} {transformation}": functools.partial(
            *(own_case, "RoiAlign", [X, BOXES[: 3 if ratio else 2], IMAGES[: 3 if ratio else 2]]),
            mode=mode,
            output_height=3,
            output_width=2,
            sampling_ratio=ratio,
            spatial_scale=0.5,
            coordinate_transformation_mode=transformation,
        )
        for mode in ("avg", "max")
        for ratio in (2, 3, 0)
        for transformation in ("half_pixel", "output_half_pixel")
        if ratio or mode == "avg"
    },
    "RoiAlign one image": lambda: own_case(
        "RoiAlign", [X[:1], BOXES, IMAGES * 0], sampling_ratio=1
    ),
    "RoiAlign half": lambda: own_case(
        "RoiAlign", [X.astype(H), BOXES.astype(H), IMAGES], sampling_ratio=2
    ),
    "MaxRoiPool": lambda: own_case(
        "MaxRoiPool",
        [X, np.concatenate([IMAGES[:, None].astype(np.float32), BOXES], axis=1)],
        pooled_shape=[3, 4],
        spatial_scale=0.5,
    ),
    "GlobalLpPool": lambda: own_case("GlobalLpPool", [X], p=3),
    "GlobalLpPool 2": lambda: own_case("GlobalLpPool", [X]),
    "BatchNormalization": lambda: own_case(
        "BatchNormalization", [X, ONES * 2, ONES, ONES / 2, ONES * 3]
    ),
    "Concat": lambda: own_case("Concat", [X], axis=1),
    "Identity": lambda: own_case("Relu", [X]),
    "GatherElements": lambda: own_case(
        "GatherElements", [X[:1, :1, :1], np.array([[[[1, 0, -1]]]])], axis=3
    ),
    "GatherElements 2": lambda: own_case(
        "GatherElements", [X, np.random.default_rng(2).integers(-6, 6, (2, 3, 7, 6))], axis=2
    ),
    "GatherND": lambda: own_case(
        "GatherND", [X, np.random.default_rng(3).integers(-4, 4, (2, 4, 5, 1))], batch_dims=2
    ),
    "GatherND 2": lambda: own_case("GatherND", [X, np.array([1, -1, 3, -6])]),
    "CumSum": lambda: own_case(
        "CumSum", [np.arange(2**40, 2**40 + 14).reshape(2, 7), np.array(1)], exclusive=1
    ),
    "CumSum 2": lambda: own_case(
        "CumSum", [np.arange(-7, 7).reshape(2, 7), np.array(-1)], reverse=1
    ),
    "CumSum 3": lambda: own_case("CumSum", [np.arange(4).reshape(4, 1), np.array(1)], exclusive=1),
    "MatMulInteger": lambda: own_case(
        "MatMulInteger",
        [BYTES, SIGNED.reshape(2000, 3), np.array(131, np.uint8), np.array([1, -7, 0], np.int8)],
    ),
    "MaxPool bytes": lambda: own_case(
        "MaxPool",
        [np.resize(BYTES, (1, 4, 6, 6))],
        kernel_shape=[3, 2],
        pads=[1, 0, 1, 1],
        outputs=2,
    ),
    "ConvInteger": lambda: own_case(
        "ConvInteger",
        [
            np.resize(BYTES, (1, 600, 3, 5)),
            SIGNED[:4800].reshape(2, 600, 2, 2),
            np.array(9, np.uint8),
        ],
        pads=[0, 1, 1, 0],
    ),
    "Resize": lambda: own_case(
        "Resize", [X, np.zeros(0, np.float32), np.array([1, 1, 3, 2], np.float32)], mode="nearest"
    ),
    "Round": lambda: own_case(
        "Round",
        [
            np.array(
                [
                    np.inf,
                    -np.inf,
                    8388609,
                    -8388609,
                    0.49999997,
                    -0.49999997,
                    2.5,
                    3.5,
                    -2.5,
                    -0.5,
                    7.7,
                ],
                np.float32,
            )
        ],
    ),
    "MatMul 3": lambda: own_case("MatMul", [X, X.transpose(0, 1, 3, 2)[:1]]),
    "MatMul 2": lambda: own_case("MatMul", [X, X[0, 0]]),
    "Slice": sliced_case,
    "CumSum float": lambda: own_case("CumSum", [X[0, 0], np.array(1)]),
    "Einsum": lambda: own_case("Einsum", [X[:1], X[:, 0]], equation="...ij,kjj->...ik"),
    "DFT": lambda: own_case("DFT", [X[..., :1], np.array(8), np.array(2)], onesided=1),
    "SequenceAt": lambda: listed("s = SplitToSequence (x, sizes) y = SequenceAt (s, last)"),
    "SequenceAt 2": lambda: listed(
        "s = SplitToSequence <axis = 1, keepdims = 0> (x) y = SequenceAt (s, first)"
    ),
    "SequenceAt 3": lambda: listed(
        "e = SequenceEmpty () s = SequenceInsert (e, x) r = Neg (x) t = SequenceInsert (s, "
        "r, first) y = SequenceAt (t, first)"
    ),
    "SequenceAt 4": lambda: listed(
        "r = Neg (x) s = SequenceConstruct (x, r) t = SequenceErase (s, first) y = "
        "SequenceAt (t, last)"
    ),
    "SequenceLength": lambda: listed("s = SplitToSequence <axis = 1> (x) y = SequenceLength (s)"),
    "ConcatFromSequence": lambda: listed(
        "r = Neg (x) s = SequenceConstruct (x, r) y = ConcatFromSequence <axis = 1> (s)"
    ),
    "ConcatFromSequence 2": lambda: listed(
        "r = Neg (x) s = SequenceConstruct (x, r) y = ConcatFromSequence <axis = -1, "
        "new_axis = 1> (s)"
    ),
    "AveragePool": lambda: own_case(
        "AveragePool", [X], kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 0, 1], ceil_mode=1
    ),
    "AveragePool 2": lambda: own_case(
        "AveragePool",
        [X],
        kernel_shape=[2, 2],
        dilations=[2, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    "MaxPool": lambda: own_case(
        "MaxPool",
        [X],
        kernel_shape=[3, 2],
        strides=[2, 3],
        dilations=[1, 2],
        pads=[1, 0, 0, 1],
        ceil_mode=1,
    ),
    "GridSample": lambda: own_case(
        "GridSample",
        [X[:1], X[:1, :, :, :2] * 2],
        mode="cubic",
        padding_mode="reflection",
        align_corners=1,
    ),
    "GridSample 2": lambda: own_case(
        "GridSample", [X[:1], X[:1, :, :, :2] * 2], mode="nearest", padding_mode="border"
    ),
    "GridSample 3": lambda: own_case(
        "GridSample", [X[:1], X[:1, :, :, :2] * 2], mode="cubic", padding_mode="border"
    ),
    "GridSample half": lambda: own_case(
        "GridSample",
        [np.resize(X, (1, 1, 1, 2016)).astype(H), X[:1, :, :, :2].astype(H)],
        mode="nearest",
    ),
    "DeformConv half": lambda: own_case(
        "DeformConv",
        [
            v.astype(H)
            for v in (X, X[:, :, :2, :2], X[:1, :2].repeat(4, 1).repeat(2, 0)[..., :5, :5])
        ],
    ),
    "DeformConv double": lambda: own_case(
        "DeformConv",
        [
            v.astype(float)
            for v in (X, X[:, :, :2, :2], X[:1, :2].repeat(4, 1).repeat(2, 0)[..., :5, :5])
        ],
    ),
    "GridSample 4": lambda: own_case(
        "GridSample",
        [X[:1], X[:1, :, :, :2] * 2],
        mode="linear",
        padding_mode="border",
        align_corners=1,
    ),
    "DeformConv": lambda: own_case(
        "DeformConv",
        [
            X,
            X[:2, :2, :2, :3],
            X.repeat(6, 1)[:, :24, :3, :2] * 2,
            ONES[:2],
            X.repeat(3, 1)[:, :12, :3, :2],
        ],
        group=2,
        offset_group=2,
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        kernel_shape=[2, 3],
        dilations=[1, 1],
    ),
    "BitwiseXor": lambda: own_case(
        "BitwiseXor", [np.array([2**62 + 5, -1, -(2**63)]), np.array([3, 2**40, -7])]
    ),
    "Tile": lambda: own_case("Tile", [X, np.array([1, 2, 1, 3])]),
    "Expand": lambda: own_case("Expand", [X[:, :1], np.array([2, 4, 6, 6])]),
    "Sub": lambda: own_case("Sub", [X, X[0]]),
    "Pow 2": lambda: own_case("Pow", [X, np.array(3, np.float32)]),
    "Mod": lambda: own_case("Mod", [X.astype(np.float32) * 3, np.array(0.7, np.float32)], fmod=0),
}


def frozen(case: Any) -> Case:
    """The case with all inputs but the first as constants."""
    proto, (inputs, outputs) = onnx.ModelProto(), case.data_sets[0]
    proto.CopyFrom(case.model)
    arrays = [as_arrays(x) for x in inputs]
    for info, array in list(zip(proto.graph.input, arrays, strict=True))[1:]:
        proto.graph.initializer.append(constant_of(info, array))
    del proto.graph.input[1:]
    return proto, arrays[:1], [as_arrays(y) for y in outputs]


def cases(names: list[str]) -> list[tuple[str, str, Case]]:
    """(name, operator, case), our own and each operator test as it is and frozen."""
    found: list[tuple[str, str, Case]] = [(n, n.split()[0], make()) for n, make in OWN.items()]
    for name in names:
        case = node_case(name)
        kinds = {n.op_type for n in case.model.graph.node} & KINDS
        if len(case.model.graph.node) == 1 and kinds and not expected_difference(name):
            inputs, outputs = case.data_sets[0]
            found.append(
                (
                    name,
                    kinds.pop(),
                    (case.model, [as_arrays(x) for x in inputs], [as_arrays(y) for y in outputs]),
                )
            )
            if len(inputs) > 1 and all(
                isinstance(as_arrays(x), np.ndarray | np.generic) for x in inputs
            ):
                found.append((f"{name} frozen", found[-1][1], frozen(case)))
    return found


def plain_product(node: ir.Node) -> bool:
    """A product of matrices, or of batches of them that need no broadcasting."""
    a, b = (v.shape for v in node.inputs if v is not None)
    return a is not None and b is not None and len(a) == len(b) > 1 and list(a)[:-2] == list(b)[:-2]


def problems(kind: str, case: Case) -> list[str] | None:
    """The differences without the operator; None when no decomposition applies."""
    proto, inputs, outputs = case
    model = lift(proto, TensorFiles(Path("model"))).ir

    def refused(node: ir.Node) -> bool:
        return node.op_type == kind and not (kind == "MatMul" and plain_product(node))

    if not any(refused(n) for n in all_nodes(model.graph)):
        return None
    rewrite_illegal(model, refused, {})
    if any(refused(n) for n in all_nodes(model.graph)):
        return None
    feeds = {i.name: x for i, x in zip(proto.graph.input, inputs, strict=True)}
    results = Model(model, "onnx").run(feeds)
    wrong = [
        d
        for y, (name, found) in zip(outputs, results.items(), strict=True)
        for d in differences(name, y, found, 1e-3, 1e-5)
    ]
    return violations(model) + wrong


def test_sample_of_decompositions() -> None:
    decompose(list(quick_node_cases())[::8])


@pytest.mark.slow
def test_decompositions_compute_the_operator() -> None:
    applied = decompose(list(node_cases()))
    elsewhere = {
        *("Identity", "Dropout"),  # vanish when read
        *("ReduceMax", "ReduceProd"),  # are written otherwise over no axis alone
        # have theirs for forms that no node test has: the last of equal numbers, a computed bias,
        # sizes taken over by a computed shape
        *("ArgMax", "Conv", "ConvTranspose", "Reshape"),
        # are another draw each time
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    }
    assert sorted(KINDS - {k for k, n in applied.items() if n} - elsewhere) == []


def decompose(names: list[str]) -> Counter[str]:
    """Count the removed operators; the results stay."""
    applied: Counter[str] = Counter()
    failures = []
    for name, kind, case in cases(names):
        try:
            found = problems(kind, case)
        except ConverterError as e:
            found = None if expected_refusal_of(e) else [str(e)]
        applied[kind] += found is not None
        failures += [f"{name} ({kind}): {p}" for p in found or ()]
    assert failures == []
    return applied


def expected_refusal_of(error: ConverterError) -> bool:
    return any(d.code in ("X201",) for d in error.diagnostics)


@pytest.mark.parametrize("name", OWN)
def test_no_decomposition_leads_back(name: str) -> None:
    """With every decomposable operator refused, rewriting ends, and soon."""
    proto, _, _ = OWN[name]()
    model = lift(proto, TensorFiles(Path("model"))).ir
    rewrite_illegal(
        model, lambda n: n.op_type in KINDS and not (n.op_type == "MatMul" and plain_product(n)), {}
    )
    assert len(list(all_nodes(model.graph))) < 1000


@pytest.mark.parametrize("target", ["coreml", "nnapi", "openvino+ir=7"])
@pytest.mark.parametrize(("mask", "fits"), [(0xFFFF, True), (2**62 + 5, False), (-(2**40), False)])
def test_bits_of_constants_that_a_target_has_no_room_for(
    target: str, mask: int, fits: bool, tmp_path: Path
) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.INT64, [3])
    b.output(b.op("BitwiseAnd", x, np.array([mask, 1, mask])))
    path = tmp_path / {"coreml": "m.mlmodel", "nnapi": "m.nnapi.json"}.get(target, "m.xml")
    if not fits:
        with pytest.raises(ConverterError):
            converter.save(Model(model, "test"), path, target)
        return
    converter.save(Model(model, "test"), path, target)
    back = converter.load(path)
    numbers = np.array([70000, 3, -2])
    found = back.run({i.name: numbers.astype(i.dtype) for i in back.inputs})
    np.testing.assert_array_equal(next(iter(found.values())), numbers & np.array([mask, 1, mask]))


@pytest.mark.parametrize("slope", [np.nan, np.inf])
def test_a_slope_that_is_not_finite_is_not_multiplied_by_zero(slope: float) -> None:
    """Numbers above zero do not meet their slope."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 2])
    b.output(b.PRelu(x, np.array([slope, 0.5], np.float32)))
    rewrite_illegal(model, lambda node: node.op_type == "PRelu", {})
    assert "PRelu" not in {n.op_type for n in model.graph}
    (found,) = Model(model, "test").run({"x": np.array([[1, -2]], np.float32)}).values()
    assert found.tolist() == [[1, -1]]
