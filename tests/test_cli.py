"""The command line in one process: commands on models made on the spot, exit codes, forms of
output, start-up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.cli import app, console, interrupt
from converter.cli.app import COMMANDS
from converter.commands import provenance
from converter.errors import ExitCode, unreadable
from converter.graph.build import new_model
from converter.io.resources import schema_path
from support import HANG, ROOT, run_python
from verify.nets import copy_of, resnet

Call = Callable[..., int]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs netconv in an empty folder and return the exit code; its output is in capsys."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    """good.onnx, and bad.onnx where the slope of one layer is wrong."""
    for name, alpha in (("good", 0.1), ("bad", 0.2)):
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, ["n", 3, 8, 8])
        y = b.op(
            "LeakyRelu",
            b.op("Conv", x, np.ones((4, 3, 3, 3), np.float32), pads=[1, 1, 1, 1], name="conv"),
            alpha=alpha,
            name="act",
        )
        b.output(
            b.op("GlobalAveragePool", y, name="mean"),
            b.op("Exp", b.op("Neg", y, name="minus"), name="exp"),
        )
        converter.save(Model(model, "onnx"), tmp_path / f"{name}.onnx")
    return tmp_path


def test_convert_writes_the_file_a_map_and_compares(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("convert", "good.onnx", "-o", "out.onnx", "--map", "--verify") == 0
    assert "same" in capsys.readouterr().out
    tensors = json.loads((nets / "out.onnx.map.json").read_text())["tensors"]
    assert tensors == {
        "x": "x",
        "conv": "conv",
        "act": "act",
        "mean": "mean",
        "minus": "minus",
        "exp": "exp",
    }
    assert call("verify", "good.onnx", "out.onnx", "--map", "out.onnx.map.json") == 0
    assert sorted(p.name for p in nets.iterdir()) == [
        "bad.onnx",
        "good.onnx",
        "out.onnx",
        "out.onnx.map.json",
    ]


def test_nothing_is_overwritten_unasked_and_the_input_never(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (nets / "bad.onnx").read_bytes()
    assert call("convert", "good.onnx", "-o", "bad.onnx") == ExitCode.UNWRITABLE
    assert (nets / "bad.onnx").read_bytes() == before
    assert call("convert", "good.onnx", "-o", "good.onnx", "--force") == ExitCode.USAGE
    assert call("convert", "good.onnx", "-o", "bad.onnx", "--force") == 0
    assert (nets / "bad.onnx").read_bytes() != before
    assert call("convert", "good.onnx", "-o", "nowhere/out.onnx") == ExitCode.UNWRITABLE
    assert "W301" in capsys.readouterr().err


def test_the_same_bytes_every_time(call: Call, nets: Path) -> None:
    assert (
        call("convert", "good.onnx", "-o", "a.onnx")
        == call("convert", "good.onnx", "-o", "b.onnx")
        == 0
    )
    assert (nets / "a.onnx").read_bytes() == (nets / "b.onnx").read_bytes()


def test_inputs_are_fixed_and_outputs_cut(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        call("convert", "good.onnx", "-o", "out.onnx", "--inputs", "x:2,3,8,8", "--outputs", "act")
        == 0
    )
    model = converter.load(nets / "out.onnx")
    assert [str(i) for i in model.inputs] == ["x float32[2,3,8,8]"]
    assert [str(o) for o in model.outputs] == ["act float32[2,4,8,8]"]
    assert call("convert", "good.onnx", "-o", "o.onnx", "--inputs", "z:1,3,8,8") == ExitCode.USAGE
    assert call("convert", "good.onnx", "-o", "o.onnx", "--outputs", "nobody") == ExitCode.USAGE
    assert not (nets / "o.onnx").exists()


def test_verify_names_the_layer_and_the_attribute(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("verify", "good.onnx", "bad.onnx") == ExitCode.FINDING
    out = capsys.readouterr().out
    assert 'FIRST  layer 1 "act" LeakyRelu' in out and "alpha  0.1 became 0.2" in out
    assert len(out.splitlines()) <= 12
    assert call("verify", "good.onnx", "bad.onnx", "--atol", "1e9") == 0
    assert call("verify", "good.onnx", "bad.onnx", "--tensors", "conv") == 0
    assert call("verify", "good.onnx", "bad.onnx", "--tensors", "act*") == ExitCode.FINDING
    assert (
        call("verify", "good.onnx", "bad.onnx", "--tensors", "absent*") == ExitCode.NOTHING_COMPARED
    )


def test_diff_is_empty_for_equal_models(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("diff", "good.onnx", "good.onnx") == 0
    assert capsys.readouterr().out == ""
    assert call("diff", "good.onnx", "bad.onnx") == ExitCode.FINDING
    assert capsys.readouterr().out.splitlines() == [
        '~ LeakyRelu "act"',
        "    alpha  0.1 became 0.2",
    ]


def test_run_writes_its_results(call: Call, nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(nets / "in.npz", x=np.ones((1, 3, 8, 8), np.float32))
    assert call("run", "good.onnx", "--data", "in.npz", "--out", "out.npz") == 0
    with np.load(nets / "out.npz") as found:
        assert found["mean"].shape == (1, 4, 1, 1) and found["mean"].min() > 0
    assert call("run", "good.onnx", "--data", "in.npz", "--out", "out.npz") == ExitCode.UNWRITABLE
    assert call("run", "good.onnx", "--out", "many") == 0
    assert sorted(p.name for p in (nets / "many").iterdir()) == ["normal.npz", "uniform.npz"]
    assert call("run", "good.onnx", "--engine", "abacus") == ExitCode.USAGE


def test_inspect_in_every_form(call: Call, nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", "good.onnx", "-v") == 0
    assert "LeakyRelu" in capsys.readouterr().out
    assert call("inspect", "good.onnx", "--of", "json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(
        json.dumps(converter.inspect(nets / "good.onnx"))
    )
    assert call("inspect", "good.onnx", "--of", "text") == 0
    assert "LeakyRelu <alpha" in capsys.readouterr().out
    assert call("inspect", "good.onnx", "--of", "dot") == 0
    assert capsys.readouterr().out.startswith("digraph {")


def test_roundtrip_has_three_verdicts(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("roundtrip", "good.onnx", "bad.onnx", "--via", "onnx") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(
        "bytes" in x and "structure: equal" in x and "numbers: equal" in x for x in lines
    )


def test_check_validates_or_tries(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("check", "good.onnx") == 0
    assert call("check", "good.onnx", "-t", "onnx") == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "good.onnx -> onnx: 5 of 5 layers can be converted (5 of 5 operator types); the "
        "model can be converted."
    )
    (nets / "cut.onnx").write_bytes((nets / "good.onnx").read_bytes()[:-20])
    assert call("check", "cut.onnx", "-f", "onnx") == ExitCode.UNREADABLE


@pytest.mark.parametrize("form", ["json", "github", "sarif", "junit"])
@pytest.mark.sampled(3)
def test_forms_for_machines(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    assert call("verify", "good.onnx", "bad.onnx", "--format", form) == ExitCode.FINDING
    wrong = capsys.readouterr().out
    assert call("verify", "good.onnx", "good.onnx", "--format", form) == 0
    right = capsys.readouterr().out
    if form == "json":
        for text in (wrong, right):
            data = json.loads(text)
            jsonschema.validate(data, json.loads(schema_path("report", "run.json").read_text()))
            jsonschema.validate(
                data["result"], json.loads(schema_path("report", "verify.json").read_text())
            )
    elif form == "github":
        assert wrong.startswith("::error ") and "act" in wrong and right.strip() == ""
    elif form == "sarif":
        assert (
            json.loads(wrong)["runs"][0]["results"][0]["ruleId"] == "N401"
            and json.loads(right)["runs"][0]["results"] == []
        )
    else:
        assert (
            int(ET.fromstring(wrong).get("failures", "0")) > 0
            and ET.fromstring(right).get("failures") == "0"
        )


def test_refusals_are_in_the_form_that_was_asked_for(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("inspect", "absent.onnx", "--format", "json") == ExitCode.UNREADABLE
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, json.loads(schema_path("report", "run.json").read_text()))
    assert data["exit_code"] == 4 and data["diagnostics"][0]["code"] == "R100"
    assert call("verify", "good.onnx", "--format", "json") == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["code"] == "U501"


def test_a_log_of_diagnostics(call: Call, nets: Path) -> None:
    assert call("inspect", "absent.onnx", "--log", "log.jsonl") == ExitCode.UNREADABLE
    events = [json.loads(line) for line in (nets / "log.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events] == ["diagnostic", "end"] and events[1]["exit_code"] == 4


def test_settings_come_in_order(
    call: Call, nets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def seed() -> int:
        assert call("verify", "good.onnx", "good.onnx", "--format", "json") == 0
        return int(json.loads(capsys.readouterr().out)["result"]["seed"])

    assert seed() == 0
    (nets / "pyproject.toml").write_text(
        "[tool.netconv]\nseed = 1\n[tool.netconv.verify]\nseed = 2\n"
    )
    assert seed() == 2
    monkeypatch.setenv("NETCONV_SEED", "3")
    assert seed() == 3
    assert call("verify", "good.onnx", "good.onnx", "--seed", "4", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["result"]["seed"] == 4
    assert call("env", "--settings") == 0
    assert "environment NETCONV_SEED" in capsys.readouterr().out
    (nets / "netconv.toml").write_text("[vrify]\nseed = 1\n")
    assert call("verify", "good.onnx", "good.onnx") == ExitCode.USAGE


def test_a_bug_is_apologised_for_in_one_line(
    call: Call, nets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("converter.commands.inspect.table", lambda *_: 1 / 0)
    monkeypatch.setattr("tempfile.tempdir", str(nets))
    assert call("inspect", "good.onnx") == ExitCode.BUG
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "ZeroDivisionError" in err
    assert "Traceback" in next(nets.glob("netconv-crash-*.txt")).read_text()


def test_an_interruption_is_130(call: Call, nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("converter.commands.inspect.table", stop)
    assert call("inspect", "good.onnx") == ExitCode.INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module",
    [
        "converter.commands.startup",
        "converter.cli.app",
        "click.core",
        "converter.errors",
        "converter.cli.commands.formats",
    ],
)
def test_an_interruption_of_the_start_is_130(number: int, module: str) -> None:
    """A request to end that comes while Python imports the modules of the command line."""
    code = f"""
import signal, sys
class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            signal.raise_signal({int(number)})
sys.meta_path.insert(0, Interrupting)
sys.argv = ["netconv", "formats"]
# as usual, even where whoever runs these tests ignores them
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from converter.cli import main
main()
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=HANG
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (
        interrupt.INTERRUPTED,
        "",
        "interrupted",
    )
    assert int(ExitCode.INTERRUPTED) == interrupt.INTERRUPTED


def test_an_interruption_while_a_library_is_loaded_is_130(nets: Path) -> None:
    """onnx's own module calls Python while it is loaded; an exception there would be swallowed, or
    abort the process.
    """
    code = """
import signal, sys
from importlib.machinery import ExtensionFileLoader
def watch(frame, event, argument):
    while event == "call" and (frame := frame.f_back) is not None:
        if frame.f_code.co_name != "exec_module":
            continue
        loader = frame.f_locals.get("self")
        if isinstance(loader, ExtensionFileLoader) and "onnx_cpp2py" in loader.name:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGTERM)
            break
sys.argv = ["netconv", "convert", "good.onnx", "-o", "made.onnx"]
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from converter.cli import main
sys.setprofile(watch)
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=nets,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        interrupt.INTERRUPTED,
        "",
        "interrupted\n",
    )
    assert not (nets / "made.onnx").exists()


def test_standard_input_and_output(nets: Path) -> None:
    command = [sys.executable, "-m", "converter.cli", "convert", "-", "-o", "-", "-t", "onnx"]
    done = subprocess.run(
        command,
        input=(nets / "good.onnx").read_bytes(),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    (nets / "out.onnx").write_bytes(done.stdout)
    assert converter.verify(nets / "good.onnx", nets / "out.onnx").passed


def test_a_closed_pipe_is_silent(nets: Path) -> None:
    rng = np.random.default_rng(0)
    converter.save(copy_of(resnet(rng)), nets / "resnet.onnx")
    command = (
        f"'{sys.executable}' -m converter.cli inspect resnet.onnx --of json -v | true; "
        f"exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=nets,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page_with_examples(
    call: Call, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert call(command, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: netconv {command}") and "Examples:" in out and "--format" in out
    assert len(out.splitlines()) <= 70


@pytest.mark.parametrize(
    ("begun", "offered"),
    [
        ("o", ["openvino", "onnx"]),
        ("openvino+i", [f"openvino+ir={v}" for v in ("5", "6", "7", "10", "11")]),
        ("openvino+ir=7+", ["openvino+ir=7+ir=5"]),
        ("tflite+f", ["tflite+fp16"]),
        ("nothing+", []),
    ],
)
def test_completion_knows_flavors(begun: str, offered: list[str]) -> None:
    from converter.cli.common import FormatName

    found = [
        i.value
        for i in FormatName(flavors=True).shell_complete(None, None, begun)  # type: ignore[arg-type]
    ]
    assert found[: len(offered)] == offered and bool(found) == bool(offered)
    assert all("+" not in i.value for i in FormatName().shell_complete(None, None, ""))  # type: ignore[arg-type]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['netconv', '--help']\nfrom converter.cli import "
        "main\ntry:\n    main()\nexcept SystemExit:\n    print(*sys.modules)"
    )
    loaded = run_python(code).split()
    assert not {
        "numpy",
        "onnx",
        "onnx_ir",
        "lxml",
        "rich",
        "google.protobuf",
        "tomllib",
        "converter.formats",
    } & set(loaded)


MODULES = """
import sys
sys.argv = ["netconv", "convert", sys.argv[1], "-o", sys.argv[2], "--inputs", "x:1,3,8,8"]
from converter.cli import main
try:
    main()
finally:
    print(*sys.modules)
    import onnx_ir
    print((onnx_ir.SymbolicDim("max(n, 3)") * 2).evaluate({"n": 5}))
"""


@pytest.mark.parametrize(
    "target", ["good.xml", "good.mlmodel", "good.txt", "good.nnapi.json", "again.onnx"]
)
@pytest.mark.sampled(3)
def test_a_conversion_loads_no_engine_and_no_algebra(
    nets: Path, tmp_path: Path, target: str
) -> None:
    """sympy is half of the imports of onnx_ir; it is there on demand."""
    *_, modules, product = run_python(
        MODULES, str(nets / "good.onnx"), str(tmp_path / target)
    ).splitlines()
    assert not {
        "sympy.core",
        "mpmath",
        "onnxruntime",
        "coremltools",
        "openvino",
        "tflite",
        "rich",
    } & set(modules.split())
    assert {"onnx_ir", "sympy"} <= set(modules.split()) and product == "10"


def test_the_content_decides_and_a_wrong_suffix_is_a_warning(
    call: Call, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (nets / "good.xml").write_bytes((nets / "good.onnx").read_bytes())
    assert call("inspect", "good.xml") == 0
    assert "warning[R108]" in capsys.readouterr().err
    assert call("inspect", "good.xml", "--strict") == ExitCode.FINDING
    assert call("inspect", "good.xml", "--strict", "-f", "onnx") == 0


def test_nothing_is_left_when_the_map_cannot_be_made(
    call: Call, nets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise unreadable("R105", "what was written cannot be read")

    monkeypatch.setattr(provenance, "provenance_map", refuse)
    before = sorted(nets.iterdir())
    assert (
        call("convert", "good.onnx", "-o", "out.xml", "--inputs", "x:1,3,8,8", "--map")
        == ExitCode.UNREADABLE
    )
    assert sorted(nets.iterdir()) == before


def test_run_prints_and_writes_sequences(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("SequenceConstruct", ["x", "x", "x"], ["y"])], "g", [x], [y]
    )
    (tmp_path / "net.onnx").write_bytes(
        onnx.helper.make_model(
            graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)]
        ).SerializeToString()
    )
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert call("run", "net.onnx", "--data", "x=x.npy", "--out", "found.npz") == 0
    assert "y  sequence[3]" in capsys.readouterr().out
    assert sorted(np.load(tmp_path / "found.npz")) == ["y.0", "y.1", "y.2"]
