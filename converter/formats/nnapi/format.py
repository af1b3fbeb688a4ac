"""How the forms of an NNAPI model are told apart; light, because every file that netconv is given passes here."""

from __future__ import annotations

import os
from pathlib import Path

_WORD = 4
_BLOB_HEADER = 6 * _WORD
_MOST = 2**24


def sniff(head: bytes, path: str | os.PathLike[str]) -> str:
    """ "nnapi", "nnapi+blob" or "tflite" when the first bytes of a file look like that form, else "".

    `head` is the beginning of the file, 4 KiB are plenty. A blob has no magic: its version word, plausible counts and the suffix decide.
    """
    if head[4:8] == b"TFL3":
        return "tflite"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and b'"nnapi-operand-table"' in text:
        return "nnapi"
    if Path(path).suffix == ".nnapi" and _is_blob(head):
        return "nnapi+blob"
    return ""


def _is_blob(head: bytes) -> bool:
    words = [int.from_bytes(head[i : i + _WORD], "little") for i in range(0, _BLOB_HEADER, _WORD)]
    return len(head) >= _BLOB_HEADER and words[0] == 1 and all(0 < n < _MOST for n in (words[1], *words[3:]))
