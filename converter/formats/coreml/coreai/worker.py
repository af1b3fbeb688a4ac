"""Parses and writes MLIR bytecode with Apple's bindings, in a process of its own: damaged bytecode
ends the process, and an abort cannot be caught.

    python worker.py read MAIN.mlirb PROGRAM.json     describe a program in plain values
    python worker.py write TEXT.mlir MAIN.mlirb       verify a program and write its bytecode
    python worker.py check MAIN.mlirb                 only parse and verify

Nothing of netconv is imported here. An error that the bindings report is one line on stderr after
MARK, with exit code 3; any other end is a crash of the bindings.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "netconv: "
VERSIONS = {"bytecode_version": 6, "dialect_version": 20260409}
# element types whose arrays the bindings give without ending the process
_PLAIN = {"f16", "f32", "f64", "i1", *(f"{s}i{n}" for s in "su" for n in (8, 16, 32, 64))}


def _element(kind: str) -> str:
    """Return the element type of `tensor<2x3xf32>`."""
    return kind.removeprefix("tensor<").removesuffix(">").rpartition("x")[2]


class Description:
    """A description of a module's operations, in which values have numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def value(self, value: Any) -> int:
        """Return the number of a value, a new one for a new value."""
        return self.numbers.setdefault(value, len(self.numbers))

    def operation(self, op: Any) -> dict[str, Any]:
        """Return an operation as plain data: kind, operands, results, attributes, regions."""
        op = op.operation
        found: dict[str, Any] = {
            "kind": op.name,
            "inputs": [self.value(v) for v in op.operands],
            "outputs": [[self.value(v), str(v.type)] for v in op.results],
        }
        if op.name == "coreai.constant":
            found["attrs"] = {"value": self.constant(op)}
        else:
            found["attrs"] = {a.name: plain(a.attr) for a in op.attributes}
        if place := re.search(r'loc\(("(?:[^"\\]|\\.)*"):', str(op.location)):
            found["name"] = unquoted(place[1])
        if regions := [[self.block(b) for b in r.blocks] for r in op.regions]:
            found["regions"] = regions
        return found

    def block(self, block: Any) -> dict[str, Any]:
        """Return the arguments and operations of a block as plain data."""
        arguments = [[self.value(v), str(v.type)] for v in block.arguments]
        return {"arguments": arguments, "body": [self.operation(op) for op in block.operations]}

    def constant(self, op: Any) -> dict[str, str]:
        """Return the elements of a constant: bytes, the text that MLIR prints, or a
        resource's name.
        """
        kind = str(op.results[0].type)
        if _element(kind) in _PLAIN:
            value = op.attributes["value"]
            if type(value).__name__ in ("DenseIntElementsAttr", "DenseFPElementsAttr"):
                import numpy as np

                found = np.asarray(memoryview(value))
                if getattr(value, "is_splat", False):
                    found = found.reshape(-1)[:1]
                return {"bytes": base64.b64encode(found.tobytes()).decode()}
        text = op.get_asm(large_resource_limit=0, print_generic_op_form=True, use_local_scope=True)
        text = text[text.index("value = ") + 8 :].partition(" : ")[0]
        if text.startswith("dense_resource<"):
            return {"resource": unquoted(text[15:-1])}
        return {"text": text}


def plain(attribute: Any) -> Any:
    """Return an attribute as a JSON value; types and attributes of dialects as MLIR prints them."""
    match type(attribute).__name__:
        case "StringAttr" | "BoolAttr" | "FloatAttr" | "IntegerAttr":
            return attribute.value
        case "ArrayAttr":
            return [plain(a) for a in attribute]
        case "DictAttr":
            return {a.name: plain(a.attr) for a in attribute}
        case "UnitAttr":
            return True
    return str(attribute)


def unquoted(word: str) -> str:
    """Return the text of a string as MLIR prints it; a name without quotes as it is.

    MLIR escapes a backslash, a quote, and any other byte by two hexadecimal digits.
    """
    if not word.startswith('"'):
        return word
    text = word[1:-1].encode()
    plain = re.sub(rb"\\([0-9A-Fa-f]{2}|.)", _unescaped, text, flags=re.DOTALL)
    return plain.decode(errors="backslashreplace")


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return (
        bytes.fromhex(code.decode())
        if len(code) == 2
        else {b"n": b"\n", b"t": b"\t"}.get(code, code)
    )


def read(source: str, target: str) -> None:
    """Write a description of a Core AI file as JSON."""
    module = _loaded(source)
    with open(target, "w", encoding="utf-8") as f:
        body = Description().block(module.body)["body"]
        json.dump(body, f, ensure_ascii=True)


def _loaded(source: str) -> Any:
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import load_module_from_bytecode
    from coreai.authoring import Context

    context = Context()
    return load_module_from_bytecode(context=context._mlir_context, path=Path(source))


def write(source: str, target: str) -> None:
    """Verify a module given as MLIR text and write it as a Core AI file."""
    from coreai._compiler import ir
    from coreai._compiler._mlir_libs._coreaiIR._bindings import compiler
    from coreai.authoring import Context

    text = Path(source).read_text(encoding="utf-8")
    context = Context()
    with context._mlir_context, ir.Location.unknown():
        module = ir.Module.parse(text)
        module.operation.verify()
        compiler.serialize_module_to_bytecode(module=module, package_path=Path(target), **VERSIONS)


def check(source: str) -> None:
    """Verify a Core AI file; raises the error of the bindings."""
    _loaded(source).operation.verify()


def main(command: str, *arguments: str) -> int:
    """Run a command. Returns 0, or 3 for an error of the bindings and 4 if Core AI is not
    installed, with a message on standard error.
    """
    try:
        import coreai.authoring  # noqa: F401
    except ImportError as e:
        print(f"{MARK}{e}", file=sys.stderr)
        return 4
    try:
        commands: dict[str, Callable[..., None]] = {"read": read, "write": write, "check": check}
        commands[command](*arguments)
    except Exception as e:  # the bindings raise exceptions of their own types
        message = " ".join(str(e).split()) or type(e).__name__
        print(f"{MARK}{message[:4000]}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
