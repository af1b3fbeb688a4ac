"""One block <-> one layer: its names, shapes and types, its constant groups, and their errors."""

from __future__ import annotations

from typing import Any

from converter.formats.integers import NOTE
from converter.formats.zhouyi.blocks import LimitedFindings, TextBlock
from converter.formats.zhouyi.ir import BASE_KEYS, MEMBERS, Constant, Layer, Shape, Tensor
from converter.formats.zhouyi.values import (
    DType,
    Value,
    is_int,
    parse_dtype,
    parse_names,
    parse_value,
    split_list,
)

TEXTS = frozenset(
    {
        "model_name",
        "model_domain",
        "model_bin",
        "precision",
        "subgraph_name",
        "layer_name",
        "layer_type",
        NOTE,
    }
)
NAMES = frozenset({"layer_bottom", "layer_top", "input_tensors", "output_tensors"})
NEEDED = (
    "layer_id",
    "layer_name",
    "layer_type",
    "layer_bottom",
    "layer_top",
    "layer_top_shape",
    "layer_top_type",
)


def parse_key(key: str, text: str) -> Any:
    """Parse the value of `key`: names are always text, shapes are lists of lists of integers, the
    type of all others follows from their text.
    """
    if key in TEXTS:
        return text
    if key in NAMES:
        return parse_names(text)
    if key in ("layer_bottom_shape", "layer_top_shape"):
        return [list(s) for s in parse_shapes(text)]
    if key in ("layer_bottom_type", "layer_top_type"):
        return parse_dtypes(text)
    return parse_value(text)


def parse_shapes(text: str) -> list[Shape]:
    """Parse `[[1,2],[]]` or, for a single tensor, `[1,2]` (section 4.5)."""
    value = parse_value(text) if text else []
    if isinstance(value, list) and value and all(is_int(v) for v in value):
        value = [value]  # one tensor without the outer brackets
    if not isinstance(value, list):
        raise ValueError(f"{text!r} is not a list of shapes")
    return [to_shape(s) for s in value]


def to_shape(value: Value) -> Shape:
    """Return a list of integers; the brackets of a single one may be missing, as in the vendor's
    reader.
    """
    if is_int(value):
        value = [value]
    if not isinstance(value, list) or not all(is_int(v) for v in value):
        raise ValueError(f"{value!r} is not a list of integers")
    return tuple(int(v) for v in value)  # type: ignore[arg-type]


def parse_dtypes(text: str) -> list[DType]:
    """Return the types of a text: a list in brackets, a single one, or none."""
    return [
        parse_dtype(t)
        for t in (split_list(text) if text.startswith("[") else [text] if text else [])
    ]


class _Reader:
    """A reader of the keys of one block, one after the other; a key that cannot be read becomes a
    finding and None.
    """

    def __init__(self, block: TextBlock, findings: LimitedFindings) -> None:
        self.entries = block.entries
        self.findings = findings
        self.name, self.type = (
            block.entries[k].text if k in block.entries else ""
            for k in ("layer_name", "layer_type")
        )
        self.line = block.line
        self.damaged = False

    def add(self, message: str, key: str = "") -> None:
        self.damaged = True
        line = self.entries[key].line if key in self.entries else self.line
        self.findings.add(message, line, layer=self.name, kind=self.type)

    def value(self, key: str) -> Any:
        if key not in self.entries:
            return None
        try:
            return parse_key(key, self.entries[key].text)
        except ValueError as e:
            # parse_blocks has reported brackets that do not match
            text = self.entries[key].text
            if text.count("[") == text.count("]") or not text.startswith("["):
                self.add(f"{key}: {e}", key)
            self.damaged = True
            return None

    def tensors(self, key: str) -> list[Tensor]:
        names, shapes, types = (
            self.value(key),
            self.value(f"{key}_shape"),
            self.value(f"{key}_type"),
        )
        if names is None:
            return []
        for what, values in (("shape", shapes), ("type", types)):
            if values is not None and len(values) != len(names):
                self.add(
                    f"{key} names {len(names)} tensors, but {key}_{what} has "
                    f"{len(values)} elements",
                    f"{key}_{what}",
                )
                return []
        empty = [None] * len(names)
        return [
            Tensor(n, None if s is None else tuple(s), t)
            for n, s, t in zip(names, shapes or empty, types or empty, strict=True)
        ]


def parse_layer(block: TextBlock, findings: LimitedFindings) -> Layer | None:
    """Return the layer of a block, or None when the block is too damaged to be one; the reasons are
    in `findings`.
    """
    reader = _Reader(block, findings)
    missing = [k for k in NEEDED if k not in block.entries]
    if missing:
        reader.add(f"a layer block lacks {', '.join(missing)}")
    layer = Layer(reader.name, reader.type, file=findings.file)
    layer.spelling = {k: e.text for k, e in block.entries.items()}
    layer.lines = {k: e.line for k, e in block.entries.items()}
    # without an id the layer is still whole; the finding is enough
    reader.damaged = missing not in ([], ["layer_id"])
    layer.id = reader.value("layer_id")
    if layer.id is not None and not is_int(layer.id):
        reader.add("layer_id must be an integer", "layer_id")
    layer.inputs, layer.outputs = reader.tensors("layer_bottom"), reader.tensors("layer_top")
    taken = set(BASE_KEYS)
    for group in constant_groups(list(block.entries)):
        taken.update(f"{group}_{m}" for m in MEMBERS)
        _parse_group(reader, layer, group)
    for key in block.entries:
        if key not in taken and (value := reader.value(key)) is not None:
            layer.attrs[key] = value
    return None if reader.damaged else layer


def constant_groups(keys: list[str]) -> list[str]:
    """Return the G of which G_type, G_offset, G_size and G_shape all exist: only those are
    constants, as in the vendor's reader.
    """
    known = set(keys)
    return [
        g
        for k in keys
        if k.endswith("_offset")
        and (g := k[: -len("_offset")])
        and all(f"{g}_{m}" in known for m in MEMBERS)
    ]


def _parse_group(reader: _Reader, layer: Layer, group: str) -> None:
    dtype, offset, size, shape = (reader.value(f"{group}_{m}") for m in MEMBERS)
    if dtype is None or offset is None or size is None or shape is None:
        return
    try:
        if isinstance(offset, list):
            lists = [x if isinstance(x, list) else [x] for x in (dtype, offset, size)]
            shapes = (
                shape
                if isinstance(shape, list) and all(isinstance(s, list) for s in shape)
                else [shape]
            )
            members = zip(*lists, shapes, strict=True)
            layer.constant_lists[group] = [_constant(*m) for m in members]
        else:
            layer.constants[group] = _constant(dtype, offset, size, shape)
    except ValueError as e:
        reader.add(f"constant {group}: {e}", f"{group}_offset")


def _constant(dtype: Any, offset: Any, size: Any, shape: Any) -> Constant:
    if not isinstance(dtype, DType):
        raise ValueError(f"{dtype!r} is not a data type")
    if not is_int(offset) or not is_int(size) or offset < 0 or size < 0:
        raise ValueError(f"offset {offset!r} and size {size!r} must be byte counts")
    return Constant(dtype, to_shape(shape), None, offset, size)
