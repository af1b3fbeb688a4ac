"""Complex numbers (pairs on an additional last axis of the graph), Fourier transforms, and audio
features.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import Dims, LiftContext, LowerContext, dims_of
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.tensors import COMPLEX
from converter.graph.infer import Array
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value
from converter.mapping.fields import Detail, Guard, RequireAttr, ignore
from converter.mapping.rules import Custom, Rule, custom, op

# Operators that handle complex pairs themselves, or pass values on unchanged.
_PAIRS = """COMPLEX_ABS REAL IMAG CAST MUL RFFT2D IF WHILE CALL CALL_ONCE READ_VARIABLE
ASSIGN_VARIABLE STABLEHLO_COMPOSITE"""
PAIRS = frozenset(_PAIRS.split())
# Operators that only move elements: applied to the real and the imaginary parts alike.
_MOVES = """RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE
STRIDED_SLICE GATHER GATHER_ND REVERSE_V2 TILE BROADCAST_TO PAD"""
MOVES = frozenset(_MOVES.split())
LIMITS = {"lower": 20.0, "upper": 4000.0}  # frequencies in Hz, unless the options say others
LEAST = np.float32(1e-12)  # energy whose logarithm is taken


def has_pairs(r: LiftContext) -> bool:
    """Return whether an operand is complex."""
    return any(r.tensor(i).type in COMPLEX for i in range(len(r.layer.inputs)))


NO_PAIRS = Guard("complex data are not supported", lift_if=lambda r: not has_pairs(r))
ARE_PAIRS = Guard("only complex data are supported by this rule", lift_if=has_pairs)


def part(r: LiftContext, index: int, of: int = 0) -> Value:
    """Return the real or the imaginary part of complex numbers."""
    return r.b.Gather(r.input(of), index, axis=-1)


def squares(r: LiftContext) -> Value:
    """Return the sum of the squares of both parts."""
    real, imaginary = part(r, 0), part(r, 1)
    return real * real + imaginary * imaginary


def parts_of_product(r: LiftContext) -> None:
    """Return the product of two complex numbers, with real and imaginary part concatenated."""
    (a, b), (c, d) = ((part(r, 0, i), part(r, 1, i)) for i in (0, 1))
    r.set_inputs(*(r.b.Unsqueeze(v, [-1]) for v in (a * c - b * d, a * d + b * c)))


def read_lengths(r: LiftContext) -> None:
    """The lengths of the signal at input 1, along the last two axes; one element along the first
    of them is its own transform.
    """
    wanted, rank = r.ints(1, "the lengths"), r.rank(data(r))
    if len(wanted) != 2 or rank < 2 or min(wanted) < 1:
        raise MappingError(f"the lengths {wanted} do not fit {rank} axes", "R105")
    axes = [rank - 2, rank - 1]
    if wanted[0] == 1 and dims_of(data(r))[-2] == 1:
        axes, wanted = axes[1:], wanted[1:]
    r.node.attrs |= {"axes": axes, "sizes": wanted}
    del r.node.inputs[1:]


def write_lengths(w: LowerContext) -> None:
    """Split complex numbers after the operator; lengths are powers of 2."""
    rank, lengths = w.rank(), lengths_of(w)
    image, shape = w.data, dims_of(w.data)
    if len(lengths) == 1:
        shape = [*shape[:-1], 1, shape[-1]]
        lengths = [1, *lengths]
        image = w.emit("EXPAND_DIMS", image, w.int32(rank - 1), shape=shape)
    bins = [*shape[:-2], lengths[0], lengths[1] // 2 + 1]
    w.layer.inputs = [image, w.int32(lengths)]
    spectrum = w.result("spectrum", ir.DataType.COMPLEX64)
    spectrum.shape = ir.Shape(bins)
    w.after_emit(lambda: pack_parts(w, spectrum, bins, rank))


def lengths_of(w: LowerContext) -> list[int]:
    """Return the length of the signal along each axis of the transform."""
    rank = w.rank()
    axes = [int(a) % rank for a in w.attr("axes")]
    shape = dims_of(w.data)
    pairs = zip(w.attr("sizes"), axes, strict=True)
    lengths = [int(n) if n > 0 else int(shape[i] or 0) for n, i in pairs]
    if axes != list(range(rank - len(axes), rank)) or not 0 < len(axes) < 3:
        raise MappingError("only transforms of the last one or two axes are supported")
    if any(n < 1 or n & (n - 1) for n in lengths):
        raise MappingError("transform lengths must be powers of 2")
    return lengths


def pack_parts(w: LowerContext, spectrum: ir.Value, bins: Dims, rank: int) -> None:
    """Join the real and imaginary parts along a new last axis.

    A transform of one axis has an axis of length 1 before it, which is removed.
    """
    pair = [
        w.emit(kind, spectrum, dtype=ir.DataType.FLOAT, shape=bins) for kind in ("REAL", "IMAG")
    ]
    if len(bins) > rank:
        flat = [*bins[:-2], bins[-1]]
        pair = [w.emit("SQUEEZE", v, shape=flat, squeeze_dims=[rank - 1]) for v in pair]
    w.put("PACK", *pair, axis=rank, values_count=2)


LENGTHS = Detail(read=read_lengths, write=write_lengths, names=("axes", "sizes"), inputs=(1,))


# sounds ------------------------------------------------------------------------------------------


def spectrogram(r: LiftContext) -> Value:
    """Return the spectra of a sound [samples, channels] in windows: [channels, windows, bins].
    Windows are weighted by a raised cosine and padded with zeros to a power of 2.
    """
    b, width, step = r.b, r.attr("window_size", int), r.attr("stride", int)
    samples = dims_of(data(r))[0] if r.rank(data(r)) == 2 else None
    if samples is None:
        raise MappingError("the number of samples must be static", "X203")
    if not 0 < width <= samples or step < 1:
        raise MappingError(
            f"windows of {width} samples with stride {step} do not fit {samples} samples", "R110"
        )
    demand_small((samples - width) // step + 1, width)
    starts = arange(0, samples - width + 1, step)
    frames = b.Gather(r.transpose(data(r), [1, 0]), starts[:, None] + arange(width), axis=1)
    weights = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(width) / width)
    length = 1 << (width - 1).bit_length()
    pairs = b.RealDFT(frames * weights.astype(np.float32), axes=[2], sizes=[length])
    power = b.ReduceSum(pairs * pairs, [-1], keepdims=0)
    return power if r.attr("magnitude_squared", bool, False) else b.Sqrt(power)


def cepstrum(r: LiftContext) -> Value:
    """Return the cosine transform of the logarithm of the spectrum in bands of equal width on the
    mel scale. Inputs are [squares of the spectrum [channels, windows, bins], sample rate].
    """
    b, rate = r.b, r.ints(1, "the sample rate")
    bins = dims_of(data(r))[-1] if r.rank(data(r)) == 3 else None
    if bins is None or bins < 2 or len(rate) != 1:
        raise MappingError(f"{bins} bins at a sample rate of {rate} are not supported", "X203")
    limits = [r.attr(f"{k}_frequency_limit", float, d) for k, d in LIMITS.items()]
    bands = r.attr("filterbank_channel_count", int, 40)
    count = r.attr("dct_coefficient_count", int, 13)
    if not 0 <= limits[0] < limits[1] or not 0 < count <= bands or rate[0] < 1:
        raise MappingError(
            f"{count} of {bands} bands between {limits} Hz are not supported", "R110"
        )
    demand_small(bins, bands)
    places = np.arange(bands) + 0.5
    cosines = np.sqrt(2 / bands) * np.cos(np.pi / bands * np.outer(places, np.arange(count)))
    energy = b.Sqrt(data(r)) @ b.const(mel_bands(bins, rate[0], bands, limits), "bands")
    return b.Log(b.Max(energy, LEAST)) @ b.const(cosines.astype(np.float32), "cosines")


def mel_bands(bins: int, rate: int, bands: int, limits: list[float]) -> Array:
    """[bins, bands]: triangles whose ends are the middles of their neighbors, at frequencies that
    are equally far apart on the mel scale. Source: TensorFlow, MfccMelFilterbank.
    """

    def mel(frequency: Array) -> Array:
        return np.asarray(1127 * np.log1p(frequency / 700))

    width = rate / 2 / (bins - 1)
    low, high = mel(np.array(limits))
    ends = np.linspace(low, high, bands + 2)
    at = mel(np.arange(bins) * width)
    distance = (at[:, None] - ends[1:-1]) / (ends[1] - ends[0])
    weights = np.maximum(0, 1 - np.abs(distance))
    first, last = int(1.5 + limits[0] / width), int(limits[1] / width)
    weights[:first] = weights[last + 1 :] = 0
    return np.asarray(weights, np.float32)


PAIRS_AXIS = RequireAttr("axis", -1)  # of the real and the imaginary part
RULES: list[Rule | Custom] = [
    op("netconv::RealDFT", "RFFT2D", LENGTHS, example_inputs="2,8"),
    custom("", "AudioSpectrogram", spectrogram),
    custom("", "Mfcc", cepstrum),
    op(
        "Concat",
        "MUL",
        ARE_PAIRS,
        PAIRS_AXIS,
        ignore("fused_activation_function"),
        before_lift=parts_of_product,
        lift_only=True,
    ),
    op("Sqrt", "COMPLEX_ABS", before_lift=squares, lift_only=True),
    op("Gather", "REAL", PAIRS_AXIS, before_lift=lambda r: r.set_input(1, 0), lift_only=True),
    op("Gather", "IMAG", PAIRS_AXIS, before_lift=lambda r: r.set_input(1, 1), lift_only=True),
]
