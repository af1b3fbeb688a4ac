"""netconv report"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import Source
from converter.cli.console import Console
from converter.cli.options import subcommand
from converter.cli.streams import uploaded
from converter.commands.options.batch import ReportCommand
from converter.errors import ExitCode

EXAMPLES = """netconv report results.json --as html -o report.html
netconv report verify.json roundtrip.json --as md
netconv report new/results.json --baseline old/results.json --exit-zero"""


@subcommand("report", ReportCommand, ("text",), EXAMPLES)
@click.argument("files", metavar="RESULT.json...", nargs=-1, required=True, type=Source())
def command(console: Console, options: ReportCommand, files: tuple[Path, ...]) -> None:
    """Render stored results: of any command with --format json, or results.json of a batch.

    The exit code is the most severe of the results': 70, 130, 5, 2, 4, 3, 7, 8, 6, 1, 9, 0.
    """
    from converter.commands import report
    from converter.commands.report import facts

    facts.demand_baseline(options.fail_on, options.baseline)
    found = facts.read(files, options.baseline)
    with facts.strange(files):
        text = report.render(found, options.form)
        code, verdict = ExitCode(found.code_of(options.fail_on)), found.verdict
    if not options.exit_zero:
        console.verdict(code)
    if options.output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        with uploaded(options.output, force=True) as path:
            report.write(path, text)
        console.say(f"{verdict}   {options.output}")
