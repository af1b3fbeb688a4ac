"""Models with other sizes of inputs than their files fix.

A file is read twice: once to learn its sizes, and once with names for those that change, so that no
decision of a reader rests on the old numbers. Formats whose files declare the shape of every layer
cannot be read so; their networks are changed as they are, as long as no padding can depend on the
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from converter.errors import ReadError, UnsupportedError, UsageError, wrong_call
from converter.graph.network import Network
from converter.graph.open_sizes import Change, reading_open
from converter.passes.fix_inputs import fix_inputs
from converter.passes.sizes.change import change_sizes

DECLARED = ("openvino", "zhouyi", "nnapi")  # formats whose files have the shape of every layer

Shape = tuple[int | str | None, ...]


def resized(read: Callable[[], Network], given: Mapping[str, Sequence[int]]) -> Network:
    """Return the network that `read` reads, with the given shapes of inputs, as far as they
    contradict sizes that the file fixes; dynamic sizes are left to the caller.

    Raise UsageError U501 with the layer of a constant that fixes a size and cannot be computed for
    the new one.
    """
    network = read()
    changes = _changes(network, given)
    if not changes:
        return network
    by_declared = False
    try:
        with reading_open(changes):
            opened = read()
    except (ReadError, UnsupportedError) as e:
        if not _declares_all_shapes(network):
            raise _refused(e) from None
        opened, by_declared = network, True
    old, new = _shapes(network, changes)
    notes = change_sizes(opened.ir, old, new, by_declared)
    fix_inputs(opened.ir, {n: c.new for n, c in changes.items()})
    opened.notes.extend(notes)
    opened.source = None  # no engine runs the file in these sizes
    _resize_defaults(opened, changes)
    return opened


def _declares_all_shapes(network: Network) -> bool:
    """Return whether the file has the shape of every layer; of OpenVINO IR the legacy versions."""
    values = (v for node in network.ir.graph for v in node.outputs)
    opsets = any("openvino.name" in v.metadata_props for v in values)
    return network.format in DECLARED and not opsets


def _refused(error: ReadError | UnsupportedError) -> UsageError:
    """Return the refusal of a layer whose reader needs the size that is to change."""
    (diagnostic, *_) = error.diagnostics
    message = f"the network does not accept these shapes: {diagnostic.message}"
    help = "export the network with the new size, or with a dynamic one"
    return wrong_call(message, help=help, where=diagnostic.where)


def _changes(network: Network, given: Mapping[str, Sequence[int]]) -> dict[str, Change]:
    """Return the shapes that contradict sizes of the file, by the names of inputs."""
    found = {}
    for info in network.inputs:
        if info.shape is None or info.name not in given:
            continue
        try:
            sizes = [int(n) for n in given[info.name]]
        except (TypeError, ValueError):
            continue  # refused later, with the reason
        wanted = network.declared_shape(info.name, sizes)
        if len(wanted) != len(info.shape) or min(wanted, default=0) < 1:
            continue
        if is_channels_last(info.shape, wanted):
            wanted = [wanted[0], *wanted[2:], wanted[1]]
        pairs = list(zip(info.shape, wanted, strict=True))
        if any(isinstance(a, int) and a != b for a, b in pairs):
            found[info.name] = Change(info.shape, tuple(wanted))
    return found


def is_channels_last(declared: Shape, wanted: Sequence[int]) -> bool:
    """Return whether a shape N, C, H, W is given for an image that a file stores N, H, W, C, as
    that of the other model of a comparison.
    """
    image = len(wanted) == 4 and all(isinstance(n, int) for n in declared)
    return image and declared[3] == wanted[1] != declared[1] and wanted[3] != declared[3]


def _shapes(
    network: Network, changes: Mapping[str, Change]
) -> tuple[dict[str, Sequence[int]], dict[str, Sequence[int]]]:
    """Return the shapes of the changed inputs before and after; dynamic sizes of the file are the
    requested ones in both.
    """
    old: dict[str, Sequence[int]] = {
        name: [a if isinstance(a, int) else b for a, b in zip(c.old, c.new, strict=True)]
        for name, c in changes.items()
    }
    return old, {name: list(c.new) for name, c in changes.items()}


def _resize_defaults(network: Network, changes: Mapping[str, Change]) -> None:
    """Give initial values of changed inputs the new shape if all their elements are equal."""
    defaults = network.interface.get("defaults", {})
    found = dict(defaults)
    for name, change in changes.items():
        array = np.asarray(defaults[name]) if name in defaults else None
        if array is not None and array.size and (array == array.flat[0]).all():
            found[name] = np.full(change.new, array.flat[0], array.dtype)
    if found:
        network.interface = {**network.interface, "defaults": found}
    network.tidy()
