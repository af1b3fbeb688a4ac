"""The layers in the folders next to this one with numbers and operands that no layer has: reading
them ends in a refusal, never in an exception of Python.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import ParseError

from converter.errors import ConverterError
from converter.io import limits
from layers import cases
from layers.models import model_of, network_of
from layers.test_layers import FILES

NUMBERS = (0, -1, (1 << 31) - 1)
EACH, FEW = 5, 2  # changes of each n-th file in the everyday tests
MANY, MANY_NUMBERS = 6, 20  # operands and numbers of each file that the slow ones change besides
Change = Callable[[], cases.Case]
TYPES = ("float32", "int32", "int64", "bool", "uint8")
MEMORY = 2 << 30  # bytes; the numbers must not be taken for sizes


def damaged(value: Any) -> Iterator[Any]:
    """An attribute with other numbers, and as a list of another length."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield from NUMBERS
        if isinstance(value, float):
            yield float("nan")
    elif isinstance(value, str):
        parts = re.split(r"([\s,]+)", value)
        for i, part in enumerate(parts):
            if re.fullmatch(r"-?\d+(\.\d*)?", part):
                yield from ("".join([*parts[:i], str(n), *parts[i + 1 :]]) for n in NUMBERS)
        yield ""
    elif isinstance(value, list):
        for i, x in enumerate(value[:6]):
            yield from ([*value[:i], y, *value[i + 1 :]] for y in damaged(x))
        yield from ([], value[:-1], [*value, *value[-1:]])
    elif isinstance(value, dict):
        for key, x in value.items():
            yield from ({**value, key: y} for y in damaged(x))


def variants(case: cases.Case) -> Iterator[Change]:
    """Changes of one attribute, or of one element of a small constant operand."""
    for key, value in case.attributes.items():
        yield from (partial(with_attribute, case, key, other) for other in damaged(value))
    for i, tensor in enumerate(case.inputs):
        if not tensor.constant or tensor.dtype.kind != "i" or tensor.values.size > 8:
            continue
        most = int(np.iinfo(tensor.dtype).max)
        for place in range(tensor.values.size):
            yield from (partial(with_element, case, i, place, min(n, most)) for n in NUMBERS)


def with_attribute(case: cases.Case, key: str, value: Any) -> cases.Case:
    changed = copy.deepcopy(case)
    changed.attributes[key] = value
    return changed


def with_element(case: cases.Case, operand: int, place: int, number: int) -> cases.Case:
    changed = copy.deepcopy(case)
    changed.inputs[operand].values.reshape(-1)[place] = number
    return changed


def fitted(tensor: cases.Tensor, shape: tuple[int, ...]) -> cases.Tensor:
    values = tensor.values
    if values is not None:
        values = np.resize(np.asarray(values, tensor.dtype), shape)
    return dataclasses.replace(tensor, shape=shape, values=values)


def unlike(tensor: cases.Tensor) -> Iterator[cases.Tensor]:
    """The operand with other axes and sizes, of other types, as a constant or none, left out."""
    shape = tuple(tensor.shape)
    bigger = tuple(d + 1 for d in shape)
    none, one = (0,) * len(shape), (1,) * len(shape)
    for other in ((), shape[:-1], (*shape, 2), (2, *shape), none, one, bigger, shape[::-1]):
        if other != shape:
            yield fitted(tensor, other)
    if tensor.type != "string":
        for type_ in TYPES:
            with np.errstate(invalid="ignore"):  # an infinity as an integer
                values = None if tensor.values is None else np.asarray(tensor.values).astype(type_)
            yield dataclasses.replace(tensor, type=type_, values=values)
    yield dataclasses.replace(tensor, constant=not tensor.constant)
    yield dataclasses.replace(tensor, absent=True)


def misfits(case: cases.Case) -> Iterator[cases.Case]:
    """The layer with one operand, result or weight changed, one more or one less, or without one
    of its attributes.
    """
    for side in ("inputs", "outputs"):
        tensors = getattr(case, side)
        for i, tensor in enumerate(tensors):
            yield dataclasses.replace(case, **{side: [*tensors[:i], *tensors[i + 1 :]]})
            for other in unlike(tensor):
                yield dataclasses.replace(case, **{side: [*tensors[:i], other, *tensors[i + 1 :]]})
        yield dataclasses.replace(case, **{side: [*tensors, *tensors[-1:]]})
    for field in ("weights", "attributes"):
        given = getattr(case, field)
        for key in given:
            rest = {k: v for k, v in given.items() if k != key}
            yield dataclasses.replace(case, **{field: rest})
    for key, tensor in case.weights.items():
        for other in unlike(tensor):
            yield dataclasses.replace(case, weights={**case.weights, key: other})


def read(format: str, case: cases.Case) -> None:
    try:
        network = network_of(format, case)
    except ParseError:  # protobuf's: the message cannot say this at all
        return
    lift(format, network)


def lift(format: str, network: Any) -> None:
    with contextlib.suppress(ConverterError), limits.memory(MEMORY):
        model_of(format).lift(network)


def drawn(path: Path, found: list[Any], *counts: int) -> list[Any]:
    """Draw some of the changes found, as often as there are counts."""
    numbers = range(len(found))
    draws = (random.Random(path.stem).sample(numbers, min(n, len(found))) for n in counts)
    return [found[i] for i in dict.fromkeys(i for draw in draws for i in draw)]


def read_numbers(format: str, path: Path, *counts: int) -> None:
    for change in drawn(path, list(variants(cases.read(path))), *counts):
        read(format, change())


def read_misfits(format: str, path: Path, *counts: int) -> None:
    case = cases.read(path)
    if case.model:  # a file of its own, in which nothing is changed
        return
    for other in drawn(path, list(misfits(case)), *counts):
        try:
            network = network_of(format, other)
        except Exception:  # no file can say this at all
            continue
        lift(format, network)


@pytest.mark.parametrize(("format", "path"), FILES[::EACH])
def test_some_impossible_numbers_are_refused(format: str, path: Path) -> None:
    read_numbers(format, path, FEW)


@pytest.mark.parametrize(("format", "path"), FILES[::EACH])
def test_some_operands_that_do_not_fit_are_refused(format: str, path: Path) -> None:
    read_misfits(format, path, FEW)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "path"), FILES)
def test_operands_that_do_not_fit_are_refused(format: str, path: Path) -> None:
    read_misfits(format, path, FEW, MANY)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "path"), FILES)
def test_impossible_numbers_are_refused(format: str, path: Path) -> None:
    read_numbers(format, path, FEW, MANY_NUMBERS)
