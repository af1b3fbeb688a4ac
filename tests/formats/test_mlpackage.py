"""A package is one model: it is found, hashed, copied, compared and replaced whole, and read
through no link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_files import Blob, Block, Op, package

import converter
from converter.cli.streams import DASH, named_output
from converter.commands.batch import content, plan, run, staging
from converter.commands.options.batch import Batch
from converter.errors import ConverterError, ReadError, UsageError
from converter.formats.coreml import package as mlpackage
from support import HANG, ROOT

SAMPLE = ROOT / "samples" / "digits_cnn.mlmodel"
INNER = "Data/com.apple.CoreML/model.mlmodel"
STORED = "Data/com.apple.CoreML/weights/weight.bin"


def linear(path: Path, scale: float = 1.0) -> Path:
    """A matrix whose weights are in the storage."""
    weight = np.arange(12, dtype=np.float32).reshape(3, 4) * scale
    op = Op("linear", {"x": "$x", "weight": Blob(weight)}, {"y": ("float32", [2, 3])})
    return package(path, Block({"x": ("float32", [2, 4])}, [op], ["y"]))


def netconv(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "converter.cli", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return done.returncode, done.stdout


def refusal(source: Path, made: Path, **options: object) -> str:
    with pytest.raises(ConverterError) as e:
        converter.convert(source, made, **options)  # type: ignore[arg-type]
    return str(e.value)


# --- writing


def test_a_neural_network_is_written_into_a_package(tmp_path: Path) -> None:
    """The same bytes each time, through the manifest that Core ML's own library reads."""
    for name in ("a", "b"):
        converter.convert(SAMPLE, tmp_path / f"{name}.mlpackage", target="coreml")
    converter.convert(SAMPLE, tmp_path / "c.mlmodel")
    a, b = ({p.name: p.read_bytes() for p in mlpackage.files_of(tmp_path / f)}
            for f in ("a.mlpackage", "b.mlpackage"))  # fmt: skip
    assert a == b and a["model.mlmodel"] == (tmp_path / "c.mlmodel").read_bytes()
    read = converter.load(tmp_path / "a.mlpackage")
    assert read.format == "coreml" and not read.notes
    library = pytest.importorskip("coremltools.libmodelpackage")
    root = library.ModelPackage(str(tmp_path / "a.mlpackage")).getRootModel()
    assert Path(root.path()).read_bytes() == a["model.mlmodel"]


def test_only_a_package_is_replaced(tmp_path: Path) -> None:
    target = linear(tmp_path / "m.mlpackage")
    assert "W302" in refusal(SAMPLE, target, target="coreml", force=False)
    assert (target / STORED).exists()
    converter.convert(SAMPLE, target, target="coreml", force=True)
    assert not (target / STORED).exists() and converter.load(target).format == "coreml"
    (target / "Manifest.json").write_text("{}")
    assert "not a model package" in refusal(SAMPLE, target, target="coreml", force=True)
    (tmp_path / "file.mlpackage").write_text("mine")
    said = refusal(SAMPLE, tmp_path / "file.mlpackage", target="coreml", force=True)
    assert "W301" in said and (tmp_path / "file.mlpackage").read_text() == "mine"


def test_a_package_is_not_replaced_by_a_conversion_of_its_parts(tmp_path: Path) -> None:
    target = linear(tmp_path / "m.mlpackage")
    for source in (target, target / INNER):
        assert "overwrite the input" in refusal(source, target, target="coreml", force=True)
    assert converter.load(target).format == "mlprogram"


# --- reading


@pytest.mark.parametrize("name", [INNER, STORED, "Manifest.json", "Data/more"])
def test_links_in_a_package_are_refused(name: str, tmp_path: Path) -> None:
    path = linear(tmp_path / "m.mlpackage")
    aside = tmp_path / "aside"
    if (path / name).exists():
        (path / name).rename(aside)
    (path / name).symlink_to(aside)
    with pytest.raises(ReadError, match=r"R107.*is a link"):
        converter.load(path)
    assert content.fingerprint(path) == {}


def test_a_package_is_read_through_links(tmp_path: Path) -> None:
    """A folder on the way to it is no part of it."""
    (tmp_path / "real").mkdir()
    linear(tmp_path / "real" / "m.mlpackage")
    (tmp_path / "way").symlink_to(tmp_path / "real")
    (tmp_path / "n.mlpackage").symlink_to(tmp_path / "real" / "m.mlpackage")
    for path in (tmp_path / "way" / "m.mlpackage", tmp_path / "n.mlpackage"):
        assert converter.load(path).format == "mlprogram"


def test_a_package_in_a_cache_of_the_hub_is_read(tmp_path: Path) -> None:
    """There each file is a link to its content."""
    cache = tmp_path / "models--a--b"
    path = linear(cache / "snapshots" / "1f" / "m.mlpackage")
    (cache / "blobs").mkdir()
    for number, file in enumerate(mlpackage.files_of(path)):
        blob = cache / "blobs" / str(number)
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, file.parent))
    assert converter.load(path).format == "mlprogram"


@pytest.mark.parametrize("file", [INNER, STORED])
def test_a_link_that_appears_while_a_package_is_read_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """A link that appears between the look and the opening is not followed."""
    path = linear(tmp_path / "a.mlpackage")
    secret = tmp_path / "secret"
    secret.write_bytes((path / file).read_bytes())
    real = mlpackage.inside

    def swapped(folder: Path, name: str, where: Any) -> Path:
        found = real(folder, name, where)
        if found == path / file and not found.is_symlink():
            found.unlink()
            found.symlink_to(secret)
        return found

    monkeypatch.setattr(mlpackage, "inside", swapped)
    with pytest.raises(ConverterError, match=r"R107.*is a link"):
        read_whole(path)


def read_whole(path: Path) -> None:
    """The model and its weights, without the first look at the package."""
    from converter.formats.coreml.mlprogram.lift import read_model

    read_model(path)


def test_weights_named_elsewhere_are_refused(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.mlpackage")
    model = (path / INNER).read_bytes()
    model = model.replace(b"@model_path/weights/weight.bin", b"@model_path/../../../weight.bin")
    (path / INNER).write_bytes(model.replace(b"/../../../weight.bin", b"/../../../eight.bin"))
    with pytest.raises(ConverterError, match="R107"):
        converter.load(path)


def test_a_suffix_of_the_other_kind_is_no_warning(tmp_path: Path) -> None:
    converter.convert(SAMPLE, tmp_path / "a.mlpackage", target="coreml")
    relu = Op("relu", {"x": "$x"}, {"y": ("float32", [2])})
    bare = package(tmp_path / "p.mlpackage", Block({"x": ("float32", [2])}, [relu], ["y"]))
    shutil.copy(bare / INNER, tmp_path / "b.mlmodel")
    for path in ("a.mlpackage", "b.mlmodel"):
        assert converter.load(tmp_path / path).notes == []


@pytest.mark.parametrize("file", ["m.mlmodelc", "model.mil", "renamed"])
def test_compiled_models_are_refused_by_name(file: str, tmp_path: Path) -> None:
    for folder in ("m.mlmodelc", "renamed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "coremldata.bin").write_bytes(bytes(64))
        (tmp_path / folder / "model.espresso.net").write_text("{}")
    (tmp_path / "model.mil").write_text("program(1.0)\n[buildInfo = dict()]\n{\n}\n")
    formats = [None, "mlprogram"] if (tmp_path / file).is_dir() else [None]
    for form in formats:
        with pytest.raises(ReadError, match=r"R106.*compiled by Core ML \(\.mlmodelc\)") as e:
            converter.load(tmp_path / file, form)
        assert "that it was compiled from" in e.value.diagnostics[0].help
        undocumented = "layers Apple does not document" in str(e.value)
        assert undocumented == (file != "model.mil")


@pytest.mark.parametrize(("inside", "help"), [("model.mil", "unpack"), ("x.net", "compiled from")])
def test_compiled_models_in_archives_are_refused(inside: str, help: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as z:
        z.writestr(f"a/m.mlmodelc/{inside}", "program(1.0)")
    with pytest.raises(ReadError, match="R106") as e:
        converter.load(tmp_path / "m.zip", "mlprogram")
    assert help in e.value.diagnostics[0].help


# --- commands


def test_commands_take_packages(tmp_path: Path) -> None:
    a, b = linear(tmp_path / "a.mlpackage"), linear(tmp_path / "b.mlpackage", 2.0)
    code, said = netconv("inspect", a)
    assert (
        code == 0
        and "a.mlpackage  mlprogram (specification 8 (iOS 17)), 1 layer, 1 node," in said
        and "linear" in said
    )
    assert netconv("check", a) == (0, "a.mlpackage: valid Core ML ML Program\n")
    assert netconv("diff", a, a)[0] == 0 and netconv("diff", a, b)[0] == 1
    code, said = netconv("convert", SAMPLE, "-t", "coreml", "-o", tmp_path / "n.mlpackage")
    size = sum(p.stat().st_size for p in mlpackage.files_of(tmp_path / "n.mlpackage"))
    assert code == 0 and f"{size / 1000:.1f} kB" in said


def test_files_of_packages_are_compared(tmp_path: Path) -> None:
    from converter.commands.file_diff import compare

    a, b = linear(tmp_path / "a.mlpackage"), linear(tmp_path / "b.mlpackage", 2.0)
    assert compare(a, a) == (True, [])
    assert compare(a, b) == (False, [STORED])


def test_a_folder_of_models_has_packages_and_not_their_parts(tmp_path: Path) -> None:
    linear(tmp_path / "in" / "a.mlpackage")
    linear(tmp_path / "in" / "unnamed")
    (tmp_path / "in" / "website").mkdir()
    (tmp_path / "in" / "website" / "Manifest.json").write_text('{"name": "no model"}')
    shutil.copy(SAMPLE, tmp_path / "in" / "website" / "d.mlmodel")
    found = plan.of_folder(tmp_path / "in", ["onnx"], {})
    wanted = ["a.mlpackage", "unnamed", "website/d.mlmodel"]
    assert [j.id for j in found.jobs] == [f"{n} -> onnx" for n in wanted]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("in/*.mlpackage", ["in/a.mlpackage"]),
        ("in/**/*", ["in/a.mlpackage", "in/d.mlmodel"]),
        ("in/**/*.mlmodel", ["in/d.mlmodel"]),
        (f"in/a.mlpackage/{INNER}", [f"in/a.mlpackage/{INNER}"]),
    ],
)
def test_globs_find_packages_and_not_their_parts(
    pattern: str, wanted: list[str], tmp_path: Path
) -> None:
    linear(tmp_path / "in" / "a.mlpackage")
    shutil.copy(SAMPLE, tmp_path / "in" / "d.mlmodel")
    (tmp_path / "jobs.toml").write_text(f'[[job]]\nmodels = "{pattern}"\nto = "onnx"\n')
    found = plan.of_file(tmp_path / "jobs.toml")
    assert [j.id for j in found.jobs] == [f"{n} -> onnx" for n in wanted]


def test_a_batch_explains_a_compiled_model(tmp_path: Path) -> None:
    (tmp_path / "in" / "m.mlmodelc").mkdir(parents=True)
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels = "in/*"\nto = "onnx"\n')
    (done,) = run.run(plan.of_file(tmp_path / "jobs.toml"), Batch(workers=1))
    assert [d["code"] for d in done.outcome["diagnostics"]] == ["R106"]


def test_a_package_does_not_fit_into_standard_output() -> None:
    with pytest.raises(UsageError, match="several files"), named_output(DASH, "coreml") as out:
        out.mkdir()


def test_a_batch_converts_a_changed_package_again(tmp_path: Path) -> None:
    linear(tmp_path / "in" / "a.mlpackage")
    shutil.copy(SAMPLE, tmp_path / "in" / "d.mlmodel")
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nmodels = "in/*"\nto = "onnx"\n[[job]]\nmodels = "in/*.mlmodel"\nto = "coreml"\n'
    )

    def kept() -> int:
        done = run.run(plan.of_file(tmp_path / "jobs.toml"), Batch(workers=1))
        assert {d.status for d in done} == {"ok"}
        return sum(d.kept for d in done)

    assert kept() == 0 and kept() == 3
    shutil.rmtree(tmp_path / "in" / "a.mlpackage")
    linear(tmp_path / "in" / "a.mlpackage", 2.0)  # the model is the same, its weights are not
    assert kept() == 2


def test_packages_are_fetched_from_and_put_into_stores(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    try:
        local = linear(tmp_path / "a.mlpackage")
        for file in mlpackage.files_of(local):
            store.pipe_file(f"/nets/a.mlpackage/{file.relative_to(local)}", file.read_bytes())
        (tmp_path / "jobs.toml").write_text('[[job]]\nmodels = "memory://nets/**"\nto = "onnx"\n')
        (job,) = plan.of_file(tmp_path / "jobs.toml").jobs
        assert job.source == "memory:///nets/a.mlpackage"
        fetched = staging.fetch(job.source, tmp_path / "in")
        assert converter.load(fetched).format == "mlprogram"
        assert staging.fingerprint(job.source) == content.fingerprint(local)
        outcome = {"files": staging.publish(fetched, "memory://made/a.mlpackage")}
        again = plan.Job("", "convert", "", "", "memory://made/a.mlpackage")
        assert staging.exists(again.output) and staging.present(again, outcome)
        store.pipe_file("/made/a.mlpackage/Data/more", b"more")
        assert not staging.present(again, outcome)
        outcome = {"files": staging.publish(linear(tmp_path / "b" / "a.mlpackage"), again.output)}
        assert staging.present(again, outcome)
    finally:
        store.rm("/", recursive=True)


# --- archives


def zipped(path: Path, package_: Path, top: str = "m.mlpackage/", *more: object) -> Path:
    """A .zip of a package, with entries (a name or ZipInfo, and content) besides."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in mlpackage.files_of(package_):
            archive.write(file, top + file.relative_to(package_).as_posix())
        for name, data in more:  # type: ignore[misc, attr-defined]
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("top", ["", "m.mlpackage/", "nets/v1/m.mlpackage/"])
def test_a_zipped_package_is_read(top: str, tmp_path: Path) -> None:
    """It computes the same as the package, after its temporary files are gone."""
    path = linear(tmp_path / "m.mlpackage", 0.5)
    readme = [("README.md", "a network"), (f"__MACOSX/{top}._Manifest.json", b"\0")]
    archive = zipped(tmp_path / "m.zip", path, top, *readme)
    x = np.ones((2, 4), np.float32)
    found, wanted = (converter.load(p).run({"x": x})["y"] for p in (archive, path))
    np.testing.assert_array_equal(found, wanted)
    assert converter.load(archive).notes == []
    converter.convert(archive, tmp_path / "m.onnx")
    converter.convert(SAMPLE, tmp_path / "n.mlpackage", target="coreml")
    assert converter.load(zipped(tmp_path / "n.zip", tmp_path / "n.mlpackage")).format == "coreml"


def entry(name: str, kind: int = stat.S_IFREG) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = (kind | 0o644) << 16
    return made


BAD_ENTRIES = {
    "outside": (entry("m.mlpackage/../../x"), b"", r"R107.*lies outside the package"),
    "backslash": (entry("m.mlpackage/Data\\..\\x"), b"", r"R107.*lies outside the package"),
    "root": (entry("m.mlpackage//etc/x"), b"", r"R107.*lies outside the package"),
    "link": (entry("m.mlpackage/Data/x", stat.S_IFLNK), b"/etc/passwd", r"R107.*is a link"),
    "pipe": (entry("m.mlpackage/Data/x", stat.S_IFIFO), b"", r"R107.*is not a regular file"),
    "twice": (entry(f"m.mlpackage/{INNER}"), b"", r"R107.*twice"),
    "bomb": (entry("m.mlpackage/Data/x"), bytes(1 << 27), r"R103.*more than 200 times"),
    "second": (entry("n.mlpackage/Manifest.json"), b"{}", r"R103.*2 packages"),
    "compressed": (None, b"", r"R107.*by an unknown method"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_archives_that_are_not_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, data, said = BAD_ENTRIES[name]
    path = linear(tmp_path / "m.mlpackage")
    more = [] if info is None else [(info, data)]
    if info is not None:
        info.compress_type = zipfile.ZIP_DEFLATED
    archive = zipped(tmp_path / "m.zip", path, "m.mlpackage/", *more)
    if info is None:
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_LZMA) as z:
            z.writestr("m.mlpackage/Data/x", b"x")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for form in (None, "mlprogram"):
        with pytest.raises(ReadError, match=said):
            converter.load(archive, form)
    assert not list((tmp_path / "temporary").iterdir())


def test_archives_that_are_damaged_are_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "m.zip", linear(tmp_path / "m.mlpackage"))
    whole = archive.read_bytes()
    for cut in range(10, len(whole), 97):
        archive.write_bytes(whole[:cut])
        with pytest.raises(ReadError, match=r"R10[13]"):
            converter.load(archive)
    for at in range(0, len(whole), 53):
        archive.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with contextlib.suppress(ConverterError):
            converter.load(archive)


def test_other_archives_are_no_models(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    with pytest.raises(ReadError, match="R101"):
        converter.load(tmp_path / "a.npz")
    with pytest.raises(ReadError, match=r"R103.*no package"):
        converter.load(tmp_path / "a.npz", "mlprogram")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("m.mlmodelc/coremldata.bin", bytes(9))
    with pytest.raises(ReadError, match=r"R106.*mlmodelc"):
        converter.load(tmp_path / "c.zip")
