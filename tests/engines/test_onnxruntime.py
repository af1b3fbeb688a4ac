"""The onnxruntime engine: types without a kernel, weights by reference, refusals, scalars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from converter.api import Model
from converter.errors import UnsupportedError, UsageError
from converter.formats.onnx import onnxruntime_kernels as kernels
from converter.formats.onnx.legalize import BOUNDARY, legalize_for_onnxruntime
from converter.graph.build import new_model
from measured_kernels import measured
from support import run_python

T = ir.DataType
FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
INTEGERS = (T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64)


def test_the_table_is_that_of_the_release_it_names() -> None:
    table = json.loads(kernels._FILE.read_text())
    if onnxruntime.__version__ != table["onnxruntime"]:
        pytest.skip(f"the table is of onnxruntime {table['onnxruntime']}")
    assert measured() == table


def test_later_releases_support_the_types_of_the_table() -> None:
    installed = {
        op: [{p: set(types.split()) for p, types in k.items()} for k in found]
        for op, found in measured()["kernels"].items()
    }
    table = json.loads(kernels._FILE.read_text())["kernels"]
    assert {
        op
        for op, found in table.items()
        for k in found
        if not any(_covers(wide, k) for wide in installed.get(op, []))
    } == set()


def _covers(wide: dict[str, set[str]], kernel: dict[str, str]) -> bool:
    return all(p in wide and set(types.split()) <= wide[p] for p, types in kernel.items())


def run(kind: str, *arrays: Any, **attributes: Any) -> np.ndarray:
    """One operator in the types of `arrays`; the first is fed, the others are constants."""
    model, b = new_model()
    x = b.input("x", ir.DataType.from_numpy(arrays[0].dtype), arrays[0].shape)
    b.output(b.op(kind, x, *arrays[1:], **attributes))
    (result,) = Model(model, "test").run({"x": arrays[0]}).values()
    return np.asarray(result)


NUMBERS = np.array([[1, 3, 2], [0, 5, 4]])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("kind", "operands", "expected"),
    [
        ("Add", [NUMBERS], NUMBERS * 2),
        ("Max", [np.full((2, 3), 2)], np.maximum(NUMBERS, 2)),
        ("Min", [np.full((2, 3), 2)], np.minimum(NUMBERS, 2)),
        ("Clip", [np.array(1), np.array(4)], np.clip(NUMBERS, 1, 4)),
        ("Mul", [NUMBERS], NUMBERS**2),
        ("Mod", [np.full((2, 3), 3)], NUMBERS % 3),
    ],
)
def test_arithmetic_in_every_type(
    kind: str, operands: list[np.ndarray], expected: np.ndarray, dtype: T
) -> None:
    result = run(kind, NUMBERS.astype(dtype.numpy()), *(o.astype(dtype.numpy()) for o in operands))
    assert result.dtype == dtype.numpy()
    np.testing.assert_array_equal(result.astype(np.float64), expected)


@pytest.mark.parametrize(
    "dtype", [T.INT16, T.UINT16, T.UINT32, T.UINT64, T.INT8, T.BFLOAT16], ids=lambda t: t.name
)
def test_sorting_and_reducing_in_every_type(dtype: T) -> None:
    x = NUMBERS.astype(dtype.numpy())
    if dtype not in (T.INT8, T.INT16, T.UINT16):  # opset 21 has no ReduceSum of these
        np.testing.assert_array_equal(
            run("ReduceSum", x, np.array([1]), keepdims=0).astype(int), [6, 9]
        )
    np.testing.assert_array_equal(run("ArgMax", x, axis=1, keepdims=0), [1, 1])


U8, S8 = np.uint8, np.int8
BYTES = {
    U8: np.array([[255, 254, 255, 3], [0, 255, 250, 255]], U8),
    S8: np.array([[-128, 127, -128, 3], [127, 127, -127, 0]], S8),
}
POINTS = {U8: np.array(7, U8), S8: np.array(-3, S8)}
SIGNS = [(U8, U8), (U8, S8), (S8, U8), (S8, S8)]


@pytest.mark.parametrize(("left", "right"), SIGNS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"])
def test_products_of_bytes_are_exact(kind: str, left: type, right: type) -> None:
    """Products of bytes of two signs do not depend on the processor: large ones in a row would
    saturate at 16 bits.
    """
    x, w = np.repeat(BYTES[left], 16, axis=1), np.repeat(BYTES[right], 16, axis=1).T
    exact = (x.astype(np.int64) - int(POINTS[left])) @ (w.astype(np.int64) - int(POINTS[right]))
    if "Conv" in kind:
        x, w = x.T[None, :, None], w.T[:, :, None, None]
    model, b = new_model()
    fed, weight = (
        b.input("x", T.from_numpy(np.dtype(left)), x.shape),
        b.input("w", T.from_numpy(np.dtype(right)), w.shape),
    )
    one, step, points = (
        np.array(1, np.float32),
        np.array(2.0**13, np.float32),
        (POINTS[left], POINTS[right]),
    )
    if kind.startswith("QLinear"):
        b.output(b.op(kind, fed, one, points[0], weight, one, points[1], step, points[0]))
        bounds = np.iinfo(left)
        exact = np.clip(np.rint(exact / step) + int(points[0]), bounds.min, bounds.max)
    else:
        b.output(b.op(kind, fed, weight, *points))
    (found,) = Model(model, "test").run({"x": x, "w": w}).values()
    np.testing.assert_array_equal(found[0, :, 0].T if "Conv" in kind else found, exact)
    legalize_for_onnxruntime(model)
    (product,) = [n for n in model.graph if n.op_type == kind]
    assert (
        len(
            {
                v.dtype
                for v in (product.inputs[0], product.inputs[3 if kind.startswith("QLinear") else 1])
                if v is not None
            }
        )
        == 1
    )


@pytest.mark.parametrize("dtype", [T.DOUBLE, T.FLOAT16], ids=lambda t: t.name)
def test_convolution_and_pooling(dtype: T) -> None:
    x, w = (
        np.arange(16).reshape(1, 1, 4, 4).astype(dtype.numpy()),
        np.ones((1, 1, 2, 2), dtype.numpy()),
    )
    assert run("Conv", x, w).astype(float).ravel()[0] == 10
    assert run("AveragePool", x, kernel_shape=[2, 2]).astype(float).ravel()[0] == 2.5
    assert run("GlobalMaxPool", x).dtype == dtype.numpy()


def _numbers(version: str) -> list[int]:
    return [int(n) for n in version.split(".")[:2]]


@pytest.mark.parametrize("dtype", sorted(BOUNDARY, key=int), ids=lambda t: t.name)
def test_types_that_cannot_be_fed(dtype: T) -> None:
    if dtype in (T.INT4, T.UINT4) and _numbers(onnxruntime.__version__) < [1, 32]:
        pytest.skip("onnxruntime before 1.32 casts four bits to eight, back and forth as zeros")
    x = np.array([0, 1, 2, 4]).astype(dtype.numpy())
    y = run("Reshape", x, np.array([2, 2]))
    assert y.dtype == x.dtype and y.shape == (2, 2)
    np.testing.assert_array_equal(y.ravel().astype(np.float32), x.astype(np.float32))


def test_a_scalar_stays_a_scalar() -> None:
    assert run("Neg", np.array(2.0, np.float32)).shape == ()


def test_booleans_and_strings() -> None:
    model, b = new_model()
    x = b.input("x", T.BOOL, [3])
    b.output(b.op("Where", x, np.array([True, False, True]), np.array([False, False, True])))
    (y,) = Model(model, "test").run({"x": np.array([True, True, False])}).values()
    assert y.tolist() == [True, False, True]
    model, b = new_model()
    b.output(
        b.op(
            "StringConcat",
            b.input("x", T.STRING, [2]),
            b.const(ir.StringTensor([b"!"], shape=ir.Shape([1]))),
        )
    )
    (y,) = Model(model, "test").run({"x": np.array(["a", "b"])}).values()
    assert y.tolist() == ["a!", "b!"]


def test_definitions_are_written_out_before_types_are_looked_at() -> None:
    """An extension operator on bfloat16: the nodes of its body have no kernels either."""
    model, b = new_model()
    x = b.input("x", T.BFLOAT16, [1, 4, 2, 2])
    b.output(b.ext("ShuffleChannels", b.op("Mul", x, x), group=2))
    data = np.arange(16).reshape(1, 4, 2, 2).astype(ml_dtypes.bfloat16)
    (y,) = Model(model, "test").run({"x": data}).values()
    np.testing.assert_array_equal(y.astype(float), (data.astype(float) ** 2)[:, [0, 2, 1, 3]])


def test_large_weights_are_not_copied_into_the_model() -> None:
    """A weight handed over by reference is read where it lies, strided views included."""
    model, b = new_model()
    weight = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
    x = b.input("x", T.FLOAT, [1, 200])
    b.output(b.op("MatMul", x, b.const(weight.T)))
    data = np.ones((1, 200), np.float32)
    (y,) = Model(model, "test").run({"x": data}).values()
    np.testing.assert_allclose(y, data @ weight.T, rtol=1e-4, atol=1e-4)


def test_refusals_name_the_reason() -> None:
    model, b = new_model()
    b.output(b.op("ImageDecoder", b.input("x", T.UINT8, [None]), pixel_format="RGB"))
    with pytest.raises(UnsupportedError, match="ImageDecoder"):
        Model(model, "test").run({"x": np.zeros(3, np.uint8)})
    model, b = new_model()
    b.output(b.op("Relu", b.input("x", T.FLOAT, [2, 3])))
    with pytest.raises(
        UsageError, match=r"x float32\[2,3\], the given array has the shape \[3,3\]"
    ):
        Model(model, "test").run({"x": np.zeros((3, 3), np.float32)})
    with pytest.raises(UsageError, match="missing"):
        Model(model, "test").run({})


def test_doubles_that_the_optimizer_does_not_support_are_computed() -> None:
    """Its fusion of Relu and Clip knows no doubles."""
    model, b = new_model()
    x = b.input("x", T.DOUBLE, [3])
    b.output(b.op("Clip", b.op("Relu", x), np.float64(-1), np.float64(1)))
    (result,) = Model(model, "test").run({"x": np.array([-2.0, 0.5, 4.0])}).values()
    np.testing.assert_array_equal(result, [0, 0.5, 1])


def test_a_dilated_window_may_reach_over_its_own_size() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    found = run("MaxPool", x, kernel_shape=[2], dilations=[3], pads=[2, 3])
    np.testing.assert_array_equal(found, [[[1, 2, 3, 1, 2, 3]]])


def test_constant_data_are_normalized_to_zero() -> None:
    """ONNX's definition of MeanVarianceNormalization adds 1e-9 to the deviation."""
    found = run("MeanVarianceNormalization", np.full((1, 2, 1, 1), 0.3, np.float32))
    np.testing.assert_array_equal(found, np.zeros((1, 2, 1, 1)))


def test_a_transposed_matrix_times_a_vector() -> None:
    """Fused by onnxruntime, the vector would be taken for a matrix."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [3, 2])
    b.output(b.op("MatMul", b.op("Transpose", x, perm=[1, 0]), np.array([1, 10, 100], np.float32)))
    (result,) = (
        Model(model, "test").run({"x": np.arange(6, dtype=np.float32).reshape(3, 2)}).values()
    )
    np.testing.assert_array_equal(result, [420, 531])


INTERRUPTED = """if True:
    import signal, sys
    sys.path[:0] = sys.argv[2:]
    import numpy as np
    from converter.commands.verify import verify
    from test_onnxruntime import endless

    def interrupt(*_):
        raise KeyboardInterrupt

    model = endless()
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 3)
    try:
        if sys.argv[1] == "verify":
            verify(model, model)
        else:
            model.run({"x": np.ones(1, np.float32)})
    except KeyboardInterrupt:
        print("interrupted")
"""


def endless() -> Model:
    """A loop whose own condition is always true."""
    graph, b = new_model()
    x = b.input("x", T.FLOAT, [1])
    body = b.body("body")
    body.input("turn", T.INT64, [])
    go, state = body.input("go", T.BOOL, []), body.input("state", T.FLOAT, [1])
    body.output(go, body.op("Neg", state))
    b.output(b.op("Loop", None, b.const(np.array(True)), x, body=body.graph))
    return Model(graph, "onnx")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", ["run", "verify"])
def test_a_loop_without_an_end_can_be_interrupted(call: str) -> None:
    """Ctrl-C and a request to end do not wait for it. In a process of its own, whose signals are
    not those of others.
    """
    here = Path(__file__).parent
    assert run_python(INTERRUPTED, call, str(here), str(here.parent)) == "interrupted\n"
