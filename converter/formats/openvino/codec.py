"""OpenVINO IR on disk <-> `ir.Net`: mechanical and lossless; a net that was read and not changed is
written back byte for byte.

Facts: IR versions 2 to 9 (legacy layer catalogue) and 10, 11 (operation sets); NAME.xml with the
structure, NAME.bin with the constants, a heap of little-endian bytes without header or alignment
that may hold gaps and ranges used twice.
"""

from __future__ import annotations

from pathlib import Path

from converter.errors import Diagnostic, ReadError
from converter.formats.openvino.ir import Net
from converter.formats.openvino.writer import lay_out, write_xml
from converter.io.files import Output, open_side_file
from converter.io.mapped_file import MappedFile


def read_ir(path: Path | str, weights: Path | None = None) -> Net:
    """Read NAME.xml and, when it is there, NAME.bin next to it or the file `weights`.

    Everything is checked on the way: structure, sizes, references into the .bin, the graph. Blobs
    are views of the mapped .bin. ReadError: R100 unreadable file, R102 .bin missing or too small,
    R107 .bin elsewhere, R103 damaged, R104 version, R105 not a graph, R110 impossible value.
    """
    from converter.formats.openvino.check import check_net

    xml = MappedFile(path)
    beside = xml.path.with_suffix(".bin")
    bin = MappedFile(weights) if weights else open_side_file(xml.path, beside.name)
    net = _parse(xml, bin, beside.name)
    check_net(net)
    return net


def _parse(xml: MappedFile, bin: MappedFile | None, bin_name: str) -> Net:
    from converter.formats.openvino.reader import read_net
    from converter.formats.openvino.xml import parse_xml

    file = str(xml.path)
    net = read_net(parse_xml(xml.bytes.tobytes(), file), file, bin, bin_name)
    net.xml = xml
    return net


def check_ir(path: Path | str, weights: Path | None = None) -> list[Diagnostic]:
    """Return everything that is wrong with the file itself; for legacy IR all findings of its
    grammar at once, else the first error.
    """
    from converter.formats.openvino.validate import validate_legacy
    from converter.formats.openvino.xml import parse_xml

    try:
        xml = MappedFile(path)
        root = parse_xml(xml.bytes.tobytes(), str(xml.path))
        found = (
            validate_legacy(root, str(xml.path))
            if root.get("version", "") in map(str, range(2, 10))
            else []
        )
        if not found:
            read_ir(path, weights)
    except ReadError as e:
        return list(e.diagnostics)
    return found


def write_ir(net: Net, out: Output) -> None:
    """Write the XML to `out.target` and the constants to the .bin next to it.

    A net that still equals the file it was read from is copied, gaps, comments and spelling
    included. Otherwise the constants are packed anew in layer order and `offset` and `size` follow
    from that; the bytes depend on nothing but the net.
    """
    if _unchanged(net):
        for suffix, file in ((".bin", net.bin), ("", net.xml)):
            with out.open(suffix) as f:
                f.write(file.bytes.data if file else b"")
        return
    places, weights = lay_out(net)
    out.stream(".bin", (w.stored() for w in weights))
    with out.open("") as f:
        write_xml(net, places, f)


def _unchanged(net: Net) -> bool:
    """Return whether a file that was not changed would be written unchanged: it is read again,
    which proves that no change is lost.
    """
    if net.xml is None:
        return False
    try:
        return _parse(net.xml, net.bin, "") == net
    except ReadError:
        # the file was changed meanwhile; the net was not
        return False
