"""Permitted imports between modules, and the costs of an import."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import CONVERTER, ROOT, run_python, sources

HEAVY = (
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "coremltools",
    "google.protobuf",
    "lxml",
    "rich",
    "openvino",
    "ai_edge_litert",
    "tflite",
    "flatbuffers",
    "dask",
)


def module_name(file: Path, root: Path = ROOT) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imported(file: Path, root: Path = ROOT) -> tuple[str, ...]:
    """Every module or member that a file names in an import, anywhere in it, as an absolute dotted
    name.
    """
    return tuple(_imported(file, root))


def _imported(file: Path, root: Path) -> Iterator[str]:
    package = module_name(file, root).split(".")
    if file.name != "__init__.py":
        package = package[:-1]
    own = CONVERTER in file.parents and sources()[file.relative_to(CONVERTER).as_posix()]
    for node in own.imports if own else ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def format_of(name: str) -> str | None:
    """'openvino' for converter.formats.openvino and everything below it."""
    parts = name.split(".")
    return (
        parts[2]
        if parts[:2] == ["converter", "formats"]
        and len(parts) > 2
        and (CONVERTER / "formats" / parts[2]).is_dir()
        else None
    )


SHARED = ("lite",)  # folders that are no format, and import none: parts shared by several formats


def strangers(file: Path) -> list[str]:
    """Imports of another format from inside a format."""
    own = format_of(module_name(file))
    allowed = (None, own) if own in SHARED else (None, own, *SHARED)
    return [name for name in imported(file) if own and format_of(name) not in allowed]


def dialect_of(name: str) -> str | None:
    """'coreml.mlprogram' for a module of that dialect; None for modules that dialects share."""
    parts = name.split(".")[2:4]
    folder = CONVERTER.joinpath("formats", *parts)
    return ".".join(parts) if len(parts) == 2 and (folder / "rules").is_dir() else None


DIALECTS = [p.parent for p in sorted((CONVERTER / "formats").glob("*/*/rules"))]


@pytest.mark.parametrize("folder", DIALECTS, ids=lambda p: f"{p.parent.name}.{p.name}")
def test_a_dialect_imports_no_other_dialect(folder: Path) -> None:
    own = dialect_of(module_name(folder / "lift.py"))
    found = {
        str(file.relative_to(ROOT)): names
        for file in sorted(folder.rglob("*.py"))
        if (names := [n for n in imported(file) if dialect_of(n) not in (None, own)])
    }
    assert own is not None and not found


def repeated_names() -> dict[str, set[str]]:
    """The names of classes that several formats or dialects declare, and which."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted((CONVERTER / "formats").rglob("*.py")):
        name = module_name(file)
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and (owner := dialect_of(name) or format_of(name)):
                found[node.name].add(owner)
    return {name: owners for name, owners in found.items() if len(owners) > 1}


def test_few_names_of_classes_are_repeated() -> None:
    """Such a name has one meaning (`Window`, `LiftContext`); another meaning needs another name."""
    assert len(repeated_names()) <= 30


def test_every_module_of_a_format_is_in_its_folder() -> None:
    """Modules outside of the folders belong to all formats."""
    beside = {p.stem for p in (CONVERTER / "formats").glob("*.py")}
    assert beside == {
        "__init__",
        "format",
        "bundles",
        "model_files",
        "sidefiles",
        "foreign",
        "other_names",
        "integers",
    }


@pytest.mark.parametrize(
    "folder",
    [
        p
        for p in sorted((CONVERTER / "formats").iterdir())
        if p.is_dir() and p.name != "__pycache__"
    ],
    ids=lambda p: p.name,
)
def test_a_format_imports_no_other_format(folder: Path) -> None:
    files = sorted(folder.rglob("*.py"))
    assert files
    found = {str(file.relative_to(ROOT)): names for file in files if (names := strangers(file))}
    assert not found


# every package and module of converter/; each imports only those before it
LAYERS = (
    "version",
    "record",
    "errors",
    "io",
    "graph",
    "mapping",
    "passes",
    "formats",
    "engines",
    "commands",
    "api",
    "functions",
    "testing",
    "pytest_plugin",
    "cli",
)


def test_every_package_has_its_layer() -> None:
    assert sorted(LAYERS) == sorted(
        p.stem
        for p in CONVERTER.iterdir()
        if (p / "__init__.py").is_file() or p.suffix == ".py"
        if p.stem != "__init__"
    )


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The modules that import each other, directly or through others, imports inside functions and
    for type checkers included.
    """
    left = {m: set(found) for m, found in imports.items()}

    def reachable(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            for other in left[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reached = {m: reachable(m) for m in left}
    groups = {frozenset(n for n in reached[m] if m in reached[n]) for m in left if m in reached[m]}
    return sorted(map(sorted, groups))


def test_no_modules_import_each_other() -> None:
    files = {module_name(p): p for p in sorted(CONVERTER.rglob("*.py"))}

    def module(name: str) -> str | None:
        return name if name in files else name.rpartition(".")[0]

    imports = {
        m: {n for name in imported(p) if (n := module(name)) in files and n != m}
        for m, p in files.items()
    }
    assert circles(imports) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


@pytest.mark.parametrize("package", LAYERS)
def test_a_package_imports_only_lower_layers(package: str) -> None:
    """So that packages make no circles; imports inside functions and for type checkers count."""
    lower = LAYERS[: LAYERS.index(package) + 1]
    files = sorted((CONVERTER / package).rglob("*.py")) or [CONVERTER / f"{package}.py"]
    found = {
        str(file.relative_to(ROOT)): name
        for file in files
        for name in imported(file)
        if name.startswith("converter.") and name.split(".")[1] not in lower
    }
    assert not found


def test_every_kind_of_import_is_seen(tmp_path: Path) -> None:
    """The checks above stand on `imported`: relative, nested and aliased imports count."""
    file = tmp_path / "converter" / "formats" / "coreml" / "codec.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import converter.formats.onnx.codec as c\nfrom ..zhouyi import ops\nfrom . import "
        "text\ndef f():\n    from converter.formats import nnapi\n"
    )
    assert list(imported(file, tmp_path)) == [
        "converter.formats.onnx.codec",
        "converter.formats.zhouyi.ops",
        "converter.formats.coreml.text",
        "converter.formats.nnapi",
    ]
    assert [format_of(name) for name in imported(file, tmp_path)] == [
        "onnx",
        "zhouyi",
        "coreml",
        "nnapi",
    ]


@pytest.mark.parametrize("module", ["converter", "converter.errors", "converter.cli"])
def test_importing_costs_nothing(module: str) -> None:
    loaded = run_python(f"import sys, {module}; print(*sys.modules, sep='\\n')").split("\n")
    assert module in loaded
    assert [name for name in HEAVY if name in loaded] == []
