"""The other forms of a table: PyTorch's flat blob, and C source that is compiled and run against a
recorder of the NDK's calls.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnapi_models import F32, MODELS, branches, corpus, network, quantized, tensor

from converter.errors import ReadError, UnsupportedError
from converter.formats.nnapi.blob import read_blob, weights_name, write_blob
from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.csource import identifier, write_c
from converter.formats.nnapi.layout import lay_out, value_bytes
from converter.formats.nnapi.operations import operations
from converter.formats.nnapi.table import Lifetime, Operand, Operation, Table
from converter.formats.nnapi.validate import validate
from converter.io.files import Output
from support import HANG

RECORDER = Path(__file__).parent / "nnapi_recorder"
MAIN = """
int main(void) {
    static ANeuralNetworksMemory weights;
    ANeuralNetworksModel *model;
    int status = net_build(&weights, &model);
    ANeuralNetworksModel_free(model);
    return status;
}
"""


def blob(table: Table, folder: Path, name: str = "net.nnapi") -> Path:
    with Output(folder / name, ".nnapi") as out:
        write_blob(table, out)
    return folder / name


def same(a: Table, b: Table) -> None:
    assert [(o.type, o.inputs, o.outputs) for o in a.operations] == [
        (o.type, o.inputs, o.outputs) for o in b.operations
    ]
    assert (a.inputs, a.outputs) == (b.inputs, b.outputs)
    for x, y in zip(a.operands, b.operands, strict=True):
        assert (x.type, x.dimensions, np.float32(x.scale), x.zero_point) == (
            y.type,
            y.dimensions,
            np.float32(y.scale),
            y.zero_point,
        )
        assert (x.value is None) == (y.value is None)
        if x.value is not None:
            np.testing.assert_array_equal(value_bytes(x), value_bytes(y))


@pytest.mark.parametrize("build", [network, quantized])
def test_blob_round_trip(build: Any, tmp_path: Path) -> None:
    path = blob(build(), tmp_path)
    back = read_blob(path)
    assert validate(back) == []
    same(build(), back)
    assert blob(back, tmp_path, "again.nnapi").read_bytes() == path.read_bytes()


@pytest.mark.corpus
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_blob_round_trip_of_the_corpus(every: int, tmp_path: Path) -> None:
    refused = 0
    for path in corpus()[::every]:
        table = read_table(path)
        try:
            back = read_blob(blob(table, tmp_path))
        except UnsupportedError:
            kinds = {lifetime for lifetime in table.lifetimes()}
            assert Lifetime.NO_VALUE in kinds or any(o.channel_quant for o in table.operands), path
            refused += 1
            continue
        same(table, back)
    assert refused < 200 / every


def test_blob_by_its_words(tmp_path: Path) -> None:
    t = Table()
    x, y = tensor(t, [2, 3]), tensor(t, [2, 3])
    t.operations, t.inputs, t.outputs = [Operation("RELU6", [x], [y])], [x], [y]
    words = np.fromfile(blob(t, tmp_path), "<i4").tolist()
    assert words == [1, 2, 0, 1, 1, 1, 3, 2, 0, 0, 3, 2, 0, 0, 21, 1, 1, 2, 3, 2, 3, 0, 1, 0, 1]


def test_several_buffers_as_torch_has_them(tmp_path: Path) -> None:
    path = blob(network(), tmp_path)
    first = weights_name(path, 0)
    words = np.fromfile(path, "<i4")
    places = [i for i in range(words.size - 2) if words[i : i + 3].tolist() == [0, 448, 1280]]
    assert len(places) == 1
    words[places[0] : places[0] + 2] = 1, 0
    words.tofile(path)
    weights_name(path, 1).write_bytes(first.read_bytes()[448:])
    same(network(), read_blob(path))
    weights_name(path, 1).unlink()
    with pytest.raises(
        ReadError, match=r"weight buffer 1 is missing: net.nnapi.1.weights was not found"
    ):
        read_blob(path)


def test_tables_that_a_blob_cannot_contain(tmp_path: Path) -> None:
    t = network()
    t.add(Operand(F32, [1], "nothing"))
    with pytest.raises(
        UnsupportedError,
        match=(
            r"the flat form does not support operands without a value at operands\[15\]  "
            r'layer "nothing"'
        ),
    ):
        blob(t, tmp_path)
    with pytest.raises(UnsupportedError, match="the flat form does not support per-channel scales"):
        blob(quantized(True), tmp_path)
    with pytest.raises(UnsupportedError, match="the flat form does not support subgraphs"):
        blob(branches(), tmp_path)
    assert not list(tmp_path.iterdir())
    t = network()
    t.relaxed = True
    with Output(tmp_path / "r.nnapi") as out:
        (warning,) = write_blob(t, out)
    assert (warning.code, warning.level) == ("X207", "warning")


DAMAGED_BLOBS = [
    (0, 2, "R104", "header"),
    (1, -1, "R103", "header"),
    (1, 2**24, "R103", "header"),
    (3, 1000, "R103", "operations"),
    (6, 77, "R110", "operands[0]"),
    (7, 2**31 - 1, "R103", "dimensions"),
    (8, 0x7FC00000, "R110", "operands[0]"),
    (6 + 4 * 15, 99, "R103", "values[0]"),
    (6 + 4 * 15 + 1, 3, "R110", "values[0]"),
    (6 + 4 * 15 + 2, 8, "R103", "values[0]"),
    (6 + 4 * 15 + 3 * 9, 4711, "R110", "operations[0]"),
]


@pytest.mark.parametrize(("word", "value", "code", "place"), DAMAGED_BLOBS)
def test_damaged_blobs(word: int, value: int, code: str, place: str, tmp_path: Path) -> None:
    path = blob(network(), tmp_path)
    words = np.fromfile(path, "<i4")
    words[word] = value
    words.tofile(path)
    with pytest.raises(ReadError) as e:
        read_blob(path)
    assert (e.value.diagnostics[0].code, e.value.diagnostics[0].where.path) == (code, place), str(
        e.value
    )


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_blob_is_a_refusal_or_a_table(tmp_path: Path, data: st.DataObject) -> None:
    path = blob(network(), tmp_path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        table = read_blob(path)
    except ReadError as e:
        assert all(d.code in ("R102", "R103", "R104", "R110") for d in e.diagnostics)
    else:
        validate(table)


def calls(table: Table, folder: Path) -> list[dict[str, Any]]:
    """Return the calls of the generated source, as the recorder prints them."""
    with Output(folder / "net.nnapi.c", ".nnapi.c") as out:
        write_c(table, out)
    (folder / "main.c").write_text('#include "net.nnapi.c"\n' + MAIN)
    command = [
        "gcc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-Wno-unused-function",
        f"-I{RECORDER}",
        f"-I{folder}",
        "-o",
        str(folder / "net"),
        "main.c",
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=HANG)
    lines = subprocess.run(
        [str(folder / "net")], capture_output=True, check=True, timeout=HANG, text=True
    ).stdout.splitlines()
    return [json.loads(line) for line in lines]


def check_calls(table: Table, recorded: list[dict[str, Any]], weights: bytes) -> None:
    layout, order = lay_out(table), {}
    for call in recorded:
        if call["call"] == "subgraph":
            order[call["child"]] = None
    assert [c for c in recorded if c["call"] == "finish"] == [
        {"model": m, "call": "finish"} for m in range(len(table.referenced) + 1)
    ]
    main = len(table.referenced)
    mine = [c for c in recorded if c["model"] == main]
    operands = [c for c in mine if c["call"] == "operand"]
    for operand, call in zip(table.operands, operands, strict=True):
        assert (int(operand.type), operand.dimensions, operand.zero_point) == (
            call["type"],
            call["dimensions"],
            call["zeroPoint"],
        )
        assert np.float32(operand.scale) == np.float32(call["scale"])
    found = {c["operand"]: c for c in mine if c["call"] in ("value", "memory", "subgraph")}
    for i, (operand, lifetime) in enumerate(zip(table.operands, layout.lifetimes[0], strict=True)):
        if lifetime is Lifetime.CONSTANT_COPY:
            assert bytes(found.pop(i)["bytes"]) == value_bytes(operand).tobytes()
        elif lifetime is Lifetime.CONSTANT_REFERENCE:
            call = found.pop(i)
            assert (
                call["weights"]
                and weights[call["offset"] : call["offset"] + call["length"]]
                == value_bytes(operand).tobytes()
            )
        elif lifetime is Lifetime.NO_VALUE:
            assert found.pop(i)["bytes"] is None
        elif lifetime is Lifetime.SUBGRAPH:
            assert found.pop(i)["call"] == "subgraph"
    assert not found
    channels = {c["operand"]: (c["dim"], c["scales"]) for c in mine if c["call"] == "channels"}
    expected = {i: o.channel_quant for i, o in enumerate(table.operands) if o.channel_quant}
    assert channels.keys() == expected.keys()
    for i, quant in expected.items():
        assert channels[i][0] == quant.dim and np.array_equal(
            np.float32(channels[i][1]), np.float32(quant.scales)
        )
    stated = [(operations()[o.type].code, o.inputs, o.outputs) for o in table.operations]
    assert [
        (c["type"], c["inputs"], c["outputs"]) for c in mine if c["call"] == "operation"
    ] == stated
    assert [(c["inputs"], c["outputs"]) for c in mine if c["call"] == "ends"] == [
        (table.inputs, table.outputs)
    ]
    assert [c["allow"] for c in mine if c["call"] == "relaxed"] == [1] * table.relaxed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", [*MODELS, "relaxed", "missing"])
def test_c_source_builds_the_table(name: str, tmp_path: Path) -> None:
    table = MODELS[name]() if name in MODELS else network()
    if name == "relaxed":
        table.relaxed = True
    if name == "missing":
        table.add(Operand(F32, [1], "evil */ name \\"))
    recorded = calls(table, tmp_path)
    pool = tmp_path / "net.nnapi.c.bin"
    check_calls(table, recorded, pool.read_bytes() if pool.exists() else b"")


@pytest.mark.corpus
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_c_source_builds_tables_of_the_corpus(tmp_path: Path) -> None:
    for path in corpus()[::70]:
        table = read_table(path)
        recorded = calls(table, tmp_path)
        for operand in table.operands:
            operand.lifetime = (
                None if operand.lifetime and operand.lifetime.is_constant else operand.lifetime
            )
        check_calls(
            table,
            recorded,
            (tmp_path / "net.nnapi.c.bin").read_bytes()
            if (tmp_path / "net.nnapi.c.bin").exists()
            else b"",
        )


def test_identifiers() -> None:
    assert [identifier(n) for n in ("net", "my-net.v2", "3d", "深")] == [
        "net",
        "my_net_v2",
        "model_3d",
        "model__",
    ]
