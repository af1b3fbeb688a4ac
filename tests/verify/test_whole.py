"""Whole comparisons of small models: verdicts, tolerances, causes, alignment, results as data."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.commands.diff import diff
from converter.commands.verify import verify
from converter.commands.verify.text import headline, lines
from converter.errors import ExitCode, NothingComparedError, ReadError, UsageError
from converter.graph.build import new_model
from converter.graph.names import set_public_name
from converter.io.resources import schema_path
from converter.passes.unroll import unroll
from support import ROOT
from verify.nets import copy_of, mobilenet, recurrent, resnet


def _net(alpha: float = 0.1, name: str = "y") -> Model:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    b.output(b.op("LeakyRelu", b.op("Add", x, -0.5), alpha=alpha, name=name))
    return Model(model, "onnx")


def test_equal_models_pass() -> None:
    result = verify(_net(), _net())
    assert result.passed and result.max_difference == 0 and not result.findings


def test_a_different_constant_is_found_with_its_cause() -> None:
    result = verify(_net(0.1), _net(0.2))
    assert not result.passed and result.max_difference > 0.01
    assert result.first is not None and result.first.layer == "y"
    assert result.first.causes == ("alpha  0.1 became 0.2",)
    assert "LeakyRelu" in headline(result)


def test_a_tolerance_of_the_user_replaces_the_noise() -> None:
    assert verify(_net(0.1), _net(0.2), atol=10).passed
    assert verify(_net(0.1), _net(0.2), atol="y:10").passed
    assert not verify(_net(0.1), _net(0.2), atol=["y:10", "y:1e-3"]).passed


def test_a_tolerance_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(NothingComparedError):
        verify(_net(), _net(), rtol="prob*:1e-3")


@pytest.mark.parametrize("wrong", ["x", "y:", "y:-1"])
def test_a_tolerance_that_is_not_a_number(wrong: str) -> None:
    with pytest.raises(UsageError):
        verify(_net(), _net(), rtol=wrong)


def test_metrics_must_hold_besides() -> None:
    a, b = _net(0.1), _net(0.11)
    assert verify(a, b, metrics=["cos=0.9"]).passed
    assert not verify(a, b, metrics=["cos=0.9", "ulp=1"]).passed
    assert verify(a, b, metrics=["ulp=1"]).outputs[0].broken == ("ulp",)
    with pytest.raises(UsageError, match="perhaps you meant 'cos'"):
        verify(a, b, metrics=["coss"])


def test_nothing_in_common_is_not_a_pass() -> None:
    model, b = new_model()
    b.output(b.op("Abs", b.input("x", ir.DataType.FLOAT, [3, 7]), name="z"))
    with pytest.raises(NothingComparedError):
        verify(_net(), Model(model, "onnx"))
    with pytest.raises(NothingComparedError):
        verify(_net(), _net(), tensors="nothing*")


def test_a_single_output_is_aligned_by_any_name() -> None:
    assert verify(_net(name="y"), _net(name="other")).outputs[0].candidate == "other"


def test_a_map_aligns_by_hand() -> None:
    a, b = _net(name="y"), _net(name="z")
    assert verify(a, b, map={"y": "z"}).passed
    with pytest.raises(UsageError):
        verify(a, b, map={"nobody": "z"})


def test_a_dropped_dimension_of_one_is_no_difference() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [4])
    b.output(b.op("LeakyRelu", b.op("Add", x, -0.5), alpha=0.1, name="y"))
    assert verify(_net(), Model(model, "onnx"), tensors="all").passed


def test_a_transposed_output_is_a_difference() -> None:
    def net(flip: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [2, 3])
        y = b.op("Exp", x, name="e")
        b.output(
            b.op("Transpose", y, perm=[1, 0], name="y") if flip else b.op("Identity", y, name="y")
        )
        return Model(model, "onnx")

    result = verify(net(False), net(True))
    assert not result.passed and result.outputs[0].difference.note == "shape [2, 3] became [3, 2]"


def test_half_precision_weights_are_within_their_own_noise() -> None:
    rng = np.random.default_rng(0)
    model, candidate = resnet(rng), None
    candidate = copy_of(model)
    for v in candidate.ir.graph.initializers.values():
        if v.const_value is not None and v.const_value.dtype == ir.DataType.FLOAT:
            v.const_value = ir.Tensor(v.const_value.numpy().astype(np.float16).astype(np.float32))
    assert not verify(
        model, candidate
    ).passed  # nothing says that it is half precision: a real difference
    for v in list(candidate.ir.graph.initializers.values()):
        if v.const_value is not None and v.const_value.dtype == ir.DataType.FLOAT:
            half = ir.Value(
                name=f"{v.name}_h",
                const_value=ir.Tensor(v.const_value.numpy().astype(np.float16)),
                type=ir.TensorType(ir.DataType.FLOAT16),
            )
            half.shape = v.shape
            candidate.ir.graph.register_initializer(half)
            cast = ir.Node(
                "", "Cast", [half], [ir.AttrInt64("to", int(ir.DataType.FLOAT))], num_outputs=1
            )
            cast.outputs[0].name, cast.outputs[0].type, cast.outputs[0].shape = (
                f"{v.name}_f",
                v.type,
                v.shape,
            )
            candidate.ir.graph.insert_before(candidate.ir.graph[0], cast)
            v.replace_all_uses_with(cast.outputs[0])
    result = verify(model, candidate, tensors="all")
    assert result.passed and result.max_difference > 0, result.first


def test_infinity_is_never_the_same_as_a_number() -> None:
    """A loop rounds its state to halves after every turn; the engine keeps the same layers written
    out in floats, where 90000 is finite.
    """

    def net(last: float) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT16, [4])
        body = b.body("body")
        body.input("turn", ir.DataType.INT64, [])
        go, state = (
            body.input("go", ir.DataType.BOOL, []),
            body.input("state", ir.DataType.FLOAT16, [4]),
        )
        body.output(go, body.op("Mul", state, np.float16(300)))
        y = b.op("Loop", b.const(np.array(2)), b.const(np.array(True)), x, body=body.graph)
        b.output(b.op("Mul", y, np.float16(last), name="y"))
        return Model(model, "onnx")

    def flat(last: float) -> Model:
        model = net(last)
        assert unroll(model.ir)
        return model

    large, small = {"x": np.ones(4, np.float16)}, {"x": np.full(4, 0.1, np.float16)}
    assert net(0.001).run(large)["y"][0] == np.inf and 89 < flat(0.001).run(large)["y"][0] < 91
    for tensors in ("outputs", "all"):
        assert verify(net(0.001), flat(0.001), small, tensors=tensors).passed
        assert not verify(net(0.001), flat(0.002), small, tensors=tensors).passed
        assert not verify(net(0.001), flat(0.001), large, tensors=tensors).passed


def test_a_half_elsewhere_excuses_nothing() -> None:
    """Every tensor is judged by the types that it is computed in."""

    def net(alpha: float, half: bool = True) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 8])
        b.output(b.op("LeakyRelu", x, alpha=alpha, name="y"))
        if half:
            b.output(b.op("Cast", x, to=int(ir.DataType.FLOAT16), name="half"))
        return Model(model, "onnx")

    assert verify(net(0.1), net(0.1)).passed
    result = verify(net(0.1), net(0.10001))
    assert not result.passed and result.first is not None and result.first.layer == "y"
    assert {o.reference: o.passed for o in result.outputs} == {"y": False, "half": True}


def test_a_layer_in_halves_has_the_noise_of_halves() -> None:
    def net(half: bool, scale: float = 1.0) -> Model:
        model, b = new_model()
        x = b.op("Tanh", b.input("x", ir.DataType.FLOAT, [1, 64]), name="t")
        if half:
            x = b.op("Cast", x, to=int(ir.DataType.FLOAT16), name="narrow")
            x = b.op("Cast", x, to=int(ir.DataType.FLOAT), name="wide")
        x = b.op("Exp", b.op("Mul", x, np.float32(scale), name="m"), name="e")
        b.output(b.op("LayerNormalization", x, np.ones(64, np.float32), axis=-1, name="y"))
        return Model(model, "onnx")

    result = verify(net(False), net(True))
    assert result.passed and result.max_difference > 1e-5
    assert not verify(net(False), net(True, 1.1)).passed


def test_a_fused_layer_that_keeps_a_name_is_not_a_fault() -> None:
    """The candidate fused Relu into the convolution and calls the result by the convolution's
    name.
    """
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    y = b.op("Relu", b.op("Add", x, 0.5, name="conv"), name="act")
    b.output(b.op("Exp", b.op("Neg", y, name="n"), name="out"))
    candidate = copy_of(Model(model, "onnx"))
    values = {o.name: o for n in candidate.ir.graph for o in n.outputs}
    values["conv"].name, values["act"].name = "inner", "conv"
    result = verify(Model(model, "onnx"), candidate, tensors="all")
    assert result.passed, result.first


def test_a_folded_layer_that_keeps_a_name_is_not_a_fault() -> None:
    """The candidate folded the scaling into the weights and calls the result by the convolution's
    name.
    """

    def net(fold: bool, wrong: float = 0.0) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [2, 8])
        w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
        s = np.random.default_rng(1).random(8).astype(np.float32) + 0.5
        y = b.op("MatMul", x, b.const(w * s + np.float32(wrong) if fold else w), name="dense")
        y = y if fold else b.op("Mul", y, s, name="scaled")
        b.output(b.op("Exp", b.op("Tanh", y, name="act"), name="out"))
        return Model(model, "onnx")

    assert verify(net(False), net(True), tensors="all").passed
    result = verify(net(False), net(True, 0.1), tensors="all")
    assert result.first is not None and result.first.layer == "dense"


def test_two_layers_that_make_up_for_each_other_are_no_fault() -> None:
    """The candidate divides the bias of a local response by itself, and multiplies after it."""

    def net(divided: bool, alpha: float = 1.0) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 4, 3, 3])
        a = {"alpha": alpha / 2, "bias": 1.0} if divided else {"alpha": alpha, "bias": 2.0}
        y = b.op("LRN", x, size=3, beta=0.5, name="norm", **a)
        y = b.op("Mul", y, np.float32(0.5**0.5), name="scaled") if divided else y
        b.output(b.op("Elu", y, alpha=1.0, name="y"))
        return Model(model, "onnx")

    assert verify(net(False), net(True), tensors="all").passed
    assert not verify(net(False), net(True, 1.5), tensors="all").passed


def test_names_that_only_count_align_nothing_where_few_are_the_same() -> None:
    """The candidate has more nodes, so that those of one name are others; their shapes fit."""

    def net(long: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 4])
        y = b.op("Tanh", x)
        for _ in range(4 if long else 1):
            y = b.op("Add", y, np.float32(1 if long else 4))
        b.output(b.op("Exp", b.op("Sin", b.op("Abs", y)), name="y"))
        for i, n in enumerate(model.graph):
            n.name = f"node_{n.op_type}_{i}"
        return Model(model, "onnx")

    result = verify(net(False), net(True), tensors="all")
    assert result.passed, result.findings


def test_a_constant_output_may_be_a_rounding_off() -> None:
    def net(value: np.ndarray) -> Model:
        model, b = new_model()
        b.output(b.op("Neg", b.input("x", ir.DataType.FLOAT, [2]), name="y"))
        b.output(b.op("Identity", b.const(value), name="fixed"))
        return Model(model, "onnx")

    value = np.array([0.50773185], np.float32)
    assert verify(net(value), net(np.nextafter(value, np.float32(1)))).passed
    assert not verify(net(value), net(value + np.float32(1e-5))).passed


@pytest.mark.parametrize("name", ["Gelu", "Elu", "Asinh", "Softplus"])
def test_differences_of_nearly_equal_terms_are_rounding(name: str) -> None:
    """One small number alone, by a kernel and by the formula; another function is found."""

    def net(form: str) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1])
        one = b.const(np.array([1], np.float32))
        if form == "kernel":
            y = b.op(name, x)
        elif name == "Gelu":
            inner = b.op("Erf", b.op("Mul", x, np.float32(0.5**0.5)))
            y = b.op("Mul", b.op("Mul", x, np.float32(0.5)), b.op("Add", inner, one))
        elif name == "Elu":
            y = b.op("Sub", b.op("Exp", x), one)
        elif name == "Asinh":
            y = b.op("Log", b.op("Add", x, b.op("Sqrt", b.op("Add", b.op("Mul", x, x), one))))
        else:
            y = b.op("Log", b.op("Add", b.op("Exp", x), one))
        b.output(b.op("Mul", y, np.float32(1.001 if form == "wrong" else 1), name="y"))
        return Model(model, "onnx")

    x = {"Gelu": -5.1, "Elu": -3e-4, "Asinh": 3e-4, "Softplus": -9.0}[name]
    data = {"x": np.array([x], np.float32)}
    assert verify(net("kernel"), net("formula"), data).passed
    clear = {"x": np.array([-1.0 if name in ("Gelu", "Elu") else 1.0], np.float32)}
    assert not verify(net("kernel"), net("wrong"), clear).passed


def test_a_mean_of_numbers_that_are_all_the_same_rounds() -> None:
    """At a bound nothing moves with the inputs, and the distance to the mean is its rounding."""

    def net(mean: str) -> Model:
        model, b = new_model()
        x = b.op("Clip", b.input("x", ir.DataType.FLOAT, [1, 6]), None, np.float32(-5.3))
        x = b.op("Mul", x, np.float32(0.7))
        total = b.op(mean, x, b.const([1]), keepdims=1)
        if mean == "ReduceSum":
            total = b.op("Mul", total, np.float32(1 / 6))
        b.output(b.op("Sub", x, total, name="y"))
        return Model(model, "onnx")

    assert verify(net("ReduceMean"), net("ReduceSum")).passed


def test_constant_data_are_normalized_to_rounding() -> None:
    """Divided by the root of epsilon, the rounding of a mean is 316 times as large."""

    def net(layers: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 48])
        x = b.op("Acos", b.op("Clip", x, None, np.float32(-0.9)))
        if layers:
            y = b.op("LayerNormalization", x, np.ones(48, np.float32), axis=1, epsilon=1e-5)
        else:
            total = b.op("ReduceSum", x, b.const([1]), keepdims=1)
            y = b.op("Sub", x, b.op("Mul", total, np.float32(1 / 48)))
            variance = b.op("ReduceMean", b.op("Mul", y, y), b.const([1]), keepdims=1)
            y = b.op("Div", y, b.op("Sqrt", b.op("Add", variance, np.float32(1e-5))))
        b.output(b.op("Identity", y, name="y"))
        return Model(model, "onnx")

    assert verify(net(True), net(False), {"x": np.full((1, 48), -1, np.float32)}).passed


@pytest.mark.parametrize("changed", ["", "weights", "pads"])
def test_a_bias_that_is_added_later_is_the_same(changed: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)

    def net(apart: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 3, 6, 6])
        weights = w.copy()
        weights[0, 0, 0, 0] += np.float32(0.1) if apart and changed == "weights" else 0
        pads = [2, 1, 0, 1] if apart and changed == "pads" else [1, 1, 1, 1]
        if apart:
            y = b.op("Conv", x, weights, pads=pads)
            y = b.op("Add", y, bias.reshape(1, 4, 1, 1), name="layer")
        else:
            y = b.op("Conv", x, weights, bias, pads=pads, name="layer")
        # the outputs do not feel one number
        y = b.op("Mul", b.op("Relu", y, name="act"), np.float32(1e-9))
        b.output(b.op("Add", b.op("ReduceSum", x), b.op("ReduceMean", y), name="y"))
        return Model(model, "onnx")

    result = verify(net(False), net(True))
    assert result.passed == (not changed)
    if changed:
        assert result.first is not None and result.first.layer == "layer"
        cause = result.first.causes[0]
        assert cause.startswith("pads") if changed == "pads" else "[0,0,0,0]" in cause


def test_a_scalar_stays_one() -> None:
    """A sum over the first axis of an expanded scalar, and the same by a product."""

    def net(kind: str) -> Model:
        model, b = new_model()
        x = b.op("Unsqueeze", b.input("x", ir.DataType.FLOAT, []), b.const([-1]))
        y = b.op("Expand", x, b.const([3]))
        upper = np.triu(np.ones((3, 3), np.float32))
        b.output(
            b.op("CumSum", y, b.const(0), name="y")
            if kind == "CumSum"
            else b.op("MatMul", y, b.const(upper), name="y")
        )
        return Model(model, "onnx")

    assert verify(net("CumSum"), net("MatMul")).passed


def test_several_results_in_halves_have_the_noise_of_halves() -> None:
    def net(half: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [2, 8])
        if half:
            x = b.op("Cast", x, to=int(ir.DataType.FLOAT16))
        parts = b.ops("Split", x, axis=1, num_outputs=2, outputs=2)
        for i, y in enumerate(parts):
            y = b.op("Cast", y, to=int(ir.DataType.FLOAT)) if half else y
            b.output(b.op("Exp", y, name=f"y{i}"))
        return Model(model, "onnx")

    assert verify(net(False), net(True)).passed


def test_a_weight_that_no_output_shows_is_found_all_the_same() -> None:
    def net(value: float) -> Model:
        model, b = new_model()
        y = b.op(
            "Add",
            b.input("x", ir.DataType.FLOAT, [1, 4]),
            np.array([value, 0, 0, 0], np.float32),
            name="sum",
        )
        b.output(b.op("Relu", y, name="y"))
        return Model(model, "onnx")

    result = verify(net(-500), net(-900))
    assert (
        result.max_difference == 0
        and not result.passed
        and result.first is not None
        and result.first.layer == "sum"
    )


def test_integers_are_compared_in_steps() -> None:
    def net(offset: int) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.INT32, [5])
        b.output(b.op("Add", x, b.const(np.array(offset, np.int32)), name="y"))
        return Model(model, "onnx")

    assert verify(net(1), net(1)).passed
    result = verify(net(1), net(2))
    assert not result.passed and result.outputs[0].difference.ulp == 1


def test_only_isolation_separates_own_from_inherited_errors() -> None:
    rng = np.random.default_rng(1)
    model = mobilenet(rng)
    candidate = copy_of(model)
    next(n for n in candidate.ir.graph if n.op_type == "HardSigmoid").attributes["alpha"] = (
        ir.AttrFloat32("alpha", 0.5)
    )
    result = verify(model, candidate, tensors="all")
    counts = result.counts()
    assert counts["wrong"] == 1 and counts["inherited"] > 5 and counts["equal"] > 3
    assert not verify(model, candidate, mode="chain", tensors="all").findings
    assert len(list(lines(result))) <= 12


def test_the_result_follows_its_schema() -> None:
    schema = json.loads(schema_path("report", "verify.json").read_text())
    rng = np.random.default_rng(2)
    model = recurrent(rng)
    for result in (verify(model, copy_of(model)), verify(_net(), _net(0.3), tensors="all")):
        data = json.loads(json.dumps(result.as_json(), allow_nan=False))
        jsonschema.validate(data, schema)


def test_repeated_output_names_are_numbered() -> None:
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [3])
    y, z = b.op("Exp", x, name="a"), b.op("Abs", x, name="b")
    b.output(y, z)
    for v in (y, z):
        set_public_name(v, "same")
    result = verify(Model(model, "onnx"), copy_of(Model(model, "onnx")))
    assert result.passed and len(result.outputs) == 2


def test_wrong_tensors_are_kept(tmp_path: Path) -> None:
    verify(_net(0.1), _net(0.2), keep_tensors=tmp_path)
    with np.load(tmp_path / "000.npz") as kept:
        assert str(kept["tensor"]) == "y" and kept["expected"].shape == (1, 4)


def test_data_of_every_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((1, 4), np.float32))
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    a = _net()
    assert verify(a, a, {"x": np.zeros((1, 4))}).feeds == ("given",)
    assert verify(a, a, str(tmp_path / "a.npz")).feeds == ("a.npz",)
    assert verify(a, a, tmp_path).feeds == ("a.npz",)
    assert verify(a, a, f"x={tmp_path / 'x.npy'}").passed
    assert len(verify(a, a, ["x=edge", "random"]).feeds) == 7
    with pytest.raises(ReadError):
        verify(a, a, str(tmp_path / "absent.npz"))
    with pytest.raises(UsageError):
        verify(a, a, "z=random")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(ReadError):
        verify(a, a, str(tmp_path / "broken.npz"))


def _unfelt(bias: float) -> Model:
    """The bias is lost in the part that Relu clamps."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 4])
    y = b.op("Add", x, np.array([-50, bias, -50, -50], np.float32), name="shifted")
    b.output(b.op("Add", b.op("Relu", y, name="cut"), x, name="y"))
    return Model(model, "onnx")


def test_a_fault_that_no_output_shows_has_its_own_code() -> None:
    assert verify(_unfelt(-50), _unfelt(-50)).code == ExitCode.OK
    result = verify(_unfelt(-50), _unfelt(-90))
    assert all(o.passed for o in result.outputs) and not result.passed and result.unfelt
    assert result.code == ExitCode.UNFELT == 9
    assert [d.code for d in result.diagnostics] == ["N408"]
    assert (
        list(lines(result))[-1]
        == 'hidden difference: outputs are equal, but 1 layer differs: "shifted"'
    )
    assert "-50 became -90" in headline(result)
    named = verify(_unfelt(-50), _unfelt(-90), tensors="all")
    assert named.code == ExitCode.FINDING and not named.unfelt
    assert verify(_unfelt(-50), _unfelt(-90), metrics=["cos"]).passed


def test_an_explicit_default_is_no_difference() -> None:
    """Nor are axes counted from the end, sizes for factors, or bounds that nothing passes."""

    def net(spelled: bool) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 2, 6, 6])
        w = b.const(np.ones((2, 2, 3, 3), np.float32), "w")
        full = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "kernel_shape": [3, 3]}
        bias = b.const(np.zeros(2, np.float32), "bias") if spelled else None
        y = b.op("Conv", x, w, bias, name="conv", **(full if spelled else {}))
        y = b.op("Softmax", y, axis=1 if spelled else -3, name="soft")
        y = b.op("ReduceMean", y, b.const([3, 2] if spelled else [-2, -1]), name="mean")
        low = b.const(np.array(-np.inf, np.float32)) if spelled else None
        y = b.op("Clip", y, low, np.float32(1), name="clip")
        scales = b.const(np.array([1, 1, 2, 2], np.float32)) if spelled else None
        sizes = None if spelled else b.const([1, 2, 2, 2])
        y = b.op("Resize", y, None, scales, sizes, mode="nearest", name="up")
        ends = b.const([9] if spelled else [2])
        y = b.op("Slice", y, b.const([0]), ends, b.const([2 if spelled else -2]), name="cut")
        perm = {"perm": [3, 2, 1, 0]} if spelled else {}
        b.output(b.op("Transpose", y, name="y", **perm))
        return Model(model, "onnx")

    assert diff(net(True), net(False)) == [] == diff(net(False), net(True))


def test_causes_are_ranked_and_all_wrong_layers_are_listed() -> None:
    def net(alpha: float, weight: float, last: float) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [2, 3])
        w = weight * np.where(np.eye(3) > 0, 1, -1)
        y = b.op("Gemm", x, b.const(w.astype(np.float32), "w"), alpha=alpha, name="g")
        b.output(b.op("LeakyRelu", y, alpha=last, name="y"))
        return Model(model, "onnx")

    result = verify(net(1.0, 0.5, 0.1), net(1.5, 0.25, 0.2))
    assert [f.layer for f in result.findings] == ["g", "y"]
    assert result.first is not None
    assert [c.split()[0] for c in result.first.causes] == ["B", "alpha"]
    text = list(lines(result))
    assert text[1].startswith('FIRST  layer 0 "g" Gemm') and " %)" in text[1]
    assert any(line.startswith('ALSO   layer 1 "y" LeakyRelu') for line in text)
    assert 'layer "g"' in headline(result)


def test_a_folded_layer_is_explained_by_the_change_that_gives_its_numbers() -> None:
    rng = np.random.default_rng(3)
    scale, shift, mean, variance = (rng.random(4) + 0.5 for _ in range(4))

    def net(folded: bool, epsilon: float = 1e-5, part: float = 1.0) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 4, 3, 3])
        if folded:
            factor = (scale * part / np.sqrt(variance + epsilon)).reshape(-1, 1, 1)
            y = b.op("Mul", x, b.const(factor.astype(np.float32)))
            offset = shift.reshape(-1, 1, 1) - mean.reshape(-1, 1, 1) * factor
            b.output(b.op("Add", y, b.const(offset.astype(np.float32)), name="bn"))
        else:
            weights = (v.astype(np.float32) for v in (scale, shift, mean, variance))
            b.output(b.op("BatchNormalization", x, *weights, epsilon=epsilon, name="bn"))
        return Model(model, "onnx")

    assert verify(net(False), net(True)).passed
    for cause, candidate in (
        ("epsilon  1e-05 became 0.001", net(True, 1e-3)),
        ("scale (const) ", net(True, part=-1.0)),
    ):
        first = verify(net(False), candidate).first
        assert first is not None and len(first.causes) == 1 and first.causes[0].startswith(cause)


def test_inner_tensors_in_another_order_are_no_difference() -> None:
    """The candidate stores them transposed under the same names; all shapes are alike."""
    w = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)

    def net(turned: bool, wrong: float = 0.0) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 6, 6])
        y = b.op("MatMul", x, b.const(w + np.float32(wrong), "w"), name="m" if turned else "a")
        y = b.op("Transpose", y, perm=[0, 2, 1], name="a") if turned else y
        y = b.op("Relu", y, name="r")
        y = y if turned else b.op("Transpose", y, perm=[0, 2, 1], name="t")
        y = b.op("Sigmoid", y, name="s")
        b.output(b.op("Transpose", y, perm=[0, 2, 1], name="y"))
        return Model(model, "onnx")

    for tensors in ("outputs", "all"):
        for pair in ((net(False), net(True)), (net(True), net(False))):
            assert verify(*pair, tensors=tensors).passed
        assert not verify(net(False), net(True, 0.1), tensors=tensors).passed


def test_labels_are_compared_as_texts() -> None:
    def net(*labels: str) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 3])
        best = b.op("ArgMax", x, axis=1, keepdims=0, name="best")
        table = b.const(np.array(labels, object), "labels")
        b.output(b.op("Gather", table, best, name="label"), b.op("Softmax", x, name="p"))
        return Model(model, "onnx")

    for tensors in ("outputs", "all"):
        assert verify(net("a", "b", "c"), net("a", "b", "c"), tensors=tensors).passed
        result = verify(net("a", "b", "c"), net("d", "b", "c"), tensors=tensors)
        assert [o.reference for o in result.outputs if not o.passed] == ["label"]
        assert result.first is not None and result.first.causes == (
            "data (labels)  strings differ",
        )
        assert any("a became d" in line for line in lines(result))
        json.dumps(result.as_json(), allow_nan=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("target", "suffix"),
    [
        ("openvino+fp16", ".xml"),
        ("openvino+ir=7+fp16", ".xml"),
        ("tflite+fp16", ".tflite"),
        ("coreml+fp16", ".mlmodel"),
    ],
)
def test_weights_rounded_to_halves_are_within_their_own_step(
    target: str, suffix: str, tmp_path: Path
) -> None:
    """All constants that the reader uses, and no others: a changed weight is found."""
    source = ROOT / "samples" / "digits_cnn.mlmodel"
    converter.convert(source, tmp_path / f"half{suffix}", target=target)
    assert converter.verify(source, tmp_path / f"half{suffix}", native="off").passed
    converter.convert(source, tmp_path / "good.onnx")
    model = onnx.load(str(tmp_path / "good.onnx"))
    changed = max(model.graph.initializer, key=lambda t: t.ByteSize())
    numbers = onnx.numpy_helper.to_array(changed).copy()
    numbers *= np.array(1.05, numbers.dtype)
    changed.CopyFrom(onnx.numpy_helper.from_array(numbers, changed.name))
    onnx.save(model, str(tmp_path / "bad.onnx"))
    assert not converter.verify(
        tmp_path / "bad.onnx", tmp_path / f"half{suffix}", native="off"
    ).passed
