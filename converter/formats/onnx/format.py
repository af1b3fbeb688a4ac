"""The ONNX format: the shared graph's own form, so reading and writing are normalization, not
mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import Flavor, Format, Option
from converter.formats.integers import COMMON, Integers, named

if TYPE_CHECKING:
    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass


def sniff(head: bytes, path: Path) -> bool:
    """Return whether a file is ONNX, by its first bytes and its name."""
    from converter.formats.onnx.detect import looks_like_onnx

    return looks_like_onnx(head, path)


def read(path: Path, weights: Path | None) -> Network:
    """Read an ONNX file with its external data."""
    from converter.formats.onnx.codec import read_onnx
    from converter.formats.onnx.lift import lift

    return lift(*read_onnx(path))


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model and return the notes; large weights, or all of them with +external, go to a
    file of their own.
    """
    from converter.formats.onnx.codec import write_onnx
    from converter.formats.onnx.lower import default_values, lower, map_labels

    notes: list[Diagnostic] = []
    lowered = lower(model, flavor, notes)
    write_onnx(
        lowered,
        path,
        external=True if "external" in flavor.options else None,
        defaults=default_values(model, lowered),
        maps=map_labels(model, lowered),
    )
    return notes


def undeclared_features(model: Network, title: str) -> list[Diagnostic]:
    """Return warnings for outputs that are sequences of maps in the source."""
    from converter.errors import Diagnostic, Where

    return [
        Diagnostic(
            "X207",
            f"{name} is a sequence of maps in the source; in {title} it is a tensor with one "
            f"column for each of {', '.join(map(str, labels[:5]))}{' ...' * (len(labels) > 5)}",
            "warning",
            where=Where(layer=name, kind="ZipMap"),
        )
        for name, labels in model.interface.get("maps", {}).items()
    ]


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Return the notes of reading a file, which raises errors."""
    from converter.formats.onnx.codec import read_onnx
    from converter.formats.onnx.lift import lift

    return lift(*read_onnx(path)).notes


def kinds() -> Mapping[str, str]:
    """Return the operators of every domain that is read; those of ai.onnx by their plain names."""
    import onnx.defs

    from converter.formats.onnx import ai_onnx_ml, microsoft

    standard = {(s.domain, s.name) for s in onnx.defs.get_all_schemas() if not s.deprecated}
    found = {name: name for domain, name in standard if domain == ""}
    classical = {name for domain, name in standard if domain == ai_onnx_ml.DOMAIN}
    found |= {f"{ai_onnx_ml.DOMAIN}.{n}": n for n in classical if n not in ai_onnx_ml.OF_MAPS}
    fused = {
        f"{microsoft.DOMAIN}.{n}": n if n in found else "(special)" for n in microsoft.rows().table
    }
    return found | fused


def side_names(path: Path) -> list[str]:
    """Return the names of the files with external data."""
    from converter.formats.onnx.wire import locations
    from converter.io.mapped_file import MappedFile

    return sorted(locations(MappedFile(path).bytes))


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order."""
    from converter.formats.onnx.pipeline import PIPELINE

    return PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the metadata of a model."""
    from converter.formats.onnx.about import about

    return about(path)


FORMAT = Format(
    about=about,
    name="onnx",
    title="ONNX",
    suffixes=(".onnx",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    passes=passes,
    side_names=side_names,
    undeclared_features=undeclared_features,
    states=lambda flavor: "constant",  # as inputs and outputs that the metadata pair
    options=(
        Option(
            "opset",
            "the ai.onnx opset to write, from 13 to the newest that the onnx package supports",
            values=("N",),
            default="21",
        ),
        Option(
            "external",
            "write all weights to NAME.data next to the model (from 1 GiB on they always are)",
        ),
    ),
    custom=True,
    text=lambda flavor: True,
    versions="ai.onnx 1 to the newest that the onnx package supports, com.microsoft and "
    "ai.onnx.ml as exporters write them; writes opset 21 by default",
    engine=lambda path: "onnxruntime",
    integers=Integers(
        COMMON | {"LeakyRelu", "Sigmoid", "Softmax"},
        activations=("int8", "uint8", "int16"),
        recurrent="int8",
        narrow=named("Gemm MatMul"),  # by default onnxruntime rounds their data to 8 bits
    ),
)
