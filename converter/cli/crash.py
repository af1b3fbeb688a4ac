"""Handle internal errors of netconv: the traceback goes to a file, the user gets one line."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

import click

from converter import version
from converter.errors import ExitCode
from converter.io.escape import escaped


def apologise(error: BaseException) -> int:
    """Save the traceback in the folder for temporary files, print its path and return exit
    code 70.
    """
    handle, path = tempfile.mkstemp(prefix="netconv-crash-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        f.write(f"netconv {version.__version__}, Python {sys.version}\n{sys.argv}\n\n")
        f.writelines(traceback.format_exception(error))
    what = escaped(f"{type(error).__name__}: {error}".partition("\n")[0])
    click.echo(
        f"This is a bug in netconv ({what}). Please report it with {path} and "
        "the output of `netconv env`.",
        err=True,
    )
    return ExitCode.BUG
