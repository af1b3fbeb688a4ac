"""The kinds of layers without a file in the folders beside this module, and why.

test_layers.py holds that every other kind has one.
"""

from __future__ import annotations

EXCEPT: dict[str, dict[str, str]] = {
    "opset": {
        "BGRtoNV12": "the runtime reads it and has no kernel for it",
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
}
