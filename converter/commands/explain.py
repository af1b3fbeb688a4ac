"""The page for each diagnostic code, printed by `netconv explain CODE`.

Codes are grouped by their letter: R reading, X expression and mapping, W writing, N numbers, B
batch, U usage.
"""

from __future__ import annotations

from converter.record import record


@record
class Explanation:
    """The page for a code: its meaning and cause (`text`), the way out (`help`), and a
    command that gives the code (`example`), a line of its output (`output`), and a command that
    does not give the code (`repaired`). The commands run in a folder with the samples. A code
    without an example has the reason instead (`no_example`).
    """

    title: str
    text: str
    help: str
    example: str = ""
    output: str = ""
    repaired: str = ""
    no_example: str = ""


# doubles the scales of biases in digits.tflite
_SCALES = """import pathlib, tflite; p = pathlib.Path('digits.tflite'); \
data = bytearray(p.read_bytes()); g = tflite.Model.GetRootAs(data).Subgraphs(0); \
t = [g.Tensors(i) for i in range(g.TensorsLength())]; \
[x.Quantization().ScaleAsNumpy().__imul__(2) for x in t if b'bias' in x.Name()]; \
p.write_bytes(data)"""
_POOL = """(float[1,1,5,5] x) => (float[1,1,5,5] y) \
{ y = MaxPool<kernel_shape=[2,2], dilations=[2,2], AUTO>(x) }"""
_PADS = _POOL.replace("AUTO", "pads=[1,1,1,1]"), _POOL.replace("AUTO", 'auto_pad="SAME_UPPER"')
_BOXES = """(float[1,6,4] boxes, float[1,1,6] scores) => (int64[n,3] rows) \
<int64 most = {3}> { rows = NonMaxSuppression(boxes, scores, most) }"""
_HIDDEN = """(float[4] x) => (float[4] y) <float w = {2.0}> \
{ a = Abs(x)  b = Mul(a, w)  n = Neg(b)  y = Relu(n) }"""
_TWICE = "(float[1,200] x) => (float[1,200] y) { a = MatMul(x, w)  y = MatMul(a, w) }"
_WEIGHT = """import numpy; m.graph.initializer.append(\
onnx.numpy_helper.from_array(numpy.ones((200, 200), 'f'), 'w'))"""
_IMAGE = """(float[1,3,8,8] x) => (float[1,3,4,4] y) \
{ y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }"""
_RUN = "netconv batch samples -t onnx -o out"
_CNN = "samples/digits_cnn.mlmodel"
_DATA = "--data samples/digits_cnn.npz"


def _then(file: str, *commands: str) -> str:
    """Return the commands after a conversion of a sample to `file`; "s/old/new/" edits the file."""
    steps = [f"netconv convert {_CNN} {file}"]
    for command in commands:
        edits = command.startswith(("s/", "s,", "/"))
        steps.append(f"sed -i.bak '{command}' {file}" if edits else command)
    return " && ".join(steps)


def _python(code: str) -> str:
    """Return the command that runs Python code."""
    quoted = code.replace('"', '\\"')
    return f'python -c "{quoted}"'


def _onnx(graph: str, *commands: str, edit: str = "") -> str:
    """Return the commands after writing net.onnx from the text of its graph. `edit` is a Python
    statement that changes the model `m`.
    """
    text = f'<ir_version: 10, opset_import: ["": 21]> g {graph}'
    steps = ["import onnx", f"m = onnx.parser.parse_model('{text}')", edit]
    write = _python("; ".join([*filter(None, steps), "onnx.save(m, 'net.onnx')"]))
    return " && ".join((write, *commands))


CODES: dict[str, Explanation] = {
    "R100": Explanation(
        "the file cannot be read",
        "The path does not exist, is a folder, or the operating system refused to open it.",
        "Check the path and its permissions.",
        "netconv inspect digits.mlmodel",
        "error[R100] cannot read: No such file or directory",
        "netconv inspect samples/digits_cnn.mlmodel",
    ),
    "R101": Explanation(
        "netconv does not recognize this file format",
        "netconv detects the format from the content, then from the suffix. If the file is a "
        "model of another framework, a part of a model, or a broken download, the message names "
        "it.",
        "Use the file that the message asks for, or name the format with -f FORMAT.",
        "netconv inspect samples/digits_cnn.npz",
        "error[R101] netconv cannot read a NumPy archive of arrays",
        "netconv inspect samples/digits_cnn.mlmodel",
    ),
    "R102": Explanation(
        "the weights file is missing or too small",
        "The model refers to bytes in a second file that is absent or shorter than the reference.",
        "Copy the weights file next to the model, or name it with --weights.",
        _then("digits.xml", "rm digits.bin", "netconv inspect digits.xml"),
        "error[R102] weights file digits.bin was not found",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "R103": Explanation(
        "the file is damaged",
        "The bytes do not follow the format: the file is truncated, or has wrong sizes, a wrong "
        "encoding or an invalid value.",
        "Download or export the file again.",
        "netconv inspect samples/digits_cnn.mlmodel -f onnx",
        "error[R103] this is not a readable ONNX model: the text is not UTF-8",
        "netconv inspect samples/digits_cnn.mlmodel",
    ),
    "R104": Explanation(
        "the version is not supported",
        "The file declares a version of its format that netconv does not read. `netconv formats "
        "FORMAT` lists the versions.",
        "Export the model for one of these versions.",
        _then("digits.xml", 's/version="11"/version="99"/', "netconv inspect digits.xml"),
        "error[R104] version '99' of OpenVINO IR is not supported",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "R105": Explanation(
        "the model is not a valid graph",
        "A name is used before it is written, is written twice, or a layer has the wrong number "
        "of inputs.",
        "Export the model again; if its own engine runs it, please report it.",
        _then("digits.xml", 's/from-layer="0"/from-layer="99"/', "netconv inspect digits.xml"),
        "error[R105] the edge refers to layer 99, which does not exist",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "R106": Explanation(
        "the kind of model is not supported",
        "The container is readable, but contains another kind of model, such as a Core ML tree "
        "ensemble.",
        "Convert a neural network.",
        "mkdir digits.mlmodelc && netconv inspect digits.mlmodelc",
        "error[R106] this is a model compiled by Core ML (.mlmodelc)",
        f"netconv inspect {_CNN}",
    ),
    "R107": Explanation(
        "a side file lies outside the model's folder",
        "Side files must be below the folder of the model. Absolute paths, `..` and links that "
        "lead out of the folder are refused, except inside one Hugging Face cache.",
        "Copy the side file into the folder of the model.",
        _then("digits.txt", "s,./digits.bin,../digits.bin,", "netconv inspect digits.txt"),
        "error[R107] side file '../digits.bin' lies outside the model's folder",
        _then("digits.txt", "netconv inspect digits.txt"),
    ),
    "R108": Explanation(
        "content and suffix disagree",
        "The content of the file belongs to another format than its suffix. netconv uses the "
        "content.",
        "Rename the file, or confirm the format with -f FORMAT.",
        f"cp {_CNN} digits.onnx && netconv inspect digits.onnx",
        "warning[R108] the content is Core ML neural network, the suffix that of ONNX",
        f"cp {_CNN} digits.onnx && netconv inspect digits.onnx -f coreml",
    ),
    "R110": Explanation(
        "a value is invalid",
        "An attribute has a type or a value that the specification of the format does not allow.",
        "Correct the attribute, or export the model again.",
        _then(
            "digits.xml",
            's/rounding_type="floor"/rounding_type="up"/',
            "netconv inspect digits.xml",
        ),
        "error[R110] rounding_type='up' is not known",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "R111": Explanation(
        "an attribute is not known",
        "netconv does not know the attribute; ignoring it could change the result.",
        "Check the spelling; the message suggests the nearest known name.",
        _then("digits.xml", "s/pads_begin/pad_begin/", "netconv inspect digits.xml"),
        "error[R111] attribute 'pad_begin' is not known",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "R112": Explanation(
        "the engine ignores a part of the file",
        "The file declares something that its engine does not read. netconv computes the same as "
        "the engine.",
        "Correct the file if the ignored part is intended.",
        f"netconv quantize {_CNN} digits.tflite {_DATA} && {_python(_SCALES)} && "
        "netconv inspect digits.tflite",
        "warning[R112] the scale of bias 'bias.4' is not the product of input and weight scales",
        f"netconv quantize {_CNN} digits.tflite {_DATA} && netconv inspect digits.tflite",
    ),
    "R130": Explanation(
        "the layer type is not known",
        "Neither the specification of the format nor the tools that write it define this layer "
        "type.",
        "Check the spelling; for a custom layer, see --allow-custom and --define.",
        _then("digits.txt", "s/=Convolution/=Convolutoin/", "netconv check digits.txt"),
        "error[R130] layer type Convolutoin is not known",
        _then("digits.txt", "netconv check digits.txt"),
    ),
    "R131": Explanation(
        "a required key is missing",
        "A layer of this type needs the key, or has fewer inputs than it needs.",
        "Add the key, or export the model again.",
        _then("digits.txt", "/^method=/d", "netconv check digits.txt"),
        "error[R131] Activation needs the key method",
        _then("digits.txt", "netconv check digits.txt"),
    ),
    "X201": Explanation(
        "the layer is not supported",
        "netconv has no mapping for this layer type in this format.",
        "Remove the layer with --outputs, or convert to another format; `netconv ops FORMAT` "
        "lists the layer types.",
        _then("digits.xml", "s/SoftMax/SparseMax/", "netconv inspect digits.xml"),
        "error[X201] SparseMax has no counterpart",
        _then("digits.xml", "netconv inspect digits.xml"),
    ),
    "X202": Explanation(
        "the target does not support an operator",
        "Neither the operator nor any of its decompositions can be written in the target format.",
        "Read the reason: it names the attribute or type that is not supported. Change the model, "
        "choose a newer version of the target, or another format.",
        "netconv check samples/digits_cnn.mlmodel -t zhouyi+int8",
        "error[X202] the network is not quantized",
        "netconv check samples/digits_cnn.mlmodel -t zhouyi",
    ),
    "X203": Explanation(
        "the target needs static shapes",
        "The model has dynamic dimensions, which the target does not support.",
        "Fix them with --inputs NAME:1,3,224,224.",
        _then("digits.xml", 's/shape="1,8,8"/shape="?,8,8"/', "netconv check digits.xml -t zhouyi"),
        "error[X203] image has the shape [None,8,8], but the target needs static shapes",
        _then(
            "digits.xml",
            's/shape="1,8,8"/shape="?,8,8"/',
            "netconv check digits.xml -t zhouyi --inputs image:1,8,8",
        ),
    ),
    "X204": Explanation(
        "a value is outside the range of the target's type",
        "A constant cannot be represented in the type that the target has, for example an int64 "
        "in int32.",
        "Use smaller values, or another format.",
        _onnx(
            "(int64[1] x) => (int64[1] y) <int64[1] c = {3000000000}> { y = Add(x, c) }",
            "netconv check net.onnx -t nnapi",
        ),
        "error[X204] Add: c contains 3000000000, which int32 cannot represent",
        _onnx(
            "(int64[1] x) => (int64[1] y) <int64[1] c = {2000000000}> { y = Add(x, c) }",
            "netconv check net.onnx -t nnapi",
        ),
    ),
    "X205": Explanation(
        "an activation is stored in a narrower type",
        "The target lacks the type of an activation. Its values are only known at run time, so "
        "this is a warning.",
        "Compare the numbers with --verify or netconv verify.",
        "netconv convert samples/digits_cnn.mlmodel digits.txt",
        "note[X205] inputs and outputs that Core ML neural network declares as float64 are float32",
        "netconv convert samples/digits_cnn.mlmodel digits.onnx",
    ),
    "X206": Explanation(
        "the flavor's version is too old",
        "The model needs a newer version of the target than the flavor allows.",
        "Choose a newer version, for example -t nnapi+level=3.",
        "netconv check samples/digits_cnn.mlmodel -t nnapi+level=1 --io-layout keep",
        "error[X206] softmax needs NNAPI feature level 3",
        "netconv check samples/digits_cnn.mlmodel -t nnapi+level=3 --io-layout keep",
    ),
    "X207": Explanation(
        "an interface detail is dropped",
        "The target cannot declare something that does not affect the numbers (labels, update "
        "parameters, image descriptions), or an attribute has no defined result (the seed of "
        "random numbers).",
        "No action is needed unless a program reads this detail.",
        _onnx(
            "(float[1] h, float[1] x) => (float[1] y, float[1] h1) { h1 = Add(h, x) y = Relu(h1) }",
            "netconv convert net.onnx net.xml --state h=h1",
            "netconv convert net.xml state.txt",
        ),
        "warning[X207] Zhouyi Compass IR has no states; they are written as inputs and outputs: h",
        _onnx(
            "(float[1] h, float[1] x) => (float[1] y, float[1] h1) { h1 = Add(h, x) y = Relu(h1) }",
            "netconv convert net.onnx net.xml --state h=h1",
            "netconv convert net.xml state.tflite",
        ),
    ),
    "X208": Explanation(
        "an opaque operator cannot be run",
        "Random numbers and custom layers have no definition that netconv could run; they are "
        "preserved but not executed.",
        "Define a custom operator with --define, or keep it out of comparisons with --outputs.",
        _then(
            "digits.xml",
            "s/SoftMax/SparseMax/",
            "netconv convert digits.xml digits.onnx --allow-custom",
        ),
        "warning[X208] SparseMax is carried as a custom operator",
        _then("digits.xml", "netconv convert digits.xml digits.onnx --allow-custom"),
    ),
    "X209": Explanation(
        "layers stay in floating point",
        "An integer target was requested, but these layers do not lie between DequantizeLinear "
        "and QuantizeLinear, or no integer form computes their numbers; then the message gives "
        "the reason.",
        "Quantize the model, for example with netconv quantize.",
        f"netconv quantize {_CNN} digits.txt -t zhouyi {_DATA}",
        "warning[X209] these layers compute in floating point: probabilities (Softmax: ",
        f"netconv quantize {_CNN} digits.txt -t zhouyi+npu {_DATA}",
    ),
    "X210": Explanation(
        "an input or output is renamed",
        "The names of inputs and outputs must be unique in the target, but the source uses one "
        "name twice.",
        "Use the new name, or rename it with netconv extract --rename.",
        _onnx(
            "(float[2] image) => (float[2] score) { score = Relu(image) }",
            "netconv convert net.onnx net.tflite",
            "sed -i.bak s/score/image/g net.tflite",
            "netconv convert net.tflite net.xml",
        ),
        "warning[X210] output 'image' is renamed to 'image_1', because another input or output",
        _onnx(
            "(float[2] image) => (float[2] score) { score = Relu(image) }",
            "netconv convert net.onnx net.tflite",
            "netconv convert net.tflite net.xml",
        ),
    ),
    "X211": Explanation(
        "an input or output is stored in another form",
        "An input or output of the written file has another layout, rank or type than in the "
        "source: channels last with --io-layout native (the default of NNAPI), four axes instead "
        "of more in NNAPI, or float32 instead of float16 in TensorFlow Lite. Or a dynamic size is "
        "fixed, because an operator accepts no other (a recurrent layer whose initial state has a "
        "fixed batch).",
        "Feed the written form, or use --io-layout keep.",
        _onnx(_IMAGE, "netconv convert net.onnx net.nnapi.json"),
        "warning[X211] input x is channels-last, [1,8,8,3]; in the source it is [1,3,8,8]",
        _onnx(_IMAGE, "netconv convert net.onnx net.nnapi.json --io-layout keep"),
    ),
    "X212": Explanation(
        "the written weights are much larger than those of the source",
        "The source shares weights between layers, packs them in a few bits, or uses loops, which "
        "the target does not support. The numbers are the same.",
        "Write another format, for example an ML Program instead of a Core ML neural network.",
        _onnx(_TWICE, "netconv convert net.onnx net.mlmodel", edit=_WEIGHT),
        "warning[X212] the weights have 160.0 kB in the source and 320.1 kB in the written file",
        _onnx(_TWICE, "netconv convert net.onnx net.mlpackage", edit=_WEIGHT),
    ),
    "X213": Explanation(
        "onnxruntime contradicts ONNX for an operator",
        "netconv reads the network as ONNX specifies and writes explicit padding, which every "
        "engine computes alike. onnxruntime computes other numbers from the source: pooling with "
        "dilations and auto_pad SAME_UPPER or SAME_LOWER, and ConvTranspose, AveragePool and "
        "LpPool with such an auto_pad and a kernel smaller than the stride.",
        "Use explicit pads in the source.",
        _onnx(_PADS[1], "netconv convert net.onnx net.xml"),
        "warning[X213] MaxPool with auto_pad=SAME_UPPER and dilations is padded as ONNX specifies",
        _onnx(_PADS[0], "netconv convert net.onnx net.xml"),
    ),
    "X215": Explanation(
        "there is nothing to quantize",
        "The network already has quantized activations, no layer has an integer kernel in the "
        "target, or no weights are large enough to be compressed.",
        "Convert the network with netconv convert, or choose another target.",
        f"netconv quantize {_CNN} digits.onnx {_DATA} && "
        f"netconv quantize digits.onnx digits.xml {_DATA}",
        "error[X215] the network already has quantized activations",
        f"netconv quantize {_CNN} digits.onnx {_DATA} && netconv convert digits.onnx digits.xml",
    ),
    "X216": Explanation(
        "an output has as many rows as there may be",
        "How many rows the output has depends on the data, as for the boxes that a suppression "
        "keeps; the target has only static shapes, and was asked for with +padded. The valid rows "
        "come first, and one more output, NAME_count, is their number; the rows after them hold -1 "
        "(0 without a sign).",
        "Read the first NAME_count rows.",
        _onnx(_BOXES, "netconv convert net.onnx net.nnapi.json -t nnapi+padded"),
        "warning[X216] output rows has 3 rows, of which the first rows_count are valid",
        _onnx(_BOXES, "netconv convert net.onnx net.tflite"),
    ),
    "W301": Explanation(
        "the output cannot be written",
        "The folder does not exist, is read-only, or the disk is full. No partial file remains.",
        "Create the folder, or choose another one.",
        "netconv convert samples/digits_cnn.mlmodel missing/digits.onnx",
        "error[W301] cannot write: No such file or directory",
        "netconv convert samples/digits_cnn.mlmodel digits.onnx",
    ),
    "W302": Explanation(
        "the output exists",
        "netconv overwrites files only with --force. It never overwrites its own input, and a "
        "side file (`n.bin`) only for a new result of the model that uses it (`n.xml`).",
        "Use --force, or choose another name.",
        "netconv convert samples/digits_cnn.mlmodel samples/digits_lstm.mlmodel",
        "error[W302] the output exists",
        "netconv convert samples/digits_cnn.mlmodel digits.mlmodel",
    ),
    "W303": Explanation(
        "the format cannot represent a string",
        "The target is a text format without control characters, but a name or an attribute "
        "contains one.",
        "Rename the tensor or the layer.",
        _then(
            "net.nnapi.json",
            's/"image"/"im\\\\u0007ge"/',
            "netconv convert net.nnapi.json net.xml",
        ),
        "error[W303] XML cannot represent name 'im\\x07ge'",
        _then("net.nnapi.json", "netconv convert net.nnapi.json net.xml"),
    ),
    "W304": Explanation(
        "the output is far larger than its source",
        "A small part of the source is a large constant, for example of ConstantOfShape or "
        "Expand, which the target stores element by element. From 100 times the size of the "
        "source this is a warning. With --max-output (a size, 2GB, or a multiple of the source, "
        "100x) it is refused before it is written; a batch refuses more than 100 times the source "
        "and 64 MB by default.",
        "Raise --max-output if the size is intended.",
        "netconv convert samples/digits_cnn.mlmodel digits.onnx --max-output 10kB",
        "error[W304] the output would have at least 62.5 kB, but --max-output is 10kB",
        "netconv convert samples/digits_cnn.mlmodel digits.onnx --max-output 1MB",
    ),
    "W330": Explanation(
        "the text format cannot represent a value",
        "The value would not be read back unchanged: NaN, `=`, line ends, or a string such as "
        "`12`.",
        "Change the value, or write another format.",
        _onnx(
            "(float[2] x) => (float[2] y) { y = Elu<alpha=0.5>(x) }",
            "netconv convert net.onnx net.xml",
            "sed -i.bak s/0.5/nan/ net.xml",
            "netconv convert net.xml elu.txt",
        ),
        "error[W330] alpha: NaN cannot be represented in this format",
        _onnx(
            "(float[2] x) => (float[2] y) { y = Elu<alpha=0.5>(x) }",
            "netconv convert net.onnx net.xml",
            "netconv convert net.xml elu.txt",
        ),
    ),
    "N401": Explanation(
        "the results differ",
        "An output differs by more than the tolerance. For a file in its own engine (--native): "
        "the engine and netconv agree within rounding noise, but not within the chosen tolerance "
        "or metric.",
        "Read which layer is wrong first; cut the case down with netconv reduce, and please "
        "report it. Choose a larger tolerance with --rtol and --atol if the difference is "
        "acceptable.",
        _then("digits.xml", "s/ReLU/Sigmoid/", f"netconv verify {_CNN} digits.xml --native off"),
        "DIFFERENT",
        _then("digits.xml", f"netconv verify {_CNN} digits.xml --native off"),
    ),
    "N402": Explanation(
        "nothing was compared",
        "The models have no tensor in common, the selection is empty, or every number of every "
        "output is NaN or infinite in both models.",
        "Use other inputs (--data), other tensors (--tensors), or name corresponding tensors "
        "(--map).",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --tensors conv9"),
        "error[N402] --tensors conv9 selects none of 19 matched tensors",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --tensors conv1"),
    ),
    "N403": Explanation(
        "the model could not be run",
        "The engine cannot run the model, or the inputs do not match those of the model.",
        "Correct the inputs, or choose another engine with --engine.",
        "netconv run samples/digits_cnn.mlmodel --data samples/digits_lstm.npz",
        "error[N403] input 'labels' is not known; input 'rows' is not known",
        "netconv run samples/digits_cnn.mlmodel",
    ),
    "N404": Explanation(
        "netconv misreads this file, or the engine does",
        "The file's own engine (--native) computes other numbers, inputs or outputs than netconv "
        "reads from the file. The engine was set to be exact: float32 without quantization in "
        "OpenVINO, basic optimizations in onnxruntime. The measure is that of the comparison: the "
        "rounding noise of the network, or --rtol and --atol. A model that was changed in Python "
        "after loading also differs from its file.",
        "Please report it with the file.",
        _onnx(_PADS[1], "netconv verify net.onnx net.onnx"),
        "error[N404] netconv misreads this file, or onnxruntime does: ",
        _onnx(_PADS[0], "netconv verify net.onnx net.onnx"),
    ),
    "N405": Explanation(
        "the engine cannot load this file",
        "The file's own engine (--native) does not load it with default options, or cannot run it "
        "on the inputs of the comparison. For the candidate this is a finding, whatever the "
        "reason. For the reference it is a warning: the comparison is valid, but nothing confirms "
        "how netconv reads it.",
        "Choose another flavor of the target, or leave the engine out with --native off.",
        _onnx(
            "(bool[3] c, bool[3] a, bool[3] b) => (bool[3] y) { y = Where(c, a, b) }",
            "netconv verify net.onnx net.onnx",
        ),
        "error[N405] onnxruntime cannot load this file: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED",
        _onnx(
            "(bool[3] c, float[3] a, float[3] b) => (float[3] y) { y = Where(c, a, b) }",
            "netconv verify net.onnx net.onnx",
        ),
    ),
    "N406": Explanation(
        "a part of the file was not run in its own engine",
        "Either the engine is known to ignore something that the file declares (OpenVINO removes "
        "conversions to half precision and computes in float32), and the numbers agree without "
        "it; or Python cannot represent the types of inputs or outputs, so that the file was only "
        "loaded.",
        "No action is needed.",
        _onnx(
            "(bfloat16[3] x) => (float[3] y) { y = Cast<to=1>(x) }",
            "netconv verify net.onnx net.onnx",
        ),
        "note[N406] onnxruntime loads the file, but Python cannot represent the types",
        _onnx(
            "(float16[3] x) => (float[3] y) { y = Cast<to=1>(x) }",
            "netconv verify net.onnx net.onnx",
        ),
    ),
    "N407": Explanation(
        "arrays of the data are not used",
        "A file with inputs contains arrays whose names are not inputs of the model. A file that "
        "contains none of the inputs is refused (N403).",
        "Remove the arrays, or rename them.",
        f"netconv run {_CNN} {_DATA}",
        "note[N407] no input has the name labels",
        f"netconv run {_CNN} --data random",
    ),
    "N408": Explanation(
        "the models have a hidden difference",
        "The outputs are equal on all inputs of the comparison, but the named layers differ from "
        "the reference (a weight, an attribute, an operand) and compute other numbers on its "
        "inputs. Exit code 9.",
        "Compare on other inputs (--data, --seeds), or use --tensors all to make it a difference "
        "(exit code 1).",
        " && ".join(
            (
                _onnx(_HIDDEN, "cp net.onnx a.onnx"),
                _onnx(_HIDDEN.replace("2.0", "3.0"), "netconv verify a.onnx net.onnx"),
            )
        ),
        'hidden difference: outputs are equal, but 1 layer differs: "b"',
        _onnx(_HIDDEN, "netconv verify net.onnx net.onnx"),
    ),
    "N409": Explanation(
        "the models classify a data set differently",
        "With --labels, the models agree on the most likely class of fewer samples than "
        "--agreement requires. A quantized network may; see how often each model is correct.",
        "Lower --agreement if the accuracy is acceptable.",
        _then(
            "digits.xml",
            "s/ReLU/Sigmoid/",
            f"netconv verify {_CNN} digits.xml {_DATA} --labels labels --native off",
        ),
        "error[N409] the models agree on 73 of 360 samples, fewer than 100.00%",
        _then(
            "digits.xml",
            f"netconv verify {_CNN} digits.xml {_DATA} --labels labels --native off",
        ),
    ),
    "N410": Explanation(
        "a file of a certificate is missing or has changed",
        "A certificate is valid for the exact bytes of both models and of the inputs that it "
        "names, relative to its folder.",
        "Compare the models again: netconv verify REF CAND --certificate FILE.",
        _then(
            "digits.onnx",
            f"netconv verify {_CNN} digits.onnx --engine onnxruntime --certificate digits.json",
            "rm digits.onnx",
            "netconv certify-check digits.json",
        ),
        "error[N410] digits.onnx, which the certificate names, was not found",
        _then(
            "digits.onnx",
            f"netconv verify {_CNN} digits.onnx --engine onnxruntime --certificate digits.json",
            "netconv certify-check digits.json",
        ),
    ),
    "N411": Explanation(
        "the data for quantization are doubtful",
        "Ranges are measured on --data. One sample, an input that is equal in all samples, "
        "numbers that are not finite, or numbers far from the training data (whose mean and "
        "variance a normalization stores) give ranges that are wrong for later inputs.",
        "Use more representative data; for images, check --mean, --std and --layout.",
        f"netconv quantize {_CNN} digits.onnx --data edge",
        "warning[N411] the data differ from the training data: at 'conv1' the mean is",
        f"netconv quantize {_CNN} digits.onnx {_DATA}",
    ),
    "N412": Explanation(
        "a quantized network loses more than --max-drop",
        "The search keeps the layers in floating point that lose the most, measured on one half "
        "of the data; the written file is then measured on the other half.",
        "Use more samples, another --method, or --activations int16.",
        f"netconv quantize {_CNN} digits.onnx {_DATA} --max-drop 100dB",
        "error[N412] every quantization exceeds --max-drop",
        f"netconv quantize {_CNN} digits.onnx {_DATA} --max-drop 20dB",
    ),
    "N413": Explanation(
        "the result of a quantization",
        "A note has the size, and the lowest signal-to-noise ratio of the outputs in the engine of "
        "the format, in decibels: 40 dB correspond to differences of 1 %, 20 dB to 10 %. A warning "
        "says that the target stores the compressed weights as large as before.",
        "Limit the loss with --max-drop; if the file is not smaller, choose another target.",
        f"netconv quantize {_CNN} digits.txt --compress int4",
        "warning[N413] Zhouyi Compass IR has no compact form of int4 for these weights",
        f"netconv quantize {_CNN} digits.tflite --compress int4",
    ),
    "N414": Explanation(
        "the engine's default options give other numbers",
        "With exact options onnxruntime computes what netconv reads from the file, with its "
        "default options it does not. On x86 processors with AVX2 and without VNNI its kernels "
        "add products of 8-bit integers in 16 bits, which saturate.",
        'Set the session option "session.x64quantprecision" to "1", or store weights as uint8 or '
        "in 7 bits. netconv writes unsigned weights to ONNX where the source is another format.",
        no_example="It needs an x86 processor without VNNI: others compute alike with all options.",
    ),
    "B601": Explanation(
        "another run is active",
        "Two batches must not write to the same folder at the same time; its journal is locked.",
        "Wait until the other run ends, or choose another folder.",
        f"{_RUN} && flock out/.netconv/journal.jsonl {_RUN}",
        "error[B601] another run is writing to the same folder",
        f"{_RUN} && {_RUN}",
    ),
    "B602": Explanation(
        "a job crashed",
        "The job was tried twice, each time in a fresh process; the other jobs are not affected.",
        "Run the batch again, which retries the job; please report it if it crashes again.",
        no_example="It needs a bug in netconv or a library; the known ones are corrected.",
    ),
    "B603": Explanation(
        "a job exceeded its time limit",
        "The job was ended at its time limit (timeout, --timeout).",
        "Raise the limit and run the batch again.",
        f"{_RUN} --timeout 0.01",
        "2 x time limit: B603 the job exceeded its time limit of 0.01 s",
        f"{_RUN} --timeout 600",
    ),
    "B604": Explanation(
        "a job exceeded its memory limit",
        "The job was ended at its memory limit (--max-memory), which does not include the program "
        "itself.",
        "Raise the limit and run the batch again.",
        f"{_RUN} --max-memory 1M",
        "2 x memory limit: B604 the job needs more memory than its limit of 1048576 bytes",
        f"{_RUN} --max-memory 2G",
    ),
    "B605": Explanation(
        "a job was not run",
        "The run ended before: too many failures (--max-failures), or an interruption.",
        "Run the batch again.",
        f"cp samples/README.md samples/a.onnx && {_RUN} --jobs 1 --max-failures 1",
        "1 x not run: digits_lstm.mlmodel -> onnx",
        f"{_RUN} --jobs 1 --max-failures 1",
    ),
    "B606": Explanation(
        "the journal cannot be locked",
        "The file system does not support locks, so nothing prevents two runs from writing to the "
        "same folder at the same time. A single run works as usual.",
        "Start only one run for the folder.",
        no_example="It needs a file system without locks, such as NFS without its lock service.",
    ),
    "B607": Explanation(
        "the file is not a journal",
        "The file journal.jsonl in the folder of the results has no line that netconv batch "
        "wrote. It was left unchanged.",
        "Remove it, or choose another folder with --state.",
        "mkdir out && cp samples/README.md out/journal.jsonl && "
        "netconv batch samples -t onnx -o out --state out",
        "error[B607] this file is not a journal of netconv batch; it was left unchanged",
        "netconv batch samples -t onnx -o out --state out",
    ),
    "U501": Explanation(
        "an option or its value is not known",
        "The command line, a setting or a job file contains a name or a value that netconv does "
        "not know.",
        "Run netconv COMMAND --help.",
        "netconv check samples/digits_cnn.mlmodel -t onxx",
        "error[U501] format 'onxx' is not known",
        "netconv check samples/digits_cnn.mlmodel -t onnx",
    ),
    "U502": Explanation(
        "a package is not installed",
        "Optional features need extra packages, which netconv names as extras: engines (openvino, "
        "litert), Core AI (coreai), images (images), batches on many machines and at URLs (batch), "
        "and models of the Hugging Face Hub (hub).",
        "Run the command that the message prints, for example pip install 'openvino>=2025.0'.",
        "netconv inspect s3://models/digits.onnx",
        "error[U502] cannot open s3://models/digits.onnx: ",
        f"netconv inspect {_CNN}",
    ),
    "U503": Explanation(
        "not enough memory is available",
        "The model, or a result of it, does not fit into the memory of this machine, or exceeds "
        "the limit set for it.",
        "Raise --max-memory, or use a machine with more memory.",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --max-memory 1M"),
        "error[U503] the comparison needs more memory than 1M",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --max-memory 2G"),
    ),
    "U504": Explanation(
        "a dimension name has several sizes",
        "The file uses one name for dimensions that have different sizes in the shapes given with "
        "--inputs or --freeze; some exporters give all unknown dimensions one name ('?'). The "
        "given shapes hold, and other dimensions of that name stay dynamic.",
        "Fix the other dimensions with --inputs, too, if they must be static.",
        _onnx(
            "(float[n,n] x) => (float[n,n] y) { y = Relu(x) }",
            "netconv convert net.onnx net.xml --inputs x:2,3",
        ),
        "warning[U504] dimension 'n' has the sizes 2, 3 in the given shapes",
        _onnx(
            "(float[n,n] x) => (float[n,n] y) { y = Relu(x) }",
            "netconv convert net.onnx net.xml --inputs x:2,2",
        ),
    ),
    "U505": Explanation(
        "the time limit was exceeded",
        "The command took longer than --timeout allows and was stopped; nothing was written.",
        "Raise --timeout.",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --timeout 0.001"),
        "error[U505] the run exceeded its time limit of 0.001 s",
        _then("digits.onnx", f"netconv verify {_CNN} digits.onnx --timeout 600"),
    ),
    "U506": Explanation(
        "constants that fix sizes were computed for the new shapes",
        "--inputs gives another size than the file fixes. Constants that came from the old size, "
        "such as the target of a Reshape, were found and computed for the new one; the evidence "
        "lists them, with the values before and after.",
        "No action is needed if the sizes after it are the intended ones.",
        _onnx(
            "(float[2,6] x) => (float[2,2,3] y) <int64[3] s = {2, 2, 3}> { y = Reshape(x, s) }",
            "netconv convert net.onnx net.xml --inputs x:4,6",
        ),
        "note[U506] the given shapes changed 1 constant that had the old sizes",
        _onnx(
            "(float[2,6] x) => (float[2,2,3] y) <int64[3] s = {2, 2, 3}> { y = Reshape(x, s) }",
            "netconv convert net.onnx net.xml --inputs x:2,6",
        ),
    ),
}
