"""Questions that TensorFlow Lite and NNAPI answer alike: LiteRT says the numbers, or the formula of
the specification.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from nnapi_models import constant, scalar, tensor
from onnx import TensorProto, helper, numpy_helper
from test_tflite_operators import F, Tensor, alike, const, floats, needs_litert, single
from tflite_files import in_litert

import converter
from converter.engines import litert
from converter.errors import ConverterError, ReadError
from converter.formats.nnapi.codec import read_table, write_table
from converter.formats.nnapi.table import Lifetime, Operand, OperandType, Operation, Table
from converter.formats.tflite.codec import read_flat
from converter.graph.known import KNOWN_LIMIT
from converter.io.files import Output
from judged import run_in

TANH = 4


def saved(table: Table, folder: Path) -> Path:
    path = folder / "m.nnapi.json"
    with Output(path) as out:
        write_table(table, out)
    return path


def model_of(nodes: list[Any], inputs: dict[str, Any], arrays: dict[str, Any], shape: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def written(model: Any, folder: Path, suffix: str) -> Path:
    source, path = folder / "m.onnx", folder / f"m{suffix}"
    onnx.save(model, source)
    converter.convert(source, path)
    return path


# activations -------------------------------------------------------------------------------------


@needs_litert
def test_a_fused_tanh_is_refused_as_litert_does_not_apply_it(tmp_path: Path) -> None:
    operands, options = [Tensor(F, [4]), const(np.zeros(4), F)], {"FusedActivationFunction": TANH}
    path = single(tmp_path, "ADD", operands, [Tensor(F, [4])], table="AddOptions", **options)
    x = np.array([-2, -0.5, 0.5, 2], F)
    np.testing.assert_array_equal(litert.invoke(path, [x])[0], x)
    with pytest.raises(ReadError, match="Tanh is not supported"):
        converter.load(path)


def test_a_fused_tanh_of_a_table_is_refused(tmp_path: Path) -> None:
    table = Table()
    table.inputs = [tensor(table, [4], name="x")]
    table.outputs = [tensor(table, [4], name="y")]
    operands = [*table.inputs, constant(table, np.zeros(4)), scalar(table, TANH)]
    table.operations = [Operation("ADD", operands, table.outputs)]
    with pytest.raises(ConverterError, match=r"Tanh is not supported|activation"):
        converter.load(saved(table, tmp_path))


# matrices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_matrices_are_transposed_as_a_table_says(flags: tuple[bool, bool], tmp_path: Path) -> None:
    x, y = floats(2, 3, 4), floats(2, 4, 5)
    given = [v.swapaxes(1, 2) if flag else v for v, flag in zip((x, y), flags, strict=True)]
    table = Table()
    table.inputs = [tensor(table, list(v.shape), name=n) for v, n in zip(given, "ab", strict=True)]
    table.outputs = [tensor(table, [2, 3, 5], name="y")]
    scalars = [scalar(table, flag, OperandType.BOOL) for flag in flags]
    table.operations = [Operation("BATCH_MATMUL", [*table.inputs, *scalars], table.outputs)]
    model = converter.load(saved(table, tmp_path))
    found = model.run(dict(zip("ab", given, strict=True)))["y"]
    np.testing.assert_allclose(found, x @ y, 1e-5, 1e-5)


@needs_litert
@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_matrices_are_transposed_as_a_file_says(flags: tuple[bool, bool], tmp_path: Path) -> None:
    shapes = [[2, 4, 3] if flags[0] else [2, 3, 4], [2, 5, 4] if flags[1] else [2, 4, 5]]
    operands = [Tensor(F, s) for s in shapes]
    options = {"AdjX": flags[0], "AdjY": flags[1]}
    result = [Tensor(F, [2, 3, 5])]
    path = single(tmp_path, "BATCH_MATMUL", operands, result, "BatchMatMulOptions", **options)
    alike(path, [floats(*s) for s in shapes])


# quantized weights -------------------------------------------------------------------------------


def transposed_weights(dtype: Any, zero: int, channels: int) -> tuple[Any, Any, Any]:
    """x @ transpose(dequantized weights), the weights, and its result for an x."""
    rng = np.random.default_rng(3)
    stored = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (channels, 6)).astype(dtype)
    scale = rng.uniform(0.01, 0.02, channels).astype(F)
    zeros = np.full(channels, zero, dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    arrays = {"w": stored, "s": scale, "z": zeros}
    real = (stored.astype(F) - zeros.astype(F)[:, None]) * scale[:, None]
    return model_of(nodes, {"x": [2, 6]}, arrays, [2, channels]), stored, real


@needs_litert
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 128)])
def test_transposed_weights_stay_in_8_bits(dtype: Any, zero: int, tmp_path: Path) -> None:
    model, stored, real = transposed_weights(dtype, zero, 5)
    path = written(model, tmp_path, ".tflite")
    signed = stored if dtype == np.int8 else (stored ^ 0x80).view(np.int8)
    kept = [t for t in read_flat(path).graphs[0].tensors if len(t.scales) == 5]
    assert [np.asarray(t.data).view(np.int8).tolist() for t in kept] == [signed.ravel().tolist()]
    x = floats(2, 6)
    np.testing.assert_allclose(in_litert(path, [x])[0], x @ real.T, 1e-4, 1e-4)


@needs_litert
def test_a_scale_for_each_column_is_one_for_each_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    stored = rng.integers(-128, 128, (6, 5)).astype(np.int8)
    scale = rng.uniform(0.01, 0.03, 5).astype(F)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, {"x": [2, 6]}, {"w": stored, "s": scale}, [2, 5])
    path = written(model, tmp_path, ".tflite")
    (kept,) = [t for t in read_flat(path).graphs[0].tensors if len(t.scales) == 5]
    assert kept.axis == 0 and list(kept.shape) == [5, 6]
    x = floats(2, 6)
    np.testing.assert_allclose(in_litert(path, [x])[0], x @ (stored * scale), 1e-4, 1e-4)


def depthwise(scale: Any, stored: Any) -> Any:
    """A quantized depthwise convolution [1, 3, 4, 4] of filters [3, 1, 2, 2]."""
    arrays = {"one": np.array(0.02, F), "zero": np.array(0, np.int8), "w": stored, "s": scale}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["r"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0),
        helper.make_node("Conv", ["r", "d"], ["c"], group=3),
        helper.make_node("QuantizeLinear", ["c", "one", "zero"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "one", "zero"], ["y"]),
    ]
    return model_of(nodes, {"x": [1, 3, 4, 4]}, arrays, [1, 3, 3, 3])


@pytest.mark.parametrize("suffix", [".tflite", ".nnapi.json"])
def test_scales_of_a_depthwise_filter_belong_to_its_last_axis(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    scale = np.array([0.005, 0.01, 0.02], F)
    stored = rng.integers(-128, 128, (3, 1, 2, 2)).astype(np.int8)
    path = written(depthwise(scale, stored), tmp_path, suffix)
    if suffix == ".tflite":
        (kept,) = [t for t in read_flat(path).graphs[0].tensors if t.data is not None and t.axis]
        assert kept.axis == 3 and list(kept.shape) == [1, 2, 2, 3]
    else:
        (channel,) = [o.channel_quant for o in read_table(path).operands if o.channel_quant]
        assert channel.dim == 3
    x = rng.uniform(-1, 1, (1, 3, 4, 4)).astype(F)
    expected = converter.load(tmp_path / "m.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], expected, atol=0.0201)


def test_unsigned_weights_of_channels_are_written_signed(tmp_path: Path) -> None:
    """NNAPI's weights with a scale for each channel are signed and have no zero point."""
    rng = np.random.default_rng(4)
    stored = rng.integers(0, 256, (3, 2, 1, 1)).astype(np.uint8)
    arrays = {
        "one": np.array(0.02, F),
        "middle": np.array(128, np.uint8),
        "w": stored,
        "s": np.array([0.01, 0.02, 0.03], F),
        "z": np.full(3, 128, np.uint8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "middle"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "middle"], ["r"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0),
        helper.make_node("Conv", ["r", "d"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "one", "middle"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "one", "middle"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 2, 4, 4]}, arrays, [1, 3, 4, 4])
    path = written(model, tmp_path, ".nnapi.json")
    table = read_table(path)
    kinds = [o.type for o in table.operands if o.value is not None]
    assert OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL in kinds
    x = rng.uniform(-1, 1, (1, 2, 4, 4)).astype(F)
    expected = converter.load(tmp_path / "m.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], expected, atol=0.0201)


@pytest.mark.parametrize("suffix", [".tflite", ".nnapi.json"])
def test_a_long_bias_of_8_bits_is_stored_with_the_scale_of_the_products(
    suffix: str, tmp_path: Path
) -> None:
    """Constants of so many elements are not folded."""
    rng, n = np.random.default_rng(4), KNOWN_LIMIT + 1
    arrays = {
        "one": np.array(0.02, F),
        "s": np.array(0.1, F),
        "three": np.array(3, np.int8),
        "zero": np.array(0, np.int8),
        "w": rng.integers(-127, 128, (n, 2, 1, 1)).astype(np.int8),
        "b": rng.integers(-128, 128, n).astype(np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "three"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "three"], ["r"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["b", "s", "three"], ["e"]),
        helper.make_node("Conv", ["r", "d", "e"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "three"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "three"], ["y"]),
    ]
    path = written(model_of(nodes, {"x": [1, 2, 1, 1]}, arrays, [1, n, 1, 1]), tmp_path, suffix)
    if suffix == ".tflite":
        kinds = [o.builtin for o in read_flat(path).graphs[0].operators]
    else:
        kinds = [o.type for o in read_table(path).operations]
    assert "CONV_2D" in kinds and kinds.count("DEQUANTIZE") == 1
    x = np.array([0.7, -1.1], F).reshape(1, 2, 1, 1)
    expected = converter.load(tmp_path / "m.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], expected, atol=0.1001)


@pytest.mark.parametrize(
    ("scale", "zero", "again"),
    [
        (0.5, np.int8(3), False),
        (0.5, np.int8(4), True),
        (0.25, np.int8(3), True),
        (0.5, np.uint8(3), True),
        ([0.5, 0.5, 0.25], np.array([3, 3, 3], np.int8), None),
    ],
)
def test_values_are_quantized_again_for_another_scale_alone(
    scale: Any, zero: Any, again: bool | None, tmp_path: Path
) -> None:
    """Activations have no scale for each channel: such values are not quantized."""
    arrays = {"s": np.array(0.5, F), "z": np.array(3, np.int8), "t": np.array(scale, F)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "t", "n"], ["p"], axis=1),
        helper.make_node("DequantizeLinear", ["p", "t", "n"], ["y"], axis=1),
    ]
    model = model_of(nodes, {"x": [2, 3]}, arrays | {"n": np.asarray(zero)}, [2, 3])
    path = written(model, tmp_path, ".tflite")
    kinds = [o.builtin for o in read_flat(path).graphs[0].operators]
    if again is not None:
        assert kinds == ["QUANTIZE"] * (2 if again else 1) + ["DEQUANTIZE"]
    x = np.array([[1.1, -7.3, 30], [-2.6, 0.2, -40]], F)
    expected = converter.load(tmp_path / "m.onnx").run({"x": x})["y"]
    np.testing.assert_array_equal(converter.load(path).run({"x": x})["y"], expected)


def test_padding_of_a_quantized_maximum_is_its_least_value(tmp_path: Path) -> None:
    """The padding is a constant with the scale of the image, larger than a scheme gives."""
    arrays = {"one": np.array(0.5, F), "three": np.array(3, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "three"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "three"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["c"], kernel_shape=[3, 2], pads=[2, 1, 0, 0]),
        helper.make_node("QuantizeLinear", ["c", "one", "three"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "one", "three"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 2, 3, 4]}, arrays, [1, 2, 3, 4])
    path = written(model, tmp_path, ".tflite")
    x = -np.arange(5, 29, dtype=F).reshape(1, 2, 3, 4)
    expected = x.copy()
    expected[:, :, :, 1:] = x[:, :, :, :-1]
    expected[:, :, 1:] = expected[:, :, :1]
    np.testing.assert_array_equal(converter.load(path).run({"x": x})["y"], expected)


def test_an_addend_after_a_convolution_is_its_bias(tmp_path: Path) -> None:
    arrays = {"w": floats(3, 2, 1, 1), "b": floats(1, 3, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 2, 4, 4]}, arrays, [1, 3, 4, 4])
    table = read_table(written(model, tmp_path, ".nnapi.json"))
    assert [o.type for o in table.operations] == ["CONV_2D"]


@pytest.mark.parametrize("suffix", [".tflite", ".nnapi.json"])
def test_an_addend_of_rows_is_no_bias(suffix: str, tmp_path: Path) -> None:
    arrays = {"w": floats(6, 5), "b": floats(5, 1)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    path = written(model_of(nodes, {"x": [5, 6]}, arrays, [5, 5]), tmp_path, suffix)
    x = floats(5, 6)
    expected = x @ arrays["w"] + arrays["b"]
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], expected, 1e-4, 1e-5)


def test_a_scale_beyond_the_engines_floats_is_written_on_real_numbers(tmp_path: Path) -> None:
    arrays = {"s": np.array(1, F), "large": np.array(1e31, F), "zero": np.array(0, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "zero"], ["r"]),
        helper.make_node("Relu", ["r"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "large", "zero"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "large", "zero"], ["y"]),
    ]
    table = read_table(written(model_of(nodes, {"x": [4]}, arrays, [4]), tmp_path, ".nnapi.json"))
    (relu,) = [o for o in table.operations if o.type == "RELU"]
    assert table.operands[relu.outputs[0]].type is OperandType.TENSOR_FLOAT32


# softmax -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "kinds"), [(2, ["SOFTMAX"]), (-2, ["MUL", "SOFTMAX"])])
def test_a_positive_factor_before_a_softmax_is_its_beta(
    factor: float, kinds: list[str], tmp_path: Path
) -> None:
    """NNAPI has betas above 0 alone."""
    nodes = [
        helper.make_node("Mul", ["x", "f"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    model = model_of(nodes, {"x": [2, 6]}, {"f": np.array(factor, F)}, [2, 6])
    path = written(model, tmp_path, ".nnapi.json")
    assert [o.type for o in read_table(path).operations] == kinds
    x = floats(2, 6)
    shares = np.exp(factor * x)
    expected = shares / shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], expected, 1e-5, 1e-6)


# recurrent layers --------------------------------------------------------------------------------


def test_an_auxiliary_input_needs_weights_in_both_directions(tmp_path: Path) -> None:
    """LiteRT refuses to prepare such an operator, too."""
    first = [const(floats(*s), F) for s in ((4, 3), (4, 4), (4,))]
    second = [const(floats(*s), F) for s in ((4, 3), (4, 4), (4,))]
    states = [Tensor(F, [2, 4], variable=True) for _ in "12"]
    data = [Tensor(F, [5, 2, 3]), Tensor(F, [5, 2, 3])]
    operands = [data[0], *first, states[0], *second, states[1], data[1], const(floats(4, 3), F)]
    options = {"TimeMajor": True, "MergeOutputs": True, "FusedActivationFunction": TANH}
    path = single(
        tmp_path,
        "BIDIRECTIONAL_SEQUENCE_RNN",
        operands,
        [Tensor(F, [5, 2, 8])],
        "BidirectionalSequenceRNNOptions",
        **options,
    )
    with pytest.raises(ReadError, match="'bw_aux_weights' is absent"):
        converter.load(path)


@pytest.mark.parametrize("time_major", [True, False])
def test_a_plain_sequence_of_a_table_is_an_lstm_and_one_operation_again(
    time_major: bool, tmp_path: Path
) -> None:
    """h = sigmoid(o) tanh(c), c = sigmoid(f) c + sigmoid(i) tanh(g), as NNAPI specifies it."""
    units, inputs, batch, steps = 4, 3, 2, 5
    x, h, c = floats(steps, batch, inputs), floats(batch, units), floats(batch, units)
    weights, recurrent = floats(4, units, inputs), floats(4, units, units)
    biases = floats(4, units)
    table, given = Table(), x if time_major else x.swapaxes(0, 1)
    named = {"x": given, "h": h, "c": c}
    table.inputs = [tensor(table, list(v.shape), name=n) for n, v in named.items()]
    none = Operand(OperandType.TENSOR_FLOAT32, [0], lifetime=Lifetime.NO_VALUE)
    real = OperandType.FLOAT32
    operands = [
        table.inputs[0],
        *(constant(table, w) for w in weights),
        *(constant(table, w) for w in recurrent),
        *(table.add(replace(none)) for _ in range(3)),
        *(constant(table, b) for b in biases),
        *(table.add(replace(none)) for _ in range(2)),
        *table.inputs[1:],
        scalar(table, TANH),
        *(scalar(table, 0.0, real) for _ in range(2)),
        scalar(table, time_major, OperandType.BOOL),
        *(table.add(replace(none)) for _ in range(4)),
    ]
    shape = [steps, batch, units] if time_major else [batch, steps, units]
    table.outputs = [tensor(table, shape, name="y")]
    table.operations = [Operation("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, table.outputs)]
    path = saved(table, tmp_path)
    expected = []
    for now in x:
        i, f, g, o = (weights @ now.T + recurrent @ h.T + biases[:, :, None]).swapaxes(1, 2)
        sigmoid = [1 / (1 + np.exp(-v)) for v in (i, f, o)]
        c = sigmoid[1] * c + sigmoid[0] * np.tanh(g)
        h = sigmoid[2] * np.tanh(c)
        expected.append(h)
    y = np.stack(expected, 0 if time_major else 1)
    again = tmp_path / "again.nnapi.json"
    converter.convert(path, again)
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in {o.type for o in read_table(again).operations}
    for file in (path, again):
        model = converter.load(file)
        assert "Loop" not in {n.op_type for n in model.ir.graph}
        np.testing.assert_allclose(model.run(named)["y"], y, 1e-5, 1e-5)


# masks -------------------------------------------------------------------------------------------


def masked_attention(values: bool) -> Any:
    """Softmax(scores + mask), by values, with zeros for rows that are masked throughout."""
    weights = "p" if values else "w"
    nodes = [
        helper.make_node("Add", ["s", "m"], ["a"]),
        helper.make_node("Softmax", ["a"], ["w"]),
        *([helper.make_node("MatMul", ["w", "v"], ["p"])] if values else []),
        helper.make_node("IsNaN", [weights], ["n"]),
        helper.make_node("Where", ["n", "zero", weights], ["y"]),
    ]
    inputs = {"s": [1, 2, 3, 4], "m": [3, 4]}
    arrays = {"zero": np.zeros((), F), "v": floats(1, 2, 4, 4)}
    return model_of(nodes, inputs, arrays, [1, 2, 3, 4])


@needs_litert
@pytest.mark.parametrize("values", [False, True])
def test_rows_that_are_masked_throughout_are_zeros(values: bool, tmp_path: Path) -> None:
    """The plain kernels clamp a sum to finite numbers, so that their Softmax is no NaN."""
    model, mask = masked_attention(values), np.zeros((3, 4), F)
    mask[1], mask[2, 1:] = -np.inf, -np.inf
    path, scores = written(model, tmp_path, ".tflite"), floats(1, 2, 3, 4)
    (found,) = in_litert(path, [scores, mask])
    assert not found[:, :, 1].any()
    wanted = converter.load(tmp_path / "m.onnx").run({"s": scores, "m": mask})["y"]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.judges
@pytest.mark.parametrize("values", [False, True])
def test_masked_rows_of_a_table_are_zeros(values: bool, tmp_path: Path) -> None:
    path = written(masked_attention(values), tmp_path, ".nnapi.json")
    feeds = {"s": floats(1, 2, 3, 4), "m": np.full((3, 4), -np.inf, F)}
    (found,) = run_in("nnapi-table", path, feeds).values()
    assert found.shape == (1, 2, 3, 4) and not found.any()
