"""The notebook of the samples, executed as Jupyter executes it: a model, a result and a report are
shown as pages.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from support import HANG, ROOT, SAMPLES

NOTEBOOK = SAMPLES / "digits.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return [c for c in found if c["cell_type"] == kind]


def test_it_is_stored_without_results() -> None:
    assert all(not c["outputs"] and c["execution_count"] is None for c in cells("code"))
    assert "digits.ipynb" in (SAMPLES / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_it_shows_a_model_a_result_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat: Any = pytest.importorskip("nbformat", reason="the extra `test` is not installed")
    nbclient: Any = pytest.importorskip("nbclient", reason="the extra `test` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `test` is not installed")
    for name in ("digits_cnn.mlmodel", "digits_cnn.npz"):
        shutil.copy(SAMPLES / name, tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "converter/alias")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=HANG, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [_data(c) for c in book.cells if c.cell_type == "code"]
    model, labels, result, text, page = shown
    assert model["text/html"].startswith("<iframe") and "innerProduct" in model["text/html"]
    assert "digits_cnn.mlmodel" in model["text/plain"]
    (found, label) = json.loads(labels["text/plain"].replace("(", "[").replace(")", "]"))
    assert found == label
    assert result["text/html"].startswith("<iframe") and "probabilities" in result["text/html"]
    assert "same within rounding noise" in text["stream"]
    assert page["text/plain"].strip("'").casefold() == "<!doctype html>"


def _data(cell: Any) -> dict[str, str]:
    """Return a cell's outputs by their kind."""
    found: dict[str, str] = {}
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            found["stream"] = output.text
        elif output.output_type == "execute_result":
            found.update(output.data)
    return found
