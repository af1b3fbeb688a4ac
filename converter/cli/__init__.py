"""The command line. Only click is imported here; each command loads what it needs when it runs."""

from __future__ import annotations


def main() -> None:
    from converter import startup
    from converter.cli.app import run

    startup.prepare()
    run()
