"""The text of Core AI modules, described as Apple's bindings describe a file, without them.

netconv describes a file through a child process that loads the bindings. Here the text that netconv
writes is read in this process, so that each operation is tried every day; other tests try the same
text in the runtime. Known are the forms that netconv writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converter.formats.coreml.coreai.lift import ModelReading, graphs_of
from converter.formats.coreml.coreai.lower import MainFunction, lowered, prepared
from converter.graph.build import new_model
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.passes.fold import fold

OPEN, CLOSED = "([{<", ")]}>"


class Text:
    """A module's text and the position that is read next."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.numbers: dict[str, int] = {}

    def take(self, pattern: str) -> re.Match[str] | None:
        """The pattern after spaces, if it is next."""
        found = re.compile(r"\s*" + pattern).match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def demand(self, pattern: str) -> re.Match[str]:
        found = self.take(pattern)
        assert found, f"{pattern} expected at {self.text[self.at : self.at + 60]!r}"
        return found

    def until(self, end: str) -> str:
        """The text up to an end outside of brackets and quotes, which is passed."""
        start = self.at
        for at in outside(self.text, start):
            if self.text.startswith(end, at):
                self.at = at + len(end)
                return self.text[start:at]
        raise AssertionError(f"no {end!r} after {self.text[start : start + 60]!r}")

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def operation(self) -> dict[str, Any]:
        made = self.take(r"(%\w+)(?::(\d+))? = ")
        kind = self.demand(r'"([\w.]+)"')[1]
        self.demand(r"\(")
        given = split(self.until(")"))
        attrs = attributes(self.until("}>")) if self.take(r"<\{") else {}
        regions = [[self.block()] for _ in self.blocks()]
        self.demand(r":\s*\(")
        self.until(")")
        self.demand("->")
        types = split(
            self.until(")") if self.take(r"\(") else self.demand(r"[^\n]*?(?= loc\(|\n|$)")[0]
        )
        name = self.take(r'loc\(("(?:[^"\\]|\\.)*"):0:0\)')
        names = (
            [made[1]]
            if made and not made[2]
            else [f"{made[1]}#{i}" for i in range(len(types))]
            if made
            else []
        )
        found: dict[str, Any] = {
            "kind": kind,
            "inputs": [self.number(v) for v in given],
            "outputs": [[self.number(n), t.strip()] for n, t in zip(names, types, strict=True)],
            "attrs": {"value": constant(attrs["value"])} if kind == "coreai.constant" else attrs,
        }
        found |= {"name": json.loads(name[1])} if name else {}
        return found | ({"regions": regions} if regions else {})

    def blocks(self) -> Iterator[None]:
        """Stop before each of the blocks `({...}, {...})`."""
        if self.take(r"\(\s*\{"):
            yield
            while self.take(r",\s*\{"):
                yield
            self.demand(r"\)")

    def block(self) -> dict[str, Any]:
        arguments = []
        if self.take(r"\^bb0\("):
            pairs = [a.split(": ", 1) for a in split(self.until(")"))]
            arguments = [[self.number(name), text] for name, text in pairs]
            self.demand(":")
        body = []
        while not self.take(r"\}"):
            body.append(self.operation())
        return {"arguments": arguments, "body": body}


def outside(text: str, start: int = 0) -> Iterator[int]:
    """Positions outside of brackets and quotes, at which a closing bracket may stand."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == '"':
            yield from () if depth else (at,)
            at += len(re.compile(r'"(?:[^"\\]|\\.)*"').match(text, at)[0])  # type: ignore[index]
            continue
        if depth == 0:
            yield at
        arrow = text.startswith("->", at)
        depth += 0 if arrow else (text[at] in OPEN) - (text[at] in CLOSED)
        at += 2 if arrow else 1


def split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    commas = [at for at in outside(text) if text[at] == ","]
    parts = [
        text[a + 1 : b].strip() for a, b in zip([-1, *commas], [*commas, len(text)], strict=True)
    ]
    return [p for p in parts if p]


def attributes(text: str) -> dict[str, Any]:
    """Attributes by name; those without a value are true."""
    pairs = (part.partition(" = ") for part in split(text))
    return {
        name.strip(): value_of(value.strip()) if equals else True for name, equals, value in pairs
    }


def value_of(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if found := re.fullmatch(r"(-?\d+) : \w+", text):
        return int(found[1])
    if text.startswith('"'):
        return json.loads(text)
    if text.startswith("["):
        return [value_of(part) for part in split(text[1:-1])]
    return attributes(text[1:-1]) if text.startswith("{") else text


def constant(text: str) -> dict[str, str]:
    value = text.partition(" : ")[0]
    found = re.fullmatch(r"dense_resource<(\w+)>", value)
    return {"resource": found[1]} if found else {"text": value}


class Resources:
    """The weights of a module that is not in a file."""

    def __init__(self, weights: Mapping[str, LazyTensor]) -> None:
        parts = {name: w.numpy().tobytes() for name, w in weights.items()}
        self.data = np.frombuffer(b"".join(parts.values()), np.uint8)
        self.found, start = {}, 0
        for name, part in parts.items():
            self.found[name] = (start, len(part))
            start += len(part)

    def resources(self) -> Any:
        from types import SimpleNamespace

        return {name: SimpleNamespace(data=place) for name, place in self.found.items()}


def read_text(text: str, weights: Mapping[str, LazyTensor] | None = None) -> Network:
    """The network of the function `main` of a module."""
    graphs = dict(graphs_of(Text(text).operation()["regions"][0][0]["body"]))
    model, b = new_model("main")
    code: Any = Resources(weights or {})
    reading = ModelReading(b, "text", code, graphs)
    reading.run(graphs["main"])
    states = reading.variables.deliver()
    fold(model, limit=0)
    interface: dict[str, Any] = {"defaults": reading.variables.defaults(), "states": states}
    if reading.complex:
        interface["complex"] = tuple(reading.complex)
    return Network(model, "coreai", [], interface)


def through_text(network: Network, half: bool = False) -> Network:
    """A network as it is read from the text that is written of it."""
    model = prepared(network, [])
    low = lowered(model, half)
    refuse(low.problems)
    function = MainFunction(network, model.graph, low, [])
    return read_text(function.text(), function.program.resources)
