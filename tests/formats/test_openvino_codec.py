"""OpenVINO IR codec: read nets are written back unchanged, built ones can be read,
damaged ones are refused with location and reason.
"""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from converter.errors import MappingError, ReadError, UnsupportedError
from converter.formats.openvino.bodies import Results
from converter.formats.openvino.codec import check_ir, read_ir, write_ir
from converter.formats.openvino.format import sniff
from converter.formats.openvino.ir import (
    BackEdge,
    Body,
    Channel,
    Edge,
    Element,
    Layer,
    Net,
    Port,
    PortMap,
    PreProcess,
    Statistic,
    SubNet,
)
from converter.formats.openvino.types import ELEMENT_TYPES
from converter.formats.openvino.validate import validate_legacy
from converter.formats.openvino.xml import parse_xml
from converter.graph.lazy_tensor import LazyTensor
from converter.io.files import Output

LEGACY = """<?xml version="1.0" ?>
<net name="m" version="5" batch="1">
	<!-- written by hand -->
	<layers>
		<layer id="0" name="x" precision="FP32" type="Input">
			<output>
				<port id="0"><dim>1</dim><dim>2</dim></port>
			</output>
		</layer>
		<layer id="3" name="fc" precision="FP32" type="FullyConnected" color="red">
			<data out-size="03"/>
			<input>
				<port id="0"><dim>1</dim><dim>2</dim></port>
			</input>
			<output>
				<port id="3"><dim>1</dim><dim>3</dim></port>
			</output>
			<blobs>
				<weights offset="5" size="24"/>
				<biases offset="32" size="12" precision="FP32"/>
			</blobs>
		</layer>
	</layers>
	<edges>
		<edge from-layer="0" from-port="0" to-layer="3" to-port="0"/>
	</edges>
	<pre-process reference-layer-name="x" mean-precision="FP32">
		<channel id="0"><mean value="1.5"/><scale value="2"/></channel>
		<channel id="1"><mean offset="40" size="4"/></channel>
	</pre-process>
	<statistics>
		<layer><name>fc</name><min>-1, 0,1e-3</min><max>1,2,3</max></layer>
	</statistics>
	<meta_data><MO_version value="2019"/></meta_data>
	<unheard-of><thing n="1">text</thing></unheard-of>
</net>
"""
OPSET = r"""<?xml version="1.0"?>
<net name="m" version="11">
	<layers>
		<layer id="7" name="x" type="Parameter" version="opset1">
			<data shape="?,2" element_type="f32" />
			<output>
				<port id="0" precision="FP32" names="x,a\,b"><dim>-1</dim><dim>2</dim></port>
			</output>
		</layer>
		<layer id="2" name="w" type="Const" version="opset1">
			<data element_type="u4" shape="3, 1" offset="3" size="2" />
			<rt_info><attribute name="decompression" version="0" /></rt_info>
			<output>
				<port id="0" precision="U4"><dim>3</dim><dim>1</dim></port>
			</output>
		</layer>
		<layer id="5" name="y" type="Mine" version="extension">
			<input>
				<port id="4" precision="FP32"><dim>-1</dim><dim>2</dim></port>
				<port id="1" precision="U4"><dim>3</dim><dim>1</dim></port>
			</input>
			<output>
				<port id="2" precision="FP32" />
			</output>
		</layer>
		<layer id="9" name="y/result" type="Result" version="opset1" output_names="y">
			<input>
				<port id="0" precision="FP32" />
			</input>
		</layer>
	</layers>
	<edges>
		<edge from-layer="7" from-port="0" to-layer="5" to-port="4" />
		<edge from-layer="2" from-port="0" to-layer="5" to-port="1" />
		<edge from-layer="5" from-port="2" to-layer="9" to-port="0" />
	</edges>
	<rt_info><model_info><labels value="cat dog" /></model_info></rt_info>
</net>
"""
BIN = bytes(range(100, 144))


def put(folder: Path, text: str | bytes, bin: bytes | None = BIN) -> Path:
    path = folder / "m.xml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if bin is not None:
        path.with_suffix(".bin").write_bytes(bin)
    return path


def write(net: Net, path: Path) -> Path:
    with Output(path) as out:
        write_ir(net, out)
    return path


def canonical(path: Path) -> bytes:
    return etree.tostring(etree.parse(path, etree.XMLParser(remove_blank_text=True)), method="c14n")


def same_contents(a: Body, b: Body) -> None:
    """Nodes and the bytes of every blob are equal, at any offsets in the .bin."""
    for x, y in zip(a.walk(), b.walk(), strict=True):
        assert list(x.blobs) == list(y.blobs)
        for name in x.blobs:
            assert x.blobs[name].bytes().tobytes() == y.blobs[name].bytes().tobytes()
            assert x.blobs[name].element == y.blobs[name].element
        x.blobs = y.blobs = {}
    assert a == b


@pytest.mark.parametrize("text", [LEGACY, OPSET], ids=["legacy", "opset"])
def test_unchanged_is_copied(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text)
    copy = write(read_ir(path), tmp_path / "copy.xml")
    assert copy.read_bytes() == path.read_bytes()
    assert copy.with_suffix(".bin").read_bytes() == BIN


@pytest.mark.parametrize("text", [LEGACY, OPSET], ids=["legacy", "opset"])
def test_changed_keeps_everything_else(tmp_path: Path, text: str) -> None:
    net = read_ir(put(tmp_path, text))
    net.layers[0].name = "renamed"
    again = read_ir(write(net, tmp_path / "copy.xml"))
    assert again.layers[0].name == "renamed"
    for n in (net, again):
        if n.pre_process:
            mean = n.pre_process.channels[1].mean
            assert isinstance(mean, LazyTensor) and mean.bytes().tobytes() == BIN[40:44]
            n.pre_process.channels[1].mean = None
    same_contents(net, again)


def test_a_changed_constant_is_a_change(tmp_path: Path) -> None:
    net = read_ir(put(tmp_path, LEGACY))
    net.layers[1].blobs["weights"] = LazyTensor(np.arange(6, dtype=np.float32))
    again = read_ir(write(net, tmp_path / "copy.xml"))
    assert again.layers[1].blobs["weights"].bytes().view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert again.layers[1].blobs["biases"].bytes().tobytes() == BIN[32:44]


def test_legacy_fields(tmp_path: Path) -> None:
    net = read_ir(put(tmp_path, LEGACY))
    fc = net.layers[1]
    assert (net.name, net.version, net.legacy, net.attrs) == ("m", 5, True, {"batch": "1"})
    assert (fc.id, fc.name, fc.type, fc.precision, fc.data, fc.attrs, fc.line) == (
        3,
        "fc",
        "FullyConnected",
        "FP32",
        {"out-size": "03"},
        {"color": "red"},
        10,
    )
    assert fc.inputs == [Port(0, (1, 2))] and fc.outputs == [Port(3, (1, 3))]
    assert (
        fc.blobs["weights"].bytes().tobytes() == BIN[5:29] and fc.blobs["biases"].element == "FP32"
    )
    assert net.edges == [Edge(0, 0, 3, 0)]
    assert net.pre_process is not None and net.pre_process.channels[0] == Channel(0, 1.5, 2.0)
    assert net.statistics == [Statistic("fc", (-1, 0, 1e-3), (1, 2, 3))]
    assert net.extra == [Element("unheard-of", {}, [Element("thing", {"n": "1"}, [], "text")])]


def test_opset_fields(tmp_path: Path) -> None:
    net = read_ir(put(tmp_path, OPSET))
    by_id = net.by_id()
    assert by_id[7].outputs == [Port(0, (-1, 2), "FP32", ("x", "a,b"))]
    assert (
        by_id[2].data == {"element_type": "u4", "shape": "3, 1"}
        and by_id[2].blobs["value"].bytes().tobytes() == BIN[3:5]
    )
    assert by_id[2].rt_info is not None and by_id[2].rt_info.attribute("decompression") is not None
    assert by_id[9].attrs == {"output_names": "y"}
    assert net.producers()[5, 1] == (2, 0) and net.consumers()[5, 2] == [(9, 0)]
    assert [layer.id for layer in net.ordered()] == [7, 2, 5, 9]
    assert np.shares_memory(by_id[2].blobs["value"].bytes(), net.bin.bytes if net.bin else None)


def test_old_spellings(tmp_path: Path) -> None:
    """Blobs directly in the layer, `<TYPE_data>`, elements inside `<data>`, and a second `<input>`
    that engines do not see.
    """
    text = (
        LEGACY.replace("<blobs>", "")
        .replace("</blobs>", "")
        .replace("<data out", "<fc_data out")
        .replace('03"/>', '3"><crop axis="1"/></fc_data>')
    )
    text = text.replace(
        '<output>\n\t\t\t\t<port id="3">',
        '<input><port id="9"/></input><output>\n\t\t\t\t<port id="3">',
    )
    fc = read_ir(put(tmp_path, text)).layers[1]
    assert list(fc.blobs) == ["weights", "biases"] and fc.data == {"out-size": "3"}
    assert fc.data_children == [Element("crop", {"axis": "1"})]
    assert [p.id for p in fc.inputs] == [0] and [e.tag for e in fc.extra] == ["input"]


def test_encodings(tmp_path: Path) -> None:
    named = OPSET.replace('name="w"', 'name="größe"')
    for text in (
        named.encode("utf-8-sig"),
        named.encode("utf-16"),
        named.replace("?>", ' encoding="iso-8859-1"?>', 1).encode("latin-1"),
    ):
        path = put(tmp_path, text)
        assert read_ir(path).by_id()[2].name == "größe"
        assert sniff(text[:4096], path)


def loop_net(version: int) -> Net:
    """A TensorIterator over axis 1, in the form of its version."""
    legacy = version < 10
    opset = "" if legacy else "opset1"
    if legacy:
        body = SubNet(
            layers=[
                Layer(
                    0,
                    "relu",
                    "ReLU",
                    precision="FP32",
                    inputs=[Port(0, (1, 1))],
                    outputs=[Port(1, (1, 1), "FP32")],
                )
            ]
        )
        body.inputs = [PortMap(0, 0, 0, axis=1, start=0, end=-1, stride=1, part_size=1)]
        body.outputs = [PortMap(1, 0, 1, axis=1)]
        body.back_edges = [BackEdge(0, 0, 1, 0)]
    else:
        parameter = Layer(
            4,
            "p",
            "Parameter",
            "opset1",
            data={"shape": "1,1", "element_type": "f32"},
            outputs=[Port(0, (1, 1), "FP32")],
        )
        result = Layer(6, "r", "Result", "opset1", inputs=[Port(0, (1, 1), "FP32")])
        body = SubNet(
            layers=[parameter, result], edges=[Edge(4, 0, 6, 0)], rt_info=Element("rt_info")
        )
        body.inputs = [PortMap(0, 4, axis=1), PortMap(-1, 4, purpose="current_iteration")]
        body.outputs = [PortMap(1, 6, axis=1)]
        body.back_edges = [BackEdge(6, 4)]
    data = {} if legacy else {"shape": "1,3", "element_type": "f32"}
    source = Layer(
        0,
        "x",
        "Input" if legacy else "Parameter",
        opset,
        data=data,
        outputs=[Port(0, (1, 3), "FP32")],
    )
    loop = Layer(
        1,
        "loop",
        "TensorIterator",
        opset,
        inputs=[Port(0, (1, 3))],
        outputs=[Port(1, (1, 3), "FP32")],
        bodies={"body": body},
    )
    return Net(name="loop", version=version, layers=[source, loop], edges=[Edge(0, 0, 1, 0)])


@pytest.mark.parametrize("version", [7, 11])
def test_bodies(tmp_path: Path, version: int) -> None:
    net = loop_net(version)
    assert read_ir(write(net, tmp_path / "loop.xml")) == net


def test_if_has_two_bodies(tmp_path: Path) -> None:
    net = loop_net(11)
    body = net.layers[1].bodies["body"]
    body.back_edges = []
    net.layers[1].type, net.layers[1].version = "If", "opset8"
    net.layers[1].bodies = {
        "then_body": body,
        "else_body": SubNet(
            layers=body.layers, edges=body.edges, inputs=body.inputs, outputs=body.outputs
        ),
    }
    path = write(net, tmp_path / "if.xml")
    assert read_ir(path) == net
    assert [e.tag for e in etree.parse(path).find("layers")[1]] == [
        "then_port_map",
        "else_port_map",
        "input",
        "output",
        "then_body",
        "else_body",
    ]


def constants(*contents: tuple[str, tuple[int, ...], Any]) -> Net:
    """A net of constants given as (element type, shape, content)."""
    layers = []
    for i, (kind, shape, content) in enumerate(contents):
        data = {"element_type": kind, "shape": ", ".join(map(str, shape))}
        port = Port(0, tuple(shape), ELEMENT_TYPES[kind].precision)
        layers.append(
            Layer(
                i,
                f"c{i}",
                "Const",
                "opset1",
                data=data,
                outputs=[port],
                blobs={
                    "value": content if isinstance(content, LazyTensor) else LazyTensor(content)
                },
            )
        )
    return Net(name="constants", version=11, layers=layers)


def test_every_kind_of_content(tmp_path: Path) -> None:
    big = np.arange(6, dtype=np.float32).reshape(2, 3)
    net = constants(
        ("f32", (3, 2), big.T),
        ("f32", (2, 3), big.astype(">f4")),
        ("u8", (3,), np.frombuffer(b"abc", np.uint8)),
        ("f32", (2, 3), LazyTensor(lambda: big, ir.DataType.FLOAT, (2, 3))),
        ("u4", (3,), np.array([1, 2, 3], ir.DataType.UINT4.numpy())),
        ("f32", (), np.array(7, np.float32)),
        ("boolean", (2,), np.array([True, False])),
        ("i64", (0,), np.empty(0, np.int64)),
    )
    path = write(net, tmp_path / "c.xml")
    read = [layer.blobs["value"].bytes().tobytes() for layer in read_ir(path).layers]
    packed = big.tobytes()
    assert read == [
        big.T.tobytes(),
        packed,
        b"abc",
        packed,
        b"\x21\x03",
        np.float32(7).tobytes(),
        b"\x01\x00",
        b"",
    ]
    offsets = [int(e.get("offset")) for e in etree.parse(path).iter("data")]
    assert offsets[1] == offsets[3], "equal small constants share their place"
    assert all(offset % 8 == 0 for offset in offsets)
    assert etree.parse(path).findall(".//data")[-1].get("size") == "1", (
        "OpenVINO gives a constant without elements one byte"
    )


def test_large_permuted_array(tmp_path: Path) -> None:
    """Written in slabs: 48 MB with rows below, and one with a row above, the size of a slab."""
    array = np.arange(12 << 20, dtype=np.float32).reshape(64, 3, 1 << 16)
    for view in (array.transpose(1, 2, 0), array.transpose(2, 1, 0)):
        net = constants(("f32", view.shape, view))
        assert np.array_equal(
            read_ir(write(net, tmp_path / "big.xml"))
            .layers[0]
            .blobs["value"]
            .bytes()
            .view(np.float32),
            view.reshape(-1),
        )


def test_equal_constants_share_their_bytes(tmp_path: Path) -> None:
    array = np.zeros(4096, np.float32)
    other = array.copy()
    other[7] = 1
    net = constants(
        ("f32", (4096,), array),
        ("f32", (64, 64), array.copy().reshape(64, 64)),
        ("f32", (4096,), other),
    )
    path = write(net, tmp_path / "c.xml")
    assert path.with_suffix(".bin").stat().st_size == 2 * array.nbytes


def test_output_is_deterministic(tmp_path: Path) -> None:
    one, two = (
        write(constants(("f32", (2,), np.ones(2, np.float32))), tmp_path / f"{i}.xml")
        for i in range(2)
    )
    assert (
        one.read_bytes() == two.read_bytes()
        and one.with_suffix(".bin").read_bytes() == two.with_suffix(".bin").read_bytes()
    )


def test_layout_of_the_xml(tmp_path: Path) -> None:
    text = write(loop_net(11), tmp_path / "loop.xml").read_text()
    assert text.startswith(
        '<?xml version="1.0"?>\n<net name="loop" version="11">\n\t<layers>\n\t\t<layer '
        'id="0" name="x" type="Parameter" version="opset1">\n\t\t\t<data'
    )
    assert text.endswith("\t</edges>\n</net>\n")


def test_faults_of_the_caller(tmp_path: Path) -> None:
    for net in (
        constants(("f32", (3,), np.ones(2, np.float32))),
        constants(("f32", (3,), np.ones(3))),
    ):
        with pytest.raises(ValueError, match="layer 'c0': "):
            write(net, tmp_path / "bad.xml")
    shorter = LazyTensor(lambda: np.ones(2, np.float32), ir.DataType.FLOAT, [3])
    with pytest.raises(AssertionError, match="12 bytes was declared, but 8 were produced"):
        write(constants(("f32", (3,), shorter)), tmp_path / "bad.xml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "name", "a\x01b"),
        lambda net: setattr(net.layers[1], "name", "a\x01b"),
        lambda net: net.layers[0].data.update(note="a\x01b"),
        lambda net: setattr(net.layers[0].outputs[0], "names", ("a\x01b",)),
        lambda net: net.extra.append(Element("note", {}, [], "a\x01b")),
        lambda net: net.statistics.append(Statistic("a\x01b")),
        lambda net: setattr(net, "pre_process", PreProcess("a\x01b")),
    ],
)
def test_control_characters_cannot_be_written(tmp_path: Path, change) -> None:
    net = loop_net(11)
    change(net)
    with pytest.raises(UnsupportedError, match=r"W303.*XML cannot represent"):
        write(net, tmp_path / "bad.xml")
    assert not list(tmp_path.iterdir())


DAMAGED = [
    (
        LEGACY,
        'version="5"',
        'version="1"',
        "R104",
        2,
        "version '1' of OpenVINO IR is not supported",
    ),
    (
        OPSET,
        'version="11"',
        'version="12"',
        "R104",
        2,
        "version '12' of OpenVINO IR is not supported",
    ),
    (
        OPSET,
        'version="11"',
        'version="eleven"',
        "R104",
        2,
        "version 'eleven' of OpenVINO IR is not supported",
    ),
    (OPSET, ' version="11"', "", "R103", 2, "<net> lacks its mandatory attribute 'version'"),
    (
        OPSET,
        "<net ",
        "<Net ",
        "R103",
        None,
        "the XML is damaged: Opening and ending tag mismatch: Net line 2 and net",
    ),
    (
        OPSET,
        "net",
        "network",
        "R103",
        2,
        "the root element is <network>, but an IR begins with <net>",
    ),
    (OPSET, "layers>", "lagen>", "R103", 2, "<net> lacks its mandatory element <layers>"),
    (OPSET, ' id="5"', "", "R103", 17, "<layer> lacks its mandatory attribute 'id'"),
    (OPSET, ' type="Mine"', "", "R103", 17, "<layer> lacks its mandatory attribute 'type'"),
    (
        OPSET,
        ' version="extension"',
        "",
        "R103",
        17,
        "<layer> lacks its mandatory attribute 'version'",
    ),
    (LEGACY, ' name="fc"', "", "R103", 10, "<layer> lacks its mandatory attribute 'name'"),
    (
        OPSET,
        'id="2" precision="FP32"',
        'id="2"',
        "R103",
        23,
        "<port> lacks its mandatory attribute 'precision'",
    ),
    (OPSET, 'id="4"', 'id="x"', "R103", 19, "id of <port> is not an integer: 'x'"),
    (OPSET, 'id="4"', 'id="-4"', "R110", 19, "id of <port> must be at least 0, got -4"),
    (
        OPSET,
        'id="4"',
        f'id="{"9" * 50}"',
        "R103",
        19,
        f"id of <port> is not an integer: '{'9' * 37}...'",
    ),
    (
        OPSET,
        'id="4"',
        'id="9999999999999999999"',
        "R103",
        19,
        "id of <port> is not an integer: '9999999999999999999'",
    ),
    (
        OPSET,
        "<dim>-1</dim>",
        "<dim>-2</dim>",
        "R110",
        7,
        "a dimension of port 0 must be at least -1, got -2",
    ),
    (OPSET, "<dim>-1</dim>", "<dim/>", "R103", 7, "a dimension of port 0 is not an integer: ''"),
    (
        LEGACY,
        "<dim>1</dim>",
        "<dim>0</dim>",
        "R110",
        7,
        "a dimension of port 0 must be at least 1, got 0",
    ),
    (
        LEGACY,
        "<dim>1</dim>",
        "<dim>-1</dim>",
        "R110",
        7,
        "a dimension of port 0 must be at least 1, got -1",
    ),
    (
        LEGACY,
        'offset="32"',
        'offset="33"',
        "R102",
        20,
        "bytes 33..45 are outside m.bin, which has 44 bytes",
    ),
    (
        LEGACY,
        'offset="32"',
        'offset="-3"',
        "R110",
        20,
        "offset of <biases> must be at least 0, got -3",
    ),
    (LEGACY, 'size="12"', "", "R103", 20, "<biases> lacks its mandatory attribute 'size'"),
    (
        LEGACY,
        'offset="40"',
        'offset="41"',
        "R102",
        29,
        "bytes 41..45 are outside m.bin, which has 44 bytes",
    ),
    (LEGACY, 'value="1.5"', 'value="1_5"', "R103", 28, "the mean is not a number: '1_5'"),
    (LEGACY, "1e-3", "1e-", "R103", 32, "<min> of the statistics is not a number: '1e-'"),
    (
        OPSET,
        'offset="3"',
        'offset="43"',
        "R102",
        11,
        "bytes 43..45 are outside m.bin, which has 44 bytes",
    ),
    (
        OPSET,
        'size="2"',
        'size="3"',
        "R103",
        11,
        "the constant has 3 bytes, but u4 of shape [3, 1] needs 2",
    ),
    (
        OPSET,
        'shape="3, 1"',
        'shape="3000000000, 3000000000"',
        "R103",
        11,
        "the constant has 2 bytes, but u4 of shape [3000000000, 3000000000] needs 450",
    ),
    (
        OPSET,
        'shape="3, 1"',
        f'shape="{"1," * 300}1"',
        "R110",
        11,
        "a constant has 301 dimensions, limit 64",
    ),
    (
        OPSET,
        'shape="3, 1"',
        'shape="?, 1"',
        "R103",
        11,
        "a dimension of shape is not an integer: '?'",
    ),
    (
        OPSET,
        ' element_type="u4"',
        "",
        "R103",
        11,
        "<data> lacks its mandatory attribute 'element_type'",
    ),
    (OPSET, '"u4"', '"U4"', "R110", 11, "element_type 'U4' is not known"),
    (OPSET, 'id="2" name', 'id="7" name', "R105", 10, "layer id 7 is already used by 'x'"),
    (LEGACY, 'name="fc"', 'name="x"', "R105", 10, "the name is already used by layer 0"),
    (OPSET, 'id="4"', 'id="1"', "R105", 17, "2 input ports have the id 1"),
    (
        OPSET,
        'from-layer="2"',
        'from-layer="3"',
        "R105",
        34,
        "the edge refers to layer 3, which does not exist",
    ),
    (
        OPSET,
        'to-layer="5" to-port="1"',
        'to-layer="6" to-port="1"',
        "R105",
        34,
        "the edge refers to layer 6, which does not exist",
    ),
    (
        OPSET,
        'from-layer="2" from-port="0"',
        'from-layer="2" from-port="1"',
        "R105",
        34,
        "the edge begins at output port 1 of 'w', which does not exist",
    ),
    (
        OPSET,
        'to-port="1"',
        'to-port="2"',
        "R105",
        34,
        "the edge ends at input port 2 of 'y', which does not exist",
    ),
    (
        OPSET,
        'to-port="1"',
        'to-port="4"',
        "R105",
        34,
        "the edge ends at input port 4 of 'y', where another edge ends as well",
    ),
    (
        OPSET,
        'from-layer="2" from-port="0"',
        'from-layer="5" from-port="2"',
        "R105",
        17,
        "the layer is part of a cycle, or its inputs are",
    ),
    (
        OPSET,
        '<edge from-layer="2" from-port="0" to-layer="5" to-port="1" />',
        "",
        "R105",
        17,
        "input port 1 is not connected",
    ),
    (
        OPSET,
        "?>\n",
        '?>\n<!DOCTYPE net [<!ENTITY a "b">]>\n',
        "R103",
        2,
        "a document type declaration is not allowed in an IR",
    ),
    (OPSET, 'name="w"', 'name="&w;"', "R103", 10, "the XML is damaged: Entity 'w' not defined"),
    (
        OPSET,
        "</net>",
        "",
        "R103",
        None,
        "the XML is damaged: Premature end of data in tag net line 2",
    ),
    (OPSET, OPSET, "", "R103", 1, "the XML is damaged: Document is empty"),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "code", "line", "message"),
    DAMAGED,
    ids=[f"{i}-{row[5][:40]}" for i, row in enumerate(DAMAGED)],
)
def test_damaged(
    tmp_path: Path, text: str, old: str, new: str, code: str, line: int | None, message: str
) -> None:
    changed = (
        text.replace(old, new) if old == "net" or "layers" in old else text.replace(old, new, 1)
    )
    assert changed != text
    path = put(tmp_path, changed)
    with pytest.raises(ReadError) as error:
        read_ir(path)
    found = error.value.diagnostics[0]
    assert (found.code, found.where.file) == (code, str(path))
    assert found.message.startswith(message)
    assert line in (None, found.where.line)


def test_a_port_map_to_a_value_that_a_body_does_not_have_is_refused() -> None:
    with pytest.raises(MappingError, match="no value at port 1 of layer 2") as info:
        Results({})[2, 1]
    assert info.value.code == "R105"


@pytest.mark.parametrize(
    ("version", "old", "new", "message"),
    [
        (
            7,
            'external_port_id="0"',
            'external_port_id="5"',
            "a port map refers to port 5, which does not exist",
        ),
        (
            7,
            'internal_layer_id="0"',
            'internal_layer_id="8"',
            "<body> has no layer 8, but its connections refer to it",
        ),
        (
            7,
            'internal_port_id="1"',
            'internal_port_id="0"',
            "layer 0 of <body> has no output port 0",
        ),
        (
            7,
            'internal_port_id="1"',
            "",
            "<output> lacks its mandatory attribute 'internal_port_id'",
        ),
        (
            7,
            'from-layer="0" from-port="1"',
            'from-layer="0"',
            "<edge> lacks its mandatory attribute 'from-port'",
        ),
        (7, 'axis="1"', 'axis="one"', "axis of <input> is not an integer: 'one'"),
        (
            11,
            'external_port_id="-1"',
            'external_port_id="-2"',
            "external_port_id of <input> must be at least -1, got -2",
        ),
        (
            11,
            'to-layer="4"',
            'to-layer="5"',
            "<body> has no layer 5, but its connections refer to it",
        ),
    ],
)
def test_damaged_bodies(tmp_path: Path, version: int, old: str, new: str, message: str) -> None:
    path = write(loop_net(version), tmp_path / "m.xml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ReadError, match=re.escape(message)):
        read_ir(path)


def test_weights_file(tmp_path: Path) -> None:
    """Missing is an error only when a blob needs it; another name can be given."""
    path = put(tmp_path, OPSET, bin=None)
    with pytest.raises(
        ReadError, match=r"R102. weights file m.bin was not found at .*m.xml:11 .*--weights"
    ):
        read_ir(path)
    other = tmp_path / "other.weights"
    other.write_bytes(BIN)
    assert read_ir(path, other).layers[1].blobs["value"].bytes().tobytes() == BIN[3:5]
    with pytest.raises(ReadError, match="R100"):
        read_ir(path, tmp_path / "absent.bin")
    net = loop_net(11)
    write(net, path)
    path.with_suffix(".bin").unlink()
    assert read_ir(path) == net
    copy = write(read_ir(path), tmp_path / "copy.xml")
    assert copy.with_suffix(".bin").read_bytes() == b""


def test_entities_do_not_explode(tmp_path: Path) -> None:
    entities = '<!ENTITY a0 "ha">' + "".join(
        f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)
    )
    bomb = (
        f'<?xml version="1.0"?><!DOCTYPE net [{entities}]><net name="&a11;" '
        'version="11"><layers/></net>'
    )
    for data in (bomb.encode(), bomb.encode("utf-16")):
        with pytest.raises(ReadError, match="R103"):
            read_ir(put(tmp_path, data))


def test_other_paths(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.xml"):
        with pytest.raises(ReadError, match="R100"):
            read_ir(path)


@given(st.data())
def test_never_anything_but_a_read_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Truncations and wrong bytes, in a legacy and an opset IR."""
    folder = tmp_path_factory.mktemp("damaged")
    whole = bytearray(data.draw(st.sampled_from([LEGACY, OPSET])).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(
            st.one_of(st.sampled_from(string.digits.encode() + b'<>/"&- '), st.integers(0, 255))
        )
    end = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    path = put(folder, bytes(whole[:end]), BIN[: data.draw(st.sampled_from([len(BIN), 0, 30]))])
    try:
        net = read_ir(path)
    except ReadError as error:
        assert error.diagnostics[0].code in ("R102", "R103", "R104", "R105", "R110")
        assert error.diagnostics[0].where.file == str(path)
    else:
        assert canonical(write(net, folder / "copy.xml")) == canonical(path)


@pytest.mark.parametrize(
    ("head", "is_ir"),
    [
        (b'<?xml version="1.0"?>\n<net name="a" version="11">', True),
        (b"\xef\xbb\xbf<net>", True),
        (b"<!-- <html> --><!-- --><net\tversion='7'>", True),
        (b"<network/>", False),
        (b"<?xml version='1.0'?><!-- <net> --><html>", False),
        (b"", False),
        (b"\x08\x01net", False),
        (b"<!---->" * 500, False),
    ],
)
def test_sniff(head: bytes, is_ir: bool) -> None:
    assert sniff(head, Path("m.xml")) is is_ir


def findings(text: str) -> list[tuple[int, str]]:
    return [
        (d.where.line, d.message)
        for d in validate_legacy(parse_xml(text.encode(), "m.xml"), "m.xml")
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("<dim>1</dim>", "<dim>0</dim>", 7, "<dim> must be a positive integer, got '0'"),
        ("<dim>1</dim>", "<dims>1</dims>", 7, "<dims> is not allowed in <port>"),
        (' id="3" name', " name", 10, "<layer> lacks its mandatory attribute 'id'"),
        (' size="24"', "", 19, "<weights> lacks its mandatory attribute 'size'"),
        (
            'size="24"',
            'size="-1"',
            19,
            "size of <weights> must be a non-negative integer, got '-1'",
        ),
        ("<blobs>", "<blobs>seven", 18, "<blobs> must not contain text, got 'seven'"),
        ("<data out", "<input/><data out", 12, "<input> is not allowed twice in <layer>"),
        ("layers>", "lagen>", 2, "<net> lacks its mandatory element <layers>"),
        ("<edge ", "<kante ", 25, "<kante> is not allowed in <edges>"),
        ('version="5"', 'version="V"', 2, "version of <net> must be an integer, got 'V'"),
        (
            '<mean value="1.5"/>',
            '<mean value="x"/>',
            28,
            "value of <mean> must be a number, got 'x'",
        ),
    ],
)
def test_grammar_names_line_and_cause(old: str, new: str, line: int, message: str) -> None:
    assert findings(LEGACY) == []
    changed = LEGACY.replace(old, new)
    assert changed != LEGACY
    assert (line, message) in findings(changed)


def test_grammar_of_documents_that_only_libxml2_judges() -> None:
    found = findings(LEGACY.replace('version="5"', 'version="12"'))
    assert len(found) == 1
    assert findings(OPSET) != [] and findings("<foo/>") == [
        (1, "the root element is <foo>, but an IR begins with <net>")
    ]


def test_grammar_knows_tensor_iterators(tmp_path: Path) -> None:
    text = write(loop_net(7), tmp_path / "loop.xml").read_text()
    assert findings(text) == []
    without = re.sub(r"<body>.*</body>", "", text, flags=re.DOTALL)
    assert len(findings(without)) == 1
    assert [message for _, message in findings(text.replace('external_port_id="0"', ""))] == [
        "<input> lacks its mandatory attribute 'external_port_id'"
    ]


def test_check_ir(tmp_path: Path) -> None:
    """The file by itself: every finding of the grammar, or the first refusal of the reader, never
    an exception.
    """
    assert check_ir(put(tmp_path, LEGACY)) == check_ir(put(tmp_path, OPSET)) == []
    found = check_ir(
        put(tmp_path, LEGACY.replace("<dim>1</dim>", "<dim>0</dim>").replace(' type="Input"', ""))
    )
    assert [(d.code, d.where.line) for d in found] == [
        ("R103", 5),
        ("R103", 7),
        ("R103", 13),
        ("R103", 16),
    ]
    assert [
        d.code for d in check_ir(put(tmp_path, LEGACY.replace('to-port="0"', 'to-port="1"')))
    ] == ["R105"]
    assert [
        d.code for d in check_ir(put(tmp_path, OPSET.replace('version="11"', 'version="12"')))
    ] == ["R104"]
    assert [d.code for d in check_ir(tmp_path / "absent.xml")] == ["R100"]


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "suite", ["legacy-layers", "legacy-nets", "legacy-ops", "nets", "op-reference", "ops"]
)
def test_corpus(corpus: Path, tmp_path: Path, suite: str, every: int) -> None:
    """Every model of the corpus: written back unchanged, built anew with the same contents, and
    valid by the grammar if legacy.
    """
    models = sorted((corpus / "openvino" / suite).glob("*/model.xml"))
    assert models
    for path in models[::every]:
        assert sniff(path.read_bytes()[:4096], path)
        net = read_ir(path)
        copy = write(net, tmp_path / "copy.xml")
        assert canonical(copy) == canonical(path), path
        assert copy.with_suffix(".bin").read_bytes() == path.with_suffix(".bin").read_bytes(), path
        if net.legacy:
            assert validate_legacy(parse_xml(path.read_bytes(), str(path)), str(path)) == []
        net.xml = None
        anew = read_ir(write(net, tmp_path / "anew.xml"))
        same_contents(net, anew)
