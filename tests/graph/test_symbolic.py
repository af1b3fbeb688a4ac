"""Sizes as expressions of named dimensions: their arithmetic, and those that inference finds.

The witness of texts is onnx_ir's own evaluation of dimensions, that of sizes is onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import Builder, new_model
from converter.graph.infer import known
from converter.graph.shapes import infer_all
from converter.graph.size_expressions import Size, factor_between, parse
from converter.graph.value import Value

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
H, T = Size.of("H"), Size.of("T")
SIZES = ({"N": 1, "H": 5, "W": 8}, {"N": 2, "H": 9, "W": 6}, {"N": 3, "H": 12, "W": 7})


# arithmetic --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (H * 2, "2*H"),
        (H - 1, "H - 1"),
        ((T - 1).floordiv(2) + 1, "floor((T + 1)/2)"),
        (T.floordiv(2) + 1, "floor(T/2) + 1"),
        ((T * 4 + 6).floordiv(4), "T + 1"),
        ((T * 2 + 1).floordiv(4), "floor(T/2)"),
        (T.floordiv(2).floordiv(2), "floor(floor(T/2)/2)"),
        (H * T - 7, "H*T - 7"),
        (T * -1 + 3, "-T + 3"),
        (T - T, "0"),
    ],
)
def test_expressions_have_a_normal_form_that_is_read_again(size: Size, text: str) -> None:
    assert size.name() == text
    assert parse(text) == size or text in ("0", "-T + 3")
    for n in range(1, 12):
        wanted = sum(c * value(m, n) for m, c in size.terms.items())
        symbols = {s: n for s in "HT" if s in text}
        assert not symbols or ir.SymbolicDim(text).evaluate(symbols) == wanted


def value(monomial: tuple[object, ...], n: int) -> int:
    found = 1
    for atom in monomial:
        if isinstance(atom, str):
            found *= n
        else:
            inner = sum(c * value(m, n) for m, c in atom.numerator.terms.items())  # type: ignore[attr-defined]
            found *= int(inner) // atom.denominator  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("text", ["(s0 - 1)//2 + 1", "((s0 - 1)//2) + 1", "floor((s0 + 1)/2)"])
def test_the_spellings_of_an_exporter_are_one_size(text: str) -> None:
    assert parse(text) == (Size.of("s0") + 1).floordiv(2)


@pytest.mark.parametrize("text", ["batch-size", "x.1/2 z", "a(b)", "T/2", "[N]", "N N", "unk__12"])
def test_other_names_are_atoms(text: str) -> None:
    assert parse(text) == Size.of(text)


@pytest.mark.parametrize("text", ["?", "None", "-1", "", "unknown", "unknown_dim_3"])
def test_names_that_exporters_repeat_are_no_sizes(text: str) -> None:
    assert parse(text) is None


def test_factors() -> None:
    assert factor_between(H * 2, H) == (2, True)
    assert factor_between((H * Fraction(3, 2)).floor(), H) == (1.5, False)
    assert factor_between(H.floordiv(2), H) == (0.5, False)
    assert factor_between(H.floordiv(2) * 2, H) is None
    assert factor_between(T, H) is None and factor_between(H + 1, H) is None


# inference ---------------------------------------------------------------------------------------


def shape_part(b: Builder, x: Value) -> Value:
    return b.Shape(x)[2:]


def scaled(factor: float) -> Callable[[Builder, Value], Value]:
    def write(b: Builder, x: Value) -> Value:
        size = b.Cast(b.Floor(b.Cast(shape_part(b, x), to=FLOAT) * factor), to=INT64)
        return b.Resize(x, None, None, b.Concat(b.Shape(x)[:2], size, axis=0))

    return write


def gathered(b: Builder, x: Value) -> Value:
    """The sizes one by one, as TorchScript writes them."""
    shape = b.Shape(x)
    sizes = [b.Unsqueeze(b.Gather(shape, np.array(i)) * n, [0]) for i, n in ((2, 2), (3, 3))]
    return b.Resize(x, None, None, b.Concat(shape[:2], *sizes, axis=0))


def weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def strided(b: Builder, x: Value) -> Value:
    return b.Conv(x, weights(4, 3, 3, 3), strides=[2, 3], pads=[1, 0, 0, 1], dilations=[1, 2])


def joined(b: Builder, x: Value) -> Value:
    down = b.Conv(x, weights(3, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    up = b.ConvTranspose(down, weights(3, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    return b.Concat(up, b.Relu(up), axis=2)


def rows(b: Builder, x: Value) -> Value:
    shape = b.Shape(x)
    area = b.Reshape(b.ReduceProd(shape[2:], [0], keepdims=1), [1])
    return b.Reshape(b.Transpose(x, perm=[0, 2, 3, 1]), b.Concat(shape[:1], area, [3], axis=0))


def expanded(b: Builder, x: Value) -> Value:
    """As PyTorch's `expand` with -1."""
    wanted = b.Concat(b.Shape(x)[:1], [-1], axis=0)
    sizes = b.Where(b.Equal(wanted, b.const([-1, -1])), b.const([1, 1]), wanted)
    return b.Expand(b.const(weights(1, 4)), sizes)


NETWORKS: dict[str, tuple[Callable[[Builder, Value], Value], str]] = {
    "twice": (scaled(2.0), "[N,3,2*H,2*W]"),
    "half": (scaled(0.5), "[N,3,floor(H/2),floor(W/2)]"),
    "more": (scaled(1.5), "[N,3,H + floor(H/2),W + floor(W/2)]"),
    "inexact": (scaled(1.2), "[N,3,?,?]"),
    "gathered": (gathered, "[N,3,2*H,3*W]"),
    "factors": (lambda b, x: b.Resize(x, None, np.float32([1, 1, 2, 3])), "[N,3,2*H,3*W]"),
    "strided": (strided, "[N,4,floor(H/2),floor((W + 2)/3) - 1]"),
    "joined": (joined, "[N,3,4*floor((H + 1)/2) - 2,2*floor((W + 1)/2) - 1]"),
    "rows": (rows, "[N,H*W,3]"),
    "expanded": (expanded, "[N,4]"),
    "flat": (lambda b, x: b.Flatten(x), "[N,3*H*W]"),
    "rest": (lambda b, x: b.Reshape(x, [0, 0, -1]), "[N,3,H*W]"),
    "pooled": (
        lambda b, x: b.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2]),
        "[N,3,floor(H/2),floor(W/2)]",
    ),
    "padded": (lambda b, x: b.Pad(x, [0, 0, 1, 2, 0, 0, 3, 0]), "[N,3,H + 4,W + 2]"),
    "sliced": (lambda b, x: x[:, :, 1:, ::2], "[N,3,H - 1,floor((W + 1)/2)]"),
    "unproven": (lambda b, x: x[:, :, 4:], "[N,3,?,W]"),
    "counted": (
        lambda b, x: b.Range(b.const(0), b.Gather(b.Shape(x), np.array(2)), b.const(1)),
        "[H]",
    ),
    "blocks": (lambda b, x: b.SpaceToDepth(b.Concat(x, x, axis=2), blocksize=1), "[N,3,2*H,W]"),
    "tiled": (lambda b, x: b.Tile(x, b.const([1, 1, 2, 1])), "[N,3,2*H,W]"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_dimensions_of_results_have_the_names_of_their_sizes(name: str) -> None:
    write, text = NETWORKS[name]
    model, b = new_model()
    with b:
        y = write(b, b.input("x", FLOAT, ["N", 3, "H", "W"]))
    b.output(y)
    assert str(y.shape).replace("None", "?") == text
    for sizes in SIZES:
        x = np.zeros([sizes["N"], 3, sizes["H"], sizes["W"]], np.float32)
        (found,) = Model(model, "onnx").run({"x": x}).values()
        for actual, d in zip(found.shape, y.shape, strict=True):
            if not isinstance(d, ir.SymbolicDim) or d.value is not None:
                evaluated = d if isinstance(d, int) else d.evaluate(sizes)
                assert actual == evaluated, f"{d} at {sizes}"


def test_sizes_that_do_not_depend_on_the_dimensions_are_known() -> None:
    _, b = new_model()
    with b:
        x = b.input("x", FLOAT, ["N", 3, "H", "W"])
        size = b.Gather(b.Shape(x), np.array([2]))
        assert known(size * 2 - size - size) == [0]
        assert known(b.Div(size * 6, size)) == [6]
        assert known(b.Equal(size, b.const([-1]))) == [False]
        assert known(b.Equal(size, b.const([0]))) is None
        assert known((size - 1) / 2) is None, "which is truncated, not rounded down, for 0"
        largest = np.array([np.iinfo(np.int64).max])
        assert known(b.Where(np.array([True]), largest, size)) == largest


def test_a_state_that_grows_is_no_named_size() -> None:
    model, b = new_model()
    x = b.input("x", FLOAT, ["N", 3])
    loop = b.loop(b.const(np.array(3)), x)
    with loop:
        (state,) = loop.states
        grown = loop.Concat(state, loop.Slice(state, [0], [1], [0]), axis=0)
    (y,) = loop.end(grown)
    b.output(y)
    infer_all(model)
    assert y.shape is not None and y.shape[0] == ir.SymbolicDim(None)
    (node,) = [n for n in model.graph if n.op_type == "Loop"]
    (inside,) = [n for n in node.attributes["body"].as_graph() if n.op_type == "Concat"]
    assert inside.outputs[0].shape == ir.Shape([None, 3])
