"""Quantizers of single targets, compared with `netconv quantize`: the same float network and
samples.
"""

from __future__ import annotations

from dataclasses import dataclass

# arguments: the float network (in ONNX for onnx2tf), a folder of .npz files, the result
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
ONNX2TF = """
import glob, os, shutil, sys, tempfile
import numpy as np, onnx2tf
from unittest.mock import patch
source, data, result = sys.argv[1:]
samples = [dict(np.load(f)) for f in sorted(glob.glob(data + "/*.npz"))]
folder = tempfile.mkdtemp()
given = []
for name in samples[0]:
    array = np.concatenate([s[name] for s in samples])
    np.save(f"{folder}/{name}.npy", np.moveaxis(array, 1, -1))
    given += ["-cind", name, f"{folder}/{name}.npy", "0", "1"]
with patch.object(sys, "argv", ["onnx2tf", "-i", source, "-o", folder, "-oiqt", "-n", *given]):
    onnx2tf.main()
(made,) = glob.glob(folder + "/*[!l]_integer_quant.tflite")
shutil.move(made, result)
shutil.rmtree(folder)
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
            x = arrays.get(d["name"], next(iter(arrays.values())))
            last = x.shape != tuple(d["shape"])  # where onnx2tf puts channels
            x = (np.moveaxis(x, 1, -1) if last else x).reshape(d["shape"])
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
    """`script` and `netconv quantize -t target` do the same step; `noise` measures the results.
    `source`: the format of the float network.
    """

    name: str
    module: str
    target: str
    suffix: str
    script: str
    noise: str
    source: str = ""


LITERT_NOISE += NOISE
OPENVINO_NOISE += NOISE
QUANTIZERS = (
    Quantizer("ai-edge-quantizer", "ai_edge_quantizer", "tflite", ".tflite", AI_EDGE, LITERT_NOISE),
    Quantizer("onnx2tf", "onnx2tf", "tflite", ".tflite", ONNX2TF, LITERT_NOISE, "onnx"),
    Quantizer("NNCF", "nncf", "openvino", ".xml", NNCF, OPENVINO_NOISE),
)
