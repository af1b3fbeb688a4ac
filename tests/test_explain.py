"""The examples of `netconv explain`: one gives the code, the repaired one does not."""

import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from converter.cli import app, console
from converter.commands.explain import CODES
from golden import PROGRAM
from support import HANG

SAMPLES = Path(__file__).parent.parent / "samples"
EXAMPLES = {code: page for code, page in CODES.items() if page.example}
SLOW = {"quantize", "batch", "verify"}
# they limit or wait for this process, or need its own file descriptors
IN_A_PROCESS = ("--timeout", "--max-memory", "flock ")
VERDICTS = ("N401", "N408", "B605")  # shown as a status, without their code


def test_codes_are_in_order() -> None:
    order = "RXWNBU"
    assert list(CODES) == sorted(CODES, key=lambda c: (order.index(c[0]), int(c[1:])))


def test_a_code_has_an_example_or_the_reason_why_not() -> None:
    for page in CODES.values():
        assert bool(page.example) == bool(page.output) == bool(page.repaired)
        assert bool(page.example) != bool(page.no_example)
    assert sum(not page.example for page in CODES.values()) <= 3


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
            words = shlex.split(command)
            if any(option in command for option in IN_A_PROCESS):
                at = words.index("netconv")
                words[at : at + 1] = PROGRAM
                done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
                print(done.stdout, done.stderr)
            elif words[0] == "netconv":
                monkeypatch.setattr(sys, "argv", words)
                console.use(console.Console())
                app._guarded()
            elif words[:2] == ["python", "-c"]:
                exec(words[2], {})
            else:
                subprocess.run(words, check=True)
        return "".join(capsys.readouterr())

    page = EXAMPLES[code]
    if code == "U502" and find_spec("s3fs"):
        pytest.skip("s3fs is installed, so that nothing is missing")
    if "flock " in page.example and not shutil.which("flock"):
        pytest.skip("needs the program flock")
    assert code in page.output or code in VERDICTS
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
