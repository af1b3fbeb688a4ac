"""Names that are made to do harm in a terminal or in the log of a runner, in every text output."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import every_command
from converter.cli.console import Console
from converter.commands.batch import progress
from converter.commands.batch.job import Done, Job, outcome
from converter.commands.report.text import render
from converter.errors import Diagnostic, Where
from converter.io.escape import escaped
from support import sources

HARM = (
    "\n::error::mark",
    "\r::error::mark",
    "\n##[error]mark",
    "##vso[task.setvariable variable=mark]x",
    "\x1b]0;mark\x07\x1b[2J",
    "\x9b2J\x85",
    "\u202emark\u2066",
    "\u2028::error::mark\u2029",
    "\x0b\x0c\x7f\b",
)
NAME = "".join(HARM)
# of file names: anything but a slash; a name may also begin a line
FILES = ("::error::mark\n::warning::mark\x1b[2J\u202e##[group]", "\t ::set-output name=a")

PRINTS = re.compile(r"click\.(echo|secho|echo_via_pager)|sys\.std(out|err)\.write|.*console\.print")
COLOR = re.compile(r"\x1b\[(0|[0-9;]+)m")


def harm_in(text: str) -> list[str]:
    """Harmful parts of a text: characters, and lines that are commands of a runner."""
    found = [
        repr(c)
        for c in text
        if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")
    ]
    lines = text.split("\n")
    found += [line for line in lines if line.lstrip().startswith("::")]
    found += [line for line in lines if re.search(r"##\w*\[", line)]
    # a text on a line of its own has no sign of ours before it
    found += [line for line in lines if line.lstrip(" │|┌├└").startswith(("::", "##["))]
    return found


def hostile(path: Path, factor: float) -> Path:
    """A network whose every name is hostile."""
    names = [f"{n}{NAME}" for n in ("x", "conv", "y", "w")]
    x, middle, y, w = names
    weights = numpy_helper.from_array(np.full((4, 3, 3, 3), factor, np.float32), w)
    nodes = [
        helper.make_node("Conv", [x, w], [middle], f"c{NAME}", pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", [middle], [y], f"a{NAME}", alpha=0.1),
    ]
    graph = helper.make_graph(
        nodes,
        f"g{NAME}",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 4, 8, 8])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {f"p{NAME}": NAME})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def refused(path: Path) -> Path:
    """A network of an operator that no target has, in a domain with a hostile name."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info(f"y{NAME}", TensorProto.FLOAT, [1])
    node = helper.make_node(f"Op{NAME}", ["x"], [f"y{NAME}"], f"n{NAME}", domain=f"d{NAME}")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(f"d{NAME}", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["net", *FILES])
def test_every_text_is_harmless(tmp_path: Path, stem: str) -> None:
    script = str(every_command.script(tmp_path))
    work = tmp_path / "work"
    first = hostile(work / f"{stem}1.onnx", 0.1).name
    second = hostile(work / f"{stem}2.onnx", 0.2).name
    hostile(work / "nets" / f"{stem}.onnx", 0.1)
    (work / "zhouyi").mkdir()
    other = refused(work / f"{stem}3.onnx").name
    (work / f"{stem}4.onnx").write_bytes(b"no model")
    more = [
        ("check", other, "-t", "tflite"),
        ("inspect", first, "--of", "text"),
        ("inspect", first, "--of", "dot"),
        ("inspect", first, "--layers", "-vv"),
        ("verify", first, second, "--color", "always"),
        ("convert", first, "-o", f"{stem}.xml", "-vv"),
        ("convert", first, "-o", f"{stem}.xml"),
        ("convert", first, "-o", "x.onnx", "--inputs", f"{NAME}:1"),
        ("convert", first, "-o", "x.onnx", "--outputs", NAME),
        ("inspect", f"{stem}4.onnx"),
        ("inspect", f"{stem}5.onnx"),
        ("inspect", "-f", NAME, first),
        (NAME,),
        ("inspect", f"--{NAME}"),
        ("explain", NAME),
        ("batch", ".", "-t", "tflite", "-o", "all", "-v"),
    ]
    calls = every_command.calls(f"./{first}", second)
    whole = stem == FILES[0]
    for arguments in [*(c.arguments for c in calls if whole), *more]:
        done = every_command.run([script, *arguments], work)
        shown = COLOR.sub("", done.stdout) + COLOR.sub("", done.stderr)
        if arguments[0] == "completion":
            continue
        assert done.returncode in (0, 1, 2, 3, 4, 5, 6, 9), done.stderr
        assert harm_in(shown) == [], arguments
        assert "Traceback" not in shown, shown
    assert not whole or harm_in((work / "reduced" / "README.md").read_text()) == []


@given(st.text())
def test_escaped_is_one_harmless_line(text: str) -> None:
    line = escaped(text)
    assert "\n" not in line and harm_in(line) == []
    assert escaped(line) == line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conv1/weights:0", "conv1/weights:0"),
        ("Zürich 網路　π", "Zürich 網路　π"),
        ("a::b # c ## d", "a::b # c ## d"),
        ("::error::x", "\\x3a:error::x"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("a ##[error]x", "a \\x23#[error]x"),
        ("a\n::error", "a\\n::error"),
        ("\x1b[2J\x9b\u202e\u2028\x85", "\\x1b[2J\\x9b\\u202e\\u2028\\x85"),
        ("\udcff", "\\udcff"),
    ],
)
def test_escaping(text: str, expected: str) -> None:
    assert escaped(text) == expected


@given(st.text(), st.text(), st.text())
def test_diagnostics_are_harmless(message: str, layer: str, help: str) -> None:
    one = Diagnostic("X201", message, where=Where("f", 1, "p", layer), evidence=(layer,), help=help)
    text = COLOR.sub("", render([one, Diagnostic("X201", message, where=Where(layer), help=help)]))
    assert harm_in(text) == []


def test_the_bar_of_a_batch_is_harmless(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = f"[red]{'long ' * 9}::error::mark [/]{NAME} -> onnx"
    with progress.shown(1, print, bar=True) as tell:
        tell(Done(Job(name, "convert", "a", "onnx"), outcome(3)))  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert harm_in(said) == [] and "[red]long" in said


def test_machine_formats_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(command="check", format="json")
    console.report([Diagnostic("X201", "a\u202e::b")])
    console.finish()
    assert "a\u202e::b" in capsys.readouterr().out


def test_nothing_is_printed_past_the_console() -> None:
    """Texts of commands go through Console; other prints escape foreign text. A
    worker prints to the process that started it.
    """
    allowed = {
        "cli/console.py",
        "cli/crash.py",
        "cli/app.py",
        "cli/waiting.py",
        "cli/commands/report.py",
        "commands/batch/progress.py",
        "formats/coreml/coreai/worker.py",
    }
    for name, source in sources().items():
        prints = {c for c in source.calls if c == "print" or PRINTS.fullmatch(c)}
        assert not prints or name in allowed, prints
