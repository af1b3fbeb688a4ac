"""Hostile files: for any change of a model file the answer is a right file or one clear
refusal.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fuzz
from hostile.judge import ACTIONS, conversion
from mutations import FORMS, SUFFIXES, contents, lay_out, seeds

SAMPLE, EACH = 10, 80
ALL = [a for a in ACTIONS if a != "outside"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return seeds(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("number", [SAMPLE, pytest.param(EACH, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", [f for f in FORMS if f != "nnapi+c"])
def test_damaged_files_are_refused_or_right(form: str, number: int, tmp_path: Path) -> None:
    """Half of them damaged in their bytes, half in one place of their structure; converted, or
    given to a command.
    """
    _, answers, faults = fuzz.damaged(form, 0, number, ALL, tmp_path)
    assert not faults, "\n".join(faults.values())
    assert sum(answers.values()) == number
    assert answers["refused"] + answers["exit 4"] > number // 4, (
        answers
    )  # most damage must be noticed


@pytest.fixture
def broken(models: dict[str, Path], tmp_path: Path) -> Broken:
    return Broken(models, tmp_path)


class Broken:
    """A copy of a model with one text in place of another."""

    def __init__(self, models: dict[str, Path], folder: Path) -> None:
        self.models, self.folder = models, folder

    def __call__(self, form: str, old: str, new: str) -> Path:
        lay_out(contents(self.models[form]), self.folder)
        path = self.folder / self.models[form].name
        text = path.read_bytes()
        assert old.encode() in text
        path.write_bytes(text.replace(old.encode(), new.encode("latin-1"), 1))
        return path


def test_names_that_are_not_utf8_are_refused(broken: Broken) -> None:
    assert conversion(broken("onnx", "sigmoid", "sigm\xfcid"), "coreml") == "refused"


@pytest.mark.parametrize("number", ["-1", "99999", "9223372036854775807"])
def test_operands_that_do_not_exist_are_refused(broken: Broken, number: str) -> None:
    path = broken("nnapi", "outputIndexes", "outputIndexes")
    table = json.loads(path.read_text())
    table["outputIndexes"] = [int(number)]
    path.write_text(json.dumps(table))
    assert conversion(path, "onnx") == "refused"


@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        ("openvino+ir=7", 'pads_begin="1,1"', 'pads_begin="1,9223372036854775808"'),
        ("openvino+ir=7", 'kernel="2,2"', 'kernel="4294967296,2"'),
        ("openvino", 'kernel="2, 2"', 'kernel="4294967296,2"'),
        ("openvino", 'kernel="2, 2"', 'kernel="7,2"'),
        ("openvino", 'strides="2, 2"', 'strides="0,2"'),
        ("openvino", 'dilations="1, 1"', 'dilations="0, 1"'),
        ("openvino", 'index_element_type="i64"', 'index_element_type="f32"'),
        ("openvino", 'axis="0"', 'axis="4294967296"'),
        ("openvino", 'version="opset8"', 'version="opset0"'),
        ("openvino", 'precision="FP32"', 'precision="FP33"'),
        ("zhouyi", "kernel_x=3", "kernel_x=4294967296"),
        ("zhouyi", "stride_x=1", "stride_x=0"),
        ("zhouyi", "group=1", "group=-1"),
    ],
)
def test_windows_that_cannot_be_are_refused(broken: Broken, form: str, old: str, new: str) -> None:
    assert conversion(broken(form, old, new), "nnapi" if form != "nnapi" else "onnx") == "refused"


def test_a_long_text_does_not_make_a_long_message(broken: Broken) -> None:
    assert (
        conversion(broken("openvino", 'auto_pad="explicit"', f'auto_pad="{"x" * 100_000}"'), "onnx")
        == "refused"
    )


def test_forms_are_one_for_each_codec() -> None:
    assert set(SUFFIXES) <= set(FORMS)
