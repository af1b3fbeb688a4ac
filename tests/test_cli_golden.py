"""Every file in tests/cli is a test (see the README there); and the tests of the machinery that
runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import golden
from support import ROOT

FILES = [p for p in sorted((ROOT / "tests" / "cli").glob("*.md")) if p.name != "README.md"]


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.stem)
def test_command_line(file: Path, tmp_path: Path, record: bool) -> None:
    document = file.read_text(encoding="utf-8")
    assert any(b.language == "console" for b in golden.blocks(document)), "no command in this file"
    played = golden.play(document, tmp_path)
    if record and played != document:
        file.write_text(played, encoding="utf-8")
        pytest.skip(f"recorded: {file.name}")
    assert played == document


DOCUMENT = """# Title

```text file=net.xml
<net/>
```

```console
$ netconv inspect net.xml
one layer
! a warning
$ netconv inspect missing
[exit 4]
```
"""


def answer(line: str, folder: Path) -> str:
    """Stands for netconv: knows the files of the folder."""
    name = line.split()[-1]
    return (
        golden.render("one layer\n", "a warning\n", 0)
        if (folder / name).exists()
        else golden.render("", "", 4)
    )


def test_a_document_that_is_right_stays(tmp_path: Path) -> None:
    assert golden.play(DOCUMENT, tmp_path, answer) == DOCUMENT
    assert (tmp_path / "net.xml").read_text() == "<net/>\n"
    assert (tmp_path / "samples" / "digits_cnn.mlmodel").is_file()


@pytest.mark.parametrize(
    "change",
    [
        ("one layer", "two layers"),
        ("! a warning\n", ""),
        ("[exit 4]\n", ""),
        ("[exit 4]", "[exit 3]"),
        ("! a", "a"),
    ],
)
def test_every_difference_is_seen_and_recorded(tmp_path: Path, change: tuple[str, str]) -> None:
    wrong = DOCUMENT.replace(*change)
    assert wrong != DOCUMENT
    assert golden.play(wrong, tmp_path, answer) == DOCUMENT


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("", "", True),
        ("", "a\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("a\n...\nd\n", "a\nb\n", False),
        ("in ... s\n", "in 0.31 s\n", True),
        ("in ... s\n", "in 0.31 s\nmore\n", False),
        ("...\n", "a\n! b\n", False),
        ("...\n! ...\n", "a\n! b\n!\n", True),
        ("...\n! ...\n", "a\n! b\n[exit 1]\n", False),
        ("...\n[exit 1]\n", "a\n[exit 1]\n", True),
        ("max (1.5)\n", "max (1x5)\n", False),
        ("min 3.09016e-12  mean 0.1\n", "min 3.09018e-12  mean 0.1\n", True),
        ("min 3.09016e-12  mean 0.1\n", "min 3.0902e-12   mean 0.1\n", True),
        ("min 3.09016e-12  mean 0.1\n", "min 3.09018e-12  mean 0.2\n", False),
        ("min 3.09016e-12\n", "min 3.19016e-12\n", False),
        ("error 0.0613 (0.066)\n", "error 0.0614 (0.067)\n", True),
        ("error 0.0613 (0.066)\n", "error 0.0615 (0.066)\n", False),
        ("error 0.0613\n", "error -0.0613\n", False),
        ("16.4 kB, 1.25.3\n", "16.5 kB, 1.25.3\n", False),
        ("16.4 kB, 1.25.3\n", "16.4 kB, 1.25.4\n", False),
        ("y 4.77e-07 abs, 16 ulp\n", "y 5e-07 abs, 7 ulp\n", True),
        ("y 4.77e-07 abs, 16 ulp\n", "z 4.77e-07 abs, 16 ulp\n", False),
        ("y 4.77e-07 abs, 16 ulp\n", "y 5e-03 abs, 16 ulp\n", False),
        ("equal (max 71 ulp)\n", "equal (max 4 ulp)\n", True),
        ("equal (max 71 ulp)\n", "equal (max 710 ulp)\n", False),
        ("(largest difference 2.4e-07)\n", "(largest difference 1.8e-07)\n", True),
        ("(largest difference 2.4e-07)\n", "(largest difference 0.18)\n", False),
    ],
)
def test_matching_lines(expected: str, actual: str, same: bool) -> None:
    assert golden.matches(expected, actual) == same


def test_an_ellipsis_that_still_matches_survives_recording(tmp_path: Path) -> None:
    loose = DOCUMENT.replace("one layer", "one ...")
    assert golden.play(loose, tmp_path, answer) == loose


def test_text_that_depends_on_the_machine_is_removed(tmp_path: Path) -> None:
    assert (
        golden.normalize(f"{tmp_path}/a.xml from netconv 0.1.0, version 2.0.0", tmp_path)
        == "HERE/a.xml from netconv VERSION version 2.0.0"
    )
    assert golden.normalize("netconv, version 12.3.4.dev1", tmp_path) == "netconv, version VERSION"


@pytest.mark.parametrize("body", ["", "text\n", "text\n$ netconv\n"])
def test_a_block_that_does_not_begin_with_a_command(body: str) -> None:
    with pytest.raises(ValueError, match="begins with a command"):
        golden.commands(body)


def test_output_that_would_be_read_as_something_else() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        golden.render("$ netconv\n", "", 0)


def test_only_netconv_is_called(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only netconv"):
        golden.run("rm -rf samples", tmp_path)
