"""netconv report"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Choice, Place, Source, option, subcommand
from converter.cli.console import Console
from converter.cli.streams import uploaded
from converter.errors import ExitCode

FORMS = ("text", "junit", "sarif", "github", "md", "html")
EXAMPLES = """netconv report results.json --to html -o report.html
netconv report verify.json roundtrip.json --to md
netconv report new/results.json --baseline old/results.json --exit-zero"""


@subcommand("report", ("text",), EXAMPLES)
@click.argument("files", metavar="RESULT.json...", nargs=-1, required=True, type=Source())
@option("--to", "form", type=Choice(FORMS), default="text", help=f"The form: {', '.join(FORMS)}.")
@option(
    "-o",
    "--output",
    metavar="FILE",
    type=Place(),
    help="Write to a file instead of standard output.",
)
@option(
    "--baseline",
    metavar="OLD.json",
    type=Source(),
    help="Say what is new, fixed and the same since these results.",
)
@option("--exit-zero", is_flag=True, help="Exit 0 whatever the results are.")
def command(
    console: Console,
    files: tuple[Path, ...],
    form: str,
    output: str | None,
    baseline: Path | None,
    exit_zero: bool,
) -> None:
    """Render stored results: of any command with --format json, or results.json of a batch.

    Exit code: the most severe of the results': 70, 130, 5, 2, 4, 3, 7, 8, 6, 1, 9, 0.
    """
    from converter.commands import report
    from converter.commands.report import facts

    found = facts.read(files, baseline)
    with facts.strange(files):
        text = report.render(found, form)
        code, verdict = next(c for c in ExitCode if c == found.code), found.verdict
    if not exit_zero:
        console.verdict(code)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        with uploaded(output, force=True) as path:
            report.write(path, text)
        console.say(f"{verdict}   {output}")
