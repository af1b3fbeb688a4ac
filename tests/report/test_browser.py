"""The HTML page in a real browser: `make test-browser`. Elsewhere skipped, with what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.commands import report
from converter.commands.report import facts
from verify.nets import copy_of, resnet

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    good = resnet(np.random.default_rng(0))
    bad = copy_of(good)
    node = next(n for n in bad.ir.graph if n.op_type == "MaxPool")
    node.attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])
    result = converter.verify(good, bad, tensors="all")
    data = {**result.as_json(), "structure": []}
    entry = next(facts.of_data(data, "x"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.render(facts.Report("test", "1", (entry,)), "html"))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: make test-browser"
    )
    chromium, driver = (
        shutil.which("chromium") or shutil.which("google-chrome"),
        shutil.which("chromedriver"),
    )
    if not chromium or not driver:
        pytest.skip(
            "chromium and chromedriver are not installed: apt install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def test_the_search_finds_layers(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []
    asked = [
        e["message"]
        for e in browser.get_log("performance")
        if "Network.requestWillBeSent" in e["message"]
    ]
    assert not [m for m in asked if "http://" in m or "https://" in m]
    rows = browser.find_elements("css selector", "table.layers tbody tr")
    assert len(rows) > 10
    browser.find_element("css selector", "input[type=search]").send_keys("BLOCK1_A")
    visible = [r.text for r in rows if r.is_displayed()]
    assert 0 < len(visible) < len(rows) and all("block1_a" in r for r in visible)


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Any, page: Path, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def luminance(colour: str) -> float:
    """Relative luminance of rgb(r, g, b), as WCAG 2 defines it."""
    channels = [float(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(browser: Any, page: Path, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get(page.as_uri())
    background = luminance(
        browser.find_element("css selector", "body").value_of_css_property("background-color")
    )
    assert (background > 0.5) == (scheme == "light")
    for selector in ("p", ".dim", ".verdict", "td", "h2"):
        text = luminance(
            browser.find_element("css selector", selector).value_of_css_property("color")
        )
        assert (max(text, background) + 0.05) / (min(text, background) + 0.05) >= 4.5, selector


def test_the_essentials_are_there_without_scripts(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(page.as_uri())
    assert browser.find_elements("css selector", "input") == []
    text = browser.find_element("css selector", "body").text
    for part in ("1 differs", "First divergence", "stem_pool", "pads", "Layers"):
        assert part in text
    drawing = browser.find_element("css selector", "svg polyline.own")
    assert drawing.is_displayed() and drawing.size["height"] > 5
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
