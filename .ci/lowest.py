"""Prints the lower bounds of pyproject.toml as constraints for pip: what `make test-lowest`
installs. Tools of the tests (their own extras) are taken as they come.

    python .ci/lowest.py > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOOLS = ("tools", "test", "dev", "bench", "fuzz", "browser", "docs", "torch")

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
wanted = [
    *project["dependencies"],
    *(
        requirement
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in TOOLS
        for requirement in requirements
    ),
]
for requirement in wanted:
    name, _, bound = re.split(r"[,;]", requirement)[0].partition(">=")
    print(f"{name.partition('[')[0]}=={bound}")
