"""JSON in files or next to them: with any content it is taken as a whole, refused by
name, or ignored.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from converter import api
from converter.cli import app, console
from converter.io.strict_json import has_form, note, parse
from test_repository import CONVERTER, found

Call = Callable[..., int]
DEEP = "[" * 100_000
LESS_DEEP = "[" * 500 + "]" * 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        DEEP,
        LESS_DEEP,
        '"\\ud800"',
        '["\\udc00\\ud800"]',
        '{"a": 1, "a": 2}',
        b'"\xff"',
        "9" * 5000,
        "nul",
        "{1: 2}",
    ],
)
def test_texts_that_are_no_note(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_values_of_a_note() -> None:
    assert parse(b'\xef\xbb\xbf{"a": ["\\ud83d\\ude00", 1e2]}') == {"a": ["\U0001f600", 100.0]}
    assert math.isnan(parse("NaN"))
    with pytest.raises(ValueError, match="NaN is not a number"):
        parse("[NaN]", finite=True)


@pytest.mark.parametrize(
    ("value", "form", "fits"),
    [
        (1, int, True),
        (True, int, False),
        (1.5, int, False),
        (1, float, True),
        (True, bool, True),
        ("a", str, True),
        (None, None, True),
        (0, None, False),
        ([1, 2], [int], True),
        ([1, "a"], [int], False),
        ("ab", [str], False),
        ({"a": 1}, {str: int}, True),
        ({"a": "b"}, {str: int}, False),
        ({"a": 1, "b": []}, {"a": int}, True),
        ({"a": []}, {"a": int}, False),
        ([], {"a": int}, False),
        (None, ([int], None), True),
        (3, ([int], None), False),
        ({"a": {"b": [{"c": "d"}]}}, {"a": {str: [{"c": int}]}}, False),
    ],
)
def test_forms(value: Any, form: Any, fits: bool) -> None:
    assert has_form(value, form) is fits
    assert note(json.dumps(value), form) == (value if fits else None)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs netconv and return the exit code; its output is in capsys."""

    def run(*arguments: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *map(str, arguments)])
        console.use(console.Console())
        return app._guarded()

    return run


def network(path: Path, **metadata: str) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 4, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


STRANGE = [
    "{", "[]", "5", "null", '"a"', DEEP, "\\ud800", '{"metadata": 5}',
    '{"metadata": {"author": 5}}', '{"metadata": {"author": "\\ud800"}}',
    '{"metadata": {"userDefined": {"a": 1}}}', '{"metadata": {"userDefined": []}}',
    '{"images": 5}', '{"images": {"x": 5}}', '{"images": {"x": {"colour": []}}}',
    '{"classifier": 5}', '{"classifier": {"label": []}}', '{"classifier": [1]}',
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE, ids=[s[:30] for s in STRANGE])
def test_notes_in_a_network_that_are_not_ours(tmp_path: Path, text: str) -> None:
    file = network(
        tmp_path / "n.onnx",
        **{"netconv.coreml": text, "netconv.defaults": text, "openvino.statistics": text},
    )
    for target in ("n.mlmodel", "n7.xml", "n.txt", "n.tflite", "m.onnx"):
        api.save(api.load(file), tmp_path / target)
    assert api.load(tmp_path / "n.mlmodel").run({"x": [[[[1.0] * 4] * 4] * 3]})["y"].shape == (
        1,
        3,
        4,
        4,
    )


def test_notes_of_ours_are_kept(tmp_path: Path) -> None:
    said = {
        "metadata": {"author": "A", "userDefined": {"k": "v"}},
        "images": {"x": {"colour": "BGR"}},
    }
    api.save(
        api.load(network(tmp_path / "n.onnx", **{"netconv.coreml": json.dumps(said)})),
        tmp_path / "n.mlmodel",
    )
    again = api.load(tmp_path / "n.mlmodel").interface
    assert again["coreml"]["metadata"] == said["metadata"] and again["images"] == said["images"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "5",
        DEEP,
        '{"a": 1}',
        '{"a": {"b": 1}}',
        '{"a": {"intValue": "b"}}',
        '{"a": {}}',
        '{"a": {"intValue": 1, "boolValue": true}}',
    ],
)
def test_parameters_of_a_custom_layer_that_are_none(
    call: Call, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 4, 4]) for n in "xy")
    node = helper.make_node(
        "CustomLayer", ["x"], ["y"], domain="netconv", class_name="C", parameters=text
    )
    graph = helper.make_graph([node], "g", [x], [y])
    onnx.save(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("netconv", 1)],
            ir_version=8,
        ),
        tmp_path / "n.onnx",
    )
    assert call("convert", tmp_path / "n.onnx", "-o", tmp_path / "n.mlmodel") == 3
    assert "R110" in (said := capsys.readouterr().err) and "parameters" in said


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "5",
        DEEP,
        '{"tensors": 5}',
        '{"tensors": {"x": 5}}',
        '{"tensors": {"x": "\\ud800"}}',
        "\udcff",
    ],
    ids=lambda t: t[:20],
)
def test_a_file_next_to_a_model_that_is_no_map(tmp_path: Path, text: str) -> None:
    api.save(api.load(network(tmp_path / "n.onnx")), tmp_path / "z.txt")
    (tmp_path / "z.map.json").write_text(text, errors="surrogateescape")
    assert [v.name for v in api.load(tmp_path / "z.txt").inputs] == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "5",
        DEEP,
        LESS_DEEP,
        '{"tensors": {"x": 5}}',
        '{"schema": "netconv/verify/1"}',
        '{"schema": ' + LESS_DEEP + "}",
    ],
    ids=lambda t: t[:20],
)
def test_results_and_maps_that_are_none(call: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.json").write_text(text)
    assert call("report", tmp_path / "deep.json") == 4
    file = network(tmp_path / "n.onnx")
    assert call("verify", file, file, "--map", tmp_path / "deep.json") in (2, 4)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("exit_code", "x"),
        ("exit_code", None),
        ("command", 5),
        ("code", -1),
        ("path", {"a": 1}),
        ("feeds", [5]),
        ("verdict", []),
    ],
)
@pytest.mark.parametrize("form", ["text", "html", "junit", "md"])
def test_results_with_values_of_other_types(
    call: Call,
    tmp_path: Path,
    place: str,
    value: Any,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    network(tmp_path / "n.onnx")
    call(
        "convert",
        tmp_path / "n.onnx",
        "-o",
        tmp_path / "o.onnx",
        "--verify",
        "--native",
        "off",
        "--format",
        "json",
    )
    data = json.loads(capsys.readouterr().out)
    data["diagnostics"].append(
        {
            "code": "X205",
            "level": "warning",
            "message": "m",
            "help": "",
            "where": dict.fromkeys(("file", "path", "layer", "kind"), ""),
        }
    )

    def changed(at: Any) -> Any:
        if isinstance(at, list):
            return [changed(v) for v in at]
        return (
            {k: value if k == place else changed(v) for k, v in at.items()}
            if isinstance(at, dict)
            else at
        )

    (tmp_path / "r.json").write_text(json.dumps(changed(data)))
    assert call("report", tmp_path / "r.json", "--to", form) in (0, 4)


def test_nothing_else_reads_json_of_others() -> None:
    """Messages between netconv's own processes, files of the package, the journal, which
    takes damaged lines for jobs not done, and the list of a workspace, which is one's own.
    """
    places = {
        line.split(":")[0] for line in found(r"\bjson\.loads?\(", sorted(CONVERTER.rglob("*.py")))
    }
    own = {
        "commands/batch/cluster.py",
        "commands/batch/journal.py",
        "commands/batch/pool.py",
        "commands/batch/worker.py",
        "commands/profile.py",
        "engines/file.py",
        "formats/coreml/coreai/bindings.py",
        "formats/onnx/onnxruntime_kernels.py",
        "formats/nnapi/operations.py",
    }
    own |= {
        "formats/openvino/opset/revisions.py",
        "formats/zhouyi/operators.py",
        "io/atomic.py",
        "io/strict_json.py",
    }
    assert places == {f"converter/{p}" for p in own}
