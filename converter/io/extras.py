"""Commands that install optional packages: the packages themselves, as this installation declares
them, so that the command works wherever netconv itself came from.
"""

from __future__ import annotations

import re
import shlex

# scheme of a URL -> the package that fsspec opens it with
STORES = {
    **{"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"},
    **{"az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp"},
}


def install(extra: str, *more: str) -> str:
    """Return the command that installs the packages of an extra, and `more`."""
    packages = _packages(extra) or [f"netconv[{extra}]"]
    return f"pip install {shlex.join([*packages, *more])}"


def _packages(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("netconv") or []
    except PackageNotFoundError:
        return []
    found = [d.partition(";") for d in declared]
    wanted = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    return sorted(name.strip() for name, _, marker in found if wanted.search(marker))


def install_for(url: str) -> str:
    """Return the command that installs the package for a URL."""
    scheme = url.partition("://")[0]
    if scheme == "hf":
        return install("hub")
    store = STORES.get(scheme)
    return install("batch", *([store] if store else []))
