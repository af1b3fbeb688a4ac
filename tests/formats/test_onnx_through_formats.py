"""Every model that the onnx package carries, through every format and back: right, or refused by
name.

The product of cases, targets and inputs that are fed or constants takes the greater part of an
hour (`tests/onnx_targets.py` makes it); here a case that is not the first of its operator takes
turns, see `turns`.
"""

from __future__ import annotations

import onnx.defs
import pytest

from converter.mapping.rules import Custom
from onnx_node_cases import quick_node_cases
from onnx_targets import (
    first_of_operators,
    freezable,
    model_cases,
    names,
    outcome,
    quick_names,
    unexpected,
)
from test_mapping_laws import ADAPTERS

OPSETS = ["onnx+opset=13", "onnx+opset=17", f"onnx+opset={onnx.defs.onnx_opset_version()}"]
FORMATS = ["onnx", "openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi"]
TARGETS = [*FORMATS, *OPSETS]
PARTS = 64
STEP = 270  # everyday, one case of so many, others for each target


def judge(chosen: list[str], targets: list[str], freeze: bool) -> None:
    failures = [found for n in chosen for t in targets if (found := unexpected(n, t, freeze))]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("target", TARGETS)
def test_sample(target: str) -> None:
    start = TARGETS.index(target) * 19
    judge(quick_names()[start::STEP], [target], freeze=False)
    judge([n for n in quick_names()[start + 3 :: STEP] if freezable(n)], [target], freeze=True)


# the targets of the tables of the laws; Core AI's files are read by another process, for seconds
TABLES = {
    "coreml": "coreml",
    "mlprogram": "mlprogram",
    "nnapi": "nnapi",
    "openvino.legacy": "openvino+ir=7",
    "openvino.opset": "openvino",
    "tflite": "tflite",
    "zhouyi": "zhouyi",
}
# operators that custom converters write: rows have samples in the laws
CUSTOM = [
    pytest.param(target, op, id=f"{table}-{op}")
    for table, target in TABLES.items()
    for op in sorted(
        {
            op
            for e in ADAPTERS[table].table.entries
            if isinstance(e, Custom) and e.lower_
            for domain, op in e.ops
            if not domain and not op.startswith("Random")
        }
    )
]
FEW = 3  # cases of an operator


@pytest.mark.parametrize(("target", "op"), CUSTOM)
def test_an_operator_that_a_custom_converter_writes(target: str, op: str) -> None:
    chosen = [n for n, case in quick_node_cases().items() if case.model.graph.node[0].op_type == op]
    chosen = [n for n in chosen if "_expanded" not in n]
    chosen = chosen[:: -(-len(chosen) // FEW)]
    assert chosen
    judge(chosen, [target], freeze=False)
    judge([n for n in chosen if freezable(n)], [target], freeze=True)


def turns(number: int, name: str) -> list[tuple[str, bool]]:
    """The targets of a case, and whether all its inputs but the first are constants there.

    Whole networks and the first case of each operator: every format and one of the opsets, and,
    where that can be, all opsets frozen. Another case: every third of the formats and one of the
    opsets, fed and frozen by turns; one whose operator is written out in others, which have cases
    of their own: every sixth.
    """
    chosen = [*FORMATS, OPSETS[number % len(OPSETS)]]
    if name in model_cases() or name in first_of_operators():
        frozen = TARGETS if freezable(name) else []
        return [*((t, False) for t in chosen), *((t, True) for t in frozen)]
    step = 6 if "_expanded" in name else 3
    chosen = chosen[number // len(OPSETS) % step :: step]
    return [(t, freezable(name) and (number + i) % 2 == 1) for i, t in enumerate(chosen)]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int) -> None:
    failures = []
    for number, name in list(enumerate(names()))[part::PARTS]:
        for target, freeze in sorted(turns(number, name), key=lambda t: t[1]):
            failures.append(unexpected(name, target, freeze))
    assert not any(failures), "\n".join(filter(None, failures))


@pytest.mark.parametrize(
    "name, target, verdict",
    [
        *(
            ("identity_sequence", t, "refused")
            for t in ("openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi")
        ),
        *(
            ("training_dropout", t, "refused")
            for t in ("openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi")
        ),
        ("cast_FLOAT_to_FLOAT8E4M3FN", "coreml", "right"),
        ("cast_FLOAT8E4M3FN_to_FLOAT", "coreml", "right"),
        ("bitcast_int8_to_uint8", "coreml", "right"),
        (
            "resize_downsample_scales_cubic",
            "zhouyi",
            "refused",
        ),  # the scales are known only at run time
        ("resize_downsample_scales_linear", "nnapi", "refused"),
        ("optional_get_element_tensor", "coreml", "right"),
        ("cast_FLOAT8E4M3FNUZ_to_FLOAT", "openvino", "right"),
        ("reduce_max_do_not_keepdims_random", "onnx+opset=13", "right"),
        ("center_crop_pad_crop_axes_chw", "onnx+opset=13", "right"),
        ("ai_onnx_ml_tree_ensemble_single_tree", "onnx", "right"),
        ("ai_onnx_ml_tree_ensemble_single_tree", "openvino", "right"),
    ],
)
def test_one(name: str, target: str, verdict: str) -> None:
    found, detail = outcome(name, target)
    assert found == verdict, detail
