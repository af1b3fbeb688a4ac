"""What a format is: one value, in the table of `converter.formats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.graph.record import record

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


@record
class Option:
    """A flavour's option: `openvino+ir=7` sets ir to 7, `openvino+fp16` sets fp16 to "".

    `values` lists what may be given (empty: a flag), `default` is what a target means without it.
    `suffix`: that of files of this flavour, where it is another than the format's.
    """

    name: str
    doc: str
    values: tuple[str, ...] = ()
    default: str = ""
    suffix: str = ""


@record
class Flavour:
    """A target as the user named it: format and options, for example ("openvino", {"ir": "7",
    "fp16": ""}).
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    # "keep", "native" or "" for the target's own default (NNAPI tables are native, all else keeps)
    io_layout: str = ""

    def __str__(self) -> str:
        return self.format + "".join(f"+{k}={v}" if v else f"+{k}" for k, v in self.options.items())


@record
class Written:
    """What a format cannot hold, for `netconv ops`.

    `absent`  operators of the shared graph that nothing writes
    `partly`  operators of which something is not written, and what that is
    `limits`  layer types, and the types and numbers of axes that they take
    """

    absent: Sequence[str] = ()
    partly: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@record
class Format:
    """`read` gives a Network in the shared graph, `write` lowers and writes one and returns
    warnings.

    `sniff(head, path)` looks at the first 4 KiB (and at the path for what content cannot tell).
    `check` validates a file of this format by itself. `kinds` lists the format's layer types with
    the canonical operators they map to, and `written` what it cannot hold, both for `netconv ops`.
    `passes(flavour)` are those that a graph goes through before it is written, in order.
    `states(flavour)` is which states are written as such: "" none, "static" those of known sizes,
    "constant" those that begin with constants, "computed" all. `text(flavour)` is whether outputs
    of text are written. `untold(model, title)` are warnings of what a model of this format declares
    of its boundary and the format of that title does not say.
    `side_names` are the files that reading a model takes besides it, by their names relative to its
    folder, whether they are there or not; it may raise a ReadError. None: a model of this format is
    one file. `containers` are suffixes of another format that models of this one have as well.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes, Path], bool]
    read: Callable[[Path, Path | None], Network]
    write: Callable[[Network, Path, Flavour], list[Diagnostic]]
    check: Callable[[Path, Path | None], list[Diagnostic]]
    kinds: Callable[[], Mapping[str, str]]
    passes: Callable[[Flavour], Sequence[Pass[Any]]]
    written: Callable[[], Written] = Written
    containers: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    versions: str = ""
    read_numbers: Callable[[Path, Path | None], Network] | None = (
        None  # integer arithmetic as quantised numbers (`--dequantize`)
    )
    package: Callable[[Path], bool] = lambda path: False  # whether a folder is a model
    read_signature: Callable[[Path, str, Path | None], Network] | None = (
        None  # one of several networks of a file, by its key (`--signature`)
    )
    side_names: Callable[[Path], Sequence[str]] | None = None
    states: Callable[[Flavour], str] = lambda flavour: ""
    text: Callable[[Flavour], bool] = lambda flavour: False
    untold: Callable[[Network, str], list[Diagnostic]] = lambda model, title: []
    # whether what is written at a path as a flavour can be read again
    readable: Callable[[Path, Flavour], bool] = lambda path, flavour: True
    engine: Callable[[Path], str] = lambda path: (
        ""
    )  # the engine of converter.engines.file that takes such a file, "" for none
