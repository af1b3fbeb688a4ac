"""Hostile files: whatever is done to a model file, the answer is a right file or one clear refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mutations import SUFFIXES, files_of, mutants, outcome, seeds

EACH = 250


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return seeds(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("target", SUFFIXES)
def test_damaged_files_are_refused_or_right(models: dict[str, Path], target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    others = [t for t in SUFFIXES if t != target]
    answers = {"right": 0, "refused": 0}
    for i, path in enumerate(mutants(models[target], tmp_path, EACH, seed=request.config.getoption("--mutation-seed", 0))):
        try:
            answers[outcome(path, others[i % len(others)])] += 1
        except BaseException:
            kept = Path(tmp_path.parent) / f"kept-{i}"
            shutil.copytree(tmp_path, kept)
            print(f"mutant {i} of {target} -> {others[i % len(others)]}: kept in {kept}")
            raise
    assert answers["refused"] > EACH // 3, answers  # most damage must be noticed


def test_names_that_are_not_utf8_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    data = models["onnx"].read_bytes()
    assert b"sigmoid" in data
    broken = tmp_path / "names.onnx"
    broken.write_bytes(data.replace(b"sigmoid", b"sigm\xfcid"))
    assert outcome(broken, "coreml") == "refused"


@pytest.mark.parametrize("number", ["-1", "99999", "9223372036854775807"])
def test_operands_that_do_not_exist_are_refused(models: dict[str, Path], tmp_path: Path, number: str) -> None:
    for path in files_of(models["nnapi"]):
        shutil.copy(path, tmp_path)
    broken = tmp_path / models["nnapi"].name
    table = json.loads(broken.read_text())
    assert table["outputIndexes"]
    table["outputIndexes"] = [int(number)]
    broken.write_text(json.dumps(table))
    assert outcome(broken, "onnx") == "refused"


def test_attributes_beyond_64_bits_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    for path in files_of(models["openvino+ir=7"]):
        shutil.copy(path, tmp_path)
    broken = tmp_path / models["openvino+ir=7"].name
    text = broken.read_text()
    assert 'pads_begin="1,1"' in text
    broken.write_text(text.replace('pads_begin="1,1"', 'pads_begin="1,9223372036854775808"'))
    assert outcome(broken, "nnapi") == "refused"
