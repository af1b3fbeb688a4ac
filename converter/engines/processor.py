"""Properties of this processor: whether products of 8-bit integers saturate."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_X86 = ("x86_64", "AMD64", "i686")
_VNNI = {"avx_vnni", "avx512_vnni", "avx_vnni_int8"}


@functools.cache
def saturates() -> bool:
    """Return whether onnxruntime's kernels add 8-bit products with saturation: on x86 with AVX2 and
    without VNNI; False where the features are not known
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).
    """
    if platform.machine() not in _X86:
        return False
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return without_vnni(text)


def without_vnni(text: str) -> bool:
    """Return whether the features of a processor, as Linux lists them, have AVX2 but no VNNI."""
    lines = (line.partition(":")[2] for line in text.splitlines() if line.startswith("flags"))
    flags = set(next(lines, "").split())
    return "avx2" in flags and not flags & _VNNI
