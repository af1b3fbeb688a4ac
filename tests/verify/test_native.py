"""A file in the engine it is written for: planted errors of readers are found, refusals are
reported, equal networks give no finding.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import converter
from converter import api, formats
from converter.api import Model
from converter.cli import app, console
from converter.commands import convert
from converter.commands.batch.job import Job
from converter.commands.batch.plan import of_file
from converter.commands.batch.work import Task, perform
from converter.commands.options.convert import Convert
from converter.commands.report import html, markdown
from converter.commands.report.facts import Report, of_data
from converter.commands.verify import Result, native
from converter.commands.verify.floor import Noise
from converter.commands.verify.noise import Precision, tolerance
from converter.commands.verify.program import Program
from converter.commands.verify.stored import result_of
from converter.engines import file
from converter.errors import UsageError
from converter.graph.build import Builder, new_model
from converter.graph.names import Names
from converter.io.resources import schema_path
from verify.nets import NETS

TARGETS = {
    "onnx": ("onnx", "onnxruntime"),
    "openvino": ("xml", "openvino"),
    "openvino+ir=10": ("xml", "openvino"),
    "tflite": ("tflite", "litert"),
}
each_target = pytest.mark.parametrize("target", TARGETS)


def needs(engine: str) -> None:
    if not file.available(engine):
        pytest.skip(f"the extra {engine!r} is not installed")


def small() -> Model:
    """Every engine computes it, and no two of its attributes mean the same."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 6, 8])
    w = np.random.default_rng(2).normal(size=(4, 3, 3, 3)).astype(np.float32)
    y = b.op("LeakyRelu", b.op("Conv", x, w, pads=[1, 1, 1, 1], name="conv"), alpha=0.1, name="act")
    b.output(b.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2], name="pooled"))
    return Model(model, "onnx")


def written(folder: Path, target: str, model: Model | None = None) -> Path:
    suffix, engine = TARGETS[target]
    needs(engine)
    converter.save(model or small(), folder / f"net.{suffix}", target, io_layout="keep")
    return folder / f"net.{suffix}"


def reader_that(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Model], None]
) -> None:
    """The reader of a format makes a mistake."""
    own = formats.get(name)

    def read(path: Path, weights: Path | None) -> Model:
        model = own.read(path, weights)
        change(model)
        return model

    module = {
        "onnx": "converter.formats.onnx.format",
        "openvino": "converter.formats.openvino.format",
        "tflite": "converter.formats.tflite.format",
    }[name]
    monkeypatch.setattr(f"{module}.FORMAT", replace(own, read=read))


def statuses(result: Result) -> list[tuple[str, str, str]]:
    return [(n.role, n.engine, n.status) for n in result.native]


@each_target
@pytest.mark.sampled(3)
def test_a_file_that_is_read_right_is_no_finding(tmp_path: Path, target: str) -> None:
    path = written(tmp_path, target)
    result = converter.verify(path, path, native="on")
    assert result.passed and not result.diagnostics
    engine = TARGETS[target][1]
    assert statuses(result) == [("reference", engine, "same"), ("candidate", engine, "same")]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.sampled(3)
def test_rounding_is_no_finding(tmp_path: Path, name: str) -> None:
    model = NETS[name](np.random.default_rng(5))
    converter.save(model, tmp_path / "net.onnx")
    path = written(tmp_path, "openvino", model)
    result = converter.verify(tmp_path / "net.onnx", path)
    assert result.passed and [n.status for n in result.native] == ["same", "same"]
    assert any(o.difference.max_abs for o in result.native[1].outputs)  # there was rounding


def _other_slope(model: Model) -> None:
    """The slope of the activation: LeakyRelu, or its form in a format."""
    for node in model.ir.graph:
        if "alpha" in node.attributes:
            node.attributes["alpha"] = ir.AttrFloat32("alpha", 0.3)
    for value in model.ir.graph.initializers.values():
        if (
            value.const_value is not None
            and value.const_value.dtype == ir.DataType.FLOAT
            and np.isclose(np.abs(value.const_value.numpy()), 0.1).all()
        ):
            value.const_value = ir.Tensor(3 * value.const_value.numpy(), name=value.name)


def _other_weights(model: Model) -> None:
    for value in model.ir.graph.initializers.values():
        if value.const_value is not None and value.const_value.size == 108:
            value.const_value = ir.Tensor(
                value.const_value.numpy()[..., ::-1].copy(), name=value.name
            )


def _other_pads(model: Model) -> None:
    for node in model.ir.graph:
        if node.op_type == "Conv":
            node.attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])


@each_target
@pytest.mark.parametrize("mistake", [_other_slope, _other_weights, _other_pads])
@pytest.mark.sampled(5)
def test_a_mistake_of_the_reader_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, mistake: Callable[[Model], None]
) -> None:
    path = written(tmp_path, target)
    reader_that(monkeypatch, target.split("+")[0], mistake)
    assert converter.verify(path, path, native="off").passed  # it agrees with itself
    result = converter.verify(path, path)
    assert not result.passed and result.same
    assert [(n.status, n.code, n.level) for n in result.native] == [
        ("differs", "N404", "error")
    ] * 2
    assert (
        'output "pooled" is ' in result.native[0].message
        and "instead of" in result.native[0].message
    )


@each_target
@pytest.mark.sampled(3)
def test_a_boundary_that_only_the_reader_knows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """As if a note in the file said that its input is stored with the channels last."""

    def turn(model: Model) -> None:
        graph = model.ir.graph
        value = graph.inputs[0]
        node = ir.Node(
            "", "Transpose", [value], [ir.AttrInt64s("perm", [0, 3, 1, 2])], num_outputs=1
        )
        inner = node.outputs[0]
        inner.name, inner.type, inner.shape = "inner", value.type, value.shape
        value.replace_all_uses_with(inner)
        node.replace_input_with(0, value)
        graph.insert_before(graph[0], node)
        value.shape = ir.Shape([1, 6, 8, 3])

    path = written(tmp_path, target)
    reader_that(monkeypatch, target.split("+")[0], turn)
    result = converter.verify(path, path)
    assert [n.code for n in result.native] == ["N404", "N404"]
    assert "is [1,3,6,8] in the file, but [1,6,8,3] as netconv reads it" in result.native[0].message


def test_another_number_of_outputs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "onnx")
    reader_that(
        monkeypatch,
        "onnx",
        lambda m: m.ir.graph.outputs.append(m.ir.graph.outputs[0].producer().inputs[0]),
    )  # type: ignore[union-attr, arg-type]
    assert (
        "the file has 1 outputs, but netconv reads 2"
        in converter.verify(path, path).native[1].message
    )


def test_a_tolerance_of_the_user_holds_for_the_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "onnx")
    reader_that(monkeypatch, "onnx", _other_slope)
    assert converter.verify(path, path, atol=10).passed
    assert not converter.verify(path, path, atol=10, metrics=["elem", "cos=0.999999"]).passed


def refused(path: Path) -> Path:
    """A valid ONNX file for which onnxruntime has no kernel."""
    graph = helper.make_graph(
        [helper.make_node("Where", ["c", "x", "y"], ["z"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.BOOL, [3]) for n in "cxy"],
        [helper.make_tensor_value_info("z", TensorProto.BOOL, [3])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )
    return path


def test_a_candidate_that_its_engine_refuses_is_a_finding_a_reference_a_warning(
    tmp_path: Path,
) -> None:
    bad, good = refused(tmp_path / "bad.onnx"), tmp_path / "good.onnx"
    model, b = new_model()
    c, x, y = (b.input(n, ir.DataType.BOOL, [3]) for n in "cxy")
    b.output(b.op("Or", b.op("And", c, x), b.op("And", b.op("Not", c), y), name="z"))
    converter.save(Model(model, "onnx"), good)
    result = converter.verify(good, bad)
    assert result.same and not result.passed
    assert [(n.status, n.level) for n in result.native] == [("same", "note"), ("refused", "error")]
    assert result.native[1].code == "N405" and "NOT_IMPLEMENTED" in result.native[1].message
    other = converter.verify(bad, good)
    assert other.passed and [(n.status, n.level) for n in other.native] == [
        ("refused", "warning"),
        ("same", "note"),
    ]


def test_a_file_that_does_not_run_on_the_inputs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, b = new_model()
    b.output(
        b.op(
            "Gather",
            b.input("x", ir.DataType.FLOAT, [5]),
            b.input("i", ir.DataType.INT64, [2]),
            name="y",
        )
    )
    converter.save(Model(model, "onnx"), tmp_path / "net.onnx")

    def forgiving(read: Model) -> None:
        node = read.ir.graph[0]
        indices, zero = (
            node.inputs[1],
            ir.Value(name="zero", const_value=ir.Tensor(np.array(0, np.int64), name="zero")),
        )
        read.ir.graph.register_initializer(zero)
        times = ir.Node("", "Mul", [indices, zero], num_outputs=1)
        times.outputs[0].name, times.outputs[0].type, times.outputs[0].shape = (
            "none",
            indices.type,
            indices.shape,
        )  # type: ignore[union-attr]
        node.replace_input_with(1, times.outputs[0])
        read.ir.graph.insert_before(node, times)

    reader_that(monkeypatch, "onnx", forgiving)
    found = converter.verify(
        tmp_path / "net.onnx",
        tmp_path / "net.onnx",
        {"x": np.zeros(5, np.float32), "i": np.array([0, 9])},
    ).native[1]
    assert (found.status, found.code) == (
        "refused",
        "N405",
    ) and "when it runs on the input given" in found.message


FAKES = {
    "import os; os.abort()": ("refused", "N405", "it ended its process (SIGABRT)"),
    "import sys; sys.exit(3)": ("refused", "N405", "its process ended with code 3"),
    "raise ImportError('a library is missing')": ("absent", "U502", "a library is missing"),
    "raise MemoryError": ("skipped", "U503", "there is not enough memory"),
}


@pytest.mark.parametrize("code", FAKES)
def test_an_engine_that_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    path = written(tmp_path, "onnx")
    (tmp_path / "onnxruntime.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    status, known, words = FAKES[code]
    found = converter.verify(small(), path).native
    assert [(n.role, n.status, n.code) for n in found] == [
        ("candidate", status, known)
    ] and words in found[0].message


def test_an_engine_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "onnx")
    (tmp_path / "onnxruntime.py").write_text("while True:\n    pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(file, "TIMEOUT", 0.2)
    assert "did not finish within 0.2 seconds" in converter.verify(small(), path).native[0].message


def test_an_engine_that_is_not_installed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "onnx")
    monkeypatch.setattr(file, "available", lambda engine: False)
    result = converter.verify(path, path)
    assert (
        result.passed
        and [(n.status, n.code, n.level) for n in result.native] == [("absent", "U502", "note")] * 2
    )
    with pytest.raises(UsageError, match="U502"):
        converter.verify(path, path, native="on")


def test_a_model_without_a_file_has_no_native_run(tmp_path: Path) -> None:
    assert converter.verify(small(), small()).native == ()
    with pytest.raises(UsageError, match="U502"):
        converter.verify(small(), small(), native="on")
    with pytest.raises(UsageError, match="U501"):
        converter.verify(small(), small(), native="never")
    path = written(tmp_path, "onnx")
    assert [n.role for n in converter.verify(small(), path).native] == ["candidate"]
    assert converter.verify(path, path, native="off").native == ()


@pytest.mark.parametrize("suffix", ["mlmodel", "txt", "nnapi.json", "xml"])
def test_formats_without_an_engine(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net.{suffix}"
    converter.save(small(), path, "openvino+ir=7" if suffix == "xml" else None)
    assert file.engine_of(api.load(path)) == "" and converter.verify(path, path).native == ()


def test_a_source_that_was_cut_or_given_sizes_is_not_its_file_any_more(tmp_path: Path) -> None:
    path = written(tmp_path, "onnx")
    assert convert.read(path, Convert()).source == path
    assert convert.read(path, Convert(outputs=["act"])).source is None
    assert convert.read(path, Convert(inputs={"x": [1, 3, 6, 8]})).source is None


def halves(factor: float) -> Model:
    model, b = new_model()
    x = b.op("Mul", b.input("x", ir.DataType.FLOAT, [1, 4]), np.float32(factor))
    half = b.op("Cast", x, to=int(ir.DataType.FLOAT16))
    b.output(b.op("Cast", half, to=int(ir.DataType.FLOAT), name="y"))
    return Model(model, "onnx")


@pytest.mark.parametrize("target", ["openvino", "openvino+ir=10"])
def test_a_rounding_to_halves_that_openvino_leaves_out_is_a_note(
    tmp_path: Path, target: str
) -> None:
    path = written(
        tmp_path, target, halves(1e6)
    )  # beyond the range of halves: infinities, but not in OpenVINO
    model = api.load(path)
    model.ir = halves(1e6).ir  # instead of the reader's result
    found = converter.verify(model, model, {"x": np.array([[1.0, -2.0, 0.5, 0.001]], np.float32)})
    assert (
        found.passed
        and [(n.status, n.code, n.level) for n in found.native] == [("noted", "N406", "note")] * 2
    )
    assert "half precision" in found.native[0].message


def test_a_folding_hides_no_mistake(tmp_path: Path) -> None:
    model = api.load(written(tmp_path, "openvino", halves(1e6)))
    model.ir = halves(1.1e6).ir
    found = converter.verify(model, model, {"x": np.array([[1.0, -2.0, 0.5, 0.001]], np.float32)})
    assert [n.code for n in found.native] == ["N404", "N404"]


def test_types_that_python_cannot_hand_over_are_only_loaded(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "net.onnx",
    )
    result = converter.verify(tmp_path / "net.onnx", tmp_path / "net.onnx")
    assert (
        result.passed and [(n.status, n.code) for n in result.native] == [("skipped", "N406")] * 2
    )


def test_texts_sequences_and_values_that_may_be_left_out(tmp_path: Path) -> None:
    """Values that need care on the way to the engine and back: strings, an input with a default, an
    output that is no tensor, a scalar.
    """
    graph = helper.make_graph(
        [
            helper.make_node("StringConcat", ["s", "t"], ["joined"]),
            helper.make_node("Add", ["x", "d"], ["sum"]),
            helper.make_node("ReduceSum", ["x"], ["whole"], keepdims=0),
            helper.make_node("SequenceConstruct", ["x", "sum"], ["list"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("s", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("t", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("d", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("joined", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("whole", TensorProto.FLOAT, []),
            helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None),
        ],
        [onnx.numpy_helper.from_array(np.ones(3, np.float32), "d")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "net.onnx",
    )
    model = api.load(tmp_path / "net.onnx")
    feeds = model.check_feeds(
        {"s": np.array(["a", "Zürich"]), "t": np.array(["", "b"]), "x": np.arange(3.0)}
    )
    found = file.run("onnxruntime", tmp_path / "net.onnx", list(feeds), [list(feeds.values())], [])
    assert found.stage == "done", found.error
    assert [n[0] for n in found.outputs] == [
        "joined",
        "sum",
        "whole",
        "list",
    ] and 3 not in found.results[0]
    assert (
        found.results[0][0].tolist() == ["a", "Zürichb"]
        and found.results[0][2].shape == ()
        and found.results[0][1].tolist() == [1, 2, 3]
    )


def test_a_network_that_takes_no_random_numbers(tmp_path: Path) -> None:
    """Divisors that are drawn are 0 somewhere; those that are 1 everywhere are not."""
    needs("litert")
    model, b = new_model()
    x = b.input("x", ir.DataType.INT32, [256])
    b.output(b.op("Mod", x, x, name="y"))
    path = tmp_path / "m.tflite"
    converter.save(Model(model, "onnx"), path)
    result = converter.verify(path, path, native="on")
    assert result.passed and [s for _, _, s in statuses(result)] == ["same", "same"]


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_a_network_without_inputs(tmp_path: Path, target: str) -> None:
    model, b = new_model()
    b.output(b.op("Range", np.float32(0), np.float32(5), np.float32(1), name="y"))
    path = written(tmp_path, target, Model(model, "onnx"))
    result = converter.verify(path, path)
    assert result.passed and [n.status for n in result.native] == ["same", "same"], (
        result.diagnostics
    )


def test_states_are_given_to_the_engine_and_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("openvino")
    import openvino as ov
    from openvino import opset13 as op

    x = op.parameter([1, 4], np.float32, name="x")
    state = op.read_value(op.constant(np.zeros((1, 4), np.float32)), "acc")
    total = op.add(state, x, name="total")
    ov.save_model(
        ov.Model([op.result(op.relu(total), name="out")], [op.assign(total, "acc")], [x]),
        tmp_path / "net.xml",
        compress_to_fp16=False,
    )
    result = converter.verify(tmp_path / "net.xml", tmp_path / "net.xml")
    assert result.passed and [len(n.outputs) for n in result.native] == [2, 2], result.diagnostics

    def lost(model: Model) -> None:
        """As if the state were never updated."""
        graph = model.ir.graph
        graph.outputs[1] = next(n for n in graph if n.op_type == "Add").inputs[0]  # type: ignore[assignment]

    reader_that(monkeypatch, "openvino", lost)
    assert "N404" in [
        n.code for n in converter.verify(tmp_path / "net.xml", tmp_path / "net.xml").native
    ]


def test_openvino_computes_doubles_in_floats(tmp_path: Path) -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.DOUBLE, [1, 6])
    b.output(b.op("ReduceLogSumExp", x, b.const([1]), keepdims=0, name="y"))
    path = written(tmp_path, "openvino", Model(model, "onnx"))
    result = converter.verify(path, path)
    assert result.passed, result.diagnostics
    assert result.native[0].outputs[0].difference.max_abs > 0


def test_constants_round_like_their_largest_number(tmp_path: Path) -> None:
    """The reader computes it once; the engine with other roundings, which weigh more in small
    differences of large numbers.
    """
    path = written(tmp_path, "onnx")
    model = api.load(path)
    b = Builder(model.ir.graph, Names(model.ir))
    numbers = np.array([7e-4, 3.0, -8.0], np.float32)
    b.output(b.op("Identity", b.const(numbers), name="fixed"))
    read = [[model.run({"x": np.ones((1, 3, 6, 8), np.float32)})["pooled"], numbers]]
    noise = Noise(
        Program(model), [{"x": np.ones((1, 3, 6, 8), np.float32)}], read, Precision({}, 2.0**-23)
    )
    allowed = tolerance(numbers, noise.with_sums()[0][1], noise.step(1))
    assert 1e-7 < allowed[0] < 1e-5 and not noise.floors(noise.repetitions)[0][1].any()


def quantized() -> Model:
    """Averages of two 8-bit numbers: every other one is a tie, which integer kernels round away
    from zero and floats to even.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.UINT8, [1, 2, 6, 8])
    scale, zero = np.float32(0.5), np.uint8(0)
    pooled = b.op(
        "AveragePool", b.op("DequantizeLinear", x, scale, zero), kernel_shape=[1, 2], strides=[1, 2]
    )
    y = b.op("DequantizeLinear", b.op("QuantizeLinear", pooled, scale, zero), scale, zero)
    b.output(b.op("QuantizeLinear", b.op("Mul", y, np.float32(3)), scale, zero, name="y"))
    return Model(model, "onnx")


def test_ties_of_quantization_may_fall_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here LiteRT's integers differ by a step in the middle, three at the end; a mistake of the
    reader is no tie.
    """
    path = written(tmp_path, "tflite", quantized())
    feeds = {"x": np.random.default_rng(1).integers(0, 80, (1, 2, 6, 8)).astype(np.uint8)}
    result = converter.verify(path, path, feeds)
    assert result.passed, result.diagnostics

    def more(model: Model) -> None:
        for value in model.ir.graph.initializers.values():
            if (
                value.const_value is not None
                and value.const_value.size == 1
                and np.isclose(value.const_value.numpy(), 3).all()
            ):
                value.const_value = ir.Tensor(
                    np.full_like(value.const_value.numpy(), 3.5), name=value.name
                )

    reader_that(monkeypatch, "tflite", more)
    assert not converter.verify(path, path, feeds).passed


def _command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
    console.use(console.Console())
    return app._guarded()


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with net.onnx, which the reader gets wrong, and bad.onnx, which onnxruntime
    refuses.
    """
    written(tmp_path, "onnx")
    refused(tmp_path / "bad.onnx")
    reader_that(monkeypatch, "onnx", _other_slope)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_line(
    wrong: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(monkeypatch, "verify", "net.onnx", "net.onnx", "--native", "off") == 0
    assert "NATIVE" not in capsys.readouterr().out
    assert _command(monkeypatch, "verify", "net.onnx", "net.onnx") == 1
    out = capsys.readouterr().out
    assert (
        "NATIVE reference net.onnx: error[N404] netconv misreads this file, or onnxruntime does"
    ) in out and "NOT IN THEIR OWN ENGINES" in out
    monkeypatch.setenv("NETCONV_NATIVE", "off")
    assert _command(monkeypatch, "verify", "net.onnx", "net.onnx") == 0
    monkeypatch.delenv("NETCONV_NATIVE")
    assert _command(monkeypatch, "convert", "net.onnx", "-o", "out.onnx", "--verify") == 1
    assert (
        _command(
            monkeypatch,
            "convert",
            "net.onnx",
            "-o",
            "out.onnx",
            "--verify",
            "--force",
            "--native",
            "off",
        )
        == 0
    )


def test_strict_makes_a_reference_that_is_refused_a_finding(
    wrong: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, b = new_model()
    c, x, y = (b.input(n, ir.DataType.BOOL, [3]) for n in "cxy")
    b.output(b.op("Or", b.op("And", c, x), b.op("And", b.op("Not", c), y), name="z"))
    converter.save(Model(model, "onnx"), "good.onnx")
    assert _command(monkeypatch, "verify", "bad.onnx", "good.onnx") == 0
    assert _command(monkeypatch, "verify", "bad.onnx", "good.onnx", "--strict") == 1
    assert _command(monkeypatch, "verify", "bad.onnx", "good.onnx", "--deny", "N405") == 1
    assert (
        _command(monkeypatch, "verify", "bad.onnx", "good.onnx", "--strict", "--allow", "N405") == 0
    )
    assert "warning[N405]" in capsys.readouterr().out


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["json", "junit", "sarif", "github"])
def test_every_form_of_the_output_has_it(
    wrong: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    assert _command(monkeypatch, "verify", "net.onnx", "net.onnx", "--format", form) == 1
    out = capsys.readouterr().out
    assert "N404" in out and "netconv misreads this file, or onnxruntime does" in out
    if form == "json":
        data = json.loads(out)
        schema = json.loads(schema_path("report/verify.json").read_text())
        jsonschema.validate(data["result"], schema)
        result = result_of(data["result"])
        assert [n.code for n in result.native] == ["N404", "N404"] and not result.native[0].outputs[
            0
        ].passed
        entries = tuple(of_data(data, "x"))
        assert "N404" in "\n".join(entries[0].text()) and "netconv misreads" in entries[0].headline
        report = Report("x", "1", entries)
        assert "N404" in markdown.render(
            report
        ) and "The files in their own engines" in html.render(report)


def test_a_batch_runs_files_only_where_it_is_asked_to(wrong: Path) -> None:
    def codes(verify: dict[str, object]) -> tuple[int, list[str]]:
        shutil.rmtree(wrong / "out", ignore_errors=True)
        done = perform(
            Task(
                "convert",
                str(wrong / "net.onnx"),
                "net.onnx",
                "onnx",
                str(wrong / "out" / "net.onnx"),
                "out/net.onnx",
                {"verify": verify},
            )
        )
        return done["exit_code"], [d["code"] for d in done["diagnostics"]]

    assert codes({}) == (0, [])
    assert codes({"native": "auto"}) == (
        1,
        ["N404"],
    )  # of the model: the written file contains the mistake, and is read as it is
    (wrong / "jobs.toml").write_text(
        '[[job]]\nmodels = "net.onnx"\nto = "onnx"\nverify = { native = "auto" }\n'
    )
    jobs: tuple[Job, ...] = of_file(wrong / "jobs.toml").jobs
    assert jobs[0].options["verify"] == {"native": "auto"}


def test_default_data_and_a_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge cases are left to the comparison of the files as read; a user's own
    data go to the engine whole.
    """
    counts: list[int] = []
    own = file.run

    def run(
        engine: str,
        path: Path,
        names: list[str],
        feeds: list[list[np.ndarray]],
        expected: list[list[np.ndarray]],
        function: str,
    ) -> file.Run:
        counts.append(len(feeds))
        return own(engine, path, names, feeds, expected, function)

    monkeypatch.setattr(file, "run", run)
    path = written(tmp_path, "onnx")
    assert converter.verify(small(), path).passed and converter.verify(small(), path, "edge").passed
    assert counts == [2, 5]


def test_noise_that_other_comparisons_have_measured_further_is_taken_as_it_is() -> None:
    class Measured:
        done, repetitions = 12, 4

        def floors(self, count: int) -> int:
            return count

    assert list(native._known(Measured())) == [4]  # type: ignore[arg-type]
