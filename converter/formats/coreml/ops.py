"""The rows: layers that are one operator of the shared graph."""

from __future__ import annotations

from converter.mapping.table import Table, ops

UNARY = ops(
    "Ceil=ceil Floor=floor Sign=sign Round=round Sin=sin Cos=cos Tan=tan Asin=asin Acos=acos Atan=atan Sinh=sinh Cosh=cosh Tanh=tanh "
    "Asinh=asinh Acosh=acosh Atanh=atanh Erf=erf",
    since=4,
)
BINARY = ops(
    "Max=maxBroadcastable Min=minBroadcastable Add=addBroadcastable Pow=powBroadcastable Div=divideBroadcastable Mul=multiplyBroadcastable "
    "Sub=subtractBroadcastable",
    since=4,
)
TABLE = Table([*UNARY, *BINARY])
