"""An option is declared once: the command line, Python, settings and job files are made of it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import converter
from converter.cli import settings
from converter.cli.app import app
from converter.cli.names import COMMANDS, command
from converter.cli.options import subcommand
from converter.commands.batch import plan
from converter.commands.options.batch import JobLimits
from converter.commands.options.convert import Convert, ConvertCommand
from converter.commands.options.declare import (
    Group,
    Kind,
    Options,
    common,
    declared,
    of_job,
    option,
    options,
    takes,
)
from converter.commands.options.general import General
from converter.commands.options.quantize import Quantize, QuantizeCommand
from converter.commands.options.verify import Verify, VerifyCommand
from converter.errors import UsageError
from support import run_python

PYTHON: dict[str, tuple[type[Any], type[Any]]] = {
    "convert": (Convert, ConvertCommand),
    "verify": (Verify, VerifyCommand),
    "quantize": (Quantize, QuantizeCommand),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_is_an_option_of_the_command(name: str) -> None:
    found = command(name)
    expected = [*declared(found.options), *declared(General)]
    assert [(p.name, p.opts) for p in found.params if isinstance(p, click.Option)] == [
        (d.field.name, list(d.flags)) for d in expected
    ]
    own = CliRunner().invoke(found, ["--help"], prog_name="netconv").output
    every = CliRunner().invoke(app, ["--help"], prog_name="netconv").output
    for d in expected:
        common = d.option.group is Group.GENERAL and d.name in {g.name for g in declared(General)}
        assert f"\n  {', '.join(d.flags)}" in (every if common else own)
        assert f"\n{d.option.group.value}:\n" in own or common
    assert {p.envvar for p in found.params} - {None} == {d.variable for d in expected} - {None}


@pytest.mark.parametrize("name", PYTHON)
def test_every_field_is_a_parameter_in_python(name: str) -> None:
    cls, of_command = PYTHON[name]
    assert issubclass(of_command, cls)
    call = getattr(converter, name)
    _, _, *parameters = inspect.signature(call).parameters.values()
    assert [(p.name, p.default) for p in parameters] == [
        (f.name, f.default) for f in sorted(dataclasses.fields(cls), key=lambda f: bool(f.kw_only))
    ]
    for d in declared(cls):
        assert f"{d.field.name}: {d.option.python or d.option.help}" in inspect.getdoc(call)


def test_positional_arguments_in_python() -> None:
    def positional(call: Callable[..., Any]) -> list[str]:
        found = inspect.signature(call).parameters.values()
        return [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]

    assert positional(converter.convert) == ["src", "dst", "source", "target", "dequantize"]
    assert positional(converter.verify) == ["reference", "candidate", "data"]
    assert inspect.signature(converter.convert).parameters["force"].default is True
    assert inspect.signature(converter.verify).parameters["native"].default == "auto"


def test_the_settings_are_the_options_that_say_so() -> None:
    every = {d for n in COMMANDS for d in (*declared(command(n).options), *declared(General))}
    assert settings.settable() == {d.name for d in every if d.option.settable}
    assert {"seed", "io-layout", "metric", "jobs", "log"} <= settings.settable()
    assert not {"output", "inputs", "weights", "verify"} & settings.settable()


def test_job_files_have_the_keys_that_the_options_say() -> None:
    job = {k for cls in (Convert, JobLimits) for d in declared(cls) if d.option.job for k in d.keys}
    assert plan.KEYS.keys() == {"models", "exclude", "to", "action", "verify", "quantize"} | job
    assert plan.TOP.keys() == {"out", "job"} | {k for d in declared(JobLimits) for k in d.keys}
    compared = {d.name for d in declared(Verify) if d.option.job}
    assert plan.VERIFY.keys() == compared - plan.KEYS.keys()
    assert {"data", "rtol", "metric", "native"} <= plan.VERIFY.keys()
    quantized = {k for d in declared(Quantize) if d.option.job for k in d.keys}
    assert plan.QUANTIZE.keys() == quantized - plan.OF_MODEL.keys()
    made = of_job(Verify, {"metric": ["cos"], "seed": 3}, native="off")
    assert (made.metrics, made.seed, made.native) == (["cos"], 3, "off")
    assert of_job(Quantize, {"weights": "int4"}).weights == "int4"  # a hidden spelling
    assert of_job(Quantize, {"compress": "int8"}).weights == "int8"
    assert of_job(Convert, {"io_layout": "keep", "from": "onnx"}).source == "onnx"


# --- one edit: a class with one more field


@options
class Little(Options):
    level: int = option(
        default=3,
        kind=Kind.INTEGER,
        least=1,
        help="How much.",
        group=Group.CHANGES,
        settable=True,
        job=int,
    )
    names: Sequence[str] = option(
        default=(), flags=("-n", "--name"), repeatable=True, help="Who.", group=Group.INPUT
    )
    exactly: bool = option(default=True, kind=Kind.FLAG, help="No less.", group=Group.CHANGES)


SEEN: list[Any] = []


@subcommand("little", Little, examples="netconv little x")
@click.argument("file")
def little(console: Any, options: Little, file: str) -> None:
    """A command."""
    SEEN.append((file, options.level, options.names, options.exactly))


@takes(Little)
def little_in_python(a: str, b: str, options: Little) -> tuple[Any, ...]:
    """Do a little."""
    return a, b, options.level, options.names, options.exactly


def test_a_field_is_all_that_an_option_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> Any:
        SEEN.clear()
        result = CliRunner().invoke(little, ["f", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return SEEN[0]

    assert called() == ("f", 3, (), False)
    assert called("-n", "a", "--name", "b", "--exactly") == ("f", 3, ("a", "b"), True)
    assert called("--level", "5")[1] == 5
    monkeypatch.setenv("NETCONV_LEVEL", "7")
    assert called()[1] == 7
    monkeypatch.delenv("NETCONV_LEVEL")
    (tmp_path / "netconv.toml").write_text("level = 9\n")
    assert called()[1] == 9
    assert settings.origins(little)["level"][0] == 9
    assert of_job(Little, {"level": 2}).level == 2
    assert little_in_python("x", "y", names=["z"]) == ("x", "y", 3, ["z"], True)
    assert little_in_python(a="x", b="y", level=1)[2] == 1
    with pytest.raises(TypeError, match=r"little_in_python\(\) .*'levl'"):
        little_in_python("x", "y", levl=1)  # type: ignore[call-arg]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Little().level = 4  # type: ignore[misc]


def test_options_of_one_class_as_those_of_another() -> None:
    made = common(Convert, ConvertCommand(output="x", io_layout="native", force=False))
    assert type(made) is Convert and (made.io_layout, made.force) == ("native", False)


def test_a_setting_of_another_command_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "netconv.toml").write_text('seeds = 2\n[convert]\nio_layout = "keep"\n')
    assert settings.load(settings.find(), command("convert")) == {"io_layout": "keep"}
    assert settings.load(settings.find(), command("verify")) == {"seeds": 2}
    (tmp_path / "netconv.toml").write_text('verify = "x"\n')
    with pytest.raises(UsageError, match="setting 'verify' is not known"):
        settings.load(settings.find(), command("verify"))


def test_the_classes_of_options_load_nothing_heavy() -> None:
    modules = ", ".join(f"converter.commands.options.{m}" for m in ("batch", "convert", "verify"))
    loaded = set(run_python(f"import sys, {modules}\nprint(*sys.modules)").split())
    assert (
        not {"numpy", "onnx", "onnx_ir", "click", "converter.formats", "converter.graph"} & loaded
    )
