"""Validation of legacy IR against the RELAX NG grammar `schemas/openvino/legacy-ir.rng`.

libxml2 decides, but inside `<interleave>` it names neither the line nor the cause. So a rejected
document is traversed once more together with the grammar, whose patterns show the missing or
superfluous parts of an element.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from lxml import etree

from converter.errors import Diagnostic, Where
from converter.formats.openvino.xml import XmlElement, elements, line, shown
from converter.io.limits import MOST_AXES
from converter.io.resources import schema_path
from converter.record import record

_TYPES = {
    "positiveInteger": (re.compile(r"\+?0*[1-9][0-9]*"), "a positive integer"),
    "nonNegativeInteger": (re.compile(r"\+?[0-9]+|-0+"), "a non-negative integer"),
    "integer": (re.compile(r"[+-]?[0-9]+"), "an integer"),
    "double": (
        re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-?INF|NaN"),
        "a number",
    ),
}


@record
class _Model:
    """The pattern of one element: typed text, attributes with (mandatory, type), children with
    (pattern, mandatory, many).
    """

    text: str | None = None
    free: bool = False
    attributes: dict[str, tuple[bool, str]] = field(default_factory=dict)
    children: dict[str, tuple[XmlElement, bool, bool]] = field(default_factory=dict)


class _Grammar:
    def __init__(self) -> None:
        document = etree.parse(str(schema_path("openvino", "legacy-ir.rng")))
        self.schema = etree.RelaxNG(document)
        root = document.getroot()
        self.start = next(
            e for e in root.iter(f"{{{root.nsmap[None]}}}element") if e.get("name") == "net"
        )
        self._defines = {e.get("name"): e for e in root if e.get("name")}
        self._models: dict[XmlElement, _Model] = {}

    def model(self, pattern: XmlElement) -> _Model:
        if pattern not in self._models:
            model = self._models[pattern] = _Model()
            self._collect(model, pattern, mandatory=True, many=False)
        return self._models[pattern]

    def _collect(self, model: _Model, pattern: XmlElement, mandatory: bool, many: bool) -> None:
        for part in elements(pattern):
            kind, name = etree.QName(part).localname, part.get("name")
            if kind == "ref":
                self._collect(model, self._defines[name], mandatory, many)
            elif kind == "data":
                model.text = str(part.get("type"))
            elif kind == "text":
                model.text = ""
            elif kind == "attribute" and name:
                model.attributes[name] = (mandatory, self.model(part).text or "")
            elif kind == "element" and name:
                model.children[name] = (part, mandatory, many)
            elif kind == "element":
                # a wildcard: further elements of any name, or the blobs, whose names are free
                model.free = True
                model.children["*"] = (part, False, True)
            elif kind != "attribute":
                optional = kind in ("optional", "zeroOrMore", "choice")
                self._collect(
                    model,
                    part,
                    mandatory and not optional,
                    many or kind in ("zeroOrMore", "oneOrMore"),
                )

    def explain(self, e: XmlElement, pattern: XmlElement) -> Iterator[tuple[int, str]]:
        """Yield (line, message) for each part of `e` and its descendants that does not match the
        pattern.
        """
        model = self.model(pattern)
        for name, (mandatory, kind) in model.attributes.items():
            if (value := e.get(name)) is not None:
                yield from _typed(e, kind, value, f"{name} of <{e.tag}>")
            elif mandatory:
                yield line(e), f"<{e.tag}> lacks its mandatory attribute {name!r}"
        text = "".join([e.text or "", *(c.tail or "" for c in e)]).strip()
        if model.text:
            yield from _typed(e, model.text, text, f"<{e.tag}>")
        elif text and model.text is None:
            yield line(e), f"<{e.tag}> must not contain text, got {shown(text)}"
        yield from self._children(e, model)

    def _children(self, e: XmlElement, model: _Model) -> Iterator[tuple[int, str]]:
        count: Counter[str] = Counter()
        for child in elements(e):
            tag = str(child.tag)
            count[tag] += 1
            pattern, _, many = (
                model.children.get(tag) or model.children.get("*") or (None, False, True)
            )
            if pattern is None:
                yield line(child), f"<{tag}> is not allowed in <{e.tag}>"
            elif count[tag] > 1 and not many:
                yield line(child), f"<{tag}> is not allowed twice in <{e.tag}>"
            else:
                yield from self.explain(child, pattern)
        for tag, (_, mandatory, _) in model.children.items():
            if mandatory and not count[tag]:
                yield line(e), f"<{e.tag}> lacks its mandatory element <{tag}>"


def _typed(e: XmlElement, kind: str, value: str, what: str) -> Iterator[tuple[int, str]]:
    if kind and not _TYPES[kind][0].fullmatch(value.strip()):
        yield line(e), f"{what} must be {_TYPES[kind][1]}, got {shown(value)}"


@functools.cache
def _grammar() -> _Grammar:
    return _Grammar()


def validate_legacy(tree: XmlElement, file: str = "") -> list[Diagnostic]:
    """Return the violations of the grammar by a legacy IR, as R103 with lines, in document order;
    empty when it is valid.

    `tree` is the `<net>` element as `xml.parse_xml` yields it.
    """
    for port in tree.iter("port"):  # libxml2 takes the square of their number
        if len(port) > MOST_AXES:
            return [
                Diagnostic(
                    "R103",
                    f"a port has {len(port)} elements, which are too many",
                    where=Where(file, line(port)),
                )
            ]
    grammar = _grammar()
    if grammar.schema.validate(tree):
        return []
    if tree.tag != "net":
        return [
            Diagnostic(
                "R103",
                f"the root element is <{tree.tag}>, but an IR begins with <net>",
                where=Where(file, line(tree)),
            )
        ]
    found = sorted(set(grammar.explain(tree, grammar.start)))
    # rules that hold between several attributes or elements: libxml2's own words
    found = found or [(entry.line, entry.message) for entry in grammar.schema.error_log][:1]
    return [Diagnostic("R103", message, where=Where(file, at)) for at, message in found]
