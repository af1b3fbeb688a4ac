"""SHA-256 of short texts.

Python's `hashlib` loads OpenSSL, which takes as much memory as a small network. Python has the same
function in a module of its own, which its `random` imports in the same way.
"""

from __future__ import annotations

from typing import Any

try:
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # Python 3.11
    try:
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256 as _sha256


def sha256(data: bytes = b"") -> Any:
    """Return a hash object like that of `hashlib`; for short texts, long ones are slower."""
    return _sha256(data)
