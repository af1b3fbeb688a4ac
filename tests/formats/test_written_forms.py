"""Forms of operators that formats write in a way of their own: computed operands, dynamic sizes and
unusual parameters. Each is written and read again, and gives the numbers of the
formula.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.graph.build import new_model

D = ir.DataType
F = np.float32
RNG = np.random.default_rng(9)
TABLE = RNG.normal(size=(3, 4)).astype(F)
IMAGE = RNG.normal(size=(1, 2, 3, 4)).astype(F)
WHOLES = np.arange(12, dtype=np.int64).reshape(3, 4)
STEPS = RNG.normal(size=(3, 1, 2)).astype(F)
W, R, B = (RNG.normal(size=s).astype(F) for s in ((1, 8, 2), (1, 8, 2), (1, 16)))
PLACES = RNG.integers(0, 5, (20, 30)).astype(np.uint8)
VALUES = RNG.normal(size=5).astype(F)
SUFFIXES = {
    **{"openvino": ".xml", "openvino+ir=7": ".xml", "coreml": ".mlmodel", "nnapi": ".json"},
    **{"mlprogram": ".mlpackage", "tflite": ".tflite", "zhouyi": ".txt"},
}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(x: Any, w: Any, r: Any, b: Any, h: Any, c: Any) -> list[Any]:
    """All states and the last ones; gates are in the order i, o, f, c."""
    every, own = [], b[: len(b) // 2] + b[len(b) // 2 :]
    for step in x:
        i, o, f, g = np.split(step @ w.T + h @ r.T + own, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        every.append(h)
    return [np.stack(every), h, c]


def rnn(x: Any, w: Any, r: Any, b: Any, h: Any) -> list[Any]:
    """All states, and the last one."""
    every = []
    for step in x:
        h = np.maximum(step @ w.T + h @ r.T + b, 0)
        every.append(h)
    return [np.stack(every)[:, None], h[None]]


def whole(*values: Any) -> Any:
    return np.array(values, np.int64)


def nearest(x: Any, sizes: list[int]) -> Any:
    for axis, (n, m) in enumerate(zip(x.shape, sizes, strict=True)):
        x = x.take(np.floor(np.arange(m) * n / m).astype(int), axis)
    return x


def linear(x: Any, sizes: list[int]) -> Any:
    for axis, (n, m) in enumerate(zip(x.shape, sizes, strict=True)):
        at = np.clip((np.arange(m) + 0.5) * n / m - 0.5, 0, n - 1)
        x = np.apply_along_axis(lambda v, at=at, n=n: np.interp(at, np.arange(n), v), axis, x)
    return x


def _with(x: Any, changes: list[tuple[int, int, int]]) -> Any:
    found = x.copy()
    for row, column, number in changes:
        found[row, column] = number
    return found


def transposed(x: Any) -> Any:
    """A transposed convolution with KERNEL and steps of two rows and one column."""
    _, n, h, w = x.shape
    found = np.zeros((1, 2, 2 * (h - 1) + 3, w - 1 + 2), F)
    for c in range(n):
        for i in range(h):
            for j in range(w):
                found[0, :, 2 * i : 2 * i + 3, j : j + 2] += x[0, c, i, j] * KERNEL[c]
    return found


def means(x: Any) -> Any:
    """The means of two by two neighbors."""
    return (x[:, :, 1:, 1:] + x[:, :, :-1, 1:] + x[:, :, 1:, :-1] + x[:, :, :-1, :-1]) / 4


KERNEL = RNG.normal(size=(2, 2, 3, 2)).astype(F)
WEIGHTS = RNG.normal(size=(24, 3)).astype(F)
STACK = RNG.normal(size=(2, 4, 5)).astype(F)
MANY = 8
FILE = Path(__file__).with_name("written_forms.txt")
LINES = dict(
    line.rpartition(": ")[::2]
    for line in FILE.read_text("utf-8").splitlines()
    if not line.startswith("#")
)
ALL = tuple(SUFFIXES)
IR, OLD, PROGRAM, NETWORK, LITE, TABLES, NEURAL = (
    "openvino", "openvino+ir=7", "mlprogram", "coreml", "tflite", "nnapi", "zhouyi")  # fmt: skip
Form = tuple[tuple[str, ...], Callable[..., Any], dict[str, Any], tuple[str, ...], list[Any]]
# targets, the operators, inputs, those of dynamic sizes, expected outputs
FORMS: dict[str, Form] = {
    "parts that are not equal": (
        ALL, lambda b, x: b.Split(x, axis=0, num_outputs=2, outputs=2), {"x": TABLE}, (),
        [TABLE[:2], TABLE[2:]]),
    "computed repeats": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x, n: [b.Tile(x, n)],
        {"x": TABLE, "n": whole(2, 3)}, (), [np.tile(TABLE, (2, 3))]),
    "a computed shape": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x, n: [b.Reshape(x, n)],
        {"x": TABLE, "n": whole(2, 6)}, (), [TABLE.reshape(2, 6)]),
    "backwards from the last of any size": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.Slice(x, [-1, 1], [-(2**62), 2**62], [0, 1], [-2, 1])],
        {"x": TABLE}, ("x",), [TABLE[::-2, 1:]]),
    "from the end of any size": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.Slice(x, [-2], [-1], [1])],
        {"x": TABLE}, ("x",), [TABLE[:, -2:-1]]),
    "a table of constant places": (
        (IR, PROGRAM, "mlprogram+ios=18", NETWORK, LITE),
        lambda b, x: [x @ b.Gather(b.const(VALUES), b.Cast(b.const(PLACES), to=D.INT32))],
        {"x": RNG.normal(size=(2, 20)).astype(F)}, (), []),
    "an image of a computed size": (
        (IR, "mlprogram+ios=17", LITE),
        lambda b, x, n: [b.Resize(x, None, None, b.Concat([1, 2], n, axis=0), mode="linear",
                                  coordinate_transformation_mode="half_pixel")],
        {"x": IMAGE, "n": whole(5, 7)}, (), [linear(IMAGE, [1, 2, 5, 7])]),
    "an image to the nearest elements": (
        ALL, lambda b, x: [b.Resize(x, None, None, [1, 2, 6, 8], mode="nearest",
                                    coordinate_transformation_mode="asymmetric",
                                    nearest_mode="floor")],
        {"x": IMAGE}, (), [nearest(IMAGE, [1, 2, 6, 8])]),
    "a recurrent layer with states": (
        (IR, OLD, PROGRAM, NETWORK, LITE),
        lambda b, x, h, c: b.LSTM(x, b.const(W), b.const(R), b.const(B), None, h, c,
                                  hidden_size=2, outputs=3),
        {"x": STEPS, "h": RNG.normal(size=(1, 1, 2)).astype(F),
         "c": RNG.normal(size=(1, 1, 2)).astype(F)}, (), []),
    "a recurrent layer with a computed bias": (
        (IR,), lambda b, x, n: b.LSTM(x, b.const(W), b.const(R), n, hidden_size=2, outputs=3),
        {"x": STEPS, "n": B}, (), []),
    "a plain recurrent layer": (
        ALL, lambda b, x, h: b.RNN(x, b.const(W[:, :2]), b.const(R[:, :2]), b.const(B[:, :4]), None,
                                   h, hidden_size=2, activations=["Relu"], outputs=2),
        {"x": STEPS, "h": RNG.normal(size=(1, 1, 2)).astype(F)}, (), []),
    "padding of computed amounts": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x, n: [b.Pad(x, b.Concat([0], n, n, [0], axis=0), b.const(F(2)))],
        {"x": TABLE, "n": whole(1)}, (), [np.pad(TABLE, ((0, 1), (1, 0)), constant_values=2)]),
    "the largest of the first axis": (
        ALL, lambda b, x: [b.ArgMax(x, axis=0, keepdims=0)], {"x": TABLE}, (), [TABLE.argmax(0)]),
    "the smallest along an axis that is kept": (
        ALL, lambda b, x: [b.ArgMin(x, axis=-2)], {"x": IMAGE}, (),
        [IMAGE.argmin(2)[:, :, None]]),
    "the spectrum of a signal": (
        (LITE, IR), lambda b, x: [b.DFT(x, None, np.int64(2), onesided=1)],
        {"x": RNG.normal(size=(2, 3, 8, 1)).astype(F)}, (), []),
    "axes without a name": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.Squeeze(x)], {"x": TABLE[:, None]}, (),
        [TABLE]),
    "elements at computed places": (
        (IR, OLD, PROGRAM, NETWORK, LITE, TABLES), lambda b, x, n: [b.Gather(x, n, axis=1)],
        {"x": TABLE, "n": np.array([3, -1, 0], np.int64)}, (), [TABLE[:, [3, -1, 0]]]),
    "a matrix from the left": (
        ALL, lambda b, x: [b.MatMul(b.const(TABLE), x)],
        {"x": RNG.normal(size=(4, 5)).astype(F)}, (), []),
    "negative places": (
        (IR, PROGRAM, NETWORK, LITE, NEURAL), lambda b, x: [b.Gather(x, whole(-1, 0), axis=1)],
        {"x": TABLE}, (), [TABLE[:, [-1, 0]]]),
    "negative places of elements": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.GatherND(x, whole([-1, 0], [1, -2]))],
        {"x": TABLE}, (), [TABLE[[-1, 1], [0, -2]]]),
    "numbers put at negative places": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.ScatterND(x, whole([-1, 0], [1, -2]), F([7, 8]))], {"x": TABLE}, (),
        [_with(TABLE, [(-1, 0, 7), (1, -2, 8)])]),
    "classes that may be negative": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.OneHot(x, np.int64(3), F([-1, 5]), axis=0)], {"x": whole(0, 2, 1)}, (),
        [np.eye(3, dtype=F)[:, [0, 2, 1]] * 6 - 1]),
    "an image of any size, twice as large": (
        (IR, PROGRAM, LITE),
        lambda b, x: [b.Resize(x, None, F([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
                               coordinate_transformation_mode="asymmetric")],
        {"x": IMAGE}, ("x",), [nearest(IMAGE, [1, 2, 6, 8])]),
    "an image of computed height and width": (
        (IR, "mlprogram+ios=17", LITE),
        lambda b, x, n: [b.Resize(x, None, None, n, mode="linear", axes=[2, 3],
                                  coordinate_transformation_mode="half_pixel")],
        {"x": IMAGE, "n": whole(5, 7)}, (), [linear(IMAGE, [1, 2, 5, 7])]),
    "bounds of axes in another order": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x, n: [b.Slice(x, n, whole(4, 3), whole(1, 0))],
        {"x": TABLE, "n": whole(2, 1)}, (), [TABLE[1:, 2:]]),
    "a product after flattening": (
        ALL, lambda b, x: [b.Gemm(b.Flatten(x), b.const(WEIGHTS), b.const(F([1, -1, 2])))],
        {"x": IMAGE}, (), [IMAGE.reshape(1, -1) @ WEIGHTS + F([1, -1, 2])]),
    "a product of merged rows": (
        ALL, lambda b, x: [b.Gemm(b.Reshape(x, whole(6, 4)), b.const(TABLE), transB=1)],
        {"x": IMAGE[0]}, (), [IMAGE.reshape(6, 4) @ TABLE.T]),
    "a product of the rows of images": (
        ALL, lambda b, x: [b.Gemm(b.Reshape(x, whole(6, 4)), b.const(TABLE), transB=1)],
        {"x": IMAGE}, (), [IMAGE.reshape(6, 4) @ TABLE.T]),
    "integers in a tensor of one number": (
        (OLD,), lambda b, x, n: [b.ScatterND(b.Expand(n, whole(4)), whole([2], [0]), x)],
        {"x": np.array([5, 6], np.int32), "n": np.array([3], np.int32)}, (), [[6, 3, 5, 3]]),
    "a transposed convolution of any height": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.ConvTranspose(x, b.const(KERNEL), strides=[2, 1], pads=[1, 0, 0, 1])],
        {"x": IMAGE}, ("x:2",), [transposed(IMAGE)[:, :, 1:, :-1]]),
    "numbers put into any number of rows": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.ScatterND(x, whole([1, 0], [2, 3]), F([7, 8]))], {"x": TABLE}, ("x:0",),
        [_with(TABLE, [(1, 0, 7), (2, 3, 8)])]),
    "the last of any number of rows": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.Slice(x, [-2], [2**62], [0])],
        {"x": TABLE}, ("x:0",), [TABLE[-2:]]),
    "any number of rows backwards": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.Slice(x, [-2], [-(2**62)], [0], [-1])],
        {"x": TABLE}, ("x:0",), [TABLE[-2::-1]]),
    "any number of rows, as columns": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: [b.Reshape(x, whole(0, 2, 2))],
        {"x": TABLE}, ("x:0",), [TABLE.reshape(3, 2, 2)]),
    "slopes of channels": (
        ALL, lambda b, x: [b.PRelu(x, F([[[0.5]], [[-2]]]))], {"x": IMAGE}, (),
        [np.where(IMAGE < 0, IMAGE * F([[[0.5]], [[-2]]]), IMAGE)]),
    "slopes of channels and one of all images": (
        ALL, lambda b, x: [b.PRelu(x, F([[[[0.5]], [[-2]]]]))], {"x": IMAGE}, (),
        [np.where(IMAGE < 0, IMAGE * F([[[0.5]], [[-2]]]), IMAGE)]),
    "slopes of rows": (
        ALL, lambda b, x: [b.PRelu(x, F([[[0.5], [-2], [3]]]))], {"x": IMAGE}, (),
        [np.where(IMAGE < 0, IMAGE * F([[0.5], [-2], [3]]), IMAGE)]),
    "a running total from the end": (
        ALL, lambda b, x: [b.CumSum(x, np.int64(1), reverse=1, exclusive=1)], {"x": TABLE}, (),
        [np.cumsum(TABLE[:, ::-1], 1)[:, ::-1] - TABLE]),
    "the smallest three in order": (
        (IR, PROGRAM, NETWORK, LITE), lambda b, x: b.TopK(x, whole(3), largest=0, outputs=2),
        {"x": TABLE}, (), [np.sort(TABLE, 1)[:, :3], np.argsort(TABLE, 1)[:, :3]]),
    "a product of transposed matrices": (
        ALL, lambda b, x: [b.Gemm(x, b.const(TABLE), b.const(TABLE[0, :3] * 2), transB=1,
                                  alpha=0.5, beta=2.0)],
        {"x": RNG.normal(size=(2, 4)).astype(F)}, (), []),
    "a product of transposed stacks": (
        ALL, lambda b, x, y: [b.MatMul(b.Transpose(x, perm=[0, 2, 1]),
                                       b.Transpose(y, perm=[0, 2, 1]))],
        {"x": IMAGE[0].transpose(0, 2, 1), "y": STACK.transpose(0, 2, 1)}, (), [IMAGE[0] @ STACK]),
    "a mean with counted padding of any height": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x: [b.AveragePool(x, kernel_shape=[2, 2], pads=[1, 0, 1, 1],
                                    count_include_pad=1)],
        {"x": IMAGE}, ("x:2",), [means(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 1))))]),
    "classes of a computed number": (
        (IR, PROGRAM, NETWORK, LITE),
        lambda b, x, n: [b.OneHot(x, n, F([-1, 5]), axis=0)],
        {"x": whole(0, -1, 1), "n": whole(3)}, (), [np.eye(3, dtype=F)[:, [0, 2, 1]] * 6 - 1]),
    "rows that are repeated": (
        ALL, lambda b, x: [b.Expand(x, whole(2, 1, 5, 1))], {"x": TABLE[:, None]}, (),
        [np.broadcast_to(TABLE[:, None], (2, 3, 5, 4))]),
}  # fmt: skip


def sizes_of(name: str, array: Any, dynamic: tuple[str, ...]) -> list[int | None]:
    """The sizes of an input: of `name` all are dynamic, of `name:1` that of axis 1."""
    named = name in dynamic
    return [None if named or f"{name}:{i}" in dynamic else n for i, n in enumerate(array.shape)]


def expected_of(name: str, feeds: dict[str, Any]) -> list[Any]:
    x = feeds["x"]
    if name == "a table of constant places":
        return [x @ VALUES[PLACES]]
    if name == "a matrix from the left":
        return [TABLE @ x]
    if name == "a product of transposed matrices":
        return [0.5 * x @ TABLE.T + 2 * TABLE[0, :3] * 2]
    if name == "the spectrum of a signal":
        found = np.fft.rfft(x[..., 0], axis=2)
        return [np.stack([found.real, found.imag], axis=-1)]
    if name == "a plain recurrent layer":
        return rnn(x, W[0, :2], R[0, :2], B[0, :2] + B[0, 2:4], feeds["h"][0])
    if "recurrent" in name:
        zero = np.zeros((1, 1, 2), F)
        h, c, bias = feeds.get("h", zero), feeds.get("c", zero), feeds.get("n", B)
        every, last, cell = lstm(x, W[0], R[0], bias[0], h[0], c[0])
        return [every[:, None], last[None], cell[None]]
    return FORMS[name][4]


PAIRS = [
    pytest.param(name, target, id=f"{target.replace('+ir=7', '.legacy')}-{name}")
    for name, form in FORMS.items()
    for target in form[0]
]


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_form_is_written_and_read(name: str, target: str, tmp_path: Path, record: bool) -> None:
    """The file has the operators of written_forms.txt, not other ones that compute the same."""
    _, write, feeds, dynamic, _ = FORMS[name]
    model, b = new_model("net")
    inputs = [b.input(n, D.from_numpy(a.dtype), sizes_of(n, a, dynamic)) for n, a in feeds.items()]
    with b:
        made = write(b, *inputs)
    b.output(*made)
    path = tmp_path / f"m{SUFFIXES[target.partition('+')[0] if target != OLD else target]}"
    converter.save(Model(model, "onnx"), path, target)
    again = converter.load(path)
    found = list(again.run(feeds).values())
    for actual, expected in zip(found, expected_of(name, feeds), strict=True):
        np.testing.assert_allclose(actual.reshape(np.shape(expected)), expected, 1e-4, 1e-5)
    if target == LITE and litert.available():
        from tflite_files import in_litert

        computed = in_litert(path, list(feeds.values()), shapes=True)
        for actual, right in zip(computed, found, strict=True):
            np.testing.assert_allclose(actual, right, 1e-4, 1e-5)
    operators = operators_of(again)
    if record:
        LINES[f"{target}: {name}"] = operators
        write_lines()
    assert LINES.get(f"{target}: {name}") == operators


def operators_of(model: Any) -> str:
    """The operators of a graph; of many ones each is named once."""
    names = sorted(n.op_type for n in model.ir.graph)
    return " ".join(names if len(names) <= MANY else sorted(set(names)))


def write_lines() -> None:
    head = [line for line in FILE.read_text("utf-8").splitlines() if line.startswith("#")]
    lines = sorted(f"{key}: {operators}" for key, operators in LINES.items())
    FILE.write_text("\n".join([*head, *lines, ""]), "utf-8")
