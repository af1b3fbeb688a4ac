"""`python -m converter.cli`: the same as the `netconv` command."""

from converter.cli import main

main()
