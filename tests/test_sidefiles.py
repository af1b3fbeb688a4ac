"""Owners of side files: which files a model reads and overwrites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import converter
from converter.commands import convert, file_diff
from converter.commands.batch import staging
from converter.commands.batch.job import Job
from converter.commands.options.convert import Convert
from converter.errors import ConverterError, ExitCode
from converter.formats import sidefiles
from mutations import FORMS, network

WITH_SIDE_FILES = {
    **{
        "openvino": ["net.bin"],
        "openvino+ir=7": ["net.bin"],
        "onnx+external": ["net.data"],
        "nnapi": ["net.nnapi.bin"],
        "zhouyi": ["net.bin"],
    },
    **{"onnx": [], "coreml": [], "nnapi+blob": [], "tflite": []},
}
Listing = dict[str, bytes]


def listing(folder: Path) -> Listing:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def net(folder: Path, name: str, target: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    converter.save(network(), folder / name, target)
    return folder / name


def write(source: Path, target: Path, force: bool = True, **more: object) -> None:
    convert.convert(source, target, Convert(force=force, **more))  # type: ignore[arg-type]


def code_of(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(ConverterError) as info:
        call()
    return info.value.diagnostics[0].code, int(info.value.exit_code)


@pytest.mark.parametrize("target", WITH_SIDE_FILES)
def test_the_side_files_of_a_model_are_those_that_were_written_with_it(
    tmp_path: Path, target: str
) -> None:
    path = net(tmp_path / "net", f"net{FORMS[target]}", target)
    for name in ("net.bin", "net.data", "net.weights", "netto.bin"):  # of other models
        (path.parent / name).touch()
    assert [p.name for p in sidefiles.present(path)] == WITH_SIDE_FILES[target]
    (path.parent / "broken.xml").write_bytes(b"no model")
    assert (
        sidefiles.present(path.with_name("broken.xml"))
        == sidefiles.present(path.with_name("absent.xml"))
        == []
    )


def test_a_side_file_may_be_named(tmp_path: Path) -> None:
    path = net(tmp_path, "net.txt")
    path.with_suffix(".bin").rename(tmp_path / "other.bin")
    path.write_text(path.read_text().replace("model_bin=./net.bin", "model_bin = ./other.bin"))
    assert [p.name for p in sidefiles.present(path)] == ["other.bin"]
    (tmp_path / "net.bin").write_bytes(b"somebody else's")
    assert [p.name for p in sidefiles.present(path)] == ["other.bin"]
    (tmp_path / "other.bin").unlink()  # then the neighbor is taken
    assert [p.name for p in sidefiles.present(path)] == ["net.bin"]


@pytest.mark.parametrize("source", ["net.onnx", "net.mlmodel"])
@pytest.mark.parametrize("target", ["net.xml", "net.txt", "net.nnapi.json"])
def test_a_conversion_can_be_repeated(tmp_path: Path, source: str, target: str) -> None:
    """The weights that the first left next to the source are not the source's."""
    given = net(tmp_path, source)
    write(given, tmp_path / target)
    first = listing(tmp_path)
    assert len(first) == 3
    before = (tmp_path / target).stat().st_mtime_ns
    write(given, tmp_path / target)
    assert listing(tmp_path) == first and (tmp_path / target).stat().st_mtime_ns > before
    assert code_of(lambda: write(given, tmp_path / target, force=False)) == (
        "W302",
        ExitCode.UNWRITABLE,
    )


@pytest.mark.parametrize(("owner", "taker"), [("net.xml", "net.txt"), ("net.txt", "net.xml")])
@pytest.mark.parametrize("force", [True, False])
def test_weights_of_another_model_are_not_overwritten(
    tmp_path: Path, owner: str, taker: str, force: bool
) -> None:
    given = net(tmp_path, "net.onnx")
    write(given, tmp_path / owner)
    before = listing(tmp_path)
    with pytest.raises(ConverterError, match=f"a file that {owner} uses") as refused:
        write(given, tmp_path / taker, force)
    assert "force" not in refused.value.diagnostics[0].help
    with pytest.raises(ConverterError, match=f"a file that {owner} uses"):
        converter.save(network(), tmp_path / taker)
    assert listing(tmp_path) == before
    (tmp_path / owner).unlink()  # now they have no owner
    if force:
        write(given, tmp_path / taker)
        assert converter.verify(given, tmp_path / taker).passed
    else:
        assert code_of(lambda: write(given, tmp_path / taker, force)) == (
            "W302",
            ExitCode.UNWRITABLE,
        )


@pytest.mark.parametrize("name", ["net.bin", "./net.bin"])
def test_files_named_by_an_onnx_file_are_its_own(tmp_path: Path, name: str) -> None:
    given = net(tmp_path / "in", "net.onnx")
    onnx.save(
        onnx.load(given),
        tmp_path / "other.onnx",
        save_as_external_data=True,
        location=name,
        size_threshold=0,
    )
    before = listing(tmp_path / "in")
    assert code_of(lambda: write(given, tmp_path / "net.xml")) == ("W302", ExitCode.UNWRITABLE)
    assert listing(tmp_path / "in") == before
    write(given, tmp_path / "other.onnx")  # its own new result needs no side file
    write(given, tmp_path / "net.xml")


def test_an_input_and_its_weights_are_never_overwritten(tmp_path: Path) -> None:
    given = net(tmp_path, "net.xml")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "net.txt").symlink_to(given)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    for target in ("net.xml", "net.txt", "links/net.txt"):
        assert code_of(lambda target=target: write(given, tmp_path / target)) == (
            "W302",
            ExitCode.USAGE,
        )  # type: ignore[misc]
    (tmp_path / "apart").mkdir()
    given.with_suffix(".bin").rename(tmp_path / "apart" / "out.bin")
    weights = {"weights": tmp_path / "apart" / "out.bin"}
    assert code_of(lambda: write(given, tmp_path / "apart" / "out.txt", **weights)) == (
        "W302",
        ExitCode.USAGE,
    )
    assert {**before, "net.bin": (tmp_path / "apart" / "out.bin").read_bytes()} == before


def test_a_new_zhouyi_file_does_not_take_its_predecessors_names(tmp_path: Path) -> None:
    """The map next to it has the names that the text cannot contain; one that is left over must not
    rename the next network's inputs.
    """
    for number, name in enumerate(("a,b", "a_b")):
        model = network()
        model.ir.graph.inputs[0].name = name
        converter.save(model, tmp_path / f"{number}.onnx")
        write(tmp_path / f"{number}.onnx", tmp_path / "net.txt")
        assert [i.name for i in converter.load(tmp_path / "net.txt").inputs] == [name]


def test_a_batch_keeps_foreign_files(tmp_path: Path) -> None:
    given = net(tmp_path / "in", "net.onnx")
    out = tmp_path / "out"
    net(out, "net.txt")
    before = listing(out)
    job = Job("net.onnx -> openvino", "convert", str(given), "openvino", str(out / "net.xml"))
    ran = staging.execute(job, str(tmp_path / "stage"))
    assert (ran.outcome["exit_code"], ran.outcome["diagnostics"][0]["code"]) == (
        ExitCode.UNWRITABLE,
        "W302",
    )
    assert listing(out) == before
    (out / "net.txt").unlink()
    for _ in range(2):
        assert staging.execute(job, str(tmp_path / "stage")).outcome["exit_code"] == 0
    itself = Job("net.onnx -> onnx", "convert", str(given), "onnx", str(given))
    assert staging.execute(itself, str(tmp_path / "stage")).outcome["exit_code"] == ExitCode.USAGE


def test_only_a_models_own_weights_count_when_bytes_are_compared(tmp_path: Path) -> None:
    a, b = net(tmp_path / "a", "net.onnx"), net(tmp_path / "b", "net.onnx")
    (tmp_path / "a" / "net.bin").write_bytes(b"of net.xml")
    assert file_diff.compare(a, b) == (True, [])
    c, d = net(tmp_path / "c", "net.xml"), net(tmp_path / "d", "net.xml")
    assert file_diff.compare(c, d) == (True, [])
    weights = d.with_suffix(".bin")
    weights.write_bytes(np.frombuffer(weights.read_bytes(), np.uint8)[::-1].tobytes())
    assert file_diff.compare(c, d) == (False, ["net.bin"])
