"""Operators that netconv does not know: carried from file to file, or replaced by a body that the
user defines.

A command that converts opens `CustomOperators` for the time of reading. Readers ask it where they
meet an unknown operator; without it, unknown operators are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.graph.build import Builder
from converter.io import strict_json
from converter.record import record

HELP = (
    "--define FILE.onnx gives it a body (a function of that name in an ONNX model); --allow-custom "
    "carries it to formats with custom operators: ONNX, OpenVINO IR, Core ML, TensorFlow Lite"
)
# (builder, name, operands, attributes) -> the results of the function of that name; None without
Define = Callable[
    [Builder, str, Sequence["ir.Value | None"], Mapping[str, Any]], "Sequence[ir.Value] | None"
]
Declared = Sequence["tuple[ir.DataType | None, Iterable[Any] | None]"]


@record
class CustomOperators:
    """The treatment of unknown operators. `carry`: they are preserved; `define` writes the bodies
    of defined ones, and `functions` are these bodies for a reader of ONNX.
    """

    carry: bool = False
    define: Define | None = None
    functions: Sequence[Any] = ()


_CURRENT: ContextVar[CustomOperators | None] = ContextVar("netconv.custom", default=None)


def current() -> CustomOperators:
    """Return the policy of readers for unknown operators."""
    return _CURRENT.get() or CustomOperators()


@contextmanager
def reading_custom(operators: CustomOperators) -> Iterator[None]:
    """Read unknown operators so inside the block."""
    token = _CURRENT.set(operators)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def unknown_operator(
    b: Builder,
    name: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    declared: Declared,
    domain: str,
) -> list[ir.Value] | None:
    """Return the results of an operator that netconv does not know: of its body if the user defines
    one, else of a layer that is carried if that is allowed; None if it has to be refused.
    """
    options = current()
    if options.define is not None:
        found = options.define(b, name, inputs, attributes)
        if found is not None:
            return list(found)
    return carried(b, name, inputs, attributes, declared, domain) if options.carry else None


def carried(
    b: Builder,
    name: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    declared: Declared,
    domain: str,
    names: Sequence[str] = (),
) -> list[ir.Value]:
    """Return the results of a layer of which only the name is known, of the declared types and
    shapes.
    """
    if any(v is None for v in inputs):
        raise MappingError(f"{name} leaves an input out, which custom layers cannot")
    results = [
        [
            (dtype or ir.DataType.FLOAT).name,
            None if sizes is None else [d if isinstance(d, int) else None for d in sizes],
        ]
        for dtype, sizes in declared
    ]
    made = b.ops(
        "CustomLayer",
        *inputs,
        domain="netconv",
        outputs=len(results),
        names=names,
        class_name=name,
        parameters=json.dumps(
            {k: _as_json(name, k, v) for k, v in attributes.items()}, sort_keys=True
        ),
        domain_name=domain,
        results=json.dumps(results),
    )
    return list(made)


def carried_note(name: str, where: Where) -> Diagnostic:
    """Return the warning for an operator that is carried."""
    message = f"{name} is carried as a custom operator; the engine of the file must provide it"
    return Diagnostic("X208", message, "warning", where)


def carried_layer(w: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of a layer that is written as a custom one, with a
    warning; raise MappingError if that is not allowed.
    """
    name = str(w.attr("class_name"))
    if not current().carry:
        raise MappingError(f"{name} is a custom layer", "X201", HELP)
    w.low.notes.append(carried_note(name, Where(layer=w.low.name, kind=name)))
    return name, attributes_of(w.attr("parameters", "{}"))


# the keys of Core ML's parameters of custom layers, and "list" for types that they do not have
_KINDS = {bool: "boolValue", int: "longValue", float: "doubleValue", str: "stringValue"}


def _as_json(name: str, key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple) and all(type(v) in _KINDS for v in value):
        return {"list": list(value)}
    if type(value) not in _KINDS:
        raise MappingError(
            f"attribute {key!r} of {name} must be a number, a string or a list of them"
        )
    return {_KINDS[type(value)]: value}


def attributes_of(parameters: str) -> dict[str, Any]:
    """Return the attributes of a carried layer, from its `parameters`."""
    try:
        given = strict_json.parse(parameters)
        return {key: next(iter(value.values())) for key, value in given.items()}
    except (ValueError, AttributeError, StopIteration):
        raise MappingError("the parameters of the custom layer are not valid", "R110") from None


def parsed(text: str) -> Any:
    """Return the number, boolean or list of numbers that a text spells, else the text."""
    for spelled in (text, f"[{text}]"):
        try:
            found = strict_json.parse(spelled)
        except ValueError:
            continue
        if type(found) in (bool, int, float):
            return found
        if isinstance(found, list) and all(type(v) in (int, float) for v in found):
            return found
    return text
