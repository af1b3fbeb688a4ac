"""Makes single changes to rows and fields and counts how many the everyday tests find.

    python tests/mutate_rows.py [--count 100] [--seed 1] [--format tflite] [--list]

The changes are spread evenly over the formats and over three kinds: a condition is reversed, a
default or another constant of a row is changed, two operands are exchanged. Each is made in a copy
of the checkout, where the everyday tests of that format run (those of `make check FORMAT=...`),
until one fails. A change that no test finds is printed: a test is missing, or it changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# format -> its rows, and the words by which pytest finds its tests
FORMATS = {
    "coreml": ("formats/coreml/neuralnetwork/rules", "coreml"),
    "openvino.legacy": ("formats/openvino/legacy/rules", "openvino"),
    "openvino.opset": ("formats/openvino/opset/rules", "openvino"),
    "zhouyi": ("formats/zhouyi/rules", "zhouyi"),
    "nnapi": ("formats/nnapi/rules", "nnapi"),
    "tflite": ("formats/tflite/rules", "tflite"),
    "lite": ("formats/lite", "tflite or nnapi"),
    "mlprogram": ("formats/coreml/mlprogram/rules", "mlprogram"),
    "coreai": ("formats/coreml/coreai/rules", "coreai"),
    "concepts": ("mapping/concepts", "concepts or windows or Conv or Pool or Resize or Pad"),
}
TESTS = ("tests/mapping", "tests/test_mapping_laws.py", "tests/layers", "tests/formats")
KINDS = ("condition", "default", "order")
OPPOSITE = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
# calls whose constants determine the meaning of a layer, by the positions of these
CONSTANTS = {"attr": (2,), "Only": (1,), "Fixed": (1,), "Attr": (3,), "FixedInput": (1,)}
# calls whose first two arguments are operands
OPERANDS = {
    "set_inputs",
    "Sub",
    "Div",
    "Pow",
    "MatMul",
    "Where",
    "Less",
    "Greater",
    "Concat",
    "Mod",
}


@dataclass(frozen=True)
class Change:
    """`start` and `end` are positions in the text of the file, between which `text` is put."""

    kind: str
    file: Path
    line: int
    start: int
    end: int
    text: str
    old: str

    def __str__(self) -> str:
        where = f"{self.file.relative_to(ROOT)}:{self.line}"
        return (
            f"{where}: {self.kind}: {' '.join(self.old.split())} -> {' '.join(self.text.split())}"
        )

    def apply(self, copy: Path) -> None:
        source = self.file.read_text("utf-8")
        changed = source[: self.start] + self.text + source[self.end :]
        (copy / self.file.relative_to(ROOT)).write_text(changed, "utf-8")

    def undo(self, copy: Path) -> None:
        shutil.copyfile(self.file, copy / self.file.relative_to(ROOT))


class Changes(ast.NodeVisitor):
    """All single changes of a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.source = file, file.read_text("utf-8")
        self.found: list[Change] = []
        lines = self.source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.visit(ast.parse(self.source))

    def at(self, node: ast.expr) -> tuple[int, int]:
        """Return the position of a node; the files are ASCII but for comments and texts."""
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
        return (
            self._position(node.lineno, node.col_offset),
            self._position(end_line, end),
        )

    def _position(self, line: int, column: int) -> int:
        text = self.source[self.starts[line - 1] : self.starts[line]].encode()[:column].decode()
        return self.starts[line - 1] + len(text)

    def text(self, node: ast.expr) -> str:
        start, end = self.at(node)
        return self.source[start:end]

    def change(self, kind: str, node: ast.expr, text: str) -> None:
        start, end = self.at(node)
        old = self.source[start:end]
        self.found.append(Change(kind, self.file, node.lineno, start, end, text, old))

    def condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = self.text(test.left), self.text(test.comparators[0])
            self.change("condition", test, f"{left} {OPPOSITE[type(test.ops[0])]} {right}")
        elif not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
            self.change("condition", test, f"(not ({self.text(test)}))")

    def visit_If(self, node: ast.If) -> None:
        self.condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.condition(node.test)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv):
            sign = {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//"}[type(node.op)]
            swapped = f"(({self.text(node.right)}) {sign} ({self.text(node.left)}))"
            self.change("order", node, swapped)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for position in CONSTANTS.get(name, ()):
            if position < len(node.args):
                self.constant(node.args[position])
        for keyword in node.keywords:
            if keyword.arg in ("default", "node_default"):
                self.constant(keyword.value)
        starred = any(isinstance(a, ast.Starred) for a in node.args[:2])
        if name in OPERANDS and len(node.args) > 1 and not starred:
            first, second = node.args[:2]
            start, end = self.at(first)[0], self.at(second)[1]
            text = f"{self.text(second)}, {self.text(first)}"
            old = self.source[start:end]
            self.found.append(Change("order", self.file, node.lineno, start, end, text, old))
        if name in ("mil", "mils") and len(node.args) > 2:
            self.parameters(node.args[2])
        self.generic_visit(node)

    def constant(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Constant) or node.value is None:
            return
        value = node.value
        if isinstance(value, bool):
            self.change("default", node, str(not value))
        elif isinstance(value, int | float):
            self.change("default", node, repr(value + 1))

    def parameters(self, node: ast.expr) -> None:
        """Names of parameters in the order of the operator's inputs."""
        words = node.value.split() if isinstance(node, ast.Constant) else []
        if len(words) > 1:
            self.change("order", node, repr(" ".join([words[1], words[0], *words[2:]])))


def changes(format: str) -> Iterator[Change]:
    for file in sorted((ROOT / "converter" / FORMATS[format][0]).glob("*.py")):
        yield from Changes(file).found


def chosen(formats: list[str], count: int, seed: int) -> list[tuple[str, Change]]:
    """Evenly of each format and of each kind, the same for the same seed."""
    rng, found = random.Random(seed), []
    by_kind = {f: {k: [c for c in changes(f) if c.kind == k] for k in KINDS} for f in formats}
    for number in range(count):
        format = formats[number % len(formats)]
        kinds = [k for k in KINDS if by_kind[format][k]]
        pool = by_kind[format][kinds[number // len(formats) % len(kinds)]]
        found.append((format, pool.pop(rng.randrange(len(pool)))))
    return found


def copied(folder: Path) -> Path:
    """The files of the checkout, as they are now."""
    argv = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def is_found(copy: Path, format: str, options: list[str]) -> bool:
    """Whether a test fails. A module that cannot be collected counts as a failure."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    word = FORMATS[format][1]
    marks = ["-m", "not slow and not judges and not corpus"]
    argv = [sys.executable, "-m", "pytest", "-q", "-x", *options, *marks, *TESTS, "-k", word]
    done = subprocess.run(argv, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode != 0


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", action="append", choices=FORMATS)
    parser.add_argument("--list", action="store_true", help="print the changes, make none")
    parser.add_argument("--ready", action="store_true", help="the tests are known to pass")
    parser.add_argument("options", nargs="*", help="of pytest, after --: -n 2")
    given = parser.parse_args()
    formats = given.format or list(FORMATS)
    picked = chosen(formats, given.count, given.seed)
    if given.list:
        print(*(change for _, change in picked), sep="\n")
        return
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        for format in dict.fromkeys(f for f, _ in picked if not given.ready):
            if is_found(copy, format, given.options):
                sys.exit(f"the tests of {format} fail without any change")
        for format, change in picked:
            change.apply(copy)
            result = is_found(copy, format, given.options)
            change.undo(copy)
            found += result
            print("found   " if result else "SURVIVED", change, flush=True)
    print(f"{found} of {len(picked)} changes are found")


if __name__ == "__main__":
    main()
