"""One layer of a foreign format with the numbers of an engine, as a TOML file.

    kind = "ReduceMean"
    version = "opset1"              # of the layer or the file, where the format has one
    engine = "OpenVINO 2026.4.1"    # the engine of the outputs

    [attributes]                    # as the format spells them
    keep_dims = "false"

    [[inputs]]
    type = "float32"
    shape = [2, 3]
    values = [1, 2, 3, 4, 5, 6]

    [[inputs]]
    constant = true                 # a constant of the file, no input of the network
    type = "int64"
    shape = [1]
    values = [1]

    [[outputs]]
    type = "float32"
    shape = [2]
    values = [2, 5]

Numbers stand in the order of the last axis first; types are those of numpy. Further keys:
`[weights.NAME]` for an array that is stored with the layer; `absent = true` for an input that is
left out; `unread = true` for an output without consumer; `name` of an input, for who reads the
file; `rtol` and `atol` where the ordinary tolerances do not fit; `note` for a sentence about the
file; `model`, the name of a file of the format next to this one, where the layer does not stand
alone (bodies, states), with inputs x0, x1 ... and outputs y0, y1 ...; `state` of an input and an
output that are a variable of the network, before and after the run; `quantized` where the numbers
stand for others, `(number - zero_point) * scale`, with the name that the format has for such a
type:

    quantized = {type = "TENSOR_QUANT8_ASYMM", scale = 0.5, zero_point = 3}
    quantized = {type = "TENSOR_QUANT8_SYMM_PER_CHANNEL", axis = 0, scales = [0.5, 0.25]}
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - its types are known to numpy by name
import numpy as np

FOLDER = Path(__file__).resolve().parent
DIGITS = 7  # significant ones of stored floats


@dataclass
class Tensor:
    """`values` is None for an output that has no numbers yet, or no consumer. `name` is that
    of the signature and only for those who read the file.
    """

    type: str
    shape: tuple[int, ...]
    values: Any = None
    constant: bool = False
    absent: bool = False
    unread: bool = False
    state: str = ""
    name: str = ""
    quantized: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, array: Any, constant: bool = False) -> Tensor:
        array = np.asarray(array)
        name = "string" if array.dtype.kind in "OSUT" else array.dtype.name
        return cls(name, array.shape, array, constant)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object if self.type == "string" else self.type)


@dataclass
class Case:
    kind: str
    version: str = ""
    engine: str = ""
    note: str = ""
    model: str = ""
    rtol: float = 1e-4
    atol: float = 1e-5
    attributes: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def feeds(self) -> dict[str, Any]:
        """The numbers for the inputs of the network, which are called x0, x1 ... by their index."""
        return {
            f"x{i}": t.values for i, t in enumerate(self.inputs) if not t.constant and not t.absent
        }

    def expected(self) -> dict[str, Any]:
        """The numbers of the outputs, which are called y0, y1 ... by their index."""
        return {f"y{i}": t.values for i, t in enumerate(self.outputs) if not t.unread}


def read(path: Path) -> Case:
    return parsed(path.read_text(encoding="utf-8"))


def parsed(text: str) -> Case:
    raw = tomllib.loads(text)
    raw["inputs"] = [_tensor(t) for t in raw.get("inputs", [])]
    raw["outputs"] = [_tensor(t) for t in raw.get("outputs", [])]
    raw["weights"] = {name: _tensor(t) for name, t in raw.get("weights", {}).items()}
    return Case(**raw)


def _tensor(raw: dict[str, Any]) -> Tensor:
    values = raw.pop("values", None)
    found = Tensor(raw.pop("type", "float32"), tuple(raw.pop("shape", ())), **raw)
    if values is not None:
        found.values = np.array(values, found.dtype).reshape(found.shape)
    return found


def text_of(case: Case) -> str:
    lines = [
        f"{k} = {_value(getattr(case, k))}"
        for k in ("kind", "version", "engine", "note", "model")
        if getattr(case, k)
    ]
    standard = Case("")
    lines += [
        f"{k} = {getattr(case, k):g}"
        for k in ("rtol", "atol")
        if getattr(case, k) != getattr(standard, k)
    ]
    if case.attributes:
        lines += _table("attributes", case.attributes)
    for name, tensor in case.weights.items():
        lines += ["", f"[weights.{_key(name)}]", *_shown(tensor)]
    for name in ("inputs", "outputs"):
        for tensor in getattr(case, name):
            lines += ["", f"[[{name}]]", *_shown(tensor)]
    return "\n".join(lines) + "\n"


def write(case: Case, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text_of(case), encoding="utf-8")


def rounded(array: Any) -> Any:
    """As a file holds it: floats with seven significant digits."""
    array = np.asarray(array)
    if array.dtype.kind in "fV" and array.dtype.name not in ("object", "str"):
        near = [float(f"{v:.{DIGITS}g}") for v in array.astype(np.float64).reshape(-1)]
        return np.array(near).astype(array.dtype).reshape(array.shape)
    return array


def chosen(layers: list[Any], kind: str, kind_of: Callable[[Any], str]) -> Any:
    """The only one of some layers, or the last of the kind; a text that says which there are
    instead.
    """
    if len(layers) == 1:
        return layers[0]
    alike = [x for x in layers if kind_of(x) == kind]
    return alike[-1] if alike else f"{len(layers)} layers: {' '.join(map(kind_of, layers))}"


def _shown(tensor: Tensor) -> list[str]:
    named = [f"name = {_value(tensor.name)}"] if tensor.name else []
    if tensor.absent:
        return [*named, "absent = true"]
    lines = [*named]
    lines += [f"{word} = true" for word in ("constant", "unread") if getattr(tensor, word)]
    lines += [f'type = "{tensor.type}"', f"shape = {list(tensor.shape)}"]
    lines += [f"state = {_value(tensor.state)}"] if tensor.state else []
    lines += [f"quantized = {_value(tensor.quantized)}"] if tensor.quantized else []
    if tensor.values is not None:
        lines.append(f"values = {_list(np.asarray(tensor.values).reshape(-1).tolist())}")
    return lines


def _table(name: str, content: dict[str, Any]) -> list[str]:
    """Tables in tables have headings of their own, so that each value has a line."""
    inner = {k: v for k, v in content.items() if isinstance(v, dict)}
    lines = ["", f"[{name}]"]
    lines += [f"{_key(k)} = {_value(v)}" for k, v in content.items() if k not in inner]
    for key, value in inner.items():
        lines += _table(f"{name}.{_key(key)}", value)
    return lines


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        return (
            f"{float(value):.{DIGITS}g}" if float(value) % 1 or abs(value) > 1e6 else f"{value:.1f}"
        )
    if isinstance(value, bytes):
        return json.dumps(value.decode(), ensure_ascii=False)
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return _list(value) if isinstance(value, list | tuple) else str(value)


def _list(values: Any) -> str:
    def number(v: Any) -> str:
        return f"{v:.{DIGITS}g}" if isinstance(v, float) else _value(v)

    if any(isinstance(v, dict) for v in values):
        return "[\n" + "".join(f"  {_value(v)},\n" for v in values) + "]"
    line = ", ".join(map(number, values))
    if len(line) < 80 or '"' in line:
        return f"[{line}]"
    return (
        "[\n"
        + "\n".join(textwrap.wrap(line, 98, initial_indent="  ", subsequent_indent="  "))
        + "\n]"
    )
