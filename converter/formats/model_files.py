"""Model files of any format: recognized by content and suffix, read, checked and written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx_ir as ir

from converter import formats
from converter.errors import (
    Diagnostic,
    UnsupportedError,
    Where,
    refused_file,
    unreadable,
    wrong_call,
)
from converter.formats import bundles
from converter.formats.coreml.package import size_of
from converter.formats.sidefiles import demand_replaceable
from converter.graph.infer import InferenceError
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.network import Network
from converter.graph.verify.node import check_shape
from converter.graph.walk import all_graphs, all_nodes
from converter.io import progress
from converter.io.atomic import recover
from converter.io.files import Output, size_text
from converter.passes.stored_halves import is_weight, stored_half

PathLike = str | os.PathLike[str]
D = ir.DataType

TEXT = (".xml", ".txt", ".json")  # of formats that store their weights in a separate file
GROWTH = 1.3  # from where a written file is much larger than the weights of the source
FILE_OVERHEAD, NODE_OVERHEAD = (
    1 << 16,
    1 << 10,
)  # bytes for everything but weights: for a file, for each node
TEXT_NODE_OVERHEAD = (
    1 << 14
)  # bytes for each node in a format of text, where one may become many layers


def load(
    path: PathLike,
    format: str | None = None,
    weights: PathLike | None = None,
    dequantize: bool = False,
    signature: str = "",
    member: str = "",
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> Network:
    """Load a network as `converter.load` documents, but without the means to run it."""
    read = partial(_read, path, format, weights, dequantize, signature, member)
    if not inputs:
        return read()
    from converter.passes.sizes.resized import resized

    return resized(read, inputs)


def _read(
    path: PathLike,
    format: str | None,
    weights: PathLike | None,
    dequantize: bool,
    signature: str,
    member: str,
) -> Network:
    p = Path(path)
    recover(p)
    formats.demand_there(p)
    with bundles.unpacked(p, member) as file:
        network = _load(file, format, weights, dequantize, signature)
    if file != p:
        network.source = None  # the file that contained it is gone
    return network


def _load(
    p: Path, format: str | None, weights: PathLike | None, dequantize: bool, signature: str
) -> Network:
    """Load a network from a file that holds one model."""
    chosen = formats.get(format.split("+")[0]) if format else formats.detect(p)
    formats.demand_file(p)
    read = chosen.read_numbers if dequantize and chosen.read_numbers is not None else chosen.read
    with progress.step(f"reading {p.name}"), _boundary_diagnosed(p):
        if not signature:
            network = read(p, Path(weights) if weights else None)
        elif chosen.read_signature is not None:
            network = chosen.read_signature(p, signature, Path(weights) if weights else None)
        else:
            message = f"{chosen.title} files have no signatures"
            raise wrong_call(message, where=p)
    _demand_boundary(network, p)
    if weights is None:
        network.source, network.function = p, signature
    known = (*chosen.suffixes, *chosen.containers)
    if not format and not p.name.endswith(known) and (other := formats.of_suffix(p)):
        message = f"the content is {chosen.title}, the suffix that of {formats.get(other).title}"
        network.notes.append(
            Diagnostic(
                "R108",
                message,
                "warning",
                Where(str(p)),
                help=f"use -f {chosen.name} to confirm it",
            )
        )
    return network


def check(
    path: PathLike, format: str | None = None, weights: PathLike | None = None
) -> list[Diagnostic]:
    """Return the problems of a model file. Raises ReadError if it cannot be read at all."""
    p = Path(path)
    recover(p)
    formats.demand_there(p)
    chosen = formats.get(format) if format else formats.detect(p)
    formats.demand_file(p)
    with _boundary_diagnosed(p):
        return chosen.check(p, Path(weights) if weights else None)


@contextmanager
def _boundary_diagnosed(path: Path) -> Iterator[None]:
    """Convert inference errors to R105 of the file: errors of a layer already carry their layer. An
    invalid layer makes the file invalid, not only unsupported.
    """
    try:
        yield
    except UnsupportedError as e:
        raise refused_file(e) from None
    except InferenceError as e:
        raise unreadable("R105", str(e), path) from None


def _demand_boundary(network: Network, p: Path) -> None:
    """Check that the network has outputs, that sizes are possible, and that input names are
    unique.
    """
    graph = network.ir.graph
    if reason := next(filter(None, map(check_shape, (*graph.inputs, *graph.outputs))), None):
        raise unreadable("R110", reason, p)
    names = [i.name for i in network.inputs]
    if len(set(names)) < len(names):
        repeated = next(n for n in names if names.count(n) > 1)
        raise unreadable("R105", f"two inputs have the name {repeated!r}", p)
    if not graph.outputs:
        raise unreadable("R105", "the model has no outputs", p)


def save(
    network: Network, path: PathLike, format: str | None = None, io_layout: str = ""
) -> list[Diagnostic]:
    """Save a network as `converter.save` documents."""
    from converter.graph.invariants import violations

    if violations(network.ir):
        from converter.formats.onnx.canonicalize import canonical_form

        network = canonical_form(network)
    flavor = formats.target_for(Path(path), format, io_layout)
    with (
        expressible(),
        Output(path, check=lambda files: demand_replaceable(files, (), force=True)) as out,
    ):
        notes = formats.write(network, out.made, flavor)
    return [*notes, *larger(network, out.files)]


def larger(
    network: Network, files: Iterable[Path], sources: Sequence[Path] = ()
) -> list[Diagnostic]:
    """Warn (X212) if the written files are much larger than the weights of the source or than its
    files, which may be compressed.

    Text files with separate weights only count where they exceed the usual size per node, as for an
    unrolled recurrent layer.
    """
    tensors = (v.const_value for g in all_graphs(network.ir.graph) for v in g.initializers.values())
    distinct = {LazyTensor.of(t) for t in tensors if t is not None and t.dtype != D.STRING}
    halved = stored_half(network.ir) is not None
    weights = sum(t.length // 2 if halved and is_weight(t) else t.length for t in distinct)
    if sources:
        weights = min(weights, sum(map(size_of, sources)))
    sizes = {p: size_of(p) for p in files}
    written = sum(n for p, n in sizes.items() if p.suffix not in TEXT)
    nodes = sum(1 for _ in all_nodes(network.ir.graph))
    if written <= GROWTH * weights + FILE_OVERHEAD + NODE_OVERHEAD * nodes:
        written = sum(sizes.values())
        if written <= GROWTH * weights + FILE_OVERHEAD + TEXT_NODE_OVERHEAD * nodes:
            return []
    message = (
        f"the weights have {size_text(weights)} in the source and "
        f"{size_text(written)} in the written file"
    )
    help = "the target cannot share or pack weights, or loop over them, as the source does"
    return [Diagnostic("X212", message, "warning", help=help)]


@contextmanager
def expressible() -> Iterator[None]:
    """Convert errors of inference while lowering to X202: a rewrite does not support the sizes of
    the network (mostly dimensions of size 0).
    """
    try:
        yield
    except InferenceError as e:
        raise UnsupportedError(
            Diagnostic("X202", f"the decomposition of an operator is invalid: {e}")
        ) from None
