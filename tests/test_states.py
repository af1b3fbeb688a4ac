"""States of networks: variables of OpenVINO with constant and computed initial values, the pairs of
an ONNX model that a user names, and their form in each target.

Expected numbers are those of the OpenVINO runtime, which keeps the states itself, and of
onnxruntime, which is given the last ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import UsageError

ov = pytest.importorskip("openvino")
op = pytest.importorskip("openvino.opset13")

HEADS, WIDTH = 2, 3
STEPS = (3, 1, 2)  # tokens that one run is given
PAIRS = {"past.key": "present.key", "past.value": "present.value"}
CONFIG = {"INFERENCE_PRECISION_HINT": "f32"}


def cache(kind: str, ids: Any, name: str) -> Any:
    """The past of a cache: begun with zeros of a computed shape, with a constant, with nothing, or
    an input.
    """
    shape = ov.PartialShape([-1, HEADS, -1, WIDTH])
    if kind == "input":
        past = op.parameter(shape, np.float32, name=name)
        past.output(0).get_tensor().set_names({name})
        return past
    first: Any = op.constant(np.zeros((1, HEADS, 0, WIDTH), np.float32))
    if kind == "computed":
        batch = op.gather(op.shape_of(ids), op.constant([0]), op.constant(0))
        sizes = op.concat([batch, op.constant(np.int64([HEADS, 0, WIDTH]))], 0)
        first = op.broadcast(op.constant(np.float32(0)), sizes)
    return op.read_value(first, name, np.float32, shape)


def decoder(kind: str, path: Path) -> Path:
    """Attention over a cache of keys and values, whose rows `beam_idx` chooses."""
    rng = np.random.default_rng(0)
    ids = op.parameter([-1, -1], np.int64, name="ids")
    beam = op.parameter([-1], np.int32, name="beam_idx")
    for node in (ids, beam):
        node.output(0).get_tensor().set_names({node.friendly_name})
    pasts, presents = [], []
    for name in ("key", "value"):
        table = op.constant(rng.standard_normal((7, HEADS * WIDTH)).astype(np.float32))
        x = op.gather(table, ids, op.constant(0))
        split = op.reshape(x, op.constant(np.int64([0, 0, HEADS, WIDTH])), True)
        new = op.transpose(split, op.constant(np.int64([0, 2, 1, 3])))
        pasts.append(cache(kind, ids, f"past.{name}"))
        presents.append(op.concat([op.gather(pasts[-1], beam, op.constant(0)), new], 2))
    scores = op.softmax(op.matmul(new, presents[0], False, True), 3)
    out = op.result(op.matmul(scores, presents[1], False, False))
    out.input_value(0).get_tensor().set_names({"logits"})
    if kind == "input":
        for value, name in zip(presents, PAIRS.values(), strict=True):
            value.output(0).get_tensor().set_names({name})
        results = [op.result(v) for v in presents]
        model = ov.Model([out, *results], [ids, beam, *pasts], "decoder")
    else:
        sinks = [op.assign(v, n) for v, n in zip(presents, PAIRS, strict=True)]
        model = ov.Model([out], sinks, [ids, beam], "decoder")
    ov.save_model(model, path, compress_to_fp16=False)
    return path


def no_start(path: Path) -> Path:
    """The same as OpenVINO's own pass makes it of inputs and outputs: no initial value at all."""
    from openvino._offline_transformations import apply_make_stateful_transformation

    model = ov.Core().read_model(decoder("input", path.with_name("io.xml")))
    apply_make_stateful_transformation(model, PAIRS)
    ov.save_model(model, path, compress_to_fp16=False)
    return path


def feeds(batch: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    beam = np.arange(batch, dtype=np.int32)[::-1].copy()
    return [{"ids": rng.integers(0, 7, (batch, n)), "beam_idx": beam} for n in STEPS]


def kept_by_openvino(path: Path, batch: int) -> list[np.ndarray]:
    """The results of the runtime in a sequence of runs, twice from the start."""
    request = ov.Core().compile_model(path, "CPU", CONFIG).create_infer_request()
    found = []
    for _ in range(2):
        request.reset_state()
        found += [request.infer(f)[0].copy() for f in feeds(batch)]
    return found


@pytest.mark.parametrize("kind", ["computed", "constant", "nothing"])
def test_a_stateful_decoder_stays_stateful(kind: str, tmp_path: Path) -> None:
    path, batch = tmp_path / "in.xml", 1 if kind == "constant" else 2
    path = no_start(path) if kind == "nothing" else decoder(kind, path)
    assert converter.convert(path, tmp_path / "out.xml") == []
    wanted = kept_by_openvino(path, batch)
    for a, b in zip(wanted, kept_by_openvino(tmp_path / "out.xml", batch), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_state_that_is_left_out_begins_as_the_file_says(engine: str, tmp_path: Path) -> None:
    path = decoder("computed", tmp_path / "in.xml")
    model, given = converter.load(path), {}
    assert model.interface["states"] == {n: f"{n}_out" for n in PAIRS}
    for feed, wanted in zip(feeds(2), kept_by_openvino(path, 2), strict=False):
        found = model.run({**feed, **given}, engine)
        np.testing.assert_allclose(found["logits"], wanted, rtol=1e-5, atol=1e-6)
        given = {n: found[f"{n}_out"] for n in PAIRS}


def onnx_decoder(tmp_path: Path) -> Path:
    decoder("input", tmp_path / "io.xml")
    converter.convert(tmp_path / "io.xml", tmp_path / "io.onnx")
    return tmp_path / "io.onnx"


def test_a_pair_of_an_onnx_model_becomes_a_state(tmp_path: Path) -> None:
    import onnxruntime

    path = onnx_decoder(tmp_path)
    assert converter.convert(path, tmp_path / "out.xml", state=PAIRS) == []
    session = onnxruntime.InferenceSession(path)
    past = dict.fromkeys(PAIRS, np.zeros((2, HEADS, 0, WIDTH), np.float32))
    wanted = []
    for feed in feeds(2):
        logits, *present = session.run(["logits", *PAIRS.values()], {**feed, **past})
        past = dict(zip(PAIRS, present, strict=True))
        wanted.append(logits)
    for a, b in zip(wanted, kept_by_openvino(tmp_path / "out.xml", 2), strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_states_as_inputs_and_outputs(tmp_path: Path) -> None:
    path = decoder("computed", tmp_path / "in.xml")
    notes = converter.convert(path, tmp_path / "io.xml", states="io")
    assert notes == []
    names = [p.any_name for p in ov.Core().read_model(tmp_path / "io.xml").inputs]
    assert sorted(names) == ["beam_idx", "ids", *PAIRS]
    notes = converter.convert(path, tmp_path / "kept.onnx")
    assert [(n.code, n.level) for n in notes] == [("X207", "warning")]
    assert "past.key" in notes[0].help and "first run" in notes[0].help
    assert converter.convert(path, tmp_path / "io.onnx", states="io") == []
    with pytest.raises(UsageError, match="states must be"):
        converter.convert(path, tmp_path / "m.onnx", states="both")


def test_a_state_of_known_size_is_a_variable_of_litert(tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    from converter.api import Model
    from converter.graph.build import new_model

    model, b = new_model()
    import onnx_ir as ir

    x, s = (b.input(n, ir.DataType.FLOAT, [1, 4]) for n in ("x", "s"))
    b.output(b.Tanh(b.Add(x, s), name="y"), b.Add(b.Mul(s, 0.5), x, name="later"))
    converter.save(Model(model, "onnx"), tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.tflite", state={"s": "later"})
    run = interpreter.Interpreter(str(tmp_path / "m.tflite"))
    run.allocate_tensors()
    (given,), (result,) = run.get_input_details(), run.get_output_details()
    state = np.zeros((1, 4), np.float32)
    for step in range(3):
        data = np.full((1, 4), step + 1, np.float32)
        run.set_tensor(given["index"], data)
        run.invoke()
        np.testing.assert_allclose(
            run.get_tensor(result["index"]), np.tanh(data + state), rtol=1e-6
        )
        state = state * np.float32(0.5) + data


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"nothing": "present.key"}, "the input nothing, which the model does not have"),
        ({"past.key": "nothing"}, "the output nothing, which the model does not have"),
        ({"ids": "present.key"}, "as the next value of 'ids'"),
    ],
)
def test_pairs_that_are_none(state: dict[str, str], message: str, tmp_path: Path) -> None:
    path = onnx_decoder(tmp_path)
    with pytest.raises(UsageError, match=message):
        converter.convert(path, tmp_path / "m.xml", state=state)


def test_a_cache_of_given_size_is_no_state(tmp_path: Path) -> None:
    """The output is longer than the input."""
    sizes = {"ids": [1, 2], "beam_idx": [1], **{n: [1, HEADS, 4, WIDTH] for n in PAIRS}}
    with pytest.raises(UsageError, match="as the next value of"):
        converter.convert(onnx_decoder(tmp_path), tmp_path / "m.xml", inputs=sizes, state=PAIRS)
    decoder("computed", tmp_path / "in.xml")
    converter.convert(tmp_path / "in.xml", tmp_path / "m.tflite", inputs=sizes, states="io")
    found = {i.name: i.shape for i in converter.load(tmp_path / "m.tflite").inputs}
    assert found["past.key"] == (1, HEADS, 4, WIDTH)
