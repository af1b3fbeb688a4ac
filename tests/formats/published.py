"""Networks that packages ship: their files, and the engines that judge them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

Arrays = dict[str, Any]


def published(packages: Sequence[str], suffix: str) -> list[Any]:
    """The files of all packages that are installed, or one parameter that is skipped."""
    found = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            found += [
                pytest.param(path, id=f"{name}-{path.stem}")
                for path in sorted(Path(folder).rglob(f"*{suffix}"))
            ]
    if found:
        return found
    reason = f"none of the packages is installed: {', '.join(packages)}"
    return [pytest.param(Path(), marks=pytest.mark.skip(reason=reason))]


def in_onnxruntime(path: Path, feeds: Arrays) -> Arrays:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def in_openvino(path: Path, feeds: Arrays) -> Arrays:
    openvino: Any = pytest.importorskip("openvino")
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    given = {i: next(feeds[n] for n in i.get_names() if n in feeds) for i in model.inputs}
    found = model(given)
    return {name: found[o] for o in model.outputs for name in o.get_names()}


def same(found: Arrays, wanted: Arrays) -> None:
    """Floats within a thousandth of the largest one, stored integers within a step."""
    for name, want in wanted.items():
        got = found[name].astype(np.float64)
        most = 1 if want.dtype.kind in "iu" else 1e-3 * max(1e-3, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want.astype(np.float64), rtol=0, atol=most, err_msg=name)
