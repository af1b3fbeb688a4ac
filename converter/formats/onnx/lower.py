"""The canonical graph -> a self-contained ONNX model: extension operators carry their definition as
functions.
"""

from __future__ import annotations

import json
from typing import Any

import onnx_ir as ir

from converter.errors import (
    Diagnostic,
    wrong_call,
)
from converter.formats.format import Flavor
from converter.formats.onnx.boundary import DEFAULTS, STATES
from converter.formats.onnx.pipeline import NEWEST, OLDEST, PIPELINE, Opset
from converter.graph import OPSET
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.passes.pipeline import run_passes


def lower(model: Network, flavor: Flavor, notes: list[Diagnostic]) -> ir.Model:
    """Return a model of the wanted opset. UnsupportedError X206 names every operator that it cannot
    express.
    """
    version = _version(flavor)
    clone = model.ir.clone()
    run_passes(PIPELINE, clone, Opset(model, notes=notes, version=version))
    return clone


def default_values(model: Network, lowered: ir.Model) -> dict[str, Any]:
    """Return the values of optional inputs, by their names in the file; the metadata declares
    that they are not constants.
    """
    given = {
        str(v.name): model.interface["defaults"][public_name(v)]
        for v in lowered.graph.inputs
        if public_name(v) in model.interface.get("defaults", {})
    }
    lowered.metadata_props.pop(DEFAULTS, None)
    lowered.metadata_props.pop(STATES, None)
    if given:
        lowered.metadata_props[DEFAULTS] = json.dumps(sorted(given))
    if states := model.interface.get("states"):
        names = {
            public_name(v): str(v.name) for v in (*lowered.graph.inputs, *lowered.graph.outputs)
        }
        declared = {names[a]: names[b] for a, b in states.items() if a in names and b in names}
        lowered.metadata_props[STATES] = json.dumps(declared, sort_keys=True)
    return given


def map_labels(model: Network, lowered: ir.Model) -> dict[str, list[Any]]:
    """Return the labels of outputs that were maps in the source, by their names in the file.

    The labels of onnxruntime's maps are sorted: those of others would be exchanged.
    """
    maps = model.interface.get("maps", {})
    return {
        str(v.name): labels
        for v in lowered.graph.outputs
        if (labels := maps.get(public_name(v))) and labels == sorted(set(labels))
    }


def _version(flavor: Flavor) -> int:
    text = flavor.options.get("opset", str(OPSET))
    if not text.isdecimal() or not OLDEST <= int(text) <= NEWEST:
        raise wrong_call(f"opset={text!r} cannot be written", help=f"use {OLDEST} to {NEWEST}")
    return int(text)
