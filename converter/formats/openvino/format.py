"""OpenVINO IR as netconv sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converter.formats.format import PADDED, PADDED_HELP, Flavor, Format, Option, Written
from converter.formats.integers import COMMON, NOTE, Integers

if TYPE_CHECKING:
    import onnx_ir as ir

    from converter.errors import Diagnostic
    from converter.graph.network import Network
    from converter.passes.pipeline import Pass

# possessive: hostile comments must not be matched in every possible way
_PROLOG = rb"(?>\s+|<\?(?>.*?\?>)|<!--(?>.*?-->))*+"
_NET = re.compile(_PROLOG + rb"<net(?=[\s/>])([^>]*)", re.DOTALL)
_VERSION = re.compile(rb"\sversion\s*=\s*[\"']\s*(\d+)")
_MADE = re.compile(rb"<(Runtime_version|MO_version)\s+value=\"([^\"]{1,200})\"")
_TAIL = 1 << 16  # bytes at the end of a file, where its converter describes itself
_CURRENT = {b"10", b"11"}  # versions that current OpenVINO reads
# operators after which the result of a product still has its scales
_SCALED = {"LeakyRelu", "Mul", "PRelu", "Relu"}


def sniff(head: bytes, path: Path | None = None) -> bool:
    """Return whether a file that begins with `head` is OpenVINO IR: XML whose root element is
    `<net>`.
    """
    return _root(head) is not None


def _root(head: bytes) -> re.Match[bytes] | None:
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if head.startswith(bom):
            head = head[2:].decode(encoding, "ignore").encode()
    return _NET.match(head.removeprefix(b"\xef\xbb\xbf"))


def engine(path: Path) -> str:
    """Return OpenVINO for the current versions of its IR; it reads no older ones."""
    from converter.formats import HEAD

    with open(path, "rb") as f:
        root = _root(f.read(HEAD))
    version = _VERSION.search(root[1]) if root else None
    return "openvino" if version is not None and version[1] in _CURRENT else ""


def _is_reshaped(value: ir.Value) -> bool:
    """Return whether a Reshape reads a value, possibly after such operators."""
    return any(
        u.node.op_type == "Reshape"
        or (u.node.op_type in _SCALED and _is_reshaped(u.node.outputs[0]))
        for u in value.uses()
    )


def reason_for_floats(node: ir.Node) -> str:
    """Return why a layer computes in floats. With AMX, OpenVINO (2026.4) gives other numbers for a
    grouped 1x1 convolution whose groups have 68, 72, 80, 96, ... channels, or does not load it;
    groups of up to 64 channels and of whole multiples are right. So it does with dynamic shapes for
    a Reshape of a product, unless a bias is between them.
    """
    dynamic = not all(isinstance(d, int) for d in node.outputs[0].shape or "?")
    product = node.op_type == "MatMul" or (node.op_type == "Gemm" and len(node.inputs) < 3)
    if product and dynamic and _is_reshaped(node.outputs[0]):
        return "with dynamic shapes OpenVINO reshapes products of integers wrongly"
    shape = node.inputs[1].shape if node.op_type == "Conv" and node.inputs[1] is not None else None
    if shape is not None and node.attributes.get_int("group", 1) > 1:
        _, channels, *window = (d if isinstance(d, int) else 0 for d in shape)
        if channels > 64 and channels % 64 and {*window} == {1}:
            return "OpenVINO computes grouped 1x1 convolutions of this size wrongly in integers"
    return ""


def read(path: Path, weights: Path | None) -> Network:
    """Read an IR of any version, with its .bin, and keep its labels."""
    from converter.formats.openvino.codec import read_ir
    from converter.passes.labels import LABELS

    net = read_ir(path, weights)
    if net.legacy:
        from converter.formats.openvino.legacy.lift import lift
    else:
        from converter.formats.openvino.opset.lift import lift
    network = lift(net)
    labels = None if net.meta_data is None else net.meta_data.find("labels")
    if labels is not None and (text := labels.attrs.get("value")):
        network.ir.metadata_props[LABELS] = text
    return network


def write(model: Network, path: Path, flavor: Flavor) -> list[Diagnostic]:
    """Write a model as XML and .bin, and return the notes. Raises UsageError for +padded with IR 10
    and 11.
    """
    from converter.formats.openvino.codec import write_ir
    from converter.formats.openvino.ir import Element
    from converter.io.files import Output
    from converter.passes.labels import LABELS

    notes: list[Diagnostic] = []
    legacy = int(flavor.options.get("ir", "11")) < 10
    if PADDED in flavor.options and not legacy:
        from converter.errors import wrong_call

        raise wrong_call(
            f"flavor {PADDED!r} is for IR 5 to 7",
            help="leave it out: results of dynamic length are written as they are",
        )
    if legacy:
        from converter.formats.openvino.legacy.lower import lower as lower_legacy

        net = lower_legacy(model, flavor, notes)
    else:
        from converter.formats.openvino.opset.lower import lower

        net = lower(model, flavor, notes)
    declared = {"labels": LABELS, "quantization": NOTE}
    known = {k: v for k, n in declared.items() if (v := model.ir.metadata_props.get(n))}
    if known:
        children = [Element(k, {"value": v}) for k, v in known.items()]
        net.meta_data = Element("meta_data", children=children)
    with Output(path) as out:
        write_ir(net, out)
    return notes


def check(path: Path, weights: Path | None) -> list[Diagnostic]:
    """Check the file itself, and report attributes that no layer of its type has; layers without a
    mapping are not a fault of the file.
    """
    from converter.errors import UnsupportedError
    from converter.formats.openvino.codec import check_ir

    found = check_ir(path, weights)
    try:
        return found or read(path, weights).notes
    except UnsupportedError as e:
        return [d for d in e.diagnostics if d.code.startswith("R")]


def kinds() -> Mapping[str, str]:
    """Return the operations of the opsets, and the layers that only legacy IR has."""
    from converter.formats.openvino.legacy.mapping import MAPPING as LEGACY
    from converter.formats.openvino.opset.mapping import MAPPING

    found: dict[str, str] = {}
    for table in (LEGACY, MAPPING):
        found |= {
            **dict.fromkeys(table.table.kinds(), "(special)"),
            **{r.kind: r.op for r in table.table.rules},
        }
    return found


def written() -> Written:
    """Return the limits of the opsets."""
    from converter.formats.openvino.opset.legalize import REWRITES
    from converter.formats.openvino.opset.mapping import MAPPING
    from converter.passes.coverage import absent_operators

    return Written(absent_operators(MAPPING.table, REWRITES))


def side_names(path: Path) -> list[str]:
    """Return the name of the .bin."""
    return [path.with_suffix(".bin").name]


def passes(flavor: Flavor) -> Sequence[Pass[Any]]:
    """Return the passes before lowering, in order, for the IR version."""
    from converter.formats.openvino.legacy.pipeline import PIPELINE as LEGACY
    from converter.formats.openvino.opset.pipeline import PIPELINE

    return LEGACY if int(flavor.options.get("ir", "11")) < 10 else PIPELINE


def about(path: Path) -> dict[str, str]:
    """Return the version of the IR and the tool that wrote it, from the first and the last lines of
    the file.
    """
    from converter.formats import HEAD

    with open(path, "rb") as f:
        head = f.read(HEAD)
        f.seek(max(0, path.stat().st_size - _TAIL))
        tail = f.read()
    root = _root(head)
    version = _VERSION.search(root[1]) if root else None
    found = {"format": f"IR version {version[1].decode()}" if version is not None else ""}
    made = {m[1].decode(): m[2].decode("utf-8", "replace") for m in _MADE.finditer(tail)}
    if by := made.get("Runtime_version") or made.get("MO_version"):
        found["producer"] = f"OpenVINO {by}"
    return {k: v for k, v in found.items() if v}


FORMAT = Format(
    about=about,
    name="openvino",
    custom=True,
    title="OpenVINO IR",
    suffixes=(".xml",),
    sniff=sniff,
    read=read,
    write=write,
    check=check,
    kinds=kinds,
    written=written,
    passes=passes,
    side_names=side_names,
    text=lambda flavor: int(flavor.options.get("ir", "11")) >= 11,
    states=lambda flavor: "computed" if int(flavor.options.get("ir", "11")) >= 10 else "",
    options=(
        Option("ir", "the IR version to write", values=("5", "6", "7", "10", "11"), default="11"),
        Option("fp16", "write half-precision weights"),
        Option(PADDED, f"for IR 5 to 7: {PADDED_HELP}"),
    ),
    versions="reads 2 to 7 (legacy layers), 10 and 11 (opset1 to opset17); writes 5 to 7, 10, 11",
    engine=engine,
    integers=Integers(
        COMMON - {"Mul"} | {"ReduceMean"},
        ranks=(3, 4, 5),
        fake=True,
        recurrent="palette8",  # of int8 its passes for integers make no constants, which it needs
        reason=reason_for_floats,
    ),
)
