"""Choose sizes for dynamic inputs: small, the same for every occurrence of a symbolic name, and
accepted by the network.

Language models have symbolic sizes that depend on each other (past + seq = total) without declaring
it; the dependencies are found by trial, by inferring the shapes of the whole network.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations

from converter.errors import (
    ConverterError,
    NothingComparedError,
    UnsupportedError,
    UsageError,
    wrong_call,
)
from converter.graph.network import Network
from converter.passes.fix_inputs import fix_inputs

Shape = tuple[int, ...]
SMALLEST = 3  # of sizes that several inputs share, or of integer inputs: 3, 4, 5, ...
WIDE = 32  # of any other: enough for most windows
MOST_TRIED = 200


def shapes_for(
    model: Network,
    given: Mapping[str, Sequence[int]] | None = None,
    hints: Mapping[str, Sequence[int | None]] | None = None,
) -> dict[str, Shape]:
    """Return the shape of each input by its name. Shapes `given` by the user are used unchanged,
    `hints` (from another model's inputs) where the model itself has a dynamic size.

    Raises UsageError U501 if a given shape contradicts the model.
    """
    dims = {i.name: i.shape for i in model.inputs}
    given, known = dict(given or {}), dict[str, int]()
    _demand_fit(dims, given)
    for name, shape in given.items():
        _bind(dims[name], shape, known)
    for source in (hints or {}, model.interface.get("shapes", {})):
        for name, sizes in source.items():
            if name not in given and len(sizes) == len(dims.get(name) or ()):
                _bind(dims[name], sizes, known)
    own = {**(hints or {}), **model.interface.get("shapes", {})}
    nameless = _nameless(model, {*given, *own})
    depend = len(_open(model, known)) + len(nameless) > 1
    tried: list[dict[str, Shape]] = []
    for numbers in _tries(model, known, nameless):
        shapes = {
            n: tuple(given[n]) if n in given else _shape(n, d, own.get(n, ()), numbers)
            for n, d in dims.items()
        }
        if shapes in tried:
            continue
        tried.append(shapes)
        if not depend or _takes(model, shapes):
            return shapes
    return tried[0]


def _demand_fit(
    dims: Mapping[str, Sequence[int | str | None] | None], given: Mapping[str, Sequence[int]]
) -> None:
    for name, shape in given.items():
        if name not in dims:
            raise wrong_call(
                f"--inputs names the input {name}, which the model does not have",
                help=f"the model has: {', '.join(dims)}",
            )
        declared = dims[name]
        if declared is not None and (
            len(declared) != len(shape)
            or any(isinstance(d, int) and d != n for d, n in zip(declared, shape, strict=True))
        ):
            shown = ",".join("?" if d is None else str(d) for d in declared)
            raise wrong_call(f"input {name!r} is [{shown}], got {list(shape)}")


def _bind(
    declared: Sequence[int | str | None] | None,
    sizes: Sequence[int | None],
    known: dict[str, int],
) -> None:
    for d, n in zip(declared or (), sizes, strict=False):
        if isinstance(d, str) and isinstance(n, int):
            known.setdefault(d, n)


def _open(model: Network, known: Mapping[str, int]) -> list[str]:
    """Return the names of dynamic sizes other than the batch that have no number yet."""
    named = [
        d
        for i in model.inputs
        for axis, d in enumerate(i.shape or ())
        if isinstance(d, str) and axis
    ]
    names = dict.fromkeys(t for d in named for t in _terms(d) or [d])
    return [n for n in names if n not in known and not n.isdecimal()]


def _name(name: str, axis: int) -> str:
    """Return the internal name of a dynamic size that has no name in the file."""
    return f"{name}[{axis}]"


def _nameless(model: Network, known: Container[str]) -> list[str]:
    """Return the internal names of nameless sizes after the batch axis, those of integer inputs
    first, provided that several inputs have such sizes: one input alone contradicts no other.
    Inputs in `known` have no dynamic sizes.
    """
    integers_first = sorted(model.inputs, key=lambda i: i.dtype.kind not in "iub")
    found = [
        [_name(i.name, axis) for axis, d in enumerate(i.shape or ()) if axis and d is None]
        for i in integers_first
        if i.name not in known
    ]
    return [n for names in found for n in names] if sum(map(bool, found)) > 1 else []


def _shared(model: Network, names: Sequence[str]) -> list[str]:
    """Return the names that several inputs share, or that occur in integer inputs or sums: they are
    not sizes of images.
    """
    uses: Counter[str] = Counter()
    for info in model.inputs:
        for d in info.shape or ():
            for name in (_terms(d) or [d]) if isinstance(d, str) else ():
                uses[name] += 2 if info.dtype.kind in "iub" or _terms(str(d)) else 1
    return [n for n in names if uses[n] > 1]


def _terms(name: str) -> list[str]:
    """Return both names of `past + seq`; empty if it is not a sum."""
    return [t for t in re.split(r"\s*\+\s*", name) if t] if "+" in name else []


def _tries(
    model: Network, known: Mapping[str, int], nameless: Sequence[str]
) -> Iterator[dict[str, int]]:
    """Yield numbers for names, the likeliest first: small ones for shared names only, then for all
    names; distinct or equal numbers, or one the sum of two others; finally the same number for all
    names, with one nameless size twice as large, as it may be a sum too.
    """
    names = _open(model, known)
    shared = _shared(model, names)
    tried = 0
    for free in [shared, names] if shared != names else [names]:
        distinct = {n: SMALLEST + i for i, n in enumerate(free)}
        alike = dict.fromkeys(free, SMALLEST)
        for base in (distinct, alike):
            yield {**base, **known}
            for total in reversed(free):
                for a, b in combinations([n for n in free if n != total], 2):
                    tried += 1
                    if tried > MOST_TRIED:
                        return
                    yield {**base, total: base[a] + base[b], **known}
    yield {**dict.fromkeys(names, WIDE), **known}
    yield {**dict.fromkeys(names, 1), **known}
    for total in nameless[:MOST_TRIED]:
        yield {**dict.fromkeys(names, WIDE), **known, total: 2 * WIDE}


def _shape(
    name: str,
    declared: Sequence[int | str | None] | None,
    own: Sequence[int | None],
    numbers: Mapping[str, int],
) -> Shape:
    """Return a static shape: declared sizes are kept, dynamic ones without a number are taken from
    `own`.
    """
    if declared is None:
        return tuple(d or 1 for d in own)
    shape = []
    for axis, d in enumerate(declared):
        meant = own[axis] if len(own) == len(declared) else None
        size = 1 if axis == 0 else numbers.get(_name(name, axis), WIDE)
        size = meant if meant is not None else size
        if isinstance(d, int):
            size = d
        elif isinstance(d, str):
            size = _number(d, numbers, size)
        shape.append(size)
    return tuple(shape)


def _number(name: str, numbers: Mapping[str, int], otherwise: int) -> int:
    terms = [numbers.get(t, int(t) if t.isdecimal() else None) for t in _terms(name)]
    if name not in numbers and terms and None not in terms:
        return sum(t for t in terms if t is not None)
    return numbers.get(name, otherwise)


def _takes(model: Network, shapes: Mapping[str, Shape]) -> bool:
    """Return whether the shapes of the whole network can be inferred."""
    try:
        fix_inputs(model.ir.clone(), shapes)
    except ConverterError:
        return False
    return True


# --- sizes that an engine refuses

BATCHES = (2, 3, 4, 5, 6, 8, 16, 32)  # tried where a batch of 1 is refused


@contextmanager
def explaining(model: Network, given: Mapping[str, Sequence[int]] | None = None) -> Iterator[None]:
    """Add to an engine's refusal (N403) which sizes were chosen for dynamic inputs, and which the
    network takes.
    """
    try:
        yield
    except (NothingComparedError, UsageError, UnsupportedError) as e:
        said = [d for d in e.diagnostics if d.code == "N403" and not d.help]
        help = _advice(model, dict(given or {})) if said else ""
        if not help:
            raise
        found = (replace(d, help=help) if d in said else d for d in e.diagnostics)
        raise type(e)(found) from None


def _advice(model: Network, given: Mapping[str, Sequence[int]]) -> str:
    """Return sizes that fit as options; "" if all sizes are those of the file or the call."""
    free = [i for i in model.inputs if i.name not in given and not _is_static(i.shape)]
    if not free:
        return ""
    chosen = shapes_for(model, given)
    batched = [i.name for i in free if i.shape and not isinstance(i.shape[0], int)]
    texts = (f"{i.name}:{','.join(map(str, chosen[i.name]))}" for i in free)
    said = f"the sizes {', '.join(texts)} were chosen"
    for size in BATCHES if batched else ():
        others = {n: (size, *s[1:]) if n in batched else s for n, s in chosen.items()}
        if _takes(model, others):
            return f"{said}; use {_as_options(others, [i.name for i in free])}"
    return f"{said}; other values of --inputs may fit"


def fitting_batch(model: Network, shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the options with a batch that the network takes in place of a dynamic one that it does
    not; "" if there is none.
    """
    batched = [i.name for i in model.inputs if i.shape and not isinstance(i.shape[0], int)]
    names = [n for n in shapes if n in batched and len(shapes[n])]
    for size in BATCHES if names else ():
        others = {n: (size, *s[1:]) if n in names else tuple(s) for n, s in shapes.items()}
        if _takes(model, others):
            return f"use {_as_options(others, list(others))}"
    return ""


def _is_static(shape: Sequence[int | str | None] | None) -> bool:
    return shape is not None and all(isinstance(d, int) for d in shape)


def _as_options(shapes: Mapping[str, Shape], names: Sequence[str]) -> str:
    texts = (f"{n}:{','.join(map(str, shapes[n]))}" for n in names)
    return " ".join(f"--inputs {shlex.quote(text)}" for text in texts)
