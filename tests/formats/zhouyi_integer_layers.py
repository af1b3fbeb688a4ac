"""One integer layer of Zhouyi Compass IR in a file, read and run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import converter
from converter.formats.zhouyi.codec import write_ir
from converter.formats.zhouyi.ir import Constant, Layer, Tensor, build_document
from converter.formats.zhouyi.values import DType
from converter.io.files import Output

Array = Any
# of the inputs, in order; of the result
ZEROS = (2, -5, 1)  # of the inputs, in the quantiser's sense: value = (q + zero) / scale
SCALES = (40.0, 25.0, 30.0)
OUT_ZERO, OUT_SCALE = -7, 20.0


def compute(
    folder: Path,
    kind: str,
    feeds: list[Array],
    shape: tuple[int, ...],
    attrs: Mapping[str, Any],
    constants: Mapping[str, Array] | None = None,
    **top: Any,
) -> Array:
    """The last result of one layer on stored inputs; `also` is the shape of one before it."""
    bottoms = [Tensor(f"x{i}", a.shape, DType(str(a.dtype))) for i, a in enumerate(feeds)]
    layers = [
        Layer(
            t.name, "Input", [], [t], {"layer_top_scale": [SCALES[i]], "layer_top_zp": [ZEROS[i]]}
        )
        for i, t in enumerate(bottoms)
    ]
    out = Tensor("y", shape, DType(top.get("dtype", "int8")))
    before = [Tensor("mean", top["also"], out.dtype)] if "also" in top else []
    count = 1 + len(before)
    own = {
        "layer_top_scale": [top.get("scale", OUT_SCALE)] * count,
        "layer_top_zp": [top.get("zero", OUT_ZERO)] * count,
    }
    own |= {"layer_top_range": [top["range"]]} if "range" in top else {}
    layers.append(
        Layer(
            "it",
            kind,
            bottoms,
            [*before, out],
            {**own, **attrs},
            {k: Constant.of(v) for k, v in (constants or {}).items()},
        )
    )
    document = build_document(
        "m", layers, [t.name for t in bottoms], [t.name for t in (*before, out)]
    )
    del document.header["precision"], document.header["compat_quantized_model"]
    with Output(folder / "m.txt") as file:
        write_ir(document, file)
    return converter.load(folder / "m.txt").run(
        {t.name: a for t, a in zip(bottoms, feeds, strict=True)}
    )["y"]
