"""The examples of `netconv explain`: one command gives the code, the other does not."""

import shutil
import sys
from pathlib import Path

import pytest

from converter.cli import app, console
from converter.commands.explain import CODES

SAMPLES = Path(__file__).parent.parent / "samples"
EXAMPLES = {code: page for code, page in CODES.items() if page.example}


def test_codes_are_in_order() -> None:
    order = "RXWNBU"
    assert list(CODES) == sorted(CODES, key=lambda c: (order.index(c[0]), int(c[1:])))


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_gives_its_code_and_the_repaired_one_does_not(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(SAMPLES, tmp_path / "samples")
    monkeypatch.chdir(tmp_path)

    def output(command: str) -> str:
        monkeypatch.setattr(sys, "argv", command.split())
        console.use(console.Console())
        app._guarded()
        return "".join(capsys.readouterr())

    assert f"[{code}]" in output(EXAMPLES[code].example)
    for file in tmp_path.glob("digits.*"):
        file.unlink()
    assert f"[{code}]" not in output(EXAMPLES[code].repaired)
