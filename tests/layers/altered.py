"""Layers of the files in these folders with one thing changed, and the outcome: a line of
altered.txt, so that a change of a reader or writer that has any effect on them is seen.

    opset/ReduceMean | half > tflite: written CAST MEAN 1f00c8d2
    coreml/pad || mode='edge' >: refused R105 77aa0b12

`|` stands before a change of the graph that the layer is read as, `||` before one of the layer
itself. After `>` stands the format that the graph is written as and read again from; nothing if
the layer is only read. The eight digits are a hash of the graph in the end (`described`) and of the
file, if it is a text, or of the message of the refusal. `python tests/layers/record.py altered`
writes this file anew, after it has compared the numbers of both graphs.
"""

from __future__ import annotations

import ast
import collections
import copy
import functools
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

import converter
from converter.api import Model
from converter.errors import ConverterError, MappingError
from converter.graph.infer import InferenceError, schema_of, set_type
from converter.graph.network import Network
from converter.graph.walk import all_graphs, all_nodes
from formats.coreai_text import through_text
from layers import cases
from layers.models import model_of, network_of
from random_variants import again

T = ir.DataType
FILE = cases.FOLDER / "altered.txt"
# the format of each folder, by the name of the target
OWN = {"opset": "openvino", "legacy": "openvino+ir=7"} | {
    f: f for f in ("coreml", "mlprogram", "nnapi", "tflite", "zhouyi")
}
SUFFIXES = {
    **{"onnx": ".onnx", "openvino": ".xml", "openvino+ir=7": ".xml", "zhouyi": ".txt"},
    **{"coreml": ".mlmodel", "mlprogram": ".mlpackage", "tflite": ".tflite"},
    **{"nnapi": ".nnapi.json", "coreai": ""},
}
TYPES = {
    **{"half": T.FLOAT16, "double": T.DOUBLE, "bfloat16": T.BFLOAT16},
    **{"int32": T.INT32, "int64": T.INT64, "uint8": T.UINT8},
}
# other values of an attribute that is a word
WORDS = {
    "mode": (
        *("constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic"),
        *("DCR", "CRD", "avg", "max", "bilinear", "bicubic"),
    ),
    "coordinate_transformation_mode": (
        *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
        *("half_pixel_symmetric", "tf_crop_and_resize", "output_half_pixel"),
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "approximate": ("none", "tanh"),
    "padding_mode": ("zeros", "border", "reflection"),
}
AFTER = ("Relu", "Clip", "Sigmoid", "Tanh", "Identity", "Cast", "Neg")
BEFORE = ("Relu", "Transpose", "Identity")
TEXTS = (".xml", ".txt")  # of files whose text has neither weights nor a version of netconv
FEW = 6  # nodes, inputs and constants of a graph that are changed
DIGITS = 3  # significant ones of the floats of a description


class DoesNotApply(Exception):
    """The change cannot be made on this layer."""


def read(name: str) -> Model:
    """Read a layer, after the changes in its name."""
    stem, _, change = name.partition(" | ")
    stem, _, layer = stem.partition(" || ")
    format, _, file = stem.partition("/")
    case = stored(format, file)
    if layer:
        case = altered_layer(case, layer)
    model = Model.of(model_of(format).lift(network_of(format, case)))
    if change:
        try:
            alter(model, change, case.feeds())
        except (InferenceError, MappingError, IndexError, ValueError) as e:
            raise DoesNotApply from e
    return model


@functools.lru_cache(maxsize=64)
def stored(format: str, file: str) -> cases.Case:
    return cases.read(cases.FOLDER / format / f"{file}.toml")


def outcome(name: str, target: str, folder: Path) -> str:
    """Return the line of altered.txt for a layer and a target."""
    try:
        model = read(name)
        if not target:
            return f"read {brief(described(model.ir.graph))}"
        kinds, again = through(model, target, folder)
        texts = [p.read_text("utf-8") for p in sorted(folder.iterdir()) if p.suffix in TEXTS]
        return f"written {kinds} {brief(''.join([described(again.ir.graph), *texts]))}"
    except MappingError as e:  # of a module's text
        return f"refused {e.code} {brief(str(e))}"
    except ConverterError as e:
        codes = " ".join(sorted({d.code for d in e.diagnostics}))
        return f"refused {codes} {brief(str([(d.message, d.help) for d in e.diagnostics]))}"


def through(model: Model, target: str, folder: Path) -> tuple[str, Network]:
    """Write a model and read it again; return the kinds of its layers as well."""
    for entry in folder.iterdir():  # of another target
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if target == "coreai":
        found = through_text(model)
        return " ".join(sorted({n.op_type for n in found.ir.graph})), found
    path = folder / f"m{SUFFIXES[target]}"
    converter.save(model, path, target)
    found = converter.load(path)
    sources = [n.metadata_props for n in all_nodes(found.ir.graph)]
    layers = {m["netconv.layer"]: m["netconv.type"] for m in sources if "netconv.layer" in m}
    kinds = sorted(collections.Counter(layers.values()).items())
    return " ".join(k if n == 1 else f"{k}*{n}" for k, n in kinds), found


def brief(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def lines() -> dict[tuple[str, str], str]:
    """Return the outcomes in altered.txt, by layer and target; empty where there is none yet."""
    found = {}
    for line in FILE.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            key, _, text = line.rpartition(": ")
            name, _, target = key.rpartition(" >")
            found[name, target.strip()] = text
    return found


def write_lines(found: dict[tuple[str, str], str]) -> None:
    head = [t for t in FILE.read_text("utf-8").splitlines() if t.startswith("#")]
    made = [f"{n} >{f' {t}' if t else ''}: {text}" for (n, t), text in sorted(found.items())]
    FILE.write_text("\n".join([*head, *made, ""]), "utf-8")


def feeds(name: str, model: Model) -> dict[str, Any]:
    """Return numbers for the inputs of an altered layer: those of its file where they fit."""
    folder, _, file = name.partition(" |")[0].partition("/")
    given, rng = stored(folder, file).feeds(), np.random.default_rng(1)
    found = {}
    for value in model.ir.graph.inputs:
        dims = list(value.shape or ())
        array, kind = given.get(str(value.name)), (value.dtype or T.FLOAT).numpy()
        fits = array is not None and np.ndim(array) == len(dims)
        sizes = [
            d if isinstance(d, int) else int(str(d)[1:] or 2) if str(d)[1:].isdigit() else 2
            for d in dims
        ]
        if fits and all(
            not isinstance(d, int) or d == n for d, n in zip(dims, np.shape(array), strict=True)
        ):
            found[str(value.name)] = np.asarray(array).astype(kind)
        elif array is not None and np.size(array):
            found[str(value.name)] = np.resize(np.asarray(array), sizes).astype(kind)
        else:
            found[str(value.name)] = rng.integers(0, 2, sizes).astype(kind)
    return found


# the text of a graph -----------------------------------------------------------------------------


def described(graph: ir.Graph) -> str:
    """Return the operators of a graph with their types, shapes, attributes and constants; values
    are numbered, floats are rounded.
    """
    numbers: dict[ir.Value, str] = {}

    def name(value: ir.Value | None) -> str:
        if value is None:
            return "-"
        if value.const_value is not None and value.producer() is None:
            return tensor_text(value.const_value)
        return numbers.setdefault(value, f"v{len(numbers)}")

    def typed(value: ir.Value) -> str:
        dims = (
            None if value.shape is None else [d if isinstance(d, int) else "?" for d in value.shape]
        )
        return f"{name(value)}:{value.dtype}{dims}"

    lines = [" ".join(typed(v) for v in graph.inputs)]
    for node in graph:
        inputs, outputs = ",".join(map(name, node.inputs)), ",".join(map(typed, node.outputs))
        attributes = [f"{k}={attribute_text(a)}" for k, a in sorted(node.attributes.items())]
        lines.append(f"{outputs}={node.domain}.{node.op_type}({inputs};{','.join(attributes)})")
    return "\n".join([*lines, " ".join(map(name, graph.outputs))])


def attribute_text(attribute: ir.Attr) -> str:
    value = attribute.value
    if isinstance(value, ir.Graph):
        return f"{{{described(value)}}}"
    if isinstance(value, list | tuple):
        return str([described(v) if isinstance(v, ir.Graph) else number(v) for v in value])
    return tensor_text(value) if hasattr(value, "numpy") else number(value)


def tensor_text(tensor: ir.TensorProtocol) -> str:
    array = np.asarray(tensor.numpy()).reshape(-1)
    if tensor.dtype.is_floating_point():
        array = array.astype(np.float64)
    return f"{tensor.dtype}{list(tensor.shape)}{','.join(map(number, array.tolist()))}"


def number(value: Any) -> str:
    return f"{value + 0.0:.{DIGITS}g}" if isinstance(value, float) else str(value)


# changes of a graph ------------------------------------------------------------------------------


def alterations(graph: ir.Graph) -> Iterator[str]:
    """The changes that `alter` makes, by the part of the graph that they change."""
    types = {v.dtype for v in graph.inputs}
    if T.FLOAT in types:
        yield from (*TYPES, "quantized uint8", "quantized int8", "quantized channels")
    if types & {T.INT64, T.INT32}:
        yield from ("other integers", "integers as float", "integers as uint8")
    yield from ("dynamic", "batch", "last", "empty", "tripled", "rank", "unknown")
    constants, inputs = len(graph.initializers), len(graph.inputs)
    yield from (f"computed {n}" for n in range(min(constants, FEW)))
    yield from ["computed all"] if constants > 1 else []
    if inputs > 1:
        yield from (f"constant {n}" for n in range(min(inputs, FEW)))
        yield "constant rest"
    for n, node in enumerate(list(graph)[:FEW]):
        yield from (f"{n}.{change}" for change in alterations_of(node))
    yield from (f"after {kind}" for kind in AFTER)
    yield from (f"before {kind}" for kind in BEFORE)
    yield from ("twice", "shown")


def alterations_of(node: ir.Node) -> Iterator[str]:
    schema = schema_of(node.op_type, node.domain)
    formals = {} if schema is None else dict(schema.attributes)
    for name, attribute in node.attributes.items():
        if name in formals and not formals[name].required:
            yield f"-{name}"
        yield from (f"{name}={v!r}" for v in others(name, attribute.value))
    for name, formal in formals.items():
        if name not in node.attributes:
            yield from (f"{name}={v!r}" for v in others(name, default_of(formal)))
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for i, (value, input) in enumerate(
        zip(node.inputs, schema.inputs if schema else (), strict=False)
    ):
        if value is not None and input.option == optional:
            yield f"-input {i}"
    yield from ["same"] if len(node.inputs) > 1 else []
    yield from ["exchanged"] if len(node.inputs) == 2 else []


def default_of(formal: Any) -> Any:
    if formal.default_value.type:
        value = onnx.helper.get_attribute_value(formal.default_value)
        return value.decode() if isinstance(value, bytes) else value
    kinds = onnx.defs.OpSchema.AttrType
    return {kinds.INT: 0, kinds.FLOAT: 0.0}.get(formal.type)


def others(name: str, value: Any) -> list[Any]:
    """Other values for an attribute."""
    made: list[Any] = []
    if name == "saturate":  # of floats in 8 bits alone, but engines look at it
        return made
    if isinstance(value, str):
        made = list(WORDS.get(name, ()))
    elif isinstance(value, int):
        made = [0, 1, -1, 2, value + 1]
    elif isinstance(value, float):
        made = [0.0, 1.0, value * 2, -value or 0.5]
    elif isinstance(value, list | tuple) and value and isinstance(value[0], int | float):
        first, kind = value[0], type(value[0])
        made = [[v + 1 for v in value], list(value[::-1]), [first + 1, *value[1:]]]
        made += [[*value[:-1], value[-1] + 1], [kind(0) for _ in value], [kind(1) for _ in value]]
        made += [[-v - 1 for v in value]]
        value = list(value)
    return [v for i, v in enumerate(made) if v != value and v not in made[:i]]


def alter(model: Model, change: str, values: dict[str, Any]) -> None:
    """Make one change; `values` are numbers for the inputs that become constant."""
    head, _, rest = change.partition(" ")
    graph = model.ir.graph
    if change in TYPES:
        retype(graph, T.FLOAT, TYPES[change])
    elif change in GRAPH:
        GRAPH[change](graph)
    elif head in WITH_ONE:
        WITH_ONE[head](graph, rest, values)
    else:
        index, _, what = change.partition(".")
        alter_node(list(graph)[int(index)], what)
    again(model)


def alter_node(node: ir.Node, change: str) -> None:
    head, _, text = change.partition("=")
    if change.startswith("-input "):
        node.replace_input_with(int(change[7:]), None)
    elif change == "same":
        node.replace_input_with(1, node.inputs[0])
    elif change == "exchanged":
        first, second = node.inputs
        node.replace_input_with(0, second)
        node.replace_input_with(1, first)
    elif change.startswith("-"):
        node.attributes.pop(change[1:])
    else:
        value = ast.literal_eval(text)
        node.attributes[head] = ir.convenience.convert_attribute(head, value)


def retype(graph: ir.Graph, old: ir.DataType, new: ir.DataType) -> None:
    for inner in all_graphs(graph):
        for value in [*inner.inputs, *inner.initializers.values()]:
            if value.dtype == old:
                if value.const_value is not None:
                    array = value.const_value.numpy().astype(new.numpy())
                    value.const_value = ir.Tensor(array, name=value.name)
                set_type(value, new, None)
        for node in inner:
            if node.op_type == "Cast" and node.attributes["to"].value == int(old):
                node.attributes["to"] = ir.AttrInt64("to", int(new))


def other_integers(graph: ir.Graph) -> None:
    long = any(v.dtype == T.INT64 for v in graph.inputs)
    retype(graph, *((T.INT64, T.INT32) if long else (T.INT32, T.INT64)))


def integers_as(new: ir.DataType) -> Callable[[ir.Graph], None]:
    def change(graph: ir.Graph) -> None:
        for old in (T.INT32, T.INT64):
            retype(graph, old, new)

    return change


def open_axes(axes: Callable[[int], Any]) -> Callable[[ir.Graph], None]:
    """Name the sizes of some axes, equal sizes alike; `axes` of a rank."""

    def change(graph: ir.Graph) -> None:
        for value in graph.inputs:
            dims = list(value.shape or ())
            for axis in axes(len(dims)) if dims else ():
                dims[axis] = ir.SymbolicDim(f"d{dims[axis]}")
            value.shape = ir.Shape(dims)

    return change


def resized(sizes: Callable[[list[Any]], list[Any]], every: bool = True) -> Callable[[Any], None]:
    def change(graph: ir.Graph) -> None:
        for value in graph.inputs[: None if every else 1]:
            value.shape = ir.Shape(sizes(list(value.shape or ())))

    return change


def tripled(dims: list[Any]) -> list[Any]:
    return [dims[0] * 3, *dims[1:]] if dims and isinstance(dims[0], int) else dims


def twice(graph: ir.Graph) -> None:
    """The output is read by a second operator as well."""
    graph.outputs.append(put(graph, "Add", [graph.outputs[0], graph.outputs[0]], "twice"))


def shown(graph: ir.Graph) -> None:
    """A value in between is an output as well."""
    inner = [v for node in graph for v in node.outputs if not v.is_graph_output()]
    if not inner:
        raise DoesNotApply
    graph.outputs.append(inner[0])


GRAPH: dict[str, Callable[[ir.Graph], None]] = {
    "other integers": other_integers,
    "integers as float": integers_as(T.FLOAT),
    "integers as uint8": integers_as(T.UINT8),
    "dynamic": open_axes(range),
    "batch": open_axes(lambda rank: [0]),
    "last": open_axes(lambda rank: [rank - 1]),
    "unknown": resized(lambda dims: [None for _ in dims]),
    "empty": resized(lambda dims: [0, *dims[1:]] if dims else dims, every=False),
    "tripled": resized(tripled),
    "rank": resized(lambda dims: [1, *dims]),
    "twice": twice,
    "shown": shown,
}


def computed(graph: ir.Graph, which: str, values: dict[str, Any]) -> None:
    """Constants become inputs."""
    constants = list(graph.initializers.values())
    for value in constants if which == "all" else [constants[int(which)]]:
        tensor = value.const_value
        if tensor is None:
            raise DoesNotApply
        graph.initializers.pop(str(value.name))
        value.const_value = None
        set_type(value, tensor.dtype, tensor.shape)
        graph.inputs.append(value)


def constant(graph: ir.Graph, which: str, values: dict[str, Any]) -> None:
    """Inputs become constants."""
    for value in list(graph.inputs)[1:] if which == "rest" else [graph.inputs[int(which)]]:
        array = values.get(str(value.name))
        if array is None or value.dtype is None or value.dtype == T.STRING:
            raise DoesNotApply
        graph.inputs.remove(value)
        value.const_value = ir.Tensor(np.asarray(array), name=value.name)
        graph.initializers[str(value.name)] = value


def after(graph: ir.Graph, kind: str, values: dict[str, Any]) -> None:
    """An operator stands after the first output."""
    out = graph.outputs[0]
    operands, attributes = [out], {"to": int(T.INT32)} if kind == "Cast" else {}
    if kind == "Clip":
        operands += [entered(graph, np.float32(n), f"bound{n}") for n in (0, 6)]
    graph.outputs[0] = put(graph, kind, operands, "after", attributes)


def before(graph: ir.Graph, kind: str, values: dict[str, Any]) -> None:
    """An operator stands before the first input."""
    value = graph.inputs[0]
    uses, rank, first = list(value.uses()), len(value.shape or ()), next(iter(graph))
    attributes: dict[str, Any] = {}
    if kind == "Transpose":
        attributes = {"perm": list(range(rank))[::-1]}
        value.shape = ir.Shape(list(value.shape or ())[::-1])
    node = ir.node(kind, [value], attributes)
    node.outputs[0].name = "before"
    graph.insert_before(first, node)
    for use in uses:
        use.node.replace_input_with(use.idx, node.outputs[0])


def quantized(graph: ir.Graph, how: str, values: dict[str, Any]) -> None:
    """Inputs, constants and outputs of floats stand between quantization and its reverse."""
    kind, zero = (T.UINT8, 3) if how == "uint8" else (T.INT8, -1 if how == "int8" else 0)
    point, first = np.array(zero, kind.numpy()), next(iter(graph))
    for n, value in enumerate([*graph.inputs, *graph.initializers.values()]):
        uses, rank = list(value.uses()), len(value.shape or ())
        if value.dtype != T.FLOAT or not uses:
            continue
        if value.const_value is None:
            scale = [entered(graph, np.float32(0.05), f"s{n}"), entered(graph, point, f"z{n}")]
            stored = ir.node("QuantizeLinear", [value, *scale])
            graph.insert_before(first, stored)
            node = ir.node("DequantizeLinear", [stored.outputs[0], *scale])
        elif rank:
            node = of_integers(graph, value, how == "channels" and rank > 1, n)
        else:
            continue
        graph.insert_before(first, node)
        for use in uses:
            use.node.replace_input_with(use.idx, node.outputs[0])
    for n, out in enumerate(list(graph.outputs)):
        if out.dtype == T.FLOAT:
            scale = [entered(graph, np.float32(0.1), f"so{n}"), entered(graph, point, f"zo{n}")]
            stored_out = put(graph, "QuantizeLinear", [out, *scale], f"qo{n}")
            graph.outputs[n] = put(graph, "DequantizeLinear", [stored_out, *scale], f"do{n}")


def of_integers(graph: ir.Graph, value: ir.Value, channels: bool, n: int) -> ir.Node:
    """Constants as int8, with one scale or one for each channel."""
    array = value.const_value.numpy()  # type: ignore[union-attr]
    axes = tuple(range(1, array.ndim)) if channels else None
    scale = (np.maximum(np.abs(array).max(axes), 1e-3) / 127).astype(np.float32)
    spread = scale.reshape(-1, *[1] * (array.ndim - 1)) if channels else scale
    whole = np.clip(np.round(array / spread), -127, 127).astype(np.int8)
    zeros = np.zeros(scale.shape, np.int8)
    operands = [entered(graph, a, f"{k}{n}") for k, a in (("q", whole), ("s", scale), ("z", zeros))]
    return ir.node("DequantizeLinear", operands, {"axis": 0} if channels else {})


WITH_ONE: dict[str, Callable[[ir.Graph, str, dict[str, Any]], None]] = {
    "computed": computed,
    "constant": constant,
    "after": after,
    "before": before,
    "quantized": quantized,
}


def put(
    graph: ir.Graph, kind: str, operands: list[ir.Value], name: str, attributes: Any = None
) -> ir.Value:
    node = ir.node(kind, operands, attributes or {})
    graph.append(node)
    node.outputs[0].name = name
    return node.outputs[0]


def entered(graph: ir.Graph, array: Any, name: str) -> ir.Value:
    tensor = ir.Tensor(np.asarray(array), name=name)
    value = ir.Value(name=name, const_value=tensor)
    set_type(value, tensor.dtype, tensor.shape)
    graph.initializers[name] = value
    return value


# changes of a layer ------------------------------------------------------------------------------

LAYER_TYPES = ("float16", "int32", "int64", "uint8", "float64", "bool")


@functools.cache
def known_words(format: str) -> dict[tuple[str, str], set[str]]:
    """Return the texts of each attribute in the files of a format."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted((cases.FOLDER / format).glob("*.toml")):
        case = stored(format, path.stem)
        for key, value in case.attributes.items():
            if isinstance(value, str):
                found.setdefault((case.kind, key), set()).add(value)
    return found


def layer_alterations(format: str, case: cases.Case) -> Iterator[str]:
    """The changes that `altered_layer` makes."""
    for key, value in case.attributes.items():
        yield f"-{key}"
        words = known_words(format).get((case.kind, key), set())
        yield from (f"{key}={v!r}" for v in other_spellings(value, words))
    for n, tensor in enumerate(case.inputs):
        if not tensor.absent:
            yield from (f"flip {n}", f"rank {n}", f"one {n}", *([f"absent {n}"] if n else []))
            yield from (f"type {n} {t}" for t in LAYER_TYPES if t != tensor.type)
    yield from (f"unread {n}" for n in range(len(case.outputs)))
    yield from (f"{change} {name}" for name in case.weights for change in ("zero", "no"))
    yield from ["halves"] if case.inputs else []


def other_spellings(value: Any, words: set[str]) -> Iterator[Any]:
    if not isinstance(value, str):
        yield from others("", value)
    elif value in ("true", "false"):
        yield "false" if value == "true" else "true"
    else:
        try:
            numbers = [ast.literal_eval(part) for part in value.split(",")]
        except (ValueError, SyntaxError):
            yield from sorted(words - {value})
            return
        for other in others("", numbers if len(numbers) > 1 else numbers[0]):
            yield ",".join(map(str, other)) if isinstance(other, list) else str(other)
        yield from [value.rpartition(",")[0]] if len(numbers) > 1 else []


def altered_layer(case: cases.Case, change: str) -> cases.Case:
    case, (head, _, rest) = copy.deepcopy(case), change.partition(" ")
    if head in ("flip", "rank", "one", "absent", "type"):
        index, _, kind = rest.partition(" ")
        alter_operand(case.inputs[int(index)], head, kind)
    elif head == "halves":
        for tensor in [*case.inputs, *case.outputs, *case.weights.values()]:
            if tensor.type == "float32":
                alter_operand(tensor, "type", "float16")
    elif head == "unread":
        case.outputs[int(rest)].unread = True
    elif head == "zero":
        case.weights[rest].values = np.zeros_like(case.weights[rest].values)
    elif head == "no":
        del case.weights[rest]
    elif change.startswith("-"):
        del case.attributes[change[1:]]
    else:
        name, _, text = change.partition("=")
        case.attributes[name] = ast.literal_eval(text)
    return case


def alter_operand(tensor: cases.Tensor, change: str, kind: str) -> None:
    values = None if tensor.values is None else np.asarray(tensor.values)
    if change == "flip":
        tensor.constant = not tensor.constant
    elif change == "absent":
        tensor.absent = True
    elif change == "type":
        tensor.type = kind
        tensor.values = None if values is None else values.astype(kind)
    elif change == "rank":
        tensor.shape = (1, *tensor.shape)
        tensor.values = None if values is None else values.reshape(tensor.shape)
    else:
        tensor.shape = (1,)
        tensor.values = None if values is None else values.reshape(-1)[:1]
