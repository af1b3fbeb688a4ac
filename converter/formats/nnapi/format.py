"""How the forms of an NNAPI model are told apart; light, because every file that netconv is given passes here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from converter.format import Flavour, Format, Option

if TYPE_CHECKING:
    from converter.diagnostics import Diagnostic
    from converter.formats.nnapi.table import Table
    from converter.model import Model

_WORD = 4
_BLOB_HEADER = 6 * _WORD
_MOST = 2**24


def sniff(head: bytes, path: str | os.PathLike[str]) -> str:
    """ "nnapi", "nnapi+blob" or "tflite" when the first bytes of a file look like that form, else "".

    `head` is the beginning of the file, 4 KiB are plenty. A blob has no magic: its version word, plausible counts and the suffix decide.
    """
    if head[4:8] == b"TFL3":
        return "tflite"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and b'"nnapi-operand-table"' in text:
        return "nnapi"
    if Path(path).suffix == ".nnapi" and _is_blob(head):
        return "nnapi+blob"
    return ""


def _is_blob(head: bytes) -> bool:
    words = [int.from_bytes(head[i : i + _WORD], "little") for i in range(0, _BLOB_HEADER, _WORD)]
    return len(head) >= _BLOB_HEADER and words[0] == 1 and all(0 < n < _MOST for n in (words[1], *words[3:]))


def read(path: Path, weights: Path | None) -> Model:
    from converter.formats.nnapi.lift import lift
    from converter.formats.nnapi.validate import demand_valid

    notes: list[Diagnostic] = []
    form, table = _read_table(path, notes)
    if form == "tflite":
        model = _lifted(table, str(path))
    else:
        demand_valid(table, str(path))
        model = lift(table, str(path))
    model.notes += notes
    if form == "tflite":
        model.format, model.interface["tflite"] = "tflite", (model.inputs, model.outputs)  # those of the file, which an engine may run
        del model.interface["nnapi"]  # a table that is made of it has the layout that a table has
    return model


def _lifted(table: Table, file: str) -> Model:
    """The model of a TensorFlow Lite file. It may have operators of types that NNAPI does not have: they are not supported, but nothing is wrong."""
    from converter.errors import UnsupportedError
    from converter.formats.nnapi.lift import lift

    try:
        return lift(table, file)
    except UnsupportedError as e:
        raise UnsupportedError(replace(d, code="X201") if d.code == "R105" else d for d in e.diagnostics) from None


def _read_table(path: Path, notes: list[Diagnostic]) -> tuple[str, Table]:
    """The form of a file, and the table in it; `notes` gets warnings."""
    from converter.mapped import MappedFile  # refuses what is no file

    form = sniff(MappedFile(path).bytes[:4096].tobytes(), path)
    if form == "nnapi+blob":
        from converter.formats.nnapi.blob import read_blob

        return form, read_blob(path)
    if form == "tflite":
        from converter.formats.nnapi.tflite import read_tflite

        return form, read_tflite(path, notes)
    from converter.formats.nnapi.codec import read_table

    return form, read_table(path)


def write(model: Model, path: Path, flavour: Flavour) -> list[Diagnostic]:
    from converter.formats.nnapi.lower import write_model

    return write_model(model, path, flavour)


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    from converter.formats.nnapi.validate import validate

    return validate(_read_table(path, [])[1], str(path))


def kinds() -> Mapping[str, str]:
    from converter.formats.nnapi.operations import operations
    from converter.formats.nnapi.ops.args import LIFT

    import_module("converter.formats.nnapi.lift")  # enters the functions
    return {name: "yes" if name in LIFT or name in ("IF", "WHILE") else "no" for name in operations()}


def side_names(path: Path) -> list[str]:
    """The pools of an operand table; the other forms are one file."""
    from converter.formats.nnapi.fields import parse_object
    from converter.mapped import MappedFile

    file = MappedFile(path)
    if sniff(file.bytes[:4096].tobytes(), path) != "nnapi":
        return []
    pools = parse_object(file, str(path)).get("pools")
    return [name for name in pools if isinstance(name, str)] if isinstance(pools, list) else []


def engine(path: Path) -> str:
    """LiteRT takes `.tflite`; nothing that can be installed takes the other forms."""
    with open(path, "rb") as f:
        return "litert" if sniff(f.read(_BLOB_HEADER), path) == "tflite" else ""


FORMAT = Format(
    name="nnapi",
    title="NNAPI operand table",
    suffixes=(".nnapi.json", ".nnapi", ".nnapi.c"),
    sniff=lambda head, path: sniff(head, path) in ("nnapi", "nnapi+blob"),
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    side_names=side_names,
    options=(
        Option("level", "the highest feature level to use", values=("1", "2", "3", "4", "5", "6", "7"), default="7"),
        Option("blob", "the flat form that PyTorch's loader takes (.nnapi)"),
        Option("c", "C source against NeuralNetworks.h (.nnapi.c), write only"),
    ),
    versions="feature levels 1 to 7",
    engine=engine,
)
