"""The noise floor: how much the reference itself moves when its inputs and weights move by one step
of their type.

A difference is judged in units of that floor, element by element, so that no tolerance has to be
invented. Where a layer of the candidate carries a narrower type (half precision), one step of that
type is the jitter of this layer, and of no other.
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
# what exceeds its tolerance by less is measured once more, with so many runs: three may have missed
# how far a network moves
BORDERLINE, MORE_RUNS = 8.0, 12
# what exceeds its tolerance by less is computed in doubles, where that costs little
ROUNDING_ERROR = 64.0
# where functions cancel, the terms are near one, and what is left of them is off by less than this
CANCELLED = 1e-3
UNMOVED = 4.0  # see tolerance
# a difference beyond this many times the floor is not rounding; measured on equivalent rewrites of
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
    """The relative step of the coarsest floating-point type among activations and weights; 0.0
    where none is a float. Single numbers do not count: they are parameters.
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
    """The relative rounding step of each tensor of a network, by its name: that of the types which
    it is computed in and from, in either of two models. `finest`: of all others, and no step is
    finer.
    """

    steps: Mapping[str, float]
    finest: float = 2.0**-52

    def __getitem__(self, name: str) -> float:
        return max(self.steps.get(name, 0.0), self.finest)

    def coarse(self, name: str) -> bool:
        """Whether a tensor is known to be rounded to less than a float."""
        return self.steps.get(name, 0.0) > _STEP[ir.DataType.FLOAT]

    @property
    def largest(self) -> float:
        return max([self.finest, *self.steps.values()])


def precision_of(model: ir.Model, finest: float = 2.0**-52) -> Precision:
    """The steps of one network by its own types."""
    steps = {str(v.name): coarsest([v]) for v in model.graph.inputs}
    for node in model.graph:
        steps.update(dict.fromkeys((str(o.name) for o in node.outputs), step_of([node])))
    return Precision(steps, finest)


def step_of(nodes: Sequence[ir.Node]) -> float:
    """The step of the coarsest type in which some nodes, and the bodies in them, compute."""
    inner = [n for node in nodes for g in subgraphs(node) for n in all_nodes(g)]
    return coarsest(v for n in (*nodes, *inner) for v in (*n.inputs, *n.outputs))


def jitter(array: Array, rng: np.random.Generator, step: float) -> Array:
    """Each element moved up or down by `step` of its own size (zeros, infinities and non-floats
    stay).
    """
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
    """What draws the jitter of the `number`-th run for one input: by its contents, so that the
    noise of a feed is the same whatever other feeds there are.
    """
    contents = zlib.crc32(np.ascontiguousarray(array).data) if array.dtype.kind == "f" else 0
    return np.random.default_rng([number, place, contents])


def shaken(values: Mapping[str, Array], number: int, step: Callable[[str], float]) -> Arrays:
    """All inputs of a run with jitter, each by its own step."""
    return {
        n: jitter(x, generator(number, i, x), step(n)) for i, (n, x) in enumerate(values.items())
    }


def spread(base: Array, others: Sequence[Array]) -> Floor:
    """The largest deviation of each element from `base`; infinite where only one side is finite.
    Texts have none.
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
    """What a difference may be: a multiple of the floor, smoothed over the channel, since three
    runs may miss an element's spread.

    `step` is the relative rounding step of what computes the tensor; its own type has one, too, a
    constant no other. `minimum` is the step of a quantised tensor. What the runs moved by a
    step at most has cancelled out or is at a bound, so that its rounding was not measured: it may
    be off by `unmoved` times as much.
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
    """Whether a difference above its tolerance needs a closer look at the noise: by little, or a
    small one that functions which cancel may leave.
    """
    small = cancels and found.max_abs <= CANCELLED
    return found.excess > 1 and (small or found.excess <= BORDERLINE)


def small(found: Difference) -> bool:
    """Whether a difference above its tolerance may be a rounding error, which doubles tell."""
    return 1 < found.excess <= ROUNDING_ERROR


# operators whose results are numbers of their first operand: a step of it is one of theirs
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


def quantisation_steps(model: ir.Model) -> dict[str, float]:
    """The step of each tensor that comes out of quantisation: rounding may fall either way
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
