"""Comparing two arrays, feeds, alignment and causes, each by itself."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from converter.api import Model
from converter.commands.verify.align import align
from converter.commands.verify.arguments import index_range
from converter.commands.verify.cause import weights
from converter.commands.verify.compare import compare
from converter.commands.verify.feeds import EDGE, RANDOM, feeds_for, generate
from converter.commands.verify.noise import jitter, tolerance
from converter.graph.build import new_model
from verify.nets import copy_of, mobilenet, recurrent

FLOATS = arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=st.floats(width=32))


@given(FLOATS)
def test_an_array_equals_itself_even_where_it_is_not_finite(a: np.ndarray) -> None:
    d = compare(a, a.copy(), 0.0)
    assert d.equal and d.excess == 0 and d.cos == 1 and d.ulp == 0


@given(FLOATS, st.data())
def test_one_changed_element_is_the_worst_index(a: np.ndarray, data: st.DataObject) -> None:
    b, at = a.copy(), tuple(data.draw(st.integers(0, s - 1)) for s in a.shape)
    b[at] = np.float32(1.5) if not np.isfinite(b[at]) else np.float32(np.nan)
    d = compare(a, b, 1.0)
    assert d.max_abs == np.inf and d.excess == np.inf and d.index == at and d.note


def test_neighbors_are_one_ulp_apart_across_zero_too() -> None:
    tiny = np.nextafter(np.float32(0), np.float32(1))
    assert (
        compare(
            np.array([1.0], np.float32),
            np.array([np.nextafter(np.float32(1), np.float32(2))]),
            None,
        ).ulp
        == 1
    )
    assert compare(np.array([-tiny]), np.array([tiny]), None).ulp == 2


def test_infinities_of_one_sign_are_equal_and_of_two_are_not() -> None:
    a = np.array([np.inf, -np.inf], np.float32)
    assert compare(a, a.copy()).equal
    assert compare(a, -a).max_abs == np.inf


def test_the_tolerance_is_per_element() -> None:
    a, b = np.array([1.0, 1000.0]), np.array([1.1, 1001.0])
    d = compare(a, b, np.array([0.01, 10.0]))
    assert d.index == (0,) and d.excess == pytest.approx(10) and d.max_abs == pytest.approx(1)


def test_no_tolerance_makes_infinity_the_same_as_a_number() -> None:
    a, b = np.array([np.inf, 0.0, 1.0]), np.array([2.0, np.inf, np.nan])
    assert compare(a, b, np.array([np.inf, np.inf, 0.1])).excess == np.inf
    for i in range(3):
        assert compare(a[i : i + 1], b[i : i + 1], np.array([np.inf])).excess == np.inf
    assert compare(np.array([1.0]), np.array([2.0]), np.array([np.inf])).excess == 0
    assert compare(a, a.copy(), 0.0).excess == 0


def test_texts_and_shapes() -> None:
    a = np.array(["a", "b"], object)
    assert compare(a, a.copy()).equal
    assert compare(a, np.array(["a", "c"], object)).candidate == "c"
    assert "shape" in compare(np.zeros((2, 3)), np.zeros((3, 2))).note
    assert compare(np.zeros((1, 2, 3)), np.zeros((2, 3))).equal


@given(FLOATS)
def test_jitter_moves_by_at_most_two_steps_and_keeps_special_values(a: np.ndarray) -> None:
    b = jitter(a, np.random.default_rng(0), 2.0**-23)
    assert b.dtype == a.dtype and b.shape == a.shape
    finite = np.isfinite(a)
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True)
    assert (b[a == 0] == 0).all()
    with np.errstate(all="ignore"):
        far = (
            np.abs(b.astype(np.float64) - a)[finite]
            <= 2.0**-22 * np.abs(a.astype(np.float64))[finite] + 1e-44
        )
    assert (far | ~np.isfinite(b[finite])).all()


def test_an_exact_integer_has_no_tolerance() -> None:
    assert not tolerance(np.arange(3), np.zeros(3), 2.0**-23).any()
    assert (tolerance(np.arange(3), np.zeros(3), 2.0**-23, minimum=1.0) == 1).all()


def test_tokens_stay_inside_their_table() -> None:
    model = recurrent(np.random.default_rng(0))
    assert index_range(model.ir.graph.inputs[0]) == (0, 20)
    for kind in (*RANDOM, *EDGE):
        tokens = generate(model, kind)["tokens"]
        assert tokens.dtype == np.int64 and tokens.min() >= 0 and tokens.max() < 20


def test_feeds_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    model = mobilenet(np.random.default_rng(0))
    first, again, other = (feeds_for(model, seed=s)[0].arrays["image"] for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_symbolic_dimensions_get_the_same_size_everywhere() -> None:
    model, b = new_model()
    x, y = (b.input(n, ir.DataType.FLOAT, ["batch", "n", None]) for n in ("x", "y"))
    b.output(b.op("Add", x, y, name="z"))
    feed = generate(Model(model, "onnx"), "normal")
    assert feed["x"].shape == feed["y"].shape and feed["x"].shape[0] == 1


def test_indistinguishable_twins_are_not_aligned() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [3])
    twins = [b.op("Exp", x, name=f"twin{i}") for i in range(2)]
    b.output(
        b.op("Sub", b.op("Abs", twins[0], name="p"), b.op("Neg", twins[1], name="q"), name="y")
    )
    candidate = copy_of(Model(model, "onnx"))
    for i, v in enumerate(
        o for n in candidate.ir.graph for o in n.outputs if o.name.startswith("twin")
    ):
        v.name = f"v{i}"
    found = align(Model(model, "onnx"), candidate)
    assert (
        found.pairs["twin0"] == "v0" and found.pairs["twin1"] == "v1"
    )  # distinguished by their consumers
    model2, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [3])
    twins = [b.op("Exp", x, name=f"twin{i}") for i in range(2)]
    b.output(b.op("Add", *twins, name="y"))
    candidate = copy_of(Model(model2, "onnx"))
    for node in candidate.ir.graph:
        node.name = None
    for i, v in enumerate(
        o for n in candidate.ir.graph for o in n.outputs if o.name.startswith("twin")
    ):
        v.name = f"v{i}"
    assert align(Model(model2, "onnx"), candidate).only_reference == ["twin0", "twin1"]


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (np.eye(3), np.eye(3), None),
        (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T, "transposed"),
        (np.arange(4.0).reshape(2, 2), np.arange(4.0).reshape(2, 2).T, "transposed"),
        (np.arange(4.0), np.arange(4.0) * 2, "all times 2"),
        (np.arange(4.0), np.array([0, 1, 2, 7.0]), "[3] 3 became 7"),
        (np.arange(4.0), np.arange(5.0), "shape [4] became [5]"),
        (np.arange(4.0), np.arange(4.0).reshape(1, 4), None),
    ],
)
def test_how_weights_differ(a: np.ndarray, b: np.ndarray, text: str | None) -> None:
    found = weights(a, b)
    assert (not found) if text is None else (len(found) == 1 and text in found[0]), found
