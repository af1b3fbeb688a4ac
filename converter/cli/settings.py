"""Where an option's value comes from: the flag, the variable NETCONV_X, netconv.toml or
[tool.netconv], the default; in this order.

A settings file is looked for in the working folder and above it; the first netconv.toml, or
pyproject.toml with a table [tool.netconv], counts. Keys are the long names of options; a table
named after a command holds what is for that command alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from converter.errors import did_you_mean, wrong_call

# options that may be set outside the command line: not files and names, which belong to one call
SETTABLE = {
    *(
        "quiet",
        "verbose",
        "color",
        "format",
        "strict",
        "log",
        "seed",
        "engine",
        "rtol",
        "atol",
        "metric",
        "io_layout",
        "tensors",
        "mode",
        "data",
        "force",
    ),
    *("jobs", "progress", "scheduler", "seeds", "native"),
}


def variable(option: str) -> str | None:
    """The environment variable of an option, or None when it has none."""
    return f"NETCONV_{option.upper()}" if option in SETTABLE else None


def find() -> Path | None:
    """The settings file: NETCONV_CONFIG, or the nearest one at or above the working folder."""
    if named := os.environ.get("NETCONV_CONFIG"):
        return Path(named)
    try:
        here = Path.cwd()
    except OSError:  # the working folder was removed
        return None
    for folder in (here, *here.parents):
        if (own := folder / "netconv.toml").is_file():
            return own
        if (
            project := folder / "pyproject.toml"
        ).is_file() and b"[tool.netconv" in project.read_bytes():
            return project
    return None


def load(path: Path | None, command: str, known: set[str], commands: set[str]) -> dict[str, Any]:
    """The file's values for a command, by parameter name. UsageError for keys that no command
    has.
    """
    if path is None:
        return {}
    data = _parse(path)
    own = data.get(command, {})
    for key in [*(k for k in data if not isinstance(data[k], dict)), *own]:
        name = key.replace("-", "_")
        if name not in SETTABLE:
            keys = sorted(s.replace("_", "-") for s in SETTABLE)
            help = did_you_mean(name.replace("_", "-"), keys, f"known: {', '.join(keys)}")
            raise wrong_call(f"unknown setting {key!r}", help=help, where=path)
    for key, value in data.items():
        if isinstance(value, dict) and key not in commands:
            raise wrong_call(f"the table [{key}] is not named after a command", where=path)
    merged = {**{k: v for k, v in data.items() if not isinstance(v, dict)}, **own}
    return {k.replace("-", "_"): v for k, v in merged.items() if k.replace("-", "_") in known}


def _parse(path: Path) -> dict[str, Any]:
    from converter.io import toml

    data = toml.read(path, "the settings")
    found: dict[str, Any] = (
        data.get("tool", {}).get("netconv", {}) if path.name == "pyproject.toml" else data
    )
    return found


def origins(command: click.Command) -> dict[str, tuple[Any, str]]:
    """For each settable option of a command: its value now, and where it comes from."""
    from converter.cli.app import COMMANDS

    path = find()
    settable = [p for p in command.params if p.name in SETTABLE]
    from_file = load(path, str(command.name), {str(p.name) for p in settable}, set(COMMANDS))
    result: dict[str, tuple[Any, str]] = {}
    for p in settable:
        name = str(p.name)
        if (env := variable(name)) in os.environ:
            result[name] = (os.environ[str(env)], f"environment {env}")
        elif name in from_file:
            result[name] = (from_file[name], f"file {path}")
        else:
            default = p.to_info_dict().get("default")
            result[name] = (default, "default")
    return result
