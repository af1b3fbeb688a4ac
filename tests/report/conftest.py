"""A headless Chromium for the tests of pages; skipped, with a reason, where there is
none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: make test-browser"
    )
    binary, driver = (
        shutil.which("chromium") or shutil.which("google-chrome"),
        shutil.which("chromedriver"),
    )
    if not binary or not driver:
        pytest.skip(
            "chromium and chromedriver are not installed: apt install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
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


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """As it starts: no emulation, wide enough for a desktop."""
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    resize(chromium, 1300)
    chromium.get_log("browser")
    chromium.get_log("performance")
    yield chromium
    assert [e for e in chromium.get_log("browser") if e["level"] == "SEVERE"] == []
    asked = [
        e["message"]
        for e in chromium.get_log("performance")
        if "Network.requestWillBeSent" in e["message"]
    ]
    assert not [m for m in asked if "http://" in m or "https://" in m]


def resize(browser: Any, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def shown_in(browser: Any, scheme: str) -> None:
    """In colors for light or dark."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


Barriers = Callable[[Any, Path, str, int], list[str]]


@pytest.fixture
def barriers() -> Barriers:
    """The findings of axe on a page, in a scheme of colors and a width, with the first elements."""
    package = pytest.importorskip(
        "selenium_axe_python", reason="selenium-axe-python is not installed: make test-browser"
    )
    script = (Path(package.__file__).parent / "axe-core" / "axe.min.js").read_text("utf-8")

    def find(browser: Any, page: Path, scheme: str, width: int) -> list[str]:
        shown_in(browser, scheme)
        resize(browser, width)
        browser.get(page.as_uri())
        browser.execute_script(script)
        found: list[str] = browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document).then((r) => done(r.violations.map("
            "(v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(' ')}`)))"
        )
        return found

    return find


@pytest.fixture
def processor_seconds(browser: Any) -> Callable[[], float]:
    """The time that the page's own thread had the processor since the page was opened, however busy
    the machine is.
    """
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        found = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(m["value"] for m in found if m["name"] == "TaskDuration"))

    return spent


@pytest.fixture
def overflow() -> Callable[[Any, Path, int], list[str]]:
    """Elements that reach beyond a screen of this width, unless something around it scrolls; and
    words that are broken: cells narrower than their longest word.
    """

    def find(browser: Any, page: Path, width: int) -> list[str]:
        resize(browser, width)
        browser.get(page.as_uri())
        found: list[str] = browser.execute_script(OVERFLOW)
        return found

    return find


OVERFLOW = """
const width = document.documentElement.clientWidth, found = [];
const wide = document.documentElement.scrollWidth;
if (wide > width) found.push(`page ${wide}`);
const scrolls = (e) => {
  for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
    if (getComputedStyle(p).overflowX !== 'visible') return true;
  return false;
};
for (const e of document.querySelectorAll('body *'))
  if (e.getBoundingClientRect().right > width + 1 && !scrolls(e))
    found.push(e.tagName + ' ' + e.className);
const range = document.createRange();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let n = walker.nextNode(); n; n = walker.nextNode()) {
  const around = (kinds) => n.parentElement.closest(kinds);
  if (!around('td, th, h1, h2, h3, summary, button') || around('script, style, svg')) continue;
  for (const m of n.data.matchAll(/[A-Za-z]{2,}/g)) {
    range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
    if (range.getClientRects().length > 1) found.push('broken word ' + m[0]);
  }
}
return found;
"""
