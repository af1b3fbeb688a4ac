"""The tree of refusals, their exit codes, and the codes of diagnostics."""

from __future__ import annotations

import inspect
import json
import pickle
import re

import pytest

from converter import errors
from converter.commands.explain import CODES
from converter.errors import (
    ConverterError,
    Diagnostic,
    ExitCode,
    ReadError,
    Where,
    did_you_mean,
    unreadable,
)
from converter.io.resources import schema_path
from support import CONVERTER

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ConverterError)
]
EXIT_CODES = {
    "UsageError": ExitCode.USAGE,
    "UnsupportedError": ExitCode.UNSUPPORTED,
    "ReadError": ExitCode.UNREADABLE,
    "WriteError": ExitCode.UNWRITABLE,
    "NothingComparedError": ExitCode.NOTHING_COMPARED,
    "TimeLimitError": ExitCode.TIME_LIMIT,
    "MemoryLimitError": ExitCode.MEMORY_LIMIT,
}
WHERE = Where("net.xml", 12, "net/layers[3]", "pool1", "MaxPool")


def test_every_refusal_has_its_own_exit_code() -> None:
    assert {kind.__name__: kind.exit_code for kind in ConverterError.__subclasses__()} == EXIT_CODES
    own = {kind for kind in KINDS if ConverterError in kind.__bases__}
    for kind in {*KINDS} - own - {ConverterError}:  # those that are Python's own errors, too
        assert kind.exit_code in {base.exit_code for base in own if issubclass(kind, base)}
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+) .*exit (\d+)", inspect.getdoc(errors) or "")
    assert {name: int(code) for name, code in drawn} == {
        name: int(code) for name, code in EXIT_CODES.items()
    }


def test_exit_codes_are_the_documented_numbers() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 130]
    assert all(code.meaning and code.status for code in ExitCode)


def test_stored_results_have_the_codes_and_words_of_the_enum() -> None:
    run, batch = (
        json.loads(schema_path("report", f"{name}.json").read_text())["properties"]
        for name in ("run", "batch")
    )
    job = batch["jobs"]["items"]["properties"]
    codes = [int(c) for c in ExitCode]
    assert [x["exit_code"]["enum"] for x in (run, batch, job)] == [codes] * 3
    assert job["status"]["enum"] == [c.status for c in ExitCode]


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ("conv", ["Count", "Convolution"], "Convolution"),
        (".onx", [".xml", ".onnx"], ".onnx"),
        ("OpenVINO", ["onnx", "openvino"], "openvino"),
        ("fp61", ["ir", "fp16"], "fp16"),
        ("quite", ["onnx"], ""),
        ("", ["onnx"], ""),
    ],
)
def test_suggestions_for_misspelled_words(given: str, known: list[str], meant: str) -> None:
    assert did_you_mean(given, known) == (f"perhaps you meant {meant!r}" if meant else "")


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_refusals_survive_the_way_between_processes(kind: type[ConverterError]) -> None:
    error = kind(
        [
            Diagnostic(
                "R110", "kernel is -1", where=WHERE, evidence=('kernel="-1"',), help="write 1"
            ),
            Diagnostic("R103", "truncated", level="warning"),
        ]
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.diagnostics == error.diagnostics
    assert str(copy) == str(error)
    assert copy.exit_code == kind.exit_code


def test_a_refusal_has_code_message_location_and_help() -> None:
    text = str(
        ReadError(
            Diagnostic(
                "R111",
                'unknown attribute "rouding_type"',
                where=WHERE,
                help='perhaps you meant "rounding_type"',
            )
        )
    )
    expected = (
        'error[R111] unknown attribute "rouding_type" at net.xml:12  net/layers[3]  '
        'layer "pool1" (MaxPool) (help: perhaps you meant "rounding_type")'
    )
    assert text == expected


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Where(), ""),
        (Where("net.xml"), "net.xml"),
        (Where(line=3), "line 3"),
        (Where("net.xml", 3), "net.xml:3"),
        (Where(layer="a"), 'layer "a"'),
        (Where("m", path="x[1]"), "m  x[1]"),
    ],
)
def test_a_location_prints_its_known_parts(where: Where, text: str) -> None:
    assert str(where) == text


def test_unreadable_makes_a_read_error() -> None:
    error = unreadable("R102", "the weights file is missing", WHERE, help="--weights")
    assert isinstance(error, ReadError)
    assert error.diagnostics == (
        Diagnostic("R102", "the weights file is missing", where=WHERE, help="--weights"),
    )


def test_a_diagnostic_is_plain_data() -> None:
    data = Diagnostic("X201", "no", where=WHERE, evidence=("a",)).as_json()
    assert data["where"]["layer"] == "pool1"
    assert {"code", "message", "level", "where", "evidence", "help"} == set(data)


def test_every_code_in_the_source_has_a_page() -> None:
    used = {
        code
        for file in CONVERTER.rglob("*.py")
        for code in re.findall(r'"([RXWNBU]\d{3})"', file.read_text(encoding="utf-8"))
    }
    assert used
    assert used - set(CODES) == set()


def test_every_page_has_a_title_and_a_text_that_fit_their_letter() -> None:
    for code, page in CODES.items():
        assert re.fullmatch(r"R1\d\d|X2\d\d|W3\d\d|N4\d\d|U5\d\d|B6\d\d", code), code
        assert page.title and not page.title.endswith("."), code
        assert page.text.endswith("."), code
