"""The addresses in the metadata of a distribution: those of the repository that it is built from,
wherever that lies. The build backend calls this (see pyproject.toml).

In a workflow of GitHub the environment names the repository, elsewhere the remote `origin` of the
checkout does; without either (in an unpacked source distribution the old ones are in PKG-INFO)
there are none.
"""

from __future__ import annotations

import os
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # where nothing is built, as for the pages
    MetadataHookInterface = object

PAGES = {"Homepage": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md"}


class Urls(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        made = root / "PKG-INFO"
        metadata["urls"] = before(made) if made.exists() else pages(repository(root))


def before(made: Path) -> dict[str, str]:
    """The addresses of the source distribution that this is."""
    lines = HeaderParser().parsestr(made.read_text(encoding="utf-8")).get_all("Project-URL", [])
    return {name: url for name, _, url in (line.partition(", ") for line in lines)}


def pages(address: str) -> dict[str, str]:
    return {name: address + path for name, path in PAGES.items()} if address else {}


def resolved(text: str, root: Path) -> str:
    """A text with OWNER/netconv@COMMIT, and OWNER/netconv, as those of the repository that it is
    built from, as far as they are known.
    """
    name = re.sub(r"^https://[^/]+/", "", repository(root))
    if not name:
        return text
    commit = os.environ.get("GITHUB_SHA", "")
    text = text.replace("OWNER/netconv", name)
    return text.replace(f"{name}@COMMIT", f"{name}@{commit}") if commit else text


def repository(root: Path) -> str:
    """https://HOST/OWNER/NAME of the repository, or ""."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    found = re.fullmatch(
        r"(?:https://(?:[^@/]*@)?|(?:ssh://)?git@)([^/:]+)[/:](.+?)(?:\.git)?\s*", done.stdout
    )
    return f"https://{found[1]}/{found[2]}" if found else ""
