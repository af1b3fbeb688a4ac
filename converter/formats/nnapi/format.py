"""Detection of the forms of an NNAPI model; runs on every file that netconv is given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import PADDED, PADDED_HELP, Flavor, Format, Option, Written
from converter.formats.integers import COMMON, FIXED, Integers, named

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.formats.nnapi.table import Table
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass

_WORD = 4
_BLOB_HEADER = 6 * _WORD
_MOST = 2**24


def sniff(head: bytes, path: str | os.PathLike[str]) -> str:
    """Return "nnapi" or "nnapi+blob" if the first bytes of a file look like that form, else "".

    `head` is the beginning of the file, 4 KiB are plenty. A blob has no magic: its version word,
    plausible counts and the suffix decide.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and b'"nnapi-operand-table"' in text:
        return "nnapi"
    if Path(path).suffix == ".nnapi" and _is_blob(head):
        return "nnapi+blob"
    return ""


def _is_blob(head: bytes) -> bool:
    words = [int.from_bytes(head[i : i + _WORD], "little") for i in range(0, _BLOB_HEADER, _WORD)]
    return (
        len(head) >= _BLOB_HEADER
        and words[0] == 1
        and all(0 < n < _MOST for n in (words[1], *words[3:]))
    )


def read(path: Path, weights: Path | None) -> Network:
    """Read an operand table, which must be valid."""
    from converter.formats.nnapi.lift import lift
    from converter.formats.nnapi.validate import demand_valid

    table = _read_table(path)
    demand_valid(table, str(path))
    return lift(table, str(path))


def _read_table(path: Path) -> Table:
    from converter.io.mapped_file import MappedFile  # raises for anything but a regular file

    if sniff(MappedFile(path).bytes[:4096].tobytes(), path) == "nnapi+blob":
        from converter.formats.nnapi.blob import read_blob

        return read_blob(path)
    from converter.formats.nnapi.codec import read_table

    return read_table(path)


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model as an operand table, or as a blob, and return the notes."""
    from converter.formats.nnapi.lower import write_model

    return write_model(model, path, flavor)


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the findings of the validation of a table."""
    from converter.formats.nnapi.validate import validate

    return validate(_read_table(path), str(path))


def kinds() -> Mapping[str, str]:
    """Return for each operation whether it is read: "yes" or "no"."""
    from converter.formats.nnapi.mapping import MAPPING
    from converter.formats.nnapi.operations import operations

    read = {*MAPPING.table.kinds(), "IF", "WHILE"}
    return {name: "yes" if name in read else "no" for name in operations()}


def written() -> Written:
    """Return the limits of the format: operators that no feature level supports."""
    from converter.formats.nnapi.legalize import rewrites
    from converter.formats.nnapi.lower import LEVELS
    from converter.formats.nnapi.mapping import MAPPING
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(MAPPING.table, rewrites(LEVELS[-1])))


def side_names(path: Path) -> list[str]:
    """Return the pools of an operand table; the other forms are one file."""
    from converter.formats.nnapi.json_objects import parse_object
    from converter.io.mapped_file import MappedFile

    file = MappedFile(path)
    if sniff(file.bytes[:4096].tobytes(), path) != "nnapi":
        return []
    pools = parse_object(file, str(path)).get("pools")
    return [name for name in pools if isinstance(name, str)] if isinstance(pools, list) else []


def readable(path: Path, flavor: Flavor) -> bool:
    """Return whether the form can be read: all but C source, which the flavor or the suffix
    selects.
    """
    return "c" not in flavor.options and (
        "blob" in flavor.options or not path.name.endswith(".nnapi.c")
    )


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.nnapi.pipeline import PIPELINE

    return PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the feature level that the operations need."""
    from converter.formats.nnapi.codec import read_table
    from converter.formats.nnapi.levels import feature_level

    if not path.name.endswith(".json"):
        return {}
    return {"format": f"feature level {feature_level(read_table(path))[0]}"}


FORMAT = Format(
    about=about,
    name="nnapi",
    title="NNAPI operand table",
    suffixes=(".nnapi.json", ".nnapi", ".nnapi.c"),
    sniff=lambda head, path: bool(sniff(head, path)),
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    side_names=side_names,
    readable=readable,
    options=(
        Option(
            "level",
            "the highest feature level to use",
            values=("1", "2", "3", "4", "5", "6", "7"),
            default="7",
        ),
        Option("blob", "write the flat form for PyTorch's loader (.nnapi)", suffix=".nnapi"),
        Option(
            "c",
            "write C source against NeuralNetworks.h (.nnapi.c), which cannot be read back",
            suffix=".nnapi.c",
        ),
        Option(PADDED, PADDED_HELP),
    ),
    versions="feature levels 1 to 7",
    integers=Integers(
        COMMON | named("Clip Max Min PRelu ReduceMean Relu Sigmoid Softmax Sub Tanh"),
        per_channel=named("Conv ConvTranspose"),
        activations=("uint8", "int8"),
        biased=True,
        fixed=FIXED,
    ),
)
