"""Every model that the onnx package carries, through every format and back: right, or refused by name."""

from __future__ import annotations

import onnx.defs
import pytest

from onnx_targets import freezable, names, unexpected

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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("freeze", [False, True], ids=["fed", "frozen"])
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("target", TARGETS)
def test_all(target: str, part: int, freeze: bool) -> None:
    judge([n for n in names()[part::8] if not freeze or freezable(n)], target, freeze)
