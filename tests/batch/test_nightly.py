"""A nightly run over many models, some of which have planted faults: these are found, each for its
own reason, nothing else is, and the summary fits one screen.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from batch.models import save
from converter.graph.build import new_model
from converter.graph.lazy_tensor import lazy
from support import HANG, ROOT, SAMPLES

SCREEN = 40  # lines
TARGETS = ("zhouyi", "tflite", "openvino")
# the status that a fault ends in, and the cause that the summary gives for it
FAULTS = {
    "truncated": ("unreadable", "R103"),
    "page": ("unreadable", "R101"),
    "texts": ("unsupported", "X203"),
    "rounded": ("differs", "differs"),
}


def classifier(path: Path, seed: int) -> None:
    """Write a network that ends in a global average, a matrix and Softmax."""
    rng = np.random.default_rng(seed)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 12, 12])
    channels = int(rng.integers(4, 12))
    w = rng.standard_normal((channels, 3, 3, 3)).astype(np.float32)
    y = b.op("Conv", x, w, pads=[1, 1, 1, 1], strides=[1 + seed % 2] * 2)
    y = b.op(("Relu", "Sigmoid", "LeakyRelu", "Tanh")[seed % 4], y)
    y = b.Flatten(b.op("GlobalAveragePool", y))
    w = rng.standard_normal((channels, 10)).astype(np.float32)
    b.output(b.op("Softmax", b.MatMul(y, w), axis=1))
    save(model, path)


def perturbed(name: str, path: Path, seed: int) -> None:
    """Write a sample with other weights."""
    rng, model = np.random.default_rng(seed), converter.load(SAMPLES / name)
    for value in model.ir.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT and tensor.size > 64:
            array = tensor.numpy()
            value.const_value = lazy(array * rng.uniform(0.8, 1.2, array.shape).astype(np.float32))
    converter.save(model, path)


def texts(path: Path, seed: int) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.STRING, [seed % 5 + 1])
    b.output(b.op("StringNormalizer", x, case_change_action="LOWER"))
    save(model, path)


def fault(kind: str, path: Path, seed: int) -> None:
    if kind == "texts":
        texts(path, seed)
    elif kind == "page":
        path.write_text("<!doctype html><title>404</title>")
    else:
        classifier(path, seed)
        if kind == "truncated":
            path.write_bytes(path.read_bytes()[:-200])


def nightly(folder: Path, count: int, planted: int) -> None:
    """Write `count` models, `planted` of each kind of fault among them, and the job file."""
    nets = folder / "nets"
    nets.mkdir()
    for kind in FAULTS:
        (folder / kind).mkdir()
    for i in range(count - planted * len(FAULTS)):
        path = nets / f"model_{i:03}.onnx"
        sample = ("digits_cnn.mlmodel", "digits_lstm.mlmodel")[i // 4 % 2]
        classifier(path, i) if i % 4 else perturbed(sample, path, i)
    for kind in FAULTS:
        for i in range(planted):
            fault(kind, folder / kind / f"{kind}_{i:02}.onnx", i)
    jobs = [
        f'[[job]]\nmodels = "nets/model_*{d}.onnx"\nto = "{TARGETS[d % 3]}"\nverify = true\n'
        for d in range(10)
        if [*nets.glob(f"model_*{d}.onnx")]
    ]
    jobs += [
        f'[[job]]\nmodels = "{kind}/*.onnx"\nto = "zhouyi"\nverify = true\n'
        for kind in ("truncated", "page", "texts")
    ]
    exact = "{ rtol = 1e-7, atol = 1e-7 }"
    jobs.append(f'[[job]]\nmodels = "rounded/*.onnx"\nto = "openvino+fp16"\nverify = {exact}\n')
    (folder / "jobs.toml").write_text("\n".join(jobs))


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "converter.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def visible(text: str) -> list[str]:
    """Return the lines of a summary that are not folded."""
    found, depth = [], 0
    for line in text.splitlines():
        depth += "<details>" in line
        if depth == 0 or (depth == 1 and "<summary>" in line):
            found.append(line)
        depth -= "</details>" in line
    return found


@pytest.mark.parametrize(("count", "planted"), [
    (8, 1),
    pytest.param(300, 6, marks=pytest.mark.slow),
])  # fmt: skip
def test_planted_faults_are_found_and_nothing_else(
    tmp_path: Path, count: int, planted: int
) -> None:
    nightly(tmp_path, count, planted)
    done = call(tmp_path, "batch", "jobs.toml", "--report", "first", "--jobs", "2")
    assert (tmp_path / "first").exists(), done.stderr
    data: Any = json.loads((tmp_path / "first" / "results.json").read_text())
    failed = {j["id"]: j for j in data["jobs"] if j["exit_code"]}
    assert {n.partition("/")[0] for n in failed} == {*FAULTS}, [n for n in failed if "nets" in n]
    expected = Counter(status for status, _ in FAULTS.values() for _ in range(planted))
    assert data["counts"] == {"ok": count - planted * len(FAULTS), **expected}
    assert done.returncode == 4  # unreadable files are the most severe
    # the log ends with the causes
    log = done.stdout.splitlines()[-8:]
    for kind, (_, cause) in FAULTS.items():
        assert any(f"{planted} x" in line and cause in line and kind in line for line in log), kind
    summary = call(tmp_path, "report", "first/results.json", "--as", "md", "--exit-zero").stdout
    shown = visible(summary)
    assert len(shown) <= SCREEN and sum(line.startswith("* ") for line in shown) == len(FAULTS)
    if count < SCREEN:
        return
    # the next night: nothing is new, then one more fault is
    (tmp_path / "known.json").write_bytes((tmp_path / "first" / "results.json").read_bytes())
    since = ("--baseline", "known.json", "--fail-on", "new")
    again = call(tmp_path, "batch", "jobs.toml", "--report", "second", *since)
    assert again.returncode == 0 and re.search(r"0 new, 0 fixed", again.stdout), again.stdout
    assert len(again.stdout.splitlines()) <= SCREEN
    fault("truncated", tmp_path / "nets" / "model_000.onnx", 0)
    third = call(tmp_path, "batch", "jobs.toml", "--report", "third", *since)
    assert third.returncode == 4 and "(1 new)" in third.stdout


def test_a_summary_of_few_failures_shows_them() -> None:
    assert visible("a\n<details><summary>b</summary>\nc\n</details>\nd") == [
        *("a", "<details><summary>b</summary>", "d")
    ]
