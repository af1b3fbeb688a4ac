"""The HTML page in a real browser: `make test-browser`. Elsewhere skipped, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.commands import report
from converter.commands.inspect import summary
from converter.commands.report import facts
from converter.commands.report.facts import Entry
from converter.errors import Diagnostic
from report.conftest import Barriers, find, shown_in
from verify.nets import copy_of, resnet

pytestmark = pytest.mark.browser

ADDRESS = "models/vision/mobilenet_v3_large_minimalistic_{}.onnx"
WIDTHS = (390, 1300)


@pytest.fixture(scope="module")
def entry() -> Entry:
    good = resnet(np.random.default_rng(0))
    bad = copy_of(good)
    node = next(n for n in bad.ir.graph if n.op_type == "MaxPool")
    node.attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])
    names = ADDRESS.format(0), "converted/openvino/a.xml"
    result = converter.verify(good, bad, tensors="all", names=names)
    data = {**result.as_json(), "structure": [summary(good), summary(bad)]}
    return next(facts.of_data(data, "x"))


def write(path: Path, *entries: Entry) -> Path:
    path.write_text(report.render(facts.Report("test", "1", entries), "html"))
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, entry: Entry) -> Path:
    return write(tmp_path_factory.mktemp("page") / "report.html", entry)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, entry: Entry) -> Path:
    return write(tmp_path_factory.mktemp("batch") / "report.html", *cases(2000, entry))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, entry: Entry) -> Path:
    return write(tmp_path_factory.mktemp("few") / "report.html", *cases(90, entry))


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory, entry: Entry) -> Path:
    """30 models, each for three targets."""
    found = []
    for i in range(30):
        for target in ("openvino", "tflite", "zhouyi"):
            code = 3 if target == "zhouyi" and i % 3 == 0 else 1 if i == 7 else 0
            said = (
                Diagnostic("X201" if i % 2 else "X203", "no such operator") if code == 3 else None
            )
            model = ADDRESS.format(i)
            found.append(
                Entry(
                    f"{model} -> {target}", "convert", code, "no such operator" if said else "",
                    model, target, diagnostics=(said,) if said else (), seconds=1.0,
                    numbers=entry.numbers if code == 1 else None, trend="new" if i == 7 else "",
                )
            )  # fmt: skip
    return write(tmp_path_factory.mktemp("crossed") / "report.html", *found)


def cases(count: int, entry: Entry) -> list[Entry]:
    """Every 50th differs, every 80th is unsupported."""

    def case(i: int) -> Entry:
        code = 1 if i % 50 == 7 else 3 if i % 80 == 9 else 0
        source = ADDRESS.format(i)
        head = {0: "1 output the same", 1: entry.headline, 3: "X204 no such operator"}[code]
        numbers = entry.numbers if code == 1 else None
        target = ("zhouyi", "openvino+ir=7")[i % 2]
        files = {"a.bin": {"bytes": 1000 * (i + 1), "sha256": "0" * 64}}
        return Entry(
            f"{source} -> {target}", "convert", code, head, source, target, numbers=numbers,
            files=files, seconds=float(i % 97),
        )  # fmt: skip

    return [case(i) for i in range(count)]


def rows(browser: Any, table: str) -> list[str]:
    """The texts of the rows that are seen."""
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        ".filter(r => r.offsetParent).map(r => r.innerText)",
        table,
    )
    return found


def test_layers_are_searched_and_filtered_by_status(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    everything = rows(browser, "table.layers")
    assert len(everything) == 29
    find(browser, "input[type=search]").send_keys("BLOCK1_A")
    visible = rows(browser, "table.layers")
    assert 0 < len(visible) < len(everything) and all("block1_a" in r for r in visible)
    find(browser, "input[type=search]").send_keys("\ue00c")  # Escape
    assert rows(browser, "table.layers") == everything
    wrong = find(browser, "button[data-s=wrong]")
    wrong.click()
    assert [r.split()[1] for r in rows(browser, "table.layers")] == ["stem_pool"]
    assert wrong.get_attribute("aria-pressed") == "true"
    assert find(browser, ".filter output").text == "1 of 29"
    wrong.click()
    assert rows(browser, "table.layers") == everything


def test_a_table_is_sorted_by_its_headers(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    header = "//table[contains(@class,'layers')]//th[.//button[text()='total error']]"
    button = browser.find_element("xpath", header + "//button")

    def values() -> list[float]:
        cells = browser.execute_script(
            "return [...document.querySelectorAll('table.layers tbody tr')].map(r => "
            "r.cells[5].innerText)"
        )
        return [float(c) for c in cells]

    browser.execute_script("arguments[0].focus()", button)
    button.send_keys("\ue007")  # Enter
    assert values() == sorted(values()) and len(set(values())) > 5
    button.send_keys("\ue007")
    assert values() == sorted(values(), reverse=True)
    head = browser.find_element("xpath", header)
    assert head.get_attribute("aria-sort") == "descending"


def test_the_curve_shows_layers_to_pointer_and_keyboard(browser: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get(page.as_uri())
    plot = find(browser, ".plot")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(browser).move_to_element_with_offset(
        plot, plot.size["width"] // 2 - 2, 0
    ).perform()
    tip = find(browser, ".plot .tip")
    assert tip.is_displayed() and "prob (Softmax)" in tip.text and "passes an error on" in tip.text
    browser.execute_script("arguments[0].focus()", plot)
    plot.send_keys("\ue011\ue014\ue014\ue014")  # Home, three times to the right
    assert "stem_pool (MaxPool): wrong" in tip.text
    assert "stem_pool" in find(browser, ".curve .picked").text


def test_the_graph_around_the_fault(browser: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get(page.as_uri())
    graph = find(browser, ".graph")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", graph)
    boxes = browser.find_elements("css selector", ".graph .box")
    assert len(boxes) == 29
    (wrong,) = browser.find_elements("css selector", ".graph .box.wrong")
    assert (
        "stem_pool" in wrong.text and "✕" in wrong.text and "chosen" in wrong.get_attribute("class")
    )
    assert find(browser, ".graph .box.wrong line.own").size["height"] > 10
    ActionChains(browser).move_to_element(wrong).perform()
    assert "error introduced here" in find(browser, ".graph .tip").text
    browser.execute_script("arguments[0].focus()", wrong)
    wrong.send_keys("\ue014")  # to the right: along a tensor
    after = browser.execute_script("return document.activeElement.textContent")
    assert after != wrong.text and "block0" in after
    assert "block0" in find(browser, ".picture .picked").text
    before = find(browser, ".graph svg > g").get_attribute("transform")
    find(browser, ".zoom button").click()
    assert find(browser, ".graph svg > g").get_attribute("transform") != before


def test_commands_are_copied(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd(
        "Browser.setPermission",
        {"permission": {"name": "clipboard-write"}, "setting": "granted"},
    )
    browser.get(page.as_uri())
    button, code = find(browser, "button.copy"), find(browser, ".cmd code")
    assert code.text == f"netconv verify {ADDRESS.format(0)} converted/openvino/a.xml"
    browser.execute_script(
        "navigator.clipboard.writeText = (t) => { window.copied = t; return Promise.resolve(); }"
    )
    button.click()
    assert browser.execute_script("return window.copied") == code.text
    assert button.text == "copied"


def test_a_batch_of_thousands_is_usable(
    browser: Any, batch: Path, processor_seconds: Callable[[], float]
) -> None:
    browser.get(batch.as_uri())
    seen = rows(browser, "table.cases")
    assert len(seen) == 2000
    assert [r.split()[0] for r in seen] == ["differs"] * 40 + ["unsupported"] * 25 + ["ok"] * 1935
    find(browser, "button[data-s=unsupported]").click()
    assert len(rows(browser, "table.cases")) == 25
    find(browser, "button[data-s=differs]").click()
    find(browser, "input[type=search]").send_keys("zhouyi x204")
    assert {r.split()[0] for r in rows(browser, "table.cases")} <= {"unsupported"}
    find(browser, "input[type=search]").send_keys("\ue00c")
    assert processor_seconds() < 6  # opened, and filtered twice
    before = processor_seconds()
    browser.execute_script(
        "const f = document.querySelector('input[type=search]');"
        "f.value = 'minimalistic_19'; f.oninput(); document.body.offsetHeight;"
        "const b = [...document.querySelectorAll('.cases th button')].find(b => "
        "b.textContent === 'time');"
        "b.click(); document.body.offsetHeight"
    )
    assert processor_seconds() - before < 2


def test_details_are_folded_and_addressed(browser: Any, batch: Path) -> None:
    browser.get(batch.as_uri())
    cases = browser.find_elements("css selector", "details.case")
    assert len(cases) > 8
    assert [c.get_attribute("open") is not None for c in cases[:5]] == [True] * 3 + [False] * 2
    find(browser, "[data-fold=open]").click()
    assert all(c.get_attribute("open") is not None for c in cases)
    find(browser, "[data-fold=shut]").click()
    browser.execute_script("document.querySelectorAll('table.cases a')[8].click()")
    browser.execute_script("return new Promise(requestAnimationFrame)")
    opened = [c for c in cases if c.get_attribute("open") is not None]
    assert len(opened) == 1 and opened[0] == cases[8]
    browser.execute_script("return new Promise((r) => setTimeout(r, 50))")
    assert opened[0].find_elements("css selector", ".graph .box.wrong")  # drawn when unfolded


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["page", "batch"])
def test_nothing_is_wider_than_the_screen_and_no_word_is_broken(
    browser: Any,
    overflow: Callable[[Any, Path, int], list[str]],
    request: pytest.FixtureRequest,
    which: str,
    width: int,
) -> None:
    assert overflow(browser, request.getfixturevalue(which), width) == []


def luminance(color: str) -> float:
    """Relative luminance of rgb(r, g, b), as WCAG 2 defines it."""
    channels = [float(c) / 255 for c in color[color.index("(") + 1 : -1].split(",")[:3]]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(browser: Any, page: Path, scheme: str) -> None:
    shown_in(browser, scheme)
    browser.get(page.as_uri())
    background = luminance(find(browser, "body").value_of_css_property("background-color"))
    assert (background > 0.5) == (scheme == "light")
    for selector in ("p", ".dim", ".verdict span", "td", "h2", ".badge", ".first-divergence li"):
        shown = find(browser, selector)
        behind = browser.execute_script(
            "let e = arguments[0], c; do { c = getComputedStyle(e).backgroundColor; e = "
            "e.parentElement; }"
            "while (e && c === 'rgba(0, 0, 0, 0)'); return c",
            shown,
        )
        text, ground = luminance(shown.value_of_css_property("color")), luminance(behind)
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, selector


def test_screen_readers_find_their_way(browser: Any, page: Path) -> None:
    """Names for everything that is operated, landmarks, headings in order, headers of tables."""
    browser.get(page.as_uri())
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    known = [
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]
    ]
    roles = {role for role, _ in known}
    assert {"banner", "main", "search", "columnheader", "heading"} <= roles
    nameless = [
        r for r, name in known if r in ("button", "searchbox", "link", "image") and not name
    ]
    assert nameless == []
    assert any(r == "group" and name.startswith("error along the graph") for r, name in known)
    assert ("button", "Copy verify command") in known
    levels = [int(h.tag_name[1]) for h in browser.find_elements("css selector", "h1, h2, h3")]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert find(browser, "a.skip").get_attribute("href").endswith("#main")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["page", "few", "crossed"])
def test_axe_finds_no_barrier(
    browser: Any, barriers: Barriers, request: pytest.FixtureRequest, which: str, scheme: str,
    width: int,
) -> None:  # fmt: skip
    assert barriers(browser, request.getfixturevalue(which), scheme, width) == []


def test_the_essentials_are_there_without_scripts(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(page.as_uri())
    assert browser.find_elements("css selector", "input") == []
    text = find(browser, "body").text
    for part in (
        "Different",
        "First wrong layer",
        "stem_pool",
        "pads",
        "Layers",
        "needs JavaScript",
    ):
        assert part in text
    for selector in ("svg polyline.own", "table.tensor td.most", ".bars i.wrong"):
        drawn = find(browser, selector)
        assert drawn.is_displayed() and drawn.size["height"] > 5


def test_odd_names_stay_text(browser: Any, tmp_path: Path, entry: Entry) -> None:
    odd = "<script>window.hit = 1</script></script>\"'><img src=x onerror=window.hit=1>"
    assert entry.numbers is not None
    numbers = entry.numbers
    tensors = tuple(replace(t, layer=odd) for t in numbers.tensors)
    picture = {**(numbers.picture or {})}
    picture["nodes"] = [{**n, "layer": odd} for n in picture["nodes"]]
    sample = {**numbers.samples[0], "tensor": odd}
    changed = replace(numbers, tensors=tensors, picture=picture, samples=(sample,))
    made = replace(entry, name=odd, headline=odd, numbers=changed, arguments=("verify", odd))
    browser.get(write(tmp_path / "odd.html", made).as_uri())
    assert browser.execute_script("return window.hit === undefined")
    assert odd in find(browser, "h2").text
    find(browser, ".plot").click()
    assert odd in find(browser, ".plot .tip").text


def test_the_filter_of_the_cases_is_part_of_the_address(browser: Any, few: Path) -> None:
    browser.get(few.as_uri())
    find(browser, "button[data-s=differs]").click()
    find(browser, "input[type=search]").send_keys("minimalistic_1")
    shown = rows(browser, "table.cases")
    assert "q=minimalistic_1" in browser.current_url and "status=differs" in browser.current_url
    browser.get(browser.current_url)
    assert rows(browser, "table.cases") == shown
    find(browser, "input[type=search]").send_keys("zzz")
    assert rows(browser, "table.cases") == []
    text = find(browser, "main").text
    assert 'no cases match "minimalistic_1zzz"' in text
    find(browser, "input[type=search]").send_keys("\ue00c")
    assert "no cases match" not in find(browser, "main").text


def states(browser: Any) -> list[tuple[str, str, str]]:
    """Model, target and status of the cells of the matrix that are seen."""
    found: list[list[str]] = browser.execute_script(
        "return [...document.querySelectorAll('table.matrix td[data-s]:not(.off)')]"
        ".filter((c) => c.offsetParent && getComputedStyle(c.firstElementChild).visibility === "
        "'visible').map((c) => [c.parentElement.cells[0].innerText, c.dataset.t, c.dataset.s])"
    )
    return [(a, b, c) for a, b, c in found]


def test_models_and_targets_are_a_matrix(browser: Any, crossed: Path) -> None:
    browser.get(crossed.as_uri())
    head = [h.text for h in browser.find_elements("css selector", "table.matrix thead th")]
    assert head == ["model", "openvino", "tflite", "zhouyi"]
    everything = states(browser)
    assert len(everything) == 90 and len(rows(browser, "table.matrix")) == 30
    assert {s for _, _, s in everything[:3]} == {"differs"}  # new failures come first
    find(browser, "button[data-s=unsupported]").click()
    assert {s for _, _, s in states(browser)} == {"unsupported"} and len(states(browser)) == 10
    details = browser.find_elements("css selector", "details.case")
    shown = [d for d in details if d.is_displayed()]
    assert len(shown) == 10 and len(details) == 13  # the details follow the filter
    select(browser, "code", "X201")
    chosen = states(browser)
    assert len(chosen) == 5 and "status=unsupported&code=X201" in browser.current_url
    browser.refresh()
    assert states(browser) == chosen
    find(browser, "button[data-s=unsupported]").click()
    select(browser, "code", "")
    select(browser, "target", "tflite")
    assert {t for _, t, _ in states(browser)} == {"tflite"}
    select(browser, "target", "")
    assert "#" not in browser.current_url and states(browser) == everything
    find(browser, "button[data-n=new]").click()
    assert len(states(browser)) == 3 and "since=new" in browser.current_url


def select(browser: Any, title: str, value: str) -> None:
    script = (
        "const s = document.querySelector(`select[aria-label=${arguments[0]}]`);"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    )
    browser.execute_script(script, title, value)


def test_failures_are_grouped_by_cause_and_lead_to_their_cases(browser: Any, crossed: Path) -> None:
    browser.get(crossed.as_uri())
    causes = browser.find_elements("css selector", "details.cause")
    assert [c.text.split("\n")[0] for c in causes] == [
        "3 × differs 3 new",
        "5 × unsupported X201 no such operator",
        "5 × unsupported X203 no such operator",
    ]
    causes[1].find_element("css selector", "summary").click()
    assert len(causes[1].find_elements("css selector", "li a")) == 5
    causes[1].find_element("link text", "only these cases").click()
    assert len(states(browser)) == 5
    browser.get(crossed.as_uri())
    causes = browser.find_elements("css selector", "details.cause")
    causes[1].find_element("css selector", "summary").click()
    causes[1].find_element("css selector", "a.code").click()
    assert browser.current_url.endswith("#X201")  # the explanation is in the page
    assert find(browser, "#X201").is_displayed() and "X201" in find(browser, "dt:target").text
    assert len(states(browser)) == 90


@pytest.mark.parametrize("width", WIDTHS)
def test_a_matrix_fits_the_screen(
    browser: Any, crossed: Path, overflow: Callable[[Any, Path, int], list[str]], width: int
) -> None:
    assert overflow(browser, crossed, width) == []


def test_an_empty_search_hides_the_table(browser: Any, crossed: Path) -> None:
    browser.get(crossed.as_uri())
    find(browser, "input[type=search]").send_keys("zzz")
    assert not find(browser, "table.matrix").is_displayed()
    assert 'no cases match "zzz"' in find(browser, "main").text
    browser.get(crossed.as_uri() + "#q=minimalistic_12")
    browser.refresh()
    assert {m for m, _, _ in states(browser)} == {ADDRESS.format(12)}


def test_a_tensor_has_the_indices_of_either_file(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    text = find(browser, ".pair").text
    assert f"reference {ADDRESS.format(0)}" in text and "candidate converted/" in text
    assert "of [1,8,6,6]" in text
    legend = [i.text for i in browser.find_elements("css selector", ".legend li")]
    assert {"equal", "differs a little", "differs most"} <= set(legend)
