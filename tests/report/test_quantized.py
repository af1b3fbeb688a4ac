"""The page of a quantization."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converter.commands.quantize.measure import Quality
from converter.commands.quantize.result import Quantized
from converter.commands.report import quantized
from converter.errors import Diagnostic
from converter.formats.format import Flavor
from report.conftest import Barriers, find


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    (folder / "net.tflite").write_bytes(bytes(2000))
    made = Quantized(
        flavor=Flavor("tflite"),
        files=(folder / "net.tflite",),
        notes=(Diagnostic("N411", "one sample does not show the ranges", "warning"),),
        before=8000,
        quality=Quality(40, "litert", {"scores": 31.5, "boxes": 12.25}, agree=39),
        floats={"<head>": "it loses most (--max-drop 1%)", "norm": "--keep"},
        wide=["relu"],
        layers={"conv": 8.0, "relu": 40.0},
        rounded={"conv": 6.0, "relu": 38.0, "head": 2.0},
    )
    path = folder / "page.html"
    about = {"date": "2026-01-02T03:04:05+00:00", "host": "here", "versions": {"onnx": "1.2"}}
    path.write_text(quantized.render("net.onnx", [made], ["quantize", "net.onnx"], about))
    return path


def test_size_loss_layers_and_reasons_are_shown(page: Path) -> None:
    source = page.read_text()
    text = re.sub(r"<(?:style|script).*?</(?:style|script)>|<wbr>", "", source, flags=re.S)
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text)))
    for part in (
        "25% of the float network",
        "40 samples in litert",
        "boxes 12.2 dB (24 %) scores 31.5 dB",
        "39 of 40 97.50%",
        "head 2.0 dB (79 %) in floats",
        "conv 6.0 dB (50 %) 8.0 dB (40 %)",
        "<head> it loses most (--max-drop 1%)",
        "norm --keep",
        "Layers with 16 bits relu",
        "N411 ",
        "2026-01-02 03:04:05 UTC · here",
        "netconv quantize net.onnx",
    ):
        assert part in text
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:|//)|@import|url\((?!#)", source)


@pytest.mark.browser
def test_layers_are_filtered_by_their_error(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    find(browser, "button[data-s='large error']").click()
    shown = browser.find_elements("css selector", "table.layers tbody tr:not([hidden])")
    assert [r.text.split()[0] for r in shown] == ["conv"]
    bars = browser.find_elements("css selector", ".meter i")
    before, after = (b.size["width"] for b in bars if b.size["width"])
    assert before == pytest.approx(after * 6 / 8, abs=1)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(
    browser: Any, barriers: Barriers, page: Path, scheme: str, width: int,
    overflow: Callable[[Any, Path, int], list[str]],
) -> None:  # fmt: skip
    assert barriers(browser, page, scheme, width) == []
    assert overflow(browser, page, width) == []
