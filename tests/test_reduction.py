"""The smallest part that differs: small, about the planted fault, and reproducible from its folder
alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.commands import reduce
from converter.errors import WriteError
from support import ROOT
from verify.nets import FAULTS, Fault, copy_of, mobilenet, perceptron, resnet


@pytest.mark.parametrize("net", [resnet, mobilenet, perceptron], ids=lambda n: n.__name__)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.sampled(5)
def test_a_planted_fault_is_cut_out(net, fault: Fault, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = net(np.random.default_rng(1))
    bad = copy_of(good)
    layer = fault(bad.ir, np.random.default_rng(4))
    if layer is None:
        pytest.skip("this net has no place for this fault")
    before = [len(m.ir.graph) for m in (good, bad)]
    found = reduce.reduce(good, bad)
    assert found is not None and not found.result.passed
    assert max(found.nodes) <= 3 < min(before)
    assert layer in {str(o.name) for n in found.reference.ir.graph for o in n.outputs}
    assert [len(m.ir.graph) for m in (good, bad)] == before  # the models themselves are untouched
    reduce.write(found, tmp_path / "case", ("a", "b"))
    again = converter.verify(
        tmp_path / "case" / "reference.onnx",
        tmp_path / "case" / "candidate.onnx",
        str(tmp_path / "case" / "inputs.npz"),
    )
    assert not again.passed


def test_a_difference_without_a_wrong_layer_is_bisected() -> None:
    good = resnet(np.random.default_rng(1))
    bad = copy_of(good)
    node = next(n for n in bad.ir.graph if n.outputs[0].name == "block1_sum")
    node.replace_input_with(1, node.inputs[0])
    search = reduce._Search(good, bad, None, {})
    found = search._smallest(replace(converter.verify(good, bad), findings=()))
    assert found is not None and not found.result.passed
    assert max(found.nodes) <= 3
    assert "block1_sum" in {str(o.name) for n in found.reference.ir.graph for o in n.outputs}


def test_models_that_do_not_differ(tmp_path: Path) -> None:
    good = perceptron(np.random.default_rng(1))
    assert reduce.reduce(good, copy_of(good)) is None


@pytest.mark.slow
def test_the_command_of_the_folder_shows_the_difference(tmp_path: Path) -> None:
    good = resnet(np.random.default_rng(1))
    bad = copy_of(good)
    FAULTS[0](bad.ir, np.random.default_rng(4))
    for name, model in (("good", good), ("bad", bad)):
        converter.save(model, tmp_path / f"{name}.onnx")

    def call(folder: Path, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "converter.cli", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    assert call(tmp_path, "reduce", "good.onnx", "good.onnx", "-o", "case") == (
        0,
        "The models do not differ.\n",
    )
    assert not (tmp_path / "case").exists()
    code, out = call(tmp_path, "reduce", "good.onnx", "bad.onnx", "-o", "case")
    assert code == 1 and "FIRST" in out
    readme = (tmp_path / "case" / "README.md").read_text()
    shown = re.search(r"```sh\nnetconv (.*)\n```", readme)
    assert shown
    code, out = call(tmp_path / "case", *shown[1].split())
    assert code == 1
    assert next(line for line in out.splitlines() if line.startswith("FIRST")) in readme
    with (
        np.load(tmp_path / "case" / "expected.npz") as a,
        np.load(tmp_path / "case" / "actual.npz") as b,
    ):
        assert a.files == b.files and not all(np.array_equal(a[n], b[n]) for n in a.files)
    assert call(tmp_path, "reduce", "good.onnx", "bad.onnx", "-o", "case")[0] == 5
    assert call(tmp_path, "reduce", "good.onnx", "bad.onnx", "-o", "case", "--force")[0] == 1


def test_a_file_in_the_way(tmp_path: Path) -> None:
    good = perceptron(np.random.default_rng(1))
    bad = copy_of(good)
    FAULTS[0](bad.ir, np.random.default_rng(4))
    found = reduce.reduce(good, bad)
    assert found is not None
    (tmp_path / "case").write_text("a file")
    with pytest.raises(WriteError):
        reduce.write(found, tmp_path / "case", ("a", "b"), force=True)
