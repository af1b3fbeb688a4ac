"""Operand tables on disk: nothing is lost, new tables are laid out as NNAPI lays them out, damaged
files are refused by name.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnapi_models import F32, MODELS, corpus, network, written

from converter.errors import ReadError
from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.format import sniff
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.table import Lifetime, Operand, OperandType, Table
from converter.formats.nnapi.validate import validate
from converter.graph.lazy_tensor import LazyTensor


@pytest.mark.corpus
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_corpus_is_written_as_it_was_read(every: int, tmp_path: Path) -> None:
    for path in corpus()[::every]:
        again = written(read_table(path), tmp_path, "model")
        assert json.loads(again.read_text()) == json.loads(path.read_text()), path
        pool = path.with_suffix(".bin")
        assert not pool.exists() or pool.read_bytes() == again.with_suffix(".bin").read_bytes(), (
            path
        )


@pytest.mark.corpus
def test_corpus_states_the_level_that_is_computed() -> None:
    wrong = [
        (p.parent.name, t.feature_level, feature_level(t))
        for p in corpus()
        if feature_level(t := read_table(p))[0] != t.feature_level
    ]
    assert not wrong


@pytest.mark.parametrize("name", MODELS)
def test_new_table(name: str, tmp_path: Path) -> None:
    table = MODELS[name]()
    path = written(table, tmp_path)
    back = read_table(path)
    assert not validate(back)
    for (_, a), (_, b) in zip(table.subgraphs(), back.subgraphs(), strict=True):
        assert a.operations == b.operations and (a.inputs, a.outputs) == (b.inputs, b.outputs)
        for x, y in zip(a.operands, b.operands, strict=True):
            assert (x.type, x.dimensions, x.name, x.scale, x.zero_point) == (
                y.type,
                y.dimensions,
                y.name,
                y.scale,
                y.zero_point,
            )
            assert (x.channel_quant, x.boundary, x.subgraph) == (
                y.channel_quant,
                y.boundary,
                y.subgraph,
            )
            assert (x.value is None) == (y.value is None)
            if x.value is not None:
                np.testing.assert_array_equal(x.array(), y.array())
    (tmp_path / "again").mkdir()
    assert written(back, tmp_path / "again").read_text() == path.read_text()


def test_values_lie_where_nnapi_puts_them(tmp_path: Path) -> None:
    document = json.loads(written(network(), tmp_path).read_text())
    assert document["pools"] == ["net.nnapi.bin"] and document["featureLevel"] == 1
    lifetimes = {o["lifetime"] for o in document["operands"]}
    assert lifetimes == {
        "MODEL_INPUT",
        "MODEL_OUTPUT",
        "TEMPORARY_VARIABLE",
        "CONSTANT_COPY",
        "CONSTANT_REFERENCE",
    }
    for operand in document["operands"]:
        at = operand["location"]
        if operand["lifetime"] == "CONSTANT_REFERENCE":
            assert at["length"] > 128 and at["offset"] % 64 == 0
        elif operand["lifetime"] == "CONSTANT_COPY":
            assert at["length"] <= 128 and at["offset"] % 4 == 0
    one = next(o for o in document["operands"] if o["name"] == "c7")
    assert one["numberOfConsumers"] == 4  # one in CONV_2D counts four times


def test_reading_copies_no_weights(tmp_path: Path) -> None:
    table = read_table(written(network(), tmp_path))
    weights = next(o for o in table.operands if o.lifetime is Lifetime.CONSTANT_REFERENCE)
    assert table.stored is not None and np.shares_memory(weights.array(), table.stored.pools[0])


def test_large_lazy_values_are_produced_once(tmp_path: Path) -> None:
    table, asked = network(), []

    def make() -> np.ndarray[Any, Any]:
        asked.append(1)
        return np.arange(2000, dtype=np.float32)

    lazy = LazyTensor(make, ir.DataType.FLOAT, [2000])
    table.add(Operand(F32, [2000], "lazy", value=lazy))
    back = read_table(written(table, tmp_path))
    np.testing.assert_array_equal(back.operands[-1].array(), np.arange(2000, dtype=np.float32))
    assert len(asked) == 1


def test_a_value_of_the_wrong_size_is_not_written(tmp_path: Path) -> None:
    table = network()
    table.add(Operand(F32, [3], "short", value=np.zeros(2, np.float32)))
    with pytest.raises(ValueError, match="'short' has 8 bytes, its type and dimensions need 12"):
        written(table, tmp_path)
    assert not list(tmp_path.iterdir())


def test_float32_scales_are_spelled_short(tmp_path: Path) -> None:
    table = MODELS["quantised"]()
    table.operands[0].scale = np.float32(0.1)  # type: ignore[assignment]
    assert '"scale": 0.1,' in written(table, tmp_path).read_text()


def test_unknown_and_missing_keys_survive(tmp_path: Path) -> None:
    path = written(network(), tmp_path)
    document = json.loads(path.read_text())
    document["producer"] = {"name": "x", "深": [1, None]}
    document["operands"][0]["comment"] = "first"
    document["operations"][0]["tag"] = 7
    document["operands"][1]["location"]["padding"] = 0
    del (
        document["operands"][2]["name"],
        document["operands"][2]["scale"],
        document["operands"][2]["location"],
        document["featureLevel"],
    )
    path.write_text(json.dumps(document))
    (tmp_path / "again").mkdir()
    again = written(read_table(path), tmp_path / "again")
    assert json.loads(again.read_text("utf-8")) == document


def test_pools_follow_the_name_of_the_new_table(tmp_path: Path) -> None:
    path = written(network(), tmp_path)
    document = json.loads(path.read_text())
    (tmp_path / "net.nnapi.bin").rename(tmp_path / "weights.dat")
    document["pools"] = ["weights.dat", "weights.dat"]
    path.write_text(json.dumps(document))
    again = written(read_table(path), tmp_path, "other")
    assert json.loads(again.read_text())["pools"] == ["other.nnapi.bin"] * 2
    assert (tmp_path / "other.nnapi.bin").read_bytes() == (tmp_path / "weights.dat").read_bytes()


def set_(path: str, value: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        *keys, last = [int(k) if k.isdigit() else k for k in path.split("/")]
        node: Any = document
        for key in keys:
            node = node[key]
        node[last] = value

    return change


DAMAGE = [
    (set_("format", "x"), "R103", "format", "not an operand table"),
    (set_("version", 2), "R104", "version", "version 2 of the operand table"),
    (set_("operands", {}), "R110", "operands", "expected a list, got {}"),
    (set_("operands/3", 5), "R110", "operands[3]", "expected an object, got 5"),
    (
        set_("operands/0/type", "TENSOR_FLOAT64"),
        "R110",
        "operands[0].type",
        "expected one of FLOAT32, INT32",
    ),
    (set_("operands/0/type", 3), "R110", "operands[0].type", "expected one of"),
    (
        set_("operands/0/lifetime", "FOREVER"),
        "R110",
        "operands[0].lifetime",
        "expected one of TEMPORARY_VARIABLE",
    ),
    (set_("operands/0/dimensions", "1,2"), "R110", "operands[0].dimensions", "expected a list"),
    (
        set_("operands/0/dimensions/2", -1),
        "R110",
        "operands[0].dimensions[2]",
        "expected an integer of 0..4294967295, got -1",
    ),
    (
        set_("operands/0/dimensions/2", 1.5),
        "R110",
        "operands[0].dimensions[2]",
        "expected an integer",
    ),
    (
        set_("operands/0/dimensions/2", True),
        "R110",
        "operands[0].dimensions[2]",
        "expected an integer",
    ),
    (
        set_("operands/0/dimensions/2", 2**40),
        "R110",
        "operands[0].dimensions[2]",
        "expected an integer",
    ),
    (set_("operands/0/scale", 1e39), "R110", "operands[0].scale", "expected a finite number"),
    (set_("operands/0/scale", "0"), "R110", "operands[0].scale", "expected a finite number"),
    (set_("operands/0/zeroPoint", 2**31), "R110", "operands[0].zeroPoint", "expected an integer"),
    (set_("operands/0/name", None), "R110", "operands[0].name", "expected a string, got None"),
    (set_("operands/0/location", []), "R110", "operands[0].location", "expected an object"),
    (
        set_("operands/0/boundary/permutation", [0, 1, 1, 2]),
        "R110",
        "operands[0].boundary.permutation",
        "must be one of the operand's 4 axes",
    ),
    (
        set_("operands/9/location/offset", 2**32 - 1),
        "R102",
        "operands[9].location",
        "are outside net.nnapi.bin",
    ),
    (
        set_("operands/9/location/poolIndex", 3),
        "R102",
        "operands[9].location",
        "pool 3 does not exist, the table lists 1",
    ),
    (
        set_("operands/9/location/length", 4),
        "R103",
        "operands[9].location",
        "the value has 4 bytes, TENSOR_FLOAT32 of dimensions [4, 3, 3, 3] needs 432",
    ),
    (
        set_("operands/6/location/offset", 5000),
        "R102",
        "operands[6].location",
        "are outside operandValues",
    ),
    (
        set_("operations/0/type", "CONV2D"),
        "R110",
        "operations[0].type",
        "'CONV2D' is not an operation; perhaps you meant CONV_2D",
    ),
    (
        set_("operations/0/inputs", [0, "1"]),
        "R110",
        "operations[0].inputs[1]",
        "expected an integer of 0..4294967295, got '1'",
    ),
    (set_("inputIndexes", None), "R110", "inputIndexes", "expected a list, got None"),
    (set_("operandValues", "AAA*"), "R103", "operandValues", "is not base64"),
    (set_("operandValues", "AAB="), "R103", "operandValues", "is not canonical base64"),
    (set_("pools", ["gone.bin"]), "R102", "pools[0]", "pool 'gone.bin' is missing"),
    (
        set_("pools", ["../net.nnapi.bin"]),
        "R107",
        "pools[0]",
        "is not the name of a file next to the table",
    ),
    (
        set_("pools", ["/etc/passwd"]),
        "R107",
        "pools[0]",
        "is not the name of a file next to the table",
    ),
    (set_("pools", ["a\0b"]), "R107", "pools[0]", "a\\x00b"),
    (
        set_("relaxComputationFloat32toFloat16", 1),
        "R110",
        "relaxComputationFloat32toFloat16",
        "expected true or false",
    ),
]


@pytest.mark.parametrize(
    ("change", "code", "place", "message"),
    DAMAGE,
    ids=[f"{d[2]}-{i}" for i, d in enumerate(DAMAGE)],
)
def test_damaged_tables_name_the_location(
    change: Any, code: str, place: str, message: str, tmp_path: Path
) -> None:
    path = written(network(), tmp_path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ReadError) as e:
        read_table(path)
    (found,) = e.value.diagnostics
    assert (found.code, found.where.path) == (code, place)
    assert message in found.message


TEXTS = [
    (b"", "not JSON"),
    (b"[]", "the file must contain a JSON object"),
    (b"{", "not JSON"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b'{"a": "\\ud800"}', "not UTF-8"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"version": NaN}', "NaN is not a number"),
    (b'{"a": 1, "a": 2}', "key 'a' is repeated"),
    (b'{"a": 1' + b"0" * 5000 + b"}", "Exceeds the limit"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=[t[1] for t in TEXTS])
def test_files_that_are_no_table(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.nnapi.json"
    path.write_bytes(text)
    with pytest.raises(ReadError, match=message):
        read_table(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="R100"):
        read_table(tmp_path / "no.nnapi.json")


def test_a_pool_that_is_a_link_out_of_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = written(network(), inner)
    (inner / "net.nnapi.bin").rename(tmp_path / "out.bin")
    (inner / "net.nnapi.bin").symlink_to(tmp_path / "out.bin")
    with pytest.raises(ReadError, match="R107"):
        read_table(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_a_refusal_or_a_table(tmp_path: Path, data: st.DataObject) -> None:
    path = written(MODELS[data.draw(st.sampled_from(sorted(MODELS)))](), tmp_path)
    text = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del text[data.draw(st.integers(0, len(text) - 1)) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if text:
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(
                st.sampled_from(b'0129-.,:"{}[]eE\\ tn') | st.integers(0, 255)
            )
    path.write_bytes(bytes(text))
    try:
        table = read_table(path)
    except ReadError as e:
        assert all(d.code in ("R102", "R103", "R104", "R107", "R110") for d in e.diagnostics)
    else:
        validate(table)
        feature_level(table)


def test_a_short_pool(tmp_path: Path) -> None:
    path = written(network(), tmp_path)
    pool = tmp_path / "net.nnapi.bin"
    pool.write_bytes(pool.read_bytes()[:-1])
    with pytest.raises(ReadError, match="R102"):
        read_table(path)


def test_sniff(tmp_path: Path) -> None:
    head = written(network(), tmp_path).read_bytes()[:4096]
    assert sniff(head, "anything") == "nnapi"
    assert sniff(b'{"format": "other"}', "net.nnapi.json") == ""
    assert sniff(b"\x1c\0\0\0TFL3", "net.tflite") == ""
    blob = np.array([1, 2, 0, 1, 1, 1], "<i4").tobytes()
    assert sniff(blob, "net.nnapi") == "nnapi+blob"
    assert sniff(blob, "net.bin") == sniff(blob[:-1], "net.nnapi") == sniff(b"", "net.nnapi") == ""


def test_operand_types_have_the_codes_of_the_hal() -> None:
    codes = {t.name: int(t) for t in OperandType}
    assert (
        codes["TENSOR_FLOAT32"] == 3
        and codes["TENSOR_QUANT8_ASYMM_SIGNED"] == 14
        and codes["TENSOR_OEM_BYTE"] == 10001
    )
    assert OperandType(5) is OperandType.TENSOR_QUANT8_ASYMM and len(codes) == 18


def test_base64_of_no_values(tmp_path: Path) -> None:
    document = json.loads(written(MODELS["branches"](), tmp_path).read_text())
    assert base64.b64decode(document["operandValues"])[:4] == np.float32(1).tobytes()
    assert (
        isinstance(read_table(tmp_path / "net.nnapi.json"), Table) and document["featureLevel"] == 4
    )
