"""The rules of `shapes.py`, one for each family of operations."""

from __future__ import annotations

import math

from converter.formats.nnapi.shapes import Arguments, Shape, agree, broadcast, channels_last, expect, image, product, reduced, rule, spatial

_SAME = """
    DEQUANTIZE QUANTIZE FLOOR L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOGISTIC TANH RELU RELU1 RELU6 SOFTMAX ABS EXP LOG NEG SIN SQRT RSQRT
    LOGICAL_NOT HARD_SWISH CAST INSTANCE_NORMALIZATION LOG_SOFTMAX ELU CHANNEL_SHUFFLE REVERSE
"""
_BROADCAST = "ADD SUB MUL DIV EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM"


@rule(*_SAME.split())
def same(x: Arguments) -> list[Shape]:
    shape = x.shape("input")
    if shape is not None and "axis" in x.binding.inputs and x.binding.spec.name != "REVERSE":
        axis = x.axis("axis", len(shape))
        groups = x.scalar("groups") if x.binding.spec.name == "CHANNEL_SHUFFLE" else None
        if axis is not None and groups and shape[axis]:
            expect(shape[axis] % groups == 0, f"{groups} groups do not divide the axis of {shape[axis]}")
    if x.binding.spec.name == "REVERSE":
        for axis in x.values("axis") or []:
            expect(shape is None or 0 <= axis < len(shape), f"axis {axis} is outside the rank")
    return [shape]


@rule(*_BROADCAST.split())
def elementwise(x: Arguments) -> list[Shape]:
    return [broadcast(x.shape("a"), x.shape("b"))]


@rule("POW")
def power(x: Arguments) -> list[Shape]:
    return [broadcast(x.shape("base"), x.shape("exponent"))]


@rule("PRELU")
def prelu(x: Arguments) -> list[Shape]:
    return [broadcast(x.shape("input"), x.shape("alpha"))]


@rule("SELECT")
def select(x: Arguments) -> list[Shape]:
    return [broadcast(x.shape("mask"), broadcast(x.shape("a"), x.shape("b")))]


@rule("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pool(x: Arguments) -> list[Shape]:
    return [image(x, *spatial(x, (x.scalar("filter_height") or 0, x.scalar("filter_width") or 0)))]


@rule("CONV_2D", "GROUPED_CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(x: Arguments) -> list[Shape]:
    name = x.binding.spec.name
    dilation = (x.scalar("dilation_height") or 1, x.scalar("dilation_width") or 1)
    n, h, w, depth = spatial(x, (x.dim("filter", 1), x.dim("filter", 2)), dilation)
    if name == "DEPTHWISE_CONV_2D":
        out, multiplier = x.dim("filter", 3), x.scalar("multiplier")
        expect(x.dim("filter", 0) in (0, 1), "the first dimension of the filter is not 1")
        expect(not (out and depth and multiplier) or out == depth * multiplier, f"filter depth {out} is not input depth {depth} * multiplier {multiplier}")
    else:
        out, groups = x.dim("filter", 0), x.scalar("groups") or 1
        expect(
            not depth or not x.dim("filter", 3) or depth == x.dim("filter", 3) * groups, f"filter depth {x.dim('filter', 3)} does not fit input depth {depth}"
        )
        expect(not out or out % groups == 0, f"{groups} groups do not divide the output depth {out}")
    return [image(x, n, h, w, agree(out, x.dim("bias", 0), "filter and bias"))]


@rule("TRANSPOSE_CONV_2D")
def transpose_convolution(x: Arguments) -> list[Shape]:
    n, h, w, depth = channels_last(x, "input")
    out = agree(x.dim("filter", 0), x.dim("bias", 0), "filter and bias")
    agree(depth, x.dim("filter", 3), "input depth and filter depth")
    if "output_shape" in x.binding.inputs:
        stated = x.values("output_shape")
        expect(stated is None or len(stated) == 4, "output_shape does not have 4 elements")
        return [stated]
    sizes = []
    for size, axis, stride, before, after in ((h, 1, "stride_height", "pad_top", "pad_bottom"), (w, 2, "stride_width", "pad_left", "pad_right")):
        step, kernel, pads = x.scalar(stride), x.dim("filter", axis), (x.scalar(before), x.scalar(after))
        known = size and kernel and step and None not in pads
        sizes.append((size - 1) * step + kernel - pads[0] - pads[1] if known else 0)
        expect(not known or sizes[-1] > 0, "the padding leaves nothing of the output")
    return [image(x, n, sizes[0], sizes[1], out)]


@rule("CONCATENATION")
def concatenation(x: Arguments) -> list[Shape]:
    shapes = x.shapes("inputs")
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return [None]
    rank = len(known[0])
    axis = x.axis("axis", rank)
    expect(all(len(s) == rank for s in known), "the inputs differ in rank")
    if axis is None:
        return [[0] * rank]
    result = list(known[0])
    for s in known[1:]:
        result = [agree(a, b, f"dimension {i} of the inputs") if i != axis else 0 for i, (a, b) in enumerate(zip(result, s, strict=True))]
    lengths = [s[axis] for s in known]
    result[axis] = sum(lengths) if all(lengths) else 0
    return [result]


@rule("DEPTH_TO_SPACE")
def depth_to_space(x: Arguments) -> list[Shape]:
    (n, h, w, c), b = channels_last(x, "input"), x.scalar("block_size")
    if not b or b < 1:
        return [None]
    expect(c % (b * b) == 0, f"block_size {b} squared does not divide the depth {c}")
    return [image(x, n, h * b, w * b, c // (b * b))]


@rule("SPACE_TO_DEPTH")
def space_to_depth(x: Arguments) -> list[Shape]:
    (n, h, w, c), b = channels_last(x, "input"), x.scalar("block_size")
    if not b or b < 1:
        return [None]
    expect(h % b == 0 and w % b == 0, f"block_size {b} does not divide {h} x {w}")
    return [image(x, n, h // b, w // b, c * b * b)]


@rule("BATCH_TO_SPACE_ND")
def batch_to_space(x: Arguments) -> list[Shape]:
    (n, h, w, c), blocks = channels_last(x, "input"), x.values("block_sizes")
    if blocks is None:
        return [None]
    expect(len(blocks) == 2 and min(blocks) >= 1, "block_sizes are not two numbers of at least 1")
    expect(n % (blocks[0] * blocks[1]) == 0, f"block sizes {blocks} do not divide the batch {n}")
    return [image(x, n // (blocks[0] * blocks[1]), h * blocks[0], w * blocks[1], c)]


@rule("SPACE_TO_BATCH_ND")
def space_to_batch(x: Arguments) -> list[Shape]:
    (n, h, w, c), blocks, pads = channels_last(x, "input"), x.values("block_sizes"), x.values("paddings")
    if blocks is None or pads is None:
        return [None]
    expect(len(blocks) == 2 and min(blocks) >= 1, "block_sizes are not two numbers of at least 1")
    expect(len(pads) == 4 and min(pads) >= 0, "paddings are not two pairs of at least 0")
    sizes = []
    for size, block, before, after in ((h, blocks[0], pads[0], pads[1]), (w, blocks[1], pads[2], pads[3])):
        expect(not size or (size + before + after) % block == 0, f"block size {block} does not divide {size} + {before} + {after}")
        sizes.append((size + before + after) // block if size else 0)
    return [image(x, n * blocks[0] * blocks[1], sizes[0], sizes[1], c)]


@rule("EMBEDDING_LOOKUP")
def embedding_lookup(x: Arguments) -> list[Shape]:
    values = x.shape("values")
    return [None if values is None else [x.dim("lookups", 0), *values[1:]]]


@rule("HASHTABLE_LOOKUP")
def hashtable_lookup(x: Arguments) -> list[Shape]:
    values, k = x.shape("values"), x.dim("lookups", 0)
    agree(x.dim("keys", 0), x.dim("values", 0), "keys and values")
    keys = x.values("keys")
    expect(keys is None or keys == sorted(keys), "the keys are not in ascending order")
    return [None if values is None else [k, *values[1:]], [k]]


@rule("FULLY_CONNECTED")
def fully_connected(x: Arguments) -> list[Shape]:
    count, units, size = product(x.shape("input")), x.dim("weights", 0), x.dim("weights", 1)
    expect(not count or not size or count % size == 0, f"{count} input elements are no multiple of the input size {size}")
    return [[count // size if size else 0, agree(units, x.dim("bias", 0), "weights and bias")]]


@rule("LSH_PROJECTION")
def lsh_projection(x: Arguments) -> list[Shape]:
    if x.given("weight"):
        agree(x.dim("input", 0), x.dim("weight", 0), "input and weight")
    kind, functions, bits = x.scalar("kind"), x.dim("hash", 0), x.dim("hash", 1)
    expect(kind is None or kind == 2 or bits <= 32, f"a sparse projection has at most 32 bits, not {bits}")
    return [[functions * bits if kind == 2 else functions if kind else 0]]


@rule("RESHAPE")
def reshape(x: Arguments) -> list[Shape]:
    target, count = x.values("shape"), product(x.shape("input"))
    if target is None:
        stated = product(x.output_shape("output"))
        expect(not count or not stated or count == stated, f"{count} elements cannot become {stated}")
        return [[0] * x.dim("shape", 0) or None]
    expect(target.count(-1) <= 1 and all(n >= -1 for n in target), f"{target} is not a shape")
    if -1 in target and count:
        rest = product([n for n in target if n != -1])
        expect(rest > 0 and count % rest == 0, f"{count} elements do not fit {target}")
        target = [count // rest if n == -1 else n for n in target]
    expect(not count or -1 in target or product(target) == count, f"{count} elements do not fit {target}")
    return [[max(n, 0) for n in target]]


@rule("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(x: Arguments) -> list[Shape]:
    n, h, w, c = channels_last(x, "input")
    expect(not (x.scalar("align_corners") and x.scalar("half_pixel_centers")), "align_corners and half_pixel_centers exclude each other")
    if "width" in x.binding.inputs:
        return [image(x, n, x.scalar("height") or 0, x.scalar("width") or 0, c)]
    scales = x.scalar("height_scale"), x.scalar("width_scale")
    if None in scales:
        return [None]
    expect(all(math.isfinite(s) and 0 < s < 2**31 for s in scales), "the scales are not positive")
    return [image(x, n, math.floor(h * scales[0]), math.floor(w * scales[1]), c)]


@rule("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_SUM")
def reduction(x: Arguments) -> list[Shape]:
    return [reduced(x.shape("input"), x.values("axes"), x.scalar("keep_dims"))]


@rule("PAD", "PAD_V2", "MIRROR_PAD")
def pad(x: Arguments) -> list[Shape]:
    shape, pads = x.shape("input"), x.values("paddings")
    if shape is None or pads is None:
        return [None if shape is None else [0] * len(shape)]
    expect(len(pads) == 2 * len(shape), f"{len(pads)} paddings for rank {len(shape)}")
    expect(min(pads, default=0) >= 0, "a padding is negative")
    if x.binding.spec.name == "MIRROR_PAD":
        limit = 1 - (x.scalar("mode") or 0)
        expect(all(not n or max(a, b) <= n - limit for n, a, b in zip(shape, pads[::2], pads[1::2], strict=True)), "a padding is longer than its dimension")
    return [[n + a + b if n else 0 for n, a, b in zip(shape, pads[::2], pads[1::2], strict=True)]]


@rule("SQUEEZE")
def squeeze(x: Arguments) -> list[Shape]:
    shape = x.shape("input")
    if shape is None or 0 in shape:
        return [None]
    axes = x.values("axes") if x.given("axes") else [i for i, n in enumerate(shape) if n == 1]
    if axes is None:
        return [None]
    # an empty list of axes squeezes as if there were none
    axes = axes or [i for i, n in enumerate(shape) if n == 1]
    expect(all(0 <= a < len(shape) and shape[a] == 1 for a in axes), f"axes {axes} of {shape} are not of size 1")
    return [[n for i, n in enumerate(shape) if i not in axes] or [1]]


@rule("STRIDED_SLICE")
def strided_slice(x: Arguments) -> list[Shape]:
    shape, parts = x.shape("input"), [x.values(k) for k in ("begin", "end", "strides")]
    masks = [x.scalar(k) for k in ("begin_mask", "end_mask", "shrink_axis_mask")]
    if shape is None or None in parts or None in masks:
        return [None]
    begin, end, strides = (p or [] for p in parts)
    expect(len(begin) == len(end) == len(strides) == len(shape), "begin, end and strides do not have one element per dimension")
    expect(0 not in strides, "a stride is 0")
    result = []
    for i, (n, b, e, s) in enumerate(zip(shape, begin, end, strides, strict=True)):
        if masks[2] >> i & 1:
            expect(not n or -n <= b < n, f"begin {b} is outside dimension {i} of {n}")
            continue
        picked = range(n)[slice(None if masks[0] >> i & 1 else b, None if masks[1] >> i & 1 else e, s)]
        result.append(len(picked))
    return [result or [1]]


@rule("TRANSPOSE")
def transpose(x: Arguments) -> list[Shape]:
    shape = x.shape("input")
    if shape is None:
        return [None]
    order = x.values("permutation") if x.given("permutation") else list(range(len(shape)))[::-1]
    if order is None:
        return [[0] * len(shape)]
    expect(sorted(order) == list(range(len(shape))), f"{order} is not a permutation of {len(shape)} axes")
    return [[shape[i] for i in order]]


@rule("ARGMAX", "ARGMIN")
def arg(x: Arguments) -> list[Shape]:
    shape = x.shape("input")
    axis = None if shape is None else x.axis("axis", len(shape))
    return [None if shape is None or axis is None else shape[:axis] + shape[axis + 1 :] or [1]]


@rule("EXPAND_DIMS")
def expand_dims(x: Arguments) -> list[Shape]:
    shape = x.shape("input")
    axis = None if shape is None else x.axis("axis", len(shape) + 1)
    return [None if shape is None or axis is None else [*shape[:axis], 1, *shape[axis:]]]


@rule("GATHER")
def gather(x: Arguments) -> list[Shape]:
    shape, indices = x.shape("input"), x.shape("indices")
    axis = None if shape is None else x.axis("axis", len(shape))
    if shape is None or indices is None or axis is None:
        return [None]
    known = x.values("indices") if shape[axis] else None
    expect(all(0 <= i < shape[axis] for i in known or []), f"an index is outside dimension {axis} of {shape[axis]}")
    return [shape[:axis] + indices + shape[axis + 1 :]]


@rule("SLICE")
def slice_(x: Arguments) -> list[Shape]:
    shape, begin, size = x.shape("input"), x.values("begin"), x.values("size")
    if shape is None or begin is None or size is None:
        return [None]
    expect(len(begin) == len(size) == len(shape), "begin and size do not have one element per dimension")
    for n, b, s in zip(shape, begin, size, strict=True):
        expect(b >= 0 and s >= -1 and (not n or b + max(s, 0) <= n), f"begin {b} and size {s} are outside a dimension of {n}")
    return [[s if s != -1 else n - b if n else 0 for n, b, s in zip(shape, begin, size, strict=True)]]


@rule("SPLIT")
def split(x: Arguments) -> list[Shape]:
    shape, count, outputs = x.shape("input"), x.scalar("count"), x.binding.outputs["outputs"]
    number = len(outputs) if isinstance(outputs, list) else 1
    axis = None if shape is None else x.axis("axis", len(shape))
    expect(count is None or count == number, f"a split into {count} has {number} outputs")
    if shape is None or axis is None:
        return [None] * number
    expect(shape[axis] % number == 0, f"{number} parts do not divide a dimension of {shape[axis]}")
    part = [n // number if i == axis else n for i, n in enumerate(shape)]
    return [list(part) for _ in range(number)]


@rule("TILE")
def tile(x: Arguments) -> list[Shape]:
    shape, multiples = x.shape("input"), x.values("multiples")
    if shape is None or multiples is None:
        return [shape and [0] * len(shape)]
    expect(len(multiples) == len(shape) and min(multiples, default=1) >= 0, f"{multiples} are no multiples for rank {len(shape)}")
    return [[n * m for n, m in zip(shape, multiples, strict=True)]]


@rule("TOPK_V2")
def top_k(x: Arguments) -> list[Shape]:
    shape, k = x.shape("input"), x.scalar("k")
    if shape is None:
        return [None, None]
    expect(not k or not shape[-1] or k <= shape[-1], f"k {k} is more than the last dimension {shape[-1]}")
    return [[*shape[:-1], k or 0], [*shape[:-1], k or 0]]


@rule("BATCH_MATMUL")
def batch_matmul(x: Arguments) -> list[Shape]:
    a, b = x.shape("a"), x.shape("b")
    flags = [x.scalar(f) if x.given(f) else False for f in ("adjoint_a", "adjoint_b")]
    if a is None or b is None or None in flags:
        return [None]
    rows, inner = (a[-1], a[-2]) if flags[0] else (a[-2], a[-1])
    depth, columns = (b[-1], b[-2]) if flags[1] else (b[-2], b[-1])
    agree(inner, depth, "the inner dimensions")
    batch = broadcast(a[:-2], b[:-2])
    return [[*(batch or []), rows, columns]]


@rule("PACK")
def pack(x: Arguments) -> list[Shape]:
    shapes = x.shapes("inputs")
    known = [s for s in shapes if s is not None]
    if not known:
        return [None]
    result = known[0]
    for s in known[1:]:
        expect(len(s) == len(result), "the inputs differ in rank")
        result = [agree(a, b, "the inputs") for a, b in zip(result, s, strict=True)]
    axis = x.scalar("axis")
    if axis is None:
        return [None]
    expect(0 <= axis <= len(result), f"axis {axis} is outside the rank {len(result) + 1}")
    return [[*result[:axis], len(shapes), *result[axis:]]]


@rule("FILL")
def fill(x: Arguments) -> list[Shape]:
    values = x.values("shape")
    expect(values is None or min(values, default=0) >= 0, "a dimension is negative")
    return [values if values is not None else [0] * x.dim("shape", 0) or None]


@rule("RANK")
def rank(x: Arguments) -> list[Shape]:
    return [[]]
