"""Sequences that loops build and choices return, in engines that have tensors only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from test_tflite_operators import needs_litert

import converter
from converter.engines import litert
from converter.errors import UnsupportedError

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
EMPTY = "e = SequenceEmpty()\n trips = Shape<start=0, end=1>(x)\n n = Squeeze(trips)\n"
STEP = "(int64 i, bool c, seq(float[{0}]) s) => (bool d, seq(float[{0}]) t)"
ROW = "d = Identity(c)\n row = Gather(x, i)\n"


def loop(body: str, member: str = "3") -> str:
    return f"q = Loop(n, , e) <body = step {STEP.format(member)} {{ {body} }}>\n"


CASES = {
    "appended": EMPTY
    + loop(ROW + "m = Mul(row, row)\n t = SequenceInsert(s, m)")
    + "y = ConcatFromSequence<axis=0, new_axis=1>(q)",
    "joined": EMPTY
    + loop(ROW + "t = SequenceInsert(s, row)")
    + "y = ConcatFromSequence<axis=0>(q)",
    "last axis": EMPTY
    + loop(ROW + "t = SequenceInsert(s, row)")
    + "y = ConcatFromSequence<axis=-1, new_axis=1>(q)",
    "at the front": EMPTY
    + loop(ROW + "p = Constant<value_int=0>()\n t = SequenceInsert(s, row, p)")
    + "y = ConcatFromSequence<axis=0, new_axis=1>(q)",
    "read in the loop": EMPTY
    + "f = Gather(x, trips0)\n f1 = SequenceInsert(e, f)\n"
    + f"q = Loop(n, , f1) <body = step {STEP.format('3')} {{"
    + ROW
    + "last = Constant<value_int=-1>()\n before = SequenceAt(s, last)\n"
    + "m = Add(before, row)\n t = SequenceInsert(s, m) }>\n"
    + "y = ConcatFromSequence<axis=0, new_axis=1>(q)",
    "some": EMPTY
    + loop(
        ROW
        + "zero = Constant<value_float=-1.0>()\n sum = ReduceSum<keepdims=0>(row)\n"
        + "go = Greater(sum, zero)\n"
        + "t = If(go) <then_branch = a () => (seq(float[3]) u) { u = SequenceInsert(s, row) },"
        + " else_branch = b () => (seq(float[3]) v) { v = Identity(s) }>"
    )
    + "y = ConcatFromSequence<axis=0, new_axis=1>(q)",
    "counted": EMPTY
    + loop(ROW + "t = SequenceInsert(s, row)")
    + "count = SequenceLength(q)\n k = Cast<to=1>(count)\n last = Constant<value_int=-1>()\n"
    + "z = SequenceAt(q, last)\n y = Mul(z, k)",
    "erased": EMPTY
    + loop(ROW + "t = SequenceInsert(s, row)")
    + "p = Constant<value_int=1>()\n r = SequenceErase(q, p)\n"
    + "y = ConcatFromSequence<axis=0, new_axis=1>(r)",
    "of several lengths": EMPTY
    + loop(
        "d = Identity(c)\n one = Constant<value_ints=[1]>()\n first = Constant<value_ints=[0]>()\n"
        + "j = Unsqueeze(i, first)\n end = Add(j, one)\n part = Slice(x, first, end, first)\n"
        + "t = SequenceInsert(s, part)",
        "k, 3",
    )
    + "y = ConcatFromSequence<axis=0>(q)",
    "chosen": "zero = Constant<value_float=0.0>()\n sum = ReduceSum<keepdims=0>(x)\n"
    + "go = Greater(sum, zero)\n w = Neg(x)\n"
    + "q = If(go) <then_branch = a () => (seq(float[N, 3]) u) { u = SequenceConstruct(x, w) },"
    + " else_branch = b () => (seq(float[N, 3]) v) { v = SequenceConstruct(w, x, x) }>\n"
    + "y = ConcatFromSequence<axis=1>(q)",
}


def model_of(name: str) -> Any:
    text = (
        f"main (float[N, 3] x) => (float y) {{ trips0 = Constant<value_int=0>()\n {CASES[name]} }}"
    )
    model = onnx.parser.parse_model(HEAD + text)
    output = model.graph.output[0].type.tensor_type
    output.ClearField("shape")
    return model


def data(rows: int, positive: bool = True) -> Any:
    x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    return x + (0.5 if positive else -0.5)


def right(model: Any, x: Any) -> Any:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


def written(name: str, folder: Path, file: str) -> tuple[Any, Path]:
    model, source, path = model_of(name), folder / "m.onnx", folder / file
    onnx.save(model, source)
    converter.convert(source, path)
    return model, path


@needs_litert
@pytest.mark.parametrize("name", CASES)
def test_litert_runs_stacked_sequences(name: str, tmp_path: Path) -> None:
    model, path = written(name, tmp_path, "m.tflite")
    for x in (data(4), data(2, False), data(5)):
        np.testing.assert_allclose(litert.invoke(path, [x])[0], right(model, x), 1e-5, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_openvino_runs_stacked_sequences(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    from openvino_runtime import infer

    model, path = written(name, tmp_path, "m.xml")
    for x in (data(4), data(2, False), data(5)):
        np.testing.assert_allclose(infer(path, [x])[0], right(model, x), 1e-5, 1e-6)


def test_members_without_a_common_shape_are_refused(tmp_path: Path) -> None:
    """They are not concatenated, and so need not fit."""
    body = CASES["of several lengths"].replace("y = ConcatFromSequence<axis=0>", "y = SequenceAt")
    CASES["ragged"] = body.replace("(q)", "(q, trips0)")
    try:
        with pytest.raises(UnsupportedError, match="Sequence"):
            written("ragged", tmp_path, "m.tflite")
    finally:
        del CASES["ragged"]


def test_core_ml_stacks_a_dynamic_number_of_rows(tmp_path: Path) -> None:
    model, path = written("appended", tmp_path, "m.mlmodel")
    for rows in (4, 6):
        (found,) = converter.load(path).run({"x": data(rows)}).values()
        np.testing.assert_allclose(found, right(model, data(rows)), 1e-5, 1e-6)


def test_the_help_of_a_loop_names_no_input_of_its_body(tmp_path: Path) -> None:
    """NNAPI has static shapes; following the help gives the number of rows."""
    with pytest.raises(UnsupportedError) as error:
        written("appended", tmp_path, "m.nnapi.json")
    for diagnostic in error.value.diagnostics:
        assert "--inputs" in diagnostic.help and "--freeze" not in diagnostic.help
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.nnapi.json", inputs={"x": [4, 3]})


STATIC = {
    "mapped": "s = SplitToSequence<axis=0>(x)\n"
    "t = SequenceMap(s, x) <body = b (float[1, 3] a, float[4, 3] w) => (float[4, 3] c) {"
    "c = Mul(a, w) }>\n y = ConcatFromSequence<axis=0>(t)",
    "two results": "s = SplitToSequence<axis=1>(x)\n"
    "t, u = SequenceMap(s, s) <body = b (float[4, 1] a, float[4, 1] w) =>"
    " (float[4, 1] c, float[4, 1] d) { c = Neg(a)\n d = Mul(a, w) }>\n"
    "last = Constant<value_int=-1>()\n k = SequenceAt(t, last)\n"
    "z = ConcatFromSequence<axis=1>(u)\n y = Add(k, z)",
    "optional": "o = Optional(x)\n h = OptionalHasElement(o)\n v = OptionalGetElement(o)\n"
    "k = Cast<to=1>(h)\n y = Add(v, k)",
}


@pytest.mark.parametrize("name", STATIC)
def test_members_that_are_known_and_optional_values(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    from openvino_runtime import infer

    model = onnx.parser.parse_model(
        f"{HEAD} main (float[4, 3] x) => (float y) {{ {STATIC[name]} }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    x, expected = data(4), right(model, data(4))
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml")
    np.testing.assert_allclose(infer(tmp_path / "m.xml", [x])[0], expected, 1e-5, 1e-6)
    if name == "two results":  # whose shapes are not known before they are written out
        return
    converter.convert(tmp_path / "m.onnx", tmp_path / "z.txt")
    (found,) = converter.load(tmp_path / "z.txt").run({"x": x}).values()
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
