"""Every model that the onnx package carries, through every format and back: right, or refused by name."""

from __future__ import annotations

import onnx.defs
import pytest

from onnx_targets import freezable, names, outcome, unexpected

TARGETS = ["onnx", "onnx+opset=13", "onnx+opset=17", f"onnx+opset={onnx.defs.onnx_opset_version()}", "openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi"]
STEP = 60  # everyday, one case of so many, others for each target


def judge(chosen: list[str], target: str, freeze: bool) -> None:
    failures = [found for n in chosen if (found := unexpected(n, target, freeze))]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("target", TARGETS)
def test_sample(target: str) -> None:
    start = TARGETS.index(target) * 7
    judge(names()[start::STEP], target, freeze=False)
    judge([n for n in names()[start + 3 :: STEP] if freezable(n)], target, freeze=True)


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [False, True], ids=["fed", "frozen"])
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("target", TARGETS)
def test_all(target: str, part: int, freeze: bool) -> None:
    judge([n for n in names()[part::8] if not freeze or freezable(n)], target, freeze)


@pytest.mark.parametrize(
    "name, target, verdict",
    [
        *(("identity_sequence", t, "refused") for t in ("openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi")),
        *(("training_dropout", t, "refused") for t in ("openvino", "openvino+ir=7", "coreml", "zhouyi", "nnapi")),
        ("cast_FLOAT_to_FLOAT8E4M3FN", "coreml", "refused"),
        ("cast_FLOAT8E4M3FN_to_FLOAT", "coreml", "right"),
        ("bitcast_int8_to_uint8", "coreml", "right"),
        ("resize_downsample_scales_cubic", "zhouyi", "refused"),  # the scales are known only at run time
        ("resize_downsample_scales_linear", "nnapi", "refused"),
        ("optional_get_element_tensor", "coreml", "right"),
        ("cast_FLOAT8E4M3FNUZ_to_FLOAT", "openvino", "refused"),
        ("reduce_max_do_not_keepdims_random", "onnx+opset=13", "right"),
        ("center_crop_pad_crop_axes_chw", "onnx+opset=13", "right"),
        ("ai_onnx_ml_tree_ensemble_single_tree", "onnx", "right"),
        ("ai_onnx_ml_tree_ensemble_single_tree", "openvino", "refused"),
    ],
)
def test_one(name: str, target: str, verdict: str) -> None:
    found, detail = outcome(name, target)
    assert found == verdict, detail
