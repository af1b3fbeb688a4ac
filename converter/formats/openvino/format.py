"""OpenVINO IR as netconv sees it."""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".xml",)

# possessive: hostile comments must not be matched in every possible way
_PROLOG = rb"(?>\s+|<\?(?>.*?\?>)|<!--(?>.*?-->))*+"
_NET = re.compile(_PROLOG + rb"<net[\s/>]", re.DOTALL)


def sniff(head: bytes, path: Path | None = None) -> bool:
    """Whether a file that begins with `head` is OpenVINO IR: XML whose root element is `<net>`."""
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if head.startswith(bom):
            head = head[2:].decode(encoding, "ignore").encode()
    return _NET.match(head.removeprefix(b"\xef\xbb\xbf")) is not None
