"""Names of formats and of precisions in other tools, with netconv's way to the same result.

The tables are read only when a name is unknown.
"""

from __future__ import annotations

SYNONYMS = {
    "openvino": ("ir", "ov", "openvino_ir", "openvino-ir", "vino"),
    "tflite": ("lite", "litert", "tf-lite", "tf_lite", "tensorflow-lite", "tensorflowlite"),
    "coreml": ("mlmodel", "neuralnetwork", "core-ml", "apple"),
    "mlprogram": ("mlpackage", "ml-program", "milprogram", "mil"),
    "coreai": ("aimodel", "core-ai"),
    "zhouyi": ("compass", "aipu", "zhouyi-ir"),
    "nnapi": ("android", "nn-api"),
}
QUANTIZE = "netconv quantize IN OUT --data DIR makes an int8 network, and measures what it loses"
_TENSORFLOW = "netconv reads and writes TensorFlow models as .tflite files: tflite"
# https://github.com/ENOT-AutoDL/onnx2torch
_TORCH = (
    "netconv does not run PyTorch: export with torch.onnx.export(..., dynamo=True) and read the "
    "ONNX file; the other way, onnx2torch reads the file that -t onnx writes"
)
_FROM_ONNX = "it is made from an ONNX file by its vendor's tool: write one with -t onnx"
OTHERS = {
    "tf": _TENSORFLOW,
    "tensorflow": _TENSORFLOW,
    "keras": _TENSORFLOW,
    "savedmodel": _TENSORFLOW,
    "pb": _TENSORFLOW,
    "pytorch": _TORCH,
    "torch": _TORCH,
    "torchscript": _TORCH,
    "pt": _TORCH,
    "pth": _TORCH,
    "executorch": _TORCH,
    "tensorrt": "TensorRT builds its engine from an ONNX file: -t onnx, then trtexec --onnx=FILE",
    "trt": "TensorRT builds its engine from an ONNX file: -t onnx, then trtexec --onnx=FILE",
    "ncnn": "ncnn reads ONNX: -t onnx, then pnnx FILE",
    "mnn": "MNN reads ONNX: -t onnx, then mnnconvert -f ONNX --modelFile FILE",
    "rknn": _FROM_ONNX,
    "dlc": _FROM_ONNX,
    "snpe": _FROM_ONNX,
    "qnn": _FROM_ONNX,
    "hef": _FROM_ONNX,
    "paddle": "convert it to ONNX first: paddle2onnx --model_dir FOLDER --save_file model.onnx",
    "caffe": "convert it to OpenVINO IR or Core ML with the tools of its time, and read that",
    "safetensors": "it holds weights but no network: export the model that it belongs to",
    "gguf": "it holds weights but no network: export the model that it belongs to",
}
_HALF = ("float16", "half", "f16", "fp-16", "bf16", "bfloat16")
_SINGLE = ("fp32", "float32", "float", "single", "f32")
_QUANTIZED = ("int8", "uint8", "int4", "uint4", "int16", "i8", "u8", "q8", "quantized", "quant")


def help_for_format(name: str) -> str:
    """Return the help for a name that another tool gives a format, "" if it is not known."""
    asked = name.lower().lstrip(".")
    for known, others in SYNONYMS.items():
        if asked in others:
            return f"perhaps you meant {known!r}"
    return OTHERS.get(asked.replace("-", "").replace("_", ""), "")


def help_for_flavor(name: str, known: list[str], format: str) -> str:
    """Return the help for a flavor that other tools have, "" if it is not known."""
    asked = name.lower()
    if asked in _HALF and "fp16" in known:
        return "perhaps you meant 'fp16'"
    if asked in (*_SINGLE, *_HALF, "fp16"):
        return f"{format} is written in the precision of the source"
    if asked.startswith(_QUANTIZED):
        return QUANTIZE
    close = next((k for k in known if asked.startswith(k) and asked[len(k) :].isdigit()), "")
    return f"perhaps you meant '{close}={asked[len(close) :]}'" if close else ""
