"""Engines and validators from outside as witnesses of written files: the kit of judges next to the
checkout.

The kit is no part of the project. Tests that ask it carry the mark `judges` and are skipped, with
the reason, where it is absent or where the one judge cannot be had (no network for its wheel,
another kind of machine).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ConverterError
from support import ROOT

NO_JUDGES = (
    "the outside judges are not here: set NETCONV_JUDGES, or put them in "
    "../shared/judges beside the checkout"
)

LIMIT = 600.0  # seconds after which a conversion or an engine hangs
LEGACY_ENGINE, NEWER_LEGACY_ENGINE = "4.2.0.4", "4.4.0.0"
LEGACY = ("openvino+ir=7", "openvino+ir=5")

Arrays = Mapping[str, np.ndarray]


def judges_folder() -> Path | None:
    """The kit named by NETCONV_JUDGES, or the one next to the checkout; None when there is none."""
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
    """The outputs of one file in one judge; fails the test with the engine's own words where it
    does not run.
    """
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
    assert [
        f"{m.name}: {word} {message}"
        for m, (word, _, message) in zip(models, said, strict=True)
        if word != "GOOD"
    ] == []


def _fed_in_order(case: Path, models: Iterable[str], keep: Path) -> Path:
    """The case with its inputs in the order of the model's: a blob has no names for them."""
    try:
        model = converter.load(next(case / name for name in models if (case / name).exists()))
    except ConverterError:  # it is not converted either
        return case
    with np.load(case / "inputs.npz") as arrays:
        order = [i.name for i in model.inputs]
        if list(arrays) == order or set(arrays) != set(order):
            return case
        ordered = keep / "in-order" / case.name
        shutil.copytree(case, ordered)
        np.savez(ordered / "inputs.npz", **{name: arrays[name] for name in order})
    return ordered


class Judged:
    """Cases through one target: converted by a process of their own, the written files in the
    engine of their format.

    A case is a folder as the corpus has them: one model, inputs.npz, outputs.npz, and case.json
    with tolerances.
    """

    def __init__(self, target: str) -> None:
        load_judge("onnxruntime")  # says where there is no kit
        import judge_suite
        import judging

        self.target, self._suite = target, judge_suite
        try:
            self._close = judge_suite.score().close
            self._judge = judge_suite.Judge(target, LIMIT, LEGACY_ENGINE, "both")
            # the kit writes a table and a blob and compares the two, but tables have another
            # boundary than blobs by default
            self._judge.beside = ""
            self._newer = (
                judge_suite.Judge(target, LIMIT, NEWER_LEGACY_ENGINE, "both")
                if target in LEGACY
                else None
            )
        except (judging.Unavailable, OSError) as e:
            pytest.skip(f"no judge of {target} is to be had here: {e}")
        command = [sys.executable, judge_suite.__file__, "--convert-worker"]
        self._convert = judging.Worker(
            command,
            LIMIT,
            {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        self._engines: dict[int, Any] = {}

    def verdict(self, case: Path, keep: Path) -> tuple[str, str]:
        """`right`, `refused` (by netconv), `unjudged`, or a fault: `wrong`, `cannot`,
        `invalid`, `crash`; with details.

        Files that are not right are left in `keep`. The oldest legacy engine does not load single
        layers that end in a FakeQuantize, which is a fault of that engine: the next release judges
        them.
        """
        if self.target == "nnapi+blob":
            case = _fed_in_order(case, self._suite.MODELS, keep)
        found = self._ask(self._judge, case, keep)
        if (
            found[0] == "cannot"
            and self._newer is not None
            and any(b'type="FakeQuantize"' in p.read_bytes() for p in keep.rglob("model.xml"))
        ):
            found = self._ask(self._newer, case, keep)
        return found

    def _ask(self, judge: Any, case: Path, keep: Path) -> tuple[str, str]:
        if id(judge) not in self._engines:
            self._engines[id(judge)] = judge.make()
        arguments = argparse.Namespace(format=self.target, keep=keep)
        verdict, detail = self._suite.one(
            case, arguments, judge, (self._convert, self._engines[id(judge)]), self._close
        )
        return str(verdict), str(detail)

    def close(self) -> None:
        for worker in (self._convert, *self._engines.values()):
            worker.close()
