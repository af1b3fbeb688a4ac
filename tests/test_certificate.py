"""Certificates: their statements, and the findings of checking them again."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

import converter
from converter.cli import app, console
from converter.commands import certificate
from converter.commands.certificate import Side
from converter.errors import ReadError
from support import ROOT, SAMPLES


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return app._guarded()

    return run


def certified(folder: Path, data: list[str] | None = None, **options: Any) -> Path:
    """A certificate about a conversion of a sample, next to both files."""
    source, target = folder / "net.mlmodel", folder / "out" / "net.xml"
    target.parent.mkdir()
    source.write_bytes((SAMPLES / "digits_cnn.mlmodel").read_bytes())
    converter.convert(source, target)
    result = converter.verify(source, target, data, native="off", **options)
    sides = Side(source, "coreml"), Side(target, "openvino")
    made = certificate.statement(*sides, result, {"native": "off", **options}, data, folder)
    path = folder / "net.certificate.json"
    path.write_text(certificate.text_of(made))
    return path


def test_it_names_every_file_with_its_hash(tmp_path: Path) -> None:
    data = json.loads(certified(tmp_path).read_text())
    schema = json.loads((ROOT / "schemas" / "report" / "certificate.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    actual = {s["name"]: s["digest"]["sha256"] for s in data["subject"]}
    expected = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("net.mlmodel", "out/net.xml", "out/net.bin")
    }
    assert actual == expected
    assert data["_type"] == "https://in-toto.io/Statement/v1"
    verdict, coverage = (data["predicate"][k] for k in ("verdict", "coverage"))
    assert verdict["passed"] and verdict["status"] == "ok"
    assert coverage["outputs"] == len(verdict["outputs"]) == 1
    assert data["predicate"]["tool"] == {"name": "netconv", "version": converter.__version__}
    assert data["predicate"]["environment"]["onnxruntime"]


def test_it_holds_as_long_as_nothing_changes(tmp_path: Path) -> None:
    found = certificate.check(certified(tmp_path, seeds=2))
    assert found.holds and not found.changed
    assert found.result is not None and "normal 1" in found.result.feeds


def test_it_holds_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = certified(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert certificate.check(tmp_path / "b" / path.name).holds


@pytest.mark.parametrize("name", ["net.mlmodel", "out/net.xml", "out/net.bin"])
def test_it_breaks_with_one_byte_of_either_model(name: str, tmp_path: Path) -> None:
    path = certified(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    found = certificate.check(path)
    assert not found.holds and found.result is None
    (why,) = found.changed
    assert (why.code, why.message) == ("N410", f"{name} has changed since it was certified")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "name"), [
    ("onnx+external", "n.onnx"), ("mlprogram", "n.mlpackage"), ("coreml+spec=5", "n.mlpackage"),
    ("zhouyi", "n.txt"), ("nnapi", "n.nnapi.json"), ("openvino+ir=7", "n.xml"),
])  # fmt: skip
def test_it_breaks_with_one_byte_of_any_file_of_any_format(
    target: str, name: str, tmp_path: Path
) -> None:
    """Side files, and all files of a package."""
    path = certified(tmp_path)
    out = tmp_path / "all"
    out.mkdir()
    converter.convert(tmp_path / "net.mlmodel", out / name, target=target)
    sides = (
        Side(tmp_path / "net.mlmodel", "coreml"),
        Side(out / name, target.partition("+")[0]),
    )
    result = converter.verify(sides[0].file, sides[1].file, native="off")
    made = certificate.statement(*sides, result, {"native": "off"}, None, tmp_path)
    path.write_text(certificate.text_of(made))
    assert certificate.check(path).holds
    files = [p for p in out.rglob("*") if p.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        (why,) = certificate.check(path).changed
        assert file.name in why.message
        file.write_bytes(content)


def test_the_page_explains_every_key_of_the_schema() -> None:
    schema = json.loads((ROOT / "schemas" / "report" / "certificate.json").read_text())
    page = (ROOT / "docs" / "tasks" / "certificates.md").read_text()
    keys = [k for k in schema["properties"] if k != "predicate"]
    keys += [f"predicate.{k}" for k in schema["properties"]["predicate"]["properties"]]
    assert [k for k in keys if f"`{k}`" not in page] == []


def test_a_missing_file_breaks_it(tmp_path: Path) -> None:
    path = certified(tmp_path)
    (tmp_path / "out" / "net.bin").unlink()
    (why,) = certificate.check(path).changed
    assert why.message == "out/net.bin, which the certificate names, was not found"


def test_given_inputs_belong_to_it(tmp_path: Path) -> None:
    image = np.random.default_rng(0).random((1, 8, 8))
    np.savez(tmp_path / "in.npz", image=image)
    path = certified(tmp_path, [str(tmp_path / "in.npz")])
    assert json.loads(path.read_text())["predicate"]["inputs"]["data"] == ["in.npz"]
    assert certificate.check(path).holds
    np.savez(tmp_path / "in.npz", image=image + 1)
    assert [d.message for d in certificate.check(path).changed] == [
        "in.npz has changed since it was certified"
    ]


def test_a_difference_is_certified_too(tmp_path: Path) -> None:
    """The statement is about the findings, good or bad."""
    one, other = tmp_path / "a.onnx", tmp_path / "b.onnx"
    converter.convert(SAMPLES / "digits_cnn.mlmodel", one)
    model = onnx.load(one)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) * 1.5).tobytes()
    onnx.save(model, other)
    result = converter.verify(one, other, native="off")
    assert not result.passed
    sides = Side(one, "onnx"), Side(other, "onnx")
    made = certificate.statement(*sides, result, {"native": "off"}, None, tmp_path)
    (tmp_path / "c.json").write_text(certificate.text_of(made))
    found = certificate.check(tmp_path / "c.json")
    assert found.holds and found.certified == "differs"


def test_equal_comparisons_give_equal_certificates(tmp_path: Path) -> None:
    texts = []
    for name in "ab":
        (tmp_path / name).mkdir()
        texts.append(certified(tmp_path / name).read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.clear(),
        lambda d: d.update(predicateType="https://example.org/other"),
        lambda d: d["predicate"].pop("verdict"),
        lambda d: d["predicate"]["options"].update(keep_tensors="/etc"),
        lambda d: d["predicate"]["inputs"].update(files=[{"name": 5}]),
    ],
)
def test_files_that_are_no_certificate_are_refused(change: Any, tmp_path: Path) -> None:
    path = certified(tmp_path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ReadError, match=r"R103.*not a certificate of netconv"):
        certificate.check(path)


def test_the_command_line_makes_one_and_checks_it(
    call: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(SAMPLES / "digits_cnn.mlmodel"), str(tmp_path / "net.onnx")
    path = tmp_path / "net.json"
    assert call("convert", source, "-o", target) == 0
    assert call("verify", source, target, "--seeds", "2", "--certificate", str(path)) == 0
    assert f"certificate: {path}" in capsys.readouterr().out
    assert json.loads(path.read_text())["predicate"]["options"]["seeds"] == 2
    assert call("certify-check", str(path)) == 0
    assert "net.json holds" in capsys.readouterr().out
    Path(target).write_bytes(Path(target).read_bytes() + b"\0")
    assert call("certify-check", str(path)) == 1
    done = capsys.readouterr()
    assert "net.json does not hold" in done.out
    assert "net.onnx has changed since it was certified" in done.err


def test_unrepeatable_conversions_are_not_certified(
    call: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(SAMPLES / "digits_cnn.mlmodel")
    engines = ["--engine", "onnxruntime,reference"]
    path = str(tmp_path / "c.json")
    assert call("verify", source, source, "--certificate", path, *engines) == 2
    assert "one comparison of tensors with one engine" in capsys.readouterr().err


def test_a_conversion_is_certified_at_once(
    call: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.mlmodel").write_bytes((SAMPLES / "digits_cnn.mlmodel").read_bytes())
    whole = ("convert", "a.mlmodel", "a.onnx", "--verify", "--native", "off")
    assert call(*whole, "--certificate", "c.json") == 0
    assert "certificate: c.json" in capsys.readouterr().out
    assert call("certify-check", "c.json") == 0
    again = ("verify", "a.mlmodel", "a.onnx", "--native", "off", "--certificate", "d.json")
    assert call(*again) == 0
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()
    for changes in (("--outputs", "probabilities"), ("--states", "io")):
        code = call(*whole, "--force", "--certificate", "e.json", *changes)
        assert code == (2 if changes[0] == "--outputs" else 0)
    assert call("convert", "a.mlmodel", "b.onnx", "--certificate", "f.json") == 2
    assert not (tmp_path / "f.json").exists() and not (tmp_path / "b.onnx").exists()
