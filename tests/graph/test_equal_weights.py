"""Weights of the same bytes are found, others are not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import LazyTensor

D = ir.DataType
PLAIN = np.arange(3000, dtype=np.float32)


def places(*weights: LazyTensor) -> list[int]:
    """For each weight the number of the one that was stored for it."""
    shared: EqualWeights[int] = EqualWeights()
    numbers = iter(range(len(weights)))
    return [shared.once(w, lambda: next(numbers)) for w in weights]


def changed(at: int) -> np.ndarray:
    array = PLAIN.copy()
    array[at] = -1
    return array


@pytest.mark.parametrize(
    "other",
    [
        PLAIN,
        PLAIN.copy(),
        PLAIN.reshape(30, 100),
        PLAIN.reshape(30, 100).T.copy().T,
        PLAIN.view(np.int32),
    ],
    ids=["the same memory", "a copy", "another shape", "other strides", "another type"],
)
def test_same_bytes(other: np.ndarray) -> None:
    assert places(LazyTensor(PLAIN), LazyTensor(other)) == [0, 0]


@pytest.mark.parametrize("at", [0, 1, 1499, 2998, 2999])
def test_one_element_differs(at: int) -> None:
    assert places(LazyTensor(PLAIN), LazyTensor(changed(at)), LazyTensor(changed(at))) == [0, 1, 1]


def test_order_of_elements_counts() -> None:
    square = PLAIN[:2500].reshape(50, 50)
    assert places(LazyTensor(square), LazyTensor(square.T), LazyTensor(square.T.copy())) == [
        0,
        1,
        1,
    ]


def test_packed_elements_and_byte_order() -> None:
    nibbles = LazyTensor(np.array([1, 2, 3], D.UINT4.numpy()), D.UINT4)
    packed = LazyTensor(np.array([0x21, 3], np.uint8), D.UINT4, [3])
    big = LazyTensor(PLAIN.astype(">f4"))
    assert places(nibbles, packed) == [0, 0]
    assert places(LazyTensor(PLAIN[:4]), LazyTensor(PLAIN[:4].astype(">f4"))) == [0, 0]
    assert places(big, LazyTensor(PLAIN)) == [0, 1], "it would have to be converted twice"


def test_numbers_that_are_stored_as_others() -> None:
    raw = np.array([0b10101010], np.uint8)

    def bits(count: int) -> LazyTensor:
        return LazyTensor(raw, D.UINT8, [count], element="u1", decode=np.unpackbits)

    assert places(LazyTensor(raw), bits(8), bits(5), bits(8)) == [0, 1, 2, 1]


def test_a_computed_weight_is_not_computed_twice() -> None:
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return PLAIN

    one, two = (LazyTensor(compute, D.FLOAT, [3000]) for _ in range(2))
    assert places(LazyTensor(PLAIN), one, two) == [0, 1, 1] and not calls


def test_untransposed() -> None:
    stored = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = LazyTensor(stored.swapaxes(1, 2)).untransposed()
    assert found is not None and found.place == LazyTensor(stored).place
    for array in (
        stored,
        stored.transpose(2, 0, 1),
        stored.reshape(-1),
        stored[:, :1].swapaxes(1, 2),
    ):
        assert LazyTensor(array).untransposed() is None
