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
ZEROS = (2, -5, 1)  # of the inputs, in the quantizer's sense: value = (q + zero) / scale
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
    dtype = top.pop("dtype", "int8")
    results = [(top.pop("also"), dtype)] if "also" in top else []
    return compute_all(folder, kind, feeds, [*results, (shape, dtype)], attrs, constants, **top)[-1]


def compute_all(
    folder: Path,
    kind: str,
    feeds: list[Array],
    results: list[tuple[tuple[int, ...], str]],
    attrs: Mapping[str, Any],
    constants: Mapping[str, Array] | None = None,
    **top: Any,
) -> list[Array]:
    """All results, whose shapes and types are `results`; `numbers`: read as numbers."""
    numbers = top.pop("numbers", False)
    names = write_layer(folder / "m.txt", kind, feeds, results, attrs, constants, **top)
    found = converter.load(folder / "m.txt", dequantize=numbers).run(
        {f"x{i}": a for i, a in enumerate(feeds)},
    )
    return [found[n] for n in names]


def write_layer(
    path: Path,
    kind: str,
    feeds: list[Array],
    results: list[tuple[tuple[int, ...], str]],
    attrs: Mapping[str, Any],
    constants: Mapping[str, Array] | None = None,
    **top: Any,
) -> list[str]:
    """The file; names of the results."""
    bottoms = [Tensor(f"x{i}", a.shape, DType(str(a.dtype))) for i, a in enumerate(feeds)]
    params = list(zip(SCALES * 4, ZEROS * 4, strict=True))
    layers = [
        Layer(t.name, "Input", [], [t], {"layer_top_scale": [scale], "layer_top_zp": [zero]})
        for t, (scale, zero) in zip(bottoms, params, strict=False)
    ]
    names = [f"y{i}" for i in range(len(results) - 1)] + ["y"]
    outs = [Tensor(n, s, DType(t)) for n, (s, t) in zip(names, results, strict=True)]
    own = {
        "layer_top_scale": [top.get("scale", OUT_SCALE)] * len(outs),
        "layer_top_zp": [top.get("zero", OUT_ZERO)] * len(outs),
    }
    own |= {"layer_top_range": [top["range"]]} if "range" in top else {}
    constants = {k: Constant.of(v) for k, v in (constants or {}).items()}
    layers.append(Layer("it", kind, bottoms, outs, {**own, **attrs}, constants))
    document = build_document("m", layers, [t.name for t in bottoms], names)
    del document.header["precision"], document.header["compat_quantized_model"]
    with Output(path) as file:
        write_ir(document, file)
    return names
