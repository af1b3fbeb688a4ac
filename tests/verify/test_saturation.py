"""Files that onnxruntime computes otherwise with default options, on processors whose 8-bit
products saturate.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import converter
from converter.commands.verify import native
from converter.engines import file
from converter.engines.processor import without_vnni

FLAGS = "processor : 0\nflags\t\t: fpu sse2 avx avx2 {}\nbugs : none\n"


def quantized(folder: Path) -> Path:
    text = """<ir_version: 9, opset_import: ["" : 17]>
    main (float[1,4] x) => (float[1,3] y) <
        float scale = {0.1}, int8 zero = {0},
        int8[4,3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9, -10, 11, 12}> {
      q = QuantizeLinear(x, scale, zero)
      d = DequantizeLinear(q, scale, zero)
      v = DequantizeLinear(w, scale, zero)
      y = MatMul(d, v) }"""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(("error", "code"), [(0.0, ""), (50.0, "N414")])
def test_default_options_are_run_where_products_saturate(
    error: float, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, options = file.run, list[Any]()

    def saturated(engine: str, path: Path, *given: Any) -> file.Run:
        found = run(engine, path, *given)
        options.append(given[2])
        if given[2] is not None:
            return found
        return replace(
            found, results=tuple({k: v + error for k, v in r.items()} for r in found.results)
        )

    monkeypatch.setattr(native, "saturates", lambda: True)
    monkeypatch.setattr(file, "run", saturated)
    path = quantized(tmp_path)
    result = converter.verify(path, path, native="on")
    assert [o is None for o in options] == [False, True, False, True]
    reference, candidate = result.native
    assert (reference.code, candidate.code) == (code, code)
    assert candidate.failed == bool(error) and not reference.failed
    assert ("has no VNNI" in candidate.message) == bool(error)


def test_processors_without_the_instructions() -> None:
    assert without_vnni(FLAGS.format(""))
    assert not without_vnni(FLAGS.format("avx_vnni"))
    assert not without_vnni(FLAGS.format("avx512f avx512_vnni"))
    assert not without_vnni(np.str_("Features : asimd"))
