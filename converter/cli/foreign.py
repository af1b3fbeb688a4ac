"""Options and commands of other tools, with netconv's way to the same result: for wrong calls.

The table is read only when an option or a command is unknown. A row lists spellings without dashes;
`_` and `-` are the same, and upper case is lower case.
"""

from __future__ import annotations

from collections.abc import Sequence

from converter.formats.other_names import QUANTIZE

_INPUT = "the model is the first argument: netconv convert IN OUT"
_OUTPUT = "the output is the second argument: netconv convert IN OUT"
_HALF = (
    "half precision belongs to the target: -t openvino+fp16, tflite+fp16, coreml+fp16 or "
    "mlprogram+fp16"
)
_SHAPE = "--inputs NAME:1,3,224,224 fixes the shape of an input; netconv inspect IN lists the names"
_PIXELS = (
    "netconv adds no preprocessing to a model; netconv verify --labels takes --mean and --std for "
    "images"
)
_OPTIONS: tuple[tuple[str, str], ...] = (
    ("opset target-opset opset-version onnx-opset", "-t onnx+opset=17 (13 or later)"),
    ("fp16 half float16 fp-16 compress-to-fp16 compress-weights-to-fp16 use-fp16", _HALF),
    ("precision compute-precision dtype data-type float-type keep-fp32 fp32", _HALF),
    ("quantize quantise quantization quant int8 int4 uint8 calibrate calibration", QUANTIZE),
    ("calibration-data calib-data quant-type integer-quantization", QUANTIZE),
    (
        "simplify sim optimize optimise optimization-level o1 o2 o3 constant-folding fold",
        "netconv keeps the layers of a model; simplify an ONNX file with onnxsim or onnxslim first",
    ),
    ("input-shape input-shapes overwrite-input-shape override-input-shape shape shapes", _SHAPE),
    ("batch-size batch input-size image-size img-size imgsz dynamic-batch dim-param", _SHAPE),
    (
        "dynamic dynamic-axes dynamic-shapes",
        "dynamic sizes stay dynamic unless --inputs NAME:SHAPE fixes them",
    ),
    (
        "output-dir outdir out-dir output-folder output-path out-folder",
        "-o DIR/ -t FORMAT writes a file in a folder, named like the model",
    ),
    ("output-model output-file outfile out out-file dest destination save-as save", _OUTPUT),
    ("input-model input-file input model model-path model-file in infile src path", _INPUT),
    ("onnx xml tflite mlmodel i m", _INPUT),
    (
        "target output-format convert-to out-format export-format target-format format-out",
        "-t FORMAT names the format to write; without it, the suffix of OUT decides",
    ),
    (
        "framework source-framework input-format in-format model-type source-format",
        "-f FORMAT names the format of IN, which netconv otherwise detects",
    ),
    (
        "layout nhwc nchw channels-last source-layout target-layout input-layout data-layout",
        "--io-layout native makes image inputs and outputs channels-last in TensorFlow Lite and "
        "NNAPI",
    ),
    ("mean mean-values std scale scale-values scale-factor normalize bias", _PIXELS),
    ("reverse-input-channels bgr rgb color-layout image-scale preprocessing", _PIXELS),
    (
        "input-names input-name rename-inputs output-names-map rename",
        "netconv extract IN OUT --rename OLD=NEW renames inputs and outputs",
    ),
    (
        "output-names output-name output-node output-nodes end-points",
        "--outputs NAME keeps what this output needs, and removes the rest",
    ),
    (
        "minimum-deployment-target deployment-target ios minimum-ios-version macos",
        "the system belongs to the target: -t mlprogram+ios=16",
    ),
    ("ir-version ir", "the version belongs to the target: -t openvino+ir=10"),
    ("feature-level level api-level", "the level belongs to the target: -t nnapi+level=4"),
    ("external-data save-as-external-data external", "-t onnx+external"),
    ("int8-inputs npu", "netconv formats FORMAT lists what -t FORMAT+... can choose"),
    (
        "device compute-units provider providers ep execution-provider backend cuda gpu cpu",
        "--engine NAME of netconv run and verify chooses what runs a model: onnxruntime, openvino, "
        "litert",
    ),
    (
        "tolerance tol threshold eps epsilon delta",
        "--rtol V and --atol V of netconv verify; without them rounding noise is measured",
    ),
    ("validate check test compare check-outputs", "--verify compares the result with the source"),
    ("overwrite yes y clobber exist-ok", "--force overwrites existing files"),
    ("silent s no-progress", "-q prints errors only"),
    ("debug verbosity loglevel log-level d", "-v shows more, -vv still more; --log FILE keeps it"),
    ("json output-json", "--format json"),
    ("dry-run n no-write", "netconv check IN -t FORMAT converts without writing a file"),
    ("threads num-workers workers parallel n-jobs", "netconv batch DIR -t FORMAT --jobs N"),
    ("recursive r all", "netconv batch DIR -t FORMAT converts all models below a folder"),
    ("bin weight params weights-file weight-file", "--weights FILE names the file of weights"),
    ("version-info v1", "netconv --version"),
    ("usage help-all ?", "netconv COMMAND --help"),
    ("man manual", "netconv --man prints the manual page"),
    ("iterations repeat warmup benchmark", "netconv run MODEL --profile measures each layer"),
    (
        "input-data input-dir inputs-dir load-inputs samples",
        "--data in.npz, DIR, or NAME=x.npy",
    ),
)
_COMMANDS: tuple[tuple[str, str], ...] = (
    ("help man", "netconv --help, netconv COMMAND --help, netconv --man"),
    ("version", "netconv --version"),
    ("info show summary describe stats print list-layers", "netconv inspect MODEL"),
    (
        "compare cmp same assert",
        "netconv verify REF CAND, for outputs; netconv diff A B, for layers",
    ),
    ("validate lint checker", "netconv check MODEL"),
    ("export transform translate to mo ovc", "netconv convert IN OUT"),
    (
        "simplify optimize optimise sim slim",
        "netconv keeps the layers of a model; simplify an ONNX file with onnxsim or onnxslim",
    ),
    ("quantize quantise quantization calibrate int8", QUANTIZE),
    ("infer predict exec execute eval inference", "netconv run MODEL"),
    ("benchmark bench profile perf", "netconv run MODEL --profile"),
    ("visualize visualise plot draw netron serve graph", "netconv view MODEL -o page.html"),
    ("surgeon cut subgraph split", "netconv extract IN OUT --start A --outputs B"),
    ("bisect debug minimize minimise", "netconv reduce REF CAND -o DIR"),
    ("list targets supported list-formats", "netconv formats, netconv ops FORMAT"),
    ("run-all many folder", "netconv batch DIR -t FORMAT"),
    ("config settings", "netconv env --settings"),
    ("why error code", "netconv explain CODE"),
)


def option_help(option: str) -> str:
    """Return the help for an option that another tool has, "" if it is not known."""
    return _find(_OPTIONS, option.partition("=")[0])


def command_help(name: str) -> str:
    """Return the help for a command that another tool has, "" if it is not known."""
    return _find(_COMMANDS, name)


def _find(table: Sequence[tuple[str, str]], name: str) -> str:
    asked = name.lstrip("-").replace("_", "-").lower()
    return next((answer for spellings, answer in table if asked in spellings.split()), "")
