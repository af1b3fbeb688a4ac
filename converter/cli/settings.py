"""The source of an option's value: the flag, the variable NETCONV_X, netconv.toml or
[tool.netconv], the default; in this order.

The settings file is searched in the working folder and its parents; the first netconv.toml, or
pyproject.toml with a table [tool.netconv], is used. Keys are the long names of options; a table
named after a command holds values for that command alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from converter.cli.declared import declared_options
from converter.cli.names import COMMANDS, command
from converter.errors import did_you_mean, wrong_call


def find() -> Path | None:
    """Return the settings file: NETCONV_CONFIG, or the nearest one in the working folder or its
    parents.
    """
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


def load(path: Path | None, of: click.Command) -> dict[str, Any]:
    """Return the file's values for a command, by parameter name. Raises UsageError for keys that no
    command has.
    """
    if path is None:
        return {}
    data, known = _parse(path), _settable(of)
    table = data.get(str(of.name))
    own = table if isinstance(table, dict) else {}
    given = {k: v for k, v in data.items() if not isinstance(v, dict)} | own
    keys = {k: k.replace("_", "-") for k in given}
    if not {*keys.values()} <= known.keys():
        every = settable()
        for key, name in keys.items():
            if name not in every:
                listed = sorted(every)
                help = did_you_mean(name, listed, f"use one of {', '.join(listed)}")
                raise wrong_call(f"setting {key!r} is not known", help=help, where=path)
    for key, value in data.items():
        if isinstance(value, dict) and key not in COMMANDS:
            raise wrong_call(f"table [{key}] must be named after a command", where=path)
    return {known[keys[k]]: v for k, v in given.items() if keys[k] in known}


def settable() -> set[str]:
    """Return the settings of all commands."""
    return {key for name in COMMANDS for key in _settable(command(name))}


def _settable(of: click.Command) -> dict[str, str]:
    """Return the settings of a command, with the names of their parameters."""
    found = (p for p in declared_options(of) if p.declared.option.settable)
    return {p.declared.name: str(p.name) for p in found}


def _parse(path: Path) -> dict[str, Any]:
    from converter.io import toml

    data = toml.read(path, "the settings")
    found: dict[str, Any] = (
        data.get("tool", {}).get("netconv", {}) if path.name == "pyproject.toml" else data
    )
    return found


def origins(of: click.Command) -> dict[str, tuple[Any, str]]:
    """Return, for each settable option of a command, its current value and the source of the
    value.
    """
    path = find()
    from_file = load(path, of)
    result: dict[str, tuple[Any, str]] = {}
    for p in declared_options(of):
        key = p.declared.name.replace("-", "_")
        if not p.declared.option.settable:
            continue
        if (env := p.declared.variable) in os.environ:
            result[key] = (os.environ[str(env)], f"environment {env}")
        elif p.name in from_file:
            result[key] = (from_file[str(p.name)], f"file {path}")
        else:
            result[key] = (p.to_info_dict().get("default"), "default")
    return result
