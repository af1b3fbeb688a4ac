"""Hostile files: whatever is done to a model file, the answer is a right file or one clear refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mutations import SUFFIXES, mutants, outcome, seeds

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
