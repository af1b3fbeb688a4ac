"""The layout pass on random networks of the kind that convolutional ones are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.graph.build import Builder, new_model
from converter.passes.channels_last import (
    boundary_permutation,
    count_transposes,
    restore_boundary,
    to_nchw,
    to_nhwc,
)
from networks import RNG, T, conv, feeds_of, run, same, w

Step = Callable[[Builder, list[ir.Value], st.DataObject], "ir.Value | None"]


def pick(values: list[ir.Value], data: st.DataObject, rank: int | None = None) -> ir.Value | None:
    fitting = [v for v in values if rank is None or v.shape.rank() == rank]
    return data.draw(st.sampled_from(fitting)) if fitting else None


def images(step: Callable[[Builder, ir.Value, st.DataObject], ir.Value]) -> Step:
    def run_step(b: Builder, values: list[ir.Value], data: st.DataObject) -> ir.Value | None:
        x = pick(values, data, 4)
        return None if x is None else step(b, x, data)

    return run_step


def anything(step: Callable[[Builder, ir.Value, st.DataObject], ir.Value]) -> Step:
    return lambda b, values, data: step(b, data.draw(st.sampled_from(values)), data)


def size(v: ir.Value) -> int:
    return int(np.prod([int(d) for d in v.shape]))


def combine(b: Builder, values: list[ir.Value], data: st.DataObject) -> ir.Value | None:
    x = data.draw(st.sampled_from(values))
    partners = [v for v in values if v.shape == x.shape]
    return b.op(
        data.draw(st.sampled_from(["Add", "Mul", "Max", "Sub"])),
        x,
        data.draw(st.sampled_from(partners)),
    )


def concat(b: Builder, values: list[ir.Value], data: st.DataObject) -> ir.Value | None:
    x = data.draw(st.sampled_from(values))
    axis = data.draw(st.integers(-x.shape.rank(), x.shape.rank() - 1))
    y = data.draw(st.sampled_from([v for v in values if v.shape == x.shape]))
    return b.op("Concat", x, y, axis=axis) if size(x) < 2000 else None


def transpose(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    return b.op("Transpose", x, perm=data.draw(st.permutations(range(x.shape.rank()))))


def reshape(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    """Axes are merged, one is split, ones are inserted: anything with the same number of elements
    and at most five axes.
    """
    dims = [int(d) for d in x.shape]
    for _ in range(data.draw(st.integers(1, 3))):
        kind, i = (
            data.draw(st.sampled_from(["merge", "split", "one"])),
            data.draw(st.integers(0, len(dims) - 1)),
        )
        if kind == "merge" and i + 1 < len(dims):
            dims[i : i + 2] = [dims[i] * dims[i + 1]]
        elif kind == "split" and dims[i] % 2 == 0 and len(dims) < 5:
            dims[i : i + 1] = [2, dims[i] // 2]
        elif len(dims) < 5:
            dims.insert(i, 1)
    return b.op("Reshape", x, dims)


def broadcast(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    dims = [int(d) if data.draw(st.booleans()) else 1 for d in x.shape]
    return b.op("Add", x, w(*dims[data.draw(st.integers(0, len(dims))) :]))


def reduce(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    rank = x.shape.rank()
    axes = data.draw(
        st.lists(st.integers(0, rank - 1), min_size=1, max_size=max(1, rank - 1), unique=True)
    )
    return b.op(
        data.draw(st.sampled_from(["ReduceMean", "ReduceMax"])),
        x,
        axes,
        keepdims=data.draw(st.integers(0, 1)) if rank > 2 else 1,
    )


def along(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    axis = data.draw(st.integers(-x.shape.rank(), x.shape.rank() - 1))
    n = int(x.shape[axis])
    return data.draw(
        st.sampled_from([
            lambda: b.op("Softmax", x, axis=axis),
            lambda: b.op("CumSum", x, np.array(axis)),
            lambda: b.op("Gather", x, [n - 1, 0], axis=axis),
            lambda: b.op("Slice", x, [0], [max(1, n // 2)], [axis]),
            lambda: b.op("Pad", x, [1, 0], None, [axis]),
            lambda: b.ops("TopK", x, [1], axis=axis, outputs=2)[0],
        ])
    )()  # fmt: skip


def pad(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    return b.op(
        "Pad",
        x,
        data.draw(
            st.lists(st.integers(0, 1), min_size=2 * x.shape.rank(), max_size=2 * x.shape.rank())
        ),
    )


def dense(b: Builder, values: list[ir.Value], data: st.DataObject) -> ir.Value | None:
    x = data.draw(st.sampled_from(values))
    flat = b.op("Flatten", x) if x.shape.rank() != 2 else x
    return b.op("Gemm", b.op("Relu", flat), w(int(flat.shape[1]), 4), w(4))


def lift_rank(b: Builder, x: ir.Value, data: st.DataObject) -> ir.Value:
    return (
        b.op("Unsqueeze", x, [data.draw(st.integers(0, x.shape.rank()))])
        if x.shape.rank() < 5
        else b.op("Neg", x)
    )


STEPS: list[Step] = [
    images(
        lambda b, x, data: conv(
            b, x, data.draw(st.sampled_from([2, 4])), data.draw(st.sampled_from([1, 3]))
        )
    ),
    images(lambda b, x, data: b.op("Relu", conv(b, x, 4))),
    images(
        lambda b, x, data: b.op(
            "MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
        )
    ),
    images(lambda b, x, data: b.op("GlobalAveragePool", x)),
    images(
        lambda b, x, data: b.op("InstanceNormalization", x, w(int(x.shape[1])), w(int(x.shape[1])))
    ),
    anything(
        lambda b, x, data: b.op(data.draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "Neg"])), x)
    ),
    anything(transpose),
    anything(reshape),
    anything(broadcast),
    anything(reduce),
    anything(along),
    anything(pad),
    anything(lift_rank),
    combine,
    concat,
    dense,
]


@st.composite
def networks(draw: st.DrawFn) -> ir.Model:
    data = draw(st.data())
    model, b = new_model()
    values = [
        b.input("x", T.FLOAT, [2, 4, 6, 4]),
        b.input(
            "y", T.FLOAT, draw(st.sampled_from([[2, 4, 6, 4], [4, 1, 1], [1, 4, 1, 1], [2, 8]]))
        ),
    ]
    for _ in range(draw(st.integers(3, 14))):
        made = draw(st.sampled_from(STEPS))(b, values, data)
        if made is not None and size(made) < 5000:
            values.append(made)
    unused = [v for v in values if not v.uses()]
    b.output(
        *unused,
        *draw(
            st.lists(st.sampled_from(values), max_size=2, unique=True).map(
                lambda vs: [v for v in vs if v not in unused]
            )
        ),
    )
    return model


@settings(max_examples=15)
@given(networks())
def test_a_few_random_networks(model: ir.Model) -> None:
    there_and_back(model)


@pytest.mark.slow
@given(networks())
def test_random_networks(model: ir.Model) -> None:
    there_and_back(model)


def there_and_back(model: ir.Model) -> None:
    RNG.bit_generator.state = np.random.PCG64(
        7
    ).state  # weights do not depend on which example came before
    feeds = feeds_of(model)
    before, original = run(model, feeds), count_transposes(model)
    last = model.clone()
    to_nhwc(last)
    same(before, run(last, feeds))
    to_nchw(last)
    same(before, run(last, feeds))
    assert original or not count_transposes(last)
    native = model.clone()
    to_nhwc(native, "native")
    perms = {
        v.name: p
        for v in [*native.graph.inputs, *native.graph.outputs]
        if (p := boundary_permutation(v)) is not None
    }
    turned = {k: v.transpose(perms[k]) if k in perms else v for k, v in feeds.items()}
    outputs = [v.name for v in native.graph.outputs]
    same(
        [a.transpose(perms[n]) if n in perms else a for a, n in zip(before, outputs, strict=True)],
        run(native, turned),
    )
    restore_boundary(native, perms)
    same(before, run(native, feeds))
    to_nchw(native)
    same(before, run(native, feeds))
