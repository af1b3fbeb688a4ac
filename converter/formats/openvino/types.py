"""Element types of OpenVINO: the spelling in `element_type`, the spelling as a port's `precision`,
and the size in the .bin.
"""

from __future__ import annotations

from converter.record import record


@record
class ElementType:
    """One element type.

    `name` is the spelling in `element_type`, `precision` the one on ports and in legacy IR; `bits`
    is the size of one element. `unit` is the number of bits by which a packed constant grows: 8
    unless the elements are split over several bytes (u3, u6).
    """

    name: str
    precision: str
    bits: int

    @property
    def unit(self) -> int:
        return 24 if self.bits in (3, 6) else 8

    def nbytes(self, elements: int) -> int:
        """Return the bytes that `elements` values take in the .bin; packed types are rounded up to
        complete units.
        """
        return -(-elements * self.bits // self.unit) * (self.unit // 8)


# `string` and `dynamic` have no fixed size and are therefore not in the table
_BITS = {
    64: ("f64", "i64", "u64"),
    32: ("f32", "i32", "u32"),
    16: ("f16", "bf16", "i16", "u16"),
    8: ("f8e4m3", "f8e5m2", "f8e8m0", "i8", "u8", "boolean"),
    6: ("u6",),
    4: ("f4e2m1", "nf4", "i4", "u4"),
    3: ("u3",),
    2: ("u2",),
    1: ("u1",),
}
# of the others it is the name in capital letters
_PRECISIONS = {"f64": "FP64", "f32": "FP32", "f16": "FP16", "u1": "BIN", "boolean": "BOOL"}
ELEMENT_TYPES = {
    name: ElementType(name, _PRECISIONS.get(name, name.upper()), bits)
    for bits, names in _BITS.items()
    for name in names
}
