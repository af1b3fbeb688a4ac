"""The numbers of a constant: views where they can be, computed when they are needed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import new_model
from converter.graph.lazy_tensor import LazyTensor
from converter.io.mapped_file import MappedFile


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.arange(12, dtype="<f4").tobytes())
    file = MappedFile(tmp_path / "w")
    whole = LazyTensor(file.slice(0, 48).view("<f4"), shape=[3, 4], name="w")
    assert (whole.dtype, whole.shape, whole.nbytes) == (ir.DataType.FLOAT, (3, 4), 48)
    for tensor in (whole, whole.reshaped([2, -1])):
        for array in (tensor.numpy(), tensor.stored(), tensor.bytes()):
            assert np.shares_memory(array, file.bytes)
    assert whole.reshaped([2, -1]).numpy().tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_a_function_is_called_when_the_numbers_are_needed() -> None:
    asked: list[int] = []

    def make() -> np.ndarray:
        asked.append(1)
        return np.arange(6, dtype=np.float32)

    tensor = LazyTensor(make, ir.DataType.FLOAT, [6])
    turned = tensor.reshaped([2, 3]).derived(np.transpose, shape=[3, 2])
    halves = turned.derived(lambda a: a.astype(np.float16), ir.DataType.FLOAT16)
    assert (turned.length, halves.length, asked) == (24, 12, [])
    assert halves.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert turned.bytes().view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]
    assert len(asked) == 2


def test_another_number_of_bytes_than_announced_is_not_stored() -> None:
    tensor = LazyTensor(lambda: np.zeros(3, np.float32), ir.DataType.FLOAT, [2])
    with pytest.raises(AssertionError, match="8 bytes was declared, but 12 were produced"):
        tensor.bytes()


def test_four_bits_are_packedas_onnx_packs_them() -> None:
    numbers = np.array([[1, -2], [7, -8], [3, 0]], np.int8).astype(ml_dtypes.int4)
    expected = bytes.fromhex("e1 87 03")  # the first of each pair in the low four bits
    apart = LazyTensor(numbers)
    packed = LazyTensor(np.frombuffer(expected, np.uint8), ir.DataType.INT4, [3, 2])
    for tensor in (apart, packed, packed.reshaped([2, 3])):
        assert tensor.tobytes() == tensor.bytes().tobytes() == expected
        assert tensor.numpy().astype(int).reshape(-1).tolist() == [1, -2, 7, -8, 3, 0]
        assert tensor.length == 3


def test_numbers_are_decoded_from_stored_bytes() -> None:
    raw = np.array([0b10110000], np.uint8)
    bits = LazyTensor(
        raw, ir.DataType.UINT8, [5], element="u1", decode=lambda stored: np.unpackbits(stored)
    )
    assert bits.numpy().tolist() == [1, 0, 1, 1, 0]
    assert (bits.stored() is raw, bits.length, bits.nbytes) == (True, 1, 5)
    assert bits.derived(lambda a: 1 - a).stored().tolist() == [0, 1, 0, 0, 1]


def test_big_endian_arrays_are_stored_little_endian() -> None:
    tensor = LazyTensor(np.array([1, 256], ">i4"))
    assert tensor.dtype == ir.DataType.INT32
    assert tensor.bytes().tobytes() == bytes.fromhex("01000000 00010000")


def test_the_same_bytes_are_equal() -> None:
    array = np.arange(4, dtype=np.float32)
    one, other = LazyTensor(array), LazyTensor(array[:])
    assert one == other and hash(one) == hash(other)
    assert one != LazyTensor(array.copy()) and one != LazyTensor(array[:2])
    assert (
        one != LazyTensor(array, element="FP32")
        and one.place == LazyTensor(array, element="FP32").place
    )
    assert LazyTensor(np.empty(0, np.uint8)) == LazyTensor(np.empty(0, np.uint8))


def test_text_is_not_lazy() -> None:
    graph, b = new_model()
    words = np.array(["a", "bc"], object)
    b.output(b.op("Equal", b.const(words), b.input("x", ir.DataType.STRING, [2])))
    (result,) = Model(graph, "test").run({"x": np.array(["a", "b"], object)}).values()
    assert result.tolist() == [True, False]
