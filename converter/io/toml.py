"""Read TOML files of the user."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from converter.errors import wrong_call


def read(path: Path, what: str) -> dict[str, Any]:
    """Parse a TOML file of the user; raise UsageError if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise wrong_call(f"cannot read {what}: {e.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise wrong_call(f"this is not valid TOML: {e}", where=path) from None
