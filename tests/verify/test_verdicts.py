"""Verdicts that can be trusted: printed numbers are of one element, "nothing compared" is reported,
rounding alone is no difference, and quantized networks are judged by their steps.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import converter
import unchanged
from converter.api import Model
from converter.commands import reduce, run
from converter.commands.costs import costs
from converter.commands.diff import diff
from converter.commands.inspect import summary
from converter.commands.roundtrip import roundtrip
from converter.commands.verify import verify
from converter.commands.verify.compare import compare, judge
from converter.commands.verify.feeds import feeds_for
from converter.commands.verify.program import Program
from converter.commands.verify.text import lines
from converter.commands.verify.truth import in_doubles
from converter.errors import ExitCode, NothingComparedError
from converter.graph.build import new_model
from verify.nets import copy_of, perceptron

F16, F32, F64 = np.float16, np.float32, np.float64
BF16 = ml_dtypes.bfloat16


# ulp ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "eps"),
    [
        (F64, F32, 2.0**-23),
        (F32, F64, 2.0**-23),
        (F64, F16, 2.0**-10),
        (F16, F32, 2.0**-10),
        (BF16, F32, 2.0**-7),
        (F64, BF16, 2.0**-7),
        (F64, F64, 2.0**-52),
    ],
    ids=lambda t: getattr(t, "__name__", ""),
)
def test_ulp_is_that_of_the_coarser_type(mine: type, theirs: type, eps: float) -> None:
    """Between 1 and 2 the numbers of a type are its epsilon apart."""
    a, b = np.array([1.0, 1.5]).astype(mine), np.array([1.0, 1.5 * 1.03125]).astype(theirs)
    expected = round(1.5 * 0.03125 / eps)
    found = compare(a, b)
    assert found.ulp == found.ulp_at_index == expected
    assert found.index == (1,)


def test_one_ulp_of_a_double_is_one() -> None:
    a = np.array([1.0, -3e200, 5e-324])
    assert compare(a, np.nextafter(a, np.inf)).ulp == 1
    assert compare(np.array([-5e-324]), np.array([5e-324])).ulp == 2


def test_values_whose_square_overflows_are_compared() -> None:
    found = compare(np.array([1e300, 1e299]), np.array([1.1e300, 1e299]))
    assert found.cos == pytest.approx(1, abs=1e-3) and found.psnr == pytest.approx(23, abs=0.1)


def _scaled(dtype: ir.DataType, factor: float) -> Model:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 8])
    b.output(b.op("Cast", b.op("Mul", x, np.float32(factor)), to=int(dtype), name="y"))
    return Model(model, "onnx")


@pytest.mark.parametrize("mine", [ir.DataType.DOUBLE, ir.DataType.FLOAT], ids=lambda d: d.name)
def test_a_limit_of_ulps_holds_between_types(mine: ir.DataType) -> None:
    """A percent is 100,000 numbers of a float."""
    theirs = ir.DataType.FLOAT if mine == ir.DataType.DOUBLE else ir.DataType.DOUBLE
    for limit in ("ulp=1", "ulp=80000"):
        assert not verify(_scaled(mine, 1), _scaled(theirs, 1.01), metrics=[limit]).passed
    assert verify(_scaled(mine, 1), _scaled(theirs, 1.01), metrics=["ulp=180000"]).passed
    assert verify(_scaled(mine, 1), _scaled(theirs, 1), metrics=["ulp=0"]).passed


def test_roundtrip_says_the_largest_ulp_of_all_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter.save(_scaled(ir.DataType.FLOAT, 3), tmp_path / "a.onnx")
    trip = roundtrip(tmp_path / "a.onnx", "openvino")
    first = trip.numbers.outputs[0]
    other = replace(first, difference=replace(first.difference, ulp=7.0))
    trip = replace(trip, numbers=replace(trip.numbers, outputs=(first, other)))
    assert "(max 7 ulp)" in next(trip.lines())


# numbers that show nothing -----------------------------------------------------------------------


def _roots(rows: int, extra: bool = False) -> Model:
    """Roots of negative numbers in the first rows."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [4, 2])
    signs = np.where(np.arange(4)[:, None] < rows, -1, 1).astype(np.float32)
    b.output(b.op("Sqrt", b.op("Mul", b.op("Add", b.op("Abs", x), 1.0), signs), name="y"))
    if extra:
        b.output(b.op("Abs", x, name="z"))
    return Model(model, "onnx")


def test_nothing_but_nan_is_nothing_compared(tmp_path: Path) -> None:
    with pytest.raises(NothingComparedError, match="NaN or infinite in both") as e:
        verify(_roots(4), _roots(4))
    assert e.value.exit_code == ExitCode.NOTHING_COMPARED == 6


@pytest.mark.parametrize(
    ("model", "said"),
    [(_roots(1), "8 of 32 numbers"), (_roots(4, extra=True), "32 of 32 numbers")],
)
def test_a_part_without_numbers_is_said(model: Model, said: str) -> None:
    result = verify(model, copy_of(model))
    assert result.passed and result.code == ExitCode.OK
    assert any(said in line and '"y"' in line for line in lines(result))


def test_nan_on_one_side_is_a_difference_by_every_metric() -> None:
    a, b = np.array([np.nan, 1, 2, 3]), np.array([0.0, 1, 2, 3])
    for x, y in ((a, b), (b, a)):
        found = compare(x, y)
        limits = {"cos": 0.5, "l2": 1.0, "psnr": 1.0, "ulp": 1e9, "max": 1e9}
        assert set(judge(found, limits)) == set(limits)
    assert not verify(_roots(1), _roots(0), metrics=["cos=0.1"]).passed


def test_an_output_without_elements_is_said() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 3])
    b.output(b.op("Slice", x, b.const([0]), b.const([0]), b.const([0]), name="none"))
    b.output(b.op("Abs", x, name="y"))
    network = Model(model, "onnx")
    assert any("is empty" in line for line in lines(verify(network, copy_of(network))))


# one element -------------------------------------------------------------------------------------


def test_the_worst_element_is_one() -> None:
    """The largest difference is allowed, a smaller one is not."""
    a, b = np.array([1000.0, 1.0]), np.array([1100.0, 1.5])
    found = compare(a, b, np.array([200.0, 0.1]))
    assert (found.index, found.reference, found.candidate) == ((1,), 1.0, 1.5)
    assert found.abs_at_index == 0.5 and found.tolerance == 0.1
    assert found.excess == pytest.approx(found.abs_at_index / found.tolerance)
    assert found.max_abs == 100


def test_text_and_data_speak_of_one_element() -> None:
    def net(add: float) -> Model:
        """Channels of other sizes, each with a tolerance of its own."""
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 2, 1, 4])
        sizes, added = (np.array(v, np.float32).reshape(1, 2, 1, 1) for v in ([1e6, 1], [50, 1]))
        product = b.op("Mul", x, b.const(sizes))
        b.output(b.op("Add", product, b.const(added * np.float32(add)), name="y"))
        return Model(model, "onnx")

    result = verify(net(0), net(0.01), "random")
    (output,) = json.loads(json.dumps(result.as_json()))["outputs"]
    d = output["difference"]
    difference = abs(d["candidate"] - d["reference"])
    assert d["abs_at_index"] == pytest.approx(difference)
    assert d["excess"] == pytest.approx(difference / d["tolerance"])
    assert d["max_abs"] > 10 * difference  # of another element
    (line,) = (line for line in lines(result) if line.startswith("WORST"))
    assert f"{difference:.3g} abs" in line.split(" at [")[0]


# where it is -------------------------------------------------------------------------------------


def test_the_location_is_that_of_the_file_itself(tmp_path: Path) -> None:
    """Though an ONNX file made from another one says where its layers came from."""
    good = perceptron(np.random.default_rng(0))
    converter.save(good, tmp_path / "a.onnx")
    converter.convert(tmp_path / "a.onnx", tmp_path / "a.tflite")
    converter.convert(tmp_path / "a.tflite", tmp_path / "b.onnx")
    proto = onnx.load(tmp_path / "b.onnx")
    assert b"netconv.at" not in proto.SerializeToString()
    weight = next(t for t in proto.graph.initializer if len(t.dims) == 2)
    array = onnx.numpy_helper.to_array(weight).copy()
    array.flat[1] += 0.5
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(proto, tmp_path / "b.onnx")
    user = next(i for i, n in enumerate(proto.graph.node) if weight.name in n.input)
    result = converter.verify(tmp_path / "a.tflite", tmp_path / "b.onnx", native="off")
    assert result.first is not None
    assert result.first.where[0].startswith("subgraphs[0].operators[")
    assert result.first.where[1] == f"graph.node[{user}]"
    text = "\n".join(lines(result))
    assert f"graph.node[{user}]" in text


# rounding ----------------------------------------------------------------------------------------


def test_float64_separates_rounding_from_a_fault(tmp_path: Path) -> None:
    """A sum of equal numbers in floats is off by the same however its terms are moved."""
    model = unchanged.head(7)
    onnx.save(model, tmp_path / "a.onnx")
    network = converter.load(tmp_path / "a.onnx")
    program = Program(network)
    (feed,) = (f.by_value(network) for f in feeds_for(network) if f.name == "ones")
    found = in_doubles(program, program.complete(), [feed])
    assert found is not None
    ((result,),) = found
    session = onnx.reference.ReferenceEvaluator(model)
    (expected,) = session.run(None, {"x": np.ones(feed[network.inputs[0].name].shape, F32)})
    assert result.dtype == F64
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    "kwargs", [{"group": 2}, {"strides": [2, 1]}, {"dilations": [1, 2]}], ids=str
)
def test_convolutions_in_doubles(kwargs: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2, 4, 7, 9])
    w = rng.standard_normal((6, 4 // int(kwargs.get("group", 1)), 3, 2)).astype(F32)
    bias = b.const(rng.standard_normal(6).astype(F32))
    b.output(b.op("Conv", x, b.const(w), bias, pads=[1, 0, 2, 1], name="y", **kwargs))
    network = Model(model, "onnx")
    feed = {"x": rng.standard_normal((2, 4, 7, 9)).astype(F32)}
    program = Program(network)
    found = in_doubles(program, program.complete(), [feed])
    assert found is not None
    np.testing.assert_allclose(found[0][0], network.run(feed)["y"], rtol=1e-4, atol=1e-5)


def test_the_noise_of_an_input_is_its_own() -> None:
    """With any other inputs, so that a case reproduces."""
    good = perceptron(np.random.default_rng(0))
    bad = copy_of(good)
    weight = next(v for v in bad.ir.graph.initializers.values() if v.const_value.size > 8)  # type: ignore[union-attr]
    weight.const_value = ir.tensor(weight.const_value.numpy() * F32(1 + 1e-5))  # type: ignore[union-attr]
    result = verify(good, bad)
    feed = next(f for f in feeds_for(good) if f.name == result.outputs[0].feed)
    alone = verify(good, bad, feed.arrays)
    assert alone.outputs[0].difference.tolerance == result.outputs[0].difference.tolerance


def test_a_tolerance_that_was_chosen_is_no_fault_of_the_reader(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    onnx.save(unchanged.head(3), tmp_path / "a.onnx")
    converter.convert(tmp_path / "a.onnx", tmp_path / "a.tflite")
    result = converter.verify(
        tmp_path / "a.onnx", tmp_path / "a.tflite", native="on", metrics=["ulp=0.001"]
    )
    assert not result.passed
    said = [d for d in result.diagnostics if d.level == "error"]
    assert said and {d.code for d in said} == {"N401"}
    assert not any("report" in f"{d.message} {d.help}" for d in said)


# reduce ------------------------------------------------------------------------------------------


def _slightly_other(factor: float) -> tuple[Model, Model]:
    good = perceptron(np.random.default_rng(0))
    bad = copy_of(good)
    value = next(v for v in bad.ir.graph.initializers.values() if v.const_value.size > 8)  # type: ignore[union-attr]
    value.const_value = ir.tensor(value.const_value.numpy() * F32(factor))  # type: ignore[union-attr]
    return good, bad


def _again(folder: Path, command: str) -> int:
    """The result of the command of a README; only the options that it may have."""
    words = command.split()
    assert words[:4] == ["netconv", "verify", "reference.onnx", "candidate.onnx"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    found = converter.verify(
        folder / words[2],
        folder / words[3],
        str(folder / options.pop("--data")),
        native="off",
        **{k[2:]: v.strip("'") for k, v in options.items() if k != "--metric"},
        metrics=[options["--metric"]] if "--metric" in options else [],
    )
    return int(found.code)


@pytest.mark.parametrize(
    ("factor", "options"),
    [(1.3, {}), (1 + 3e-6, {"atol": "1e-12"}), (1 + 1e-5, {"metrics": ["ulp=0"]})],
    ids=["measured", "atol", "ulp"],
)
def test_a_case_reproduces_its_verdict(
    factor: float, options: dict[str, object], tmp_path: Path
) -> None:
    found = reduce.reduce(*_slightly_other(factor), **options)
    assert found is not None
    case = reduce.write(found, tmp_path / "case", ("a.onnx", "b.onnx"))
    assert case.reproduced and case.result.code == found.result.code
    readme = (tmp_path / "case" / "README.md").read_text()
    assert case.command in readme
    assert _again(tmp_path / "case", case.command) == int(found.result.code)


def test_a_case_carries_the_tolerance_that_was_measured(tmp_path: Path) -> None:
    """The files alone would be judged by their own noise."""
    good, bad = _slightly_other(1 + 1e-6)
    found = verify(good, bad)
    (output,) = found.outputs
    feed = feeds_for(good)[0].arrays
    tight = replace(output.difference, tolerance=1e-12, excess=1e3, abs_at_index=1e-9)
    result = replace(
        found, passed=False, outputs=(replace(output, passed=False, difference=tight),)
    )
    case = reduce.write(
        reduce.Reduced(good, bad, feed, result), tmp_path / "case", ("a.onnx", "b.onnx")
    )
    assert case.reproduced and "--atol" in case.command


def test_a_case_that_does_not_reproduce_says_so(tmp_path: Path) -> None:
    good = perceptron(np.random.default_rng(0))
    result = replace(verify(*_slightly_other(1.3)), measured=False)
    feed = feeds_for(good)[0].arrays
    reduced = reduce.Reduced(good, copy_of(good), feed, result)
    case = reduce.write(reduced, tmp_path / "case", ("a.onnx", "b.onnx"))
    assert not case.reproduced
    assert "do not differ as before" in (tmp_path / "case" / "README.md").read_text()


# weights that are stored in few bits -------------------------------------------------------------


def _product(form: str) -> Model:
    rng = np.random.default_rng(0)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 128])
    halves = rng.standard_normal((128, 64)).astype(F16)
    quantized = rng.integers(-127, 128, (128, 64)).astype(np.int8)
    steps = (rng.random(64) * 0.01 + 0.001).astype(F32)
    blocks = (rng.random((4, 64)) * 0.1 + 0.01).astype(F32)
    nibbles = (quantized // 16).astype(np.int8)
    w: object
    match form:
        case "half":
            w = b.op("Cast", b.const(halves), to=int(ir.DataType.FLOAT))
        case "half plain":
            w = b.const(halves.astype(F32))
        case "int8":
            w = b.op("DequantizeLinear", b.const(quantized), b.const(steps), axis=1)
        case "int8 plain":
            w = b.const(quantized.astype(F32) * steps)
        case "blocks":
            w = b.op("DequantizeLinear", b.const(nibbles), b.const(blocks), axis=0, block_size=32)
        case "chain":
            parts = b.op("Cast", b.const(nibbles), to=int(ir.DataType.FLOAT))
            parts = b.op("Reshape", parts, b.const([4, 32, 64]))
            parts = b.op("Mul", parts, b.const(blocks[:, None]))
            w = b.op("Reshape", parts, b.const([128, 64]))
        case _:
            w = nibbles.astype(F32) * np.repeat(blocks, 32, 0)
            w[3, 5] += 0.1 if form == "blocks other" else 0  # type: ignore[index]
            w = b.const(w)
    b.output(b.op("MatMul", x, w, name="y"))
    return Model(model, "onnx")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("half", "half plain"),
        ("int8", "int8 plain"),
        ("blocks", "blocks plain"),
        ("chain", "blocks plain"),
        ("chain", "blocks"),
    ],
)
def test_equal_weights_are_equal_however_they_are_stored(a: str, b: str) -> None:
    assert diff(_product(a), _product(b)) == [] == diff(_product(b), _product(a))


@pytest.mark.parametrize("form", ["blocks", "chain"])
def test_other_weights_after_scales_are_found(form: str) -> None:
    (change,) = diff(_product(form), _product("blocks other"))
    assert "[3,5]" in change.details[0]


def test_reported_bytes_of_weights_are_those_of_the_file(tmp_path: Path) -> None:
    converter.save(_product("half"), tmp_path / "a.onnx")
    converter.convert(tmp_path / "a.onnx", tmp_path / "a.xml")
    for name in ("a.onnx", "a.xml"):
        assert summary(converter.load(tmp_path / name))["weights"]["bytes"] == 128 * 64 * 2
        assert costs(converter.load(tmp_path / name).ir).weight_bytes == 128 * 64 * 2
    assert (tmp_path / "a.bin").stat().st_size == 128 * 64 * 2


def test_a_text_has_no_unknown_size() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.INT64, [1, 4])
    keys, words = np.array([0, 1]), np.array(["cat", "dog"], object)
    y = b.op(
        "LabelEncoder",
        x,
        domain="ai.onnx.ml",
        keys_int64s=keys.tolist(),
        values_strings=words.tolist(),
        name="y",
    )
    b.output(y)
    assert costs(model).peak_bytes == 4 * 8


# engines -----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "darwin", reason="Core ML runs there")
def test_an_engine_that_cannot_run_is_nothing_compared() -> None:
    model = perceptron(np.random.default_rng(0))
    with pytest.raises(NothingComparedError) as e:
        run.run(model, feeds_for(model), "coreml")
    assert e.value.exit_code == 6


# unchanged pairs, and faults in quantized networks -----------------------------------------------


def _alarms(pairs: object, folder: Path, native: str = "off") -> list[str]:
    found = []
    compared = 0
    for what, path, target in pairs:  # type: ignore[attr-defined]
        said = unchanged.compared(path, target, path, folder, native)
        compared += not said.startswith("refused")
        if said and not said.startswith("refused"):
            found.append(f"{what} {target}: {said}")
    assert compared
    return found


@pytest.mark.parametrize("seed", [2, 7, 17])
def test_the_error_of_the_reference_is_no_difference(seed: int, tmp_path: Path) -> None:
    """On inputs of ones its mean of the image is off by some ulp, wherever it is moved."""
    onnx.save(unchanged.head(seed), tmp_path / "a.onnx")
    converter.convert(tmp_path / "a.onnx", tmp_path / "a.txt")
    result = converter.verify(tmp_path / "a.onnx", tmp_path / "a.txt", native="off")
    assert result.passed and result.code == ExitCode.OK
    faulty = unchanged.head(seed)
    weight = next(t for t in faulty.graph.initializer if len(t.dims) == 4)
    array = onnx.numpy_helper.to_array(weight) * F32(1 + 1e-4)
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(faulty, tmp_path / "b.onnx")
    converter.convert(tmp_path / "b.onnx", tmp_path / "b.txt")
    assert not converter.verify(tmp_path / "a.onnx", tmp_path / "b.txt", native="off").passed


def test_a_step_at_a_tie_may_lead_to_more(tmp_path: Path) -> None:
    """Sums of two 8-bit numbers are ties every other time; the consumer multiplies by ten."""

    def net(half: float) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.INT8, [1, 4, 8, 8])
        one, two = b.const(np.float32(0.5)), b.const(np.float32(1.0))
        zero = b.const(np.int8(0))
        y = b.op("Mul", b.op("DequantizeLinear", x, one, zero), b.const(np.float32(1 + half)))
        y = b.op("DequantizeLinear", b.op("QuantizeLinear", y, two, zero, name="q"), two, zero)
        y = b.op("Mul", y, b.const(np.float32(10)))
        b.output(b.op("QuantizeLinear", y, b.const(np.float32(5)), zero, name="y"))
        return Model(model, "onnx")

    result = verify(net(0), net(1e-6))  # ties fall up
    assert result.outputs[0].difference.max_abs == 2
    assert result.passed and not result.findings
    assert not verify(net(0), net(0.02)).passed  # no ties are met


def test_a_few_unchanged_pairs_raise_no_alarm(tmp_path: Path) -> None:
    assert _alarms(unchanged.pairs(2, 1, tmp_path), tmp_path) == []


@pytest.mark.slow
def test_classifiers_raise_no_alarm(tmp_path: Path) -> None:
    assert _alarms(unchanged.pairs(25, 0, tmp_path), tmp_path) == []


@pytest.mark.slow
def test_quantized_networks_raise_no_alarm(tmp_path: Path) -> None:
    assert _alarms(unchanged.pairs(0, 12, tmp_path), tmp_path) == []


def _missed(count: int, folder: Path) -> tuple[int, list[str]]:
    planted, missed = 0, []
    for what, reference, path, target in unchanged.planted(count, folder):
        said = unchanged.compared(reference, target, path, folder, "off")
        planted += not said.startswith("refused")
        if not said:
            missed.append(f"{what} {target}")
    return planted, missed


def test_a_few_faults_of_quantized_networks_are_found(tmp_path: Path) -> None:
    planted, missed = _missed(1, tmp_path)
    assert planted >= 3 and missed == []


@pytest.mark.slow
def test_faults_of_quantized_networks_are_found(tmp_path: Path) -> None:
    planted, missed = _missed(10, tmp_path)
    assert planted >= 30 and missed == []
