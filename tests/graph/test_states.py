"""States that the user names: inputs and the outputs that are their next values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import converter
from converter.cli import app, console
from converter.errors import ConverterError
from converter.formats.coreml.proto import Model_pb2


def accumulator(path: Path, size: Any = 4, grown: bool = False) -> Path:
    """present.k = past.k + x, y = present.k * x; `grown`: x is appended to past.k instead."""
    join = h.make_node("Concat", ["past.k", "x"], ["present.k"], axis=1) if grown else (
        h.make_node("Add", ["past.k", "x"], ["present.k"])
    )  # fmt: skip
    last = h.make_node("Mul", ["present.k", "one" if grown else "x"], ["y"])
    one = h.make_tensor("one", T.FLOAT, [1], [1.0])

    def info(name: str, n: Any) -> Any:
        return h.make_tensor_value_info(name, T.FLOAT, [1, n])

    after = 8 if grown else size
    graph = h.make_graph(
        [join, last],
        "g",
        [info("x", size), info("past.k", size)],
        [info("y", after), info("present.k", after)],
        [one],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(path))
    return path


def netconv(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["netconv", *map(str, arguments)])
    console.use(console.Console())
    return app._guarded()


def twice(path: Path) -> list[Any]:
    """y of two runs, the state of the first given to the second."""
    model = converter.load(path)
    (state, after), *_ = model.interface["states"].items()
    x = np.array([[1, 2, 3, 4]], np.float32)
    first = model.run({"x": x})
    return [first["y"], model.run({"x": x, state: first[after]})["y"]]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("mlprogram+ios=18+fp16", "m.mlpackage"),
        ("openvino", "m.xml"),
        ("tflite", "m.tflite"),
        ("onnx", "n.onnx"),
    ],
)
def test_a_pair_becomes_a_state(
    target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["convert", accumulator(tmp_path / "m.onnx"), "-o", tmp_path / name, "-t", target]
    assert netconv(monkeypatch, *args, "--state", "past.k=present.k") == 0
    x = np.array([[1, 2, 3, 4]])
    np.testing.assert_array_equal(twice(tmp_path / name), [x * x, 2 * x * x])


def program(path: Path) -> Any:
    return Model_pb2.Model.FromString((path / "Data/com.apple.CoreML/model.mlmodel").read_bytes())


def test_programs_keep_the_names_of_both_ends(tmp_path: Path) -> None:
    source, package = accumulator(tmp_path / "m.onnx"), tmp_path / "m.mlpackage"
    states = {"past.k": "present.k"}
    converter.convert(source, package, target="mlprogram+ios=18+fp16", state=states)
    assert [f.name for f in program(package).description.state] == ["past_k"]
    assert [f.name for f in program(package).description.output] == ["y"]
    assert converter.load(package).interface["states"] == states
    (note,) = converter.convert(source, package, target="mlprogram", state=states)
    assert note.code == "X205" and "fp16" in note.help  # there are no states of single precision
    assert not program(package).description.state
    assert converter.load(package).interface["states"] == states


@pytest.mark.parametrize("name", ["m.mlpackage", "m.xml"])
def test_states_as_inputs_and_outputs(name: str, tmp_path: Path) -> None:
    states = {"past.k": "present.k"}
    target = "mlprogram+ios=18+fp16" if name == "m.mlpackage" else None
    source = accumulator(tmp_path / "m.onnx")
    assert (
        converter.convert(source, tmp_path / name, target=target, state=states, states="io") == []
    )
    if name == "m.xml":
        text = (tmp_path / name).read_text()
        assert "ReadValue" not in text and text.count('type="Parameter"') == 2
    else:
        assert not program(tmp_path / name).description.state
    assert [o.name for o in converter.load(tmp_path / name).outputs] == ["y", "present.k"]


@pytest.mark.parametrize(
    ("size", "grown", "pairs", "said"),
    [
        (4, False, {"past": "present.k"}, "the model has: x, past.k"),
        (4, False, {"past.k": "present"}, "the model has: y, present.k"),
        (4, False, {"past.k": "y", "x": "y"}, "two states"),
        (4, True, {"past.k": "present.k"}, "cannot use 'present.k' as the next value of 'past.k'"),
    ],
)
def test_pairs_that_are_no_states(
    size: Any, grown: bool, pairs: dict[str, str], said: str, tmp_path: Path
) -> None:
    source = accumulator(tmp_path / "m.onnx", size, grown)
    with pytest.raises(ConverterError, match=said):
        converter.convert(source, tmp_path / "m.mlpackage", state=pairs)
    assert not (tmp_path / "m.mlpackage").exists()


def test_sizes_of_states_are_fixed_on_the_way(tmp_path: Path) -> None:
    source, sizes = accumulator(tmp_path / "m.onnx", "n"), {"x": [1, 4], "past.k": [1, 4]}
    states = {"past.k": "present.k"}
    converter.convert(source, tmp_path / "m.xml", inputs=sizes, state=states)
    assert "ReadValue" in (tmp_path / "m.xml").read_text()


def test_values_that_are_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = accumulator(tmp_path / "m.onnx")
    args = ["convert", source, "-o", tmp_path / "m.xml", "--state", "past.k"]
    assert netconv(monkeypatch, *args) == 2
    assert "PAST=PRESENT" in capsys.readouterr().err
