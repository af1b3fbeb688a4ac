"""Files made to harm: bombs, depths, numbers, and names that lead elsewhere. Each is judged in a
process with little time and memory.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from converter import formats
from converter.api import load
from converter.errors import ReadError
from converter.graph import sizes
from converter.graph.infer import InferenceError
from hostile import supervise
from hostile.judge import ACTIONS
from hostile.supervise import supervised
from mutations import FORMS, contents, files_of, lay_out, model_file, seeds

DEEP = 100_000
NET = '<net name="n" version="{version}"><layers>{layers}</layers><edges/></net>'


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return seeds(tmp_path_factory.mktemp("models"), forms=[f for f in FORMS if f != "nnapi+c"])


def judged(path: Path, *actions: str) -> list[str]:
    """The answers of some actions; a fault fails the test."""
    chosen = actions or (
        "-> onnx" if path.suffix != ".onnx" else "-> openvino",
        "inspect",
        "check",
        "batch",
    )
    found = list(supervised([lambda a=a: ACTIONS[a](path) for a in chosen]))
    assert [detail for _, answer, detail in found if answer == "fault"] == []
    return [answer for _, answer, _ in found]


def refused(path: Path) -> None:
    answers = judged(path)
    assert answers[0] == "refused" and {a for a in answers[1:]} <= {"exit 4", "exit 3"}, answers


def put(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_a_process_that_does_nothing_hangs_and_one_that_others_slow_down_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "LIMIT", 0)
    monkeypatch.setattr(supervise, "GRACE", 1)

    def slowed() -> str:
        for _ in range(8):
            time.sleep(0.2)
            sum(range(1_000_000))  # tens of milliseconds, more than the system counts in
        return "right"

    answers = list(supervise.supervised([slowed, lambda: str(time.sleep(60))]))
    assert answers == [(0, "right", ""), (1, "fault", "hang: 1 s")]


# --- text that grows, or goes deep

LAUGHS = (
    "<!DOCTYPE net [<!ENTITY l0 'lol'>"
    + "".join(f"<!ENTITY l{i} '{f'&l{i - 1};' * 10}'>" for i in range(1, 12))
    + "]>"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("version", ["7", "11"])
def test_entities_are_not_expanded(tmp_path: Path, encoding: str, version: str) -> None:
    body = NET.format(version=version, layers="").replace('name="n"', 'name="&l11;"')
    declared = (
        encoding.removesuffix("-le").removesuffix("-32") if encoding != "utf-32" else "utf-32"
    )
    refused(
        put(
            tmp_path,
            "net.xml",
            (f'<?xml version="1.0" encoding="{declared}"?>' + LAUGHS + body).encode(encoding),
        )
    )


def test_entities_of_other_files_are_not_read(tmp_path: Path) -> None:
    put(tmp_path, "secret", "1,4")
    declared = f'<!DOCTYPE net [<!ENTITY s SYSTEM "file://{tmp_path}/secret">]>'
    text = declared + NET.format(
        version="11", layers='<layer id="0" name="&s;" type="x" version="opset1"/>'
    )
    refused(put(tmp_path, "net.xml", text))


@pytest.mark.parametrize(
    "text",
    [
        "<net>" * DEEP,
        NET.format(
            version="11",
            layers="<layer id='0' name='a' type='If' version='opset8'><then_body><layers>" * DEEP,
        ),
        NET.format(
            version="7",
            layers="<layer id='0' name='a' type='TensorIterator'><body><layers>" * 2000
            + "</layers></body></layer>" * 2000,
        ),
        NET.format(version="11", layers="<rt_info>" * 200 + "</rt_info>" * 200),
        "<net name='n' version='11'>" + "<!-- -->" * DEEP + "<layers/></net>",
        "<net name='n' version='" + "1" * DEEP + "'><layers/></net>",
        "<net "
        + " ".join(f"a{i}=''" for i in range(20_000))
        + " name='n' version='11'><layers/><edges/></net>",
        "<net "
        + " ".join(f"a{i}=''" for i in range(DEEP))
        + " name='n' version='11'><layers/><edges/></net>",
        NET.format(
            version="7",
            layers="<layer id='0' name='a' type='Input'><output><port id='0'>"
            + "<dim>1</dim>" * DEEP
            + "</port></output></layer>",
        ),
    ],
    ids=[
        "unclosed",
        "bodies",
        "iterators",
        "info",
        "comments",
        "version",
        "attributes",
        "more attributes",
        "dimensions",
    ],
)
@pytest.mark.sampled(4)
def test_xml_that_goes_deep_or_wide(tmp_path: Path, text: str) -> None:
    refused(put(tmp_path, "net.xml", text))


@pytest.mark.parametrize(
    "value",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        "9" * 5000,
        "1e999999",
        "[" * 900 + "]" * 900,
        '"' + "\\u0000" * DEEP + '"',
    ],
    ids=["lists", "objects", "digits", "exponent", "closed", "text"],
)
@pytest.mark.parametrize("key", ["operands", "version", "outputIndexes"])
def test_json_that_goes_deep_or_wide(
    models: dict[str, Path], tmp_path: Path, key: str, value: str
) -> None:
    table = json.loads(models["nnapi"].read_text())
    table[key] = "HERE"
    refused(put(tmp_path, "net.nnapi.json", json.dumps(table).replace('"HERE"', value)))


@pytest.mark.parametrize(
    "value",
    ["[" * DEEP, "[" * DEEP + "]" * DEEP, "9" * 5000, "[1," * DEEP, "\t" * DEEP + "=" * DEEP],
    ids=["open", "closed", "digits", "commas", "blanks"],
)
@pytest.mark.parametrize(
    "key", ["layer_top_shape", "layer_id", "kernel_x", "weights_offset", "layer_bottom"]
)
@pytest.mark.sampled(4)
def test_lines_that_go_deep_or_wide(
    models: dict[str, Path], tmp_path: Path, key: str, value: str
) -> None:
    for p in files_of(models["zhouyi"]):
        shutil.copy(p, tmp_path)
    lines = [
        f"{key}={value}" if line.startswith(f"{key}=") else line
        for line in models["zhouyi"].read_text().splitlines()
    ]
    refused(put(tmp_path, models["zhouyi"].name, "\n".join(lines)))


def test_graphs_within_graphs_within_graphs(tmp_path: Path) -> None:
    """Protobuf ends at a depth of its own; a file just above it is refused as any other one."""
    inner = b""
    for _ in range(20_000):  # GraphProto.node (1) . NodeProto.attribute (5) . AttributeProto.g (6)
        for field in (6, 5, 1):
            inner = (
                bytes([field << 3 | 2]) + length(len(inner)) + inner
                if len(inner) < 1 << 21
                else inner
            )
    refused(
        put(tmp_path, "net.onnx", b"\x08\x08" + bytes([7 << 3 | 2]) + length(len(inner)) + inner)
    )


def length(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


@pytest.mark.parametrize("form", [f for f in FORMS if f != "nnapi+c"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "latin-1"])
@pytest.mark.sampled(5)
def test_wrong_encodings(models: dict[str, Path], tmp_path: Path, form: str, encoding: str) -> None:
    lay_out(contents(models[form]), tmp_path)
    path = tmp_path / models[form].name
    damaged = model_file(path)
    damaged.write_bytes(damaged.read_bytes().decode("latin-1").encode(encoding))
    judged(
        path,
        "-> onnx" if form != "onnx" else "-> coreml",
        "check",
    )


# --- names of side files that lead elsewhere

AWAY = [
    "../secret.bin",
    "/etc/passwd",
    "..",
    ".",
    "a/../../secret.bin",
    "link.bin",
    "loop.bin",
    "pipe.bin",
    "folder",
    "missing.bin",
    "x" * 5000,
    "",
    "\u0000",
    "/dev/zero",
]


def set_onnx(path: Path, name: str) -> None:
    model = onnx.load(path, load_external_data=False)
    for t in model.graph.initializer:
        for e in t.external_data:
            e.value = name if e.key == "location" else e.value
    path.write_bytes(model.SerializeToString())


def set_nnapi(path: Path, name: str) -> None:
    table = json.loads(path.read_text())
    table["pools"] = [name]
    path.write_text(json.dumps(table))


def set_zhouyi(path: Path, name: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join(f"model_bin={name}" if line.startswith("model_bin=") else line for line in lines)
    )


@pytest.mark.parametrize(
    "name", AWAY, ids=[n[:12].encode("unicode_escape").decode() or "empty" for n in AWAY]
)
@pytest.mark.parametrize(
    ("form", "change"),
    [("onnx+external", set_onnx), ("nnapi", set_nnapi), ("zhouyi", set_zhouyi)],
    ids=["onnx", "nnapi", "zhouyi"],
)
@pytest.mark.sampled(5)
def test_side_files_lead_nowhere_else(
    models: dict[str, Path],
    tmp_path: Path,
    form: str,
    change: Callable[[Path, str], None],
    name: str,
) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    shutil.copy(models[form], folder)
    sides = [p for p in files_of(models[form]) if p != models[form]]
    assert sides
    shutil.copy(sides[0], tmp_path / "secret.bin")
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.bin")
    change(folder / models[form].name, name)
    refused(folder / models[form].name)


@pytest.mark.parametrize(
    "form", ["openvino", "openvino+ir=7", "zhouyi", "nnapi", "nnapi+blob", "onnx+external"]
)
def test_a_side_file_that_is_a_link_out_of_the_folder(
    models: dict[str, Path], tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    shutil.copy(models[form], folder)
    (side,) = (p for p in files_of(models[form]) if p != models[form])
    shutil.copy(side, tmp_path / "secret")
    (folder / side.name).symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError) as info:
        load(folder / models[form].name)
    assert [d.code for d in info.value.diagnostics] == ["R107"]
    os.unlink(folder / side.name)
    os.link(tmp_path / "secret", folder / side.name)
    load(folder / models[form].name)


@pytest.mark.parametrize("form", ["openvino", "zhouyi", "onnx+external"])
def test_a_model_in_a_cache_of_the_hub(models: dict[str, Path], tmp_path: Path, form: str) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    for number, file in enumerate(files_of(models[form])):
        shutil.copy(file, tmp_path / "models--a--b" / "blobs" / f"{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    load(snapshot / models[form].name)
    assert judged(snapshot / models[form].name, "batch") == ["exit 0"]


@pytest.mark.parametrize("form", ["openvino", "openvino+ir=7", "zhouyi"])
def test_weights_of_a_model_that_are_no_file(
    models: dict[str, Path], tmp_path: Path, form: str
) -> None:
    shutil.copy(models[form], tmp_path)
    os.mkfifo(tmp_path / f"{models[form].stem}.bin")
    refused(tmp_path / models[form].name)


def test_a_model_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.onnx")
    (tmp_path / "net.mlpackage").mkdir()
    (tmp_path / "loop.xml").symlink_to(tmp_path / "loop.xml")
    for name in ("net.mlpackage", "loop.xml", "net.onnx"):
        answers = judged(tmp_path / name, "inspect", "check", "batch")
        assert set(answers) == {"exit 4"}, (name, answers)


@pytest.mark.parametrize("form", formats.FORMATS)
def test_paths_that_are_no_file_are_refused_in_a_named_format_too(
    tmp_path: Path, form: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("missing", "folder", "pipe", "loop"):
        with pytest.raises(ReadError) as info:
            load(tmp_path / name, form)
        assert info.value.diagnostics[0].code == "R100" and "cannot read" in str(info.value), name


# numbers that ask for memory, and bodies that are not whole

IR = (
    '<net name="n" version="11"><layers><layer id="0" name="x" type="Parameter" '
    'version="opset1"><data shape="2,4" element_type="f32"/><output>'
    '<port id="0" precision="FP32"/></output></layer>{layers}'
    '<layer id="9" name="y" type="Result" version="opset1"><input><port '
    'id="0"/></input></layer></layers>'
    '<edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/><edge '
    'from-layer="0" from-port="0" to-layer="2" to-port="1"/>'
    '<edge from-layer="2" from-port="2" to-layer="9" to-port="0"/></edges></net>'
)
AXES = '<data shape="?" element_type="i64"/><output><port id="0" precision="I64"/></output>'


@pytest.mark.parametrize("size", [1 << 31, (1 << 63) - 1, 1 << 63, "1_000", "\u0663"])
def test_bins_that_would_fill_the_memory(tmp_path: Path, size: int | str) -> None:
    ports = (
        '<input><port id="0"/><port id="1"/></input><output><port id="2" '
        'precision="FP32"/></output>'
    )
    data = (
        f'<data output_dim="1" group_size="{size}" spatial_bins_x="1" spatial_bins_y="1" '
        'spatial_scale="1" mode="average"/>'
    )
    path = put(
        tmp_path,
        "net.xml",
        IR.format(
            layers='<layer id="2" name="p" type="PSROIPooling" '
            f'version="opset1">{data}{ports}</layer>'
        ),
    )
    assert judged(path, "-> onnx", "-> coreml") == ["refused", "refused"]


def test_shapes_of_more_axes_than_arrays_have(tmp_path: Path) -> None:
    ports = (
        '<input><port id="0"/><port id="1"/></input><output><port id="2" '
        'precision="FP32"/></output>'
    )
    path = put(
        tmp_path,
        "net.xml",
        IR.format(
            layers=f'<layer id="2" name="a" type="Add" version="opset1">{ports}</layer>'
        ).replace('shape="2,4"', f'shape="{",".join("1" * 65)}"'),
    )
    assert judged(path, "-> onnx", "check") == ["refused", "exit 4"]


def test_ports_with_impossible_sizes(tmp_path: Path) -> None:
    """Nothing is known of axes that are data but that they add no elements."""
    ports = (
        '<input><port id="0"/><port id="1"/></input><output><port id="2" '
        'precision="FP32"><dim>2</dim><dim>{}</dim><dim>1</dim></port></output>'
    )
    for size, answer in ((5, "refused"), (4, "right")):
        layer = (
            f'<layer id="2" name="a" type="Unsqueeze" version="opset1">{ports.format(size)}</layer>'
        )
        text = IR.format(
            layers='<layer id="1" name="axes" type="Parameter" '
            f'version="opset1">{AXES}</layer>{layer}'
        )
        path = put(
            tmp_path,
            "net.xml",
            text.replace(
                '0" from-port="0" to-layer="2" to-port="1"',
                '1" from-port="0" to-layer="2" to-port="1"',
            ),
        )
        assert judged(path, "-> onnx")[0].startswith(answer), size


def test_a_body_that_is_carried_is_whole(tmp_path: Path) -> None:
    """A value from outside the body of a SequenceMap would be lost."""
    items = onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, [2])
    made = onnx.helper.make_tensor_sequence_value_info("t", onnx.TensorProto.FLOAT, [2])
    one, two = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "ab")
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["a", "x"], ["b"])], "body", [one], [two]
    )
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("SequenceMap", ["s"], ["t"], body=body)], "g", [items, x], [made]
    )
    data = onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)]
    ).SerializeToString()
    refused(put(tmp_path, "net.onnx", data))


def test_arrays_that_a_file_asks_for_have_a_limit() -> None:
    assert (
        sizes.arange(3).tolist() == [0, 1, 2]
        and sizes.arange(4, 0, -2).tolist() == [4, 2]
        and sizes.arange(2.0, dtype="f4").dtype == "f4"
    )
    for bounds in ((1 << 40,), (0, 1 << 40, 1)):
        with pytest.raises(InferenceError, match="too large"):
            sizes.arange(*bounds)
