"""The examples of `netconv explain`: one gives the code, the repaired one does not."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from converter.cli import app, console
from converter.commands.explain import CODES
from golden import PROGRAM
from support import HANG

SAMPLES = Path(__file__).parent.parent / "samples"
EXAMPLES = {code: page for code, page in CODES.items() if page.example}
SLOW = {"quantize", "batch", "verify"}


def test_codes_are_in_order() -> None:
    order = "RXWNBU"
    assert list(CODES) == sorted(CODES, key=lambda c: (order.index(c[0]), int(c[1:])))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.slow) if SLOW & set(page.example.split()) else code
        for code, page in EXAMPLES.items()
    ],
)
def test_an_example_gives_its_code_and_the_repaired_one_does_not(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(folder: Path, commands: str) -> str:
        shutil.copytree(SAMPLES, folder / "samples", ignore=shutil.ignore_patterns("*.py"))
        monkeypatch.chdir(folder)
        for command in commands.split(" && "):
            capsys.readouterr()
            if "--timeout" in command:  # which may end the process
                words = [*PROGRAM, *shlex.split(command)[1:]]
                done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
                print(done.stdout, done.stderr)
            elif command.startswith("netconv "):
                monkeypatch.setattr(sys, "argv", shlex.split(command))
                console.use(console.Console())
                app._guarded()
            else:
                subprocess.run(shlex.split(command), check=True)
        return "".join(capsys.readouterr())

    page = EXAMPLES[code]
    assert f"[{code}]" in page.output or code == "N401"  # a difference is a verdict, not a message
    assert page.output in output(tmp_path / "example", page.example)
    repaired = output(tmp_path / "repaired", page.repaired)
    assert page.output not in repaired and f"[{code}]" not in repaired


def test_an_explanation_shows_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["netconv", "explain", "R102"])
    app._guarded()
    assert capsys.readouterr().out.endswith(
        "  example: netconv convert samples/digits_cnn.mlmodel digits.xml\n"
        "           rm digits.bin\n"
        "           netconv inspect digits.xml\n"
        "    error[R102] weights file digits.bin was not found\n"
        "  repaired: netconv convert samples/digits_cnn.mlmodel digits.xml\n"
        "            netconv inspect digits.xml\n"
    )
