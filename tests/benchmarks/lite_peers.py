"""onnx2tf (ONNX to TFLite) and tf2onnx (TFLite to ONNX) compared with netconv, on ten small
networks.

    python tests/benchmarks/lite_peers.py A B     whether two files (.onnx, .tflite) compute the
    same

A file that puts the channels of images last is fed and compared so, as onnx2tf writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TO_LITE = "import onnx2tf, sys; onnx2tf.convert(sys.argv[1], output_folder_path=sys.argv[2])"
# the inputs that onnx2tf would fetch from the network to try a model
IMAGES = "calibration_image_sample_data_20x128x128x3_float32.npy"


@dataclass(frozen=True)
class LitePeer:
    """A tool's command for one network, netconv's arguments for the same step, and the result."""

    tool: str
    network: str
    source: Path
    target: str
    command: list[str]
    output: Path


def lite_peers(folder: Path, python: str) -> Iterator[LitePeer]:
    """`folder` holds the networks (`networks.py FOLDER kinds`), and each as .tflite for tf2onnx."""
    images = np.random.default_rng(0).random((20, 128, 128, 3), np.float32)
    np.save(folder / IMAGES, images)
    for source in sorted(folder.glob("*.onnx")):
        made = folder / "onnx2tf" / source.stem
        output = made / f"{source.stem}_float32.tflite"
        command = [python, "-c", TO_LITE, str(source), str(made)]
        yield LitePeer("onnx2tf", source.stem, source, "tflite", command, output)
    (folder / "tf2onnx").mkdir(exist_ok=True)
    for source in sorted(folder.glob("*.tflite")):
        output = folder / "tf2onnx" / f"{source.stem}.onnx"
        options = ["--tflite", str(source), "--output", str(output), "--opset", "18"]
        command = [python, "-m", "tf2onnx.convert", *options]
        yield LitePeer("tf2onnx", source.stem, source, "onnx", command, output)


# results ------------------------------------------------------------------------------------------


def fits(array: Any, shape: Sequence[int]) -> Any:
    """Return the array in this shape, or with the channels last; None if neither fits."""
    own, last = list(array.shape), [0, *range(2, array.ndim), 1]
    if own == list(shape):
        return array
    if array.ndim > 2 and [own[i] for i in last] == list(shape):
        return array.transpose(last)
    return None


def results(path: Path, feed: Any) -> list[Any]:
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        given = session.get_inputs()[0]
        return list(session.run(None, {given.name: fits(feed, given.shape)}))
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]
    interpreter.set_tensor(given["index"], fits(feed, list(given["shape"])))
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def differences(a: Path, b: Path, shape: Sequence[int]) -> float:
    """The largest difference of two files, relative to the largest number; inf for other shapes."""
    feed = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    worst = 0.0
    for want, got in zip(results(a, feed), results(b, feed), strict=True):
        turned = fits(want, got.shape)
        if turned is None:
            return float("inf")
        worst = max(worst, float(np.abs(got - turned).max() / max(1e-9, np.abs(want).max())))
    return worst


def input_shape(path: Path) -> list[int]:
    import onnx

    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    return [d.dim_value for d in dims]


if __name__ == "__main__":
    first, second = Path(sys.argv[1]), Path(sys.argv[2])
    sizes = [int(n) for n in sys.argv[3].split(",")]
    found = differences(first, second, sizes)
    print(f"{found:.2g}")
    sys.exit(0 if found < 1e-3 else 1)
