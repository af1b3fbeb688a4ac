"""The laws of TensorFlow Lite's rows: an operator is written as the row's kind, LiteRT computes
what the graph means, and the file is read as what LiteRT computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.errors import ConverterError, MappingError
from converter.formats.format import Flavour
from converter.formats.tflite.codec import BUILTINS, read_flat
from converter.formats.tflite.kernels import kernels
from converter.formats.tflite.lower import write_model
from converter.formats.tflite.rules import TABLE
from converter.graph.infer import RANDOM, InferenceError
from converter.graph.network import Network
from converter.mapping.rules import Custom, Rule
from mapping_samples import CannotSample, candidates, contexts, sample

WRITTEN = [r for r in TABLE.rules if not r.lift_only]
ROWS = [pytest.param(r, id=f"{i}-{r.op}={r.kind}") for i, r in enumerate(WRITTEN)]
MOST = 3  # samples of a row
needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")


def networks(rule: Rule) -> Iterator[Network]:
    """Sample networks of one node: the ordinary one, then those that differ in one attribute."""
    for context in contexts(rule):
        values = candidates(rule, context)
        ordinary = {k: v[0] for k, v in values.items()}
        others = ({**ordinary, k: v} for k, options in values.items() for v in options[1:])
        for attrs in (ordinary, *others):
            try:
                _, b = sample(rule, context, attrs)
            except (InferenceError, MappingError):
                continue
            yield Network(ir.Model(b.graph, ir_version=10), "onnx", [], {})


def files(rule: Rule, folder: Path) -> Iterator[tuple[Network, Path]]:
    """Networks that the row writes, as files."""
    reasons = []
    for number, network in enumerate(networks(rule)):
        path = folder / f"{number}.tflite"
        try:
            write_model(network, path, Flavour("tflite"))
        except ConverterError as e:
            reasons.append(str(e))
            continue
        kinds = {o.custom or o.builtin for g in read_flat(path).graphs for o in g.operators}
        if rule.kind in kinds:
            yield network, path
        else:
            reasons.append(f"written as {sorted(kinds)}")
    if reasons and len(reasons) == number + 1:
        raise CannotSample("no sample is written as the row says\n" + "\n".join(reasons[:6]))


def feeds_of(network: Network) -> dict[str, Any]:
    rng, found = np.random.default_rng(3), {}
    for i in network.inputs:
        shape = [n if isinstance(n, int) else 2 for n in i.shape or ()]
        array = rng.uniform(0.25, 2.75, shape)
        if np.dtype(i.dtype).kind in "iu":
            array = array + 1
        found[i.name] = (array > 1.5) if i.dtype == np.bool_ else array.astype(i.dtype)
    return found


@needs_litert
@pytest.mark.parametrize("rule", ROWS)
def test_litert_computes_what_a_row_writes(rule: Rule, tmp_path: Path) -> None:
    for network, path in islice(files(rule, tmp_path), MOST):
        feeds = feeds_of(network)
        got = litert.invoke(path, list(feeds.values()))
        if rule.op in RANDOM:
            continue
        wanted = list(Model(network.ir, "onnx").run(feeds).values())
        again = list(converter.load(path).run(feeds).values())
        assert len(got) == len(wanted) == len(again)
        for found, read, want in zip(got, again, wanted, strict=True):
            assert found.shape == read.shape == want.shape
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(read, want, rtol=1e-4, atol=1e-5)


def test_kernels_are_those_of_builtins() -> None:
    assert kernels().keys() <= BUILTINS.keys()


def test_what_is_written_has_a_kernel_declared() -> None:
    written = {r.kind for r in WRITTEN}
    written |= {k for e in TABLE.entries if isinstance(e, Custom) and e.lower_ for k in e.kinds}
    assert sorted(written - kernels().keys()) == UNDECLARED


# what says nothing of types: control flow, and operators whose types nothing but they themselves
# have
UNDECLARED = [
    "HASHTABLE_LOOKUP",
    "LSH_PROJECTION",
    "NON_MAX_SUPPRESSION_V4",
    "TFLite_Detection_PostProcess",
    "WHILE",
]
