"""SHA-256 of short texts.

Python's `hashlib` loads OpenSSL, which takes as much memory as a small network. Python has the same
function in a module of its own, which its `random` imports in the same way; it is slower for long
texts.
"""

from __future__ import annotations

try:
    from _sha2 import sha256 as sha256  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # Python 3.11
    try:
        from _sha256 import sha256 as sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256 as sha256
