"""Document -> the shared graph."""

from __future__ import annotations

import json

from converter.errors import ReadError
from converter.formats.integers import NOTE
from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.lift import GraphLift
from converter.formats.zhouyi.lift_bodies import CONTROL
from converter.formats.zhouyi.quantization.lift import NumbersLift
from converter.formats.zhouyi.quantization.quant_params import of_parser
from converter.formats.zhouyi.topology import check_graphs
from converter.graph.build import new_model
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.passes.channels_last import to_nchw
from converter.passes.dead_code import remove_dead_code


def lift(document: Document, dequantize: bool = False) -> Network:
    """Return a Network with the tensors of the header as its boundary, in the layout and types of
    the file.

    An integer IR is the exact integer arithmetic, or with `dequantize` float operators between
    DequantizeLinear and QuantizeLinear; a quantized file of the parser, which leaves the arithmetic
    to its quantizer, always the latter.

    Raise ReadError R105 if the graph is not valid; raise UnsupportedError with every layer that has
    no counterpart.
    """
    faults = check_graphs(document)
    if errors := [d for d in faults if d.level == "error"]:
        raise ReadError(errors)
    model, b = new_model(document.name or "main")
    reader = (
        NumbersLift(document, b) if dequantize or of_parser(document) else GraphLift(document, b)
    )
    reader.control = CONTROL
    reader.run()
    refuse(reader.lifting.problems)
    reader.outputs()
    to_nchw(model)
    remove_dead_code(model)
    if NOTE in document.header:
        pairs = (part.partition(":")[::2] for part in str(document.header[NOTE]).split(";"))
        about = {k: int(v) if v.isdecimal() else v for k, v in pairs}
        model.metadata_props[NOTE] = json.dumps(about, sort_keys=True)
    return Network(model, "zhouyi", notes=[*faults, *reader.notes])
