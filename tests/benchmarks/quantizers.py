"""Quantizers of single targets, beside `netconv quantize`: the same float network and samples."""

from __future__ import annotations

from dataclasses import dataclass

# arguments: the float network, a folder of .npz files, the result
AI_EDGE = """
import glob, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe
source, data, result = sys.argv[1:]
key, names = next(iter(Interpreter(source).get_signature_list().items()))
samples = [dict(np.load(f)) for f in sorted(glob.glob(data + "/*.npz"))]
quantize = quantizer.Quantizer(source, recipe.static_wi8_ai8())
quantize.quantize(quantize.calibrate({key: samples})).export_model(result, overwrite=True)
"""
NNCF = """
import glob, sys
import nncf, numpy as np, openvino as ov
source, data, result = sys.argv[1:]
model = ov.Core().read_model(source)
samples = nncf.Dataset(sorted(glob.glob(data + "/*.npz")), lambda f: dict(np.load(f)))
ov.save_model(nncf.quantize(model, samples), result, compress_to_fp16=False)
"""
# arguments: the float network, the folder of samples; makes them
SAMPLES = """
import pathlib, sys
import converter, numpy as np
model, folder = converter.load(sys.argv[1]), pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)
for seed in range(16):
    rng = np.random.default_rng(seed)
    arrays = {i.name: rng.standard_normal(i.shape, np.float32) for i in model.inputs}
    np.savez(folder / f"{seed:02}.npz", **arrays)
"""


@dataclass(frozen=True)
class Quantizer:
    """`script` and `netconv quantize -t target` do the same step."""

    name: str
    module: str
    target: str
    suffix: str
    script: str


QUANTIZERS = (
    Quantizer("ai-edge-quantizer", "ai_edge_quantizer", "tflite", ".tflite", AI_EDGE),
    Quantizer("NNCF", "nncf", "openvino", ".xml", NNCF),
)
