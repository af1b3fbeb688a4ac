"""The page for each diagnostic code, printed by `netconv explain CODE`.

Codes are grouped by their letter: R reading, X expression and mapping, W writing, N numbers, B
batch, U usage.
"""

from __future__ import annotations

from converter.graph.record import record


@record
class Explanation:
    """The page for a code."""

    title: str
    text: str


CODES: dict[str, Explanation] = {
    "R100": Explanation(
        "the file cannot be read",
        "The path does not exist, is a folder, or the system refused to open it.",
    ),
    "R101": Explanation(
        "netconv does not recognize this file format",
        "netconv looks at the content first and at the suffix second. Where the file is a model "
        "of another framework, a part of a model, or a download that went wrong, the message "
        "says which, and what to give instead; -f FORMAT overrides the detection.",
    ),
    "R102": Explanation(
        "the weights file is missing or too small",
        "The model refers to bytes in a second file that is absent or shorter than the "
        "reference. Name it with --weights when it lies elsewhere.",
    ),
    "R103": Explanation(
        "the file is damaged",
        "The bytes do not follow the format: truncated, wrong sizes, wrong encoding or an "
        "impossible value.",
    ),
    "R104": Explanation(
        "the version is not one that netconv reads",
        "Every format lists the versions it reads under `netconv formats FORMAT`.",
    ),
    "R105": Explanation(
        "the model is not a valid graph",
        "A name is used before it is written, written twice, or a layer has the wrong number "
        "of inputs.",
    ),
    "R106": Explanation(
        "the kind of model is not supported",
        "The container is understood but holds another kind of model (for example a Core ML "
        "tree ensemble).",
    ),
    "R107": Explanation(
        "a side file would leave the model's folder",
        "Side files must lie below the folder of the model: absolute paths, `..` and links "
        "that lead out are refused, but inside one Hugging Face cache.",
    ),
    "R108": Explanation(
        "content and suffix disagree",
        "The content decides. Rename the file, or name the format with -f FORMAT, to silence this.",
    ),
    "R110": Explanation(
        "a value is out of its domain",
        "An attribute has a type or value that the specification of the format does not allow.",
    ),
    "R111": Explanation(
        "an attribute is not known",
        "No field of the mapping owns this attribute, so dropping it could change the "
        "meaning. The message suggests the nearest known spelling.",
    ),
    "R112": Explanation(
        "the engine ignores a part of the file",
        "The file states something that the engine it is for does not read. netconv computes what "
        "the engine computes.",
    ),
    "R130": Explanation(
        "the layer type is not known",
        "Neither the specification of the format nor the tools that write it know this layer type.",
    ),
    "R131": Explanation(
        "a required key is missing",
        "A layer of this type cannot be understood without the key, or has fewer inputs than "
        "it needs.",
    ),
    "X201": Explanation(
        "the layer is not supported",
        "netconv has no mapping for this layer type in this format.",
    ),
    "X202": Explanation(
        "the target cannot express an operator",
        "Neither the operator nor any of its decompositions has a counterpart in the target "
        "format.",
    ),
    "X203": Explanation(
        "the target needs static shapes",
        "The target has no dynamic dimensions; fix them with --inputs NAME:1,3,224,224.",
    ),
    "X204": Explanation(
        "a value does not survive the target's type",
        "A constant is outside the range of the type that the target offers (for example "
        "int64 to int32).",
    ),
    "X205": Explanation(
        "an activation is narrowed",
        "The target has no such type; activations are carried in a narrower one. The values "
        "are only known at run time, hence a warning.",
    ),
    "X206": Explanation(
        "a flavour's limit forbids this",
        "The model needs a newer version of the target than the flavour allows.",
    ),
    "X207": Explanation(
        "an interface detail is dropped",
        "Something beside the network (labels, update parameters, image descriptions) has no "
        "place in the target, or an attribute that changes no defined result (the seed of random "
        "numbers, which are others in each engine).",
    ),
    "X208": Explanation(
        "an opaque operator cannot be executed",
        "Random numbers and custom layers have no definition that netconv could execute; "
        "they are carried, not computed.",
    ),
    "X209": Explanation(
        "layers stay in floats",
        "An integer target was asked for, but these layers do not stand between "
        "DequantizeLinear and QuantizeLinear, so that the network itself computes them in floats, "
        "or they have no integer form that gives the network's numbers: then it says why.",
    ),
    "X210": Explanation(
        "an input or output has another name",
        "The target knows an input or output by a name that only one of them can have, and "
        "the source calls two of them so.",
    ),
    "X211": Explanation(
        "an input or output is stored in another form",
        "What goes into the written file, or comes out of it, has another order or number of "
        "axes than in the source: channels last under --io-layout native (which NNAPI tables "
        "have by default), or more than four axes as four in NNAPI, which has no more; or "
        "half precision as float32 in TensorFlow Lite, which does not compute it.",
    ),
    "X212": Explanation(
        "the written file is much larger than the source's weights",
        "The target has no place for something that keeps the source small: weights that "
        "several layers share, weights of a few bits, or loops. They are written out; the "
        "numbers are the same. Core ML's NeuralNetwork gives each layer its own weights, for "
        "example, an ML Program (.mlpackage) does not.",
    ),
    "X213": Explanation(
        "onnxruntime computes an operator otherwise than ONNX defines it",
        "The network is read as ONNX's specification says, and written with explicit padding, "
        "which every engine reads alike. onnxruntime computes something else from the source: "
        "pools with dilations whose auto_pad is SAME_UPPER or SAME_LOWER, and ConvTranspose, "
        "AveragePool and LpPool with such an auto_pad and a kernel that is smaller than the "
        "stride. Give the source explicit pads to get what you mean.",
    ),
    "X215": Explanation(
        "there is nothing to quantize",
        "The network has quantized activations already, no layer has an integer kernel in the "
        "target, or no weights are large enough to be compressed.",
    ),
    "W301": Explanation(
        "the output could not be written",
        "The folder does not exist, is read-only, or the disk is full. Nothing was left behind.",
    ),
    "W302": Explanation(
        "the output exists",
        "netconv overwrites only with --force; never its own input, and a side file "
        "(`n.bin`) only for a new result of the model that uses it (`n.xml`).",
    ),
    "W303": Explanation(
        "a text has no place in the format",
        "The target is a text format that cannot hold control characters, and a name or "
        "attribute has one.",
    ),
    "W304": Explanation(
        "the output is far larger than its source",
        "Something small in the source is a large constant, as of ConstantOfShape or Expand, which "
        "the target stores number by number. That is a warning from 100 times the source on. With "
        "--max-output (a size, 2GB, or a multiple of the source, 100x) it is refused before it is "
        "written; a batch refuses more than 100 times the source and 64 MB unless it is told "
        "otherwise.",
    ),
    "W330": Explanation(
        "a value has no text in the target",
        "The text format cannot spell it so that it reads back the same: NaN, `=`, line "
        "ends, or a text like `12`.",
    ),
    "N401": Explanation(
        "the results differ",
        "An output differs by more than the tolerance. Of a file in its own engine (--native): the "
        "engine and netconv agree within rounding noise, but not within the tolerance or metric "
        "that was chosen.",
    ),
    "N402": Explanation(
        "nothing was compared",
        "No tensor is common to both models, the selection is empty, or every number of every "
        "output is NaN or infinite in both models: that they are the same shows nothing.",
    ),
    "N403": Explanation(
        "the model could not be executed",
        "The engine refused the model or the feeds do not fit its inputs.",
    ),
    "N404": Explanation(
        "the reader changes the network",
        "The file ran in the engine that it is written for (--native), and the engine "
        "computes something else from it than netconv reads: other numbers, other inputs or "
        "other outputs. The engine was told to be exact: 32-bit floats and no quantisation "
        "on the fly in OpenVINO, basic optimisations in onnxruntime. The measure is that of "
        "the comparison: the rounding noise of the network, or --rtol and --atol. Either "
        "netconv is wrong about the file (please report it, with the file), or the engine "
        "is. A model that was changed in Python after it was loaded differs from its file, "
        "too.",
    ),
    "N405": Explanation(
        "the engine refuses the file",
        "The engine that the file is written for (--native) does not load it with default "
        "options, or cannot run it on the inputs of the comparison. Of the candidate this is "
        "a finding, whatever the reason: a file that its users' engine does not take is of "
        "no use, even where only a kernel for a type is missing. Of the reference it is a "
        "warning: the comparison stands, but nothing confirms what netconv reads from it.",
    ),
    "N406": Explanation(
        "something is left out of the run in the file's own engine",
        "Either the engine is known not to compute something as the file says (OpenVINO "
        "removes conversions to half precision and back, and computes halves in floats), and "
        "without it the numbers are the same; or inputs or outputs have types that cannot be "
        "handed to the engine from Python, so that only loading was tried.",
    ),
    "N407": Explanation(
        "arrays of the data are not used",
        "A file with inputs holds more than the model takes: the arrays whose names are none "
        "of its "
        "inputs are left out. A file that holds none of the inputs is refused (N403).",
    ),
    "N408": Explanation(
        "layers differ that no output shows",
        "The outputs are the same on all inputs of the comparison, but the layers named say "
        "something else than in the reference (a weight, an attribute, what they read), and run on "
        "the reference's inputs they compute something else. Other inputs may show it: --data, "
        "--seeds. Exit code 9; --tensors all makes it a difference (exit code 1).",
    ),
    "N409": Explanation(
        "the models say other things of a data set",
        "With --labels both models say which class is the most likely for each sample. They agree "
        "on fewer than --agreement allows; a quantised network may well, see how often either is "
        "right.",
    ),
    "N410": Explanation(
        "a file of a certificate is missing or has changed",
        "A certificate holds for the very bytes of both models and of the inputs that it names, "
        "which lie relative to it. Compare the models again (netconv verify REF CAND "
        "--certificate FILE) to certify the new files.",
    ),
    "N411": Explanation(
        "the data for quantization are doubtful",
        "Ranges of values are measured on --data. One sample, an input that is the same in all "
        "samples, numbers that are not finite, or numbers far from those of training (a "
        "normalization keeps their mean and variance) give ranges that do not hold for later "
        "inputs. For images, check --mean, --std and --layout.",
    ),
    "N412": Explanation(
        "a quantized network loses more than --max-drop",
        "The search leaves the layers in floats that lose most, judged by one half of the data; "
        "the written file is then measured on the other half. Give more samples, another --method, "
        "or --activations int16.",
    ),
    "N413": Explanation(
        "what became of a quantized network",
        "Its size, and the least ratio of signal to noise of its outputs, in decibels, in the "
        "engine of its format: 40 dB are differences of 1 %, 20 dB of 10 %.",
    ),
    "B601": Explanation(
        "another run is going on",
        "Two batches may not write to the same folder at the same time; the journal there is "
        "locked.",
    ),
    "B602": Explanation(
        "a job crashed",
        "The job was tried twice, each time in a fresh process; the other jobs are not "
        "affected. The next run tries it again.",
    ),
    "B603": Explanation(
        "a job took too long",
        "The job was ended at its time limit (timeout, --timeout). The next run tries it again.",
    ),
    "B604": Explanation(
        "a job needed too much memory",
        "The job was ended at its memory limit (--max-memory), counted beside the program itself.",
    ),
    "B605": Explanation(
        "a job was not run",
        "The run ended before: too many failures (--max-failures), or an interruption.",
    ),
    "B606": Explanation(
        "the journal cannot be locked",
        "The file system has no locks, so that nothing keeps two runs from writing to the same "
        "folder at the same time. One run alone works as everywhere.",
    ),
    "B607": Explanation(
        "the journal is not one",
        "The file journal.jsonl in the folder of the results holds no line that netconv batch has "
        "written. It is not changed; remove it, or name another folder with --state.",
    ),
    "U501": Explanation(
        "the option or its value is not known",
        "See `netconv COMMAND --help`.",
    ),
    "U503": Explanation(
        "there is not enough memory",
        "The model, or what it computes, does not fit into the memory of this machine, or of "
        "the limit set for it.",
    ),
    "U504": Explanation(
        "a dimension name has several sizes",
        "The file calls dimensions by one name that have different sizes in the shapes that were "
        "given with --inputs or --freeze: some exporters name all unknown dimensions alike ('?'). "
        "The given shapes hold; other dimensions of that name stay open.",
    ),
    "U505": Explanation(
        "the time limit was reached",
        "What was asked for took longer than --timeout allows and was given up; nothing was "
        "written.",
    ),
    "U502": Explanation(
        "a package is not installed",
        "What few people need comes with extras: the engines beside onnxruntime (pip install "
        "'netconv[openvino]', 'netconv[litert]'), Core AI ('netconv[coreai]'), images "
        "('netconv[images]'), runs on many machines and at URLs "
        "('netconv[batch]').",
    ),
}
