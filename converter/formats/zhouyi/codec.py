"""Bytes <-> document: `read_ir` and `write_ir`, and the same without files: `parse_ir` and
`print_ir`. Mechanical and lossless; unknown keys survive.

Source: Zhouyi Compass IR definition 7.3, chapter 4, and the vendor's parser and optimizer.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from converter.errors import Diagnostic, ReadError, UnsupportedError, Where, unreadable
from converter.formats.zhouyi.bind import bind_constants
from converter.formats.zhouyi.blocks import LimitedFindings, TextBlock, parse_blocks
from converter.formats.zhouyi.ir import (
    BASE_KEYS,
    MEMBERS,
    Constant,
    Document,
    Graph,
    Layer,
    constant_order,
    move,
)
from converter.formats.zhouyi.layers import NAMES, TEXTS, parse_key, parse_layer
from converter.formats.zhouyi.values import is_int, print_name, print_names, print_value
from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import LazyTensor
from converter.io.files import Output, open_side_file
from converter.io.mapped_file import MappedFile

_MODEL_BIN = re.compile(r"^[ \t]*model_bin[ \t]*=(.*)$", re.M)


def read_ir(
    path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None
) -> Document:
    """Return the document of `path`, with its constants as views of the .bin.

    The .bin is `weights`, else the file that `model_bin` names (it must lie below the folder of
    `path`), else NAME.bin in the same folder. Raises ReadError with one diagnostic for every error:
    R103 with file and line, R102 for a missing or too short .bin, R107 for a `model_bin` that
    leaves the folder.
    """
    path = Path(path)
    document, found = parse_ir(_decode(MappedFile(path)), str(path))
    if found:
        raise ReadError(found)
    document.path = path
    document.bin = _find_bin(document, path, weights)
    bind_constants(document)
    return document


def _decode(file: MappedFile) -> str:
    data = file.bytes.tobytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise unreadable(
            "R103",
            f"byte {data[e.start]:#04x} is not UTF-8",
            Where(str(file.path), data.count(b"\n", 0, e.start) + 1),
        ) from None


def _find_bin(
    document: Document, path: Path, weights: str | os.PathLike[str] | None
) -> MappedFile | None:
    if weights is not None:
        return MappedFile(weights)
    where = document.where("model_bin")
    named = str(document.header.get("model_bin") or "")
    # the tools write model_bin relative to where they were started, so the file in the same folder
    # is tried as well
    candidates = [*([named] if named else []), path.with_suffix(".bin").name]
    for candidate in candidates:
        if (file := open_side_file(path, candidate, where)) is not None:
            return file
    if any(True for _ in document.constants()):
        names = " nor ".join(dict.fromkeys(Path(c).name for c in candidates))
        raise unreadable(
            "R102",
            f"the file with the constants was not found: neither {names} exists",
            where,
            help="name it with --weights",
        )
    return None


def bin_names(path: Path) -> list[str]:
    """Return the name of the .bin that reading `path` takes; while there is none, the names that it
    may have.
    """
    found = _MODEL_BIN.search(_decode(MappedFile(path)))
    named = found[1].strip() if found else ""
    names = [*([named] if named else []), path.with_suffix(".bin").name]
    return next(([n] for n in names if os.path.isfile(path.parent / n)), names)


def parse_ir(text: str, file: str = "") -> tuple[Document, list[Diagnostic]]:
    """Return the document that a text describes and everything that is wrong with the text; the
    constants have no data.
    """
    findings = LimitedFindings(file)
    document = Document(file=file, newline="\r\n" if "\r\n" in text else "\n")
    graph: Graph = document
    left = math.inf
    for block in parse_blocks(text, findings):
        if "subgraph_name" in block.entries and "layer_name" not in block.entries:
            graph = Graph(file=file)
            document.subgraphs.append(graph)
            _parse_header(block, graph, findings)
            number = graph.header.get("layer_number")
            left = number if is_int(number) else math.inf
        elif "model_name" in block.entries and "layer_name" not in block.entries:
            if document.header:
                findings.add(
                    f"there is a second header; the first is in line {document.where().line}",
                    block.line,
                )
            _parse_header(block, document, findings)
            graph, left = document, math.inf
        else:
            # a sub-graph has as many layers as it declares, the following ones belong to the main
            # graph again
            graph, left = (graph, left - 1) if left > 0 else (document, math.inf)
            layer = parse_layer(block, findings)
            if layer is not None:
                graph.layers.append(layer)
    if not document.header:
        findings.add(
            "there is no header block with model_name",
            1,
            help="check that this is a Zhouyi Compass IR file",
        )
    return document, findings.all()


def _parse_header(block: TextBlock, graph: Graph, findings: LimitedFindings) -> None:
    for key, entry in block.entries.items():
        graph.spelling[key], graph.lines[key] = entry
        try:
            graph.header[key] = parse_key(key, entry.text)
        except ValueError as e:
            findings.add(f"{key}: {e}", entry.line)


def write_ir(document: Document, out: Output) -> None:
    """Write the text as the target of `out`, and the constants next to it as `.bin`.

    A document as it was read keeps its .bin byte for byte, with gaps, order and tail. As soon as
    one constant is new, all are packed without gaps in the order of the text, weights before
    biases, equal ones once. Raises UnsupportedError W330 for a value that no line can hold.
    """
    keep = document.bin is not None and all(
        c.offset is not None for _, _, _, c in document.constants()
    )
    if keep:
        assert document.bin is not None
        out.stream(".bin", [document.bin.bytes])
    else:
        constants = _assign_offsets(document)
        if document.path is None or constants:
            out.stream(".bin", (weight.stored() for weight in constants))
    with out.open() as f:
        f.write(print_ir(document, out.stem).encode())


def _assign_offsets(document: Document) -> list[LazyTensor]:
    """Assign an offset in the .bin to all constants; return the content of the .bin."""
    shared: EqualWeights[int] = EqualWeights()
    stored: list[LazyTensor] = []
    end = 0

    def append(weight: LazyTensor, size: int) -> int:
        nonlocal end
        stored.append(weight)
        end += size
        return end - size

    for layer, group, index, constant in list(document.constants()):
        weight = _numbers(constant)
        place = partial(append, weight, constant.size)
        placed = move(constant, shared.once(weight, place))
        if index is None:
            layer.constants[group] = placed
        else:
            layer.constant_lists[group][index] = placed
    return stored


def _numbers(constant: Constant) -> LazyTensor:
    data = constant.data
    if isinstance(data, LazyTensor):
        own, shape = data.dtype.numpy(), tuple(data.shape.numpy())
    elif data is not None:
        own, shape = data.dtype, data.shape
    if data is None or (
        not constant.packed
        and (shape != constant.shape or own.newbyteorder("<") != constant.dtype.numpy)
    ):
        raise ValueError(
            f"a constant of {constant.dtype} {constant.shape} got "
            f"{'nothing' if data is None else f'{own} {shape}'}"
        )
    if isinstance(data, LazyTensor):
        return data
    return LazyTensor(data if constant.packed else data.astype(constant.dtype.numpy, copy=False))


def print_ir(document: Document, stem: str = "model") -> str:
    """Return the text of a document whose constants all have an offset; `stem` is the name, without
    suffix, that `model_bin` gets. UnsupportedError W330.
    """
    blocks = []
    for graph in document.graphs:
        header = dict(graph.header)
        if "model_bin" in header and os.path.normpath(str(header["model_bin"])) != f"{stem}.bin":
            header["model_bin"] = f"./{stem}.bin"
        blocks.append(_print_block(graph, header))
        blocks += [
            _print_block(layer, dict(_layer_entries(layer, i)))
            for i, layer in enumerate(graph.layers)
        ]
    text = "\n\n".join(blocks) + "\n\n\n"
    return text if document.newline == "\n" else text.replace("\n", document.newline)


def _print_block(node: Graph | Layer, entries: dict[str, Any]) -> str:
    keys = [k for k in node.spelling if k in entries] + [
        k for k in entries if k not in node.spelling
    ]
    return "\n".join(f"{k}={_print_entry(node, k, entries[k])}" for k in keys)


def _print_entry(node: Graph | Layer, key: str, value: Any) -> str:
    """Return the original spelling if it still means `value`, else the shortest text."""
    spelled = node.spelling.get(key)
    if spelled is not None and _means(key, spelled, value):
        return spelled
    try:
        return _print_fresh(key, value)
    except ValueError as e:
        raise UnsupportedError(Diagnostic("W330", f"{key}: {e}", where=node.where(key))) from None


def _means(key: str, spelled: str, value: Any) -> bool:
    # repr distinguishes 1, 1.0, True and '1', == does not; a shape may lack its (outer) brackets
    parsed = parse_key(key, spelled)
    return repr(parsed) == repr(value) or (key.endswith("_shape") and repr([parsed]) == repr(value))


def _print_fresh(key: str, value: Any) -> str:
    if not all(c.isalnum() or c in ".:/_;'-" for c in key) or not key.isascii() or not key:
        raise ValueError("this is not a valid key")
    if key in NAMES:
        return print_names(value)
    if key in TEXTS:
        return print_name(value)
    if key.endswith(
        ("layer_bottom_shape", "layer_top_shape", "layer_bottom_type", "layer_top_type")
    ) and any(v is None for v in value):
        raise ValueError("a tensor has no shape or type")
    return print_value(value)


def _layer_entries(layer: Layer, position: int) -> Iterator[tuple[str, Any]]:
    """Return all keys of a block in the order of a new one: the nine base keys, the constants, the
    attributes.
    """
    base: tuple[Any, ...] = (
        position if layer.id is None and not layer.spelling else layer.id,
        layer.name,
        layer.type,
    )
    for tensors in (layer.inputs, layer.outputs):
        shapes, types = (
            [t.shape if t.shape is None else list(t.shape) for t in tensors],
            [t.dtype for t in tensors],
        )
        base += ([t.name for t in tensors], shapes, types)
    for key, value in zip(BASE_KEYS, base, strict=True):
        nothing = value is None or (isinstance(value, list) and all(v is None for v in value))
        # a key that was absent from the file is omitted as long as it has no value
        if not (nothing and layer.spelling and key not in layer.spelling):
            yield key, value
    for group in constant_order(layer):
        single = layer.constants.get(group)
        several = layer.constant_lists.get(group, [])
        members = [
            (c.dtype, c.offset, c.size, list(c.shape)) for c in ([single] if single else several)
        ]
        for i, member in enumerate(MEMBERS):
            yield f"{group}_{member}", members[0][i] if single else [m[i] for m in members]
    yield from layer.attrs.items()
