"""Makes single changes to rows and fields and counts how many the everyday tests find.

    python tests/mutate_rows.py [--count 100] [--seed 1] [--format tflite] [--list] [--again]

The changes are spread evenly over the formats and over three kinds: a condition is reversed, a
default or another constant of a row is changed, two operands are exchanged. Each is made in a copy
of the checkout, where the everyday tests of that format run (those of `make check FORMAT=...`),
until one fails. A change that no test finds is printed: a test is missing, or it changes nothing.
Changes that never have an effect are not made: of the bound that `min` and `max` give for an empty
sequence, of the order of a difference in `abs`, and of the operands of commutative operators.

The tests of a format run once without a change, and the functions that each of them calls are
recorded in out/mutations; `--again` takes the record of an earlier run. A change within a function
is judged by the tests that call it, any other by all tests of the format, those of its row first.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# packages that the tests import, once for all changes: each is judged in a fork
import hypothesis  # noqa: F401
import numpy as np  # noqa: F401
import onnx  # noqa: F401
import onnx_ir  # noqa: F401
import onnxruntime  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
# format -> its rows, and the words by which pytest finds its tests
FORMATS = {
    "coreml": ("formats/coreml/neuralnetwork/rules", ("coreml",)),
    "openvino.legacy": ("formats/openvino/legacy/rules", ("openvino",)),
    "openvino.opset": ("formats/openvino/opset/rules", ("openvino",)),
    "zhouyi": ("formats/zhouyi/rules", ("zhouyi",)),
    "nnapi": ("formats/nnapi/rules", ("nnapi",)),
    "tflite": ("formats/tflite/rules", ("tflite",)),
    "lite": ("formats/lite", ("tflite", "nnapi")),
    "mlprogram": ("formats/coreml/mlprogram/rules", ("mlprogram",)),
    "coreai": ("formats/coreml/coreai/rules", ("coreai",)),
    "concepts": (
        "mapping/concepts",
        (
            *("concepts", "axes_and_products"),
            *("openvino", "coreml", "zhouyi", "nnapi", "tflite", "mlprogram", "coreai"),
        ),
    ),
}
TESTS = ("tests/mapping", "tests/test_mapping_laws.py", "tests/layers", "tests/formats")
# these try every row, most of them quickly
LAWS = ("tests/mapping/", "tests/test_mapping_laws.py", "tests/layers/")
RECORDS = ROOT / "out" / "mutations"
OUTPUT = RECORDS / "pytest.txt"
MEMORY, SECONDS = 12 << 30, 120  # of a test of a change
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
# positions of constants in calls that declare the meaning of a layer
CONSTANTS = {
    "attr": (2,),
    "count": (1,),
    "Attr": (3,),
    "RequireAttr": (1,),
    "RequireKey": (1,),
    "RequireInput": (1,),
    "WriteKey": (1,),
}
# functions whose `default`, for an empty sequence, is a neutral bound: `min(steps, default=1) < 1`
NO_DEFAULTS = {"min", "max"}
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


COMMUTATIVE = {
    *("Add", "Mul", "Max", "Min", "Equal", "And", "Or", "Xor"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
}


@dataclass(frozen=True)
class Change:
    """`start` and `end` are positions in the text of the file, between which `text` is put.

    `function` is the one in which it is, "" outside of any; `words` are the texts of the
    declaration around it, such as the operator and the kind of a row.
    """

    kind: str
    file: Path
    line: int
    start: int
    end: int
    text: str
    old: str
    function: str
    words: frozenset[str]

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
        self.scopes: list[str] = []
        self.words: frozenset[str] = frozenset()
        self.alike: set[ast.expr] = set()  # differences in an `abs`, whose order has no effect
        lines = self.source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.visit(ast.parse(self.source))

    def at(self, node: ast.expr) -> tuple[int, int]:
        """Return the location of a node; the files are ASCII except for comments and texts."""
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
        self.enter(kind, node.lineno, start, end, text)

    def enter(self, kind: str, line: int, start: int, end: int, text: str) -> None:
        function = f"{self.file.relative_to(ROOT)}:{'.'.join(self.scopes)}"
        function = function if "<locals>" in self.scopes else ""
        old = self.source[start:end]
        self.found.append(
            Change(kind, self.file, line, start, end, text, old, function, self.words)
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scopes.append(node.name)
        self.generic_visit(node)
        self.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, node.args):
            self.visit(outside)
        self.within(node.name, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self.within("<lambda>", [node.body])

    def within(self, name: str, body: Sequence[ast.AST]) -> None:
        """`<locals>` follows the name as in `__qualname__`."""
        self.scopes += [name, "<locals>"]
        for part in body:
            self.visit(part)
        del self.scopes[-2:]

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
        if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv) and node not in self.alike:
            sign = {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//"}[type(node.op)]
            swapped = f"(({self.text(node.right)}) {sign} ({self.text(node.left)}))"
            self.change("order", node, swapped)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        outermost = not self.words
        if outermost:
            constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            texts = [c for c in constants if isinstance(c, str)]
            self.words = frozenset(t.split("::")[-1] for t in texts)
        self.changes_of_call(node)
        self.generic_visit(node)
        if outermost:
            self.words = frozenset()

    def changes_of_call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "abs":
            self.alike |= {a for a in node.args if isinstance(getattr(a, "op", None), ast.Sub)}
        for position in CONSTANTS.get(name, ()):
            if position < len(node.args):
                self.constant(node.args[position])
        for keyword in node.keywords:
            if keyword.arg in ("default", "node_default") and name not in NO_DEFAULTS:
                self.constant(keyword.value)
        starred = any(isinstance(a, ast.Starred) for a in node.args[:2])
        if name in OPERANDS and len(node.args) > 1 and not starred:
            first, second = node.args[:2]
            start, end = self.at(first)[0], self.at(second)[1]
            text = f"{self.text(second)}, {self.text(first)}"
            self.enter("order", node.lineno, start, end, text)
        if name == "mil" and len(node.args) > 2 and not commutes(node.args[0]):
            self.parameters(node.args[2])

    def constant(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Constant) or node.value is None:
            return
        value = node.value
        if isinstance(value, bool):
            self.change("default", node, str(not value))
        elif isinstance(value, int | float):
            # a flag of 2 counts as true like one of 1
            self.change("default", node, repr(type(value)(0) if value == 1 else value + 1))

    def parameters(self, node: ast.expr) -> None:
        """Names of parameters in the order of the operator's inputs."""
        words = str(node.value).split() if isinstance(node, ast.Constant) else []
        if len(words) > 1:
            self.change("order", node, repr(" ".join([words[1], words[0], *words[2:]])))


def commutes(operator: ast.expr) -> bool:
    """Whether the operands of a row's operator may be exchanged."""
    return isinstance(operator, ast.Constant) and operator.value in COMMUTATIVE


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


@dataclass
class Record:
    """The calls of each test of a format, as `file:function` and `row:operator=kind`; `files` are
    the modules of tests that there were.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def tests_for(self, change: Change) -> list[str]:
        """The tests that can find a change, those first that most probably do."""
        calling = [t for t, called in self.calls.items() if change.function in called]
        if calling:  # there is none for functions that run at import
            return sorted(calling, key=self.seconds.__getitem__)
        rows = {c for called in self.calls.values() for c in called if c.startswith("row:")}
        own = {r for r in rows if {*r[4:].split("=")} <= change.words}
        # tests that apply no row at all look at the declarations
        found = [t for t, c in self.calls.items() if not own or own & c or not rows & c]
        return sorted(found, key=lambda t: (not own & self.calls[t], self.seconds[t]))

    def save(self, path: Path) -> None:
        names = sorted({c for called in self.calls.values() for c in called})
        number = {name: n for n, name in enumerate(names)}
        calls = {t: sorted(map(number.__getitem__, c)) for t, c in self.calls.items()}
        content = {"seconds": self.seconds, "names": names, "calls": calls}
        path.write_text(json.dumps({**content, "files": sorted(self.files)}))

    @classmethod
    def load(cls, path: Path) -> Record:
        found = json.loads(path.read_text())
        names = found["names"]
        calls = {t: {names[n] for n in numbers} for t, numbers in found["calls"].items()}
        return cls(found["seconds"], calls, set(found["files"]))


class Recorder:
    """A plugin of pytest that fills a `Record` and saves it when all tests have passed.

    The calls of a shared fixture are calls of all tests of its module, whichever is the first.
    """

    ROWS = ("Rule.lift", "Rule.lower")

    def __init__(self, path: Path, files: set[str]) -> None:
        self.path, self.record = path, Record(files=files)
        self.codes: dict[int, CodeType] = {}
        self.rows: set[str] = set()
        self.shared: dict[str, set[str]] = {}

    def called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            self.codes[id(code)] = code
            if code.co_qualname in self.ROWS:
                row = frame.f_locals["self"]
                self.rows.add(f"row:{row.op}={row.kind}")

    def profiled(self) -> Iterator[None]:
        self.codes.clear()
        self.rows.clear()
        threading.setprofile(self.called)
        sys.setprofile(self.called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def names(self) -> set[str]:
        folder = f"{os.getcwd()}/"
        codes = [c for c in self.codes.values() if c.co_filename.startswith(f"{folder}converter/")]
        found = {f"{c.co_filename.removeprefix(folder)}:{c.co_qualname}.<locals>" for c in codes}
        return found | self.rows

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            yield
            return
        yield from self.profiled()
        self.shared.setdefault(request.node.nodeid, set()).update(self.names())

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        start = time.process_time()
        yield from self.profiled()
        shared = (self.shared.get(parent.nodeid, set()) for parent in item.iter_parents())
        self.record.calls[item.nodeid] = self.names().union(*shared)
        self.record.seconds[item.nodeid] = time.process_time() - start

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == 0:
            self.record.save(self.path)


class Chosen:
    """A plugin of pytest that keeps only some tests, in this order. Tests that are not in the
    record are newer and come first.
    """

    def __init__(self, tests: Sequence[str], known: Collection[str]) -> None:
        self.order = {test: n for n, test in enumerate(tests)}
        self.known = known

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not str(sys.modules["converter"].__file__).startswith(os.getcwd()):
            pytest.exit("these are not the changed files", returncode=3)
        new = dict.fromkeys((i.nodeid for i in items if i.nodeid not in self.known), -1)
        order = {**self.order, **new}
        items[:] = [i for i in items if i.nodeid in order]
        items.sort(key=lambda i: order[i.nodeid])


def run(folder: Path, words: Sequence[str], tests: Sequence[str], plugin: object) -> int:
    """Runs pytest in a fork, which alone imports the project; returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 3
    try:
        os.chdir(folder)
        # the alias, by which pytest finds the plugin of the project, takes the package next to it
        here = [str(folder), str(folder / "converter" / "alias")]
        sys.path[:] = [*here, *(p for p in sys.path if Path(p) != ROOT / "tests")]
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        RECORDS.mkdir(parents=True, exist_ok=True)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        marks = ["-m", "not slow and not judges and not corpus", "-k", " or ".join(words)]
        options = ["-q", "-x", "--tb=short", "-p", "no:xdist", "-p", "no:cacheprovider"]
        limit = f"--timeout={SECONDS}"
        code = int(pytest.main([*options, limit, *marks, *tests], plugins=[plugin]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def modules(copy: Path) -> set[str]:
    """The modules of tests in a copy of the checkout."""
    found = (p for part in TESTS for p in (copy / part).glob("test_*.py"))
    return {str(p.relative_to(copy)) for p in (*found, copy / "tests/test_mapping_laws.py")}


def recorded(copy: Path, words: Sequence[str], again: bool) -> Record:
    """Return the calls of the tests with one of the words; a word is run once."""
    found = Record()
    for word in words:
        path = RECORDS / f"{word}.json"
        if not (path.exists() and (again or word in _recorded)):
            code = run(copy, [word], TESTS, Recorder(path, modules(copy)))
            if code:
                sys.exit(f"the tests of {word} fail without any change, see {OUTPUT}")
        _recorded.add(word)
        record = Record.load(path)
        found.seconds |= record.seconds
        found.calls |= record.calls
        found.files |= record.files
    return found


_recorded: set[str] = set()  # in this process


def is_found(copy: Path, words: Sequence[str], change: Change, record: Record) -> bool:
    """Whether a test fails, cannot even be collected, or ends the process."""
    tests = record.tests_for(change)
    laws = [t for t in tests if t.startswith(LAWS)]
    for part in (laws[:100], [t for t in tests if t not in laws[:100]]):
        new = modules(copy) - record.files
        files = sorted({t.partition("::")[0] for t in part} | new)
        code = run(copy, words, files, Chosen(part, record.calls)) if part else 5
        if code in (3, 4):
            sys.exit(f"pytest itself failed, see {OUTPUT}")
        if code not in (0, 5):  # negative if the process was ended by a signal
            return True
    return False


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", action="append", choices=FORMATS)
    parser.add_argument("--list", action="store_true", help="print the changes, make none")
    parser.add_argument("--again", action="store_true", help="take the record of an earlier run")
    given = parser.parse_args()
    formats = given.format or list(FORMATS)
    picked = chosen(formats, given.count, given.seed)
    if given.list:
        print(*(change for _, change in picked), sep="\n")
        return
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder).resolve())
        for format in formats:
            words = FORMATS[format][1]
            record = recorded(copy, words, given.again)
            for change in [change for f, change in picked if f == format]:
                change.apply(copy)
                result = is_found(copy, words, change, record)
                change.undo(copy)
                found += result
                print("found   " if result else "SURVIVED", change, flush=True)
    print(f"{found} of {len(picked)} changes are found")


if __name__ == "__main__":
    main()
