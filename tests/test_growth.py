"""A small file that asks for a large constant: warned of, or refused, before it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
import every_command
from batch.models import small
from converter.errors import ConverterError, Diagnostic, UsageError, WriteError
from converter.io import growth

SPELLED_OUT = (
    "nnapi",
    "nnapi+c",
    "nnapi+blob",
    "zhouyi",
    "mlprogram",
)  # operators without a fill
ELEMENTS = 3 << 20  # 12.6 MB of float32


def filled(path: Path, expand: bool = False) -> Path:
    """One large constant in a file of a hundred bytes."""
    shape = numpy_helper.from_array(np.array([ELEMENTS // 4, 1, 4], np.int64), "shape")
    one = numpy_helper.from_array(np.array([1], np.float32), "one")
    made = (
        helper.make_node("Expand", ["one", "shape"], ["filled"])
        if expand
        else helper.make_node("ConstantOfShape", ["shape"], ["filled"])
    )
    graph = helper.make_graph(
        [made, helper.make_node("Add", ["x", "filled"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [shape, one],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("target", SPELLED_OUT)
def test_every_target_refuses_before_it_writes(tmp_path: Path, target: str) -> None:
    source = filled(tmp_path / "a.onnx")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(WriteError) as refused:
        converter.convert(source, out / "a", target=target, max_output="100x")
    (why,) = refused.value.diagnostics
    assert why.code == "W304" and "12.6 MB" in why.message
    assert growth.size_text(source.stat().st_size) in why.message and "--max-output" in why.help
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("target", SPELLED_OUT)
def test_without_a_limit_it_is_a_warning(tmp_path: Path, target: str) -> None:
    notes = converter.convert(filled(tmp_path / "a.onnx"), tmp_path / "b", target=target)
    (why,) = [d for d in notes if d.level == "warning"]
    assert why.code == "W304" and "12.6 MB" in why.message


def test_the_warning_comes_before_the_writing(tmp_path: Path) -> None:
    seen: list[int] = []
    count = growth.Growth(100, growth.MaxOutput(), lambda d: seen.append(count.written))
    count.expect(10)
    count.add(10)
    count.expect(2 * growth.NO_WARNING_BELOW)
    count.expect(3 * growth.NO_WARNING_BELOW)
    assert seen == [10]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("expand", [False, True])
def test_the_command_line(tmp_path: Path, expand: bool) -> None:
    script = str(every_command.script(tmp_path))
    filled(tmp_path / "a.onnx", expand)

    def run(*arguments: str) -> tuple[int, str]:
        done = every_command.run([script, *arguments], tmp_path)
        return done.returncode, done.stdout + done.stderr

    to = ("a.onnx", "-o", "b.txt", "-t", "zhouyi")
    for limit in ("100x", "5MB", "1000x", "0.5M"):
        code, said = run("convert", *to, "--max-output", limit)
        assert code == 5 and "W304" in said and "12.6 MB" in said, said
        assert not (tmp_path / "b.txt").exists() and not (tmp_path / "b.bin").exists()
    assert run("convert", *to, "--max-output", "many")[0] == 2
    assert run("extract", *to, "--max-output", "100x")[0] == 5
    code, said = run("convert", *to, "--strict")
    assert code == 1 and said.count("W304") == 1
    assert run("convert", *to, "--max-output", "1G", "--force")[0] == 0


def test_a_batch_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.commands.batch import plan, work

    monkeypatch.setattr(work, "CAREFUL", growth.MaxOutput("100x", 100, 1_000_000))
    nets = tmp_path / "nets"
    small(nets / "b.onnx")
    filled(nets / "a.onnx")

    def outcomes(**settings: str) -> list[tuple[int, list[str]]]:
        found = []
        for job in plan.of_folder(nets, ["zhouyi"], settings).jobs:
            place = tmp_path / f"made-{settings.get('max-output', '')}-{len(found)}"
            made = place / f"{Path(job.source).stem}.txt"
            options = {"output": str(made), "options": job.options}
            task = work.Task("convert", job.source, job.shown, job.target, **options)
            done = work.perform(task)
            found.append((done["exit_code"], [d["code"] for d in done["diagnostics"]]))
        return found

    assert outcomes() == [(5, ["W304"]), (0, [])]
    assert outcomes(**{"max-output": "off"}) == [(0, ["W304"]), (0, [])]
    assert outcomes(**{"max-output": "2GB"}) == [(0, ["W304"]), (0, [])]
    with pytest.raises(UsageError):
        outcomes(**{"max-output": "much"})


def test_the_limit_of_a_batch_leaves_room_for_small_models() -> None:
    assert growth.CAREFUL.bytes(115) == 64_000_000
    assert growth.CAREFUL.bytes(1_000_000) == 100_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("off", 0), ("", 0), ("100x", 100_000), ("1.5x", 1500), ("2k", 2048), ("1MB", 1 << 20)],
)
def test_sizes(text: str, expected: int) -> None:
    assert growth.parse(text).bytes(1000) == expected


@pytest.mark.parametrize("text", ["x", "0", "0x", "-1", "2y", "1e3", "∞"])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(ConverterError) as refused:
        growth.parse(text)
    assert isinstance(refused.value, UsageError)
    assert isinstance(refused.value.diagnostics[0], Diagnostic)


def test_small_models_grow_without_a_word(tmp_path: Path) -> None:
    for target in SPELLED_OUT:
        (tmp_path / target).mkdir()
        notes = converter.convert(
            small(tmp_path / "a.onnx"), tmp_path / target / "b", target=target
        )
        assert "W304" not in {d.code for d in notes}
    assert onnx.load(tmp_path / "a.onnx").graph.node
