"""netconv env"""

from __future__ import annotations

from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.batch import EnvCommand


@subcommand("env", EnvCommand, examples="netconv env\nnetconv env --settings")
def command(console: Console, options: EnvCommand) -> None:
    """Show versions and engines, for a bug report; or, with --settings, all settings."""
    if options.with_settings:
        _settings(console)
        return
    from converter.commands.versions import versions

    console.result = found = versions()
    for name, found_version in found.items():
        console.say(f"{name:16} {found_version}")


def _settings(console: Console) -> None:
    from converter.cli.names import COMMANDS, command
    from converter.cli.settings import origins

    console.result = {}
    for name in COMMANDS:
        found = origins(command(name))
        console.result[name] = {k: {"value": v, "from": origin} for k, (v, origin) in found.items()}
        for key, (value, origin) in found.items():
            if (
                origin != "default"
                or console.verbosity > 0
                or key not in ("quiet", "verbose", "color", "format", "strict", "log")
            ):
                console.say(f"{name:10} {key.replace('_', '-'):10} {value!s:14} {origin}")
