"""The versions of netconv and of the packages and engines that it uses."""

from __future__ import annotations

import platform
from importlib import metadata

from converter import version

ABSENT = "not installed"
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


def versions() -> dict[str, str]:
    """Return the version of netconv, Python, the platform and each package, or ABSENT."""
    found = {
        "netconv": version.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = ABSENT
    return found
