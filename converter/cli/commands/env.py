"""netconv env"""

from __future__ import annotations

from converter.cli.common import option, subcommand
from converter.cli.console import Console

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


@subcommand("env", examples="netconv env\nnetconv env --settings")
@option(
    "--settings",
    "with_settings",
    is_flag=True,
    help="Every setting with its value and where that comes from.",
)
def command(console: Console, with_settings: bool) -> None:
    """Versions and engines, for a report of a problem; or the settings in force."""
    if with_settings:
        _settings(console)
        return
    import platform
    from importlib import metadata

    import converter

    found = {
        "netconv": converter.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    console.result = found
    for name, version in found.items():
        console.say(f"{name:16} {version}")


def _settings(console: Console) -> None:
    from converter.cli.app import COMMANDS, app
    from converter.cli.settings import origins

    console.result = {}
    for name in COMMANDS:
        own = app.get_command(None, name)  # type: ignore[arg-type]
        assert own is not None
        console.result[name] = {
            k: {"value": v, "from": origin} for k, (v, origin) in origins(own).items()
        }
        for key, (value, origin) in origins(own).items():
            if (
                origin != "default"
                or console.verbosity > 0
                or key not in ("quiet", "verbose", "color", "format", "strict", "log")
            ):
                console.say(f"{name:10} {key.replace('_', '-'):10} {value!s:14} {origin}")
