"""Layers against formulas written down from the specification, as read and after writing and
reading again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import UnsupportedError
from converter.formats.coreml.neuralnetwork.rules.recurrent import activations
from formats.coreml_models import Array, layer, network, saved
from layers import cases
from layers.models import coreml

rng = np.random.default_rng(7)
X = rng.normal(size=(1, 4, 5, 6)).astype(np.float32)
M = rng.normal(size=(3, 4)).astype(np.float32)
W = rng.normal(size=(2, 4)).astype(np.float32)
G = rng.normal(size=4).astype(np.float32)
V = np.abs(G) + np.float32(0.5)


def run_both(path: Path, model: Any, feeds: dict[str, Array]) -> list[dict[str, Array]]:
    """Results as read, and after the graph was written and read again."""
    first = converter.load(saved(model, path / "a.mlmodel"))
    converter.save(first, path / "b.mlmodel")
    return [first.run(feeds), converter.load(path / "b.mlmodel").run(feeds)]


def channel(v: Array) -> Array:
    return v.reshape(-1, 1, 1)


def conv(x: Array, w: Array, stride: int = 1) -> Array:
    """The definition, with loops; no padding."""
    n, _, h, wd = x.shape
    o, _, kh, kw = w.shape
    out = np.zeros((n, o, (h - kh) // stride + 1, (wd - kw) // stride + 1), np.float32)
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            patch = x[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
            out[:, :, i, j] = np.einsum("nchw,ochw->no", patch, w)
    return out


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


K = rng.normal(size=(3, 4, 3, 3)).astype(np.float32)
CASES: dict[str, tuple[Any, dict[str, Array], Any]] = {
    "convolution": (
        layer(
            "convolution",
            "x",
            "y",
            {"weights": K, "bias": G[:3]},
            outputChannels=3,
            kernelChannels=4,
            kernelSize=[3, 3],
            stride=[2, 2],
            hasBias=True,
            valid={},
        ),
        {"x": X},
        lambda x: conv(x, K, 2) + channel(G[:3]),
    ),
    "convolution same, one pixel more at the end": (
        layer(
            "convolution",
            "x",
            "y",
            {"weights": K[..., :2, :2]},
            outputChannels=3,
            kernelChannels=4,
            kernelSize=[2, 2],
            same={},
        ),
        {"x": X},
        lambda x: conv(np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)]), K[..., :2, :2]),
    ),
    "innerProduct": (
        layer(
            "innerProduct",
            "x",
            "y",
            {"weights": W, "bias": G[:2]},
            inputChannels=4,
            outputChannels=2,
            hasBias=True,
        ),
        {"x": M},
        lambda x: x @ W.T + G[:2],
    ),
    "batchedMatmul stores columns": (
        layer(
            "batchedMatmul",
            "x",
            "y",
            {"weights": W},
            weightMatrixFirstDimension=4,
            weightMatrixSecondDimension=2,
        ),
        {"x": M},
        lambda x: x @ W.T,
    ),
    "batchnorm": (
        layer("batchnorm", "x", "y", {"gamma": G, "beta": V, "mean": G, "variance": V}, channels=4),
        {"x": X},
        lambda x: channel(G) * (x - channel(G)) / np.sqrt(channel(V) + 1e-5) + channel(V),
    ),
    "mvn": (
        layer("mvn", "x", "y", normalizeVariance=True, acrossChannels=True),
        {"x": X},
        lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-6),
    ),
    "l2normalize": (
        layer("l2normalize", "x", "y"),
        {"x": X},
        lambda x: x / np.sqrt((x * x).sum() + 1e-6),
    ),
    "lrn over channels": (
        layer("lrn", "x", "y", alpha=0.5, beta=0.75, localSize=3),
        {"x": X},
        lambda x: (
            x
            / (
                1
                + 0.5
                / 3
                * sum(
                    np.pad(x * x, [(0, 0), (1, 1), (0, 0), (0, 0)])[:, i : i + 4] for i in range(3)
                )
            )
            ** 0.75
        ),
    ),
    "unary log adds epsilon": (
        layer("unary", "x", "y", type="LOG", scale=2.0, shift=1.0),
        {"x": np.abs(M)},
        lambda x: np.log(2 * x + 1 + 1e-6),
    ),
    "unary with scale left out": (
        layer("unary", "x", "y", type="RSQRT", epsilon=0.25),
        {"x": np.abs(M)},
        lambda x: 1 / np.sqrt(x + 0.25),
    ),
    "multiply by nothing is zero": (layer("multiply", "x", "y"), {"x": M}, lambda x: x * 0),
    "thresholdedReLU keeps the bound": (
        layer("activation", "x", "y", thresholdedReLU={"alpha": 1.0}),
        {"x": np.array([0.5, 1.0, 2.0], np.float32)},
        lambda x: x * (x >= 1),
    ),
    "PReLU on axis -3": (
        layer("activation", "x", "y", {"PReLU.alpha": G}, PReLU={}),
        {"x": X},
        lambda x: np.where(x > 0, x, x * channel(G)),
    ),
    "scale and bias by channel": (
        layer(
            "scale", "x", "y", {"scale": G, "bias": V}, shapeScale=[4], shapeBias=[4], hasBias=True
        ),
        {"x": X},
        lambda x: x * channel(G) + channel(V),
    ),
    "reduce LOGSUM is a sum of logarithms": (
        layer("reduce", "x", "y", mode="LOGSUM", axis="HW"),
        {"x": np.abs(X)},
        lambda x: np.log(x + 1e-6).sum((2, 3), keepdims=True),
    ),
    "reduceLogSum is a logarithm of a sum": (
        layer("reduceLogSum", "x", "y", axes=[1]),
        {"x": np.abs(M)},
        lambda x: np.log(x.sum(1)),
    ),
    "slice to -1 leaves the last out": (
        layer("slice", "x", "y", startIndex=1, endIndex=-1, stride=2, axis="WIDTH_AXIS"),
        {"x": X},
        lambda x: x[..., 1:-1:2],
    ),
    "sliceStatic": (
        layer(
            "sliceStatic",
            "x",
            "y",
            beginIds=[0, 3],
            endIds=[0, 0],
            strides=[1, -2],
            beginMasks=[True, False],
            endMasks=[True, True],
            squeezeMasks=[False] * 2,
        ),
        {"x": M},
        lambda x: x[:, 3::-2],
    ),
    "splitND unevenly": (
        layer("splitND", "x", "y z", axis=1, numSplits=2),
        {"x": X[0, :3].transpose(1, 0, 2)},
        lambda x: (x[:, :2], x[:, 2:]),
    ),
    "gather with float indices": (
        layer("gather", "x i", "y", axis=1),
        {"x": M, "i": np.array([-1, 0, 2], np.float32)},
        lambda x, i: np.take(x, i.astype(int), 1),
    ),
    "scatter divides": (
        layer("scatter", "x i u", "y", axis=1, mode="SCATTER_DIV"),
        {"x": M, "i": np.array([2, 0], np.float32), "u": np.array([[2, 4]] * 3, np.float32)},
        lambda x, i, u: x / np.array([4, 1, 2, 1], np.float32),
    ),
    "reverseSeq": (
        layer("reverseSeq", "x n", "y", batchAxis=0, sequenceAxis=1),
        {"x": M, "n": np.array([1, 2, 4], np.float32)},
        lambda x, n: np.stack(
            [
                np.concatenate([row[: int(k)][::-1], row[int(k) :]])
                for row, k in zip(x, n, strict=True)
            ]
        ),
    ),
    "reorganizeData, depth to space": (
        layer("reorganizeData", "x", "y", mode="DEPTH_TO_SPACE", blockSize=2),
        {"x": X},
        lambda x: x.reshape(1, 2, 2, 1, 5, 6).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 10, 12),
    ),
    "constantPad pairs": (
        layer("constantPad", "x", "y", padAmounts=[1, 0, 0, 2], value=7.0),
        {"x": M},
        lambda x: np.pad(x, [(1, 0), (0, 2)], constant_values=7),
    ),
    "pooling rounds up": (
        layer(
            "pooling", "x", "y", type="MAX", kernelSize=[2, 2], stride=[2, 2], includeLastPixel={}
        ),
        {"x": X},
        lambda x: (
            np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 0)], constant_values=-np.inf)
            .reshape(1, 4, 3, 2, 3, 2)
            .max((3, 5))
        ),
    ),
    "upsample repeats": (
        layer("upsample", "x", "y", scalingFactor=[2, 3], mode="NN"),
        {"x": X},
        lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
    "upsample to align the corners": (
        layer(
            "upsample",
            "x",
            "y",
            scalingFactor=[1, 2],
            mode="BILINEAR",
            linearUpsampleMode="ALIGN_CORNERS_TRUE",
        ),
        {"x": X},
        lambda x: np.apply_along_axis(
            lambda v: np.interp(np.linspace(0, 5, 12), np.arange(6), v), 3, x
        ),
    ),
    "resizeBilinear in the middles": (
        layer(
            "resizeBilinear", "x", "y", targetSize=[5, 4], mode={"samplingMethod": "ROI_ALIGN_MODE"}
        ),
        {"x": X},
        lambda x: np.apply_along_axis(
            lambda v: np.interp((np.arange(4) + 0.5) * 5 / 4, np.arange(6), v),
            3,
            np.apply_along_axis(
                lambda v: np.interp(np.minimum(4, (np.arange(5) + 0.5) * 4 / 5), np.arange(5), v),
                2,
                x,
            ),
        ),
    ),
    "oneHot": (
        layer("oneHot", "i", "y", oneHotVectorSize=4, axis=-1, onValue=2.0, offValue=-1.0),
        {"i": np.array([3, 0], np.float32)},
        lambda i: np.where(np.eye(4)[i.astype(int)] > 0, 2, -1),
    ),
    "modBroadcastable has the divisor's sign": (
        layer("modBroadcastable", "x y", "z"),
        {"x": np.array([-5, 5, -5.5], np.float32), "y": np.array([3, -3, 2], np.float32)},
        np.mod,
    ),
    "layerNormalization": (
        layer(
            "layerNormalization", "x", "y", {"gamma": G, "beta": V}, normalizedShape=[4], eps=1e-3
        ),
        {"x": M},
        lambda x: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * G + V
        ),
    ),
    "embeddingND": (
        layer("embeddingND", "i", "y", {"weights": W}, vocabSize=4, embeddingSize=2),
        {"i": np.array([[3], [1]], np.float32)},
        lambda i: W.T[i[:, 0].astype(int)],
    ),
    "argMax keeps the axis": (
        layer("argMax", "x", "y", axis=1),
        {"x": M},
        lambda x: x.argmax(1)[:, None],
    ),
    "cumSum without the last": (
        layer("cumSum", "x", "y", axis=1, excludeFinalSum=True),
        {"x": M},
        lambda x: np.concatenate([np.zeros((3, 1)), x.cumsum(1)[:, :-1]], 1),
    ),
    "matrixBandPart": (
        layer("matrixBandPart", "x", "y", numLower=1, numUpper=0),
        {"x": M},
        lambda x: np.triu(np.tril(x), -1),
    ),
    "slidingWindows": (
        layer("slidingWindows", "x", "y", axis=1, windowSize=2, step=2),
        {"x": M},
        lambda x: np.stack([x[:, :2], x[:, 2:]], 1),
    ),
    "concat interleaved": (
        layer("concatND", "x y", "z", axis=1, interleave=True),
        {"x": M, "y": -M},
        lambda x, y: np.stack([x, y], 2).reshape(3, 8),
    ),
    "whereNonZero": (
        layer("whereNonZero", "x", "y"),
        {"x": np.array([[0, 1], [2, 0]], np.float32)},
        np.argwhere,
    ),
    "squeezing all leaves one axis": (
        layer("squeeze", "x", "y", squeezeAll=True),
        {"x": np.ones((1, 1), np.float32)},
        lambda x: x.reshape(1),
    ),
    "gelu by a sigmoid": (
        layer("gelu", "x", "y", mode="SIGMOID_APPROXIMATION"),
        {"x": M},
        lambda x: x * sigmoid(1.702 * x),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layer_follows_the_specification(name: str, tmp_path: Path) -> None:
    made, feeds, formula = CASES[name]
    outputs = made[2]
    expected = formula(*feeds.values())
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for got in run_both(
        tmp_path, network([made], {k: v.shape for k, v in feeds.items()}, outputs), feeds
    ):
        for key, want in zip(outputs, wanted, strict=True):
            assert got[key].shape == np.shape(want)
            np.testing.assert_allclose(got[key], want, rtol=2e-5, atol=2e-5)


def gate_weights(size: int, into: int) -> dict[str, Array]:
    names = ("inputGate", "forgetGate", "blockInput", "outputGate")
    blobs = {f"weightParams.{n}WeightMatrix": rng.normal(size=(size, into)) for n in names}
    blobs |= {f"weightParams.{n}RecursionMatrix": rng.normal(size=(size, size)) for n in names}
    blobs |= {f"weightParams.{n}BiasVector": rng.normal(size=size) for n in names}
    blobs |= {
        f"weightParams.{n}PeepholeVector": rng.normal(size=size)
        for n in (names[0], names[1], names[3])
    }
    return {k: v.astype(np.float32) for k, v in blobs.items()}


def lstm_steps(x: Array, blobs: dict[str, Array], clip: float) -> tuple[Array, Array, Array]:
    """Peepholes, a forget bias of one, and cells limited to +-clip; x is [Seq,Batch,I]."""
    p = {k.removeprefix("weightParams."): v for k, v in blobs.items()}
    h = c = np.zeros((x.shape[1], 2), np.float32)
    outs = []
    for step in x:

        def gate(n: str, step: Array = step, h: Array = h) -> Array:
            return (
                step @ p[f"{n}WeightMatrix"].T
                + h @ p[f"{n}RecursionMatrix"].T
                + p[f"{n}BiasVector"]
            )

        i = sigmoid(gate("inputGate") + c * p["inputGatePeepholeVector"])
        f = sigmoid(gate("forgetGate") + 1 + c * p["forgetGatePeepholeVector"])
        c = np.clip(f * c + i * np.tanh(gate("blockInput")), -clip, clip)
        h = sigmoid(gate("outputGate") + c * p["outputGatePeepholeVector"]) * np.tanh(c)
        outs.append(h)
    return np.stack(outs), h, c


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_with_peepholes(clip: float, reverse: bool, tmp_path: Path) -> None:
    blobs = gate_weights(2, 3)
    params = {
        "sequenceOutput": True,
        "hasBiasVectors": True,
        "forgetBias": True,
        "hasPeepholeVectors": True,
        "cellClipThreshold": clip,
    }
    made = layer(
        "uniDirectionalLSTM",
        "x",
        "y h c",
        blobs,
        inputVectorSize=3,
        outputVectorSize=2,
        params=params,
        reverseInput=reverse,
        activations=[{"sigmoid": {}}, {"tanh": {}}, {"tanh": {}}],
    )
    x = rng.normal(size=(4, 2, 3, 1, 1)).astype(np.float32)
    y, h, c = lstm_steps(x[::-1, ..., 0, 0] if reverse else x[..., 0, 0], blobs, clip or 50.0)
    for got in run_both(tmp_path, network([made], {"x": x.shape}, ["y", "h", "c"]), {"x": x}):
        np.testing.assert_allclose(
            got["y"][..., 0, 0], y, rtol=1e-4, atol=1e-5
        )  # in the order of processing
        np.testing.assert_allclose(got["h"][0, ..., 0, 0], h, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["c"][0, ..., 0, 0], c, rtol=1e-4, atol=1e-5)


def test_states_that_may_be_left_out(tmp_path: Path) -> None:
    """Declared as vectors, fed as vectors; zeros where nothing is given."""
    blobs = gate_weights(2, 3)
    params = {
        "sequenceOutput": False,
        "hasBiasVectors": True,
        "forgetBias": True,
        "hasPeepholeVectors": True,
        "cellClipThreshold": 0.0,
    }
    made = layer(
        "uniDirectionalLSTM",
        "x h0 c0",
        "y h c",
        blobs,
        inputVectorSize=3,
        outputVectorSize=2,
        params=params,
        activations=[{"sigmoid": {}}, {"tanh": {}}, {"tanh": {}}],
    )
    sizes = {"x": (3,), "h0": (2,), "c0": (2,)}
    model = network([made], sizes, ["y", "h", "c"], exact=False)
    for feature in model.proto.description.input[1:]:
        feature.type.isOptional = True
    path = saved(model, tmp_path / "m.mlmodel")
    x = rng.normal(size=3).astype(np.float32)
    _, h, _ = lstm_steps(x.reshape(1, 1, 3), blobs, 50.0)
    first = converter.load(path)
    found = first.run({"x": x})
    np.testing.assert_allclose(found["h"].reshape(-1), h[0], rtol=1e-4, atol=1e-5)
    given = {"h0": found["h"].reshape(-1), "c0": found["c"].reshape(-1)}
    second = first.run({"x": x, **given})
    assert np.abs(second["h"] - found["h"]).max() > 1e-3
    for name in ("m.nnapi.json", "m.txt", "m.tflite", "again.mlmodel"):
        converter.convert(path, tmp_path / name, inputs={"x": [3]})
        again = converter.load(tmp_path / name)
        feeds = {
            "x": x.reshape(1, 1, 3, 1, 1),
            **{n: v.reshape(1, 1, 2, 1, 1) for n, v in given.items()},
        }
        names = {i.name: np.reshape(feeds[i.name], i.shape or ()) for i in again.inputs}
        got = again.run(names)
        np.testing.assert_allclose(
            got["h"].reshape(-1), second["h"].reshape(-1), rtol=1e-4, atol=1e-5
        )


def test_gru_resets_before_the_matrix(tmp_path: Path) -> None:
    names = ("update", "reset", "output")
    blobs = {
        f"{g}Gate{k}": rng.normal(size=s).astype(np.float32)
        for g in names
        for k, s in (("WeightMatrix", (2, 3)), ("RecursionMatrix", (2, 2)), ("BiasVector", 2))
    }
    made = layer(
        "gru",
        "x",
        "y h",
        blobs,
        inputVectorSize=3,
        outputVectorSize=2,
        hasBiasVectors=True,
        sequenceOutput=True,
    )
    x = rng.normal(size=(3, 1, 3, 1, 1)).astype(np.float32)
    h = np.zeros((1, 2), np.float32)
    for step in x[..., 0, 0]:
        z, r = (
            sigmoid(
                step @ blobs[f"{g}GateWeightMatrix"].T
                + h @ blobs[f"{g}GateRecursionMatrix"].T
                + blobs[f"{g}GateBiasVector"]
            )
            for g in names[:2]
        )
        o = np.tanh(
            step @ blobs["outputGateWeightMatrix"].T
            + (r * h) @ blobs["outputGateRecursionMatrix"].T
            + blobs["outputGateBiasVector"]
        )
        h = (1 - z) * o + z * h
    for got in run_both(tmp_path, network([made], {"x": x.shape}, ["y", "h"]), {"x": x}):
        np.testing.assert_allclose(got["h"][0, ..., 0, 0], h, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["y"][-1, ..., 0, 0], h, rtol=1e-4, atol=1e-5)


def test_suppression_gives_the_best_box_when_none_survives(tmp_path: Path) -> None:
    boxes = np.array([[[0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [5, 5, 1, 1]]], np.float32)
    scores = np.array([[[0.9], [0.8], [0.7]]], np.float32)
    for threshold, count, indices in ((0.1, 2, [0, 2, -1]), (0.95, 1, [0, -1, -1])):
        made = layer(
            "NonMaximumSuppression",
            "b s",
            "boxes scores indices count",
            iouThreshold=0.5,
            scoreThreshold=threshold,
            maxBoxes=3,
        )
        model = network(
            [made], {"b": boxes.shape, "s": scores.shape}, ["boxes", "scores", "indices", "count"]
        )
        for got in run_both(tmp_path, model, {"b": boxes, "s": scores}):
            assert got["count"].tolist() == [count]
            assert got["indices"].tolist() == [indices]
            assert (got["boxes"][0, count:] == 0).all()


def test_limits_of_a_range_are_single_numbers() -> None:
    case = cases.read(cases.FOLDER / "coreml" / "rangeDynamic.toml")
    end = cases.Tensor.of(np.arange(6, dtype=np.float32), constant=True)
    case.inputs, case.attributes = [end], {}
    with pytest.raises(UnsupportedError, match="a limit of a range must be one number, got 6"):
        coreml.lift(coreml.build(case))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((0, 1e30, 1), "too large"),
        ((0, 1, 1e-30), "too large"),
        ((0, "Infinity", 1), "must be finite"),
        ((0, 1, 0), "step not 0"),
    ],
)
def test_a_range_that_is_refused(limits: tuple[Any, ...], reason: str) -> None:
    case = cases.read(cases.FOLDER / "coreml" / "rangeStatic.toml")
    case.attributes = dict(zip(("startValue", "endValue", "stepSizeValue"), limits, strict=True))
    with pytest.raises(UnsupportedError, match=reason):
        coreml.lift(coreml.build(case))


@pytest.mark.parametrize("kind", ["loadConstantND", "fillStatic"])
def test_more_axes_than_arrays_have(kind: str) -> None:
    """Also of an engine's array, which no other format could hold."""
    case = cases.read(cases.FOLDER / "coreml" / f"{kind}.toml")
    case.attributes[{"fillStatic": "targetShape"}.get(kind, "shape")] = [1] * 65
    case.attributes.pop("data", None)
    if kind == "loadConstantND":
        case.attributes["data"] = {"floatValue": [1.0]}
    with pytest.raises(UnsupportedError, match="a tensor has 65 axes, limit 64"):
        coreml.lift(coreml.build(case))


def test_a_crop_needs_height_and_width() -> None:
    case = cases.read(cases.FOLDER / "coreml" / "crop.toml")
    case.attributes = {"offset": [1, 1]}
    like = cases.Tensor.of(np.ones(3, np.float32))
    case.inputs = [*case.inputs[:1], like]
    with pytest.raises(
        UnsupportedError, match=r"offset=\[1, 1\] with an input of rank 1 does not crop"
    ):
        coreml.lift(coreml.build(case))


@pytest.mark.parametrize(
    ("given", "alpha", "beta"), [({}, 0.2, 0.5), ({"alpha": 0.3, "beta": 0.4}, 0.3, 0.4)]
)
def test_a_hard_sigmoid_of_a_cell_has_parameters(
    given: dict[str, float], alpha: float, beta: float
) -> None:
    """Files may leave them out; then they are those of Core ML."""
    found = activations([{"sigmoidHard": given}], ["tanh"])
    assert found == {
        "activations": ["HardSigmoid"],
        "activation_alpha": [alpha],
        "activation_beta": [beta],
    }
