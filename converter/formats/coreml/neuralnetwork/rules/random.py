"""Random numbers and custom layers: preserved but not executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    ANY,
    StaticResult,
    flat,
    shape_of_last,
)
from converter.graph.custom import carried_layer, current
from converter.graph.infer import shape_of
from converter.io.strict_json import note, parse
from converter.mapping.codecs import unset
from converter.mapping.fields import Attr, Field, ImpliedAttrs, RequireKey
from converter.mapping.rules import Custom, Rule, custom, op

Value = ir.Value
SEED = Attr("seed", kind=int)
KINDS: dict[str, tuple[Attr, ...]] = {
    "RandomNormal": (Attr("mean", kind=float), Attr("scale", "stdDev", float)),
    "RandomUniform": (Attr("low", "minVal", float), Attr("high", "maxVal", float)),
    "RandomBernoulli": (Attr("prob", kind=float),),
}


def draws(name: str, parameters: tuple[Field, ...]) -> list[Rule]:
    """Return the rows of the three forms, which differ in the source of the shape."""
    kind, fields = name[0].lower() + name[1:], (SEED, *parameters)
    row: Callable[..., Rule] = lambda form, *more, **options: op(  # noqa: E731
        f"netconv::{name}", f"{kind}{form}", *more, *fields, **options
    )
    return [
        row("Static", StaticResult(0, "outputShape"), example_inputs="=i64:[2,3]"),
        row("Like", ANY, before_lift=shape_of_last, lift_only=True),
        row("Dynamic", flat(0), example_inputs="i64:2"),
    ]


def lower_standard(w: LowerContext) -> None:
    """Write ONNX's random operators; the variants named ...Like take the shape of an operand."""
    name = w.node.op.removesuffix("Like")
    kind, shape = name[0].lower() + name[1:], shape_of(w.out)
    attrs: dict[str, Any] = {a.key: float(w.attr(a.name)) for a in KINDS[name]}
    attrs["seed"] = int(w.attr("seed", -1))
    if shape is not None:
        w.put(f"{kind}Static", **attrs, outputShape=list(shape) or [1])
    else:
        w.put(f"{kind}Like", w.data, **attrs)


# custom layers -----------------------------------------------------------------------------------

_PARAMETER = {
    "doubleValue": float,
    "stringValue": str,
    "intValue": int,
    "longValue": int,
    "boolValue": bool,
}


def defined_body(r: LiftContext, p: dict[str, Any]) -> tuple[Value, ...] | None:
    """Return the results of the body that the user defines for a class; None without one."""
    define = current().define
    if define is None:
        return None
    given = {key: next(iter(value.values())) for key, value in p["parameters"].items()}
    found = define(r.b, p["className"], list(r.layer.inputs), given)
    return None if found is None else tuple(found)


def lift_custom(r: LiftContext) -> tuple[Value, ...]:
    """Read all parameters of the layer, with weights as further inputs."""
    p, stored = r.layer.attrs, r.layer.blobs
    if (defined := defined_body(r, p)) is not None:
        return defined
    paths = sorted(stored, key=lambda path: int(path.split("[")[1][:-1]))
    weights = [r.weights(path, [stored[path].data().count]) for path in paths]
    return r.b.CustomLayer(
        *(r.floats(i) for i in range(len(r.layer.inputs))),
        *weights,
        outputs=max(1, len(r.layer.outputs)),
        class_name=p["className"],
        description=p["description"],
        parameters=json.dumps(p["parameters"], sort_keys=True),
        weights=len(weights),
    )


def lower_custom(w: LowerContext) -> None:
    """Write a custom layer with its weights. Raises MappingError R110 for parameters that are not
    strings, numbers and booleans.
    """
    split = len(w.node.inputs) - int(w.attr("weights", 0))
    blobs = {f"weights[{i}]": w.stored(v) for i, v in enumerate(w.node.inputs[split:])}
    text = w.attr("parameters", "{}")
    if w.attr("domain_name", ""):
        carried_layer(w)
        text = json.dumps({k: _parameter(v) for k, v in parse(text).items()})
    parameters = note(text, {str: _PARAMETER})
    if parameters is None or any(
        len(v) != 1 or not v.keys() <= _PARAMETER.keys() for v in parameters.values()
    ):
        message = "the parameters must be a JSON object of strings, numbers and booleans"
        raise MappingError(f"{message}, as Core ML names them", "R110")
    attrs: dict[str, Any] = {"className": w.attr("class_name"), "parameters": parameters}
    attrs["description"] = w.attr("description", "")
    w.low.add("custom", w.node.inputs[:split], w.node.outputs, attrs, blobs)


def _parameter(value: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter in a form that Core ML can store: a list is written as text."""
    given = value.get("list")
    return value if given is None else {"stringValue": ", ".join(map(str, given))}


RULES: list[Rule | Custom] = [
    *(rule for name, parameters in KINDS.items() for rule in draws(name, parameters)),
    custom(
        "RandomNormal RandomUniform RandomNormalLike RandomUniformLike", "", lower=lower_standard
    ),
    op(
        "netconv::RandomCategorical",
        "categoricalDistribution",
        SEED,
        Attr("samples", "numSamples", int),
        Attr("logits", "isLogits", bool),
        Attr("eps", kind=unset(1e-10)),
        Attr("temperature", kind=unset(1.0)),
    ),
    op(
        "Multinomial",
        "categoricalDistribution",
        Attr("seed", kind=int, node_default=-1),  # a number with a fraction, or none at all
        Attr("sample_size", "numSamples", int),
        RequireKey("isLogits", True, kind=bool),
        ImpliedAttrs(("dtype",)),  # the classes are floats there, independent of their type
        lower_only=True,
        example_inputs="2,5",
    ),
    custom("netconv::CustomLayer", "custom", lift_custom, lower_custom),
]
