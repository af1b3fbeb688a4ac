"""ONNX files: nothing lost, weights mapped and streamed, every damage named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import converter
from converter import engines
from converter.api import Model
from converter.errors import ConverterError, ReadError, UnsupportedError, UsageError
from converter.formats.format import Flavor
from converter.formats.onnx import format as onnx_format
from converter.formats.onnx.codec import read_onnx, read_proto, write_proto
from converter.graph.build import new_model
from converter.graph.invariants import violations
from converter.graph.names import public_name, set_public_name
from converter.graph.walk import all_nodes
from onnx_node_cases import node_case, node_cases, quick_node_cases

READ = onnx_format.read
RNG = np.random.default_rng(3)


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    feeds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    constants = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", feeds, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def dense() -> onnx.ModelProto:
    """x[2,64] -> Relu(x W + b), the weights above the size that is cut out before parsing."""
    weights = {
        "W": RNG.normal(size=(64, 32)).astype(np.float32),
        "b": RNG.normal(size=32).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["h"], name="fc"),
        helper.make_node("Relu", ["h"], ["y"], name="act"),
    ]
    return model_of(nodes, {"x": [2, 64]}, ["y"], weights)


def saved(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


X = RNG.normal(size=(2, 64)).astype(np.float32)


def test_the_codec_loses_nothing(tmp_path: Path) -> None:
    written_as_read(sorted(quick_node_cases())[::25], tmp_path)


@pytest.mark.slow
def test_the_codec_loses_nothing_of_more_operators(tmp_path: Path) -> None:
    written_as_read(sorted(node_cases())[::10], tmp_path)


def written_as_read(names: list[str], folder: Path) -> None:
    for name in names:
        path = saved(node_case(name).model, folder)
        write_proto(read_proto(path), folder / "again.onnx")
        assert read_proto(folder / "again.onnx") == node_case(name).model, name


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    path = saved(dense(), tmp_path)
    proto, weights = read_onnx(path)
    assert len(proto.SerializeToString()) < 1000 < path.stat().st_size
    array = weights.tensor(proto.graph.initializer[0]).numpy()
    assert not array.flags.owndata and not array.flags.writeable
    model = READ(path, None)
    assert violations(model.ir) == []


@pytest.mark.parametrize("external", [False, True])
def test_written_files_are_read_again(external: bool, tmp_path: Path) -> None:
    model = READ(saved(dense(), tmp_path), None)
    options = {"external": ""} if external else {}
    for name in ("a.onnx", "b.onnx"):
        assert onnx_format.write(model, tmp_path / name, Flavor("onnx", options)) == []
    assert (tmp_path / "a.data").exists() == external
    if not external:
        assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    onnx.checker.check_model(str(tmp_path / "a.onnx"), full_check=True)
    expected = engines.run(model, {"x": X})["y"]
    np.testing.assert_array_equal(
        engines.run(READ(tmp_path / "a.onnx", None), {"x": X})["y"], expected
    )
    assert onnx.load(tmp_path / "a.onnx").graph.node[0].name == "fc"


def test_metadata_and_public_names_stay(tmp_path: Path) -> None:
    proto = dense()
    proto.metadata_props.add(key="author", value="me")
    proto.producer_name, proto.doc_string, proto.graph.doc_string = (
        "maker",
        "what it is",
        "the graph",
    )
    model = READ(saved(proto, tmp_path), None)
    set_public_name(model.ir.graph.inputs[0], "image:0")
    assert public_name(model.ir.graph.inputs[0]) == "image:0"
    onnx_format.write(model, tmp_path / "out.onnx", Flavor("onnx"))
    again = onnx.load(tmp_path / "out.onnx")
    assert {p.key: p.value for p in again.metadata_props} == {"author": "me"}
    assert (again.producer_name, again.doc_string, again.graph.doc_string) == (
        "maker",
        "what it is",
        "the graph",
    )
    assert [i.name for i in again.graph.input] == ["image:0"]
    assert [i.name for i in READ(tmp_path / "out.onnx", None).inputs] == ["image:0"]


def test_other_values_give_way_to_names_of_outputs(tmp_path: Path) -> None:
    """The foreign file calls its output as it calls a value in between, or a weight."""
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [2])
    weights = b.const(np.array([2, 3], np.float32), "weights")
    product = b.op("Mul", x, weights, name="y")
    doubled, total = b.op("Add", product, product), b.op("Sub", product, x)
    for value, name in ((doubled, "y"), (total, "weights")):
        b.output(value)
        set_public_name(value, name)
    converter.save(Model(model, "test"), tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    assert [o.name for o in session.get_outputs()] == ["y", "weights"]
    found = session.run(None, {"x": np.array([5, 7], np.float32)})
    np.testing.assert_array_equal(found, [[20, 42], [5, 14]])


def test_default_values_of_inputs_stay(tmp_path: Path) -> None:
    model = READ(saved(dense(), tmp_path), None)
    model.interface["defaults"] = {"x": X}
    onnx_format.write(model, tmp_path / "out.onnx", Flavor("onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)
    again = READ(tmp_path / "out.onnx", None)
    assert [i.name for i in again.inputs] == ["x"]
    np.testing.assert_array_equal(engines.run(again, {})["y"], engines.run(model, {"x": X})["y"])
    np.testing.assert_array_equal(
        engines.run(again, {"x": X * 2})["y"], engines.run(model, {"x": X * 2})["y"]
    )


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 21, 22, 28])
def test_opsets(opset: int, tmp_path: Path) -> None:
    """Forms that changed: reductions, Split, Pad of some axes, Gelu, LayerNormalization,
    GroupNormalization, Shape of some axes.
    """
    weights = {
        "axes": np.array([1]), "pads": np.array([1, 2]), "last": np.array([3]),
        "g": np.arange(1, 5, dtype=np.float32), "z": np.zeros(4, np.float32),
        "n": np.array(9, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("GroupNormalization", ["x", "g", "z"], ["a"], num_groups=2),
        helper.make_node("Gelu", ["a"], ["b"], approximate="tanh"),
        helper.make_node("Pad", ["b", "pads", "n", "last"], ["c"]),
        helper.make_node("Split", ["c"], ["d0", "d1"], axis=3, num_outputs=2),
        helper.make_node("ReduceMax", ["d0", "axes"], ["e"]),
        helper.make_node("LayerNormalization", ["e", "scale"], ["f"], axis=-1),
        helper.make_node("Shape", ["f"], ["s"], start=1),
        helper.make_node("Cast", ["s"], ["t"], to=TensorProto.FLOAT, saturate=1),
        helper.make_node("ReduceSumSquare", ["t"], ["u"]),
        helper.make_node("Add", ["f", "u"], ["y"]),
    ]
    weights["scale"] = np.array([1, 2, 3, 4], np.float32)
    model = READ(saved(model_of(nodes, {"x": [2, 4, 3, 4]}, ["y"], weights), tmp_path), None)
    x = RNG.normal(size=(2, 4, 3, 4)).astype(np.float32)
    expected = engines.run(model, {"x": x})["y"]
    onnx_format.write(model, tmp_path / "out.onnx", Flavor("onnx", {"opset": str(opset)}))
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [o.version for o in written.opset_import if o.domain == ""] == [opset]
    assert {o.domain for o in written.opset_import} <= ({""} if opset != 21 else {"", "netconv"})
    np.testing.assert_allclose(
        engines.run(READ(tmp_path / "out.onnx", None), {"x": x})["y"],
        expected,
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_choice_without_a_condition_is_refused(tmp_path: Path) -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "b", [], [])
    branch.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4]))
    node = helper.make_node("If", [""], ["y"], then_branch=branch, else_branch=branch)
    with pytest.raises(ReadError, match="If lacks its condition"):
        READ(saved(model_of([node], {"x": [4]}, ["y"]), tmp_path), None)


def test_operators_that_an_opset_lacks_are_refused_by_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("StringConcat", ["i", "i"], ["j"]),
    ]
    nodes.append(helper.make_node("RegexFullMatch", ["i"], ["k"], pattern="a.*"))
    proto = model_of(nodes, {"x": [4]}, ["y"])
    proto.graph.output.append(helper.make_tensor_value_info("k", TensorProto.BOOL, [3]))
    proto.graph.input.append(helper.make_tensor_value_info("i", TensorProto.STRING, [3]))
    proto.graph.output.append(helper.make_tensor_value_info("j", TensorProto.STRING, [3]))
    model = READ(saved(proto, tmp_path), None)
    with pytest.raises(UnsupportedError) as refusal:
        onnx_format.write(model, tmp_path / "out.onnx", Flavor("onnx", {"opset": "13"}))
    assert [d.code for d in refusal.value.diagnostics] == ["X206", "X206"]
    assert "RegexFullMatch" in str(refusal.value) and "StringConcat" in str(refusal.value)
    assert not (tmp_path / "out.onnx").exists()
    for wrong in ("6", "12", "99", "x"):
        with pytest.raises(UsageError):
            onnx_format.write(model, tmp_path / "out.onnx", Flavor("onnx", {"opset": wrong}))


# damage: each changes a good model; the code that names it


def _external(proto: onnx.ModelProto, location: str, **more: str) -> None:
    t = proto.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        t.external_data.add(key=key, value=value)


def _elsewhere(t: onnx.TensorProto) -> None:
    t.data_location = TensorProto.EXTERNAL
    t.external_data.add(key="location", value="model.onnx")


def _nested(depth: int) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["z"])],
            "b",
            [],
            [helper.make_tensor_value_info("z", 1, None)],
        )
        for _ in range(depth):
            node = helper.make_node(
                "If",
                ["c"],
                ["z"],
                then_branch=graph,
                else_branch=helper.make_graph([], "e", [], []),
            )
            graph = helper.make_graph(
                [node], "b", [], [helper.make_tensor_value_info("z", 1, None)]
            )
        proto.graph.node.append(
            helper.make_node("If", ["c"], ["q"], then_branch=graph, else_branch=graph)
        )

    return change


def _calls(body: list[Any]) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        proto.functions.append(
            helper.make_function(
                "own",
                "F",
                ["a"],
                ["b"],
                body,
                [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)],
            )
        )
        proto.opset_import.add(domain="own", version=1)
        proto.graph.node.append(helper.make_node("F", ["y"], ["q"], domain="own"))

    return change


DAMAGE: dict[str, tuple[str, Callable[[onnx.ModelProto], Any]]] = {
    "no graph": ("R103", lambda p: p.ClearField("graph")),
    "wrong size of a weight": ("R103", lambda p: p.graph.initializer[0].dims.append(7)),
    "negative extent": ("R103", lambda p: p.graph.initializer[0].dims.__setitem__(0, -64)),
    "enormous extent": ("R103", lambda p: p.graph.initializer[0].dims.__setitem__(0, 1 << 62)),
    "unknown type of a weight": (
        "R103",
        lambda p: setattr(p.graph.initializer[0], "data_type", 99),
    ),
    "no weights file": ("R102", lambda p: _external(p, "gone.bin")),
    "weights outside the folder": ("R107", lambda p: _external(p, "../secret.bin")),
    "absolute weights": ("R107", lambda p: _external(p, "/etc/passwd")),
    "weights beyond the file": (
        "R102",
        lambda p: _external(p, "model.onnx", offset="0", length="99999999"),
    ),
    "weights at a negative place": (
        "R102",
        lambda p: _external(p, "model.onnx", offset="-4", length="16"),
    ),
    "weights without a number": ("R103", lambda p: _external(p, "model.onnx", offset="first")),
    "weights of another size": ("R103", lambda p: _external(p, "model.onnx", length="16")),
    "values in two fields": ("R103", lambda p: p.graph.initializer[0].float_data.append(1.0)),
    "values here and elsewhere": ("R103", lambda p: _elsewhere(p.graph.initializer[0])),
    "few values here and elsewhere": ("R103", lambda p: _elsewhere(p.graph.initializer[1])),
    "a constant that is declared as another type": (
        "R105",
        lambda p: p.graph.input.append(helper.make_tensor_value_info("W", 7, [64, 32])),
    ),
    "a constant that is declared with another shape": (
        "R105",
        lambda p: p.graph.input.append(helper.make_tensor_value_info("W", 1, [64, 33])),
    ),
    "an output that is declared as another type": (
        "R105",
        lambda p: setattr(p.graph.output[0].type.tensor_type, "elem_type", 11),
    ),
    "a value that is declared as another type": (
        "R105",
        lambda p: p.graph.value_info.append(helper.make_tensor_value_info("h", 11, None)),
    ),
    "opset of the future": ("R104", lambda p: setattr(p.opset_import[0], "version", 999)),
    "version of the future": ("R104", lambda p: setattr(p, "ir_version", 999)),
    "version below zero": ("R104", lambda p: setattr(p, "ir_version", -1)),
    "opset zero": ("R104", lambda p: setattr(p.opset_import[0], "version", 0)),
    "no opset": ("R105", lambda p: p.ClearField("opset_import")),
    "a name that nobody writes": ("R105", lambda p: p.graph.node[0].input.__setitem__(0, "nobody")),
    "an output that nobody writes": (
        "R105",
        lambda p: setattr(p.graph.output[0], "name", "nobody"),
    ),
    "a cycle": ("R105", lambda p: p.graph.node[0].input.__setitem__(0, "y")),
    "a name written twice": ("R105", lambda p: p.graph.node[1].output.__setitem__(0, "h")),
    "the same input twice": ("R105", lambda p: p.graph.input.append(p.graph.input[0])),
    "the same weight twice": ("R105", lambda p: p.graph.initializer.append(p.graph.initializer[0])),
    "an input without a type": ("R105", lambda p: p.graph.input[0].ClearField("type")),
    "an unknown attribute": (
        "R111",
        lambda p: p.graph.node[0].attribute.append(helper.make_attribute("gamma", 1.0)),
    ),
    "an attribute of another type": (
        "R110",
        lambda p: p.graph.node[0].attribute.append(helper.make_attribute("transA", "yes")),
    ),
    "a number of another type": (
        "R110",
        lambda p: p.graph.node[0].attribute.append(helper.make_attribute("transA", 1.0)),
    ),
    "a list of another type": (
        "R110",
        lambda p: p.graph.node.append(
            helper.make_node("MeanVarianceNormalization", ["x"], ["q"], axes=[0.0])
        ),
    ),
    "has the same attribute twice": (
        "R105",
        lambda p: p.graph.node[0].attribute.extend(
            [helper.make_attribute("alpha", 1.0), helper.make_attribute("alpha", 2.0)]
        ),
    ),
    "an input of an Identity too many": (
        "R105",
        lambda p: p.graph.node.append(helper.make_node("Identity", ["x", "x"], ["q"])),
    ),
    "an attribute of an Identity": (
        "R111",
        lambda p: p.graph.node.append(helper.make_node("Identity", ["x"], ["q"], axis=0)),
    ),
    "too many inputs": ("R105", lambda p: p.graph.node[1].input.append("x")),
    "shapes that contradict": (
        "R105",
        lambda p: (
            p.graph.input[0].type.tensor_type.shape.dim.__getitem__(1).__setattr__("dim_value", 63)
        ),
    ),
    "text that is not UTF-8": (
        "R110",
        lambda p: p.graph.node[0].attribute.append(
            onnx.AttributeProto(name="alpha", type=3, s=b"\xff\xfe")
        ),
    ),
    "an undeclared domain": ("R105", lambda p: setattr(p.graph.node[1], "domain", "other")),
    "a body that is missing": (
        "R105",
        lambda p: p.graph.node.append(helper.make_node("If", ["x"], ["q"])),
    ),
    "a branch without results": ("R105", _nested(2)),
    "a function that calls itself": (
        "R105",
        _calls([helper.make_node("F", ["a"], ["b"], domain="own")]),
    ),
    "a constant without a value": (
        "R105",
        lambda p: p.graph.node.append(helper.make_node("Constant", [], ["q"])),
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_has_a_name(what: str, tmp_path: Path) -> None:
    code, change = DAMAGE[what]
    proto = dense()
    change(proto)
    with pytest.raises(ReadError) as refusal:
        READ(saved(proto, tmp_path), None)
    assert [d.code for d in refusal.value.diagnostics] == [code], str(refusal.value)
    assert refusal.value.diagnostics[0].where.file


def test_unknown_operators_are_named_all_at_once(tmp_path: Path) -> None:
    proto = dense()
    proto.opset_import.add(domain="other", version=1)
    proto.graph.node.append(helper.make_node("Mystery", ["y"], ["p"], domain="other"))
    proto.graph.node.append(helper.make_node("Relu", ["p"], ["q"]))
    proto.graph.node.append(helper.make_node("Riddle", ["q"], ["r"]))
    with pytest.raises(UnsupportedError) as refusal:
        READ(saved(proto, tmp_path), None)
    assert [d.code for d in refusal.value.diagnostics] == ["X201", "X201"]
    assert "Mystery" in str(refusal.value) and "Riddle" in str(refusal.value)


def test_a_name_of_an_output_is_taken_inside_a_body(tmp_path: Path) -> None:
    """Scan from the end becomes a Loop with a Gather in its body; the output of the same name comes
    after it, and keeps it.
    """
    body = helper.make_graph(
        [helper.make_node("Neg", ["r"], ["n"])],
        "b",
        [helper.make_tensor_value_info("r", 1, [2])],
        [helper.make_empty_tensor_value_info("n")],
    )
    nodes = [
        helper.make_node(
            "Scan", ["x"], ["y"], body=body, num_scan_inputs=1, scan_input_directions=[1]
        ),
        helper.make_node("Gather", ["y", "i"], ["gather"]),
    ]
    proto = model_of(nodes, {"x": [3, 2]}, ["gather"], {"i": np.array([0, 2])})
    model = READ(saved(proto, tmp_path), None)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(engines.run(model, {"x": x})["gather"], -x[[2, 0]])
    names = [o.name for n in all_nodes(model.ir.graph) for o in n.outputs]
    assert len(names) == len(set(names))


def test_an_operator_that_the_opset_does_not_have_yet(tmp_path: Path) -> None:
    proto = dense()
    proto.opset_import[0].version = 13
    proto.graph.node.append(helper.make_node("CastLike", ["x", "y"], ["q"]))
    with pytest.raises(UnsupportedError, match="operator CastLike is not known in opset 13"):
        READ(saved(proto, tmp_path), None)


def test_functions_that_multiply_end(tmp_path: Path) -> None:
    """Ten functions that each call the next ten times would be 10^10 nodes."""
    proto = dense()
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    for level in range(10):
        inner = "Relu" if level == 9 else f"F{level + 1}"
        body = [
            helper.make_node(
                inner,
                ["a" if i == 0 else f"v{i}"],
                [f"v{i + 1}" if i < 9 else "b"],
                domain="" if level == 9 else "own",
            )
            for i in range(10)
        ]
        proto.functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], body, opsets))
    proto.opset_import.add(domain="own", version=1)
    proto.graph.node.append(helper.make_node("F0", ["y"], ["q"], domain="own"))
    import converter.formats.onnx.lift as lifting

    limit, lifting.FEW_NODES = lifting.FEW_NODES, 2000
    try:
        with pytest.raises(ReadError, match=r"more than \d+ nodes"):
            READ(saved(proto, tmp_path), None)
    finally:
        lifting.FEW_NODES = limit


def test_unsorted_nodes_and_listed_weights_are_read(tmp_path: Path) -> None:
    proto = dense()
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.input.append(helper.make_tensor_value_info("W", TensorProto.FLOAT, [64, 32]))
    model = READ(saved(proto, tmp_path), None)
    assert [i.name for i in model.inputs] == ["x"]
    assert violations(model.ir) == []


@given(data=st.data())
def test_no_bytes_make_a_traceback(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Truncated anywhere, or with bytes changed: read, or refused with a diagnostic."""
    whole = bytearray(dense().SerializeToString())
    folder = tmp_path_factory.mktemp("damaged")
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if whole:
            # the weights are most of the file: aim at the bytes around them
            place = data.draw(
                st.one_of(
                    st.integers(0, min(200, len(whole) - 1)),
                    st.integers(max(0, len(whole) - 200), len(whole) - 1),
                )
            )
            whole[place] = data.draw(st.integers(0, 255))
    path = folder / "model.onnx"
    path.write_bytes(bytes(whole))
    try:
        READ(path, None)
    except ConverterError as e:
        assert e.diagnostics and all(d.message for d in e.diagnostics)
    finally:
        shutil.rmtree(folder)


def test_damaged_operators_are_read_or_refused(tmp_path: Path) -> None:
    for name in sorted(quick_node_cases())[::80]:
        damaged_operator(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_any_damaged_operator_is_read_or_refused(part: int, tmp_path: Path) -> None:
    for name in sorted(node_cases())[part * 20 :: 80]:
        damaged_operator(name, tmp_path)


def damaged_operator(name: str, folder: Path) -> None:
    """Bytes changed anywhere in a model: names, types, attributes, graphs within graphs."""
    whole = node_case(name).model.SerializeToString()
    choice = random.Random(name)
    for _ in range(10):
        data = bytearray(whole)
        for _ in range(choice.randint(1, 4)):
            place = choice.randrange(len(data))
            data[place] = choice.choice(
                [0, 1, 0x7F, 0xFF, data[place] ^ 1, (data[place] + 1) & 255]
            )
        (folder / "model.onnx").write_bytes(bytes(data))
        try:
            READ(folder / "model.onnx", None)
        except ConverterError:
            continue
        except Exception as e:
            e.add_note(f"in {name}")
            raise


def test_nodes_that_are_made_take_no_name_of_the_file(tmp_path: Path) -> None:
    """An operator that becomes another one gets a name; that of a node further on stays with it,
    and runtimes take the file.
    """
    nodes = [
        helper.make_node("CastLike", ["x", "x"], ["a"], name="like"),
        helper.make_node("Cast", ["a"], ["y"], name="node_Cast_0", to=TensorProto.FLOAT),
    ]
    model = READ(saved(model_of(nodes, {"x": [2, 64]}, ["y"]), tmp_path), None)
    clash = model.ir.graph[0]
    clash.name = "node_Cast_0"
    converter.save(model, tmp_path / "again.onnx", "onnx")
    names = [n.name for n in onnx.load(tmp_path / "again.onnx").graph.node]
    assert names[1] == "node_Cast_0" and len(set(names)) == 2
    onnxruntime.InferenceSession(str(tmp_path / "again.onnx"))
    np.testing.assert_array_equal(engines.run(model, {"x": X})["y"], X)


@pytest.mark.parametrize("declared", [[10, 4], [None, 4], ["rows", 4]])
def test_a_size_that_follows_from_the_inputs_is_not_that_of_an_example(
    declared: list[Any], tmp_path: Path
) -> None:
    """Exporters declare the sizes of their example for dynamic results; other names stay."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["y"], ["z"])]
    proto = model_of(nodes, {"x": ["n", 4]}, ["z"])
    proto.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, declared))
    onnx.save(proto, str(tmp_path / "m.onnx"))
    (z,) = converter.load(tmp_path / "m.onnx").outputs
    assert z.shape == ("rows" if "rows" in declared else "n", 4)
