"""What every command shares: its options, its console, and parameters that suggest what was
meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from converter.cli import console, settings, streams
from converter.cli.shapes import Pair, Parsed, Shapes, Values
from converter.errors import did_you_mean, wrong_call

Body = Callable[..., None]
Decorator = Callable[[Any], Any]
DATA = ("text", "json")
REPORTS = ("text", "json", "github", "sarif", "junit")


class Choice(click.Choice[str]):
    """A choice that says what was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = [str(c) for c in self.choices]
        if str(value) in known:
            return str(value)
        name = f"{param.opts[0]}: " if param is not None and param.opts[0].startswith("-") else ""
        raise wrong_call(
            f"{name}{value!r} is not one of {', '.join(known)}",
            help=did_you_mean(str(value), known),
        )


class FormatName(Parsed):
    """A format, with flavours where `flavours` says so: openvino, openvino+ir=7+fp16."""

    name = "FORMAT"

    def __init__(self, flavours: bool = False) -> None:
        self.flavours = flavours

    def parse(self, text: str, option: str) -> str:
        from converter import formats

        if self.flavours:
            formats.parse_flavour(text)
        else:
            formats.get(text)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from converter.formats import FORMATS, get

        name, plus, begun = incomplete.rpartition("+")
        if not (plus and self.flavours and name.split("+")[0] in FORMATS):
            return [CompletionItem(f) for f in FORMATS if f.startswith(incomplete)]
        flavours = [
            f"{o.name}={v}" if v else o.name
            for o in get(name.split("+")[0]).options
            for v in (o.values or ("",))
        ]
        return [CompletionItem(f"{name}+{f}") for f in flavours if f.startswith(begun)]


class Code(Parsed):
    """The code of a diagnostic."""

    name = "CODE"

    def parse(self, text: str, option: str) -> str:
        from converter.commands.explain import CODES

        if text not in CODES:
            raise wrong_call(f"unknown code {text!r}", help="netconv explain lists all")
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from converter.commands.explain import CODES

        return [CompletionItem(c) for c in CODES if c.startswith(incomplete)]


class Numbers(Parsed):
    """Numbers with commas between."""

    name = "NUMBERS"

    def parse(self, text: str, option: str) -> tuple[float, ...]:
        try:
            return tuple(float(n) for n in text.split(","))
        except ValueError:
            why = f"{option} {text!r} is no list of numbers"
            raise wrong_call(why, help="for example 127.5,127.5,127.5") from None


class Most(Parsed):
    """The largest output: a size or a multiple of the source, checked but as it was given."""

    name = "SIZE"

    def parse(self, text: str, option: str) -> str:
        from converter.io import growth

        growth.parse(text)
        return text


class FilePath(Parsed):
    """A path that may not exist: a missing input is exit code 4 with our own message, not click's
    2.
    """

    name = "FILE"

    def parse(self, text: str, option: str) -> Any:
        if streams.is_url(text):
            help = "models, data, maps and results may be URLs; what is worked with stays here"
            raise wrong_call(f"{text!r} is a URL, and files alone are meant here", help=help)
        return Path(text.removeprefix("file://"))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class Source(FilePath):
    """A file to read: a path, `-` for standard input, or a URL, either of which is copied to a file
    that lasts as long as the command. `data`: NAME= may come before it, and it may be a folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        place = str(value)
        if ctx is None or ctx.resilient_parsing:
            return Path(place)
        if place == streams.DASH:
            if ctx.meta.get("netconv.stdin"):
                why = "standard input is one file, and - stands here twice"
                raise wrong_call(why)
            ctx.meta["netconv.stdin"] = True
        return ctx.with_resource(streams.fetched(place))


class Data(Source):
    """Inputs to run on: a file, a folder or a URL of one, NAME=FILE, or a word for made ones."""

    name = "DATA"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, equal, place = str(value).partition("=")
        if not equal or streams.is_url(name):
            name, equal, place = "", "", str(value)
        if place in ("random", "edge"):
            return str(value)
        return f"{name}{equal}{super().convert(place, param, ctx)}"


class Place(FilePath):
    """A path or a URL, as it was given."""

    name = "PLACE"

    def parse(self, text: str, option: str) -> str:
        return text


class Command(click.Command):
    """A command whose defaults may come from the environment and a settings file."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        from converter.cli.app import COMMANDS

        console.use(
            console.Console(command=str(self.name), format=_early_format(args), color="auto")
        )
        extra["default_map"] = settings.load(
            settings.find(), str(self.name), {str(p.name) for p in self.params}, set(COMMANDS)
        )
        return super().make_context(info_name, args, parent, **extra)


def _early_format(args: Sequence[str]) -> str:
    """The output format as far as it can be told before the arguments are parsed: complaints about
    them are rendered in it too.
    """
    for i, a in enumerate(args):
        value = (
            a.partition("=")[2]
            if a.startswith("--format=")
            else args[i + 1]
            if a == "--format" and i + 1 < len(args)
            else ""
        )
        if value in REPORTS:
            return value
    return "text"


def option(*names: str, **keywords: Any) -> Decorator:
    """click.option, with the environment variable that the option's name gives."""
    long = max((n for n in names if n.startswith("-")), key=len)
    return click.option(
        *names, envvar=settings.variable(long.lstrip("-").replace("-", "_")), **keywords
    )


def subcommand(
    name: str, formats: Sequence[str] = DATA, examples: str = ""
) -> Callable[[Body], click.Command]:
    """A command with the common options. Its function takes a Console, which it tells the verdict,
    and its own parameters.
    """

    def decorate(body: Body) -> click.Command:
        def callback(
            quiet: bool,
            verbose: int,
            color: str,
            format: str,
            strict: bool,
            log: Path | None,
            allow: tuple[str, ...],
            deny: tuple[str, ...],
            **own: Any,
        ) -> int:
            made = console.use(
                console.Console(
                    name, format, -1 if quiet else verbose, color, strict, log, allow, deny
                )
            )
            body(made, **own)
            return made.finish()

        callback.__doc__ = body.__doc__
        wrapped: Any = callback
        for add in reversed(_common(formats)):
            wrapped = add(wrapped)
        wrapped.__click_params__ += getattr(
            body, "__click_params__", []
        )  # click reverses: a command's own options come first
        epilog = (
            "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.splitlines())
            if examples
            else None
        )
        return click.command(
            name,
            cls=Command,
            epilog=epilog,
            context_settings={"help_option_names": ["-h", "--help"]},
        )(wrapped)

    return decorate


def _common(formats: Sequence[str]) -> list[Decorator]:
    return [
        option("-q", "--quiet", is_flag=True, help="Only errors."),
        option("-v", "--verbose", count=True, help="More; twice: much more."),
        option(
            "--color",
            metavar="WHEN",
            type=Choice(["auto", "always", "never"]),
            default="auto",
            help="Colours: auto, always, never.",
        ),
        option(
            "--format",
            metavar="FORM",
            type=Choice(formats),
            default="text",
            help=f"Output as {', '.join(formats)}.",
        ),
        option("--strict", is_flag=True, help="A warning is a finding (exit 1)."),
        option(
            "--deny",
            type=Code(),
            multiple=True,
            help="A warning with this code is a finding.",
        ),
        option(
            "--allow",
            type=Code(),
            multiple=True,
            help="A warning with this code is none.",
        ),
        option(
            "--log",
            metavar="FILE.jsonl",
            type=FilePath(),
            help="Append all diagnostics to a file.",
        ),
    ]


def options(*added: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which the help lists them."""

    def add(body: Any) -> Any:
        for each in reversed(added):
            body = each(body)
        return body

    return add


dequantize_option = option(
    "--dequantize",
    is_flag=True,
    help="Read exact integer arithmetic (Zhouyi) as floats between QuantizeLinear and "
    "DequantizeLinear.",
)
signature_option = option(
    "--signature",
    "--function",
    metavar="KEY",
    default="",
    help="One of several networks: a signature of a TensorFlow Lite file, whose names inputs "
    "and outputs get, or a function of an ML Program.",
)
weights_option = option(
    "--weights",
    type=Source(),
    help="The file with the weights, where it is not beside the model.",
)


def source_options_with(name: str) -> Decorator:
    """How a model is read; `name` is the long option for its format."""
    format_option = option(
        "-f",
        name,
        "source",
        type=FormatName(),
        help="The input's format (otherwise told from its content).",
    )
    return options(dequantize_option, signature_option, format_option, weights_option)


source_options = source_options_with("--from")
inputs_option = option(
    "--inputs",
    type=Shapes(),
    multiple=True,
    help="Fix an input's shape: x:1,3,224,224.",
)
freeze_option = option(
    "--freeze",
    type=Values(),
    multiple=True,
    help="Make an input a constant: a number, a list [1,2], or file.npy; repeatable.",
)
state_options = options(
    option(
        "--state",
        "state",
        type=Pair("PAST=PRESENT"),
        multiple=True,
        help="The input PAST is a state whose next value is the output PRESENT; repeatable.",
    ),
    option(
        "--states",
        type=Choice(["keep", "io"]),
        default="keep",
        help="keep: states in the target's own form, where it has one; io: as inputs and outputs.",
    ),
)
layout_option = option(
    "--io-layout",
    type=Choice(["keep", "native"]),
    help="keep: inputs and outputs as in the source; native: images channels-last (default "
    "of nnapi).",
)
native_option = option(
    "--native",
    metavar="WHEN",
    type=Choice(["auto", "on", "off"]),
    default="auto",
    help="The files run in onnxruntime (.onnx), OpenVINO (IR 10, 11), LiteRT (.tflite), too: "
    "auto (where installed), on, off.",
)

# of commands that compare two models
data_option = option(
    "--data",
    type=Data(),
    multiple=True,
    help="in.npz, a folder of them, random, edge, or NAME=file.npy|random|edge; repeatable.",
)
tolerance_options = options(
    *(
        option(
            name,
            metavar="[GLOB:]V",
            multiple=True,
            help=f"{kind} tolerance, instead of the measured noise.",
        )
        for name, kind in (("--rtol", "Relative"), ("--atol", "Absolute"))
    )
)
timeout_option = option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=0,
    help="Limit of time (exit 7 beyond it). Default: none.",
)


def _engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from converter.engines import ENGINES

    return [CompletionItem(e) for e in ENGINES if e.startswith(incomplete)]


def engine_option(help: str) -> Decorator:
    return option(
        "--engine", default="onnxruntime", show_default=True, help=help, shell_complete=_engines
    )


seed_option = option("--seed", type=int, default=0, help="Seed of the random inputs.")
map_option = option(
    "--map",
    "map_file",
    type=Source(),
    help="Which tensor is which, as convert --map writes it.",
)


def formats_options(*models: str) -> Decorator:
    """The formats of models, by the names of their arguments."""
    return options(
        *(
            option(f"--from-{m}", f"{m}_format", type=FormatName(), help=f"{m.upper()}'s format.")
            for m in models
        )
    )


def conversion_options(*own: Any, to: str = "--to", source: str = "--from") -> Decorator:
    """What a command that writes a model in any format is told; `own` are options of the command,
    `to` and `source` the long options for the formats of OUT and IN.
    """
    output = option(
        "-o",
        "--output",
        metavar="OUT",
        type=Place(),
        required=True,
        help="The file or URL to write, - for standard output; the suffix tells the format.",
    )
    target = option(
        "-t",
        to,
        "target",
        type=FormatName(flavours=True),
        help="The format to write, with flavours: openvino+ir=7.",
    )
    verify = option(
        "--verify",
        "with_verify",
        is_flag=True,
        help="Compare the numbers afterwards (exit 1 if they differ, or the engine of OUT "
        "refuses it).",
    )
    force = option("--force", is_flag=True, help="Overwrite existing files (never an input).")
    most = option(
        "--max-output",
        type=Most(),
        default="off",
        help="Refuse a result larger than this: a size (2GB), or a multiple of IN (100x).",
    )
    return options(
        output,
        target,
        inputs_option,
        freeze_option,
        *own,
        layout_option,
        verify,
        native_option,
        force,
        most,
        source_options_with(source),
    )
