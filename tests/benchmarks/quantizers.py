"""Quantizers of single targets, compared with `netconv quantize`: the same float network and
samples.
"""

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
# arguments: the float network, the folder of samples, a quantized network in the same format; print
# signal to noise at the worst output, in decibels, in the engine of the format
LITERT_NOISE = """
import glob, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
def outputs(path):
    run, results = Interpreter(path), []
    run.allocate_tensors()
    for f in sorted(glob.glob(sys.argv[2] + "/*.npz")):
        arrays = dict(np.load(f))
        for d in run.get_input_details():
            (step, zero), kind = d["quantization"], np.dtype(d["dtype"])
            x = arrays.get(d["name"], next(iter(arrays.values()))).reshape(d["shape"])
            if kind.kind in "iu":
                x = np.clip(np.rint(x / step) + zero, np.iinfo(kind).min, np.iinfo(kind).max)
            run.set_tensor(d["index"], x.astype(kind))
        run.invoke()
        details = sorted(run.get_output_details(), key=lambda d: d["name"])
        found = [(run.get_tensor(d["index"]), *d["quantization"]) for d in details]
        results.append([(y.astype("f8") - zero) * (step or 1) for y, step, zero in found])
    return results
"""
OPENVINO_NOISE = """
import glob, sys
import numpy as np, openvino as ov
def outputs(path):
    run = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    files = sorted(glob.glob(sys.argv[2] + "/*.npz"))
    return [[*map(np.array, run([*np.load(f).values()]).values())] for f in files]
"""
NOISE = """
floats, others = outputs(sys.argv[1]), outputs(sys.argv[3])
pairs = [(np.stack(a), np.stack(b)) for a, b in zip(zip(*floats), zip(*others))]
print(min(10 * np.log10(np.square(a).sum() / np.square(a - b).sum()) for a, b in pairs))
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
    """`script` and `netconv quantize -t target` do the same step; `noise` measures the results."""

    name: str
    module: str
    target: str
    suffix: str
    script: str
    noise: str


LITERT_NOISE += NOISE
OPENVINO_NOISE += NOISE
QUANTIZERS = (
    Quantizer("ai-edge-quantizer", "ai_edge_quantizer", "tflite", ".tflite", AI_EDGE, LITERT_NOISE),
    Quantizer("NNCF", "nncf", "openvino", ".xml", NNCF, OPENVINO_NOISE),
)
