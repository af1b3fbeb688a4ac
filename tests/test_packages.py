"""Promises of pyproject.toml: versions of Python and of packages, addresses, systems; and the
effects of the recipes for releases and images.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from support import HANG, ROOT, SAMPLES, run_python

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [
    c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)
]

# as on a Python for which there is no coremltools
WITHOUT_COREMLTOOLS = """if True:
    import sys
    from importlib.machinery import PathFinder
    find = PathFinder.find_spec
    PathFinder.find_spec = classmethod(
        lambda cls, name, path=None, target=None: (
            None if name == "coremltools" else find(name, path, target)
        )
    )
    from converter.cli import main
    sys.argv = ["netconv", *sys.argv[1:]]
    main()
"""


def netconv(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COREMLTOOLS, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_without_coremltools_all_but_the_core_ml_formats_works(tmp_path: Path) -> None:
    from batch.models import small

    small(tmp_path / "a.onnx")
    for there in ("a.xml", "b.txt", "c.nnapi.json", "d.tflite"):
        back = there.replace(".", "_") + ".onnx"
        assert netconv(tmp_path, "convert", "a.onnx", "-o", there, "-t", _format(there))[0] == 0
        assert (
            netconv(tmp_path, "convert", there, "-o", back, "--verify", "--native", "off")[0] == 0
        )
    assert netconv(tmp_path, "roundtrip", "a.onnx", "--via", "openvino")[0] == 0
    cnn = str(SAMPLES / "digits_cnn.mlmodel")
    for call in (
        ("convert", cnn, "-o", "no.onnx"),
        ("convert", "a.onnx", "-o", "no.mlmodel"),
        ("convert", "a.onnx", "-o", "no.mlpackage"),
        ("ops", "coreml"),
        ("inspect", cnn),
    ):
        code, said = netconv(tmp_path, *call)
        assert code == 2 and "U502" in said and "coremltools" in said and "3.14" in said, call
    assert not list(tmp_path.glob("no.*"))
    assert netconv(tmp_path, "formats")[0] == 0 == netconv(tmp_path, "env")[0]


def _format(name: str) -> str:
    return {".xml": "openvino", ".txt": "zhouyi", ".json": "nnapi", ".tflite": "tflite"}[
        Path(name).suffix
    ]


def test_another_system_gets_the_list_of_supported_ones() -> None:
    code = (
        "import os\nos.name = 'nt'\ntry:\n    import converter\nexcept ImportError as "
        "e:\n    print(e)"
    )
    assert "Linux and macOS" in run_python(code)
    systems = [c for c in PROJECT["classifiers"] if c.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]


def test_the_lower_bounds_are_complete_and_not_above_the_installed_versions() -> None:
    lines = run_python((ROOT / ".ci" / "lowest.py").read_text().replace("__file__", "'.ci/x'"))
    bounds = dict(line.split("==") for line in lines.split())
    named = [re.split(r"[<>=\[;]", d)[0].strip() for d in PROJECT["dependencies"]]
    assert [n for n in named if n not in bounds] == []
    assert {"openvino", "ai-edge-litert", "dask", "fsspec"} <= bounds.keys()

    def numbers(version: str) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", version)[:3]]

    for name, bound in bounds.items():
        assert numbers(bound) <= numbers(metadata.version(name)), name


def urls() -> ModuleType:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    spec = importlib.util.spec_from_file_location("urls", ROOT / ".ci" / "urls.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/me/netconv.git", "https://example.org/me/netconv"),
        ("https://me:secret@example.org/me/netconv", "https://example.org/me/netconv"),
        ("git@example.org:me/netconv.git", "https://example.org/me/netconv"),
        ("ssh://git@example.org/me/netconv", "https://example.org/me/netconv"),
        ("", ""),
        ("somewhere/else", ""),
    ],
)
def test_addresses_are_those_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: str, address: str
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    if remote:
        subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    module = urls()
    assert module.repository(tmp_path) == address
    assert module.pages("") == {} and module.pages("a")["Issues"] == "a/issues"
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/other")
    assert module.repository(tmp_path) == "https://github.com/me/other"


def test_examples_name_the_repository_that_they_are_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    text, resolved = "uses: OWNER/netconv@COMMIT\n", urls().resolved
    assert resolved(text, tmp_path) == text
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/other")
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    assert resolved(text, tmp_path) == "uses: me/other@COMMIT\n"
    monkeypatch.setenv("GITHUB_SHA", "a" * 40)
    assert resolved(text, tmp_path) == f"uses: me/other@{'a' * 40}\n"
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module("generate")
    generate.main(tmp_path / "pages")
    page = (tmp_path / "pages" / "tasks" / "ci.md").read_text("utf-8")
    assert f"uses: me/other@{'a' * 40}" in page and "OWNER/" not in page


def test_a_source_distribution_keeps_its_addresses(tmp_path: Path) -> None:
    info = tmp_path / "PKG-INFO"
    info.write_text(
        "Metadata-Version: 2.4\nName: netconv\nProject-URL: Homepage, https://a/b\n\n# x\n"
    )
    assert urls().before(info) == {"Homepage": "https://a/b"}


yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def test_the_workflows_test_every_promised_python_and_release_the_tested_wheel() -> None:
    workflows = {
        p.stem: yaml.safe_load(p.read_text()) for p in (ROOT / ".github/workflows").glob("*.yml")
    }
    tested = workflows["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert tested == PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    release = workflows["release"]["jobs"]
    assert set(release["publish"]["needs"]) == {"build", "test", "sbom"}
    assert release["test"]["needs"] == release["sbom"]["needs"] == "build"
    steps = [s.get("run", "") for s in release["test"]["steps"]]
    assert "make test-wheel DIST=out/dist" in steps and "make docs" in steps
    steps = [s.get("run", "") for s in release["build"]["steps"]]
    (version,) = [s for s in steps if "GITHUB_REF_NAME" in s]
    for tag, code in ((f"v{PROJECT['version']}", 0), ("v9.9.9", 1), ("v0.1", 1)):
        done = subprocess.run(
            ["bash", "-c", version], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag}
        )
        assert done.returncode == code, tag


def test_the_image_installs_the_extras_that_there_are() -> None:
    recipe = (SAMPLES / "Dockerfile").read_text()
    (extras,) = re.findall(r"\.whl\)\[(.*?)\]", recipe)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert "USER netconv" in recipe and 'ENTRYPOINT ["netconv"]' in recipe
