"""Layer parameters: protobuf messages <-> plain attributes and weights.

Scalars are always present (proto3 knows no difference between zero and unset), repeated fields are
lists, enumerations their names, set sub-messages dictionaries (unset ones and unset members of a
`oneof` are omitted), maps dictionaries. Weights are kept apart, by path: `weights`,
`activation.PReLU.alpha`, `weightParams[1].inputGateWeightMatrix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

WEIGHTS = "CoreML.Specification.WeightParams"
NETWORK = "CoreML.Specification.NeuralNetwork"
_MESSAGE, _ENUM = FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_ENUM


def read_params(message: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes, and the WeightParams by path. Sub-networks (bodies of control flow)
    remain messages.
    """
    blobs: dict[str, Any] = {}
    return _read(message, "", blobs), blobs


def _read(message: Any, path: str, blobs: dict[str, Any]) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value, name = getattr(message, field.name), f"{path}{field.name}"
        if isinstance(value, Mapping):
            attrs[field.name] = {
                k: _read(v, f"{name}.{k}.", blobs) for k, v in sorted(value.items())
            }
        elif field.type == _MESSAGE and field.is_repeated:
            _many(field, value, name, attrs, blobs)
        elif field.type == _MESSAGE:
            if message.HasField(field.name):
                _one(field, value, name, attrs, blobs)
        elif field.is_repeated:
            attrs[field.name] = list(value)
        elif (
            field.containing_oneof is None
            or message.WhichOneof(field.containing_oneof.name) == field.name
        ):
            attrs[field.name] = _enum_name(field, value) if field.type == _ENUM else value
    return attrs


def _enum_name(field: Any, number: int) -> Any:
    known = field.enum_type.values_by_number.get(number)
    return known.name if known is not None else number


def _one(field: Any, value: Any, name: str, attrs: dict[str, Any], blobs: dict[str, Any]) -> None:
    if field.message_type.full_name == WEIGHTS:
        blobs[name] = value
    elif field.message_type.full_name == NETWORK:
        attrs[field.name] = value
    else:
        attrs[field.name] = _read(value, f"{name}.", blobs)


def _many(field: Any, values: Any, name: str, attrs: dict[str, Any], blobs: dict[str, Any]) -> None:
    if field.message_type.full_name == WEIGHTS:
        blobs.update({f"{name}[{i}]": v for i, v in enumerate(values)})
    else:
        attrs[field.name] = [_read(v, f"{name}[{i}].", blobs) for i, v in enumerate(values)]


def write_params(message: Any, attrs: Mapping[str, Any]) -> None:
    """Set `attrs` on a message; an empty dictionary sets an empty sub-message. Weights are set
    through `message_at`.
    """
    message.SetInParent()
    for key, value in attrs.items():
        field = message.DESCRIPTOR.fields_by_name[key]
        member = getattr(message, key)
        if isinstance(member, Mapping):
            for k, v in value.items():
                write_params(member[k], v)
        elif field.type == _MESSAGE and field.is_repeated:
            for item in value:
                write_params(getattr(message, key).add(), item)
        elif field.type == _MESSAGE:
            write_params(getattr(message, key), value)
        elif field.is_repeated:
            getattr(message, key).extend(value)
        else:
            setattr(
                message,
                key,
                field.enum_type.values_by_name[value].number
                if field.type == _ENUM and isinstance(value, str)
                else value,
            )


def message_at(message: Any, path: str) -> Any:
    """Return the sub-message at `a.b[1].c`, made where it is missing."""
    for part in path.split("."):
        name, _, index = part.partition("[")
        message = getattr(message, name)
        if index:
            number = int(index.rstrip("]"))
            while len(message) <= number:
                message.add()
            message = message[number]
    return message
