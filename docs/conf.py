"""The pages as HTML, by Sphinx; see `make docs`. Nothing is fetched when a page is read."""

import tomllib
from pathlib import Path

# out/docs-source, where docs/generate.py puts everything, lies two folders below the root
_root = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())
_project = tomllib.loads((_root / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "netconv"
author = "The netconv authors"
release = version = _project["version"]
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = "netconv"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
smartquotes = False  # options begin with two hyphens
# a copy has the commands alone, without their prompts and what they print
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # pages for developers name files of the repository
highlight_language = "none"
