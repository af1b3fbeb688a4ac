"""`import netconv` in programs: completion, models of every kind, errors, warnings, texts."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import converter
from converter import functions, testing, version
from converter.api import Model
from converter.errors import NetconvWarning, ReadError, UsageError, WriteError
from converter.graph.build import new_model
from converter.io import extras
from support import HANG, ROOT, SAMPLES

CNN = SAMPLES / "digits_cnn.mlmodel"
ALIAS = ROOT / "converter" / "alias"
SHAPE = (1, 3, 4, 4)
X = np.arange(48, dtype=np.float32).reshape(SHAPE)


def network(alpha: float = 0.1, kind: Any = ir.DataType.FLOAT) -> Model:
    model, b = new_model()
    x = b.input("image", kind, list(SHAPE))
    b.output(b.op("LeakyRelu", b.op("Neg", x, name="minus"), alpha=alpha, name="act"))
    return Model(model, "onnx")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    converter.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_completion_shows_the_functions() -> None:
    shown = dir(converter)
    assert {"load", "convert", "verify", "errors", "testing"} <= {*shown}
    assert not {"Any", "TYPE_CHECKING", "os"} & {*shown}
    assert all(getattr(converter, name) is not None for name in converter.__all__)
    assert all((getattr(converter, n).__doc__ or "").strip() for n in functions.__all__)
    assert "TensorFlow Lite" in (converter.__doc__ or "")


def test_models_of_every_kind(net: Path, tmp_path: Path) -> None:
    expected = converter.load(net)(X)["act"]
    kinds = [
        *(net, str(net), net.read_bytes(), onnx.load(net), ir.load(net), network()),
        converter.load(net),
    ]
    for i, model in enumerate(kinds):
        assert (converter.load(model).run(X)["act"] == expected).all()
        target = tmp_path / f"{i}.tflite"
        converter.convert(model, target)
        assert (converter.run(target, X)["act"] == expected).all()
    with pytest.raises(ValueError, match="not int"):
        converter.load(3)


def test_a_model_in_memory_is_not_changed_by_a_conversion(tmp_path: Path) -> None:
    model = network()
    converter.convert(model, tmp_path / "a.onnx", outputs=["minus"])
    assert [o.name for o in model.outputs] == ["act"]
    assert [o.name for o in converter.load(tmp_path / "a.onnx").outputs] == ["minus"]


def test_ways_to_run(net: Path) -> None:
    model = converter.load(net)
    expected = model.run({"image": X})["act"]
    for found in (model(X), model(image=X), model.run(X), model.run(image=X), model({"image": X})):
        assert (found["act"] == expected).all()
    for call, text in (
        (lambda: model(X[:, 0]), r"the input is image float32\[1,3,4,4\], .* \[1,4,4\]"),
        (lambda: model(np.zeros((1, 3, 4, 5))), r"\[1,3,4,5\]"),
        (lambda: model(X, X), "2 arrays are given, the model has 1 inputs"),
        (lambda: model(picture=X), "input 'picture' is not known"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_errors_are_pythons_own_too(net: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as absent:
        converter.load(tmp_path / "nett.onnx")
    assert isinstance(absent.value, ReadError) and "net.onnx" in str(absent.value)
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(OSError) as empty:
        converter.load(tmp_path / "empty.onnx")
    assert isinstance(empty.value, ReadError) and not isinstance(empty.value, FileNotFoundError)
    with pytest.raises(ValueError) as wrong:
        converter.convert(net, tmp_path / "a.onx")
    assert isinstance(wrong.value, UsageError)
    with pytest.raises(OSError) as exists:
        converter.convert(net, net.with_name("other.onnx"), force=False)
        converter.convert(net, net.with_name("other.onnx"), force=False)
    assert isinstance(exists.value, WriteError) and exists.value.exit_code == 5


def test_warnings_and_a_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, b = new_model()
    b.output(b.op("Exp", b.input("x", ir.DataType.DOUBLE, [2])))
    with pytest.warns(NetconvWarning, match="X205") as found, caplog.at_level(logging.INFO):
        converter.convert(Model(model, "onnx"), tmp_path / "d.tflite")
    assert found[0].filename == __file__
    assert {r.name for r in caplog.records} == {"netconv"}
    with warnings.catch_warnings(), caplog.at_level(logging.INFO):
        warnings.simplefilter("error")
        converter.convert(CNN, tmp_path / "c.tflite")  # a note is no warning
    assert "float64" in caplog.text


def test_progress_names_the_steps(net: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    converter.convert(net, tmp_path / "a.xml", progress=steps.append)
    assert steps == ["reading net.onnx", "writing a.xml"]
    steps.clear()
    converter.verify(net, tmp_path / "a.xml", native="off", progress=steps.append)
    assert steps


def test_short_descriptions(net: Path, tmp_path: Path) -> None:
    model = converter.load(net)
    assert repr(model) == (
        "<Model net.onnx onnx, 2 nodes, image float32[1,3,4,4] -> act float32[1,3,4,4]>"
    )
    assert str(model).startswith("net.onnx  onnx (IR version 10, opset 21), 2 layers")
    assert model._repr_html_().startswith("<iframe")
    result = converter.verify(network(), network(0.2), native="off")
    assert repr(result).startswith("<Result different: reference and candidate, 1 outputs, ")
    assert "alpha  0.1 became 0.2" in str(result) and len(repr(result)) < 200
    page = result.to_html(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == page and page.startswith("<!")
    assert "srcdoc" in result._repr_html_()


def test_assert_same_shows_the_comparison() -> None:
    assert testing.assert_same(network(), network(), native="off").passed
    with pytest.raises(AssertionError, match=r"alpha  0\.1 became 0\.2"):
        testing.assert_same(network(), network(0.2), native="off")


def test_every_command_is_a_function(net: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    converter.save(network(0.2), other)
    assert converter.check(net) and converter.check(network(), "tflite")
    model, b = new_model()
    b.output(b.op("Exp", b.input("x", ir.DataType.FLOAT, ["n"])))
    refused = converter.check(Model(model, "onnx"), "nnapi")
    assert not refused and refused.coverage is not None and "X203" in str(refused)
    assert [c.kind for c in converter.diff(net, other)] == ["LeakyRelu"]
    assert "alpha" in str(converter.diff(net, other)) and not converter.diff(net, net)
    converter.extract(net, tmp_path / "part.onnx", start=["minus"], rename={"minus": "m"})
    assert [i.name for i in converter.load(tmp_path / "part.onnx").inputs] == ["m"]
    reduced = converter.reduce(net, other, output=tmp_path / "case")
    assert reduced is not None and (tmp_path / "case" / "README.md").is_file()
    assert converter.reduce(net, net) is None
    assert converter.roundtrip(net, "tflite").same_numbers
    page = converter.view(net, other, tmp_path / "v.html")
    assert (tmp_path / "v.html").is_file() and "<iframe" in page._repr_html_()
    assert converter.inspect(net)["nodes"] == 2


@pytest.mark.slow
def test_a_batch_and_its_report(net: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    net.rename(tmp_path / "models" / "net.onnx")
    done: list[str] = []
    found = converter.batch(
        tmp_path / "models", "tflite", tmp_path / "out", jobs=1, progress=done.append
    )
    assert found.passed and str(found) == "1 ok" and done == ["net.onnx -> tflite"]


def test_a_folder_is_an_output(net: Path, tmp_path: Path) -> None:
    converter.convert(net, f"{tmp_path}/made/", target="tflite")
    assert (tmp_path / "made" / "net.tflite").is_file()


# --- the name netconv

THEIRS = "def mine():\n    return 'mine'\n"
PROGRAMS = {
    "before": "import converter\nassert converter.mine() == 'mine'\nimport netconv\n"
    "from converter import mine\nassert mine() == 'mine'\n",
    "after": "import netconv\n",
    "parts": "import netconv.errors, converter.errors\n"
    "assert netconv.errors is converter.errors\n"
    "from netconv.graph.network import Network\nassert netconv.Model.__mro__[1] is Network\n"
    "import importlib\nassert importlib.util.find_spec('netconv.errors') is not None\n"
    "assert netconv.errors.__spec__.name == 'converter.errors'\n",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_netconv_is_imported_next_to_a_file_converter_py(program: str, tmp_path: Path) -> None:
    (tmp_path / "converter.py").write_text(THEIRS)
    (tmp_path / "program.py").write_text(
        f"import sys\nsys.path.append({str(ALIAS)!r})\n{PROGRAMS[program]}"
        f"model = netconv.load({str(CNN)!r})\n"
        "assert 'image float64' in repr(model), model\n"
        "doubled = [n for n in sys.modules if n.startswith('netconv.')\n"
        "           and sys.modules[n] is not sys.modules.get('converter' + n[7:])]\n"
        "assert not doubled, doubled\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr


def test_the_command_works_next_to_a_file_converter_py(tmp_path: Path) -> None:
    (tmp_path / "converter.py").write_text(THEIRS)
    script = f"import sys; sys.path.append({str(ALIAS)!r}); from netconv.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0 and "netconv" in done.stdout, done.stderr


def test_a_fixture_for_tests_of_other_projects(net: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    converter.save(network(0.2), other)
    (tmp_path / "test_models.py").write_text(
        f"def test_same(assert_same_model):\n"
        f"    assert_same_model({str(net)!r}, {str(net)!r}, native='off')\n\n"
        f"def test_other(assert_same_model):\n"
        f"    assert_same_model({str(net)!r}, {str(other)!r}, native='off')\n"
    )
    options = ["-p", "converter.pytest_plugin", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_models.py"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert "1 failed, 1 passed" in done.stdout and "alpha  0.1 became 0.2" in done.stdout
    assert "converter/testing.py" not in done.stdout  # the traceback ends in the test


def test_the_package_docstring_begins_with_the_summary() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["description"] == version.SUMMARY and project["version"] == version.__version__
    assert "".join((converter.__doc__ or "").split()).startswith("".join(version.SUMMARY.split()))


def test_a_missing_package_is_named_with_a_command_that_works() -> None:
    assert extras.install("openvino").startswith("pip install 'openvino>=")
    assert "netconv" not in extras.install("batch") and "fsspec" in extras.install("batch")
    found = extras.install_for("hf://org/name/model.onnx")
    assert "fsspec" in found and "hub>=" in found and "dask" not in found
    assert extras.install_for("s3://bucket/a.onnx").endswith(" s3fs")
    assert extras.install("nothing") == "pip install 'netconv[nothing]'"
    for extra in ("openvino", "litert", "coreai", "images", "batch", "hub"):  # those of messages
        assert "netconv[" not in extras.install(extra)


@pytest.mark.parametrize(("name", "last"), [("netconv", ""), ("program.py", "ImportError: ")])
def test_windows_is_refused_politely(name: str, last: str) -> None:
    code = f"import os, sys; sys.argv[0] = {name!r}; os.name = 'nt'; import converter"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    message = "netconv runs on Linux and macOS, not on Windows; use it in WSL there"
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == f"{last}{message}"
    assert ("Traceback" in done.stderr) == bool(last)
