"""Zhouyi Compass IR as a format: its interface. No heavy modules are imported here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import PADDED, PADDED_HELP, Flavor, Format, Option, Written
from converter.formats.integers import COMMON, NOTE, Integers, named, quantization_of

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass

_LINE = re.compile(rb"[ \t]*([A-Za-z0-9.:/_;'-]+)[ \t]*=")
_EARLY = frozenset({b"model_name", b"layer_number", b"layer_id", b"subgraph_name"})


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Return whether the first bytes of a file are `key=value` lines with one of the keys that
    begin every header or layer block. `path` is not looked at.
    """
    if b"\0" in head:
        return False
    lines = [
        line for line in head.removeprefix(b"\xef\xbb\xbf")[:4096].split(b"\n") if line.strip()
    ]
    # the last line may be cut off, so it is not asked to be whole
    keys = [m[1] if (m := _LINE.match(line)) else b"" for line in (lines[:-1] or lines)[:12]]
    return bool(keys) and all(keys) and not _EARLY.isdisjoint(keys)


def read(path: Path, weights: Path | None, dequantize: bool = False) -> Network:
    """Read an IR with its weights and its map of names. With `dequantize`, exact integer arithmetic
    becomes float operators between DequantizeLinear and QuantizeLinear.
    """
    from converter.formats.zhouyi.codec import read_ir
    from converter.formats.zhouyi.lift_document import lift
    from converter.formats.zhouyi.sidemap import restore_names

    document = read_ir(path, weights)
    model = lift(document, dequantize)
    restore_names(model, path)
    return model


def read_numbers(path: Path, weights: Path | None) -> Network:
    """Read an IR, with its integers as the floats that they represent."""
    return read(path, weights, dequantize=True)


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model as text and .bin with a map of renamed tensors, and return the notes."""
    from converter.formats.zhouyi.codec import write_ir
    from converter.formats.zhouyi.sidemap import write_map
    from converter.io.files import Output

    if "int8" in flavor.options:
        from converter.formats.zhouyi.quantization.lower import lower_integer as lower
    else:
        from converter.formats.zhouyi.lower import lower

    notes: list[Diagnostic] = []
    document, renaming = lower(model, flavor, notes)
    if about := quantization_of(model.ir.metadata_props):  # a value may hold no quotes
        document.header[NOTE] = ";".join(f"{k}:{v}" for k, v in about.items())
    with Output(path) as out:
        write_ir(document, out)
        write_map(renaming, out)
    return notes


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the findings of the linter."""
    from converter.formats.zhouyi.codec import read_ir
    from converter.formats.zhouyi.linting import lint

    return lint(read_ir(path, weights))


def kinds() -> Mapping[str, str]:
    """Return the operator of each layer type; "(special)" for those that functions read."""
    from converter.formats.zhouyi.lift_bodies import CONTROL
    from converter.formats.zhouyi.mapping import MAPPING

    table = MAPPING.table
    return {
        **{k: "(special)" for k in (*table.kinds(), *CONTROL, "Input", "Constant")},
        **{r.kind: r.op for r in table.rules if not r.lower_only},
    }


def written() -> Written:
    """Return the limits of the format: the operators that cannot be written."""
    from converter.formats.zhouyi.legalize import REWRITES
    from converter.formats.zhouyi.mapping import MAPPING
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(MAPPING.table, REWRITES))


def side_names(path: Path) -> list[str]:
    """Return the names of the .bin files and of the map of names."""
    from converter.formats.zhouyi.codec import bin_names
    from converter.formats.zhouyi.sidemap import SUFFIX

    return [*bin_names(path), path.with_suffix(SUFFIX).name]


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order; integer IR has its own."""
    from converter.formats.zhouyi import pipeline
    from converter.formats.zhouyi.quantization import pipeline as integer

    return integer.PIPELINE if "int8" in flavor.options else pipeline.PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the declarations of the file before its first layer."""
    from converter.formats import HEAD

    with open(path, "rb") as f:
        head = f.read(HEAD).decode("utf-8", "replace").partition("layer_id")[0]
    said = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    names = {"name": "model_name", "precision": "precision", "domain": "model_domain"}
    found = {name: said.get(key, "").strip() for name, key in names.items()}
    return {k: v for k, v in found.items() if v}


FORMAT = Format(
    about=about,
    name="zhouyi",
    title="Zhouyi Compass IR",
    suffixes=(".txt",),
    sniff=sniff,
    read=read,
    read_numbers=read_numbers,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    side_names=side_names,
    options=(
        Option("int8", "write integer IR, from a network with QuantizeLinear and DequantizeLinear"),
        Option(
            "npu",
            "with int8: write integer forms closer to those of the vendor's "
            "quantizer for its hardware (15-bit factors, integer Softmax); "
            "some results differ by one quantized value",
        ),
        Option(PADDED, PADDED_HELP),
    ),
    integers=Integers(
        COMMON
        | named(
            "Clip Div Elu Gelu HardSwish LeakyRelu Max Min PRelu ReduceMax ReduceMean Relu Sigmoid "
            "Softmax Sub Tanh"
        ),
        activations=("int8", "uint8", "int16"),
        biased=True,
        option="int8",
    ),
    versions="definition 7.3, as the vendor's open-source tools read and write it",
)
