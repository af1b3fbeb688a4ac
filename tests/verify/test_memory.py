"""The memory limits of a comparison and a run: twice the weights of the larger model and 250 MB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines.session_weights import LARGE, Weights
from converter.graph.build import new_model
from converter.io.mapped_file import MappedFile, file_offset_of
from support import run_python

WIDTH = 2048
LAYERS = 10  # 168 MB of weights
ALLOWANCE = 250  # MB

PEAK = """
import sys
from converter.cli.app import run
try:
    sys.argv[1:] = sys.argv[1:]
    run()
except SystemExit as e:
    code = e.code
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("\\nPEAK", code, int(status["VmHWM"].split()[0]) // 1024)
"""


def _network(folder: Path, name: str, wrong: int = -1) -> Path:
    """Dense layers; one of them, `wrong`, has weights that are one per cent larger."""
    rng = np.random.default_rng(0)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, ["batch", WIDTH])
    for i in range(LAYERS):
        w = rng.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        w = w * np.float32(1.01) if i == wrong else w
        x = b.op("Tanh", b.op("MatMul", x, b.const(w, f"w{i}"), name=f"dense{i}"), name=f"act{i}")
    b.output(x)
    path = folder / name
    converter.save(Model(model, "onnx"), path, "onnx+external" if path.suffix == ".onnx" else None)
    return path


def _peak(*command: str | Path) -> tuple[int, int]:
    """Exit code and the most memory that was used, in MB."""
    said = run_python(PEAK, *map(str, command)).rsplit("PEAK", 1)[1].split()
    return int(said[0]), int(said[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_large_models_are_in_memory_no_more_than_twice(tmp_path: Path) -> None:
    a, b = _network(tmp_path, "a.onnx"), _network(tmp_path, "b.xml")
    c = _network(tmp_path, "c.xml", wrong=4)
    most = 2 * LAYERS * WIDTH * WIDTH * 4 // 2**20 + ALLOWANCE
    for code, command in (
        (0, ("run", a)),
        (0, ("run", b)),
        (0, ("verify", a, b, "--native", "off")),
        (1, ("verify", a, c, "--native", "off")),
    ):
        found, peak = _peak(*command)
        assert found == code and peak <= most, (command, found, peak, most)


def test_a_weight_is_identified_by_its_offset_in_the_file(tmp_path: Path) -> None:
    numbers = np.arange(4096, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"head" + numbers.tobytes())
    file = MappedFile(tmp_path / "w.bin")
    part = file.slice(4, numbers.nbytes).view(np.float32)
    assert file_offset_of(part) == (tmp_path / "w.bin", 4)
    assert file_offset_of(part.copy()) is None and file_offset_of(part[::2]) is None
    weights = Weights(large=True)
    proto = weights.proto("w", 1, part, [part])
    told = {e.key: e.value for e in proto.external_data}
    assert told == {"location": "w.bin", "offset": "4", "length": str(numbers.nbytes)}
    assert not weights.lent
    (tmp_path / "other").write_bytes(b"another file")
    (tmp_path / "other").replace(tmp_path / "w.bin")  # the path is no longer the mapped file
    assert file_offset_of(part) is None


def test_weights_from_a_file_give_the_same_numbers(tmp_path: Path) -> None:
    """As many bytes as are read in place; the candidate's are computed, and handed over."""
    rng = np.random.default_rng(0)
    rows = LARGE // 4 // 256 + 1
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, rows])
    b.output(
        b.op("MatMul", x, b.const(rng.standard_normal((rows, 256), np.float32), "w"), name="y")
    )
    held = Model(model, "onnx")
    converter.save(held, tmp_path / "a.onnx", "onnx+external")
    read = converter.load(tmp_path / "a.onnx")
    feeds = {"x": rng.standard_normal((1, rows), np.float32)}
    np.testing.assert_array_equal(read.run(feeds)["y"], held.run(feeds)["y"])
    assert converter.verify(read, held, feeds, native="off").max_difference == 0
