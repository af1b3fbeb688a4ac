"""The noise floor: how much the reference itself changes when its inputs and weights change by one
step of their type.

A difference is judged relative to that floor, element by element, so that no tolerance has to be
invented. If a layer of the candidate has a narrower type (float16), one step of that type is the
jitter of this layer, and of no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.commands.verify.compare import Difference, distance, same_shape, wide
from converter.graph.infer import Array, Arrays, constant
from converter.graph.walk import all_nodes, subgraphs

RUNS = 3
# a difference that exceeds its tolerance by less than this factor is measured once more, with this
# many runs: three may underestimate the noise
BORDERLINE, MORE_RUNS = 8.0, 12
# a difference that exceeds its tolerance by less than this factor is computed in doubles, if that
# is cheap
ROUNDING_ERROR = 64.0
# where functions cancel, the terms are near one, and the error of their difference is less than
# this
CANCELLED = 1e-3
UNMOVED = 4.0  # see tolerance
# a difference beyond this multiple of the floor is not rounding; measured on equivalent rewrites of
# real networks
MULTIPLE = 16.0
_STEP = {
    ir.DataType.FLOAT16: 2.0**-11,
    ir.DataType.BFLOAT16: 2.0**-8,
    ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.DOUBLE: 2.0**-52,
}
Floor = npt.NDArray[np.float64]
Floors = list[list[Floor]]  # by feed, then by output


def coarsest(values: Iterable[ir.Value | None]) -> float:
    """Return the relative step of the coarsest floating-point type among activations and weights;
    0.0 if none is a float. Scalars are ignored: they are parameters.
    """
    return max(
        (
            _STEP[v.dtype]
            for v in values
            if v is not None
            and v.dtype in _STEP
            and (v.const_value is None or v.const_value.size > 1)
        ),
        default=0.0,
    )


@dataclass(frozen=True)
class Precision:
    """The relative rounding step of each tensor of a network, by name: the step of the types in
    which, and from which, it is computed, in either of two models. `finest` is the step of all
    other tensors, and the lower bound of all steps.
    """

    steps: Mapping[str, float]
    finest: float = 2.0**-52

    def __getitem__(self, name: str) -> float:
        return max(self.steps.get(name, 0.0), self.finest)

    def coarse(self, name: str) -> bool:
        """Return whether a tensor is known to be rounded to less precision than float32."""
        return self.steps.get(name, 0.0) > _STEP[ir.DataType.FLOAT]

    @property
    def largest(self) -> float:
        return max([self.finest, *self.steps.values()])


def precision_of(model: ir.Model, finest: float = 2.0**-52) -> Precision:
    """Return the steps of one network according to its own types."""
    steps = {str(v.name): coarsest([v]) for v in model.graph.inputs}
    for node in model.graph:
        steps.update(dict.fromkeys((str(o.name) for o in node.outputs), step_of([node])))
    return Precision(steps, finest)


def step_of(nodes: Sequence[ir.Node]) -> float:
    """Return the step of the coarsest type in which some nodes, and their bodies, compute."""
    inner = [n for node in nodes for g in subgraphs(node) for n in all_nodes(g)]
    return coarsest(v for n in (*nodes, *inner) for v in (*n.inputs, *n.outputs))


def jitter(array: Array, rng: np.random.Generator, step: float) -> Array:
    """Move each element up or down by `step`, relative (zeros, infinities and non-floats stay)."""
    if array.dtype.kind != "f":
        return array
    sign = rng.integers(0, 2, array.shape, np.int8).astype(array.dtype)
    sign *= 2
    sign -= 1
    with np.errstate(all="ignore"):
        moved = (
            array
            + np.asarray(array * array.dtype.type(max(step, float(np.finfo(array.dtype).eps))))
            * sign
        )
    return np.where(np.isfinite(array), moved, array).astype(array.dtype, copy=False)


def generator(number: int, place: int, array: Array) -> np.random.Generator:
    """Return the generator of the jitter of one input in the `number`-th run. Its seed depends on
    the contents, so that the noise of a feed does not depend on the other feeds.
    """
    contents = zlib.crc32(np.ascontiguousarray(array).data) if array.dtype.kind == "f" else 0
    return np.random.default_rng([number, place, contents])


def shaken(values: Mapping[str, Array], number: int, step: Callable[[str], float]) -> Arrays:
    """Return all inputs of a run with jitter, each changed by its own step."""
    return {
        n: jitter(x, generator(number, i, x), step(n)) for i, (n, x) in enumerate(values.items())
    }


def spread(base: Array, others: Sequence[Array]) -> Floor:
    """Return the largest deviation of each element from `base`; infinite if only one side is
    finite, zero for texts.
    """
    if base.dtype.kind in "OUS":
        return np.zeros(base.shape)
    floor = np.zeros(base.shape)
    for other in others:
        aligned = same_shape(base, other)
        if aligned is None:
            return np.full(base.shape, np.inf)
        floor = np.maximum(floor, distance(base, aligned))
    return floor


def tolerance(
    base: Array, floor: Floor, step: float, minimum: float = 0.0, unmoved: float = 1.0
) -> Floor:
    """Return the allowed difference: a multiple of the floor, smoothed over the channel, since
    three runs may underestimate the spread of an element.

    `step` is the relative rounding step of the computation; the step of the tensor's own type is
    the lower bound. `minimum` is the step of a quantized tensor. Elements that the runs moved by at
    most a step have cancelled out or are at a bound, so their rounding was not measured: their own
    rounding counts `unmoved` times.
    """
    if base.dtype.kind in "OUSb" or base.size == 0:
        return np.zeros(base.shape)
    if base.dtype.kind != "f":
        return np.maximum(floor, minimum)
    axes = tuple(i for i in range(base.ndim) if i != 1) if base.ndim > 2 else None
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(floor), floor, 0.0)
        smooth = np.sqrt(np.mean(finite**2, axis=axes, keepdims=True)) if base.ndim else finite
        step = max(step, float(np.finfo(base.dtype).eps))
        own = np.where(np.isfinite(base), np.abs(wide(base)), 0.0) * step / 2
        own = np.where(floor <= 2 * own, own * unmoved, own)
        return np.maximum(MULTIPLE * np.maximum(np.maximum(floor, smooth), own), minimum)


def doubtful(found: Difference, cancels: bool) -> bool:
    """Return whether a difference above its tolerance requires a more precise measurement of the
    noise: it exceeds it slightly, or is small and may come from functions that cancel.
    """
    small = cancels and found.max_abs <= CANCELLED
    return found.excess > 1 and (small or found.excess <= BORDERLINE)


def small(found: Difference) -> bool:
    """Return whether a difference above its tolerance may be a rounding error, which doubles can
    decide.
    """
    return 1 < found.excess <= ROUNDING_ERROR


# operators whose result consists of elements of their first operand: its step is preserved
_MOVING = {
    "Identity",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Split",
    "Gather",
    "Expand",
    "Tile",
    "DepthToSpace",
    "SpaceToDepth",
}


def quantization_steps(model: ir.Model) -> dict[str, float]:
    """Return the step of each tensor that results from quantization: rounding may go either way
    there.
    """
    steps: dict[str, float] = {}
    for node in model.graph:
        if node.op_type == "QuantizeLinear":
            steps[str(node.outputs[0].name)] = 1.0
        elif node.op_type == "DequantizeLinear" and (scale := constant(node.inputs[1])) is not None:
            steps[str(node.outputs[0].name)] = float(
                np.max(np.abs(scale.astype(np.float64)), initial=0.0)
            )
        elif (
            node.op_type in _MOVING
            and node.inputs[0] is not None
            and str(node.inputs[0].name) in steps
        ):
            steps.update((str(o.name), steps[str(node.inputs[0].name)]) for o in node.outputs)
    return steps
