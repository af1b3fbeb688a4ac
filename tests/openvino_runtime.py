"""Single operations in the openvino runtime, against which reading, running and writing again are
compared.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import openvino

import converter

ov: Any = openvino
# As the numbers of the file say, on every processor: newer ones multiply in halves or in 8 bits.
PRECISE = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
Results = list[Any]


def corners(rng: Any, *lead: int, size: float = 1.0) -> Any:
    middle, half = rng.random((*lead, 2)) * size, rng.random((*lead, 2)) * size * 0.3
    return np.concatenate([middle - half, middle + half], -1).astype(np.float32)


def built(
    path: Path,
    opset: int,
    kind: str,
    feeds: list[Any],
    attributes: dict[str, Any],
    constants: tuple[int, ...] = (),
) -> Path:
    from openvino.utils.node_factory import NodeFactory  # type: ignore[import-not-found, unused-ignore]

    inputs = {
        i: ov.op.Parameter(ov.Type(x.dtype), ov.Shape(x.shape))
        for i, x in enumerate(feeds)
        if i not in constants
    }
    operands = [inputs[i] if i in inputs else ov.op.Constant(x) for i, x in enumerate(feeds)]
    node = NodeFactory(f"opset{opset}").create(kind, [n.output(0) for n in operands], attributes)
    model = ov.Model(node.outputs(), list(inputs.values()), "one")
    for i, p in inputs.items():
        p.output(0).set_names({f"in{i}"})
    ov.serialize(model, path, path.with_suffix(".bin"))
    return path


@functools.cache
def core() -> Any:
    """One for all: its plugins are loaded once."""
    return ov.Core()


def infer(path: Path, feeds: list[Any]) -> Results:
    compiled = core().compile_model(core().read_model(path), "CPU", PRECISE)
    found = compiled(feeds)
    return [np.array(found[o]) for o in compiled.outputs]


def close(got: Results, wanted: Results, tolerance: float) -> None:
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in wanted]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(
            g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=tolerance
        )


def check(
    folder: Path,
    opset: int,
    kind: str,
    feeds: list[Any],
    attributes: dict[str, Any],
    constants: tuple[int, ...] = (),
    tolerance: float = 1e-4,
) -> Results:
    """Our results; the same as the runtime's, as are the runtime's own of the file that is written
    again.
    """
    path, again = (
        built(folder / "one.xml", opset, kind, feeds, attributes, constants),
        folder / "again.xml",
    )
    live = [x for i, x in enumerate(feeds) if i not in constants]
    wanted, model = infer(path, live), converter.load(path)
    got = list(model.run({f"in{i}": x for i, x in enumerate(feeds) if i not in constants}).values())
    close(got, wanted, tolerance)
    model.save(again, "openvino")
    assert f'type="{kind}"' in again.read_text()
    close(infer(again, live), wanted, tolerance)
    return got
