"""Zhouyi Compass IR as a format: what it looks like from outside. Nothing heavy is imported here."""

from __future__ import annotations

import os
import re

_LINE = re.compile(rb"[ \t]*([A-Za-z0-9.:/_;'-]+)[ \t]*=")
_EARLY = frozenset({b"model_name", b"layer_number", b"layer_id", b"subgraph_name"})


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether the first bytes of a file are `key=value` lines with one of the keys that begin every header or layer block. `path` is not looked at."""
    if b"\0" in head:
        return False
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf")[:4096].split(b"\n") if line.strip()]
    # the last line may be cut off, so it is not asked to be whole
    keys = [m[1] if (m := _LINE.match(line)) else b"" for line in (lines[:-1] or lines)[:12]]
    return bool(keys) and all(keys) and not _EARLY.isdisjoint(keys)
