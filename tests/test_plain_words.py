"""The check of docstrings, comments and messages in .ci/words.py."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / ".ci" / "words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Return the axes."""\n', []),
        ('"""What nobody reads."""\n', [1, 1, 1]),
        ("# the axis behind it\nx = 1  # in place of y, and 3 decimal places\n", [1]),
        ('"""Text.\n\nThe `behind` of\na place.\n"""\n', [4]),
        ("def f():\n    return 1\n\n\ndef _f():\n    return 1\n", [1]),
        ('"""Rewrite it in\nplace, see place.py.\n"""\n', []),
        ('"""As in the base class."""\n', [1]),
        ('"""If and Loop, read and written."""\n', []),
        ("class A:\n    def f(self):\n        return 1\n", [1, 2]),
        ('class A(B):\n    """A."""\n\n    def f(self):\n        return 1\n', []),
        ("@overload\ndef f(): ...\n\n\ndef g():\n    pass\n", []),
        ('raise MappingError("an attention sink")\n', [1]),
        ('raise MappingError(f"{message} of an axis")\n', []),
        ('raise wrong_call("it needs a target", help="netconv batch DIR")\n', []),
        ('raise MappingError("attention sinks are not supported")\n', []),
        ('raise wrong_call("does it fit", help="did you mean x?")\n', [1]),
        ('message = f"{count} updates of {kind}"\n', [1]),
        ('message = f"{count} updates are too many"\nother = "an attention sink"\n', []),
    ],
)
def test_findings(words: ModuleType, source: str, expected: list[int]) -> None:
    assert [line for line, _ in words.findings(source)] == expected


def test_limits_only_go_down(
    words: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = tmp_path / "converter" / "a.py"
    module.parent.mkdir()
    module.write_text("# behind\n# told\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "LIMITS", tmp_path / "words.txt")
    assert words.main([]) == 1 and "a.py: 2 findings, limit 0" in capsys.readouterr().out
    (tmp_path / "words.txt").write_text("1 converter/a.py\n")
    assert words.main([]) == 1
    words.main(["--lower"])
    assert (tmp_path / "words.txt").read_text() == "1 converter/a.py\n"
    module.write_text("# after\n")
    assert words.main([]) == 0
    words.main(["--lower"])
    assert (tmp_path / "words.txt").read_text() == ""
