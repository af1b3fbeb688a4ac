"""Families of operators, which a drawing colors alike."""

from __future__ import annotations

import re
from functools import cache

# family -> names of its operators; the first match counts
_NAMES = {
    "types and quantization": r"Quantize|^Cast|FakeQuant",
    "convolution": r"Conv|Col2Im",
    "pooling and resizing": r"Pool|Resize|Upsample|GridSample|AffineGrid|Roi|DepthToSpace|SpaceToD",
    "normalization": r"Norm|^LRN$|Whiten",
    "recurrence and attention": r"LSTM|GRU|RNN|Attention|Rotary|Embedding|State",
    "matrix product": r"MatMul|Gemm|Einsum|InnerProduct|^Det$|Inverse",
    "activation": r"elu\w*$|ELU|Sigmoid|Tanh$|Softmax|Softplus|Softsign|Hardmax|ardSwish|Swish"
    r"|Mish|^Clip$|Shrink",
    "reduction": r"^Reduce|^Arg|TopK|^Cum|NonMax|^Unique|^Mean$|^Sum$|Bucketize|Histogram",
    "shape": r"Reshape|Transpose|^Concat|^Split|Slice|^Gather|^Scatter|^Pad|Expand|^Tile|queeze"
    r"|Flatten|^Shape$|^Size$|^Range$|^Identity|^OneHot|^EyeLike|ConstantOfShape|Trilu|Reverse"
    r"|NonZero|Compress|Permute|Crop|Stack|Reorg|Shuffle",
    "control flow": r"^If$|^Loop$|^Scan$|^While|Sequence|Optional",
}
OTHER = "arithmetic and other"
FAMILIES = (*_NAMES, OTHER)


@cache
def family(operator: str) -> int:
    """Return the index in FAMILIES of an operator, which may have its domain before it."""
    name = operator.rpartition(".")[2]
    found = (i for i, names in enumerate(_NAMES.values()) if re.search(names, name))
    return next(found, len(_NAMES))
