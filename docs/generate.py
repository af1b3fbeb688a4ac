"""Write the source of the pages: a copy of docs/, and the pages that are made of the code: one for
each format with its layers, all diagnostic codes, the options of every command, the functions of
the Python package, the exit codes, the changelog.

    python docs/generate.py out/docs-source
    python docs/generate.py --readme        # rewrite the table of formats in README.md
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import converter
from converter import formats
from converter.cli.names import COMMANDS, command
from converter.commands.explain import CODES, Explanation
from converter.commands.options.declare import Declared, Group, Options, declared
from converter.commands.options.general import General
from converter.errors import SEVERITY, ExitCode

DOCS = Path(__file__).resolve().parent
README = DOCS.parent / "README.md"
MARKS = ("<!-- made by docs/generate.py -->\n", "<!-- end -->")
ENGINES = {
    "onnx": "onnxruntime",
    "openvino": "OpenVINO (IR 10 and 11)",
    "tflite": "LiteRT",
    "coreai": "Apple's Core AI runtime",
}
LINKED = ("codes.md", "options.md")  # the pages with the explanations themselves
GROUPS = {
    "R": "Reading",
    "X": "Expression and mapping",
    "W": "Writing",
    "N": "Numbers",
    "B": "Batch",
    "U": "Usage",
}


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("__pycache__", "generate.py"))
    for page in folder.rglob("*.md"):
        text = _urls().resolved(shown(page.read_text(encoding="utf-8")), DOCS.parent)
        page.write_text(linked(text), encoding="utf-8")
    for name, lines in pages():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines) + "\n"
        page.write_text(text if name in LINKED else linked(text), encoding="utf-8")


def linked(text: str) -> str:
    """Link codes and options, outside of blocks of code, to their explanations."""
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else _with_links(part) for i, part in enumerate(parts))


def _with_links(text: str) -> str:
    def option(match: re.Match[str]) -> str:
        name = match[1]
        return f"[{match[0]}](#option-{name[2:]})" if name in _commands_by_option() else match[0]

    def code(match: re.Match[str]) -> str:
        return f"[{match[0]}](#{match[1].lower()})" if match[1] in CODES else match[0]

    text = re.sub(r"(?<![\[`])`(--[a-z][a-z-]*)(?:[ =][^`]*)?`(?![`\]])", option, text)
    return re.sub(r"(?<![\[\w`#/-])`?\b([RXWNBU]\d{3})\b`?(?![\w`\]])", code, text)


@functools.cache
def _commands_by_option() -> dict[str, dict[str, Declared]]:
    """Return, by long option, the commands that have it, "" for options of every command."""
    found: dict[str, dict[str, Declared]] = {}
    for name, cls in [("", General), *((n, command(n).options) for n in COMMANDS)]:
        for d in declared(cls):
            for flag in d.flags:
                if flag.startswith("--"):
                    found.setdefault(flag, {})[name] = d
    return dict(sorted(found.items()))


def shown(text: str) -> str:
    """Remove what only the tests read: the names of files in the heads of blocks."""
    return re.sub(r"^```(\w+) (?:file=\S+|rows)$", r"```\1", text, flags=re.M)


def _urls() -> ModuleType:
    """Return the module that knows the repository that the pages are built from."""
    spec = importlib.util.spec_from_file_location("urls", DOCS.parent / ".ci" / "urls.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages() -> Iterator[tuple[str, Iterable[str]]]:
    yield "exit-codes.md", exit_codes()
    yield "codes.md", codes()
    yield "options.md", options()
    yield "python.md", python()
    yield "changelog.md", [(DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")]
    yield "formats/index.md", overview()
    for name in formats.present():
        yield f"formats/{name}.md", format_page(name)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") or " " for cell in row) + " |"


def exit_codes() -> Iterator[str]:
    yield "# Exit codes\n"
    yield (
        "Every command ends with one of these; a batch, and `netconv report`, with the most severe "
        f"of its jobs' in this order: {', '.join(str(int(c)) for c in SEVERITY)}.\n"
    )
    yield from table(
        ("code", "in batch", "meaning"), ((str(int(c)), c.status, c.meaning) for c in ExitCode)
    )


def codes() -> Iterator[str]:
    yield "# Codes of messages\n"
    yield "`netconv explain CODE` prints the same.\n"
    for letter, group in GROUPS.items():
        yield f"## {group}\n"
        for code, page in CODES.items():
            if code.startswith(letter):
                yield f"({code.lower()})=\n### {code}: {page.title}\n\n{page.text}\n\n{page.help}\n"
                yield from _example(page)


def _example(page: Explanation) -> Iterator[str]:
    """Yield commands that give a code, one line of their output, and the commands without it."""
    if page.no_example:
        yield f"There is no example. {page.no_example}\n"
        return
    first, last = (c.replace(" && ", "\n$ ") for c in (page.example, page.repaired))
    yield f"```console\n$ {first}\n{page.output}\n```\n"
    yield f"Repaired:\n\n```console\n$ {last}\n```\n"


def options() -> Iterator[str]:
    yield "# Options\n"
    yield (
        "`netconv COMMAND --help` prints the same. An option with an environment variable may also "
        "stand in `netconv.toml` or `[tool.netconv]` of `pyproject.toml`, under its long name; one "
        "with a mark under *job file* may stand in that of a batch.\n"
    )
    for name, line in COMMANDS.items():
        found = command(name)
        about = inspect.cleandoc(found.help or "")
        yield f"## {name}\n\n{line}\n\n{about}\n"
        yield from option_table(found.options)
    yield "## For every command\n"
    yield from option_table(General)
    yield "## By name\n"
    for flag, commands in _commands_by_option().items():
        yield f"(option-{flag[2:]})=\n"
        others = [f"[{name}](#{name})" for name in commands if name]
        where = ", ".join(others) if "" not in commands else "every command"
        yield f"`{flag}` ({where}): {option_row(next(iter(commands.values())))[1]}\n"


def option_table(cls: type[Options]) -> Iterator[str]:
    """The options of a command by groups, in the order of the help."""
    rows = [(d.option.group, option_row(d)) for d in declared(cls)]
    if rows:
        head = ("option", "", "default", "environment", "job file")
        yield from table(head, (row for g in Group for group, row in rows if group is g))
    yield ""


def option_row(d: Declared) -> tuple[str, ...]:
    value, default = d.option.metavar, d.field.default
    spelled = ", ".join(f"`{f}`" for f in d.flags) + (f" `{value}`" if value else "")
    shown = isinstance(default, str | int | float) and not isinstance(default, bool)
    return (
        spelled,
        d.option.help.replace("{choices}", "text, json and, of commands with findings, others"),
        str(default) if shown else "",
        f"`{d.variable}`" if d.variable else "",
        f"`{d.name}`" if d.option.job is not None else "",
    )


def overview() -> Iterator[str]:
    yield "# Formats\n"
    found = [formats.get(n) for n in formats.present()]
    yield from table(
        ("format", "", "files", "versions"),
        (
            (
                f"[{f.name}]({f.name}.md)",
                f.title,
                " ".join(f"`{s}`" for s in f.suffixes),
                f.versions,
            )
            for f in found
        ),
    )
    yield (
        "\nThe format of an input is detected from its content, that of an output from its suffix "
        "or from `-t`, with options after a plus sign: `-t openvino+ir=7+fp16`.\n"
    )
    yield "```{toctree}\n:hidden:\n"
    yield from (f.name for f in found)
    yield "```"


def format_page(name: str) -> Iterator[str]:
    """The page of a format: the text of docs/formats, and what `netconv formats` and `netconv ops`
    print.
    """
    chosen, written = formats.get(name), formats.get(name).written()
    yield f"# {chosen.title}\n"
    yield f"`{name}`, files {' '.join(f'`{s}`' for s in chosen.suffixes)}. {chosen.versions}.\n"
    yield (DOCS / "formats" / f"{name}.md").read_text(encoding="utf-8")
    if chosen.options:
        yield "## Target options\n"
        yield from table(
            ("option", "values", "default", ""),
            (
                (f"`+{o.name}{'=N' if o.values else ''}`", ", ".join(o.values), o.default, o.doc)
                for o in chosen.options
            ),
        )
        yield ""
    kinds = dict(sorted(chosen.kinds().items()))
    yield "## Layers\n"
    yield (
        f"{len(kinds)} layer types, and the operators of the shared graph to which they are "
        "converted, and from which they are written.\n"
    )
    if written.limits:
        rows = ((k, v, written.limits.get(k, "")) for k, v in kinds.items())
        yield from table(("layer", "operators", "types and axes"), rows)
    else:
        yield from table(("layer", "operators"), kinds.items())
    if written.partly:
        yield "\n## Operators that are written in part\n"
        yield from table(("operator", ""), written.partly.items())
    if written.absent:
        yield "\n## Operators that are not written\n"
        yield ", ".join(f"`{n}`" for n in written.absent) + "."


def python() -> Iterator[str]:
    """The functions of the package, from their signatures and docstrings."""
    yield (DOCS / "python.md").read_text(encoding="utf-8")
    for name in sorted(converter.__all__, key=str.lower):
        thing = getattr(converter, name)
        if inspect.ismodule(thing):
            continue
        yield f"## {name}\n"
        yield from member(f"netconv.{name}", thing)
        if inspect.isclass(thing):
            for key, inner in vars(thing).items():
                if inspect.isfunction(inner) and (not key.startswith("_") or key == "__call__"):
                    yield f"### {name}.{key}\n"
                    yield from member(key, inner)


def member(name: str, thing: Any) -> Iterator[str]:
    """A signature and its docstring; the parts of a docstring that are code stay code."""
    if not inspect.isclass(thing):
        yield f"```python\n{name}{inspect.signature(thing)}\n```\n"
    yield f"{inspect.getdoc(thing) or ''}\n"


def readme() -> str:
    """README.md with the table of formats as the code has it."""
    text = README.read_text(encoding="utf-8")
    found = [formats.get(n) for n in formats.present()]
    rows = (
        (f.title, f"`{f.name}`", " ".join(f"`{s}`" for s in f.suffixes), ENGINES.get(f.name, ""))
        for f in sorted(found, key=lambda f: f.title.lower())
    )
    head, _, rest = text.partition(MARKS[0])
    made = "\n".join(table(("format", "`-t`", "files", "files run in"), rows))
    return f"{head}{MARKS[0]}{made}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


if __name__ == "__main__":
    if sys.argv[1] == "--readme":
        README.write_text(readme(), encoding="utf-8")
    else:
        main(Path(sys.argv[1]))
