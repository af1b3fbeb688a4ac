"""netconv env"""

from __future__ import annotations

from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.commands.options.batch import EnvCommand

PACKAGES = (
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "protobuf",
    "numpy",
    "lxml",
    "click",
    "coremltools",
    "openvino",
    "ai-edge-litert",
    "coreai-core",
    "tflite",
)


@subcommand("env", EnvCommand, examples="netconv env\nnetconv env --settings")
def command(console: Console, options: EnvCommand) -> None:
    """Show versions and engines, for a bug report; or, with --settings, all settings."""
    if options.with_settings:
        _settings(console)
        return
    import platform
    from importlib import metadata

    from converter import version

    found = {
        "netconv": version.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    console.result = found
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
