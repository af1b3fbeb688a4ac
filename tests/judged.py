"""Engines and validators from outside as witnesses of written files: the kit of judges beside the checkout.

The kit is no part of the project. Tests that ask it carry the mark `judges` and are skipped, with the reason, where it is absent
or where the one judge cannot be had (no network for its wheel, another kind of machine).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import ROOT

NO_JUDGES = "the outside judges are not here: set NETCONV_JUDGES, or put them in ../shared/judges beside the checkout"

Arrays = Mapping[str, np.ndarray]


def judges_folder() -> Path | None:
    """The kit named by NETCONV_JUDGES, or the one beside the checkout; None when there is none."""
    named = os.environ.get("NETCONV_JUDGES")
    folder = Path(named) if named else ROOT.parent / "shared" / "judges"
    if named and not (folder / "judging.py").is_file():
        raise pytest.UsageError(f"NETCONV_JUDGES={named} is not a kit of judges")
    return folder if (folder / "judging.py").is_file() else None


def load_judge(name: str, file: str = "run") -> Any:
    """The module of one judge, such as "legacy-engine"; skips the test where the kit is absent."""
    folder = judges_folder()
    if folder is None:
        pytest.skip(NO_JUDGES)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    import judging

    return judging.load_judge(name, file)


def run_in(name: str, model: Path, feeds: Arrays, **options: Any) -> dict[str, np.ndarray]:
    """The outputs of one file in one judge; fails the test with the engine's own words where it does not run."""
    judge = load_judge(name)
    import judging

    try:
        ((status, answer),) = judge.run_many([(model, dict(feeds))], **options)
    except judging.Unavailable as e:
        pytest.skip(f"{name} is not to be had here: {e}")
    assert status == "ran", f"{name}: {status}: {answer}"
    return dict(answer)


def assert_valid_core_ml(*models: Path) -> None:
    """Apple's validator takes each file at the specification version that it states."""
    said = load_judge("coreml-validate").validate(list(models))
    assert [f"{m.name}: {word} {message}" for m, (word, _, message) in zip(models, said, strict=True) if word != "GOOD"] == []
