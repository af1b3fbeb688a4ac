"""Element types of OpenVINO: the spelling in `element_type`, the spelling as a port's `precision`,
and the size in the .bin.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """One element type.

    `name` is the spelling in `element_type`, `precision` the one on ports and in legacy IR; `bits`
    is the size of one element. `unit` is the number of bits by which a packed constant grows: 8
    unless the elements are split over several bytes (u3, u6).
    """

    name: str
    precision: str
    bits: int
    unit: int = 8

    def nbytes(self, elements: int) -> int:
        """Bytes that `elements` values take in the .bin; packed types are rounded up to whole
        units.
        """
        return -(-elements * self.bits // self.unit) * (self.unit // 8)


def _types(*rows: tuple[str, str, int]) -> dict[str, ElementType]:
    return {
        name: ElementType(name, precision, bits, 24 if bits in (3, 6) else 8)
        for name, precision, bits in rows
    }


# `string` and `dynamic` have no fixed size and are therefore not in the table
ELEMENT_TYPES: dict[str, ElementType] = _types(
    ("f64", "FP64", 64),
    ("f32", "FP32", 32),
    ("f16", "FP16", 16),
    ("bf16", "BF16", 16),
    ("f8e4m3", "F8E4M3", 8),
    ("f8e5m2", "F8E5M2", 8),
    ("f8e8m0", "F8E8M0", 8),
    ("f4e2m1", "F4E2M1", 4),
    ("nf4", "NF4", 4),
    ("i64", "I64", 64),
    ("i32", "I32", 32),
    ("i16", "I16", 16),
    ("i8", "I8", 8),
    ("i4", "I4", 4),
    ("u64", "U64", 64),
    ("u32", "U32", 32),
    ("u16", "U16", 16),
    ("u8", "U8", 8),
    ("u6", "U6", 6),
    ("u4", "U4", 4),
    ("u3", "U3", 3),
    ("u2", "U2", 2),
    ("u1", "BIN", 1),
    ("boolean", "BOOL", 8),
)
