"""Guarded XML: parsing without entities, document types or network, and attributes read with their
position in the file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TypeAlias, cast

from lxml import etree

from converter.errors import ReadError, Where, unreadable
from converter.formats.openvino.ir import Element
from converter.record import record

XmlElement: TypeAlias = etree._Element

_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,19})\s*\Z", re.ASCII)
_NUMBER = re.compile(
    r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|nan)\s*\Z", re.ASCII | re.IGNORECASE
)
_COMMA = re.compile(r"(?<!\\),")
MOST_ATTRIBUTES = 5000  # of one element; the parser compares each with each
_LONG_TAG = re.compile(rb"<[^<>]{%d,}" % (len(" a=''") * MOST_ATTRIBUTES))


def parse_xml(data: bytes, file: str) -> XmlElement:
    """Return the root element of an XML document; raise ReadError R103 with the line for anything
    that is not plain well-formed XML.
    """

    def bad(message: str, line: int) -> ReadError:
        return unreadable("R103", message, Where(file, line))

    # entities in attribute values are expanded while parsing, so a document type is refused before,
    # and once more after (UTF-16)
    doctype = "a document type declaration is not allowed in an IR"
    head = data[: data.find(b"<net") + 1 or None]
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    if b"<!DOCTYPE" in head:
        raise bad(doctype, head.count(b"\n", 0, head.find(b"<!DOCTYPE")) + 1)
    for tag in _LONG_TAG.finditer(data):
        if tag[0].count(b"=") > MOST_ATTRIBUTES:
            at = data.count(b"\n", 0, tag.start()) + 1
            raise bad(f"an element has more than {MOST_ATTRIBUTES} attributes", at)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as e:
        reason = re.sub(r", line \d+, column \d+$", "", e.msg or "no document")
        raise bad(f"the XML is damaged: {reason}", e.lineno or 0) from None
    if getattr(root.getroottree().docinfo, "doctype", ""):
        raise bad(doctype, 1)
    return root


def line(e: XmlElement) -> int:
    """Return the line on which an element begins, from 1."""
    return cast(int, e.sourceline or 0)


def elements(parent: XmlElement | None) -> Iterator[XmlElement]:
    """Return the child elements, without comments and processing instructions."""
    return (c for c in parent if isinstance(c.tag, str)) if parent is not None else iter(())


def children(parent: XmlElement | None, tag: str) -> Iterator[XmlElement]:
    """Yield the children with this tag; none without a parent."""
    return parent.iterchildren(tag) if parent is not None else iter(())


def free_tree(e: XmlElement) -> Element:
    """Return an element with everything below it, for the parts of the format that have no fixed
    structure.
    """
    below = [free_tree(c) for c in elements(e)]
    text = e.text or ""
    return Element(str(e.tag), attributes(e), below, text if text.strip() or not below else "")


def attributes(e: XmlElement, *known: str) -> dict[str, str]:
    """Return all attributes except the known ones."""
    return {str(k): str(v) for k, v in e.items() if k not in known}


@record
class Reader:
    """Read attributes of elements in `file`; `layer` and `kind` name the layer in messages once
    they are known.
    """

    file: str
    layer: str = ""
    kind: str = ""

    def where(self, e: XmlElement) -> Where:
        """Return the location of an element."""
        return Where(self.file, line(e), layer=self.layer, kind=self.kind)

    def bad(self, code: str, message: str, e: XmlElement) -> ReadError:
        """Return a ReadError at an element."""
        return unreadable(code, message, self.where(e))

    def text(self, e: XmlElement, name: str) -> str:
        """Return a mandatory attribute."""
        value = e.get(name)
        if value is None:
            raise self.bad("R103", f"<{e.tag}> lacks its mandatory attribute {name!r}", e)
        return str(value)

    def integer(self, e: XmlElement, name: str, least: int = 0) -> int:
        """Return a mandatory attribute that is an integer from `least` up."""
        text = self.text(e, name)
        number = _integer(text)
        return (
            number
            if number is not None and number >= least
            else self.as_integer(e, text, f"{name} of <{e.tag}>", least)
        )

    def integer_or_none(self, e: XmlElement, name: str) -> int | None:
        """Return the integer of an attribute, None if it is absent."""
        return self.integer(e, name, least=-(1 << 63)) if name in e.attrib else None

    def as_integer(self, e: XmlElement, text: str, what: str, least: int = 0) -> int:
        """Return the integer of a text. Raises ReadError R103, or R110 below `least`."""
        number = _integer(text)
        if number is None:
            raise self.bad("R103", f"{what} is not an integer: {shown(text)}", e)
        if number < least:
            raise self.bad("R110", f"{what} must be at least {least}, got {number}", e)
        return number

    def as_number(self, e: XmlElement, text: str, what: str) -> float:
        """Return the number of a text. Raises ReadError R103."""
        if not _NUMBER.match(text):
            raise self.bad("R103", f"{what} is not a number: {shown(text)}", e)
        return float(text)

    def child(self, e: XmlElement, tag: str) -> XmlElement:
        """Return a mandatory child element."""
        found = e.find(tag)
        if found is None:
            raise self.bad("R103", f"<{e.tag}> lacks its mandatory element <{tag}>", e)
        return found


@functools.lru_cache(1 << 14)  # a file repeats few numbers many times
def _integer(text: str) -> int | None:
    match = _INTEGER.match(text)
    return int(match[1]) if match and -(1 << 63) <= int(match[1]) < 1 << 63 else None


def shown(text: str) -> str:
    """Return a value of the file for a message: quoted, and shortened."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def split_names(text: str) -> tuple[str, ...]:
    r"""Split the tensor names of a port at commas; a comma inside a name is written `\,`."""
    return tuple(name.replace("\\,", ",") for name in _COMMA.split(text)) if text else ()


def join_names(names: tuple[str, ...]) -> str:
    """Return names as one text, in which commas of names are escaped."""
    return ",".join(name.replace(",", "\\,") for name in names)
