"""Show the progress of a batch: a bar with the remaining time on a terminal, one plain line per job
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from converter.commands.batch.job import Done
from converter.io.escape import escaped

Say = Callable[[str], None]
BAR = 16  # columns
TIMES = len("0:00:00 left 0:00:00")
SHORTEST = 8  # columns for a name


def _room(width: int, total: int) -> int:
    """Return the columns that a line has for the name of a job."""
    counts = 2 * len(str(total)) + 1
    return max(SHORTEST, width - BAR - counts - TIMES - 4)


def shortened(text: str, room: int) -> str:
    """Return text of at most `room` characters: the middle is left out of a longer one."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


@contextmanager
def shown(total: int, say: Say, bar: bool) -> Iterator[Callable[[Done], None]]:
    """Yield a function that is called with each finished job."""
    if bar:
        with _bar(total) as tell:
            yield tell
        return
    count = kept = 0
    width = len(str(total))

    def print_kept() -> None:
        nonlocal kept
        if kept:
            say(f"[{count:{width}}/{total}] {kept} kept from an earlier run")
        kept = 0

    def line(done: Done) -> None:
        nonlocal count, kept
        if done.kept:
            count, kept = count + 1, kept + 1
            return
        print_kept()
        count += 1
        again = f", attempt {done.attempts}" if done.attempts > 1 else ""
        say(
            f"[{count:{width}}/{total}] {done.status:17} {done.job.id}  "
            f"({done.seconds:.1f} s{again})"
        )

    yield line
    print_kept()


@contextmanager
def _bar(total: int) -> Iterator[Callable[[Done], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    room = _room(console.width, total)
    columns = (
        BarColumn(bar_width=BAR),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)

        def tell(done: Done) -> None:
            progress.update(task, advance=1, description=shortened(escaped(done.job.id), room))
            if done.outcome["exit_code"]:
                # keep it on one line: a new line could be taken as a command
                progress.console.print(
                    escaped(f"{done.status:17} {done.job.id}"),
                    markup=False,
                    highlight=False,
                    emoji=False,
                    soft_wrap=True,
                )

        yield tell
