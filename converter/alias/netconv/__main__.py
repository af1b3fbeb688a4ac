"""`python -m netconv`: the same as the `netconv` command."""

from __future__ import annotations

from converter.cli import main  # the package next to this one, see __init__.py

main()
