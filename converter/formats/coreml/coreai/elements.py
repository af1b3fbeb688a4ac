"""Types of MLIR and the elements of constants."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.bits import packed_tensor
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import type_name

D = ir.DataType
NAMES: Mapping[str, ir.DataType] = {
    **{"f16": D.FLOAT16, "bf16": D.BFLOAT16, "f32": D.FLOAT, "f64": D.DOUBLE, "i1": D.BOOL},
    **{"si4": D.INT4, "si8": D.INT8, "si16": D.INT16, "si32": D.INT32, "si64": D.INT64},
    **{"ui4": D.UINT4, "ui8": D.UINT8, "ui16": D.UINT16, "ui32": D.UINT32, "ui64": D.UINT64},
    **{"f8E4M3FN": D.FLOAT8E4M3FN, "f8E5M2": D.FLOAT8E5M2, "f8E8M0FNU": D.FLOAT8E8M0},
    **{"f4E2M1FN": D.FLOAT4E2M1, "complex<f32>": D.COMPLEX64},
}
WORDS = {dtype: word for word, dtype in NAMES.items()}
# types in which only constants are stored -> their bits
STORED_BITS = {"ui1": 1, "ui2": 2, "si2": 2, "ui3": 3, "ui6": 6}
INLINE = 256  # largest size in bytes of a constant in the program text


@dataclass(frozen=True)
class Type:
    """A tensor's type: `word` is MLIR's name of its element type, sizes are None where they are
    dynamic.

    `wrapper`: "handle" and "sparse" for a container of such a tensor, "token" for a token.
    """

    word: str
    dims: tuple[int | None, ...] = ()
    wrapper: str = ""

    @property
    def dtype(self) -> ir.DataType:
        """Raise MappingError X201 for elements that the graph does not have."""
        if self.word in STORED_BITS:
            return D.INT8 if self.word.startswith("s") else D.UINT8
        found = NAMES.get(self.word)
        if found is None:
            raise MappingError(f"element type {self.word} is not supported", "X201")
        return found


_TENSOR = re.compile(r"tensor<((?:[0-9]+x|\?x)*)([A-Za-z0-9]+(?:<f(?:16|32|64)>)?)(, .*)?>")


def type_of(text: str) -> Type:
    """Return the type that MLIR prints as `text`; raise MappingError X201 for one that is
    no tensor.
    """
    if text == "!coreai.token":
        return Type("", wrapper="token")
    inner = re.fullmatch(r"!coreai\.handle<(.*)>", text)
    found = _TENSOR.fullmatch(inner[1] if inner else text)
    if found is None:
        raise MappingError(f"type {text[:80]} is not supported", "X201")
    dims = tuple(None if d == "?" else int(d) for d in found[1].split("x")[:-1])
    wrapper = "handle" if inner else "sparse" if "sparse" in (found[3] or "") else ""
    return Type(found[2], dims, wrapper)


def type_text(dtype: ir.DataType, dims: Any, word: str = "") -> str:
    """Return how MLIR writes a tensor type; raise MappingError X203 for an unknown number
    of axes.
    """
    if dims is None:
        message = "the rank of a value is unknown"
        raise MappingError(message, "X203", "fix the shapes with --inputs")
    if not word and dtype not in WORDS:
        raise MappingError(f"Core AI does not support tensors of {type_name(dtype)}")
    sizes = "".join(f"{d}x" if isinstance(d, int) else "?x" for d in dims)
    return f"tensor<{sizes}{word or WORDS[dtype]}>"


# elements read ------------------------------------------------------------------------------------


def elements(given: Mapping[str, str], kind: Type) -> LazyTensor:
    """Return the elements of a constant in the program: bytes, or the text that MLIR prints."""
    dtype, dims = kind.dtype, [n or 0 for n in kind.dims]
    if "bytes" in given:
        array = np.frombuffer(base64.b64decode(given["bytes"]), dtype.numpy())
    else:
        array = _printed(given["text"], dtype.numpy())
        if dtype == D.BOOL and '"0x' in given["text"]:  # eight elements in a byte
            array = _unpacked(array.view(np.uint8), math.prod(dims))
    if array.size == 1:
        return LazyTensor(np.broadcast_to(array.reshape(()), dims))
    if array.size != np.prod(dims, dtype=np.int64):
        raise MappingError(f"a constant has {array.size} elements for the shape {dims}", "R103")
    return LazyTensor(array.reshape(dims))


def _unpacked(data: Array, count: int) -> Array:
    """Return booleans that are stored as bits, the lowest first."""
    found: Array = np.unpackbits(data, bitorder="little")[:count] != 0
    return found


_WIDER = {np.dtype(ml_dtypes.int4): np.int8, np.dtype(ml_dtypes.int2): np.int8}


def _printed(text: str, dtype: np.dtype[Any]) -> Array:
    inner = text.removeprefix("dense<").removesuffix(">")
    if inner.startswith('"0x'):  # an element in each item of whole bytes, except for BOOL
        return np.frombuffer(bytes.fromhex(inner[3:-1]), dtype)
    words = re.findall(r"true|false|[-+0-9.eExXA-Fa-f]+", inner)
    if dtype.kind == "c":
        parts = np.array([float(w) for w in words], np.float32)
        return parts.reshape(-1, 2).copy().view(np.complex64).reshape(-1)
    if any(w.startswith("0x") for w in words):  # bits of a number without a decimal form
        bits = np.dtype(f"u{dtype.itemsize}")
        return np.array([_bits(w, dtype, bits) for w in words], bits).view(dtype)
    if words and words[0] in ("true", "false"):
        return np.array([w == "true" for w in words], dtype)
    whole = dtype.kind in "iu" or dtype in (*_WIDER, ml_dtypes.uint4, ml_dtypes.uint2)
    return np.array([int(w) if whole else float(w) for w in words]).astype(dtype)


def _bits(word: str, dtype: np.dtype[Any], bits: np.dtype[Any]) -> int:
    if word.startswith("0x"):
        return int(word, 16)
    return int(np.array(float(word)).astype(dtype).view(bits))


def resource(data: Array, kind: Type) -> LazyTensor:
    """Return the elements of a resource without copying them; numbers of less than a byte are
    packed.
    """
    dims = [n or 0 for n in kind.dims]
    bits = STORED_BITS.get(kind.word, kind.dtype.bitwidth)
    count = int(np.prod(dims, dtype=np.int64))
    if data.nbytes != -(-count * bits // 8) and not (kind.word == "i1" and data.nbytes == count):
        message = f"a resource has {data.nbytes} bytes, {count} elements of {kind.word} are needed"
        raise MappingError(message, "R103")
    if bits < 8 and kind.word != "i1":
        return packed_tensor(data, bits, kind.dtype, dims)
    if kind.word == "i1" and data.nbytes != count:
        return LazyTensor(_unpacked(data, count).reshape(dims))
    return LazyTensor(data.view(kind.dtype.numpy()).reshape(dims))


# elements written ---------------------------------------------------------------------------------


def dense(array: Array, dtype: ir.DataType) -> str:
    """Return a small constant as the text of an attribute."""
    text = type_text(dtype, array.shape)
    if not array.size:
        return f"dense<> : {text}"
    if dtype == D.BOOL:
        array = array.astype(np.bool_)
        if array.all() or not array.any():
            return f"dense<{'true' if array.any() else 'false'}> : {text}"
        data = np.packbits(array.reshape(-1), bitorder="little").tobytes()
    else:
        data = np.ascontiguousarray(array).tobytes()
        size = len(data) // array.size
        if data == data[:size] * array.size:
            data = data[:size]
    return f'dense<"0x{data.hex().upper()}"> : {text}'
