"""The kinds of layers without a file in the folders next to this module, and why.

test_layers.py holds that every other kind has one.
"""

from __future__ import annotations

EXCEPT: dict[str, dict[str, str]] = {
    "opset": {
        "BGRtoNV12": "the runtime reads it and has no kernel for it",
        # with numbers of the runtime and of formulas in tests/formats/test_openvino_fused.py
        **dict.fromkeys(
            ("GatedDeltaNet", "MOE", "RMS", "RoPE"),
            "the runtime fuses to it, and reads it in no file",
        ),
        "GroupedMatMul": "the runtime reads it and has no kernel for it",
        "Multinomial": "random",
        "RGBtoNV12": "the runtime reads it and has no kernel for it",
        "RandomUniform": "random",
        "StringTensorUnpack": "its bytes have no definition in ONNX, by which files are executed",
    },
    "legacy": {},
    "coreml": {
        "categoricalDistribution": "random",
        "custom": "somebody's own",
        "randomBernoulliDynamic": "random",
        "randomBernoulliLike": "random",
        "randomBernoulliStatic": "random",
        "randomNormalDynamic": "random",
        "randomNormalLike": "random",
        "randomNormalStatic": "random",
        "randomUniformDynamic": "random",
        "randomUniformLike": "random",
        "randomUniformStatic": "random",
    },
    "mlprogram": {
        **dict.fromkeys(
            ("random_bernoulli", "random_categorical", "random_normal", "random_uniform"), "random"
        ),
        # with numbers in tests/formats/test_mlprogram.py and, where the corpus is, its programs
        **dict.fromkeys(("cond", "while_loop"), "has bodies"),
        **dict.fromkeys(("read_state", "write_state"), "has a state, which is no tensor"),
        **dict.fromkeys(
            ("make_list", "list_gather", "list_length", "list_read", "list_scatter", "list_write"),
            "has a list, which is no tensor",
        ),
        **dict.fromkeys(
            (
                *("constexpr_affine_dequantize", "constexpr_blockwise_shift_scale"),
                *("constexpr_cast", "constexpr_lut_to_dense", "constexpr_lut_to_sparse"),
                *("constexpr_sparse_blockwise_shift_scale", "constexpr_sparse_to_dense"),
            ),
            "is a constant, of numbers that are packed",
        ),
        "classify": "gives a table and text",
    },
    "zhouyi": {},
    "nnapi": {
        # LiteRT has no such operations; the formulas of NeuralNetworks.h in numpy are in
        # tests/formats/test_nnapi_regions.py, test_nnapi_integers.py and test_nnapi_cells.py
        "AXIS_ALIGNED_BBOX_TRANSFORM": "LiteRT has no such operation",
        "BOX_WITH_NMS_LIMIT": "LiteRT has no such operation",
        "DETECTION_POSTPROCESSING": "LiteRT has it as a custom operator, which the kit does "
        "not make",
        "GENERATE_PROPOSALS": "LiteRT has no such operation",
        "HEATMAP_MAX_KEYPOINT": "LiteRT has no such operation",
        "QUANTIZED_16BIT_LSTM": "LiteRT has it as a kind of its LSTM, which the kit does not make",
        "QUANTIZED_LSTM": "LiteRT has it as a kind of its LSTM, which the kit does not make",
        "RANDOM_MULTINOMIAL": "random",
        "ROI_ALIGN": "LiteRT has no such operation",
        "ROI_POOLING": "LiteRT has no such operation",
    },
    "tflite": {
        **dict.fromkeys(("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"), "random"),
        # with numbers of LiteRT in tests/formats/test_tflite_operators.py, test_tflite_files.py
        # and test_tflite_stablehlo.py
        **dict.fromkeys(
            (
                *("CALL", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE"),
                *("STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER", "WHILE"),
            ),
            "has subgraphs",
        ),
        **dict.fromkeys(
            (
                *("ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND"),
                *("HASHTABLE_IMPORT", "HASHTABLE_SIZE", "READ_VARIABLE", "VAR_HANDLE"),
            ),
            "has a handle, which is no tensor of numbers",
        ),
        **dict.fromkeys(
            ("COMPLEX_ABS", "IMAG", "REAL", "RFFT2D"),
            "has complex numbers, which these files cannot hold",
        ),
        "DENSIFY": "has a sparse constant, which these files cannot hold",
        # with numbers of LiteRT in tests/formats/test_tflite_recurrent.py
        **dict.fromkeys(
            (
                *("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "RNN"),
                *("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
            ),
            "has a variable tensor",
        ),
        # with the formulas of their sources in tests/formats/test_tflite_operators.py
        **dict.fromkeys(("AudioSpectrogram", "Mfcc"), "LiteRT has no such operator"),
        **dict.fromkeys(
            (
                *("Convolution2DTransposeBias", "Landmarks2TransformMatrix"),
                *("MaxPoolingWithArgmax2D", "MaxUnpooling2D", "TransformLandmarks"),
                *("TransformTensor", "TransformTensorBilinear"),
            ),
            "is MediaPipe's, LiteRT has no such operator",
        ),
    },
}

# rows that only read and have no layer of their own to write, without a file that they read, and
# why; by operator and kind
UNREAD: dict[str, dict[str, str]] = {
    "coreml": {"Div=mvn": "an image of millions of elements, or of unknown size"},
    "legacy": {
        **dict.fromkeys(
            (
                *("Identity=ReduceL1", "Identity=ReduceL2", "Identity=ReduceLogSum"),
                *("Identity=ReduceLogSumExp", "Identity=ReduceMax", "Identity=ReduceMean"),
                *("Identity=ReduceMin", "Identity=ReduceProd", "Identity=ReduceSum"),
                *("Identity=ReduceSumSquare", "Identity=ReduceAnd", "Identity=ReduceOr"),
            ),
            "the engine takes no empty list of axes",
        ),
    },
    "mlprogram": {"NonZero=select": "coremltools takes no select of one operand"},
    "tflite": {"Concat=MUL": "of complex numbers, which these files cannot hold"},
}
