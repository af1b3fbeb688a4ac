"""netconv certify-check"""

from __future__ import annotations

from pathlib import Path

import click

from converter.cli.common import FilePath
from converter.cli.console import Console
from converter.cli.options import REPORTS, subcommand
from converter.commands.options.declare import Options
from converter.errors import ExitCode

EXAMPLES = """netconv verify net.onnx net.tflite --certificate net.certificate.json
netconv certify-check net.certificate.json"""


@subcommand("certify-check", Options, REPORTS, EXAMPLES)
@click.argument("file", metavar="CERTIFICATE", type=FilePath())
def command(console: Console, options: Options, file: Path) -> None:
    """Check a certificate of verify again.

    The files that it names, relative to its folder, must have the stated hashes, and the comparison
    must have the same verdict when it is repeated. Exit 0: the certificate holds. 1: it does not.
    """
    from converter.cli.commands.verify import show
    from converter.commands import certificate

    found = certificate.check(file)
    console.report(found.changed)
    if found.result is not None:
        show(console, found.result)
    console.result = {
        "holds": found.holds,
        "certified": found.certified,
        "found": None if found.result is None else found.result.code.status,
    }
    console.code = ExitCode.OK
    console.verdict(ExitCode.OK if found.holds else ExitCode.FINDING)
    verdict = "holds" if found.holds else "does not hold"
    console.say(f"{file.name} {verdict}")
