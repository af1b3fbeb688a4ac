"""The version and the one-sentence summary of netconv, for the help, the package and the pages."""

__version__ = "0.1.0"
SUMMARY = (
    "Convert and verify neural networks: Core ML (.mlmodel, .mlpackage), Core AI, ONNX, "
    "TensorFlow Lite, OpenVINO IR, NNAPI and Zhouyi Compass IR"
)
