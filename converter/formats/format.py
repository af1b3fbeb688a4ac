"""The description of a format: one value in the table of `converter.formats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.integers import Integers
from converter.record import record

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


# a flavor of formats with static shapes
PADDED = "padded"
PADDED_HELP = (
    "give outputs of dynamic length as many rows as there may be; NAME_count is the number of "
    "valid ones"
)


@record
class Option:
    """A flavor's option: `openvino+ir=7` sets ir to 7, `openvino+fp16` sets fp16 to "".

    `values` lists the allowed values (empty: a flag), `default` is the value that a target without
    the option has. `suffix` is the suffix of files of this flavor, where it differs from the
    format's.
    """

    name: str
    doc: str
    values: tuple[str, ...] = ()
    default: str = ""
    suffix: str = ""


@record
class Flavor:
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
    """The limits of a format, for `netconv ops`.

    `absent`  operators of the shared graph that cannot be written
    `partly`  operators that can be written in part, and the part that is missing
    `limits`  layer types, and the types and numbers of axes that they take
    """

    absent: Sequence[str] = ()
    partly: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@record
class Format:
    """`read` gives a Network in the shared graph, `write` lowers and writes one and returns
    warnings.

    `sniff(head, path)` looks at the first 4 KiB (and at the path where the content is ambiguous).
    `check` validates a file of this format by itself. `kinds` lists the format's layer types with
    the canonical operators they map to, and `written` its limits, both for `netconv ops`.
    `passes(flavor)` are the passes that run on a graph before it is written, in order.
    `states(flavor)` is the set of states that are written as states: "" none, "static" those of
    static shape, "constant" those with a constant initial value, "computed" all. `text(flavor)` is
    whether string outputs are written, `custom` whether unknown operators are.
    `undeclared_features(model, title)` are warnings about declarations of the model's inputs and
    outputs that this format has and the format of that title has not. `single_precision`: inputs
    and outputs that are declared as float64 are computed in float32. `about(path)` returns the
    metadata of a file: "format" (its version), "producer", "author", "license",
    "description" and so on, as texts. `side_names` returns the names, relative to the model's
    folder, of the further files that reading the model needs, whether they exist or not; it may
    raise a ReadError. None: a model of this format is a single file. `containers` are suffixes of
    another format that files of this one may have too.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes, Path], bool]
    read: Callable[[Path, Path | None], Network]
    write: Callable[[Network, Path, Flavor], list[Diagnostic]]
    check: Callable[[Path, Path | None], list[Diagnostic]]
    kinds: Callable[[], Mapping[str, str]]
    passes: Callable[[Flavor], Sequence[Pass[Any]]]
    written: Callable[[], Written] = Written
    containers: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    versions: str = ""
    read_numbers: Callable[[Path, Path | None], Network] | None = (
        None  # integer arithmetic as quantized values (`--dequantize`)
    )
    package: Callable[[Path], bool] = lambda path: False  # whether a folder is a model
    read_signature: Callable[[Path, str, Path | None], Network] | None = (
        None  # one of several networks of a file, by its key (`--signature`)
    )
    side_names: Callable[[Path], Sequence[str]] | None = None
    states: Callable[[Flavor], str] = lambda flavor: ""
    text: Callable[[Flavor], bool] = lambda flavor: False
    custom: bool = False
    undeclared_features: Callable[[Network, str], list[Diagnostic]] = lambda model, title: []
    single_precision: bool = False
    about: Callable[[Path], dict[str, str]] = lambda path: {}
    # whether the result at a path, written in a flavor, can be read again
    readable: Callable[[Path, Flavor], bool] = lambda path, flavor: True
    integers: Integers | None = None  # requirements of integer kernels
    engine: Callable[[Path], str] = lambda path: (
        ""
    )  # the engine of converter.engines.file that takes such a file, "" for none
