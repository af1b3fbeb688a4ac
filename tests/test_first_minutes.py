"""The command line as newcomers use it: where results go, old spellings, colors, help, a manual."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from converter.cli import app, console
from converter.cli.commands import batch as batch_command
from converter.cli.names import COMMANDS, GROUPS, command
from converter.commands.batch import progress, run
from converter.commands.batch.job import Done, Job
from converter.commands.options.declare import Kind, declared
from converter.errors import ExitCode
from support import SAMPLES

Call = Callable[..., int]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run netconv in a folder with digits.mlmodel and return the exit code."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SAMPLES / "digits_cnn.mlmodel", tmp_path / "digits.mlmodel")

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (["a.onnx"], "a.onnx"),
        (["-o", "a.onnx"], "a.onnx"),
        (["made/", "-t", "onnx"], "made/digits.onnx"),
        (["-o", "deep/er/", "-t", "onnx"], "deep/er/digits.onnx"),
        (["there", "-t", "onnx"], "there/digits.onnx"),
        (["a.onnx/"], "a.onnx"),
    ],
)
def test_where_a_result_goes(
    call: Call, tmp_path: Path, arguments: list[str], written: str
) -> None:
    (tmp_path / "there").mkdir()
    assert call("convert", "digits.mlmodel", *arguments) == 0
    assert (tmp_path / written).is_file()
    files = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {tmp_path / "digits.mlmodel", tmp_path / written}


def test_a_part_has_an_output_as_a_whole_model(call: Call, tmp_path: Path) -> None:
    assert call("extract", "digits.mlmodel", "part.onnx", "--start", "relu1") == 0
    assert (tmp_path / "part.onnx").is_file()


def test_a_failed_conversion_leaves_no_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert call("convert", "broken.onnx", "made/", "-t", "tflite") == ExitCode.UNREADABLE
    assert not (tmp_path / "made").exists()


def test_a_missing_input_is_reported_before_an_existing_output(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.onnx").touch()
    assert call("convert", "digit.mlmodel", "out.onnx") == ExitCode.UNREADABLE
    printed = capsys.readouterr().err
    assert "perhaps you meant 'digits.mlmodel'" in printed and "--force" not in printed


OLD = {
    "check": {"--from-format", "--to-format"},
    "convert": {"--from-format", "--to-format"},
    "extract": {"--from", "--to"},
    "inspect": {"--of"},
    "explain": {"--of"},
    "report": {"--to"},
    "run": {"--out"},
    "verify": {"--report", "--from-a", "--from-b"},
    "diff": {"--from-ref", "--from-cand"},
    "batch": {"--memory", "--state", "--to-format"},
}


def test_old_spellings_are_accepted_and_not_shown() -> None:
    for name, spellings in OLD.items():
        found = {a: d for d in declared(command(name).options) for a in d.aliases}
        assert spellings <= found.keys(), name
        ctx = click.Context(command(name), info_name=name)
        shown = command(name).get_help(ctx)
        assert not {s for s in spellings if re.search(rf"{s}[ ,\n]", shown)}, name
        parser = command(name).make_parser(ctx)
        for old in spellings:
            known = parser._long_opt
            assert known[old].dest == known[found[old].flags[-1]].dest


def test_a_word_of_the_command_line_has_one_meaning() -> None:
    """The long spellings that are shown have one kind of value in all commands."""
    kinds: dict[str, set[object]] = {}
    for name in COMMANDS:
        for d in declared(command(name).options):
            for flag in d.flags:
                kind = Kind.PLACE if d.option.kind is Kind.FILE else d.option.kind
                kinds.setdefault(flag, set()).add(kind)
    several = {flag for flag, found in kinds.items() if len(found) > 1}
    assert not several


def test_an_old_key_of_a_job_file_is_valid(call: Call, tmp_path: Path) -> None:
    text = 'memory = "2G"\n[[job]]\nmodels = "digits.mlmodel"\nto = "onnx"\nmax-memory = "4G"\n'
    (tmp_path / "jobs.toml").write_text(text)
    jobs = batch_command._plan("jobs.toml", command("batch").options())
    assert [j.memory for j in jobs.jobs] == [4 << 30]
    (tmp_path / "jobs.toml").write_text(text.replace("max-memory", "timeout").replace('"4G"', "3"))
    jobs = batch_command._plan("jobs.toml", command("batch").options())
    assert [j.memory for j in jobs.jobs] == [2 << 30]


@pytest.mark.parametrize(
    ("variables", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"CLICOLOR_FORCE": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colors_are_forced_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], colored: bool
) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert console.Console().colored(io.StringIO()) == colored


def test_the_help_has_groups_and_common_options_once(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"\n{title}:\n" in shown for title in GROUPS)
    assert "--allow CODE" in shown and "TensorFlow Lite" in shown
    assert call("convert", "--help") == 0
    own = capsys.readouterr().out
    assert "--allow CODE" not in own and "--format FORM" in own and "IN [OUT]" in own


def test_the_manual_names_all_commands_options_and_exit_codes(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--man") == 0
    page = capsys.readouterr().out
    assert page.startswith(".TH NETCONV 1")
    for name in COMMANDS:
        assert f".SH NETCONV {name.upper()}".replace("-", r"\-") in page
        for d in declared(command(name).options):
            assert d.flags[-1].replace("-", r"\-") in page
    assert all(rf"\fB{int(code)}\fR" in page for code in ExitCode)
    if man := shutil.which("groff"):
        done = subprocess.run(
            [man, "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr


def _job(name: str) -> Done:
    outcome = {"exit_code": 0, "diagnostics": []}
    return Done(Job(name, "convert", name, "onnx", "", {}), outcome)


@pytest.mark.parametrize("width", [80, 120])
def test_progress_keeps_its_bar_with_a_long_name(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    name = f"some-long-project-name-0/model_056_{'x' * 60}.onnx -> tflite"
    with progress.shown(604, print, bar=True) as tell:
        tell(_job(name))
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().err)
    last = [line for line in re.split(r"[\r\n]", lines) if "1/604" in line][-1]
    assert last.count("━") + last.count("╸") + last.count("╺") >= 15
    assert "left" in last and "0:00:0" in last and "some-l" in last and len(last) <= width


def test_an_interrupted_batch_says_how_far_it_came(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(
        plan: object, settings: object, tell: Callable[[Done], None], _: object
    ) -> None:
        tell(_job("digits.mlmodel -> onnx"))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", interrupted)
    code = call("batch", ".", "-t", "onnx", "-t", "tflite", "-o", "out")
    assert code == ExitCode.INTERRUPTED
    printed = capsys.readouterr().err
    assert "1 of 2 jobs are done; run the same command again to do the rest" in printed


def test_a_wrong_setting_names_its_origin(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "netconv.toml").write_text('seed = "many"\n')
    assert call("run", "digits.mlmodel") == ExitCode.USAGE
    assert f"the settings in {tmp_path / 'netconv.toml'}" in capsys.readouterr().err
    monkeypatch.setenv("NETCONV_SEED", "x")
    assert call("run", "digits.mlmodel") == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert "'x' is not a valid integer" in printed
    assert "the environment variable NETCONV_SEED" in printed
